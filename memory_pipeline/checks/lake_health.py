"""Checks of operation: budgets, retention, the journal's backlog and the quarantine."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import polars as pl
from ulid import ULID

from memory_pipeline.checks.check import (
    FACT_ROWS,
    MESSAGE_ROWS,
    OPERATION_ROWS,
    ROWS_OF_GRAIN,
    SAMPLE,
    Offences,
    Place,
    Scan,
    parts_of,
)
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import FIRST_YEAR, Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.sessions import micros_of
from memory_pipeline.errors import ConfigurationError, LakeError, counted, shown
from memory_pipeline.lake.erasures import unfinished_erasures
from memory_pipeline.lake.files.storage import MANIFEST
from memory_pipeline.lake.lake import manifest_damage
from memory_pipeline.lake.schemas import ANSWERS, MODEL_CALLS
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MESSAGES_ASSET
from memory_pipeline.sessions.store import existing_stores
from memory_pipeline.steps.repair import find_damage
from memory_pipeline.steps.retention import held_back

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.checks.check import CheckContext
    from memory_pipeline.configuration.model_settings import Budget
    from memory_pipeline.domain.model_calls import Usage
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake.journal import JournalFile

#: A budget spent to this share raises a warning.
NEARLY_SPENT = 0.8
#: Expired rows may stay this long, because `memory-pipeline expire` runs daily.
RETENTION_GRACE = timedelta(days=1)
#: Journal files are ingested within minutes and failures are retried hourly. After a day a file is stuck.
LONGEST_WAIT = timedelta(days=1)


def damaged_files(context: CheckContext) -> Offences:
    """Find what `memory-pipeline repair` finds. An offender is a file."""
    found = find_damage(context.lake)
    return Offences.of((f"{each.path}: {shown(each.why, 200)[1:-1]}" for each in found), {"damaged": len(found)})


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


def expired_rows(asset: str) -> Scan:
    """Find rows that should have expired more than a day ago. An offender is a row; the sample counts rows by class.

    Model answers expire with the rows that were made from them. Rows that a pending summary still needs do not count.
    """
    place, answers = _places_of(asset)

    def see(_: CheckContext, part: pl.DataFrame) -> pl.DataFrame:
        return _counted(place, part)

    def conclude(context: CheckContext, seen: list[pl.DataFrame]) -> Offences:
        if answers is not None:
            seen = [
                *seen,
                *(_counted(answers, part) for part in parts_of(context, answers, ["workspace_id", "period"])),
            ]
        rows = pl.concat([_COUNTED.clear(), *seen])
        classes = rows.select("workspace_id", "kept").unique()
        then = context.now - RETENTION_GRACE
        limits, held = [], held_back(context.lake, date(FIRST_YEAR, 1, 1), context.now)
        for workspace_id, name in classes.iter_rows():
            retention_class = RetentionClass(name)
            last = context.configuration.retention(workspace_id).last_expired(
                retention_class, then, context.lake.calendar
            )
            first_held = held.get(retention_class.grain) if retention_class.grain else None
            limits.append(("" if last is None else last.key, _NEVER if first_held is None else first_held.key))
        through = classes.with_columns(
            through=pl.Series([last for last, _ in limits], dtype=pl.String),
            held=pl.Series([first for _, first in limits], dtype=pl.String),
        )
        late = (
            rows.join(through, on=["workspace_id", "kept"])
            .filter((pl.col("period") <= pl.col("through")) & (pl.col("period") < pl.col("held")))
            .group_by("workspace_id", "kept")
            .agg(pl.sum("rows"), pl.min("period"))
            .sort("workspace_id", "kept")
        )
        count = int(late["rows"].sum())
        names = (
            f"{workspace} {retention_class}: {counted(rows, 'row')}, from {first} on"
            for workspace, retention_class, rows, first in late.iter_rows()
        )
        return Offences(count, tuple(islice(names, SAMPLE)), {"rows_too_old": count})

    return Scan(place, ("workspace_id", place.period, *(["kind"] if place is FACT_ROWS else [])), see, conclude)


_NEVER = "~"  # sorts after all period keys
_COUNTED = pl.DataFrame(schema={"workspace_id": pl.String, "period": pl.String, "kept": pl.String, "rows": pl.Int64})


def _counted(place: Place, part: pl.DataFrame) -> pl.DataFrame:
    keys = ["workspace_id", "period", _class_of(place).alias("kept")]
    return part.group_by(keys, maintain_order=True).agg(rows=pl.len().cast(pl.Int64))


def _places_of(asset: str) -> tuple[Place, Place | None]:
    """Return the places of an asset's rows that expire, and of the model answers that expire with them."""
    if asset == MESSAGES_ASSET:
        return MESSAGE_ROWS, None
    if asset == GRAPH_ASSET:
        return OPERATION_ROWS, None
    [place] = [place for place in ROWS_OF_GRAIN.values() if place.asset == asset]
    return place, Place(asset, None, place.grain, ANSWERS, {"grain": place.grain.value})


def _class_of(place: Place) -> pl.Expr:
    if place is FACT_ROWS:
        kind = pl.col("kind")
        return (
            pl.when(kind == FactKind.TURN.value)
            .then(pl.lit(RetentionClass.CONVERSATIONS.value))
            .when(kind.is_in([FactKind.PREFERENCE.value, FactKind.INSTRUCTION.value]))
            .then(pl.lit(RetentionClass.PREFERENCES.value))
            .otherwise(pl.lit(RetentionClass.FACTS.value))
        )
    if place is MESSAGE_ROWS:
        return pl.lit(RetentionClass.CONVERSATIONS.value)
    if place is OPERATION_ROWS:
        return pl.lit(RetentionClass.GRAPH.value)
    return pl.lit(
        RetentionClass.FACTS.value if place.grain is Grain.WORKING else RetentionClass(place.grain.value).value
    )


def replaced_manifest(context: CheckContext) -> Offences:
    """Find a manifest that differs from its copy, and scopes of users and groups that do not fit its secret."""
    damage = manifest_damage(context.lake.storage)
    names = [f"{MANIFEST}: {damage}"] if damage else []
    return Offences.of([*names, *map(str, context.lake.misfits())])


def stuck_files(context: CheckContext) -> Offences:
    """Find journal files that were written more than a day ago and are not ingested. An offender is a file."""
    files = context.lake.journal.pending()
    ages = {file: context.now - _written_at(context, file) for file in files}
    late = [file for file in files if ages[file] > LONGEST_WAIT]
    by_hour: dict[Period, int] = {}
    for file in late:
        hour = file.pending_hours[0]
        by_hour[hour] = by_hour.get(hour, 0) + 1
    oldest = max(ages.values(), default=timedelta()) / timedelta(hours=1)
    numbers = {"pending_files": len(files), "stuck_files": len(late), "oldest_hours": round(max(oldest, 0.0), 2)}
    names = [
        f"{hour}, {counted(count, 'file')}" for hour, count in sorted(by_hour.items(), key=lambda item: item[0].key)
    ]
    return Offences(len(late), tuple(names[:SAMPLE]), numbers)


def _written_at(context: CheckContext, file: JournalFile) -> datetime:
    """Return the write time in the file's name, or the hour of its messages if the name has no ULID."""
    try:
        return ULID.from_str(file.path.rpartition("__")[2].removesuffix(".jsonl")).datetime
    except ValueError:
        return context.lake.calendar.bounds(file.hours[0])[0]


def overdue_entries(context: CheckContext) -> Offences:
    """Find entries of sessions and pools that expired more than a day ago: neither promoted nor deleted.

    A database that cannot be reached is an offender, too.
    """
    then = micros_of(context.now - LONGEST_WAIT)
    found: Counter[str] = Counter()
    try:
        for store in existing_stores(context.lake):
            found.update({kind.value: count for kind, count in store.overdue(then).items()})
    except (LakeError, ConfigurationError) as error:
        return Offences.of([str(error)])
    names = [f"{kind}, {counted(count, 'entry')}" for kind, count in sorted(found.items())]
    return Offences(found.total(), tuple(names[:SAMPLE]), {"overdue_entries": found.total()})


def interrupted_erasures(context: CheckContext) -> Offences:
    """Find erasures that were interrupted. An offender is a tombstone."""
    return Offences.of(unfinished_erasures(context.lake.storage, context.lake.tombstones))


def quarantined_records(context: CheckContext) -> Offences:
    """Find quarantined records. The sample names their files and lines."""
    rejected = context.lake.journal.quarantined()
    return Offences.of((rejection.where for rejection in rejected), {"records": len(rejected)})
