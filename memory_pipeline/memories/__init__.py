"""One agent's durable memories for readers: the pipeline's tables overlaid with pending journal entries."""

from memory_pipeline.domain.memories.record import Header
from memory_pipeline.memories.queries import DurableMemories, HotIndex
from memory_pipeline.memories.state import MemoryOverlay

__all__ = ["DurableMemories", "Header", "HotIndex", "MemoryOverlay"]
