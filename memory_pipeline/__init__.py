"""Long-term memory for AI agents, as a data pipeline.

Agents use :class:`Memory`, or :class:`AsyncMemory`. In more detail, they write with
:class:`memory_pipeline.writer.MemoryWriter` and read with :class:`memory_pipeline.reader.MemoryReader`. Dagster loads
:mod:`memory_pipeline.definitions`. Importing this package imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory_pipeline.client.async_memory import AsyncMemory
    from memory_pipeline.client.context_window import ContextWindow
    from memory_pipeline.client.memory import Memory

    __version__: str

__all__ = ["AsyncMemory", "ContextWindow", "Memory", "__version__"]

_MODULES = {"AsyncMemory": "async_memory", "ContextWindow": "context_window", "Memory": "memory"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"memory_pipeline.client.{_MODULES[name]}"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("memory-pipeline")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
