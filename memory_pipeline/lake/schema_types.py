"""The types and shared columns that tables are declared with."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

TEXT = pa.string()
TEXTS = pa.list_(pa.string())
TIME = pa.timestamp("us", tz="UTC")
SCORE = pa.float64()
VECTOR = pa.list_(pa.float32())


def field(name: str, kind: pa.DataType, comment: str, *, nullable: bool = False) -> pa.Field:
    """Return a column with its comment."""
    return pa.field(name, kind, nullable=nullable, metadata={"comment": comment})


@dataclass(frozen=True)
class TableSpec:
    """A table: its name, its columns, and how it is partitioned.

    Attributes:
        partition_by: the partition columns; all but the last are given one value in every read and write.
        order_by: the columns that sort the rows of a partition.
        not_compared: columns left out when two partitions are compared, because others decide them.
    """

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    order_by: tuple[str, ...] = ("id",)
    not_compared: tuple[str, ...] = ()


SCOPE = (
    field("workspace_id", TEXT, "Workspace that the row belongs to."),
    field("agent_id", TEXT, "Agent that the row belongs to."),
)
#: Rows of one agent lie together, so that some agents of a large partition are read without the others.
BY_AGENT = ("workspace_id", "agent_id", "id")
EMBEDDING = (
    field("vector", VECTOR, "Embedding of the content; unit length; none where the embedder failed?", nullable=True),
    field("embed_model", TEXT, "Embedder that made the vector, none without one?", nullable=True),
)
#: How a row was come by, where a model was asked or should have been.
PROVENANCE = (
    field("model", TEXT, "Model that was asked?", nullable=True),
    field("prompt_version", TEXT, "Prompt that it was asked with?", nullable=True),
    field("fallback", TEXT, "Why rules took the place of the model: timeout, rate_limited, …?", nullable=True),
)
