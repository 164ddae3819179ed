"""What agents write with. Imports neither Dagster nor a database; a write costs one small file and no model call."""

from memory_pipeline.writer.writer import MemoryWriter, Receipt

__all__ = ["MemoryWriter", "Receipt"]
