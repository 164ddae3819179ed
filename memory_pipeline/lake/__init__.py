"""Where memory is kept: journal, tables, ledger and vector index under one root.

One door each: :mod:`~memory_pipeline.lake.storage` for fsspec, :mod:`~memory_pipeline.lake.tables` for deltalake,
:mod:`~memory_pipeline.lake.vectors` for lancedb. Nobody else imports these libraries.
"""

from memory_pipeline.lake.lake import Lake

__all__ = ["Lake"]
