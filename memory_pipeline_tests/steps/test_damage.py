"""Runs over lakes with damaged files: derived partitions are recomputed and nothing else is blocked."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import DamagedError, QualityError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import (
    CONSOLIDATION,
    FACTS,
    GRAPH_FACTS,
    GRAPH_OPERATIONS,
    IS_FACT,
    LEDGER,
    MESSAGES,
    OPERATIONS,
    SUMMARIES,
)
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.fold_graph import refold_graph, stale_scopes, sync_operations
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.replay import replay
from memory_pipeline.steps.scheduling.planner import grain_status, periods_in
from memory_pipeline.steps.scopes import known_scopes
from memory_pipeline_tests.building import NOW, START, conversation, hours, run, write
from memory_pipeline_tests.damaging import KINDS, damage, file_of
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

FIRST, SECOND = "2024-01-15T08", "2024-01-16T08"


@pytest.fixture(scope="module")
def sound(shared_folder: SharedFolder, models: Models) -> Lake:
    """An intact lake, for comparison."""

    def fill(path: Path) -> None:
        lake = Lake(str(path))
        write(lake, conversation("I moved to Porto.", "Remind me to water the plants on Mondays."))
        write(lake, conversation("I like tea.", at="2024-01-16T08:00", conversation_id="c2"))
        run(lake, models)
        consolidate(lake, models, pending_days(lake, START, NOW), START)

    return Lake(str(shared_folder("undamaged", fill)))


@pytest.fixture
def lake(sound: Lake, tmp_path: Path) -> Lake:
    return Lake(str(shutil.copytree(sound.storage.uri, tmp_path / "lake")))


def make_all_again(lake: Lake, models: Models) -> None:
    since, until = (lake.calendar.bounds(Period(Grain.DAILY, day))[0] for day in ("2024-01-15", "2024-01-17"))
    for grain in Grain:
        list(materialize(lake, models, grain, periods_in(lake, grain, since, until, NOW)))


DERIVED = [FACTS, OPERATIONS, GRAPH_FACTS, LEDGER]
#: Each kind of damage and each table in the usual run, all pairs in the thorough one.
PAIRS = list(product(DERIVED, KINDS)) if IS_THOROUGH else list(zip(DERIVED, [*KINDS, "cut"], strict=True))


@pytest.mark.parametrize(("spec", "kind"), PAIRS)
def test_recomputing_partitions_replaces_their_damaged_files(
    lake: Lake, sound: Lake, models: Models, spec: TableSpec, kind: str
) -> None:
    damage(file_of(lake, spec), kind)
    run(lake, models)
    make_all_again(lake, models)
    run(lake, models)
    assert differing(lake_digest(sound), lake_digest(lake)) == []


def test_damaged_summaries_are_recomputed_from_the_finer_grain(lake: Lake, sound: Lake, models: Models) -> None:
    for grain in (Grain.DAILY, Grain.WEEKLY, Grain.YEARLY):
        damage(file_of(lake, SUMMARIES, grain=grain.value), "cut")
    make_all_again(lake, models)
    assert differing(lake_digest(sound), lake_digest(lake)) == []


def test_agents_with_a_damaged_checkpoint_are_consolidated_again(lake: Lake, sound: Lake, models: Models) -> None:
    damage(file_of(lake, CONSOLIDATION), "cut")
    consolidate(lake, models, [Period(Grain.DAILY, "2024-01-15")], START)
    assert differing(lake_digest(sound), lake_digest(lake)) == []


def test_every_damaged_ledger_file_is_entered_again(lake: Lake, sound: Lake, models: Models) -> None:
    for key in lake.tables.keys(LEDGER):
        if not key.startswith("memory_consolidation"):
            damage(file_of(lake, LEDGER, key), "cut")
    run(lake, models)
    assert differing(lake_digest(sound), lake_digest(lake)) == []
    assert not any(grain_status(lake, grain, START, NOW).pending for grain in Grain)


def test_damaged_messages_do_not_block_other_hours(lake: Lake, models: Models) -> None:
    damage(file_of(lake, MESSAGES, FIRST), "cut")
    before = lake.tables.read(FACTS, [FIRST])
    write(lake, conversation("I sold the van.", at="2024-01-17T08:00", conversation_id="c3"))
    with pytest.raises(DamagedError) as raised:
        list(materialize(lake, models, Grain.WORKING, hours(FIRST, SECOND, "2024-01-17T08")))
    assert raised.value.keys == {FIRST}
    assert str(file_of(lake, MESSAGES, FIRST).relative_to(lake.storage.uri)) in str(raised.value)
    assert lake.tables.keys(MESSAGES)[-1] == "2024-01-17T08"
    assert not lake.journal.pending()
    assert lake.tables.read(FACTS, [FIRST]) == before


def test_facts_are_kept_when_the_log_has_lost_their_messages(lake: Lake, models: Models) -> None:
    lake.tables.remove(MESSAGES, [FIRST])
    with pytest.raises(DamagedError):
        list(materialize(lake, models, Grain.WORKING, hours(FIRST)))
    assert FIRST in lake.tables.keys(FACTS)


def test_partitions_missing_from_the_log_are_pending(lake: Lake, sound: Lake, models: Models) -> None:
    lake.tables.remove(FACTS, None)
    lake.tables.remove(SUMMARIES, None, grain="weekly")
    run(lake, models)
    assert differing(lake_digest(sound), lake_digest(lake)) == []


def planted(lake: Lake, spec: TableSpec, key: str, change: Callable[[dict[str, Any]], Any], **fixed: str) -> str:
    """Add a changed copy of a partition's first row. Return its id."""
    ids = []

    def with_copy(old: pa.Table) -> pa.Table:
        row = old.slice(0, 1).to_pylist()[0]
        change(row)
        ids.append(row["id"])
        return pa.concat_tables([old, pa.Table.from_pylist([row], schema=spec.schema)])

    lake.tables.transform(spec, [key], with_copy, shard=None, **fixed)
    return str(ids[-1])


NOBODY = f"message:{FIRST}:{'0' * 32}"


def cites_nobody(row: dict[str, Any]) -> None:
    row |= {"id": f"working:{FIRST}:{'0' * 32}", "message_ids": [NOBODY]}


def test_no_day_is_summarized_from_a_fact_that_cites_an_unknown_message(lake: Lake, models: Models) -> None:
    planted(lake, FACTS, FIRST, cites_nobody)
    before = lake.tables.read(SUMMARIES)
    with pytest.raises(QualityError, match=FIRST) as raised:
        list(
            materialize(
                lake, models, Grain.DAILY, [Period(Grain.DAILY, "2024-01-15"), Period(Grain.DAILY, "2024-01-16")]
            )
        )
    assert raised.value.keys == {"2024-01-15"}
    assert lake.tables.read(SUMMARIES) == before


def test_facts_and_operations_that_do_not_belong_to_their_hour_are_removed(
    lake: Lake, sound: Lake, models: Models
) -> None:
    """A fact and an operation that cite an unknown message, and a fact of another hour."""
    planted(lake, FACTS, FIRST, cites_nobody)
    planted(lake, FACTS, SECOND, lambda row: row.update(id=f"working:{FIRST}:{'0' * 32}"))
    planted(lake, GRAPH_OPERATIONS, FIRST, lambda row: row.update(id="0" * 32, evidence_id=NOBODY))
    sync_operations(lake, [FIRST])
    refold_graph(lake, stale_scopes(lake))
    assert NOBODY in [
        each for ids in lake.graph_rows.scan(["evidence"], IS_FACT)["evidence"].to_pylist() for each in ids
    ]
    make_all_again(lake, models)
    assert differing(lake_digest(sound), lake_digest(lake)) == []


def test_wrong_summaries_are_recomputed(lake: Lake, sound: Lake, models: Models) -> None:
    """One that cites an unknown fact, a second one of a period, and one without points."""

    def cites_nothing(old: pa.Table) -> pa.Table:
        row = old.to_pylist()[0]
        row["source_ids"] = [*row["source_ids"], f"working:{FIRST}:{'0' * 32}"]
        return pa.Table.from_pylist([row], schema=SUMMARIES.schema)

    def says_nothing(old: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([{**row, "key_points": []} for row in old.to_pylist()], schema=SUMMARIES.schema)

    lake.tables.transform(SUMMARIES, ["2024-01-15"], cites_nothing, grain="daily")
    assert lake.tables.transform(SUMMARIES, ["2024-W03"], says_nothing, grain="weekly")
    planted(lake, SUMMARIES, "2024-01-16", lambda row: row.update(id=f"daily:2024-01-16:{'f' * 32}"), grain="daily")
    make_all_again(lake, models)
    assert differing(lake_digest(sound), lake_digest(lake)) == []


def test_a_graph_that_is_not_the_fold_of_its_operations_is_found_and_folded_again(
    lake: Lake, sound: Lake, models: Models
) -> None:
    rows = lake.graph_rows.scan()
    row = {**rows.filter(rows["source_digest"].is_null()).to_pylist()[0], "id": f"graph:{FIRST}:{'0' * 32}"}
    planted = pa.Table.from_pylist([row], schema=rows.schema)
    lake.graph_rows.replace(pa.concat_tables([rows, planted]), None)
    assert [scope.agent_id for scope in stale_scopes(lake)] == ["support"]
    replay(lake, models, {}, known_scopes(lake))
    assert differing(lake_digest(sound), lake_digest(lake)) == []
