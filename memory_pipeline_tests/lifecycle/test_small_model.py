"""The whole chain with a real, very small model, most of whose answers are wrong or malformed."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import FACTS, MODEL_CALLS, OPERATIONS, SUMMARIES
from memory_pipeline.steps.results import RunResult
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.evaluation.test_answering import QUESTIONS
from memory_pipeline_tests.invoking import read
from memory_pipeline_tests.small_model import CONTEXT_TOKENS, missing, small_model

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = "2024-01-16T12:00:00Z"
SAID = [
    "My name is Anna and I live in Porto.",
    "My sister Lea is allergic to peanuts.",
    "Our rent is 900 euros a month.",
    "I moved there from Lisbon on 2 April 2023.",
    "I work as a nurse at the Santos clinic.",
    "I have two cats, Miso and Nori.",
    "On Friday we fly to Oslo.",
    "I never drink coffee after noon.",
    "My brother Tom studies physics in Berlin.",
    "Please always answer in short sentences.",
][: 10 if IS_THOROUGH else 3]
CONFIG = f"""
defaults:
  completion: {{{{model: openai/smollm2, api_base: "{{url}}", attempts: 1, timeout_seconds: 95,
               context_tokens: {CONTEXT_TOKENS}, max_output_tokens: {400 if IS_THOROUGH else 256},
               answer_format: json_schema}}}}
"""
#: The usual run asks one short question. The thorough run asks those of an hour and of a day as they are, and again
#: what failed: at most six requests, of 95 seconds at most. A request that takes longer counts as another bad answer.
CONFIG += (
    "  summaries: {{daily: {{minimum_tokens: 0}}}}"
    if IS_THOROUGH
    else "  extraction: {{known_facts: 0, prompt: 'Write each fact as one sentence, with names and numbers.'}}"
)


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_bad_model_adds_nothing_false_and_loses_nothing(root: str) -> None:
    with small_model() as url:
        memory = Memory(root, user_id="anna")
        memory.add(
            [
                {"role": "user", "content": text, "timestamp": f"2024-01-15T09:{minute:02}:00Z"}
                for minute, text in enumerate(SAID)
            ],
            conversation_id="c1",
        )
        memory.lake.storage.write(CONFIGURATION, CONFIG.format(url=url).encode())
        memory = Memory(root, user_id="anna")
        first = memory.run(now=NOW)
        calls = outcomes(memory)
        assert calls
        again = memory.run(now=NOW) if IS_THOROUGH else []
    rows = memory.lake.tables.read(FACTS).to_pylist()
    turns = [row["content"].partition(": ")[2] for row in rows if row["kind"] == "turn"]
    assert sorted(turns) == sorted(SAID)
    for text in SAID:
        assert text in memory.search(text, now=NOW)[0].content
        assert text in str(memory.context(text, now=NOW))
    [day] = memory.lake.tables.read(SUMMARIES, ["2024-01-15"], grain="daily").to_pylist()
    assert any(name in day["content"] for name in ("Anna", "Porto", "Lea", "900"))
    for stored in texts_of(memory):
        assert unheard(stored) == set(), stored
    failed = {key for result, key in periods(first) if result.unfinished}
    if IS_THOROUGH:
        assert any(result.unfinished or result.refused for result, _ in periods(first))  # bad answers are caught
        assert sum(outcomes(memory).values()) <= 6
        assert {key for _, key in periods(again)} == failed
        assert (outcomes(memory) != calls) is bool(failed)
    else:  # one question, and perhaps its correction
        assert sum(calls.values()) <= 2
        assert bool(failed) is (calls["ok"] == 0)


@pytest.mark.skipif(missing() is not None or not IS_THOROUGH, reason=missing() or "asks for minutes")
def test_a_bad_model_answers_and_judges_a_published_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lme.json").write_text(json.dumps(QUESTIONS), encoding="utf-8")
    with small_model() as url:
        model = ["--answer", f"openai/smollm2@{url}", "--judge", f"openai/smollm2@{url}"]
        command = ["eval", "longmemeval", "lme.json", *model, "--budget", "200"]
        command += ["--context-tokens", "8000", "--source", "memory", "--source", "rag"]
        first = read(*command)
        stored = Path("memory-pipeline-answers.jsonl").read_bytes()
        again = read(*command)
    assert [row["source"] for row in first["rows"]] == ["memory", "rag"]
    assert all(row["questions"] == 2 and 0 <= row["score"] <= 1 for row in first["rows"])
    assert all(one["answer"] or one["error"] for one in first["answers"])
    if not any(row["failed"] for row in first["rows"]):  # a second run asks nothing
        assert again == first
        assert Path("memory-pipeline-answers.jsonl").read_bytes() == stored


def periods(results: Sequence[object]) -> list[tuple[RunResult, str]]:
    return [(one, str(period)) for one in results if isinstance(one, RunResult) for period in one.periods]


def outcomes(memory: Memory) -> Counter[str]:
    return Counter(memory.lake.tables.read(MODEL_CALLS)["outcome"].to_pylist())


def texts_of(memory: Memory) -> list[str]:
    """Return all derived texts: facts, terms of the graph, points of summaries, durable memories."""
    facts, graph = memory.lake.tables.read(FACTS), memory.lake.tables.read(OPERATIONS)
    summaries = memory.lake.tables.read(SUMMARIES, grain="daily")
    terms = [*graph["subject"].to_pylist(), *graph["object"].to_pylist()]
    memories = [one.content for one in memory.reader.memories.list(limit=100)]
    return [*facts["content"].to_pylist(), *summaries["content"].to_pylist(), *filter(None, terms), *memories]


def unheard(text: str) -> set[str]:
    """Return the numbers and names of a derived text that occur in no message."""
    heard = " ".join(SAID).casefold()
    words = re.findall(r"[^\W_]+", re.sub(r"\b2024-01-15\b", "", text))
    named = {word for word in words if word[0].isupper() or any(char.isdigit() for char in word)}
    return {word for word in named if word.casefold() not in heard} - {"User", "The"}
