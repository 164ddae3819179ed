"""Texts for models: what memory holds, in lines that cannot be taken for others, within a budget, marked as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.model_calls import BYTES_PER_TOKEN
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.domain.text.recalled_text import FRAME_BYTES, LINE, mark
from memory_pipeline.rendering import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Where not all texts fit, each keeps so many bytes at least, or is left out.
_LEAST = 160
#: Kept free for the line that says what was cut.
_NOTE = 184
_CUT = "…"
#: What the mark of a line takes.
_MARK = len(LINE.encode())
_OF_LINES = f"  {_CUT} {{}} of {{}} lines"


class TextEntry(NamedTuple):
    """A part of an answer; its text, and nothing else of it, may be cut.

    Attributes:
        before, text, after: as they follow each other.
        wanted: words; of a text of several lines those that hold most of them are kept.
    """

    before: str
    text: str
    after: str = ""
    wanted: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Bytes that it takes whole, its line breaks and the marks of its lines included."""
        return sum(map(_bytes, (self.before, self.text, self.after))) + _MARK + 1

    def within(self, size: int) -> str:
        """Return it in at most `size` bytes, if what may not be cut fits into that."""
        whole = _bytes(self.text)
        room = size - (self.size - whole)
        text = self.text if room >= whole else self._lines(room) if "\n" in self.text else _cut(self.text, room)
        return f"{self.before}{text}{self.after}"

    def _lines(self, room: int) -> str:
        """Return the lines that are wanted most, in their order, and how many there are in all."""
        every = self.text.split("\n")
        shared = [len(self.wanted.intersection(terms(one))) if self.wanted else 0 for one in every]
        best = sorted(range(len(every)), key=lambda place: (-shared[place], place))
        room -= len(_OF_LINES.format(len(every), len(every)).encode()) + _MARK
        kept: list[int] = []
        for place in best:
            room -= len(every[place].encode()) + _MARK + 1
            if room < 0:
                break
            kept.append(place)
        if not kept:
            first = every[best[0]]
            return _cut(first, room + len(first.encode()) + _MARK + 1)
        shown = "\n".join(every[place] for place in sorted(kept))
        return f"{shown}\n{_OF_LINES.format(len(kept), len(every))}"


def _bytes(text: str) -> int:
    """Return the bytes of a text, with the marks of its lines but the first."""
    return len(text.encode()) + _MARK * text.count("\n")


def _cut(text: str, room: int) -> str:
    return text.encode()[: max(room - len(_CUT.encode()), 0)].decode(errors="ignore").rstrip() + _CUT


def line(text: str) -> str:
    """Return a stored text as one line, so that nothing in it passes for a line of the answer."""
    return plain(" ".join(text.split()))


def lines(text: str) -> str:
    """Return a stored text of several lines, each indented."""
    return "\n".join(f"  {line(part)}" for part in text.splitlines() if part.strip())


def told(head: str, entries: Sequence[TextEntry], max_tokens: int, hint: str = "") -> str:
    """Return an answer that holds stored text, marked as data.

    Where not everything fits, long texts are cut before short ones, then the last are left out; and it is said.

    Args:
        head: the first line: how much of what follows.
        entries: what was found, the most useful first.
        max_tokens: what the answer may take, at 4 bytes a token.
        hint: the last line: where to look further.
    """
    room = max_tokens * BYTES_PER_TOKEN - FRAME_BYTES - len(head.encode()) - len(hint.encode()) - 2 - 2 * _MARK
    sizes = [entry.size for entry in entries]
    if sum(sizes) <= room:
        return mark("\n".join(filter(None, [head, *(entry.within(entry.size) for entry in entries), hint])))
    room -= _NOTE
    least = [_least(entry) for entry in entries]
    count, taken = 0, 0
    while count < len(entries) and taken + least[count] <= room:
        taken += least[count]
        count += 1
    count = max(count, min(len(entries), 1))
    level = _level(sizes[:count], least[:count], room)
    shown = [entry.within(max(level, low)) for entry, low in zip(entries[:count], least, strict=False)]
    cut = sum(size > max(level, low) for size, low in zip(sizes[:count], least, strict=False))
    parts = []
    if cut:
        parts.append(f"{cut} cut short at {_CUT}: get_memory shows one by its id")
    if count < len(entries):
        parts.append(f"{len(entries) - count} left out: ask for less at once")
    note = f"Cut to {max_tokens:,} tokens: {'; '.join(parts)}."
    return mark("\n".join(filter(None, [head, *shown, note, hint])))


def _least(entry: TextEntry) -> int:
    fixed = entry.size - _bytes(entry.text)
    return min(entry.size, fixed + _LEAST)


def _level(sizes: Sequence[int], least: Sequence[int], room: int) -> int:
    """Return the greatest size to which all may be cut so that they fit; none is cut below its least."""
    low, high = 0, max(sizes, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, max(middle, floor)) for size, floor in zip(sizes, least, strict=True)) <= room:
            low = middle
        else:
            high = middle - 1
    return low
