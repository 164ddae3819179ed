"""Decide which partitions to request now, from pending periods and earlier requests.

:class:`Hours` requests hours with journal files. :class:`RollUps` requests missing and stale summaries, rows that wait
for a model, and the marts. A summary waits until its sources are final, so a late message recomputes its day, week,
month, quarter and year once each.

State between ticks holds only delays and counts. If it is lost, all pending partitions are requested at once. This
module reads no clock, starts no runs and opens no tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period, hour_of
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


# Summaries are requested soon after their period has closed, and after late data at the next *gate*, a recurring time:
# each hour for days, the start of a day for weeks, the start of a week for months and coarser grains. All changes
# between two gates cause one recomputation.


#: Time for late messages to arrive after a period has closed, before it is summarized.
SETTLING = timedelta(minutes=5)


def last_gate(calendar: Calendar, grain: Grain, now: datetime) -> datetime:
    """Return the latest gate of a summary grain at or before `now`, in UTC.

    Raises:
        InputError: the grain is working; hours are requested as soon as data arrives.
    """
    finer = grain.finer
    if finer is None:
        accepted = ", ".join(SUMMARY_GRAINS)
        raise InputError(f"grain {grain} has no gates: hours are requested at once; accepted grains: {accepted}")
    return _gates(calendar, finer, now)[0]


def _gates(calendar: Calendar, finer: Grain, now: datetime) -> tuple[datetime, datetime]:
    """Return the gates before and after `now` of the grain above `finer`."""
    span = min(finer, Grain.WEEKLY, key=lambda grain: grain.rank)
    before, after = calendar.bounds(calendar.ancestor(hour_of(now - SETTLING), span))
    return before + SETTLING, after + SETTLING


def settled_at(calendar: Calendar, period: Period) -> datetime:
    """Return when a period of a summary grain is summarized for the first time, in UTC."""
    return calendar.closes_at(period) + SETTLING


def has_passed(calendar: Calendar, period: Period, last_checked: datetime | None, now: datetime) -> bool:
    """Return whether a period has closed or its gate has passed since `last_checked`."""
    settled = settled_at(calendar, period)
    if settled > now:
        return False
    return last_checked is None or settled > last_checked or last_gate(calendar, period.grain, now) > last_checked


#: How often rows that wait for a model are retried.
HEAL_EVERY = timedelta(minutes=15)
#: How long a day waits for pending hours that no run is working on, so that failing hours do not block it.
PATIENCE = timedelta(hours=1)


@dataclass
class Hours:
    """Requests hours with journal files."""

    attempts: Attempts = field(default_factory=Attempts)

    def ask(self, states: Mapping[Period, str], busy: Collection[Period], now: datetime) -> list[Request]:
        """Return the requests to start now. `states` has a digest of the files of each pending hour."""
        self.attempts.forget(Grain.WORKING, states)
        running = self.attempts.under_way(Grain.WORKING) | set(busy)
        return self.attempts.ask(Grain.WORKING, states.keys() - running, now, states)

    def to_record(self) -> dict[str, Any]:
        """Return a JSON-serializable record."""
        return self.attempts.to_record()

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Hours:
        """Parse a record; KeyError, TypeError or ValueError if it is invalid."""
        return cls(Attempts.from_record(record))


@dataclass
class MartSchedule:
    """Requests the marts once a day, after the summaries. `asked` is the id and time of the open request."""

    last_checked: datetime | None = None
    is_due: bool = False
    asked: tuple[str, datetime] | None = None
    failure: Failure | None = None

    def look(self, calendar: Calendar, now: datetime) -> None:
        """Mark the marts as due if a day has begun since the last check."""
        if self.last_checked is None or last_gate(calendar, Grain.WEEKLY, now) > self.last_checked:
            self.last_checked, self.is_due = now, True

    def are_due(self, now: datetime) -> bool:
        """Return whether to request the marts now."""
        waits = self.failure is not None and self.failure.again_at > now
        return self.is_due and self.asked is None and not waits

    def ask(self, now: datetime) -> tuple[str, int]:
        """Record a request. Return its id and attempt number."""
        self.asked = (f"marts {now.isoformat(timespec='seconds')}", now)
        return self.asked[0], self.failure.attempts + 1 if self.failure else 1

    def settle(self, outcomes: RequestOutcomes, now: datetime) -> None:
        """Record the outcome of the open request."""
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
        """Return a JSON-serializable record."""
        asked = [self.asked[0], _text(self.asked[1])] if self.asked else None
        return [_text(self.last_checked), self.is_due, asked, self.failure.to_record() if self.failure else None]

    @classmethod
    def from_record(cls, record: Any) -> MartSchedule:
        """Parse a record; TypeError or ValueError if it is invalid."""
        last_checked, is_due, asked, failure = record
        return cls(
            last_checked=_time(last_checked),
            is_due=bool(is_due),
            asked=(asked[0], datetime.fromisoformat(asked[1])) if asked else None,
            failure=Failure.from_record(failure) if failure else None,
        )


@dataclass
class RollUps:
    """Requests summaries, rows that wait for a model, and the marts.

    Attributes:
        last_checked: time of the last check of each grain.
        due: by grain, stale periods that have closed or have passed a gate.
        waits: days with pending hours, and since when they wait.
        last_retry: when unfinished periods were last listed for a retry, or first seen.
        to_heal: listed periods that have not been requested yet.
        is_level: whether all summaries were final at the last check.
        is_done: whether nothing was pending or running at the last check.
        closes: when the first open period will be summarized.
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
        """Record successful requests. If their periods are pending again, they wait for the next gate."""
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
        """Return the requests to start now, finest grain first. :class:`Hours` requests `hours` with journal files."""
        self._list_unfinished(statuses, now)
        for grain, status in statuses.items():
            self.attempts.forget(grain, status.pending)

        running = {grain: self.attempts.under_way(grain) | set(busy.get(grain, ())) for grain in Grain}
        working = statuses[Grain.WORKING]
        # A run was stopped between its commits and the ledger, or an older version wrote the rows.
        incomplete = set(working.pending) - set(working.unfinished) - set(hours) - running[Grain.WORKING]
        retries = self.to_heal.get(Grain.WORKING, set()) & set(working.unfinished)
        requests = self.attempts.ask(Grain.WORKING, incomplete, now)
        requests += self._retry(Grain.WORKING, retries - set(hours) - running[Grain.WORKING], now)
        running[Grain.WORKING] |= {period for request in requests for period in request.periods}

        below = self._waiting_days(calendar, {*hours, *incomplete}, running[Grain.WORKING], now)
        self.is_level = not any(settled_at(calendar, day) <= now for day in below)
        for grain in SUMMARY_GRAINS:
            waiting = set(statuses[grain].unfinished)
            stale = set(statuses[grain].pending) - waiting
            found, active = self._ask_grain(calendar, grain, stale, waiting, below, running[grain], now)
            requests += found
            self.is_level = self.is_level and not active
            below = {parent for period in below | active if (parent := calendar.parent(period))}
        self.marts.look(calendar, now)
        self.is_done = not (hours or any(running.values()) or any(status.pending for status in statuses.values()))
        still_open = (period for grain in SUMMARY_GRAINS for period in statuses[grain].open)
        self.closes = min((settled_at(calendar, period) for period in still_open), default=None)
        return requests

    def _list_unfinished(self, statuses: Mapping[Grain, GrainStatus], now: datetime) -> None:
        if not any(status.unfinished for status in statuses.values()):
            self.last_retry, self.to_heal = None, {}
        elif self.last_retry is None:
            self.last_retry = now
        elif now >= self.last_retry + HEAL_EVERY:
            self.last_retry = now
            self.to_heal = {grain: set(status.unfinished) for grain, status in statuses.items()}

    def _waiting_days(
        self, calendar: Calendar, pending: Collection[Period], running: Collection[Period], now: datetime
    ) -> set[Period]:
        days = {day for hour in pending for day in calendar.days_of(hour)}
        # A day that is open or has just closed may always have pending hours.
        self.waits = {day: max(self.waits.get(day, now), settled_at(calendar, day)) for day in days}
        patient = {day for day, since in self.waits.items() if now < since + PATIENCE}
        return patient | {day for hour in running for day in calendar.days_of(hour)}

    def _ask_grain(
        self,
        calendar: Calendar,
        grain: Grain,
        stale: set[Period],
        waiting: set[Period],
        below: set[Period],
        running: set[Period],
        now: datetime,
    ) -> tuple[list[Request], set[Period]]:
        """Return the requests of a grain, and its periods that are about to change or are running.

        `waiting` periods have rows that wait for a model; `below` have finer periods that are about to change.
        """
        last_checked = self.last_checked.get(grain)
        due = self.due.get(grain, set()) & (stale | below | running)
        due |= {period for period in stale | below if has_passed(calendar, period, last_checked, now)}
        self.due[grain], self.last_checked[grain] = due, now
        ready = (due & stale) - below - running
        requests = self.attempts.ask(grain, ready, now)
        requests += self._retry(grain, (self.to_heal.get(grain, set()) & waiting) - below - running, now)
        failures = self.attempts.failures[grain]
        failing = {period for period in ready if period in failures and failures[period].is_failing}
        return requests, running | (ready - failing) | {period for request in requests for period in request.periods}

    def held(
        self, calendar: Calendar, statuses: Mapping[Grain, GrainStatus], now: datetime
    ) -> dict[Grain, tuple[int, datetime]]:
        """Return how many periods with late data wait for their gate, and when that is, by grain."""
        found = {}
        for grain in SUMMARY_GRAINS:
            taken = self.due.get(grain, set()) | self.attempts.under_way(grain) | set(statuses[grain].unfinished)
            if (count := len(set(statuses[grain].pending) - taken)) and grain.finer is not None:
                found[grain] = count, _gates(calendar, grain.finer, now)[1]
        return found

    def _retry(self, grain: Grain, periods: set[Period], now: datetime) -> list[Request]:
        requests = self.attempts.ask(grain, periods, now)
        if requests:
            self.to_heal[grain] -= {period for request in requests for period in request.periods}
        return requests

    def next_look(self, calendar: Calendar, now: datetime) -> datetime:
        """Return when to check again if no data arrives: at a gate, or at the end of a delay."""
        times = [last_gate(calendar, Grain.WEEKLY, now) + timedelta(days=1)]  # the marts
        times += [] if self.is_done else [last_gate(calendar, Grain.DAILY, now) + timedelta(hours=1)]
        times += [self.closes] if self.closes else []
        times += [since + PATIENCE for since in self.waits.values()]
        times += [again] if (again := self.attempts.next_at(now)) else []
        times += [self.last_retry + HEAL_EVERY] if self.last_retry else []
        times += [request.at + START_WITHIN for request in self.attempts.asked]  # requests without a run are dropped
        times += [self.marts.asked[1] + START_WITHIN] if self.marts.asked else []
        times += [self.marts.failure.again_at] if self.marts.failure else []
        return min((time for time in times if time > now), default=now)

    def to_record(self) -> dict[str, Any]:
        """Return a JSON-serializable record."""
        return {
            **self.attempts.to_record(),
            "looked": {grain.value: checked.isoformat() for grain, checked in self.last_checked.items()},
            "owed": {grain.value: written(periods) for grain, periods in self.due.items() if periods},
            "waits": {day.key: since.isoformat() for day, since in self.waits.items()},
            "healed": _text(self.last_retry),
            "to_heal": {grain.value: written(periods) for grain, periods in self.to_heal.items() if periods},
            "marts": self.marts.to_record(),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RollUps:
        """Parse a record; KeyError, TypeError or ValueError if it is invalid."""
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
