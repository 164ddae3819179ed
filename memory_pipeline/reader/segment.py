"""Rows of an index, held in memory and laid out for ranking: postings, talks, signals and vectors.

A *slot* is one moment of one talk: a message, with all that was found in it. A *talk* is what was said in one
conversation on one day (UTC); slots stand in the order in which they were said, so that the neighbours of a slot are
those before and after it in the same arrays. A summary is a talk of its own.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.lake.rows import vectors_of
from memory_pipeline.reader.similarity import Vectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_pipeline.lake.filters import Filter

_ENDS_WITH_QUESTION = r"[?？؟][\s\"'”’)\]]*(\[[^\]]*\])?\s*$"
_HAS_NUMBER = (
    r"(?i)\d|\b(one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|once|twice"
    r"|half)\b"
)
_DAY = 86_400_000_000  # microseconds


class Segment:
    """Some rows of one agent at one grain. Arrays are by row, by slot or by talk, in the order of the talks.

    Args:
        rows: in :func:`memory_pipeline.lake.schemas.index_schema`, without vectors, in any order, each id once.
        vectors: of the rows, shape (rows, dimension); NaN where a row has none.

    Attributes:
        rows: the same, sorted, without terms.
        slot: of each row.
        talk: of each slot; slots of one talk stand together.
        before, after: of each slot, how many of its talk come before and after it, up to 255.
        lengths, length: words of each row, and of all.
        importance, ends_at: of each row, as in the index; times in microseconds.
        dated, counted: whether a row names a date, or a number.
        asks: whether a row ends with a question.
        ids: of the rows.
        message: a number that rows share which rest on the same messages; below `messages`.
        speakers: names of those who speak here.
        speaker: of each row, its place in `speakers`; -1 where there is none.
        vectors: of the rows.
        dimension: their length.
    """

    def __init__(self, rows: pa.Table, vectors: NDArray[np.floating]) -> None:
        rows = rows.combine_chunks()
        starts = _instants(rows["starts_at"])
        conversation = _ranks(pc.fill_null(pc.coalesce(rows["conversation_id"], rows["id"]), ""))
        turn = pc.fill_null(rows["turn"], 0).to_numpy()
        position = pc.fill_null(rows["position"], 0).to_numpy()
        order = np.lexsort((position, turn, starts, conversation))
        self.dimension = vectors.shape[1]
        self.vectors = Vectors(vectors, order)
        words = rows["terms"].combine_chunks().take(pa.array(order))
        self.rows = rows.drop_columns(["terms"]).take(pa.array(order)).combine_chunks()

        conversation, starts, turn = conversation[order], starts[order], turn[order]
        new_talk = _changes(conversation, starts // _DAY)
        new_slot = new_talk | _changes(starts, turn)
        self.slot = (np.cumsum(new_slot) - 1).astype(np.int32)
        self.talk = (np.cumsum(new_talk) - 1).astype(np.int32)[new_slot]
        first_slot = np.flatnonzero(_changes(self.talk))
        counts = np.diff(first_slot, append=len(self.talk))
        before = np.arange(len(self.talk)) - np.repeat(first_slot, counts)
        self.before = np.minimum(before, 255).astype(np.uint8)
        self.after = np.minimum(np.repeat(counts, counts) - 1 - before, 255).astype(np.uint8)
        self.first_row = np.flatnonzero(new_slot)
        self._row_counts = np.diff(self.first_row, append=len(order))
        self.ends_at = _instants(self.rows["ends_at"])
        self.importance = self.rows["importance"].to_numpy().astype(np.float32)
        content = self.rows["content"]
        self.asks = _flags(pc.match_substring_regex(content, _ENDS_WITH_QUESTION))
        self.counted = _flags(pc.match_substring_regex(content, _HAS_NUMBER))
        self.dated = _flags(pc.is_valid(self.rows["mentioned_at"]))
        times = (starts.min(), self.ends_at.min(), self.ends_at.max()) if len(self) else (0, 0, 0)
        self._first_start, self._first_end, self._last_end = map(int, times)
        #: Of each slot: whether what is said there ends with a question.
        self.slot_asks = np.logical_or.reduceat(self.asks, self.first_row) if len(self) else self.asks
        self.ids = self.rows["id"].combine_chunks()
        self.message = _codes(pc.binary_join(self.rows["source_ids"], "\n"))
        self.messages = int(self.message.max(initial=-1)) + 1
        spoken = self.rows["speaker"].combine_chunks().dictionary_encode()
        self.speakers: list[str] = spoken.dictionary.to_pylist()
        self.speaker = pc.fill_null(spoken.indices, -1).to_numpy(zero_copy_only=False)
        self._index(words)

    @classmethod
    def of(cls, rows: pa.Table, dimension: int) -> Segment:
        """Lay out rows that have their vectors, of `dimension` numbers, with them."""
        return cls(rows.drop_columns(["vector"]), vectors_of(rows, dimension))

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.rows.num_rows)

    def mask(self, where: Filter) -> NDArray[np.bool_] | None:
        """Tell of each row whether it passes; None if all do because they lie in a range of times."""
        if where.covers(self._first_start, self._first_end, self._last_end):
            return None
        return where.mask(self.rows)

    def listed(self, stands: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Tell of each row whether it is a turn, or rests on messages of which no turn stands here.

        Args:
            stands: which rows count; None for all.
        """
        is_turn = _flags(pc.equal(self.rows["kind"], FactKind.TURN.value))
        turns = is_turn if stands is None else is_turn & stands
        told = np.zeros(self.messages, np.bool_)
        told[self.message[turns]] = True
        sources = self.rows["source_ids"].combine_chunks()
        several = np.flatnonzero((pc.list_value_length(sources).to_numpy() > 1) & ~told[self.message])
        if len(several):
            taken = sources.take(pa.array(several))
            found = pc.is_in(taken.flatten(), value_set=sources.filter(pa.array(turns)).flatten())
            of_told = pc.list_parent_indices(taken).filter(found).to_numpy()
            told[self.message[several[of_told]]] = True
        flags: NDArray[np.bool_] = is_turn | ~told[self.message]
        return flags

    @property
    def slots(self) -> int:
        """The number of slots."""
        return len(self.talk)

    @property
    def talks(self) -> int:
        """The number of talks."""
        return int(self.talk[-1]) + 1 if len(self.talk) else 0

    def _index(self, words: pa.ListArray) -> None:
        """Make the postings: of each word the rows that hold it, ascending, and how often."""
        encoded = words.flatten().dictionary_encode()
        self._talks_holding: dict[str, int] = {}
        self._codes = {word: code for code, word in enumerate(encoded.dictionary.to_pylist())}
        counts = pc.fill_null(pc.list_value_length(words), 0).to_numpy(zero_copy_only=False)
        self.lengths = counts.astype(np.float32)
        self.length = int(counts.sum())
        keys = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64) * max(len(self), 1)
        keys += np.repeat(np.arange(len(self)), counts)
        keys.sort()
        first = np.flatnonzero(_changes(keys))
        kept = keys[first]
        self._holding: NDArray[np.int32] = (kept % max(len(self), 1)).astype(np.int32)
        times = np.diff(first, append=len(keys))
        self._times: NDArray[np.uint16] = np.minimum(times, np.iinfo(np.uint16).max).astype(np.uint16)
        self._bounds = np.searchsorted(kept, np.arange(len(self._codes) + 1) * max(len(self), 1))

    @cached_property
    def vocabulary(self) -> Sequence[str]:
        """All words, sorted."""
        return sorted(self._codes)

    def holding(self, word: str) -> NDArray[np.int32]:
        """Return the rows that hold a word, ascending."""
        return self._holding[self._place(word)]

    def times(self, word: str) -> NDArray[np.uint16]:
        """Return how often each row of :meth:`holding` holds it, 65,535 times at most."""
        return self._times[self._place(word)]

    def _place(self, word: str) -> slice:
        code = self._codes.get(word)
        return slice(0) if code is None else slice(self._bounds[code], self._bounds[code + 1])

    def talks_holding(self, word: str) -> int:
        """Return how many talks hold a word."""
        if word not in self._codes:
            return 0
        if word not in self._talks_holding:
            self._talks_holding[word] = int(np.count_nonzero(_changes(self.talk[self.slot[self.holding(word)]])))
        return self._talks_holding[word]

    def rows_of(self, slots: NDArray[np.integer]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows of `slots`, slot after slot, and where those of each begin."""
        first = self.first_row[slots]
        counts = self._row_counts[slots]
        bounds = np.cumsum(counts) - counts
        return np.repeat(first - bounds, counts) + np.arange(int(counts.sum())), bounds

    def neighbours(self, slots: NDArray[np.integer], distance: int) -> tuple[NDArray[np.intp], NDArray[np.integer]]:
        """Return which of `slots` have a slot `distance` further on (or, below 0, back) in their talk, and these.

        The distance is at most 255.
        """
        inside = np.flatnonzero((self.before if distance < 0 else self.after)[slots] >= abs(distance))
        return inside, slots[inside] + distance


def _codes(column: pa.ChunkedArray) -> NDArray[np.int32]:
    """Number the different values of a column."""
    codes: NDArray[np.int32] = column.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return codes


def _ranks(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Number the different values of a column in their order, in whatever order they come."""
    encoded = column.combine_chunks().dictionary_encode()
    ranks = pc.rank(encoded.dictionary, tiebreaker="dense").to_numpy()
    found: NDArray[np.uint64] = ranks[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def _instants(column: pa.ChunkedArray) -> NDArray[np.int64]:
    instants: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return instants


def _flags(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = column.combine_chunks().to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags


def _changes(*columns: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Tell of each place whether it differs from the one before; the first does."""
    changed = np.zeros(len(columns[0]), np.bool_)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed
