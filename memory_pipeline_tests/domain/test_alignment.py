"""Lists of messages are compared with what their conversation holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.alignment import align, common_subsequence, in_order
from memory_pipeline.domain.messages import Message
from memory_pipeline_tests.effort import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

ROLES = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


def talk(*lines: str, first_turn: int = 0) -> list[Message]:
    """Return messages from lines such as ``u Hello.``, ``a Hi.`` or ``u#m1 Hello.`` (with an id)."""
    messages = []
    for turn, line in enumerate(lines, start=first_turn):
        head, _, content = line.partition(" ")
        role, _, source_id = head.partition("#")
        record = {
            "workspace_id": "w", "agent_id": "a", "conversation_id": "c", "role": ROLES[role], "content": content,
            "id": source_id or None, "turn": turn, "timestamp": (NOW + timedelta(minutes=turn)).isoformat(),
            "received_at": NOW.isoformat(),
        }  # fmt: skip
        messages.append(Message.from_record(record))
    return messages


def shown(sent: list[Message], stored: list[Message], history: bool | None) -> str:
    """Return a letter for each message of a list: new, repeated (``=``) or an edit (``~``)."""
    found = align(sent, stored, history=history)
    assert not found.repeated.keys() & found.edited.keys()
    return "".join(
        "=" if place in found.repeated else "~" if place in found.edited else "n" for place in range(len(sent))
    )


TALK = ("u Hi.", "a Hello.", "u I live in Riga.", "a Noted.")
TOOLS = ("u Look.", "t call", "t 7", "a Seven.", "u Again.", "t call", "t 7", "a Seven again.")


@pytest.mark.parametrize(
    ("stored", "sent", "expected"),
    [
        pytest.param((), TALK, "nnnn", id="a new conversation"),
        pytest.param(TALK, TALK, "====", id="the same list"),
        pytest.param(TALK, (*TALK, "u Bye."), "====n", id="it grows"),
        pytest.param(TALK, (*TALK[2:], "u Bye."), "==n", id="its beginning is cut"),
        pytest.param(TALK, ("s Summary", *TALK[2:], "u Bye.", "a Bye."), "n==nn", id="a summary by the system"),
        pytest.param(TALK, ("u Summary", *TALK[2:], "u Bye.", "a Bye."), "n==nn", id="a summary by the user"),
        pytest.param(
            (*TALK, "u Summary", "a Understood.", "u Why?", "a So."),
            ("u Summary", "a Understood.", *TALK[2:], "u Why?", "a So.", "u Hi.", "a Bye."),
            "======nn",
            id="the same summary a turn later",
        ),
        pytest.param(("s 9:00", *TALK), ("s 9:01", *TALK, "u Bye."), "n====n", id="the time in the instructions"),
        pytest.param(("s 9:00", *TALK), ("s 9:00", *TALK, "u Bye."), "=====n", id="equal instructions"),
        pytest.param(TALK, ("u [context] Hi.", *TALK[1:], "u Bye."), "n===n", id="a changed first message"),
        pytest.param(TALK, (*TALK[:3], "a Understood."), "===~", id="the last answer is made again"),
        pytest.param(TALK, (*TALK[:3], "a Understood.", "u Bye."), "===~n", id="and the user goes on"),
        pytest.param(TALK[:2], ("u Hi.", "a Hey."), "=~", id="the only answer is made again"),
        pytest.param(
            TALK[:2],
            ("u x", "a y", "u Hi.", "a Oh.", "u z", "a y", "u Hi.", "a Hey."),
            "nnnnnn=~",
            id="the only answer that is left is made again, and its question was asked before",
        ),
        pytest.param(TALK, (*TALK[:2], "u I live in Oslo.", "a Noted."), "==n=", id="the user says something else"),
        pytest.param(TALK, ("u Hi.", "a Hey."), "nn", id="the first question again, with another answer"),
        pytest.param(TALK, TALK[:2], "nn", id="the first exchange again"),
        pytest.param(TALK, TALK[2:], "nn", id="the last exchange again"),
        pytest.param(TALK[:2], TALK[:2], "nn", id="the only exchange again"),
        pytest.param(TALK, ("u Hi.",), "n", id="a single message"),
        pytest.param(TALK[:3], ("u I live in Riga.", "a Noted."), "=n", id="the answer to a stored question"),
        pytest.param(TOOLS, (*TOOLS, "u Bye."), "========n", id="tools that answer the same twice"),
        pytest.param(TOOLS[:3], TOOLS[:4], "===n", id="an answer after tools"),
        pytest.param(TOOLS[:3], (*TOOLS[:3], "t other"), "===n", id="another tool"),
        pytest.param(("u#m1 Hi.", "a Hello."), ("u#m1 Hi.", "u#m2 Hi."), "=n", id="ids of the client"),
        pytest.param(("u#m1 Hi.", "a Hello."), ("u#m1 Hi there.",), "~", id="a known id with another text"),
        pytest.param(("u cafe\u0301", "a ok"), ("u caf\u00e9", "a ok", "u x"), "==n", id="composed and decomposed"),
    ],
)
def test_lists_that_show_what_they_are(stored: Sequence[str], sent: Sequence[str], expected: str) -> None:
    assert shown(talk(*sent), talk(*stored), None) == expected


@pytest.mark.parametrize(
    ("history", "sent", "expected"),
    [(True, TALK[2:], "=="), (False, TALK, "nnnn"), (True, ("u Hi.",), "="), (False, ("u#m1 x", "u#m9 x"), "=n")],
)
def test_the_caller_decides(history: bool, sent: Sequence[str], expected: str) -> None:
    assert shown(talk(*sent), talk("u#m1 x", *TALK), history) == expected


def test_instructions_of_one_text_are_stored_once() -> None:
    assert shown(talk("s Be kind.", "u Hi.", "s Be kind."), [], None) == "nn="
    assert shown(talk("s Be kind."), talk("s Be kind.", "u Hi."), False) == "="


def test_the_order_is_that_of_turns_unless_each_write_counts_its_own() -> None:
    ahead, behind = talk("u One.", "a Two."), talk("u Three.", first_turn=2)
    behind = [one.identified(sent_at=NOW - timedelta(hours=1)) for one in behind]
    assert [one.content for one in in_order([*behind, *ahead])] == ["One.", "Two.", "Three."]
    again = [one.identified(sent_at=NOW + timedelta(hours=1)) for one in talk("u Four.")]
    assert [one.content for one in in_order([*again, *ahead])] == ["One.", "Two.", "Four."]


WORDS = st.lists(st.sampled_from("abcd"), max_size=12)


@settings(max_examples=examples(200))
@given(ours=WORDS, theirs=WORDS)
def test_a_common_subsequence_is_as_long_as_the_model_says(ours: list[str], theirs: list[str]) -> None:
    @cache
    def longest(place: int, position: int) -> int:
        if place == len(ours) or position == len(theirs):
            return 0
        same = 1 + longest(place + 1, position + 1) if ours[place] == theirs[position] else 0
        return max(same, longest(place + 1, position), longest(place, position + 1))

    pairs = common_subsequence(ours, theirs)
    assert len(pairs) == longest(0, 0)
    assert all(ours[place] == theirs[position] for place, position in pairs)
    assert all(one < other for one, other in zip([p for p, _ in pairs], [p for p, _ in pairs[1:]], strict=False))
    assert all(one < other for one, other in zip([p for _, p in pairs], [p for _, p in pairs[1:]], strict=False))


LINES = st.lists(st.sampled_from(["u a", "u b", "a a", "a ok", "t x", "s now"]), max_size=8)


@settings(max_examples=examples(200))
@given(stored=LINES, added=LINES.filter(lambda lines: bool({"u a", "u b", "a a", "a ok"} & set(lines))))
def test_a_history_that_grows_adds_its_new_end_alone(stored: list[str], added: list[str]) -> None:
    is_known = any(line[0] in "ua" for line in stored)
    expected = "".join(
        "n" if line != "s now" or (line not in stored and "s now" not in added[:place]) else "="
        for place, line in enumerate(added)
    )
    before, after = talk(*stored), talk(*stored, *added)
    kept = [one for n, one in enumerate(before) if one.content != "now" or n == stored.index("s now")]
    found = shown(after, kept, None)
    assert found[len(stored) :] == expected
    assert found[: len(stored)] == ("=" * len(stored) if is_known else found[: len(stored)])
