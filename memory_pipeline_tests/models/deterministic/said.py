"""Messages for these tests."""

from __future__ import annotations

from datetime import UTC, datetime

from memory_pipeline.domain.messages import Message, Role
from memory_pipeline.domain.scopes import Scope

#: A Monday.
MONDAY = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def said(
    content: str, *, name: str | None = "Anna", role: Role = Role.USER, at: datetime = MONDAY, turn: int = 0
) -> Message:
    """Return a message of `content`, by default a user's called Anna on a Monday."""
    return Message(
        id=f"message:{turn}",
        scope=Scope("acme", "support"),
        conversation_id="call",
        user_id=None,
        tags=("phone",),
        source_id=None,
        turn=turn,
        role=role,
        name=name,
        content=content,
        sent_at=at,
        received_at=at,
    )
