"""The list of all checks: asset, severity, description and remedy."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memory_pipeline.analytics import models_of
from memory_pipeline.checks import integrity, lake_health, memories, quality
from memory_pipeline.checks.check import (
    CHECKPOINT_ROWS,
    CONSOLIDATION_ROWS,
    EVENT_ROWS,
    FACT_ROWS,
    GRAPH_ROWS,
    MEMORY_ROWS,
    MESSAGE_ROWS,
    OPERATION_ROWS,
    ROWS_OF_GRAIN,
    SAMPLE,
    SUMMARY_ROWS,
    Check,
    Offences,
    Severity,
)
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.lake.tables.ledger import (
    CONSOLIDATION_ASSET,
    GRAPH_ASSET,
    MEMORIES_ASSET,
    MESSAGES_ASSET,
    index_asset,
    table_asset,
)
from memory_pipeline.steps.consolidation.days import HOT_INDEX_ASSET
from memory_pipeline.steps.promotion import PROMOTION_ASSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory_pipeline.analytics import Model
    from memory_pipeline.checks.check import CheckContext, Place, Scan

    _Run = Scan | Callable[[CheckContext], Offences]

_COST_ASSET = "model_cost"

_RECOMPUTE = "recompute the partitions with `memory-pipeline repair` or `memory-pipeline run --from … --to …`"
_CONSOLIDATE = "run `memory-pipeline consolidate`"
_PENDING = "compute pending periods with `memory-pipeline run` (`memory-pipeline status` lists them)"


def _blocking(name: str, asset: str, description: str, remedy: str, run: _Run) -> Check:
    """Return a check whose failure makes downstream assets wrong too."""
    return Check(name, asset, Severity.ERROR, True, description, remedy, run)


def _error(name: str, asset: str, description: str, remedy: str, run: _Run) -> Check:
    return Check(name, asset, Severity.ERROR, False, description, remedy, run)


def _warning(name: str, asset: str, description: str, remedy: str, run: _Run) -> Check:
    return Check(name, asset, Severity.WARNING, False, description, remedy, run)


def all_checks() -> list[Check]:
    """Return all checks in the order of the assets' computation. The tests of ``dbt_like_sql`` are last."""
    return [
        _error(
            "damage",
            MESSAGES_ASSET,
            "Every file of the lake can be read, and has what was written to it.",
            "run `memory-pipeline repair`: it rebuilds what it can, and names what is lost",
            lake_health.damaged_files,
        ),
        *_of_tables(),
        *_of_memories(),
        *_of_consolidation(),
        *(check for grain in SUMMARY_GRAINS for check in _of_summaries(grain)),
        *(_of_index(grain) for grain in Grain),
        *_of_operation(),
        *map(_of_sql, models_of("tests")),
    ]


def checks_of(asset: str | None = None) -> list[Check]:
    """Return the checks of an asset; all checks if it is None."""
    return [check for check in all_checks() if asset in (None, check.asset)]


def _of_tables() -> Iterator[Check]:
    assets: dict[str, list[Place]] = {MESSAGES_ASSET: [MESSAGE_ROWS], GRAPH_ASSET: [OPERATION_ROWS, GRAPH_ROWS]}
    assets |= {place.asset: [place] for place in ROWS_OF_GRAIN.values()}
    for asset, places in assets.items():
        yield _schema(asset, places, f"another program wrote the files; {_RECOMPUTE}")
        yield _blocking(
            "unique_ids",
            asset,
            "Row ids are unique, and each row is in the partition that its id names.",
            _RECOMPUTE,
            integrity.duplicate_ids(places[-1]),
        )
        if asset == GRAPH_ASSET:
            yield _blocking(
                "unique_operation_ids",
                asset,
                "Ids of graph operations are unique.",
                _RECOMPUTE,
                integrity.duplicate_ids(OPERATION_ROWS),
            )
            yield _error(
                "graph_level",
                asset,
                "Operations by scope are in sync with their records, and each graph is the fold of its operations.",
                f"{_PENDING}, or {_RECOMPUTE}",
                integrity.graph_differences(),
            )
        else:
            yield _blocking(
                "fed_back_recall",
                asset,
                "No row contains text that memory itself injected into a prompt.",
                f"find the writer or the model that repeats injected text; {_RECOMPUTE}",
                quality.injected_text(places[0]),
            )
        if asset != MESSAGES_ASSET:
            yield _blocking(
                "orphaned_sources",
                asset,
                "Cited sources exist or have expired. Facts cite messages, summaries cite facts or finer summaries, "
                "the graph cites messages and edits.",
                _RECOMPUTE,
                quality.orphaned_sources(places[-1]),
            )
        if asset == FACT_ROWS.asset:
            yield _warning(
                "duplicate_share",
                asset,
                f"At most {quality.DUPLICATE_SHARE:.0%} of an agent's facts in an hour are duplicates.",
                "set ids on the agent's messages, so that repeated ones are stored once",
                quality.duplicate_facts(),
            )


def _schema(asset: str, places: list[Place], remedy: str) -> Check:
    return _blocking(
        "schema",
        asset,
        "Files have the columns and types of the schema, and required columns have no nulls.",
        remedy,
        partial(integrity.schema_differences, places=places),
    )


def _of_memories() -> Iterator[Check]:
    remedy = "run `memory-pipeline repair`; restore events that agents wrote themselves from a backup"
    yield _schema(MEMORIES_ASSET, [EVENT_ROWS, MEMORY_ROWS], remedy)
    for name, place, description in (
        ("unique_ids", MEMORY_ROWS, "Ids of versions of durable memories are unique."),
        ("unique_event_ids", EVENT_ROWS, "Ids of memory events are unique and name the event's hour."),
    ):
        yield _blocking(name, MEMORIES_ASSET, description, _RECOMPUTE, integrity.duplicate_ids(place))
    yield _blocking(
        "level",
        MEMORIES_ASSET,
        "Durable memories are in sync with all events of conversations, agents and consolidation.",
        f"run `memory-pipeline run`; if the check still fails, {_CONSOLIDATE}",
        memories.stale_agents,
    )
    yield _blocking(
        "orphaned_sources",
        MEMORIES_ASSET,
        "Messages that memory events cite exist or have expired.",
        _RECOMPUTE,
        quality.orphaned_sources(EVENT_ROWS),
    )
    yield _blocking(
        "fed_back_recall",
        MEMORIES_ASSET,
        "No durable memory contains text that memory itself injected into a prompt.",
        f"find the writer or the model that repeats injected text; {_RECOMPUTE}",
        quality.injected_text(MEMORY_ROWS),
    )


def _of_consolidation() -> Iterator[Check]:
    yield _schema(
        CONSOLIDATION_ASSET,
        [CONSOLIDATION_ROWS, CHECKPOINT_ROWS],
        f"another program wrote the files: delete them; {_CONSOLIDATE}",
    )
    for name, place, description in (
        ("unique_ids", CONSOLIDATION_ROWS, "Ids of consolidation events are unique."),
        ("one_row_an_agent", CHECKPOINT_ROWS, "Each agent has one consolidation checkpoint."),
    ):
        yield _blocking(name, CONSOLIDATION_ASSET, description, _CONSOLIDATE, integrity.duplicate_ids(place))
    yield _error(
        "explained",
        CONSOLIDATION_ASSET,
        "Each consolidation event has a reason.",
        f"another program wrote the events: delete them; {_CONSOLIDATE}",
        memories.missing_reasons(),
    )
    yield _error(
        "duplicates",
        CONSOLIDATION_ASSET,
        "After consolidation, no two active memories of one kind are duplicates.",
        _CONSOLIDATE,
        memories.duplicates(),
    )
    yield _error(
        "contradictions",
        CONSOLIDATION_ASSET,
        "After consolidation, active memories do not name different objects for a predicate that allows one.",
        f"{_CONSOLIDATE}; `memory-pipeline memories about` lists them",
        memories.contradictions(),
    )
    yield _warning(
        "nights",
        CONSOLIDATION_ASSET,
        "Each day that ended more than a day ago is consolidated, late data included.",
        f"{_CONSOLIDATE}; `memory-pipeline status` lists pending days",
        memories.unconsolidated_days,
    )
    yield _warning(
        "troubles",
        CONSOLIDATION_ASSET,
        "No consolidation pass of an agent has failed and waits for a retry.",
        "see `memory-pipeline status` for the reasons, then run `memory-pipeline consolidate` again",
        memories.failed_passes,
    )
    yield _error(
        "caps",
        HOT_INDEX_ASSET,
        "Each hot index is within the entries and tokens that `memories` in config/workspaces.yaml allows, and lists "
        "only active memories.",
        _CONSOLIDATE,
        memories.hot_index_excess(),
    )


def _of_summaries(grain: Grain) -> Iterator[Check]:
    asset = SUMMARY_ROWS[grain].asset
    yield _blocking(
        "coverage",
        asset,
        f"Each agent has a summary for each closed {grain} period with source rows, unless it expired.",
        "run `memory-pipeline run`; if the check still fails, run `memory-pipeline repair`",
        quality.missing_summaries(grain),
    )
    yield _blocking(
        "empty_summaries",
        asset,
        "Each summary has text and at least one point.",
        f"correct the prompt or the model; {_RECOMPUTE}",
        quality.empty_summaries(grain),
    )
    yield _warning(
        "long_summaries",
        asset,
        f"No summary is longer than {quality.LONGEST} times the length configured for its agent.",
        "change the `length` of the agent's summaries in config/workspaces.yaml, the model or the prompt",
        quality.long_summaries(grain),
    )


def _of_index(grain: Grain) -> Check:
    return _error(
        "index_level",
        index_asset(grain),
        f"The index is in sync with {table_asset(grain)}.",
        "run `memory-pipeline run`; if the check still fails, run `memory-pipeline repair`",
        integrity.index_differences(grain),
    )


def _of_operation() -> Iterator[Check]:
    for grain in Grain:
        yield _warning(
            "fallbacks",
            table_asset(grain),
            f"At most {quality.FALLBACK_SHARE:.0%} of a period's rows were computed by rules because a model failed.",
            "run `memory-pipeline run` to send the requests again; `outcome` in model_calls has the reason",
            quality.fallbacks(grain),
        )
    for asset in (MESSAGES_ASSET, *(table_asset(grain) for grain in Grain), GRAPH_ASSET):
        yield _warning(
            "retention",
            asset,
            "Expired rows are removed within a day, as `retention` in config/workspaces.yaml says.",
            "remove them with `memory-pipeline expire`; rows that a pending summary needs are kept until "
            "`memory-pipeline run` has computed it",
            lake_health.expired_rows(asset),
        )
    yield _error(
        "manifest",
        MESSAGES_ASSET,
        "lake.json equals its copy, and the keys of users and groups fit its secret.",
        "run `memory-pipeline repair`; if the check still fails, restore lake.json from a backup",
        lake_health.replaced_manifest,
    )
    yield _warning(
        "journal_backlog",
        MESSAGES_ASSET,
        "Journal files older than a day are ingested.",
        _PENDING,
        lake_health.stuck_files,
    )
    yield _warning(
        "overdue_sessions",
        PROMOTION_ASSET,
        "The database of sessions can be reached, and expired entries are promoted or deleted within a day.",
        "run `memory-pipeline run` or the job promote_sessions, with MEMORY_PIPELINE_SESSIONS set as for the agents",
        lake_health.overdue_entries,
    )
    yield _warning(
        "quarantine",
        MESSAGES_ASSET,
        "The quarantine has no unreadable records.",
        "see `memory-pipeline status` for the reasons, then correct the records and write them again",
        lake_health.quarantined_records,
    )
    yield _error(
        "erasures",
        MESSAGES_ASSET,
        "No erasure is unfinished.",
        "run `memory-pipeline run`, which finishes it, or `memory-pipeline forget` again with the same subject",
        lake_health.interrupted_erasures,
    )
    yield _warning(
        "budget",
        _COST_ASSET,
        f"Each workspace has spent less than {lake_health.NEARLY_SPENT:.0%} of its budget for this month.",
        "raise `budget` in config/workspaces.yaml, or let rules replace the models until the month ends",
        lake_health.spent_budgets,
    )


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
