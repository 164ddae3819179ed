"""The calendar of a memory: periods from years to hours, each with what is known of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.summaries import summary_id
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.steps.scheduling.planner import grain_status

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.client.memory import Memory
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

#: What the periods of a grain are divided into.
PARTS: Final = {
    Grain.YEARLY: Grain.QUARTERLY, Grain.QUARTERLY: Grain.MONTHLY, Grain.MONTHLY: Grain.DAILY,
    Grain.WEEKLY: Grain.DAILY, Grain.DAILY: Grain.WORKING,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """A period in the calendar.

    Attributes:
        state: ``summary``; ``waiting`` for a run; ``failed``: it waits for a model or a budget; ``open``: it has not
            ended; ``expired``; or ``empty``.
        facts: number of facts in it.
    """

    period: Period
    state: str
    facts: int


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """A line of a summary.

    Attributes:
        id: of the line, which leads to its sources.
        sources: number of facts, or lines of finer summaries, behind it.
    """

    id: str
    text: str
    sources: int


@dataclass(frozen=True, slots=True)
class ShownSummary:
    """The summary of a period with what it cost.

    Attributes:
        compression: size of the sources, as times of that of the summary, both in tokens; None if unknown.
    """

    id: str
    identity: str
    lines: Sequence[SummaryLine]
    compression: float | None
    cost: float | None
    method: str


class MemoryCalendar:
    """The calendar of the scopes that a reader sees. It reads the lake once."""

    def __init__(self, memory: Memory, now: datetime) -> None:
        self._lake: Lake = memory.lake
        self._scopes: Sequence[Scope] = memory.reader.scopes
        self._now = now
        self._days = Counter[date]()
        self._hours = Counter[str]()
        keys = [scope.key for scope in self._scopes]
        if not self._lake.exists:
            return
        rows = self._lake.tables.read(FACTS, columns=["period", "scope", "kind"], scopes=keys)
        rows = rows.filter([one in keys for one in rows["scope"].to_pylist()]) if len(rows) else rows
        self._hours.update(rows["period"].to_pylist())
        for scope in self._scopes:  # what waits is counted by the write
            self._hours.update(hour.key for file in self._lake.journal.pending(scope) for hour in file.pending_hours)
        for hour, count in self._hours.items():
            self._days[self._day_of(hour)] += count

    def _day_of(self, hour: str) -> date:
        return self._lake.calendar.ancestor(Period(Grain.WORKING, hour), Grain.DAILY).first_day

    @property
    def years(self) -> list[Cell]:
        """The years with anything in them, oldest first."""
        years = sorted({day.year for day in self._days} | {int(key) for key in self._existing(Grain.YEARLY)})
        return self._cells(Grain.YEARLY, [Period(Grain.YEARLY, f"{year:04}") for year in years])

    def parts(self, period: Period) -> list[Cell]:
        """Return the parts of a period: quarters, months, days or hours."""
        grain = PARTS[period.grain]
        if grain is Grain.WORKING:
            hours = sorted(hour for hour in self._hours if self._day_of(hour) == period.first_day)
            return [Cell(Period(grain, hour), "summary", self._hours[hour]) for hour in hours]
        found: dict[Period, None] = {}
        day = period.first_day
        while day < period.end_day:
            found.setdefault(Period.containing(grain, day))
            day += timedelta(days=1)
        return self._cells(grain, [*found])

    def weeks(self, period: Period) -> list[Cell]:
        """Return the weeks that begin in a month."""
        days = (period.first_day + timedelta(days=number) for number in range((period.end_day - period.first_day).days))
        weeks = dict.fromkeys(Period.containing(Grain.WEEKLY, day) for day in days)
        return self._cells(Grain.WEEKLY, [*weeks])

    def around(self, period: Period) -> list[Period]:
        """Return the periods that contain a period, coarsest first."""
        grains = [one for one in (Grain.YEARLY, Grain.QUARTERLY, Grain.MONTHLY) if one.rank > period.grain.rank]
        first = self._day_of(str(period)) if period.grain is Grain.WORKING else period.first_day
        above = [Period.containing(grain, first) for grain in grains]
        return [*above, *([Period.containing(Grain.DAILY, first)] if period.grain is Grain.WORKING else [])]

    def summaries(self, period: Period) -> list[ShownSummary]:
        """Return the summaries of a period: of the agent, the user and the user's groups."""
        if period.grain is Grain.WORKING or not self._lake.exists:
            return []
        ids = {summary_id(scope, period) for scope in self._scopes}
        names = ["id", "identity", "content", "key_points", "tokens_in", "tokens_out", "cost", "summary_method"]
        rows = self._lake.tables.read(SUMMARIES, [period.key], columns=names, grain=period.grain.value).to_pylist()
        return [
            ShownSummary(
                row["id"],
                row["identity"],
                [
                    SummaryLine(f"{row['id']}#{number}", point["sentence"], len(point["source_ids"] or ()))
                    for number, point in enumerate(row["key_points"] or ())
                ],
                row["tokens_in"] / row["tokens_out"] if row["tokens_out"] else None,
                row["cost"],
                row["summary_method"],
            )
            for row in rows
            if row["id"] in ids
        ]

    def _cells(self, grain: Grain, periods: Sequence[Period]) -> list[Cell]:
        existing, status = self._existing(grain), grain_status(self._lake, grain, self._lake.start, self._now)
        states: list[tuple[str, Collection[Period]]] = [
            ("failed", {*status.unfinished}), ("waiting", {*status.pending}), ("open", {*status.open}),
            ("expired", {*status.expired}),
        ]  # fmt: skip
        found = []
        for period in periods:
            facts = self._count(period)
            state = "summary" if period.key in existing else "empty"
            if facts or state == "summary":
                state = next((name for name, among in states if period in among), state)
                if state == "empty":  # it has facts, and its turn has not come: a finer period waits
                    state = "waiting"
            elif period in states[-1][1]:
                state = "expired"
            found.append(Cell(period, state, facts))
        return found

    def _count(self, period: Period) -> int:
        return sum(count for day, count in self._days.items() if period.first_day <= day < period.end_day)

    def _existing(self, grain: Grain) -> Mapping[str, str]:
        """Return the keys of the periods with a summary in these scopes."""
        keys = {scope.key for scope in self._scopes}
        if not self._lake.exists:
            return {}
        rows = self._lake.tables.read(SUMMARIES, columns=["period", "scope"], grain=grain.value)
        periods, scopes = rows["period"].to_pylist(), rows["scope"].to_pylist()
        return {period: key for period, key in zip(periods, scopes, strict=True) if key in keys}
