"""Write what other memory products hold: memories become durable memories, relations facts of the graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.authority import Authority
from memory_pipeline.domain.conversations import audience_in
from memory_pipeline.domain.graph.operations import Verb
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.domain.memories.record import SourceType
from memory_pipeline.errors import InputError
from memory_pipeline.graph.graph import Graph
from memory_pipeline.graph.state import GraphOverlay
from memory_pipeline.importers.reading import ImportedMemory, ImportedRelation, label, rejected
from memory_pipeline.memories import DurableMemories, MemoryOverlay
from memory_pipeline.memories.state import JoinedOverlays
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from memory_pipeline.domain.conversations import Rejection
    from memory_pipeline.lake import Lake

#: Changes that are written at once.
_BATCH: Final = 200
_EDITOR: Final = "import"


@dataclass
class DurableImport:
    """The memories and relations that an import writes, and what became of them.

    `fields` has the ids of the workspace and the agent, and of the users whose memory it becomes; without users, those
    that an export names.
    """

    lake: Lake
    fields: Mapping[str, object]
    now: datetime
    memories: int = 0
    relations: int = 0
    repeated: int = 0
    samples: list[str] = field(default_factory=list)
    _owners: dict[str | None, _Owner] = field(default_factory=dict)

    def take(self, item: ImportedMemory | ImportedRelation, name: str) -> Iterator[Rejection]:
        """Write an item of the format `name`, unless it is known. Yield rejections of what was not accepted."""
        users = [self.fields.get(key) for key in ("user_id", "users", "group_id")]
        user_id = None if any(one is not None for one in users) else item.user_id
        if user_id not in self._owners:
            self._owners[user_id] = _Owner(self, user_id)
        yield from self._owners[user_id].take(item, name)

    def finish(self) -> Iterator[Rejection]:
        """Write what is left."""
        for owner in self._owners.values():
            yield from owner.write()

    def sample(self, line: str) -> None:
        """Keep one of the first lines, to show it."""
        if len(self.samples) < 10:
            self.samples.append(line)


class _Owner:
    """Writes for the users of a scope."""

    def __init__(self, whole: DurableImport, user_id: str | None) -> None:
        given: dict[str, Any] = {"user_id": None, "users": None, "group_id": None, **whole.fields}
        given["user_id"] = user_id or given["user_id"]
        audience = audience_in(given, ())
        self._lake, self._whole = whole.lake, whole
        self._scope = whole.lake.new_scope(given["workspace_id"], given["agent_id"], audience.identity)
        self._writer = MemoryWriter(self._lake, self._scope, users=audience.users, user_id=given["user_id"])
        self._changes: list[tuple[str, dict[str, Any]]] = []
        self._edits: list[tuple[str, dict[str, Any]]] = []

    @cached_property
    def _known(self) -> dict[str, tuple[str, str]]:
        """The ids of memories that were imported before and the digests of their texts, by their ids in the export."""
        state = MemoryOverlay(self._lake, self._scope, PendingJournal(self._lake, self._scope))
        headers = DurableMemories(JoinedOverlays(lambda: [state])).matching(status=None)
        marks = [(tag.rpartition("#"), one.id) for one in headers for tag in one.tags if "#" in tag]
        return {key: (identity, text) for (key, _, text), identity in marks}

    def take(self, item: ImportedMemory | ImportedRelation, name: str) -> Iterator[Rejection]:
        if isinstance(item, ImportedRelation):
            self._edits.append((item.where, {"item": item}))
        else:
            self._remember(item, name)
        if len(self._changes) + len(self._edits) >= _BATCH:
            yield from self.write()

    def _remember(self, item: ImportedMemory, name: str) -> None:
        key, text = label(f"{name}:{item.identity}"), digest("text", item.text)[:12]
        before = self._known.get(key)
        if before is not None and before[1] == text:
            self._whole.repeated += 1
            return
        tags = (f"import:{name}", f"{key}#{text}", *map(label, item.tags))
        change: dict[str, Any] = {
            "content": item.text, "kind": item.kind, "tags": tags, "editor": _EDITOR,
            "timestamp": min(item.at, self._whole.now),
        }  # fmt: skip
        if before is None:
            change |= {"memory": MemoryVerb.REMEMBER, "source_type": SourceType.IMPORT}
        else:
            change |= {"memory": MemoryVerb.UPDATE, "memory_id": before[0]}
        self._known[key] = (before[0] if before else "", text)
        self._changes.append((item.where, change))

    def write(self) -> Iterator[Rejection]:
        changes, self._changes = self._changes, []
        try:
            ids = self._writer.change_memories([change for _, change in changes], now=self._whole.now)
            self._count(changes, ids)
        except InputError:  # one by one, to find those that are not accepted
            for where, change in changes:
                try:
                    self._count([(where, change)], self._writer.change_memories([change], now=self._whole.now))
                except InputError as error:
                    yield rejected(error, where, change["content"])
        edits, self._edits = self._edits, []
        graph = Graph(
            GraphOverlay(self._lake, self._scope, PendingJournal(self._lake, self._scope)), self._lake.calendar
        )
        for where, held in edits:
            item: ImportedRelation = held["item"]
            try:
                self._relate(graph, item)
            except InputError as error:
                yield rejected(error, where, item._asdict())

    def _count(self, changes: list[tuple[str, dict[str, Any]]], ids: list[str]) -> None:
        self._whole.memories += len(ids)
        for _, change in changes:
            self._whole.sample(f"{change['timestamp']:%Y-%m-%d}  {change['kind']}  {change['content']}")

    def _relate(self, graph: Graph, item: ImportedRelation) -> None:
        target = item.object.casefold()
        known = [one for one in graph.history(item.subject, item.predicate) if one.target.casefold() == target]
        has_ended = any(one.valid_to is not None for one in known)
        terms = {
            "subject": item.subject,
            "predicate": item.predicate,
            "object": item.object,
            "origin": Authority.IMPORT,
        }
        edits = [] if known else [{"edit": Verb.INSERT, "timestamp": min(item.at, self._whole.now), **terms}]
        if item.until is not None and not has_ended:
            edits.append({"edit": Verb.DELETE, "timestamp": item.until, **terms})
        if not edits:
            self._whole.repeated += 1
            return
        self._writer.graph.apply(edits, now=self._whole.now)
        self._whole.relations += 1
        self._whole.sample(f"{item.at:%Y-%m-%d}  {item.subject} {item.predicate} {item.object}")
