"""Durable memories from conversations: which facts become events, and their content."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.configuration.sections import MemoriesSettings
from memory_pipeline.domain.fact_events import events_of, triple_in_words
from memory_pipeline.domain.facts import Fact, FactKind
from memory_pipeline.domain.memories.events import CONVERSATION, Changes, MemoryVerb
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.domain.memories.record import MAX_CONTENT, MAX_HOOK, MAX_TITLE, MemoryKind
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor

AT = datetime(2024, 1, 15, 8, 3, tzinfo=UTC)
EXTRACTOR = DeterministicExtractor()


def message(content: str, *, at: datetime = AT, **changes: Any) -> Message:
    record = {
        "workspace_id": "acme",
        "agent_id": "support",
        "conversation_id": "call",
        "tags": ["phone"],
        "id": f"m-{at:%d%H%M}",
        "turn": 3,
        "role": "user",
        "name": "Anna",
        "content": content,
        "timestamp": at.isoformat(),
        "received_at": "2024-06-01T00:00:00+00:00",
    }
    return Message.from_record(record | changes)


def durable(content: str, **changes: Any) -> Fact:
    made = Fact.of([message("Something.")], FactKind.STATEMENT, "Anna: Something.", extraction_method="x", position=2)
    kept: dict[str, Any] = {"durable": MemoryKind.FACT, "importance": 0.7, "confidence": 0.6, "content": content}
    return replace(made, **(kept | changes))


def test_a_durable_fact_becomes_one_event() -> None:
    facts = EXTRACTOR.facts_of([message("Hello! I live in Porto. I had soup today. Always quote prices with tax.")])
    lives, always = events_of(facts)
    assert lives.changes == Changes(
        kind=MemoryKind.FACT,
        title="Anna lives in Porto",
        content="Anna: I live in Porto.",
        subject="Anna",
        predicate="lives_in",
        object="Porto",
        importance=lives.changes.importance,
        confidence=lives.changes.confidence,
        tags=("phone",),
    )
    fact = next(fact for fact in facts if fact.durable is MemoryKind.FACT)
    assert (lives.verb, lives.editor, lives.conversation_id) == (MemoryVerb.REMEMBER, CONVERSATION, "call")
    assert (lives.event_at, lives.turn, lives.place) == (AT, 3, fact.position)
    assert (lives.evidence, lives.scope, lives.speaker) == (fact.message_ids, fact.scope, "Anna")
    assert lives.received_at == fact.received_at
    assert (lives.changes.importance, lives.changes.confidence) == (fact.importance, fact.confidence)
    assert (always.changes.kind, always.changes.title) == (MemoryKind.INSTRUCTION, "Always quote prices with tax.")
    assert always.changes.is_point_in_time is None
    assert lives.order < always.order


def test_facts_that_are_not_durable_give_no_event() -> None:
    assert events_of(EXTRACTOR.facts_of([message("Hello! I had soup with Tom today.")])) == []
    assert events_of([]) == []


def test_a_point_in_time_fact_gives_a_point_in_time_memory() -> None:
    (event,) = events_of([durable("The balance is 40 euros.", is_point_in_time=True)])
    assert event.changes.is_point_in_time
    assert fold_events([event]).newest[event.memory_id].is_point_in_time


def test_facts_of_disallowed_kinds_stay_in_working_memory() -> None:
    asked: list[Scope] = []

    def settings(scope: Scope) -> MemoriesSettings:
        asked.append(scope)
        return MemoriesSettings(kinds=frozenset([MemoryKind.RULE] if scope.agent_id == "support" else MemoryKind))

    other = Scope("acme", "sales")
    facts = [durable("a"), durable("b", durable=MemoryKind.RULE), durable("c", scope=other), durable("d", scope=other)]
    assert [event.changes.content for event in events_of(facts, settings)] == ["b", "c", "d"]
    assert len(asked) == 2
    assert len(events_of(facts)) == 4


def test_point_in_time_agents_have_only_point_in_time_memories() -> None:
    (event,) = events_of([durable("a")], lambda _: MemoriesSettings(point_in_time=True))
    assert event.changes.is_point_in_time


@pytest.mark.parametrize(
    ("triple", "words"),
    [
        (("Anna", "allergic_to", "nuts"), "Anna is allergic to nuts"),
        (("Anna", "no_longer_allergic_to", "nuts"), "Anna is no longer allergic to nuts"),
        (("Anna", "no_longer_works_at", "Acme"), "Anna no longer works at Acme"),
        (("User", "married_to", "Tom"), "The user is married to Tom"),
    ],
)
def test_a_triple_reads_as_a_sentence(triple: tuple[str, str, str], words: str) -> None:
    assert triple_in_words(*triple) == words


def test_events_depend_only_on_the_facts() -> None:
    facts = EXTRACTOR.facts_of([message("I live in Porto. Always quote prices with tax.")])
    assert events_of(facts) == events_of(
        EXTRACTOR.facts_of([message("I live in Porto. Always quote prices with tax.")])
    )
    assert [event.id for event in events_of(reversed(facts))] == [event.id for event in reversed(events_of(facts))]


def test_a_statement_repeated_in_another_conversation_is_the_same_memory() -> None:
    later = AT + timedelta(days=40)
    said = [message("Always quote prices with tax!"), message("always quote prices with tax.", at=later, id="n")]
    memories = fold_events(events_of(EXTRACTOR.facts_of([replace(one, conversation_id=one.id) for one in said])))
    (memory,) = memories.newest.values()
    assert (memory.version, memory.created_at, memory.updated_at) == (2, AT, later)
    assert len(memory.source_ids) == len(memory.conversation_ids) == 2


def test_statements_of_two_people_are_different_memories() -> None:
    said = [message("I live in Porto."), message("I live in Porto.", name="Tom", at=AT + timedelta(minutes=1))]
    memories = fold_events(events_of(EXTRACTOR.facts_of(said)))
    assert {memory.title for memory in memories.newest.values()} == {"Anna lives in Porto", "Tom lives in Porto"}


def test_recalled_memory_never_becomes_durable_again() -> None:
    recalled = mark("Always quote prices with tax.")
    for content in (f"Anna: {recalled}", recalled, f"Anna: {recalled[:-40]}"):
        assert events_of([durable(content)]) == []
    (event,) = events_of([durable(f"Anna: Ask Tom. {recalled} Thanks.")])
    assert event.changes.content == "Anna: Ask Tom.\nThanks."
    # The recalled text is removed from the message before the extraction.
    assert events_of(EXTRACTOR.facts_of([message(f"I had soup.\n{recalled}\n")])) == []


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (("Anna", "lives_in", "Porto"), "Anna lives in Porto"),
        (("Anna", "has_sister", "Maria"), "Anna's sister is Maria"),
        (("Anna", "favourite_bread", "rye"), "Anna's favourite bread is rye"),
        (("User", "phone_number", "555 2214"), "The user's phone number is 555 2214"),
        (("Agent", "is_called", "Juniper"), "The agent is called Juniper"),
        (("Anna", "has", "two daughters"), "Anna has two daughters"),
        (("Anna", "supervises", "Tom"), "Anna supervises Tom"),
    ],
)
def test_a_triple_becomes_a_sentence_in_words(terms: tuple[str, str, str], words: str) -> None:
    assert triple_in_words(*terms) == words


def test_long_texts_are_truncated_and_unstorable_characters_dropped() -> None:
    long = durable(
        f"Anna: {'very ' * 10_000}long.",
        tags=("t" * 300, *(f"tag {number}" for number in range(80)), "a\x07b"),
        subject="s" * 300,
        predicate="p" * 300,
        object="o" * 300,
    )
    (event,) = events_of([long])
    changes = event.changes
    assert len(changes.content or "") <= MAX_CONTENT
    assert len(changes.title or "") <= MAX_TITLE
    assert len(changes.tags or ()) == 50
    assert len(fold_events([event]).newest[event.memory_id].hook) <= MAX_HOOK
    (event,) = events_of([durable("Anna: a\x00b\x1bc \ud800.")])
    assert event.changes.content == "Anna: a b c  ."


@pytest.mark.parametrize(
    "terms", [("Anna", "lives_in", None), ("Anna", "?!", "Porto"), ("\x00", "a", "b"), ("a" * 301, "a", "b")]
)
def test_a_triple_is_set_completely_or_not_at_all(terms: tuple[str, str, str | None]) -> None:
    subject, predicate, thing = terms
    (event,) = events_of([durable("Anna: She does.", subject=subject, predicate=predicate, object=thing)])
    assert (event.changes.subject, event.changes.predicate, event.changes.object) == (None, None, None)
    assert event.changes.title == "She does."


@given(
    content=st.text(max_size=60),
    speaker=st.text(max_size=10),
    terms=st.tuples(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20)) | st.none(),
    tags=st.lists(st.text(max_size=120), max_size=60),
    kind=st.sampled_from(MemoryKind),
)
def test_any_fact_gives_a_valid_event_or_none(
    content: str, speaker: str, terms: tuple[str, str, str] | None, tags: list[str], kind: MemoryKind
) -> None:
    subject, predicate, thing = terms or (None, None, None)
    fact = durable(
        content,
        speaker=speaker,
        subject=subject,
        predicate=predicate,
        object=thing,
        tags=tuple(tags),
        durable=kind,
    )
    for event in events_of([fact]):
        assert Changes.of(event.changes.to_record()) == event.changes
        assert all(is_unicode(str(value)) for value in event.changes.to_record().values())
        assert fold_events([event]).newest[event.memory_id].content
