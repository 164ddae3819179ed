"""What a model or a framework keeps in a context: values by key, with the texts that searches read."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.domain.memories.record import MAX_CONTENT, SourceType
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory_pipeline import Memory

_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]+")


class ContextEntries:
    """The entries of a context of one user or agent. What they say counts as said by the assistant.

    A value is any JSON object of at most 20,000 characters, and comes back as it was put.
    """

    def __init__(self, memory: Memory, context: str, editor: str) -> None:
        self._memory = memory
        self._editor = editor
        self._context = memory.contexts.create(context, description=f"What {editor} keeps").name

    def values(self) -> dict[str, dict[str, Any]]:
        """Return the values by key. Entries without one were put by others, and are left out."""
        entries = self._memory.contexts.entries(self._context)
        return {
            one.key: json.loads(one.value) for one in entries if one.key and one.value and one.value.startswith("{")
        }

    def change(self, puts: Mapping[str, tuple[str, Mapping[str, Any]]], removed: Iterable[str] = ()) -> None:
        """Put texts with values by key, and revoke entries, which stay in the history: all of it with one write.

        Raises:
            InputError: a key, a text or a value is not accepted; nothing was written.
        """
        gone = {*removed} - puts.keys()
        entries = self._memory.contexts.entries(self._context) if gone else []
        ids, forget = [one.id for one in entries if one.key in gone], MemoryVerb.FORGET.value
        changes: list[dict[str, object]] = [{"memory": forget, "memory_id": one} for one in ids]
        for key, (text, value) in puts.items():
            if key != " ".join(key.split()):
                raise InputError(f"{shown(key)} is not accepted as a name; expected single blanks within it")
            told = without_recalled(_CONTROL.sub(" ", text)[:MAX_CONTENT]).strip()
            put = {"context": self._context, "key": key, "content": told or key, "value": value}
            source = SourceType.ASSISTANT.value
            changes.append({"memory": MemoryVerb.REMEMBER.value, **put, "source_type": source})
        if changes:
            self._memory.writer.change_memories([{**change, "editor": self._editor} for change in changes])
