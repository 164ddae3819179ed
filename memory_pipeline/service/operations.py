"""Long work in the background, with ids to ask for it."""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

from memory_pipeline.service.problems import problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

#: Operations whose results are remembered.
_MOST: Final = 1_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackgroundWork:
    """Work that goes on in the background.

    Attributes:
        id: its id.
        name: of the route that began it.
        status: whether it goes on.
        started_at, ended_at: times, UTC.
        result: what the route returns for it; null while it goes on, and if it failed.
        problem: why it failed, by RFC 9457.
    """

    id: str
    name: str
    status: Literal["running", "succeeded", "failed"]
    started_at: datetime
    ended_at: datetime | None = None
    result: Any = None
    problem: Mapping[str, object] | None = None


class Operations:
    """Does long work, one after the other, and remembers the results while the process lives.

    A restart forgets them. What an erasure or a correction has begun is finished by the next run.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "memory-pipeline operation")
        self._lock = Lock()
        self._known: OrderedDict[str, tuple[Hashable, BackgroundWork]] = OrderedDict()

    def start(self, owner: Hashable, name: str, work: Callable[[], object]) -> BackgroundWork:
        """Begin work; return its operation, which `owner` alone can ask for."""
        operation = BackgroundWork(f"op_{secrets.token_hex(12)}", name, "running", datetime.now(UTC))
        self._put(owner, operation)
        self._pool.submit(self._do, owner, operation, work)
        return operation

    def of(self, owner: Hashable, identifier: str) -> BackgroundWork | None:
        """Return an operation of an owner, or None."""
        with self._lock:
            known = self._known.get(identifier)
        return known[1] if known is not None and known[0] == owner else None

    def close(self) -> None:
        """Wait for the work that goes on. What has not begun is given up."""
        self._pool.shutdown(cancel_futures=True)

    def _do(self, owner: Hashable, operation: BackgroundWork, work: Callable[[], object]) -> None:
        try:
            done = replace(operation, status="succeeded", result=work())
        except Exception as error:  # noqa: BLE001  # the client asks for it
            _log.warning("operation %s (%s) failed: %s", operation.id, operation.name, type(error).__name__)
            done = replace(operation, status="failed", problem=problem_of(error).record)
        self._put(owner, replace(done, ended_at=datetime.now(UTC)))

    def _put(self, owner: Hashable, operation: BackgroundWork) -> None:
        with self._lock:
            self._known[operation.id] = owner, operation
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
