"""The list of all checks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memory_pipeline.analytics import models_of
from memory_pipeline.checks import integrity, lake_health, memories, quality
from memory_pipeline.checks.check import (
    CHECKPOINT_ROWS,
    CONSOLIDATE,
    CONSOLIDATION_ROWS,
    EVENT_ROWS,
    FACT_ROWS,
    GRAPH_ROWS,
    MEMORY_ROWS,
    MESSAGE_ROWS,
    OPERATION_ROWS,
    RECOMPUTE,
    ROWS_OF_GRAIN,
    SAMPLE,
    Check,
    Offences,
    Severity,
)
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.lake.tables.ledger import CONSOLIDATION_ASSET, MEMORIES_ASSET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.analytics import Model
    from memory_pipeline.checks.check import CheckContext


def all_checks() -> list[Check]:
    """Return all checks in the order of the assets' computation. The tests of ``dbt_like_sql`` are last."""
    return [
        lake_health.damaged_files,
        *_of_tables(),
        *_of_memories(),
        *_of_consolidation(),
        *(
            check(grain)
            for grain in SUMMARY_GRAINS
            for check in (quality.missing_summaries, quality.empty_summaries, quality.long_summaries)
        ),
        *map(integrity.index_differences, Grain),
        *map(quality.fallbacks, Grain),
        *(
            lake_health.retention(place.asset, place.grain)
            for place in (MESSAGE_ROWS, *ROWS_OF_GRAIN.values(), OPERATION_ROWS)
        ),
        lake_health.replaced_manifest,
        lake_health.stuck_files,
        lake_health.overdue_entries,
        lake_health.quarantined_records,
        lake_health.interrupted_erasures,
        lake_health.spent_budgets,
        *map(_of_sql, models_of("tests")),
    ]


def checks_of(asset: str | None = None) -> list[Check]:
    """Return the checks of an asset; all checks if it is None."""
    return [check for check in all_checks() if asset in (None, check.asset)]


def _of_tables() -> Iterator[Check]:
    unique_ids = "Row ids are unique, and each row is in the partition that its id names."
    wrote = f"another program wrote the files; {RECOMPUTE}"
    for place in (MESSAGE_ROWS, GRAPH_ROWS, *ROWS_OF_GRAIN.values()):
        yield integrity.schema(place.asset, [OPERATION_ROWS] if place is GRAPH_ROWS else [place], wrote)
        yield integrity.duplicate_ids("unique_ids", place, unique_ids)
        if place is GRAPH_ROWS:
            yield integrity.duplicate_ids("unique_operation_ids", OPERATION_ROWS, "Ids of graph operations are unique.")
            yield integrity.graph_level
        else:
            yield quality.injected_text(place)
        if place is not MESSAGE_ROWS:
            yield quality.orphaned_sources(place)
        if place is FACT_ROWS:
            yield quality.duplicate_facts


def _of_memories() -> Iterator[Check]:
    remedy = "run `memory-pipeline repair`; restore events that agents wrote themselves from a backup"
    yield integrity.schema(MEMORIES_ASSET, [EVENT_ROWS], remedy)
    yield integrity.duplicate_ids("unique_ids", MEMORY_ROWS, "Ids of versions of durable memories are unique.")
    named = "Ids of memory events are unique and name the event's hour."
    yield integrity.duplicate_ids("unique_event_ids", EVENT_ROWS, named)
    yield memories.stale_agents
    yield quality.orphaned_sources(EVENT_ROWS, "Messages that memory events cite exist or have expired.")
    yield quality.injected_text(MEMORY_ROWS, "durable memory")


def _of_consolidation() -> Iterator[Check]:
    wrote = f"another program wrote the files: delete them; {CONSOLIDATE}"
    yield integrity.schema(CONSOLIDATION_ASSET, [CONSOLIDATION_ROWS, CHECKPOINT_ROWS], wrote)
    for name, place, description in (
        ("unique_ids", CONSOLIDATION_ROWS, "Ids of consolidation events are unique."),
        ("one_row_an_agent", CHECKPOINT_ROWS, "Each agent has one consolidation checkpoint."),
    ):
        yield integrity.duplicate_ids(name, place, description, CONSOLIDATE)
    yield memories.missing_reasons
    yield memories.duplicates
    yield memories.contradictions
    yield memories.unconsolidated_days
    yield memories.failed_passes
    yield memories.hot_index_excess


def _of_sql(model: Model) -> Check:
    """Return a test of ``dbt_like_sql`` as a check. Its rows are the offenders."""
    severity = Severity(getattr(model, "severity", None) or Severity.ERROR)
    return Check(
        model.name,
        getattr(model, "asset", None) or FACT_ROWS.asset,
        severity,
        severity is Severity.ERROR,
        " ".join(model.description.split()),
        f"`memory-pipeline sql {model.name} --run` shows the rows",
        partial(_rows_of_test, name=model.name),
    )


def _rows_of_test(context: CheckContext, name: str) -> Offences:
    found = context.warehouse.query(name)
    shown = [column for column in found.column_names if column in _IDENTIFYING]
    names = [" ".join(str(row[column]) for column in shown) for row in found.select(shown).slice(0, SAMPLE).to_pylist()]
    return Offences(found.num_rows, tuple(names), {"rows": found.num_rows})


#: Columns of tests that identify an offender. Others may hold message text.
_IDENTIFYING = frozenset(
    "id workspace_id agent_id identity asset model grain kind period hour day month source_id message_id owner".split()
)
