"""Consolidation runs on real lakes: results, commits and faults."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import memory_pipeline.steps.consolidation.consolidate as module
from memory_pipeline.domain.erasure import Tombstone
from memory_pipeline.domain.identity import NOTHING
from memory_pipeline.domain.memories.record import Temperature
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.errors import ModelError, UnexpectedError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.scoped_rows import ScopedRows
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import CONSOLIDATION, CONSOLIDATION_EVENTS, EVENTS, LEDGER, MEMORIES, MEMORY_EVENTS
from memory_pipeline.lake.tables.ledger import MEMORIES_ASSET
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import consolidation_status, days_between, parse_day, pending_days
from memory_pipeline.steps.consolidation.simulation import simulate
from memory_pipeline.steps.fold_memories import refold_memories
from memory_pipeline.steps.group import scopes_in
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests.building import (
    ACME,
    NOW,
    START,
    memory_rows,
    put_events,
    remove_events,
    table_rows,
    versions,
)
from memory_pipeline_tests.lifecycle.durable_year import at, noted

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

SALES = Scope("acme", "sales")
BETA = Scope("beta", "support")
FIRST, LAST = date(2024, 1, 15), date(2024, 3, 31)
AFTER = at(LAST, 23) + timedelta(days=1)
KEPT = (CONSOLIDATION_EVENTS, EVENTS, MEMORIES, CONSOLIDATION, LEDGER)


def history(scope: Scope) -> list[Any]:
    """Contradictions, a duplicate, a snapshot and an instruction of one agent."""
    day = FIRST
    events = [
        noted(
            at(day + timedelta(days=20 * number)),
            scope=scope,
            content=f"Anna lives in {city}.",
            subject="Anna",
            predicate="lives_in",
            object=city,
        )
        for number, city in enumerate(["Porto", "Faro"])
    ]
    texts: dict[str, dict[str, Any]] = {
        "Always answer in English.": {"kind": "instruction"},
        "There are 40 tickets at the moment.": {"is_point_in_time": True},
        f"The printer beside the stairs of {scope.agent_id} jams quite often on wet mornings.": {},
        f"The printer beside the stairs of {scope.agent_id} jams often on wet mornings.": {},
    }
    return events + [
        noted(at(day + timedelta(days=number), 12), scope=scope, content=text, **said)
        for number, (text, said) in enumerate(texts.items())
    ]


@pytest.fixture(scope="module")
def landed(shared_folder: SharedFolder, models: Models) -> Path:
    def fill(path: Path) -> None:
        lake = Lake(str(path))
        lake.ensure()
        lake.journal.append([event for scope in (ACME, SALES, BETA) for event in history(scope)])
        land(lake, models)

    return shared_folder("consolidation-landed", fill)


@pytest.fixture
def filled(landed: Path, tmp_path: Path) -> Lake:
    return Lake(str(shutil.copytree(landed, tmp_path / "filled")))


@pytest.fixture(scope="module")
def whole(landed: Path, shared_folder: SharedFolder, models: Models) -> dict[str, Any]:
    """The rows of the lake after consolidating all days."""

    def keep(path: Path) -> None:
        lake = Lake(str(shutil.copytree(landed, path)))
        consolidate(lake, models, pending_days(lake, START, AFTER), START)

    return rows(Lake(str(shared_folder("consolidation-whole", keep))))


def land(lake: Lake, models: Models) -> None:
    list(materialize(lake, models, Grain.WORKING, grain_status(lake, Grain.WORKING, START, NOW).pending))


def rows(lake: Lake) -> dict[str, Any]:
    return {name: found for name, found in table_rows(lake).items() if name in {spec.name for spec in KEPT}}


def owners(lake: Lake, spec: Any) -> set[str]:
    return {f"{row['workspace_id']}~{row['agent_id']}" for row in table_rows(lake)[spec.name]}


# --- pending days ----------------------------------------------------------------------------------------------------


def test_days_are_pending_from_the_first_event_to_the_last_closed_day(filled: Lake, lake: Lake, models: Models) -> None:
    assert pending_days(lake, START, NOW) == []  # the lake does not exist
    assert pending_days(filled, START, at(FIRST, 23)) == []
    ended = at(FIRST + timedelta(days=1), 0)
    assert [each.key for each in pending_days(filled, START, ended)] == ["2024-01-15"]
    assert len(pending_days(filled, START, AFTER)) == 77
    assert pending_days(filled, LAST, AFTER) == []  # days before the first day of the memory are ignored
    consolidate(filled, models, pending_days(filled, START, AFTER)[5:9], START)
    status = consolidation_status(filled, START, AFTER)
    assert [each.key for each in status.made] == ["2024-01-20", "2024-01-21", "2024-01-22", "2024-01-23"]
    assert (len(status.pending), status.pending, status.troubled) == (73, status.missing, [])
    assert consolidate(filled, models, [], START).nights == []
    assert consolidate(filled, models, [parse_day("2023-12-31")], START).nights == []


def test_a_dry_run_reports_the_changes_of_the_run_and_writes_nothing(filled: Lake, models: Models) -> None:
    nights = pending_days(filled, START, AFTER)
    before = versions(filled)
    told = consolidate(filled, models, nights, START, dry_run=True)
    assert versions(filled) == before
    assert filled.storage.read("state/consolidation.json") is None
    assert not told.written
    done = consolidate(filled, models, nights, START, explain=True)
    assert done.changes == told.changes
    assert [(each.night, each.events, each.agents, each.hot) for each in done.nights] == [
        (each.night, each.events, each.agents, each.hot) for each in told.nights
    ]
    verbs = {change.verb for change in told.changes if change.scope == BETA}
    assert {"MERGE", "SUPERSEDE", "COOL", "HEAT"} <= verbs
    lost = next(change for change in told.changes if change.verb == "SUPERSEDE")
    assert (lost.title, lost.other_title) == ("Anna lives in Porto.", "Anna lives in Faro.")
    assert all(change.reason for change in told.changes)
    assert sum(each.changed for each in done.nights) == len(done.changes)
    assert set(done.hot) == {ACME, SALES, BETA}
    again = consolidate(filled, models, nights, START, dry_run=True)
    assert (again.changes, again.agents) == ([], 0)


def test_a_bug_with_one_agent_leaves_the_others_complete(
    filled: Lake, models: Models, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = pending_days(filled, START, AFTER)

    def broken(simulations: Any, vectors: Any) -> Any:
        if any(simulation.scope == SALES for simulation in simulations):
            raise TypeError("unorderable")
        return simulate(simulations, vectors)

    with monkeypatch.context() as patch:
        patch.setattr(module, "simulate", broken)
        with pytest.raises(UnexpectedError, match="acme/sales cannot be computed"):
            consolidate(filled, models, nights, START)
    assert owners(filled, CONSOLIDATION) == {"acme~support", "beta~support"}
    assert pending_days(filled, START, AFTER) == nights
    consolidate(filled, models, nights, START)
    assert rows(filled) == whole


def test_consolidating_one_agent_leaves_the_days_pending(filled: Lake, models: Models, whole: dict[str, Any]) -> None:
    nights = pending_days(filled, START, AFTER)
    done = consolidate(filled, models, nights, START, scopes=[SALES])
    assert done.agents == 1
    assert owners(filled, CONSOLIDATION_EVENTS) == owners(filled, CONSOLIDATION) == {"acme~sales"}
    assert pending_days(filled, START, AFTER) == nights
    assert consolidate(filled, models, nights, START).agents == 2
    assert rows(filled) == whole


def test_the_cache_of_unchanged_agents_may_be_lost(filled: Lake, models: Models, whole: dict[str, Any]) -> None:
    nights = pending_days(filled, START, AFTER)
    consolidate(filled, models, nights, START)
    before = versions(filled)
    for data in (b"no JSON", b'{"a": "b"}'):
        filled.storage.write("state/consolidation.json", data)
        done = consolidate(filled, models, nights, START)
        assert (done.agents, done.written) == (0, False)
    assert versions(filled) == before
    assert rows(filled) == whole


def test_days_on_which_memories_only_become_due_for_a_review_read_no_events(
    filled: Lake, models: Models, tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = pending_days(filled, START, AFTER)
    consolidate(filled, models, nights[:60], START)
    other = Lake(str(shutil.copytree(filled.storage.uri, tmp_path / "other")))
    reviewed, of_events, read, agents = [], list[Any](), ScopedRows.read, 0

    def noting(rows: ScopedRows, scopes: Any, *how: Any) -> Any:
        of_events.extend(scopes if rows is filled.events else ())
        return read(rows, scopes, *how)

    monkeypatch.setattr(ScopedRows, "read", noting)
    for start in range(60, len(nights), 6):
        found = consolidate(filled, models, nights[start : start + 6], START)
        other.storage.delete(["state/consolidation.json"])  # else the agents would not be read from their events
        expected = consolidate(other, models, nights[start : start + 6], START)
        assert found.nights == expected.nights
        reviewed += [line for each in found.nights for line in each.review]
        agents += found.agents
    assert reviewed
    assert agents
    assert not of_events
    assert rows(filled) == rows(other) == whole


def test_events_of_today_are_consolidated_tomorrow(filled: Lake, models: Models) -> None:
    today = LAST - timedelta(days=1)
    filled.journal.append([noted(at(LAST, 0), scope=SALES, content="Rui keeps bees.")])
    land(filled, models)
    consolidate(filled, models, days_between(filled, FIRST, today, AFTER), START)
    done = consolidate(filled, models, days_between(filled, LAST, LAST, AFTER), START, explain=True)
    assert [(change.scope, change.verb, change.title) for change in done.changes] == [
        (SALES, "HEAT", "Rui keeps bees.")
    ]


def test_two_concurrent_runs_give_the_result_of_one(filled: Lake, models: Models, whole: dict[str, Any]) -> None:
    nights = pending_days(filled, START, AFTER)
    errors: list[BaseException] = []

    def run(part: list[Any]) -> None:
        try:
            consolidate(Lake(filled.storage.uri), models, part, START)
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test must see it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(part,)) for part in (nights[:40], nights[30:])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    consolidate(filled, models, pending_days(filled, START, AFTER), START)
    assert rows(filled) == whole


# --- faults ----------------------------------------------------------------------------------------------------------


class NoModel(RuleCurator):
    """A curator whose model fails."""

    def stale(self, *args: Any) -> Any:
        raise ModelError("unavailable", "the model is down")


def test_a_failed_pass_is_reported_and_repeated(filled: Lake, models: Models, whole: dict[str, Any]) -> None:
    nights = pending_days(filled, START, AFTER)
    done = consolidate(filled, replace(models, curator=NoModel()), nights, START)
    failed = [each for each in done.nights if each.troubles]
    assert failed
    assert "acme / sales: staleness: ModelError: the model is down" in failed[0].troubles
    assert any(each.events["SUPERSEDE"] for each in done.nights)  # the other passes succeeded
    status = consolidation_status(filled, START, AFTER)
    assert status.pending == status.troubled == [each.night for each in failed]
    assert status.missing == []
    healed = consolidate(filled, models, status.pending, START)
    assert not any(each.troubles for each in healed.nights)
    assert pending_days(filled, START, AFTER) == []
    assert rows(filled) == whole


def test_memories_without_a_vector_are_reported_as_a_failed_comparison(
    filled: Lake, models: Models, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = pending_days(filled, START, AFTER)
    embed = type(models.embedder).embed

    def without(self: Any, texts: Any, uses: Any = ()) -> Any:
        found = embed(self, texts, uses)
        found[["quite often" in text for text in texts]] = np.nan
        return found

    monkeypatch.setattr(type(models.embedder), "embed", without)
    scopes = scopes_in(filled.memory_rows.scan())
    filled.memory_rows.delete("true")
    refold_memories(filled, models.embedder, scopes)
    done = consolidate(filled, models, nights, START)
    troubles = [trouble for each in done.nights for trouble in each.troubles]
    assert any(trouble.endswith("vectors: 1 memories have no vector yet") for trouble in troubles)
    assert consolidation_status(filled, START, AFTER).troubled
    monkeypatch.undo()
    consolidate(filled, models, pending_days(filled, START, AFTER), START)
    assert rows(filled) == whole


def test_data_erased_during_the_run_does_not_come_back(
    filled: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def forgetting(*args: Any) -> Any:
        result = refold_memories(*args)
        if not calls:
            # As erasure does: the tombstone first, then the rows.
            filled.tombstones.put(Tombstone.of(Subject.agent(SALES), NOW, "0" * 32))
            remove_events(filled, SALES)
            filled.memory_rows.delete(f"scope = '{SALES.key}'", [SALES])
        calls.append(1)
        return result

    monkeypatch.setattr(module, "refold_memories", forgetting)
    consolidate(filled, models, pending_days(filled, START, AFTER), START)
    assert len(calls) == 2
    for spec in (MEMORY_EVENTS, CONSOLIDATION_EVENTS, EVENTS, MEMORIES, CONSOLIDATION):
        assert owners(filled, spec) == {"acme~support", "beta~support"}, spec.name
    files = Path(filled.storage.locate("tables"), CONSOLIDATION_EVENTS.name).glob("period=*/*.parquet")
    assert not any("sales" in pq.read_table(path)["agent_id"].to_pylist() for path in files)


def test_an_agent_without_events_has_no_days(filled: Lake, models: Models) -> None:
    nights = pending_days(filled, START, AFTER)
    consolidate(filled, models, nights, START)
    remove_events(filled, SALES, MEMORY_EVENTS)
    refold_memories(filled, models.embedder, [SALES])
    consolidate(filled, models, nights, START)
    for spec in (CONSOLIDATION_EVENTS, MEMORIES, CONSOLIDATION):
        assert owners(filled, spec) == {"acme~support", "beta~support"}, spec.name


def test_a_withdrawn_first_day_leaves_no_day_pending(filled: Lake, models: Models) -> None:
    consolidate(filled, models, pending_days(filled, START, AFTER), START)
    put_events(filled, MEMORY_EVENTS.schema.empty_table(), ["2024-01-15T09"])
    refold_memories(filled, models.embedder, scopes_in(filled.memory_rows.scan()))
    entry = filled.ledger.entries(MEMORIES_ASSET)["2024-01-15T09"]
    noon = filled.ledger.entries(MEMORIES_ASSET)["2024-01-15T12"]
    filled.ledger.record([replace(each, rows=0, output_digest=NOTHING) for each in (entry, noon)])
    assert [each.key for each in pending_days(filled, START, AFTER)] == ["2024-01-15"]
    consolidate(filled, models, pending_days(filled, START, AFTER), START)
    assert pending_days(filled, START, AFTER) == []


def test_new_settings_apply_from_the_next_day_on(filled: Lake, models: Models) -> None:
    consolidate(filled, models, days_between(filled, FIRST, date(2024, 3, 1), AFTER), START)
    before = filled.tables.read(CONSOLIDATION_EVENTS).num_rows
    filled.storage.write(CONFIGURATION, b"defaults:\n  memories:\n    hot_entries: 1\n")
    done = consolidate(filled, models, [parse_day("2024-03-02")], START, explain=True)
    assert {change.verb for change in done.changes} == {"CHILL"}
    assert {change.night.key for change in done.changes} == {"2024-03-02"}
    assert filled.tables.read(CONSOLIDATION_EVENTS).num_rows == before + len(done.changes)
    hot = memory_rows(filled)["temperature"].to_pylist().count(Temperature.HOT)
    assert hot == 3
    assert consolidate(filled, models, [parse_day("2024-03-03")], START).agents == 0
