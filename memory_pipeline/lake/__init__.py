"""Storage of a deployment under one root: journal, tables, ledger, vector index and collections.

Each library is used in one place: fsspec in :mod:`~memory_pipeline.lake.files.storage`, deltalake in
:mod:`~memory_pipeline.lake.tables.tables`, lancedb in :mod:`~memory_pipeline.lake.index.lance_tables`.
"""

from memory_pipeline.lake.collections.collection import CollectionStats, VectorCollection, VectorMatch
from memory_pipeline.lake.collections.item import VectorItem
from memory_pipeline.lake.lake import Lake

__all__ = ["CollectionStats", "Lake", "VectorCollection", "VectorItem", "VectorMatch"]
