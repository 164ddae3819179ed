"""Capture: which conversations become memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from memory_pipeline.domain.values import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class Capture(StrEnum):
    """What a conversation does with memory, least strict first."""

    #: It is stored, and memory is recalled.
    FULL = "full"
    #: Memory is recalled. Nothing is stored.
    READ = "read"
    #: Nothing is recalled or stored.
    NONE = "none"

    @classmethod
    def parse(cls, value: object) -> Capture:
        """Return the capture that a conversation states; None means full.

        Raises:
            InputError: the value is unknown.
        """
        return cls.FULL if value is None else one_of(cls, "capture", value)

    def or_stricter(self, other: Capture) -> Capture:
        """Return the stricter of two."""
        return max(self, other, key=list(Capture).index)


@dataclass(frozen=True, slots=True)
class Talk:
    """What rules know of a conversation: its ids, tags and source, but not its messages."""

    agent_id: str
    conversation_id: str
    tags: Sequence[str] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class CaptureRule:
    """The capture of the conversations that fit all of its patterns.

    In a pattern, ``*`` is any text, ``?`` is one character, and ``[…]`` is one of a set. Case counts.
    """

    mode: Capture
    agent: str | None = None
    conversation: str | None = None
    tag: str | None = None
    source: str | None = None

    def fits(self, talk: Talk) -> bool:
        """Return whether a conversation fits all patterns."""
        return (
            _fits(self.agent, [talk.agent_id])
            and _fits(self.conversation, [talk.conversation_id])
            and _fits(self.tag, talk.tags)
            and _fits(self.source, [] if talk.source is None else [talk.source])
        )

    def __str__(self) -> str:
        """Return the patterns and the mode: ``source cron:* → none``."""
        names = ("agent", "conversation", "tag", "source")
        patterns = [f"{name} {pattern}" for name in names if (pattern := getattr(self, name)) is not None]
        return f"{', '.join(patterns) or 'all conversations'} → {self.mode}"


def _fits(pattern: str | None, values: Iterable[str]) -> bool:
    return pattern is None or any(fnmatchcase(value, pattern) for value in values)


def rule_for(rules: Iterable[CaptureRule], talk: Talk) -> CaptureRule | None:
    """Return the first rule that a conversation fits, or None."""
    return next((rule for rule in rules if rule.fits(talk)), None)


if TYPE_CHECKING:
    #: Returns the capture of a workspace's conversation by rules.
    CaptureOf = Callable[[str, Talk], Capture]


def capture_in(conversation: Mapping[str, object], capture_of: CaptureOf) -> Capture:
    """Return the capture of an unchecked conversation: what it states, or what rules say if they are stricter.

    Raises:
        InputError: the stated capture is unknown.
    """
    workspace_id, agent_id, conversation_id = (
        value if isinstance(value := conversation.get(name), str) else ""
        for name in ("workspace_id", "agent_id", "conversation_id")
    )
    tags, source = conversation.get("tags"), conversation.get("source")
    talk = Talk(
        agent_id,
        conversation_id,
        [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list | tuple) else (),
        source if isinstance(source, str) else None,
    )
    return Capture.parse(conversation.get("capture")).or_stricter(capture_of(workspace_id, talk))
