"""Between the domain's records and the tables' rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memory_pipeline.domain.conversations import Message, Role, Scope
from memory_pipeline.domain.facts import Fact, FactKind
from memory_pipeline.domain.graph.operations import Operation, Verb
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.periods import Calendar, Grain, Period
from memory_pipeline.domain.summaries import KeyPoint, Summary
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES

if TYPE_CHECKING:
    from collections.abc import Sequence


def _scope(row: dict[str, Any]) -> Scope:
    return Scope(row["workspace_id"], row["agent_id"])


def messages_to_rows(messages: Sequence[Message]) -> pa.Table:
    """Return messages as rows of the ``messages`` table."""
    return pa.Table.from_pylist(
        [
            {
                "period": message.hour.key,
                "id": message.id,
                "workspace_id": message.scope.workspace_id,
                "agent_id": message.scope.agent_id,
                "conversation_id": message.conversation_id,
                "user_id": message.user_id,
                "tags": message.tags,
                "source_id": message.source_id,
                "turn": message.turn,
                "role": message.role.value,
                "name": message.name,
                "content": message.content,
                "sent_at": message.sent_at,
                "received_at": message.received_at,
            }
            for message in messages
        ],
        schema=MESSAGES.schema,
    )


def rows_to_messages(rows: pa.Table) -> list[Message]:
    """Return rows of the ``messages`` table as messages, in the rows' order."""
    return [
        Message(
            id=row["id"],
            scope=_scope(row),
            conversation_id=row["conversation_id"],
            user_id=row["user_id"],
            tags=tuple(row["tags"]),
            source_id=row["source_id"],
            turn=row["turn"],
            role=Role(row["role"]),
            name=row["name"],
            content=row["content"],
            sent_at=row["sent_at"],
            received_at=row["received_at"],
        )
        for row in rows.to_pylist()
    ]


def message_digest(message: Message) -> str:
    """Return a digest of what was said; the time at which it was received does not count."""
    record = message.to_record()
    del record["received_at"]
    return digest(record)


def facts_to_rows(facts: Sequence[Fact]) -> pa.Table:
    """Return facts as rows of the ``facts`` table, without vectors."""
    rows = [
        {
            "period": Calendar().hour(fact.event_at).key,
            "id": fact.id,
            "workspace_id": fact.scope.workspace_id,
            "agent_id": fact.scope.agent_id,
            "kind": fact.kind.value,
            "content": fact.content,
            "speaker": fact.speaker,
            "role": fact.role.value,
            "entities": fact.entities,
            "importance": fact.importance,
            "confidence": fact.confidence,
            "conversation_id": fact.conversation_id,
            "message_ids": fact.message_ids,
            "turn": fact.turn,
            "position": fact.position,
            "event_at": fact.event_at,
            "mentioned_at": fact.mentioned_at,
            "tags": fact.tags,
            "extraction_method": fact.extraction_method,
            "operations": [
                {
                    "verb": operation.verb.value,
                    "subject": operation.subject,
                    "predicate": operation.predicate,
                    "object": operation.object,
                    "confidence": operation.confidence,
                }
                for operation in fact.operations
            ],
            "durable": fact.durable,
            "is_point_in_time": fact.is_point_in_time,
            "subject": fact.subject,
            "predicate": fact.predicate,
            "object": fact.object,
            "model": fact.model,
            "prompt_version": fact.prompt_version,
            "fallback": fact.fallback,
            "source_digest": fact.source_digest,
            "digest": fact.digest,
        }
        for fact in facts
    ]
    return pa.Table.from_pylist(rows, schema=FACTS.schema)


def rows_to_facts(rows: pa.Table) -> list[Fact]:
    """Return rows of the ``facts`` table as facts, in the rows' order."""
    return [
        Fact(
            id=row["id"],
            scope=_scope(row),
            kind=FactKind(row["kind"]),
            content=row["content"],
            speaker=row["speaker"],
            role=Role(row["role"]) if row["role"] else Role.USER,  # older rows have none
            entities=tuple(row["entities"]),
            importance=row["importance"],
            confidence=row["confidence"],
            conversation_id=row["conversation_id"],
            message_ids=tuple(row["message_ids"]),
            turn=row["turn"],
            position=row["position"],
            event_at=row["event_at"],
            mentioned_at=row["mentioned_at"],
            tags=tuple(row["tags"]),
            extraction_method=row["extraction_method"],
            operations=row_operations(row),
            # Of rows that were written before there were durable memories there are none of these.
            durable=None if row["durable"] is None else MemoryKind(row["durable"]),
            is_point_in_time=bool(row["is_point_in_time"]),
            subject=row["subject"],
            predicate=row["predicate"],
            object=row["object"],
            model=row["model"],
            prompt_version=row["prompt_version"],
            fallback=row["fallback"],
            source_digest=row["source_digest"],
        )
        for row in rows.drop_columns([c for c in ("vector", "digest") if c in rows.column_names]).to_pylist()
    ]


def row_operations(row: dict[str, Any]) -> tuple[Operation, ...]:
    """Return the operations of a row of the ``facts`` table; they rest on the messages that the fact rests on."""
    return tuple(
        Operation(
            verb=Verb(operation["verb"]),
            subject=operation["subject"],
            predicate=operation["predicate"],
            object=operation["object"],
            confidence=operation["confidence"],
            message_ids=tuple(row["message_ids"]),
            event_at=row["event_at"],
            conversation_id=row["conversation_id"],
            turn=row["turn"],
            place=place,
        )
        for place, operation in enumerate(row["operations"] or ())
    )


def summaries_to_rows(summaries: Sequence[Summary]) -> pa.Table:
    """Return summaries as rows of the ``summaries`` table, without vectors."""
    rows = [
        {
            "grain": summary.period.grain.value,
            "period": summary.period.key,
            "id": summary.id,
            "workspace_id": summary.scope.workspace_id,
            "agent_id": summary.scope.agent_id,
            "period_start": summary.period_start,
            "period_end": summary.period_end,
            "content": summary.content,
            "key_points": [
                {
                    "sentence": point.sentence,
                    "source_ids": point.source_ids,
                    "event_at": point.event_at,
                    "importance": point.importance,
                    "entities": point.entities,
                }
                for point in summary.key_points
            ],
            "entities": summary.entities,
            "importance": summary.importance,
            "source_ids": summary.source_ids,
            "source_digest": summary.source_digest,
            "source_digests": summary.source_digests,
            "tokens_in": summary.tokens_in,
            "tokens_out": summary.tokens_out,
            "cost": summary.cost,
            "summary_method": summary.summary_method,
            "model": summary.model,
            "prompt_version": summary.prompt_version,
            "fallback": summary.fallback,
            "code_version": summary.code_version,
            "digest": summary.digest,
        }
        for summary in summaries
    ]
    return pa.Table.from_pylist(rows, schema=SUMMARIES.schema)


def rows_to_summaries(rows: pa.Table) -> list[Summary]:
    """Return rows of the ``summaries`` table as summaries, in the rows' order."""
    return [
        Summary(
            id=row["id"],
            scope=_scope(row),
            period=Period(Grain(row["grain"]), row["period"]),
            period_start=row["period_start"],
            period_end=row["period_end"],
            content=row["content"],
            key_points=tuple(
                KeyPoint(
                    point["sentence"],
                    tuple(point["source_ids"]),
                    point["event_at"],
                    point["importance"],
                    tuple(point["entities"]),
                )
                for point in row["key_points"]
            ),
            entities=tuple(row["entities"]),
            importance=row["importance"],
            source_ids=tuple(row["source_ids"]),
            source_digest=row["source_digest"],
            source_digests=tuple(row["source_digests"] or ()),
            tokens_in=row["tokens_in"],
            tokens_out=row["tokens_out"],
            summary_method=row["summary_method"],
            cost=row["cost"],
            model=row["model"],
            prompt_version=row["prompt_version"],
            fallback=row["fallback"],
            code_version=row["code_version"],
        )
        for row in rows.drop_columns([c for c in ("vector", "digest") if c in rows.column_names]).to_pylist()
    ]
