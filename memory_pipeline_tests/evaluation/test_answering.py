"""Answers of models to questions of published benchmarks, and their verdicts. All conversations are invented."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError, ModelError
from memory_pipeline.evaluation.assistant_sets import read_beam_set, read_longmemeval_set
from memory_pipeline.evaluation.judging import JUDGE, Benchmark, Protocol, checks, score, tau_b
from memory_pipeline.evaluation.labels import LabelledQuestion
from memory_pipeline.models.hosted.transport.requests import InvalidAnswerError
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.openai_server import Fault, OpenAIServer


def turns(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


QUESTIONS: list[dict[str, Any]] = [
    {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "Which boat did I buy?",
        "answer": "a yellow kayak",
        "question_date": "2023/06/01 (Thu) 10:00",
        "haystack_session_ids": ["s1", "s2"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/06/03 (Sat) 09:00"],
        "haystack_sessions": [turns("I bought a yellow kayak.", "Nice."), turns("I sold the kayak.", "Why?")],
    },
    {
        "question_id": "q2_abs",
        "question_type": "knowledge-update",
        "question": "What is my cat called?",
        "answer": "The user never mentioned a cat.",
        "question_date": "2023/06/01 (Thu) 10:00",
        "haystack_session_ids": ["s3"],
        "haystack_dates": ["2023/05/21 (Sun) 08:00"],
        "haystack_sessions": [turns("My dog is called Rex.", "Good name.")],
    },
]
QUESTIONS[0]["haystack_sessions"][0][0]["has_answer"] = True
CHAT = {
    "conversation_id": "7",
    "chat": [
        [
            {"id": 0, "time_anchor": "March-15-2024", **turns("The sprint ends on 29 March. ->-> 1,1")[0]},
            {"id": 1, "role": "assistant", "content": "Noted."},
        ],
        {"turns": [[{"id": 2, "time_anchor": "March-20-2024", **turns("The sprint now ends on 2 April.")[0]}]]},
    ],
    "probing_questions": {
        "knowledge_update": [
            {
                "question": "When does the sprint end?",
                "answer": "2 April",
                "source_chat_ids": {"original_info": [0], "updated_info": [2]},
                "rubric": ["It says: 2 April", "It does not say: 29 March"],
            }
        ],
        "abstention": [{"question": "Who tests?", "ideal_response": "It is not said.", "rubric": ["Not said"]}],
    },
}


def reply(body: dict[str, Any]) -> str:
    """Repeat the notes as the answer; judge whether it has the words of the correct answer."""
    system, text = (message["content"] for message in body["messages"][:2])
    if system != JUDGE:
        return str(text)
    if '"score"' in text:
        return '{"score": 0.5}'
    answer = text.partition("\n\nAnswer: ")[2]
    return "yes" if "yellow kayak" in answer.partition("Reply with")[0] else "No."


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMORY_PIPELINE_START", raising=False)
    Path("lme.json").write_text(json.dumps(QUESTIONS), encoding="utf-8")
    Path("beam.jsonl").write_text(
        json.dumps(CHAT | {"probing_questions": repr(CHAT["probing_questions"])}), encoding="utf-8"
    )
    with OpenAIServer() as server:
        server.answer = reply
        server.cost_per_call = 0.01
        yield server


def options(server: OpenAIServer) -> list[str]:
    return ["--answer", f"openai/m@{server.base_url}", "--budget", "200"]


def test_answers_from_memory_stand_beside_retrieval_and_history(server: OpenAIServer) -> None:
    found = read("eval", "longmemeval", "lme.json", *options(server))
    rows = {row["source"]: row for row in found["rows"]}
    assert list(rows) == ["memory", "rag", "history"]
    for row in rows.values():
        # q1 is answered; the judge finds no word of abstention for q2.
        assert (row["questions"], row["score"], row["failed"]) == (2, 0.5, 0)
        assert row["categories"] == {"single-session-user": 1.0, "knowledge-update": 0.0}
        assert row["cost"] == pytest.approx(0.04)
    notes = [request.body["messages"][1]["content"] for request in server.requests]
    assert not any("sold" in text for text in notes)  # said after the question
    assert any("Current date: 2023/06/01" in text for text in notes)


def test_a_second_run_asks_nothing_and_a_failed_answer_is_asked_again(server: OpenAIServer) -> None:
    server.faults = [Fault("400", match="cat called", times=None)]
    command = ["eval", "longmemeval", "lme.json", *options(server), "--source", "rag"]
    assert "1 answer failed and score 0; run again" in call(*command).output
    with Path("memory-pipeline-answers.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"key": "torn')  # as after a crash
    server.reset()
    assert read(*command)["rows"][0]["failed"] == 0
    assert server.counts["path chat"] == 2  # q2's answer and verdict
    server.reset()
    assert read(*command)["rows"][0]["failed"] == 0
    assert not server.requests


def test_an_estimate_asks_nothing(server: OpenAIServer) -> None:
    found = read("eval", "beam", "beam.jsonl", "--estimate", "--answer", "openai/gpt-4o-mini", "--budget", "50,1000")
    assert [(row["source"], row["budget"]) for row in found] == [
        ("memory", 50), ("memory", 1000), ("rag", 50), ("rag", 1000), ("history", 124_000)
    ]  # fmt: skip
    assert {row["calls"] for row in found} == {2 + 3}
    assert 0 < found[0]["cost"] <= found[1]["cost"] == found[-1]["cost"]  # no notes are longer than the history
    assert not server.requests


def test_beam_scores_each_criterion(server: OpenAIServer) -> None:
    found = read("eval", "beam", "beam.jsonl", *options(server), "--source", "history")
    assert found["rows"][0]["categories"] == {"abstention": 0.5, "knowledge-update": 0.5}
    assert server.counts["path chat"] == 2 + 3


def test_a_model_that_refuses_everything_ends_the_run_before_the_pipeline(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for model, remedy in (("openai/gpt-4o-mini", "OPENAI_API_KEY"), ("gpt-4o", "provider/name")):
        result = call("eval", "longmemeval", "lme.json", "--root", "lake", "--answer", model)
        assert isinstance(result.exception, ModelError | InputError)
        assert remedy in str(result.exception)
    assert not Path("lake", "tables").exists()
    assert not server.requests


def test_a_judge_without_an_answering_model_is_refused(server: OpenAIServer) -> None:
    result = call("eval", "beam", "beam.jsonl", "--judge", "openai/m")
    assert result.exit_code == 2
    assert "need --answer MODEL" in result.output


def test_both_forms_of_beam_are_read(server: OpenAIServer, tmp_path: Path) -> None:
    folder = tmp_path / "7"
    (folder / "probing_questions").mkdir(parents=True)
    (folder / "chat.json").write_text(json.dumps(CHAT["chat"]), encoding="utf-8")
    (folder / "probing_questions" / "probing_questions.json").write_text(
        json.dumps(CHAT["probing_questions"]), encoding="utf-8"
    )
    from_line, from_folder = read_beam_set([tmp_path / "beam.jsonl"]), read_beam_set([folder])
    assert from_line.messages.keys() == from_folder.messages.keys()
    [update] = from_line.questions  # of the questions, the only one with evidence
    assert [from_line.messages[one].content for one in update.relevant] == ["The sprint now ends on 2 April."]
    assert [one.is_unanswerable for one in from_line.asked] == [False, True]
    assert from_line.asked[0].rubric == ("It says: 2 April", "It does not say: 29 March")
    assert next(iter(from_line.messages.values())).content == "The sprint ends on 29 March."


def test_longmemeval_has_evidence_and_a_limit_for_each_type(server: OpenAIServer, tmp_path: Path) -> None:
    labels = read_longmemeval_set([tmp_path / "lme.json"], 1)
    assert len(labels.asked) == 2
    [judged] = labels.questions
    assert [labels.messages[one].content for one in judged.relevant] == ["I bought a yellow kayak."]
    (tmp_path / "bad.json").write_text(json.dumps([{"question_id": "q"}]), encoding="utf-8")
    with pytest.raises(InputError, match="question 1 is not in LongMemEval's format"):
        read_longmemeval_set([tmp_path / "bad.json"])


ORDER = LabelledQuestion("here", Scope("w", "a"), "In which order?", (), "event-ordering", rubric=("a", "b", "c"))


@pytest.mark.parametrize(
    ("places", "paper", "omnimemeval"),
    [
        ([1, 2, 3], 1.0, 1.0),
        ([3, 2, 1], 0.0, 0.0),
        ([0, 0, 0], 0.0, 0.0),
        ([1, 2, 0], 1.0, 2 / 3),  # a missing event is last
        ([0, 1, 0], None, 1 / 6),
    ],
)
def test_the_order_of_events(places: list[int], paper: float | None, omnimemeval: float) -> None:
    text = json.dumps({"places": places})
    for protocol, expected in ((Protocol.PAPER, paper), (Protocol.OMNIMEMEVAL, omnimemeval)):
        [check] = checks(Benchmark.BEAM, protocol, ORDER, "b, then c")
        if expected is not None:
            assert check.read(text) == pytest.approx(expected)


def test_tau_b_is_kendalls() -> None:
    assert tau_b([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    assert tau_b([1, 2, 3], [1, 1, 2]) == pytest.approx(2 / (3 * 2) ** 0.5)
    assert tau_b([1, 2], [1, 1]) == 0.0


@pytest.mark.parametrize("reply", ["", "CORRECT or WRONG", '{"label": "right"}'])
def test_an_unclear_verdict_is_refused(reply: str) -> None:
    question = LabelledQuestion("here", Scope("w", "a"), "Who?", (), "single-hop", "Anna")
    [check] = checks(Benchmark.LOCOMO, Protocol.PAPER, question, "Anna")
    with pytest.raises(InvalidAnswerError):
        check.read(reply)
    assert check.read('{"label": "CORRECT"}') == 1.0


def test_the_rules_differ_by_type_of_question() -> None:
    def text(category: str, protocol: Protocol, *, is_unanswerable: bool = False) -> str:
        question = LabelledQuestion(
            "here", Scope("w", "a"), "Who?", (), category, "Anna", is_unanswerable=is_unanswerable
        )
        [check] = checks(Benchmark.LONGMEMEVAL, protocol, question, "Anna")
        return check.text

    paper = {text(category, Protocol.PAPER) for category in ("multi-session", "temporal-reasoning", "knowledge-update")}
    assert len(paper) == 3
    assert text("multi-session", Protocol.PAPER) == text("single-session-user", Protocol.PAPER)
    assert "CORRECT" in text("multi-session", Protocol.OMNIMEMEVAL)
    assert "cannot be answered" in text("multi-session", Protocol.OMNIMEMEVAL, is_unanswerable=True)
    assert score([]) == 0.0
