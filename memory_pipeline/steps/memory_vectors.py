"""Vectors of durable memories in the indices of a lake that has had several embedders.

The projection ``memories`` has room for one vector of a memory. The index of each embedder then has a row for each
content of a scope, with the vector. So nothing is embedded again after the embedder was changed, or changed back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.identity import Reference, digest
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.domain.values import batched
from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.index.index_rows import DURABLE, index_schema
from memory_pipeline.steps.indices import every_index

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.vector_index import VectorIndex

_WITHIN = f"grain = '{DURABLE}'"
_SCOPES_AT_ONCE = 1_000
#: Maximum number of attempts while concurrent runs change the memories.
_ATTEMPTS = 10


def memory_vectors(lake: Lake, embedder: Embedder, scopes: Collection[Scope]) -> dict[str, NDArray[np.float32]]:
    """Return the vectors that the index of an embedder has of memories of scopes, by their contents."""
    index = lake.indices.find(embedder)
    return {} if index is None else index.memory_vectors(scopes)


def sync_memory_vectors(lake: Lake, scopes: Iterable[Scope]) -> None:
    """Make the rows of memories in all indices that have such rows equal to the memories of scopes.

    Raises:
        CommitConflictError: concurrent runs kept changing the memories.
    """
    indices = [index for index in every_index(lake) if index.has_memories]
    for part in batched(sorted(scopes, key=lambda scope: scope.key), lambda _: 1, _SCOPES_AT_ONCE) if indices else ():
        for _ in range(_ATTEMPTS):
            before = lake.memory_rows.versions(part)
            memories = lake.memory_rows.read(
                part, [*SCOPE_COLUMNS, "memory_id", "content", "vector", "embed_model"], "is_newest"
            )
            for index in indices:
                index.make_equal(_WITHIN, _rows(index, memories, part), part)
            if lake.memory_rows.versions(part) == before:
                break
        else:
            raise CommitConflictError(f"the memories of {part[0]} and others keep changing; run it again later")


def _rows(index: VectorIndex, memories: pa.Table, scopes: Collection[Scope]) -> pa.Table:
    """Return the index rows of memories, one for each content of a scope. What the index has of them stays."""
    _, dimension = index.embedder() or ("", 1)
    stored = index.read(scopes, ["id", "period", "embed_model"], _WITHIN)
    known = {row["id"]: row for row in stored.to_pylist()}
    is_own = pc.fill_null(pc.equal(memories["embed_model"], str(index.made_by)), False)
    vectors = pc.if_else(is_own, memories["vector"], pa.scalar(None, memories["vector"].type)).to_pylist()
    rows: dict[str, dict[str, object]] = {}
    owners = zip(*(memories[name].to_pylist() for name in SCOPE_COLUMNS), strict=True)
    for own, memory_id, content, vector in zip(
        owners, memories["memory_id"].to_pylist(), memories["content"].to_pylist(), vectors, strict=True
    ):
        row = dict(zip(SCOPE_COLUMNS, own, strict=True))
        identifier = f"{DURABLE}:{digest(row['scope'], content)}"
        if identifier not in rows or vector is not None:
            found = known.get(identifier, {"period": Reference.parse(memory_id).period.key, "embed_model": None})
            rows[identifier] = {
                **row,
                "id": identifier,
                "grain": DURABLE,
                "period": found["period"],
                "content": content,
                "digest": digest(content),
                "embed_model": found["embed_model"] if vector is None else index.made_by,
                "vector": vector,
            }
    return pa.Table.from_pylist(list(rows.values()), schema=index_schema(dimension))
