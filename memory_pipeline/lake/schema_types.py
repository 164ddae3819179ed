"""The types and shared columns that tables are declared with."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from dataclasses import field as dataclass_field
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TEXT = pa.string()
TEXTS = pa.list_(pa.string())
TIME = pa.timestamp("us", tz="UTC")
SCORE = pa.float64()
VECTOR = pa.list_(pa.float32())
#: The partition column with the part of a period, and its value for rows of all shards.
PART, WHOLE = "part", "all"
#: Key in a field's metadata. Removed before a table is created, so it is not stored.
_HOLDS = b"holds"


class Holds(StrEnum):
    """What a column's texts contain. Erasure depends on it, so every text column declares it."""

    #: Words of people, names of people and things. Searched when a person is erased.
    WORDS = "words"
    #: A copy of such words. Erased together with the column that it was copied from.
    COPY = "copy"
    #: Who did something, and why. May be erased without the row.
    NOTE = "note"
    #: The id of a person. Compared as a whole with a person's names.
    USER = "user"
    #: The ids of the members of a group. A forgotten member leaves the list, and the row stays.
    MEMBERS = "members"
    #: Ids, digests, periods, kinds, methods and models: never personal.
    ID = "id"


@dataclass(frozen=True)
class Texts:
    """The type of a text column, and what its texts contain."""

    kind: pa.DataType
    holds: Holds


ID, IDS = Texts(TEXT, Holds.ID), Texts(TEXTS, Holds.ID)
WORDS, WORD_LIST = Texts(TEXT, Holds.WORDS), Texts(TEXTS, Holds.WORDS)
COPY, NOTE, USER = Texts(TEXT, Holds.COPY), Texts(TEXT, Holds.NOTE), Texts(TEXT, Holds.USER)


def field(name: str, kind: pa.DataType | Texts, comment: str, *, nullable: bool = False) -> pa.Field:
    """Return a column with its comment.

    Raises:
        TypeError: `kind` has texts but does not declare what they contain.
    """
    metadata: dict[str | bytes, str] = {"comment": comment}
    if isinstance(kind, Texts):
        metadata[_HOLDS] = kind.holds.value
        kind = kind.kind
    elif has_texts(kind):
        raise TypeError(f"column {name} has texts; declare what they are: WORDS, COPY, NOTE, USER, MEMBERS or ID")
    return pa.field(name, kind, nullable=nullable, metadata=metadata)


def has_texts(kind: pa.DataType) -> bool:
    """Return whether a type is text or contains text."""
    if pa.types.is_struct(kind):
        return any(has_texts(part.type) for part in kind)
    return has_texts(kind.value_type) if pa.types.is_list(kind) else bool(pa.types.is_string(kind))


@dataclass(frozen=True)
class TableSpec:
    """Name, columns and partitioning of a table.

    Attributes:
        partition_by: the partition columns. Every read and write fixes all but the last to one value. Empty for a
            projection, which is no Delta table.
        order_by: the columns that sort the rows of a partition.
        not_compared: columns ignored when two partitions are compared, because other columns determine them.
        texts: what the text columns contain; WORDS unless declared.

    The files of a period may be divided further, by a stored partition column ``part``, which is no column of the rows:
    ``all``, or the shard of the rows of a large period.
    """

    name: str
    columns: InitVar[Iterable[pa.Field]]
    partition_by: tuple[str, ...]
    order_by: tuple[str, ...] = ("id",)
    not_compared: tuple[str, ...] = ()
    schema: pa.Schema = dataclass_field(init=False)
    texts: Mapping[str, Holds] = dataclass_field(init=False, compare=False, repr=False)

    def __post_init__(self, columns: Iterable[pa.Field]) -> None:
        texts: dict[str, Holds] = {}
        stored = []
        for column in columns:
            metadata = dict(column.metadata or {})
            holds = Holds(metadata.pop(_HOLDS, b"words").decode())
            texts |= {column.name: holds} if has_texts(column.type) else {}
            stored.append(column.with_metadata(metadata) if metadata else column)
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "schema", pa.schema(stored))

    @property
    def has_parts(self) -> bool:
        """Whether the rows of a large period are stored by shard."""
        return self.partition_by[-1:] == ("period",) and self.order_by[0] == "scope"

    @property
    def stored_partitions(self) -> tuple[str, ...]:
        """The partition columns of the files."""
        return (*self.partition_by, PART) if self.has_parts else self.partition_by

    @property
    def statistics(self) -> tuple[str, ...]:
        """The columns of which the log has the lowest and highest value of each file: the first of the order, times."""
        times = [column.name for column in self.schema if pa.types.is_timestamp(column.type)]
        return (self.order_by[0], *times)

    def holding(self, *holds: Holds) -> tuple[str, ...]:
        """Return the columns that contain such texts."""
        return tuple(name for name, contents in self.texts.items() if contents in holds)


RECEIVED_AT = field("received_at", TIME, "Time at which the journal accepted it, or the last of its messages (UTC).")
ORDERED_AT = field(
    "ordered_at",
    TIME,
    "Place in the order of events, if a later one of the same target came before it (UTC); null if it is event_at.",
    nullable=True,
)
SPEAKER = field("speaker", WORDS, "Name of the speaker; null if no message is its source.", nullable=True)
ORIGIN = field("origin", ID, "import, assistant or tool; null if the speaker or the operator said it.", nullable=True)
AGENT = (
    field("workspace_id", ID, "Workspace."),
    field("agent_id", ID, "Agent."),
)
SCOPE = (
    *AGENT,
    field("identity", ID, "user: or group: and an id; empty for the agent's own memory."),
    field("scope", ID, "Key of the scope: a digest of workspace, agent and identity."),
)
USERS = field(
    "users",
    Texts(TEXTS, Holds.MEMBERS),
    "Users of the group at that time, sorted; null or empty in other scopes.",
    nullable=True,
)
#: Keeps the rows of a scope together, and those of a shard, so that some of a large partition can be read alone.
BY_SCOPE = ("scope", "id")
EMBEDDING = (
    field("vector", VECTOR, "Embedding of the content; zeros if it is computed, null if it failed.", nullable=True),
    field("embed_model", ID, "Embedder of the vector; null if there is no vector.", nullable=True),
)
#: Origin of a row from a model or its fallback.
PROVENANCE = (
    field("model", ID, "Requested model; null if there was no request.", nullable=True),
    field("prompt_version", ID, "Version of the prompt; null if there was no request.", nullable=True),
    field(
        "fallback", ID, "Why rules replaced the model: timeout, rate_limited, …; null if they did not.", nullable=True
    ),
)
