"""The command `eval`. The conversations are invented."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from memory_pipeline.errors import InputError
from memory_pipeline_tests.building import conversation
from memory_pipeline_tests.invoking import call, read

SAMPLE = {
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        {"speaker": "Mira", "dia_id": "D1:1", "text": "I bought a yellow kayak."},
        {"speaker": "Tom", "dia_id": "D1:2", "text": "My sister teaches physics in Oslo."},
    ],
    "qa": [
        {"question": "What did Mira buy?", "answer": "a yellow kayak", "evidence": ["D1:1"], "category": 4},
        {"question": "What does Tom's sister teach?", "answer": "physics", "evidence": ["D1:2; D7:1"], "category": 1},
        {"question": "What did Tom buy?", "adversarial_answer": "a kayak", "evidence": ["D1:1"], "category": 5},
        {"question": "Who sings?", "answer": "nobody", "evidence": [], "category": 3},
    ],
}
LINES = [
    conversation("I moved to Porto.", at="2021-03-15T08:00"),
    {"workspace_id": "acme", "agent_id": "support", "question": "Where does Anna live?", "evidence": ["m1"]},
]


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of temporary lakes."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", str(tmp_path / "mine"))
    monkeypatch.delenv("MEMORY_PIPELINE_START", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("sample.json").write_text(json.dumps(SAMPLE), encoding="utf-8")
    Path("set.jsonl").write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    return folder


def test_help_shows_the_format() -> None:
    assert "recall@k" in call("eval", "--help").output
    assert '"evidence": ["m1"]' in call("eval", "jsonl", "--help").output
    assert "LoCoMo" in call("eval", "locomo", "--help").output


def test_the_report_goes_to_stdout_and_progress_to_stderr(temporary: Path, tmp_path: Path) -> None:
    result = call("eval", "locomo", "sample.json")
    assert result.exit_code == 0, result.output
    for text in (
        "1 agent, 1 conversation, 2 messages; 2 questions, and 1 adversarial one, reported separately",
        "in the first turn                2 100.0%         2 100.0%    100.0%",
        "in 1,000 tokens",
        "MRR 1.000, nDCG@10 1.000",
        "(adversarial)",
        "2 answers: share still found in the text of each grain",
        "unknown message ids in the evidence of 1 question:\n  file sample.json, sample 1, question 2: 'D7:1'",
        "excluded: 1 question\n  file sample.json, sample 1, question 4: it has no evidence",
    ):
        assert text in result.stdout
    assert "2 new messages written" in result.stderr
    assert "3 of 3 questions asked" in result.stderr
    assert "new messages" not in result.stdout
    assert not list(temporary.iterdir())  # the temporary lake is gone
    assert not (tmp_path / "mine").exists()  # and the user's lake is unchanged


def test_json_is_one_object_that_is_the_same_each_time() -> None:
    first, second = (read("eval", "locomo", "sample.json", "--root", "kept") for _ in range(2))
    for found in (first, second):
        assert set(found.pop("milliseconds")) == {"p50", "p95"}
    assert first == second
    assert first["overall"]["at"]["10"] == {"any": 2, "all": 2, "recall": 1.0}
    assert set(first["categories"]) == {"multi-hop", "single-hop"}
    assert first["adversarial"]["questions"] == 1
    assert [len(first[name]) for name in ("questions", "questions_set_aside", "survival")] == [3, 1, 6]
    assert first["questions"][0]["evidence"] == [
        {"conversation_id": "session_1", "id": "D1:1", "rank": 1, "within_budget": True}
    ]
    assert Path("kept").is_dir()


def test_jsonl_is_evaluated_and_drawn() -> None:
    found = read("eval", "jsonl", "set.jsonl", "--plot", "chart.svg", "--max-results", "3", "--tokens", "50")
    assert list(found["overall"]["at"]) == ["1", "3"]
    assert found["overall"]["at"]["1"]["any"] == 1
    assert (found["tokens"], found["adversarial"], found["survival"]) == (50, None, [])
    assert Path("chart.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["locomo", "missing.json"], "missing.json cannot be read: No such file"),
        (["locomo", "set.jsonl"], "file set.jsonl is not valid JSON"),
        (["jsonl", "sample.json"], "sample.json, line 1: each line must be a conversation"),
        (["jsonl", "set.jsonl", "--plot", "chart.pdf"], "must end in .svg or .png"),
        (["jsonl", "set.jsonl", "--config", "missing.yaml"], "missing.yaml cannot be read"),
    ],
)
def test_errors_name_the_file_and_leave_nothing_behind(temporary: Path, arguments: list[str], message: str) -> None:
    result = call("eval", *arguments)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert not list(temporary.iterdir())
