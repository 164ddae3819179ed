"""Decide which partitions to request now, from what is pending and what was requested before.

:class:`Hours` asks for hours that have journal files, :class:`RollUps` for all else: summaries whose period has closed
or that late data changed, what waits for a model, and the marts. A summary is asked for once nothing finer is about to
change what it is made from; so a late message makes its day, week, month, quarter and year again, each once.

What is remembered from look to look only delays and counts. Without it everything that is pending is asked for at
once, so nothing is lost with it. Nothing here reads a clock, starts a run or opens a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period
from memory_pipeline.errors import InputError
from memory_pipeline.steps.scheduling.request_log import (
    START_WITHIN,
    Attempts,
    Failure,
    Request,
    RequestOutcome,
    read_periods,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.steps.scheduling.planner import GrainStatus
    from memory_pipeline.steps.scheduling.request_log import RequestOutcomes


# When summaries are asked for: soon after their period has closed, and, when late data came, at the next gate.
#
# A gate is a moment that recurs: each hour for days, the beginning of a day for weeks, of a week for months and what is
# coarser. What changes between two of them is made once, at the second; so a flood of late hours becomes one roll-up.


#: How long the last messages of a period have to arrive before it is summarized.
SETTLING = timedelta(minutes=5)


def last_gate(calendar: Calendar, grain: Grain, now: datetime) -> datetime:
    """Return the latest moment, at or before `now`, at which late data of a summary grain is looked for (UTC).

    Args:
        calendar: where days begin.
        grain: of the summaries.
        now: an aware time.

    Raises:
        InputError: the grain is working, whose hours are made as soon as something arrives.
    """
    finer = grain.finer
    if finer is None:
        accepted = ", ".join(SUMMARY_GRAINS)
        raise InputError(f"grain {grain} has no gates: hours are made at once; accepted grains: {accepted}")
    span = min(finer, Grain.WEEKLY, key=lambda grain: grain.rank)
    began = calendar.ancestor(calendar.hour(now - SETTLING), span)
    return calendar.bounds(began)[0] + SETTLING


def settled_at(calendar: Calendar, period: Period) -> datetime:
    """Return the moment (UTC) from which a period of a summary grain is summarized for the first time."""
    return calendar.closes_at(period) + SETTLING


def has_passed(calendar: Calendar, period: Period, last_checked: datetime | None, now: datetime) -> bool:
    """Tell whether a period of a summary grain may be made: it has closed, or a gate has passed, since the last look.

    Args:
        calendar: where days begin.
        period: which.
        last_checked: when this was last asked; None if it never was.
        now: the time of this look.
    """
    settled = settled_at(calendar, period)
    if settled > now:
        return False
    return last_checked is None or settled > last_checked or last_gate(calendar, period.grain, now) > last_checked


#: How often what waits for a model is asked for again: it may still be down, or the budget spent.
HEAL_EVERY = timedelta(minutes=15)
#: How long a day waits for hours that are pending and that no run is making; what cannot be made must not hold it up.
PATIENCE = timedelta(hours=1)


@dataclass
class Hours:
    """Asks for the hours that have journal files.

    Attributes:
        attempts: what is under way, and what failed.
    """

    attempts: Attempts = field(default_factory=Attempts)

    def ask(self, states: Mapping[Period, str], busy: Collection[Period], now: datetime) -> list[Request]:
        """Return what is to be made now.

        Args:
            states: the hours with files, each with what changes when a file comes.
            busy: hours that other runs are making.
            now: the time of this look.
        """
        self.attempts.forget(Grain.WORKING, states)
        making = self.attempts.under_way(Grain.WORKING) | set(busy)
        return self.attempts.ask(Grain.WORKING, states.keys() - making, now, states)

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON writes it."""
        return self.attempts.to_record()

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Hours:
        """Read what :meth:`to_record` wrote; anything else raises KeyError, TypeError or ValueError."""
        return cls(Attempts.from_record(record))


@dataclass
class MartSchedule:
    """Asks for the marts once a day, when the summaries are made.

    Attributes:
        last_checked: when they were last owed.
        is_due: whether they are to be made if they are stale.
        asked: the request that is under way, and since when; None if there is none.
        failure: what went wrong.
    """

    last_checked: datetime | None = None
    is_due: bool = False
    asked: tuple[str, datetime] | None = None
    failure: Failure | None = None

    def look(self, calendar: Calendar, now: datetime) -> None:
        """Owe the marts if a day has begun since the last look."""
        if self.last_checked is None or last_gate(calendar, Grain.WEEKLY, now) > self.last_checked:
            self.last_checked, self.is_due = now, True

    def are_due(self, now: datetime) -> bool:
        """Tell whether they may be asked for now."""
        waits = self.failure is not None and self.failure.again_at > now
        return self.is_due and self.asked is None and not waits

    def ask(self, now: datetime) -> tuple[str, int]:
        """Remember that they are asked for; return the request's name and the number of the attempt."""
        self.asked = (f"marts {now.isoformat(timespec='seconds')}", now)
        return self.asked[0], self.failure.attempts + 1 if self.failure else 1

    def settle(self, outcomes: RequestOutcomes, now: datetime) -> None:
        """Take note of what became of the request; `outcomes` as for :meth:`~.attempts.Attempts.settle`."""
        if self.asked is None:
            return
        outcome, error = outcomes.get(self.asked[0], (None, ""))
        if outcome is RequestOutcome.DONE:
            self.asked, self.failure, self.is_due = None, None, False
        elif outcome is RequestOutcome.FAILED:
            attempts, since = (self.failure.attempts, self.failure.since) if self.failure else (0, now)
            self.asked, self.failure = None, Failure(attempts + 1, since, now, error)
        elif outcome is None and now >= self.asked[1] + START_WITHIN:
            self.asked = None

    def to_record(self) -> list[Any]:
        """Return it as JSON writes it."""
        asked = [self.asked[0], _text(self.asked[1])] if self.asked else None
        return [_text(self.last_checked), self.is_due, asked, self.failure.to_record() if self.failure else None]

    @classmethod
    def from_record(cls, record: Any) -> MartSchedule:
        """Read what :meth:`to_record` wrote; anything else raises TypeError or ValueError."""
        looked, is_owed, asked, failure = record
        return cls(
            last_checked=_time(looked),
            is_due=bool(is_owed),
            asked=(asked[0], datetime.fromisoformat(asked[1])) if asked else None,
            failure=Failure.from_record(failure) if failure else None,
        )


@dataclass
class RollUps:
    """Asks for summaries, for what waits for a model, and for the marts.

    Attributes:
        attempts: what is under way, and what failed.
        last_checked: when each grain was last looked at.
        due: periods of each grain that may be made: they have closed, or a gate has passed, and they are not made yet.
        waits: days with hours that are about to be made, and since when they wait for them.
        last_retry: when what waits for a model was last listed, or first seen.
        to_heal: what of that list has not been asked for yet.
        marts: when they are made.
        is_level: whether nothing is about to change a summary, as of the last look.
        is_done: whether nothing at all was pending or under way.
        closes: when the first of the open periods will be summarized.
    """

    attempts: Attempts = field(default_factory=Attempts)
    last_checked: dict[Grain, datetime] = field(default_factory=dict)
    due: dict[Grain, set[Period]] = field(default_factory=dict)
    waits: dict[Period, datetime] = field(default_factory=dict)
    last_retry: datetime | None = None
    to_heal: dict[Grain, set[Period]] = field(default_factory=dict)
    marts: MartSchedule = field(default_factory=MartSchedule)
    is_level: bool = False
    is_done: bool = False
    closes: datetime | None = None

    def made(self, requests: Collection[Request]) -> None:
        """Take note of requests that ended well: what they made waits for the next gate if it is pending again."""
        for request in requests:
            self.due.get(request.grain, set()).difference_update(request.periods)

    def ask(
        self,
        calendar: Calendar,
        statuses: Mapping[Grain, GrainStatus],
        hours: Collection[Period],
        busy: Mapping[Grain, Collection[Period]],
        now: datetime,
    ) -> list[Request]:
        """Return what is to be made now, the finest grain first.

        Args:
            calendar: where days begin.
            statuses: what is pending, of all grains.
            hours: those with journal files, which are asked for elsewhere.
            busy: what other runs are making.
            now: the time of this look.
        """
        self._list_unfinished(statuses, now)
        for grain, status in statuses.items():
            self.attempts.forget(grain, status.pending)

        making = {grain: self.attempts.under_way(grain) | set(busy.get(grain, ())) for grain in Grain}
        working = statuses[Grain.WORKING]
        # A run was stopped between its commits and the ledger, or older code made them.
        undone = set(working.pending) - set(working.unfinished) - set(hours) - making[Grain.WORKING]
        heal = self.to_heal.get(Grain.WORKING, set()) & set(working.unfinished)
        asked = self.attempts.ask(Grain.WORKING, undone, now)
        asked += self._heal(Grain.WORKING, heal - set(hours) - making[Grain.WORKING], now)
        making[Grain.WORKING] |= {period for request in asked for period in request.periods}

        below = self._days_to_come(calendar, {*hours, *undone}, making[Grain.WORKING], now)
        self.is_level = not any(settled_at(calendar, day) <= now for day in below)
        for grain in SUMMARY_GRAINS:
            waiting = set(statuses[grain].unfinished)
            stale = set(statuses[grain].pending) - waiting
            found, active = self._ask_grain(calendar, grain, stale, waiting, below, making[grain], now)
            asked += found
            self.is_level = self.is_level and not active
            below = {parent for period in below | active if (parent := calendar.parent(period))}
        self.marts.look(calendar, now)
        self.is_done = not (hours or any(making.values()) or any(status.pending for status in statuses.values()))
        still_open = (period for grain in SUMMARY_GRAINS for period in statuses[grain].open)
        self.closes = min((settled_at(calendar, period) for period in still_open), default=None)
        return asked

    def _list_unfinished(self, statuses: Mapping[Grain, GrainStatus], now: datetime) -> None:
        """List what waits for a model, a while after it was first seen and after it was last asked for."""
        if not any(status.unfinished for status in statuses.values()):
            self.last_retry, self.to_heal = None, {}
        elif self.last_retry is None:
            self.last_retry = now
        elif now >= self.last_retry + HEAL_EVERY:
            self.last_retry = now
            self.to_heal = {grain: set(status.unfinished) for grain, status in statuses.items()}

    def _days_to_come(
        self, calendar: Calendar, pending: Collection[Period], making: Collection[Period], now: datetime
    ) -> set[Period]:
        """Return the days whose hours are about to be made, or are being made."""
        days = {day for hour in pending if (day := calendar.parent(hour))}
        # Of a day that is still open, or has just closed, some hour may always be pending.
        self.waits = {day: max(self.waits.get(day, now), settled_at(calendar, day)) for day in days}
        patient = {day for day, since in self.waits.items() if now < since + PATIENCE}
        return patient | {day for hour in making if (day := calendar.parent(hour))}

    def _ask_grain(
        self,
        calendar: Calendar,
        grain: Grain,
        stale: set[Period],
        waiting: set[Period],
        below: set[Period],
        making: set[Period],
        now: datetime,
    ) -> tuple[list[Request], set[Period]]:
        """Return the requests of a grain, and its periods that are about to be made or being made.

        Args:
            calendar: where days begin.
            grain: which.
            stale: closed periods to make.
            waiting: those that hold something which waits for a model.
            below: periods whose finer ones are about to change.
            making: periods that runs are making.
            now: the time of this look.
        """
        looked = self.last_checked.get(grain)
        owed = self.due.get(grain, set()) & (stale | below | making)
        owed |= {period for period in stale | below if has_passed(calendar, period, looked, now)}
        self.due[grain], self.last_checked[grain] = owed, now
        ready = (owed & stale) - below - making
        found = self.attempts.ask(grain, ready, now)
        found += self._heal(grain, (self.to_heal.get(grain, set()) & waiting) - below - making, now)
        failures = self.attempts.failures[grain]
        hopeless = {period for period in ready if period in failures and failures[period].is_failing}
        return found, making | (ready - hopeless) | {period for request in found for period in request.periods}

    def _heal(self, grain: Grain, periods: set[Period], now: datetime) -> list[Request]:
        found = self.attempts.ask(grain, periods, now)
        if found:
            self.to_heal[grain] -= {period for request in found for period in request.periods}
        return found

    def next_look(self, calendar: Calendar, now: datetime) -> datetime:
        """Return when there may be something to ask for though nothing has come: at a gate, or after a wait."""
        times = [last_gate(calendar, Grain.WEEKLY, now) + timedelta(days=1)]  # the marts'
        times += [] if self.is_done else [last_gate(calendar, Grain.DAILY, now) + timedelta(hours=1)]
        times += [self.closes] if self.closes else []
        times += [since + PATIENCE for since in self.waits.values()]
        times += [again] if (again := self.attempts.next_at(now)) else []
        times += [self.last_retry + HEAL_EVERY] if self.last_retry else []
        times += [request.at + START_WITHIN for request in self.attempts.asked]  # by then a lost one is known to be
        times += [self.marts.asked[1] + START_WITHIN] if self.marts.asked else []
        times += [self.marts.failure.again_at] if self.marts.failure else []
        return min((time for time in times if time > now), default=now)

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON writes it."""
        return {
            **self.attempts.to_record(),
            "looked": {grain.value: looked.isoformat() for grain, looked in self.last_checked.items()},
            "owed": {grain.value: written(periods) for grain, periods in self.due.items() if periods},
            "waits": {day.key: since.isoformat() for day, since in self.waits.items()},
            "healed": _text(self.last_retry),
            "to_heal": {grain.value: written(periods) for grain, periods in self.to_heal.items() if periods},
            "marts": self.marts.to_record(),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RollUps:
        """Read what :meth:`to_record` wrote; anything else raises KeyError, TypeError or ValueError."""
        return cls(
            attempts=Attempts.from_record(record),
            last_checked={Grain(grain): datetime.fromisoformat(at) for grain, at in record["looked"].items()},
            due={Grain(grain): set(read_periods(Grain(grain), text)) for grain, text in record["owed"].items()},
            waits={Period.parse(Grain.DAILY, day): datetime.fromisoformat(at) for day, at in record["waits"].items()},
            last_retry=_time(record["healed"]),
            to_heal={Grain(grain): set(read_periods(Grain(grain), text)) for grain, text in record["to_heal"].items()},
            marts=MartSchedule.from_record(record["marts"]),
        )


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
