"""The types and shared columns that tables are declared with."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT = pa.string()
TEXTS = pa.list_(pa.string())
TIME = pa.timestamp("us", tz="UTC")
SCORE = pa.float64()
VECTOR = pa.list_(pa.float32())
#: In a field's metadata until a table is made of it: it is not stored.
_HOLDS = b"holds"


class Holds(StrEnum):
    """What the texts of a column are. Erasure goes by it, so every column with texts says it."""

    #: What people say, and how they and their things are called: a person is looked for in it.
    WORDS = "words"
    #: The same words once more: they go with the column that they were taken from.
    COPY = "copy"
    #: Who did something, and why: what was done may stay without it.
    NOTE = "note"
    #: The id of a person: it is one of the person's names, or it is not.
    USER = "user"
    #: Ids, digests, periods, kinds, methods and models: nobody's words.
    ID = "id"


@dataclass(frozen=True)
class Texts:
    """The type of a column with texts, and what these are."""

    kind: pa.DataType
    holds: Holds


ID, IDS = Texts(TEXT, Holds.ID), Texts(TEXTS, Holds.ID)
WORDS, WORD_LIST = Texts(TEXT, Holds.WORDS), Texts(TEXTS, Holds.WORDS)
COPY, NOTE, USER = Texts(TEXT, Holds.COPY), Texts(TEXT, Holds.NOTE), Texts(TEXT, Holds.USER)


def field(name: str, kind: pa.DataType | Texts, comment: str, *, nullable: bool = False) -> pa.Field:
    """Return a column with its comment.

    Raises:
        TypeError: it has texts, and `kind` does not say whose words they are.
    """
    metadata: dict[str | bytes, str] = {"comment": comment}
    if isinstance(kind, Texts):
        metadata[_HOLDS] = kind.holds.value
        kind = kind.kind
    elif has_texts(kind):
        raise TypeError(f"column {name} has texts; say what they are: WORDS, COPY, NOTE, USER or ID")
    return pa.field(name, kind, nullable=nullable, metadata=metadata)


def has_texts(kind: pa.DataType) -> bool:
    """Tell whether values of a type are texts, or have texts in them."""
    if pa.types.is_struct(kind):
        return any(has_texts(part.type) for part in kind)
    return has_texts(kind.value_type) if pa.types.is_list(kind) else bool(pa.types.is_string(kind))


@dataclass(frozen=True)
class TableSpec:
    """A table: its name, its columns, and how it is partitioned.

    Attributes:
        partition_by: the partition columns; all but the last are given one value in every read and write.
        order_by: the columns that sort the rows of a partition.
        not_compared: columns left out when two partitions are compared, because others decide them.
        texts: what the columns with texts hold; words, where a column does not say.
    """

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    order_by: tuple[str, ...] = ("id",)
    not_compared: tuple[str, ...] = ()
    texts: Mapping[str, Holds] = dataclass_field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        texts: dict[str, Holds] = {}
        stored = []
        for own in self.schema:
            metadata = dict(own.metadata or {})
            holds = Holds(metadata.pop(_HOLDS, b"words").decode())
            texts |= {own.name: holds} if has_texts(own.type) else {}
            stored.append(own.with_metadata(metadata) if metadata else own)
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "schema", pa.schema(stored, metadata=self.schema.metadata))

    def holding(self, *holds: Holds) -> tuple[str, ...]:
        """Return the columns whose texts are such."""
        return tuple(name for name, own in self.texts.items() if own in holds)


SCOPE = (
    field("workspace_id", ID, "Workspace that the row belongs to."),
    field("agent_id", ID, "Agent that the row belongs to."),
)
#: Rows of one agent lie together, so that some agents of a large partition are read without the others.
BY_AGENT = ("workspace_id", "agent_id", "id")
EMBEDDING = (
    field("vector", VECTOR, "Embedding of the content; unit length; none where the embedder failed?", nullable=True),
    field("embed_model", ID, "Embedder that made the vector, none without one?", nullable=True),
)
#: How a row was come by, where a model was asked or should have been.
PROVENANCE = (
    field("model", ID, "Model that was asked?", nullable=True),
    field("prompt_version", ID, "Prompt that it was asked with?", nullable=True),
    field("fallback", ID, "Why rules took the place of the model: timeout, rate_limited, …?", nullable=True),
)
