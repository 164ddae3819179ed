"""The Model Context Protocol over Streamable HTTP, at ``/mcp``: the same tools as on standard input and output."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from memory_pipeline.domain.tokens import Right
from memory_pipeline.tools.tool import Access

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send

    from memory_pipeline.service.callers import Caller, OpenMemories


class McpOverHttp:
    """Serves the memory of each request's caller. Without the MCP SDK, it serves nothing.

    No request depends on an earlier one, so that a client needs no session, and a restart interrupts nobody.
    """

    def __init__(self, memories: OpenMemories) -> None:
        self._memories = memories
        self._manager: Any = None
        if find_spec("mcp") is not None:
            from memory_pipeline.tools.mcp import MemoryServer, http_manager

            self._manager = http_manager(MemoryServer(self._access))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while the context is open."""
        if self._manager is None:
            yield
            return
        async with self._manager.run():
            yield

    def add_to(self, app: FastAPI) -> None:
        """Add the route."""
        if self._manager is not None:
            app.router.routes.append(Route("/mcp", _Endpoint(self._manager), methods=["GET", "POST", "DELETE"]))

    def _access(self, request: Any) -> Access:
        caller: Caller = request.state.caller
        memory = self._memories.of(caller)
        writes = caller.level.allows(Right.WRITE)
        corrects = writes and find_spec("polars") is not None
        return Access(memory.reader, memory.writer if writes else None, memory=memory if corrects else None)


class _Endpoint:
    """An ASGI application. Starlette takes a function for one that gets a request."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["operation"] = "mcp"
        await self._manager.handle_request(scope, receive, send)
