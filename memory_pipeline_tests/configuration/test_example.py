"""The example configuration: valid with and without its commented keys, and complete."""

from __future__ import annotations

import re

import pytest

from memory_pipeline.configuration import (
    EXAMPLE,
    EXTRACTION_PLACEHOLDERS,
    SUMMARY_PLACEHOLDERS,
    Budget,
    Configuration,
    Embedding,
    ExtractionSettings,
    Injection,
    Price,
    Summarization,
)
from memory_pipeline.configuration.model_settings import CrossEncoder
from memory_pipeline.configuration.sections import (
    ConfigurationDocument,
    DefaultsSection,
    GraphSettings,
    RetentionSection,
    Summaries,
    WorkspaceSection,
)
from memory_pipeline.domain.retention import PLANS, Duration
from memory_pipeline.domain.scopes import Scope

#: A key behind "#" without a space is switched off.
EVERYTHING = re.sub(r"#(?=\S)", "", EXAMPLE)


@pytest.mark.parametrize("text", [EXAMPLE, EVERYTHING])
def test_the_example_is_a_configuration(text: str) -> None:
    configuration = Configuration.parse(text, "example")
    assert configuration.uses_models
    assert configuration.extraction(Scope("acme", "support")).known_facts == 50
    assert configuration.extraction(Scope("acme", "2024-01-15")).is_deterministic
    assert configuration.embedding_key("acme") == "env:ACME_KEY"
    injection = configuration.injection(Scope("acme", "support"))
    assert (injection.for_model, injection.api_key) == (("rerank", "entities"), "env:ACME_KEY")
    assert configuration.injection(Scope("acme", "2024-01-15")).for_model == ()
    assert configuration.vocabulary(Scope("acme", "support")).multi == {"speaks", "works_for", "on_call"}
    assert configuration.vocabulary(Scope("other", "any")).single == {"on_call", "favourite_tool"}
    assert configuration.retention("acme").describe() == {**PLANS["free"].describe(), "daily": "35d"}
    assert (configuration.previews("acme"), configuration.previews("other")) == (False, True)


def test_the_example_expires_nothing_until_a_duration_is_uncommented() -> None:
    assert Configuration.parse(EXAMPLE, "example").retention("other") == PLANS["forever"]
    assert Configuration.parse(EVERYTHING, "example").retention("other").conversations == Duration.parse("90d")


def test_the_example_lists_every_plan() -> None:
    for name, retention in PLANS.items():
        assert re.search(rf"\b{name}\b", EXAMPLE)
        described = retention.describe()
        if name not in ("standard", "forever"):
            durations = [described[kept] for kept in ("facts", *Summaries.model_fields)]
            assert f"{name}: {' '.join(durations)}" in EXAMPLE
            assert described["conversations"] == described["preferences"] == described["facts"]
        assert described["graph"] == "forever"
    standard = PLANS["standard"].describe()
    assert f"conversations {standard['conversations']}, facts {standard['facts']}, all else forever" in EXAMPLE
    assert {standard[kept] for kept in standard if kept not in ("conversations", "facts")} == {"forever"}


def test_every_task_of_the_example_has_a_key() -> None:
    configuration = Configuration.parse(EXAMPLE, "example")
    for scope in (Scope("acme", "support"), Scope("other", "any")):
        described = configuration.describe(scope)
        assert str(described).count("'api_key': 'env:") == 9


@pytest.mark.parametrize(
    "record",
    [
        ConfigurationDocument,
        DefaultsSection,
        WorkspaceSection,
        Embedding,
        ExtractionSettings,
        Summarization,
        Price,
        Budget,
        GraphSettings,
        Injection,
        CrossEncoder,
        RetentionSection,
    ],
)
def test_the_example_has_every_key(record: type[ConfigurationDocument]) -> None:
    for name in record.model_fields:
        assert re.search(rf"\b{name}:", EVERYTHING), name


def test_the_example_names_every_grain_and_placeholder() -> None:
    assert all(name in EXAMPLE for name in Summaries.model_fields)
    assert " ".join(f"{{{name}}}" for name in EXTRACTION_PLACEHOLDERS) in EXAMPLE
    assert " ".join(f"{{{name}}}" for name in SUMMARY_PLACEHOLDERS) in EXAMPLE


def test_the_example_fits_a_terminal() -> None:
    assert max(map(len, EXAMPLE.splitlines())) <= 120
    assert EXAMPLE.isascii()
