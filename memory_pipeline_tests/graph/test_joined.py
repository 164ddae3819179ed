"""The graphs of several scopes, read as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.scopes import Scope, scope_key
from memory_pipeline.graph import Graph, Neighbor
from memory_pipeline.graph.state import GraphOverlay, JoinedGraphs
from memory_pipeline.lake import Lake
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.graph.line_edits import Waiting, hour, land, lines, operations_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memory_pipeline.domain.graph.operations import Operation


SCOPES = [
    ACME,
    *(Scope("acme", "support", one, scope_key("a secret", "acme", "support", one)) for one in ("user:u1", "group:g1")),
]


def operations(*changes: str, at: float = 0) -> tuple[Operation, ...]:
    return operations_in("\n".join(changes), ["m1"], hour(at))


@pytest.fixture
def scopes(lake: Lake) -> list[Scope]:
    """The scopes of an agent, a user and a group, in a lake."""
    lake.ensure()
    return SCOPES


def overlay(lake: Lake, scope: Scope, *files: Sequence[Operation]) -> GraphOverlay:
    return GraphOverlay(lake, scope, Waiting(lake, scope, *files))


def joined(lake: Lake, overlays: Sequence[GraphOverlay], user_id: str | None = None) -> Graph:
    return Graph(JoinedGraphs(lambda: overlays, user_id), lake.calendar)


NAMES = st.sampled_from(["Anna", "Bruno", "Carla", "tea", "User"])
PENDING = st.sets(st.sampled_from(SCOPES))
FACTS = st.tuples(NAMES, st.sampled_from(["likes", "knows"]), NAMES)


@settings(max_examples=examples(5), deadline=None)
@given(said=st.lists(st.tuples(st.integers(0, 2), FACTS), min_size=1, max_size=12), pending=PENDING)
def test_joined_graphs_equal_one_graph_of_all(
    said: list[tuple[int, tuple[str, str, str]]], pending: set[Scope], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = Lake(str(tmp_path_factory.mktemp("joined") / "lake"))
    lake.ensure()
    own = [operations(*(f"INSERT {'|'.join(fact)}" for at, fact in said if at == number)) for number in range(3)]
    land(lake, {scope: each for scope, each in zip(SCOPES, own, strict=True) if scope not in pending})
    overlays = [
        overlay(lake, scope, *([each] if scope in pending else [])) for scope, each in zip(SCOPES, own, strict=True)
    ]
    graph = joined(lake, overlays)
    other = Scope("acme", "whole")
    whole = Graph(GraphOverlay(lake, other, Waiting(lake, other, [one for each in own for one in each])), lake.calendar)
    assert set(lines(graph.facts())) == set(lines(whole.facts()))
    assert len(graph.query("SELECT * FROM history", max_rows=1_000).rows) == graph.facts().total
    for name in {term for _, (subject, _, value) in said for term in (subject, value)}:
        assert set(lines(graph.facts_about(name))) == set(lines(whole.facts_about(name)))
        assert graph.neighbors(name, 3) == whole.neighbors(name, 3)
        walked = graph.query(f"SELECT name, distance FROM neighbors('{name}', 3)", max_rows=1_000).rows
        assert [Neighbor(*row) for row in walked] == graph.neighbors(name, 3)
        assert set(lines(graph.search(name, 100, hops=2))) == set(lines(whole.search(name, 100, hops=2)))
    for fact in graph.facts():
        assert graph.fact(fact.id) == fact
        assert fact.identity in {scope.identity for scope, each in zip(SCOPES, own, strict=True) if each}


def test_the_newer_of_two_values_is_first_and_both_name_their_scope(lake: Lake, scopes: list[Scope]) -> None:
    _, user, group = scopes
    land(lake, {group: operations("INSERT Anna|lives_in|Porto"), user: operations("INSERT Anna|lives_in|Oslo", at=5)})
    graph = joined(lake, [overlay(lake, scope) for scope in scopes])
    for facts in (graph.facts_about("Anna"), graph.search("Does Anna live in Porto?")):
        assert [(fact.target, fact.identity) for fact in facts] == [("Oslo", "user:u1"), ("Porto", "group:g1")]
        assert sorted((fact.score for fact in facts), reverse=True) == [fact.score for fact in facts]
    rows = graph.query("SELECT target, identity FROM facts ORDER BY target").rows
    assert list(map(tuple, rows)) == [("Oslo", "user:u1"), ("Porto", "group:g1")]


def test_to_its_reader_a_user_is_one_entity(lake: Lake, scopes: list[Scope], tmp_path: Path) -> None:
    own, user, group = scopes
    land(lake, {user: operations("INSERT User|likes|tea"), group: operations("INSERT user:u1|likes|figs")})
    overlays = [overlay(lake, own), overlay(lake, user), overlay(lake, group, operations("INSERT Bruno|knows|user:u1"))]
    graph = joined(lake, overlays, "u1")
    assert set(lines(graph.facts_about("User"))) == {"User likes tea", "User likes figs", "Bruno knows User"}
    assert lines(graph.facts_about("user:u1")) == lines(graph.facts_about("User"))
    assert {one.name for one in graph.neighbors("User")} == {"tea", "figs", "Bruno"}
    assert graph.query("SELECT name FROM neighbors('user:u1') ORDER BY 1").rows == [("Bruno",), ("figs",), ("tea",)]
    assert (entity := graph.entity("user:u1")) is not None
    assert (entity.name, entity.facts) == ("User", 3)
    assert {fact.target for fact in graph.search("What do I like?")} >= {"tea", "figs"}
    names = graph.query("SELECT DISTINCT source_id FROM history ORDER BY 1").rows
    assert [row[0] for row in names] == ["bruno", "user"]
    assert graph.export(tmp_path / "facts.parquet") == 3
    theirs = joined(lake, overlays, "u2")
    assert set(lines(theirs.facts_about("User"))) == {"User likes tea"}


def test_an_alias_of_one_scope_holds_in_all_unless_two_disagree(lake: Lake, scopes: list[Scope]) -> None:
    own, user, group = scopes
    land(
        lake,
        {
            own: operations("INSERT Annie|likes|tea"),
            user: operations("INSERT Anna|also_known_as|Annie"),
            group: operations("INSERT Carla|knows|Bruno"),
        },
    )
    graph = joined(lake, [overlay(lake, scope) for scope in scopes])
    assert "Annie likes tea" in lines(graph.facts_about("Anna"))
    disagreeing = overlay(lake, group, operations("INSERT Carla|also_known_as|Annie"))
    graph = joined(lake, [overlay(lake, own), overlay(lake, user), disagreeing])
    assert "Annie likes tea" not in lines(graph.facts_about("Anna"))


def test_a_change_of_a_small_scope_lays_out_no_large_one(lake: Lake, scopes: list[Scope]) -> None:
    own, user, group = scopes
    land(
        lake,
        {
            own: operations(*(f"INSERT Anna|likes|thing {number}" for number in range(30))),
            group: operations(*(f"INSERT Bruno|likes|thing {number}" for number in range(20))),
            user: operations("INSERT User|likes|tea"),
        },
    )
    waiting = Waiting(lake, user)
    graphs = JoinedGraphs(lambda: overlays)
    overlays = [overlay(lake, own), GraphOverlay(lake, user, waiting), overlay(lake, group)]
    before = graphs.snapshot()
    assert graphs.snapshot() is before
    assert [len(layer) for layer in before.layers] == [30, 20, 1]
    assert before.layers[0] is overlays[0].snapshot().layers[0]
    waiting.held |= Waiting(lake, user, operations("INSERT User|likes|figs", at=2)).held
    after = graphs.snapshot()
    assert [one is other for one, other in zip(before.layers, after.layers, strict=False)] == [True] * 3
    assert after.facts.num_rows == 52


def test_a_scope_that_leaves_the_list_is_not_read(lake: Lake, scopes: list[Scope]) -> None:
    own, _, group = scopes
    land(lake, {own: operations("INSERT Anna|likes|tea"), group: operations("INSERT Bruno|likes|figs")})
    listed = [overlay(lake, own), overlay(lake, group)]
    graph = joined(lake, listed)
    assert graph.knows("Bruno")
    del listed[1]
    assert not graph.knows("Bruno")
    assert lines(graph.facts()) == ["Anna likes tea"]
