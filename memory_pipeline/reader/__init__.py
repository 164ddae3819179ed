"""The interface for reading memory. Imports neither Dagster, LiteLLM nor Polars."""

from memory_pipeline.memories.search import MemorySearch, RecalledMemory
from memory_pipeline.reader.packing.items import Recalled, Recollection
from memory_pipeline.reader.read_receipts import HandedItem, ItemState, ReadReceipt
from memory_pipeline.reader.reader import MemoryReader
from memory_pipeline.search.searcher import Hit, Hits

__all__ = [
    "HandedItem",
    "Hit",
    "Hits",
    "ItemState",
    "MemoryReader",
    "MemorySearch",
    "ReadReceipt",
    "ReaderMemories",
    "Recalled",
    "RecalledMemory",
    "Recollection",
]

#: Deprecated alias of `MemorySearch`.
ReaderMemories = MemorySearch
