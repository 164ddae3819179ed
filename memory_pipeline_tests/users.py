"""Users of an agent with contradicting homes and PINs: three who talk to it, two of them in a group, and a stranger."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline.lake import Lake
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

HOMES = {"anna": "Porto", "ben": "Oslo", "cleo": "Rome"}
PINS = {"anna": "1111", "ben": "2222", "cleo": "3333"}
GROUP = ("anna", "ben")
STRANGER = "dora"
EVERYBODY = (*HOMES, STRANGER)
#: Texts of the group, and of the agent's own memory.
IN_GROUP, OF_AGENT = "The boat leaves the harbour at noon.", "The office opens at nine."
#: After all conversations.
LATER = datetime(2024, 1, 16, tzinfo=UTC)


def lake_of(root: str, *, per_user: bool) -> Lake:
    """Create a lake in which each user has a memory of its own, or all share one."""
    lake = Lake(root)
    configuration = Path(root).with_suffix(".yaml")
    configuration.parent.mkdir(parents=True, exist_ok=True)
    configuration.write_text(f"defaults: {{per_user: {str(per_user).lower()}}}\n")
    lake.put_configuration(configuration)
    return lake


def write_users(root: str) -> Lake:
    """Create a lake in which each user has a memory of its own, and write one conversation of each."""
    lake = lake_of(root, per_user=True)
    writer = MemoryWriter.open(root, workspace_id="acme", agent_id="support")

    def say(text: str, minute: int, **audience: object) -> None:
        at = f"2024-01-15T08:{minute:02}:00Z"
        message = {"id": "m1", "role": "user", "content": text, "timestamp": at}
        writer.write({"conversation_id": "default", "messages": [message], **audience})

    say(OF_AGENT, 0)
    for minute, user in enumerate(HOMES, start=1):
        say(f"I live in {HOMES[user]}. My PIN is {PINS[user]}.", minute, user_id=user)
    say(IN_GROUP, 9, users=GROUP, group_id="team")
    for user in HOMES:
        own = MemoryWriter.open(root, workspace_id="acme", agent_id="support", user_id=user)
        own.remember(f"The PIN of the safe is {PINS[user]}.", subject=user, now=LATER)
    return lake


def pins_in(text: str) -> set[str]:
    """Return the users whose PIN is in a text."""
    return {user for user, pin in PINS.items() if pin in text}


def is_for(user: str | None, texts: Iterable[str]) -> bool:
    """Return whether texts hold the PIN of this user, if it has one, and of nobody else."""
    return pins_in("\n".join(texts)) == {user} & PINS.keys()
