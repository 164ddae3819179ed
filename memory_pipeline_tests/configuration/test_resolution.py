"""What is fine in each section and wrong where they come together is found when the file is read."""

from __future__ import annotations

import pytest

from memory_pipeline.configuration import Configuration
from memory_pipeline.errors import ConfigurationError


def refused(text: str) -> list[str]:
    """Return the lines of the error."""
    with pytest.raises(ConfigurationError) as refusal:
        Configuration.parse(text, "file")
    return str(refusal.value).splitlines()


def test_a_model_that_embeds_needs_a_dimension() -> None:
    for model in ("openai/text-embedding-3-small", "fastembed/BAAI/bge-small-en-v1.5"):
        assert refused(f"defaults:\n  embedding:\n    model: {model}") == [
            "file, line 2: defaults.embedding.dimension: it is missing; expected the length of the model's vectors"
        ]
        assert Configuration.parse(f"defaults: {{embedding: {{model: {model}, dimension: 384}}}}", "file").uses_models


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("defaults: {budget: {when_spent: wait}}", "defaults.budget"),
        ("defaults: {budget: {usd_per_month: null}}", "defaults.budget"),
        ("workspaces: {w: {budget: {when_spent: wait}}}", "workspaces.w.budget"),
        (
            "defaults: {budget: {usd_per_month: 1}}\nworkspaces: {w: {budget: {usd_per_month: null}}}",
            "workspaces.w.budget",
        ),
    ],
)
def test_a_budget_has_a_limit(text: str, place: str) -> None:
    (line,) = refused(text)
    assert line.endswith(f"{place}: it has no limit; expected usd_per_month, tokens_per_month or both")


@pytest.mark.parametrize("text", ["defaults: {budget: {}}", "workspaces: {w: {budget: }}"])
def test_an_empty_budget_is_none(text: str) -> None:
    assert Configuration.parse(text, "file").budget("w") is None


def test_a_question_needs_room_beside_its_answer_wherever_the_two_come_together() -> None:
    text = """
defaults:
  completion: {model: openai/x, max_output_tokens: 8000}
workspaces:
  w:
    summaries:
      daily: {context_tokens: 8500}
    agents:
      a: {extraction: {attempts: 2}}
      b: {completion: {context_tokens: 4000}}
      c: {summaries: {daily: {context_tokens: 9000}}}
"""
    assert refused(text) == [
        (
            "file, line 7: workspaces.w.summaries.daily: context_tokens 8,500 is not accepted with max_output_tokens "
            "8,000; expected 1,000 more than these"
        ),
        (
            "file, line 10: workspaces.w.agents.b.completion: context_tokens 4,000 is not accepted with "
            "max_output_tokens 8,000; expected 1,000 more than these"
        ),
    ]


def test_a_prompt_takes_room_too() -> None:
    section = "model: openai/x, context_tokens: 6000"
    text = f"defaults: {{extraction: {{{section}, prompt: '{'x' * 8_000}'}}}}"
    assert refused(text) == [
        (
            "file, line 1: defaults.extraction: context_tokens 6,000 is not accepted with max_output_tokens 4,000 "
            "and a prompt of 2,000 tokens; expected 1,000 more than these"
        )
    ]


def test_where_nothing_is_asked_no_room_is_needed() -> None:
    assert not Configuration.parse("defaults: {completion: {context_tokens: 2000}}", "file").uses_models
