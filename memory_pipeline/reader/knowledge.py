"""Context for a model: recalled items, and a block of items from several sources, marked as recalled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from memory_pipeline.domain.model_calls import BYTES_PER_TOKEN, TextLines
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.recalled_text import FRAME_BYTES, LINE, mark, mark_lines, without_recalled
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from datetime import date


class Source(StrEnum):
    """Source of an item. The values are in the order of the block."""

    DURABLE = "durable"
    GRAPH = "graph"
    MEMORY = "memory"
    SUMMARY = "summary"
    DOCUMENT = "document"


_HEADINGS: Final = {
    Source.DURABLE: f"{LINE}What to keep in mind:",
    Source.GRAPH: f"{LINE}Known facts:",
    Source.MEMORY: f"{LINE}Said before:",
    Source.SUMMARY: f"{LINE}From summaries of longer times:",
    Source.DOCUMENT: f"{LINE}From documents:",
}
_CUT: Final = "…"
#: A cut item keeps at least this many characters after its prefix.
_LEAST: Final = 12
#: Longer words are cut inside.
_LONGEST_WORD: Final = 40


@dataclass(frozen=True, slots=True)
class Document:
    """A snippet from the caller's own search. `id` is shown before it. Lines marked as recalled are removed."""

    content: str
    id: str | None = None

    @classmethod
    def of(cls, value: object, place: int) -> Document:
        """Return a document from a text, a mapping or a document. Raise InputError if it is none of these, or blank."""
        if isinstance(value, Mapping):
            value = cls(value.get("content"), value.get("id"))  # type: ignore[arg-type]  # checked below
        document = value if isinstance(value, Document) else cls(value)  # type: ignore[arg-type]  # checked below
        if not isinstance(document.content, str) or not document.content.strip() or not is_unicode(document.content):
            raise InputError(
                f"documents[{place}] {shown(value)} is not accepted; expected a text, or a mapping with content (a "
                "text that is not blank) and optionally id"
            )
        if not isinstance(document.id, str | None) or not is_unicode(document.id or ""):
            raise InputError(f"documents[{place}] has the id {shown(document.id)}; expected a text")
        return replace(document, content=without_recalled(document.content))


@dataclass(frozen=True, slots=True)
class ContextItem:
    """One item of an injected context.

    Attributes:
        id: of a durable memory, a fact, a point of a summary or a graph fact; of a document, its id or number.
        text: the text as shown, without the warning; may have several lines.
        said: the text without its prefix (a date or an origin).
        evidence: ids of its messages.
        is_standing: whether it is a permanent memory; such items come first in their source.
        warning: shown after the text if the memory may have changed since; never cut.
    """

    source: Source
    id: str
    text: str
    said: str
    evidence: frozenset[str] = frozenset()
    is_standing: bool = False
    warning: str | None = None

    @property
    def lines(self) -> str:
        """The text and the warning as an item of a list."""
        shown = f"{self.text} ({self.warning})" if self.warning else self.text
        return mark_lines("\n  ".join(line for line in shown.splitlines() if line.strip()))


@dataclass(frozen=True, slots=True)
class InjectedContext:
    """Context for a prompt.

    Attributes:
        parts: the chosen items in the order of the block.
        left_out: number of items found but not chosen.
        troubles: error messages, by failed source or model. The other sources still answered.
    """

    parts: tuple[ContextItem, ...] = ()
    left_out: int = 0
    troubles: Mapping[str, str] = field(default_factory=dict)

    @property
    def block(self) -> str:
        """The text for the model, marked as recalled; empty if nothing was found."""
        return mark(_body(self.parts)) if self.parts else ""

    @property
    def tokens(self) -> int:
        """The size of the block, estimated at 4 bytes a token."""
        return -(-size_of(self.parts) // BYTES_PER_TOKEN)

    def of(self, source: Source | str) -> list[ContextItem]:
        """Return the items of one source."""
        return [part for part in self.parts if part.source == source]

    def __str__(self) -> str:
        return self.block


def size_of(parts: tuple[ContextItem, ...]) -> int:
    """Return the size of a block of items in bytes."""
    return FRAME_BYTES + len(_body(parts).encode()) if parts else 0


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a growing block, equal to :func:`size_of` of its items. `sources` have a heading already."""

    bytes: int = 0
    sources: frozenset[Source] = frozenset()

    def plus(self, part: ContextItem) -> Size:
        """Return the size with one more item."""
        heading = 0 if part.source in self.sources else len(_HEADINGS[part.source].encode()) + 1
        frame = 0 if self.sources else FRAME_BYTES - 1  # the last line has no line break
        added = len(part.lines.encode()) + 1
        return Size(self.bytes + frame + heading + added, self.sources | {part.source})


def cut_to(part: ContextItem, size: int) -> ContextItem | None:
    """Cut an item between words to at most `size` bytes as an item of a list; None if too little text would be left."""
    if len(part.text) <= size and len(part.lines.encode()) <= size:
        return part
    warning_size = len(f" ({part.warning})".encode()) if part.warning else 0
    room = max(size - len(f"{LINE}\n".encode()) - len(_CUT.encode()) - warning_size, 0)
    text = part.text[:room].encode()[:room].decode(errors="ignore")
    # Continuation lines are indented, so the size is only known after cutting.
    while text and len(replace(part, text=text + _CUT).lines.encode()) > size:
        text = text[: -max(len(text) // 20, 1)]
    is_between_words = part.text[len(text) : len(text) + 1].isspace()
    words = text.rsplit(None, 1)
    # Some languages have no spaces, and some words are very long.
    whole = text if is_between_words or len(words) < 2 or len(words[1]) > _LONGEST_WORD else words[0]
    said = len(whole.rstrip()) - max(part.text.find(part.said), 0)
    return replace(part, text=f"{whole.rstrip()}{_CUT}") if said >= _LEAST else None


def compact(text: str) -> str:
    """Return a text without blank lines and without white space at its ends."""
    return "\n".join(line for line in text.splitlines() if line.strip()).strip()


def _body(parts: tuple[ContextItem, ...]) -> str:
    lines = []
    for source in Source:
        items = [part.lines for part in parts if part.source is source]
        lines += [_HEADINGS[source], *items] if items else []
    return "\n".join(lines)


DURABLE: Final = "durable"
GRAPH: Final = "graph"


@dataclass(frozen=True, slots=True)
class Recalled:
    """One recalled item.

    Attributes:
        id: of a fact, a point of a summary (``{summary id}#{n}``), a durable memory or a graph fact;
            :meth:`MemoryReader.expand` accepts it.
        grain: the grain of a fact or a summary; ``durable`` or ``graph``.
        period: the partition of the row.
        date: the day it was said, in the lake's time zone; of a point without a day, the first day of its period; of a
            durable memory, the day it was last said, updated or confirmed.
        source_ids: messages of a fact; messages and changes of a durable memory; of a point, its own id.
        score: relevance to the question. A fact in place of a durable memory, and a graph fact around one, score at
            least as high as the memory.
        kind: kind of a fact or a durable memory.
        is_excerpt: whether `content` is a passage of a longer message.
        warning: a note that a durable memory may have changed since; also on items that say the same.
        identity: the user or group whose memory it is from: ``user:`` or ``group:`` and an id; empty for the agent's
            own memory.
    """

    id: str
    grain: Grain | Literal["durable", "graph"]
    period: str
    date: date
    content: str
    source_ids: tuple[str, ...]
    score: float
    kind: str | None = None
    warning: str | None = None
    is_excerpt: bool = False
    identity: str = ""

    @property
    def note(self) -> str:
        """The origin, unless it is a fact of a conversation, and the warning."""
        if self.grain == GRAPH:
            return "graph"
        if self.grain == DURABLE:
            return f"{self.kind}; {self.warning}" if self.warning else f"{self.kind}"
        source = "" if self.grain is Grain.WORKING else f"{self.grain} summary of {self.period}"
        return "; ".join(part for part in (source, self.warning) if part)

    @property
    def line(self) -> str:
        """The text with its date and its note."""
        return f"[{self.date}] {self.content}{f' ({self.note})' if self.note else ''}"

    def __str__(self) -> str:
        """Return the line, marked as recalled."""
        return mark_lines(self.line)


class Recollection(TextLines[Recalled]):
    """Recalled items, best first."""
