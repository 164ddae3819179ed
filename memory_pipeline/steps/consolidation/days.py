"""The days that consolidation is due for, and the checkpoint up to which it is done.

A night is made from what happened up to the end of its day. It is pending when its day has ended and it was never made,
when something late has come for the day, or when a pass failed. Nights are entered one for each day from the first on
which something durable happened, also those on which nothing was to be done.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.identity import NOTHING, digest_of_all
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import UPKEEP
from memory_pipeline.lake.tables.ledger import MEMORIES_ASSET

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import date, datetime

    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.tables.tables import Tables


#: Names of the assets: what each night did, and the hot index after it.
UPKEEP_ASSET, HOT_INDEX_ASSET = "memory_upkeep", "hot_index"


@dataclass(frozen=True, slots=True)
class ConsolidationStatus:
    """What nights of upkeep are there, and what is not.

    Attributes:
        made: nights that were made, in order.
        pending: closed days whose night is to be made: new ones, those with late events, those on which a pass failed.
        missing: those of `pending` that were never made.
        troubled: those of `pending` on which a pass failed.
        events: what all nights did to memories, together.
    """

    made: list[Period]
    pending: list[Period]
    missing: list[Period]
    troubled: list[Period]
    events: int


def night_status(lake: Lake, start: date, now: datetime) -> ConsolidationStatus:
    """Return the state of the upkeep as of `now`; days before `start` have no nights."""
    wanted = night_inputs(lake)
    entries = lake.ledger.entries(UPKEEP_ASSET)
    days = {day for day in wanted if day.first_day >= start}
    pending = []
    if days:
        day = min(days, key=_key)
        while lake.calendar.bounds(day)[1] <= now:
            entry = entries.get(day.key)
            if entry is None or entry.unfinished or entry.input_digest != wanted.get(day, NOTHING):
                pending.append(day)
            day = day.next()
    # What had happened before the first day was forgotten since.
    first = min((day.key for day in days), default="9999")
    lost = [key for key, entry in entries.items() if key < first and entry.input_digest != NOTHING]
    pending = [*_nights(lost), *pending]
    return ConsolidationStatus(
        made=_nights(entries),
        pending=pending,
        missing=[day for day in pending if day.key not in entries],
        troubled=[day for day in pending if day.key in entries and entries[day.key].unfinished],
        events=sum(entry.rows for entry in entries.values()),
    )


def pending_nights(lake: Lake, start: date, now: datetime) -> list[Period]:
    """Return the nights that are to be made as of `now`, in order; see :class:`ConsolidationStatus`."""
    return night_status(lake, start, now).pending


def nights_between(lake: Lake, first: date, last: date, now: datetime) -> list[Period]:
    """Return the nights of closed days from one date to another, both included."""
    days = Period.containing(Grain.DAILY, first).through(Period.containing(Grain.DAILY, last))
    return [day for day in days if lake.calendar.bounds(day)[1] <= now]


def night_inputs(lake: Lake) -> dict[Period, str]:
    """Return the days on which something durable happened, each with a digest of it."""
    digests: dict[Period, list[str]] = defaultdict(list)
    for key, entry in lake.ledger.entries(MEMORIES_ASSET).items():
        if entry.rows:
            day = lake.calendar.ancestor(Period(Grain.WORKING, key), Grain.DAILY)
            digests[day].append(f"{key} {entry.output_digest}")
    return {day: digest_of_all(parts) for day, parts in digests.items()}


def _nights(keys: Iterable[str]) -> list[Period]:
    return [Period(Grain.DAILY, key) for key in sorted(keys)]


def _key(period: Period) -> str:
    return period.key


# How far an agent's memories were kept, and from what: one row of ``upkeep``.
#
# It tells which night has to be made first when something has changed. Of the month in which the last night lies it
# holds
# a digest for each day on which something happened, of months before it one for each month: so a row stays small, and
# what is late by months makes no more than a month again.


_MONTH = len("2024-01")


@dataclass(frozen=True, slots=True)
class ConsolidationCheckpoint:
    """How far the memories of one agent were kept.

    Attributes:
        scope: the agent.
        through: the last night on which there was something to look at; whatever night came after it had no cause.
        due: the next night on which time alone changes something; None if there is none.
        days: what happened up to `through`: days, and months before, each with a digest of its events.
        method: digest of the rules, settings and models.
        troubles: passes that failed, each as ``{night} {pass}: {why}``.
    """

    scope: Scope
    through: Period
    due: Period | None
    days: tuple[str, ...]
    method: str
    troubles: tuple[str, ...] = ()

    def to_row(self) -> dict[str, Any]:
        """Return it as a row of ``upkeep``."""
        return {
            **asdict(self.scope),
            "id": owner_of(self.scope),
            "through": self.through.key,
            "due": self.due.key if self.due else None,
            "days": list(self.days),
            "method": self.method,
            "troubles": list(self.troubles),
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> ConsolidationCheckpoint:
        """Read a row of ``upkeep``."""
        due = row["due"]
        return cls(
            Scope(row["workspace_id"], row["agent_id"]),
            parse_day(row["through"]),
            None if due is None else parse_day(due),
            tuple(row["days"]),
            row["method"],
            tuple(row["troubles"]),
        )

    @property
    def first_trouble(self) -> Period | None:
        """The first night on which a pass failed."""
        return min((parse_day(text.partition(" ")[0]) for text in self.troubles), key=_key, default=None)

    def first_change(self, happened: Mapping[Period, Collection[str]]) -> Period | None:
        """Return the first day, up to the last night, whose events are not those that were kept; None if there is none.

        Args:
            happened: ids of the events of each day, as they are now.
        """
        before, after = dict(map(_parted, self.days)), dict(map(_parted, spans(happened, self.through)))
        changed = [span for span in before.keys() | after.keys() if before.get(span) != after.get(span)]
        return min(
            (parse_day(span if len(span) > _MONTH else f"{span}-01") for span in changed), key=_key, default=None
        )


def parse_day(key: str) -> Period:
    """Return the night of a day, given as ``2024-01-15``."""
    return Period(Grain.DAILY, key)


def day_of(event: MemoryEvent, calendar: Calendar) -> Period:
    """Return the day, in the lake's zone, on which something happened."""
    return calendar.ancestor(event.hour, Grain.DAILY)


def spans(happened: Mapping[Period, Collection[str]], through: Period) -> tuple[str, ...]:
    """Return what happened up to a night as ``ConsolidationCheckpoint.days``: digests of event ids by day."""
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for day, own in happened.items():
        if day.key <= through.key:
            ids[day.key if day.key[:_MONTH] == through.key[:_MONTH] else day.key[:_MONTH]] += own
    return tuple(f"{span} {digest_of_all(own)}" for span, own in sorted(ids.items()))


def read_kept(tables: Tables, workspaces: Collection[str] | None = None) -> dict[str, ConsolidationCheckpoint]:
    """Return how far the memories of each agent were kept, by owner.

    Agents whose row is in a damaged file count as never kept, so that all their nights are made again.
    """
    rows = map(ConsolidationCheckpoint.of_row, tables.read_sound(UPKEEP, workspaces).to_pylist())
    return {owner_of(each.scope): each for each in rows}


def write_kept(tables: Tables, scopes: Iterable[Scope], checkpoint: Iterable[ConsolidationCheckpoint]) -> bool:
    """Replace the rows of `scopes` by `checkpoint` in one commit; tell whether anything changed."""
    owners = pa.array([owner_of(scope) for scope in scopes], pa.string())
    new = pa.Table.from_pylist([each.to_row() for each in checkpoint], schema=UPKEEP.schema)

    def merged(old: pa.Table) -> pa.Table:
        return pa.concat_tables([old.filter(pc.invert(pc.is_in(old["id"], owners))), new])

    workspaces = {owner.partition("~")[0] for owner in owners.to_pylist()}
    return bool(tables.transform(UPKEEP, workspaces, merged, remade=workspaces).changed) if workspaces else False


def _parted(text: str) -> tuple[str, str]:
    span, _, digest = text.partition(" ")
    return span, digest
