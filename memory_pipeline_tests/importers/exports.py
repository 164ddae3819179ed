"""Small exports, written for the tests in the formats of the products."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.conversations import Admission
from memory_pipeline.importers import ImportReport, import_history
from memory_pipeline.lake import Lake
from memory_pipeline.steps.dry_run import CollectingJournal, DryRunLake
from memory_pipeline_tests.building import NOW

if TYPE_CHECKING:
    from memory_pipeline.domain.messages import Message

Said = tuple[str, str | None, str]


def admission(lake: Lake) -> Admission:
    return Admission(lake.accepts_from, NOW, lake.calendar)


def imported(lake: Lake, path: Path, **options: Any) -> ImportReport:
    """Import into the memory of a user."""
    defaults = {"workspace_id": "acme", "agent_id": "support", "user_id": "anna"}
    return import_history(lake, path, admission(lake), defaults=defaults, **options)


class Read:
    """What an import of a file would store, without writing."""

    def __init__(self, path: Path, **options: Any) -> None:
        lake = DryRunLake(str(path.parent / "no-lake"))
        self.report = imported(lake, path, **options)
        assert isinstance(lake.journal, CollectingJournal)
        self.messages: list[Message] = sorted(lake.journal.appended, key=lambda one: (one.sent_at, one.turn))

    @property
    def said(self) -> list[Said]:
        return [(one.role.value, one.name, one.content) for one in self.messages]

    @property
    def times(self) -> list[str]:
        return [one.sent_at.isoformat() for one in self.messages]

    @property
    def conversations(self) -> list[str]:
        return sorted({one.conversation_id for one in self.messages})


def as_lines(*records: Any) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


def written(path: Path, content: Any) -> Path:
    """Write a file: bytes, a text, or a value as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8", newline="")
    return path


def chatgpt(*texts: str, identity: str = "t1", start: float = 1_700_000_000.0) -> dict[str, Any]:
    """Return a conversation of ChatGPT: texts of the user and the assistant in turn."""
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": ["n0"]}}
    for number, text in enumerate(texts):
        mapping[f"n{number}"] = {
            "id": f"n{number}",
            "message": chatgpt_message(f"m{number}", text, ("user", "assistant")[number % 2], start + number),
            "parent": f"n{number - 1}" if number else "root",
            "children": [f"n{number + 1}"] if number + 1 < len(texts) else [],
        }
    return {
        "title": "Talk", "create_time": start, "update_time": start, "mapping": mapping,
        "current_node": f"n{len(texts) - 1}", "conversation_id": identity,
    }  # fmt: skip


def chatgpt_message(identity: str, text: str, role: str, at: float | None, **fields: Any) -> dict[str, Any]:
    return {
        "id": identity, "author": {"role": role, "name": None, "metadata": {}}, "create_time": at,
        "content": {"content_type": "text", "parts": [text]}, "recipient": "all", "metadata": {}, **fields,
    }  # fmt: skip
