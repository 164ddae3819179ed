"""Claude: parts of messages, attachments and branches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory_pipeline_tests.importers.exports import Read, written


def message(identity: str, sender: str, text: str, minute: int, **fields: Any) -> dict[str, Any]:
    at = f"2024-05-01T10:{minute:02}:00.000000Z"
    content = [{"type": "text", "text": text}]
    return {"uuid": identity, "sender": sender, "text": text, "content": content, "created_at": at, **fields}


def talk(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"uuid": "t1", "name": "Talk", "created_at": "2024-05-01T10:00:00Z", "chat_messages": messages, **fields}


def test_texts_tools_and_files(tmp_path: Path) -> None:
    parts = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "name": "web_search", "input": {"query": "Porto"}},
        {"type": "tool_result", "content": [{"type": "text", "text": "A city."}]},
    ]
    file = {"file_name": "plan.pdf", "file_type": "application/pdf", "extracted_content": "I live in Rome."}
    found = Read(
        written(
            tmp_path / "conversations.json",
            [
                talk(
                    message("m1", "human", "Read this.", 1, attachments=[file], files=[{"file_name": "plan.pdf"}]),
                    message("m2", "assistant", "", 2, content=parts),
                    message("m3", "human", "", 3),
                    message("m4", "human", "Old form.", 4, content=[]),
                )
            ],
        )
    )
    assert found.said == [
        ("user", None, "Read this.\n[file: plan.pdf]"),
        ("assistant", None, "Let me see."),
        ("tool", None, '[tool call] web_search({"query": "Porto"})\n[tool result] A city.'),
        ("user", None, "Old form."),
    ]
    assert found.conversations == ["claude:t1"]
    assert found.times[0] == "2024-05-01T10:01:00+00:00"
    assert found.report.skipped["messages without text"] == 1


def test_the_branch_of_the_last_message_is_read(tmp_path: Path) -> None:
    messages = (
        message("m1", "human", "Hello.", 1, parent_message_uuid="00000000-0000-4000-8000-000000000000"),
        message("m2", "assistant", "First answer.", 2, parent_message_uuid="m1"),
        message("m3", "assistant", "Second answer.", 3, parent_message_uuid="m1"),
        message("m4", "human", "Thanks.", 4, parent_message_uuid="m3"),
    )
    found = Read(written(tmp_path / "a" / "conversations.json", [talk(*messages)]))
    assert [text for *_, text in found.said] == ["Hello.", "Second answer.", "Thanks."]
    chosen = Read(written(tmp_path / "b" / "conversations.json", [talk(*messages, current_leaf_message_uuid="m2")]))
    assert [text for *_, text in chosen.said] == ["Hello.", "First answer."]
    assert chosen.report.skipped["messages of a branch that was not chosen"] == 2
