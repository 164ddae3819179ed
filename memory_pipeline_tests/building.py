"""Build conversations and lakes, and read the contents of a lake."""

from __future__ import annotations

import multiprocessing
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, IS_FACT, MEMORY_EVENTS, PROJECTED, TABLES
from memory_pipeline.steps.fold_memories import project_events
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.models.factory import Models

START = date(2024, 1, 1)
#: After the end of all periods that tests write to.
NOW = datetime(2026, 1, 12, 9, tzinfo=UTC)
ACME = Scope("acme", "support")
#: Forks processes from one that has imported the product, because importing it takes seconds.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["memory_pipeline.defs.dagster_runner", "memory_pipeline_tests.concurrency.rivals", "memory_pipeline.reader"]
)


def conversation(
    *texts: str,
    at: str = "2024-01-15T08:00",
    scope: Scope = ACME,
    conversation_id: str = "c1",
    name: str | None = "Anna",
    role: str = "user",
) -> dict[str, Any]:
    """Return a conversation of one speaker: one message per minute from `at` (UTC), with ids m1, m2, …."""
    start = datetime.fromisoformat(at).replace(tzinfo=UTC)
    return {
        "workspace_id": scope.workspace_id,
        "agent_id": scope.agent_id,
        "conversation_id": conversation_id,
        "messages": [
            {
                "id": f"m{number}",
                "role": role,
                "name": name,
                "content": text,
                "timestamp": start.replace(minute=start.minute + number - 1).isoformat(),
            }
            for number, text in enumerate(texts, start=1)
        ],
    }


def write(lake: Lake, *conversations: dict[str, Any], now: datetime = NOW) -> None:
    """Put conversations into the journal."""
    lake.ensure()
    for record in conversations:
        messages, rejected, _ = read_messages(record, Admission(START, now, lake.calendar))
        assert not rejected
        lake.journal.append(messages)


def run(lake: Lake, models: Models, now: datetime = NOW) -> dict[Grain, list[Period]]:
    """Compute all pending periods without Dagster. Return them by grain."""
    done = {}
    for grain in Grain:
        done[grain] = grain_status(lake, grain, START, now).pending
        list(materialize(lake, models, grain, done[grain]))
    return done


def hours(*keys: str) -> list[Period]:
    return [Period.parse("working", key) for key in keys]


def table_rows(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of all tables and projections in a stable order."""
    conditions = {"graph_facts": IS_FACT}
    projected = {name: rows.scan(where=conditions.get(name)) for name, rows in lake.projections.items()}
    return {name: sorted(rows.to_pylist(), key=lambda row: str(row["id"])) for name, rows in projected.items()} | {
        name: sorted(lake.tables.read(spec).to_pylist(), key=lambda row: [str(row[column]) for column in _order(name)])
        for name, spec in TABLES.items()
    }


def _order(name: str) -> tuple[str, ...]:
    spec = {**TABLES, **PROJECTED}[name]
    return (*spec.partition_by, *(("asset",) if name == "ledger" else ()), *spec.order_by)


def index_rows(lake: Lake, scopes: Sequence[Scope]) -> dict[tuple[Scope, Grain], list[dict[str, Any]]]:
    """Return all rows of the agents' index tables in a stable order."""
    rows = {(scope, grain): lake.index.read([scope], None, f"grain = '{grain}'") for scope in scopes for grain in Grain}
    return {key: sorted(own.to_pylist(), key=lambda row: str(row["id"])) for key, own in rows.items()}


def versions(lake: Lake) -> dict[str, int]:
    """Return the version of each table, and the number of versions of each projection's tables."""
    found = {name: lake.tables.version(spec) for name, spec in TABLES.items()}
    for name in PROJECTED:
        below = name.partition("_")[0]  # the tables of graph_facts are those of graph
        paths = (entry.path for entry in lake.storage.list("projections"))
        found[name] = sum(path.startswith(f"projections/{below}-") and "/_versions/" in path for path in paths)
    return found


def memory_rows(lake: Lake, scope: Scope | None = None) -> pa.Table:
    """Return the rows of the versions of durable memories, of a scope or of all, by scope, memory and version."""
    where = "version > 0"
    rows = lake.memory_rows.scan(where=where) if scope is None else lake.memory_rows.read([scope], where=where)
    return rows.sort_by([(name, "ascending") for name in ("scope", "memory_id", "version")])


def event_rows(lake: Lake, scope: Scope | None = None, *, is_consolidation: bool = False) -> pa.Table:
    """Return the records of memory events or of consolidation events, of a scope or of all."""
    where = None if scope is None else pc.field("scope") == scope.key
    return lake.tables.read(CONSOLIDATION_EVENTS if is_consolidation else MEMORY_EVENTS, where=where)


def remove_events(lake: Lake, scope: Scope, *specs: TableSpec) -> None:
    """Remove the events of a scope, of both tables by default, from the records and from the projection."""
    for spec in specs or (MEMORY_EVENTS, CONSOLIDATION_EVENTS):
        lake.tables.drop_rows(spec, None, lambda rows: pc.equal(rows["scope"], scope.key), ["scope"])
        condition = "is_consolidation" if spec is CONSOLIDATION_EVENTS else "NOT is_consolidation"
        lake.events.delete(f"scope = '{scope.key}' AND {condition}", [scope])


def put_events(lake: Lake, rows: pa.Table, keys: Collection[str] | None = None) -> None:
    """Replace periods of the records of memory events or consolidation events, and sync their projection."""
    spec = MEMORY_EVENTS if "is_edit" in rows.column_names else CONSOLIDATION_EVENTS
    periods = set(rows["period"].to_pylist()) if keys is None else set(keys)
    lake.tables.replace(spec, periods, rows)
    project_events(lake, spec, periods)
