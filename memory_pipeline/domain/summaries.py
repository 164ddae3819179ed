"""Summaries: what remains of a period, each sentence citing what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memory_pipeline.domain.identity import digest, make_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Period


@dataclass(frozen=True, slots=True)
class Material:
    """One thing that a summary may be made from: a fact, or a point of a finer summary.

    Attributes:
        id: what a point made from it cites: a fact's id, or ``{summary id}#{position}``.
        text: one text that stands on its own and says who: ``Anna: I moved to Porto.``
        event_at: when it was said, UTC.
        position: order among what was said at one time.
        importance: 0 to 1.
        entities: names in it.
    """

    id: str
    text: str
    event_at: datetime
    position: int
    importance: float
    entities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyPoint:
    """One sentence of a summary, when it was said, how much it matters, and the ids it rests on."""

    sentence: str
    source_ids: tuple[str, ...]
    event_at: datetime
    importance: float
    entities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What remains of one agent's period.

    Attributes:
        id: hash of scope and period: a period re-made keeps its id.
        period_start, period_end: the half-open UTC range that the period's name covers.
        content: the text, one line a point, each with its date.
        source_ids: ids of all that it was made from (facts, or finer summaries), sorted.
        source_digest: changes if any of them, the method or its settings changed; equal digest, nothing to do.
        tokens_in, tokens_out: estimated at 4 characters a token where no model counted them.
        summary_method: the summarizer's name and version.
    """

    id: str
    scope: Scope
    period: Period
    period_start: datetime
    period_end: datetime
    content: str
    key_points: tuple[KeyPoint, ...]
    entities: tuple[str, ...]
    importance: float
    source_ids: tuple[str, ...]
    source_digest: str
    tokens_in: int
    tokens_out: int
    summary_method: str

    @property
    def digest(self) -> str:
        """Changes whenever anything about the summary changes."""
        points = [(p.sentence, p.source_ids, p.event_at, p.importance, p.entities) for p in self.key_points]
        return digest(self.id, self.content, points, self.entities, self.importance, self.source_ids,
                      self.source_digest, self.tokens_in, self.tokens_out, self.summary_method)  # fmt: skip

    def material(self) -> list[Material]:
        """Return what the next coarser summary may be made from."""
        return [
            Material(f"{self.id}#{n}", point.sentence, point.event_at, n, point.importance, point.entities)
            for n, point in enumerate(self.key_points)
        ]


def summary_id(scope: Scope, period: Period) -> str:
    """Return the id of the summary of `period` for `scope`."""
    return make_id(period.grain, period, scope.workspace_id, scope.agent_id)


class Summarizer(Protocol):
    """Says in few sentences what many say."""

    @property
    def name(self) -> str:
        """Name and version, with every setting that changes its output; a new one re-makes summaries."""
        ...

    def summarize(self, period: Period, material: Sequence[Material]) -> tuple[KeyPoint, ...]:
        """Return the points to keep of one agent's `period`, oldest first; at least one if there is material.

        Pure: equal material in any order gives equal points. Every point cites at least one of `material`.
        """
        ...
