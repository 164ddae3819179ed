"""Rows to vectors: only what has none yet is embedded, all agents in one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.model_calls import Use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder


def with_vectors(rows: pa.Table, old: pa.Table, periods: list[Period], embedder: Embedder) -> pa.Table:
    """Return `rows` with a vector each, in their order.

    A text whose vector by this embedder stands in `rows` or in `old`, the rows that they take the place of, is not
    embedded again. Rows whose embedding failed have neither vector nor embedder.

    Args:
        rows: of ``facts`` or ``summaries``, with or without vectors.
        old: likewise; the partitions' present rows.
        periods: all periods that the rows lie in.
        embedder: what makes vectors.
    """
    known = _known(old, embedder) | _known(rows, embedder)
    contents = rows["content"].to_pylist()
    missing = {content: place for place, content in reversed(list(enumerate(contents))) if content not in known}
    if missing:
        by_key = {period.key: period for period in periods}
        asked = rows.take(pa.array(sorted(missing.values())))
        uses = [
            Use(Scope(workspace_id, agent_id), by_key[period])
            for workspace_id, agent_id, period in zip(
                *(asked[name].to_pylist() for name in ("workspace_id", "agent_id", "period")), strict=True
            )
        ]
        texts = asked["content"].to_pylist()
        vectors = embedder.embed(texts, uses)
        known |= {text: vector for text, vector in zip(texts, vectors, strict=True) if not np.isnan(vector[0])}
    found = [known.get(content) for content in contents]
    names = [None if vector is None else embedder.name for vector in found]
    columns = {"vector": _lists(found), "embed_model": pa.array(names, pa.string())}
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    return rows


def _lists(vectors: Sequence[NDArray[np.float32] | None]) -> pa.ListArray:
    missing = np.array([vector is None for vector in vectors], np.bool_)
    lengths = [0 if vector is None else len(vector) for vector in vectors]
    numbers = np.concatenate([np.empty(0, np.float32), *(vector for vector in vectors if vector is not None)])
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(numbers, pa.float32()), mask=pa.array(missing))


def _known(rows: pa.Table, embedder: Embedder) -> dict[str, NDArray[np.float32]]:
    """Return the vectors that `embedder` made of the rows' texts."""
    models = rows["embed_model"].to_pylist()
    places = [place for place, model in enumerate(models) if model == embedder.name]
    if not places:
        return {}
    made = rows.select(["content", "vector"]).take(pa.array(places)).combine_chunks()
    vectors = made["vector"].chunk(0).flatten().to_numpy(zero_copy_only=False).reshape(len(places), -1)
    return dict(zip(made["content"].to_pylist(), vectors, strict=True))
