"""Memory as tools for models: functions, an MCP server, and a store for LangGraph."""

from memory_pipeline.tools.functions import MemoryTools, memory_tools

__all__ = ["MemoryTools", "memory_tools"]
