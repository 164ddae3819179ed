"""Write rows of a lake's tables directly, without the pipeline."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.codec.codec import with_digest
from memory_pipeline.lake.schemas import (
    CONSOLIDATION_EVENTS,
    EXPIRATIONS,
    FACTS,
    MEMORIES,
    MEMORY_EVENTS,
    MESSAGES,
    MODEL_CALLS,
    SUMMARIES,
)
from memory_pipeline.steps.group import scopes_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec

Row = dict[str, Any]


def message(hour: str, agent: str = "a", text: str = "Hello, Bruno.", workspace: str = "acme") -> Row:
    """Return an agent's only message of an hour."""
    at = datetime.fromisoformat(f"{hour}:30:00+00:00")
    return {
        "period": hour, "id": f"message:{hour}:{workspace}-{agent}", "workspace_id": workspace, "agent_id": agent,
        "identity": "", "scope": Scope(workspace, agent).key,
        "conversation_id": "c", "tags": [], "turn": 0, "role": "user", "name": "Anna", "content": text, "sent_at": at,
        "received_at": at, "redactions": [],
    }  # fmt: skip


def fact(
    hour: str,
    agent: str = "a",
    text: str = "Hello, Bruno.",
    workspace: str = "acme",
    *,
    kind: str = "turn",
    entities: Sequence[str] = ("Bruno",),
) -> Row:
    """Return a fact that cites the agent's message of the hour."""
    said = message(hour, agent, text, workspace)
    return {
        "period": hour, "id": f"working:{hour}:{workspace}-{agent}-{kind}", "workspace_id": workspace,
        "agent_id": agent, "identity": "", "scope": Scope(workspace, agent).key,
        "kind": kind, "content": text, "speaker": "Anna", "role": "user", "entities": list(entities),
        "importance": 0.5, "confidence": 1.0, "conversation_id": "c", "message_ids": [said["id"]], "turn": 0,
        "position": 0, "event_at": said["sent_at"], "received_at": said["sent_at"], "tags": [],
        "extraction_method": "test", "operations": [],
        "digest": text, "embed_model": "test",
    }  # fmt: skip


def summary(
    lake: Lake,
    period: Period,
    sources: Sequence[str],
    cited: Sequence[Sequence[str]],
    *,
    agent: str = "a",
    workspace: str = "acme",
    text: str = "Anna said hello.",
) -> Row:
    """Return a summary of `sources`; each of `cited` has the citations of one point."""
    start, end = lake.calendar.bounds(period)
    points = [
        {"sentence": text, "source_ids": list(ids), "event_at": start, "importance": 0.5, "entities": []}
        for ids in cited
    ]
    return {
        "grain": period.grain.value, "period": period.key, "id": f"{period.grain}:{period.key}:{workspace}-{agent}",
        "workspace_id": workspace, "agent_id": agent, "identity": "", "scope": Scope(workspace, agent).key,
        "period_start": start, "period_end": end, "content": text,
        "key_points": points, "entities": [], "importance": 0.5, "source_ids": sorted(sources), "source_digest": "",
        "tokens_in": 7, "tokens_out": 3, "summary_method": "test", "digest": text, "embed_model": "test",
    }  # fmt: skip


def call(
    hour: str,
    number: int,
    cost: float | None = 0.5,
    *,
    agent: str = "a",
    request: int | None = None,
    grain: str = "daily",
    period: str = "2024-01-15",
    outcome: str = "ok",
) -> Row:
    """Return one model call."""
    return {
        "hour": hour, "id": f"{hour}-{number}", "request_id": f"{hour}-{number if request is None else request}",
        "key": "k", "called_at": datetime.fromisoformat(f"{hour}:00:00+00:00"), "workspace_id": "acme",
        "agent_id": agent, "purpose": "summary", "grain": grain, "period": period, "model": "m", "texts": 1,
        "tokens_in": 10, "tokens_out": 2, "cost": cost, "seconds": 0.25, "outcome": outcome,
    }  # fmt: skip


def memory(version: int = 1, number: int = 1, *, agent: str = "a", newest: bool = True, **own: Any) -> Row:
    at = datetime.fromisoformat("2024-01-15T08:30:00+00:00")
    identifier = f"memory:2024-01-15T08:{number:032x}"
    return {
        "identity": "", "scope": Scope("acme", agent).key,
        "id": f"{identifier}#{version}", "memory_id": identifier, "version": version,
        "is_newest": newest, "workspace_id": "acme", "agent_id": agent, "kind": "fact", "title": "t", "hook": "h",
        "content": "Bruno is a dog.", "importance": 0.5, "confidence": 1.0, "decay_rate": 0.0, "access_count": 0,
        "is_point_in_time": False, "temperature": "warm", "status": "active", "merged_ids": [], "source_ids": [],
        "conversation_ids": [], "tags": [], "editor": "agent", "event_id": "e", "match_keys": [], "created_at": at,
        "updated_at": at, "changed_at": at, "digest": "", **own,
    }  # fmt: skip


def event(number: int, verb: str, *, night: str | None = None, agent: str = "a", **own: Any) -> Row:
    """Return an event of a durable memory; with `night`, one of consolidation."""
    at = datetime.fromisoformat("2024-01-15T08:30:00+00:00")
    hourly = {"period": "2024-01-15T08", "is_edit": False, "received_at": at}
    when = hourly if night is None else {"period": night}
    return {
        "identity": "", "scope": Scope("acme", agent).key,
        "id": f"event:2024-01-15T08:{number:032x}", "workspace_id": "acme",
        "agent_id": agent, "verb": verb, "memory_id": f"memory:2024-01-15T08:{1:032x}", "changes": "{}",
        "editor": "conversation", "evidence": [], "turn": 0, "place": 0, "event_at": at, **when, **own,
    }  # fmt: skip


def put_memories(lake: Lake, *rows: Row) -> None:
    new = with_digest(pa.Table.from_pylist(list(rows), schema=MEMORIES.schema))
    lake.memory_rows.replace(new, scopes_in(new))


def put_events(lake: Lake, *rows: Row) -> None:
    for spec, is_consolidation in ((MEMORY_EVENTS, False), (CONSOLIDATION_EVENTS, True)):
        if own := [row for row in rows if ("is_edit" not in row) is is_consolidation]:
            put(lake, spec, own)


def put(lake: Lake, spec: TableSpec, rows: Sequence[Row], **fixed: str) -> None:
    """Replace the rows of their partitions."""
    key = spec.partition_by[-1]
    keys = {row[key] for row in rows}
    if "scope" in spec.schema.names:
        rows = [{**row, "identity": "", "scope": Scope(row["workspace_id"], row["agent_id"]).key} for row in rows]
    if "users" in spec.schema.names:
        rows = [{**row, "users": []} for row in rows]
    lake.tables.replace(spec, keys, pa.Table.from_pylist(list(rows), schema=spec.schema), **fixed)


def put_hours(lake: Lake, *facts: Row) -> None:
    """Write facts and the messages that they cite."""
    said = {row["id"]: row for fact in facts for row in [_message_of(fact)]}
    put(lake, MESSAGES, list(said.values()))
    put(lake, FACTS, facts)


def _message_of(fact: Row) -> Row:
    return message(fact["period"], fact["agent_id"], fact["content"], fact["workspace_id"])


def put_summaries(lake: Lake, *rows: Row) -> None:
    for grain in Grain:
        if own := [row for row in rows if row["grain"] == grain]:
            put(lake, SUMMARIES, own, grain=grain.value)


def put_calls(lake: Lake, *rows: Row) -> None:
    put(lake, MODEL_CALLS, rows)


def put_mark(lake: Lake, kept: str, through: str, *, agent: str = "a", workspace: str = "acme") -> None:
    at = datetime.fromisoformat("2024-06-01T00:00:00+00:00")
    put(
        lake,
        EXPIRATIONS,
        [{"workspace_id": workspace, "agent_id": agent, "kept": kept, "through": through, "at": at}],
    )
