"""Summaries of periods. Each sentence cites its sources."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.identity import digest, make_id
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.text.foreign_text import own_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.periods import Grain, Period
    from memory_pipeline.domain.scopes import Scope


#: Most characters of the first line of a message that is all pasted.
_LONGEST_OPENING: Final = 200


@dataclass(frozen=True, slots=True)
class Material:
    """One source of a summary: a fact, or a point of a finer summary.

    Attributes:
        id: for citations: a fact's id, or ``{summary id}#{position}``.
        text: clear without context, with the speaker: ``Anna: I moved to Porto.``
        event_at: time of the source, UTC.
        position: order among sources of the same time.
    """

    id: str
    text: str
    event_at: datetime
    position: int
    importance: float
    entities: tuple[str, ...]


def material_of(facts: Iterable[Fact]) -> list[Material]:
    """Return the sources of a day's summary: its facts.

    A day without facts has the turns of its users instead, without what they pasted, or else the turns of others.
    """
    listed = list(facts)
    if stated := [fact for fact in listed if fact.kind is not FactKind.TURN]:
        listed = stated
    elif own := [fact for fact in listed if fact.role is Role.USER]:
        listed = [replace(fact, content=_own_content(fact.content)) for fact in own]
    return [
        Material(fact.id, fact.content, fact.event_at, fact.position, fact.importance, fact.entities) for fact in listed
    ]


def _own_content(content: str) -> str:
    speaker, separator, said = content.partition(": ")
    own = own_text(said) or said.strip().partition("\n")[0][:_LONGEST_OPENING]
    return f"{speaker}{separator}{own}"


@dataclass(frozen=True, slots=True)
class KeyPoint:
    """One sentence of a summary, with its time, its importance and the ids of its sources."""

    sentence: str
    source_ids: tuple[str, ...]
    event_at: datetime
    importance: float
    entities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of one agent's period.

    Attributes:
        id: hash of scope and period; stable when the period is recomputed.
        period_start, period_end: the half-open UTC range of the calendar period.
        content: one line per point, each with its date.
        source_ids: ids of the source facts or finer summaries, sorted.
        source_digest: hash of the sources, the method and its settings; if it is equal, the summary is current.
        source_digests: digests of the finer summaries, in the order of `source_ids`; empty for a day, since the ids of
            facts change with their content.
        tokens_in, tokens_out: as counted by the model, or estimated (:func:`~.model_calls.count_tokens`).
        summary_method: name and version of the rules or the prompt.
        cost: US dollars, if a model with a known price was called.
        model, prompt_version: set if a model was called.
        fallback: why rules replaced the configured model; None if they did not.
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
    source_digests: tuple[str, ...] = ()
    cost: float | None = None
    model: str | None = None
    prompt_version: str | None = None
    fallback: str | None = None
    code_version: str | None = None

    @property
    def digest(self) -> str:
        """A hash of the content, without the method, the model and the usage."""
        points = [(p.sentence, p.source_ids, p.event_at, p.importance, p.entities) for p in self.key_points]
        return digest(self.id, self.content, points, self.entities, self.importance, self.source_ids)

    def material(self) -> list[Material]:
        """Return the sources for the next coarser summary."""
        return [
            Material(f"{self.id}#{n}", point.sentence, point.event_at, n, point.importance, point.entities)
            for n, point in enumerate(self.key_points)
        ]


def summary_id(scope: Scope, period: Period) -> str:
    """Return the id of the summary of a period."""
    return make_id(period.grain, period, *scope.ids)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One agent's period to summarize, with its sources."""

    scope: Scope
    period: Period
    material: tuple[Material, ...]


@dataclass(frozen=True, slots=True)
class Condensation:
    """The result of a summarizer for an assignment; attributes as in :class:`Summary`.

    `points` are oldest first, at least one if there is material; each cites at least one source. `refused`
    counts the rejected points of a model's answer by reason, such as a name that no source has.
    """

    points: tuple[KeyPoint, ...]
    method: str
    tokens_in: int
    tokens_out: int
    cost: float | None = None
    model: str | None = None
    prompt_version: str | None = None
    fallback: str | None = None
    refused: Counter[str] = field(default_factory=Counter)


class Summarizer(Protocol):
    """Summarizes periods."""

    def method(self, scope: Scope, grain: Grain) -> str:
        """Return a name for the rules, or the model, prompt and settings. A changed name recomputes the summaries."""
        ...

    def summarize(self, assignments: Sequence[Assignment]) -> list[Condensation | None]:
        """Return a result for each assignment, in order; None if it is postponed because the budget is spent.

        The order of the material does not matter.
        """
        ...
