"""What every request passes: who calls, an id, the access log and the measurement."""

from __future__ import annotations

import json
import secrets
import sys
from datetime import UTC, datetime
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from anyio.to_thread import run_sync
from starlette.datastructures import Headers, MutableHeaders

from memory_pipeline.errors import MemoryPipelineError
from memory_pipeline.service.problems import ProblemError, problem_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from memory_pipeline.service.callers import Callers

#: Paths that need a token, if there are any.
_GUARDED: Final = ("/v1/", "/mcp", "/metrics")
_SAFE: Final = {"x-content-type-options": "nosniff", "cache-control": "no-store", "referrer-policy": "no-referrer"}


class Gate:
    """Middleware that lets a request in, with its ``caller``, or answers with a problem."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        callers: Callers,
        observed: Callable[[str, int, float], None],
        logs: bool,
        max_bytes: int,
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._callers = callers
        self._observed = observed
        self._logs = logs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, headers = perf_counter(), Headers(scope=scope)
        identifier = headers.get("x-request-id", "")[:64] or secrets.token_hex(8)
        status, size = 500, 0
        state: dict[str, Any] = scope.setdefault("state", {})

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            return message if size <= self._max_bytes else {"type": "http.disconnect"}

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = MutableHeaders(scope=message)
                own["x-request-id"] = identifier if identifier.isprintable() and identifier.isascii() else "invalid"
                if scope["path"] != "/docs":
                    for name, value in _SAFE.items():
                        own.setdefault(name, value)
            await send(message)

        async def answered_in_size(message: Message) -> None:
            if size <= self._max_bytes:
                await answered(message)

        try:
            if scope["path"].startswith(_GUARDED):
                find = self._callers.caller
                state["caller"] = await run_sync(find, headers) if self._callers.is_remote else find(headers)
            if int(headers.get("content-length", "0")) > self._max_bytes:
                raise self._too_large()
            await self._app(scope, counted, answered_in_size)
            if size > self._max_bytes:
                raise self._too_large()
        except (ProblemError, MemoryPipelineError) as error:
            await problem_of(error).response()(scope, receive, answered)
        finally:
            seconds = perf_counter() - began
            operation = getattr(scope.get("route"), "operation_id", None) or state.get("operation") or "other"
            self._observed(operation, status, seconds)
            if self._logs:
                self._log(scope, state, identifier, operation, status, seconds)

    def _too_large(self) -> ProblemError:
        return ProblemError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "too-large",
            f"a body may have {self._max_bytes:,} bytes; send less at once",
        )

    def _log(
        self, scope: Scope, state: dict[str, Any], identifier: str, operation: str, status: int, seconds: float
    ) -> None:
        caller = state.get("caller")
        record = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": identifier,
            "method": scope["method"],
            # The path as it was declared: ids of people are in the real one.
            "route": getattr(scope.get("route"), "path", None)
            or ("/mcp" if scope["path"].startswith("/mcp") else None),
            "operation": operation,
            "status": status,
            "milliseconds": round(seconds * 1_000, 2),
            "token": None if caller is None else caller.token_id or None,
            "workspace": None if caller is None else caller.scope.workspace_id,
            "agent": None if caller is None else caller.scope.agent_id,
        }
        sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
        sys.stdout.flush()
