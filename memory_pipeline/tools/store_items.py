"""Items that clients put into a store: JSON values by namespace and key, kept as durable memories.

An item is a preference of its namespace: the memory's ``user_id`` is ``langgraph:`` and the labels joined by dots, its
``value`` is the item, and its ``content`` the text that searches compare. So a put is found at once, replaces the item
with the same key, keeps its history, and is erased with its user. Its importance of 0 keeps it out of the hot index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.domain.memories.record import MAX_CONTENT, MemoryKind, SourceType
from memory_pipeline.domain.scopes import MAX_ID, label_of
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.errors import InputError, shown
from memory_pipeline.memories.change_events import stored_json
from memory_pipeline.memories.queries import MAX_LISTED, precedence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.memories import Header
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.writer import MemoryWriter

#: The tag of all items, the beginning of the other tags, and the author of changes.
_STORE: Final = "langgraph"
_OWNER: Final = f"{_STORE}:"
#: Labels of a namespace that have a tag, so that a search reads only the items below them.
_TAGGED: Final = 10
#: Results of one search of the reader.
_PAGE: Final = 100
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

Namespace = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundItem:
    """An item of a store. `is_put` tells the items of clients from what the pipeline made."""

    key: str
    namespace: Namespace
    value: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    score: float | None = None
    is_put: bool = False


class StoreItems:
    """The items that one reader sees. Of items with one namespace and key, the user's own comes before a shared one.

    `now` returns the time up to which items are read.
    """

    def __init__(self, reader: MemoryReader, now: Callable[[], datetime]) -> None:
        self._reader = reader
        self._now = now

    def get(self, namespace: Namespace, key: str) -> FoundItem | None:
        """Return an item, or None."""
        memory = self._memory(_OWNER + ".".join(namespace), key)
        return None if memory is None else _item(memory)

    def search(self, prefix: Namespace, query: str | None) -> Iterator[FoundItem]:
        """Yield the items below a prefix: the best for a query first, then those without a text; else the newest first.

        Without a query, or without a text, only the newest 10,000 are found.
        """
        for memory, score in self._scored(_tag(prefix), query) if query is not None else self._newest(_tag(prefix)):
            item = _item(memory, score)
            if item.namespace[: len(prefix)] == prefix and not self._is_hidden(memory):
                yield item

    def namespaces(self) -> set[Namespace]:
        """Return the namespaces that have items."""
        headers = self._reader.memories.matching(kind=MemoryKind.PREFERENCE, tag=_STORE)
        return {_namespace(header) for header in headers if is_item(header)}

    def write(self, writer: MemoryWriter, changes: Iterable[Mapping[str, object]]) -> None:
        """Make changes of :func:`put_change` with one write. The deletion of an unknown item does nothing."""
        memories, records = self._reader.memories, []
        for change in changes:
            if "value" in change:
                records.append(change)
                continue
            owner, key = str(change["user_id"]), str(change["key"])
            known = memories.matching(kind=MemoryKind.PREFERENCE, user_id=owner, key=key)
            own = (one.id for one in known if memories.identity_of(one.id) == writer.scope.identity)
            records += [{"memory": MemoryVerb.FORGET.value, "memory_id": id_, "editor": _STORE} for id_ in own]
        writer.change_memories(records, now=self._now())

    def _memory(self, owner: str, key: str | None) -> DurableMemory | None:
        memories, now = self._reader.memories, self._now()
        try:
            # Revoked ones too: the item may have been there at the time.
            headers = memories.matching(kind=MemoryKind.PREFERENCE, status=None, user_id=owner, key=key)
        except InputError:
            return None  # no item can have this namespace or key
        found = [one for header in headers if (one := memories.get(header.id, now=now)) is not None and one.is_active]
        return max(found, key=lambda one: precedence(memories.identity_of(one.id)), default=None)

    def _is_hidden(self, memory: DurableMemory) -> bool:
        """Return whether the reader's user has an item of their own with the same namespace and key."""
        if self._reader.user_id is None or self._reader.memories.identity_of(memory.id).startswith("user:"):
            return False
        first = self._memory(memory.user_id or "", memory.key)
        return first is not None and first.id != memory.id

    def _scored(self, tag: str, query: str) -> Iterator[tuple[DurableMemory, float | None]]:
        seen: list[str] = []
        while len(seen) < MAX_LISTED:
            page = self._reader.memories.search(query, _PAGE, tag=tag, exclude=seen, hops=0, now=self._now())
            yield from ((one.memory, one.score) for one in page if not _is_without_text(one.memory))
            seen += [one.memory.id for one in page]
            if len(page) < _PAGE:
                break
        yield from ((one, None) for one, _ in self._newest(tag) if _is_without_text(one))

    def _newest(self, tag: str) -> Iterator[tuple[DurableMemory, float | None]]:
        seen = set[str]()
        limit = _PAGE
        while limit <= MAX_LISTED:  # most searches need the first page only
            page = self._reader.memories.list(tag=tag, limit=limit, now=self._now())
            yield from ((one, None) for one in page if is_item(one) and one.id not in seen)
            if len(page) < limit:
                return
            seen |= {one.id for one in page}
            limit *= 10


def put_change(
    namespace: Namespace, key: object, value: object, texts: Callable[[Any], Sequence[str]]
) -> Mapping[str, object]:
    """Return the change that puts an item, or deletes it if `value` is None.

    `texts` returns the texts of the value that searches compare; none if no query is to find the item.

    Raises:
        InputError: the namespace, the key or the value is not accepted.
    """
    where = f"{shown(key)} in {shown(namespace)}"
    owner = _OWNER + ".".join(namespace)
    if len(owner) > MAX_ID:
        most = MAX_ID - len(_OWNER)
        raise InputError(f"namespace {shown(namespace)} is too long; expected at most {most} characters with dots")
    label_of("namespace", owner)
    if " ".join(label_of("key", key).split()) != key:
        raise InputError(f"key {shown(key)} is not accepted; expected no blanks at its ends and single ones within")
    change = {"user_id": owner, "key": key, "editor": _STORE}
    if value is None:
        return change
    if not isinstance(value, Mapping):
        raise InputError(f"value {shown(value)} of {where} is not accepted; expected a mapping, or None to delete")
    text = stored_json(f"value of {where}", dict(value))
    if not is_unicode(text):
        raise InputError(f"value of {where} is not valid Unicode text")
    content = "\n".join(texts(json.loads(text)))
    content = without_recalled("\n".join(_CONTROL.sub(" ", line) for line in content.split("\n"))[:MAX_CONTENT]).strip()
    return {
        **change,
        "memory": MemoryVerb.REMEMBER.value,
        "kind": MemoryKind.PREFERENCE.value,
        "value": json.loads(text),
        "content": content or _without_text(owner, key),
        "importance": 0.0,
        "source_type": SourceType.ASSISTANT.value,
        "tags": [_STORE, *(_tag(namespace[:length]) for length in range(1, min(len(namespace), _TAGGED) + 1))],
    }


def readable(value: object) -> list[str]:
    """Return the texts and numbers in a JSON value, each after the name of its field unless there is only one."""
    found = list(_leaves("", value))
    return [text if len(found) == 1 or not name else f"{name}: {text}" for name, text in found]


def _leaves(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _leaves(str(inner), one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(name, one)
    elif value is not None and str(value).strip():
        yield name, str(value)


def is_item(memory: DurableMemory | Header) -> bool:
    """Return whether a durable memory is an item of a store."""
    return memory.key is not None and (memory.user_id or "").startswith(_OWNER) and _STORE in memory.tags


def _item(memory: DurableMemory, score: float | None = None) -> FoundItem:
    value = json.loads(memory.value or "{}")
    times = (memory.created_at, memory.updated_at)
    return FoundItem(memory.key or "", _namespace(memory), value, *times, score, is_put=True)


def _namespace(memory: DurableMemory | Header) -> Namespace:
    return tuple((memory.user_id or "").removeprefix(_OWNER).split("."))


def _tag(prefix: Namespace) -> str:
    return f"{_OWNER}{digest(*prefix[:_TAGGED])}" if prefix else _STORE


def _is_without_text(memory: DurableMemory) -> bool:
    return memory.content == _without_text(memory.user_id, memory.key)


def _without_text(owner: str | None, key: object) -> str:
    return f"{owner} {key}"


def fits(value: object, condition: object) -> bool:
    """Return whether a value meets a filter: an equal value, operators, or a mapping of fields to filters.

    Raises:
        InputError: an operator is unknown, or the values cannot be compared.
    """
    if isinstance(condition, Mapping):
        if any(str(key).startswith("$") for key in condition):
            return all(_compared(value, operator, bound) for operator, bound in condition.items())
        return isinstance(value, Mapping) and all(fits(value.get(key), one) for key, one in condition.items())
    if isinstance(condition, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(condition)
            and all(fits(one, wanted) for one, wanted in zip(value, condition, strict=True))
        )
    return value == condition


def _compared(value: Any, operator: str, bound: Any) -> bool:
    compare = _OPERATORS.get(operator)
    if compare is None:
        raise InputError(f"operator {shown(operator)} is unknown; accepted: {', '.join(_OPERATORS)}")
    if value is None and operator not in {"$eq", "$ne"}:
        return False
    try:
        return bool(compare(value, bound))
    except TypeError:
        raise InputError(f"{operator} {shown(bound)} cannot be compared with {shown(value)}") from None


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "$eq": eq, "$ne": ne, "$gt": gt, "$gte": ge, "$lt": lt, "$lte": le,
}  # fmt: skip
