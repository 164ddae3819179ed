"""Events of coding agents: what is remembered at each, and what the agent gets for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.scopes import label_of
from memory_pipeline.errors import InputError, LakeError, shown
from memory_pipeline.search.arguments import MAX_QUERY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.client.memory import Memory

_log = logging.getLogger(__name__)

START, PROMPT, STOP, COMPACT, END = "SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"
#: Names of Cursor, which has others for the same events.
CURSOR_EVENTS: Final = {
    "sessionStart": START, "beforeSubmitPrompt": PROMPT, "afterAgentResponse": STOP, "preCompact": COMPACT,
    "sessionEnd": END,
}  # fmt: skip
#: All names, with the event that each means.
EVENTS: Final = {**{name: name for name in (START, PROMPT, STOP, COMPACT, END)}, **CURSOR_EVENTS}


def respond(memory: Memory, event: Mapping[str, Any], key: str | None = None) -> dict[str, object]:
    """Remember what an event tells, and return what the hook prints as JSON; nothing if it is empty.

    - At the start of a session the agent gets the most important durable memories.
    - With a prompt, it gets what memory knows about it and has not told in this session; Cursor takes none then. The
      prompt is stored.
    - At the stop, its answer is stored.
    - When a conversation is compacted or a session ends, what it was told counts as new again.

    Args:
        memory: whose memory it is.
        event: what the agent hands to its hooks: Claude Code, Codex or Cursor.
        key: identifies the event, so that it is stored once if the hook runs again.

    Raises:
        InputError: the event is unknown, or lacks a field.
    """
    name = str(event.get("hook_event_name"))
    if name not in EVENTS:
        raise InputError(f"hook_event_name {shown(name)} is unknown; accepted: {', '.join(EVENTS)}")
    kind, is_of_cursor = EVENTS[name], name in CURSOR_EVENTS
    session = label_of("session_id", event.get("session_id") or event.get("conversation_id"))
    told = ""
    if kind == START:
        told = _context(memory, "", session)
    elif kind == PROMPT:
        prompt = _text(event, "prompt")
        told = "" if is_of_cursor or not prompt else _context(memory, prompt, session)
        _add(memory, "user", prompt, session, key)
    elif kind == STOP:
        _add(memory, "assistant", _text(event, "text" if is_of_cursor else "last_assistant_message"), session, key)
    else:
        memory.session(session).told.clear()
    if is_of_cursor:
        return {"continue": True} if kind == PROMPT else {"additional_context": told} if told else {}
    return {"hookSpecificOutput": {"hookEventName": kind, "additionalContext": told}} if told else {}


def _text(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    if not isinstance(value, str | None):
        raise InputError(f"{name} {shown(value)} is not a text")
    return value or ""


def _context(memory: Memory, prompt: str, session: str) -> str:
    if not memory.lake.exists:
        return ""
    try:
        return str(memory.context(prompt[:MAX_QUERY], conversation={"conversation_id": session}, only_new=True))
    except LakeError as error:  # what was said is stored in any case
        _log.warning("nothing is recalled: %s", error)
        return ""


def _add(memory: Memory, role: str, text: str, session: str, key: str | None) -> None:
    if text.strip():
        memory.add({"role": role, "content": text}, conversation_id=session, idempotency_key=key)
