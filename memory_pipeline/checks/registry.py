"""All checks: what is looked at for which asset, how bad it is, and what to do about it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memory_pipeline.analytics import models_of
from memory_pipeline.checks import integrity, lake_health, memories, quality
from memory_pipeline.checks.check import (
    DECIDED,
    DURABLE,
    FOUND,
    HAPPENED,
    KEPT_UP,
    KNOWN,
    OPERATIONS,
    REMEMBERED,
    SAID,
    SAMPLE,
    SUMMARIZED,
    Check,
    Offences,
    Severity,
)
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET, index_asset, table_asset
from memory_pipeline.steps.consolidation.days import HOT_INDEX_ASSET, UPKEEP_ASSET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.analytics import Model
    from memory_pipeline.checks.check import CheckContext, Place

_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
#: The asset that shows what models cost.
_COST_ASSET = "model_cost"

_MAKE_AGAIN = "`memory-pipeline repair` makes the partitions again, as does `memory-pipeline run --from … --to …`"
_KEEP = "`memory-pipeline upkeep` keeps them"
_PENDING = "`memory-pipeline status` tells what is pending, `memory-pipeline run` makes it"


def all_checks() -> list[Check]:
    """Return all checks: of the assets in the order in which they are made, the tests of ``dbt_like_sql`` last."""
    return [
        *_of_tables(),
        *_of_memories(),
        *_of_nights(),
        *(check for grain in SUMMARY_GRAINS for check in _of_summaries(grain)),
        *(_of_index(grain) for grain in Grain),
        *_of_upkeep(),
        *map(_of_sql, models_of("tests")),
    ]


def checks_of(asset: str | None = None) -> list[Check]:
    """Return the checks of an asset, or all."""
    return [check for check in all_checks() if asset in (None, check.asset)]


def _of_tables() -> Iterator[Check]:
    """Yield what is looked at wherever rows lie."""
    assets: dict[str, list[Place]] = {MESSAGES_ASSET: [SAID], GRAPH_ASSET: [OPERATIONS, KNOWN]}
    assets |= {place.asset: [place] for place in REMEMBERED.values()}
    for asset, places in assets.items():
        yield _schema(asset, places, f"the files were written by something else; {_MAKE_AGAIN}")
        yield Check(
            "unique_ids",
            asset,
            _ERROR,
            True,
            "Each row stands once, and in the partition that its id names.",
            _MAKE_AGAIN,
            integrity.unique_ids(places[-1]),
        )
        if asset == GRAPH_ASSET:
            yield Check(
                "unique_operation_ids",
                asset,
                _ERROR,
                True,
                "Each operation that the graph is folded from stands once.",
                _MAKE_AGAIN,
                integrity.unique_ids(OPERATIONS),
            )
        else:
            yield Check(
                "fed_back_recall",
                asset,
                _ERROR,
                True,
                "Nothing that memory itself gave to a prompt stands in it, as if somebody had said it.",
                f"find the writer or the model that repeats it; {_MAKE_AGAIN}",
                quality.feeds_back(places[0]),
            )
        if asset != MESSAGES_ASSET:
            yield Check(
                "orphaned_sources",
                asset,
                _ERROR,
                True,
                "What rows rest on is there, or has expired: messages of facts, facts or finer summaries of summaries, "
                "messages and edits of the graph.",
                _MAKE_AGAIN,
                quality.has_sources(places[-1]),
            )
        if asset == FOUND.asset:
            yield Check(
                "duplicate_share",
                asset,
                _WARNING,
                False,
                f"At most {quality.DUPLICATE_SHARE:.0%} of an agent's facts of an hour say what another one says.",
                "an agent writes the same again and again: give its messages ids, or see what it sends",
                quality.repeats(),
            )


def _schema(asset: str, places: list[Place], remedy: str) -> Check:
    return Check(
        "schema",
        asset,
        _ERROR,
        True,
        "Files have the columns and types of the schema, and a value wherever there must be one.",
        remedy,
        partial(integrity.fits_schema, places=places),
    )


def _of_memories() -> Iterator[Check]:
    """Yield what is looked at of durable memories, and of what they are folded from."""
    remedy = f"{_PENDING}; what an agent did itself is only there: restore it from a copy"
    yield _schema(MEMORIES_ASSET, [HAPPENED, DURABLE], remedy)
    for name, place, what in (
        ("unique_ids", DURABLE, "Each version of a durable memory stands once"),
        ("unique_event_ids", HAPPENED, "Each event that memories are folded from stands once, and names its hour"),
    ):
        yield Check(name, MEMORIES_ASSET, _ERROR, True, f"{what}.", _MAKE_AGAIN, integrity.unique_ids(place))
    yield Check(
        "level",
        MEMORIES_ASSET,
        _ERROR,
        True,
        "Durable memories are folded from all events that there are, of conversations, agents and nights.",
        f"{_PENDING}; if nothing is pending, {_KEEP}",
        memories.is_current,
    )
    yield Check(
        "orphaned_sources",
        MEMORIES_ASSET,
        _ERROR,
        True,
        "The messages that events of durable memories rest on are there, or have expired.",
        _MAKE_AGAIN,
        quality.has_sources(HAPPENED),
    )
    yield Check(
        "fed_back_recall",
        MEMORIES_ASSET,
        _ERROR,
        True,
        "Nothing that memory itself gave to a prompt stands in it, as if somebody had said it.",
        f"find the writer or the model that repeats it; {_MAKE_AGAIN}",
        quality.feeds_back(DURABLE),
    )


def _of_nights() -> Iterator[Check]:
    """Yield what is looked at of the upkeep of durable memories, and of what it leaves."""
    yield _schema(UPKEEP_ASSET, [DECIDED, KEPT_UP], f"the files were written by something else: delete them; {_KEEP}")
    for name, place, what in (
        ("unique_ids", DECIDED, "Each thing that a night did stands once"),
        ("one_row_an_agent", KEPT_UP, "Of each agent it stands once how far it was kept"),
    ):
        yield Check(name, UPKEEP_ASSET, _ERROR, True, f"{what}.", _KEEP, integrity.unique_ids(place))
    yield Check(
        "explained",
        UPKEEP_ASSET,
        _ERROR,
        False,
        "Whatever a night did, it says why.",
        f"the events were written by something else: delete them; {_KEEP}",
        memories.explains(),
    )
    yield Check(
        "duplicates",
        UPKEEP_ASSET,
        _ERROR,
        False,
        "No two active memories of one kind say the same once a night has passed over them.",
        _KEEP,
        memories.says_the_same(),
    )
    yield Check(
        "contradictions",
        UPKEEP_ASSET,
        _ERROR,
        False,
        "Of predicates that hold one object no two active memories name different ones once a night has passed.",
        f"{_KEEP}; `memory-pipeline memories about` shows them",
        memories.contradicts(),
    )
    yield Check(
        "nights",
        UPKEEP_ASSET,
        _WARNING,
        False,
        "Every night that ended more than a day ago was kept, with all that is known of its day by now.",
        f"{_KEEP}; `memory-pipeline status` tells which nights are pending",
        memories.is_behind,
    )
    yield Check(
        "troubles",
        UPKEEP_ASSET,
        _WARNING,
        False,
        "No pass of an agent's upkeep has failed and waits for being made again.",
        f"`memory-pipeline status` tells the reasons; {_KEEP} again",
        memories.has_troubles,
    )
    yield Check(
        "caps",
        HOT_INDEX_ASSET,
        _ERROR,
        False,
        "No hot index has more entries or tokens than `memories` in config/workspaces.yaml allows, nor one that is not "
        "active.",
        _KEEP,
        memories.fits_caps(),
    )


def _of_summaries(grain: Grain) -> Iterator[Check]:
    asset = SUMMARIZED[grain].asset
    yield Check(
        "coverage",
        asset,
        _ERROR,
        True,
        f"Every {grain} period that has closed and has material has its summary, for each agent, unless it expired.",
        f"{_PENDING}; {_MAKE_AGAIN}",
        quality.covered(grain),
    )
    yield Check(
        "empty_summaries",
        asset,
        _ERROR,
        True,
        "Each summary has a text, and at least one point.",
        f"correct the prompt or the model; {_MAKE_AGAIN}",
        quality.says_nothing(grain),
    )
    yield Check(
        "long_summaries",
        asset,
        _WARNING,
        False,
        f"No summary is longer than {quality.LONGEST} times the length that is configured for its agent.",
        "set `length` of the agent's summaries in config/workspaces.yaml, or another model or prompt",
        quality.runs_on(grain),
    )


def _of_index(grain: Grain) -> Check:
    return Check(
        "index_level",
        index_asset(grain),
        _ERROR,
        False,
        f"The index holds what {table_asset(grain)} holds, no more and no less; of more than {integrity.MOST_AGENTS} "
        "agents, others are looked at each day.",
        f"{_PENDING}; {_MAKE_AGAIN}",
        integrity.is_current(grain),
    )


def _of_upkeep() -> Iterator[Check]:
    for grain in Grain:
        yield Check(
            "fallbacks",
            table_asset(grain),
            _WARNING,
            False,
            f"Rules took a model's place in at most {quality.FALLBACK_SHARE:.0%} of the rows of a period.",
            f"see `outcome` in model_calls for the reason; {_PENDING} with the model",
            quality.falls_back(grain),
        )
    for asset in (MESSAGES_ASSET, *(table_asset(grain) for grain in Grain), GRAPH_ASSET):
        yield Check(
            "retention",
            asset,
            _WARNING,
            False,
            "Nothing is kept for more than a day beyond what `retention` in config/workspaces.yaml allows.",
            "`memory-pipeline expire` removes it; what it holds back waits for its parent: `memory-pipeline run`",
            lake_health.kept_too_long(asset),
        )
    yield Check(
        "journal_backlog",
        MESSAGES_ASSET,
        _WARNING,
        False,
        "What agents wrote more than a day ago has become memory.",
        _PENDING,
        lake_health.is_stuck,
    )
    yield Check(
        "quarantine",
        MESSAGES_ASSET,
        _WARNING,
        False,
        "No record was set aside because it could not be read.",
        "`memory-pipeline status` tells the reasons; correct the records and write them again",
        lake_health.has_set_aside,
    )
    yield Check(
        "budget",
        _COST_ASSET,
        _WARNING,
        False,
        f"No workspace has spent {lake_health.NEARLY_SPENT:.0%} or more of what it may spend this month.",
        "raise `budget` in config/workspaces.yaml, or let rules take the models' place until the month ends",
        lake_health.within_budget,
    )


def _of_sql(model: Model) -> Check:
    """Return a test of ``dbt_like_sql`` as a check: its rows are the offenders."""
    severity = Severity(getattr(model, "severity", None) or _ERROR)
    return Check(
        model.name,
        getattr(model, "asset", None) or FOUND.asset,
        severity,
        severity is _ERROR,
        " ".join(model.description.split()),
        f"`memory-pipeline sql {model.name} --run` shows the rows",
        partial(_rows_of_test, name=model.name),
    )


def _rows_of_test(context: CheckContext, name: str) -> Offences:
    found = context.warehouse.query(name)
    told = [column for column in found.column_names if column in _TELLING]
    names = [" ".join(str(row[column]) for column in told) for row in found.select(told).slice(0, SAMPLE).to_pylist()]
    return Offences(found.num_rows, tuple(names), {"rows": found.num_rows})


#: Columns of tests that say where an offender is; others may hold what was said.
_TELLING = frozenset(
    "id workspace_id agent_id asset model grain kind period hour day month source_id message_id owner".split()
)
