"""How long a search takes, as one agent's memory grows, beside comparing all vectors with NumPy.

One agent's memory grows to about 1,000, 10,000 and 100,000 facts (``--quick``: to 10,000) with generated
conversations, 50 messages an hour, through the real steps (the journal is written with one call an hour). At each size,
in one process, after warming up:

- ``search_memory(working, query_text=…)``, ten results of the last year: the query's vector, LanceDB by vector and by
  words, ranking, and the journal's tail, which is empty;
- the same in a search for the last 7 days of those that the memory has;
- ``search_memory(working)`` without a text: the newest first;
- NumPy: the query's vector, all cosines, the ten highest; and once more with the query's vector at hand. It filters
  nothing, reads no words and returns numbers of rows, not rows: it is what vectors alone cost at least;
- a message written with ``MemoryWriter.write`` and searched at once, with no pipeline in between.

The ways take turns, query by query, so that a busy machine slows them alike. "as made" is the index as the steps leave
it; "maintained" after what the pipeline does to a table from time to time: ``optimize()``, and above 50,000 rows an
approximate index of the vectors (IvfRq).
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import lancedb
import numpy as np
from lancedb.index import IvfRq

from benchmarks.generator import START, WORKSPACE, agent_name, busy, query, sentence
from benchmarks.ingest import make_hours, write
from benchmarks.measure import Cell, Table, milliseconds, p50, p95, progress
from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.grains import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.lake.vectors import _APPROXIMATE_FROM
from memory_pipeline.models.selection import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from numpy.typing import NDArray

_AGENT = agent_name(0)
_AN_HOUR = 50
_RESULTS = 10
_WARM_UP, _SEARCHES, _WRITES = 5, 60, 10


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with a lake below `folder`."""
    lake = Lake(str(folder / "lake"))
    latency = Table(
        "search latency",
        f"milliseconds of {_SEARCHES} searches, warm; ratio: to the p50 of NumPy with the query's vector",
    )
    writes = Table("written to searchable", f"milliseconds, p50 of {_WRITES} messages, none of them in the index yet")
    hour, facts = 0, 0
    for size in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        while facts < 0.97 * size:
            # About 2.2 facts a message; in steps, so that the memory comes near its size.
            more = max(1, round((size - facts) / 2.25 / _AN_HOUR))
            started = time.perf_counter()
            write(lake, busy(1, more, more * _AN_HOUR, first_hour=hour))
            make_hours(lake)
            hour, facts = hour + more, lake.index.count(Scope(WORKSPACE, _AGENT), Grain.WORKING)
            progress(f"{facts:,} facts, {time.perf_counter() - started:.0f} s")
        now = START + timedelta(hours=hour)
        latency.rows += _latencies(lake, facts, "as made", now)
        asyncio.run(_maintain(lake, facts))
        latency.rows += _latencies(lake, facts, "maintained", now)
        writes.rows.append(_written_to_searchable(folder, lake, facts, now))
        make_hours(lake)  # what was written meanwhile
    return [latency, writes]


def _reader(lake: Lake) -> MemoryReader:
    return MemoryReader.open(lake.storage.uri, workspace_id=WORKSPACE, agent_id=_AGENT)


def _latencies(lake: Lake, facts: int, state: str, now: datetime) -> list[dict[str, Cell]]:
    reader, embedder = _reader(lake), default_models().embedder
    source = random.Random("queries")
    queries = [query(source) for _ in range(_SEARCHES)]
    at_hand = embedder.embed(queries)
    rows = lake.index.scan(Scope(WORKSPACE, _AGENT), Grain.WORKING)
    vectors = rows["vector"].combine_chunks().flatten().to_numpy().reshape(rows.num_rows, embedder.dimension)

    def search(number: int, days: float = 365) -> object:
        return reader.search_memory(maximum_days_ago=days, max_results=_RESULTS, query_text=queries[number], now=now)

    ways: dict[str, Callable[[int], object]] = {
        "NumPy, with the query's vector": lambda n: _highest(vectors, embedder.embed([queries[n]])[0]),
        "NumPy, vector at hand": lambda n: _highest(vectors, at_hand[n]),
        "search_memory, text": search,
        "search_memory, text, 7 days": lambda n: search(n, 7),
        "search_memory, newest": lambda _: reader.search_memory(max_results=_RESULTS, now=now),
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(-_WARM_UP, _SEARCHES):
        for way, action in ways.items():
            spent = milliseconds(action, number)
            if number >= 0:
                taken[way].append(spent)
    base = p50(next(iter(taken.values())))
    return [
        {"way": way, "facts": facts, "index": state, "p50 ms": p50(ms), "p95 ms": p95(ms), "ratio": p50(ms) / base}
        for way, ms in taken.items()
    ]


def _highest(vectors: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.intp]:
    """Return the rows of the ten highest cosines, highest first; all vectors have length 1."""
    cosines = vectors @ vector
    best = np.argpartition(cosines, -_RESULTS)[-_RESULTS:]
    return best[np.argsort(-cosines[best])]


async def _maintain(lake: Lake, facts: int) -> None:
    database = await lancedb.connect_async(lake.storage.locate(f"vectordb/{WORKSPACE}"))
    table = await database.open_table(f"{_AGENT}__{Grain.WORKING}")
    started = time.perf_counter()
    if facts >= _APPROXIMATE_FROM and "vector_idx" not in {index.name for index in await table.list_indices()}:
        await table.create_index("vector", config=IvfRq(distance_type="cosine"))
    await table.optimize()
    progress(f"maintenance took {time.perf_counter() - started:.1f} s")


def _written_to_searchable(folder: Path, lake: Lake, facts: int, now: datetime) -> dict[str, Cell]:
    writer = MemoryWriter.open(str(folder / "lake"), workspace_id=WORKSPACE, agent_id=_AGENT)
    reader = _reader(lake)
    reader.search_memory(query_text="warm up", now=now)
    source = random.Random(f"writes {facts}")
    written: list[float] = []
    found: list[float] = []
    seen = 0
    for number in range(_WRITES):
        text = f"Code {facts}-{number}: {sentence(source)}"
        message = {"role": "user", "name": "Nadia", "content": text, "timestamp": now.isoformat()}
        started = time.perf_counter()
        writer.write({"conversation_id": f"late-{facts}-{number}", "messages": [message]}, now=now)
        written.append((time.perf_counter() - started) * 1000)
        hits = reader.search_memory(query_text=text, max_results=1, now=now)
        found.append((time.perf_counter() - started) * 1000)
        seen += bool(hits) and text in hits[0].content
    return {
        "facts": facts,
        "write returned": p50(written),
        "search returned": p50(found),
        "found first": f"{seen} of {_WRITES}",
    }
