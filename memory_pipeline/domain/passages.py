"""Split long texts into passages of about 60 words, to show the relevant part of a message.

Passages end at sentences or lines. A fenced code block or a table is not split up to 120 words. The time is linear in
the length of the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Maximum words of a passage, and of an unsplit block.
PASSAGE_WORDS: Final = 60
BLOCK_WORDS: Final = 120
#: A text of up to this many words is shown as a whole.
WHOLE_WORDS: Final = 80
#: Characters that are read of a longer text.
_READ: Final = 50_000
#: Longest text with cached passages, in characters.
_CACHED: Final = 10_000
#: Characters per word in scripts without blanks.
_CHARACTERS: Final = 2
#: Maximum characters per word in other scripts, for text with few blanks.
_LONG: Final = 12
#: Start of a fence or of a table row.
_MARKED: Final = re.compile(r"[ \t]*(```|~~~|\|)")
_UNSPACED: Final = re.compile("[\u2e80-\uffdc]")
#: A word has at most 100 characters; a longer run without blanks is split.
_WORD: Final = re.compile(r"\S{1,100}+")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
#: A sentence with its end: punctuation before a blank, Chinese and Japanese punctuation, or the end of the line.
_SENTENCE: Final = re.compile(r"(?:[^.!?…。！？]++|[.!?…]++(?!\s|$))*+(?:[.!?…]++|[。！？]++[」』”’]*+)?+\s*+")


#: A sentence or a block: start, end, words, and whether it is a block.
_Piece = tuple[int, int, int, bool]


class Passage(NamedTuple):
    """Start and end of a passage in its text."""

    start: int
    end: int


def word_count(text: str) -> int:
    """Return the number of words; in scripts without blanks, half the number of characters."""
    spaced, unspaced = (text, 0) if text.isascii() else _UNSPACED.subn(" ", text)
    # Long runs without blanks, such as URLs, count as several words.
    return -(-unspaced // _CHARACTERS) + max(len(spaced.split()), (len(text) - unspaced) // _LONG)


def passages(text: str) -> list[Passage]:
    """Split a text into passages, in order; only blanks between passages are left out."""
    found: list[Passage] = []
    start = end = size = 0
    for first, last, words, is_block in _pieces(text):
        if not words:
            continue
        if size and (is_block or size + words > PASSAGE_WORDS):
            found.append(Passage(start, end))
            size = 0
        if not size:
            start = first
        end, size = last, size + words
        if is_block:
            found.append(Passage(start, end))
            size = 0
    if size:
        found.append(Passage(start, end))
    return found


def _counting(text: str) -> Callable[[str], int]:
    """Return a function that is equal to :func:`word_count` for parts of `text`, and faster if possible."""
    if text.isascii() or _UNSPACED.search(text) is None:
        return lambda part: max(len(part.split()), len(part) // _LONG)
    return word_count


def _pieces(text: str) -> Iterator[_Piece]:
    """Yield sentences, and blocks of code or of a table, in order."""
    count = _counting(text)
    block: int | None = None  # start of the current block
    fence = ""  # end of the current block; empty for a table, which ends with any other line
    for line in _LINE.finditer(text):
        start, end = line.span()
        mark = marked[1] if (marked := _MARKED.match(text, start, end)) else ""
        if fence:
            if mark == fence:
                yield from _block(text, block or 0, end, count)
                block, fence = None, ""
            continue
        is_table = mark == "|"
        if block is not None and not is_table:
            yield from _block(text, block, start, count)
            block = None
        if is_table:
            block = start if block is None else block
        elif mark:
            block, fence = start, mark
        else:
            for sentence in _SENTENCE.finditer(text, start, end):
                first, last = sentence.span()
                if (words := count(text[first:last])) <= PASSAGE_WORDS:
                    yield first, last, words, False
                else:
                    yield from _chunks(text, first, last, PASSAGE_WORDS, count)
    if block is not None:
        yield from _block(text, block, len(text), count)


def _block(text: str, start: int, end: int, count: Callable[[str], int]) -> Iterator[_Piece]:
    """Yield a block as a whole, or split at line ends if it is long."""
    size = 0
    first = start
    for line in _LINE.finditer(text, start, end):
        words = count(line.group())
        if size and size + words > BLOCK_WORDS:
            yield first, line.start(), count(text[first : line.start()]), True
            first, size = line.start(), 0
        size += words
        if size > BLOCK_WORDS:  # one line
            for begin, stop, part, _ in _chunks(text, first, line.end(), BLOCK_WORDS, count):
                yield begin, stop, part, True
            first, size = line.end(), 0
    if size:
        yield first, end, count(text[first:end]), True


def _chunks(text: str, start: int, end: int, limit: int, count: Callable[[str], int]) -> Iterator[_Piece]:
    """Yield the parts of a long sentence, split at blanks, or within very long words."""
    first, size = start, 0
    for match in _WORD.finditer(text, start, end):
        words = count(match.group())
        if size and size + words > limit:
            yield first, match.start(), count(text[first : match.start()]), False
            first, size = match.start(), 0
        size += words
    if size:
        yield first, end, count(text[first:end]), False


def excerpt(text: str, worth: Callable[[str], float]) -> str:
    """Return the best passage of a text, with its neighbours if it is short, and "…" where text is omitted.

    A text that is little longer than a passage is returned as a whole. Only the first 50,000 characters are read.
    `worth` returns the score of a passage, 0 or more; the first of equal passages wins.
    """
    whole, text = text, text[:_READ]
    if len(text) // _LONG <= WHOLE_WORDS and word_count(text) <= WHOLE_WORDS:
        return whole
    parts = _cut(text) if len(text) <= _CACHED else passages(text)
    best = max(range(len(parts)), key=lambda place: (worth(text[slice(*parts[place])]), -place))
    first = last = best
    size = word_count(text[slice(*parts[best])])
    for place in (best + 1, best - 1):
        if 0 <= place < len(parts):
            words = word_count(text[slice(*parts[place])])
            if size + words <= PASSAGE_WORDS:
                first, last, size = min(first, place), max(last, place), size + words
    begin, end = parts[first].start, parts[last].end
    is_cut = last + 1 < len(parts) or len(text) < len(whole)
    return f"{'… ' if first else ''}{text[begin:end].strip()}{' …' if is_cut else ''}"


@lru_cache(maxsize=2048)
def _cut(text: str) -> Sequence[Passage]:
    """Return the cached passages of a text: the same texts are often shown again."""
    return passages(text)
