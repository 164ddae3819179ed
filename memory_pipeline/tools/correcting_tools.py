"""The tool that withdraws what was said. It shows its plan first, and changes nothing until it is called with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.record import MAX_CONTENT, SourceType
from memory_pipeline.errors import InputError
from memory_pipeline.parameters import Within
from memory_pipeline.tools.memory_tools import MOST_QUERY, MemoryId, Reason
from memory_pipeline.tools.texts import TextEntry, answer_text, line
from memory_pipeline.tools.tool import Access, tool, writer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_pipeline.reader.dependents import LearnedItem

_DIGITS = 8


@tool("Withdraw what was said", "removes", is_of_any_agent=False)
def correct(
    access: Access,
    *,
    id: MemoryId,  # noqa: A002  # its name
    words: Annotated[str | None, Within(0, MOST_QUERY)] = None,
    text: Annotated[str | None, Within(0, MAX_CONTENT)] = None,
    reason: Reason = None,
    plan: Annotated[str | None, Within(0, _DIGITS)] = None,
) -> str:
    """Withdraw a wrong statement of a conversation, with everything that was learned from it: facts, memories, lines
    of summaries. The first call changes nothing: it returns what would be withdrawn and the number of this plan. Tell
    the user, and call again with the number if they agree. For a memory that was stored with add_memory, use
    update_memory or delete_memory.

    Args:
        id: What is wrong: the id of a message, a fact, a memory, a graph fact, or a line of a summary (its id with #
            and the number of the line).
        words: Some of the wrong words, if it says more than that; only sentences with these words are withdrawn.
        text: What is true instead, in one sentence that can be understood by itself; leave out if that is unknown.
        reason: Why, in a few words.
        plan: The number of the plan, as the first call returned it; leave out in the first call.
    """
    writer, memory, now = writer_of(access), access.memory, access.clock()
    if memory is None:
        raise InputError("this memory cannot be corrected here")
    id, words, text, reason = id.strip(), words or None, (text or "").strip() or None, reason or None  # noqa: A001
    # The words of a user are replaced by words of the user alone; those of an assistant are remembered as such.
    replaced = text if access.said_by is SourceType.USER else None
    planned = memory.correct(id, replaced, words=words, dry_run=True, now=now)
    if planned.identity != writer.scope.identity:
        raise InputError("this was said to others, too, and can only be read; remember what is true instead")
    number = digest("plan", planned.quotes, text, [one.id for one in planned.radius.rests_on])[:_DIGITS]
    if plan is None or plan.strip() != number:
        head = "Nothing is changed yet. " if plan is None else "This is not the number of the plan, or memory changed. "
        head += "This would be withdrawn, with what rests on it, which is made again without it:"
        hint = f"Ask the user. If they agree, call correct with the same arguments and plan {number}."
        return answer_text(head, [*_entries(planned.quotes, planned.radius.rests_on)], access.max_tokens, hint)
    done = memory.correct(id, replaced, words=words, reason=reason, dry_run=False, now=now)
    noted = ""
    if text is not None and replaced is None:
        noted = f" What is true instead is remembered ({writer.remember(text, source_type=access.said_by, now=now)})."
    return f"It is withdrawn, and not learned again.{noted} `memory-pipeline undo {done.id}` takes this back."


def _entries(quotes: Mapping[str, Sequence[str]], rests_on: Sequence[LearnedItem]) -> Iterator[TextEntry]:
    for message, parts in quotes.items():
        yield from (TextEntry("said: ", line(part), f" ({message})") for part in parts)
    yield from (TextEntry(f"{one.what}: ", line(one.content), f" ({one.id})") for one in rests_on)
