"""The tools for durable memories: add, update, delete and list them, and search the archive."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Final, Literal

from memory_pipeline.domain.identity import MEMORY, MESSAGE
from memory_pipeline.domain.memories.decay import warning
from memory_pipeline.domain.memories.record import MAX_CONTENT, MAX_TITLE, MemoryKind, shortened
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.errors import InputError
from memory_pipeline.parameters import Within
from memory_pipeline.tools.texts import TextEntry, answer_text, line, lines
from memory_pipeline.tools.tool import Access, tool, writer_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.memories.search import RecalledMemory

_MOST_REASON, _MOST_ID = 500, 200
_SHOWN_VERSIONS, _SHOWN_SOURCES = 10, 3
_SHOWN_OF_REASON = 160
MOST_QUERY, MOST_RESULTS = 2_000, 50

Outcome = Literal["success", "failure"]
MemoryId = Annotated[str, Within(1, _MOST_ID)]
Reason = Annotated[str | None, Within(0, _MOST_REASON)]

#: Whether an experience ended well, by what a model calls it.
OUTCOMES: Final = {"success": True, "failure": False}

_log = logging.getLogger(__name__)


def is_durable(identifier: str) -> bool:
    """Return whether an id is a durable memory's."""
    return identifier.startswith(f"{MEMORY}:")


def _is_own(access: Access, identifier: str) -> bool:
    """Return whether a memory is in the scope of the writer: of the user, if there is one."""
    writer = access.writer
    return writer is not None and access.reader.memories.identity_of(identifier) == writer.scope.identity


def _own(access: Access, identifier: str) -> str:
    """Return the id of a memory that the writer may change. Raise InputError if the user may only read it."""
    identifier = identifier.strip()
    if access.reader.memories.get(identifier) is not None and not _is_own(access, identifier):
        raise InputError(f"memory {identifier} is shared with others and can only be read; remember a new one instead")
    return identifier


def durable_text(access: Access, identifier: str) -> str:
    """Return a durable memory with its versions and sources. Raise InputError if the id is unknown."""
    now, memories, day_of = access.clock(), access.reader.memories, access.reader.local_calendar.day_of
    memory = memories.get(identifier, now=now)
    if memory is None:
        raise InputError(f"there is no durable memory with id {identifier}; use an id from a search")
    newest = memories.get(memories.resolved(identifier, now=now), now=now)
    access.reader.note_uses([memory.id] if memory.is_active else [], now=now)
    head = f"A durable memory: {_named(memory.kind)}, {_state_of(memory)}:"
    entries = [TextEntry(f"[{day_of(memory.updated_at)}] ({memory.version_id})\n", lines(memory.content))]
    if attribution := access.reader.memories.said_by(memory).attribution:
        entries[:0] = [TextEntry("", attribution.strip())]
    if (why := warning(memory, now)) is not None:
        entries.append(TextEntry("  ", f"Take care: {why}."))
    if newest is not None and newest.id != memory.id:
        entries.append(TextEntry("It goes on in: ", line(newest.content), f" ({newest.id})"))
    earlier = [one for one in memories.history(memory.id, now=now) if one.version < memory.version][-_SHOWN_VERSIONS:]
    entries += [
        TextEntry(f"  before, by {line(one.editor)}: [{day_of(one.updated_at)}] ", line(one.content))
        for one in reversed(earlier)
    ]
    said = [one for one in memory.source_ids if one.startswith(f"{MESSAGE}:")][-_SHOWN_SOURCES:]
    hint = f"It rests on {', '.join(said)}." if said else f"It was written by {line(memory.editor)}."
    return answer_text(head, entries, access.max_tokens, hint)


def _named(kind: MemoryKind) -> str:
    return kind.value.replace("_", " ")


def _state_of(memory: DurableMemory) -> str:
    state = memory.temperature.value if memory.is_active else memory.status.value
    why = f" ({shortened(line(memory.status_reason), _SHOWN_OF_REASON)})" if memory.status_reason else ""
    return f"{state}{why}, version {memory.version}"


@tool("Remember", "adds")
def add_memory(
    access: Access,
    *,
    text: Annotated[str, Within(1, MAX_CONTENT)],
    kind: MemoryKind | str = MemoryKind.FACT,
    title: Annotated[str | None, Within(0, MAX_TITLE)] = None,
    outcome: Outcome | None = None,
    is_snapshot: bool = False,
) -> str:
    """Store a durable memory: an instruction, a preference, a decision, something learned, in one sentence that can be
    understood by itself, with names and dates.

    Args:
        text: What to remember.
        kind: What sort of thing it is: an instruction is what you were told always to do, a rule holds for everybody,
            an observation is not sure.
        title: What it is about, in a few words.
        outcome: Outcome, if the text tells of an attempt.
        is_snapshot: Whether it will soon change: a stock, a price, a status.
    """
    writer, now = writer_of(access), access.clock()
    if not without_recalled(text).strip():
        return "Nothing was added: the text was recalled from memory, so it is stored already."
    memory_id = writer.remember(
        text,
        kind,
        title=title or None,
        is_point_in_time=True if is_snapshot else None,
        outcome_success=OUTCOMES[outcome] if outcome else None,
        source_type=access.said_by,
        now=now,
    )
    memory = access.reader.memories.get(memory_id)
    if memory is not None and memory.version > 1:
        since = access.reader.local_calendar.day_of(memory.created_at)
        return f"This was known already, since {since} ({memory_id}); it counts as said again."
    return f"Remembered on {access.reader.local_calendar.day_of(now)} ({memory_id}); recall_memory finds it at once."


@tool("Correct or confirm a memory", "adds")
def update_memory(
    access: Access,
    *,
    id: MemoryId,  # noqa: A002  # its name
    text: Annotated[str | None, Within(0, MAX_CONTENT)] = None,
    reason: Reason = None,
) -> str:
    """Correct a durable memory, or confirm that it still holds. What it said before is kept as history.

    Args:
        id: Its id, memory:…, as recall_memory gives it.
        text: What it should say; leave out to confirm it as it is.
        reason: Why, in a few words.
    """
    writer, now, memory_id = writer_of(access), access.clock(), _own(access, id)
    if text is None or not text.strip():
        memory_id = writer.confirm(memory_id, reason=reason or None, now=now)
        return f"It is noted that this is still so ({memory_id})."
    memory_id = writer.update(memory_id, text, reason=reason or None, source_type=access.said_by, now=now)
    return f"Corrected ({memory_id}); what it said before is kept as history."


@tool("Revoke a memory", "removes")
def delete_memory(access: Access, *, id: MemoryId, reason: Reason = None) -> str:  # noqa: A002  # as above
    """Revoke a durable memory that was wrong or is no longer wanted. Use update_memory where something else is true
    instead.

    Args:
        id: Its id, memory:…, as recall_memory gives it.
        reason: Why, in a few words.
    """
    count = writer_of(access).forget(_own(access, id), reason=reason or None, now=access.clock())
    if not count:
        return "It was revoked already."
    return "It is revoked. What was said in conversations can still be found; `memory-pipeline forget` removes that."


def experiences_text(access: Access, query: str, outcome: str) -> str:
    """Return the experiences that ended in an outcome, best matches first."""
    found = access.reader.memories.search(query, outcome_success=OUTCOMES[outcome], hops=0, now=access.clock())
    if not found:
        return f"No experience of this ended in {outcome}."
    access.reader.note_uses([one.memory.id for one in found], now=access.clock())
    return answer_text(
        f"{len(found)} experiences that ended in {outcome}, best first:", _entries(access, found), access.max_tokens
    )


@tool("List memories")
def list_memories(
    access: Access, *, kind: MemoryKind | str | None = None, max_results: Annotated[int, Within(1, MOST_RESULTS)] = 20
) -> str:
    """List the newest durable memories, to see what is remembered. Use recall_memory to answer a question.

    Args:
        kind: What sort of memories; leave out for all.
        max_results: How many memories at most.
    """
    found = access.reader.memories.list(kind=kind, limit=max_results + 1, now=access.clock())
    if not found:
        return "There are no durable memories yet." if kind is None else "There are no durable memories of this kind."
    day_of, memories = access.reader.local_calendar.day_of, access.reader.memories
    entries = [
        TextEntry(f"[{day_of(one.updated_at)}] ", f"{memories.said_by(one).attribution}{line(one.content)}",
                  f" ({_named(one.kind)}) ({one.id})")
        for one in found[:max_results]
    ]  # fmt: skip
    more = ", and there are more" if len(found) > max_results else ""
    return answer_text(f"{len(entries)} durable memories, newest first{more}:", entries, access.max_tokens)


@tool("Search the archive", is_of_any_agent=False)
def search_archive(
    access: Access,
    *,
    query: Annotated[str, Within(1, MOST_QUERY)],
    max_results: Annotated[int, Within(1, MOST_RESULTS)] = 10,
) -> str:
    """Search archived memories: old, unused or contradicted ones, which recall_memory does not show. Use it when
    recall_memory finds nothing, or to learn what was believed before.

    Args:
        query: What to look for, in words.
        max_results: How many memories at most.
    """
    now = access.clock()
    found = access.reader.memories.search_archive(query, max_results, now=now)
    if not found:
        return "No archived memory matches."
    entries = _entries(access, found)
    head = f"{len(found)} archived memories, best first, each with the reason; they may no longer be true:"
    return answer_text(head, entries, access.max_tokens, "update_memory restores one that still holds.")


def _entries(access: Access, found: Iterable[RecalledMemory]) -> list[TextEntry]:
    return [
        TextEntry(
            f"[{access.reader.local_calendar.day_of(one.memory.updated_at)}] ",
            f"{one.said_by.attribution}{line(one.memory.content)}",
            f" ({_named(one.memory.kind)}, {_state_of(one.memory)}) ({one.memory.id})",
        )
        for one in found
    ]
