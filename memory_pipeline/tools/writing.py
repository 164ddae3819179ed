"""The tools that write: what the agent itself wants to be remembered, said as a message or as a fact of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.conversations import Role
from memory_pipeline.domain.operations import MAX_TERM
from memory_pipeline.errors import InputError
from memory_pipeline.tools.access import Access, Tool
from memory_pipeline.tools.parameters import Parameter

if TYPE_CHECKING:
    from memory_pipeline.writer import MemoryWriter

#: The conversation in which an agent tells itself what to remember.
CONVERSATION: Final = "remembered"
_MOST_TEXT = 10_000
_CENTURY = 36_525
#: Among so many of the newest it is looked whether a text is remembered already.
_LOOKED_AT = 100


def _writer(access: Access) -> MemoryWriter:
    if access.writer is None:
        raise InputError("this memory is read-only")
    return access.writer


def _remember(access: Access, *, text: str) -> str:
    writer, now = _writer(access), access.clock()
    known = _known(access, text)
    if known is not None:
        return f"This is remembered already, since {known}; nothing was added."
    message = {"role": Role.ASSISTANT.value, "content": text, "timestamp": now.isoformat()}
    receipt = writer.write({"conversation_id": CONVERSATION, "messages": [message]}, now=now)
    if not receipt.message_ids:
        return "Nothing was added: the text is what memory itself gave, and that is remembered already."
    return f"Remembered on {access.reader.calendar.day_of(now)}; it can be found at once."


def _known(access: Access, text: str) -> object:
    """Return the day on which the agent told itself just this; None if it never did."""
    # Without a query, so that no model is asked.
    found = access.reader.search_memory(
        "working", 0, _CENTURY, _LOOKED_AT, conversation_id=CONVERSATION, kind="turn", now=access.clock()
    )
    return next((hit.date for hit in found if hit.content.partition(": ")[2].strip() == text.strip()), None)


def _add_fact(
    access: Access,
    *,
    subject: str,
    predicate: str,
    object: str,  # noqa: A002  # the term's own name
    replaces: str | None,
    confidence: float,
) -> str:
    graph, now = _writer(access).graph, access.clock()
    if replaces and replaces.strip():
        graph.update(subject, predicate, object, replaces=replaces, confidence=confidence, now=now)
    else:
        graph.insert(subject, predicate, object, confidence=confidence, now=now)
    return "The fact is remembered; graph_facts finds it at once."


def _delete_fact(access: Access, *, subject: str, predicate: str, object: str | None) -> str:  # noqa: A002
    _writer(access).graph.delete(subject, predicate, object, now=access.clock())
    return "The fact no longer holds; graph_facts shows it with include_history."


def _term(name: str, description: str, *, is_required: bool = True) -> Parameter:
    return Parameter(name, "string", description, is_required=is_required, least=1, most=MAX_TERM)


_SUBJECT = _term("subject", "Whom or what it is about: a name; User for the user, Agent for yourself.")
_PREDICATE = _term("predicate", "The relation, in snake_case: lives_in, works_at, likes, has_sister.")

REMEMBER = Tool(
    "remember",
    "add_memory",
    "Remember",
    "Remember something for later conversations: a preference, a decision, something learnt, in a sentence that can be "
    "understood by itself, with names and dates. What is said in the conversation is remembered anyway.",
    (Parameter("text", "string", "What to remember.", is_required=True, least=1, most=_MOST_TEXT),),
    _remember,
    "adds",
)

ADD_FACT = Tool(
    "remember_fact",
    "add_fact",
    "Add a fact to the graph",
    "Remember a plain fact as subject, predicate and object: Anna, lives_in, Porto. Where the predicate holds one "
    "value at a time, the new one takes the place of the old, which is kept as history.",
    (
        _SUBJECT,
        _PREDICATE,
        _term("object", "Its value: a name, a place, a number."),
        _term("replaces", "The object that is no longer so, if the fact takes its place.", is_required=False),
        Parameter("confidence", "number", "How sure it is, 0 to 1.", 1, most=1),
    ),
    _add_fact,
    "adds",
)

DELETE_FACT = Tool(
    "forget_fact",
    "delete_fact",
    "End a fact of the graph",
    "Say that a fact no longer holds. It is kept as history. Without an object, all facts of subject and predicate "
    "end.",
    (_SUBJECT, _PREDICATE, _term("object", "Its value; leave out for all.", is_required=False)),
    _delete_fact,
    "removes",
)

WRITING_TOOLS: Final = (REMEMBER, ADD_FACT, DELETE_FACT)
