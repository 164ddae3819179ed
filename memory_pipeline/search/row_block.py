"""Index rows in memory, laid out for ranking: postings, talks, signals and vectors.

A *slot* is one moment of a talk: a message with all its facts. A *talk* is one day (UTC) of a conversation, or a
summary. Slots are in the order of time, so that the neighbours of a slot are next to it in the arrays.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, date, datetime, time
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.text.ranking import NEARBY, terms
from memory_pipeline.domain.text.spelling import Spellings, pieces_of
from memory_pipeline.lake.index.filters import flags_of, microseconds
from memory_pipeline.lake.index.index_rows import vectors_of
from memory_pipeline.lake.index.scope_cache import CacheEntry
from memory_pipeline.search.vector_sketch import VectorSketch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.text.ranking import Window
    from memory_pipeline.lake.index.filters import Filter


_ENDS_WITH_QUESTION = r"[?？؟][\s\"'”’)\]]*(\[[^\]]*\])?\s*$"
#: A text of more than about 60 words, 30 terms, loses weight; the exponent of that loss.
_SHORT, _LENGTH_PENALTY = 30, 0.6
#: Number of pieces of an average word in a script without blanks.
_PIECES_OF_WORD = 3
_HAS_NUMBER = (
    r"(?i)\d|\b(one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|once|twice"
    r"|half)\b"
)
_DAY = 86_400_000_000  # microseconds
#: Least importance of a permanent instruction: "always", "never".
_PERMANENT = 0.7
_MAX_WINDOWS = 16
#: Begins the names of the arrays of vectors among those of a block.
_VECTORS = "vectors."
#: Words before the name of a person who is addressed; how many messages are read for a name, and how many more must
#: address the person than talk about one.
_GREETS = r"\b(?:hey|hi|hello|dear|thanks|thank you|bye|good (?:morning|night)|hallo|danke|hola|gracias|salut|merci)"
_MOST_ADDRESSES, _LEAST_ADDRESSES = 50, 2
#: Characters at both ends of a text where somebody is addressed.
_ENDS = 80


class RowBlock:
    """Rows of one scope at one grain. Arrays are by row, by slot or by talk, in the order of the talks.

    Args:
        rows: rows of :func:`memory_pipeline.lake.index.index_rows.index_schema` without vectors, in any order, with
            unique ids.
        vectors: shape (rows, dimension); NaN for a row without a vector.
        scope: of the rows, if they are compared with those of other scopes.

    Attributes:
        rows: the rows, sorted, without terms.
        slot: slot of each row.
        talk: talk of each slot; slots of a talk are adjacent.
        place: ascending position of each slot. Gaps between talks keep slots of different talks from being neighbours.
        before: number of slots before each slot in its talk, up to 255.
        lengths: number of words of each row.
        norms: Euclidean length of each row's word vector; a word counts 1 + ln(times).
        ends_at: of each row, microseconds.
        counted: whether a row contains a number.
        slot_is_reply: whether the assistant said a slot.
        brevity: of each slot, 1 for a text of up to about 60 words, less for a longer one.
        slot_wordy: 1 minus brevity for a slot that the assistant said; else 0.
        slot_instructs: whether a user gives an assistant a permanent instruction in a slot.
        slot_prefers: whether a user tells an assistant a preference in a slot.
        slot_asks: whether a slot's text ends with a question.
        message: a code per row, equal for rows with the same messages; less than `messages`.
        speaker: index of each row's speaker in `speakers`; -1 without one.
    """

    def __init__(self, rows: pa.Table, vectors: NDArray[np.floating], scope: Scope | None = None) -> None:
        self.scope = scope
        rows = rows.combine_chunks()
        starts = _instants(rows["starts_at"])
        conversation = _ranks(pc.fill_null(pc.coalesce(rows["conversation_id"], rows["id"]), ""))
        turn = pc.fill_null(rows["turn"], 0).to_numpy()
        position = pc.fill_null(rows["position"], 0).to_numpy()
        order = np.lexsort((position, turn, starts, conversation))
        self.vectors = VectorSketch(vectors, order)
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
        self.place = np.arange(len(self.talk)) + len(NEARBY) * (self.talk + 1)
        self.first_row = np.flatnonzero(new_slot)
        self._row_counts = np.diff(self.first_row, append=len(order))
        self.ends_at = _instants(self.rows["ends_at"])
        self._mentioned_at = _instants(pc.fill_null(self.rows["mentioned_at"], datetime.min.replace(tzinfo=UTC)))
        self._windows: dict[Window, NDArray[np.int32]] = {}
        self.importance = self.rows["importance"].to_numpy().astype(np.float32)
        content = self.rows["content"]
        asks = flags_of(pc.match_substring_regex(content, _ENDS_WITH_QUESTION))
        self.counted = flags_of(pc.match_substring_regex(content, _HAS_NUMBER))
        is_reply = flags_of(pc.equal(self.rows["role"], Role.ASSISTANT.value))
        instructs = flags_of(pc.equal(self.rows["kind"], FactKind.INSTRUCTION.value)) & (self.importance >= _PERMANENT)
        prefers = flags_of(pc.equal(self.rows["kind"], FactKind.PREFERENCE.value))
        times = (starts.min(), self.ends_at.min(), self.ends_at.max()) if len(self) else (0, 0, 0)
        self._first_start, self._first_end, self._last_end = map(int, times)
        self.slot_asks = self._any_in_slot(asks)
        self.slot_is_reply = self._any_in_slot(is_reply)
        with_assistant = np.zeros(self.talks, np.bool_)
        with_assistant[self.talk[self.slot_is_reply]] = True
        tells_assistant = with_assistant[self.talk] & ~self.slot_is_reply
        self.slot_instructs = self._any_in_slot(instructs) & tells_assistant
        self.slot_prefers = self._any_in_slot(prefers) & tells_assistant
        self.ids = self.rows["id"].combine_chunks()
        self.message = _codes(pc.binary_join(self.rows["source_ids"], "\n"))
        self.messages = int(self.message.max(initial=-1)) + 1
        spoken = self.rows["speaker"].combine_chunks().dictionary_encode()
        self.speakers: list[str] = spoken.dictionary.to_pylist()
        self.speaker = pc.fill_null(spoken.indices, -1).to_numpy(zero_copy_only=False)
        self._index(words)
        self._compare_messages()

    def _compare_messages(self) -> None:
        longest = np.maximum.reduceat(self.lengths, self.first_row) if len(self) else self.lengths
        self.brevity = np.minimum(1, _SHORT / np.maximum(longest, 1)).astype(np.float32) ** np.float32(_LENGTH_PENALTY)
        self.slot_wordy = np.where(self.slot_is_reply, 1 - self.brevity, np.float32(0))
        self._answering = np.flatnonzero((self.before > 0) & ~self.slot_is_reply)
        self._answering = self._answering[self.slot_asks[self._answering - 1]]
        self._asking, self._asking_bounds = self.rows_of(self._answering - 1)

    def answers(self, words: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return for each slot how well the message before matches, if it is a question that a user answers there.

        `words` is the similarity of each row to the question.
        """
        found = np.zeros(self.slots, np.float32)
        if len(self._answering):
            most = np.maximum.reduceat(words[self._asking], self._asking_bounds)
            found[self._answering] = most * self.brevity[self._answering - 1]
        return found

    def _any_in_slot(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.logical_or.reduceat(flags, self.first_row) if len(self) else flags

    @classmethod
    def of(cls, rows: pa.Table, dimension: int, scope: Scope | None = None) -> RowBlock:
        """Lay out rows with a column of vectors of length `dimension`."""
        return cls(rows.drop_columns(["vector"]), vectors_of(rows, dimension), scope)

    def cache_entry(self, version: int | None) -> CacheEntry:
        """Return all that the block consists of, as rows of a version of their table."""
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        arrays |= {f"{_VECTORS}{name}": value for name, value in self.vectors.arrays().items()}
        values = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        tables = {"rows": self.rows, "words": pa.table({"word": pa.array(list(self._codes), pa.string())})}
        return CacheEntry(version, arrays, tables, {**values, "speakers": self.speakers})

    @classmethod
    def restored(cls, entry: CacheEntry, scope: Scope | None = None) -> RowBlock:
        """Return a block of what :meth:`cache_entry` returned."""
        block = cls.__new__(cls)
        own = {name: array for name, array in entry.arrays.items() if not name.startswith(_VECTORS)}
        vectors = {name.removeprefix(_VECTORS): entry.arrays[name] for name in entry.arrays.keys() - own.keys()}
        vars(block).update(own, **entry.values, _windows={}, _talks_holding={})
        block.scope, block.rows, block.vectors = (
            scope,
            entry.tables["rows"].combine_chunks(),
            VectorSketch.restored(vectors),
        )
        block.ids = block.rows["id"].combine_chunks()
        block._codes = {word: code for code, word in enumerate(entry.tables["words"]["word"].to_pylist())}
        return block

    def turns_of(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return for each row the first turn in its slot, or the row itself if there is none."""
        slots = self.slot[rows]
        found: NDArray[np.intp] = np.where(self._turns[slots] < 0, rows, self._turns[slots])
        return found

    @cached_property
    def _turns(self) -> NDArray[np.intp]:
        """The first turn of each slot; -1 without one."""
        turns = np.flatnonzero(flags_of(pc.equal(self.rows["kind"], FactKind.TURN.value)))[::-1]
        found = np.full(self.slots, -1, np.intp)
        found[self.slot[turns]] = turns  # the last of several assignments stays
        return found

    @property
    def identity(self) -> str:
        """The identity of the scope."""
        return "" if self.scope is None else self.scope.identity

    @cached_property
    def users(self) -> frozenset[str]:
        """The names of the speakers of users' messages."""
        said = flags_of(pc.equal(self.rows["role"], Role.USER.value))
        return frozenset(self.speakers[code] for code in np.unique(self.speaker[said]).tolist() if code >= 0)

    @cached_property
    def by_time(self) -> NDArray[np.intp]:
        """The rows in the order of `ends_at`."""
        return np.argsort(self.ends_at, kind="stable")

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def mask(self, where: Filter) -> NDArray[np.bool_] | None:
        """Return a mask of the rows that pass; None if all pass because the filter's times include them."""
        if where.covers(self._first_start, self._first_end, self._last_end):
            return None
        return where.mask(self.rows)

    def listed(self, live: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Return a mask of the rows that are turns, or only have messages without a turn among the rows `live`."""
        is_turn = flags_of(pc.equal(self.rows["kind"], FactKind.TURN.value))
        turns = is_turn if live is None else is_turn & live
        has_turn = np.zeros(self.messages, np.bool_)
        has_turn[self.message[turns]] = True
        sources = self.rows["source_ids"].combine_chunks()
        several = np.flatnonzero((pc.list_value_length(sources).to_numpy() > 1) & ~has_turn[self.message])
        if len(several):
            taken = sources.take(pa.array(several))
            found = pc.is_in(taken.flatten(), value_set=sources.filter(pa.array(turns)).flatten())
            of_turns = pc.list_parent_indices(taken).filter(found).to_numpy()
            has_turn[self.message[several[of_turns]]] = True
        flags: NDArray[np.bool_] = is_turn | ~has_turn[self.message]
        return flags

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.talk)

    @property
    def places(self) -> int:
        """Number of places, with the gaps between talks and at both ends."""
        return len(self.talk) + len(NEARBY) * (self.talks + 1)

    @property
    def talks(self) -> int:
        """Number of talks."""
        return int(self.talk[-1]) + 1 if len(self.talk) else 0

    def _index(self, words: pa.ListArray) -> None:
        """Build the postings: for each word the rows that contain it, ascending, and how often."""
        encoded = words.flatten().dictionary_encode()
        counts = pc.fill_null(pc.list_value_length(words), 0).to_numpy(zero_copy_only=False)
        self.lengths = counts.astype(np.float32)
        pieces = list(map(pieces_of, encoded.dictionary.to_pylist()))
        if sum(map(len, pieces)) > len(pieces):  # stored as runs of words without blanks
            of_words = pa.array(pieces, pa.list_(pa.string())).take(encoded.indices)
            row = np.repeat(np.arange(len(self)), counts)
            counts = np.bincount(row, pc.list_value_length(of_words), minlength=len(self)).astype(np.int64)
            self.lengths = np.maximum(self.lengths, (counts / _PIECES_OF_WORD).astype(np.float32))
            encoded = of_words.flatten().dictionary_encode()
        self._talks_holding: dict[str | Window, int] = {}
        self._codes = {word: code for code, word in enumerate(encoded.dictionary.to_pylist())}
        keys = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64) * max(len(self), 1)
        keys += np.repeat(np.arange(len(self)), counts)
        keys.sort()
        first = np.flatnonzero(_changes(keys))
        unique_keys = keys[first]
        self._holding: NDArray[np.int32] = (unique_keys % max(len(self), 1)).astype(np.int32)
        times = np.diff(first, append=len(keys))
        squares = np.bincount(unique_keys % max(len(self), 1), np.square(1 + np.log(times)), minlength=len(self))
        self.norms = np.maximum(np.sqrt(squares), 1).astype(np.float32)
        self._times: NDArray[np.uint16] = np.minimum(times, np.iinfo(np.uint16).max).astype(np.uint16)
        self._bounds = np.searchsorted(unique_keys, np.arange(len(self._codes) + 1) * max(len(self), 1))

    @cached_property
    def vocabulary(self) -> Spellings:
        """All words."""
        return Spellings(self._codes)

    def holding(self, word: str | Window) -> NDArray[np.int32]:
        """Return the rows that contain a word, or were said in or mention a day of a window, ascending."""
        return self._holding[self._place(word)] if isinstance(word, str) else self._within(word)

    def within(self, windows: Iterable[Window]) -> list[str]:
        """Return the ids of the rows of messages that were said in a window or mention a day of it."""
        rows = np.concatenate([self.holding(window) for window in windows])
        found: list[str] = self.ids.filter(pa.array(np.isin(self.slot, self.slot[rows]))).to_pylist()
        return found

    def times(self, word: str | Window) -> NDArray[np.uint16]:
        """Return how often each row of :meth:`holding` contains a word, at most 65,535; 1 for a window."""
        return self._times[self._place(word)] if isinstance(word, str) else np.ones(len(self._within(word)), np.uint16)

    def strengths(self, word: str | Window) -> NDArray[np.float32]:
        """Return the weight of a word in each row of :meth:`holding`: 1 + ln(times)."""
        strengths: NDArray[np.float32] = 1 + np.log(self.times(word).astype(np.float32))
        return strengths

    def _within(self, window: Window) -> NDArray[np.int32]:
        """Return the rows that were said in a window or mention a day in it; cached."""
        if window not in self._windows:
            if len(self._windows) >= _MAX_WINDOWS:
                self._windows.clear()
            said = (microseconds(window.start) <= self.ends_at) & (self.ends_at <= microseconds(window.end))
            first, last = (datetime.combine(day, time(), UTC) for day in (window.first, window.last))
            meant = (microseconds(first) <= self._mentioned_at) & (self._mentioned_at <= microseconds(last))
            self._windows[window] = np.flatnonzero(said | meant).astype(np.int32)
        return self._windows[window]

    def _place(self, word: str) -> slice:
        code = self._codes.get(word)
        return slice(0) if code is None else slice(self._bounds[code], self._bounds[code + 1])

    def talks_holding(self, word: str | Window) -> int:
        """Return the number of talks that contain a word."""
        if isinstance(word, str) and word not in self._codes:
            return 0
        if word not in self._talks_holding:
            self._talks_holding[word] = int(np.count_nonzero(_changes(self.talk[self.slot[self.holding(word)]])))
        return self._talks_holding[word]

    def rows_of(self, slots: NDArray[np.integer]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows of `slots`, slot by slot, and the offset of each slot's first row."""
        first = self.first_row[slots]
        counts = self._row_counts[slots]
        bounds = np.cumsum(counts) - counts
        return np.repeat(first - bounds, counts) + np.arange(int(counts.sum())), bounds


def _codes(column: pa.ChunkedArray) -> NDArray[np.int32]:
    codes: NDArray[np.int32] = column.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return codes


def _ranks(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    encoded = column.combine_chunks().dictionary_encode()
    ranks = pc.rank(encoded.dictionary, tiebreaker="dense").to_numpy()
    found: NDArray[np.uint64] = ranks[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def _instants(column: pa.ChunkedArray) -> NDArray[np.int64]:
    instants: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return instants


def _changes(*columns: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return a mask of the places that differ from the one before; the first place does."""
    changed = np.zeros(len(columns[0]), np.bool_)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


#: A point may begin with its day and a speaker: "2024-01-15 Anna: I moved to Porto."
_POINT: Final = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d) )?(?P<text>(?:(?P<speaker>[^\W\d_][^:\n]{0,60}): )?.*)", re.DOTALL
)


_SPEAKER: Final = re.compile(r"([^\W\d_][^:\n]{0,60}): ")


def speaker_of(content: str) -> str | None:
    """Return the speaker of a text that begins with a name and a colon, or None."""
    match = _SPEAKER.match(content)
    return None if match is None else match[1]


class _Point(NamedTuple):
    place: int
    number: int
    text: str
    day: date | None
    speaker: str | None

    @classmethod
    def read(cls, place: int, number: int, line: str) -> _Point:
        match = _POINT.fullmatch(line)
        assert match is not None, line  # noqa: S101  # nosec B101  # all parts are optional
        return cls(place, number, match["text"], _day(match["day"]), match["speaker"])


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None


def points_of(rows: pa.Table, dimension: int, calendar: Calendar, scope: Scope | None = None) -> RowBlock:
    """Return the points of summaries as rows without vectors; the points of a summary are one talk."""
    lines = [
        _Point.read(place, number, line)
        for place, content in enumerate(rows["content"].to_pylist())
        for number, line in enumerate(content.splitlines())
        if line.strip()
    ]
    places = pa.array([line.place for line in lines], pa.int64())
    ids = rows["id"].take(places)
    own = [f"{summary}#{line.number}" for summary, line in zip(ids.to_pylist(), lines, strict=True)]
    whole = zip(rows["starts_at"].take(places).to_pylist(), rows["ends_at"].take(places).to_pylist(), strict=True)
    times = [
        bounds if line.day is None else calendar.bounds(Period.containing(Grain.DAILY, line.day))
        for bounds, line in zip(whole, lines, strict=True)
    ]
    columns = {name: rows[name].take(places) for name in rows.column_names}
    columns |= {
        "id": pa.array(own, pa.string()),
        "conversation_id": ids,
        "speaker": pa.array([line.speaker for line in lines], pa.string()),
        "turn": pa.array([line.number for line in lines], pa.int32()),
        "content": pa.array([line.text for line in lines], pa.string()),
        "starts_at": pa.array([start for start, _ in times], TIME),
        "ends_at": pa.array([end for _, end in times], TIME),
        "source_ids": pa.array([[identifier] for identifier in own], pa.list_(pa.string())),
        "terms": pa.array([terms(line.text) for line in lines], pa.list_(pa.string())),
    }
    return RowBlock(pa.table(columns), np.full((len(lines), dimension), np.nan, np.float32), scope)


TIME: Final = pa.timestamp("us", tz="UTC")


def speaker_addressed(segments: Iterable[RowBlock], name: str) -> str | None:
    """Return the speaker whom the others address by a name, as in "Thanks, Kate!"; None if there is no such speaker.

    Only talks of two tell whom a message addresses. Who is also talked about, or talks of the name, is another person.
    """
    address = re.compile(
        rf"^{re.escape(name)}[,!]|{_GREETS},? {re.escape(name)}\b|, {re.escape(name)}[.!?]?$", re.IGNORECASE
    )
    votes: Counter[str] = Counter()
    for segment in segments:
        talk = segment.talk[segment.slot]
        speakers: dict[int, set[int]] = {}
        rows = np.concatenate([np.zeros(0, np.int32), *(segment.holding(word) for word in terms(name))])
        for row in np.unique(rows)[-_MOST_ADDRESSES:].tolist():
            at, speaker = int(talk[row]), int(segment.speaker[row])
            if at not in speakers:
                within = slice(*np.searchsorted(talk, [at, at + 1]))
                speakers[at] = {*np.unique(segment.speaker[within]).tolist()} - {-1}
            others = speakers[at] - {speaker}
            if speaker < 0 or len(others) != 1:
                continue
            content = segment.rows["content"][row].as_py().removeprefix(f"{segment.speakers[speaker]}: ")
            ends = content if len(content) <= 2 * _ENDS else f"{content[:_ENDS]} … {content[-_ENDS:]}"
            votes[segment.speakers[others.pop()]] += 1 if address.search(ends) else -1
            votes[segment.speakers[speaker]] -= 1
    best = max(votes, key=lambda one: (votes[one], one), default=None)
    return best if best is not None and votes[best] >= _LEAST_ADDRESSES else None
