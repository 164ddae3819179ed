"""Search against other stores: the same rows, vectors and queries, ten hits, in one process and one run.

The stores are not dependencies of the project. Install them in a separate environment, from the project's folder::

    python3.11 -m venv /tmp/peers
    /tmp/peers/bin/pip install -e . -r benchmarks/requirements-peers.txt
    /tmp/peers/bin/python -m benchmarks peers

Missing stores are skipped, with a note. Nothing is sent anywhere: telemetry is off, and no model is called or
downloaded.

One agent's facts (6,000 and 100,000; ``--quick``: 6,000) and their vectors are those of :mod:`benchmarks.search`. A
search goes from the query's text to ten hits with their texts. All stores use the same embedder for the query's vector.
They take turns, query by query, until their time is used up. Their work differs:

- *NumPy* compares all vectors and looks up the texts: no words, no filters, nothing on disk. A lower bound.
- *memory-pipeline* is ``search_memory`` of the last year, warm, with the table in memory: words, vectors,
  conversations, speakers, filters, pending journal entries. Its rows go to the index, not to the journal.
- *LanceDB* compares all vectors, adds full-text search and merges both with its default reranker.
- *Chroma* searches by vector (HNSW, with its defaults and cosine), in a persistent client.
- *mem0* adds without inference to its embedded vector store (Qdrant, on disk) and searches with its defaults. Without
  spaCy and fastembed, which download models, it compares by vector alone. Its ``add`` takes one row at a time. After
  120 seconds the other rows go to its vector store in batches, in the form that ``add`` gives them, and the total time
  is extrapolated.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import time
import uuid
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

import lancedb

from benchmarks.measure import Cell, Table, p50, p95, progress
from benchmarks.search import AGENT, RESULTS, SCOPE, Growing, StandIn, nearest, open_reader, queries
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.index_rows import vectors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_SIZES = (6_000, 100_000)
_WARM_UP, _SEARCHES = 5, 60
#: Limits in seconds: of each store's searches per size, and of mem0's `add`.
_SEARCHING, _ADDING = 90, 120
_BATCH = 5_000
_ENVIRONMENT = {"ANONYMIZED_TELEMETRY": "False", "MEM0_TELEMETRY": "False", "HF_HUB_OFFLINE": "1"}


class Rows:
    """Facts and their vectors, from rows of an index."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.ids: list[str] = table["id"].to_pylist()
        self.texts: list[str] = table["content"].to_pylist()
        self.vectors: NDArray[np.float32] = vectors_of(table, StandIn.dimension)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)


class Store(Protocol):
    """A store to measure."""

    def add(self, rows: Rows) -> float:
        """Add rows. Return the seconds."""

    def search(self, text: str) -> Sequence[str]:
        """Return the texts of ten hits."""


class Numpy:
    """All vectors in memory."""

    def __init__(self, folder: Path) -> None:
        del folder
        self._embedder = StandIn()

    def add(self, rows: Rows) -> float:
        """Keep the rows."""
        started = time.perf_counter()
        self._rows, self._vectors = rows, rows.vectors.copy()
        return time.perf_counter() - started

    def search(self, text: str) -> Sequence[str]:
        """Compare all."""
        return [self._rows.texts[row] for row in nearest(self._vectors, self._embedder.embed([text])[0])]


class Ours:
    """The index and a reader of this project."""

    def __init__(self, folder: Path) -> None:
        self._uri = str(folder)

    def add(self, rows: Rows) -> float:
        """Put the rows into the index of a new lake."""
        lake = Lake(self._uri)
        lake.ensure()
        lake.index.adopt(StandIn())
        started = time.perf_counter()
        hours = rows.table["period"].unique().to_pylist()
        periods = [Period.parse(Grain.WORKING, hour) for hour in hours]
        lake.index.replace(Grain.WORKING, periods, rows.table)
        spent = time.perf_counter() - started
        self._reader = open_reader(self._uri, 2 * len(rows))
        self._now = max(rows.table["ends_at"].to_pylist())
        return spent

    def search(self, text: str) -> Sequence[str]:
        """Search the last year."""
        return [hit.content for hit in self._reader.search_memory(query=text, max_results=RESULTS, now=self._now)]


class LanceDb:
    """A table with full text search, and no index of vectors."""

    def __init__(self, folder: Path) -> None:
        self._database = lancedb.connect(str(folder))
        self._embedder = StandIn()

    def add(self, rows: Rows) -> float:
        """Make the table and its index of words."""
        started = time.perf_counter()
        self._table = self._database.create_table("facts", rows.table.select(["id", "content", "vector"]))
        self._table.create_fts_index("content")
        return time.perf_counter() - started

    def search(self, text: str) -> Sequence[str]:
        """Search by vector and words."""
        vector = self._embedder.embed([text])[0]
        hybrid: Any = self._table.search(query_type="hybrid", vector_column_name="vector")
        texts: list[str] = (
            hybrid.vector(vector).text(text).distance_type("cosine").limit(RESULTS).to_arrow()["content"].to_pylist()
        )
        return texts


class Chroma:
    """A collection of a persistent client."""

    def __init__(self, folder: Path) -> None:
        chromadb: Any = importlib.import_module("chromadb")
        settings = importlib.import_module("chromadb.config").Settings(anonymized_telemetry=False)
        self._client = chromadb.PersistentClient(str(folder), settings=settings)
        self._collection = self._client.create_collection(
            "facts", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )
        self._embedder = StandIn()

    def add(self, rows: Rows) -> float:
        """Add in batches as large as it takes."""
        started = time.perf_counter()
        size = self._client.get_max_batch_size()
        for first in range(0, len(rows), size):
            part = slice(first, first + size)
            self._collection.add(ids=rows.ids[part], embeddings=rows.vectors[part], documents=rows.texts[part])
        return time.perf_counter() - started

    def search(self, text: str) -> Sequence[str]:
        """Search by vector."""
        found = self._collection.query(
            query_embeddings=self._embedder.embed([text]), n_results=RESULTS, include=["documents", "distances"]
        )
        texts: list[str] = found["documents"][0]
        return texts


class Mem0:
    """mem0's memory class with precomputed vectors."""

    def __init__(self, folder: Path) -> None:
        os.environ["MEM0_DIR"] = str(folder / "settings")
        nobody = {"provider": "openai", "config": {"api_key": "none; nothing is asked"}}
        store = {"path": str(folder / "qdrant"), "on_disk": True, "embedding_model_dims": StandIn.dimension}
        mem0: Any = importlib.import_module("mem0")
        logging.getLogger("mem0").setLevel(logging.ERROR)
        self._memory = mem0.Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": {**store, "collection_name": "facts"}},
                "history_db_path": str(folder / "history.db"),
                "llm": nobody,
                "embedder": nobody,
            }
        )
        self._memory.embedding_model = _Given({})

    def add(self, rows: Rows) -> float:
        """Add one by one within the time limit, then in batches. Return the extrapolated seconds for all rows."""
        self._memory.embedding_model = _Given(dict(zip(rows.texts, rows.vectors.tolist(), strict=True)))
        started, added = time.perf_counter(), 0
        while added < len(rows) and time.perf_counter() - started < _ADDING:
            self._memory.add(rows.texts[added], user_id=AGENT, infer=False)
            added += 1
        spent = time.perf_counter() - started
        if added < len(rows):
            progress(f"mem0 added {added:,} of {len(rows):,} in {spent:.0f} s; the others go to its vector store")
        for first in range(added, len(rows), _BATCH):
            part = slice(first, first + _BATCH)
            now = datetime.now(UTC).isoformat()
            self._memory.vector_store.insert(
                vectors=rows.vectors[part].tolist(),
                ids=[str(uuid.uuid4()) for _ in rows.ids[part]],
                payloads=[
                    {
                        "user_id": AGENT,
                        "role": "user",
                        "data": text,
                        "hash": hashlib.md5(text.encode()).hexdigest(),
                        "created_at": now,
                        "updated_at": now,
                        "text_lemmatized": text,
                    }
                    for text in rows.texts[part]
                ],
            )
        return spent * len(rows) / added

    def search(self, text: str) -> Sequence[str]:
        """Search with its defaults."""
        found = self._memory.search(text, filters={"user_id": AGENT}, top_k=RESULTS)
        return [hit["memory"] for hit in found["results"]]


class _Given:
    """An embedder for mem0: precomputed vectors of known texts, computed ones of others."""

    def __init__(self, known: dict[str, list[float]]) -> None:
        self._known = known
        self._embedder = StandIn()

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        del memory_action
        vector: list[float] = self._known.get(text) or self._embedder.embed([text])[0].tolist()
        return vector

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        return [self.embed(text, memory_action) for text in texts]


_STORES: dict[str, tuple[Callable[[Path], Store], str]] = {
    "NumPy": (Numpy, "numpy"),
    "memory-pipeline": (Ours, "memory-pipeline"),
    "LanceDB, hybrid": (LanceDb, "lancedb"),
    "Chroma": (Chroma, "chromadb"),
    "mem0": (Mem0, "mem0ai"),
}


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with stores below `folder`."""
    os.environ.update(_ENVIRONMENT)
    table = Table(
        "search beside other stores",
        f"milliseconds of at most {_SEARCHES} searches, warm, in turns; ratio: to NumPy's p50; "
        "seconds to take the rows, whose vectors are there",
    )
    grown = Growing(folder / "facts")
    for size in _SIZES[:1] if quick else _SIZES:
        grown.grow(size)
        table.rows += _beside(folder / str(size), Rows(grown.lake.index.read([SCOPE], None, "grain = 'working'")))
    return [table]


def _beside(folder: Path, rows: Rows) -> list[dict[str, Cell]]:
    stores: dict[str, Store] = {}
    adding: dict[str, float] = {}
    for name, (kind, package) in _STORES.items():
        place = folder / package
        place.mkdir(parents=True)
        try:
            stores[name] = kind(place)
        except ImportError as error:
            progress(f"{name} is left out: {error}; see the docstring of benchmarks/peers.py for how to install it")
            continue
        adding[name] = stores[name].add(rows)
        progress(f"{name}: {len(rows):,} rows in {adding[name]:.1f} s")
    taken = _in_turns(stores)
    base = p50(taken["NumPy"])
    return [
        {
            "store": name,
            "version": version(_STORES[name][1]),
            "facts": len(rows),
            "searches": len(ms),
            "p50 ms": p50(ms),
            "p95 ms": p95(ms),
            "ratio": p50(ms) / base,
            "adding, s": adding[name],
        }
        for name, ms in taken.items()
    ]


def _in_turns(stores: dict[str, Store]) -> dict[str, list[float]]:
    """Return milliseconds of each store's searches."""
    asked = queries(_SEARCHES)
    taken: dict[str, list[float]] = {name: [] for name in stores}
    used = dict.fromkeys(stores, 0.0)
    for number in range(-_WARM_UP, _SEARCHES):
        for name, store in stores.items():
            if used[name] > _SEARCHING:
                continue
            started = time.perf_counter()
            found = store.search(asked[number])
            spent = time.perf_counter() - started
            if len(found) != RESULTS:
                raise RuntimeError(f"{name} found {len(found)} of {RESULTS} for {asked[number]!r}")
            used[name] += spent
            if number >= 0:
                taken[name].append(spent * 1000)
    return taken
