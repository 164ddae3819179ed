"""Which indices are written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.lake.index.index_rows import COMPUTED
from memory_pipeline.models.deterministic.embedding import HashingEmbedder

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.vector_index import VectorIndex


def every_index(lake: Lake) -> list[VectorIndex]:
    """Return all indices of a lake, ready to be written to."""
    found = lake.indices.all()
    for index in found:
        name, dimension = index.embedder() or ("", 0)
        if name.startswith(COMPUTED):
            index.check(HashingEmbedder(dimension))  # a scope with a table of its own gets vectors
    return found
