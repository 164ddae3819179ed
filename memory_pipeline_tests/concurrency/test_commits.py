"""Processes that commit to the same tables, agents and index at once lose and duplicate nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import fold_operations
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.graph import rows_to_operations, triples_to_rows
from memory_pipeline.lake.schemas import (
    ANSWERS,
    EVENTS,
    GRAPH_OPERATIONS,
    IS_FACT,
    LEDGER,
    MEMORIES,
    MEMORY_EVENTS,
    MODEL_CALLS,
)
from memory_pipeline.lake.tables.marts import Marts
from memory_pipeline.steps.fold_memories import fold_memories
from memory_pipeline_tests.building import ACME, table_rows
from memory_pipeline_tests.concurrency.rivals import (
    append_rows,
    count_up,
    edit_of,
    event_of,
    fold_edits,
    keep_calls,
    land_memories,
    merge_index,
    record_entries,
    replace_marts,
    scope_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.concurrency.conftest import Place
    from memory_pipeline_tests.concurrency.rivals import Rivals


def every(rivals: Rivals, rounds: int) -> list[tuple[int, int]]:
    """Return each rival with each of its rounds."""
    return [(number, each) for number in range(rivals.count) for each in range(rounds)]


def test_concurrent_appends_lose_nothing(rivals: Rivals, place: Place) -> None:
    for shared in (False, True):
        rivals.race(partial(append_rows, shared=shared), place.root, place.rounds, place.environment)
    rows = Lake(place.root).tables.read(LEDGER).select(["bucket", "period"]).to_pylist()
    wanted = [f"{number}-{each}" for number, each in every(rivals, place.rounds)]
    assert sorted(row["period"] for row in rows if row["bucket"] == "shared") == sorted(wanted)
    assert sorted(row["period"] for row in rows if row["bucket"] != "shared") == sorted(wanted)


def test_concurrent_writes_to_the_ledger_and_marts_lose_nothing(rivals: Rivals, usual_place: Place) -> None:
    rivals.race(record_entries, usual_place.root, usual_place.rounds, usual_place.environment)
    rivals.race(replace_marts, usual_place.root, usual_place.rounds, usual_place.environment)
    entries = Lake(usual_place.root).ledger.entries("working_facts")
    common = entries["2024-01-26T00"]
    assert common.rows == usual_place.rounds - 1, "the last entry of some process is kept"
    assert len(entries) == rivals.count * usual_place.rounds + 1
    marts = Marts(Lake(usual_place.root).storage)
    parts, whole = marts.dataset("parts"), marts.dataset("whole")
    assert parts is not None
    assert whole is not None
    rows = parts.to_table().to_pylist()
    wanted = [(f"{number}-{each}", each) for number, each in every(rivals, usual_place.rounds)]
    assert sorted((row["month"], row["n"]) for row in rows) == sorted(wanted)
    assert sorted(whole.to_table()["n"].to_pylist()) == list(range(5))


def test_concurrent_folds_of_graphs_lose_nothing(rivals: Rivals, usual_place: Place) -> None:
    for agents in (False, True):
        rivals.race(partial(fold_edits, agents=agents), usual_place.root, usual_place.fewer, usual_place.environment)
    lake = Lake(usual_place.root)
    vocabulary = lake.configuration().vocabulary(ACME)
    for scope in (ACME, *map(scope_of, range(8))):
        operations = lake.operations.read([scope])
        assert lake.tables.read(GRAPH_OPERATIONS, where=pc.field("scope") == scope.key).num_rows == operations.num_rows
        wanted = {
            edit_of(number, each, scope).id
            for number, each in every(rivals, usual_place.fewer)
            if scope in (ACME, scope_of(number), scope_of(each))
        }
        assert sorted(operations["evidence_id"].to_pylist()) == sorted(wanted), scope
        whole = triples_to_rows({scope: fold_operations(scope, rows_to_operations(operations), vocabulary)})
        stands = lake.graph_rows.read([scope], where=IS_FACT)
        assert stands.sort_by("id").to_pylist() == whole.sort_by("id").to_pylist(), (
            "a graph is the fold of all that was committed"
        )


def test_concurrent_folds_of_memories_equal_one_fold(
    rivals: Rivals, usual_place: Place, models: Models, tmp_path: Path
) -> None:
    rivals.race(land_memories, usual_place.root, usual_place.fewer, usual_place.environment)
    alone = Lake(str(tmp_path / "alone"))
    events = [event_of(number, each) for number, each in every(rivals, usual_place.fewer)]
    fold_memories(alone, models.embedder, sorted({event.hour for event in events}, key=lambda hour: hour.key), events)
    lake = Lake(usual_place.root)
    for name in (MEMORY_EVENTS.name, EVENTS.name, MEMORIES.name):
        ours, theirs = (table_rows(each)[name] for each in (lake, alone))
        assert ours == theirs, name


def test_concurrent_writes_to_an_index_lose_nothing(rivals: Rivals, place: Place) -> None:
    rivals.race(merge_index, place.root, place.fewer, place.environment)
    found = Lake(place.root).index.read([ACME], ["content"], "grain = 'working'")["content"].to_pylist()
    numbers = [*range(rivals.count), 9]
    wanted = [f"{number}-{each} {text}" for number in numbers for each in range(place.fewer) for text in ("one", "two")]
    assert sorted(found) == sorted(wanted)


def test_concurrent_calls_and_leases_lose_and_repeat_nothing(rivals: Rivals, place: Place) -> None:
    usages = rivals.race(keep_calls, place.root, place.fewer, place.environment)
    lake = Lake(place.root)
    lake.calls.settle()
    calls = lake.tables.read(MODEL_CALLS)["id"].to_pylist()
    assert len(calls) == len(set(calls)) == (rivals.count + 1) * place.fewer, "shared questions are asked once"
    texts = lake.tables.read(ANSWERS)["answer"].to_pylist()
    alone = [f"{number}-{each}" for number, each in every(rivals, place.fewer)]
    assert sorted(texts) == sorted([*alone, *(f"all-{each}" for each in range(place.fewer))])
    assert sum(usage.calls for usage in usages) <= len(calls), "usage is counted once"
    rivals.race(count_up, place.root, place.fewer, place.environment)
    assert lake.storage.read("counter") == str(rivals.count * place.fewer).encode()
