"""The cost of durable memories: consolidation of many agents, and consolidation, ingestion and recall of a large agent.

Memories are generated sentences (:mod:`benchmarks.generator`), each in a different hour. Their events are written as
rows, then folded, consolidated, ingested and recalled by the functions of the pipeline and the readers.

*Nights* are days of consolidation for 1,000 agents with 100 memories each (``--quick``: 100 agents): the first one,
which processes everything and fills the hot indexes; the one after it, which processes the changes of the first; one
without changes; one with a new memory for one agent in a hundred, and the one after that. Commits are versions of the
Delta tables; CPU is processor time, which other work on the machine does not affect.

*One agent* has 100, 1,000 and 10,000 memories: folding all; the first day; a day after one new memory; ingesting one
event, which rewrites the agent's partitions. *Recall* uses these agents, warm, with 60 queries: ``recall`` searches
durable memories, conversations and the graph (the latter two are empty here); ``memories.search`` only searches
memories. Queries alternate with NumPy, which has all vectors in memory, ranks by them alone, and fetches no text.
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.generator import START, WORKSPACE, agent_name, sentence
from benchmarks.measure import Cell, Table, milliseconds, p50, p95, progress, versions
from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.periods import Calendar, Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.memories import events_to_rows
from memory_pipeline.lake.schemas import MEMORY_EVENTS
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.fold_memories import fold_memories, project_events, refold_memories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_pipeline.models.factory import Models

_AGENTS, _EACH = 1_000, 100
_SIZES = (100, 1_000, 10_000)
_QUESTIONS = 60
_KINDS = (MemoryKind.FACT, MemoryKind.OBSERVATION, MemoryKind.DECISION, MemoryKind.PROCEDURE, MemoryKind.PREFERENCE)
#: The first consolidated day. All initial memories are from before its end.
_FIRST = Period(Grain.DAILY, "2024-02-19")


def run(folder: Path, *, quick: bool = False) -> list[Table]:
    """Measure the consolidation of many agents, and one agent of each size."""
    models = default_models("UTC")
    nights = Table("Consolidation: nights of many agents", "seconds; agents that were looked at; events; table commits")
    nights.rows += _nights(Lake(str(folder / "many")), models, _AGENTS // 10 if quick else _AGENTS)
    ones = Table("Consolidation: one agent", "seconds; the fold embeds all that memories say")
    recalls = Table(
        "Durable memories: recall", "milliseconds, p50 and p95 of 60 questions; the first answer of a reader"
    )
    for size in _SIZES[: 2 if quick else 3]:
        progress(f"one agent, {size:,} memories")
        lake = Lake(str(folder / f"one-{size}"))
        ones.rows.append(_one(lake, models, size))
        recalls.rows.append(_recall(lake, models, size))
    return [nights, ones, recalls]


def _nights(lake: Lake, models: Models, agents: int) -> Iterator[dict[str, Cell]]:
    lake.ensure()
    scopes = [Scope(WORKSPACE, agent_name(agent)) for agent in range(agents)]
    progress(f"{agents:,} agents: {agents * _EACH:,} events")
    _begin(lake, models, scopes, _EACH)
    night = _FIRST
    yield {"night": f"first, {agents:,} agents", **_kept(lake, models, night)}
    yield {"night": "the one after it", **_kept(lake, models, night := night.next())}
    yield {"night": "nothing changed", **_kept(lake, models, night := night.next())}
    night = night.next()
    learnt = [event for agent in range(0, agents, 100) for event in _events(scopes[agent], 1, night)]
    fold_memories(lake, models.embedder, sorted({event.hour for event in learnt}, key=lambda hour: hour.key), learnt)
    yield {"night": f"{len(learnt)} agents changed", **_kept(lake, models, night)}
    yield {"night": "the one after it", **_kept(lake, models, night.next())}


def _kept(lake: Lake, models: Models, night: Period) -> dict[str, Cell]:
    before = sum(versions(lake).values())
    started, spent = time.perf_counter(), time.process_time()
    done = consolidate(lake, models, [night], START.date())
    seconds, cpu = time.perf_counter() - started, time.process_time() - spent
    return {
        "seconds": seconds,
        "CPU": cpu,
        "agents": done.agents,
        "events": sum(each.events.total() for each in done.nights),
        "commits": sum(versions(lake).values()) - before,
    }


def _one(lake: Lake, models: Models, size: int) -> dict[str, Cell]:
    lake.ensure()
    scope = Scope(WORKSPACE, agent_name(0))
    started = time.perf_counter()
    _begin(lake, models, [scope], size)
    folded = time.perf_counter() - started
    first = _kept(lake, models, _FIRST)
    _kept(lake, models, _FIRST.next())
    landings, nights = [], []
    day = _FIRST.next()
    for _ in range(3):
        day = day.next()
        events = list(_events(scope, 1, day))
        started = time.perf_counter()
        fold_memories(lake, models.embedder, [events[0].hour], events)
        landings.append(time.perf_counter() - started)
        nights.append(float(_kept(lake, models, day)["seconds"]))
    return {
        "memories": size,
        "write and fold": folded,
        "first night": first["seconds"],
        "night after one more": p50(nights),
        "land one": p50(landings),
    }


def _begin(lake: Lake, models: Models, scopes: Sequence[Scope], each: int) -> None:
    """Write and fold the memories before the first consolidation."""
    events = [event for scope in scopes for event in _events(scope, each, _FIRST)]
    hours = {event.hour.key for event in events}
    lake.tables.replace(MEMORY_EVENTS, hours, events_to_rows(events, are_edits=True))
    project_events(lake, MEMORY_EVENTS, hours)
    refold_memories(lake, models.embedder, scopes)


def _events(scope: Scope, number: int, day: Period) -> Iterator[MemoryEvent]:
    source = random.Random(f"{scope.agent_id} {number} {day}")
    begins = Calendar().bounds(day)[0]
    for place in range(number):
        at = begins + timedelta(seconds=source.randrange(86_400))
        kind, content = _KINDS[place % len(_KINDS)], f"{sentence(source)} {sentence(source)}"
        changes = Changes(kind, content=content, importance=round(source.uniform(0.3, 1.0), 3))
        yield MemoryEvent.of(scope, MemoryVerb.REMEMBER, at, changes, turn=place, received_at=at)


def _recall(lake: Lake, models: Models, size: int) -> dict[str, Cell]:
    scope = Scope(WORKSPACE, agent_name(0))
    source = random.Random(size)
    asked = [sentence(source) for _ in range(_QUESTIONS)]
    now = Calendar().bounds(_FIRST)[1] + timedelta(days=9)
    rows = lake.memory_rows.read([scope], ["content", "vector", "is_newest"])
    vectors = np.array([row for row in rows["vector"].to_pylist() if row is not None], np.float32)
    reader = MemoryReader.open(lake.storage.uri, workspace_id=scope.workspace_id, agent_id=scope.agent_id)
    first = milliseconds(lambda number: reader.recall(asked[number], now=now), 0)
    calls: dict[str, Callable[[int], object]] = {
        "NumPy": lambda number: _nearest(vectors, models, asked[number]),
        "search": lambda number: reader.memories.search(asked[number], now=now),
        "recall": lambda number: reader.recall(asked[number], now=now),
        "hot_index": lambda _: reader.hot_index(),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(_QUESTIONS):
        for name, call in calls.items():
            began = time.thread_time()
            times[name].append(milliseconds(call, number))
            spent[name].append((time.thread_time() - began) * 1000)
    return {
        "memories": size,
        **{name: p50(own) for name, own in times.items()},
        "p95 of recall": p95(times["recall"]),
        **{f"CPU of {name}": p50(own) for name, own in spent.items()},
        "first answer": first,
    }


def _nearest(vectors: NDArray[np.float32], models: Models, text: str) -> NDArray[np.intp]:
    return np.argpartition(vectors @ models.embedder.embed([text])[0], -5)[-5:]
