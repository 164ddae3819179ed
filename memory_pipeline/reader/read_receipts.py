"""Receipts of reads: what a model was handed, and what is known of it now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from memory_pipeline.domain.authority import Authority
from memory_pipeline.domain.identity import MESSAGE
from memory_pipeline.domain.memories.record import Status
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.errors import InputError
from memory_pipeline.reader.packing.items import (
    DOCUMENT,
    DURABLE,
    GRAPH,
    InjectedContext,
    Recalled,
    Recollection,
    compact,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.model_calls import ReadCall
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.text.secrets import Redactor
    from memory_pipeline.graph import Graph
    from memory_pipeline.lake import Lake
    from memory_pipeline.memories.search import MemorySearch
    from memory_pipeline.reader.lineage import Node
    from memory_pipeline.search.searcher import Hit

#: Most receipts of one list.
MAX_RECEIPTS = 10_000
_SUMMARIES = frozenset(grain.value for grain in SUMMARY_GRAINS)


class ItemState(StrEnum):
    """What became of an item that a model was handed."""

    #: Memory still says it.
    HELD = "held"
    #: Memory says something else now.
    CHANGED = "changed"
    #: A graph fact that no longer holds.
    ENDED = "ended"
    #: A durable memory that was revoked, or what rests on a statement that was corrected.
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    ERASED = "erased"
    #: A fact or a point that is not made of its messages any more.
    GONE = "gone"
    #: A document, which is not from memory.
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True)
class HandedItem:
    """An item that a model was handed.

    Attributes:
        id: as in :class:`~memory_pipeline.reader.packing.items.Recalled`; empty if the item was erased or expired.
        grain: as there.
        text: what was handed over; empty if it was erased or expired since.
        message_ids: the messages that it rests on, as far as they are known.
        state: what became of it.
        now: what memory says in its place, if that is something else.
    """

    id: str
    grain: str
    text: str
    message_ids: tuple[str, ...]
    state: ItemState
    now: str = ""


@dataclass(frozen=True, slots=True)
class ReadReceipt:
    """What a model was handed by one read.

    Attributes:
        at: when the read began, UTC.
        operation: ``context``, ``inject_knowledge`` or ``recall``.
        as_of: the time of which memory was asked; None if it was the present.
        conversation_id: the conversation for which it was read, if one was given.
        text: the text for the model, without items that were erased or expired since.
        items: in the order of the text; of a recall, the best first.
        model: the models that helped to choose, if any; `tokens_in`, `tokens_out` and `cost` (US dollars, None if
            unknown) are those of the requests to them.
    """

    id: str
    at: datetime
    operation: str
    as_of: datetime | None
    conversation_id: str | None
    text: str
    items: tuple[HandedItem, ...]
    model: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None

    def lines(self) -> Iterator[str]:
        """Yield the receipt as lines: what it is, then each item with its state."""
        of = "" if self.as_of is None else f", of memory as of {self.as_of:%Y-%m-%d %H:%M} UTC"
        talk = f", for {self.conversation_id}" if self.conversation_id else ""
        yield f"{self.operation} at {self.at:%Y-%m-%d %H:%M:%S} UTC{of}{talk}"
        if self.model:
            cost = "unknown cost" if self.cost is None else f"{self.cost:.6f} USD"
            yield f"chosen with {self.model}: {self.tokens_in:,} tokens in, {self.tokens_out:,} out, {cost}"
        for item in self.items:
            yield f"{item.state:<10} {' '.join(item.text.split())}  ({item.id or item.grain})"
            if item.now:
                yield f"{'':<10} now: {' '.join(item.now.split())}"
            if item.message_ids:
                yield f"{'':<10} from {', '.join(item.message_ids)}"


def row_of(
    operation: str,
    items: Iterable[Recalled],
    calls: Iterable[ReadCall],
    place: Mapping[str, object],
    redactor: Redactor,
) -> dict[str, Any]:
    """Return the row of a receipt; `place` has its other columns. `redactor` removes secrets from documents."""
    calls = list(calls)
    costs = [call.cost for call in calls if call.cost is not None]
    return {
        **place,
        "operation": operation,
        "items": [_stored(item, redactor) for item in items],
        "model": ", ".join(dict.fromkeys(call.model for call in calls)) or None,
        "tokens_in": sum(call.tokens_in for call in calls),
        "tokens_out": sum(call.tokens_out for call in calls),
        "cost": sum(costs) if costs else None,
    }


def _stored(item: Recalled, redactor: Redactor) -> dict[str, Any]:
    if item.grain == DOCUMENT:
        text = redactor.text
        item = replace(item, id=text(item.id), content=text(item.content), label=text(item.label))
    # A message may have been merged with points of summaries; it rests on itself.
    sources = [one for one in item.source_ids if item.grain in _SUMMARIES or one.partition(":")[0] not in _SUMMARIES]
    stored = {
        "id": item.id,
        "grain": str(item.grain),
        "period": item.period,
        "date": item.date and item.date.isoformat(),
        "content": item.content,
        "kind": item.kind,
        "warning": item.warning,
        "when": item.when,
        "label": item.label,
        "said_by": item.said_by.value,
        "said_at": item.said_at and item.said_at.isoformat(),
        "identity": item.identity,
        "sources": sources,
    }
    return {name: value for name, value in stored.items() if value}


def _recalled(row: Mapping[str, Any]) -> Recalled:
    grain = row["grain"]
    return Recalled(
        id=row["id"] or "",
        grain=grain if grain in {DURABLE, GRAPH, DOCUMENT} else Grain(grain),
        period=row["period"] or "",
        date=row["date"] and date.fromisoformat(row["date"]),
        content=row["content"] or "",
        source_ids=tuple(row["sources"] or ()),
        kind=row["kind"],
        warning=row["warning"],
        when=row["when"] or "",
        label=row["label"] or "",
        said_by=Authority(row["said_by"]),
        said_at=row["said_at"] and datetime.fromisoformat(row["said_at"]),
        identity=row["identity"] or "",
    )


def receipt_of(row: Mapping[str, Any], reader: _MemoryNow, lake: Lake) -> ReadReceipt:
    """Return a stored receipt, with what the reader's memory says now."""
    lookup = _Lookup(reader, lake, row["called_at"])
    items = [(one, _recalled(one)) for one in row["items"]]
    left = [item for one, item in items if not one["lost"]]
    text = str(Recollection(left) if row["operation"] == "recall" else InjectedContext(tuple(left)))
    return ReadReceipt(
        id=row["id"],
        at=row["called_at"],
        operation=row["operation"],
        as_of=row["as_of"],
        conversation_id=row["conversation_id"],
        text=text,
        items=tuple(lookup.handed(item, one) for one, item in items),
        model=row["model"],
        tokens_in=row["tokens_in"],
        tokens_out=row["tokens_out"],
        cost=row["cost"],
    )


class _MemoryNow(Protocol):
    """What is asked of a reader of memory."""

    @property
    def scope(self) -> Scope: ...

    @property
    def scopes(self) -> Sequence[Scope]: ...

    @property
    def memories(self) -> MemorySearch: ...

    @property
    def graph(self) -> Graph: ...

    def get(self, id: str) -> Hit | None: ...  # noqa: A002  # as in a reader

    def expand(self, id: str) -> Node: ...  # noqa: A002  # as in a reader


class _Lookup:
    """Looks up items in memory as it is now. `at` is the time of the read."""

    def __init__(self, reader: _MemoryNow, lake: Lake, at: datetime) -> None:
        from memory_pipeline.lake.tables.tombstones import ExpirationMarks

        self._reader = reader
        self._marks = ExpirationMarks.of(lake.tables)
        workspace_id = reader.scope.workspace_id
        erasures = (one.forgotten_at for one in lake.tombstones.all() if one.workspace_id == workspace_id)
        self._has_erased = any(moment >= at for moment in erasures)
        scopes = reader.scopes
        corrections = lake.corrections.in_force([entry for scope in scopes for entry in lake.journal.entries(scope)])
        self._withdrawn = {one for scope in scopes for each in corrections.of(scope) for one in each.message_ids}
        self._finders: dict[str, Callable[[Recalled], tuple[ItemState | None, str, Iterable[str]]]] = {
            DURABLE: self._memory,
            GRAPH: self._fact,
            Grain.WORKING: self._said,
        }

    def handed(self, item: Recalled, row: Mapping[str, Any]) -> HandedItem:
        """Return an item with its state."""
        if row["lost"]:
            return HandedItem("", str(item.grain), "", (), ItemState(row["lost"]))
        if item.grain == DOCUMENT:
            return HandedItem(item.id, DOCUMENT, item.text, (), ItemState.DOCUMENT)
        state, now, sources = self._finders.get(item.grain, self._point)(item)
        messages = tuple(dict.fromkeys(one for one in sources if one.startswith(f"{MESSAGE}:")))
        if state in {None, ItemState.CHANGED} and not self._withdrawn.isdisjoint(messages):
            state = ItemState.WITHDRAWN
        return HandedItem(item.id, str(item.grain), item.text, messages, state or self._missing(row), now)

    def _missing(self, row: Mapping[str, Any]) -> ItemState:
        from memory_pipeline.lake.read_receipts import class_of

        kept = class_of(dict(row))
        through = None if kept is None else self._marks.through(self._reader.scope, kept)
        if through is not None and (row["period"] or "") <= through:
            return ItemState.EXPIRED
        return ItemState.ERASED if self._has_erased else ItemState.GONE

    def _said(self, item: Recalled) -> tuple[ItemState | None, str, Iterable[str]]:
        return ItemState.HELD if self._reader.get(item.id) else None, "", item.source_ids

    def _point(self, item: Recalled) -> tuple[ItemState | None, str, Iterable[str]]:
        point = self._expanded(item.id)
        if point is not None and compact(point.content) == item.content:
            return ItemState.HELD, "", _ids(point)
        summary = self._expanded(item.id.partition("#")[0])
        if summary is None:
            return None, "", item.source_ids
        if item.content in compact(summary.content):
            return ItemState.HELD, "", item.source_ids
        return ItemState.CHANGED, point.content if point else "", item.source_ids

    def _expanded(self, identifier: str) -> Node | None:
        try:
            return self._reader.expand(identifier)
        except InputError:
            return None

    def _memory(self, item: Recalled) -> tuple[ItemState | None, str, Iterable[str]]:
        memories = self._reader.memories
        memory = memories.get(item.id)
        if memory is None:
            return None, "", item.source_ids
        sources = item.source_ids or memory.source_ids
        if memory.status is Status.DEPRECATED:
            return ItemState.WITHDRAWN, "", sources
        if memory.status is Status.SUPERSEDED:
            newer = memories.get(memory.superseded_by) if memory.superseded_by else None
            return ItemState.CHANGED, newer.content if newer else "", sources
        # A line of the hot index has the content or the hook in it; a long content may have been cut.
        texts = [compact(text) for text in (memory.content, memory.hook) if text]
        is_held = any(text in item.content or item.content.removesuffix("…") in text for text in texts)
        return (ItemState.HELD, "", sources) if is_held else (ItemState.CHANGED, memory.content, sources)

    def _fact(self, item: Recalled) -> tuple[ItemState | None, str, Iterable[str]]:
        fact = self._reader.graph.fact(item.id)
        if fact is None:
            return None, "", item.source_ids
        is_same = fact.valid_to is None or fact.when == item.when
        return ItemState.HELD if is_same else ItemState.ENDED, "" if is_same else fact.line, item.source_ids


def _ids(node: Node) -> Iterator[str]:
    yield node.id
    for source in node.sources:
        yield from _ids(source)
