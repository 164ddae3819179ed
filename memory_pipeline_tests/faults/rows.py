"""Minimal rows of a table and of an index."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from memory_pipeline.lake.index.index_rows import index_schema
from memory_pipeline.lake.schemas import LEDGER


def ledger(bucket: str, *periods: str) -> pa.Table:
    row = {"bucket": bucket, "asset": "a", "input_digest": "i", "output_digest": "o", "rows": 1, "agents": 1}
    return pa.Table.from_pylist([{**row, "period": period} for period in periods], schema=LEDGER.schema)


def indexed(period: str, *texts: str) -> pa.Table:
    """Return rows of an agent's index table."""
    schema = index_schema(2)
    filled: dict[str, Any] = {
        "id": [f"{period} {text}" for text in texts],
        "period": [period] * len(texts),
        "content": list(texts),
        "digest": list(texts),
        "vector": [[1.0, 0.0]] * len(texts),
    }
    columns = [pa.array(filled.get(field.name, [None] * len(texts)), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)
