"""Contradictions between sections are found when the file is read."""

from __future__ import annotations

import pytest

from memory_pipeline.configuration import Configuration
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import ConfigurationError


def refused(text: str) -> list[str]:
    """Return the lines of the error."""
    with pytest.raises(ConfigurationError) as refusal:
        Configuration.parse(text, "file")
    return str(refusal.value).splitlines()


def test_a_hosted_model_that_embeds_needs_a_dimension() -> None:
    model = "openai/text-embedding-3-small"
    assert refused(f"defaults:\n  embedding:\n    model: {model}") == [
        "file, line 2: defaults.embedding.dimension: missing; expected the length of the model's vectors"
    ]
    assert Configuration.parse(f"defaults: {{embedding: {{model: {model}, dimension: 384}}}}", "file").uses_models
    local = Configuration.parse("defaults: {embedding: {model: fastembed/BAAI/bge-small-en-v1.5}}", "file")
    assert local.embedding.dimension is None  # fastembed knows it


def test_a_cross_encoder_needs_a_model() -> None:
    (line,) = refused("defaults:\n  injection: {rerank: cross_encoder}")
    assert line == (
        "file, line 2: defaults.injection.rerank: cross_encoder is not accepted without a model; "
        "name one in cross_encoder of the section, such as cross_encoder: {model: cohere/rerank-v3.5}"
    )
    text = """
defaults: {injection: {cross_encoder: {model: infinity/m, api_base: "http://127.0.0.1:9", timeout_seconds: 2}}}
workspaces:
  w: {injection: {rerank: cross_encoder}, agents: {a: {injection: {cross_encoder: {model: fastembed/BAAI/x}}}}}
"""
    configuration = Configuration.parse(text, "file")
    assert not configuration.uses_models  # it only helps reading
    inherited, own = (configuration.injection(Scope("w", agent)) for agent in "ba")
    assert (inherited.rerank, inherited.cross_encoder.model, inherited.cross_encoder.timeout_seconds) == (
        "cross_encoder", "infinity/m", 2,
    )  # fmt: skip
    assert (own.cross_encoder.is_local, own.cross_encoder.api_base) == (True, None)  # not another model's address


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
    assert line.endswith(
        f"{place}: no limit is set; expected usd_per_month, tokens_per_month, usd_per_user or tokens_per_user"
    )


@pytest.mark.parametrize("text", ["defaults: {budget: {}}", "workspaces: {w: {budget: }}"])
def test_an_empty_budget_counts_as_no_budget(text: str) -> None:
    assert Configuration.parse(text, "file").budget("w") is None


def test_context_tokens_must_leave_room_for_a_request() -> None:
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


def test_a_prompt_counts_towards_the_context() -> None:
    section = "model: openai/x, context_tokens: 6000"
    text = f"defaults: {{extraction: {{{section}, prompt: '{'x' * 8_000}'}}}}"
    assert refused(text) == [
        (
            "file, line 1: defaults.extraction: context_tokens 6,000 is not accepted with max_output_tokens 4,000 "
            "and a prompt of 2,000 tokens; expected 1,000 more than these"
        )
    ]


def test_deterministic_tasks_need_no_room() -> None:
    assert not Configuration.parse("defaults: {completion: {context_tokens: 2000}}", "file").uses_models


LACKING = (
    "model is not accepted while the section's model is deterministic; "
    "name a model in injection or completion, or set {}: deterministic"
)


@pytest.mark.parametrize("name", ["rerank", "entities"])
def test_a_section_that_asks_for_a_model_needs_one(name: str) -> None:
    assert refused(f"defaults:\n  injection:\n    {name}: model") == [
        f"file, line 3: defaults.injection.{name}: {LACKING.format(name)}"
    ]
    for model in ("completion: {model: openai/x}, injection: {NAME: model}", "injection: {NAME: model, model: a/b}"):
        text = f"defaults: {{{model.replace('NAME', name)}}}"
        assert Configuration.parse(text, "file").injection(Scope("w", "a")).for_model == (name,)


def test_a_missing_model_of_injection_is_reported_once_at_the_level_that_removed_it() -> None:
    text = """
defaults:
  completion: {model: openai/x}
  injection: {rerank: model, entities: model}
workspaces:
  v: {completion: {model: deterministic}, injection: {rerank: none, entities: deterministic}}
  w:
    injection: {entities: deterministic}
    completion: {model: deterministic}
    agents:
      a: {extraction: {known_facts: 1}}
      b: {injection: {entities: model}}
      c: {injection: {rerank: deterministic}}
      d: {completion: {model: openai/y}}
"""
    assert refused(text) == [
        f"file, line 8: workspaces.w.injection.rerank: {LACKING.format('rerank')}",
        f"file, line 12: workspaces.w.agents.b.injection.entities: {LACKING.format('entities')}",
    ]


def test_injection_needs_room_for_its_request_if_it_calls_a_model() -> None:
    text = "defaults:\n  injection: {model: openai/x, max_output_tokens: 8000, context_tokens: 8500, RERANK}"
    assert not Configuration.parse(text.replace("RERANK", "rerank: none"), "file").uses_models
    assert refused(text.replace("RERANK", "rerank: model")) == [
        (
            "file, line 2: defaults.injection: context_tokens 8,500 is not accepted with max_output_tokens 8,000; "
            "expected 1,000 more than these"
        )
    ]
