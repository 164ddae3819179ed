"""Latency of graph look-ups against a plain dictionary, and the cost of folding, as one agent's graph grows.

One agent's graph grows to 10,000, 100,000 and 1,000,000 facts (``--quick``: to 100,000): four facts to an entity, seven
in ten of them between two entities, one in fifty about ``User``. Operations are written directly to their table; the
fold is the pipeline's.

Look-ups alternate with the dictionary's, so that a busy machine slows both equally:

- ``facts_about``: the 20 newest facts of an entity, and of ``User``, who has thousands;
- ``neighbors(…, 2)``: up to 100 names and the total number;
- the dictionary has the same facts as tuples in lists, by either end, and gives the same answers: the newest 20, and
  the set of all within two steps. It has no time, aliases or journal, and never checks for changes.

``search`` ranks the facts of the entities that a question names; ``query`` counts facts by label in SQL; ``written,
found`` is an edit through the journal and the next look-up; ``first answer`` is the first look-up of a new reader.

*Fold* folds all operations of the agent; *an hour* is ``fold_graph`` with ten new operations.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.measure import Cell, Table, memory, milliseconds, p50, p95, progress
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import GRAPH_OPERATIONS, IS_FACT
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.fold_graph import fold_graph, refold_graph, sync_operations
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memory_pipeline.domain.graph.operations import Edit
    from memory_pipeline.graph import Graph

SCOPE = Scope("bench", "graph")
_SIZES = (10_000, 100_000, 1_000_000)
_LOOKUPS, _WRITES, _NEWEST, _MOST = 200, 7, 20, 100
_START = datetime(2024, 1, 1, tzinfo=UTC)
_NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
_PREDICATES = ("likes", "knows", "visited", "owns", "has", "works_with", "lives_in", "works_at")
_OFTEN = "User"


def run(folder: Path, *, quick: bool = False) -> list[Table]:
    """Measure look-ups and folds of each size."""
    lookups = Table("Graph: look-ups, milliseconds", "one agent, warm; the dictionary in the same turns")
    others = Table("Graph: search, SQL, writes", "milliseconds, p50; MB held by the process with all facts")
    folds = Table("Graph: folding", "seconds")
    for facts in _SIZES[: 2 if quick else 3]:
        progress(f"{facts:,} facts")
        lake = Lake(str(folder / f"graph-{facts}"))
        lake.ensure()
        folds.rows.append(_fold(lake, facts))
        reader, first = _open(lake)
        lookups.rows += _lookups(lake, reader.graph, facts)
        others.rows.append({"facts": facts, "first answer": first, **_others(lake, reader.graph)})
    return [lookups, others, folds]


def _operations(facts: int) -> pa.Table:
    source = np.random.default_rng(facts)
    entities = facts // 4
    names = np.array([_name(number) for number in range(entities)], object)
    subjects = names[source.integers(0, entities, facts)]
    subjects[source.random(facts) < 0.02] = _OFTEN
    objects = names[source.integers(0, entities, facts)]
    values = source.random(facts) < 0.3
    objects[values] = np.array([f"thing {number}" for number in range(entities)], object)[
        source.integers(0, entities, int(values.sum()))
    ]
    at = [_START + timedelta(seconds=int(second)) for second in source.integers(0, 500 * 86_400, facts)]
    columns = {
        "period": [f"{moment:%Y-%m-%dT%H}" for moment in at],
        "id": [f"{number:032x}" for number in range(facts)],
        "workspace_id": [SCOPE.workspace_id] * facts,
        "agent_id": [SCOPE.agent_id] * facts,
        "identity": [""] * facts,
        "scope": [SCOPE.key] * facts,
        "verb": ["INSERT"] * facts,
        "subject_id": [name.lower() for name in subjects],
        "subject": subjects,
        "predicate": np.array(_PREDICATES, object)[source.integers(0, len(_PREDICATES), facts)],
        "object": objects,
        "confidence": source.choice([0.6, 0.8, 1.0], facts),
        "weight": [None] * facts,
        "evidence_id": [f"message:2024-01-01T00:{number:032x}" for number in range(facts)],
        "is_edit": [False] * facts,
        "conversation_id": ["c"] * facts,
        "turn": [0] * facts,
        "place": [0] * facts,
        "event_at": at,
        "speaker": ["Anna"] * facts,
        "received_at": at,
        "users": [[]] * facts,
    }
    return pa.table(columns, schema=GRAPH_OPERATIONS.schema)


def _name(number: int) -> str:
    return f"Person {number}"


def _fold(lake: Lake, facts: int) -> dict[str, Cell]:
    rows = _operations(facts)
    lake.tables.replace(GRAPH_OPERATIONS, set(rows["period"].to_pylist()), rows)
    sync_operations(lake, set(rows["period"].to_pylist()))
    started = time.perf_counter()
    refold_graph(lake, [SCOPE])
    whole = time.perf_counter() - started
    writer = MemoryWriter.open(lake.storage.uri, workspace_id=SCOPE.workspace_id, agent_id=SCOPE.agent_id)
    hours = []
    for number in range(3):
        changes = [
            {"edit": "INSERT", "subject": _name(number), "predicate": "likes", "object": f"new {number} {each}"}
            for each in range(10)
        ]
        writer.graph.apply(changes, now=_NOW + timedelta(minutes=number))
        files = lake.journal.pending()
        edits: list[Edit] = [edit for file in files for edit in lake.journal.read(file).edits]
        started = time.perf_counter()
        fold_graph(lake, list(files[0].hours), edits)
        hours.append(time.perf_counter() - started)
        lake.journal.acknowledge(files)
    return {"facts": facts, "fold": whole, "an hour": p50(hours)}


def _open(lake: Lake) -> tuple[MemoryReader, float]:
    reader = MemoryReader.open(lake.storage.uri, workspace_id=SCOPE.workspace_id, agent_id=SCOPE.agent_id)
    return reader, milliseconds(lambda number: reader.graph.facts_about(_name(number)), 1)


class _Dictionary:
    """The current facts by source and by target."""

    def __init__(self, lake: Lake) -> None:
        rows = lake.graph_rows.read([SCOPE], where=IS_FACT)
        names = ("source_id", "label", "target_id", "updated_at", "valid_to")
        self.by_end: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
        for source, label, target, updated_at, valid_to in zip(
            *(rows[name].to_pylist() for name in names), strict=True
        ):
            if valid_to is None:
                fact = (updated_at, source, label, target)
                self.by_end[source].append(fact)
                if target != source:
                    self.by_end[target].append(fact)

    def facts_about(self, name: str) -> list[tuple[object, ...]]:
        return sorted(self.by_end[name.lower()], reverse=True)[:_NEWEST]

    def neighbors(self, name: str) -> set[object]:
        own = name.lower()
        first = {end for fact in self.by_end[own] for end in (fact[1], fact[3])} - {own}
        second = {end for one in first for fact in self.by_end[str(one)] for end in (fact[1], fact[3])}
        return (first | second) - {own}


def _lookups(lake: Lake, graph: Graph, facts: int) -> list[dict[str, Cell]]:
    dictionary = _Dictionary(lake)
    chance = random.Random(facts)
    asked = [_name(chance.randrange(facts // 4)) for _ in range(_LOOKUPS)]
    ways: list[tuple[str, Callable[[str], object], Callable[[str], object], list[str]]] = [
        ("facts about one", partial(graph.facts_about, limit=_NEWEST), dictionary.facts_about, asked),
        ("facts about User", partial(graph.facts_about, limit=_NEWEST), dictionary.facts_about, [_OFTEN] * 20),
        ("two steps from one", lambda name: graph.neighbors(name, 2, limit=_MOST), dictionary.neighbors, asked),
        ("two steps from User", lambda name: graph.neighbors(name, 2, limit=_MOST), dictionary.neighbors, [_OFTEN] * 5),
    ]
    rows: list[dict[str, Cell]] = []
    for what, ours, theirs, names in ways:
        ours(names[0])
        mine, other = [], []
        for name in names:
            mine.append(_milliseconds(ours, name))
            other.append(_milliseconds(theirs, name))
        found = [graph.neighbors(name, 2).total for name in names[:3]] if "steps" in what else [0]
        assert "steps" not in what or found == [len(dictionary.neighbors(name)) for name in names[:3]]
        rows.append(
            {
                "facts": facts,
                "what": what,
                "p50": p50(mine),
                "p95": p95(mine),
                "dictionary p50": p50(other),
                "p95 ": p95(other),
            }
        )
    return rows


def _milliseconds(ask: Callable[[str], object], name: str) -> float:
    return milliseconds(lambda _: ask(name), 0)


def _others(lake: Lake, graph: Graph) -> dict[str, Cell]:
    questions = [f"What does person {number} like, and who works with Person {number + 1}?" for number in range(20)]
    sql = "SELECT label, count(*) AS number FROM facts GROUP BY label ORDER BY number DESC"
    search = [milliseconds(lambda number: graph.search(questions[number], now=_NOW), number) for number in range(20)]
    graph.query(sql)
    query = [milliseconds(lambda _: graph.query(sql), number) for number in range(5)]
    writer = MemoryWriter.open(lake.storage.uri, workspace_id=SCOPE.workspace_id, agent_id=SCOPE.agent_id)
    numbers = count()
    found = []
    for _ in range(_WRITES):
        number = next(numbers)
        started = time.perf_counter()
        writer.graph.insert(_name(number), "likes", f"secret {number}", now=_NOW + timedelta(hours=1))
        [newest, *_] = graph.facts_about(_name(number), limit=_NEWEST)
        found.append((time.perf_counter() - started) * 1000)
        assert newest.target == f"secret {number}"
    held, _ = memory()
    return {"search": p50(search), "query": p50(query), "written, found": p50(found), "MB": held}
