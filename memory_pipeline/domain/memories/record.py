"""The record of a durable memory, its kinds and status, and match keys."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from memory_pipeline.domain.authority import Authority, authority_of
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.text.recalled_text import mark_lines
from memory_pipeline.domain.text.words import plain, spaced
from memory_pipeline.domain.values import one_of

if TYPE_CHECKING:
    from datetime import datetime

#: Longest title, hook, content and other texts of a memory, in characters.
MAX_TITLE, MAX_HOOK, MAX_CONTENT, MAX_VALUE = 1_000, 120, 20_000, 20_000
#: Maximum number of messages, and of conversations, of a memory. Otherwise each version of a statement that is repeated
#: every day would list all days.
MAX_SOURCES = 100
IMPORTANCE, CONFIDENCE, DECAY_RATE = 0.5, 1.0, 0.0

#: Words that do not change the meaning of a sentence.
_ARTICLES = frozenset(["a", "an", "the"])
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
#: Prefix of predicates that deny a previous fact.
ENDED = "no_longer_"
_CUT = "…"
_One = TypeVar("_One", bound=StrEnum)
#: Signs that change the meaning of a text: C# and C++, € and $, -5 and 5, 1.5 and 15. Of the symbols, those in ASCII;
#: others are known by their category.
_SYMBOLS = re.compile(r"[$+<=>|~]")
_SIGNS = re.compile(r"[#%&@]|(?<!\w)[-−](?=\d)|(?<=\d)[.,:/-](?=\d)")


class MemoryKind(StrEnum):
    """The kind of a memory."""

    FACT = "fact"
    RULE = "rule"
    INSTRUCTION = "instruction"
    OBSERVATION = "observation"
    PREFERENCE = "preference"
    PROCEDURE = "procedure"
    REFLECTION = "reflection"
    DECISION = "decision"
    PLAN = "plan"
    TOOL_OUTPUT = "tool_output"
    CONVERSATION_SUMMARY = "conversation_summary"

    @classmethod
    def parse(cls, text: object) -> MemoryKind:
        """Return the kind with this name.

        Raises:
            InputError: the kind is unknown.
        """
        return one_of(cls, "kind", text)


class MemoryClass(StrEnum):
    """Whether a memory states a fact, or tells of an attempt and its outcome."""

    FACTUAL = "factual"
    EXPERIENTIAL = "experiential"


class SourceType(StrEnum):
    """What made a memory: what a user said, or a system, a tool, a workflow or a program of an agent that wrote it.

    An assistant is a model that called a tool, an import a copy from elsewhere. See
    :mod:`memory_pipeline.domain.authority`.
    """

    USER = "user"
    ASSISTANT = "assistant"
    IMPORT = "import"
    SYSTEM = "system"
    TOOL = "tool"
    WORKFLOW = "workflow"
    AGENT = "agent"


class ContextType(StrEnum):
    """What a context is for."""

    AGENT_MEMORY = "agent_memory"
    KNOWLEDGE_BASE = "knowledge_base"
    SHARED_CONTEXT = "shared_context"
    TOOL_CACHE = "tool_cache"
    PROJECT_CONTEXT = "project_context"


class ContextScope(StrEnum):
    """Who reads a context: its own agent, a team too, or all agents of the workspace."""

    AGENT = "agent"
    TEAM = "team"
    GLOBAL = "global"


#: The context of the memories that stand for contexts.
CONTEXTS = "contexts"


class Temperature(StrEnum):
    """How a memory is loaded: hot always, in the hot index; warm by recall; cold only by archive search."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"


class Status(StrEnum):
    """The status of a memory.

    Superseded: replaced by another memory. Deprecated: revoked by the agent. Archived: faded or stale.
    """

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    DEPRECATED = "deprecated"
    ARCHIVED = "archived"


#: What memories have in common that can say the same, or can contradict each other.
SETTING = ("user_id", "key", "memory_class", "outcome_success")


@dataclass(frozen=True, slots=True)
class DurableMemory:
    """One version of a durable memory. The newest version also has the current status, temperature and counts.

    Attributes:
        id: shared by all versions: ``memory:{hour}:{32 hex digits}``.
        version: from 1; a change of the content or a repetition creates a new version.
        title: the topic, on one line.
        hook: one line of at most 120 characters, for the hot index.
        subject, predicate, object: the content as a triple, if it is one.
        user_id, key, value: of a preference: the user, its name, and its value as JSON. An entry of a context has a
            key, and may have a value.
        importance, confidence: 0 to 1. The importance is as set; its decay is computed on demand, never stored.
        decay_rate: decay of the relevance per day since the last use.
        is_point_in_time: whether it describes one moment and becomes stale soon.
        outcome_success: whether an experience ended well; None if unknown or partial, and of other memories.
        context: the name of the context of which it is an entry.
        status_reason: reason for the status or the temperature; None if they never changed.
        superseded_by: id of the memory that replaced it.
        merged_ids: ids of the memories that were merged into it.
        source_ids, conversation_ids: source messages or events, and conversations, oldest first, at most the last 100.
        tags: sorted.
        editor: author of this version: ``conversation``, ``consolidation``, ``agent``, or a name from the client.
        event_id: the event that created this version.
        match_keys: see :func:`match_key`; statements with one of these keys update this memory.
        created_at, updated_at: when it was first stated, and last stated, updated or confirmed, UTC.
        changed_at: when its content or status last changed, UTC.
        reviewed_at: when a model last found it not stale, UTC.
    """

    id: str
    version: int
    kind: MemoryKind
    title: str
    hook: str
    content: str
    subject: str | None
    predicate: str | None
    object: str | None
    user_id: str | None
    key: str | None
    value: str | None
    importance: float
    confidence: float
    decay_rate: float
    access_count: int
    last_accessed_at: datetime | None
    is_point_in_time: bool
    memory_class: MemoryClass
    outcome_success: bool | None
    source_type: SourceType
    context: str | None
    temperature: Temperature
    status: Status
    status_reason: str | None
    superseded_by: str | None
    merged_ids: tuple[str, ...]
    source_ids: tuple[str, ...]
    conversation_ids: tuple[str, ...]
    tags: tuple[str, ...]
    editor: str
    event_id: str
    match_keys: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    changed_at: datetime
    reviewed_at: datetime | None = None

    @property
    def version_id(self) -> str:
        """The id of this version: ``memory:…#3``."""
        return f"{self.id}#{self.version}"

    @property
    def setting(self) -> tuple[str | bool | None, ...]:
        """The values of :data:`SETTING`."""
        return tuple(getattr(self, name) for name in SETTING)

    @property
    def said_by(self) -> Authority:
        """Who said it; of a group's memory, a member. Results of searches know whether it was the reader."""
        return authority_of(self.source_type, self.editor, self.content)

    @property
    def is_active(self) -> bool:
        """Whether its status is active."""
        return self.status is Status.ACTIVE

    @property
    def is_recalled(self) -> bool:
        """Whether recall may return it: it is active and not cold, and not the description of a context."""
        return self.is_active and self.temperature is not Temperature.COLD and self.context != CONTEXTS

    @property
    def last_used_at(self) -> datetime:
        """When it was last stated, confirmed or accessed, UTC."""
        return self.updated_at if self.last_accessed_at is None else max(self.updated_at, self.last_accessed_at)

    def __str__(self) -> str:
        return mark_lines(f"{self.said_by.attribution}{self.content}")


@dataclass(frozen=True, slots=True)
class Header:
    """A memory without its content; attributes as in :class:`DurableMemory`."""

    id: str
    version: int
    kind: MemoryKind
    title: str
    hook: str
    subject: str | None
    predicate: str | None
    object: str | None
    user_id: str | None
    key: str | None
    importance: float
    confidence: float
    temperature: Temperature
    status: Status
    superseded_by: str | None
    merged_ids: tuple[str, ...]
    tags: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    last_accessed_at: datetime | None
    is_point_in_time: bool
    memory_class: MemoryClass
    outcome_success: bool | None
    source_type: SourceType
    context: str | None

    @classmethod
    def of(cls, memory: DurableMemory) -> Header:
        """Return the header of a memory."""
        return cls(**{name: getattr(memory, name) for name in cls.__dataclass_fields__})

    @property
    def is_recalled(self) -> bool:
        """Return whether recall may return it: it is active and not cold, and not the description of a context."""
        return self.status is Status.ACTIVE and self.temperature is not Temperature.COLD and self.context != CONTEXTS

    def __str__(self) -> str:
        """Return one line: ``Where Anna lives (fact): Anna lives in Porto.``."""
        return f"{self.title} ({self.kind}): {self.hook}"


@lru_cache(maxsize=65_536)
def match_key(kind: MemoryKind, content: str) -> str:
    """Return a key that near-identical contents of one kind share: 32 hex digits over their words.

    Case, accents, repeated blanks, articles and punctuation are ignored. All other words, their order, and signs that
    change the meaning (:func:`signs`) count. A text without words counts as a whole.
    """
    words = [word for word in spaced(plain(content)).split() if word not in _ARTICLES]
    return digest(kind.value, words or content, *signs(content))


def signs(text: str) -> tuple[str, ...]:
    """Return the signs that distinguish a text from others with the same words, in order."""
    found = _SYMBOLS.findall(text) if text.isascii() else filter(_is_symbol, text)
    return (*found, *_SIGNS.findall(text))


def _is_symbol(character: str) -> bool:
    return unicodedata.category(character) in ("Sc", "Sm")


def preference_key(user_id: str, key: str) -> str:
    """Return the match key of a preference, which ignores the value."""
    return digest(MemoryKind.PREFERENCE.value, "of", user_id, "named", key)


def sentences(content: str) -> list[str]:
    """Return the sentences and lines of a content, stripped."""
    return [part for part in (piece.strip() for piece in _SENTENCE.split(content)) if part]


def title_of(content: str) -> str:
    """Return a default title: the first sentence, on one line, at most 80 characters."""
    return shortened(next(iter(sentences(content)), content.strip()), 80)


def one_line_summary(content: str) -> str:
    """Return a default hook: the beginning of the content, on one line, at most 120 characters."""
    return shortened(content, MAX_HOOK)


def shortened(text: str, length: int) -> str:
    """Return a text on one line, truncated between words to at most `length` characters."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    head = line[: length - len(_CUT)]
    whole, blank, _ = head.rpartition(" ")
    return (whole if blank and len(whole) > length // 2 else head).rstrip() + _CUT
