"""The days that are due for consolidation, and the checkpoint of each agent.

The consolidation of a day (``night`` in names) reads the events up to its end. A closed day is pending if it was never
consolidated, got late events, or had a failed pass. The ledger has an entry for every day from the first event on.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.identity import NOTHING, digest_of_all
from memory_pipeline.domain.periods import Grain, Period, hour_of
from memory_pipeline.lake.codec.codec import Codec
from memory_pipeline.lake.schemas import CONSOLIDATION
from memory_pipeline.lake.tables.ledger import CONSOLIDATION_ASSET, MEMORIES_ASSET

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import date, datetime

    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.tables.tables import Tables


#: Asset name of the hot index after a day's consolidation.
HOT_INDEX_ASSET = "hot_index"


@dataclass(frozen=True, slots=True)
class ConsolidationStatus:
    """The state of consolidation.

    Attributes:
        made: consolidated days, in order.
        missing: days of `pending` that were never consolidated.
        troubled: days of `pending` with a failed pass.
        events: total number of consolidation events.
    """

    made: list[Period]
    pending: list[Period]
    missing: list[Period]
    troubled: list[Period]
    events: int


def consolidation_status(lake: Lake, start: date, now: datetime) -> ConsolidationStatus:
    """Return the state of consolidation as of `now`; days before `start` are ignored."""
    inputs = night_inputs(lake)
    entries = lake.ledger.entries(CONSOLIDATION_ASSET)
    days = {day for day in inputs if day.first_day >= start}
    pending = []
    if days:
        day = min(days)
        while lake.calendar.bounds(day)[1] <= now:
            entry = entries.get(day.key)
            if entry is None or entry.unfinished or entry.input_digest != inputs.get(day, NOTHING):
                pending.append(day)
            day = day.next()
    # Earlier entries come from events that have been forgotten.
    first = min((day.key for day in days), default="9999")
    lost = [key for key, entry in entries.items() if key < first and entry.input_digest != NOTHING]
    pending = [*_days(lost), *pending]
    return ConsolidationStatus(
        made=_days(entries),
        pending=pending,
        missing=[day for day in pending if day.key not in entries],
        troubled=[day for day in pending if day.key in entries and entries[day.key].unfinished],
        events=sum(entry.rows for entry in entries.values()),
    )


def pending_days(lake: Lake, start: date, now: datetime) -> list[Period]:
    """Return the days to consolidate as of `now`, in order."""
    return consolidation_status(lake, start, now).pending


def days_between(lake: Lake, first: date, last: date, now: datetime) -> list[Period]:
    """Return the closed days from `first` to `last`, both included."""
    days = Period.containing(Grain.DAILY, first).through(Period.containing(Grain.DAILY, last))
    return [day for day in days if lake.calendar.bounds(day)[1] <= now]


def night_inputs(lake: Lake) -> dict[Period, str]:
    """Return the days with memory events, each with a digest of them."""
    digests: dict[Period, list[str]] = defaultdict(list)
    for key, entry in lake.ledger.entries(MEMORIES_ASSET).items():
        if entry.rows:
            day = lake.calendar.ancestor(Period(Grain.WORKING, key), Grain.DAILY)
            digests[day].append(f"{key} {entry.output_digest}")
    return {day: digest_of_all(parts) for day, parts in digests.items()}


def _days(keys: Iterable[str]) -> list[Period]:
    return [Period(Grain.DAILY, key) for key in sorted(keys)]


# A checkpoint has one digest per day for the month of the last simulated day, and one per month before that. So the row
# stays small, and an event that is months late recomputes at most one more month.
_MONTH = len("2024-01")


@dataclass(frozen=True, slots=True)
class ConsolidationCheckpoint:
    """How far the memories of one agent are consolidated, and from which events: a row of ``consolidation``.

    Attributes:
        through: the last day with events, changes or a failed pass; on later ones, memories only became due for a
            review.
        due: the next day on which time alone changes something.
        days: days, and months before, each with a digest of its events up to `through`.
        method: digest of the rules, settings and models.
        troubles: failed passes, each as ``{day} {pass}: {reason}``.
    """

    scope: Scope
    through: Period
    due: Period | None
    days: tuple[str, ...]
    method: str
    troubles: tuple[str, ...] = ()

    @property
    def first_trouble(self) -> Period | None:
        """The first day with a failed pass."""
        return min((parse_day(text.partition(" ")[0]) for text in self.troubles), default=None)

    def first_change(self, happened: Mapping[Period, Collection[str]]) -> Period | None:
        """Return the first day up to `through` with changed events, or None. `happened` has event ids by day."""
        before, after = dict(map(_split_span, self.days)), dict(map(_split_span, spans(happened, self.through)))
        changed = [span for span in before.keys() | after.keys() if before.get(span) != after.get(span)]
        return min((parse_day(span if len(span) > _MONTH else f"{span}-01") for span in changed), default=None)


def parse_day(key: str) -> Period:
    """Return the period of a key such as ``2024-01-15``."""
    return Period(Grain.DAILY, key)


_CHECKPOINTS = Codec(
    CONSOLIDATION,
    ConsolidationCheckpoint,
    columns={
        "bucket": lambda one: one.scope.key[0],
        "id": lambda one: one.scope.key,
        "through": lambda one: one.through.key,
        "due": lambda one: None if one.due is None else one.due.key,
    },
    attributes={"through": parse_day, "due": lambda key: None if key is None else parse_day(key)},
)
#: A checkpoint as a row of ``consolidation``.
checkpoint_to_row = _CHECKPOINTS.to_row


def day_of(event: MemoryEvent, calendar: Calendar) -> Period:
    """Return the day in the lake's time zone to which an event belongs in the order of events."""
    return calendar.ancestor(hour_of(event.placed_at), Grain.DAILY)


def spans(happened: Mapping[Period, Collection[str]], through: Period) -> tuple[str, ...]:
    """Return digests of the event ids up to `through`; see ``ConsolidationCheckpoint.days``."""
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for day, of_day in happened.items():
        if day.key <= through.key:
            ids[day.key if day.key[:_MONTH] == through.key[:_MONTH] else day.key[:_MONTH]] += of_day
    return tuple(f"{span} {digest_of_all(of_span)}" for span, of_span in sorted(ids.items()))


def read_checkpoints(tables: Tables) -> dict[str, ConsolidationCheckpoint]:
    """Return the checkpoints by key of the scope. Agents with a damaged one count as never consolidated."""
    return {each.scope.key: each for each in _CHECKPOINTS.to_records(tables.read(CONSOLIDATION, damaged="skip"))}


def write_checkpoints(
    tables: Tables, scopes: Collection[Scope], checkpoints: Iterable[ConsolidationCheckpoint]
) -> Period | None:
    """Replace the checkpoints of `scopes` in one commit. Return the last day through which a replaced one was made."""
    keys = pa.array([scope.key for scope in scopes], pa.string())
    checkpoints = list(checkpoints)
    replaced: dict[str, str] = {}

    def merged(old: pa.Table) -> pa.Table:
        is_own = pc.is_in(old["id"], keys)
        own = old.filter(is_own)
        replaced.update(zip(own["id"].to_pylist(), own["through"].to_pylist(), strict=True))
        known = {each.scope: each for each in _CHECKPOINTS.to_records(own)}
        new = [_later(each, known.get(each.scope)) for each in checkpoints]
        return pa.concat_tables([old.filter(pc.invert(is_own)), _CHECKPOINTS.to_rows(new)])

    buckets = {scope.key[0] for scope in scopes}
    if buckets:
        tables.transform(CONSOLIDATION, buckets, merged, remade=buckets)
    return max(map(parse_day, replaced.values()), default=None)


def _later(one: ConsolidationCheckpoint, other: ConsolidationCheckpoint | None) -> ConsolidationCheckpoint:
    """Return the one that is due later if two are of the same events: a concurrent run for later days made it."""
    if other is None or one.due is None or replace(other, due=one.due) != one:
        return one
    return other if other.due is None or other.due.key > one.due.key else one


def _split_span(text: str) -> tuple[str, str]:
    span, _, digest = text.partition(" ")
    return span, digest
