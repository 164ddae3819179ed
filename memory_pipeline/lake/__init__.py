"""Where memory is kept: journal, tables, ledger, vector index and agents' own vectors under one root.

One door each: :mod:`~memory_pipeline.lake.files.storage` for fsspec, :mod:`~memory_pipeline.lake.tables.tables` for
deltalake, :mod:`~memory_pipeline.lake.index.lance_tables` for lancedb. Nobody else imports these libraries.
"""

from memory_pipeline.lake.collections.collection import CollectionStats, VectorCollection, VectorMatch
from memory_pipeline.lake.collections.item import VectorItem
from memory_pipeline.lake.lake import Lake

__all__ = ["CollectionStats", "Lake", "VectorCollection", "VectorItem", "VectorMatch"]
