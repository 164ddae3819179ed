"""Checks of operation: budgets, retention, the journal's backlog and the quarantine."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

import polars as pl
from ulid import ULID

from memory_pipeline.checks.check import PENDING, SAMPLE, Offences, Severity, check
from memory_pipeline.domain.sessions import micros_of
from memory_pipeline.errors import ConfigurationError, LakeError, counted, shown
from memory_pipeline.lake.erasures import unfinished_erasures
from memory_pipeline.lake.files.storage import MANIFEST
from memory_pipeline.lake.lake import manifest_damage
from memory_pipeline.lake.schemas import MODEL_CALLS
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET
from memory_pipeline.sessions.store import existing_stores
from memory_pipeline.steps.promotion import PROMOTION_ASSET
from memory_pipeline.steps.repair import find_damage

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.checks.check import Check, CheckContext
    from memory_pipeline.configuration.model_settings import Budget
    from memory_pipeline.domain.model_calls import Usage
    from memory_pipeline.domain.periods import Grain
    from memory_pipeline.lake.journal import JournalFile

#: A budget spent to this share raises a warning.
NEARLY_SPENT = 0.8
#: Journal files are ingested within minutes and failures are retried hourly. After a day a file is stuck.
LONGEST_WAIT = timedelta(days=1)


@check("damage", MESSAGES_ASSET, "run `memory-pipeline repair`: it rebuilds what it can, and names what is lost")
def damaged_files(context: CheckContext) -> Offences:  # an offender is a file
    """Every file of the lake can be read, and has what was written to it."""
    found = find_damage(context.lake)
    return Offences.of((f"{each.path}: {shown(each.why, 200)[1:-1]}" for each in found), {"damaged": len(found)})


@check(
    "budget",
    "model_cost",
    "raise `budget` in config/workspaces.yaml, or let rules replace the models until the month ends",
    severity=Severity.WARNING,
    description=f"Each workspace has spent less than {NEARLY_SPENT:.0%} of its budget for this month.",
)
def spent_budgets(context: CheckContext) -> Offences:
    """Find workspaces that have spent most or all of their budget for the current month (UTC)."""
    lake = context.lake
    month = f"{context.now.astimezone(UTC):%Y-%m}"
    hours = [hour for hour in lake.tables.keys(MODEL_CALLS) if hour.startswith(f"{month}-")]
    workspaces = sorted(set(lake.tables.read(MODEL_CALLS, hours, columns=["workspace_id"])["workspace_id"].to_pylist()))
    spent = {workspace_id: lake.calls.spent(workspace_id, month) for workspace_id in workspaces}
    names = []
    over = 0
    for workspace_id, usage in spent.items():
        budget = context.configuration.budget(workspace_id)
        share, text = _share(usage, budget) if budget else (0.0, "")
        if share >= NEARLY_SPENT:
            names.append(f"{workspace_id} {month}, {text}")
            over += share >= 1
    numbers = {
        "workspaces": len(spent),
        "usd": sum(usage.cost or 0.0 for usage in spent.values()),
        "tokens": sum(usage.tokens_in + usage.tokens_out for usage in spent.values()),
        "spent": over,
        "nearly_spent": len(names) - over,
    }
    return Offences.of(names, numbers)


def _share(usage: Usage, budget: Budget) -> tuple[float, str]:
    """Return the spent share of the limit that is closest to exhaustion, and a text such as "$4.20 of $5.00"."""
    shares = [(0.0, "")]
    if budget.usd_per_month is not None:
        dollars = usage.cost or 0.0
        shares.append((_part(dollars, budget.usd_per_month), f"${dollars:,.2f} of ${budget.usd_per_month:,.2f}"))
    if budget.tokens_per_month is not None:
        tokens = usage.tokens_in + usage.tokens_out
        shares.append((_part(tokens, budget.tokens_per_month), f"{tokens:,} of {budget.tokens_per_month:,} tokens"))
    return max(shares)


def _part(spent: float, limit: float) -> float:
    return spent / limit if limit else 1.0


def retention(asset: str, grain: Grain) -> Check:
    """Return the check for rows that should have expired more than a day ago.

    An offender is a row; the sample counts rows by class. Model answers expire with the rows that were made from them.
    Rows that a pending summary still needs do not count.
    """

    @check(
        "retention",
        asset,
        "remove them with `memory-pipeline expire`; rows that a pending summary needs are kept until "
        "`memory-pipeline run` has computed it",
        severity=Severity.WARNING,
    )
    def expired_rows(context: CheckContext) -> Offences:
        """Expired rows are removed within a day, as `retention` in config/workspaces.yaml says."""
        rows, keys = context.overdue.of_asset(asset), context.keys(grain)
        rows = rows if keys is None else rows.filter(pl.col("period").is_in(keys))
        late = rows.group_by("workspace_id", "kept").agg(pl.sum("rows"), pl.min("period")).sort("workspace_id", "kept")
        count = int(late["rows"].sum())
        names = (
            f"{workspace} {retention_class}: {counted(rows, 'row')}, from {first} on"
            for workspace, retention_class, rows, first in late.iter_rows()
        )
        return Offences(count, tuple(names)[:SAMPLE], {"rows_too_old": count})

    return expired_rows


@check(
    "manifest",
    MESSAGES_ASSET,
    "run `memory-pipeline repair`; if the check still fails, restore lake.json from a backup",
)
def replaced_manifest(context: CheckContext) -> Offences:
    """lake.json equals its copy, and the keys of users and groups fit its secret."""
    damage = manifest_damage(context.lake.storage)
    names = [f"{MANIFEST}: {damage}"] if damage else []
    return Offences.of([*names, *map(str, context.lake.misfits())])


@check("journal_backlog", MESSAGES_ASSET, PENDING, severity=Severity.WARNING)
def stuck_files(context: CheckContext) -> Offences:  # an offender is a file
    """Journal files older than a day are ingested."""
    files = context.lake.journal.pending()
    ages = {file: context.now - _written_at(context, file) for file in files}
    late = [file for file in files if ages[file] > LONGEST_WAIT]
    by_hour = Counter(file.pending_hours[0].key for file in late)
    oldest = max(ages.values(), default=timedelta()) / timedelta(hours=1)
    numbers = {"pending_files": len(files), "stuck_files": len(late), "oldest_hours": round(max(oldest, 0.0), 2)}
    names = [f"{hour}, {counted(count, 'file')}" for hour, count in sorted(by_hour.items())]
    return Offences(len(late), tuple(names[:SAMPLE]), numbers)


def _written_at(context: CheckContext, file: JournalFile) -> datetime:
    """Return the write time in the file's name, or the hour of its messages if the name has no ULID."""
    try:
        return ULID.from_str(file.path.rpartition("__")[2].partition(".")[0]).datetime
    except ValueError:
        return context.lake.calendar.bounds(file.hours[0])[0]


@check(
    "overdue_sessions",
    PROMOTION_ASSET,
    "run `memory-pipeline run` or the job promote_sessions, with MEMORY_PIPELINE_SESSIONS set as for the agents",
    severity=Severity.WARNING,
)
def overdue_entries(context: CheckContext) -> Offences:
    """The database of sessions can be reached, and expired entries are promoted or deleted within a day."""
    then = micros_of(context.now - LONGEST_WAIT)
    found: Counter[str] = Counter()
    try:
        for store in existing_stores(context.lake):
            found.update({kind.value: count for kind, count in store.overdue(then).items()})
    except (LakeError, ConfigurationError) as error:
        return Offences.of([str(error)])
    names = [f"{kind}, {counted(count, 'entry')}" for kind, count in sorted(found.items())]
    return Offences(found.total(), tuple(names[:SAMPLE]), {"overdue_entries": found.total()})


@check(
    "erasures",
    MESSAGES_ASSET,
    "run `memory-pipeline run`, which finishes it, or `memory-pipeline forget` again with the same subject",
)
def interrupted_erasures(context: CheckContext) -> Offences:  # an offender is a tombstone
    """No erasure is unfinished."""
    return Offences.of(unfinished_erasures(context.lake.storage, context.lake.tombstones))


@check(
    "quarantine",
    MESSAGES_ASSET,
    "see `memory-pipeline status` for the reasons, then correct the records and write them again",
    severity=Severity.WARNING,
)
def quarantined_records(context: CheckContext) -> Offences:  # the sample names their files and lines
    """The quarantine has no unreadable records."""
    rejected = context.lake.journal.quarantined()
    return Offences.of((rejection.where for rejection in rejected), {"records": len(rejected)})
