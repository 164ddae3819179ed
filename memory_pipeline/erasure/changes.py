"""The texts in what an event says of a durable memory, which stands as JSON: names of its fields are nobody's name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

#: Fields whose values are words of this package.
_NO_TEXTS = frozenset(["kind"])


def texts_in(changes: str) -> list[str]:
    """Return the texts that a column ``changes`` holds in a row; all of it where it is no JSON."""
    return list(texts_of(_read(changes)))


def content_in(changes: str) -> str | None:
    """Return what a memory is to say, of a row of a column ``changes``; None where it says nothing of that."""
    said = _read(changes)
    content = said.get("content") if isinstance(said, Mapping) else None
    return content if isinstance(content, str) else None


def texts_of(said: object) -> Iterator[str]:
    """Yield the texts in what an event says: its values, and those in lists. What is set is JSON, and taken as text."""
    if isinstance(said, str):
        yield said
    elif isinstance(said, Mapping):
        for name, value in said.items():
            if name not in _NO_TEXTS:
                yield from texts_of(value)
    elif isinstance(said, list):
        for value in said:
            yield from texts_of(value)


def _read(changes: str) -> object:
    try:
        said: object = json.loads(changes)
    except (ValueError, RecursionError):
        return changes
    return said
