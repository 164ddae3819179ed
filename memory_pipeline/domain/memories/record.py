"""A durable memory: one thing that an agent keeps until it is revoked, superseded, or forgotten."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.text.recalled_text import mark_lines
from memory_pipeline.domain.text.words import plain, spaced
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from datetime import datetime

#: Longest title, hook, content and other texts of a memory, in characters.
MAX_TITLE, MAX_HOOK, MAX_CONTENT, MAX_VALUE = 1_000, 120, 20_000, 20_000
#: Most messages, and conversations, that a memory names: of what is said daily, every version would name all days.
MAX_SOURCES = 100
#: What a memory begins with, if nobody says otherwise.
IMPORTANCE, CONFIDENCE, DECAY_RATE = 0.5, 1.0, 0.0

#: Words without which a sentence says the same.
_ARTICLES = frozenset(["a", "an", "the"])
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
#: How the predicate of a fact begins that says of another that it holds no more.
ENDED = "no_longer_"
_CUT = "…"
#: Signs without which a text says something else: C# and C++, € and $, -5 and 5, 1.5 and 15.
_SIGNS = re.compile(r"[#%&@]|(?<!\w)[-−](?=\d)|(?<=\d)[.,:/-](?=\d)")


class _Traits(NamedTuple):
    """What a kind of memory is, all of which a new kind has to say.

    Attributes:
        value: how it is written.
        is_permanent: whether it holds until it is revoked or superseded: no passage of time makes it stale.
        weight: how much more it counts in the hot index than a fact: what holds until it is revoked outlasts months
            without use. None has no place there: what a tool said, and what nobody has confirmed, which else could
            never grow stale.
        rivals: what it shares with the kinds that it can contradict: what is true, what is liked, what is asked for.
    """

    value: str
    is_permanent: bool
    weight: float | None
    rivals: str | None


# Nothing else has to know a kind: what depends on it is among its traits.
class MemoryKind(StrEnum):
    """What sort of thing a memory says."""

    FACT = _Traits("fact", is_permanent=False, weight=1.0, rivals="fact")
    RULE = _Traits("rule", is_permanent=True, weight=4.0, rivals=None)
    INSTRUCTION = _Traits("instruction", is_permanent=True, weight=4.0, rivals="instruction")
    OBSERVATION = _Traits("observation", is_permanent=False, weight=None, rivals="fact")
    PREFERENCE = _Traits("preference", is_permanent=True, weight=2.0, rivals="preference")
    PROCEDURE = _Traits("procedure", is_permanent=False, weight=1.0, rivals=None)
    REFLECTION = _Traits("reflection", is_permanent=False, weight=0.5, rivals=None)
    DECISION = _Traits("decision", is_permanent=False, weight=1.0, rivals=None)
    PLAN = _Traits("plan", is_permanent=False, weight=0.8, rivals=None)
    TOOL_OUTPUT = _Traits("tool_output", is_permanent=False, weight=None, rivals=None)

    _value_: str
    is_permanent: bool
    weight: float | None
    rivals: str | None

    def __new__(cls, value: str, *traits: Any) -> MemoryKind:
        """Make a member of its traits. A kind that lacks one is refused when this module is read."""
        own = _Traits(value, *traits)
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.is_permanent, kind.weight, kind.rivals = own.is_permanent, own.weight, own.rivals
        return kind

    @classmethod
    def parse(cls, text: object) -> MemoryKind:
        """Read a kind.

        Raises:
            InputError: it is none of these.
        """
        try:
            return cls(text)  # type: ignore[arg-type]  # whatever it is, it is one or not
        except ValueError:
            raise InputError(f"kind {shown(text)} is unknown; accepted: {', '.join(cls)}") from None


class Temperature(StrEnum):
    """How a memory is loaded: hot always, in the index; warm when it is recalled; cold by archive search alone."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"


class Status(StrEnum):
    """Whether a memory counts.

    Superseded: another took its place. Deprecated: the agent has revoked it. Archived: it had faded.
    """

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    DEPRECATED = "deprecated"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True)
class DurableMemory:
    """One version of a durable memory; of the newest version, how it stands.

    Attributes:
        id: the memory's identity, which all of its versions share: ``memory:{hour}:{32 hex digits}``.
        version: from 1; a new one is made whenever what it says changes, or it is said again.
        kind: what sort of thing it says.
        title: what it is about, on one line.
        hook: a line of at most 120 characters, for the hot index.
        content: what it says.
        subject, predicate, object: the same as a fact of three terms, where it is one.
        user_id, key, value: of a preference: whose, its name, and what was set, as JSON.
        importance: 0 to 1, as it was set; how it fades is worked out when it is asked for, never stored.
        confidence: 0 to 1.
        decay_rate: how fast its relevance fades, per day since it was last accessed.
        access_count: how often it was used.
        last_accessed_at: when it was last used, UTC.
        is_point_in_time: whether it says how things stood at one moment, which is soon no longer so.
        temperature: how it is loaded.
        status: whether it counts.
        status_reason: why its status or temperature is what it is; None of what was never changed.
        superseded_by: id of the memory that took its place.
        merged_ids: ids of the memories that it took in.
        source_ids: messages, or events, that it rests on; oldest first, and of many the last 100.
        conversation_ids: conversations in which it was said, likewise.
        tags: labels, sorted.
        editor: who made this version: ``conversation``, ``upkeep``, ``agent``, or a name that the writer gave.
        event_id: the event that made this version.
        match_keys: see :func:`match_key`; what is said with one of these is said of this memory.
        created_at: when it was first said, UTC.
        updated_at: when it was last said, updated or confirmed, UTC.
        changed_at: when what it says or its status last changed, by whomever, UTC.
        reviewed_at: when a model last said that it is not stale, UTC.
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
        """Id of this version alone: ``memory:…#3``."""
        return f"{self.id}#{self.version}"

    @property
    def is_active(self) -> bool:
        """Tell whether it counts."""
        return self.status is Status.ACTIVE

    @property
    def is_recalled(self) -> bool:
        """Tell whether recall may show it: it counts, and is not cold."""
        return self.is_active and self.temperature is not Temperature.COLD

    @property
    def last_used_at(self) -> datetime:
        """When it was last said, confirmed or accessed, UTC."""
        return self.updated_at if self.last_accessed_at is None else max(self.updated_at, self.last_accessed_at)

    def __str__(self) -> str:
        """Return what it says, marked as recalled."""
        return mark_lines(self.content)


@lru_cache(maxsize=65_536)
def match_key(kind: MemoryKind, content: str) -> str:
    """Return what near-identical contents of one kind share: 32 hex digits over their words.

    Case, accents, doubled blanks, articles and punctuation do not count; every other word, its place, and signs that
    change what is said (:func:`signs`) do. Of a text without words, all of it counts.
    """
    words = [word for word in spaced(plain(content)).split() if word not in _ARTICLES]
    return digest(kind.value, words or content, *signs(content))


def signs(text: str) -> tuple[str, ...]:
    """Return the signs of a text that tell it from another with the same words, in order."""
    return tuple(sign for sign in text if unicodedata.category(sign) in ("Sc", "Sm")) + tuple(_SIGNS.findall(text))


def preference_key(user_id: str, key: str) -> str:
    """Return the match key of a preference: whatever is set, one user has one of each name."""
    return digest(MemoryKind.PREFERENCE.value, "of", user_id, "named", key)


def triple_key(memory: DurableMemory) -> tuple[str, str] | None:
    """Return subject and predicate as they are compared; None of a memory that has none."""
    return (name_key(memory.subject), memory.predicate) if memory.subject and memory.predicate else None


def sentences(content: str) -> list[str]:
    """Return the sentences and lines of a content, trimmed."""
    return [part for part in (piece.strip() for piece in _SENTENCE.split(content)) if part]


def title_of(content: str) -> str:
    """Return a title for a content that has none: its first sentence, on one line, at most 80 characters."""
    return shortened(next(iter(sentences(content)), content.strip()), 80)


def one_line_summary(content: str) -> str:
    """Return a hook for a content that has none: its beginning, on one line, at most 120 characters."""
    return shortened(content, MAX_HOOK)


def shortened(text: str, length: int) -> str:
    """Return a text on one line, cut between words where it is longer than `length` characters."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    head = line[: length - len(_CUT)]
    whole, blank, _ = head.rpartition(" ")
    return (whole if blank and len(whole) > length // 2 else head).rstrip() + _CUT
