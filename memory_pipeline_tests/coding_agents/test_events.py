"""What each event of a coding agent remembers and returns."""

from __future__ import annotations

from typing import Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.coding_agents.events import CURSOR_EVENTS, respond
from memory_pipeline.errors import InputError, LakeError


@pytest.fixture
def memory(root: str, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS", raising=False)
    return Memory(root, user_id="anna", agent_id="coding")


def event(name: str, session: str = "s1", **fields: Any) -> dict[str, Any]:
    return {"hook_event_name": name, "session_id": session, "cwd": "/work", **fields}


def prompt(text: str, session: str = "s1") -> dict[str, Any]:
    return event("UserPromptSubmit", session, prompt=text)


def told(answer: dict[str, Any]) -> str:
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


def test_a_prompt_gets_what_memory_knows_once_in_a_session(memory: Memory) -> None:
    assert respond(memory, prompt("The deploy key of Porto is in the blue safe.")) == {}
    assert respond(memory, event("Stop", last_assistant_message="Noted: the blue safe.")) == {}
    said = [(one.role.value, one.content) for one in memory.conversations.get("s1")]
    assert said == [
        ("user", "The deploy key of Porto is in the blue safe."),
        ("assistant", "Noted: the blue safe."),
    ]
    asked = prompt("Where is the deploy key of Porto?", "s2")
    first = respond(memory, asked)
    assert first["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"  # type: ignore[index]
    assert "blue safe" in told(first)
    assert "blue safe" not in told(respond(memory, asked))
    respond(memory, event("PreCompact", "s2", trigger="auto"))
    assert "blue safe" in told(respond(memory, asked))
    respond(memory, event("SessionEnd", "s2", reason="clear"))
    assert "blue safe" in told(respond(memory, asked))


def test_a_session_starts_with_the_most_important_memories(memory: Memory) -> None:
    assert respond(memory, event("SessionStart", source="startup")) == {}
    assert not memory.lake.exists
    memory.remember("Always use tabs in this repository.", "instruction", importance=0.9)
    memory.run()
    assert "tabs" in told(respond(memory, event("SessionStart", source="startup")))


def test_cursor_has_names_and_answers_of_its_own(memory: Memory) -> None:
    memory.remember("Always use tabs in this repository.", "instruction", importance=0.9)
    memory.run()
    start = {"hook_event_name": "sessionStart", "conversation_id": "c1"}
    assert "tabs" in str(respond(memory, start)["additional_context"])
    said = {"hook_event_name": "beforeSubmitPrompt", "conversation_id": "c1", "prompt": "Use tabs?", "attachments": []}
    assert respond(memory, said) == {"continue": True}
    answered = {"hook_event_name": "afterAgentResponse", "conversation_id": "c1", "text": "Tabs it is."}
    assert respond(memory, answered) == {}
    assert [one.content for one in memory.conversations.get("c1")] == ["Use tabs?", "Tabs it is."]
    for name in ("preCompact", "sessionEnd"):
        assert respond(memory, {"hook_event_name": name, "conversation_id": "c1"}) == {}
    assert len(CURSOR_EVENTS) == 5


def test_an_event_that_comes_twice_is_stored_once(memory: Memory) -> None:
    for key in ("k1", "k1", "k2"):
        respond(memory, prompt("Go on."), key)
    assert len(memory.conversations.get("s1")) == 2


def test_empty_and_long_texts(memory: Memory) -> None:
    assert respond(memory, prompt("  ")) == {}
    assert respond(memory, event("Stop", last_assistant_message=None)) == {}
    assert not memory.lake.exists
    long = "word " * 20_000
    respond(memory, prompt(long))
    respond(memory, prompt(long))
    assert len(memory.conversations.get("s1")) == 2


def test_a_prompt_is_stored_if_nothing_can_be_recalled(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise LakeError("no index")

    respond(memory, prompt("first"))
    monkeypatch.setattr(memory, "context", fail)
    assert respond(memory, prompt("second")) == {}
    assert len(memory.conversations.get("s1")) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        event("Unknown"),
        event("Stop", ""),
        {"hook_event_name": "Stop"},
        event("UserPromptSubmit", prompt=5),
        event("Stop", last_assistant_message=["x"]),
        {"hook_event_name": "Stop", "session_id": 5},
    ],
)
def test_what_is_no_event_is_refused(memory: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        respond(memory, wrong)
    assert not memory.lake.exists
