"""Reasons not to send a request: a spent monthly budget, or a server that is down."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.model_calls import Purpose, Trouble
from memory_pipeline.errors import ModelError
from memory_pipeline.models.hosted.transport import litellm_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.configuration.model_settings import Endpoint
    from memory_pipeline.domain.model_calls import CallStore, Kind, Payer, Usage

#: After this many consecutive final failures a server counts as down.
_FAILURES = 4
#: Seconds for which a server that is down gets no request, except one trial request.
_COOL_DOWN = 30.0
#: Seconds between checks for room in a budget (first and longest), and between reads of other processes' spending.
_FIRST_PAUSE, _LONGEST_PAUSE, _REREAD_AFTER = 0.05, 0.5, 5.0
#: A process rereads others' spending once it has used 1/_PART of the budget that remained at the last read.
_PART = 10
#: With room for fewer than _FEW × max_concurrency requests, processes take turns …
_FEW = 4
#: … of at most this long. The turn of a process that has ended is free at once.
_TURN = timedelta(minutes=10)
#: Replaces a limit that is not set. Not infinity: inf - inf is NaN.
_UNLIMITED = 1e18
#: Tolerance for sums of dollars in floats: ten times 10 cents fit into a dollar.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens and US dollars."""

    tokens: float = 0.0
    dollars: float = 0.0

    @classmethod
    def of(cls, usage: Usage) -> Amount:
        """Return the tokens, in and out, and the cost of calls; an unknown cost is 0."""
        return cls(usage.tokens_in + usage.tokens_out, usage.cost or 0.0)

    @classmethod
    def sum(cls, amounts: Iterable[Amount]) -> Amount:
        """Return the sum of amounts."""
        listed = list(amounts)
        return cls(sum(amount.tokens for amount in listed), sum(amount.dollars for amount in listed))

    def minus(self, other: Amount) -> Amount:
        """Return the difference; it may be negative."""
        return Amount(self.tokens - other.tokens, self.dollars - other.dollars)

    def fits(self, room: Amount, times: int = 1) -> bool:
        """Return whether `room` is enough for `times` such amounts."""
        return self.tokens * times <= room.tokens and self.dollars * times <= room.dollars + _ROUNDING


@dataclass(eq=False, slots=True)
class Hold:
    """The part of a budget that one question uses until its calls are in the store.

    Attributes:
        kind: the kind of question; its average answer length is the estimate.
        spent: cost of the question's finished requests.
        reserved: expected cost of its request in flight.
    """

    endpoint: Endpoint
    kind: Kind
    spent: Amount = Amount()
    reserved: Amount = Amount()


class Budgets:
    """Keep workspaces, and each of their users and groups, within their monthly budgets.

    Each request first reserves its expected cost: the tokens it sends, plus this month's average answer length for its
    kind. The first request of a kind reserves the longest allowed answer, or all that is left if that is less. If
    requests in flight have reserved the rest, a new request waits for their actual cost. So a budget is overspent by at
    most what concurrent requests use beyond the average.

    This also holds across processes. A process rereads the others' spending, more often as the budget runs out. With
    room for few requests, processes take turns, so that each sees the previous one's spending.

    Readers are many processes that send few requests each, so they reread before each request. They overspend a budget
    by at most one request each.

    `clock` returns the current time in UTC, which selects the month.
    """

    def __init__(self, configuration: Configuration, store: CallStore, clock: Callable[[], datetime]) -> None:
        self._configuration = configuration
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._holds: defaultdict[Payer, list[Hold]] = defaultdict(list)
        #: Time of the last read of others' spending, and the budget that remained then.
        self._last_reads: dict[Payer, tuple[float, Amount]] = {}
        self._turns: set[Payer] = set()
        #: The first refusal of each month. Repeating its words lets the log show it once.
        self._refusals: dict[tuple[Payer, str], str] = {}

    def waits(self, workspace_id: str) -> bool:
        """Return whether work beyond the budget waits (``when_spent: wait``) instead of falling back to rules."""
        budget = self._configuration.budget(workspace_id)
        return budget is not None and budget.when_spent == "wait"

    @contextmanager
    def hold(self, payer: Payer, endpoint: Endpoint, kind: Kind) -> Iterator[Hold]:
        """Track one question's use of a budget until its calls are in the store. `payer` is as in :data:`Payer`."""
        hold = Hold(endpoint, kind)
        with self._lock:
            self._holds[payer].append(hold)
        try:
            yield hold
        finally:
            with self._lock:
                self._holds[payer].remove(hold)
                self._end_turn(payer)

    def reserve(
        self, payer: Payer, hold: Hold, tokens_in: int, most: int, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """Reserve the expected cost of a request; wait while requests in flight leave no room.

        `tokens_in` estimates the tokens sent; `most` is the largest number of tokens in an answer. `pause` sleeps for
        some seconds, or raises to give up waiting.

        Raises:
            ModelError: the month's budget has no room for the request, or the model's price is unknown.
        """
        limit = self._limit(payer)
        if limit is None:
            return
        has_dollars = limit.dollars != _UNLIMITED
        price = litellm_client.price(hold.endpoint) if has_dollars else None
        if has_dollars and price is None:
            raise ModelError(
                Trouble.BUDGET,
                f"{_name(payer)} has a budget in dollars, but the price of {hold.endpoint.model} is unknown; "
                "set its price (dollars per million tokens) or a budget in tokens in config/workspaces.yaml",
            )

        def cost(tokens_out: int) -> Amount:
            return Amount(tokens_in + tokens_out, 0.0 if price is None else price.of(tokens_in, tokens_out))

        seconds = _FIRST_PAUSE
        while not self._has_reserved(payer, hold, limit, cost, most):
            pause(seconds)
            seconds = min(seconds * 1.5, _LONGEST_PAUSE)

    def settle(self, hold: Hold, tokens_in: int, tokens_out: int, cost: float | None) -> None:
        """Replace a request's reservation by its actual cost."""
        with self._lock:
            hold.spent = Amount.sum([hold.spent, Amount(tokens_in + tokens_out, cost or 0.0)])
            hold.reserved = Amount()

    def _limit(self, payer: Payer) -> Amount | None:
        """Return the limits per month of a workspace, user or group; None if there are none."""
        budget = self._configuration.budget(payer if isinstance(payer, str) else payer.workspace_id)
        if budget is None:
            return None
        is_user = not isinstance(payer, str)
        tokens = budget.tokens_per_user if is_user else budget.tokens_per_month
        dollars = budget.usd_per_user if is_user else budget.usd_per_month
        if tokens is None and dollars is None:
            return None
        return Amount(_UNLIMITED if tokens is None else tokens, _UNLIMITED if dollars is None else dollars)

    def _has_reserved(self, payer: Payer, hold: Hold, limit: Amount, cost: Callable[[int], Amount], most: int) -> bool:
        """Reserve the cost of a request. Return False if it must wait for others."""
        month = f"{self._clock():%Y-%m}"
        with self._lock:
            answered = self._store.answered(hold.kind, month)
            length = min(most, -(-answered.tokens_out // answered.calls)) if answered.calls else most
            expected = cost(length)
            left = self._left(payer, month, limit, expected, is_due=hold.kind.purpose is Purpose.READING)
            if not expected.fits(left):
                is_first = most > 0 and not answered.calls
                if not is_first or not cost(1).fits(left):
                    raise self._refusal(payer, month, limit, left, expected)
                expected = Amount(min(expected.tokens, left.tokens), min(expected.dollars, left.dollars))
            if not expected.fits(left.minus(self._reserved(payer))):
                return False
            if not expected.fits(left, _FEW * self._configuration.max_concurrency) and not self._has_turn(payer):
                return False
            hold.reserved = expected
            return True

    def _left(self, payer: Payer, month: str, limit: Amount, expected: Amount, *, is_due: bool) -> Amount:
        """Return the remaining budget; reread other processes' spending first if that `is_due`, or may matter."""
        over = Amount.sum(hold.spent for hold in self._holds[payer])
        left = limit.minus(over).minus(Amount.of(self._store.spent(payer, month)))
        at, then = self._last_reads.get(payer, (-math.inf, Amount()))
        used = Amount.sum([then.minus(left), expected])
        is_due = is_due or time.monotonic() - at > _REREAD_AFTER or not used.fits(then, _PART)
        if is_due and expected.fits(left):
            left = limit.minus(over).minus(Amount.of(self._store.spent(payer, month, look=True)))
            self._last_reads[payer] = time.monotonic(), left
        return left

    def _reserved(self, payer: Payer) -> Amount:
        return Amount.sum(hold.reserved for hold in self._holds[payer])

    def _has_turn(self, payer: Payer) -> bool:
        """Return whether this process has the turn to send. After getting it, reread the spending first."""
        if payer in self._turns:
            return True
        if self._store.claim(_turn_of(payer), _TURN):
            self._turns.add(payer)
            self._last_reads.pop(payer, None)
        return False

    def _end_turn(self, payer: Payer) -> None:
        """Release the turn once no request is in flight and all costs are in the store."""
        holds = self._holds[payer]
        if payer in self._turns and not any(hold.reserved.tokens or hold.spent.tokens for hold in holds):
            self._turns.remove(payer)
            self._store.release(_turn_of(payer))

    def _refusal(self, payer: Payer, month: str, limit: Amount, left: Amount, expected: Amount) -> ModelError:
        reserved = self._reserved(payer)
        is_of_tokens = expected.tokens > left.tokens
        amounts = [
            f"{amount.tokens:,.0f} tokens" if is_of_tokens else f"${amount.dollars:.6g}"
            for amount in (limit, limit.minus(left), reserved, expected)
        ]
        text = (
            f"the budget of {_name(payer)} for {month}, {amounts[0]}, has no room for another request: "
            f"{amounts[1]} spent, {amounts[2]} reserved for requests in flight, {amounts[3]} expected for this one"
        )
        return ModelError(Trouble.BUDGET, self._refusals.setdefault((payer, month), text))


def _turn_of(payer: Payer) -> str:
    return digest("budget", payer if isinstance(payer, str) else payer.ids)


def _name(payer: Payer) -> str:
    return f"workspace {payer}" if isinstance(payer, str) else str(payer)


class CircuitBreaker:
    """Skip a server that does not answer, so that a run without it takes seconds instead of hours."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._skipped_until: dict[str, float] = {}

    def allows(self, server: str) -> bool:
        """Return whether to send a request. A server that is down gets one request per cool-down."""
        with self._lock:
            if self._failures.get(server, 0) < _FAILURES:
                return True
            now = time.monotonic()
            if now < self._skipped_until.get(server, 0.0):
                return False
            self._skipped_until[server] = now + _COOL_DOWN
            return True

    def failed(self, server: str) -> None:
        """Count a question that failed after all its attempts."""
        with self._lock:
            self._failures[server] = self._failures.get(server, 0) + 1
            if self._failures[server] == _FAILURES:
                self._skipped_until[server] = time.monotonic() + _COOL_DOWN

    def succeeded(self, server: str) -> None:
        """Reset the failure count."""
        with self._lock:
            self._failures.pop(server, None)
