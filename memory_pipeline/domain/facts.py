"""Working memory: what is remembered of a message, and the ports by which it is found in text.

Every message of a user or an assistant gives one ``turn`` (its text, verbatim, so that what was written can always
be found), and one further fact for each sentence that asserts something.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.identity import digest, make_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.domain.conversations import Message, Scope

#: `extraction_method` of turns: no judgement was made.
VERBATIM = "verbatim"


class FactKind(StrEnum):
    """What sort of thing a fact says."""

    TURN = "turn"
    STATEMENT = "statement"
    EVENT = "event"
    PLAN = "plan"
    PREFERENCE = "preference"
    INSTRUCTION = "instruction"


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of working memory.

    Attributes:
        id: hash of scope, sources and content; see :mod:`memory_pipeline.domain.identity`.
        content: one text that stands on its own, beginning with its speaker: ``Anna: I moved to Porto.``
        entities: names of people, places and things in it, as written, sorted.
        importance: 0 to 1, how much is lost if it is forgotten.
        confidence: 0 to 1, how sure the extraction is.
        message_ids: the messages that it rests on.
        turn: position of its message in the conversation.
        position: 0 for the turn itself, then the number of its sentence; what one message says stays in order.
        event_at: when it was said, UTC.
        mentioned_at: the day that the text speaks about ("yesterday"), at 00:00 UTC of that date, if it names one.
        extraction_method: what found it: ``verbatim``, or the extractor's name and version.
    """

    id: str
    scope: Scope
    kind: FactKind
    content: str
    speaker: str
    entities: tuple[str, ...]
    importance: float
    confidence: float
    conversation_id: str
    message_ids: tuple[str, ...]
    turn: int
    position: int
    event_at: datetime
    mentioned_at: datetime | None
    tags: tuple[str, ...]
    extraction_method: str

    @property
    def digest(self) -> str:
        """Changes whenever anything about the fact changes."""
        return digest(
            self.id, self.kind, self.content, self.speaker, self.entities, self.importance, self.confidence,
            self.turn, self.position, self.event_at, self.mentioned_at, self.tags, self.extraction_method,
        )  # fmt: skip

    @classmethod
    def of(
        cls,
        message: Message,
        kind: FactKind,
        text: str,
        *,
        extraction_method: str,
        position: int = 0,
        entities: Sequence[str] = (),
        importance: float = 0.3,
        confidence: float = 1.0,
        mentioned_at: datetime | None = None,
    ) -> Fact:
        """Make a fact that rests on one message; `text` is what it says, without the speaker."""
        content = f"{message.speaker}: {text}"
        return cls(
            id=make_id(
                Grain.WORKING,
                message.hour,
                message.scope.workspace_id,
                message.scope.agent_id,
                message.id,
                kind is FactKind.TURN,
                content,
            ),
            scope=message.scope,
            kind=kind,
            content=content,
            speaker=message.speaker,
            entities=tuple(sorted(set(entities))),
            importance=importance,
            confidence=confidence,
            conversation_id=message.conversation_id,
            message_ids=(message.id,),
            turn=message.turn,
            position=position,
            event_at=message.sent_at,
            mentioned_at=mentioned_at,
            tags=message.tags,
            extraction_method=extraction_method,
        )


class Extractor(Protocol):
    """Finds facts in messages."""

    @property
    def name(self) -> str:
        """Name and version; stands in every row's `extraction_method`, and a new one re-makes facts."""
        ...

    def extract(self, messages: Sequence[Message]) -> list[Fact]:
        """Return the facts of `messages` (memorable roles only), in the messages' order.

        Pure: equal messages give equal facts, whatever else is in the batch.
        """
        ...
