"""Errors in the configuration: all at once, each with the file, the line, the key, the value and the remedy."""

from __future__ import annotations

import pytest

from memory_pipeline.configuration import Configuration
from memory_pipeline.errors import ConfigurationError

SOURCE = "lake/config/workspaces.yaml"
DURATION = "a whole number of h, d, w, mo, q, y, such as 48h, 30d or 6mo, at most a century; or forever"
KEPT = f"{DURATION}; or archive, alone or after a duration, such as 30d archive"


def refused(text: str) -> list[str]:
    """Return the lines of the error, without the address of the file."""
    with pytest.raises(ConfigurationError) as refusal:
        Configuration.parse(text, SOURCE)
    assert refusal.value.__context__ is None or refusal.value.__suppress_context__
    lines = str(refusal.value).splitlines()
    assert all(line.startswith(SOURCE) and line.isprintable() for line in lines)
    return [line.removeprefix(SOURCE).removeprefix(", ").removeprefix(": ") for line in lines]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "an empty list is not accepted; expected a mapping of defaults, workspaces"),
        ("default: {}", "line 1: default: unknown key; accepted: defaults, workspaces; did you mean defaults?"),
        ("workspaces: []", "line 1: workspaces: an empty list is not accepted; expected a mapping of ids to sections"),
        (
            "workspaces:\n  acme:\n    summaries:\n      montly: {}",
            (
                "line 4: workspaces.acme.summaries.montly: unknown key; "
                "accepted: daily, weekly, monthly, quarterly, yearly; did you mean monthly?"
            ),
        ),
        (
            "defaults: {summaries: {working: {}}}",
            (
                "line 1: defaults.summaries.working: unknown key; "
                "accepted: daily, weekly, monthly, quarterly, yearly; "
                "set the model of working memory in extraction, and its retention in retention"
            ),
        ),
        (
            "workspaces: {acme: {embedding: {model: openai/x}}}",
            (
                "line 1: workspaces.acme.embedding.model: unknown key; accepted: api_key; "
                "set all other keys of the embedder once for the lake, in defaults.embedding"
            ),
        ),
        (
            "workspaces: {acme: {agents: {support: {budget: {usd_per_month: 1}}}}}",
            (
                "line 1: workspaces.acme.agents.support.budget: unknown key; "
                "accepted: completion, extraction, summaries, graph, injection, memories, per_user, timezone, "
                "language, capture; "
                "set budget in a workspace, or in defaults for all of them"
            ),
        ),
        (
            "defaults: {capture: [{mode: none}, {tag: x}]}",
            "line 1: defaults.capture.mode: missing; expected full or read or none",
        ),
        (
            "workspaces: {acme: {capture: {mode: none}}}",
            (
                "line 1: workspaces.acme.capture: a mapping is not accepted; "
                "expected a list of up to 1,000 rules such as {source: cron:*, mode: none}"
            ),
        ),
        (
            "defaults: {capture: [{mode: none, source: ''}]}",
            (
                "line 1: defaults.capture.source: '' is not accepted; "
                "expected a pattern of 1 to 256 characters, such as cron:*"
            ),
        ),
        (
            "defaults: {capture: [{mode: none, tags: x}]}",
            (
                "line 1: defaults.capture.tags: unknown key; accepted: mode, agent, conversation, tag, source; "
                "did you mean tag?"
            ),
        ),
        (
            "defaults: {max_concurrency: 257}",
            "line 1: defaults.max_concurrency: 257 is not accepted; expected a whole number from 1 to 256",
        ),
        (
            "defaults: {completion: {temperature: .nan}}",
            "line 1: defaults.completion.temperature: nan is not accepted; expected a number from 0 to 2 or null",
        ),
        (
            "defaults: {completion: {timeout_seconds: 0}}",
            (
                "line 1: defaults.completion.timeout_seconds: 0 is not accepted; "
                "expected a number greater than 0, at most 3,600"
            ),
        ),
        (
            "defaults: {completion: {context_tokens: 32k}}",
            (
                "line 1: defaults.completion.context_tokens: '32k' is not accepted; "
                "expected a whole number of at least 2,000"
            ),
        ),
        (
            "defaults: {completion: {answer_format: xml}}",
            (
                "line 1: defaults.completion.answer_format: 'xml' is not accepted; "
                "expected json_schema or json_object or text"
            ),
        ),
        (
            "defaults: {completion: {model: gpt-5-mini}}",
            (
                "line 1: defaults.completion.model: 'gpt-5-mini' is not accepted; "
                "expected deterministic, or provider/name as LiteLLM has it, such as openai/gpt-5-mini"
            ),
        ),
        (
            "defaults: {completion: {model: off}}",
            (
                "line 1: defaults.completion.model: false is not accepted; expected deterministic, or provider/name as "
                "LiteLLM has it, such as openai/gpt-5-mini; quote it to make it a text"
            ),
        ),
        (
            "defaults: {completion: {price: {output: 1}}}",
            "line 1: defaults.completion.price.input: missing; expected a number of at least 0",
        ),
        (
            "defaults: {budget: 3}",
            (
                "line 1: defaults.budget: 3 is not accepted; "
                "expected a mapping with keys of usd_per_month, tokens_per_month, usd_per_user, "
                "tokens_per_user, when_spent"
            ),
        ),
        (
            "defaults: {extraction: {prompt: ' '}}",
            "line 1: defaults.extraction.prompt: a blank text is not accepted; expected 1 to 20,000 characters",
        ),
        (
            "defaults:\n  graph:\n    single_valued: lives_in",
            (
                "line 3: defaults.graph.single_valued: 'lives_in' is not accepted; expected a list of predicates such "
                "as [lives_in, speaks], each of 1 to 300 characters"
            ),
        ),
        (
            "defaults:\n  graph:\n    multi_valued:\n      - speaks\n      - 5",
            (
                "line 3: defaults.graph.multi_valued: 5 is not accepted; expected a list of predicates such as "
                "[lives_in, speaks], each of 1 to 300 characters; quote it to make it a text"
            ),
        ),
        (
            "workspaces:\n  acme:\n    graph:\n      single_valued: [lives_in, ' _-']",
            (
                "line 4: workspaces.acme.graph.single_valued: a text without letters and digits is not accepted; "
                "expected a list of predicates such as [lives_in, speaks], each of 1 to 300 characters"
            ),
        ),
        (
            f"defaults: {{graph: {{multi_valued: [{'x' * 301}]}}}}",
            (
                "line 1: defaults.graph.multi_valued: a text of 301 characters is not accepted; "
                "expected a list of predicates such as [lives_in, speaks], each of 1 to 300 characters"
            ),
        ),
        (
            "workspaces:\n  a:\n    graph:\n      multi_valued: [Lives In, speaks]\n      single_valued: [livesIn]",
            (
                "line 4: workspaces.a.graph.multi_valued: 'lives_in' is also in single_valued; "
                "expected each predicate in one of the two lists: it holds one value at a time, or many"
            ),
        ),
        (
            "defaults: {single_valued: [x]}",
            (
                "line 1: defaults.single_valued: unknown key; accepted: completion, extraction, summaries, "
                "graph, injection, memories, per_user, timezone, language, capture, "
                "max_concurrency, embedding, budget, retention, secrets, previews, receipts, archive; "
                "set single_valued in graph"
            ),
        ),
        (
            "defaults: {injection: {max_results: 51}}",
            "line 1: defaults.injection.max_results: 51 is not accepted; expected a whole number from 1 to 50",
        ),
        (
            "defaults: {injection: {max_tokens: 49}}",
            "line 1: defaults.injection.max_tokens: 49 is not accepted; expected a whole number from 50 to 1,000,000",
        ),
        (
            "workspaces:\n  a:\n    injection:\n      rerank: openai/gpt-5-mini",
            (
                "line 4: workspaces.a.injection.rerank: 'openai/gpt-5-mini' is not accepted; "
                "expected none or deterministic or model or cross_encoder"
            ),
        ),
        (
            "defaults:\n  retention:\n    facts: 3 fortnights",
            f"line 3: defaults.retention.facts: '3 fortnights' is not accepted; expected {KEPT}",
        ),
        (
            "workspaces:\n  acme:\n    retention:\n      plan: gold",
            (
                "line 4: workspaces.acme.retention.plan: 'gold' is not accepted; "
                "expected free or starter or pro or standard or forever"
            ),
        ),
        (
            "defaults: {retention: 30d}",
            (
                "line 1: defaults.retention: a value of 3 characters is not accepted; expected a mapping with keys of "
                "plan, working, conversations, facts, preferences, daily, weekly, monthly, quarterly, yearly, graph"
            ),
        ),
        (
            "workspaces:\n  acme:\n    agents:\n      2024-01-15: {}",
            "line 4: workspaces.acme.agents: YAML reads the key '2024-01-15' as a date; quote it",
        ),
        (
            "workspaces: {no: {}}",
            "line 1: workspaces: YAML reads the key 'no' as true or false; quote it",
        ),
        (
            "workspaces: {a.b: {budgets: {}}}",
            (
                "line 1: workspaces.'a.b'.budgets: unknown key; accepted: completion, extraction, summaries, graph, "
                "injection, memories, per_user, timezone, language, capture, "
                "embedding, budget, retention, secrets, previews, receipts, agents; did you mean budget?"
            ),
        ),
        (
            "'[key]': {}",
            "line 1: unknown key of 5 characters; accepted: defaults, workspaces",
        ),
        (
            "defaults:\n  completion: {model: a/b}\n  completion: {model: c/d}",
            "line 3: defaults: duplicate key 'completion', first in line 2",
        ),
    ],
)
def test_an_error_names_its_place_and_the_accepted_values(text: str, said: str) -> None:
    assert refused(text) == [said]


def test_invalid_ids_are_rejected() -> None:
    blank, control = (
        f"is not valid; {reason}"
        for reason in (
            "expected a text of 1 to 256 characters",
            "control characters and broken Unicode are not accepted",
        )
    )
    assert refused('workspaces:\n  " ": {}\n  acme:\n    agents: {"x\\ny": {}, "": {}, "agent:main": {}}') == [
        f"line 2: workspaces: workspace_id ' ' {blank}",
        rf"line 4: workspaces.acme.agents: agent_id 'x\ny' {control}",
        f"line 4: workspaces.acme.agents: agent_id '' {blank}",
    ]


def test_all_errors_are_listed_in_the_order_of_the_file() -> None:
    text = (
        "workspaces:\n  a:\n    budget: {usd_per_month: -1, stop: 1}\n  b: 3\n  b: 4\ndefaults:\n  max_concurrency: 0\n"
    )
    assert [line.split(": ")[0] for line in refused(text)] == ["line 3", "line 3", "line 4", "line 5", "line 7"]


def test_at_most_twenty_errors_are_listed() -> None:
    lines = refused("workspaces:\n" + "".join(f"  w{n}: {n}\n" for n in range(1_000)))
    assert len(lines) == 21
    assert lines[0].startswith("line 2: workspaces.w0: 0 is not accepted")
    assert lines[-1] == "and 980 more"


SECRET = "sk-or-v1-0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "text",
    [
        f"defaults: {{completion: {{api_key: {SECRET}}}}}",
        f"defaults: {{completion: {{api_key: [{SECRET}]}}}}",
        f"defaults: {{completion: {{api_key: {{{SECRET}: {SECRET}}}}}}}",
        f"defaults: {{completion: {{api_key:{SECRET}}}}}",
        f"defaults: {{completion: {{apikey: {SECRET}}}}}",
        f"defaults: {{completion: {SECRET}}}",
        f"defaults: {{completion: {{api_base: 'https://{SECRET}@host'}}}}",
        f"defaults: {{completion: {{model: {SECRET}}}}}",
        f"defaults: {{completion: {{model: openai/x {SECRET}}}}}",
        f"defaults: {{completion: {{parameters: {SECRET}}}}}",
        f"defaults: {{completion: {{parameters: {{api_key: {SECRET}}}}}}}",
        f"defaults: {{completion: {{parameters: {{extra_headers: {{x: 1, authorization: {SECRET}}}}}}}}}",
        f"defaults: {{completion: {{parameters: {{token: {SECRET}, {SECRET}: 1}}}}}}",
        f"defaults: {{completion: {{price: {SECRET}}}}}",
        f"defaults: {{completion: {{attempts: {SECRET}}}}}",
        f"defaults: {{completion: {{answer_format: {SECRET}}}}}",
        f"defaults: {{graph: {{single_valued: {SECRET}}}}}",
        f"defaults: {{graph: {{single_valued: [{SECRET}], multi_valued: [{SECRET}]}}}}",
        f"defaults: {{graph: {{{SECRET}: [x]}}}}",
        f"defaults: {{injection: {{rerank: {SECRET}}}}}",
        f"workspaces: {{acme: {{embedding: {SECRET}}}}}",
        f"workspaces: {{acme: {{embedding: {{key: {SECRET}}}}}}}",
        f"workspaces: {{acme: {{agents: {SECRET}}}}}",
        f"defaults:\n  completion:\n    api_key: '{SECRET}\n",
        f"defaults:\n  completion:\n    api_key: *{SECRET}\n",
        f"defaults:\n  completion:\n    api_key: !{SECRET} x\n",
        f"defaults:\n  completion:\n    api_key: {SECRET}: x\n",
        f"api_key {SECRET}",
        f"{SECRET}: {{a: 1, a: 2}}",
        f"workspaces: {{api_key:{SECRET}: {{a: 1}}}}",
        f"workspaces: {{acme: {{agents: {{api_key:{SECRET}: {{a: 1, a: 2}}}}}}}}",
        "defaults: {completion: {api_key: 0123456789}}",
        "defaults: {completion: {api_key: 1234567890123456789012}}",
        "defaults: {completion: {api_key: 0123456789.5}}",
    ],
)
def test_no_message_shows_an_api_key(text: str) -> None:
    said = "\n".join(refused(text))
    assert "456789" not in said
    assert len(said) < 700


def test_only_the_length_of_a_key_is_shown() -> None:
    (line,) = refused(f"defaults: {{completion: {{api_key: {SECRET}}}}}")
    assert line.startswith(
        f"line 1: defaults.completion.api_key: a value of {len(SECRET)} characters is not accepted; "
    )
    assert line.endswith("never the key itself")
