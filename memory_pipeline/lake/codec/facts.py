"""Convert messages, facts and summaries to table rows and back. Vectors of facts and summaries are added later."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.facts import Fact
from memory_pipeline.domain.graph.operations import Operation, Verb
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.messages import Message, Role, TextEdit
from memory_pipeline.domain.periods import Grain, Period, hour_of
from memory_pipeline.domain.summaries import KeyPoint, Summary
from memory_pipeline.lake.codec.codec import Attribute, Codec
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


#: Columns added to rows once their contents are embedded.
_EMBEDDING = ("vector", "embed_model")


#: The columns of a fact from which its operations are read.
OPERATION_COLUMNS = (
    "operations", "message_ids", "event_at", "conversation_id", "turn", "speaker", "received_at", "origin",
)  # fmt: skip


def _operations(
    parts: Sequence[tuple[str, str, str, str, float]] | None,
    message_ids: tuple[str, ...],
    event_at: datetime,
    conversation_id: str,
    turn: int,
    speaker: str,
    received_at: datetime,
    origin: str | None,
) -> tuple[Operation, ...]:
    return tuple(
        Operation(
            Verb(verb),
            subject,
            predicate,
            value,
            confidence,
            message_ids,
            event_at,
            conversation_id=conversation_id,
            turn=turn,
            place=place,
            speaker=speaker,
            received_at=received_at,
            origin=origin,
        )
        for place, (verb, subject, predicate, value, confidence) in enumerate(parts or ())
    )


#: Operations rest on the same messages as their fact.
_OPERATIONS = Attribute(OPERATION_COLUMNS, _operations)
_MESSAGES = Codec(
    MESSAGES,
    Message,
    columns={"period": attrgetter("hour.key")},
    attributes={"edits": lambda edits: tuple(TextEdit(*edit) for edit in edits or ())},
)
_FACTS = Codec(
    FACTS,
    Fact,
    columns={"period": lambda fact: hour_of(fact.event_at).key, "digest": attrgetter("digest")},
    given=_EMBEDDING,
    attributes={
        "role": lambda role: Role(role) if role else Role.USER,  # older rows have no role
        "operations": _OPERATIONS,
        # Null in rows older than durable memories.
        "durable": lambda kind: None if kind is None else MemoryKind(kind),
        "is_point_in_time": bool,
    },
)
_SUMMARIES = Codec(
    SUMMARIES,
    Summary,
    columns={
        "grain": attrgetter("period.grain"),
        "period": attrgetter("period.key"),
        "digest": attrgetter("digest"),
    },
    given=_EMBEDDING,
    attributes={
        "period": Attribute(("grain", "period"), lambda grain, key: Period(Grain(grain), key)),
        "key_points": lambda points: tuple(KeyPoint(*point) for point in points),
    },
)


messages_to_rows, rows_to_messages = _MESSAGES.to_rows, _MESSAGES.to_records
facts_to_rows, rows_to_facts = _FACTS.to_rows, _FACTS.to_records
summaries_to_rows, rows_to_summaries = _SUMMARIES.to_rows, _SUMMARIES.to_records


def message_digest(message: Message) -> str:
    """Return a digest of a message."""
    return digest(message.to_record())


def row_operations(row: dict[str, Any]) -> tuple[Operation, ...]:
    """Return the operations of a row of the ``facts`` table; they rest on the messages of the fact."""
    operations: tuple[Operation, ...] = _OPERATIONS.of(row)
    return operations
