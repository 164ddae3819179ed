"""Tell what became of messages: whether they were read, what was learned from them, and where it went."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from memory_pipeline.domain.identity import MESSAGE, Reference
from memory_pipeline.domain.periods import SUMMARY_GRAINS
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.codec.facts import rows_to_messages
from memory_pipeline.lake.schemas import FACTS, IS_FACT, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import table_asset
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.writer.known_messages import KnownMessages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from datetime import datetime

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

_TURN: Final = "turn"
_FACT: Final = ["id", "kind", "content", "message_ids", "extraction_method", "model", "fallback"]
_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class LearnedItem:
    """What was made of a message.

    Attributes:
        id: its id, which :meth:`MemoryReader.expand` accepts.
        what: ``fact``, ``graph``, ``memory``, or the grain of a summary, which has a line that rests on the message.
        content: its text.
        used_at: when this memory was last handed to a model, UTC; None if it was not, or is no durable memory.
    """

    id: str
    what: str
    content: str
    used_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """What became of a message.

    Attributes:
        message: the message, with its last text.
        state: ``waiting`` in the journal: searches find it, and the pipeline has not loaded it; or ``loaded``.
        read_by: the rules, or the model, that looked for facts in it; None if nothing did yet.
        learned: facts, graph facts, durable memories and lines of summaries that rest on it. The message itself, which
            searches find as it was said, is not among them.
        why_nothing: why nothing was learned; empty if something was.
    """

    message: Message
    state: str
    read_by: str | None
    learned: tuple[LearnedItem, ...]
    why_nothing: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the trace as lines for people."""
        one = self.message
        yield f"{one.sent_at:%Y-%m-%d %H:%M} {one.speaker}: {_cut(one.content)}"
        yield f"  {one.id}"
        removed = f"; removed from it: {', '.join(one.redactions)}" if one.redactions else ""
        yield f"  {self.state}, {f'read by {self.read_by}' if self.read_by else 'not read yet'}{removed}"
        for each in self.learned:
            used = f" (last used {each.used_at:%Y-%m-%d %H:%M})" if each.used_at else ""
            yield f"  {each.what}: {_cut(each.content)}{used}  {each.id}"
        if self.why_nothing:
            yield f"  nothing was learned: {self.why_nothing}"


def trace(lake: Lake, scopes: Sequence[Scope], identifier: str) -> list[MessageTrace]:
    """Return what became of a message, or of all messages of a conversation, oldest first.

    Raises:
        InputError: the scopes have neither such a message nor such a conversation.
    """
    found: list[MessageTrace] = []
    for scope in scopes:
        messages, waiting = _messages(lake, scope, identifier)
        if messages:
            found += _traces(lake, scope, messages, waiting)
    if not found:
        raise InputError(
            f"{shown(identifier)} is unknown to {scopes[0].agent_id}; expected the id of a message, as `add` returns "
            "it, or of a conversation. Messages that have expired or were erased are not known any more"
        )
    return sorted(found, key=lambda one: (one.message.sent_at, one.message.turn, one.message.id))


def messages_with_ids(lake: Lake, scope: Scope, identifiers: Iterable[str]) -> list[Message]:
    """Return the messages of a scope with these ids, loaded or pending, in the order of the ids."""
    return _with_ids(lake, scope, identifiers)[0]


def _messages(lake: Lake, scope: Scope, identifier: str) -> tuple[list[Message], set[str]]:
    """Return messages, and the ids of those that wait in the journal."""
    try:
        reference = Reference.parse(identifier)
    except InputError:
        messages = KnownMessages(lake, keeps=False).last_of(scope, identifier)
        paths = lake.journal.paths(scope) if messages else ()
        waiting = {one.id for path in paths for one in lake.journal.messages_of(path, scope, [identifier])}
        return messages, waiting
    if reference.what != MESSAGE:
        raise InputError(
            f"{shown(identifier)} is no id of a message or a conversation; `memory-pipeline expand` shows the sources "
            "of a fact, a summary or a memory"
        )
    return _with_ids(lake, scope, [reference.id])


def _with_ids(lake: Lake, scope: Scope, identifiers: Iterable[str]) -> tuple[list[Message], set[str]]:
    """Return the messages with these ids, in their order, and the ids of those that wait in the journal."""
    ids = list(dict.fromkeys(identifiers))
    hours = {Reference.parse(one).period for one in ids}
    files = [file for file in lake.journal.pending(scope) if not hours.isdisjoint(file.pending_hours)]
    pending = (one for file in files for one in lake.journal.read(file, hours).messages)
    waiting = {one.id: one for one in pending if one.id in ids}
    where = pc.field("id").isin(ids) & (pc.field("scope") == scope.key)
    rows = lake.tables.read(MESSAGES, {hour.key for hour in hours}, where=where, scopes=[scope.key])
    found = waiting | {one.id: one for one in rows_to_messages(rows)}
    return [found[one] for one in ids if one in found], {*waiting}


def _traces(lake: Lake, scope: Scope, messages: Sequence[Message], waiting: Collection[str]) -> list[MessageTrace]:
    facts = _facts(lake, scope, messages)
    learned = _derived(lake, scope, messages, facts)
    ledger = lake.ledger.entries(table_asset("working"), {message.hour for message in messages})
    rules = DeterministicExtractor(lake.calendar.timezone)
    corrections = lake.corrections.in_force(lake.journal.entries(scope))
    found = []
    for message in messages:
        own = facts.get(message.id, ())
        stated = [LearnedItem(row["id"], "fact", row["content"]) for row in own if row["kind"] != _TURN]
        is_waiting = message.id in waiting and not own
        read_by = _reader_of(own) if own else None
        if is_waiting and message.role.is_memorable:
            new = rules.facts_of(lake.as_evidence([message], corrections))
            stated = [LearnedItem(one.id, "fact", one.content) for one in new if one.kind != _TURN]
            read_by = f"{rules.name}, until the pipeline reads it"
        all_learned = (*stated, *learned.get(message.id, ()))
        entry = ledger.get(message.hour.key)
        is_unfinished = not own and entry is not None and entry.unfinished > 0
        reason = "" if all_learned else _why(message, is_read=read_by is not None, is_unfinished=is_unfinished)
        state = "waiting" if is_waiting else "loaded"
        found.append(MessageTrace(message, state, read_by, all_learned, reason))
    return found


def _facts(lake: Lake, scope: Scope, messages: Sequence[Message]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the loaded facts that rest on messages, by message."""
    ids, hours = {message.id for message in messages}, sorted({message.hour.key for message in messages})
    where = pc.field("scope") == scope.key
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in lake.tables.read(FACTS, hours, columns=_FACT, where=where, scopes=[scope.key]).to_pylist():
        for one in ids.intersection(row["message_ids"]):
            found[one].append(row)
    return found


def _reader_of(rows: Iterable[dict[str, Any]]) -> str:
    """Return what extracted facts: a model, or rules, also in place of a model."""
    by = sorted({row["model"] or row["extraction_method"] for row in rows if row["kind"] != _TURN})
    fallbacks = sorted({row["fallback"] for row in rows if row["fallback"]})
    return (", ".join(by) or "the rules or the model of its hour") + "".join(
        f", in place of a model ({reason})" for reason in fallbacks
    )


def _why(message: Message, *, is_read: bool, is_unfinished: bool) -> str:
    if not message.role.is_memorable:
        return f"a message of the role {message.role} is context for the others"
    if is_unfinished:
        return "its hour waits for a model or for a budget; the next run reads it"
    if not is_read:
        return "the pipeline has not read it yet; run `memory-pipeline run`"
    return "it states nothing that can be understood alone and lasts; searches find the message as it was said"


def rest_on(lake: Lake, scope: Scope, messages: Sequence[Message]) -> dict[str, list[LearnedItem]]:
    """Return everything that rests on messages, by message."""
    facts = _facts(lake, scope, messages)
    found = _derived(lake, scope, messages, facts)
    for message_id, rows in facts.items():
        found[message_id] = [*(LearnedItem(row["id"], "fact", row["content"]) for row in rows), *found[message_id]]
    return found


def _derived(
    lake: Lake, scope: Scope, messages: Sequence[Message], facts: dict[str, list[dict[str, Any]]]
) -> dict[str, list[LearnedItem]]:
    """Return graph facts, memories and lines of summaries that rest on messages, by message."""
    found: dict[str, list[LearnedItem]] = defaultdict(list)
    if not lake.exists:
        return found
    ids = {message.id for message in messages}
    graph = lake.graph_rows.read([scope], ["id", "source", "label", "target", "evidence"], IS_FACT).to_pylist()
    for row in graph:
        for one in ids.intersection(row["evidence"]):
            found[one].append(LearnedItem(row["id"], "graph", f"{row['source']} {row['label']} {row['target']}"))
    used = {one.memory_id: one.at for one in sorted(lake.access_log.uses([scope]), key=lambda one: one.at)}
    columns = ["memory_id", "content", "source_ids"]
    for row in lake.memory_rows.read([scope], columns, "is_newest").to_pylist():
        for one in ids.intersection(row["source_ids"] or ()):
            identifier = row["memory_id"]
            found[one].append(LearnedItem(identifier, "memory", row["content"], used.get(identifier)))
    # The points of a grain cite the facts, or the points of the next finer grain.
    sources: dict[str, set[str]] = defaultdict(set)
    for message_id, listed in facts.items():
        for row in listed:
            sources[row["id"]].add(message_id)
    for grain in SUMMARY_GRAINS:
        keys = sorted({lake.calendar.ancestor(message.hour, grain).key for message in messages})
        where = pc.field("scope") == scope.key
        columns = ["id", "key_points"]
        cited: dict[str, set[str]] = defaultdict(set)
        rows = lake.tables.read(SUMMARIES, keys, columns=columns, where=where, scopes=[scope.key], grain=grain.value)
        for row in rows.to_pylist():
            for number, point in enumerate(row["key_points"]):
                rests_on = {one for source in point["source_ids"] for one in sources.get(source, ())}
                for one in rests_on:
                    found[one].append(LearnedItem(f"{row['id']}#{number}", str(grain), point["sentence"]))
                cited[f"{row['id']}#{number}"] |= rests_on
        sources = cited
    return found


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
