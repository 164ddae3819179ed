"""What agents read with. Imports neither Dagster, LiteLLM nor Polars."""

from memory_pipeline.reader.hits import Hit, Hits
from memory_pipeline.reader.knowledge import Recalled, Recollection
from memory_pipeline.reader.memories import MemorySearch, RecalledMemory
from memory_pipeline.reader.reader import MemoryReader

__all__ = ["Hit", "Hits", "MemoryReader", "MemorySearch", "Recalled", "RecalledMemory", "Recollection"]
