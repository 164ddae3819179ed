"""Track requested partitions until they end, and failed ones until they succeed, from tick to tick.

A failed partition is retried without limit, after a delay that doubles. After the fifth failure it is *failing*: it is
reported, and retried hourly. The log is stored as JSON. This module reads no clock and starts no runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Grain, Period

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

#: Delay after the first failure, doubled by each further one; of failing partitions; maximum if no run failed.
_WAIT, _FAILING_WAIT, _LEFT_WAIT = timedelta(minutes=1), timedelta(hours=1), timedelta(minutes=15)
#: Number of failures after which a partition is reported as failing.
FAILING_AFTER = 5
#: A request without a run is dropped after this time: its launching process has stopped.
START_WITHIN = timedelta(minutes=10)

#: Up to this many blocks of consecutive periods are one request each. More blocks share requests, since starting a run
#: takes seconds.
_MOST_BLOCKS = 4
#: Maximum number of periods per request, unless the deployment sets fewer. A failure affects no more than this.
MOST_PERIODS = 720
#: Failed periods are split into this many requests, and into that many more after each failure, up to the maximum. This
#: isolates bad partitions while the others succeed.
_PIECES, _MOST_PIECES = 8, 40
#: Maximum number of open requests of one grain: the first at :data:`MOST_PERIODS` periods each, proportionally more of
#: smaller ones, up to the second. This bounds the size of the log.
_MOST_REQUESTS, _MOST_SMALL_REQUESTS = 8, 64


class RequestOutcome(StrEnum):
    """The outcome of a request."""

    UNDER_WAY = "under way"
    DONE = "done"
    FAILED = "failed"


#: Outcomes by request id, with the error message of a failed run. Requests without a run are missing.
RequestOutcomes = Mapping[str, tuple[RequestOutcome, str]]


@dataclass(frozen=True, slots=True)
class Failure:
    """The failures of a partition.

    Attributes:
        attempts: number of consecutive runs that did not complete it.
        since, last: when the first and the last failure were seen.
        has_failed: False if the runs succeeded but left the partition pending, for example because the budget is spent.
    """

    attempts: int
    since: datetime
    last: datetime
    error: str
    has_failed: bool = True

    @property
    def is_failing(self) -> bool:
        """Whether it has failed often enough to be reported."""
        return self.has_failed and self.attempts >= FAILING_AFTER

    @property
    def again_at(self) -> datetime:
        """When the partition is requested again."""
        if self.is_failing:
            return self.last + _FAILING_WAIT
        wait = _WAIT * 2.0 ** min(self.attempts - 1, 10)
        return self.last + (wait if self.has_failed else min(wait, _LEFT_WAIT))

    def to_record(self) -> list[Any]:
        """Return a JSON-serializable record."""
        return [self.attempts, self.since.isoformat(), self.last.isoformat(), self.error, self.has_failed]

    @classmethod
    def from_record(cls, record: Sequence[Any]) -> Failure:
        """Parse a record; TypeError or ValueError if it is invalid."""
        attempts, since, last, error, has_failed = record
        return cls(attempts, datetime.fromisoformat(since), datetime.fromisoformat(last), error, has_failed)


@dataclass(frozen=True, slots=True)
class Request:
    """Partitions of one grain, requested from one run.

    Attributes:
        id: also a tag of the run.
        attempt: 1 plus the number of consecutive failed runs.
        states: digest of each period's sources, or empty.
    """

    id: str
    grain: Grain
    periods: tuple[Period, ...]
    at: datetime
    attempt: int = 1
    states: tuple[str, ...] = ()

    @property
    def is_range(self) -> bool:
        """Whether the periods are consecutive."""
        return len(list(blocks(self.periods))) == 1


@dataclass(frozen=True, slots=True)
class FailureTransition:
    """Partitions of a grain that began to fail, or recovered if `failure` is None."""

    grain: Grain
    periods: tuple[Period, ...]
    failure: Failure | None


@dataclass
class Attempts:
    """Open requests and failures, by grain and period.

    Attributes:
        asked: open requests.
        most: maximum number of periods per request; a deployment setting that is not stored.
    """

    asked: list[Request] = field(default_factory=list)
    failures: dict[Grain, dict[Period, Failure]] = field(default_factory=lambda: defaultdict(dict))
    most: int = MOST_PERIODS

    def under_way(self, grain: Grain) -> set[Period]:
        """Return the periods of a grain in open requests."""
        return {period for request in self.asked if request.grain is grain for period in request.periods}

    def settle(
        self, outcomes: RequestOutcomes, now: datetime, states: Mapping[Period, str] | None = None
    ) -> tuple[list[Request], list[FailureTransition]]:
        """Record the outcomes of requests. Return the successful requests, and the transitions to report.

        `states` are current digests of pending periods. A period with an unchanged digest was left pending by its run.
        """
        done, transitions, still_open = [], [], []
        for request in self.asked:
            outcome, error = outcomes.get(request.id, (None, ""))
            if outcome is RequestOutcome.UNDER_WAY or (outcome is None and now < request.at + START_WITHIN):
                still_open.append(request)
            elif outcome is RequestOutcome.FAILED:
                transitions += self._fail(request, request.periods, now, error, has_failed=True)
            elif outcome is RequestOutcome.DONE:
                done.append(request)
                known = self.failures[request.grain]
                if recovered := tuple(one for one in request.periods if one in known and known[one].is_failing):
                    transitions.append(FailureTransition(request.grain, recovered, None))
                left = [
                    period
                    for period, state in zip(request.periods, request.states, strict=False)
                    if states and states.get(period) == state
                ]
                for period in set(request.periods) - set(left):
                    known.pop(period, None)
                self._fail(request, left, now, "the run succeeded but left it pending", has_failed=False)
        self.asked = still_open
        return done, transitions

    def _fail(
        self, request: Request, periods: Iterable[Period], now: datetime, error: str, *, has_failed: bool
    ) -> list[FailureTransition]:
        known = self.failures[request.grain]
        began = []
        for period in periods:
            before = known.get(period)
            if before is None or before.has_failed is not has_failed:
                before = Failure(0, now, now, error, has_failed)
            known[period] = replace(before, attempts=before.attempts + 1, last=now, error=error)
            if known[period].attempts == FAILING_AFTER and has_failed:
                began.append(period)
        return [FailureTransition(request.grain, tuple(began), known[began[0]])] if began else []

    def forget(self, grain: Grain, pending: Collection[Period]) -> None:
        """Drop failures of periods that are no longer pending."""
        known = self.failures[grain]
        for period in known.keys() - set(pending):
            del known[period]

    def ask(
        self, grain: Grain, periods: Iterable[Period], now: datetime, states: Mapping[Period, str] | None = None
    ) -> list[Request]:
        """Return requests for the pending `periods` whose delay is over. Record them with the digests in `states`."""
        known = self.failures[grain]
        fresh: list[Period] = []
        left: list[Period] = []
        failed: list[Period] = []
        for period in sorted(set(periods), key=lambda period: period.key):
            failure = known.get(period)
            if failure is None:
                fresh.append(period)
            elif failure.again_at <= now:
                (failed if failure.has_failed else left).append(period)
        attempts = max((known[period].attempts for period in failed), default=0)
        # Retry a few periods together after a single failure, which may have another cause.
        once = attempts == 1 and len(failed) <= _PIECES
        again = _parts(failed, self.most) if once else _pieces(failed, attempts, self.most)
        parts = [*_parts(fresh, self.most), *_parts(left, self.most), *again]
        most = min(_MOST_REQUESTS * max(MOST_PERIODS // self.most, 1), _MOST_SMALL_REQUESTS)
        room = most - sum(request.grain is grain for request in self.asked)
        found = []
        for part in parts[: max(room, 0)]:
            of_part = tuple(states[period] for period in part) if states else ()
            attempt = max(known[period].attempts if period in known else 0 for period in part) + 1
            found.append(Request(_name(grain, part, now), grain, tuple(part), now, attempt, of_part))
        self.asked += found
        return found

    def failing(self) -> dict[Grain, dict[Period, Failure]]:
        """Return the failing periods."""
        found: dict[Grain, dict[Period, Failure]] = {}
        for grain, known in self.failures.items():
            for period in sorted(known, key=lambda period: period.key):
                if known[period].is_failing:
                    found.setdefault(grain, {})[period] = known[period]
        return found

    def next_at(self, now: datetime) -> datetime | None:
        """Return when the next failed period is retried, after `now`."""
        times = [failure.again_at for known in self.failures.values() for failure in known.values()]
        return min((time for time in times if time > now), default=None)

    def to_record(self) -> dict[str, Any]:
        """Return a JSON-serializable record. Periods are formatted as ranges, so that a year of hours stays small."""
        groups: dict[tuple[Grain, Failure], list[Period]] = defaultdict(list)
        for grain, known in self.failures.items():
            for period, failure in known.items():
                groups[grain, failure].append(period)
        return {
            "asked": [
                [
                    request.id,
                    request.grain,
                    written(request.periods),
                    request.at.isoformat(),
                    request.attempt,
                    "".join(request.states),
                ]
                for request in self.asked
            ],
            "setbacks": [
                [grain, written(periods), *failure.to_record()] for (grain, failure), periods in groups.items()
            ],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Attempts:
        """Parse a record; KeyError, TypeError or ValueError if it is invalid."""
        found = cls()
        for name, grain, periods, at, attempt, states in record["asked"]:
            listed = read_periods(Grain(grain), periods)
            size = len(states) // len(listed)
            each = tuple(states[start : start + size] for start in range(0, len(states), size)) if size else ()
            found.asked.append(Request(name, Grain(grain), listed, datetime.fromisoformat(at), attempt, each))
        for grain, periods, *setback_record in record["setbacks"]:
            failure = Failure.from_record(setback_record)
            found.failures[Grain(grain)].update(dict.fromkeys(read_periods(Grain(grain), periods), failure))
        return found


def blocks(periods: Iterable[Period], most: int | None = None) -> Iterator[list[Period]]:
    """Split sorted periods of one grain into blocks of at most `most` consecutive ones."""
    block: list[Period] = []
    for period in periods:
        if block and (block[-1].next() != period or len(block) == most):
            yield block
            block = []
        block.append(period)
    if block:
        yield block


def written(periods: Iterable[Period]) -> str:
    """Format periods of one grain as ranges: ``2024-01-15..2024-01-19,2024-02-01``."""
    spans = blocks(sorted(periods, key=lambda period: period.key))
    return ",".join(f"{span[0]}..{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def read_periods(grain: Grain, text: str) -> tuple[Period, ...]:
    """Parse the result of :func:`written`. Raise InputError if it is invalid."""
    found: list[Period] = []
    for span in filter(None, text.split(",")):
        first, separator, last = span.partition("..")
        start = Period.parse(grain, first)
        found += start.through(Period.parse(grain, last)) if separator else [start]
    return tuple(found)


def _parts(periods: Sequence[Period], most: int) -> list[list[Period]]:
    """Split sorted periods into one list per run: few blocks, or mixed lists; none longer than `most`."""
    found = list(blocks(periods, most))
    if len(found) <= _MOST_BLOCKS:
        return found
    return [list(periods[start : start + most]) for start in range(0, len(periods), most)]


def _pieces(periods: Sequence[Period], attempts: int, most: int) -> list[list[Period]]:
    """Split failed periods into more requests after each attempt, to isolate bad ones. Regroup failing ones."""
    number = min(_PIECES * attempts, _MOST_PIECES)
    if attempts >= FAILING_AFTER:
        periods = sorted(periods, key=lambda period: digest(attempts, period.key))
    number = max(min(number, len(periods)), -(-len(periods) // most))
    cuts = [len(periods) * piece // number for piece in range(number + 1)] if number else []
    return [sorted(periods[start:end], key=lambda period: period.key) for start, end in pairwise(cuts)]


def _name(grain: Grain, periods: Sequence[Period], now: datetime) -> str:
    span = str(periods[0]) if len(periods) == 1 else f"{periods[0]}..{periods[-1]} ({len(periods)})"
    return f"{grain} {span} {digest(grain, [period.key for period in periods], now.isoformat())[:8]}"
