"""Write an agent's memory. Imports neither Dagster nor a database; a write costs one small file and no model call."""

from memory_pipeline.domain.conversations import Receipt
from memory_pipeline.writer.sharing import GrantedWriter
from memory_pipeline.writer.writer import MemoryWriter

__all__ = ["GrantedWriter", "MemoryWriter", "Receipt"]
