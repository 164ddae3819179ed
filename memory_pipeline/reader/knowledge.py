"""What is put before a model with a prompt: parts from several sources, as one block that is marked as recalled."""

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
    """Where a part comes from; in the order in which they are shown."""

    DURABLE = "durable"
    GRAPH = "graph"
    MEMORY = "memory"
    SUMMARY = "summary"
    DOCUMENT = "document"


#: What stands above the parts of each source.
_HEADINGS: Final = {
    Source.DURABLE: f"{LINE}What to keep in mind:",
    Source.GRAPH: f"{LINE}Known facts:",
    Source.MEMORY: f"{LINE}Said before:",
    Source.SUMMARY: f"{LINE}From summaries of longer times:",
    Source.DOCUMENT: f"{LINE}From documents:",
}
_CUT: Final = "…"
#: Of a part that is cut, so many characters of what it says are left at least.
_LEAST: Final = 12
#: A longer one is cut in its midst.
_LONGEST_WORD: Final = 40


@dataclass(frozen=True, slots=True)
class Document:
    """A snippet that the caller brings, from a search of its own say; what was recalled before is no part of it.

    Attributes:
        content: its text.
        id: where it comes from; shown before the text.
    """

    content: str
    id: str | None = None

    @classmethod
    def of(cls, value: object, place: int) -> Document:
        """Return a document of a text, of a mapping with ``content`` and perhaps ``id``, or of one.

        Raises:
            InputError: it is none of these, or its text is blank.
        """
        if isinstance(value, Mapping):
            value = cls(value.get("content"), value.get("id"))  # type: ignore[arg-type]  # checked below
        document = value if isinstance(value, Document) else cls(value)  # type: ignore[arg-type]  # likewise
        if not isinstance(document.content, str) or not document.content.strip() or not is_unicode(document.content):
            raise InputError(
                f"documents[{place}] {shown(value)} is not accepted; expected a text, or a mapping with content (a "
                "text that is not blank) and perhaps id"
            )
        if not isinstance(document.id, str | None) or not is_unicode(document.id or ""):
            raise InputError(f"documents[{place}] has the id {shown(document.id)}; expected a text")
        return replace(document, content=without_recalled(document.content))


@dataclass(frozen=True, slots=True)
class ContextItem:
    """One thing that is known.

    Attributes:
        source: where it comes from.
        id: of a durable memory, a fact, a point of a summary, a fact of the graph; a document's own, or its number.
        text: as it is shown, on one line or several, without the warning.
        said: the same without what is put before it: a date, where it comes from.
        evidence: messages that it rests on.
        is_standing: whether it holds until it is revoked: such parts come first of their source.
        warning: what is shown behind the text, where it may have changed since; it is not cut here.
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
        """The text as an item of a list."""
        shown = f"{self.text} ({self.warning})" if self.warning else self.text
        return mark_lines("\n  ".join(line for line in shown.splitlines() if line.strip()))


@dataclass(frozen=True, slots=True)
class InjectedContext:
    """What is known of a prompt.

    Attributes:
        parts: what was chosen, in the order of the block.
        left_out: how many things were found that had no place.
        troubles: what did not help, and why: of each source that failed, of a model that did not answer. The rest is
            there all the same.
    """

    parts: tuple[ContextItem, ...] = ()
    left_out: int = 0
    troubles: Mapping[str, str] = field(default_factory=dict)

    @property
    def block(self) -> str:
        """The text to put before a model, marked as recalled; empty if nothing is known."""
        return mark(_body(self.parts)) if self.parts else ""

    @property
    def tokens(self) -> int:
        """What the block takes, estimated at 4 bytes a token."""
        return -(-size_of(self.parts) // BYTES_PER_TOKEN)

    def of(self, source: Source | str) -> list[ContextItem]:
        """Return the parts that come from one source."""
        return [part for part in self.parts if part.source == source]

    def __str__(self) -> str:
        """Return the block."""
        return self.block


def size_of(parts: tuple[ContextItem, ...]) -> int:
    """Return the bytes of the block of some parts."""
    return FRAME_BYTES + len(_body(parts).encode()) if parts else 0


@dataclass(frozen=True, slots=True)
class Size:
    """The bytes of a block, part by part: what :func:`size_of` would say of all of them.

    Attributes:
        bytes: of the block so far.
        sources: those that have a heading already.
    """

    bytes: int = 0
    sources: frozenset[Source] = frozenset()

    def plus(self, part: ContextItem) -> Size:
        """Return the size with one more part."""
        heading = 0 if part.source in self.sources else len(_HEADINGS[part.source].encode()) + 1
        frame = 0 if self.sources else FRAME_BYTES - 1  # the last line has no break
        added = len(part.lines.encode()) + 1
        return Size(self.bytes + frame + heading + added, self.sources | {part.source})


def cut_to(part: ContextItem, size: int) -> ContextItem | None:
    """Return a part that takes at most `size` bytes as an item of a list; it is cut between words, and ends so.

    None if so little of it would be left that it says nothing.
    """
    if len(part.text) <= size and len(part.lines.encode()) <= size:
        return part
    beside = len(f" ({part.warning})".encode()) if part.warning else 0
    room = max(size - len(f"{LINE}\n".encode()) - len(_CUT.encode()) - beside, 0)
    text = part.text[:room].encode()[:room].decode(errors="ignore")
    # Lines that go on are indented: what that adds is not known before.
    while text and len(replace(part, text=text + _CUT).lines.encode()) > size:
        text = text[: -max(len(text) // 20, 1)]
    is_between_words = part.text[len(text) : len(text) + 1].isspace()
    words = text.rsplit(None, 1)
    # Some languages have no blanks, and some words are longer than most.
    whole = text if is_between_words or len(words) < 2 or len(words[1]) > _LONGEST_WORD else words[0]
    said = len(whole.rstrip()) - max(part.text.find(part.said), 0)
    return replace(part, text=f"{whole.rstrip()}{_CUT}") if said >= _LEAST else None


def compact(text: str) -> str:
    """Return a text without blank lines, nor white space at its ends."""
    return "\n".join(line for line in text.splitlines() if line.strip()).strip()


def _body(parts: tuple[ContextItem, ...]) -> str:
    lines = []
    for source in Source:
        own = [part.lines for part in parts if part.source is source]
        lines += [_HEADINGS[source], *own] if own else []
    return "\n".join(lines)


#: In the place of a grain: of what is kept for good, and of facts of the graph.
DURABLE: Final = "durable"
GRAPH: Final = "graph"


@dataclass(frozen=True, slots=True)
class Recalled:
    """One thing recalled.

    Attributes:
        id: of a fact, of a point of a summary (``{summary id}#{n}``), of a durable memory, or of a fact of the graph;
            :meth:`MemoryReader.expand` takes it.
        grain: where it was found; ``durable`` of what is kept for good, ``graph`` of a fact of the graph.
        period: the partition that it lies in.
        date: when it was said, in the lake's time zone; of a point that does not tell, when its period begins; of a
            durable memory, when it was last said, updated or confirmed.
        content: its text.
        source_ids: messages of a fact, and of a durable memory, beside what an agent did; of a point, the point itself.
        score: how well it fits the question; of what stands for a durable memory, and of a fact of the graph around
            one, at least as well as that.
        kind: of a fact or a durable memory.
        is_excerpt: whether the content is a passage of a longer message.
        warning: what to tell with a durable memory that may have changed since, or with what says the same.
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

    @property
    def note(self) -> str:
        """Where it comes from, unless it is what somebody said, and what to beware of."""
        if self.grain == GRAPH:
            return "graph"
        if self.grain == DURABLE:
            return f"{self.kind}; {self.warning}" if self.warning else f"{self.kind}"
        source = "" if self.grain is Grain.WORKING else f"{self.grain} summary of {self.period}"
        return "; ".join(part for part in (source, self.warning) if part)

    @property
    def line(self) -> str:
        """Its text with its date and where it comes from."""
        return f"[{self.date}] {self.content}{f' ({self.note})' if self.note else ''}"

    def __str__(self) -> str:
        """Return the line, marked as recalled."""
        return mark_lines(self.line)


class Recollection(TextLines[Recalled]):
    """What was recalled, best first."""
