"""The cost of building the marts of ``dbt_like_sql``: all of them, after one late day, and without changes.

1,000 agents speak three hours a week for 104 weeks (``--quick``: 50 agents, 26 weeks). Generated messages, facts and
summaries are written directly to the tables: one message, one turn and one statement per hour, and a summary for each
period with sources. There are no vectors, because no mart reads them.

A late day changes one of its hours and the summaries above it. The same is measured over half of the weeks, because the
cost of a late day should not grow with the years before it.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.measure import Cell, Table, bytes_below, progress
from memory_pipeline.analytics import Warehouse, models_of, stale_marts
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period, hour_of
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import LedgerEntry, table_asset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from memory_pipeline.lake.schema_types import TableSpec

_START = datetime(2024, 1, 1, tzinfo=UTC)
_NAMES = "Nadia Ruben Iris Tomas Leila Oskar Priya Hugo Maren Jonas Alba Farid Greta Simon Yuki Clara".split()
#: The number of sources of a summary, each cited in a separate point.
_POINTS = 5

_Row = dict[str, Any]


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with lakes below `folder`."""
    agents, weeks = (50, 26) if quick else (1_000, 104)
    calls: list[dict[str, Cell]] = []
    parts: list[dict[str, Cell]] = []
    rows: list[dict[str, Cell]] = []
    names = [model.name for model in models_of("marts")]
    for length in (weeks // 2, weeks):
        lake = Lake(str(folder / f"{length}-weeks"))
        started = time.perf_counter()
        fill(lake, agents, length)
        progress(f"{agents:,} agents, {length} weeks written in {time.perf_counter() - started:.0f} s")

        def measure(what: str, *, full: bool = False, lake: Lake = lake, length: int = length) -> None:
            started = time.perf_counter()
            stale = len(stale_marts(lake))
            looked = time.perf_counter()
            for name, built in Warehouse(lake).build_all(names, full=full):
                parts.append(
                    {
                        "call": what, "weeks": length, "mart": name, "seconds": built.seconds,
                        "months": built.months, "rows read": built.read, "rows": built.rows, "bytes": built.bytes,
                    }
                )  # fmt: skip
            here = [part for part in parts if part["call"] == what and part["weeks"] == length]
            calls.append(
                {
                    "call": what,
                    "weeks": length,
                    "seconds": time.perf_counter() - looked,
                    "rows read": sum(int(part["rows read"]) for part in here),
                    "stale marts": stale,
                    "seconds to find them": looked - started,
                }
            )

        measure("first")
        measure("again")
        change_day(lake, _START + timedelta(weeks=length // 2, hours=10))
        measure("one late day")
        measure("full", full=True)
        rows.append({"weeks": length, **_sizes(lake), "bytes": bytes_below(folder / f"{length}-weeks" / "tables")})
    note = f"{agents:,} agents, 3 hours a week; rows read: of the lake's tables and of marts, as often as each is read"
    return [
        Table("marts", note, calls),
        Table("marts, one by one", "months: made again, of marts that are made in parts", parts),
        Table("marts: what they are made from", "rows of the lake's tables", rows),
    ]


def fill(lake: Lake, agents: int, weeks: int) -> None:
    """Write the tables and the ledger of a lake."""
    lake.ensure()
    source = random.Random(f"{agents} {weeks}")
    waking = [day * 24 + hour for day in range(7) for hour in range(8, 22)]
    names = [f"agent-{number:04}" for number in range(agents)]
    spoken: dict[str, list[str]] = defaultdict(list)
    for week in range(weeks):
        for place in range(agents):
            for number in source.sample(waking, 3):
                spoken[f"{_START + timedelta(weeks=week, hours=number):%Y-%m-%dT%H}"].append(names[place])
    material: dict[tuple[str, Period], list[str]] = defaultdict(list)
    entries = []
    for hours in _chunks(sorted(spoken), 1_000):
        messages, facts = [], []
        for hour in hours:
            period = Period(Grain.WORKING, hour)
            day = _parent(lake, period)
            for agent in spoken[hour]:
                message, found = _said(hour, agent)
                messages.append(message)
                facts += found
                material[agent, day].append(found[1]["id"])
            entries.append(
                LedgerEntry(table_asset("working"), hour, hour, hour, 2 * len(spoken[hour]), len(spoken[hour]))
            )
        _write(lake, MESSAGES, hours, messages)
        _write(lake, FACTS, hours, facts)
    for grain in SUMMARY_GRAINS:
        rows = [_summary(lake, agent, period, ids) for (agent, period), ids in material.items()]
        by_period: dict[str, list[_Row]] = defaultdict(list)
        for row in rows:
            by_period[row["period"]].append(row)
        for keys in _chunks(sorted(by_period), 60):
            _write(lake, SUMMARIES, keys, [row for key in keys for row in by_period[key]], grain=grain.value)
        entries += [LedgerEntry(table_asset(grain), key, key, key, len(of), len(of)) for key, of in by_period.items()]
        above: dict[tuple[str, Period], list[str]] = defaultdict(list)
        for row in rows:
            if grain is not Grain.YEARLY:
                above[row["agent_id"], _parent(lake, Period(grain, row["period"]))].append(row["id"])
        material = above
    lake.ledger.record(entries)


def change_day(lake: Lake, moment: datetime) -> None:
    """Change one hour and all summaries above it."""
    period: Period | None = hour_of(moment)
    spec, fixed = FACTS, dict[str, str]()
    entries = []
    while period is not None:

        def change(rows: pa.Table) -> pa.Table:
            content = pa.array([f"{text} Late." for text in rows["content"].to_pylist()], pa.string())
            return rows.set_column(rows.schema.names.index("content"), rows.schema.field("content"), content)

        lake.tables.transform(spec, [period.key], change, shard=None, **fixed)
        made = lake.tables.read(spec, [period.key], shard=None, **fixed)
        entries.append(LedgerEntry(table_asset(period.grain), period.key, "late", "late", made.num_rows, made.num_rows))
        period = lake.calendar.parent(period)
        spec, fixed = SUMMARIES, {"grain": period.grain.value if period else ""}
    lake.ledger.record(entries)


def _said(hour: str, agent: str) -> tuple[_Row, list[_Row]]:
    """Return a message and its facts."""
    number = 2 * int(agent[-4:])
    said_at = datetime.fromisoformat(f"{hour}:12:00+00:00")
    name = _NAMES[number % len(_NAMES)]
    text = f"{name} paid {number % 900} euros for the boat, and asked when it will arrive in the harbour."
    scope = {"workspace_id": "bench", "agent_id": agent, "conversation_id": f"{agent}-{hour}", "tags": [], "turn": 0}
    message = {
        "period": hour, "id": f"message:{hour}:{number:032x}", **scope, "role": "user", "name": name, "content": text,
        "sent_at": said_at, "received_at": said_at, "redactions": [],
    }  # fmt: skip
    common = {
        "period": hour, **scope, "speaker": name, "entities": [name], "importance": 0.5, "confidence": 1.0,
        "message_ids": [message["id"]], "event_at": said_at, "received_at": said_at,
        "extraction_method": "made up", "digest": f"{number:032x}",
        "operations": [],
    }  # fmt: skip
    turn = {**common, "id": f"working:{hour}:{number:032x}", "kind": "turn", "content": text, "position": 0}
    fact = {**common, "id": f"working:{hour}:{number + 1:032x}", "kind": "event", "content": text[:60], "position": 1}
    return message, [turn, fact]


def _summary(lake: Lake, agent: str, period: Period, sources: list[str]) -> _Row:
    begin, end = lake.calendar.bounds(period)
    points = [
        {
            "sentence": f"Something was paid for, number {number}, and it took a while until it arrived.",
            "source_ids": [source if period.grain is Grain.DAILY else f"{source}#0"],
            "event_at": begin,
            "importance": 0.5,
            "entities": [],
        }
        for number, source in enumerate(sources[:_POINTS])
    ]
    return {
        "grain": period.grain.value, "period": period.key,
        "id": f"{period.grain}:{period.key}:{int(agent[-4:]):032x}", "workspace_id": "bench", "agent_id": agent,
        "period_start": begin, "period_end": end,
        "content": "\n".join(str(point["sentence"]) for point in points), "key_points": points, "entities": [],
        "importance": 0.5, "source_ids": sorted(sources), "source_digest": "", "tokens_in": 40 * len(sources),
        "tokens_out": 20 * len(points), "summary_method": "made up", "digest": "",
    }  # fmt: skip


def _parent(lake: Lake, period: Period) -> Period:
    parent = lake.calendar.parent(period)
    assert parent is not None
    return parent


def _write(lake: Lake, spec: TableSpec, keys: Iterable[str], rows: list[_Row], **fixed: str) -> None:
    lake.tables.replace(spec, list(keys), pa.Table.from_pylist(rows, schema=spec.schema), **fixed)


def _chunks(keys: list[str], size: int) -> Iterable[list[str]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))


def _sizes(lake: Lake) -> Mapping[str, Cell]:
    return {spec.name: lake.tables.read(spec, columns=["id"]).num_rows for spec in (MESSAGES, FACTS, SUMMARIES)}
