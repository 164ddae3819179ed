"""Inheritance of settings; an API key is only sent to its own provider and address."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.configuration.resolution import ABOUT_A_MODEL, Inherited
from memory_pipeline.configuration.sections import Level
from memory_pipeline.domain.graph.operations import snake_case
from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain


def resolved(*levels: dict[str, Any]) -> Inherited:
    """Resolve levels, each as in the file."""
    inherited = Inherited()
    for level in levels:
        inherited = inherited.at(Level.model_validate(level))
    return inherited


def extraction(*levels: dict[str, Any]) -> dict[str, object]:
    return dict(resolved(*levels).extraction)


A = {"model": "anthropic/a", "api_key": "env:A_KEY"}
B = {"model": "openai/b", "api_key": "env:B_KEY"}


def test_empty_levels_inherit_nothing() -> None:
    assert extraction() == extraction({}) == {}


def test_completion_applies_to_every_task() -> None:
    inherited = resolved({"completion": A})
    assert inherited.extraction == A
    assert set(inherited.summaries) == set(SUMMARY_GRAINS)
    assert all(keys == A for keys in inherited.summaries.values())


def test_injection_is_a_task_too() -> None:
    inherited = resolved(
        {"completion": {**A, "attempts": 4}, "injection": {"attempts": 1, "max_results": 3}},
        {"completion": {"api_key": "env:ACME", "temperature": 1.0}, "injection": {"rerank": "model"}},
    )
    assert inherited.injection == {
        "model": "anthropic/a",
        "api_key": "env:ACME",
        "attempts": 1,
        "temperature": 1.0,
        "max_results": 3,
        "rerank": "model",
    }
    assert "rerank" not in inherited.extraction


def test_injection_with_its_own_model_inherits_no_key_of_another_provider() -> None:
    inherited = resolved({"completion": {**A, **ABOUT}, "injection": {"model": "openai/b"}}, {"completion": A})
    assert resolved({"completion": {**A, **ABOUT}, "injection": {"model": "openai/b"}}).injection == {
        "model": "openai/b"
    }
    assert inherited.injection == A  # replaced by a later completion with a model


def test_injection_keeps_its_other_keys_when_its_model_is_replaced() -> None:
    levels = ({"injection": {**B, "rerank": "model", "enabled": False}}, {"injection": {"model": "deterministic"}})
    assert resolved(*levels).injection == {"model": "deterministic", "rerank": "model", "enabled": False}


def test_predicates_are_inherited_one_by_one() -> None:
    levels: list[dict[str, Any]] = [
        {"graph": {"single_valued": ["lives_in", "drives"], "multi_valued": ["speaks"]}},
        {"graph": {"single_valued": ["speaks"]}},
        {"graph": {"multi_valued": ["Lives In", "plays"]}},
    ]
    assert resolved(*levels[:2]).vocabulary == Vocabulary(frozenset({"lives_in", "drives", "speaks"}))
    assert resolved(*levels).vocabulary == Vocabulary(frozenset({"drives", "speaks"}), frozenset({"lives_in", "plays"}))


@pytest.mark.parametrize("graph", [{}, None, {"single_valued": None}, {"single_valued": [], "multi_valued": []}])
def test_a_level_without_predicates_inherits_them(graph: object) -> None:
    first = {"graph": {"single_valued": ["drives"]}}
    assert resolved(first, {"graph": graph}).vocabulary == Vocabulary(frozenset({"drives"}))
    assert resolved(first, {}).vocabulary == Vocabulary(frozenset({"drives"}))


PREDICATES = st.lists(st.sampled_from(["drives", "Drives", "lives_in", "livesIn", "speaks", "x"]), max_size=4)
GRAPHS = st.lists(st.tuples(PREDICATES, PREDICATES), max_size=4)


@given(GRAPHS)
def test_the_lowest_level_that_declares_a_predicate_wins(graphs: list[tuple[list[str], list[str]]]) -> None:
    wanted: dict[str, bool] = {}
    levels = []
    for single, multi in graphs:
        many = [name for name in multi if snake_case(name) not in map(snake_case, single)]
        levels.append({"graph": {"single_valued": single, "multi_valued": many}})
        for name in (*single, *many):
            wanted[snake_case(name)] = name in single
    assert resolved(*levels).vocabulary == Vocabulary(
        frozenset(name for name, is_single in wanted.items() if is_single),
        frozenset(name for name, is_single in wanted.items() if not is_single),
    )


def test_a_task_overrides_completion_and_no_other_task() -> None:
    inherited = resolved({"completion": {**A, "attempts": 2}, "summaries": {"monthly": {"attempts": 3, "length": 900}}})
    assert inherited.summaries[Grain.MONTHLY] == {**A, "attempts": 3, "length": 900}
    assert inherited.summaries[Grain.WEEKLY] == inherited.extraction == {**A, "attempts": 2}


def test_completion_of_a_later_level_overrides_a_task_of_an_earlier_one() -> None:
    assert extraction({"extraction": {"attempts": 2, "prompt": "x"}}, {"completion": {"attempts": 3}}) == {
        "attempts": 3,
        "prompt": "x",
    }
    keys = extraction({"completion": {"attempts": 1}}, {"completion": {"attempts": 2}}, {"extraction": {"attempts": 3}})
    assert keys == {"attempts": 3}


def test_null_overrides_an_inherited_value() -> None:
    assert extraction({"completion": A}, {"completion": {"api_key": None}}) == {**A, "api_key": None}


def test_parameters_and_price_are_replaced_as_a_whole() -> None:
    keys = extraction({"completion": {**A, "parameters": {"x": 1}}}, {"extraction": {"parameters": {"y": 2}}})
    assert keys["parameters"] == {"y": 2}


ABOUT = {
    "api_base": "https://a.example.com",
    "price": {"input": 1},
    "parameters": {"x": 1},
    "context_tokens": 9_000,
    "max_output_tokens": 900,
    "answer_format": "text",
}
OTHER = {"temperature": 1.0, "timeout_seconds": 9.0, "attempts": 9, "backoff_seconds": 9.0}


@pytest.mark.parametrize("place", ["extraction", "completion"])
@pytest.mark.parametrize("levels", [1, 2])
def test_another_model_inherits_no_setting_of_the_previous_one(place: str, levels: int) -> None:
    first = {"completion": {**A, **ABOUT, **OTHER}}
    if levels == 2:
        assert extraction(first, {place: {"model": "openai/b"}}) == {"model": "openai/b", **OTHER}
    elif place == "extraction":
        assert extraction({**first, place: {"model": "openai/b"}}) == {"model": "openai/b", **OTHER}
    assert set(ABOUT) | {"api_key"} == set(ABOUT_A_MODEL)


def test_another_model_of_the_same_provider_inherits_no_setting_either() -> None:
    """The previous model may have its own address. Its key must not go to another one."""
    vllm = {"model": "openai/llama", "api_base": "http://vllm", "api_key": "env:VLLM"}
    assert extraction({"completion": vllm}, {"completion": B}) == B
    assert extraction({"completion": vllm}, {"completion": {"model": "openai/gpt"}}) == {"model": "openai/gpt"}


def test_a_repeated_model_inherits_nothing() -> None:
    """A workspace that sets model and key must not send the key to the address of the defaults."""
    assert extraction({"completion": {**B, **ABOUT}}, {"completion": B}) == B


def test_another_address_does_not_inherit_the_key() -> None:
    assert extraction({"completion": B}, {"completion": {"api_base": "https://proxy"}}) == {
        "model": "openai/b",
        "api_base": "https://proxy",
    }
    there = {**B, "api_base": "https://proxy"}
    assert extraction({"completion": there}, {"completion": {"api_base": None}}) == {
        "model": "openai/b",
        "api_base": None,
    }
    assert extraction({"completion": there}, {"completion": {"api_base": "https://proxy"}}) == there


def test_a_workspaces_key_serves_all_models_of_its_provider() -> None:
    defaults = {"completion": B, "extraction": {"model": "openai/c", "api_key": "env:B_KEY"}}
    assert extraction(defaults, {"completion": {"api_key": "env:ACME"}}) == {"model": "openai/c", "api_key": "env:ACME"}


def test_a_workspaces_key_does_not_serve_another_provider() -> None:
    assert extraction({"completion": B, "extraction": A}, {"completion": {"api_key": "env:ACME", "attempts": 2}}) == {
        **A,
        "attempts": 2,
    }


@pytest.mark.parametrize(
    ("defaults", "workspace"),
    [
        ({"api_base": "https://proxy", **B}, {}),
        ({}, {"api_base": "https://proxy"}),
    ],
)
def test_a_workspaces_key_does_not_serve_another_address(defaults: dict[str, Any], workspace: dict[str, Any]) -> None:
    task = {"model": "openai/c", "api_key": "env:C"}
    levels = (
        {"completion": {**B, **defaults}, "extraction": task},
        {"completion": {"api_key": "env:ACME", **workspace}},
    )
    assert extraction(*levels) == task


def test_completion_of_a_later_level_does_not_change_a_task_with_another_model() -> None:
    levels = ({"completion": B, "extraction": A}, {"completion": {"context_tokens": 9_000, "parameters": {"x": 1}}})
    assert extraction(*levels) == A
    assert resolved(*levels).summaries[Grain.DAILY] == {**B, "context_tokens": 9_000, "parameters": {"x": 1}}


@pytest.mark.parametrize("named", [A, B, {"model": "openai/b"}, {"model": "openai/d", "api_key": "env:D"}])
def test_completion_of_a_later_level_with_a_model_replaces_a_tasks_own_model(named: dict[str, Any]) -> None:
    defaults = {"completion": B, "extraction": {**A, **ABOUT, "prompt": "x", "attempts": 7}}
    assert extraction(defaults, {"completion": named}) == {**named, "prompt": "x", "attempts": 7}


def test_a_workspace_may_be_deterministic() -> None:
    defaults = {"completion": {**A, **ABOUT}, "summaries": {"yearly": B}}
    inherited = resolved(defaults, {"completion": {"model": "deterministic"}})
    assert inherited.extraction == {"model": "deterministic"}
    assert inherited.summaries[Grain.YEARLY] == {"model": "deterministic"}


PROVIDERS = ("openai", "anthropic", "ollama")
NAMED = st.builds(
    lambda provider, name, server: {
        "model": f"{provider}/{name}",
        "api_key": f"env:{provider}_{server or 'own'}",
        **({"api_base": f"https://{server}"} if server else {}),
    },
    st.sampled_from(PROVIDERS),
    st.sampled_from("mn"),
    st.sampled_from([None, "proxy"]),
)
KEYLESS = st.builds(lambda provider, name: {"model": f"{provider}/{name}"}, st.sampled_from(PROVIDERS), st.just("m"))
SECTION: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}), NAMED, KEYLESS, st.just({"api_key": "env:filled_in"}), st.just({"attempts": 2})
)


@settings(deadline=None)
@given(st.lists(st.tuples(SECTION, SECTION), min_size=1, max_size=3))
def test_a_key_is_only_sent_to_its_provider_and_address(levels: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    inherited = Inherited()
    for completion, own in levels:
        # A key without a model belongs to the inherited model.
        named = dict(completion)
        if completion == {"api_key": "env:filled_in"}:
            named["api_key"] = _account(inherited.completion)
        before = inherited.at(Level.model_validate({"completion": named}))
        owned = dict(own)
        if own == {"api_key": "env:filled_in"}:
            owned["api_key"] = _account(before.extraction)
        inherited = inherited.at(Level.model_validate({"completion": named, "extraction": owned, "injection": owned}))
    assert inherited.injection == inherited.extraction
    for keys in (inherited.completion, inherited.extraction, *inherited.summaries.values()):
        assert keys.get("api_key") in (None, _account(keys))


def _account(keys: Any) -> str:
    """Return a name for the key of a model's provider and address."""
    provider = keys.get("model", "deterministic").split("/")[0]
    return f"env:{provider}_{(keys.get('api_base') or 'https://own').removeprefix('https://')}"
