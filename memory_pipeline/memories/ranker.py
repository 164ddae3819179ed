"""Rank the durable memories of some scopes in memory, all together.

Rules rank by contents and vectors, which they read from the table. A model selects among headers, which are in memory
already. Memories are scored like facts (:mod:`memory_pipeline.search.scoring`), with their current relevance in place
of importance.

Rows are laid out for that once: contents and vectors, which are read from the table, and headers, which are in memory
already. Memories from pending events are in a second, small layout; the rows they replace are masked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.fields import Origin
from memory_pipeline.domain.memories.record import CONTEXTS, DurableMemory, Status, Temperature
from memory_pipeline.domain.sessions import searchable
from memory_pipeline.domain.text.calibration import DEFAULT_FLOOR
from memory_pipeline.domain.text.ranking import Query, terms, weights_for
from memory_pipeline.lake.index.filters import flags_of, quoted
from memory_pipeline.memories.queries import HEADERS, until_of
from memory_pipeline.memories.snapshot import JoinedMemories, table_of
from memory_pipeline.overlay import Derived
from memory_pipeline.search.copies import MADE_OF, Block
from memory_pipeline.search.evidence import calibration_of, verbatim_in
from memory_pipeline.search.row_block import RowBlock, speaker_of
from memory_pipeline.search.scoring import SIGNALS, score, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.memories.record import MemoryKind
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.memories.snapshot import MemorySnapshot, Rows
    from memory_pipeline.memories.state import MemoryOverlay
    from memory_pipeline.search.scoring import Scored


_TEXTS = ("title", "content", "subject", "predicate", "object", "tags")
_FIGURES = ("importance", "confidence", "decay_rate", "last_accessed_at", "updated_at", "created_at")
#: Attributes that filters compare as a whole.
_COMPARED = tuple(Origin.__annotations__)
_COLUMNS = ("memory_id", "kind", *_TEXTS, *_FIGURES, *_COMPARED)
_VECTORS = ("vector", "embed_model")
#: In a layout of headers, the hook replaces the content.
_HEADER_COLUMNS = tuple(name for name in _COLUMNS if name != "content")
#: Read with the content.
_WITH_CONTENT = ("value", "key", "source_ids", "editor")
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
    """The layouts of one scope. Safe to use from several threads.

    `beside` returns the embedder's vectors by content, for memories whose stored vector is of another embedder.
    """

    def __init__(
        self,
        state: MemoryOverlay,
        embedder: Embedder,
        beside: Callable[[], Mapping[str, NDArray[np.float32]]] = dict,
    ) -> None:
        self._state = state
        self._embedder = embedder
        self._beside = beside
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
        return [(_header_block(table_of(memories, (*_COLUMNS, "hook"))), ()), (table, top.above.newest.keys())]

    def _laid_out(self, pool: Pool, top: MemorySnapshot) -> Layouts:
        """Return the layouts of a pool, each with the ids of its rows that another layout replaces."""

        def lay_out() -> RowBlock:
            rows = self._state.rows(pool.where, {*_COLUMNS, *_WITH_CONTENT, *_VECTORS})
            return _row_block(rows, self._vectors_by(rows), self._state.scope)

        memories = [memory for memory in top.above.newest.values() if pool.holds(memory)]
        pending: Layouts = [
            (
                _row_block(
                    table_of(memories, (*_COLUMNS, *_WITH_CONTENT)), self._vectors_of(memories), self._state.scope
                ),
                (),
            )
        ]
        if not len(top.rows):
            return pending
        form = f"{self._embedder.name} {self._embedder.dimension}"
        kept = partial(self._state.laid_out, f"memories-{pool}", form, lay_out)
        return [*pending, (self._table(pool, top, kept), top.above.newest.keys())]

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
            stored = zip(rows["content"].to_pylist(), self._vectors_by(rows), strict=True)
            known |= {content: vector for content, vector in stored if not np.isnan(vector[0])}
        new = [content for content in contents if content not in known]
        if new:
            known |= zip(new, self._embedder.embed(new), strict=True)
        self._vectors = {content: vector for content, vector in known.items() if not np.isnan(vector[0])}
        vectors = [known[memory.content] for memory in memories]
        return np.array(vectors, np.float32).reshape(len(memories), self._embedder.dimension)

    def _vectors_by(self, rows: pa.Table) -> NDArray[np.float32]:
        """Return the vectors of rows; NaN for rows without a vector of this embedder."""
        vectors = _vectors_by(rows, self._embedder)
        missing = np.flatnonzero(np.isnan(vectors[:, 0]))
        if len(missing) and (beside := self._beside()):
            contents = rows["content"].take(pa.array(missing)).to_pylist()
            for place, content in zip(missing.tolist(), contents, strict=True):
                vectors[place] = beside.get(content, np.nan)
        return vectors


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
        "editor": rows["editor"] if scope else nothing,
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


_DAY: Final = 86_400e6  # microseconds
_NOTHING: Final = Query.of("", ())
#: A vector this many standard deviations nearer than usual counts as related.
_NEAR: Final = 1.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Conditions of a search.

    Attributes:
        vector: the question's vector; None compares by words only.
        most: maximum number of memories.
        kinds: kinds to include; None for all.
        equal: values that attributes must have, by name.
        where: further conditions; a memory's time is when it was last stated, updated or confirmed.
        exclude: ids of memories to leave out.
        only_fitting: leave out memories that share no word with the question and are not nearer to it than usual.
        minimum_score: leave out memories with a lower score, 0 to 1.
        hides: returns whether to leave out a found memory because of its content.
    """

    question: Query
    vector: NDArray[np.float32] | None
    most: int
    kinds: frozenset[MemoryKind] | None = None
    equal: Mapping[str, str | bool] = field(default_factory=dict)
    where: Filter | None = None
    exclude: frozenset[str] = frozenset()
    only_fitting: bool = False
    minimum_score: float = 0.0
    hides: Callable[[DurableMemory], bool] | None = None


@dataclass(frozen=True, slots=True)
class Ranked:
    """The id of a memory, its score, and its strength; see :class:`~memory_pipeline.memories.search.RecalledMemory`."""

    id: str
    score: float = 0.0
    strength: float = 0.0


class RankedMemories(NamedTuple):
    """Ranked memories, best first, and the snapshot they were found in.

    `read` has whole memories by id, if the selection read them.
    """

    top: JoinedMemories
    memories: list[Ranked]
    read: dict[str, DurableMemory] | None = None


class MemoryRanker:
    """Ranks the memories whose layouts `scopes` returns. Safe to use from several threads."""

    def __init__(self, scopes: Callable[[], Sequence[MemoryLayouts]], embedder: Embedder, calendar: Calendar) -> None:
        self._scopes = scopes
        self._calendar = calendar
        self._weights = weights_for(embedder.name)
        self._has_semantic_vectors = self._weights.vector == weights_for("").vector

    def ranked(self, wanted: Wanted, pool: Pool, now: datetime | None) -> RankedMemories:
        """Return the memories of a pool that fit best by words and vectors, best first.

        Everything after `now` is ignored, and relevance counts from it; by default the current time.
        """
        top, segments = self._laid_out(pool, now)
        return RankedMemories(top, self._best(top, segments, wanted, now))

    def blocks(self, where: Filter, *, entries: bool | None, now: datetime | None) -> list[Block]:
        """Return the memories that recall may return as blocks for a search of several sources, with masks.

        `entries` is True for entries of contexts alone, False for other memories, None for both.
        """
        _, segments = self._laid_out(Pool.RECALLED, now)
        blocks = []
        for segment, hidden in segments:
            mask = self._mask(segment, Wanted(_NOTHING, None, 0, where=where), hidden)
            if entries is not None:
                mask &= flags_of(pc.is_valid(segment.rows["context"])) == entries
            blocks.append(Block(segment, mask))
        return blocks

    def headers(self, wanted: Wanted, now: datetime | None) -> RankedMemories:
        """Return up to 200 memories that recall may return, as candidates for a selection by headers.

        Memories that share words with the question are first, best first, then the newest. With more than 200 memories,
        the first group takes at most half of the places. Words and a person are looked up in title, hook, terms and
        labels. `most`, `vector` and `only_fitting` of the conditions are ignored.
        """
        top, segments = self._laid_out(None, now)
        wanted = replace(wanted, most=HEADERS, vector=None, only_fitting=True)
        newest = self._newest(top, segments, wanted)
        most = HEADERS if len(newest) < HEADERS else HEADERS // 2
        best = {one.id: one for one in self._best(top, segments, wanted, now)[:most]}
        return RankedMemories(top, [*best.values(), *(one for one in newest if one.id not in best)][:HEADERS])

    def _laid_out(self, pool: Pool | None, now: datetime | None) -> tuple[JoinedMemories, Layouts]:
        until = until_of(now, self._calendar)
        found = [scope.of(pool, until) for scope in self._scopes()]
        return JoinedMemories([top for top, _ in found]), [layout for _, layouts in found for layout in layouts]

    def _best(self, top: JoinedMemories, segments: Layouts, wanted: Wanted, now: datetime | None) -> list[Ranked]:
        at = datetime.now(UTC) if now is None else now
        excluded = _excluded(top, wanted)
        masks = [self._mask(segment, wanted, {*excluded, *hidden}) for segment, hidden in segments]
        layouts = [segment for segment, _ in segments]
        least = wanted.most + len(wanted.exclude)
        words = words_of(wanted.question, layouts)
        scored = score(wanted.question, layouts, wanted.vector, masks, least, self._weights, words)
        calibration = calibration_of(
            wanted.question, words, layouts, scored, self._weights, is_semantic=self._has_semantic_vectors
        )
        is_verbatim = verbatim_in(wanted.question.bare, wanted.question, words, sum(map(len, layouts)))
        found: list[Ranked] = []
        for segment, part in zip(layouts, scored, strict=True):
            found += self._best_of(segment, part, wanted, at, calibration, is_verbatim)
        found.sort(key=lambda one: (-one.strength, one.id))
        return found[: wanted.most]

    def _newest(self, top: JoinedMemories, segments: Layouts, wanted: Wanted) -> list[Ranked]:
        """Return the matching memories, newest first, without regard to the question."""
        excluded = _excluded(top, wanted)
        found: list[tuple[int, str]] = []
        for segment, hidden in segments:
            rows = np.flatnonzero(self._mask(segment, wanted, {*excluded, *hidden}))
            rows = rows[np.argsort(-segment.ends_at[rows], kind="stable")][: wanted.most]
            found += zip((-segment.ends_at[rows]).tolist(), segment.ids.take(pa.array(rows)).to_pylist(), strict=True)
        return [Ranked(memory_id) for _, memory_id in sorted(found)[: wanted.most]]

    def _best_of(
        self,
        segment: RowBlock,
        part: Scored,
        wanted: Wanted,
        now: datetime,
        calibration: Callable[[float], float],
        is_verbatim: Callable[[str], bool],
    ) -> list[Ranked]:
        """Return the best memories of a segment. One that holds the words of the question passes the default floor."""
        least = wanted.minimum_score
        rows, totals = part.rows, part.totals + self._relevance_gain(segment, part, now)
        if wanted.only_fitting:
            fits = part.signals[SIGNALS.index("words")] > 0
            if self._has_semantic_vectors:
                fits |= part.signals[SIGNALS.index("vector")] >= _NEAR
            rows, totals = rows[fits], totals[fits]
        best = np.argsort(-totals, kind="stable")
        if len(best) > wanted.most:  # keep ties, so that ids decide among them
            best = best[: int(np.count_nonzero(totals >= totals[best[wanted.most - 1]]))]
        taken = segment.rows.select(["id", "content"]).take(pa.array(rows[best]))
        return [
            Ranked(memory_id, score, round(total, 6))
            for memory_id, content, total in zip(
                taken["id"].to_pylist(), taken["content"].to_pylist(), totals[best].tolist(), strict=True
            )
            if (score := calibration(total)) >= least or (least <= DEFAULT_FLOOR and is_verbatim(content))
        ]

    def _relevance_gain(self, segment: RowBlock, part: Scored, now: datetime) -> NDArray[np.float32]:
        """Return the score of the relevance minus the score of the stored importance."""
        rows = segment.rows.select(["confidence", "decay_rate", "used_at"]).take(pa.array(part.rows))
        confidence, rate = rows["confidence"].to_numpy(), rows["decay_rate"].to_numpy()
        days = np.maximum(now.timestamp() * 1e6 - rows["used_at"].to_numpy(), 0) / _DAY
        importance = segment.importance[part.rows]
        gain: NDArray[np.float32] = importance * (confidence * np.exp(-rate * days) - 1)
        return np.float32(self._weights.importance) * gain.astype(np.float32)

    def _mask(self, segment: RowBlock, wanted: Wanted, hidden: Collection[str]) -> NDArray[np.bool_]:
        mask = np.ones(len(segment), np.bool_)
        if hidden:
            mask &= ~flags_of(pc.is_in(segment.ids, pa.array(sorted(hidden), pa.string())))
        if wanted.kinds is not None:
            kinds = pa.array(sorted(kind.value for kind in wanted.kinds), pa.string())
            mask &= flags_of(pc.is_in(segment.rows["kind"], kinds))
        for name, value in wanted.equal.items():
            mask &= flags_of(pc.equal(segment.rows[name], value))
        if wanted.where is not None:
            filtered = segment.mask(wanted.where)
            mask &= mask if filtered is None else filtered
        return mask


def resolved_in(top: MemorySnapshot | JoinedMemories, memory_id: str) -> str:
    """Return the id of the memory that an id of a memory or a version now refers to, after merges."""
    base_id, _, _ = memory_id.partition("#")
    return top.resolved(top.unaliased(base_id))


def _excluded(top: JoinedMemories, wanted: Wanted) -> set[str]:
    """Return the excluded ids, and those of memories they were merged into: the archive holds both."""
    return {memory_id for one in wanted.exclude for memory_id in (one.partition("#")[0], resolved_in(top, one))}
