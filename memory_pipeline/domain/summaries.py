"""Summaries: what remains of a period, each sentence citing what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memory_pipeline.domain.identity import digest, make_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Grain, Period


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
        source_digests: digests of the finer summaries that it was made from, in the order of `source_ids`; of a day,
            which is made from facts, there are none: their ids change with them.
        tokens_in, tokens_out: as the model counted them, or estimated (:func:`~.calls.count_tokens`) without one.
        summary_method: name and version of the rules or the prompt.
        cost: US dollars, where a model was asked and its price is known.
        model, prompt_version: what was asked, where a model was.
        fallback: why the model that is configured did not help and rules took its place; None where nothing failed.
        code_version: version of this package that made it.
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
        """Changes whenever anything that is remembered changes; not by how it was come by."""
        points = [(p.sentence, p.source_ids, p.event_at, p.importance, p.entities) for p in self.key_points]
        return digest(self.id, self.content, points, self.entities, self.importance, self.source_ids)

    def material(self) -> list[Material]:
        """Return what the next coarser summary may be made from."""
        return [
            Material(f"{self.id}#{n}", point.sentence, point.event_at, n, point.importance, point.entities)
            for n, point in enumerate(self.key_points)
        ]


def summary_id(scope: Scope, period: Period) -> str:
    """Return the id of the summary of `period` for `scope`."""
    return make_id(period.grain, period, scope.workspace_id, scope.agent_id)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One agent's period to summarize, and what there is to say of it."""

    scope: Scope
    period: Period
    material: tuple[Material, ...]


@dataclass(frozen=True, slots=True)
class Condensation:
    """What a summarizer made of an assignment.

    Attributes:
        points: oldest first; at least one if there is material. Every point cites at least one of it.
        method, tokens_in, tokens_out, cost, model, prompt_version, fallback: as in :class:`Summary`.
        refused: points of a model's answer that were not taken, because they cite nothing that exists.
    """

    points: tuple[KeyPoint, ...]
    method: str
    tokens_in: int
    tokens_out: int
    cost: float | None = None
    model: str | None = None
    prompt_version: str | None = None
    fallback: str | None = None
    refused: int = 0


class Summarizer(Protocol):
    """Says in few sentences what many say."""

    def method(self, scope: Scope, grain: Grain) -> str:
        """Name how an agent's periods are summarized: rules or model, prompt, settings. Another name re-makes them."""
        ...

    def summarize(self, assignments: Sequence[Assignment]) -> list[Condensation | None]:
        """Return what remains of each of `assignments`, in their order; the order of material does not matter.

        None stands for what is to wait, because the budget is spent.
        """
        ...
