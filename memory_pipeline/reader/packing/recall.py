"""What memory holds about a question: facts, points of summaries, durable memories and graph facts, as items."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.authority import Authority
from memory_pipeline.domain.identity import MEMORY, MESSAGE, Reference
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period
from memory_pipeline.reader.packing import worth
from memory_pipeline.reader.packing.asked import asks_about, is_generic
from memory_pipeline.reader.packing.items import DURABLE, GRAPH, Recalled, compact
from memory_pipeline.reader.packing.packer import words_in
from memory_pipeline.reader.packing.suppression import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.text.ranking import Window
    from memory_pipeline.graph import GraphFact
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.memories.search import RecalledMemory
    from memory_pipeline.reader.packing.suppression import SuppressionRules
    from memory_pipeline.search.row_block import RowBlock
    from memory_pipeline.search.searcher import Searcher
    from memory_pipeline.search.selection import Choice

_log = logging.getLogger(__name__)

_LEAST_TOKENS: Final = 10
#: Strength of a message for each point of these signals, if the question only names a time or a speaker.
_IMPORTANCE: Final = 10.0
_MATTERS: Final = ("importance", "speaker")
#: Score of what was said in the time that a question asks about: nothing else tells whether it fits.
_FITS: Final = 0.5
#: Most facts of a speaker that are considered.
_MOST: Final = 1_000


class RecallCandidates(NamedTuple):
    """Facts and points that were found for a question, best first.

    `periods` are the points of summaries of the periods that it asks about as a whole, those to choose first first.
    """

    facts: list[Recalled]
    points: list[Recalled]
    periods: list[Recalled]


def fitting(said: Sequence[Recalled], lasting: Iterable[Recalled], minimum_score: float) -> list[Recalled]:
    """Return facts and points, without those with a lower score, and the durable memories `lasting`.

    If none is left, durable memories that come from messages alone are left out too: they are few, so their own scores
    tell less. What an agent remembered by itself stays.
    """
    fits = [item for item in said if item.score >= minimum_score]
    if fits or not said:
        return [*fits, *lasting]
    message = f"{MESSAGE}:"
    return [one for one in lasting if not all(source.startswith(message) for source in one.source_ids)]


def considered(budget: int) -> int:
    """Return the number of facts to consider for a token budget, from 20 to 1,000."""
    return min(max(budget // _LEAST_TOKENS, 20), 1_000)


def recalled(
    grain: Grain,
    choices: Iterable[Choice],
    calendar: Calendar,
    score: Callable[[Choice], float],
    reader: str | None = None,
) -> list[Recalled]:
    """Return rows of a grain as recalled items, for a user who reads."""
    return [
        Recalled(
            id=choice.row["id"],
            grain=grain,
            period=choice.row["period"],
            date=calendar.day_of(choice.row["starts_at"]),
            content=compact(choice.row["content"]),
            source_ids=tuple(choice.row["source_ids"]),
            score=round(score(choice), 4),
            strength=choice.score,
            kind=choice.row["kind"],
            identity=choice.row["identity"],
            said_at=choice.row["starts_at"],
            said_by=choice.said_by(reader) or Authority.USER,
        )
        for choice in choices
    ]


def excerpted(item: Recalled, choice: Choice, reader: str | None) -> Recalled:
    """Return a fact with the passage that was chosen from it, for a user who reads."""
    return replace(
        item,
        content=compact(choice.row["content"]),
        is_excerpt=choice.is_excerpt,
        said_by=choice.said_by(reader) or Authority.USER,
    )


def durable_items(memories: Iterable[RecalledMemory], calendar: Calendar) -> list[Recalled]:
    """Return durable memories as recalled items without duplicates."""
    items = {one.memory.id: durable_item(one.memory, calendar, one) for one in memories}
    return list(items.values())


def durable_item(memory: DurableMemory, calendar: Calendar, found: RecalledMemory | None = None) -> Recalled:
    """Return a durable memory as a recalled item, with the score of a search that found it."""
    return Recalled(
        id=memory.id,
        grain=DURABLE,
        period=Reference.parse(memory.id).period.key,
        date=calendar.day_of(memory.updated_at),
        content=compact(memory.content),
        source_ids=memory.source_ids,
        score=found.score if found else 0.0,
        strength=found.strength if found else 0.0,
        kind=memory.kind.value,
        warning=found.warning if found else None,
        identity=found.identity if found else "",
        said_by=found.said_by if found else Authority.USER,
    )


def graph_item(fact: GraphFact, strength: float = 0.0, score: float = 0.0) -> Recalled:
    """Return a graph fact as a recalled item."""
    return Recalled(
        id=fact.id,
        grain=GRAPH,
        period=Reference.parse(fact.id).period.key,
        date=fact.since,
        content=f"{fact.source} {fact.label} {fact.target}",
        source_ids=fact.evidence,
        score=score,
        strength=strength,
        identity=fact.identity,
        when=fact.when,
    )


def candidates(
    searcher: Searcher,
    text: str,
    max_tokens: int,
    where: Filter,
    exclude: Collection[str],
    rules: SuppressionRules,
    *,
    now: datetime,
) -> RecallCandidates:
    """Return the facts and points for a question, as many as a token budget could hold. `where` filters both.

    Fill is left out, and what fits much worse than the best (:mod:`memory_pipeline.reader.packing.worth`). If the
    question only names a time, so is what was neither said nor meant then. If it only names a time or a speaker, what
    matters most is first. `now` is UTC.
    """
    limit = min(considered(max_tokens) + len(exclude), 1_000)
    ranked = searcher.everything(text, limit, where, now=now)
    words, windows = ranked.question.terms, _narrowest(ranked.question.windows)
    is_about_time = bool(windows) and is_generic(words)
    is_about_speaker = not windows and asks_about(text, ranked.question.about)
    if is_about_speaker:
        ranked = searcher.everything(text, _MOST, where, now=now)
    said = ranked.said
    if is_about_time:
        within = {one for block in ranked.facts for one in block.within(windows)}
        said = [one for one in said if one.row["id"] in within]
    said = worth.worthy(said, words, limit)
    # Whether a message may be shown depends on its whole text.
    passages = {one.row["id"]: one.excerpted(ranked.words) for one in said}
    facts = recalled(Grain.WORKING, said, searcher.local_calendar, ranked.score, searcher.user_id)
    if is_about_time or is_about_speaker:
        # All fit the words equally well. What matters is first, and what a named person said.
        facts = [
            replace(one, strength=_IMPORTANCE * sum((choice.parts or {}).get(name, 0.0) for name in _MATTERS))
            for one, choice in zip(facts, said, strict=True)
        ]
        facts.sort(key=lambda one: -one.strength)
    found = [
        one
        for grain, choices in ranked.points.items()
        for one in recalled(
            grain, [one for one in choices if not worth.is_fill(one.row, words)], searcher.calendar, ranked.score
        )
    ]
    best = max((one.strength for one in (*facts[:1], *found)), default=0.0)
    points = [one for one in found if one.strength >= worth.SHARE_OF_POINTS * best]
    periods = []
    if is_about_time:
        facts = [replace(one, score=max(one.score, _FITS)) for one in facts]
        kept = Counter(words_in(one.content) for one in found)
        periods = [one for one in found if _is_within(Period(Grain(one.grain), one.period), windows)]
        periods.sort(key=lambda one: (-kept[words_in(one.content)], -SUMMARY_GRAINS.index(Grain(one.grain))))
        points = []
    shown = [rules.visible(item for item in items if item.id not in exclude) for items in (facts, points, periods)]
    return RecallCandidates(
        [excerpted(item, passages[item.id], searcher.user_id) for item in shown[0]], shown[1], shown[2]
    )


def _narrowest(windows: Sequence[Window]) -> tuple[Window, ...]:
    """Return the windows that contain no other one: of "Tuesday last week", only the day counts."""
    return tuple(
        one for one in windows if not any(one != it and one.first <= it.first and it.last <= one.last for it in windows)
    )


def _is_within(period: Period, windows: Iterable[Window]) -> bool:
    return any(one.first <= period.first_day and period.end_day - timedelta(days=1) <= one.last for one in windows)


def forms_shown(searcher: Searcher, text: str, where: Filter, exclude: Collection[str]) -> list[Statement]:
    """Return the excluded facts and points that a search for the question finds. If it fails, return none."""
    if all(one.startswith(f"{MEMORY}:") for one in exclude):
        return []
    try:
        facts, _, _ = searcher.candidates.passing(Grain.WORKING, where, considered(0) + len(exclude), text)
        blocks = {Grain.WORKING: facts, **searcher.summaries()}
        return [form for grain, segments in blocks.items() for form in _forms(grain, segments, exclude)]
    except Exception as error:  # noqa: BLE001  # the search fails alone; the other sources still answer
        _log.warning("excluded items are hidden by id only; searching their other forms failed: %s", error)
        return []


def _forms(grain: Grain, segments: Iterable[RowBlock], exclude: Collection[str]) -> list[Statement]:
    if not exclude:
        return []
    ids = pa.array(sorted(exclude), pa.string())
    columns = ["content", "source_ids", "kind"]
    rows = [segment.rows.select(columns).filter(pc.is_in(segment.ids, ids)).to_pylist() for segment in segments]
    return [Statement.of(grain, row["content"], row["source_ids"], row["kind"]) for part in rows for row in part]
