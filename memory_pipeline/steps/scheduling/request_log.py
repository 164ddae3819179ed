"""Remember requested partitions that have not ended, and those that failed, from tick to tick.

A partition whose run failed is asked for again after a wait that doubles. After the fifth failure it is *failing*: it
is asked for each hour, for as long as it is pending, and shown to people. Nothing is ever given up.

Everything here is plain data that is written down as JSON; no clock is read and no run is started.
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

#: The wait after a first failure, doubled with each more; that of what is failing; and of what waits for a budget.
_WAIT, _FAILING_WAIT, _LEFT_WAIT = timedelta(minutes=1), timedelta(hours=1), timedelta(minutes=15)
#: From so many failures on a partition is shown as failing.
FAILING_AFTER = 5
#: A request without a run is forgotten after this: whoever should have started it was stopped.
START_WITHIN = timedelta(minutes=10)

#: Up to this many blocks of consecutive periods are a request each; more are scattered, as an import brings them, and
#: one request lists them: a run takes seconds to start.
_MOST_BLOCKS = 4
#: Periods of one request, where the deployment does not set fewer; a failure loses no more than this.
MOST_PERIODS = 720
#: Into so many requests those are cut that failed once, and into so many more after each failure, up to the most:
#: so bad partitions are found and the others are made.
_PIECES, _MOST_PIECES = 8, 40
#: Requests of one grain that are under way at a time, and of smaller ones as many more; the others follow. What is
#: remembered of them stays small.
_MOST_REQUESTS, _MOST_SMALL_REQUESTS = 8, 64


class RequestOutcome(StrEnum):
    """What became of a request."""

    UNDER_WAY = "under way"
    DONE = "done"
    FAILED = "failed"


#: What became of requests, by their ids, with what the run said if it failed; those without a run are missing.
RequestOutcomes = Mapping[str, tuple[RequestOutcome, str]]


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with a partition.

    Attributes:
        attempts: how many runs in a row did not make it.
        since: when the first of them was seen to have ended.
        last: when the last of them was.
        error: what the last one said.
        has_failed: whether they failed; False if they ended well and left the partition pending all the same, as a
            budget does that is spent.
    """

    attempts: int
    since: datetime
    last: datetime
    error: str
    has_failed: bool = True

    @property
    def is_failing(self) -> bool:
        """Whether it has failed so often that people should know."""
        return self.has_failed and self.attempts >= FAILING_AFTER

    @property
    def again_at(self) -> datetime:
        """When the partition is asked for again."""
        if self.is_failing:
            return self.last + _FAILING_WAIT
        wait = _WAIT * 2.0 ** min(self.attempts - 1, 10)
        return self.last + (wait if self.has_failed else min(wait, _LEFT_WAIT))

    def to_record(self) -> list[Any]:
        """Return it as JSON writes it."""
        return [self.attempts, self.since.isoformat(), self.last.isoformat(), self.error, self.has_failed]

    @classmethod
    def from_record(cls, record: Sequence[Any]) -> Failure:
        """Read what :meth:`to_record` wrote; anything else raises TypeError or ValueError."""
        attempts, since, last, error, has_failed = record
        return cls(attempts, datetime.fromisoformat(since), datetime.fromisoformat(last), error, has_failed)


@dataclass(frozen=True, slots=True)
class Request:
    """Partitions of one grain that one run shall make.

    Attributes:
        id: names the request among all; the run carries it as a tag.
        grain: of the periods.
        periods: which, in order.
        at: when it was asked.
        attempt: 1, or one more than the runs in a row that failed to make them.
        states: what each period was to be made from, where that is known.
    """

    id: str
    grain: Grain
    periods: tuple[Period, ...]
    at: datetime
    attempt: int = 1
    states: tuple[str, ...] = ()

    @property
    def is_range(self) -> bool:
        """Whether the periods follow each other without a gap."""
        return len(list(blocks(self.periods))) == 1


@dataclass(frozen=True, slots=True)
class FailureTransition:
    """Partitions of a grain that have begun to be failing, with what went wrong; or, without it, no longer are."""

    grain: Grain
    periods: tuple[Period, ...]
    failure: Failure | None


@dataclass
class Attempts:
    """What was asked for and has not ended yet, and what went wrong, by grain and period.

    Attributes:
        asked: what is under way.
        failures: what went wrong.
        most: periods of one request; a setting of the deployment, which is not written down.
    """

    asked: list[Request] = field(default_factory=list)
    failures: dict[Grain, dict[Period, Failure]] = field(default_factory=lambda: defaultdict(dict))
    most: int = MOST_PERIODS

    def under_way(self, grain: Grain) -> set[Period]:
        """Return the periods of a grain that a request is about to make."""
        return {period for request in self.asked if request.grain is grain for period in request.periods}

    def settle(
        self, outcomes: RequestOutcomes, now: datetime, states: Mapping[Period, str] | None = None
    ) -> tuple[list[Request], list[FailureTransition]]:
        """Take note of what became of requests; return those that ended well, and what people should know.

        Args:
            outcomes: what became of them.
            now: the time of this look.
            states: what pending periods would be made from now; one that is as it was asked for was left undone.
        """
        done, changes, still = [], [], []
        for request in self.asked:
            outcome, error = outcomes.get(request.id, (None, ""))
            if outcome is RequestOutcome.UNDER_WAY or (outcome is None and now < request.at + START_WITHIN):
                still.append(request)
            elif outcome is RequestOutcome.FAILED:
                changes += self._fail(request, request.periods, now, error, has_failed=True)
            elif outcome is RequestOutcome.DONE:
                done.append(request)
                known = self.failures[request.grain]
                if back := tuple(period for period in request.periods if _is_failing(known.get(period))):
                    changes.append(FailureTransition(request.grain, back, None))
                left = [
                    period
                    for period, state in zip(request.periods, request.states, strict=False)
                    if states and states.get(period) == state
                ]
                for period in set(request.periods) - set(left):
                    known.pop(period, None)
                self._fail(request, left, now, "the run ended well and left it pending", has_failed=False)
        self.asked = still
        return done, changes

    def _fail(
        self, request: Request, periods: Iterable[Period], now: datetime, error: str, *, has_failed: bool
    ) -> list[FailureTransition]:
        known = self.failures[request.grain]
        begun = []
        for period in periods:
            before = known.get(period)
            if before is None or before.has_failed is not has_failed:
                before = Failure(0, now, now, error, has_failed)
            known[period] = replace(before, attempts=before.attempts + 1, last=now, error=error)
            if known[period].attempts == FAILING_AFTER and has_failed:
                begun.append(period)
        return [FailureTransition(request.grain, tuple(begun), known[begun[0]])] if begun else []

    def forget(self, grain: Grain, pending: Collection[Period]) -> None:
        """Forget what went wrong with periods that are no longer pending: somebody else has made them."""
        known = self.failures[grain]
        for period in known.keys() - set(pending):
            del known[period]

    def ask(
        self, grain: Grain, periods: Iterable[Period], now: datetime, states: Mapping[Period, str] | None = None
    ) -> list[Request]:
        """Return requests for those periods that are not to wait, and remember them as asked for.

        Args:
            grain: of the periods.
            periods: what is to be made and is not under way.
            now: the time of this look.
            states: what they are made from, to tell afterwards whether a run left them undone.
        """
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
        # A few that failed once may just have had bad luck together.
        once = attempts == 1 and len(failed) <= _PIECES
        again = _parts(failed, self.most) if once else _pieces(failed, attempts, self.most)
        parts = [*_parts(fresh, self.most), *_parts(left, self.most), *again]
        room = self._most_requests - sum(request.grain is grain for request in self.asked)
        found = []
        for part in parts[: max(room, 0)]:
            of_part = tuple(states[period] for period in part) if states else ()
            attempt = max(known[period].attempts if period in known else 0 for period in part) + 1
            found.append(Request(_name(grain, part, now), grain, tuple(part), now, attempt, of_part))
        self.asked += found
        return found

    @property
    def _most_requests(self) -> int:
        return min(_MOST_REQUESTS * max(MOST_PERIODS // self.most, 1), _MOST_SMALL_REQUESTS)

    def failing(self) -> dict[Grain, dict[Period, Failure]]:
        """Return what is failing."""
        found = {
            grain: {period: failure for period, failure in sorted(known.items(), key=_key) if failure.is_failing}
            for grain, known in self.failures.items()
        }
        return {grain: known for grain, known in found.items() if known}

    def next_at(self, now: datetime) -> datetime | None:
        """Return when something that failed is asked for again, after `now`; None if nothing waits."""
        times = [failure.again_at for known in self.failures.values() for failure in known.values()]
        return min((time for time in times if time > now), default=None)

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON writes it; periods as spans, so that a year of hours stays small."""
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
        """Read what :meth:`to_record` wrote; anything else raises KeyError, TypeError or ValueError."""
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
    """Cut sorted periods of one grain into blocks of consecutive ones, none longer than `most`."""
    block: list[Period] = []
    for period in periods:
        if block and (block[-1].next() != period or len(block) == most):
            yield block
            block = []
        block.append(period)
    if block:
        yield block


def written(periods: Iterable[Period]) -> str:
    """Return periods of one grain as spans: ``2024-01-15..2024-01-19,2024-02-01``."""
    spans = blocks(sorted(periods, key=lambda period: period.key))
    return ",".join(f"{span[0]}..{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def read_periods(grain: Grain, text: str) -> tuple[Period, ...]:
    """Read what :func:`written` wrote; what is no period raises InputError."""
    found: list[Period] = []
    for span in filter(None, text.split(",")):
        first, separator, last = span.partition("..")
        start = Period.parse(grain, first)
        found += start.through(Period.parse(grain, last)) if separator else [start]
    return tuple(found)


def _parts(periods: Sequence[Period], most: int) -> list[list[Period]]:
    """Cut sorted periods into what one run each makes: blocks, if they are few, or lists; none longer than `most`."""
    found = list(blocks(periods, most))
    if len(found) <= _MOST_BLOCKS:
        return found
    return [list(periods[start : start + most]) for start in range(0, len(periods), most)]


def _pieces(periods: Sequence[Period], attempts: int, most: int) -> list[list[Period]]:
    """Cut periods that failed into more requests each time; those of failing ones are put together otherwise each time.

    So good ones part with bad ones, even if there are many of these, and an outage does not become a run for each.
    """
    number = min(_PIECES * attempts, _MOST_PIECES)
    if attempts >= FAILING_AFTER:
        periods = sorted(periods, key=lambda period: digest(attempts, period.key))
    number = max(min(number, len(periods)), -(-len(periods) // most))
    cuts = [len(periods) * piece // number for piece in range(number + 1)] if number else []
    return [sorted(periods[start:end], key=lambda period: period.key) for start, end in pairwise(cuts)]


def _name(grain: Grain, periods: Sequence[Period], now: datetime) -> str:
    span = str(periods[0]) if len(periods) == 1 else f"{periods[0]}..{periods[-1]} ({len(periods)})"
    return f"{grain} {span} {digest(grain, [period.key for period in periods], now.isoformat())[:8]}"


def _is_failing(failure: Failure | None) -> bool:
    return failure is not None and failure.is_failing


def _key(item: tuple[Period, Failure]) -> str:
    return item[0].key
