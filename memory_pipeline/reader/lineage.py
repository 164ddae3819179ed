"""Trace a summary or a durable memory to its sources: finer summaries, facts, messages, and an agent's changes."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from memory_pipeline.domain import identity
from memory_pipeline.domain.graph.operations import Verb
from memory_pipeline.domain.identity import Reference
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.index.filters import quoted
from memory_pipeline.lake.schemas import (
    FACTS,
    IS_FACT,
    MESSAGES,
    SUMMARIES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake


_MEMORY = ("memory_id", "identity", "version", "content", "created_at", "editor", "source_ids")
_PROVENANCE = (
    "model", "prompt_version", "fallback", "tokens_in", "tokens_out", "cost", "code_version", "embed_model",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Node:
    """A summary, a point, a fact, a durable memory, a change or a message, with its sources.

    Attributes:
        id: its id; of a point, ``{summary id}#{n}``.
        what: ``message``, ``working`` (a fact), ``graph`` (a graph fact), ``edit`` (a change of the graph), ``memory``
            (a durable memory), ``event`` (a change of one), or the summary's grain.
        period: the partition of the row.
        at: when it was said; of a summary, the start of its period.
        method: the rules or the prompt that produced it, with the version; None for a message.
        provenance: known fields of a fact or a summary: model, prompt_version, fallback, tokens_in, tokens_out, cost
            (US dollars), code_version, embed_model.
        sources: in time order.
        identity: the user or group whose memory it is: ``user:`` or ``group:`` and an id; empty for the agent's own.
    """

    id: str
    what: str
    period: str
    content: str
    at: datetime
    method: str | None
    provenance: Mapping[str, object]
    sources: tuple[Node, ...]
    identity: str = ""

    def lines(self, depth: int = 0) -> Iterator[str]:
        """Yield the tree as indented lines. The first names the user or group."""
        label = self.period if self.what not in SUMMARY_GRAINS else f"{self.what} {self.period}"
        text = " ".join(self.content.split())
        whose = f"  (memory of {self.identity})" if self.identity and not depth else ""
        yield f"{'  ' * depth}{label}  {text if len(text) <= 160 else text[:159] + '…'}{whose}"
        for source in self.sources:
            yield from source.lines(depth + 1)


def expand(lake: Lake, scopes: Sequence[Scope], identifier: str) -> Node:
    """Return the item with an id, with all its sources. Raise InputError if the scopes have no such item."""
    levels: list[dict[str, dict[str, Any]]] = []
    unread: set[str] = {identifier} if isinstance(identifier, str) else set()
    while unread:
        found = _load(lake, scopes, unread)
        levels.append(found)
        unread = {source for row in found.values() for source in row["sources"]}
    if not levels or identifier not in levels[0]:
        raise InputError(
            f"id {shown(identifier)} is unknown in the memory of {scopes[0].agent_id}; use an id of a search"
        )

    nodes: dict[str, Node] = {}
    for level in reversed(levels):
        for key, row in level.items():
            sources = sorted((nodes[s] for s in row["sources"] if s in nodes), key=lambda node: (node.at, node.id))
            nodes[key] = Node(id=key, **{**row, "sources": tuple(sources)})
    return nodes[identifier]


def _load(lake: Lake, scopes: Sequence[Scope], identifiers: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return rows by their ids. Each table and grain is read once, only the partitions that the ids name."""
    references = [(text, Reference.parse(text)) for text in identifiers]
    by_table: dict[str, list[Reference]] = defaultdict(list)
    for _, reference in references:
        by_table[reference.what].append(reference)
    rows = {row["id"]: row for what, group in by_table.items() for row in _read(lake, scopes, what, group)}
    found = {}
    for text, reference in references:
        row = rows.get(reference.id)
        described = None if row is None else _describe(reference, row)
        if described is not None:
            found[text] = described
    return found


def _read(lake: Lake, scopes: Sequence[Scope], what: str, references: list[Reference]) -> list[dict[str, Any]]:
    where = pc.field("id").isin([reference.id for reference in references])
    where &= reduce(or_, (_is_of(scope) for scope in scopes))
    own = [scope.key for scope in scopes]
    keys = {reference.period.key for reference in references}
    if what in (identity.MEMORY, identity.EVENT):
        return _read_durable(lake, scopes, what, references)
    if what in (identity.GRAPH, identity.EDIT):
        return _read_graph(lake, scopes, what, references)
    if what == identity.MESSAGE:
        table = lake.tables.read(MESSAGES, keys, where=where, scopes=own)
    elif what == Grain.WORKING:
        columns = [name for name in FACTS.schema.names if name != "vector"]
        table = lake.tables.read(FACTS, keys, where=where, columns=columns, scopes=own)
    else:
        columns = [name for name in SUMMARIES.schema.names if name != "vector"]
        table = lake.tables.read(SUMMARIES, keys, where=where, columns=columns, scopes=own, grain=what)
    return _rows(table)


def _is_of(scope: Scope) -> pc.Expression:
    names = ("workspace_id", "agent_id", "identity")
    return reduce(and_, (pc.field(name) == getattr(scope, name) for name in names))


def _read_graph(lake: Lake, scopes: Sequence[Scope], what: str, references: list[Reference]) -> list[dict[str, Any]]:
    listed = ", ".join(quoted(reference.id) for reference in references)
    if what == identity.GRAPH:
        return _rows(lake.graph_rows.read(scopes, where=f"{IS_FACT} AND id IN ({listed})"))
    rows = _rows(lake.operations.read(scopes, where=f"is_edit AND evidence_id IN ({listed})"))
    # A replacement is two operations; the assertion describes it better than the deletion.
    return [{**row, "id": row["evidence_id"]} for row in sorted(rows, key=lambda row: row["verb"] != Verb.DELETE)]


def _read_durable(lake: Lake, scopes: Sequence[Scope], what: str, references: list[Reference]) -> list[dict[str, Any]]:
    identifiers = [reference.id for reference in references]
    listed = ", ".join(map(quoted, identifiers))
    if what == identity.MEMORY:
        rows = _rows(lake.memory_rows.read(scopes, _MEMORY, f"is_newest AND memory_id IN ({listed})"))
        return [{**row, "id": row["memory_id"]} for row in rows]
    return _rows(lake.events.read(scopes, where=f"id IN ({listed})"))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _describe(reference: Reference, row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a row as arguments of a node; None if it has no such point or version."""
    method: str | None = None
    sources: list[str] = []
    match reference.what:
        case identity.MESSAGE:
            content, at = f"{row['sent_at']:%H:%M} {row['name'] or row['role']}: {row['content']}", row["sent_at"]
        case identity.EDIT:
            content = f"{row['verb']} {row['subject']} {row['predicate']} {row['object']}".rstrip()
            at = row["event_at"]
        case identity.GRAPH:
            content, at = f"{row['source']} {row['label']} {row['target']}", row["valid_from"]
            method, sources = "fold", row["evidence"]
        case identity.MEMORY:
            if reference.point not in {None, row["version"]}:
                return None
            content, at = row["content"], row["created_at"]
            method, sources = "fold", row["source_ids"]
        case identity.EVENT:
            said = json.loads(row["changes"]).get("content", "")
            content, at = f"{row['verb']} by {row['editor']}: {said}".rstrip(": "), row["event_at"]
        case Grain.WORKING:
            content, at = row["content"], row["event_at"]
            method, sources = row["extraction_method"], row["message_ids"]
        case _ if reference.point is None:
            content, at = row["content"], row["period_start"]
            method = row["summary_method"]
            sources = [source for point in row["key_points"] for source in point["source_ids"]]
        case _ if reference.point < len(row["key_points"]):
            point = row["key_points"][reference.point]
            content, at = point["sentence"], point["event_at"]
            method, sources = row["summary_method"], point["source_ids"]
        case _:
            return None
    provenance = {name: row[name] for name in _PROVENANCE if row.get(name) is not None}
    return {
        "what": reference.what,
        "period": reference.period.key,
        "content": content,
        "at": at,
        "method": method,
        "provenance": provenance,
        "sources": sources,
        "identity": row["identity"],
    }
