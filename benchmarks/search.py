"""Latency, recall and memory of searches as one agent's memory grows.

One agent's memory grows to about 1,000, 6,000, 100,000 and 1,000,000 facts (``--quick``: to 100,000) in less than a
year, 56 messages an hour. Messages, facts, ids and words come from the real extractor. They are written directly to the
``messages`` table and the index, in large batches, without journal, facts table, ledger and summaries, because the
whole pipeline would take much longer for a million (see ``ingest`` and ``backfill``). Vectors stand in for those of a
trained model (:class:`StandIn`): dense, and with full weight in ranking.

At each size the queries alternate between the ways, in one warm process, so that a busy machine slows them equally:

- ``search_memory(query=…)``, ten results of the last year: the query's vector, pending journal entries, filters
  and ranking;
- the same within the last 7 days, and ``search_memory()`` without a text: newest first;
- NumPy: the query's vector, all cosines, the ten highest; and once more with a given vector. It filters nothing, reads
  no words and returns row numbers: a lower bound for vector search.

*Held* is a reader that may hold the whole table in memory, *default* one with default settings: it searches a table of
more than :data:`DEFAULT_ROWS` rows on disk, through LanceDB and its approximate index.

Recall is against an exact run of the same ranking: no sketches, full-precision vectors, and all signals of every row
instead of candidates only (three constants are set for that reader; no code is changed). ``recall@10`` counts the ids
of the exact ten that are found. ``of equal score`` counts hits that score no less than the exact tenth, to 0.001,
because generated sentences often tie and the last bit decides which is the tenth. It means nothing for the table on
disk, where scores are relative to the found rows.

The million needs about 14 GB of memory and 20 GB of disk.

A new process imports everything, then opens a reader and searches (``open, first search``) with cached files. After 50
searches it reports its memory, and the imports' part of it.

``written, found`` is ``MemoryWriter.write`` and the next search together, without a pipeline run. ``after indexing`` is
the first search after an hour of 56 messages was indexed, which changes the table in memory.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import subprocess
import sys
import time
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.generator import START, WORKSPACE, agent_name, conversation, query, sentence
from benchmarks.measure import Cell, Table, memory, milliseconds, p50, p95, progress
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.facts import facts_to_rows, messages_to_rows
from memory_pipeline.lake.index import vector_index
from memory_pipeline.lake.index.index_rows import facts_to_index, vectors_of
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.reader import MemoryReader
from memory_pipeline.search import scoring, vector_sketch
from memory_pipeline.search.index_overlay import DEFAULT_ROWS
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.model_calls import Use
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.reader import Hits

AGENT = agent_name(0)
SCOPE = Scope(WORKSPACE, AGENT)
RESULTS = 10
_SIZES = (1_000, 6_000, 100_000, 1_000_000)
_AN_HOUR, _FACTS_A_MESSAGE = 56, 2.22
#: Messages per write to the index.
_BATCH = 20_000
_WARM_UP, _SEARCHES, _WRITES, _PROCESSES = 5, 60, 10, 3
_SEARCHES_OF_A_PROCESS = 50
#: Above this number of rows, exact searches and new processes take seconds each, so fewer are run.
_MANY = 500_000
_EXACT, _EXACT_OF_MANY = 60, 20
_SAME_SCORE = 0.001
_NEVER = sys.maxsize


class StandIn:
    """Dense vectors in place of a trained model's. Texts that share words or parts of words are close.

    A fixed random projection maps the project's 1,024 hashed features to 384 numbers and nearly keeps angles (Johnson &
    Lindenstrauss, 1984). No number is zero. The vectors carry no meaning.
    """

    name = "benchmark-stand-in-1"
    dimension = 384

    def __init__(self) -> None:
        self._inner = HashingEmbedder(1024)
        random_numbers = np.random.default_rng(1).standard_normal((1024, self.dimension))
        self._projection = random_numbers.astype(np.float32)

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension)."""
        projected = self._inner.embed(texts, uses) @ self._projection
        unit: NDArray[np.float32] = projected / np.linalg.norm(projected, axis=1, keepdims=True)
        return unit


class Growing:
    """A lake in which one agent's memory grows without a pipeline."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder)
        self.lake = Lake(self.uri)
        self.lake.ensure()
        self.embedder = StandIn()
        self.lake.index.adopt(self.embedder)
        self.hours = 0
        self._extractor = DeterministicExtractor("UTC")
        self._admission = Admission(START.date(), START + timedelta(days=3_660))

    @property
    def now(self) -> datetime:
        """The end of the last hour in memory."""
        return START + timedelta(hours=self.hours)

    @property
    def facts(self) -> int:
        """The number of facts in the index."""
        return self.lake.index.count(SCOPE, Grain.WORKING)

    def grow(self, facts: int) -> None:
        """Add hours up to about the given number of facts."""
        started = time.perf_counter()
        while (missing := facts - self.facts) > 0.02 * facts:
            self.add_hours(max(1, round(min(missing / _FACTS_A_MESSAGE, _BATCH) / _AN_HOUR)))
        progress(f"{self.facts:,} facts, {time.perf_counter() - started:.0f} s")

    def add_hours(self, count: int) -> None:
        """Put the next hours into the messages table and the index."""
        messages: list[Message] = []
        for number in range(self.hours, self.hours + count):
            talk = conversation(random.Random(number), AGENT, START + timedelta(hours=number), _AN_HOUR)
            messages += read_messages(talk, self._admission)[0]
        self.hours += count
        periods = {message.hour for message in messages}
        self.lake.tables.replace(MESSAGES, {period.key for period in periods}, messages_to_rows(messages))
        self._index(messages, periods)

    def _index(self, messages: Sequence[Message], periods: set[Period]) -> None:
        rows = facts_to_rows(self._extractor.facts_of(messages))
        numbers = self.embedder.embed(rows["content"].to_pylist())
        offsets = np.arange(len(numbers) + 1, dtype=np.int32) * self.embedder.dimension
        made = {
            "vector": pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers.ravel())),
            "embed_model": pa.array([self.embedder.name] * len(numbers)),
        }
        for name, column in made.items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        self.lake.index.replace(Grain.WORKING, periods, facts_to_index(rows, self.embedder.dimension))

    def reader(self, resident_rows: int = DEFAULT_ROWS) -> MemoryReader:
        """Open a reader that may hold the given number of rows in memory."""
        return open_reader(self.uri, resident_rows)


def open_reader(uri: str, resident_rows: int) -> MemoryReader:
    """Open a reader of the agent's memory."""
    return MemoryReader.open(
        uri, workspace_id=WORKSPACE, agent_id=AGENT, embedder=StandIn(), resident_rows=resident_rows
    )


def queries(count: int) -> list[str]:
    """Return questions, the same every time."""
    source = random.Random("queries")
    return [query(source) for _ in range(count)]


def nearest(rows: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.intp]:
    """Return the rows of the ten highest cosines, highest first; all vectors have length 1."""
    cosines = rows @ vector
    best = np.argpartition(cosines, -RESULTS)[-RESULTS:]
    return best[np.argsort(-cosines[best])]


def in_turns(ways: Mapping[str, Callable[[int], object]], count: int) -> dict[str, list[float]]:
    """Return the milliseconds of `count` calls of each way, after a warm-up."""
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(-_WARM_UP, count):
        for way, action in ways.items():
            spent = milliseconds(action, number)
            if number >= 0:
                taken[way].append(spent)
    return taken


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with a lake below `folder`."""
    latency = Table(
        "search latency",
        f"milliseconds of {_SEARCHES} searches, warm, in turns; ratio: to the p50 of NumPy with the vector at hand",
    )
    recall = Table("recall", f"of the {RESULTS} hits of an exact run of the same ranking, mean over the queries")
    cold = Table(
        "a new process",
        f"milliseconds after the imports, megabytes after {_SEARCHES_OF_A_PROCESS} searches; "
        f"medians of {_PROCESSES} processes; of more than {_MANY:,} facts, of one",
    )
    writes = Table(
        "written, found, indexed",
        f"milliseconds, p50 of {_WRITES} messages that are not in the index, and of 3 searches after indexing",
    )
    memory_of_agent = Growing(folder / "lake")
    for size in _SIZES[:-1] if quick else _SIZES:
        memory_of_agent.grow(size)
        facts = memory_of_agent.facts
        readers = {"held": memory_of_agent.reader(2 * facts)}
        if facts > DEFAULT_ROWS:
            readers["default, on disk"] = memory_of_agent.reader()
        latency.rows += _latencies(memory_of_agent, readers)
        recall.rows += _recalls(memory_of_agent, readers)
        cold.rows += [_cold(memory_of_agent, way, 2 * facts if way == "held" else DEFAULT_ROWS) for way in readers]
        writes.rows += [_writes(memory_of_agent, way, reader) for way, reader in readers.items()]
        del readers
        gc.collect()
    return [latency, recall, cold, writes]


def _latencies(grown: Growing, readers: Mapping[str, MemoryReader]) -> list[dict[str, Cell]]:
    asked, now = queries(_SEARCHES), grown.now
    at_hand = grown.embedder.embed(asked)
    rows = vectors_of(grown.lake.index.read([SCOPE], ["vector"], "grain = 'working'"), grown.embedder.dimension)
    ways: dict[str, Callable[[int], object]] = {
        "NumPy, vector at hand": lambda n: nearest(rows, at_hand[n]),
        "NumPy, with the query's vector": lambda n: nearest(rows, grown.embedder.embed([asked[n]])[0]),
    }
    for name, reader in readers.items():
        ways[f"search_memory, {name}"] = partial(_nth, reader, asked, now)
        ways[f"… of 7 days, {name}"] = partial(_nth, reader, asked, now, days=7)
        ways[f"… newest first, {name}"] = partial(_nth, reader, [None] * _SEARCHES, now)
    taken = in_turns(ways, _SEARCHES)
    base = p50(taken["NumPy, vector at hand"])
    return [
        {"way": way, "facts": len(rows), "p50 ms": p50(ms), "p95 ms": p95(ms), "ratio": p50(ms) / base}
        for way, ms in taken.items()
    ]


def _nth(reader: MemoryReader, texts: Sequence[str | None], now: datetime, number: int, *, days: float = 365) -> Hits:
    return _search(reader, texts[number], now, days)


def _search(reader: MemoryReader, text: str | None, now: datetime, days: float = 365) -> Hits:
    return reader.search_memory(maximum_days_ago=days, max_results=RESULTS, query=text, now=now)


def _recalls(grown: Growing, readers: Mapping[str, MemoryReader]) -> list[dict[str, Cell]]:
    facts = grown.facts
    asked = queries(_EXACT_OF_MANY if facts > _MANY else _EXACT)
    with (
        patch.object(vector_sketch, "SKETCHED_FROM", _NEVER),
        patch.object(vector_index, "HALVED_FROM", _NEVER),
        patch.object(scoring, "_CANDIDATES", _NEVER),
    ):
        exact = grown.reader(2 * facts)
        started = time.perf_counter()
        wanted = [_search(exact, text, grown.now) for text in asked]
        progress(f"{len(asked)} exact searches took {time.perf_counter() - started:.0f} s")
    found: list[dict[str, Cell]] = []
    for name, reader in readers.items():
        pairs = [(_search(reader, text, grown.now), hits) for text, hits in zip(asked, wanted, strict=True)]
        found.append(
            {
                "reader": name,
                "facts": facts,
                "queries": len(asked),
                "recall@10": statistics.fmean(_share(hits, best) for hits, best in pairs),
                "of equal score": statistics.fmean(
                    sum(hit.score >= best[-1].score - _SAME_SCORE for hit in hits) / len(best) for hits, best in pairs
                ),
                "same first": f"{sum(hits[0].id == best[0].id for hits, best in pairs)} of {len(pairs)}",
            }
        )
    return found


def _share(hits: Hits, wanted: Hits) -> float:
    return len({hit.id for hit in hits} & {hit.id for hit in wanted}) / len(wanted)


def _cold(grown: Growing, way: str, resident_rows: int) -> dict[str, Cell]:
    """Measure new processes of this module's :func:`_child`."""
    told: list[dict[str, float]] = []
    for _ in range(_PROCESSES if grown.facts <= _MANY else 1):
        arguments = [grown.uri, str(resident_rows), grown.now.isoformat()]
        command = [sys.executable, "-m", "benchmarks.search", *arguments]
        told.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {"reader": way, "facts": grown.facts, **{name: p50([row[name] for row in told]) for name in told[0]}}


def _child(uri: str, resident_rows: str, now: str) -> None:
    """Open a reader in this process, search, and print time and memory as JSON."""
    asked, at = queries(_SEARCHES_OF_A_PROCESS), datetime.fromisoformat(now)
    imported, _ = memory()
    started = time.perf_counter()
    reader = open_reader(uri, int(resident_rows))
    _search(reader, asked[0], at)
    first = (time.perf_counter() - started) * 1000
    second = milliseconds(lambda n: _search(reader, asked[n], at), 1)
    for text in asked[2:]:
        _search(reader, text, at)
    now_held, most = memory()
    told = {
        "open, first search": first,
        "second search": second,
        "MB": now_held,
        "of imports": imported,
        "MB at most": most,
    }
    json.dump(told, sys.stdout)


def _writes(grown: Growing, way: str, reader: MemoryReader) -> dict[str, Cell]:
    writer = MemoryWriter.open(grown.uri, workspace_id=WORKSPACE, agent_id=AGENT)
    facts, now = grown.facts, grown.now
    source = random.Random(f"writes {way} {facts}")
    written: list[float] = []
    found: list[float] = []
    seen = 0
    _search(reader, "warm up", now)
    for number in range(_WRITES):
        text = f"Code {facts}-{number}: {sentence(source)}"
        message = {"role": "user", "name": "Nadia", "content": text, "timestamp": now.isoformat()}
        started = time.perf_counter()
        writer.write({"conversation_id": f"late-{way}-{facts}-{number}", "messages": [message]}, now=now)
        written.append((time.perf_counter() - started) * 1000)
        hits = _search(reader, text, now)
        found.append((time.perf_counter() - started) * 1000)
        seen += bool(hits) and text in hits[0].content
    journal = grown.lake.journal
    journal.acknowledge(journal.pending(SCOPE))
    indexed = []
    asked = queries(3)
    for number in range(len(asked)):
        grown.add_hours(1)
        indexed.append(milliseconds(partial(_nth, reader, asked, grown.now), number))
    return {
        "reader": way,
        "facts": facts,
        "write returned": p50(written),
        "written, found": p50(found),
        "found first": f"{seen} of {_WRITES}",
        "after indexing": p50(indexed),
    }


if __name__ == "__main__":
    _child(*sys.argv[1:])
