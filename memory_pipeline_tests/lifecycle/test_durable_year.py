"""A simulated year of consolidation: its result, which does not depend on how the days were requested."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.domain.memories.hot_index import hot_lines
from memory_pipeline.domain.memories.record import DurableMemory, MemoryKind, Status, Temperature, match_key
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.memories import rows_to_events, rows_to_memories
from memory_pipeline.lake.index.scoped_rows import ScopedRows
from memory_pipeline.lake.schemas import CONSOLIDATION, CONSOLIDATION_EVENTS, EVENTS, LEDGER, MEMORIES, MEMORY_EVENTS
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests.building import ACME, NOW, PROCESSES, START, event_rows, memory_rows, table_rows, versions
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.lifecycle.durable_year import (
    CITIES,
    DOUBLES,
    FIRST,
    INSTRUCTIONS,
    LAST,
    OBSERVED,
    REVOKED,
    ZONE,
    at,
    fill,
    keep_until_killed,
    nights,
    noted,
    year_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

OTHER = Scope("acme", "sales")
#: A contradiction that the agent notes months after it was valid.
LATE: dict[str, Any] = {
    "content": "Anna lives in Braga.",
    "subject": "Anna",
    "predicate": "lives_in",
    "object": "Braga",
}
TABLES = (MEMORY_EVENTS, CONSOLIDATION_EVENTS, EVENTS, MEMORIES, CONSOLIDATION, LEDGER)


def land(lake: Lake, models: Models) -> None:
    list(materialize(lake, models, Grain.WORKING, grain_status(lake, Grain.WORKING, START, NOW).pending))


def rows(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    found = table_rows(lake)
    return {spec.name: found[spec.name] for spec in TABLES}


@pytest.fixture(scope="module")
def landed(shared_folder: SharedFolder, models: Models) -> Path:
    """A lake with the year of two agents, not consolidated."""

    def fill_and_land(path: Path) -> None:
        lake = Lake(str(path), ZONE)
        fill(lake, [*year_of(), *year_of(11, OTHER)])
        land(lake, models)

    return shared_folder("year-landed", fill_and_land)


@pytest.fixture(scope="module")
def whole(landed: Path, shared_folder: SharedFolder, models: Models) -> Lake:
    """The lake after consolidating all days in one backfill."""

    def keep(path: Path) -> None:
        lake = Lake(str(shutil.copytree(landed, path)))
        done = consolidate(lake, models, nights(lake, FIRST, LAST), START)
        assert done.written
        assert not any(night.troubles for night in done.nights)

    return Lake(str(shared_folder("year-whole", keep)))


@pytest.fixture(scope="module")
def whole_rows(whole: Lake) -> dict[str, list[dict[str, Any]]]:
    return rows(whole)


@pytest.fixture
def fresh(landed: Path, tmp_path: Path) -> Lake:
    return Lake(str(shutil.copytree(landed, tmp_path / "fresh")))


@pytest.fixture(scope="module")
def kept(whole: Lake) -> dict[str, DurableMemory]:
    """The agent's memories at the end of the year."""
    return rows_to_memories(memory_rows(whole, ACME))[ACME].newest


# --- the result ------------------------------------------------------------------------------------------------------


def test_standing_instructions_are_active_and_revoked_ones_are_not(kept: dict[str, DurableMemory]) -> None:
    active = {memory.content: memory for memory in kept.values() if memory.is_recalled}
    for text in INSTRUCTIONS.values():
        found = [memory for content, memory in active.items() if text in content]
        assert [memory.kind for memory in found] == [MemoryKind.INSTRUCTION], text
    revoked = next(memory for memory in kept.values() if memory.content == REVOKED)
    assert (revoked.status, revoked.temperature) == (Status.DEPRECATED, Temperature.COLD)


def test_duplicates_are_merged_without_losing_content(kept: dict[str, DurableMemory]) -> None:
    active = [memory for memory in kept.values() if memory.is_recalled]
    keys = Counter(match_key(memory.kind, memory.content) for memory in active)
    assert set(keys.values()) == {1}
    for newer, older in DOUBLES:
        # By the end of the year unused memories have decayed and are archived.
        found = [memory for memory in kept.values() if newer in memory.content and memory.superseded_by is None]
        assert len(found) == 1, newer
        only_old = older.partition(". ")[2]
        assert only_old in found[0].content
        assert len(found[0].merged_ids) == 1
        loser = kept[found[0].merged_ids[0]]
        assert (loser.status, loser.superseded_by) == (Status.SUPERSEDED, found[0].id)


def test_no_contradicted_memory_is_active(kept: dict[str, DurableMemory]) -> None:
    of_anna = [
        memory
        for memory in kept.values()
        if memory.predicate == "lives_in" and name_key(memory.subject or "") == "anna"
    ]
    assert len(of_anna) == len(CITIES) + 1
    holds = [memory for memory in of_anna if memory.is_recalled]
    assert [memory.object for memory in holds] == [CITIES[-1]]
    for loser in of_anna:
        if loser.id != holds[0].id:
            assert loser.status is Status.SUPERSEDED
            assert loser.superseded_by in kept


def test_snapshots_are_cold_and_repeated_observations_become_facts(kept: dict[str, DurableMemory]) -> None:
    snapshots = [memory for memory in kept.values() if memory.is_point_in_time]
    assert len(snapshots) == 12
    old = [memory for memory in snapshots if memory.updated_at.month < 12]
    assert old
    assert not any(memory.is_recalled for memory in old)
    observed = [memory for memory in kept.values() if OBSERVED in memory.content]
    assert [memory.kind for memory in observed] == [MemoryKind.FACT]
    assert observed[0].id.startswith("memory:2024-05-02T09:")  # it keeps its id


def test_the_hot_index_keeps_its_limits_and_every_instruction(kept: dict[str, DurableMemory]) -> None:
    hot = [memory for memory in kept.values() if memory.temperature is Temperature.HOT]
    assert 0 < len(hot) <= 20
    assert sum(count_tokens(f"{line}\n") for line in hot_lines(kept.values())) <= 3_000
    assert {memory.id for memory in kept.values() if memory.kind is MemoryKind.INSTRUCTION and memory.is_active} <= {
        memory.id for memory in hot
    }


def test_nothing_is_destroyed_and_every_change_is_explained_by_its_event(
    whole: Lake, kept: dict[str, DurableMemory]
) -> None:
    base = rows_to_events(event_rows(whole, ACME))
    nightly = rows_to_events(event_rows(whole, ACME, is_consolidation=True))
    assert fold_events([*base, *nightly]).newest == kept
    without = fold_events(base).newest
    assert without.keys() == kept.keys()
    of_memory: dict[str, list[str]] = {}
    for event in nightly:
        assert event.reason
        for own in (event.memory_id, event.other_id):
            of_memory.setdefault(own or "", []).append(event.verb)
    for memory in kept.values():
        if memory != without[memory.id]:
            assert memory.id in of_memory, memory
    verbs = Counter(event.verb.value for event in nightly)
    assert {"PROMOTE", "MERGE", "SUPERSEDE", "COOL", "ARCHIVE", "HEAT"} <= verbs.keys(), verbs


# --- independence of the order ---------------------------------------------------------------------------------------


def test_consolidation_day_by_day_equals_one_backfill(
    fresh: Lake, whole_rows: dict[str, list[dict[str, Any]]], models: Models
) -> None:
    all_of_it = nights(fresh, FIRST, LAST)
    steps = [[night] for night in all_of_it]
    if not IS_THOROUGH:  # the busiest days one by one, the rest by months
        steps = [all_of_it[:30], *steps[30:36], *(all_of_it[start : start + 66] for start in range(36, 366, 66))]
    for step in steps:
        consolidate(fresh, models, step, START)
    assert rows(fresh) == whole_rows


def test_consolidation_in_any_order_equals_one_backfill(
    fresh: Lake, whole_rows: dict[str, list[dict[str, Any]]], models: Models
) -> None:
    rng = random.Random(3)
    asked = nights(fresh, FIRST, LAST)
    rng.shuffle(asked)
    count = 9 if IS_THOROUGH else 3
    parts = [asked[start::count] for start in range(count)]
    for part in parts:
        consolidate(fresh, models, part, START)
    assert rows(fresh) == whole_rows
    before = versions(fresh)
    again = consolidate(fresh, models, rng.sample(asked, 40), START)
    assert (again.written, again.agents) == (False, 0)
    assert versions(fresh) == before


def test_a_late_event_recomputes_its_day_and_the_following_ones(
    fresh: Lake, tmp_path: Path, models: Models, landed: Path
) -> None:
    late = [noted(at(date(2024, 3, 5)), **LATE), noted(at(date(2024, 10, 2)), scope=OTHER, content="Rui keeps bees.")]
    on_time = Lake(str(shutil.copytree(landed, tmp_path / "on_time")))
    on_time.journal.append(late)
    land(on_time, models)
    consolidate(on_time, models, pending_days(on_time, START, at(LAST, 23)), START)

    consolidate(fresh, models, pending_days(fresh, START, at(LAST, 23)), START)
    assert pending_days(fresh, START, at(LAST, 23)) == []
    fresh.journal.append(late)
    land(fresh, models)
    assert [night.key for night in pending_days(fresh, START, at(LAST, 23))] == ["2024-03-05", "2024-10-02"]
    done = consolidate(fresh, models, pending_days(fresh, START, at(LAST, 23)), START, explain=True)
    assert {change.scope for change in done.changes} == {ACME, OTHER}
    assert min(change.night.key for change in done.changes if change.scope == OTHER) >= "2024-10-02"
    assert rows(fresh) == rows(on_time)


# --- killed ----------------------------------------------------------------------------------------------------------


def test_consolidation_killed_after_each_commit_gives_the_same_result(
    fresh: Lake, whole_rows: dict[str, list[dict[str, Any]]]
) -> None:
    def run(commits: int) -> int | None:
        process = PROCESSES.Process(target=keep_until_killed, args=(fresh.storage.uri, commits))
        process.start()
        process.join()
        return process.exitcode

    # Two agents with three commits each, the ledger and the cache; each run continues where the last was killed.
    kills = (1, 1, 2, 2, 1) if IS_THOROUGH else (1, 2, 1)
    killed = [run(commits) for commits in kills]
    assert killed.count(-signal.SIGKILL) >= len(kills) - 1, killed
    assert run(0) == 0
    assert rows(fresh) == whole_rows


# --- no cost without changes -----------------------------------------------------------------------------------------


def test_unchanged_agents_are_not_read(fresh: Lake, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    consolidate(fresh, models, nights(fresh, FIRST, date(2024, 12, 30)), START)
    fresh.journal.append([noted(at(LAST), scope=OTHER, content="The lift is grey.")])
    land(fresh, models)
    asked: set[Scope] = set()
    read = ScopedRows.read

    def counted(self: ScopedRows, scopes: Any, columns: Any = None, where: Any = None) -> Any:
        asked.update(scopes)
        return read(self, scopes, columns, where)

    monkeypatch.setattr(ScopedRows, "read", counted)
    done = consolidate(fresh, models, pending_days(fresh, START, at(LAST, 23) + timedelta(days=1)), START)
    assert done.agents == 1
    assert asked == {OTHER}
