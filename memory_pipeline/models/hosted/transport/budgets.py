"""What keeps questions from being sent: a budget that is spent, a server that is down."""

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
from memory_pipeline.domain.model_calls import Trouble
from memory_pipeline.errors import ModelError
from memory_pipeline.models.hosted.transport import litellm_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from memory_pipeline.configuration import Budget, Configuration
    from memory_pipeline.configuration.model_settings import Endpoint
    from memory_pipeline.domain.model_calls import CallStore, Kind, Usage

#: So many questions in a row that failed for good: the server is taken for down …
_FAILURES = 4
#: … and for so many seconds, but for one question, nobody waits for it.
_COOL_DOWN = 30.0
#: Seconds between two looks for room in a budget, which grow, and between two for what other processes have spent.
_LOOK_FOR_ROOM, _LOOK_FOR_ROOM_AT_LAST, _LOOK_AT_OTHERS = 0.05, 0.5, 5.0
#: A process looks for what others have spent when it has used this part of what was left at the last look.
_PART = 10
#: With room for fewer requests than so many times those that may be under way, one process sends at a time, …
_FEW = 4
#: … for so long at most; the turn of a process that is gone ends at once.
_TURN = timedelta(minutes=10)
#: Stands for a limit that is not set; what is left of infinity has no difference to what was left of it.
_UNLIMITED = 1e18
#: Sums of dollars are rounded: ten times 10 cents fit into a dollar.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens and dollars, of a budget or of what is taken from it."""

    tokens: float = 0.0
    dollars: float = 0.0

    @classmethod
    def of(cls, usage: Usage) -> Amount:
        """Return what calls took."""
        return cls(usage.tokens_in + usage.tokens_out, usage.cost or 0.0)

    @classmethod
    def sum(cls, amounts: Iterable[Amount]) -> Amount:
        """Add amounts up."""
        listed = list(amounts)
        return cls(sum(amount.tokens for amount in listed), sum(amount.dollars for amount in listed))

    def minus(self, other: Amount) -> Amount:
        """Return what is left."""
        return Amount(self.tokens - other.tokens, self.dollars - other.dollars)

    def fits(self, room: Amount, times: int = 1) -> bool:
        """Tell whether there is room for so many times this."""
        return self.tokens * times <= room.tokens and self.dollars * times <= room.dollars + _ROUNDING


@dataclass(eq=False, slots=True)
class Hold:
    """What one question takes of a budget, as long as the store does not know of it.

    Attributes:
        endpoint, kind: which model is asked, and what.
        spent: what its requests took that are over.
        reserved: what its request under way is expected to take.
    """

    endpoint: Endpoint
    kind: Kind
    spent: Amount = Amount()
    reserved: Amount = Amount()


class Budgets:
    """Keeps workspaces within what they may spend in a month.

    Before a request what it is expected to cost is reserved: what it sends, and an answer as long as those to questions
    of its kind were on average this month. Of the first of a kind nobody knows how long answers are: the longest one
    that is allowed is reserved, or all that is left, if that is less. Where requests under way have reserved what is
    left, another one waits for what they really cost. So a budget is overspent by no more than what the requests that
    are under way at once take beyond the average.

    That holds for processes too. What others have spent is looked for now and then, and more often the less is left;
    where it is for few requests, processes take turns, so that each sees what the one before has spent.

    Args:
        configuration: of the lake.
        store: knows what was spent.
        clock: tells the time, UTC.
        pause: waits for so many seconds, or raises if waiting is of no use any more.
    """

    def __init__(
        self,
        configuration: Configuration,
        store: CallStore,
        clock: Callable[[], datetime],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._clock = clock
        self._pause = pause
        self._lock = threading.Lock()
        self._holds: defaultdict[str, list[Hold]] = defaultdict(list)
        #: When it was last looked for what others have spent, and what was left then.
        self._looked: dict[str, tuple[float, Amount]] = {}
        self._turns: set[str] = set()
        #: What the first refusal in a month said; the same words each time, so that the log has them once.
        self._refusals: dict[tuple[str, str], str] = {}

    def waits(self, workspace_id: str) -> bool:
        """Tell whether what a spent budget does not allow is to wait, rather than be done by rules."""
        budget = self._configuration.budget(workspace_id)
        return budget is not None and budget.when_spent == "wait"

    @contextmanager
    def hold(self, workspace_id: str, endpoint: Endpoint, kind: Kind) -> Iterator[Hold]:
        """Open what the requests of one question take of a budget, until their true cost is in the store."""
        hold = Hold(endpoint, kind)
        with self._lock:
            self._holds[workspace_id].append(hold)
        try:
            yield hold
        finally:
            with self._lock:
                self._holds[workspace_id].remove(hold)
                self._end_turn(workspace_id)

    def reserve(self, workspace_id: str, hold: Hold, tokens_in: int, most: int) -> None:
        """Reserve what a request is expected to cost; wait for others under way if there is no room beside them.

        Args:
            workspace_id: who pays.
            hold: of the question.
            tokens_in: how many tokens are sent, about.
            most: how many tokens an answer has at most.

        Raises:
            ModelError: the month's budget has no room for it.
        """
        budget = self._configuration.budget(workspace_id)
        if budget is None:
            return
        price = litellm_client.price(hold.endpoint) if budget.usd_per_month is not None else None
        if budget.usd_per_month is not None and price is None:
            raise ModelError(
                Trouble.BUDGET,
                f"workspace {workspace_id} has a budget in dollars and the price of {hold.endpoint.model} is not "
                "known; set its price (dollars for a million tokens) in config/workspaces.yaml, or tokens_per_month",
            )

        def cost(tokens_out: int) -> Amount:
            dollars = 0.0 if price is None else (tokens_in * price.input + tokens_out * price.output) / 1e6
            return Amount(tokens_in + tokens_out, dollars)

        pause = _LOOK_FOR_ROOM
        while not self._has_reserved(workspace_id, hold, budget, cost, most):
            self._pause(pause)
            pause = min(pause * 1.5, _LOOK_FOR_ROOM_AT_LAST)

    def over(self, hold: Hold, tokens_in: int, tokens_out: int, cost: float | None) -> None:
        """Put what a request has cost in the place of what was reserved for it."""
        with self._lock:
            hold.spent = Amount.sum([hold.spent, Amount(tokens_in + tokens_out, cost or 0.0)])
            hold.reserved = Amount()

    def _has_reserved(
        self, workspace_id: str, hold: Hold, budget: Budget, cost: Callable[[int], Amount], most: int
    ) -> bool:
        """Reserve for a request, unless it has to wait for others."""
        month = f"{self._clock():%Y-%m}"
        limit = Amount(
            _UNLIMITED if budget.tokens_per_month is None else budget.tokens_per_month,
            _UNLIMITED if budget.usd_per_month is None else budget.usd_per_month,
        )
        with self._lock:
            answered = self._store.answered(hold.kind, month)
            length = min(most, -(-answered.tokens_out // answered.calls)) if answered.calls else most
            expected = cost(length)
            left = self._left(workspace_id, month, limit, expected)
            if not expected.fits(left):
                is_first = most > 0 and not answered.calls
                if not is_first or not cost(1).fits(left):
                    raise self._refusal(workspace_id, month, limit, left, expected)
                expected = Amount(min(expected.tokens, left.tokens), min(expected.dollars, left.dollars))
            if not expected.fits(left.minus(self._reserved(workspace_id))):
                return False
            if not expected.fits(left, _FEW * self._configuration.max_concurrency) and not self._has_turn(workspace_id):
                return False
            hold.reserved = expected
            return True

    def _left(self, workspace_id: str, month: str, limit: Amount, expected: Amount) -> Amount:
        """Return what is left; look first for what others have spent, if that may matter."""
        over = Amount.sum(hold.spent for hold in self._holds[workspace_id])
        left = limit.minus(over).minus(Amount.of(self._store.spent(workspace_id, month)))
        at, then = self._looked.get(workspace_id, (-math.inf, Amount()))
        used = Amount.sum([then.minus(left), expected])
        is_due = time.monotonic() - at > _LOOK_AT_OTHERS or not used.fits(then, _PART)
        if is_due and expected.fits(left):
            left = limit.minus(over).minus(Amount.of(self._store.spent(workspace_id, month, look=True)))
            self._looked[workspace_id] = time.monotonic(), left
        return left

    def _reserved(self, workspace_id: str) -> Amount:
        return Amount.sum(hold.reserved for hold in self._holds[workspace_id])

    def _has_turn(self, workspace_id: str) -> bool:
        """Tell whether this process has the turn to send; one that has just got it looks first what was spent."""
        if workspace_id in self._turns:
            return True
        if self._store.claim(_turn_of(workspace_id), _TURN):
            self._turns.add(workspace_id)
            self._looked.pop(workspace_id, None)
        return False

    def _end_turn(self, workspace_id: str) -> None:
        """Give the turn to other processes once nothing is under way; what it has cost is in the store."""
        holds = self._holds[workspace_id]
        if workspace_id in self._turns and not any(hold.reserved.tokens or hold.spent.tokens for hold in holds):
            self._turns.remove(workspace_id)
            self._store.release(_turn_of(workspace_id))

    def _refusal(self, workspace_id: str, month: str, limit: Amount, left: Amount, expected: Amount) -> ModelError:
        reserved = self._reserved(workspace_id)
        is_of_tokens = expected.tokens > left.tokens
        told = [
            f"{amount.tokens:,.0f} tokens" if is_of_tokens else f"${amount.dollars:.6g}"
            for amount in (limit, limit.minus(left), reserved, expected)
        ]
        text = (
            f"the budget of workspace {workspace_id} for {month}, {told[0]}, has no room for another request: "
            f"{told[1]} spent, {told[2]} reserved for requests under way, and it is expected to take {told[3]}"
        )
        return ModelError(Trouble.BUDGET, self._refusals.setdefault((workspace_id, month), text))


def _turn_of(workspace_id: str) -> str:
    return digest("budget", workspace_id)


class CircuitBreaker:
    """Stops asking a server that answers nobody, so that a run without it takes seconds rather than hours."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._closed_until: dict[str, float] = {}

    def allows(self, server: str) -> bool:
        """Tell whether to ask; while a server is taken for down, one question in each cool-down is let through."""
        with self._lock:
            if self._failures.get(server, 0) < _FAILURES:
                return True
            now = time.monotonic()
            if now < self._closed_until.get(server, 0.0):
                return False
            self._closed_until[server] = now + _COOL_DOWN
            return True

    def failed(self, server: str) -> None:
        """Count a question that failed for good."""
        with self._lock:
            self._failures[server] = self._failures.get(server, 0) + 1
            if self._failures[server] == _FAILURES:
                self._closed_until[server] = time.monotonic() + _COOL_DOWN

    def succeeded(self, server: str) -> None:
        """Forget the failures."""
        with self._lock:
            self._failures.pop(server, None)
