"""Tell what became of messages: whether they were read, what was learned from them, and where it went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from memory_pipeline.domain.identity import MESSAGE, Reference
from memory_pipeline.domain.messages import with_edits
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.codec.facts import rows_to_messages
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.lake.tables.ledger import table_asset
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.reader.dependents import LearnedItem, facts_on, made_of, pending_on
from memory_pipeline.writer.known_messages import KnownMessages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

_TURN: Final = "turn"
_WIDTH: Final = 100


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


def trace(lake: Lake, scopes: Sequence[Scope], identifier: str | Sequence[str]) -> list[MessageTrace]:
    """Return what became of a message, of several, or of all messages of a conversation, oldest first.

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


def _messages(lake: Lake, scope: Scope, identifier: str | Sequence[str]) -> tuple[list[Message], set[str]]:
    """Return messages, and the ids of those that wait in the journal."""
    if not isinstance(identifier, str):
        return _with_ids(lake, scope, identifier)
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
    pending = [one for file in files for one in lake.journal.read(file, hours).messages if one.id in ids]
    where = pc.field("id").isin(ids) & (pc.field("scope") == scope.key)
    rows = lake.tables.read(MESSAGES, {hour.key for hour in hours}, where=where, scopes=[scope.key])
    found = {one.id: one for one in with_edits([*pending, *rows_to_messages(rows)])}
    return [found[one] for one in ids if one in found], {one.id for one in pending}


def _traces(lake: Lake, scope: Scope, messages: Sequence[Message], waiting: Collection[str]) -> list[MessageTrace]:
    ids = [message.id for message in messages]
    facts = facts_on(lake, [scope], ids)
    learned = made_of(lake, [scope], ids, facts)
    pending = pending_on(lake, scope, waiting) if waiting else {}
    ledger = lake.ledger.entries(table_asset("working"), {message.hour for message in messages})
    found = []
    for message in messages:
        own = facts.get(message.id, ())
        stated = [LearnedItem(row["id"], "fact", row["content"]) for row in own if row["kind"] != _TURN]
        is_waiting = message.id in waiting and not own
        read_by = _reader_of(own) if own else None
        if is_waiting and message.role.is_memorable:
            stated = [one for one in pending.get(message.id, ()) if one.what != _TURN]
            read_by = f"{DeterministicExtractor(lake.calendar.timezone).name}, until the pipeline reads it"
        all_learned = tuple({one.id: one for one in (*stated, *learned.get(message.id, ()))}.values())
        entry = ledger.get(message.hour.key)
        is_unfinished = not own and entry is not None and entry.unfinished > 0
        reason = "" if all_learned else _why(message, is_read=read_by is not None, is_unfinished=is_unfinished)
        state = "waiting" if is_waiting else "loaded"
        found.append(MessageTrace(message, state, read_by, all_learned, reason))
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


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
