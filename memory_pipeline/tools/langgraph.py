"""An agent's memory as a read-only store of LangGraph. The only module that imports LangGraph.

::

    graph = builder.compile(store=MemoryStore(reader))
    store.search(("working",), query="Where does Anna live?", limit=5)
    store.get(("weekly",), "weekly:2024-W03:5f2c…")

Namespaces: one per grain (``("working",)``, ``("daily",)``, …), ``("durable",)`` for durable memories, and
``("graph",)``. They hold what the reader sees. The same namespaces after ``("memories", user_id)`` hold what a user
sees: the memory of the user, of the user's groups and of the agent. A template such as ``("memories", "{user_id}")``
takes the user from the configuration of a run, never from a model.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.memories.decay import warning
from memory_pipeline.domain.memories.record import Status
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.errors import InputError, require, shown
from memory_pipeline.tools.tool import refuse_all_users

require("langgraph", "langgraph.store.base")

from langgraph.store.base import (  # noqa: E402
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    PutOp,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from langgraph.store.base import MatchCondition, Op, Result

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.graph import GraphFact
    from memory_pipeline.reader import Hit, MemoryReader

DURABLE: Final = "durable"
GRAPH: Final = "graph"
#: The first label of the namespaces of users.
USERS: Final = "memories"
#: Readers of users that stay open.
_MOST_READERS: Final = 64
_NAMESPACES: Final = (*(grain.value for grain in Grain), DURABLE, GRAPH)
#: Limits of a reader's search: results per page, largest offset, and days back.
_PAGE, _LAST, _ALL_DAYS = 100, 10_000, 36_525
_MOST_FACTS = _MOST_MEMORIES = 10_000

_READ_ONLY = (
    "this store is read-only; write conversations with memory_pipeline.writer.MemoryWriter.write, durable memories "
    "with MemoryWriter.remember, and facts of the graph with MemoryWriter.graph"
)


@dataclass(frozen=True, slots=True)
class _FoundItem:
    key: str
    namespace: str
    content: str
    values: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    score: float | None


class MemoryStore(BaseStore):
    """One agent's memory, read-only, also that of its users. Thread-safe.

    An item's key is the memory's id. Its value has ``content`` and

    - in a grain: ``grain``, ``period``, ``date``, ``kind``, ``conversation_id``, ``source_ids``, ``starts_at``,
      ``ends_at``;
    - in ``durable``: ``kind``, ``title``, ``subject``, ``predicate``, ``object``, ``importance``, ``confidence``,
      ``version``, ``temperature``, ``status``, ``tags``, ``warning`` (if it may be out of date), ``source_ids``;
    - in ``graph``: ``subject``, ``predicate``, ``object``, ``confidence``, ``weight``, ``since``, ``source_ids``.

    Times are ISO 8601. Searches with a query return the best results first, others the newest. Without a namespace they
    search all namespaces of the reader, with ``("memories", user_id)`` all of the user; ``("memories",)`` alone has
    nothing. Filters are applied to the values, before the limit.

    Args:
        reader: reads the agent's memory. If it reads for a user, namespaces of other users are refused.
        is_marked: mark each text as recalled data, for use in a prompt: a model then does not take it for instructions,
            and ingestion drops it. False returns texts as they are stored.
        now: returns the time up to which memory is searched; by default the current time.
    """

    __slots__ = ("_open", "_view")

    def __init__(
        self, reader: MemoryReader, *, is_marked: bool = True, now: Callable[[], datetime] | None = None
    ) -> None:
        refuse_all_users(reader)
        clock = now or partial(datetime.now, UTC)
        self._view = _View(reader, (), clock, is_marked=is_marked)
        self._open = lru_cache(_MOST_READERS)(
            lambda user_id: _View(reader.for_user(user_id), (USERS, user_id), clock, is_marked=is_marked)
        )

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in order.

        Raises:
            NotImplementedError: an operation writes; then no operation runs.
            InputError: an argument of a search is invalid, or a namespace is of another user than the reader.
            langgraph.store.base.InvalidNamespaceError: a namespace is invalid.
        """
        listed = list(ops)
        for op in listed:
            if isinstance(op, PutOp):
                raise NotImplementedError(_READ_ONLY)
            if not isinstance(op, GetOp | SearchOp | ListNamespacesOp):
                raise TypeError(f"unknown operation {shown(op)}")
            validate_op_namespace(op)
        return [self._do(op) for op in listed]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run :meth:`batch` in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _do(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            view = self._view_of(op.namespace)
            return view.get(op._replace(namespace=view.inner(op.namespace)))
        if isinstance(op, SearchOp):
            view = self._view_of(op.namespace_prefix)
            return view.search(op._replace(namespace_prefix=view.inner(op.namespace_prefix)))
        assert isinstance(op, ListNamespacesOp)  # noqa: S101  # checked in batch()
        prefixes = (tuple(one.path) for one in op.match_conditions or () if one.match_type == "prefix")
        return self._view_of(next(prefixes, ())).namespaces(op)

    def _view_of(self, namespace: tuple[str, ...]) -> _View:
        """Return the view of the user that a namespace names, or else of the reader."""
        is_of_user = len(namespace) > 1 and namespace[0] == USERS and namespace[1] != "*"
        return self._open(namespace[1]) if is_of_user else self._view


class _View:
    """The namespaces of one reader, after a prefix."""

    __slots__ = ("_is_marked", "_now", "_prefix", "_reader")

    def __init__(
        self, reader: MemoryReader, prefix: tuple[str, ...], now: Callable[[], datetime], *, is_marked: bool
    ) -> None:
        self._reader = reader
        self._prefix = prefix
        self._now = now
        self._is_marked = is_marked

    def inner(self, namespace: tuple[str, ...]) -> tuple[str, ...]:
        """Return a namespace without the prefix."""
        return namespace[len(self._prefix) :]

    def get(self, op: GetOp) -> Item | None:
        found = self._get(op)
        return None if found is None else self._item(found)

    def search(self, op: SearchOp) -> list[SearchItem]:
        return [self._search_item(found) for found in self._search(op)]

    def _get(self, op: GetOp) -> _FoundItem | None:
        if len(op.namespace) != 1 or op.namespace[0] not in _NAMESPACES:
            return None
        name = op.namespace[0]
        if name == GRAPH:
            fact = self._reader.graph.fact(op.key)
            return None if fact is None else _of_fact(fact)
        try:
            if name == DURABLE:
                return self._durable_item(op.key)
            hit = self._reader.get(op.key, now=self._now())
        except InputError:
            return None  # no id of a memory
        return _of_hit(hit) if hit is not None and hit.grain == name and hit.id == op.key else None

    def _search(self, op: SearchOp) -> list[_FoundItem]:
        if op.limit <= 0 or len(op.namespace_prefix) > 1:
            return []
        if op.offset < 0:
            raise InputError(f"offset {op.offset} is not accepted; expected a number from 0")
        names = [name for name in _NAMESPACES if op.namespace_prefix in ((), (name,))]
        end = op.offset + op.limit
        query = op.query if op.query and op.query.strip() else None
        found = [one for name in names for one in self._passing(name, query, op.filter or {}, end)]
        if len(names) > 1:
            found.sort(key=lambda one: (-(one.score or 0.0), -one.updated_at.timestamp(), one.key))
        return found[op.offset : end]

    def _passing(self, name: str, query: str | None, filters: Mapping[str, Any], limit: int) -> list[_FoundItem]:
        passing: list[_FoundItem] = []
        for found in self._every(name, query, filters, limit):
            if all(_fits({**found.values, "content": found.content}.get(key), value) for key, value in filters.items()):
                passing.append(found)
                if len(passing) == limit:
                    break
        return passing

    def _every(self, name: str, query: str | None, filters: Mapping[str, Any], limit: int) -> Iterator[_FoundItem]:
        if name == GRAPH:
            return self._facts(query)
        if name == DURABLE:
            return self._memories(query)
        return self._hits(Grain(name), query, filters, limit)

    def _durable_item(self, key: str) -> _FoundItem | None:
        """Return a durable memory by id, also a cold one, unless it was revoked."""
        memory = self._reader.memories.get(key, now=self._now())
        if memory is None or memory.id != key or memory.status is Status.DEPRECATED:
            return None
        return _of_memory(memory, warning(memory, self._now()))

    def _memories(self, query: str | None) -> Iterator[_FoundItem]:
        now, shown = self._now(), list[str]()
        if query is None:
            every = self._reader.memories.list(limit=_MOST_MEMORIES, now=now)
            yield from (_of_memory(memory, warning(memory, now)) for memory in every if memory.is_recalled)
            return
        while len(shown) <= _LAST - _PAGE:
            page = self._reader.memories.search(query, _PAGE, exclude=shown, hops=0, now=now)
            for found in page:
                yield _of_memory(found.memory, found.warning, found.score)
            shown += [found.memory.id for found in page]
            if len(page) < _PAGE:
                return

    def _hits(self, grain: Grain, query: str | None, filters: Mapping[str, Any], limit: int) -> Iterator[_FoundItem]:
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

    def _facts(self, query: str | None) -> Iterator[_FoundItem]:
        """Yield graph facts about the entities in a query, or all current facts."""
        if query is None:
            facts: Iterable[GraphFact] = self._reader.graph.facts(limit=_MOST_FACTS)
        else:
            facts = self._reader.graph.search(query, _MOST_FACTS, now=self._now())
        for fact in facts:
            yield _of_fact(fact, is_scored=query is not None)

    def namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        names = [(*self._prefix, name) for name in _NAMESPACES]
        names = [name for name in names if all(_matches(one, name) for one in op.match_conditions or ())]
        present: list[tuple[str, ...]] = sorted(name for name in names if self._has_any(name[-1]))
        if op.max_depth is not None:
            present = sorted({name[: op.max_depth] for name in present})
        return present[max(op.offset, 0) : max(op.offset, 0) + max(op.limit, 0)]

    def _has_any(self, name: str) -> bool:
        if name == GRAPH:
            return bool(self._reader.graph.facts(limit=1))
        if name == DURABLE:
            return bool(self._reader.memories.headers(limit=1, now=self._now()))
        return bool(self._reader.search_memory(name, 0, _ALL_DAYS, 1, now=self._now()))

    def _item(self, found: _FoundItem) -> Item:
        return Item(
            value=self._value(found),
            key=found.key,
            namespace=(*self._prefix, found.namespace),
            created_at=found.created_at,
            updated_at=found.updated_at,
        )

    def _search_item(self, found: _FoundItem) -> SearchItem:
        return SearchItem(
            namespace=(*self._prefix, found.namespace),
            key=found.key,
            value=self._value(found),
            created_at=found.created_at,
            updated_at=found.updated_at,
            score=found.score,
        )

    def _value(self, found: _FoundItem) -> dict[str, Any]:
        return {"content": mark(found.content) if self._is_marked else found.content, **found.values}


def _of_hit(hit: Hit, *, is_scored: bool = False) -> _FoundItem:
    values = {
        "grain": str(hit.grain),
        "period": hit.period,
        "date": hit.date.isoformat(),
        "kind": str(hit.kind),
        "conversation_id": hit.conversation_id,
        "source_ids": list(hit.source_ids),
        "starts_at": hit.starts_at.isoformat(),
        "ends_at": hit.ends_at.isoformat(),
    }
    score = hit.score if is_scored else None
    return _FoundItem(hit.id, str(hit.grain), hit.content, values, hit.starts_at, hit.ends_at, score)


def _of_memory(memory: DurableMemory, warning_text: str | None, score: float | None = None) -> _FoundItem:
    values = {
        "kind": memory.kind.value,
        "title": memory.title,
        "subject": memory.subject,
        "predicate": memory.predicate,
        "object": memory.object,
        "importance": memory.importance,
        "confidence": memory.confidence,
        "version": memory.version,
        "temperature": memory.temperature.value,
        "status": memory.status.value,
        "tags": list(memory.tags),
        "warning": warning_text,
        "source_ids": list(memory.source_ids),
    }
    return _FoundItem(memory.id, DURABLE, memory.content, values, memory.created_at, memory.updated_at, score)


def _of_fact(fact: GraphFact, *, is_scored: bool = False) -> _FoundItem:
    values = {
        "subject": fact.source,
        "predicate": fact.label,
        "object": fact.target,
        "confidence": fact.confidence,
        "weight": fact.weight,
        "since": fact.since.isoformat(),
        "source_ids": list(fact.evidence),
    }
    score = fact.score if is_scored else None
    return _FoundItem(fact.id, GRAPH, fact.line, values, fact.valid_from, fact.updated_at, score)


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    end = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(pattern in ("*", name) for pattern, name in zip(path, end, strict=True))


def _fits(value: object, condition: object) -> bool:
    if isinstance(condition, dict) and any(str(key).startswith("$") for key in condition):
        return all(_compared(value, operator, bound) for operator, bound in condition.items())
    if isinstance(condition, list | tuple):
        return isinstance(value, list | tuple) and list(value) == list(condition)
    return value == condition


def _compared(value: Any, operator: str, bound: Any) -> bool:
    if operator == "$eq":
        return bool(value == bound)
    if operator == "$ne":
        return bool(value != bound)
    compare = _ORDERS.get(operator)
    if compare is None:
        raise InputError(f"operator {shown(operator)} is unknown; accepted: $eq, $ne, {', '.join(_ORDERS)}")
    if value is None:
        return False
    try:
        return compare(value, bound)
    except TypeError:
        raise InputError(f"{operator} {shown(bound)} cannot be compared with {shown(value)}") from None


_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": lambda value, bound: bool(value > bound),
    "$gte": lambda value, bound: bool(value >= bound),
    "$lt": lambda value, bound: bool(value < bound),
    "$lte": lambda value, bound: bool(value <= bound),
}
