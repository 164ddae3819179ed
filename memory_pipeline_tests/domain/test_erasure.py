"""Subjects, tombstones, and the records that they cover."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.erasure import Forgotten, Tombstone, merged, without_note
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.domain.text.words import Mentions
from memory_pipeline.errors import InputError
from memory_pipeline_tests.domain.memories.histories import do, remember

ACME = Scope("acme", "support")
SALES = Scope("acme", "sales")
SAID = datetime(2024, 1, 15, 8, tzinfo=UTC)
NOW = SAID + timedelta(days=1)
SALT = "5a" * 16


def message(content: str = "Hello.", scope: Scope = ACME, at: datetime = SAID, **fields: Any) -> Message:
    return Message.from_record(
        {
            "workspace_id": scope.workspace_id,
            "agent_id": scope.agent_id,
            "conversation_id": "c1",
            "turn": 0,
            "role": "user",
            "content": content,
            "timestamp": at,
            "received_at": at,
            **fields,
        }
    )


def edit(subject: str, target: str, **fields: Any) -> Edit:
    return Edit.from_record(
        {
            "workspace_id": "acme",
            "agent_id": "support",
            "edit": "UPDATE",
            "subject": subject,
            "predicate": "knows",
            "object": target,
            "timestamp": SAID,
            "received_at": SAID,
            **fields,
        }
    )


def forgotten(*subjects: Subject, now: datetime = NOW, salt: str = SALT) -> Forgotten:
    return Forgotten(tombstone for subject in subjects for tombstone in Tombstone.of(subject, now, salt))


def test_an_agent_is_matched_completely_and_no_other() -> None:
    known = forgotten(Subject.agent(ACME))
    assert known.covers(message())
    assert known.covers(edit("Bob", "Carl"))
    assert not known.covers(message(scope=SALES))
    assert not known.covers(message(scope=Scope("other", "support")))


def test_a_conversation_is_matched_by_its_exact_id() -> None:
    known = forgotten(Subject.conversation(ACME, "c1"))
    assert known.covers(message())
    assert not known.covers(message(conversation_id="C1"))
    assert not known.covers(message(scope=SALES))
    assert not known.covers(edit("c1", "c1"))


@pytest.mark.parametrize(
    "said",
    [
        {"content": "Anna Schmidt moved."},
        {"content": "I met ANNA SCHMIDT's brother."},
        {"content": "mail anna.schmidt@example.org"},
        {"content": "Änna\u00a0 Schmi\u00addt"},
        {"content": "see anna-schmidt\u200b."},
        {"content": "ask\u200bAnna\u200bSchmidt\u200bnow"},
        {"name": "Anna Schmidt"},
        {"user_id": "u-17"},
        {"user_id": "u-17", "role": "assistant", "content": "Of course."},
        {"tags": ["anna schmidt"]},
        {"conversation_id": "call-anna-schmidt-2"},
        {"content": "user U-17 called"},
    ],
)
def test_a_person_is_matched_by_user_speaker_and_mention(said: dict[str, Any]) -> None:
    assert forgotten(Subject.person("acme", ["Anna Schmidt", "u-17"])).covers(message(**said))


@pytest.mark.parametrize(
    "said",
    [
        {"content": "Anna called; so did Schmidt."},
        {"content": "AnnaSchmidt"},
        {"content": "Joanna Schmidt"},
        {"content": "Anna Schmidtke"},
        {"user_id": "U-17"},
        {"user_id": "u-17-b"},
    ],
)
def test_other_people_are_not_matched(said: dict[str, Any]) -> None:
    assert not forgotten(Subject.person("acme", ["Anna Schmidt", "u-17"])).covers(message(**said))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("安娜", "我昨天见到安娜了"),
        ("안나", "안나는 포르투로 이사했다"),
        ("Zoë", "zoe is here"),
        ("O'Brien", "Mr O’Brien left"),
        ("علی\u200cرضا", "علیرضا"),
    ],
)
def test_names_in_other_scripts_are_found_in_text(name: str, text: str) -> None:
    assert forgotten(Subject.person("acme", [name])).covers(message(text))
    assert Mentions([name]).mentioned_in(text)


def test_edits_are_matched_by_all_their_terms() -> None:
    known = forgotten(Subject.person("acme", ["Anna"]))
    assert known.covers(edit("Anna", "Bob"))
    assert known.covers(edit("Bob", "Anna"))
    assert known.covers(edit("Bob", "Carl", replaces="Anna"))
    assert not known.covers(edit("Bob", "Carl"))


@pytest.mark.parametrize(
    "changes",
    [
        {"content": "Anna likes tea."}, {"title": "Of Anna"}, {"hook": "Tea for Anna"}, {"tags": ["a", "Anna"]},
        {"subject": "Anna", "predicate": "likes"}, {"subject": "x", "predicate": "is_sister_of", "object": "Anna"},
        {"subject": "x", "predicate": "likes_anna"}, {"user_id": "anna", "key": "drink", "value": "1"},
        {"user_id": "u", "key": "Anna's drink", "value": "1"}, {"user_id": "u", "key": "k", "value": '["\\u0041nna"]'},
    ],
)  # fmt: skip
def test_events_are_matched_by_all_their_texts(changes: dict[str, Any]) -> None:
    known = forgotten(Subject.person("acme", ["Anna"]))
    assert known.covers(remember(**{"content": "x", **changes}))
    assert not known.covers(remember("Anna likes tea.", 21)), "it was said after the forgetting"
    assert not known.covers(remember("Bob likes tea.", tags=["a"]))


def test_events_are_matched_by_editor_conversation_and_reason() -> None:
    bob = remember("Bob likes tea.", conversation="c1")
    assert forgotten(Subject.conversation(ACME, "c1")).covers(bob)
    assert not forgotten(Subject.conversation(ACME, "c2")).covers(bob)
    assert forgotten(Subject.agent(ACME)).covers(bob)
    assert not forgotten(Subject.agent(SALES)).covers(bob)
    known = forgotten(Subject.person("acme", ["Anna"]))
    assert known.filter([bob, remember("Anna?")]) == [bob]


def test_an_event_that_names_a_person_only_in_its_note_loses_the_note() -> None:
    known = forgotten(Subject.person("acme", ["Anna"]))
    bob = remember("Bob likes tea.")
    for event in (
        do("FORGET", bob, 1, reason="Anna asked for it"),
        replace(do("FORGET", bob, 1), editor="anna"),
        do("BOOST", bob, 1, reason="says Anna", amount=0.3),
        do("UPDATE", bob, 1, reason="says Anna", content="Bob likes milk."),
        remember("Bob likes tea.", editor="Anna"),
    ):
        assert not known.covers(event)
        (taken,) = known.filter([event])
        assert (taken.verb, taken.memory_id, taken.changes) == (event.verb, event.memory_id, event.changes)
        assert (taken.event_at, taken.received_at) == (event.event_at, event.received_at)
        assert "anna" not in str(taken).casefold()
        assert known.taken(taken) == taken
        assert forgotten(Subject.agent(ACME)).taken(event) is None
    assert known.taken(do("UPDATE", bob, 1, content="Bob likes Anna.")) is None
    # The changes of a revocation have no effect.
    said = do("FORGET", bob, 1, content="Anna", user_id="anna")
    assert [(one.verb, one.changes.to_record()) for one in known.filter([said])] == [(said.verb, {})]
    later = do("FORGET", bob, 21 * 24, reason="Anna asked for it")
    assert known.filter([later]) == [later]


def test_a_person_may_be_erased_from_one_agent_only() -> None:
    known = forgotten(Subject.person("acme", ["Anna"], "support"))
    assert known.covers(message("Anna?"))
    assert not known.covers(message("Anna?", SALES))
    both = forgotten(Subject.person("acme", ["Anna"], "support"), Subject.person("acme", ["Anna"], "sales"))
    assert both.covers(message("Anna?", SALES))


def test_records_after_the_erasure_stay() -> None:
    for subject in (Subject.agent(ACME), Subject.conversation(ACME, "c1"), Subject.person("acme", ["Anna"])):
        known = forgotten(subject)
        assert known.covers(message("Anna?", at=NOW))
        assert not known.covers(message("Anna?", at=NOW + timedelta(microseconds=1)))


def test_tombstones_contain_no_names_and_are_deterministic() -> None:
    subject = Subject.person("acme", ["Anna Schmidt", "u-17"], "support")
    first = Tombstone.of(subject, NOW, SALT)
    assert "nna" not in repr(first).lower()
    assert "support" not in repr(first)
    assert [one.id for one in first] == [one.id for one in Tombstone.of(subject, NOW + timedelta(days=1), SALT)]
    assert {one.id for one in first}.isdisjoint(one.id for one in Tombstone.of(subject, NOW, "00" * 16))
    assert sorted(one.words for one in first) == [0, 0, 2, 2]  # u-17 is two words in a text


def test_salts_may_differ() -> None:
    old = Tombstone.of(Subject.person("acme", ["Anna"]), NOW, SALT)
    new = Tombstone.of(Subject.person("acme", ["Bob Ray"]), NOW, "00" * 16)
    known = Forgotten([*old, *new])
    assert known.covers(message("Anna?"))
    assert known.covers(message("Bob Ray?"))
    assert old[1].matches(message("Anna?"))
    assert not old[1].matches(message("Bob Ray?"))


def test_a_repeated_erasure_keeps_the_known_hours() -> None:
    (old,) = Tombstone.of(Subject.agent(ACME), NOW, SALT)
    old = Tombstone(**{name: getattr(old, name) for name in old.__slots__} | {"hours": ("2024-01-15T08",)})
    (again,) = merged([old], Tombstone.of(Subject.agent(ACME), NOW - timedelta(days=9), SALT))
    assert (again.hours, again.forgotten_at, again.is_done) == (("2024-01-15T08",), NOW, False)
    other = Tombstone.of(Subject.conversation(ACME, "c4"), NOW, SALT)
    assert merged([old], other) == other


def test_an_empty_set_of_tombstones_covers_nothing() -> None:
    assert not Forgotten()
    assert Forgotten().filter([message()]) == [message()]
    assert forgotten(Subject.agent(ACME)).filter([message(), message(scope=SALES)]) == [message(scope=SALES)]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        "A",
        "é!",
        "王",
        "--",
        "User",
        " assistant ",
        "a\x00b",
        "a\nb",
        "\ud800xx",
        "x" * 257,
        17,
        None,
        b"Anna",
    ],
)
def test_names_that_match_everyone_or_no_one_are_rejected(name: Any) -> None:
    with pytest.raises(InputError, match="person"):
        Subject.person("acme", [name])


@pytest.mark.parametrize("names", [[], "Anna", b"Anna", [f"name {n}" for n in range(51)]])
def test_names_must_be_a_list_that_is_not_empty(names: Any) -> None:
    with pytest.raises(InputError, match="names"):
        Subject.person("acme", names)


@pytest.mark.parametrize("identifier", ["", " ", "a\x07", "\udc00", "x" * 257, 5, None])
def test_ids_of_conversations_are_checked(identifier: Any) -> None:
    with pytest.raises(InputError, match="conversation_id"):
        Subject.conversation(ACME, identifier)


@pytest.mark.parametrize(
    "subject",
    [
        Subject.agent(ACME),
        Subject.conversation(ACME, "c1"),
        Subject.person("acme", ["Anna", "u-17"]),
        Subject.person("acme", ["Anna"], "support"),
        Subject.conversation(ACME, "c1", "u-17"),
        Subject.user("acme", "u-17"),
        Subject.user("acme", "u-17", ["Anna"], "support"),
    ],
)
def test_a_subject_can_be_written_down(subject: Subject) -> None:
    assert Subject.from_record(subject.to_record()) == subject
    assert all(str(value) for value in subject.to_record().values())


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"kind": "workspace", "workspace_id": "acme"},
        {"kind": "agent", "workspace_id": "acme"},
        {"kind": "agent", "workspace_id": "", "agent_id": "support"},
        {"kind": "person", "workspace_id": "acme", "names": "Anna"},
        {"kind": "person", "workspace_id": 5, "names": ["Anna"]},
        {"kind": ["agent"], "workspace_id": "acme"},
        {"kind": "person", "workspace_id": "acme"},
        {"kind": "person", "workspace_id": "acme", "user_id": ""},
        {"kind": "person", "workspace_id": "acme", "user_id": ["u-17"]},
    ],
)
def test_invalid_subjects_are_rejected(record: Any) -> None:
    with pytest.raises(InputError):
        Subject.from_record(record)


_TEXTS = st.text(alphabet="anAN äöÄ-'.7é安王ß\u200b", max_size=30)


@given(st.lists(_TEXTS, max_size=4), _TEXTS)
def test_hashes_match_the_same_texts_as_clear_names(texts: list[str], name: str) -> None:
    try:
        subject = Subject.person("acme", [name])
    except InputError:
        return
    known, clear = forgotten(subject), Mentions([name])
    for text in texts:
        assert known.reaches(ACME, SAID, texts=[text]) == clear.mentioned_in(text)
    # A name is found between any other words.
    assert known.reaches(ACME, SAID, texts=[f"Then {name.strip()} left"])


@pytest.mark.parametrize("text", ['{"said": "\\u00c4nna"}', "7 An\u200bna 7", "\u202eAnna\u202c", "An\\u006ea"])
def test_a_name_is_found_in_any_spelling(text: str) -> None:
    assert Mentions(["Anna"]).mentioned_in(text)


def scope_of(identity: str) -> Scope:
    return Scope("acme", "support", identity, "5e" * 16)


TEAM = scope_of("group:team")


def said(scope: Scope = TEAM, content: str = "Hello.", **fields: Any) -> Message:
    return replace(message(content), scope=scope, **fields)


def test_a_user_is_matched_by_id_and_not_by_a_word() -> None:
    known = forgotten(Subject.user("acme", "anna"))
    assert known.covers(said(user_id="anna"))
    assert known.covers(said(scope_of("user:anna"), role="assistant"))
    assert known.covers(said(content="As user:anna says.", user_id="ben"))
    assert not known.covers(said(content="Anna, call Anna-Maria.", user_id="ben"))
    assert not known.covers(said(content="As user:anna-maria says.", user_id="anna-maria"))
    assert not known.covers(said(user_id="Anna"))
    assert not known.covers(said(user_id="anna", sent_at=NOW + timedelta(seconds=1)))
    assert forgotten(Subject.user("acme", "anna", ["Anna"])).covers(said(content="Call ANNA.", user_id="ben"))


def test_an_erased_member_leaves_the_group_and_the_record_stays() -> None:
    known = forgotten(Subject.user("acme", "anna"))
    assert known.taken(said(user_id="ben", users=("anna", "ben"))) == said(user_id="ben", users=("ben",))
    later = said(user_id="ben", users=("anna", "ben"), sent_at=NOW + timedelta(seconds=1))
    assert known.taken(later) == later
    event = replace(remember("Dora likes tea.", editor="Ben"), scope=TEAM, event_at=SAID, users=("anna", "ben"))
    assert known.taken(event) == replace(event, users=("ben",))
    both = forgotten(Subject.user("acme", "anna"), Subject.person("acme", ["Ben"]))
    assert both.taken(replace(event, users=("anna", "cleo"))) == replace(without_note(event), users=("cleo",))


def test_a_record_of_which_all_members_are_erased_is_covered() -> None:
    alone, two = said(users=("anna",), role="assistant"), said(users=("anna", "ben"), role="assistant")
    assert forgotten(Subject.user("acme", "anna")).covers(alone)
    assert not forgotten(Subject.user("acme", "anna")).covers(two)
    assert forgotten(Subject.user("acme", "anna"), Subject.user("acme", "ben")).covers(two)


def test_a_conversation_of_a_user_is_matched_in_the_users_memory_only() -> None:
    known = forgotten(Subject.conversation(ACME, "c1", "anna"))
    assert known.covers(said(scope_of("user:anna")))
    assert not known.covers(said(scope_of("user:ben")))
    assert not known.covers(said(ACME))
    assert forgotten(Subject.conversation(ACME, "c1")).covers(said(scope_of("user:ben")))


@given(st.text(alphabet="ab1 .-_:@ä", min_size=1, max_size=12), st.text(alphabet="ab1.-", max_size=4))
def test_hashes_match_the_same_users_as_clear_ids(user_id: str, more: str) -> None:
    try:
        subject = Subject.user("acme", user_id)
    except InputError:
        return
    text = f"Then user:{user_id}{more} left."
    assert forgotten(subject).reaches(ACME, SAID, texts=[text]) == subject.is_mentioned_in(text)
    assert subject.is_mentioned_in(f"Then user:{user_id}, who left.")
    assert not subject.is_mentioned_in(f"Then user:{user_id}b left.")
