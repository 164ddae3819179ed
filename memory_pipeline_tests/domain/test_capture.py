"""Rules of capture, and what a conversation states itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.capture import Capture, CaptureRule, Talk, capture_in, rule_for
from memory_pipeline.domain.unread import capture_in_text
from memory_pipeline.errors import InputError

FULL, READ, NONE = Capture
TALK = Talk("support", "cron:2024-01-15", ("phone", "private"), "cron:nightly")


@pytest.mark.parametrize(
    ("patterns", "fits"),
    [
        ({}, True),
        ({"agent": "support"}, True),
        ({"agent": "Support"}, False),
        ({"conversation": "cron:*"}, True),
        ({"conversation": "cron"}, False),
        ({"tag": "priv*"}, True),
        ({"tag": "p"}, False),
        ({"source": "cron:?ightly"}, True),
        ({"source": "[ab]*"}, False),
        ({"source": "[c]ron:*", "tag": "phone"}, True),
        ({"source": "cron:*", "tag": "mail"}, False),
    ],
)
def test_a_rule_fits_if_all_of_its_patterns_do(patterns: dict[str, str], fits: bool) -> None:
    assert CaptureRule(NONE, **patterns).fits(TALK) is fits


def test_a_pattern_needs_a_value() -> None:
    talk = Talk("support", "c1")
    assert not CaptureRule(NONE, source="*").fits(talk)
    assert not CaptureRule(NONE, tag="*").fits(talk)


def test_the_first_rule_that_fits_counts() -> None:
    rules = [CaptureRule(FULL, tag="phone"), CaptureRule(NONE, source="cron:*"), CaptureRule(READ)]
    assert [rule_for(rules, talk) for talk in (TALK, Talk("a", "c", (), "cron:x"), Talk("a", "c"))] == rules
    assert rule_for([], TALK) is None


@given(st.sampled_from([None, *Capture]), st.sampled_from(Capture))
def test_the_stricter_of_statement_and_rule_counts(stated: Capture | None, ruled: Capture) -> None:
    order = list(Capture)
    found = capture_in({"capture": stated}, lambda *_: ruled)
    assert order.index(found) == max(order.index(stated or FULL), order.index(ruled))


@pytest.mark.parametrize("stated", ["None", "", 0, ["none"], {"none": 1}, "FULL"])
def test_an_unknown_capture_is_named(stated: Any) -> None:
    with pytest.raises(InputError, match=r"^capture .* is unknown; accepted: full, read, none$"):
        capture_in({"capture": stated}, lambda *_: FULL)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda own: st.lists(own) | st.dictionaries(st.text(), own)
)


@given(st.dictionaries(st.sampled_from(["workspace_id", "agent_id", "conversation_id", "tags", "source"]), _JSON))
def test_rules_are_asked_about_any_conversation(conversation: dict[str, Any]) -> None:
    asked: list[tuple[str, Talk]] = []

    def ask(workspace_id: str, talk: Talk) -> Capture:
        asked.append((workspace_id, talk))
        return FULL if rule_for([CaptureRule(NONE, agent="x*", tag="y*", source="z*")], talk) is None else NONE

    assert capture_in(conversation, ask) in (FULL, NONE)
    [(workspace_id, talk)] = asked
    texts = [workspace_id, talk.agent_id, talk.conversation_id, *talk.tags, talk.source or ""]
    assert all(isinstance(text, str) for text in texts)


RULES = [CaptureRule(NONE, agent="bot"), CaptureRule(READ, source="cron:*"), CaptureRule(NONE, tag="private")]


def by_rules(workspace_id: str, talk: Talk) -> Capture:
    rule = rule_for(RULES, talk) if workspace_id == "acme" else None
    return FULL if rule is None else rule.mode


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ('{"workspace_id": "acme", "capture": "none", "messages": [', NONE),
        ('{"workspace_id": "acme", "capture": "read", "messages": [', READ),
        (r'{"workspace_id": "acme", "\u0063apture": "n\u006Fne", "messages": [', NONE),
        ('{"workspace_id": "acme", "capture": "full", "messages": [', FULL),
        ('{"workspace_id": "acme", "capture": "quiet", "messages": [', NONE),
        ('{"workspace_id": "acme", "source": "cron:daily", "messages": [', READ),
        ('{"workspace_id": "acme", "agent_id": "bot", ', NONE),
        ('{"workspace_id": "acme", "tags": ["private"], ', NONE),
        ('{"workspace_id": "else", "agent_id": "bot", ', FULL),
        ('{"messages": [', FULL),
        ([{"workspace_id": "acme", "capture": "none"}], NONE),
        (7, FULL),
    ],
)
def test_an_unreadable_record_has_the_strictest_capture_of_its_text(record: object, expected: Capture) -> None:
    assert capture_in_text(record, {}, by_rules) is expected


def test_defaults_count_for_an_unreadable_record() -> None:
    assert capture_in_text("{", {"workspace_id": "acme", "agent_id": "bot"}, by_rules) is NONE


def test_the_work_for_a_hostile_text_is_bounded() -> None:
    asked = 0

    def ask(workspace_id: str, talk: Talk) -> Capture:
        nonlocal asked
        asked += 1
        assert len(talk.tags) <= 500
        return FULL

    names = ("workspace_id", "agent_id", "conversation_id", "source")
    capture_in_text(json.dumps([{name: f"{name}{number}" for name in names} for number in range(5_000)])[:-1], {}, ask)
    assert asked <= 100
