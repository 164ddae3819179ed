"""The table functions of a graph: equal to networkx on random graphs, and bounded on large ones."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import networkx as nx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.errors import InputError
from memory_pipeline.lake.sql.session import Session
from memory_pipeline.lake.sql.walks import MAX_DEPTH, MAX_ROWS, Walks
from memory_pipeline_tests.effort import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Fact = tuple[str, str, str]

NAMES = "abcdefgh"
FACTS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["knows", "is_a", "met"]), st.sampled_from(NAMES)))


def tables(facts: Sequence[Fact], aliases: dict[str, list[str]] | None = None) -> dict[str, pa.Table]:
    """The tables of a graph; of two facts the later one is newer."""
    columns = list(zip(*facts, strict=True)) or [(), (), ()]
    sources, labels, targets = (pa.array(column, pa.string()) for column in columns)
    ids = sorted({name for source, _, target in facts for name in (source, target)})
    return {
        "facts": pa.table(
            {
                "id": pa.array([f"fact {place}" for place in range(len(facts))], pa.string()),
                "source_id": sources,
                "label": labels,
                "target_id": targets,
                "updated_at": pa.array(range(len(facts)), pa.int64()).cast(pa.timestamp("us", "UTC")),
            }
        ),
        "entities": pa.table(
            {
                "id": pa.array(ids, pa.string()),
                "name": pa.array([name.title() for name in ids], pa.string()),
                "aliases": pa.array([(aliases or {}).get(name, []) for name in ids], pa.list_(pa.string())),
            }
        ),
    }


def walks(facts: Sequence[Fact], aliases: dict[str, list[str]] | None = None) -> Walks:
    return Walks(*tables(facts, aliases).values())


def oracle(facts: Iterable[Fact]) -> nx.Graph:
    graph = nx.Graph()
    for source, label, target in facts:
        graph.add_nodes_from((source, target))
        if label != "is_a" and source != target:
            graph.add_edge(source, target)
    return graph


@settings(max_examples=examples(150))
@given(FACTS, st.integers(1, MAX_DEPTH))
def test_walks_equal_those_of_networkx(facts: list[Fact], depth: int) -> None:
    graph, walk = oracle(facts), walks(facts)
    for start in graph:
        distances = nx.single_source_shortest_path_length(graph, start, cutoff=depth)
        near = sorted((distance, name) for name, distance in distances.items() if distance)
        assert [(row["distance"], row["id"]) for row in walk.neighbors(start.upper(), depth)] == near
        for goal in graph:
            expected = sorted(nx.all_simple_paths(graph, start, goal, cutoff=depth), key=lambda ids: (len(ids), ids))
            assert [row["ids"] for row in walk.paths(start, goal, depth)] == expected
    assert not walk.is_cut


@settings(max_examples=examples(30))
@given(FACTS)
def test_a_path_names_the_newest_fact_of_each_step(facts: list[Fact]) -> None:
    ends = sorted({name for source, _, target in facts for name in (source, target)})
    for row in walks(facts).paths(ends[0], ends[-1], 4) if ends else ():
        text, ids = row["names"][0], row["facts"]
        assert len(ids) == row["length"]
        for (here, there), fact in zip(pairwise(row["ids"]), ids, strict=True):
            steps = [
                place
                for place, (one, label, other) in enumerate(facts)
                if {one, other} == {here, there}
                if label != "is_a"
            ]
            assert fact == f"fact {max(steps)}"
            source, label, _ = facts[max(steps)]
            text += f" -{label}-> {there.upper()}" if source == here else f" <-{label}- {there.upper()}"
        assert row["path"] == text


def test_names_are_found_in_any_case_and_by_alias() -> None:
    walk = walks([("anna", "also_known_as", "annie"), ("ben", "knows", "anna")], {"anna": ["annie"]})
    assert [row["name"] for row in walk.neighbors(" ANNIE", 2)] == ["Ben"], "an alias is no neighbour"
    assert [row["ids"] for row in walk.paths("ben", "Annie", 2)] == [["ben", "anna"]]
    assert [row["ids"] for row in walk.paths("Anna", "Annie", 2)] == [["anna"]]
    for unknown in ("nobody", "", None):
        assert walk.neighbors(unknown, 1) == walk.paths("ben", unknown, 1) == walk.paths(unknown, "ben", 1) == []


@pytest.mark.parametrize("depth", [0, -1, MAX_DEPTH + 1, None])
def test_an_invalid_depth_is_refused(depth: int | None) -> None:
    with pytest.raises(InputError, match=f"depth .* expected 1 to {MAX_DEPTH}"):
        walks([]).neighbors("nobody", depth)
    with pytest.raises(InputError, match=f"depth .* expected 1 to {MAX_DEPTH}"):
        walks([]).paths("a", "b", depth)


def test_hubs_do_not_exhaust_a_query() -> None:
    """Two hubs with the same 15,000 friends: the first paths are returned, and `is_cut` says that there are more."""
    facts = [(hub, "knows", f"friend {number:05}") for number in range(15_000) for hub in ("ann", "bob", "eve")]
    walk = walks(facts)
    started = time.process_time()
    found = walk.paths("ann", "bob", MAX_DEPTH)
    assert len(found) == MAX_ROWS
    assert [row["ids"] for row in found[:2]] == [["ann", f"friend {number:05}", "bob"] for number in (0, 1)]
    assert walk.is_cut
    walk.is_cut = False
    assert len(walk.neighbors("ann", 2)) == MAX_ROWS
    assert walk.is_cut
    # Each of these has millions of beginnings of paths, and all end at a hub that was visited.
    dead_end = walks([*facts, ("ann", "knows", "bob"), ("bob", "knows", "zed")])
    assert [row["length"] for row in dead_end.paths("ann", "zed", MAX_DEPTH)][:2] == [2, 3]
    assert dead_end.is_cut
    assert time.process_time() - started < 20


def test_sql_calls_them_as_tables() -> None:
    facts = [("anna", "knows", "ben"), ("cara", "met", "ben"), ("an'na", "likes", "tea"), ('"; drop', "likes", "tea")]
    with closing(Session(tables(facts), is_graph=True)) as session:

        def rows(sql: str) -> list[tuple[Any, ...]]:
            answer = session.ask(sql)
            assert not answer.is_cut
            return answer.rows

        assert session.ask("FROM neighbors('Anna', 2)").columns == ("id", "name", "distance")
        assert rows("FROM neighbors('Anna', depth := 2)") == [("ben", "Ben", 1), ("cara", "Cara", 2)]
        assert rows("SELECT id FROM neighbors('Anna')") == [("ben",)]
        assert session.ask("FROM paths('Anna', 'Cara')").columns == ("length", "ids", "names", "facts", "path")
        assert rows("SELECT length, path FROM paths('Anna', 'Cara', 4)") == [(2, "Anna -knows-> Ben <-met- Cara")]
        assert rows("FROM paths('Anna', 'tea')") == rows("FROM neighbors('nobody', 3)") == []
        # Names are values, whatever they hold.
        assert rows("SELECT id FROM neighbors('An''na')") == rows("SELECT id FROM neighbors('\"; DROP')") == [("tea",)]
        assert rows("SELECT id FROM neighbors('x'') UNION SELECT 1 --')") == []
        # They join with tables, take columns, and a CTE cannot take the place of their tables.
        joined = (
            "SELECT f.label FROM paths('Anna', 'Cara') p, unnest(p.facts) AS u(id) JOIN facts f USING (id) ORDER BY 1"
        )
        assert rows(joined) == [("knows",), ("met",)]
        assert rows("SELECT n.id FROM entities e, neighbors(e.id) n WHERE e.name = 'Anna'") == [("ben",)]
        assert rows("WITH facts AS (SELECT 1) SELECT id FROM neighbors('Anna')") == [("ben",)]
        for refused, message in [
            ("FROM neighbors('Anna', 7)", "^the query failed: depth 7 is not accepted; expected 1 to 6 steps"),
            ("FROM neighbors()", "neighbors"),
            ("FROM neighbors('Anna', (SELECT size FROM read_text('x')))", "read_text"),
            ("SELECT neighbors('Anna')", "not accepted"),
            ("SELECT _neighbors('Anna', 1)", "_neighbors"),
            ("FROM _paths('Anna', 'Ben', 1)", "_paths"),
            ("FROM main.neighbors('Anna')", "without a dot"),
        ]:
            with pytest.raises(InputError, match=message):
                session.ask(refused)
        with pytest.raises(InputError, match="longer than"):
            session.ask("SELECT count(*) FROM range(1000000) r, neighbors('anna ' || r.range, 6)", max_seconds=0.2)
        assert rows("SELECT id FROM neighbors('Anna')") == [("ben",)], "the process starts again, with the functions"


def test_a_cut_walk_is_reported() -> None:
    facts = [("hub", "knows", f"friend {number}") for number in range(MAX_ROWS + 1)]
    with closing(Session(tables(facts), is_graph=True)) as session:
        answer = session.ask("SELECT count(*) FROM neighbors('hub')")
        assert (answer.rows, answer.is_cut) == ([(MAX_ROWS,)], True)
        assert not session.ask("SELECT count(*) FROM neighbors('friend 1')").is_cut


def test_only_a_graph_has_them() -> None:
    with closing(Session(tables([("a", "knows", "b")]))) as session, pytest.raises(InputError, match="'neighbors'"):
        session.ask("FROM neighbors('a')")
