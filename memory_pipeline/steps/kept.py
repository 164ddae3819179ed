"""How far an agent's memories were kept, and from what: one row of ``upkeep``.

It tells which night has to be made first when something has changed. Of the month in which the last night lies it holds
a digest for each day on which something happened, of months before it one for each month: so a row stays small, and
what is late by months makes no more than a month again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import UPKEEP

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.lake.tables.tables import Tables

_MONTH = len("2024-01")


@dataclass(frozen=True, slots=True)
class Kept:
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
    def of_row(cls, row: Mapping[str, Any]) -> Kept:
        """Read a row of ``upkeep``."""
        due = row["due"]
        return cls(
            Scope(row["workspace_id"], row["agent_id"]),
            night(row["through"]),
            None if due is None else night(due),
            tuple(row["days"]),
            row["method"],
            tuple(row["troubles"]),
        )

    @property
    def first_trouble(self) -> Period | None:
        """The first night on which a pass failed."""
        return min((night(text.partition(" ")[0]) for text in self.troubles), key=_key, default=None)

    def first_change(self, happened: Mapping[Period, Collection[str]]) -> Period | None:
        """Return the first day, up to the last night, whose events are not those that were kept; None if there is none.

        Args:
            happened: ids of the events of each day, as they are now.
        """
        before, after = dict(map(_parted, self.days)), dict(map(_parted, spans(happened, self.through)))
        changed = [span for span in before.keys() | after.keys() if before.get(span) != after.get(span)]
        return min((night(span if len(span) > _MONTH else f"{span}-01") for span in changed), key=_key, default=None)


def night(key: str) -> Period:
    """Return the night of a day, given as ``2024-01-15``."""
    return Period(Grain.DAILY, key)


def day_of(event: MemoryEvent, calendar: Calendar) -> Period:
    """Return the day, in the lake's zone, on which something happened."""
    return calendar.ancestor(event.hour, Grain.DAILY)


def spans(happened: Mapping[Period, Collection[str]], through: Period) -> tuple[str, ...]:
    """Return what happened up to a night as :attr:`Kept.days` has it: the events' ids, by day, as digests."""
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for day, own in happened.items():
        if day.key <= through.key:
            ids[day.key if day.key[:_MONTH] == through.key[:_MONTH] else day.key[:_MONTH]] += own
    return tuple(f"{span} {digest_of_all(own)}" for span, own in sorted(ids.items()))


def read_kept(tables: Tables, workspaces: Collection[str] | None = None) -> dict[str, Kept]:
    """Return how far the memories of each agent were kept, by owner.

    Agents whose row is in a damaged file count as never kept, so that all their nights are made again.
    """
    rows = map(Kept.of_row, tables.read_sound(UPKEEP, workspaces).to_pylist())
    return {owner_of(each.scope): each for each in rows}


def write_kept(tables: Tables, scopes: Iterable[Scope], kept: Iterable[Kept]) -> bool:
    """Replace the rows of `scopes` by `kept`, which need not be of all of them, in one commit; tell of a change."""
    owners = pa.array([owner_of(scope) for scope in scopes], pa.string())
    new = pa.Table.from_pylist([each.to_row() for each in kept], schema=UPKEEP.schema)

    def merged(old: pa.Table) -> pa.Table:
        return pa.concat_tables([old.filter(pc.invert(pc.is_in(old["id"], owners))), new])

    workspaces = {owner.partition("~")[0] for owner in owners.to_pylist()}
    return bool(tables.transform(UPKEEP, workspaces, merged, remade=workspaces).changed) if workspaces else False


def _parted(text: str) -> tuple[str, str]:
    span, _, digest = text.partition(" ")
    return span, digest


def _key(period: Period) -> str:
    return period.key
