"""Input that is longer than a model takes, cut into chunks; nothing is left out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.domain.model_calls import count_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_pipeline.configuration.model_settings import Completion

#: Tokens are estimated, and some scripts have more of them than the estimate.
_SAFETY = 0.8
_BLANK = re.compile(r"\s")
#: A chunk has room for so many tokens at least, however long the instructions are.
_LEAST = 400


@dataclass(frozen=True, slots=True)
class Line:
    """A numbered line of input: who and when, then what."""

    number: int
    header: str
    text: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """As many lines as fit into one question; a line that does not fit is in several, part by part.

    Attributes:
        numbers: the lines in it.
        text: the lines as they are shown.
    """

    numbers: tuple[int, ...]
    text: str


def room_for(endpoint: Completion, system: str) -> int:
    """Return how many tokens of input a question has room for, beside its instructions and its answer."""
    room = endpoint.context_tokens - endpoint.max_output_tokens - count_tokens(system)
    return max(int(room * _SAFETY), _LEAST)


def chunks_of(lines: Sequence[Line], room: int) -> list[Chunk]:
    """Cut lines into chunks of at most `room` tokens, at the ends of lines where that is possible."""
    chunks: list[Chunk] = []
    numbers: list[int] = []
    texts: list[str] = []
    used = 0
    for number, text in _pieces(lines, room):
        size = count_tokens(text) + 1
        if texts and used + size > room:
            chunks.append(Chunk(tuple(dict.fromkeys(numbers)), "\n".join(texts)))
            numbers, texts, used = [], [], 0
        numbers.append(number)
        texts.append(text)
        used += size
    if texts:
        chunks.append(Chunk(tuple(dict.fromkeys(numbers)), "\n".join(texts)))
    return chunks


def _pieces(lines: Sequence[Line], room: int) -> Iterator[tuple[int, str]]:
    for line in lines:
        whole = f"{line.header} {line.text}"
        if count_tokens(whole) < room:
            yield line.number, whole
            continue
        parts = list(_parts(line.text, (room - count_tokens(line.header) - 10) * 4))
        for part, text in enumerate(parts, start=1):
            yield line.number, f"{line.header} (part {part} of {len(parts)}) {text}"


def _parts(text: str, size: int) -> Iterator[str]:
    """Cut a text into parts of at most `size` bytes of UTF-8, between words where there are any."""
    size = max(size, 200)
    while text:
        part = text.encode("utf-8", "surrogatepass")[:size].decode(errors="ignore") or text[:1]
        if len(part) < len(text) and (blanks := list(_BLANK.finditer(part, len(part) // 2))):
            part = part[: blanks[-1].end()]
        yield part
        text = text[len(part) :]
