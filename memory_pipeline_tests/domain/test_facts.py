"""Facts: ids and digests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from memory_pipeline.domain.facts import Fact, FactKind
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.messages import Message, Role

AT = "2024-01-15T08:03:00+00:00"


def message(**changes: object) -> Message:
    record = {
        "workspace_id": "acme",
        "agent_id": "support",
        "conversation_id": "call",
        "tags": ["phone"],
        "id": "m1",
        "turn": 0,
        "role": "user",
        "name": "Anna",
        "content": "I moved to Porto.",
        "timestamp": AT,
        "received_at": "2024-06-01T00:00:00+00:00",
    }
    return Message.from_record(record | changes)


def turn(of: Message) -> Fact:
    return Fact.of(
        [of],
        FactKind.TURN,
        f"{of.speaker}: {of.content}",
        extraction_method="verbatim",
        entities=["Porto", "Anna", "Porto"],
    )


def test_ids_and_digests_never_change() -> None:
    assert turn(message()).id == "working:2024-01-15T08:60a9f81c4209e0f4f3a5d030b245bb66"
    assert turn(message()).digest == "48ba32ce7a7dfec47d27769fa7e3bcee"
    event = Fact.of([message()], FactKind.EVENT, "Anna: I moved to Porto.", extraction_method="x")
    assert event.id == "working:2024-01-15T08:4ffcd050096e7f19a8a01ca025342a6a"


def test_durable_fields_change_the_digest_only_of_durable_facts() -> None:
    fact = turn(message())
    kept = replace(fact, durable=MemoryKind.FACT)
    others = [
        replace(fact, durable=MemoryKind.RULE),
        replace(kept, is_point_in_time=True),
        replace(kept, subject="Anna", predicate="lives_in", object="Porto"),
        replace(kept, subject="Anna", predicate="lives_in", object="Rome"),
    ]
    assert len({one.digest for one in (fact, kept, *others)}) == 6
    assert {one.id for one in others} == {fact.id}


def test_a_fact_contains_its_origin() -> None:
    said = message()
    fact = turn(said)
    assert fact.content == "Anna: I moved to Porto."
    assert (fact.scope, fact.conversation_id, fact.message_ids) == (said.scope, "call", (said.id,))
    assert (fact.event_at, fact.turn, fact.tags) == (datetime(2024, 1, 15, 8, 3, tzinfo=UTC), 0, ("phone",))
    assert fact.entities == ("Anna", "Porto")


@pytest.mark.parametrize(
    ("role", "name", "speaker"),
    [
        (Role.USER, "Anna", "Anna"),
        (Role.USER, None, "User"),
        (Role.ASSISTANT, None, "Agent"),
        (Role.ASSISTANT, "Robo", "Robo"),
        (Role.SYSTEM, None, "System"),
        (Role.TOOL, None, "Tool"),
    ],
)
def test_a_fact_begins_with_its_speaker(role: Role, name: str | None, speaker: str) -> None:
    fact = turn(message(role=role.value, name=name))
    assert (fact.speaker, fact.content) == (speaker, f"{speaker}: I moved to Porto.")


@pytest.mark.parametrize(
    "changes",
    [
        {"workspace_id": "other"},
        {"agent_id": "other"},
        {"conversation_id": "other"},
        {"id": "m2"},
        {"content": "I moved to Lisbon."},
        {"timestamp": "2024-01-15T09:03:00+00:00"},
    ],
)
def test_ids_differ_between_messages(changes: dict[str, object]) -> None:
    assert turn(message(**changes)).id != turn(message()).id


def test_a_turn_and_a_statement_of_the_same_words_are_two_facts() -> None:
    statement = Fact.of([message()], FactKind.STATEMENT, "Anna: I moved to Porto.", extraction_method="x")
    assert statement.id != turn(message()).id
    assert statement.content == turn(message()).content


def test_a_changed_importance_keeps_the_id_and_changes_the_digest() -> None:
    fact = turn(message())
    judged_again = Fact.of(
        [message()], FactKind.TURN, "Anna: I moved to Porto.", extraction_method="better", importance=0.9
    )
    assert judged_again.id == fact.id
    assert judged_again.digest != fact.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": FactKind.EVENT},
        {"content": "Anna: I moved."},
        {"speaker": "Ben"},
        {"entities": ("Anna",)},
        {"importance": 0.31},
        {"confidence": 0.99},
        {"turn": 1},
        {"event_at": datetime(2024, 1, 15, 8, 4, tzinfo=UTC)},
        {"mentioned_at": datetime(2024, 1, 14, tzinfo=UTC)},
        {"tags": ()},
        {"extraction_method": "better"},
    ],
)
def test_every_change_changes_the_digest(changes: dict[str, object]) -> None:
    fact = turn(message())
    assert replace(fact, **changes).digest != fact.digest  # type: ignore[arg-type]
    assert replace(fact).digest == fact.digest
