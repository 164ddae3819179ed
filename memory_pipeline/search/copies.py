"""Find copies: one message, or one point of a summary, in two scopes; and memories made of messages."""

from __future__ import annotations

import threading
from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.identity import MESSAGE
from memory_pipeline.domain.text.ranking import terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.search.row_block import RowBlock


#: Column of a block of memories: the messages and changes that each was made of.
MADE_OF = "made_of"
_COMPARED = ("ends_at", "kind", "role", "speaker", "content")


class _Pairs(NamedTuple):
    """Messages of one block and their copies in another, as codes of :attr:`RowBlock.message`."""

    originals: NDArray[np.int32]
    copies: NDArray[np.int32]


class Block(NamedTuple):
    """Rows of another source than the index, and a mask of those that pass."""

    segment: RowBlock
    mask: NDArray[np.bool_]


class _PairCache:
    """Pairs of two blocks, which are compared once. Safe to use from several threads."""

    def __init__(self, compare: Callable[[RowBlock, RowBlock], _Pairs]) -> None:
        self._compare = compare
        self._known: WeakKeyDictionary[RowBlock, WeakKeyDictionary[RowBlock, _Pairs]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def pairs(self, one: RowBlock, other: RowBlock) -> _Pairs:
        with self._lock:
            known = self._known.setdefault(one, WeakKeyDictionary())
            pairs = known.get(other)
            if pairs is None:
                pairs = known[other] = self._compare(one, other)
            return pairs


class Copies:
    """Hides copies of messages. Safe to use from several threads."""

    def __init__(self) -> None:
        self._compared = _PairCache(_pairs_of)

    def hidden(
        self, segments: Sequence[RowBlock], masks: Sequence[NDArray[np.bool_] | None]
    ) -> list[NDArray[np.bool_] | None]:
        """Return the masks without messages that pass in an earlier scope, with equal time, speaker, role and text."""
        found = list(masks)
        for first, second in combinations(range(len(segments)), 2):
            one, other = segments[first], segments[second]
            if one.scope == other.scope:
                continue
            pairs = self._compared.pairs(one, other)
            if not len(pairs.copies):
                continue
            mask, current = masks[first], found[second]
            passes = np.ones(one.messages, np.bool_)
            if mask is not None:
                passes[:] = False
                passes[one.message[mask]] = True
            is_shown = np.isin(other.message, pairs.copies[passes[pairs.originals]], invert=True)
            found[second] = is_shown if current is None else is_shown & current
        return found


def _pairs_of(one: RowBlock, other: RowBlock) -> _Pairs:
    if len(one) > len(other):
        copies, originals = _pairs_of(other, one)
        return _Pairs(originals, copies)
    times = other.ends_at[other.by_time]
    first, last = (np.searchsorted(times, one.ends_at, side) for side in ("left", "right"))
    rows = np.flatnonzero(last > first)
    if not len(rows):
        return _Pairs(np.empty(0, np.int32), np.empty(0, np.int32))
    ranges = [np.arange(start, end) for start, end in zip(first[rows], last[rows], strict=True)]
    places = np.unique(np.concatenate(ranges))
    beside: defaultdict[object, list[int]] = defaultdict(list)
    for said, message in _compared(other, other.by_time[places]):
        beside[said].append(message)
    pairs = {(message, copy) for said, message in _compared(one, rows) for copy in beside.get(said, ())}
    originals, copies = np.array(sorted(pairs), np.int32).reshape(-1, 2).T
    return _Pairs(originals, copies)


def _compared(segment: RowBlock, rows: NDArray[np.intp]) -> list[tuple[object, int]]:
    taken = segment.rows.select(_COMPARED).take(pa.array(rows))
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in taken.columns]
    said = zip(*(column.to_pylist() for column in columns), strict=True)
    return list(zip(said, segment.message[rows].tolist(), strict=True))


class Makings:
    """Hides memories beside the messages that they were made of. Safe to use from several threads."""

    def __init__(self) -> None:
        self._compared = _PairCache(_made_of)

    def hidden(self, memories: Block, segments: Sequence[RowBlock], masks: Sequence[NDArray[np.bool_] | None]) -> Block:
        """Return the block without memories of which a message passes, unless a change has given them other words."""
        mask = memories.mask.copy()
        for segment, passing in zip(segments, masks, strict=True):
            pairs = self._compared.pairs(memories.segment, segment)
            mask[pairs.copies if passing is None else pairs.copies[passing[pairs.originals]]] = False
        return Block(memories.segment, mask)


def _made_of(memories: RowBlock, segment: RowBlock) -> _Pairs:
    """Return the rows of messages, and of the memories made of them."""
    sources = memories.rows[MADE_OF].combine_chunks()
    made = defaultdict(list)
    for source, memory in zip(sources.flatten().to_pylist(), pc.list_parent_indices(sources).to_pylist(), strict=True):
        made[source].append(memory)
    changed = {memory for source, found in made.items() if not source.startswith(f"{MESSAGE}:") for memory in found}
    said = segment.rows["source_ids"].combine_chunks()
    is_source = pc.is_in(said.flatten(), pa.array(list(made), pa.string()))
    rows = pc.list_parent_indices(said).filter(is_source).to_pylist()
    pairs = set()
    for row, source in zip(rows, said.flatten().filter(is_source).to_pylist(), strict=True):
        for memory in made[source]:
            if memory not in changed or _says(segment, row, memories, memory):
                pairs.add((row, memory))
    originals, copies = np.array(sorted(pairs), np.int32).reshape(-1, 2).T
    return _Pairs(originals, copies)


def _says(segment: RowBlock, row: int, memories: RowBlock, memory: int) -> bool:
    content, text = (block.rows["content"][place].as_py() for block, place in ((memories, memory), (segment, row)))
    return set(terms(content)) <= set(terms(text))
