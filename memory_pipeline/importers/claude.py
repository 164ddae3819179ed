"""The export of Claude: ``conversations.json``, a list of conversations with ``chat_messages``.

Source: https://privacy.claude.com/en/articles/9450526 and the description of the file at
https://github.com/Sinity/polylogue/blob/master/docs/providers/claude-ai.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_pipeline.importers.reading import Format, branch_to, each, file_mark, spoken, talks_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes


def _matches(file: ExportFile) -> bool:
    return any(isinstance(one.get("chat_messages"), list) for one in file.sample)


def _read(record: dict[str, Any], where: str, file: ExportFile, notes: Notes) -> Iterator[Item]:
    messages = record["chat_messages"]
    # Newer exports hold all versions of a question or an answer: each names the message before it.
    parents = {one.get("uuid"): one.get("parent_message_uuid") for one in messages if isinstance(one, dict)}
    if any(parent in parents for parent in parents.values()):
        leaf = record.get("current_leaf_message_uuid")
        chosen = set(branch_to(leaf if leaf in parents else messages[-1].get("uuid"), parents))
        notes.skipped["messages of a branch that was not chosen"] += len(messages) - len(chosen)
        messages = [one for one in messages if isinstance(one, dict) and one.get("uuid") in chosen]
    places = ((f"{where}, message {number}", one) for number, one in enumerate(messages, start=1))
    start = time_of(record.get("created_at")) or file.modified
    yield from talks_of(each(places, _message), where, str(record["uuid"]), started_at=start)


def _message(message: dict[str, Any]) -> ChatMessage:
    parts = message.get("content")
    parts = [one for one in parts if one.get("type") != "token_budget"] if isinstance(parts, list) else []
    if not any(one.get("type") != "text" or one.get("text") for one in parts):
        parts = [{"type": "text", "text": message.get("text") or ""}]
    files = [*(message.get("attachments") or ()), *(message.get("files") or ()), *(message.get("files_v2") or ())]
    names = {one.get("file_name"): one.get("file_type") or one.get("file_kind") for one in files}
    parts += [{"type": "text", "text": file_mark(name, kind)} for name, kind in names.items()]
    parts = [one for one in parts if one.get("type") != "text" or one.get("text")]
    role = "user" if message["sender"] == "human" else message["sender"]
    return spoken(role, parts, time_of(message.get("created_at")), id=message.get("uuid"))


CLAUDE = Format("claude", "Claude", _matches, record=_read, companions=("users.json", "projects.json"))
