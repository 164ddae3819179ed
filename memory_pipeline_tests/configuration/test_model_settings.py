"""Settings of models: accepted values; no error shows a possible API key."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from memory_pipeline.configuration.model_settings import (
    EXTRACTION_PLACEHOLDERS,
    SUMMARY_PLACEHOLDERS,
    Budget,
    Completion,
    Embedding,
    Endpoint,
    ExtractionSettings,
    Price,
    Record,
    Summarization,
)

SECRET = "sk-or-v1-0123456789abcdef0123456789abcdef"


def refused(record: type[Record], **keys: Any) -> str:
    """Return the error of invalid keys."""
    with pytest.raises(ValidationError) as refusal:
        record.model_validate(keys)
    assert SECRET not in str(refusal.value)
    assert SECRET not in repr(refusal.value)
    return str(refusal.value)


def test_without_keys_nothing_calls_a_model() -> None:
    for record in (Endpoint, Completion, ExtractionSettings, Summarization, Embedding):
        assert record().is_deterministic
        assert not record.model_fields["model"].is_required()


@pytest.mark.parametrize(
    "model",
    [
        "deterministic",
        "openai/gpt-5-mini",
        "openrouter/thenlper/gte-base",
        "ollama/llama3.1:8b",
        "azure/my_deployment",
        "text-completion-openai/davinci",
        "bedrock/arn:aws:bedrock:us-east-1:1:inference-profile/x",
        "huggingface/org/name@revision",
    ],
)
def test_a_model_has_a_provider(model: str) -> None:
    endpoint = Endpoint(model=model)
    assert endpoint.is_deterministic == (model == "deterministic")
    assert endpoint.provider == model.partition("/")[0]


@pytest.mark.parametrize(
    "model",
    [
        "",
        "gpt-5-mini",
        "Deterministic",
        "openai/",
        "/gpt",
        "openai/gpt 5",
        "openai/gpt\n",
        " openai/gpt",
        "https://host/model",
        "openai/gpt-é",
        pytest.param("openai/" + "x" * 10**6, id="1 MB"),
    ],
)
def test_a_model_without_a_provider_is_rejected(model: str) -> None:
    message = refused(Endpoint, model=model)
    assert "expected deterministic, or provider/name as LiteLLM has it" in message
    assert len(message) < 300


def test_local_models_only_embed() -> None:
    assert Embedding(model="fastembed/BAAI/bge-small-en-v1.5", dimension=384).is_local
    assert not Embedding(model="openai/text-embedding-3-small", dimension=384).is_local
    for record in (Completion, ExtractionSettings, Summarization):
        assert "fastembed only embeds and cannot generate text" in refused(record, model="fastembed/BAAI/x")


@pytest.mark.parametrize("reference", ["env:OPENAI_API_KEY", "env:_k1", "file:/run/secrets/key", "file:/a b/ü"])
def test_a_key_is_a_reference(reference: str) -> None:
    assert Endpoint(api_key=reference).api_key == reference
    assert Endpoint(api_key=None).api_key is None


@pytest.mark.parametrize(
    "reference",
    [
        SECRET,
        f"env:{SECRET}",
        f"Bearer {SECRET}",
        f"file:{SECRET}",
        f"env: {SECRET}",
        f"{SECRET}\n",
        "",
        "env:",
        "env:1A",
        "env:A B",
        "ENV:A",
        "file:",
        "file:relative",
        "file:~/key",
        "file:/a\nb",
    ],
)
def test_a_key_itself_is_refused_and_not_shown(reference: str) -> None:
    message = refused(Endpoint, api_key=reference)
    assert f"a value of {len(reference)} characters is not accepted; expected env:NAME" in message
    assert "sk-" not in message


@pytest.mark.parametrize(
    "address", ["http://localhost:11434", "https://models.example.com/v1/", "http://[::1]:8080/v1", "https://10.0.0.1"]
)
def test_an_address_is_http(address: str) -> None:
    assert Endpoint(api_base=address).api_base == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost:11434",
        "ftp://host/",
        "file:///etc/passwd",
        "https://",
        "https:///v1",
        f"https://user:{SECRET}@host/v1",
        f"https://{SECRET}@host",
        f"https://host/v1?api-key={SECRET}",
        f"https://host/#{SECRET}",
        f"https://host\\@{SECRET}",
        "https://host /v1",
        "https://host\n",
        "https://ho\tst",
        "https://[::1",
        "https://host:99999",
        "https://host:port",
        "https://host:0",
        "https://hóst",
        "https://host/" + "x" * 3000,
    ],
)
def test_an_invalid_address_is_rejected_and_not_shown(address: str) -> None:
    message = refused(Endpoint, api_base=address)
    assert "expected an address such as https://models.example.com/v1" in message
    assert len(address) < 9 or address not in message


@pytest.mark.parametrize(
    "parameters",
    [
        {"reasoning_effort": "low", "api_version": "2024-06-01", "seed": 1, "top_p": 0.5, "logprobs": None},
        {"thinking": {"type": "enabled", "budget_tokens": 1000}, "stop": ["a", "b"]},
        {"extra_headers": {"X-Title": "memory", "HTTP-Referer": "x"}, "prompt_cache_key": "memory"},
        {"extra_body": {"provider": {"order": ["a"], "allow_fallbacks": False}}},
    ],
)
def test_parameters_are_unchanged(parameters: dict[str, Any]) -> None:
    assert Completion(parameters=parameters).parameters == parameters


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apikey",
        "apiKey",
        "api-key",
        "API_KEY",
        "x-api-key",
        "Ocp-Apim-Subscription-Key",
        "api_base",
        "base_url",
        "azure_endpoint",
        "authorization",
        "Authorization",
        "Proxy-Authorization",
        "secret",
        "client_secret",
        "aws_secret_access_key",
        "aws_access_key_id",
        "aws_session_token",
        "azure_ad_token",
        "accesstoken",
        "token",
        "password",
        "vertex_credentials",
        "Cookie",
    ],
)
def test_no_key_hides_in_parameters(name: str) -> None:
    for parameters in (
        {name: SECRET},
        {name: {"x": SECRET}},
        {"extra_headers": {name: SECRET}},
        {"fallbacks": [{"model": "openai/x", name: SECRET}]},
    ):
        message = refused(Completion, parameters=parameters)
        assert f"{name} is not accepted here; set a key in api_key" in message


@pytest.mark.parametrize(
    ("name", "own"),
    [("temperature", "temperature"), ("max_tokens", "max_output_tokens"), ("timeout", "timeout_seconds")],
)
def test_parameters_that_another_key_sets_are_rejected(name: str, own: str) -> None:
    assert f"{name} is not accepted here; set {own}" in refused(Completion, parameters={name: 1})


@pytest.mark.parametrize("value", [math.nan, math.inf, date(2024, 1, 1), b"x", {1}, object()])
def test_parameters_can_be_written_as_json(value: object) -> None:
    assert "x.y is" in refused(Completion, parameters={"x": {"y": [value]}})


@pytest.mark.parametrize(
    ("record", "keys"),
    [
        (Endpoint, {"timeout_seconds": True}),
        (Endpoint, {"timeout_seconds": "60"}),
        (Endpoint, {"timeout_seconds": math.nan}),
        (Endpoint, {"timeout_seconds": 0}),
        (Endpoint, {"attempts": True}),
        (Endpoint, {"attempts": 2.0}),
        (Endpoint, {"attempts": 0}),
        (Endpoint, {"price": {"input": -1}}),
        (Endpoint, {"price": {"input": math.inf}}),
        (Endpoint, {"price": {}}),
        (Endpoint, {"unknown": 1}),
        (Completion, {"temperature": 2.1}),
        (Completion, {"answer_format": "xml"}),
        (ExtractionSettings, {"known_facts": 201}),
        (ExtractionSettings, {"length": 300}),
        (Summarization, {"length": 199}),
        (Summarization, {"known_facts": 1}),
        (Embedding, {"dimension": 7}),
        (Budget, {"usd_per_month": -1}),
        (Budget, {"usd_per_month": False}),
        (Budget, {"tokens_per_month": 1.5}),
        (Budget, {"when_spent": "stop"}),
    ],
)
def test_wrong_types_and_ranges_are_refused(record: type[Record], keys: dict[str, Any]) -> None:
    refused(record, **keys)


def test_whole_numbers_are_accepted_and_null_means_the_default() -> None:
    completion = Completion(timeout_seconds=60, temperature=None, price=Price(input=1))
    assert (completion.timeout_seconds, completion.temperature, completion.price) == (60.0, None, Price(input=1.0))


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Completion().model = "openai/x"


@pytest.mark.parametrize("prompt", ["Remember.", "{agent}: {first_day} to {last_day}", '{{"facts": []}}', "x" * 20_000])
def test_a_prompt_may_hold_placeholders(prompt: str) -> None:
    values = dict.fromkeys(SUMMARY_PLACEHOLDERS, "…")
    for record in (ExtractionSettings, Summarization, Completion):
        assert record(prompt=prompt).prompt == prompt
        assert prompt.format_map(values)


def test_each_task_has_its_placeholders() -> None:
    every = " ".join(f"{{{name}}}" for name in SUMMARY_PLACEHOLDERS)
    assert Summarization(prompt=every).prompt == every
    for name in set(SUMMARY_PLACEHOLDERS) - set(EXTRACTION_PLACEHOLDERS):
        message = refused(ExtractionSettings, prompt=f"{{{name}}}")
        assert f"'{name}' in braces is not a placeholder" in message
        assert "accepted: {first_day}, {last_day}, {agent};" in message


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        " \n\t",
        "x" * 20_001,
        "{",
        "}",
        "a { b",
        "{}",
        "{0}",
        "{name}",
        "{ agent }",
        '{"facts": []}',
        "{agent!r}",
        "{agent:>10}",
        "{agent.__class__}",
        "{agent[0]}",
        "{agent:{agent}}",
        "{{agent}",
        "a\x00b",
        "a\ud800",
        f"{{{SECRET}}}",
    ],
)
def test_a_prompt_with_invalid_placeholders_is_rejected(prompt: str) -> None:
    message = refused(Summarization, prompt=prompt)
    assert "accepted" in message or "expected" in message
    assert len(message) < 500


@settings(deadline=None)
@given(st.lists(st.sampled_from([*"{}!:.[] x", "{agent}", "{period}", "{{", "}}", "{first_day}"])).map("".join))
def test_accepted_prompts_can_be_formatted(prompt: str) -> None:
    for record, names in ((ExtractionSettings, EXTRACTION_PLACEHOLDERS), (Summarization, SUMMARY_PLACEHOLDERS)):
        try:
            record(prompt=prompt)
        except ValidationError:
            continue
        prompt.format_map(dict.fromkeys(names, "…"))
