"""One agent's durable memories as readers see them: what the pipeline has folded, and what the journal adds to it."""

from memory_pipeline.memories.queries import DurableMemories, HotIndex
from memory_pipeline.memories.snapshot import Header
from memory_pipeline.memories.state import MemoryOverlay

__all__ = ["DurableMemories", "Header", "HotIndex", "MemoryOverlay"]
