"""Reads JSON from outside, in which no key may stand twice: of two values, Python keeps the last without a word."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPACE: Final = re.compile(r"[ \t\n\r]*")


class RepeatedKeyError(InputError):
    """An object has a key twice."""


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text, as :func:`json.loads` does.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deep.
        RepeatedKeyError: an object in it has a key twice; the message names the key. It is a ValueError, too.
    """
    return json.loads(text, object_pairs_hook=_object_of)


def items_of(text: str) -> Iterator[str]:
    """Yield the text of each item of a list, given that :func:`json.loads` accepts it."""
    decoder = json.JSONDecoder()
    at = _after_space(text, text.index("[") + 1)
    while text[at] != "]":
        _, end = decoder.raw_decode(text, at)
        yield text[at:end]
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _object_of(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the pairs of a JSON object as a dictionary; an ``object_pairs_hook`` of :mod:`json`.

    Raises:
        RepeatedKeyError: a key stands twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise RepeatedKeyError(f"key {shown(twice)} stands twice in one object; keep one of the two")
    return found
