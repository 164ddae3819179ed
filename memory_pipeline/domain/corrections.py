"""Corrections: statements that are withdrawn, or replaced by others.

A correction leaves the message as it was said. What is derived from the message is made without the withdrawn part, in
every later run, with every model, and also if the same sentence of that time is imported again. What somebody says
after the correction counts as new.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.messages import recorded_scope, timestamp_of
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.text.words import words_of
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.scopes import ScopeOf

#: A shorter sentence, such as "Yes.", is withdrawn only where it was found: elsewhere it means something else.
LEAST_WORDS = 3
_SPACES = re.compile(r"[ \t]{2,}")


@dataclass(frozen=True, slots=True)
class Correction:
    """A withdrawal of what messages state, or the undoing of one.

    Attributes:
        scope: the memory.
        message_ids: the messages with the withdrawn statement, oldest first.
        quotes: what is withdrawn: parts of their texts; none if the messages are withdrawn as a whole.
        text: what replaces the first part; None if nothing does.
        reason: why.
        editor: who corrected it.
        at: when, UTC. A message that says the same later counts.
        undoes: the id of the correction that this one undoes; it then has no quotes.
    """

    scope: Scope
    message_ids: tuple[str, ...]
    quotes: tuple[str, ...]
    text: str | None
    reason: str | None
    editor: str
    at: datetime
    undoes: str | None = None

    @property
    def id(self) -> str:
        """32 hexadecimal digits."""
        return digest("correction", *self.scope.ids, self.message_ids, self.quotes, self.text, self.at, self.undoes)

    @classmethod
    def from_record(cls, record: Mapping[str, Any], scope_of: ScopeOf = Scope) -> Correction:
        """Parse the form of :meth:`to_record`.

        Raises:
            InputError: a field is missing or invalid.
        """
        lists = [record.get("message_ids"), record.get("quotes")]
        texts = [record.get("text"), record.get("reason"), record.get("undoes")]
        if not all(isinstance(one, list) and all(isinstance(part, str) for part in one) for one in lists):
            raise InputError("message_ids and quotes must be lists of texts")
        if not all(one is None or isinstance(one, str) for one in texts):
            raise InputError("text, reason and undoes must be texts")
        return cls(
            recorded_scope(record, scope_of),
            tuple(record["message_ids"]),
            tuple(record["quotes"]),
            record.get("text"),
            record.get("reason"),
            str(record.get("editor")),
            timestamp_of("at", record.get("at")),
            record.get("undoes"),
        )

    def to_record(self) -> dict[str, object]:
        """Return the correction as a flat JSON object."""
        return {
            "workspace_id": self.scope.workspace_id,
            "agent_id": self.scope.agent_id,
            "identity": self.scope.identity,
            "message_ids": list(self.message_ids),
            "quotes": list(self.quotes),
            "text": self.text,
            "reason": self.reason,
            "editor": self.editor,
            "at": self.at.isoformat(),
            "undoes": self.undoes,
        }


class Corrections:
    """The corrections in force."""

    def __init__(self, corrections: Iterable[Correction] = ()) -> None:
        every = list(corrections)
        undone = {one.undoes for one in every}
        self._by_scope: dict[Scope, list[Correction]] = {}
        self._withdrawn: set[tuple[Scope, str]] = set()
        for one in sorted(every, key=lambda each: (each.at, each.id)):
            if one.undoes is None and one.id not in undone:
                self._by_scope.setdefault(one.scope, []).append(one)
                self._withdrawn |= set() if one.quotes else {(one.scope, each) for each in one.message_ids}

    def __bool__(self) -> bool:
        """Return whether anything is corrected."""
        return bool(self._by_scope)

    def of(self, scope: Scope) -> Sequence[Correction]:
        """Return the corrections of a scope, oldest first."""
        return self._by_scope.get(scope, ())

    def applied(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages without what is withdrawn. Those without other text are left out."""
        if not self._by_scope:
            return list(messages)
        return [left for message in messages if (left := self._corrected(message)) is not None]

    def _corrected(self, message: Message) -> Message | None:
        if (message.scope, message.id) in self._withdrawn:
            return None
        content = message.content
        for one in self.of(message.scope):
            if not one.quotes:  # of whole messages, perhaps of very many
                continue
            is_named = message.id in one.message_ids
            if is_named or message.sent_at <= one.at:
                for place, quote in enumerate(one.quotes):
                    if quote in content and (is_named or len(words_of(quote)) >= LEAST_WORDS):
                        is_replaced = one.text is not None and place == 0 and message.id in one.message_ids[:1]
                        content = _SPACES.sub(" ", content.replace(quote, one.text or "" if is_replaced else ""))
        if content == message.content:
            return message
        return replace(message, content=content.strip()) if content.strip() else None
