"""Reading labelled sets in both formats, and their errors. The conversations are invented."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline.evaluation.formats import read_jsonl_set, read_locomo_set
from memory_pipeline_tests.building import conversation

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.evaluation.labels import JudgedQuestion, LabelledSet

TALKS = {
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        {"speaker": "Mira", "dia_id": "D1:1", "text": "I bought a kayak."},
        {"speaker": "Tom", "dia_id": "D1:2", "text": "Which colour?"},
    ],
    "session_2_date_time": "12:05 am on 9 June, 2023",
    "session_2": [{"speaker": "Tom", "dia_id": "D2:1", "text": "It leaks."}],
}
C1 = conversation("I moved to Porto.", "My dog is called Bruno.")
C2 = conversation("Bruno ate my passport.", at="2024-01-31T08:00", conversation_id="c2")


def locomo(tmp_path: Path, *questions: object, **more: object) -> LabelledSet:
    path = tmp_path / "sample.json"
    path.write_text(json.dumps(TALKS | {"qa": list(questions)} | more), encoding="utf-8")
    return read_locomo_set([path])


def jsonl(tmp_path: Path, *records: object, name: str = "set.jsonl") -> LabelledSet:
    path = tmp_path / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return read_jsonl_set([path])


def ask(*evidence: object, **more: object) -> dict[str, object]:
    return {"workspace_id": "acme", "agent_id": "support", "question": "Where?", "evidence": list(evidence)} | more


def evidence_of(judged: JudgedQuestion, labels: LabelledSet) -> list[str]:
    return sorted(str(labels.messages[row].source_id) for row in judged.relevant)


@pytest.mark.parametrize(
    ("evidence", "known", "unknown"),
    [
        (["D1:1"], ["D1:1"], []),
        (["D1:1", "D2:1"], ["D1:1", "D2:1"], []),
        (["D1:1; D2:1"], ["D1:1", "D2:1"], []),
        (["D1:1 D1:2", "D2:1"], ["D1:1", "D1:2", "D2:1"], []),
        (["see D1:1, I think"], ["D1:1"], []),
        (["D:2:1"], ["D2:1"], []),
        (["D01:02"], ["D1:2"], []),
        ("D1:2", ["D1:2"], []),
        (["D1:1", "D"], ["D1:1"], ["D"]),
        (["D1:1", "D9:9", 7], ["D1:1"], ["D9:9", "7"]),
        (["D1:1", "D1:1"], ["D1:1"], []),
    ],
)
def test_locomo_evidence_is_read_however_it_is_written(
    tmp_path: Path, evidence: object, known: list[str], unknown: list[str]
) -> None:
    labels = locomo(tmp_path, {"question": "Where?", "evidence": evidence, "category": 4, "answer": 5})
    [judged] = labels.questions
    assert evidence_of(judged, labels) == known
    assert [str(each) for each in judged.unknown] == unknown
    assert (judged.question.category, judged.question.answer) == ("single-hop", "5")
    assert judged.question.scope == Scope("locomo", "sample")


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        ([], "has no evidence"),
        (None, "has no evidence"),
        (["D9:1"], "evidence 'D9:1' names no message of locomo/sample"),
        (["D"], "evidence 'D' names no message"),
    ],
)
def test_a_question_without_a_turn_is_set_aside_with_its_reason(tmp_path: Path, evidence: object, reason: str) -> None:
    labels = locomo(tmp_path, {"question": "Why?", "evidence": evidence}, {"question": "Where?", "evidence": ["D1:1"]})
    assert [judged.question.text for judged in labels.questions] == ["Where?"]
    [set_aside] = labels.questions_set_aside
    assert (set_aside.text, set_aside.where) == ("Why?", f"file {tmp_path / 'sample.json'}, sample 1, question 1")
    assert reason in set_aside.reason


@pytest.mark.parametrize(
    ("category", "name"),
    [
        (1, "multi-hop"),
        (2, "temporal"),
        (3, "open-domain"),
        (4, "single-hop"),
        (5, "adversarial"),
        ("5", "adversarial"),
        (6, "6"),
        (None, "uncategorised"),
    ],
)
def test_locomo_categories_have_names(tmp_path: Path, category: object, name: str) -> None:
    [judged] = locomo(tmp_path, {"question": "?", "evidence": ["D1:1"], "category": category}).questions
    assert judged.question.category == name


def test_empty_sessions_and_turns_are_allowed(tmp_path: Path) -> None:
    more = {"session_3": [], "session_3_date_time": "1:00 pm on 1 July, 2023"}
    blank = {"session_4": [{"speaker": "Tom", "dia_id": "D4:1", "text": " "}]}
    at = {"session_4_date_time": "1:00 pm on 2 July, 2023"}
    labels = locomo(tmp_path, {"question": "?", "evidence": ["D1:1"]}, **more, **blank, **at)
    assert len(labels.messages) == 3
    [set_aside] = labels.messages_set_aside
    assert "session_4, message 1" in set_aside.where
    assert "expected a text that is not blank" in set_aside.reason


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (TALKS, "sample 1 has no questions: qa must be a list, not None"),
        (TALKS | {"qa": {}}, "qa must be a list"),
        (TALKS | {"qa": []}, "the files contain no questions"),
        (TALKS | {"qa": ["why?"]}, "sample 1, question 1: expected an object with question"),
        (TALKS | {"qa": [{"evidence": ["D1:1"]}]}, "question 1: question None is not accepted"),
        (TALKS | {"qa": [{"question": " "}]}, "question 1: question ' ' is not accepted"),
        (TALKS | {"qa": [{"question": "\ud800"}]}, "question 1: question .* it is not valid Unicode"),
        (TALKS | {"qa": [{"question": "x" * 10_001}]}, "at most 10,000 characters"),
        (TALKS | {"qa": [{"question": "?", "category": []}]}, r"question 1: category \[\] is not accepted"),
        ([TALKS | {"qa": [], "sample_id": "s"}, TALKS | {"qa": [], "sample_id": "s"}], "are both called 's'"),
    ],
)
def test_errors_of_a_locomo_file_name_the_place(tmp_path: Path, content: object, expected: str) -> None:
    path = tmp_path / "sample.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=expected):
        read_locomo_set([path])


def test_one_file_may_not_be_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "sample.json"
    path.write_text(json.dumps(TALKS | {"qa": []}), encoding="utf-8")
    with pytest.raises(InputError, match="are both called 'sample'; give each file once"):
        read_locomo_set([path, path])


def test_questions_and_conversations_may_be_mixed_and_spread_over_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_bytes(b"\xef\xbb\xbf" + json.dumps(ask("m2", category="pets")).encode() + b"\r\n\r\n")
    second.write_text(json.dumps(C1) + "\n" + json.dumps(ask("m1", answer="Porto")), encoding="utf-8")
    labels = read_jsonl_set([first, second])
    assert [evidence_of(judged, labels) for judged in labels.questions] == [["m2"], ["m1"]]
    assert [judged.question.category for judged in labels.questions] == ["pets", "uncategorised"]
    assert [judged.question.answer for judged in labels.questions] == [None, "Porto"]


def test_an_id_that_two_conversations_use_is_named_with_its_conversation(tmp_path: Path) -> None:
    whole = [{"conversation_id": "c2", "id": "m1"}, {"conversation_id": "c1", "id": "m1"}]
    labels = jsonl(tmp_path, C1, C2, ask("m1"), ask(whole[0]), ask(*whole), ask("m2"))
    [set_aside] = labels.questions_set_aside
    assert "evidence 'm1' names 2 messages, in conversations 'c1, c2'; write it as an object" in set_aside.reason
    contents = [{labels.messages[row].content for row in judged.relevant} for judged in labels.questions]
    assert contents == [
        {"Bruno ate my passport."},
        {"Bruno ate my passport.", "I moved to Porto."},
        {"My dog is called Bruno."},
    ]


def test_messages_of_another_agent_are_no_evidence(tmp_path: Path) -> None:
    labels = jsonl(tmp_path, C1, ask("m1", agent_id="sales"))
    assert labels.questions == ()
    assert "names no message of acme/sales" in labels.questions_set_aside[0].reason


def test_a_question_may_have_a_time(tmp_path: Path) -> None:
    for name in ("now", "until"):
        [judged] = jsonl(tmp_path, C1, ask("m1", **{name: "2024-02-01T01:00:00+01:00"})).questions
        assert judged.question.now == datetime(2024, 2, 1, tzinfo=UTC)


def test_a_message_that_is_refused_is_set_aside(tmp_path: Path) -> None:
    talk: dict[str, Any] = conversation("fine", "no time", conversation_id="c9")
    del talk["messages"][1]["timestamp"]
    labels = jsonl(tmp_path, talk, talk, conversation("other", conversation_id="c9"), ask("m1"))
    assert [message.content for message in labels.messages.values()] == ["fine"]
    reasons = [each.reason for each in labels.messages_set_aside]
    assert ["timestamp None" in reason for reason in reasons] == [True, True, False]
    assert "was already used for other content" in reasons[2]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (5, "expected a JSON object, not 5"),
        ({}, "each line must be a conversation"),
        (C1 | {"question": "?"}, "each line must be a conversation"),
        (ask("m1", question=None), "question None is not accepted; expected a text"),
        (ask("m1", workspace_id=""), "workspace_id '' is not valid"),
        (ask("m1", agent_id=None), "agent_id None is not valid"),
        (ask("m1") | {"evidence": "m1"}, "evidence must be a list of message ids, not 'm1'"),
        (ask(5), "evidence 5 is not a message id; expected a text, or "),
        (ask({"id": "m1"}), "evidence {'id': 'm1'} is not a message id"),
        (ask({"conversation_id": 1, "id": "m1"}), "is not a message id; expected"),
        (ask("m1", category=""), "category '' is not accepted"),
        (ask("m1", category=True), "category True is not accepted"),
        (ask("m1", now="2024-01-01"), "now 2024-01-01T00:00:00 has no time zone"),
        (ask("m1", now=5), "now 5 is not a time; expected an ISO 8601 time"),
        (ask("m1", now="0001-01-01T00:00:00Z"), "0001-01-01"),
    ],
)
def test_an_invalid_line_is_named_with_the_remedy(tmp_path: Path, record: object, expected: str) -> None:
    with pytest.raises(InputError, match=r"set\.jsonl, line 2: .*eval jsonl --help` shows the format") as error:
        jsonl(tmp_path, C1, record)
    assert expected in str(error.value)


def test_a_conversation_without_valid_messages_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"set.jsonl, line 1, conversation c1: messages must be a list"):
        jsonl(tmp_path, C1 | {"messages": []}, ask("m1"))


@pytest.mark.parametrize(
    ("records", "expected"),
    [([C1], "contain no questions"), ([ask("m1")], "contain no conversations"), ([], "contain no")],
)
def test_a_set_needs_conversations_and_questions(tmp_path: Path, records: list[object], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        jsonl(tmp_path, *records)


@pytest.mark.parametrize("content", [b"{broken", b"\xff\xfe", b"[" * 50_000])
def test_a_line_of_invalid_json_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"set\.jsonl, line 1: not valid"):
        read_jsonl_set([path])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.jsonl cannot be read: No such file"):
        read_jsonl_set([tmp_path / "missing.jsonl"])
