"""The export of ChatGPT: ``conversations.json``, a list of trees of messages, of which one branch was chosen.

Source: https://help.openai.com/en/articles/7260999 and the description of the file at
https://github.com/mitkury/chatgpt-export-parser/blob/main/docs/chatgpt-data-export-format.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.importers.reading import Format, branch_to, each, file_mark, lines, spoken, talks_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

#: Contents that neither of the two said: settings, thoughts, and what the memory of ChatGPT keeps.
_SILENT: Final = {
    "user_editable_context": "custom instructions",
    "model_editable_context": "notes of ChatGPT's memory",
    "thoughts": "thoughts of a model",
    "reasoning_recap": "thoughts of a model",
    "system_error": "errors of the service",
    "app_pairing_content": "texts of other windows",
}


def _matches(file: ExportFile) -> bool:
    return any(isinstance(one.get("mapping"), dict) for one in file.sample)


def _read(record: dict[str, Any], where: str, file: ExportFile, notes: Notes) -> Iterator[Item]:
    nodes = record["mapping"]
    parents = {key: node.get("parent") for key, node in nodes.items() if isinstance(node, dict)}
    leaf = record.get("current_node")
    if leaf not in parents:
        leaf = max(parents, key=lambda key: _time(nodes[key]) or 0, default=None)
    branch = branch_to(leaf, parents)
    other = [nodes[key] for key in parents.keys() - set(branch)]
    notes.skipped["messages of a branch that was not chosen"] += sum(bool(one.get("message")) for one in other)
    places = ((f"{where}, message {key}", nodes[key].get("message") or {}) for key in branch)
    messages = each(places, lambda one: _message(one, notes))
    identity = record.get("conversation_id") or record.get("id") or (branch[0] if branch else where)
    start = time_of(record.get("create_time")) or file.modified
    yield from talks_of(messages, where, str(identity), started_at=start)


def _time(node: dict[str, Any]) -> Any:
    return (node.get("message") or {}).get("create_time")


def _message(message: dict[str, Any], notes: Notes) -> ChatMessage | None:
    if not message:
        return None
    content, meta = message.get("content") or {}, message.get("metadata") or {}
    role, kind = message["author"]["role"], str(content.get("content_type"))
    if reason := _SILENT.get(kind):
        notes.skip(reason)
        return None
    if role == "system" or meta.get("is_visually_hidden_from_conversation") or meta.get("is_user_system_message"):
        notes.skip("system texts")
        return None
    text = _text(content)
    if role == "user":
        shown = [one for one in meta.get("attachments") or () if not str(one.get("mime_type")).startswith("image")]
        text = lines(text, *(file_mark(one.get("name"), one.get("mime_type")) for one in shown))
    elif role == "assistant" and message.get("recipient", "all") != "all":
        role, text = "tool", f"[tool call] {message['recipient']}({text})"
    elif role != "assistant":
        role = "tool"
    name = message["author"].get("name") if role == "tool" else None
    return spoken(role, text, time_of(message.get("create_time")), id=message.get("id"), name=name)


def _text(content: dict[str, Any]) -> str:
    parts = content.get("parts")
    if not isinstance(parts, list):
        return lines(*(content.get(key) for key in ("title", "text", "result", "content")))
    return lines(*map(_part, parts))


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    kind = str(part.get("content_type"))
    if kind == "real_time_user_audio_video_asset_pointer":
        return "[audio]"
    return part.get("text") or file_mark(None, kind)


_OTHERS: Final = (
    "chat.html",
    "user.json",
    "message_feedback.json",
    "model_comparisons.json",
    "shared_conversations.json",
)
CHATGPT = Format("chatgpt", "ChatGPT", _matches, record=_read, companions=_OTHERS)
