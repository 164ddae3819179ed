"""Memory as tools that agents call: as functions, at an MCP server, as a store for LangGraph."""

from memory_pipeline.tools.functions import MemoryTools, memory_tools

__all__ = ["MemoryTools", "memory_tools"]
