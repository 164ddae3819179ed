"""What keeps questions from being sent: a budget that is spent, a server that is down."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memory_pipeline.domain.calls import Trouble
from memory_pipeline.errors import ModelError
from memory_pipeline.models.hosted import door

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.configuration.endpoints import Endpoint
    from memory_pipeline.domain.calls import CallStore

#: So many questions in a row that failed for good: the server is taken for down …
_FAILURES = 4
#: … and for so many seconds, but for one question, nobody waits for it.
_COOL_DOWN = 30.0


class Budgets:
    """Keeps workspaces within what they may spend in a month.

    Before a request its greatest possible cost is reserved, so that requests under way count too. Other processes
    count with what they had spent when answers were last loaded.
    """

    def __init__(self, configuration: Configuration, store: CallStore, clock: Callable[[], datetime]) -> None:
        self._configuration = configuration
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._reserved: dict[str, tuple[int, float]] = {}

    def waits(self, workspace_id: str) -> bool:
        """Tell whether what a spent budget does not allow is to wait, rather than be done by rules."""
        budget = self._configuration.budget(workspace_id)
        return budget is not None and budget.when_spent == "wait"

    @contextmanager
    def reserved(self, workspace_id: str, endpoint: Endpoint, tokens_in: int, tokens_out: int) -> Iterator[None]:
        """Reserve what a request may cost at most, until its true cost is in the store.

        Raises:
            ModelError: the month's budget might be overspent.
        """
        budget = self._configuration.budget(workspace_id)
        if budget is None:
            yield
            return
        dollars = 0.0
        if budget.usd_per_month is not None:
            price = door.price(endpoint)
            if price is None:
                raise ModelError(
                    Trouble.BUDGET,
                    f"workspace {workspace_id} has a budget in dollars and the price of {endpoint.model} is not known; "
                    "set its price (dollars for a million tokens) in config/workspaces.yaml, or tokens_per_month",
                )
            dollars = (tokens_in * price.input + tokens_out * price.output) / 1e6
        tokens = tokens_in + tokens_out
        month = f"{self._clock():%Y-%m}"
        with self._lock:
            spent = self._store.spent(workspace_id, month)
            others, other_dollars = self._reserved.get(workspace_id, (0, 0.0))
            too_many = budget.tokens_per_month is not None and (
                spent.tokens_in + spent.tokens_out + others + tokens > budget.tokens_per_month
            )
            too_dear = budget.usd_per_month is not None and (
                (spent.cost or 0.0) + other_dollars + dollars > budget.usd_per_month
            )
            if too_many or too_dear:
                limit = f"{budget.tokens_per_month:,} tokens" if too_many else f"${budget.usd_per_month:g}"
                raise ModelError(
                    Trouble.BUDGET, f"the budget of workspace {workspace_id} for {month}, {limit}, is spent"
                )
            self._reserved[workspace_id] = (others + tokens, other_dollars + dollars)
        try:
            yield
        finally:
            with self._lock:
                others, other_dollars = self._reserved[workspace_id]
                self._reserved[workspace_id] = (others - tokens, other_dollars - dollars)


class Breaker:
    """Stops asking a server that answers nobody, so that a run without it takes seconds rather than hours."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._closed_until: dict[str, float] = {}

    def is_open(self, server: str) -> bool:
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
