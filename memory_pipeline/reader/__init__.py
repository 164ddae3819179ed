"""What agents read with. Imports neither Dagster, LiteLLM nor Polars."""

from memory_pipeline.reader.hits import Hit, Hits
from memory_pipeline.reader.memories import MemorySearch, RecalledMemory
from memory_pipeline.reader.reader import MemoryReader
from memory_pipeline.reader.recall import Recalled, Recollection

__all__ = ["Hit", "Hits", "MemoryReader", "MemorySearch", "Recalled", "RecalledMemory", "Recollection"]
