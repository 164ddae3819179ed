"""What a search returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from memory_pipeline.domain.text.recalled_text import mark_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date, datetime

    from memory_pipeline.domain.periods import Grain


class Later(NamedTuple):
    """A later hit of the same search: its id and day."""

    id: str
    date: date


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing remembered.

    Attributes:
        id: of the fact or summary; :meth:`MemoryReader.expand` takes it.
        grain, period: the partition that it lies in; ``durable`` of what is kept for good.
        kind: of a fact (turn, statement, …) or a durable memory (instruction, rule, …), or ``summary``.
        content: the text, beginning with who said it where it is a fact. Of a long message that was searched for, the
            passage that answers, of about 60 words; :meth:`MemoryReader.expand` has all of it.
        starts_at, ends_at: the half-open range that a summary covers, UTC; of a fact, both when it was said; of a
            durable memory, when it was first and last said.
        date: the first day of that range, in the lake's time zone.
        source_ids: what it rests on: messages of a fact, facts or finer summaries of a summary.
        conversation_id: of a fact.
        score: how well it fits the query, to compare hits of one search; 0 where there was no query.
        parts: what each signal adds to the score (:class:`memory_pipeline.domain.text.ranking.Weights`), if it was
        asked
            for; they add up to it.
        is_excerpt: whether the content is a passage of a longer text.
        later: of the ten best hits, a later one in which a user names other numbers for what is asked; None if there
            is none.
    """

    id: str
    grain: Grain | Literal["durable"]
    period: str
    kind: str
    content: str
    starts_at: datetime
    ends_at: datetime
    date: date
    source_ids: tuple[str, ...]
    conversation_id: str | None
    score: float
    parts: Mapping[str, float] | None = None
    is_excerpt: bool = False
    later: Later | None = None

    @property
    def line(self) -> str:
        """Its text with its date: ``[2024-01-15] Anna: I moved to Porto.``; and the day of a later hit."""
        return f"[{self.date}] {self.content}{f' ({self.later_note})' if self.later else ''}"

    @property
    def later_note(self) -> str:
        """The day of the later hit: ``later: 2024-02-01``; empty if there is none."""
        return f"later: {self.later.date}" if self.later else ""

    def __str__(self) -> str:
        """Return the line, marked as recalled: ``⁍ [2024-01-15] Anna: I moved to Porto.``."""
        return mark_lines(self.line)


class Hits(list[Hit]):
    """One page of hits, best first (newest first where there was no query).

    Attributes:
        total: how many memories pass the filters, on all pages together; a message with all that was found in it
            counts once.
        offset: how many come before this page.
    """

    def __init__(self, hits: Iterable[Hit] = (), total: int = 0, offset: int = 0) -> None:
        super().__init__(hits)
        self.total = total
        self.offset = offset
