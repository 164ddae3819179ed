"""Format stored text for models: marked as data, within a token budget, one line per entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.model_calls import BYTES_PER_TOKEN
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.domain.text.recalled_text import FRAME_BYTES, LINE, mark
from memory_pipeline.rendering import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

#: If not all texts fit, each keeps at least this many bytes or is left out.
_LEAST = 160
#: Bytes reserved for the line that reports cuts.
_NOTE = 184
_CUT = "…"
#: Bytes of the mark of a line.
_MARK = len(LINE.encode())
_OF_LINES = f"  {_CUT} {{}} of {{}} lines"


class TextEntry(NamedTuple):
    """An entry of an answer. Only `text` may be cut; it then keeps the lines with most of the `search_terms`."""

    before: str
    text: str
    after: str = ""
    search_terms: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Bytes of the whole entry, with line breaks and marks of lines."""
        return sum(map(_bytes, (self.before, self.text, self.after))) + _MARK + 1

    def within(self, size: int) -> str:
        """Return the entry with its text cut, to at most `size` bytes in all if `before` and `after` leave room."""
        whole = _bytes(self.text)
        room = size - (self.size - whole)
        text = self.text if room >= whole else self._lines(room) if "\n" in self.text else _cut(self.text, room)
        return f"{self.before}{text}{self.after}"

    def _lines(self, room: int) -> str:
        all_lines = self.text.split("\n")
        shared = [len(self.search_terms.intersection(terms(one))) if self.search_terms else 0 for one in all_lines]
        best = sorted(range(len(all_lines)), key=lambda place: (-shared[place], place))
        room -= len(_OF_LINES.format(len(all_lines), len(all_lines)).encode()) + _MARK
        fitting: list[int] = []
        for place in best:
            room -= len(all_lines[place].encode()) + _MARK + 1
            if room < 0:
                break
            fitting.append(place)
        if not fitting:
            first = all_lines[best[0]]
            return _cut(first, room + len(first.encode()) + _MARK + 1)
        shown = "\n".join(all_lines[place] for place in sorted(fitting))
        return f"{shown}\n{_OF_LINES.format(len(fitting), len(all_lines))}"


def _bytes(text: str) -> int:
    """Return the bytes of a text, with the marks of all lines except the first."""
    return len(text.encode()) + _MARK * text.count("\n")


def _cut(text: str, room: int) -> str:
    return text.encode()[: max(room - len(_CUT.encode()), 0)].decode(errors="ignore").rstrip() + _CUT


def line(text: str) -> str:
    """Return a stored text as one line, so that it cannot imitate a line of the answer."""
    return plain(" ".join(text.split()))


def lines(text: str) -> str:
    """Return the lines of a stored text, indented."""
    return "\n".join(f"  {line(part)}" for part in text.splitlines() if part.strip())


def answer_text(head: str, entries: Sequence[TextEntry], max_tokens: int, hint: str = "") -> str:
    """Return an answer with stored text, marked as data, within a budget estimated at 4 bytes a token.

    `head` is the first line, `hint` the last one. `entries` are most useful first. If not everything fits, long texts
    are cut first, then the last entries are left out. A note reports both.
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
    """Return the largest size such that entries cut to it, but not below their least, fit into `room`."""
    low, high = 0, max(sizes, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, max(middle, floor)) for size, floor in zip(sizes, least, strict=True)) <= room:
            low = middle
        else:
            high = middle - 1
    return low
