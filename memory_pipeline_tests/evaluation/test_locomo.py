"""Conversion of LoCoMo's format to conversations. The samples are invented."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.errors import InputError
from memory_pipeline.evaluation.formats import read_locomo, read_samples

FIRST = [
    {"speaker": "Mira", "dia_id": "D1:1", "text": "I bought a kayak."},
    {"speaker": "Tom", "dia_id": "D1:2", "text": "Which colour?"},
    {"speaker": "Mira", "dia_id": "D1:3", "text": "Look!", "blip_caption": "a yellow kayak", "img_url": ["http://x"]},
]
TALKS = {
    "speaker_a": "Mira",
    "speaker_b": "Tom",
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": FIRST,
    "session_2_date_time": "12:05 am on 9 June, 2023",
    "session_2": [{"speaker": "Tom", "dia_id": "D2:1", "text": "It leaks."}],
}


def convert(tmp_path: Path, content: Any, name: str = "sample.json", **options: str) -> list[dict[str, Any]]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return list(read_locomo(path, **options))


def test_a_session_becomes_a_conversation(tmp_path: Path) -> None:
    assert convert(tmp_path, TALKS)[0] == {
        "workspace_id": "locomo",
        "agent_id": "sample",
        "conversation_id": "session_1",
        "messages": [
            {
                "id": "D1:1",
                "role": "user",
                "name": "Mira",
                "content": "I bought a kayak.",
                "timestamp": "2023-05-08T13:56:00+00:00",
            },
            {
                "id": "D1:2",
                "role": "user",
                "name": "Tom",
                "content": "Which colour?",
                "timestamp": "2023-05-08T13:57:00+00:00",
            },
            {
                "id": "D1:3",
                "role": "user",
                "name": "Mira",
                "content": "Look! [shares an image: a yellow kayak]",
                "timestamp": "2023-05-08T13:58:00+00:00",
            },
        ],
    }


@pytest.mark.parametrize(
    ("content", "agents"),
    [
        pytest.param(TALKS, ["sample"], id="talks at the top"),
        pytest.param({"sample_id": "s-1", **TALKS}, ["s-1"], id="talks at the top, with an id"),
        pytest.param({"conversation": TALKS, "qa": [], "sample_id": "s-1"}, ["s-1"], id="one sample"),
        pytest.param([{"conversation": TALKS}], ["sample"], id="list of one"),
        pytest.param([{"conversation": TALKS}, {"conversation": TALKS}], ["sample-1", "sample-2"], id="list of two"),
        pytest.param([{"sample_id": "a", "conversation": TALKS}, TALKS], ["a", "sample-2"], id="mixed"),
    ],
)
def test_every_layout_is_read(tmp_path: Path, content: object, agents: list[str]) -> None:
    found = convert(tmp_path, content)
    assert [each["agent_id"] for each in found] == [agent for agent in agents for _ in range(2)]
    assert [each["conversation_id"] for each in found] == ["session_1", "session_2"] * len(agents)


def test_converted_conversations_are_valid(tmp_path: Path) -> None:
    admission = Admission(date(2018, 1, 1), datetime(2024, 6, 1, tzinfo=UTC))
    for record in convert(tmp_path, [{"sample_id": "conv/26 ä", "conversation": TALKS}]):
        messages, rejected, _ = read_messages(record, admission)
        assert rejected == []
        assert len(messages) == len(record["messages"])


def test_workspace_and_agent_can_be_given(tmp_path: Path) -> None:
    found = convert(tmp_path, [{"sample_id": "s", "conversation": TALKS}], workspace_id="w", agent_id="a")
    assert {(each["workspace_id"], each["agent_id"]) for each in found} == {("w", "a")}


def test_sessions_are_in_numerical_order(tmp_path: Path) -> None:
    numbers = [10, 2, 1]
    talks = {f"session_{n}": FIRST for n in numbers} | {
        f"session_{n}_date_time": "1:00 am on 1 May, 2023" for n in numbers
    }
    assert [each["conversation_id"] for each in convert(tmp_path, talks)] == ["session_1", "session_2", "session_10"]


def test_a_time_without_a_session_is_ignored(tmp_path: Path) -> None:
    assert len(convert(tmp_path, TALKS | {"session_3_date_time": "1:00 pm on 1 July, 2023"})) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56:00+00:00"),
        ("12:05 am on 9 June, 2023", "2023-06-09T00:05:00+00:00"),
        ("12:00 pm on 29 February, 2024", "2024-02-29T12:00:00+00:00"),
        (" 09:07 AM on 01 January, 2024 ", "2024-01-01T09:07:00+00:00"),
    ],
)
def test_times_are_read(tmp_path: Path, text: str, expected: str) -> None:
    [found] = convert(tmp_path, {"session_1": FIRST, "session_1_date_time": text})
    assert found["messages"][0]["timestamp"] == expected


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "soon",
        "8 May, 2023",
        "1:56 pm",
        "13:56 pm on 8 May, 2023",
        "1:56 pm on 31 June, 2023",
        "2023-05-08",
        5,
        [],
    ],
)
def test_malformed_times_are_refused(tmp_path: Path, text: object) -> None:
    expected = r"sample.json: session_1_date_time .* cannot be read; expected e\.g\. 1:56 pm on 8 May, 2023"
    with pytest.raises(InputError, match=expected):
        convert(tmp_path, {"session_1": FIRST, "session_1_date_time": text})


def test_a_missing_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="session_1_date_time None cannot be read"):
        convert(tmp_path, {"session_1": FIRST})


@pytest.mark.parametrize(
    "turn",
    [{"text": ""}, {"text": None}, {}, {"text": " "}],
)
def test_a_turn_of_an_image_alone_is_its_caption(tmp_path: Path, turn: dict[str, object]) -> None:
    shared = turn | {"speaker": "Mira", "blip_caption": "a kayak"}
    [found] = convert(tmp_path, {"session_1": [shared], "session_1_date_time": "1:00 am on 1 May, 2023"})
    assert found["messages"][0]["content"] == "[shares an image: a kayak]"


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    assert len(convert(tmp_path, json.dumps(TALKS).encode("utf-8-sig"))) == 2


@pytest.mark.parametrize("content", [{}, {"sessions": []}, {"conversation": {}}, [{}], {"session_x": FIRST}])
def test_a_file_without_sessions_is_refused(tmp_path: Path, content: object) -> None:
    with pytest.raises(InputError, match="has no sessions; expected the keys session_1, session_1_date_time"):
        convert(tmp_path, content)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xff\xff", b"[" * 100_000])
def test_a_file_of_invalid_json_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match=r"sample\.json is not valid JSON"):
        convert(tmp_path, content)


@pytest.mark.parametrize("content", [5, "text", None, [5], [[TALKS]]])
def test_a_sample_must_be_an_object(tmp_path: Path, content: object) -> None:
    with pytest.raises(InputError, match="a sample must be an object, not "):
        convert(tmp_path, content)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.json cannot be read: No such file"):
        list(read_locomo(tmp_path / "missing.json"))


AT = {"session_1_date_time": "1:56 pm on 8 May, 2023"}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"conversation": None}, id="no talks"),
        pytest.param({"conversation": [TALKS]}, id="talks in a list"),
        pytest.param({"session_1": None} | AT, id="a talk that is null"),
        pytest.param({"session_1": {"a": 1}} | AT, id="a talk that is an object"),
        pytest.param({"session_1": ["hello"]} | AT, id="a turn that is a text"),
        pytest.param(
            {"session_1": FIRST, "session_1_date_time": "11:59 pm on 31 December, 9999"}, id="the end of time"
        ),
        pytest.param({f"session_{'9' * 5000}": FIRST}, id="a number of 5,000 digits"),
    ],
)
def test_any_malformed_file_is_an_input_error(tmp_path: Path, content: object) -> None:
    with pytest.raises(InputError, match=r"sample\.json"):
        convert(tmp_path, content)


def test_an_agent_named_after_its_file_has_a_valid_name(tmp_path: Path) -> None:
    admission = Admission(date(2018, 1, 1), datetime(2024, 6, 1, tzinfo=UTC))
    [record, _] = convert(tmp_path, TALKS, name="(1) sample.json")
    assert read_messages(record, admission).rejected == []


def test_a_sample_keeps_its_questions(tmp_path: Path) -> None:
    questions = [{"question": "What did Mira buy?", "evidence": ["D1:1"], "category": 4}]
    path = tmp_path / "sample.json"
    path.write_text(json.dumps([{"sample_id": "s", "conversation": TALKS, "qa": questions}, TALKS]), encoding="utf-8")
    first, second = read_samples(path)
    assert (first.agent_id, first.questions, len(first.conversations)) == ("s", questions, 2)
    assert (second.agent_id, second.questions) == ("sample-2", None)
    assert first.where == f"file {path}, sample 1"
    assert list(read_locomo(path)) == [*first.conversations, *second.conversations]


def test_sessions_are_converted_with_any_questions(tmp_path: Path) -> None:
    assert len(convert(tmp_path, TALKS | {"qa": "none"})) == 2
