"""Parse untrusted JSON and reject duplicate keys. Python silently keeps the last value."""

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
    """A JSON object has a duplicate key."""


def read_json(text: str | bytes) -> Any:
    """Parse a JSON text like :func:`json.loads`.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: the nesting is too deep.
        RepeatedKeyError: an object has a duplicate key; the message names it. This is a ValueError, too.
    """
    return json.loads(text, object_pairs_hook=_object_of)


def items_of(text: str) -> Iterator[str]:
    """Yield the text of each item of a JSON list. The text must be valid JSON."""
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
    """Return the pairs of a JSON object as a dictionary; an ``object_pairs_hook`` for :mod:`json`."""
    found = dict(pairs)
    if len(found) < len(pairs):
        [(repeated, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise RepeatedKeyError(f"key {shown(repeated)} is duplicated in one object; keep one of the two")
    return found
