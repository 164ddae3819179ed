"""Durable memories as a projection: incremental folds, scopes that share a table, kills, and lost tables."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import DamagedError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.scoped_rows import ScopedRows
from memory_pipeline.lake.layout import SHARDS, shard_of
from memory_pipeline.lake.schemas import MEMORY_EVENTS
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.factory import default_models
from memory_pipeline.steps.fold_memories import fold_memories as fold_hours
from memory_pipeline.steps.fold_memories import refold_memories, stale_scopes
from memory_pipeline.steps.folding import Fold
from memory_pipeline.steps.repair import find_damage, repair
from memory_pipeline.steps.restore import restore_projections
from memory_pipeline_tests.building import (
    ACME,
    memory_rows,
    put_events,
    remove_events,
    run,
    table_rows,
    versions,
)
from memory_pipeline_tests.domain.memories.histories import do, histories, remember
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.memories.keeping import fold_memories, land, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.memories.events import MemoryEvent

#: Another scope of the same shard.
NEIGHBOUR = next(
    scope
    for number in range(1_000)
    for scope in [Scope("acme", f"agent-{number}")]
    if shard_of(scope.key, SHARDS) == shard_of(ACME.key, SHARDS)
)
PROJECTED = ("events", "memories")


def projected(lake: Lake) -> dict[str, Any]:
    return {name: rows for name, rows in table_rows(lake).items() if name in PROJECTED}


def commit(lake: Lake, events: list[MemoryEvent]) -> None:
    """Write events to the records and to their projection."""
    consolidation = [event for event in events if event.is_consolidation]
    fold_memories(lake, *(event for event in events if not event.is_consolidation), consolidation=consolidation)


@settings(max_examples=examples(8), deadline=None)
@given(histories(), st.data())
def test_folding_in_parts_equals_one_fold(events: list[MemoryEvent], data: st.DataObject) -> None:
    ordered = sorted({event.id: event for event in events}.values(), key=lambda event: event.order)
    parts = data.draw(st.permutations(ordered)) if not data.draw(st.booleans(), "late events") else ordered
    cuts = sorted(data.draw(st.lists(st.integers(0, len(parts)), max_size=3)))
    with TemporaryDirectory() as folder:
        stepwise, at_once = Lake(f"{folder}/stepwise"), Lake(f"{folder}/at-once")
        for first, last in zip([0, *cuts], [*cuts, len(parts)], strict=True):
            commit(stepwise, list(parts[first:last]))
            refold_memories(stepwise, HashingEmbedder(), [ACME])
        commit(at_once, ordered)
        refold_memories(at_once, HashingEmbedder(), [ACME])
        assert projected(stepwise) == projected(at_once)
        assert stale_scopes(stepwise, [ACME]) == set()


def test_later_events_are_applied_without_reading_earlier_ones(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tea = remember("Anna likes tea.")
    land(lake, tea, *(remember(f"Item {number} is free.", number / 10) for number in range(20)))
    read, found = ScopedRows.read, []

    def noting(rows: ScopedRows, scopes: Any, columns: Any = None, where: Any = None) -> Any:
        result = read(rows, scopes, columns, where)
        if "is_consolidation" in rows.schema.names and columns is None:
            found.extend(result["id"].to_pylist())
        return result

    monkeypatch.setattr(ScopedRows, "read", noting)
    later = do("BOOST", tea, 5)
    commit(lake, [later])
    assert refold_memories(lake, HashingEmbedder(), [ACME]) == {ACME}
    assert found == [later.id]
    found.clear()
    early = remember("Bo likes figs.", 0.05)
    commit(lake, [early])
    refold_memories(lake, HashingEmbedder(), [ACME])
    assert len(found) == 23


def test_a_fold_is_checked_only_if_its_sources_changed_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.ensure()
    checked: list[Scope] = []
    stale, replace = Fold.stale, lake.memory_rows.replace

    def noting(fold: Fold, scopes: Iterable[Scope]) -> set[Scope]:
        found = list(scopes)
        checked.extend(found)
        return stale(fold, found)

    monkeypatch.setattr(Fold, "stale", noting)
    tea, figs, soup = remember("Anna likes tea."), remember("Bo likes figs.", 1), remember("Cy likes soup.", 2)
    for each in (tea, figs):
        fold_hours(lake, HashingEmbedder(), [each.hour], [each])
    assert not checked

    def overtaken(*how: Any) -> set[str]:
        monkeypatch.setattr(lake.memory_rows, "replace", replace)
        commit(lake, [soup])  # another run writes its event and has not folded it
        return replace(*how)

    monkeypatch.setattr(lake.memory_rows, "replace", overtaken)
    cake = remember("Di likes cake.", 3)
    fold_hours(lake, HashingEmbedder(), [cake.hour], [cake])
    assert checked == [ACME]  # and folded again, which nobody disturbed
    assert {"Cy likes soup.", "Di likes cake."} <= {*memory_rows(lake)["content"].to_pylist()}


def test_scopes_of_one_table_do_not_touch_each_other(lake: Lake) -> None:
    said = ["Anna likes tea.", "Bo likes figs."]
    for scope in (ACME, NEIGHBOUR):
        land(lake, *(remember(text, number, scope=scope) for number, text in enumerate(said)))
    assert len(lake.memory_rows.roster.present()) == 1
    before = memory_rows(lake, NEIGHBOUR)
    reader = state_of(lake, NEIGHBOUR)
    snapshot = reader.snapshot()
    put_events(lake, MEMORY_EVENTS.schema.empty_table(), ["2024-01-15T12"])
    put_events(lake, before_events := lake.tables.read(MEMORY_EVENTS))
    assert before_events.num_rows == 2  # those of one o'clock
    commit(lake, [remember(said[0], scope=NEIGHBOUR)])
    assert refold_memories(lake, HashingEmbedder(), [ACME, NEIGHBOUR]) == {ACME}
    assert [row["content"] for row in memory_rows(lake, ACME).to_pylist()] == said[1:]
    assert memory_rows(lake, NEIGHBOUR) == before
    # The table has changed, but not the rows of this scope.
    assert reader.snapshot() is snapshot
    remove_events(lake, ACME)
    refold_memories(lake, HashingEmbedder(), [ACME, NEIGHBOUR])
    assert memory_rows(lake) == before


def test_a_fold_that_was_cut_off_is_noticed_and_completed(lake: Lake) -> None:
    tea, figs = remember("Anna likes tea."), remember("Bo likes figs.", 1)
    land(lake, tea, figs)
    whole = projected(lake)
    # A write of two commits, of which the second, a deletion, is missing.
    extra = memory_rows(lake).slice(0, 1).to_pylist()[0]
    extra |= {"id": f"{extra['memory_id']}#7", "version": 7, "is_newest": False}
    rows = lake.memory_rows.scan()
    lake.memory_rows.replace(rows.from_pylist([*rows.to_pylist(), extra], rows.schema), [ACME])
    assert stale_scopes(lake, [ACME]) == {ACME}
    assert {each.content for each in state_of(lake).snapshot().above.newest.values()} == {
        "Anna likes tea.",
        "Bo likes figs.",
    }
    commit(lake, [do("BOOST", tea, 2)])
    refold_memories(lake, HashingEmbedder(), [ACME])
    assert memory_rows(lake).num_rows == 2
    remove_events(lake, ACME)
    commit(lake, [tea, figs])
    refold_memories(lake, HashingEmbedder(), [ACME])
    assert projected(lake) == whole


def test_readers_see_events_that_are_written_but_not_folded(lake: Lake) -> None:
    land(lake, remember("Anna likes tea."))
    commit(lake, [remember("Bo likes figs.", 1)])
    assert {each.content for each in state_of(lake).snapshot().above.newest.values()} == {
        "Anna likes tea.",
        "Bo likes figs.",
    }


@pytest.mark.parametrize("projection", PROJECTED)
def test_a_lost_table_is_refused_and_rebuilt(lake: Lake, projection: str) -> None:
    models = default_models()
    lake.ensure()
    lake.journal.append([remember("Anna likes tea."), remember("Bo likes figs.", 1, scope=NEIGHBOUR)])
    run(lake, models)
    whole = projected(lake)
    [name] = lake.projections[projection].roster.present()
    for heal in (
        lambda lake: restore_projections(lake, models.embedder),
        lambda lake: repair(lake, models, find_damage(lake)),
    ):
        shutil.rmtree(Path(lake.storage.uri, "projections", f"{name}.lance"))
        lost = Lake(lake.storage.uri)
        with pytest.raises(DamagedError, match="missing"):
            state_of(lost).snapshot()
        assert [damage.name for damage in find_damage(lost)] == [name]
        heal(lost)
        assert find_damage(lost) == []
        assert projected(Lake(lake.storage.uri)) == whole


def test_a_run_rebuilds_a_lost_table_and_a_second_one_writes_nothing(lake: Lake) -> None:
    models = default_models()
    lake.ensure()
    lake.journal.append([remember("Anna likes tea.")])
    run(lake, models)
    for projection in PROJECTED:
        [name] = lake.projections[projection].roster.present()
        shutil.rmtree(Path(lake.storage.uri, "projections", f"{name}.lance"))
    again = Lake(lake.storage.uri)
    again.journal.append([remember("Bo likes figs.", 0.5)])
    run(again, models)
    assert {row["content"] for row in memory_rows(again).to_pylist()} == {"Anna likes tea.", "Bo likes figs."}
    before = versions(again)
    run(again, models)
    assert refold_memories(again, models.embedder, [ACME]) == set()
    assert versions(again) == before
