"""The public configuration: lookup by agent; any text is safe, and no message contains an API key."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.configuration import Budget, Configuration, Embedding, ExtractionSettings, Injection, Summarization
from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.retention import PLANS
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import ConfigurationError, InputError

SOURCE = "lake/config/workspaces.yaml"
SUPPORT, SALES, OTHER = Scope("acme", "support"), Scope("acme", "sales"), Scope("globex", "support")

TEXT = """
defaults:
  max_concurrency: 4
  embedding: {model: openrouter/thenlper/gte-base, dimension: 768, api_key: env:SHARED_KEY}
  completion: {model: openrouter/openai/gpt-5-mini, api_key: env:SHARED_KEY, temperature: 0}
  extraction: {known_facts: 5}
  summaries:
    monthly: {length: 3000, prompt: "Tell of {period} in {length} characters."}
  budget: {usd_per_month: 20, when_spent: wait}
  graph: {single_valued: [Favourite Colour, drives], multi_valued: [speaks]}
  injection: {max_results: 8, rerank: model}
  retention: {plan: standard}
  previews: false
workspaces:
  acme:
    completion: {api_key: env:ACME_KEY}
    embedding: {api_key: env:ACME_KEY}
    graph: {single_valued: [speaks, owns]}
    injection: {model: anthropic/small, api_key: env:SMALL_KEY}
    budget: {tokens_per_month: 1000}
    agents:
      support:
        extraction: {model: anthropic/claude, api_key: file:/run/secrets/claude}
        summaries: {daily: {length: 900}}
        graph: {multi_valued: [drives]}
        injection: {enabled: false, max_tokens: 500}
      "2024-01-15":
        completion: {model: deterministic}
        injection: {rerank: none}
  initech:
    budget: {usd_per_month: 5}
"""


@pytest.fixture
def configuration() -> Configuration:
    return Configuration.parse(TEXT, SOURCE)


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "defaults:\nworkspaces:\n", "defaults: {completion: }"])
def test_by_default_everything_is_deterministic(text: str) -> None:
    configuration = Configuration.parse(text, SOURCE)
    assert not configuration.uses_models
    assert configuration.max_concurrency == 16
    assert configuration.embedding == Embedding()
    assert configuration.extraction(SUPPORT) == ExtractionSettings()
    assert all(configuration.summarization(SUPPORT, grain) == Summarization() for grain in SUMMARY_GRAINS)
    assert configuration.injection(SUPPORT) == Injection()
    assert configuration.vocabulary(SUPPORT) == Vocabulary()
    assert configuration.budget("acme") is None
    assert configuration.embedding_key("acme") is None
    assert set(configuration.retention("acme").describe().values()) == {"forever"}
    assert configuration.previews("acme")


def test_an_agent_inherits_from_defaults_and_workspace(configuration: Configuration) -> None:
    assert configuration.extraction(SUPPORT) == ExtractionSettings(
        model="anthropic/claude", api_key="file:/run/secrets/claude", known_facts=5
    )
    assert configuration.extraction(SALES) == ExtractionSettings(
        model="openrouter/openai/gpt-5-mini", api_key="env:ACME_KEY", known_facts=5
    )
    assert configuration.extraction(OTHER).api_key == "env:SHARED_KEY"
    assert configuration.summarization(SUPPORT, Grain.DAILY).length == 900
    assert configuration.summarization(SALES, Grain.DAILY).length is None
    assert configuration.summarization(SUPPORT, Grain.MONTHLY).length == 3000
    assert configuration.extraction(Scope("acme", "2024-01-15")).is_deterministic


def test_an_agent_overrides_predicates_of_its_workspace(configuration: Configuration) -> None:
    assert configuration.vocabulary(OTHER) == Vocabulary(
        frozenset({"favourite_colour", "drives"}), frozenset({"speaks"})
    )
    assert configuration.vocabulary(SALES) == Vocabulary(frozenset({"favourite_colour", "drives", "speaks", "owns"}))
    assert configuration.vocabulary(SUPPORT) == Vocabulary(
        frozenset({"favourite_colour", "speaks", "owns"}), frozenset({"drives"})
    )


def test_injection_is_inherited_key_by_key_and_its_model_with_its_api_key(configuration: Configuration) -> None:
    model: dict[str, Any] = {"model": "openrouter/openai/gpt-5-mini", "api_key": "env:SHARED_KEY", "temperature": 0.0}
    small: dict[str, Any] = {"model": "anthropic/small", "api_key": "env:SMALL_KEY", "temperature": 0.0}
    assert configuration.injection(OTHER) == Injection(**model, max_results=8, rerank="model")
    assert configuration.injection(SALES) == Injection(**small, max_results=8, rerank="model")
    assert configuration.injection(SUPPORT) == Injection(
        **small, max_results=8, rerank="model", enabled=False, max_tokens=500
    )
    assert configuration.injection(Scope("acme", "2024-01-15")) == Injection(
        model="deterministic", temperature=0.0, max_results=8, rerank="none"
    )


@pytest.mark.parametrize("place", ["defaults: {", "workspaces: {w: {", "workspaces: {w: {agents: {a: {"])
def test_a_model_used_only_by_readers_does_not_count_as_used(place: str) -> None:
    text = f"{place}injection: {{model: openai/x, rerank: model}}{'}' * place.count('{')}"
    configuration = Configuration.parse(text, SOURCE)
    assert configuration.injection(Scope("w", "a")).for_model == ("rerank",)
    assert not configuration.uses_models


def test_the_embedder_belongs_to_the_lake_and_its_key_may_belong_to_a_workspace(configuration: Configuration) -> None:
    assert configuration.embedding.dimension == 768
    assert configuration.embedding_key("acme") == "env:ACME_KEY"
    assert configuration.embedding_key("initech") == configuration.embedding_key("unknown") == "env:SHARED_KEY"
    text = "defaults: {embedding: {api_key: env:A}}\nworkspaces: {w: {embedding: {api_key: null}}}"
    assert Configuration.parse(text, SOURCE).embedding_key("w") is None


def test_a_budget_is_inherited_key_by_key(configuration: Configuration) -> None:
    assert configuration.budget("acme") == Budget(usd_per_month=20, tokens_per_month=1000, when_spent="wait")
    assert configuration.budget("initech") == Budget(usd_per_month=5, when_spent="wait")
    assert configuration.budget("unknown") == Budget(usd_per_month=20, when_spent="wait")


def test_a_budget_may_be_set_in_a_workspace_alone() -> None:
    configuration = Configuration.parse("workspaces: {w: {budget: {usd_per_month: 0}}}", SOURCE)
    assert configuration.budget("w") == Budget(usd_per_month=0)
    assert configuration.budget("other") is None


def test_unnamed_agents_share_one_object(configuration: Configuration) -> None:
    assert configuration.extraction(OTHER) is configuration.extraction(Scope("hooli", "any"))
    assert configuration.extraction(SALES) is configuration.extraction(Scope("acme", "any"))
    assert configuration.extraction(SUPPORT) is configuration.extraction(Scope("acme", "support"))
    # A workspace without model settings has the defaults.
    assert configuration.extraction(Scope("initech", "any")) is configuration.extraction(OTHER)


@pytest.mark.parametrize(
    "text",
    [
        "defaults: {embedding: {model: fastembed/BAAI/bge-small-en-v1.5, dimension: 384}}",
        "defaults: {completion: {model: openai/x}}",
        "defaults: {summaries: {yearly: {model: openai/x}}}",
        "workspaces: {w: {extraction: {model: openai/x}}}",
        "workspaces: {w: {agents: {a: {summaries: {weekly: {model: openai/x}}}}}}",
    ],
)
def test_one_model_anywhere_counts_as_used(text: str) -> None:
    assert Configuration.parse(text, SOURCE).uses_models


def test_settings_without_a_model_count_as_unused() -> None:
    text = "defaults: {completion: {temperature: 1, model: deterministic}, embedding: {dimension: 512}}"
    assert not Configuration.parse(text, SOURCE).uses_models


def test_working_memory_has_no_summaries(configuration: Configuration) -> None:
    with pytest.raises(InputError, match="grain working has no summaries; accepted: daily, weekly"):
        configuration.summarization(SUPPORT, Grain.WORKING)


def test_a_configuration_cannot_be_changed(configuration: Configuration) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        configuration.max_concurrency = 1  # type: ignore[misc]


def test_a_description_is_json_and_refers_to_keys(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_KEY", "sk-value-of-the-key")
    described: Any = configuration.describe(SUPPORT)
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert (described["workspace_id"], described["agent_id"], described["source"]) == ("acme", "support", SOURCE)
    assert described["embedding"]["api_key"] == "env:ACME_KEY"
    assert described["extraction"]["api_key"] == "file:/run/secrets/claude"
    assert list(described["summaries"]) == ["daily", "weekly", "monthly", "quarterly", "yearly"]
    assert described["summaries"]["monthly"]["prompt"] == "Tell of {period} in {length} characters."
    assert described["graph"] == {
        "single_valued": ["favourite_colour", "owns", "speaks"],
        "multi_valued": ["drives"],
    }
    own = {name: described["injection"][name] for name in ("enabled", "max_results", "max_tokens", "rerank", "api_key")}
    assert own == {
        "enabled": False,
        "max_results": 8,
        "max_tokens": 500,
        "rerank": "model",
        "api_key": "env:SMALL_KEY",
    }
    assert described["budget"] == Budget(usd_per_month=20, tokens_per_month=1000, when_spent="wait").model_dump()
    assert described["retention"] == PLANS["standard"].describe()
    assert described["previews"] is False
    assert "sk-value" not in str(described)
    nobody: Any = Configuration.parse("", SOURCE).describe(SUPPORT)
    assert nobody["budget"] is None


def test_thousands_of_agents_are_parsed_once_and_looked_up_quickly() -> None:
    agents = "".join(f"      agent-{n}: {{extraction: {{known_facts: {n % 200}}}}}\n" for n in range(1_000))
    configuration = Configuration.parse(
        f"defaults: {{completion: {{model: openai/x}}}}\nworkspaces:\n  w:\n    agents:\n{agents}", SOURCE
    )
    scopes = [Scope("w", f"agent-{n}") for n in range(1_000)]
    started = time.perf_counter()
    assert [configuration.extraction(scope).known_facts for scope in scopes] == [n % 200 for n in range(1_000)]
    assert time.perf_counter() - started < 5


SECRET = "sk-or-v1-0123456789abcdef0123456789abcdef"
KEYS = st.sampled_from(
    "defaults workspaces acme agents support completion extraction summaries embedding budget daily montly model "
    "api_key api_base parameters price prompt dimension max_concurrency usd_per_month when_spent known_facts "
    "extra_headers input timeout_seconds answer_format apikey temperature length a/b x..y 2024-01-15 no "
    "graph single_valued multi_valued injection rerank cross_encoder entities max_tokens "
    "retention plan working conversations weekly previews".split()
)
SCALARS = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        float("nan"),
        10**17,
        "",
        "openai/x",
        "deterministic",
        "env:A",
        "{agent}",
        "{",
        "gpt-5",
        "30d",
        "2y",
    ]
    + [SECRET, f"Bearer {SECRET}", f"env:{SECRET}", f"https://u:{SECRET}@h", f"{{{SECRET}}}", f"openai {SECRET}"] * 2
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner), max_leaves=12)


def error_of(text: str) -> str:
    """Return the error for a text, or an empty text."""
    try:
        Configuration.parse(text, SOURCE)
    except ConfigurationError as error:
        return str(error)
    return ""


@settings(deadline=None)
@given(st.dictionaries(KEYS, VALUES, min_size=1), st.booleans())
def test_no_message_contains_an_api_key_from_any_place(tree: dict[str, object], flow: bool) -> None:
    for document in (tree, {"defaults": tree}, {"workspaces": {"acme": {**tree, "agents": {"support": tree}}}}):
        text = yaml.safe_dump(document, default_flow_style=flow)
        with_typo = text.replace("api_key: ", "api_key:")
        for variant in (
            text,
            with_typo,
            text.replace("'", ""),
            text.replace("}", "", 1),
            text.replace(": sk", ": *sk"),
        ):
            said = error_of(variant)
            assert "0123456789" not in said
            assert len(said.splitlines()) <= 21


@settings(deadline=None)
@given(st.text())
def test_any_text_is_accepted_or_refused_with_the_name_of_the_file(text: str) -> None:
    assert all(line.startswith(SOURCE) for line in error_of(text).splitlines())
