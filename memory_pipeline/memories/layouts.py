"""Lay out one scope's durable memories for ranking.

There are two layouts: contents and vectors, which are read from the table, and headers, which are in memory already.
Rows of the table are laid out once. Memories from pending events are in a second, small layout; the rows they replace
are masked.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.fields import Origin
from memory_pipeline.domain.memories.record import CONTEXTS, DurableMemory, Status, Temperature
from memory_pipeline.domain.sessions import searchable
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.lake.index.filters import flags_of, quoted
from memory_pipeline.lake.schemas import MEMORIES
from memory_pipeline.overlay import Derived
from memory_pipeline.search.copies import MADE_OF
from memory_pipeline.search.row_block import RowBlock, speaker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.memories.snapshot import MemorySnapshot, Rows
    from memory_pipeline.memories.state import MemoryOverlay

_TEXTS = ("title", "content", "subject", "predicate", "object", "tags")
_FIGURES = ("importance", "confidence", "decay_rate", "last_accessed_at", "updated_at", "created_at")
#: Attributes that filters compare as a whole.
_COMPARED = tuple(Origin.__annotations__)
_COLUMNS = ("memory_id", "kind", *_TEXTS, *_FIGURES, *_COMPARED)
_VECTORS = ("vector", "embed_model")
#: In a layout of headers, the hook replaces the content.
_HEADER_COLUMNS = tuple(name for name in _COLUMNS if name != "content")
#: Read with the content.
_WITH_CONTENT = ("value", "key", "source_ids")
_NEWEST = "is_newest"
_COLD = pc.field("temperature") == Temperature.COLD.value
_ACTIVE = pc.field("status") == Status.ACTIVE.value
_CONTEXT = pc.coalesce(pc.field("context"), pa.scalar("")) == CONTEXTS
_TIME = pa.timestamp("us", tz="UTC")


class Pool(StrEnum):
    """A set of memories to search: those that recall may return, or cold ones.

    Revoked memories and descriptions of contexts are in neither.
    """

    RECALLED = "recalled"
    ARCHIVE = "archive"

    def holds(self, memory: DurableMemory) -> bool:
        """Return whether a memory is in the pool."""
        if self is Pool.RECALLED:
            return memory.is_recalled
        return not memory.is_recalled and memory.status is not Status.DEPRECATED and memory.context != CONTEXTS

    @property
    def where(self) -> str:
        """The pool as a condition on stored rows, in SQL."""
        active, cold = f"status = '{Status.ACTIVE}'", f"temperature = '{Temperature.COLD}'"
        searched = f"{_NEWEST} AND (context IS NULL OR context != '{CONTEXTS}')"
        if self is Pool.RECALLED:
            return f"{searched} AND {active} AND NOT {cold}"
        return f"{searched} AND status != '{Status.DEPRECATED}' AND (NOT {active} OR {cold})"


#: Layouts, each with the ids of its rows that another layout replaces.
Layouts = list[tuple[RowBlock, "Collection[str]"]]


class MemoryLayouts:
    """The layouts of one scope. Safe to use from several threads."""

    def __init__(self, state: MemoryOverlay, embedder: Embedder) -> None:
        self._state = state
        self._embedder = embedder
        self._pools = {pool: Derived(partial(self._laid_out, pool), state.is_of) for pool in Pool}
        self._headers = Derived(self._headers_laid_out, state.is_of)
        #: Layouts of the table's rows; None for headers.
        self._tables: dict[Pool | None, tuple[Rows, RowBlock]] = {}
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def of(self, pool: Pool | None, until: datetime | None) -> tuple[MemorySnapshot, Layouts]:
        """Return the memories at a time, and the layouts of a pool, or the headers of recalled ones for None."""
        derived = self._headers if pool is None else self._pools[pool]
        return derived.of(lambda: self._state.snapshot(until))

    def _headers_laid_out(self, top: MemorySnapshot) -> Layouts:
        memories = [memory for memory in top.above.newest.values() if memory.is_recalled]
        table = self._table(None, top, lambda: _header_block(top.rows.table.filter(_ACTIVE & ~_COLD & ~_CONTEXT)))
        return [(_header_block(_table_of(memories)), ()), (table, top.above.newest.keys())]

    def _laid_out(self, pool: Pool, top: MemorySnapshot) -> Layouts:
        """Return the layouts of a pool, each with the ids of its rows that another layout replaces."""

        def read() -> RowBlock:
            rows = self._state.rows(pool.where, {*_COLUMNS, *_WITH_CONTENT, *_VECTORS})
            return _row_block(rows, _vectors_by(rows, self._embedder), self._state.scope)

        memories = [memory for memory in top.above.newest.values() if pool.holds(memory)]
        pending: Layouts = [(_row_block(_table_of(memories), self._vectors_of(memories), self._state.scope), ())]
        if not len(top.rows):
            return pending
        return [*pending, (self._table(pool, top, read), top.above.newest.keys())]

    def _table(self, pool: Pool | None, top: MemorySnapshot, lay_out: Callable[[], RowBlock]) -> RowBlock:
        """Return the layout of the table's rows, cached until they change."""
        known = self._tables.get(pool)
        if known is None or known[0] is not top.rows:
            known = self._tables[pool] = top.rows, lay_out()
        return known[1]

    def _vectors_of(self, memories: Sequence[DurableMemory]) -> NDArray[np.float32]:
        """Return the vectors of memories by content: cached, from the table, or new."""
        contents = list(dict.fromkeys(memory.content for memory in memories))
        cached = self._vectors
        known = {content: cached[content] for content in contents if content in cached}
        missing = [memory.id for memory in memories if memory.content not in known]
        if missing:
            where = f"{_NEWEST} AND memory_id IN ({', '.join(map(quoted, missing))})"
            rows = self._state.rows(where, {"content", *_VECTORS})
            stored = zip(rows["content"].to_pylist(), _vectors_by(rows, self._embedder), strict=True)
            known |= {content: vector for content, vector in stored if not np.isnan(vector[0])}
        new = [content for content in contents if content not in known]
        if new:
            known |= zip(new, self._embedder.embed(new), strict=True)
        self._vectors = {content: vector for content, vector in known.items() if not np.isnan(vector[0])}
        vectors = [known[memory.content] for memory in memories]
        return np.array(vectors, np.float32).reshape(len(memories), self._embedder.dimension)


def _table_of(memories: Sequence[DurableMemory]) -> pa.Table:
    """Return the columns of a layout of memories that are not stored yet."""
    schema = pa.schema([MEMORIES.schema.field(name) for name in (*_COLUMNS, "hook", *_WITH_CONTENT)])
    values = [[getattr(memory, "id" if name == "memory_id" else name) for memory in memories] for name in schema.names]
    return pa.table(list(map(pa.array, values, schema.types)), schema=schema)


def _header_block(rows: pa.Table) -> RowBlock:
    """Return a layout of headers without vectors; the hook replaces the content."""
    rows = rows.select(_HEADER_COLUMNS).append_column("content", rows["hook"])
    return _row_block(rows, np.full((rows.num_rows, 1), np.nan, np.float32))


def _row_block(rows: pa.Table, vectors: NDArray[np.float32], scope: Scope | None = None) -> RowBlock:
    """Return memories as rows for scoring; each is a conversation of its own."""
    texts = {name: rows[name].to_pylist() for name in ("memory_id", *_TEXTS)}
    entries = zip(*(rows[name].to_pylist() for name in ("context", "key", "value")), strict=True) if scope else ()
    texts["entry"] = [_words_of_entry(*entry) for entry in entries] or [""] * rows.num_rows
    ids, stated_at = rows["memory_id"], rows["updated_at"].cast(_TIME)
    nothing = pa.nulls(rows.num_rows, pa.string())
    columns: dict[str, Any] = {
        "id": ids,
        "period": pc.replace_substring_regex(ids, "^[^:]*:(.*):[^:]*$", "\\1"),
        "kind": rows["kind"],
        "content": rows["content"],
        "terms": pa.array(_terms(texts), pa.list_(pa.string())),
        "starts_at": stated_at,
        "ends_at": stated_at,
        "mentioned_at": pa.nulls(rows.num_rows, _TIME),
        "entities": pa.array(
            [[name for name in pair if name] for pair in zip(texts["subject"], texts["object"], strict=True)],
            pa.list_(pa.string()),
        ),
        "importance": rows["importance"],
        "conversation_id": nothing,
        "speaker": pa.array([speaker_of(content) for content in texts["content"]], pa.string()),
        "role": nothing,
        "turn": pa.nulls(rows.num_rows, pa.int32()),
        "position": pa.nulls(rows.num_rows, pa.int32()),
        "tags": rows["tags"],
        "source_ids": pa.array([[memory_id] for memory_id in texts["memory_id"]], pa.list_(pa.string())),
        "confidence": rows["confidence"],
        "decay_rate": rows["decay_rate"],
        **{name: rows[name] for name in _COMPARED},
        "created_at": rows["created_at"].cast(_TIME),
        MADE_OF: rows["source_ids"] if scope else pa.nulls(rows.num_rows, pa.list_(pa.string())),
        "used_at": pc.max_element_wise(_microseconds(stated_at), _microseconds(rows["last_accessed_at"])),
    }
    return RowBlock(pa.table(columns), vectors, scope)


def _terms(texts: dict[str, list[Any]]) -> Iterable[list[str]]:
    """Yield the words of each memory: those of its content, then those of title, terms, labels and an entry."""
    columns = (texts[name] for name in (*_TEXTS, "entry"))
    for title, content, subject, predicate, target, tags, entry in zip(*columns, strict=True):
        words = terms(content)
        label = predicate.replace("_", " ") if predicate else ""
        others = terms(" ".join([title, subject or "", label, target or "", *(tags or ()), entry]))
        yield [*words, *dict.fromkeys(word for word in others if word not in words)]


def _words_of_entry(context: str | None, key: str | None, value: str | None) -> str:
    """Return the words by which an entry of a context is found beside its content; none for other memories."""
    return f"{context} {searchable(key or '', value or 'null')}" if context else ""


def _vectors_by(rows: pa.Table, embedder: Embedder) -> NDArray[np.float32]:
    """Return the vectors of rows; NaN for rows without a vector of this embedder."""
    vectors = np.full((rows.num_rows, embedder.dimension), np.nan, np.float32)
    same_model = flags_of(pc.equal(rows["embed_model"], embedder.name))
    if same_model.any():
        numbers = rows["vector"].filter(pa.array(same_model)).combine_chunks().flatten().to_numpy(zero_copy_only=False)
        vectors[same_model] = numbers.reshape(-1, embedder.dimension)
    return vectors


def _microseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(_TIME).cast(pa.int64())
