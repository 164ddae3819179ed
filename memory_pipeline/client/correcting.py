"""Correct what memory holds: withdraw a statement, or replace it, with everything that rests on it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from memory_pipeline.client.tracing import messages_with_ids
from memory_pipeline.domain.corrections import LEAST_WORDS, Correction
from memory_pipeline.domain.identity import MEMORY, MESSAGE, Reference
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.words import words_of
from memory_pipeline.erasure.correct import BlastRadius, blast_radius, make_again
from memory_pipeline.erasure.forget import ErasurePreview
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.codec.facts import rows_to_messages
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.reader.dependents import LearnedItem, contexts_with
from memory_pipeline.reader.lineage import Node, expand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader import MemoryReader

_SENTENCE: Final = re.compile(r"[^.!?。！？\n]*[^\s.!?。！？][^.!?。！？\n]*(?:[.!?。！？]+[\"'”’)]*|\n|\Z)")
#: Least part of the words of a sentence that a statement repeats if it rests on the sentence.
_OVERLAP: Final = 0.5


@dataclass(frozen=True, slots=True)
class CorrectionResult:
    """What a correction withdraws, and what rests on it.

    Attributes:
        id: of the correction, to undo it; None in a plan.
        quotes: the parts of messages that are withdrawn, by message.
        text: what replaces them.
        radius: what rests on these messages: its ``rests_on``, ``partitions`` and ``handed_over``.
        identity: the user or group whose memory it is, as of a hit; empty for the agent's own.
    """

    id: str | None
    quotes: Mapping[str, tuple[str, ...]]
    text: str | None
    radius: BlastRadius
    identity: str

    def lines(self) -> Iterator[str]:
        """Yield the result as lines for people."""
        for message, quotes in self.quotes.items():
            yield f"withdrawn from {message}:"
            yield from (f"  {quote.strip()}" for quote in quotes)
        if self.text is not None:
            yield f"replaced by: {self.text}"
        yield from self.radius.lines()
        yield "nothing is changed yet" if self.id is None else f"done; to undo it: memory-pipeline undo {self.id}"


def correct(
    lake: Lake,
    reader: MemoryReader,
    models: Models | None,
    identifier: str,
    text: str | None,
    words: str | None,
    reason: str | None,
    editor: str,
    now: datetime,
) -> CorrectionResult:
    """Withdraw a statement and make again what rests on it; without `models`, only plan it. See ``Memory.correct``."""
    scope, messages, target = _resolved(lake, reader, identifier)
    quotes = {one.id: sentences for one in messages if (sentences := _quotes(one, target, words))}
    messages = [one for one in messages if one.id in quotes]
    if not quotes:
        raise InputError(f"words {shown(words)} are in no sentence on which {shown(identifier)} rests")
    every = tuple(dict.fromkeys(quote for listed in quotes.values() for quote in listed))
    for one in _with_same_words(lake, scope, every, {*quotes}):
        messages.append(one)
        quotes[one.id] = tuple(quote for quote in every if quote in one.content)
    made = Correction(scope, tuple(quotes), every, text, reason, editor, now)
    radius = blast_radius(lake, [scope], quotes, is_own(reader.scopes))
    result = CorrectionResult(None, quotes, text, radius, scope.identity)
    if models is None:
        return result
    lake.corrections.add(made)
    make_again(lake, models, [made])
    return replace(result, id=made.id)


def rollback(
    lake: Lake,
    scopes: Sequence[Scope],
    models: Models | None,
    chosen: Callable[[Message], bool],
    reason: str | None,
    editor: str,
    now: datetime,
) -> list[CorrectionResult]:
    """Withdraw all messages that are chosen; without `models`, only plan it. See ``Memory.rollback``."""
    results, made = [], []
    for scope in scopes:
        pending = [one for file in lake.journal.pending(scope) for one in lake.journal.read(file).messages]
        loaded = rows_to_messages(lake.tables.read(MESSAGES, where=pc.field("scope") == scope.key, scopes=[scope.key]))
        messages = list({one.id: one for one in (*pending, *loaded) if chosen(one)}.values())
        if messages:
            ids = tuple(one.id for one in messages)
            made.append(Correction(scope, ids, (), None, reason, editor, now))
            quotes = {one.id: (one.content,) for one in messages}
            identifier = None if models is None else made[-1].id
            radius = blast_radius(lake, [scope], quotes, is_own(scopes))
            results.append(CorrectionResult(identifier, quotes, None, radius, scope.identity))
    if models is not None and made:
        for one in made:
            lake.corrections.add(one)
        make_again(lake, models, made)
    return results


def undo(lake: Lake, scopes: Sequence[Scope], models: Models, identifier: str, editor: str, now: datetime) -> None:
    """Undo a correction. See ``Memory.undo``."""
    known = [one for scope in scopes for one in lake.corrections.in_force(lake.journal.entries(scope)).of(scope)]
    for one in known:
        if one.id == identifier:
            undoing = Correction(one.scope, one.message_ids, (), None, None, editor, now, undoes=one.id)
            lake.corrections.add(undoing)
            make_again(lake, models, [undoing])
            return
    raise InputError(f"no correction in force has the id {shown(identifier)}; `corrections` lists those that are")


def revocation(lake: Lake, reader: MemoryReader, memory_id: str) -> ErasurePreview:
    """Return what is known of a durable memory that would be revoked. Nothing is erased, or made again."""
    memory = reader.memories.get(memory_id)
    if memory is None:
        raise InputError(f"memory {shown(memory_id)} is unknown; use an id of a search")
    scopes = reader.scopes
    read = contexts_with(lake, scopes[0].workspace_id, [memory.id], is_own(scopes))
    own = tuple(one for one in scopes if one.identity == reader.memories.identity_of(memory.id))
    item = LearnedItem(memory.id, "memory", memory.content)
    return ErasurePreview({"memories": 1}, own, (), (memory.id,), BlastRadius((item,), {}, read))


def is_own(scopes: Sequence[Scope]) -> Callable[[Scope], bool]:
    """Return whether a memory with these scopes may tell of reads of a scope: of its own, an agent of all its users."""
    if not any(scope.identity for scope in scopes):
        return lambda read: read.own in scopes
    return lambda read: read in scopes


def _resolved(lake: Lake, reader: MemoryReader, identifier: str) -> tuple[Scope, list[Message], str | None]:
    """Return the scope of an item, the messages that it rests on, and its text; None if it is a whole message."""
    reference = Reference.parse(identifier)
    target: str | None
    if reference.what == MESSAGE:
        ids, target = [identifier], None
    elif reference.what == Grain.WORKING:
        hit = reader.get(identifier)
        ids, target = ([], None) if hit is None else ([*hit.source_ids], None if hit.kind == "turn" else hit.content)
    elif reference.what == MEMORY:
        memory = reader.memories.get(identifier)
        sources = () if memory is None else memory.source_ids
        ids, target = [one for one in sources if Reference.parse(one).what == MESSAGE], getattr(memory, "content", None)
        if memory is not None and not ids:
            raise InputError(
                f"memory {shown(identifier)} was stored by an agent, not learned from messages; change it with "
                "`writer.update`, or revoke it with `forget`"
            )
    else:
        node = expand(lake, reader.scopes, identifier)
        ids, target = [one.id for one in _leaves(node) if one.what == MESSAGE], node.content
    for scope in reader.scopes:
        if ids and (messages := messages_with_ids(lake, scope, ids)):
            return scope, messages, target
    raise InputError(
        f"{shown(identifier)} is unknown, or its messages have expired; expected the id of a message, fact, memory or "
        "graph fact, or a line of a summary such as daily:2024-01-15:…#3"
    )


def _leaves(node: Node) -> Iterator[Node]:
    if not node.sources:
        yield node
    for source in node.sources:
        yield from _leaves(source)


def _quotes(message: Message, target: str | None, words: str | None) -> tuple[str, ...]:
    """Return the sentences of a message on which a text rests; the whole message if it is not clear which.

    With `words`, only the sentences with these words, maybe none.
    """
    if words is not None:
        sentences = (match[0].strip() for match in _SENTENCE.finditer(message.content))
        return tuple(one for one in sentences if words.casefold() in one.casefold())
    if target is None:
        return (message.content,)
    wanted = set(words_of(target))
    found = []
    for match in _SENTENCE.finditer(message.content):
        said = set(words_of(match[0]))
        if said and len(said & wanted) / min(len(said), max(1, len(wanted))) >= _OVERLAP:
            found.append(match[0].strip())
    return tuple(found) or (message.content,)


def _with_same_words(lake: Lake, scope: Scope, quotes: Iterable[str], known: set[str]) -> list[Message]:
    """Return other loaded messages of a scope that say the same sentences."""
    said = [pc.match_substring(pc.field("content"), quote) for quote in quotes if len(words_of(quote)) >= LEAST_WORDS]
    if not said:
        return []
    where = (pc.field("scope") == scope.key) & reduce(or_, said)
    rows = lake.tables.read(MESSAGES, where=where, scopes=[scope.key])
    return [one for one in rows_to_messages(rows) if one.id not in known]
