"""Rows of the search index: their schema, and conversion of facts and summaries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.attributes import labels_of_attributes
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.ranking import date_terms, terms
from memory_pipeline.errors import LakeError

if TYPE_CHECKING:
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.ports import Embedder

#: The columns that say whose a row is. Each read checks them.
OWNERS = ("scope", "workspace_id", "agent_id", "identity")

#: How the names of embedders begin whose vectors are not stored: they depend on the text alone, and are computed in
#: 25 µs each. They would be nine tenths of an index. The tables of records have zeros instead, of the same length:
#: earlier versions of this package read vectors of all rows that name an embedder.
COMPUTED = "hashed-ngrams-"

#: Stands for the grain in rows with the vectors of durable memories; see :mod:`memory_pipeline.steps.memory_vectors`.
DURABLE = "durable"

#: The kind of a summary.
SUMMARY = "summary"


def index_schema(dimension: int) -> pa.Schema:
    """Return the columns of the index, for facts and for summaries of any grain."""
    return pa.schema(
        [
            # Without a declared key, concurrent merges duplicate rows. It is declared in the schema, so that no table
            # is ever without it.
            pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key:position": "1"}),
            *(pa.field(name, pa.string(), nullable=False) for name in (*OWNERS, "grain", "period")),
            pa.field("kind", pa.string()),  # a fact's kind, or "summary"
            pa.field("content", pa.string()),
            pa.field("terms", pa.list_(pa.string())),  # the words that it is compared by, with its speaker and date
            pa.field("starts_at", pa.timestamp("us", tz="UTC")),
            pa.field("ends_at", pa.timestamp("us", tz="UTC")),  # of a fact: when it was said, as starts_at
            pa.field("mentioned_at", pa.timestamp("us", tz="UTC")),  # of a fact: the day that it is about
            pa.field("entities", pa.list_(pa.string())),
            pa.field("importance", pa.float64()),
            pa.field("conversation_id", pa.string()),
            pa.field("speaker", pa.string()),  # of a fact, like role, turn, position and tags
            pa.field("role", pa.string()),  # the origin of what a user said in an import
            pa.field("turn", pa.int32()),
            pa.field("position", pa.int32()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("source_ids", pa.list_(pa.string())),  # messages of a fact, facts or finer summaries of a summary
            pa.field("digest", pa.string()),
            pa.field("embed_model", pa.string()),
            pa.field("vector", pa.list_(pa.float32(), dimension)),
        ]
    )


def rows_to_index(grain: Grain, rows: pa.Table, dimension: int) -> pa.Table:
    """Return rows of ``facts`` or ``summaries`` as index rows with vectors of `dimension` numbers."""
    return facts_to_index(rows, dimension) if grain is Grain.WORKING else summaries_to_index(rows, dimension)


def facts_to_index(rows: pa.Table, dimension: int) -> pa.Table:
    """Return rows of the ``facts`` table as index rows with vectors of `dimension` numbers."""
    columns = {
        "grain": pa.repeat(Grain.WORKING.value, rows.num_rows),
        "starts_at": rows["event_at"],
        "ends_at": rows["event_at"],
        "role": pc.if_else(
            pc.equal(rows["role"], Role.USER.value), pc.coalesce(rows["origin"], rows["role"]), rows["role"]
        ),
        "source_ids": rows["message_ids"],
        "tags": _labels(rows),
        "terms": [
            fact_terms(content, event_at, mentioned_at)
            for content, event_at, mentioned_at in zip(
                *(rows[name].to_pylist() for name in ("content", "event_at", "mentioned_at")), strict=True
            )
        ],
    }
    return _to_index(rows, columns, dimension)


def _labels(rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Return the tags of facts, with the labels of their sources and metadata."""
    sources, metadata = rows["source"], rows["metadata"]
    if sources.null_count == metadata.null_count == rows.num_rows:
        return rows["tags"]
    columns = (rows["tags"].to_pylist(), sources.to_pylist(), metadata.to_pylist())
    labels = [
        [*tags, *labels_of_attributes(source, None if text is None else json.loads(text))]
        for tags, source, text in zip(*columns, strict=True)
    ]
    return pa.array(labels, pa.list_(pa.string()))


def with_vectors(rows: pa.Table, embedder: Embedder) -> pa.Table:
    """Return rows of the ``facts`` table with the vectors of their contents; null where the embedder has none."""
    if not rows.num_rows:
        return rows
    lists = [None if np.isnan(vector[0]) else vector for vector in embedder.embed(rows["content"].to_pylist())]
    at = rows.schema.get_field_index("vector")
    names = pa.array([None if vector is None else embedder.name for vector in lists], pa.string())
    return rows.set_column(at, "vector", pa.array(lists, rows.schema.field(at).type)).set_column(
        at + 1, "embed_model", names
    )


def fact_terms(content: str, event_at: datetime, mentioned_at: datetime | None) -> list[str]:
    """Return the words by which a fact is found: its own, and those of its days (said at, and mentioned)."""
    days = dict.fromkeys(date_terms(event_at))
    if mentioned_at is not None:
        days |= dict.fromkeys(date_terms(mentioned_at))
    return [*terms(content), *days]


def summaries_to_index(rows: pa.Table, dimension: int) -> pa.Table:
    """Return rows of the ``summaries`` table as index rows with vectors of `dimension` numbers."""
    columns = {
        "kind": pa.repeat(SUMMARY, rows.num_rows),
        "starts_at": rows["period_start"],
        "ends_at": rows["period_end"],
        "terms": [terms(content) for content in rows["content"].to_pylist()],
        "tags": pa.array([[]] * rows.num_rows, pa.list_(pa.string())),
    }
    return _to_index(rows, columns, dimension)


def vectors_of(rows: pa.Table, dimension: int) -> NDArray[np.float32]:
    """Return the vectors of index rows, shape (rows, dimension), float32; NaN where a row has none."""
    column = rows["vector"].combine_chunks()
    if not column.null_count and rows.num_rows:
        whole: NDArray[np.float32] = column.flatten().to_numpy().reshape(-1, dimension)
        return whole
    vectors = np.full((rows.num_rows, dimension), np.nan, np.float32)
    if column.null_count < rows.num_rows:
        numbers = column.drop_null().flatten().to_numpy(zero_copy_only=False)
        vectors[column.is_valid().to_numpy(zero_copy_only=False)] = numbers.reshape(-1, dimension)
    return vectors


def without_computed(rows: pa.Table) -> pa.Table:
    """Return index rows without those vectors that are computed from the text."""
    vectors = rows["vector"]
    if vectors.null_count == rows.num_rows or not pc.any(computed := _computed(rows)).as_py():
        return rows
    place, field = rows.schema.get_field_index("vector"), rows.schema.field("vector")
    return rows.set_column(place, field, pc.if_else(computed, pa.scalar(None, field.type), vectors))


def with_computed(rows: pa.Table, vectors: NDArray[np.float32], embedder: Embedder | None) -> NDArray[np.float32]:
    """Return the vectors of index rows, given the stored ones, with those that `embedder` computes from the text.

    Raises:
        LakeError: some have to be computed, and there is no embedder.
    """
    missing = np.flatnonzero(np.isnan(vectors[:, 0]) & _computed(rows).to_numpy(zero_copy_only=False))
    if not len(missing):
        return vectors
    if embedder is None:
        raise LakeError("vectors of the index cannot be computed: check the embedder first")
    own = missing[pc.equal(rows["embed_model"].take(pa.array(missing)), embedder.name).to_numpy()]
    if len(own):
        vectors[own] = embedder.embed(rows["content"].take(pa.array(own)).to_pylist())
    return vectors


def vectors_column(vectors: NDArray[np.floating]) -> pa.Array:
    """Return vectors as a column of index rows; NaN becomes null."""
    missing = pa.array(np.isnan(vectors[:, 0]))
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1], mask=missing)


def _computed(rows: pa.Table) -> pa.Array:
    return pc.fill_null(pc.starts_with(rows["embed_model"], COMPUTED), False).combine_chunks()


def _to_index(rows: pa.Table, columns: dict[str, Any], dimension: int) -> pa.Table:
    vectors = rows["vector"].combine_chunks()
    filled = vectors.fill_null(pa.scalar([0.0] * dimension, vectors.type)) if vectors.null_count else vectors
    numbers = filled.flatten()
    is_zero = ~numbers.to_numpy(zero_copy_only=False).reshape(-1, dimension).any(axis=1)
    parts = {
        **{name: rows[name] for name in rows.column_names},
        **columns,
        "vector": pa.FixedSizeListArray.from_arrays(numbers, dimension, mask=pa.array(is_zero, pa.bool_())),
    }
    schema = index_schema(dimension)
    none = {field.name: pa.nulls(rows.num_rows, field.type) for field in schema if field.name not in parts}
    return pa.table({**parts, **none}, schema=schema)
