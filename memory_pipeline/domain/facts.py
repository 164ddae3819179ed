"""Working memory: facts, and the port of their extraction from conversations.

Every message of a user or an assistant becomes one ``turn`` with its verbatim text, so that it can always be found, and
one further fact for each sentence that asserts something.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from memory_pipeline.domain.authority import origin_of
from memory_pipeline.domain.identity import digest, make_id
from memory_pipeline.domain.periods import Grain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.memories.record import MemoryKind
    from memory_pipeline.domain.messages import Message, Role
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope

#: `extraction_method` of turns, which need no extraction.
VERBATIM = "verbatim"
#: Sources of a search: what was said, durable memories, and entries of contexts.
TURNS, MEMORIES, CONTEXTS = SOURCES = ("turns", "memories", "contexts")


class FactKind(StrEnum):
    """The kind of a fact."""

    TURN = "turn"
    STATEMENT = "statement"
    EVENT = "event"
    PLAN = "plan"
    PREFERENCE = "preference"
    INSTRUCTION = "instruction"
    #: The topic of a conversation in one or two sentences, written by a model.
    GIST = "gist"


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of working memory.

    Attributes:
        content: a text that is clear without context. Quotes start with the speaker: ``Anna: I moved to Porto.``
        speaker, role: of the last source message.
        entities: names of people, places and things in the text, as written, sorted.
        importance, confidence: 0 to 1; confidence is that of the extraction.
        message_ids: the source messages.
        turn: position of the message in the conversation.
        position: 0 for the turn itself, else the number of the sentence in the message.
        event_at: time of the message, UTC.
        received_at: when the journal received the last of the messages, UTC.
        mentioned_at: the day that the text refers to, such as "yesterday", at 00:00 UTC; None if it names no day.
        extraction_method: ``verbatim``, or the name and version of the rules or the prompt.
        operations: changes to the knowledge graph. They are stored with the turn of their source.
        durable: kind of the durable memory to create; None for facts of working memory only.
        is_point_in_time: whether it describes one moment and becomes stale soon.
        subject, predicate, object: a durable fact as a triple; all or none are set.
        origin: ``import`` for a conversation that is a copy from elsewhere; else None.
        model, prompt_version: set if a model extracted it.
        fallback: why rules replaced the configured model; None if they did not.
        source_digest: hash of the messages of the hour and of the extraction method.
        source: where the conversation comes from, if the writer said so.
        metadata: the writer's own JSON object of the message, as text, if any.
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
    received_at: datetime
    mentioned_at: datetime | None
    tags: tuple[str, ...]
    extraction_method: str
    operations: tuple[Operation, ...] = ()
    durable: MemoryKind | None = None
    is_point_in_time: bool = False
    subject: str | None = None
    predicate: str | None = None
    object: str | None = None
    origin: str | None = None
    model: str | None = None
    prompt_version: str | None = None
    fallback: str | None = None
    source_digest: str | None = None
    source: str | None = None
    metadata: str | None = None

    @property
    def placed_operations(self) -> list[Operation]:
        """The operations, with their places and what they take from the message."""
        return [
            replace(
                one, turn=self.turn, place=place, speaker=self.speaker, received_at=self.received_at, origin=self.origin
            )
            for place, one in enumerate(self.operations)
        ]

    @property
    def digest(self) -> str:
        """A hash of the content, without model, prompt version and source digest."""
        operations = tuple((o.verb, o.subject, o.predicate, o.object, o.confidence) for o in self.operations)
        # Other facts add nothing, so that their digests are the same as in older lakes.
        durable = (
            ()
            if self.durable is None
            else ({"durable": (self.durable, self.is_point_in_time, self.subject, self.predicate, self.object)},)
        )
        attributes = () if self.source is self.metadata is None else ({"of": (self.source, self.metadata)},)
        return digest(
            self.id, self.kind, self.content, self.speaker, self.entities, self.importance, self.confidence,
            self.turn, self.position, self.event_at, self.received_at, self.mentioned_at, self.tags,
            self.extraction_method, *operations, *durable, *attributes,
        )  # fmt: skip

    @classmethod
    def of(
        cls,
        messages: Sequence[Message],
        kind: FactKind,
        content: str,
        *,
        extraction_method: str,
        position: int = 0,
        entities: Sequence[str] = (),
        importance: float = 0.3,
        confidence: float = 1.0,
        mentioned_at: datetime | None = None,
        model: str | None = None,
        prompt_version: str | None = None,
    ) -> Fact:
        """Create a fact from messages of one conversation hour. The last message determines time, speaker and tags."""
        last = max(messages, key=lambda message: (message.sent_at, message.turn, message.id))
        identity = [last.id, *sorted({message.id for message in messages} - {last.id})]
        return cls(
            id=make_id(Grain.WORKING, last.hour, *last.scope.ids, *identity, kind is FactKind.TURN, content),
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
            received_at=max(message.received_at for message in messages),
            mentioned_at=mentioned_at,
            tags=last.tags,
            extraction_method=extraction_method,
            origin=origin_of(last.source),
            source=last.source,
            metadata=last.metadata,
            model=model,
            prompt_version=prompt_version,
        )


@dataclass(frozen=True, slots=True)
class ConversationHour:
    """The messages of one conversation within one hour: the unit of extraction.

    `messages` are in order, including those of systems and tools, which are context and never facts. `digest` is their
    hash. `earlier` are the last messages of the conversation in the hour before; they explain "yes" and "there". They
    are not part of the digest, so that a late message makes only its own hour anew.
    """

    scope: Scope
    hour: Period
    conversation_id: str
    messages: tuple[Message, ...]
    digest: str
    earlier: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Extraction:
    """The facts of a passage: one turn for every message of a user or an assistant, and the extracted facts.

    `refused` counts the rejected parts of a model's answer by reason, such as a name that no source has.
    `is_waiting` means that the budget is spent and the passage is postponed; there are no facts.
    """

    facts: tuple[Fact, ...]
    refused: Counter[str] = field(default_factory=Counter)
    is_waiting: bool = False


class Extractor(Protocol):
    """Finds facts in passages."""

    def method(self, scope: Scope) -> str:
        """Return a name for the rules, or the model, prompt and settings. A changed name recomputes the facts."""
        ...

    def extract(
        self, passages: Sequence[ConversationHour], recall: Callable[[], Mapping[Scope, Sequence[Operation]]]
    ) -> list[Extraction]:
        """Return the extraction of each passage, in order.

        `passages` are of any agents and hours; each has at least one message of a user or an assistant. `recall`
        returns the operations of these agents from the weeks before the passages, and from hours between them that are
        not in `passages`. It is called at most once, and only if needed.
        """
        ...
