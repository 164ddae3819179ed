"""Lakes with years of memory, written directly as rows, without extraction or summarization.

Every agent speaks in some daytime hours a week. An hour has a message, its turn, and every second one a statement.
Summaries of all grains, their sources, the ledger and the index are consistent, as after pipeline runs. Texts are short
and generated, and vectors have few dimensions.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.generator import START, WORKSPACE, agent_name, sentence
from benchmarks.measure import progress
from memory_pipeline.domain.identity import digest, make_id
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Calendar, Grain, Period, hour_of
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.summaries import summary_id
from memory_pipeline.lake.index.index_rows import rows_to_index
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MESSAGES_ASSET, LedgerEntry, index_asset, table_asset
from memory_pipeline.steps.group import by_period
from memory_pipeline.steps.results import RowDigests, digests_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec

_Row = dict[str, Any]
#: Hours per commit.
_AT_ONCE = 2_000


class Embedder:
    """Random unit vectors of few dimensions. These benchmarks do not measure meaning."""

    name, dimension = "benchmark", 16

    def embed(self, texts: Sequence[str], uses: Sequence[object] = ()) -> NDArray[np.float32]:  # noqa: ARG002
        """Return a vector of each text."""
        vectors = np.random.default_rng(len(texts)).normal(size=(len(texts), self.dimension))
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / lengths, np.float32)


@dataclass
class _Rows:
    messages: list[_Row] = field(default_factory=list)
    facts: list[_Row] = field(default_factory=list)


def grown(lake: Lake, agents: int, weeks: int, *, hours_a_week: int = 3, index: bool = True) -> datetime:
    """Fill an empty lake with weeks of memory. Return the time at which all periods have closed.

    Args:
        lake: an empty lake in UTC.
        agents: the number of agents, all in one workspace.
        weeks: the number of weeks from :data:`~benchmarks.generator.START` on.
        hours_a_week: the active hours of each agent per week.
        index: whether to build the vector index, which takes most of the time.
    """
    lake.ensure()
    lake.index.adopt(Embedder())
    progress(f"{agents:,} agents × {weeks} weeks: rows")
    by_hour = _hours(agents, weeks, hours_a_week)
    hours = sorted(by_hour, key=lambda hour: hour.key)
    sources: dict[Grain, pa.Table] = {}
    parts = []
    for start in range(0, len(hours), _AT_ONCE):
        batch = hours[start : start + _AT_ONCE]
        keys = [hour.key for hour in batch]
        lake.tables.replace(MESSAGES, keys, _table(MESSAGES, [row for hour in batch for row in by_hour[hour].messages]))
        facts = _table(FACTS, [row for hour in batch for row in by_hour[hour].facts])
        lake.tables.replace(FACTS, keys, facts)
        _enter(lake, Grain.WORKING, facts, batch)
        parts.append(facts)
    sources[Grain.WORKING] = pa.concat_tables(parts)
    for grain in SUMMARY_GRAINS:
        progress(f"{grain} rows")
        finer = grain.finer or Grain.WORKING
        rows = _table(SUMMARIES, _summaries(lake.calendar, grain, sources[finer].select(_NEEDED)))
        periods = [Period(grain, key) for key in sorted(set(rows["period"].to_pylist()))]
        lake.tables.replace(SUMMARIES, [period.key for period in periods], rows, grain=grain.value)
        _enter(lake, grain, rows, periods, sources[finer])
        sources[grain] = rows
    for grain in Grain if index else ():
        progress(f"{grain} index of {agents:,} agents")
        rows = sources[grain]
        periods = [Period(grain, key) for key in set(rows["period"].to_pylist())]
        lake.index.replace(grain, periods, rows_to_index(grain, rows, Embedder.dimension))
    return START + timedelta(weeks=weeks, days=370)


_NEEDED = ["workspace_id", "agent_id", "period", "id", "content", "digest", "importance"]


def _hours(agents: int, weeks: int, hours_a_week: int) -> dict[Period, _Rows]:
    source = random.Random(f"lakes {agents} {weeks}")
    waking = [day * 24 + hour for day in range(7) for hour in range(8, 22)]
    texts = [sentence(source) for _ in range(2_000)]
    found: dict[Period, _Rows] = defaultdict(_Rows)
    number = 0
    for week in range(weeks):
        for agent in range(agents):
            scope = Scope(WORKSPACE, agent_name(agent))
            for hour in source.sample(waking, hours_a_week):
                at = START + timedelta(weeks=week, hours=hour, minutes=agent % 60)
                number += 1
                _say(found[hour_of(at)], scope, hour_of(at), at, texts[number % len(texts)], number)
    return found


def _say(rows: _Rows, scope: Scope, hour: Period, at: datetime, text: str, number: int) -> None:
    own = {"period": hour.key, "workspace_id": scope.workspace_id, "agent_id": scope.agent_id}
    message = make_id("message", hour, scope.agent_id, number)
    talk = f"{scope.agent_id}-{hour}"
    rows.messages.append(
        own
        | {
            "id": message,
            "conversation_id": talk,
            "user_id": None,
            "tags": [],
            "source_id": None,
            "turn": 0,
            "role": "user",
            "name": "Anna",
            "content": text,
            "sent_at": at,
            "received_at": at,
            "redactions": [],
        }
    )
    for position, kind in enumerate(("turn", "statement")[: 1 + number % 2]):
        rows.facts.append(
            own
            | {
                "id": make_id("working", hour, scope.agent_id, number, position),
                "kind": kind,
                "content": f"Anna: {text}",
                "speaker": "Anna",
                "entities": [],
                "importance": 0.5,
                "confidence": 1.0,
                "conversation_id": talk,
                "message_ids": [message],
                "turn": 0,
                "position": position,
                "event_at": at,
                "received_at": at,
                "mentioned_at": None,
                "tags": [],
                "extraction_method": "benchmark",
                "operations": [],
                "source_digest": None,
                "digest": digest(number, position),
            }
        )


def _summaries(calendar: Calendar, grain: Grain, finer: pa.Table) -> list[_Row]:
    groups: dict[tuple[str, str, Period], list[_Row]] = defaultdict(list)
    parents: dict[str, Period] = {}
    for row in finer.to_pylist():
        key = row["period"]
        if key not in parents:
            parents[key] = calendar.ancestor(Period(grain.finer or Grain.WORKING, key), grain)
        groups[row["workspace_id"], row["agent_id"], parents[key]].append(row)
    rows = []
    for (workspace_id, agent_id, period), sources in groups.items():
        start, end = calendar.bounds(period)
        ids = sorted(source["id"] for source in sources)
        lines = [source["content"].splitlines()[0] for source in sources[:8]]
        points = [
            {"sentence": line, "source_ids": [source["id"]], "event_at": start, "importance": 0.5, "entities": []}
            for line, source in zip(lines, sources, strict=False)
        ]
        rows.append(
            {
                "grain": grain.value,
                "period": period.key,
                "id": summary_id(Scope(workspace_id, agent_id), period),
                "workspace_id": workspace_id,
                "agent_id": agent_id,
                "period_start": start,
                "period_end": end,
                "content": "\n".join(lines),
                "key_points": points,
                "entities": [],
                "importance": 0.5,
                "source_ids": ids,
                "source_digest": digest(ids),
                "source_digests": [],
                "tokens_in": 100,
                "tokens_out": 50,
                "cost": None,
                "summary_method": "benchmark",
                "code_version": None,
                "digest": digest(workspace_id, agent_id, ids),
            }
        )
    return rows


def _table(spec: TableSpec, rows: list[_Row]) -> pa.Table:
    embedded = "vector" in spec.schema.names
    if embedded:
        vectors = Embedder().embed([""] * len(rows))
        rows = [
            row | {"vector": vector, "embed_model": Embedder.name} for row, vector in zip(rows, vectors, strict=True)
        ]
    return pa.Table.from_pylist(rows, schema=spec.schema)


def _enter(lake: Lake, grain: Grain, rows: pa.Table, periods: list[Period], finer: pa.Table | None = None) -> None:
    inputs: dict[Period, list[str]] = defaultdict(list)
    if finer is not None:
        below = grain.finer or Grain.WORKING
        keys = sorted(set(finer["period"].to_pylist()))
        for period, part in by_period(finer, [Period(below, key) for key in keys]).items():
            inputs[lake.calendar.ancestor(period, grain)].append(digests_of(part).combined)
    entries = []
    for period, part in by_period(rows, periods).items():
        made, agents = digests_of(part).combined, len(set(part["agent_id"].to_pylist()))
        entries.append(
            LedgerEntry(
                table_asset(grain), period.key, RowDigests.of(*inputs[period]).combined, made, part.num_rows, agents
            )
        )
        entries.append(LedgerEntry(index_asset(grain), period.key, made, made, part.num_rows, agents))
        if grain is Grain.WORKING:
            entries.append(LedgerEntry(MESSAGES_ASSET, period.key, "", made, agents, agents))
            entries.append(LedgerEntry(GRAPH_ASSET, period.key, made, "", 0, 0))
    lake.ledger.record(entries)
