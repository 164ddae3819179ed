"""The commands `memories …`, with the output for people and as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from memory_pipeline.errors import InputError
from memory_pipeline_tests.invoking import call, read

SCOPE = ["--workspace", "acme", "--agent", "support"]
DAY = ["--now", "2024-01-15"]
COMMANDS = [
    "list", "show", "history", "explain", "search", "hot", "about", "remember", "update", "forget", "boost", "reduce",
    "confirm", "prefer", "preferences", "link", "unlink", "links",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)


def remember(content: str, *options: str) -> str:
    return str(read("memories", "remember", content, *SCOPE, *DAY, *options)["id"])


def listed(*options: str) -> list[str]:
    return [memory["content"] for memory in read("memories", "list", *SCOPE, *options)]


@pytest.fixture
def porto() -> str:
    return remember(
        "Anna lives in Porto.", "--subject", "Anna", "--predicate", "livesIn", "--object", "Porto", "--tag", "home",
        "--tag", "anna", "--importance", "0.8", "--title", "Anna's home",
    )  # fmt: skip


def test_every_command_has_help() -> None:
    overview = call("memories", "--help").output
    for command in COMMANDS:
        assert command in overview
        text = call("memories", command, "--help").output
        assert "Usage:" in text
        assert "--workspace" in text


def test_a_memory_can_be_listed_and_shown(porto: str) -> None:
    remember("Never shout.", "--kind", "rule")
    assert sorted(listed()) == ["Anna lives in Porto.", "Never shout."]
    assert listed("--kind", "rule") == ["Never shout."]
    assert listed("--tag", "home", "--subject", "anna") == ["Anna lives in Porto."]
    assert listed("--limit", "1", "--object", "PORTO") == ["Anna lives in Porto."]
    shown = read("memories", "show", porto, *SCOPE)
    assert (shown["title"], shown["importance"], shown["tags"]) == ("Anna's home", 0.8, ["anna", "home"])
    assert "importance:       0.8" in call("memories", "show", porto, *SCOPE).output
    assert [one["id"] for one in read("memories", "about", "ANNA", *SCOPE)] == [porto]
    text = call("memories", "list", "--kind", "fact", *SCOPE).output
    assert text == f"[2024-01-15] Anna lives in Porto.\n    fact, said by operator, version 1, warm, id {porto}\n"


def test_an_update_is_a_new_version_with_editor_and_reason(porto: str) -> None:
    changed = read(
        "memories", "update", porto, "--content", "Anna lives in Rome.", "--editor", "clerk", "--reason", "she moved",
        *SCOPE, "--now", "2024-01-16",
    )  # fmt: skip
    assert changed == {"id": porto}
    assert [version["content"] for version in read("memories", "history", porto, *SCOPE)] == [
        "Anna lives in Porto.", "Anna lives in Rome.",
    ]  # fmt: skip
    assert "  2. 2024-01-16 00:00 by clerk, fact: Anna lives in Rome.\n     warm" in (
        call("memories", "history", porto, *SCOPE).output
    )
    assert "2024-01-16 00:00 UPDATE by clerk: she moved\n    content=Anna lives in Rome." in (
        call("memories", "explain", porto, *SCOPE).output
    )
    assert [event["verb"] for event in read("memories", "explain", porto, *SCOPE)] == ["REMEMBER", "UPDATE"]
    assert read("memories", "show", f"{porto}#1", *SCOPE)["content"] == "Anna lives in Porto."


def test_boost_reduce_and_confirm_change_importance_and_confidence(porto: str) -> None:
    read("memories", "boost", porto, *SCOPE, "--amount", "0.1", "--now", "2024-01-16")
    read("memories", "reduce", porto, *SCOPE, "--amount", "0.3", "--now", "2024-01-17")
    seems = remember("Anna seems to like tea.", "--kind", "observation", "--confidence", "0.5")
    read("memories", "confirm", seems, *SCOPE, "--reason", "she said so", "--now", "2024-01-18")
    assert read("memories", "show", porto, *SCOPE)["importance"] == 0.6
    found = read("memories", "show", seems, *SCOPE)
    assert (found["kind"], found["confidence"]) == ("fact", 0.6)


def test_forgotten_memories_are_counted_and_stay_in_the_history(porto: str) -> None:
    tea = remember("Anna likes tea.", "--subject", "Anna", "--predicate", "likes", "--object", "tea")
    remember("Never shout.", "--kind", "rule")
    assert call("memories", "forget", "--subject", "anna", "--object", "tea", *SCOPE, *DAY).output == "forgotten: 1\n"
    assert sorted(listed()) == ["Anna lives in Porto.", "Never shout."]
    assert listed("--status", "deprecated") == ["Anna likes tea."]
    assert len(listed("--status", "any")) == 3
    assert "deprecated, cold (forgotten by agent)" in call("memories", "history", tea, *SCOPE).output
    assert read("memories", "forget", porto, *SCOPE, *DAY, "--reason", "wrong") == {"forgotten": 1}
    assert read("memories", "forget", porto, *SCOPE, *DAY) == {"forgotten": 0}
    refused = call("memories", "forget", *SCOPE, *DAY)
    assert isinstance(refused.exception, InputError)
    assert listed() == ["Never shout."]


def test_preferences_are_json_or_text() -> None:
    for key, value in (("language", "Portuguese"), ("opening", '{"from": 9}'), ("news", "false"), ("age", "7")):
        read("memories", "prefer", "u17", key, value, *SCOPE, *DAY)
    held = {"age": 7, "language": "Portuguese", "news": False, "opening": {"from": 9}}
    assert read("memories", "preferences", "u17", *SCOPE) == held
    assert 'language = "Portuguese"\n' in call("memories", "preferences", "u17", *SCOPE).output
    assert call("memories", "prefer", "u17", "news", "--delete", *SCOPE, *DAY).output == "deleted\n"
    assert call("memories", "prefer", "u17", "news", "--delete", *SCOPE, *DAY).output == "no such preference was set\n"
    assert "news" not in read("memories", "preferences", "u17", *SCOPE)
    for wrong in (["x", "--delete"], []):
        refused = call("memories", "prefer", "u17", "news", *wrong, *SCOPE)
        assert refused.exit_code == 2
        assert "give either VALUE or --delete" in refused.output
    assert "no preferences are set" in call("memories", "preferences", "u18", *SCOPE).output


def test_experiences_have_an_outcome_and_memories_say_what_made_them() -> None:
    failed = remember(
        "Two retries without a pause blocked the account.", "--outcome", "failed", "--source-type", "tool"
    )
    worked = remember("A retry after a pause worked.", "--outcome", "succeeded")
    tried = remember("A retry at night.", "--class", "experiential")
    stated = remember("Retries are counted.")
    expected = {
        ("--outcome", "failed"): {failed},
        ("--outcome", "succeeded"): {worked},
        ("--class", "experiential"): {failed, worked, tried},
        ("--class", "factual"): {stated},
        ("--source-type", "tool"): {failed},
        ("--source-type", "user"): set[str](),
    }
    for filters, ids in expected.items():
        assert {one["id"] for one in read("memories", "list", *SCOPE, *filters)} == ids
        found = read("memories", "search", "How to retry?", *SCOPE, *filters, "--now", "2024-01-16")
        assert {one["memory"]["id"] for one in found} == ids
    read("memories", "update", tried, *SCOPE, "--outcome", "failed", "--now", "2024-01-16")
    assert read("memories", "show", tried, *SCOPE)["outcome_success"] is False
    read("memories", "update", tried, *SCOPE, "--class", "factual", "--now", "2024-01-17")
    assert read("memories", "show", tried, *SCOPE)["outcome_success"] is None
    assert [one["id"] for one in read("memories", "list", *SCOPE, "--outcome", "failed")] == [failed]


def test_links_are_listed_strongest_first_until_they_are_removed(porto: str) -> None:
    later = ["--now", "2024-01-16"]
    cause, other = remember("Anna found work in Porto."), remember("Porto is a harbour.")
    assert read("memories", "link", porto, cause, "causedBy", *SCOPE, *later, "--weight", "0.4") == {"id": porto}
    call("memories", "link", other, porto, "about", *SCOPE, *later)
    links = read("memories", "links", porto, *SCOPE)
    assert [(one["source_id"], one["relation"], one["target_id"], one["weight"]) for one in links] == [
        (other, "about", porto, 1.0),
        (porto, "caused_by", cause, 0.4),
    ]
    assert (
        f"{porto} caused_by {cause}, weight 0.4, 2024-01-16 by agent\n"
        in call("memories", "links", cause, *SCOPE).output
    )
    assert read("memories", "links", porto, *SCOPE, *DAY) == []
    call("memories", "unlink", porto, cause, "caused_by", *SCOPE, "--now", "2024-01-17")
    assert call("memories", "links", cause, *SCOPE).output == "it has no links\n"
    assert len(read("memories", "links", porto, *SCOPE)) == 1


def test_forgotten_memories_are_not_found_by_any_search(porto: str) -> None:
    found = read("memories", "search", "Where does Anna live?", *SCOPE, "--now", "2024-01-16")
    assert [one["memory"]["id"] for one in found] == [porto]
    text = call("memories", "search", "Where does Anna live?", *SCOPE, "--now", "2024-01-27").output
    assert "[2024-01-15] Anna lives in Porto.\n    fact, said by operator, version 1, warm, score " in text
    assert "    warning: last heard 12 days ago: " in text
    read("memories", "forget", porto, *SCOPE, "--now", "2024-01-17")
    for archive in ([], ["--archive"]):
        assert read("memories", "search", "Where does Anna live?", *archive, *SCOPE, "--now", "2024-01-18") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "memory:2024-01-15T00:" + "0" * 32], "this agent has no memory with id"),
        (["history", "memory:2024-01-15T00:" + "0" * 32], "this agent has no memory with id"),
        (["explain", "nonsense"], "is not valid; expected an id"),
        (["update", "../../etc/passwd", "--content", "x"], "is not valid; expected an id"),
        (["remember", " "], "content ' ' is not accepted"),
        (["remember", "x", "--confidence", "1.2"], "confidence 1.2 is not accepted; expected 0 to 1"),
        (["remember", "x", "--confidence", "nan"], "confidence nan is not accepted"),
        (["remember", "x", "--class", "factual", "--outcome", "failed"], "outcome_success is of experiences"),
        (["remember", "x", "--context", "nowhere"], "context 'nowhere' is unknown; create it first"),
        (["remember", "x", "--key", "k"], "context and key for an entry"),
        (["prefer", "u1", "k" * 257, "1"], "key .* is not accepted"),
        (["links", "memory:2024-01-15T00:" + "0" * 32], "this agent has no memory with id"),
        (["list", "--limit", "0"], "limit 0 is not accepted"),
    ],
)
def test_errors_name_the_value(porto: str, arguments: list[str], message: str) -> None:
    result = call("memories", *arguments, *SCOPE)
    assert isinstance(result.exception, InputError)
    with pytest.raises(InputError, match=message):
        raise result.exception


def test_a_link_is_within_one_memory_and_has_a_weight_up_to_one(porto: str) -> None:
    other = remember("Porto is a harbour.")
    of_user = str(read("memories", "remember", "Anna likes figs.", *SCOPE, "--user", "anna")["id"])
    for target, relation, weight in (
        (other, "about", "2"),
        (porto, "about", "1"),
        (of_user, "about", "1"),
        (other, "", "1"),
    ):
        result = call("memories", "link", porto, target, relation, "--weight", weight, *SCOPE)
        assert isinstance(result.exception, InputError)
    assert read("memories", "links", porto, *SCOPE) == []


@pytest.mark.parametrize("option", ["--class", "--outcome", "--source-type"])
@pytest.mark.parametrize("command", [["list"], ["search", "x"], ["remember", "x"]], ids=lambda words: words[0])
def test_an_unknown_choice_is_a_wrong_option(command: list[str], option: str) -> None:
    result = call("memories", *command, option, "sometimes", *SCOPE)
    assert result.exit_code == 2
    assert "'sometimes' is not one of" in result.output


def test_stored_text_cannot_steer_the_terminal() -> None:
    made = remember("Look:\n\u202e[2024-01-01] forged \u2066line")
    for command in (["list"], ["show", made], ["history", made], ["explain", made], ["search", "forged"]):
        text = call("memories", *command, *SCOPE).output
        assert not {"\u202e", "\u2066", "\x1b"} & set(text)


def test_empty_results_are_reported(root: str) -> None:
    missing: Any = call("memories", "list", *SCOPE).exception
    assert "there is no memory lake at" in str(missing)
    remember("Anna likes tea.")
    assert call("memories", "list", "--tag", "none", *SCOPE).output == "no memory matches\n"
    assert read("memories", "hot", *SCOPE) == []
    assert "the hot index is empty" in call("memories", "hot", *SCOPE).output
