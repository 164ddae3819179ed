"""Find pending partitions from the journal, the ledger and the tables' logs, without reading rows.

Hours are pending while they have journal files. A summary is stale when its period has closed and the digest of its
sources differs from the one in the ledger. Damaged partitions, in the table or the ledger only, are pending too. So
work left by a crash or late data is found without Dagster's state.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET, index_asset, table_asset
from memory_pipeline.steps.results import RowDigests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import date, datetime

    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.tables.ledger import LedgerEntry


#: Most hours in which facts of older rules are counted; each is a file.
_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class GrainStatus:
    """The state of one grain; periods are in order.

    Attributes:
        made: periods with rows.
        empty: periods that were processed but had no material.
        rows: number of rows in all periods.
        pending: closed periods to compute: hours with journal files, missing or stale summaries, unfinished rows.
        missing: periods of `pending` that were never computed.
        unfinished: periods of `pending` with rows that wait for a model or for budget.
        open: periods with material that have not closed yet; hours that have not begun.
        early: hours with journal files before the first day of the memory.
        expired: periods with expired rows only.
        refused: number of rejected parts of model answers in all periods.
        redacted: number of messages from which secrets were removed (hours only).
    """

    grain: Grain
    made: list[Period]
    empty: list[Period]
    rows: int
    pending: list[Period]
    missing: list[Period]
    unfinished: list[Period]
    open: list[Period]
    early: list[Period]
    expired: list[Period] = field(default_factory=list)
    refused: int = 0
    redacted: int = 0


def grain_status(lake: Lake, grain: Grain, start: date, now: datetime) -> GrainStatus:
    """Return the state of one grain as of `now`. Periods before `start` are never pending.

    `pending` is complete only if the finer grains are current: a missing day makes its week pending once computed.
    """
    finer = table_asset(grain.finer or Grain.WORKING)
    of_hours = (GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET) if grain is Grain.WORKING else ()
    entries = lake.ledger.entries_of({table_asset(grain), index_asset(grain), finer, *of_hours})
    table, index = entries[table_asset(grain)], entries[index_asset(grain)]
    if grain is Grain.WORKING:
        waiting = {hour: lake.calendar.bounds(hour)[0] for hour in lake.journal.pending_hours()}
        first = lake.calendar.bounds(Period.containing(Grain.DAILY, start))[0]
        early = {hour for hour, begins in waiting.items() if begins < first}
        still_open = {hour for hour, begins in waiting.items() if begins > now}
        pending = waiting.keys() - early - still_open
        graph, memories = entries[GRAPH_ASSET], entries[MEMORIES_ASSET]
        first_key = f"{first:%Y-%m-%dT%H}"
        pending |= {
            Period(grain, key)
            for key, entry in table.items()
            if key >= first_key
            and not (
                _is_complete(entry, index.get(key))
                and _is_in_sync(entry, graph.get(key))
                # The sources of durable memories cannot be folded again after they have expired.
                and (entry.rows <= entry.expired or _is_in_sync(entry, memories.get(key)))
            )
        }
        pending |= {Period(grain, key) for key, entry in memories.items() if key >= first_key and entry.unfinished}
        inconsistent = _inconsistent(lake.tables.keys(FACTS), table)
        inconsistent |= set(lake.tables.keys(MESSAGES)) - entries[MESSAGES_ASSET].keys()
        pending |= {Period(grain, key) for key in inconsistent if key >= first_key}
    else:
        pending, still_open, early = set(), set(), set()
        for period, digest in _source_digests(lake.calendar, grain, entries[finer]).items():
            if period.first_day < start:
                continue
            entry = table.get(period.key)
            if _closes_at(lake.calendar, period) > now:
                still_open.add(period)
            elif entry is None or entry.input_digest != digest or not _is_complete(entry, index.get(period.key)):
                pending.add(period)
        inconsistent = _inconsistent(lake.tables.keys(SUMMARIES, grain=grain.value), table)
        pending |= {period for key in inconsistent if (period := Period(grain, key)).first_day >= start} - still_open
    return GrainStatus(
        grain=grain,
        made=_periods(grain, (key for key, entry in table.items() if entry.rows > entry.expired)),
        empty=_periods(grain, (key for key, entry in table.items() if not entry.rows)),
        rows=sum(max(0, entry.rows - entry.expired) for entry in table.values()),
        pending=_sorted(pending),
        missing=_sorted(period for period in pending if period.key not in table),
        unfinished=_sorted(period for period in pending if period.key in table and table[period.key].unfinished),
        open=_sorted(still_open),
        early=_sorted(early),
        expired=_periods(grain, (key for key, entry in table.items() if 0 < entry.rows <= entry.expired)),
        refused=sum(entry.refused for entry in table.values()),
        redacted=sum(entry.redacted for entry in entries.get(MESSAGES_ASSET, {}).values()),
    )


@dataclass(frozen=True, slots=True)
class OlderFacts:
    """The facts that earlier versions of the built-in rules made, which stay valid.

    Attributes:
        facts: their number; of a large lake, the number in its first and last hours.
        first, last: days of the first and the last of them. A run of this range makes them anew.
        is_all: whether all facts were looked at.
    """

    facts: int
    first: Period
    last: Period
    is_all: bool


def older_facts(lake: Lake, family: str, rules: str) -> OlderFacts | None:
    """Return the facts of rules of a `family` of names that are older than `rules`, or None.

    Reads one column of at most :data:`_LOOKED_AT` hours: of the first and the last ones. Those between are like them.
    """
    hours = lake.tables.keys(FACTS)
    between = hours[_LOOKED_AT // 2 : -_LOOKED_AT // 2] if len(hours) > _LOOKED_AT else []
    older = "|".join(map(str, range(1, int(rules.removeprefix(family)))))
    # A time zone may follow the number.
    is_older = pc.match_substring_regex(pc.field("extraction_method"), f"^{family}({older})( |$)")
    columns = ["period", "extraction_method"]
    looked_at = sorted({*hours} - {*between})
    rows = lake.tables.read(FACTS, looked_at, columns=columns, where=is_older, damaged="skip")
    if not rows.num_rows:
        return None
    found = sorted({*rows["period"].to_pylist(), *between[-1:]})
    first, last = (
        Period.containing(Grain.DAILY, lake.calendar.day_of(lake.calendar.bounds(Period(Grain.WORKING, key))[0]))
        for key in (found[0], found[-1])
    )
    return OlderFacts(rows.num_rows, first, last, is_all=not between)


def journal_hours(lake: Lake, start: date, now: datetime, scopes: Collection[Scope] | None = None) -> dict[Period, str]:
    """Return the pending hours from `start` to `now`, of `scopes` only if given, with a digest of their files."""
    first = lake.calendar.bounds(Period.containing(Grain.DAILY, start))[0]
    files: dict[Period, list[str]] = defaultdict(list)
    keys = None if scopes is None else {scope.key for scope in scopes}
    for file in lake.journal.pending():
        if keys is None or file.key in keys:
            for hour in file.pending_hours:
                files[hour].append(f"{file.path} {file.tag}")
    return {
        hour: digest_of_all(names)[:8] for hour, names in files.items() if first <= lake.calendar.bounds(hour)[0] <= now
    }


def periods_in(lake: Lake, grain: Grain, since: datetime, until: datetime, now: datetime) -> list[Period]:
    """Return the closed periods that overlap [since, until); for hours, those with material.

    Coarser periods overlap by the days that roll up into them, so one day selects all its ancestors.
    """
    if grain is Grain.WORKING:
        hours = {Period(grain, key) for key in lake.ledger.entries(table_asset(grain))}
        hours |= lake.journal.pending_hours()
        return _sorted(hour for hour in hours if since <= lake.calendar.bounds(hour)[0] < min(until, now))
    day = Period.containing(Grain.DAILY, lake.calendar.day_of(since))
    found = set()
    while lake.calendar.bounds(day)[0] < min(until, now):
        found.add(lake.calendar.ancestor(day, grain))
        day = day.next()
    return _sorted(period for period in found if lake.calendar.closes_at(period) <= now)


def _source_digests(calendar: Calendar, grain: Grain, entries: Mapping[str, LedgerEntry]) -> Mapping[Period, str]:
    """Return the digest of the sources of each period of a summary grain that has finer periods, even empty ones."""
    finer = grain.finer or Grain.WORKING
    sources: dict[Period, list[str]] = defaultdict(list)
    for key, entry in entries.items():
        for period in _derived(calendar, finer, key):
            digests = sources[period]
            if entry.rows:
                digests.append(entry.output_digest)
    return {period: RowDigests.of(*digests).combined for period, digests in sources.items()}


# Sensors ask for years of periods at each tick.
@lru_cache(maxsize=65536)
def _derived(calendar: Calendar, grain: Grain, key: str) -> tuple[Period, ...]:
    return calendar.derived(Period(grain, key))


@lru_cache(maxsize=65536)
def _closes_at(calendar: Calendar, period: Period) -> datetime:
    return calendar.closes_at(period)


def _is_complete(table: LedgerEntry, index: LedgerEntry | None) -> bool:
    return _is_in_sync(table, index) and not table.unfinished


def _is_in_sync(table: LedgerEntry, derived: LedgerEntry | None) -> bool:
    return derived is not None and derived.input_digest == table.output_digest


def _inconsistent(present: Iterable[str], entries: Mapping[str, LedgerEntry]) -> set[str]:
    """Return the partitions with rows that are only in the table or only in the ledger."""
    expected = {key for key, entry in entries.items() if entry.rows > entry.expired}
    return (set(present) - entries.keys()) | (expected - set(present))


def _periods(grain: Grain, keys: Iterable[str]) -> list[Period]:
    return [Period(grain, key) for key in sorted(keys)]


def _sorted(periods: Iterable[Period]) -> list[Period]:
    return sorted(periods, key=lambda period: period.key)
