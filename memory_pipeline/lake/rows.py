"""Between the domain's records and the tables' rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memory_pipeline.domain.conversations import Message, Role, Scope
from memory_pipeline.domain.facts import Fact, FactKind
from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Calendar, Period
from memory_pipeline.domain.summaries import KeyPoint, Summary
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES, index_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.ports import Embedder


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


def facts_to_rows(facts: Sequence[Fact], embedder: Embedder) -> pa.Table:
    """Return facts as rows of the ``facts`` table, with their vectors."""
    rows = [
        {
            "period": Calendar().hour(fact.event_at).key,
            "id": fact.id,
            "workspace_id": fact.scope.workspace_id,
            "agent_id": fact.scope.agent_id,
            "kind": fact.kind.value,
            "content": fact.content,
            "speaker": fact.speaker,
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
            "digest": fact.digest,
            "vector": None,
            "embed_model": embedder.name,
        }
        for fact in facts
    ]
    return _with_vectors(rows, FACTS.schema, embedder)


def rows_to_facts(rows: pa.Table) -> list[Fact]:
    """Return rows of the ``facts`` table as facts, in the rows' order."""
    return [
        Fact(
            id=row["id"],
            scope=_scope(row),
            kind=FactKind(row["kind"]),
            content=row["content"],
            speaker=row["speaker"],
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
        )
        for row in rows.drop_columns([c for c in ("vector", "digest") if c in rows.column_names]).to_pylist()
    ]


def summaries_to_rows(summaries: Sequence[Summary], embedder: Embedder) -> pa.Table:
    """Return summaries as rows of the ``summaries`` table, with their vectors."""
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
            "tokens_in": summary.tokens_in,
            "tokens_out": summary.tokens_out,
            "summary_method": summary.summary_method,
            "digest": summary.digest,
            "vector": None,
            "embed_model": embedder.name,
        }
        for summary in summaries
    ]
    return _with_vectors(rows, SUMMARIES.schema, embedder)


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
            tokens_in=row["tokens_in"],
            tokens_out=row["tokens_out"],
            summary_method=row["summary_method"],
        )
        for row in rows.drop_columns([c for c in ("vector", "digest") if c in rows.column_names]).to_pylist()
    ]


def _with_vectors(rows: list[dict[str, Any]], schema: pa.Schema, embedder: Embedder) -> pa.Table:
    """Return rows as a table whose null vectors are replaced by embeddings of the contents, made in one batch."""
    vectors = embedder.embed([row["content"] for row in rows])
    offsets = pa.array(range(0, vectors.size + 1, embedder.dimension), pa.int32())
    column = pa.ListArray.from_arrays(offsets, pa.array(vectors.ravel(), pa.float32()))
    at = schema.get_field_index("vector")
    plain = pa.Table.from_pylist(rows, schema=schema.remove(at))
    return plain.add_column(at, schema.field(at), column)


def facts_to_index(rows: pa.Table) -> pa.Table:
    """Return rows of the ``facts`` table as rows of the index."""
    return _to_index(
        rows, kind=rows["kind"], starts_at=rows["event_at"], ends_at=rows["event_at"], sources=rows["message_ids"]
    )


def summaries_to_index(rows: pa.Table) -> pa.Table:
    """Return rows of the ``summaries`` table as rows of the index."""
    return _to_index(
        rows.append_column("conversation_id", pa.nulls(rows.num_rows, pa.string())),
        kind=pa.repeat("summary", rows.num_rows),
        starts_at=rows["period_start"],
        ends_at=rows["period_end"],
        sources=rows["source_ids"],
    )


def _to_index(rows: pa.Table, *, kind: Any, starts_at: Any, ends_at: Any, sources: Any) -> pa.Table:
    vectors = rows["vector"].combine_chunks()
    dimension = len(vectors[0]) if len(vectors) else 0
    columns = {
        **{name: rows[name] for name in rows.column_names},
        "kind": kind,
        "starts_at": starts_at,
        "ends_at": ends_at,
        "source_ids": sources,
        "vector": pa.FixedSizeListArray.from_arrays(vectors.flatten(), dimension),
    }
    schema = index_schema(dimension)
    return pa.table([columns[name] for name in schema.names], schema=schema)
