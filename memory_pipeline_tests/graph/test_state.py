"""The newest state of a graph: pending entries count like committed ones."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.graph.state import GraphOverlay
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.graph import operations_to_rows
from memory_pipeline.lake.lake import CONFIGURATION as CONFIGURATION_FILE
from memory_pipeline.lake.layout import shard_of
from memory_pipeline.lake.schemas import GRAPH_OPERATIONS
from memory_pipeline.steps.fold_graph import sync_operations
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.domain.graph_oracle import NAMING, PLAIN
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.graph.line_edits import (
    CONFIGURATION,
    Waiting,
    cut,
    graph_of,
    hour,
    land,
    lines,
    operations_in,
    write_edits,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from memory_pipeline.domain.graph.operations import Operation

#: Histories that are compared in one test, which share two lakes.
CHUNK = 15
#: Chunks of histories without and with aliases. The others take too long for every run.
PLAIN_CHUNKS, NAMING_CHUNKS = (12, 4) if IS_THOROUGH else (1, 1)
Parts = tuple[list["Operation"], list[list["Operation"]]]


def rows(table: pa.Table) -> list[str]:
    """Return rows in a fixed order."""
    return sorted(str(row) for row in table.to_pylist())


def states(tmp_path: Path, parts: list[Parts]) -> list[tuple[GraphOverlay, GraphOverlay]]:
    """Return two states of each history: with pending entries, and with all committed."""
    split, whole = Lake(str(tmp_path / "split")), Lake(str(tmp_path / "whole"))
    scopes = [Scope("acme", f"agent-{number}") for number in range(len(parts))]
    for lake in (split, whole):
        lake.ensure()
        lake.storage.write(CONFIGURATION_FILE, CONFIGURATION)
    land(split, {scope: landed for scope, (landed, _) in zip(scopes, parts, strict=True)})
    land(whole, {scope: sum(files, landed) for scope, (landed, files) in zip(scopes, parts, strict=True)})
    return [
        (GraphOverlay(split, scope, Waiting(split, scope, *files)), GraphOverlay(whole, scope, Waiting(whole, scope)))
        for scope, (_, files) in zip(scopes, parts, strict=True)
    ]


def differences(states: list[tuple[GraphOverlay, GraphOverlay]]) -> list[str]:
    """Return the differences between the states of each pair."""
    found = []
    for split, whole in states:
        mine, theirs = split.snapshot(), whole.snapshot()
        every = {theirs.codes.name(code) for code in range(len(theirs.codes))}
        names = sorted(every - theirs.names.aliases.keys())
        pairs = {
            "history": (rows(mine.history), rows(theirs.history)),
            "facts": (rows(mine.facts), rows(theirs.facts)),
            "entities": (rows(mine.entities), rows(theirs.entities)),
            "aliases": (mine.names.aliases, theirs.names.aliases),
            "degrees": tuple([_degree(one, name) for name in names] for one in (mine, theirs)),
            "spelling": tuple(one.spelt([one.codes.get(name) or 0 for name in names]) for one in (mine, theirs)),
        }
        found += [what for what, (first, second) in pairs.items() if first != second]
    return found


def _degree(snapshot: Any, name: str) -> int:
    code = snapshot.codes.get(name)
    return 0 if code is None else int(snapshot.degrees[code])


@pytest.mark.parametrize("chunk", range(PLAIN_CHUNKS))
def test_pending_operations_count_like_committed_ones(tmp_path: Path, chunk: int) -> None:
    parts = list(cut(f"plain {chunk}", CHUNK, PLAIN))
    assert differences(states(tmp_path, parts)) == []


def test_the_random_histories_cover_pending_and_committed_operations() -> None:
    """Otherwise the comparison would be empty."""
    parts = [part for chunk in range(PLAIN_CHUNKS) for part in cut(f"plain {chunk}", CHUNK, PLAIN)]
    assert len(parts) == PLAIN_CHUNKS * CHUNK
    assert sum(bool(landed) and all(files) for landed, files in parts) > len(parts) / 2
    assert sum(any(one.verb == "DELETE" for file in files for one in file) for _, files in parts) > len(parts) / 3
    same = [{(one.subject, one.predicate) for one in landed} for landed, _ in parts]
    assert (
        sum(
            any((one.subject, one.predicate) in own for file in files for one in file)
            for own, (_, files) in zip(same, parts, strict=True)
        )
        > len(parts) / 3
    )


def naming(seed: int, count: int) -> list[Parts]:
    """Return histories with new aliases; none ends, and no two entities claim the same one."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        things = ["Anna", "Bruno", "Clara", "Porto"]
        aliases = {"Annie": "Anna", "A.": "Anna", "Dog": "Bruno", "Doggy": "Dog"}
        texts = [f"INSERT {own}|{chance.choice(NAMING[1:])}|{alias}" for alias, own in aliases.items()]
        texts += [
            f"{chance.choice(['INSERT', 'UPDATE', 'DELETE'])} {chance.choice([*things, *aliases])}|"
            f"{chance.choice(PLAIN)}|{chance.choice([*things, *aliases])}"
            for _ in range(chance.randint(3, 14))
        ]
        operations: list[Operation] = []
        for minute, text in enumerate(chance.sample(texts, len(texts))):
            operations += operations_in(text, [f"m{number}-{minute}"], hour(minute / 10))
        parts: list[list[Operation]] = [[], [], []]
        for one in operations:
            chance.choice(parts).append(one)
        found.append((parts[0], parts[1:]))
    return found


@pytest.mark.parametrize("chunk", range(NAMING_CHUNKS))
def test_pending_aliases_rename_committed_facts(tmp_path: Path, chunk: int) -> None:
    pairs = states(tmp_path, naming(chunk, CHUNK))
    assert differences(pairs) == []
    assert sum(bool(split.snapshot().names.aliases) for split, _ in pairs) == CHUNK


def test_any_pending_changes_of_aliases_equal_the_fold(tmp_path: Path) -> None:
    assert differences(states(tmp_path, list(cut("naming 0", (2 if IS_THOROUGH else 1) * CHUNK, PLAIN + NAMING)))) == []


ENDING = {
    "a second thing claims the alias": "INSERT Clara | also_known_as | Annie",
    "the alias is withdrawn": "DELETE Anna | also_known_as | Annie",
    "all aliases are withdrawn": "DELETE Anna | also_known_as |",
}


@pytest.mark.parametrize("ending", ENDING.values(), ids=ENDING)
def test_facts_of_a_former_alias_stay(lake: Lake, ending: str) -> None:
    said = "INSERT Anna|also_known_as|Annie\nINSERT Annie|likes|tea\nINSERT Anna|likes|figs"
    land(lake, {ACME: operations_in(said, ["m1"], hour(0))})
    assert lines(graph_of(lake).facts_about("tea")) == ["Annie likes tea"]
    write_edits(lake, ending, at=hour(1))
    assert lines(graph_of(lake).facts_about("tea")) == ["Annie likes tea"]
    assert lines(graph_of(lake).facts_about("figs")) == ["Anna likes figs"]


def test_a_withdrawn_name_is_not_displayed(lake: Lake) -> None:
    said = "INSERT Anna|also_known_as|Annie\nINSERT Anna|likes|figs"
    later = operations_in("INSERT Annie|likes|tea", ["m2"], hour(1))
    land(lake, {ACME: [*operations_in(said, ["m1"], hour(0)), *later]})
    write_edits(lake, "DELETE Anna | also_known_as | Annie", at=hour(2))
    entity = graph_of(lake).entity("anna")
    assert entity is not None
    assert entity.name == "Anna"


def test_a_pending_alias_joins_two_entities(lake: Lake) -> None:
    land(
        lake,
        {ACME: operations_in("INSERT Annie|lives_in|Porto\nINSERT Anna|likes|tea\nINSERT tea|is|hot", ["m1"], hour(0))},
    )
    graph = graph_of(lake)
    assert lines(graph.facts_about("Anna")) == ["Anna likes tea"]
    write_edits(lake, "INSERT Anna | lives_in | Rome", "INSERT Anna | also_known_as | annie", at=hour(1))
    assert sorted(lines(graph.facts_about("ANNIE"))) == [
        "Anna also_known_as annie",
        "Anna likes tea",
        "Anna lives_in Rome",
    ]
    [porto] = graph.history("Annie", "lives_in")[:1]
    assert (porto.target, porto.valid_to, porto.superseded_by) == (
        "Porto",
        hour(1),
        graph.facts_about("Rome")[0].id,
    )


def test_two_pending_changes_are_applied_in_sequence(lake: Lake) -> None:
    """The second layer is always built on the table, never on the layer before."""
    graph = graph_of(lake)
    write_edits(lake, "INSERT Anna | lives_in | Porto", "INSERT Anna | likes | tea", at=hour(0))
    first = graph.history("Anna")
    land(lake, {ACME: operations_in("INSERT Anna|likes|figs", ["m1"], hour(-1))})
    assert lines(graph.history("Anna")) == ["Anna likes figs", *lines(first)]
    write_edits(lake, "INSERT Anna | lives_in | Rome", "DELETE Anna | likes | tea", at=hour(1))
    assert sorted(lines(graph.facts_about("Anna"))) == ["Anna likes figs", "Anna lives_in Rome"]
    for file in lake.journal.pending():
        lake.journal.acknowledge([file])
    assert lines(graph.history("Anna")) == ["Anna likes figs"]


def test_pending_entries_that_are_committed_count_once(lake: Lake) -> None:
    """An edit is in both between its commit and its acknowledgement."""
    graph = graph_of(lake)
    write_edits(lake, "INSERT Anna | likes | tea", "INSERT Anna | also_known_as | Annie", at=hour(0))
    before = graph.history("Anna")
    [file] = lake.journal.pending()
    edits = lake.journal.read(file).edits
    land(lake, {ACME: [operation for edit in edits for operation in edit.operations]})
    assert graph.history("Anna") == before
    lake.journal.acknowledge([file])
    assert graph.history("Anna") == before
    assert [fact.weight for fact in before] == [0.5, 0.5]


def test_operations_committed_without_their_fold_count_once(lake: Lake) -> None:
    """A run was killed between two commits."""
    graph = graph_of(lake)
    write_edits(lake, "INSERT Anna | lives_in | Porto", at=hour(0))
    before = graph.history("Anna")
    [file] = lake.journal.pending()
    [edit] = lake.journal.read(file).edits
    stored = operations_to_rows({ACME: edit.operations}, are_edits=True)
    hours = set(stored["period"].to_pylist())
    lake.tables.replace(GRAPH_OPERATIONS, hours, stored)
    assert graph.history("Anna") == graph_of(lake).history("Anna") == before
    sync_operations(lake, hours)
    assert lake.graph_rows.scan().num_rows == 0
    assert graph.history("Anna") == graph_of(lake).history("Anna") == before


def test_an_alias_committed_without_its_fold_still_renames(lake: Lake) -> None:
    said = operations_in("INSERT Anna|lives_in|Porto\nINSERT Nan|likes|dates", ["m1"], hour(0))
    land(lake, {ACME: said})
    write_edits(lake, "INSERT Anna | also_known_as | Nan", at=hour(1))
    before = graph_of(lake).history("Anna")
    assert sorted(lines(before)) == ["Anna also_known_as Nan", "Anna lives_in Porto", "Nan likes dates"]
    [file] = lake.journal.pending()
    [edit] = lake.journal.read(file).edits
    stored = operations_to_rows({ACME: [*said, *edit.operations]}, are_edits=True)
    hours = set(stored["period"].to_pylist())
    lake.tables.replace(GRAPH_OPERATIONS, hours, stored)
    assert graph_of(lake).history("Anna") == before
    sync_operations(lake, hours)
    assert graph_of(lake).history("Anna") == before


def test_unchanged_rows_are_not_read_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake, {ACME: operations_in("INSERT Anna|likes|tea", ["m1"], hour(0))})
    write_edits(lake, "INSERT Anna | likes | figs", at=hour(1))
    state = GraphOverlay(lake, ACME, Waiting(lake, ACME))
    first = state.snapshot()
    reads: list[list[str]] = []
    for projection in (lake.operations, lake.graph_rows):

        def counted(scopes: Any, columns: Any = None, where: Any = None, _read: Any = projection.read) -> pa.Table:
            reads.append(columns)
            return _read(scopes, columns, where)

        monkeypatch.setattr(projection, "read", counted)
    assert state.snapshot() is first
    assert reads == []
    other = next(
        scope for n in range(99) if shard_of((scope := Scope("acme", f"a{n}")).key, 16) == shard_of(ACME.key, 16)
    )
    land(lake, {other: operations_in("INSERT Omar|likes|tea", ["m1"], hour(0))})
    reads.clear()
    assert state.snapshot() is first, "another agent's commits are none of its own"
    assert reads == [["id", "digest"]]
    land(lake, {ACME: operations_in("INSERT Anna|likes|honey", ["m1"], hour(0))})
    assert state.snapshot() is not first


def test_an_unknown_agent_has_an_empty_graph(lake: Lake) -> None:
    snapshot = GraphOverlay(lake, ACME, Waiting(lake, ACME)).snapshot()
    assert (snapshot.history.num_rows, snapshot.facts.num_rows, snapshot.entities.num_rows) == (0, 0, 0)
    assert snapshot.code("Anna") is None
    assert not lake.exists
