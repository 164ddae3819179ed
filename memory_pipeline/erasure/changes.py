"""The texts in the changes of memory events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Memory events store their changes as JSON. Its keys never name a person, so only its values are matched.
_NO_TEXTS = frozenset(["kind", "memory_class", "source_type"])


def texts_in(changes: str) -> list[str]:
    """Return the texts in a value of the column ``changes``; the value itself if it is not JSON."""
    return list(texts_of(_read(changes)))


def text_in(changes: str, name: str) -> str | None:
    """Return the text of a field, such as ``content``, in a value of the column ``changes``, or None."""
    changed = _read(changes)
    text = changed.get(name) if isinstance(changed, Mapping) else None
    return text if isinstance(text, str) else None


def texts_of(changes: object) -> Iterator[str]:
    """Yield the texts in the changes of an event, at any depth of objects and lists."""
    if isinstance(changes, str):
        yield changes
    elif isinstance(changes, Mapping):
        for name, value in changes.items():
            if name not in _NO_TEXTS:
                yield from texts_of(value)
    elif isinstance(changes, list):
        for value in changes:
            yield from texts_of(value)


def _read(changes: str) -> object:
    try:
        value: object = json.loads(changes)
    except (ValueError, RecursionError):
        return changes
    return value
