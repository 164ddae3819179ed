"""Settings of durable memories: inheritance and errors."""

from __future__ import annotations

import pytest

from memory_pipeline.configuration import Configuration, MemoriesSettings
from memory_pipeline.domain.memories.consolidation import ConsolidationSettings
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import ConfigurationError

A, B, OTHER = Scope("w", "a"), Scope("w", "b"), Scope("x", "a")
MODEL = "completion: {model: openai/m}"


def parsed(text: str) -> Configuration:
    return Configuration.parse(text, "file")


def refused(text: str) -> str:
    """Return the only line of the error."""
    with pytest.raises(ConfigurationError) as refusal:
        parsed(text)
    [line] = str(refusal.value).splitlines()
    return line


def test_by_default_all_kinds_are_allowed_and_rules_consolidate() -> None:
    settings = parsed("").memories(A)
    assert settings == MemoriesSettings()
    assert settings.kinds == frozenset(MemoryKind)
    assert (settings.consolidation, settings.selection, settings.imagining) == ("rules", "rules", "rules")
    assert settings.for_reading == ()
    assert settings.consolidation_settings == ConsolidationSettings(kinds=frozenset(MemoryKind))
    assert parsed("").curation(A).is_deterministic


def test_keys_are_inherited_one_by_one() -> None:
    configuration = parsed("""
defaults: {memories: {hot_entries: 30, hot_tokens: 500}}
workspaces:
  w:
    memories: {hot_entries: 10, kinds: [fact, rule]}
    agents:
      a: {memories: {point_in_time: true, kinds: null}}
""")
    a, b, other = (configuration.memories(scope) for scope in (A, B, OTHER))
    assert (a.hot_entries, a.hot_tokens, a.point_in_time, len(a.kinds)) == (10, 500, True, len(MemoryKind))
    assert (b.hot_entries, b.point_in_time, b.kinds) == (
        10,
        False,
        frozenset([MemoryKind.FACT, MemoryKind.RULE]),
    )
    assert (other.hot_entries, other.hot_tokens) == (30, 500)
    assert b.consolidation_settings == ConsolidationSettings(hot_entries=10, hot_tokens=500, kinds=b.kinds)


def test_the_description_lists_every_key_with_its_value() -> None:
    described = parsed("defaults: {memories: {kinds: [rule, fact]}}").describe(A)["memories"]
    assert described == {
        "kinds": ["fact", "rule"],
        "point_in_time": False,
        "decay": True,
        "hot_entries": 20,
        "hot_tokens": 3_000,
        "consolidation": "rules",
        "selection": "rules",
        "imagining": "rules",
    }


def test_consolidation_uses_the_model_of_completion() -> None:
    configuration = parsed(f"""
defaults: {{{MODEL}, memories: {{consolidation: model}}}}
workspaces:
  w:
    agents: {{a: {{completion: {{model: openai/other, temperature: 1}}}}, b: {{memories: {{consolidation: rules}}}}}}
""")
    assert (configuration.curation(A).model, configuration.curation(A).temperature) == ("openai/other", 1)
    assert configuration.curation(B).is_deterministic
    assert configuration.curation(OTHER).model == "openai/m"


def test_a_model_that_only_consolidates_counts_as_used() -> None:
    rules = "extraction: {model: deterministic}, summaries: {" + ", ".join(
        f"{grain}: {{model: deterministic}}" for grain in ("daily", "weekly", "monthly", "quarterly", "yearly")
    )
    assert not parsed(f"defaults: {{{MODEL}, {rules}}}}}").uses_models
    assert parsed(f"defaults: {{{MODEL}, {rules}}}, memories: {{consolidation: model}}}}").uses_models
    assert not parsed(f"defaults: {{{MODEL}, {rules}}}, memories: {{selection: model}}}}").uses_models


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "defaults: {memories: {consolidation: model}}",
            (
                "line 1: defaults.memories.consolidation: model is not accepted while the model of completion is "
                "deterministic; name a model in completion, or set consolidation: rules"
            ),
        ),
        (
            (
                f"defaults: {{{MODEL}, memories: {{consolidation: model}}}}\n"
                "workspaces: {w: {agents: {a: {completion: {model: deterministic}}}}}"
            ),
            (
                "line 2: workspaces.w.agents.a.memories.consolidation: model is not accepted while the model of "
                "completion is deterministic; name a model in completion, or set consolidation: rules"
            ),
        ),
        (
            "workspaces: {w: {memories: {selection: model}}}",
            (
                "line 1: workspaces.w.memories.selection: model is not accepted while the model of injection is "
                "deterministic; name a model in injection or completion, or set selection: rules"
            ),
        ),
        (
            f"defaults: {{{MODEL}, injection: {{model: deterministic}}, memories: {{imagining: model}}}}",
            (
                "line 1: defaults.memories.imagining: model is not accepted while the model of injection is "
                "deterministic; name a model in injection or completion, or set imagining: rules"
            ),
        ),
        (
            (
                f"defaults: {{{MODEL[:-1]}, context_tokens: 4500}}, memories: {{consolidation: model}}, "
                "extraction: {model: deterministic}, summaries: {daily: {model: deterministic}, weekly: {model: "
                "deterministic}, monthly: {model: deterministic}, quarterly: {model: deterministic}, yearly: {model: "
                "deterministic}}}"
            ),
            (
                "line 1: defaults.completion: context_tokens 4,500 is not accepted with max_output_tokens 4,000; "
                "expected 1,000 more than these"
            ),
        ),
        (
            "defaults: {memories: {kinds: [fact, opinion]}}",
            (
                "line 1: defaults.memories.kinds: 'opinion' is not accepted; expected a list of kinds, or null for "
                f"all of them: {', '.join(MemoryKind)}"
            ),
        ),
        (
            "defaults: {memories: {hot_entries: 501}}",
            "line 1: defaults.memories.hot_entries: 501 is not accepted; expected a whole number from 0 to 500",
        ),
        (
            "defaults: {memories: {hot_tokens: '9'}}",
            "line 1: defaults.memories.hot_tokens: '9' is not accepted; expected a whole number from 0 to 1,000,000",
        ),
        (
            "defaults: {memories: {consolidation: always}}",
            "line 1: defaults.memories.consolidation: 'always' is not accepted; expected rules or model",
        ),
        (
            "defaults: {memories: {point_in_time: 1}}",
            "line 1: defaults.memories.point_in_time: 1 is not accepted; expected true or false",
        ),
        (
            "defaults: {hot_entries: 3}",
            (
                "line 1: defaults.hot_entries: unknown key; accepted: completion, extraction, summaries, "
                "graph, injection, memories, per_user, timezone, language, capture, "
                "max_concurrency, embedding, budget, retention, secrets, previews, receipts, archive; "
                "set hot_entries in memories"
            ),
        ),
    ],
)
def test_an_error_names_its_place_and_the_accepted_values(text: str, said: str) -> None:
    assert refused(text) == f"file, {said}"


@pytest.mark.parametrize(
    ("kinds", "seen"),
    [
        ("[]", "an empty list"),
        ("fact", "'fact'"),
        ("3", "3"),
        ("[1]", "1"),
        ("[[fact]]", "a list"),
        ("[null]", "null"),
        ("{fact: 1}", "a mapping"),
        (f"[{'x' * 200}]", "a text of 200 characters"),
    ],
)
def test_kinds_are_a_list_of_kinds(kinds: str, seen: str) -> None:
    assert f"memories.kinds: {seen} is not accepted; expected a list of kinds" in refused(
        f"defaults: {{memories: {{kinds: {kinds}}}}}"
    )


def test_a_repeated_kind_counts_once() -> None:
    assert parsed("defaults: {memories: {kinds: [fact, fact]}}").memories(A).kinds == {MemoryKind.FACT}
