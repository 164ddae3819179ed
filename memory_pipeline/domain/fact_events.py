"""Events for durable memories from the durable facts of conversations.

When the facts of an hour are recomputed, their events are derived and replaced too.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, Final, Protocol

from memory_pipeline.domain.graph.operations import MAX_TERM, snake_case
from memory_pipeline.domain.memories.events import CONVERSATION, Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.record import ENDED, MAX_CONTENT, title_of
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.domain.text.words import word_set
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.memories.record import MemoryKind
    from memory_pipeline.domain.scopes import Scope

#: Predicates that are nouns: "Anna's email is …"; so are those with one of the prefixes below.
_NOUNS: Final = word_set(
    """
    address age balance birth_date birth_place birthday birthplace blood_type date_of_birth deadline email employer
    first_name full_name gender height job_title last_name marital_status name native_language nickname alias occupation
    phone phone_number price profession pronouns relationship_status rent spouse status surname time_zone timezone
    version weight
    """
)
#: Predicates that need a verb: "Anna is allergic to …".
_STATES: Final = word_set(
    """
    afraid_of allergic_to also_known_as based_in born_in born_on called dating divorced_from employed_by engaged_to
    fond_of interested_in intolerant_to known_as located_in married_to named owned_by related_to responsible_for
    """
)
_NOUN_PREFIXES: Final = ("favourite_", "favorite_", "current_", "main_", "primary_", "preferred_")
#: Longest tag of an event, and maximum number of tags.
_LONGEST_TAG, _MOST_TAGS = 100, 50


class MemoryPolicy(Protocol):
    """The settings of an agent's durable memories."""

    @property
    def kinds(self) -> frozenset[MemoryKind]:
        """The allowed kinds; facts of other kinds stay in working memory only."""
        ...

    @property
    def point_in_time(self) -> bool:
        """Whether all memories describe one moment."""
        ...


def events_of(facts: Iterable[Fact], settings: Callable[[Scope], MemoryPolicy] | None = None) -> list[MemoryEvent]:
    """Return one REMEMBER event for each durable fact of any agents, in order.

    `settings` returns an agent's policy; by default all kinds are allowed. This is a pure function.
    """
    known: dict[Scope, MemoryPolicy] = {}
    events: list[MemoryEvent] = []
    for fact in facts:
        if fact.durable is None:
            continue
        is_snapshot = fact.is_point_in_time
        if settings is not None:
            if fact.scope not in known:
                known[fact.scope] = settings(fact.scope)
            if fact.durable not in known[fact.scope].kinds:
                continue
            is_snapshot |= known[fact.scope].point_in_time
        changes = _changes(fact, is_snapshot=is_snapshot)
        if changes is not None:
            events.append(
                MemoryEvent.of(
                    fact.scope,
                    MemoryVerb.REMEMBER,
                    fact.event_at,
                    changes,
                    turn=fact.turn,
                    place=fact.position,
                    editor=CONVERSATION,
                    evidence=fact.message_ids,
                    conversation_id=fact.conversation_id,
                    received_at=fact.received_at,
                    speaker=fact.speaker,
                )
            )
    return events


def triple_in_words(subject: str, predicate: str, value: str) -> str:
    """Return a triple as a sentence: ``Anna lives in Porto``, ``Anna's sister is Maria``."""
    name = "The user" if subject == "User" else "The agent" if subject == "Agent" else subject
    relation = predicate.removeprefix("has_")
    if relation and (relation != predicate or predicate in _NOUNS or predicate.startswith(_NOUN_PREFIXES)):
        return f"{name}'s {relation.replace('_', ' ')} is {value}"
    ended = predicate.removeprefix(ENDED)
    verb = "is " if ended in _STATES else ""
    return f"{name} {verb}{predicate.replace('_', ' ')} {value}"


def _changes(fact: Fact, *, is_snapshot: bool) -> Changes | None:
    """Return the fields of a memory for a fact; None if the fact has only recalled or illegible text."""
    content, speaker = _legible(fact.content), f"{_legible(fact.speaker)}: "
    prefix = speaker if content.startswith(speaker) else ""
    text = without_recalled(content[len(prefix) :]).strip()
    if not text:
        return None
    fields: dict[str, Any] = {
        "kind": fact.durable,
        "title": title_of(text),
        "content": f"{prefix}{text}"[:MAX_CONTENT],
        "source_type": fact.origin,
        "importance": fact.importance,
        "confidence": fact.confidence,
        "is_point_in_time": is_snapshot or None,
        "tags": [tag for tag in map(_line, fact.tags) if 0 < len(tag) <= _LONGEST_TAG][:_MOST_TAGS] or None,
    }
    terms = (_line(fact.subject or ""), snake_case(_line(fact.predicate or "")), _line(fact.object or ""))
    if all(0 < len(term) <= MAX_TERM for term in terms):
        fields |= dict(zip(("subject", "predicate", "object"), terms, strict=True), title=triple_in_words(*terms))
    try:
        return Changes.of(fields)
    except InputError:
        # The same rules apply to agents: a fact that an agent could not have written is not stored.
        return None


def _legible(text: str) -> str:
    """Return a text with blanks in place of control characters and surrogates."""
    if text.isprintable():
        return text
    return "".join(
        character if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs") else " "
        for character in text
    )


def _line(text: str) -> str:
    return " ".join(_legible(text).split())
