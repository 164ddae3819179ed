"""A conversation that has grown too long for a context window: what is dropped is summarized, and was kept before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.summaries import Assignment, Material
from memory_pipeline.models.deterministic import DeterministicExtractor, ExtractiveSummarizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.conversations import Message
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.summaries import KeyPoint, Summarizer


def summary_of(messages: Sequence[Message], calendar: Calendar, summarizer: Summarizer) -> dict[str, object]:
    """Return a message that takes the place of `messages`: of a system, so that it never becomes memory itself.

    Args:
        messages: of one agent, in their order; at least one.
        calendar: of the lake.
        summarizer: makes it like the summary of a day. Where it is to wait for a budget, rules take its place.
    """
    last = messages[-1]
    facts = DeterministicExtractor(calendar.timezone).facts_of(messages)
    facts = [fact for fact in facts if fact.kind is not FactKind.TURN] or facts
    material = tuple(
        Material(fact.id, fact.content, fact.event_at, fact.position, fact.importance, fact.entities) for fact in facts
    )
    assignment = Assignment(last.scope, calendar.period(Grain.DAILY, last.sent_at), material)
    [made] = summarizer.summarize([assignment])
    points: tuple[KeyPoint, ...] = (made or ExtractiveSummarizer().condense(assignment)).points
    lines = [f"- {calendar.day_of(point.event_at)} {point.sentence}" for point in points]
    head = f"Summary of the {len(messages)} messages before, from memory; nobody has said this:"
    return {"role": "system", "content": "\n".join([head, *lines]), "timestamp": last.sent_at.isoformat()}
