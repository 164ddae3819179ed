"""Sessions of Codex: ``~/.codex/sessions/**/rollout-*.jsonl``, of today's form and that of its first versions.

Source: ``codex-rs/protocol`` of https://github.com/openai/codex, and
https://github.com/kvsankar/agent-history/blob/main/docs/codex-format.md
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.importers.reading import Format, each, spoken, talks_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

#: Texts of the program in messages of the user.
_MACHINE: Final = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|INSTRUCTIONS|turn_aborted|user_shell_command|user_action|skill"
    r"|subagent_notification|permissions|collaboration_mode|personality_spec|model_switch)\b|# AGENTS\.md instructions)"
)
#: An editor puts what it knows before what the user wrote.
_REQUEST: Final = re.compile(
    r"\s*# Context from my IDE setup:.*?^## My request for Codex:\s*", re.DOTALL | re.MULTILINE
)
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
_CALLS: Final = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")


def _matches(file: ExportFile) -> bool:
    if not file.has_lines:
        return False
    first = file.sample[0]
    is_old = {"id", "timestamp"} <= first.keys() and ("instructions" in first or "git" in first)
    return (first.get("type") == "session_meta" and "payload" in first) or (is_old and "role" not in first)


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    first = file.sample[0]
    meta = first.get("payload") or first
    if isinstance(meta.get("source"), dict) and "subagent" in meta["source"]:
        notes.skip("sessions of subagents")
        return
    number = 0

    def message_in(record: dict[str, Any]) -> ChatMessage | None:
        nonlocal number
        number += 1
        item = record.get("payload") if record.get("type") == "response_item" else record
        if not isinstance(item, dict) or item.get("type") not in ("message", *_CALLS, *_OUTPUTS):
            if record is not first:
                notes.skip("other records of the program")
            return None
        at = time_of(record.get("timestamp"))
        identity = f"{number}"
        if item["type"] == "message":
            content, role = item["content"], item["role"]
            if role == "user":
                content = _own(content)
            if role not in ("user", "assistant") or not content:
                notes.skip("texts of the program" if role == "user" else "system texts")
                return None
            return spoken(role, content, at, id=identity)
        return spoken("tool", _tool(item), at, id=identity)

    started_at = time_of(meta.get("timestamp")) or file.modified
    yield from talks_of(each(file.records(), message_in), file.name, str(meta["id"]), started_at=started_at)


def _own(content: Any) -> Any:
    """Return what of a user's message the user wrote."""
    if isinstance(content, str):
        return "" if _MACHINE.match(content) else _REQUEST.sub("", content)
    parts = [{**one, "text": _own(one["text"])} if isinstance(one.get("text"), str) else one for one in content]
    return [one for one in parts if one.get("text") != ""]


def _tool(item: dict[str, Any]) -> str:
    if item["type"] in _OUTPUTS:
        output = item.get("output")
        text = output.get("content") if isinstance(output, dict) else output
        return f"[tool result] {text}"
    given = item.get("arguments") or item.get("input") or item.get("action") or ""
    return f"[tool call] {item.get('name') or item['type'].removesuffix('_call')}({given})"


CODEX = Format("codex", "Codex", _matches, read=_read)
