"""The source and the metadata of a message, as labels beside the tags of its conversation.

An index row has its labels in the column of tags, so that they are exact filters wherever tags are. No tag contains a
control character, and each label begins with one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MARK = "\x1f"
#: Stands in place of a key. Keys of metadata are in lists.
_SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Attributes:
    """What the writers of some messages said about them.

    `sources` are where their conversations come from, the latest last. Of two values of an entry of `metadata`, the
    later one counts.
    """

    sources: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, messages: Iterable[Iterable[str]]) -> Attributes:
        """Return the attributes in the labels of messages, oldest first."""
        sources: dict[str, None] = {}
        metadata: dict[str, Any] = {}
        for source, entries in map(attributes_in, messages):
            if source is not None:
                sources.pop(source, None)
                sources[source] = None
            metadata |= entries
        return cls(tuple(sources), metadata)


def labels_of_attributes(source: str | None, metadata: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return a label for the source, and one for each entry of the metadata."""
    entries = [(_SOURCE, source)] if source is not None else []
    labels: list[object] = [*entries, *([[key], value] for key, value in (metadata or {}).items())]
    return tuple(f"{_MARK}{json.dumps(_plain(one), ensure_ascii=False, sort_keys=True)}" for one in labels)


def attributes_in(labels: Iterable[str] | None) -> tuple[str | None, dict[str, Any]]:
    """Return the source and the metadata in the labels of a row, of which others are tags."""
    source: str | None = None
    metadata: dict[str, Any] = {}
    for label in labels or ():
        if label.startswith(_MARK):
            key, value = json.loads(label[len(_MARK) :])
            if isinstance(key, list):
                metadata[key[0]] = value
            else:
                source = value
    return source, metadata


def _plain(value: Any) -> Any:
    """Return JSON in which equal numbers are equal texts: 7.0 is 7."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, dict) else value
