"""Working memory: what is remembered of a message, and the ports by which it is found in text.

Every message of a user or an assistant gives one ``turn`` (its text, verbatim, so that what was written can always
be found), and one further fact for each sentence that asserts something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from memory_pipeline.domain.identity import digest, make_id
from memory_pipeline.domain.periods import Grain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.conversations import Message, Role, Scope
    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.memories.record import MemoryKind
    from memory_pipeline.domain.periods import Period

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
    #: What a conversation was about, in a sentence or two; models write it.
    GIST = "gist"


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of working memory.

    Attributes:
        id: hash of scope, sources and content; see :mod:`memory_pipeline.domain.identity`.
        content: one text that stands on its own. What is quoted begins with its speaker: ``Anna: I moved to Porto.``
        speaker: name of the speaker of the last message that it rests on.
        role: role of that speaker: user or assistant.
        entities: names of people, places and things in it, as written, sorted.
        importance: 0 to 1, how much is lost if it is forgotten.
        confidence: 0 to 1, how sure the extraction is.
        message_ids: the messages that it rests on.
        turn: position of its message in the conversation.
        position: 0 for the turn itself, then the number of its sentence; what one message says stays in order.
        event_at: when it was said, UTC.
        mentioned_at: the day that the text speaks about ("yesterday"), at 00:00 UTC of that date, if it names one.
        extraction_method: what found it: ``verbatim``, or the name and version of the rules or the prompt.
        operations: what it changes of what the agent knows; operations stand at the turn that they rest on.
        durable: the kind of durable memory that it is worth; None of what is working memory alone.
        is_point_in_time: whether it says how things stood at one moment, which is soon no longer so.
        subject, predicate, object: of a durable fact, the same in three terms, where it is one; all or none.
        model, prompt_version: what was asked, where a model was.
        fallback: why the model that is configured did not help and rules took its place; None where nothing failed.
        source_digest: changes if anything that was said in its passage changes, or how facts are extracted.
    """

    id: str
    scope: Scope
    kind: FactKind
    content: str
    speaker: str
    role: Role
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
    operations: tuple[Operation, ...] = ()
    durable: MemoryKind | None = None
    is_point_in_time: bool = False
    subject: str | None = None
    predicate: str | None = None
    object: str | None = None
    model: str | None = None
    prompt_version: str | None = None
    fallback: str | None = None
    source_digest: str | None = None

    @property
    def placed_operations(self) -> list[Operation]:
        """The operations, each with its place among them and the turn of the message."""
        return [replace(one, turn=self.turn, place=place) for place, one in enumerate(self.operations)]

    @property
    def digest(self) -> str:
        """Changes whenever anything that is remembered changes; not by how it was come by."""
        operations = tuple((o.verb, o.subject, o.predicate, o.object, o.confidence) for o in self.operations)
        # Nothing is added to the digest of what is not durable, so that it is that of older lakes.
        durable = (
            ()
            if self.durable is None
            else ({"durable": (self.durable, self.is_point_in_time, self.subject, self.predicate, self.object)},)
        )
        return digest(
            self.id, self.kind, self.content, self.speaker, self.entities, self.importance, self.confidence,
            self.turn, self.position, self.event_at, self.mentioned_at, self.tags, self.extraction_method,
            *operations, *durable,
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
        """Make a fact that quotes one message; `text` is what it says, without the speaker."""
        return cls.resting_on(
            [message],
            kind,
            f"{message.speaker}: {text}",
            extraction_method=extraction_method,
            position=position,
            entities=entities,
            importance=importance,
            confidence=confidence,
            mentioned_at=mentioned_at,
        )

    @classmethod
    def resting_on(
        cls,
        messages: Sequence[Message],
        kind: FactKind,
        content: str,
        *,
        extraction_method: str,
        position: int,
        entities: Sequence[str],
        importance: float,
        confidence: float,
        mentioned_at: datetime | None,
        model: str | None = None,
        prompt_version: str | None = None,
    ) -> Fact:
        """Make a fact that rests on messages of one passage; it was said when the last of them was."""
        last = max(messages, key=lambda message: (message.sent_at, message.turn, message.id))
        identity = [last.id, *sorted({message.id for message in messages} - {last.id})]
        return cls(
            id=make_id(
                Grain.WORKING,
                last.hour,
                last.scope.workspace_id,
                last.scope.agent_id,
                *identity,
                kind is FactKind.TURN,
                content,
            ),
            scope=last.scope,
            kind=kind,
            content=content,
            speaker=last.speaker,
            role=last.role,
            entities=tuple(sorted(set(entities))),
            importance=importance,
            confidence=confidence,
            conversation_id=last.conversation_id,
            message_ids=tuple(identity),
            turn=last.turn,
            position=position,
            event_at=last.sent_at,
            mentioned_at=mentioned_at,
            tags=last.tags,
            extraction_method=extraction_method,
            model=model,
            prompt_version=prompt_version,
        )


@dataclass(frozen=True, slots=True)
class ConversationHour:
    """What one conversation of an agent said within one hour: what facts are extracted from at once.

    Attributes:
        messages: in their order; those of systems and tools too, which are context and never facts.
        digest: changes if anything that was said changes.
    """

    scope: Scope
    hour: Period
    conversation_id: str
    messages: tuple[Message, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found in a passage.

    Attributes:
        facts: the turn of every message of a user or an assistant, and what was found in them.
        refused: parts of a model's answer that were not taken: they cite nothing that exists, or make no sense.
        is_waiting: nothing was made, since the budget is spent and the passage is to wait; there are no facts.
    """

    facts: tuple[Fact, ...]
    refused: int = 0
    is_waiting: bool = False


class Extractor(Protocol):
    """Finds facts in passages."""

    def method(self, scope: Scope) -> str:
        """Name how facts of an agent are found: rules or model, prompt and settings. Another name re-makes them."""
        ...

    def extract(
        self, passages: Sequence[ConversationHour], recall: Callable[[], Mapping[Scope, Sequence[Operation]]]
    ) -> list[Extraction]:
        """Return what is found in each of `passages`, in their order.

        Args:
            passages: of any agents and hours; each has at least one message of a user or an assistant.
            recall: returns the operations of these agents in the weeks before the passages, and in hours between
                them that are not asked for; it is called at most once, and only if it is needed.
        """
        ...
