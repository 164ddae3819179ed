"""The tools that write: what the agent itself wants to be kept for good, and facts of the graph."""

from __future__ import annotations

from typing import Final

from memory_pipeline.domain.graph.operations import MAX_TERM
from memory_pipeline.tools.access import Access, Tool, writer_of
from memory_pipeline.tools.durable import FORGET, REMEMBER, UPDATE
from memory_pipeline.tools.parameters import Parameter


def _add_fact(
    access: Access,
    *,
    subject: str,
    predicate: str,
    object: str,  # noqa: A002  # the term's own name
    replaces: str | None,
    confidence: float,
) -> str:
    graph, now = writer_of(access).graph, access.clock()
    if replaces and replaces.strip():
        graph.update(subject, predicate, object, replaces=replaces, confidence=confidence, now=now)
    else:
        graph.insert(subject, predicate, object, confidence=confidence, now=now)
    return "The fact is remembered; graph_facts finds it at once."


def _delete_fact(access: Access, *, subject: str, predicate: str, object: str | None) -> str:  # noqa: A002
    writer_of(access).graph.delete(subject, predicate, object, now=access.clock())
    return "The fact no longer holds; graph_facts shows it with include_history."


def _term(name: str, description: str, *, is_required: bool = True) -> Parameter:
    return Parameter(name, "string", description, is_required=is_required, least=1, most=MAX_TERM)


_SUBJECT = _term("subject", "Whom or what it is about: a name; User for the user, Agent for yourself.")
_PREDICATE = _term("predicate", "The relation, in snake_case: lives_in, works_at, likes, has_sister.")

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

WRITING_TOOLS: Final = (REMEMBER, UPDATE, FORGET, ADD_FACT, DELETE_FACT)
