"""Matching of unreadable records with erased subjects."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory_pipeline.domain import unread
from memory_pipeline.domain.erasure import Forgotten, Tombstone
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject

AT = datetime(2024, 6, 1, tzinfo=UTC)
OWN = {"workspace_id": "acme", "agent_id": "support"}
MESSAGE = {"role": "robot", "content": "Ask Anna Lima.", "timestamp": "2024-01-15T08:00:00Z"}
RECORD: dict[str, Any] = {**OWN, "conversation_id": "c1", "user_id": "u-9", "messages": [MESSAGE]}
SUBJECTS = {
    "agent": Subject.agent(Scope("acme", "support")),
    "conversation": Subject.conversation(Scope("acme", "support"), "c1"),
    "person": Subject.person("acme", ["Anna Lima"]),
    "user": Subject.person("acme", ["u-9"]),
    "id of a user": Subject.user("acme", "u-9"),
    "user of an agent": Subject.person("acme", ["u-9"], "support"),
}


def forgotten(subject: Subject) -> Forgotten:
    return Forgotten(Tombstone.of(subject, AT, "0" * 32))


def is_forgotten(
    what: Forgotten, record: object, default: dict[str, str], received_at: datetime = AT - timedelta(days=1)
) -> bool:
    return unread.is_forgotten(what, record, default, received_at)


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_record_is_matched_as_json_as_text_and_truncated(name: str) -> None:
    what = forgotten(SUBJECTS[name])
    for record in (RECORD, json.dumps(RECORD), json.dumps(RECORD)[:-3], json.dumps([RECORD]), [RECORD], [1, RECORD]):
        assert is_forgotten(what, record, {})


@pytest.mark.parametrize("name", SUBJECTS)
def test_records_of_others_are_not_matched(name: str) -> None:
    what = forgotten(SUBJECTS[name])
    other: dict[str, Any] = {
        "messages": [MESSAGE | {"content": "Ask Annabel."}],
        "conversation_id": "c2",
        "user_id": "u-8",
    }
    for record in (
        RECORD | {"workspace_id": "other"},
        RECORD | other | {"agent_id": "sales"},
        RECORD | {"workspace_id": "../x"},
        {},
        None,
        5,
        "cut off",
    ):
        assert not is_forgotten(what, record, {})
        assert not is_forgotten(what, json.dumps(record), {})
    assert is_forgotten(what, RECORD | other, {}) is (name == "agent")
    assert not is_forgotten(Forgotten(), RECORD, OWN)


def test_the_scope_of_the_command_line_applies_to_records_without_one() -> None:
    for name, subject in SUBJECTS.items():
        bare = {key: value for key, value in RECORD.items() if key not in OWN}
        assert is_forgotten(forgotten(subject), bare, OWN)
        assert is_forgotten(forgotten(subject), json.dumps(bare)[:-1], OWN)
        assert not is_forgotten(forgotten(subject), bare, {"workspace_id": "other", "agent_id": "support"}), name


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize(
    ("times", "is_older"),
    [
        ({}, False),
        ({"timestamp": "soon"}, False),
        ({"timestamp": "2024-06-01T00:00:01Z"}, False),
        ({"timestamp": "2024-06-01T00:00:00Z"}, True),
        ({"timestamp": "2024-01-15T08:00:00"}, True),
        ({"createdAt": "2024-01-15T08:00:00+01:00"}, True),
        ({"ts": "1705305600"}, True),
        ({"note": "2024-01-15T08:00:00Z"}, False),
    ],
)
def test_a_record_has_the_time_that_it_states_or_that_of_its_receipt(
    name: str, times: dict[str, str], is_older: bool
) -> None:
    what, after = forgotten(SUBJECTS[name]), AT + timedelta(days=1)
    message = {"role": "robot", "content": "Ask Anna Lima: at 2024-01-15T08:00:00Z.", **times}
    for record in (RECORD | {"messages": [message]}, json.dumps(RECORD | {"messages": [message]})[:-3]):
        assert is_forgotten(what, record, {}, after) is is_older
        assert is_forgotten(what, record, {}) is (times != {"timestamp": "2024-06-01T00:00:01Z"})


def test_the_earliest_message_of_a_record_counts() -> None:
    what = forgotten(SUBJECTS["person"])
    assert is_forgotten(what, RECORD | {"messages": None}, {}) is False, "nobody is named in it"
    assert is_forgotten(what, RECORD | {"messages": ["Anna Lima"]}, {})
    later = [MESSAGE | {"timestamp": "2024-06-01T00:00:01Z"}]
    assert not is_forgotten(what, RECORD | {"messages": later}, {})
    assert is_forgotten(what, RECORD | {"messages": [*later, MESSAGE]}, {})


def test_a_record_of_a_group_with_an_erased_member_is_matched() -> None:
    of_group = {name: value for name, value in RECORD.items() if name != "user_id"} | {"users": ["u-8", "u-9"]}
    what = forgotten(Subject.user("acme", "u-9"))
    assert is_forgotten(what, of_group, {})
    assert is_forgotten(what, json.dumps(of_group)[:-2], {})
    assert not is_forgotten(what, of_group | {"users": ["u-8"]}, {})
