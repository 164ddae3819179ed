"""What agents read with. Imports neither Dagster, LiteLLM nor Polars."""

from memory_pipeline.reader.reader import Hit, MemoryReader

__all__ = ["Hit", "MemoryReader"]
