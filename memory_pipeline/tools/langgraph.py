"""An agent's memory as a store of LangGraph. The only module that imports LangGraph.

::

    graph = builder.compile(store=MemoryStore(reader, writer))
    store.put(("memories", "anna"), "k1", {"text": "Anna lives in Porto."})
    store.search(("memories", "anna"), query="Where does Anna live?", limit=5)

Items that are put are durable memories with a namespace, a key and a value (:mod:`memory_pipeline.tools.store_items`).
That gives read-after-write, one value for each key, history, point in time and erasure, which collections do not have.

What the pipeline made is in read-only namespaces of its own: one per grain (``("working",)``, ``("daily",)``, …),
``("durable",)`` for durable memories, and ``("graph",)``. They hold what the reader sees. The same namespaces after
``("memories", user_id)`` hold what a user sees: the memory of the user, of the user's groups and of the agent. A
template such as ``("memories", "{user_id}")`` takes the user from the configuration of a run, never from a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from functools import cache, lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.memories.decay import warning
from memory_pipeline.domain.memories.record import Status
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.errors import InputError, require, shown
from memory_pipeline.overlay import one_read
from memory_pipeline.tools.store_items import FoundItem, StoreItems, fits, is_item, put_change, readable
from memory_pipeline.tools.tool import Access

require("langgraph", "langgraph.store.base")

from langgraph.store.base import (  # noqa: E402
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    PutOp,
    SearchItem,
    SearchOp,
    get_text_at_path,
    validate_op_namespace,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from langgraph.store.base import MatchCondition, Op, Result

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.graph import GraphFact
    from memory_pipeline.reader import Hit, MemoryReader
    from memory_pipeline.writer import MemoryWriter

DURABLE: Final = "durable"
GRAPH: Final = "graph"
#: The label that stands for the user in a template of namespaces, and the namespaces of users by default.
USER: Final = "{user_id}"
USERS: Final = ("memories", USER)
#: Users whose readers stay open.
_MOST_READERS: Final = 64
#: The namespaces of what the pipeline made.
_NAMESPACES: Final = (*(grain.value for grain in Grain), DURABLE, GRAPH)
#: Limits of a reader's search: results per page, largest offset, and days back.
_PAGE, _LAST, _ALL_DAYS = 100, 10_000, 36_525
_MOST_FACTS = _MOST_MEMORIES = 10_000

_READ_ONLY = (
    "this store is read-only; open it with a writer to put and delete items: MemoryStore(reader, writer). To write "
    "conversations, use memory_pipeline.writer.MemoryWriter.write"
)


class MemoryStore(BaseStore):
    """One agent's memory, also that of its users. Thread-safe. With a writer, items can be put and deleted.

    A put item is returned as it was put, as JSON, at once and in all processes; of two puts with the same key, the
    later one stays. It has at most 20,000 characters as JSON, its key 256, and the labels of its namespace 246 with
    the dots between them. ``delete`` revokes it: it stays in the history, until its user is erased. With
    ``index=[...]`` searches compare only these fields with the query, with ``index=False`` none. A time to live is not
    supported.

    An item that the pipeline made has the memory's id as its key. Its value has ``content`` and

    - in a grain: ``grain``, ``period``, ``date``, ``kind``, ``conversation_id``, ``source_ids``, ``starts_at``,
      ``ends_at``;
    - in ``durable``: ``kind``, ``title``, ``subject``, ``predicate``, ``object``, ``importance``, ``confidence``,
      ``version``, ``temperature``, ``status``, ``tags``, ``warning`` (if it may be out of date), ``source_ids``;
    - in ``graph``: ``subject``, ``predicate``, ``object``, ``confidence``, ``weight``, ``since``, ``source_ids``.

    Times are ISO 8601. Searches with a query return the best results first, others the newest. Without a namespace they
    search all namespaces of the reader, with ``("memories", user_id)`` all of the user; ``("memories",)`` alone has
    nothing. In a store with a writer, such searches return put items only, so that tools which update what they find
    find what they may update. Filters are applied to the values, before the limit. All reads of a batch come before
    its puts.

    Args:
        reader: reads the agent's memory. If it reads for a user, namespaces of other users are refused.
        writer: writes the memory of the same agent and user. Without it the store is read-only. Items in the namespace
            of a user are written to that user's memory, others to the memory of the writer.
        is_marked: mark each text that the pipeline made as recalled data, for use in a prompt: a model then does not
            take it for instructions, and ingestion drops it. False returns texts as they are stored.
        now: returns the time of writes, and the time up to which memory is searched; by default the current time.
        users: the template of namespaces of users, in which one label is ``"{user_id}"``.
        fields: the fields of put items that searches compare, such as ``["text"]``; by default all.
    """

    __slots__ = ("_fields", "_open", "_users", "_view", "_writer")

    def __init__(
        self,
        reader: MemoryReader,
        writer: MemoryWriter | None = None,
        *,
        is_marked: bool = True,
        now: Callable[[], datetime] | None = None,
        users: Sequence[str] = USERS,
        fields: Sequence[str] | None = None,
    ) -> None:
        access = Access(reader, writer, now)
        if isinstance(users, str) or list(users).count(USER) != 1:
            raise InputError(f"users {shown(users)} is not accepted; expected labels, one of them {USER}")
        self._writer = writer
        self._users = tuple(users)
        self._fields = fields
        view = partial(_View, now=access.clock, is_marked=is_marked)
        self._view = view(reader, None if writer is None else lambda: writer, ())
        self._open = lru_cache(_MOST_READERS)(
            lambda prefix, user_id: view(
                reader.for_user(user_id), None if writer is None else partial(writer.for_user, user_id), prefix
            )
        )

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: reads in order, then puts, of which the last one for a key counts.

        Raises:
            NotImplementedError: the store is read-only or an item has a time to live; then no operation runs.
            InputError: an argument is invalid, or a namespace is of another user than the reader; then nothing is
                written.
            langgraph.store.base.InvalidNamespaceError: a namespace is invalid.
        """
        listed = [_checked(op) for op in ops]
        puts = {(op.namespace, op.key): self._change(op) for op in listed if isinstance(op, PutOp)}
        with one_read():
            results = [None if isinstance(op, PutOp) else self._do(op) for op in listed]
        by_view: dict[_View, list[Mapping[str, object]]] = {}
        for (namespace, _), change in puts.items():
            by_view.setdefault(self._view_of(namespace), []).append(change)
        for view, changes in by_view.items():
            view.write(changes)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run :meth:`batch` in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _change(self, op: PutOp) -> Mapping[str, object]:
        if self._writer is None:
            raise NotImplementedError(_READ_ONLY)
        if op.ttl is not None:
            raise NotImplementedError(f"ttl {shown(op.ttl)} is not supported; leave it out")
        inner = self._view_of(op.namespace).inner(op.namespace)
        if inner and inner[0] in _NAMESPACES:
            raise InputError(
                f"namespace {shown(op.namespace)} holds what the pipeline made and is read-only; use another one"
            )
        fields = self._fields if op.index is None else op.index

        def texts(value: Any) -> list[str]:
            if not isinstance(fields, Sequence):
                return readable(value) if fields is None else []
            return [text for field in fields for text in get_text_at_path(value, field)]

        return put_change(op.namespace, op.key, op.value, texts)

    def _do(self, op: GetOp | SearchOp | ListNamespacesOp) -> Result:
        if isinstance(op, GetOp):
            return self._view_of(op.namespace).get(op)
        if isinstance(op, SearchOp):
            return self._view_of(op.namespace_prefix).search(op)
        prefixes = (tuple(one.path) for one in op.match_conditions or () if one.match_type == "prefix")
        return self._view_of(next(prefixes, ())).namespaces(op)

    def _view_of(self, namespace: tuple[str, ...]) -> _View:
        """Return the view of the user that a namespace names, or else of the reader."""
        prefix = namespace[: len(self._users)]
        if len(prefix) < len(self._users) or any(
            own not in (USER, one) for own, one in zip(self._users, prefix, strict=True)
        ):
            return self._view
        user_id = prefix[self._users.index(USER)]
        return self._view if user_id == "*" else self._open(prefix, user_id)


class _View:
    """The namespaces of one reader, after a prefix."""

    def __init__(
        self,
        reader: MemoryReader,
        open_writer: Callable[[], MemoryWriter] | None,
        prefix: tuple[str, ...],
        *,
        now: Callable[[], datetime],
        is_marked: bool,
    ) -> None:
        self._reader = reader
        self._open_writer = None if open_writer is None else cache(open_writer)
        self._prefix = prefix
        self._now = now
        self._is_marked = is_marked
        self._items = StoreItems(reader, now)

    def write(self, changes: Iterable[Mapping[str, object]]) -> None:
        assert self._open_writer is not None  # noqa: S101  # nosec B101  # a store without a writer refuses puts
        self._items.write(self._open_writer(), changes)

    def inner(self, namespace: tuple[str, ...]) -> tuple[str, ...]:
        """Return a namespace without the prefix."""
        return namespace[len(self._prefix) :]

    def get(self, op: GetOp) -> Item | None:
        inner = self.inner(op.namespace)
        is_made = bool(inner) and inner[0] in _NAMESPACES
        found = self._made(inner, op.key) if is_made else self._items.get(op.namespace, op.key)
        return None if found is None else Item(**self._fields_of(found))

    def search(self, op: SearchOp) -> list[SearchItem]:
        return [SearchItem(**self._fields_of(found), score=found.score) for found in self._search(op)]

    def _made(self, inner: tuple[str, ...], key: str) -> FoundItem | None:
        """Return an item that the pipeline made."""
        name = inner[0]
        if len(inner) > 1:
            return None
        if name == GRAPH:
            fact = self._reader.graph.fact(key)
            return None if fact is None else _of_fact(fact)
        try:
            if name == DURABLE:
                return self._durable_item(key)
            hit = self._reader.get(key, now=self._now())
        except InputError:
            return None  # no id of a memory
        return _of_hit(hit) if hit is not None and hit.grain == name and hit.id == key else None

    def _search(self, op: SearchOp) -> list[FoundItem]:
        if op.limit <= 0:
            return []
        if op.offset < 0:
            raise InputError(f"offset {op.offset} is not accepted; expected a number from 0")
        inner = self.inner(op.namespace_prefix)
        is_everything = inner == () and self._open_writer is None
        names = [name for name in _NAMESPACES if is_everything or inner == (name,)]
        end = op.offset + op.limit
        query = op.query if op.query and op.query.strip() else None
        filters = op.filter or {}
        found = [one for name in names for one in _passing(self._every(name, query, filters, end), filters, end)]
        if not inner or inner[0] not in _NAMESPACES:
            found += _passing(self._items.search(op.namespace_prefix, query), filters, end)
        if len(names) > 1:
            found.sort(key=lambda one: (-(one.score or 0.0), -one.updated_at.timestamp(), one.key))
        return found[op.offset : end]

    def _every(self, name: str, query: str | None, filters: Mapping[str, Any], limit: int) -> Iterator[FoundItem]:
        if name == GRAPH:
            return self._facts(query)
        if name == DURABLE:
            return self._memories(query)
        return self._hits(Grain(name), query, filters, limit)

    def _durable_item(self, key: str) -> FoundItem | None:
        """Return a durable memory by id, also a cold one, unless it was revoked."""
        memory = self._reader.memories.get(key, now=self._now())
        if memory is None or memory.id != key or memory.status is Status.DEPRECATED or is_item(memory):
            return None
        return _of_memory(memory, warning(memory, self._now()))

    def _memories(self, query: str | None) -> Iterator[FoundItem]:
        now, shown = self._now(), list[str]()
        if query is None:
            every = self._reader.memories.list(limit=_MOST_MEMORIES, now=now)
            own = (memory for memory in every if memory.is_recalled and not is_item(memory))
            yield from (_of_memory(memory, warning(memory, now)) for memory in own)
            return
        while len(shown) <= _LAST - _PAGE:
            page = self._reader.memories.search(query, _PAGE, exclude=shown, hops=0, now=now)
            for found in page:
                if not is_item(found.memory):
                    yield _of_memory(found.memory, found.warning, found.score)
            shown += [found.memory.id for found in page]
            if len(page) < _PAGE:
                return

    def _hits(self, grain: Grain, query: str | None, filters: Mapping[str, Any], limit: int) -> Iterator[FoundItem]:
        arguments: dict[str, Any] = {}
        if (kind := filters.get("kind")) in set(FactKind):
            arguments["kind"] = kind
        if isinstance(conversation := filters.get("conversation_id"), str) and conversation.strip():
            arguments["conversation_id"] = conversation
        now, offset = self._now(), 0
        size = _PAGE if set(filters) - set(arguments) else min(limit, _PAGE)
        while offset <= _LAST:
            hits = self._reader.search_memory(grain, 0, _ALL_DAYS, size, query, offset=offset, now=now, **arguments)
            for hit in hits:
                yield _of_hit(hit, is_scored=query is not None)
            offset += size
            if not hits or offset >= hits.total:
                return

    def _facts(self, query: str | None) -> Iterator[FoundItem]:
        """Yield graph facts about the entities in a query, or all current facts."""
        if query is None:
            facts: Iterable[GraphFact] = self._reader.graph.facts(limit=_MOST_FACTS)
        else:
            facts = self._reader.graph.search(query, _MOST_FACTS, now=self._now())
        for fact in facts:
            yield _of_fact(fact, is_scored=query is not None)

    def namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        def is_wanted(namespace: tuple[str, ...]) -> bool:
            return all(_matches(one, namespace) for one in op.match_conditions or ())

        made = [name for name in _NAMESPACES if is_wanted((*self._prefix, name)) and self._has_any(name)]
        put = {one for one in self._items.namespaces() if one[: len(self._prefix)] == self._prefix and is_wanted(one)}
        present = {name[: op.max_depth] for name in {*put, *((*self._prefix, name) for name in made)}}
        return sorted(present)[max(op.offset, 0) : max(op.offset, 0) + max(op.limit, 0)]

    def _has_any(self, name: str) -> bool:
        if name == GRAPH:
            return bool(self._reader.graph.facts(limit=1))
        if name == DURABLE:
            headers = self._reader.memories.headers(limit=_MOST_MEMORIES, now=self._now())
            return any(not is_item(header) for header in headers)
        return bool(self._reader.search_memory(name, 0, _ALL_DAYS, 1, now=self._now()))

    def _fields_of(self, found: FoundItem) -> dict[str, Any]:
        value, namespace = dict(found.value), found.namespace
        if not found.is_put:
            namespace = (*self._prefix, *namespace)
            value |= {"content": mark(value["content"])} if self._is_marked else {}
        return {
            "value": value,
            "key": found.key,
            "namespace": namespace,
            "created_at": found.created_at,
            "updated_at": found.updated_at,
        }


def _checked(op: Op) -> Op:
    """Return an operation with a valid namespace, as a tuple."""
    if not isinstance(op, GetOp | SearchOp | ListNamespacesOp | PutOp):
        raise TypeError(f"unknown operation {shown(op)}")
    validate_op_namespace(op)
    if isinstance(op, GetOp | PutOp):
        return op._replace(namespace=tuple(op.namespace))
    return op._replace(namespace_prefix=tuple(op.namespace_prefix)) if isinstance(op, SearchOp) else op


def _passing(items: Iterator[FoundItem], filters: Mapping[str, Any], limit: int) -> list[FoundItem]:
    """Return the first `limit` items that pass all filters."""
    passing = (one for one in items if all(fits(one.value.get(key), wanted) for key, wanted in filters.items()))
    return list(islice(passing, limit))


def _of_hit(hit: Hit, *, is_scored: bool = False) -> FoundItem:
    values = {
        **_fields(hit, "content", "grain", "period", "kind", "conversation_id"),
        "date": hit.date.isoformat(),
        "source_ids": list(hit.source_ids),
        "starts_at": hit.starts_at.isoformat(),
        "ends_at": hit.ends_at.isoformat(),
    }
    score = hit.score if is_scored else None
    return FoundItem(hit.id, (str(hit.grain),), values, hit.starts_at, hit.ends_at, score)


def _of_memory(memory: DurableMemory, warning_text: str | None, score: float | None = None) -> FoundItem:
    values = {
        **_fields(memory, "content", "kind", "title", "subject", "predicate", "object", "importance", "confidence"),
        **_fields(memory, "version", "temperature", "status"),
        "tags": list(memory.tags),
        "warning": warning_text,
        "source_ids": list(memory.source_ids),
    }
    return FoundItem(memory.id, (DURABLE,), values, memory.created_at, memory.updated_at, score)


def _of_fact(fact: GraphFact, *, is_scored: bool = False) -> FoundItem:
    values = {
        "content": fact.line,
        "subject": fact.source,
        "predicate": fact.label,
        "object": fact.target,
        **_fields(fact, "confidence", "weight"),
        "since": fact.since.isoformat(),
        "source_ids": list(fact.evidence),
    }
    score = fact.score if is_scored else None
    return FoundItem(fact.id, (GRAPH,), values, fact.valid_from, fact.updated_at, score)


def _fields(of: object, *names: str) -> dict[str, Any]:
    """Return attributes as JSON values."""
    values = ((name, getattr(of, name)) for name in names)
    return {name: value.value if isinstance(value, Enum) else value for name, value in values}


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    end = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(pattern in ("*", name) for pattern, name in zip(path, end, strict=True))
