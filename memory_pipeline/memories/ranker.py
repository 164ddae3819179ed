"""Rank the durable memories of some scopes in memory, all together.

Rules rank by contents and vectors, which they read from the table. A model selects among headers, which are in memory
already. Memories are scored like facts (:mod:`memory_pipeline.search.scoring`), with their current relevance in place
of importance.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.text.calibration import DEFAULT_FLOOR
from memory_pipeline.domain.text.ranking import Query, weights_for
from memory_pipeline.lake.index.filters import flags_of
from memory_pipeline.memories.layouts import Pool
from memory_pipeline.memories.queries import HEADERS, until_of
from memory_pipeline.memories.snapshot import joined
from memory_pipeline.search.copies import Block
from memory_pipeline.search.evidence import calibration_of, verbatim_in
from memory_pipeline.search.scoring import SIGNALS, score, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.memories.record import DurableMemory, MemoryKind
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.memories.layouts import Layouts, MemoryLayouts
    from memory_pipeline.memories.snapshot import AnySnapshot
    from memory_pipeline.search.row_block import RowBlock
    from memory_pipeline.search.scoring import Scored

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

    top: AnySnapshot
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

    def _laid_out(self, pool: Pool | None, now: datetime | None) -> tuple[AnySnapshot, Layouts]:
        until = until_of(now, self._calendar)
        found = [scope.of(pool, until) for scope in self._scopes()]
        return joined([top for top, _ in found]), [layout for _, layouts in found for layout in layouts]

    def _best(self, top: AnySnapshot, segments: Layouts, wanted: Wanted, now: datetime | None) -> list[Ranked]:
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

    def _newest(self, top: AnySnapshot, segments: Layouts, wanted: Wanted) -> list[Ranked]:
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


def resolved_in(top: AnySnapshot, memory_id: str) -> str:
    """Return the id of the memory that an id of a memory or a version now refers to, after merges."""
    base_id, _, _ = memory_id.partition("#")
    return top.resolved(top.unaliased(base_id))


def _excluded(top: AnySnapshot, wanted: Wanted) -> set[str]:
    """Return the excluded ids, and those of memories they were merged into: the archive holds both."""
    return {memory_id for one in wanted.exclude for memory_id in (one.partition("#")[0], resolved_in(top, one))}
