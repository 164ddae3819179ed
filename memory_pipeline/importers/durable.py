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
from memory_pipeline.errors import InputError, shown
from memory_pipeline.graph.graph import Graph
from memory_pipeline.graph.state import GraphOverlay
from memory_pipeline.importers.reading import BAD_RECORD, ImportedMemory, ImportedRelation, label, of_source, rejected
from memory_pipeline.memories import DurableMemories, MemoryOverlay
from memory_pipeline.memories.state import JoinedOverlays
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
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
        self._changes: list[tuple[str, list[dict[str, Any]]]] = []
        self._relations: list[tuple[ImportedRelation, str]] = []
        self._related: set[tuple[str, ...]] = set()

    @cached_property
    def _known(self) -> dict[str, tuple[str, str]]:
        """The ids of memories that were imported before and the digests of their texts, by their ids in the export."""
        state = MemoryOverlay(self._lake, self._scope, PendingJournal(self._lake, self._scope))
        headers = DurableMemories(JoinedOverlays(lambda: [state])).matching(status=None)
        marks = [(tag.rpartition("#"), one.id) for one in headers for tag in one.tags if "#" in tag]
        return {key: (identity, text) for (key, _, text), identity in marks}

    def take(self, item: ImportedMemory | ImportedRelation, name: str) -> Iterator[Rejection]:
        if isinstance(item, ImportedRelation):
            self._relations.append((item, name))
        else:
            self._remember(item, name)
        if len(self._changes) + len(self._relations) >= _BATCH:
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
            "timestamp": min(item.at, self._whole.now), "conversation_id": f"import:{name}",
        }  # fmt: skip
        if before is None:
            change |= {"memory": MemoryVerb.REMEMBER, "source_type": SourceType.IMPORT}
        else:
            change |= {"memory": MemoryVerb.UPDATE, "memory_id": before[0]}
        self._known[key] = (before[0] if before else "", text)
        self._changes.append((item.where, [change]))

    def write(self) -> Iterator[Rejection]:
        """Write what was taken."""
        changes, self._changes = self._changes, []
        for where, change, problem in self._written(changes, self._writer.change_memories):
            if problem is not None:
                yield of_source(rejected(problem, where, change[0]["content"]), _format_of(change))
                continue
            self._whole.memories += 1
            self._whole.sample(f"{change[0]['timestamp']:%Y-%m-%d}  {change[0]['kind']}  {change[0]['content']}")
        relations, self._relations = self._relations, []
        if not relations:
            return
        edits: list[tuple[str, list[dict[str, Any]]]] = []
        state = GraphOverlay(self._lake, self._scope, PendingJournal(self._lake, self._scope))
        graph = Graph(state, self._lake.calendar)
        for item, name in relations:
            try:
                edits.append((item.where, self._edits(graph, item, name)))
            except BAD_RECORD as error:
                yield of_source(rejected(error, item.where, item._asdict()), name)
        self._whole.repeated += sum(not edit for _, edit in edits)
        for where, edit, problem in self._written([one for one in edits if one[1]], self._writer.graph.apply):
            if problem is not None:
                yield of_source(rejected(problem, where, edit), _format_of(edit))
                continue
            self._whole.relations += 1
            self._whole.sample("{timestamp:%Y-%m-%d}  {subject} {predicate} {object}".format(**edit[0]))

    def _written(
        self, changes: list[tuple[str, list[dict[str, Any]]]], write: Callable[..., object]
    ) -> Iterator[tuple[str, list[dict[str, Any]], Exception | None]]:
        """Write changes at once, or if one is not accepted, one by one. Yield each, with its error if it has one."""
        try:
            write([one for _, change in changes for one in change], now=self._whole.now)
        except BAD_RECORD as error:
            if len(changes) == 1:
                yield *changes[0], error
                return
            for one in changes:
                yield from self._written([one], write)
        else:
            yield from ((where, change, None) for where, change in changes)

    def _edits(self, graph: Graph, item: ImportedRelation, name: str) -> list[dict[str, Any]]:
        """Return the edits of the graph by which it holds a relation; none if it does."""
        terms = (item.subject, item.predicate, item.object)
        if not all(isinstance(one, str) for one in terms):
            raise InputError(f"a relation needs three names, not {shown(terms)}")
        target = item.object.casefold()
        known = [one for one in graph.history(item.subject, item.predicate) if one.target.casefold() == target]
        has_ended = any(one.valid_to is not None for one in known)
        key = tuple(one.casefold() for one in terms)
        is_known = bool(known) or key in self._related
        self._related.add(key)
        edit = {**dict(zip(("subject", "predicate", "object"), terms, strict=True)), "origin": Authority.IMPORT}
        edit["conversation_id"] = f"import:{name}"
        edits = [] if is_known else [{**edit, "edit": Verb.INSERT, "timestamp": min(item.at, self._whole.now)}]
        if item.until is not None and not has_ended:
            edits.append({**edit, "edit": Verb.DELETE, "timestamp": min(item.until, self._whole.now)})
        return edits


def _format_of(change: list[dict[str, Any]]) -> str:
    return str(change[0]["conversation_id"]).removeprefix("import:")
