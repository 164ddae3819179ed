"""Events: validation, and the round trip through the journal."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.memories.events import (
    CONSOLIDATION,
    CONVERSATION,
    Changes,
    MemoryEvent,
    MemoryVerb,
    memory_reference,
    new_memory_id,
)
from memory_pipeline.domain.memories.links import LINKING
from memory_pipeline.domain.memories.record import MAX_CONTENT, MAX_HOOK, MemoryKind
from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.errors import InputError
from memory_pipeline_tests.domain.memories.histories import ACME, at, do, remember

TEA = remember("Anna likes tea.")
RECORD: dict[str, Any] = TEA.to_record()
BOOST: dict[str, Any] = do("BOOST", TEA, 1).to_record()

_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=40).filter(str.strip)
_SHARES = st.floats(0, 1)
_CHANGES = st.fixed_dictionaries(
    {"content": _TEXTS},
    optional={
        "kind": st.sampled_from([kind.value for kind in MemoryKind]),
        "title": _TEXTS,
        "hook": _TEXTS,
        "importance": _SHARES,
        "confidence": _SHARES | st.integers(0, 1),
        "decay_rate": st.floats(0, 100),
        "is_point_in_time": st.booleans(),
        "tags": st.lists(_TEXTS, max_size=4),
    },
)


@given(_CHANGES, st.integers(0, 2**31 - 1), st.none() | _TEXTS)
def test_an_event_round_trips_through_the_journal(changes: dict[str, Any], turn: int, reason: str | None) -> None:
    more = {"turn": turn, "reason": reason, "conversation_id": "c1" if turn % 2 else None}
    event = MemoryEvent.from_record(RECORD | {"changes": changes} | more)
    assert event.conversation_id == more["conversation_id"]
    line = json.loads(json.dumps(event.to_record()))
    assert MemoryEvent.from_record(line) == event
    assert MemoryEvent.from_record(line | {"memory_id": "memory:of somebody else"}) == event, "ids are computed"
    # Parsing is idempotent.
    assert Changes.of(event.changes.to_record()) == event.changes


@pytest.mark.parametrize("verb", [verb for verb in MemoryVerb if verb.is_open])
def test_each_verb_of_agents_round_trips_through_the_journal(verb: MemoryVerb) -> None:
    said: dict[str, Any] = {"amount": 0.2} if verb in (MemoryVerb.BOOST, MemoryVerb.REDUCE) else {}
    if verb in LINKING:
        said = {"other": remember("Anna likes figs."), "relation": "supports", "weight": 0.5}
    event = TEA if verb is MemoryVerb.REMEMBER else do(verb, TEA, 1, reason="as asked", turn=3, **said)
    assert MemoryEvent.from_record(event.to_record()) == event
    assert MemoryEvent.from_record(event.to_record() | {"editor": "Anna"}).editor == "Anna"


def test_the_id_of_a_version_refers_to_the_memory() -> None:
    assert memory_reference(f"{TEA.memory_id}#3") == TEA.memory_id
    assert MemoryEvent.from_record(BOOST | {"memory_id": f"{TEA.memory_id}#3"}) == do("BOOST", TEA, 1)


def test_different_events_have_different_ids() -> None:
    events = [
        TEA, remember("Anna likes tea.", 0.1), remember("Anna likes tea.", turn=1), remember("Anna likes tea", place=1),
        remember("Anna likes tea.", importance=0.5), remember("Anna likes tea.", editor="Omar"),
        remember("Anna likes tea.", evidence=["m1"]), do("BOOST", TEA, 0), do("REDUCE", TEA, 0),
    ]  # fmt: skip
    assert len({event.id for event in events}) == len(events)
    assert {event.memory_id for event in events} == {TEA.memory_id}
    assert TEA.id.startswith("event:2024-01-15T12:")
    assert TEA.memory_id.startswith("memory:2024-01-15T12:")
    other_hour, other_kind = remember("Anna likes tea.", 1), remember("Anna likes tea.", kind="rule")
    assert len({TEA.memory_id, other_hour.memory_id, other_kind.memory_id}) == 3
    assert new_memory_id(ACME, TEA.changes, at(0)) == TEA.memory_id


def test_consolidation_events_come_first_at_equal_times() -> None:
    events = [TEA, do("COOL", TEA, 0, turn=9), remember("Anna likes figs.", -1), remember("Anna likes tea.", turn=1)]
    ordered = sorted(events, key=lambda event: event.order)
    assert ordered == [events[2], events[1], events[0], events[3]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": "red"}, "'colour' is unknown; accepted: amount, cleared, confidence"),
        ({1: "x", "content": "x"}, "'1' is unknown"),
        ({"kind": "opinion"}, "kind 'opinion' is unknown; accepted: fact, rule"),
        ({"kind": ["fact"]}, "kind ['fact'] is unknown"),
        ({"content": ""}, "content '' is not accepted; expected 1 to 20,000 characters"),
        ({"content": " \n"}, "content ' \\n' is not accepted"),
        ({"content": "x" * (MAX_CONTENT + 1)}, "is not accepted; expected 1 to 20,000 characters"),
        ({"content": "a\x00b"}, "control characters are not accepted"),
        ({"content": "a\x1b[31m"}, "control characters are not accepted"),
        ({"content": "\ud800"}, "content '\\ud800' is not a text"),
        ({"content": 5}, "content 5 is not a text"),
        ({"content": b"tea"}, "content b'tea' is not a text"),
        ({"content": mark("Anna likes tea.")}, "only recalled memory"),
        ({"hook": "x" * (MAX_HOOK + 1)}, "hook"),
        ({"title": "\ud800"}, "title '\\ud800' is not a text"),
        ({"predicate": "!?"}, "predicate '!?' has no letter or digit"),
        ({"importance": 1.2}, "importance 1.2 is not accepted; expected 0 to 1"),
        ({"importance": True}, "importance True is not accepted"),
        ({"importance": "0.5"}, "importance '0.5' is not accepted"),
        ({"confidence": 1.2}, "confidence 1.2 is not accepted"),
        ({"confidence": math.nan}, "confidence nan is not accepted"),
        ({"confidence": -math.inf}, "confidence -inf is not accepted"),
        ({"decay_rate": -0.1}, "decay_rate -0.1 is not accepted"),
        ({"decay_rate": math.nan}, "decay_rate nan is not accepted"),
        ({"is_point_in_time": 1}, "is_point_in_time 1 is not accepted; expected true or false"),
        ({"tags": "a"}, "tags 'a' is not accepted; expected a list of texts"),
        ({"tags": {"a": 1}}, "is not accepted; expected a list of texts"),
        ({"tags": [str(n) for n in range(51)]}, "tags has 51 entries; expected at most 50"),
        ({"tags": [["a"]]}, "tags ['a'] is not a text"),
        ({"tags": ["x" * 101]}, "tags"),
        ({"memory_class": "learned"}, "memory_class 'learned' is unknown; accepted: factual, experiential"),
        ({"outcome_success": "no"}, "outcome_success 'no' is not accepted; expected true or false"),
        ({"outcome_success": False, "memory_class": "factual"}, "expected memory_class experiential, not factual"),
        ({"weight": 1.5}, "weight 1.5 is not accepted; expected 0 to 1"),
        ({"weight": -0.1}, "weight -0.1 is not accepted"),
        ({"relation": "!?"}, "relation '!?' has no letter or digit"),
        ({"amount": 1.5}, "amount 1.5 is not accepted"),
        ({"value": "tea"}, "value 'tea' is not JSON"),
        ({"value": {"a": 1}}, "value {'a': 1} is not a text"),
        ({"value": "NaN"}, "value 'NaN' is not JSON: 'NaN is not a JSON number'"),
        ({"value": "[" * 19_000}, "is not JSON"),
        ({"value": '"\\ud800"'}, "is not valid Unicode text"),
    ],
)
def test_invalid_changes_name_the_field(changes: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        Changes.of(changes)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("given", ["x", 5, [], [("content", "x")], b"{}"])
def test_changes_that_are_not_a_mapping_are_rejected(given: Any) -> None:
    with pytest.raises(InputError, match="expected a mapping"):
        Changes.of(given)


def test_changes_are_normalized() -> None:
    said = Changes.of(
        {
            "content": f"  Anna likes tea.\n{mark('Anna lives in Porto.')} ", "title": " Tea \n time ", "hook": None,
            "predicate": "Lives In", "tags": ["b", "a", "b "], "importance": 1,
        }
    )  # fmt: skip
    assert said.to_record() == {
        "content": "Anna likes tea.", "title": "Tea time", "predicate": "lives_in", "tags": ["a", "b"],
        "importance": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (RECORD | {"memory": "DESTROY"}, "memory 'DESTROY' is unknown; accepted: REMEMBER, UPDATE, FORGET"),
        (RECORD | {"memory": "MERGE"}, "memory 'MERGE' is unknown"),
        (RECORD | {"memory": "ARCHIVE"}, "memory 'ARCHIVE' is unknown"),
        (RECORD | {"memory": None}, "memory None is unknown"),
        (RECORD | {"memory": ["REMEMBER"]}, "memory ['REMEMBER'] is unknown"),
        (RECORD | {"changes": None}, "content is missing"),
        (RECORD | {"changes": []}, "changes [] is not accepted; expected a mapping"),
        (RECORD | {"changes": {"title": "Tea"}}, "content is missing"),
        (RECORD | {"changes": {"content": "x", "user_id": "anna"}}, "user_id and key belong together"),
        (RECORD | {"changes": {"content": "x", "user_id": "anna", "key": "drink"}}, "value of preference 'drink'"),
        (RECORD | {"changes": {"content": "x", "amount": 0.1}}, "amount is for BOOST and REDUCE"),
        (RECORD | {"changes": {"content": "x", "predicate": "likes"}}, "subject is missing"),
        (RECORD | {"changes": {"content": "x", "subject": "Anna", "object": "tea"}}, "predicate is missing"),
        (RECORD | {"changes": {"content": "x", "object": "Porto"}}, "an object needs both"),
        (RECORD | {"editor": CONSOLIDATION}, "editor 'consolidation' is reserved for the pipeline"),
        (RECORD | {"editor": CONVERSATION}, "editor 'conversation' is reserved for the pipeline"),
        (RECORD | {"editor": ""}, "editor '' is not accepted"),
        (RECORD | {"editor": None}, "editor None is not a text"),
        (RECORD | {"editor": "a\x07b"}, "control characters are not accepted"),
        (RECORD | {"conversation_id": "a\x07b"}, "conversation_id"),
        (RECORD | {"reason": 5}, "reason 5 is not a text"),
        (RECORD | {"reason": "x" * 501}, "reason"),
        (RECORD | {"turn": -1}, "turn -1 is not accepted"),
        (RECORD | {"turn": 2**31}, "is not accepted; expected 0 to 2,147,483,647"),
        (RECORD | {"turn": True}, "turn True is not accepted"),
        (RECORD | {"timestamp": "2024-01-15T08:00:00"}, "timestamp"),
        (RECORD | {"timestamp": None}, "timestamp None"),
        (RECORD | {"received_at": None}, "received_at None"),
        (RECORD | {"workspace_id": "a\x07b"}, "workspace_id"),
        (RECORD | {"agent_id": "a\x00b"}, "agent_id"),
        (BOOST | {"memory_id": None}, "id None is not valid; expected an id"),
        (BOOST | {"memory_id": "../../etc/passwd"}, "is not valid; expected an id"),
        (BOOST | {"memory_id": f"message:2024-01-15T08:{'0' * 32}"}, "is not the id of a durable memory"),
        (BOOST | {"memory_id": f"memory:2024-01-15T99:{'0' * 32}"}, "is not valid; expected an id"),
    ],
)
def test_invalid_records_name_the_field(record: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        MemoryEvent.from_record(record)
    assert message in str(raised.value)


_ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(sorted(RECORD)), st.sampled_from(sorted(Changes.__dataclass_fields__)), _ANYTHING)
def test_any_record_is_accepted_or_rejected(name: str, change: str, value: Any) -> None:
    for record in (RECORD | {name: value}, RECORD | {"changes": {"content": "x", change: value}}):
        try:
            event = MemoryEvent.from_record(record)
        except InputError:
            continue
        json.dumps(event.to_record(), ensure_ascii=False, allow_nan=False).encode()
