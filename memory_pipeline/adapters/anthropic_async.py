"""Anthropic's memory tool for ``AsyncAnthropic``; see :mod:`memory_pipeline.adapters.anthropic`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from memory_pipeline.adapters.anthropic import MemoryTool
from memory_pipeline.errors import require

require("anthropic", "anthropic.lib.tools")

from anthropic.lib.tools import BetaAsyncAbstractMemoryTool  # noqa: E402

if TYPE_CHECKING:
    from memory_pipeline import Memory


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """:class:`~memory_pipeline.adapters.anthropic.MemoryTool` for the asynchronous client. The work is done in threads.

    Args:
        memory: whose memory it is. Each user has files of their own.
        context: the name of the context with the files.
        options: see the base class.
    """

    def __init__(self, memory: Memory, context: str = "memories", **options: Any) -> None:
        super().__init__(**options)
        self._tool = MemoryTool(memory, context)

    async def execute(self, command: Any) -> Any:
        """Run a command.

        Raises:
            ToolError: it cannot be run; the model reads why.
        """
        return await asyncio.to_thread(self._tool.execute, command)

    async def clear_all_memory(self) -> str:
        """Delete all files."""
        return await asyncio.to_thread(self._tool.clear_all_memory)

    view = create = str_replace = insert = delete = rename = execute
