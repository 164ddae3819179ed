"""Recall: what memory holds about a question, within one token budget.

One search ranks facts and the points of all summaries, another the durable memories, with graph facts around them. The
packer chooses among all of them (:mod:`memory_pipeline.reader.packing.packer`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.authority import Authority
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.identity import MEMORY, MESSAGE, Reference
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.foreign_text import own_text
from memory_pipeline.reader.packing.items import DURABLE, GRAPH, Recalled, Recollection, compact
from memory_pipeline.reader.packing.packer import Packer, by_worth
from memory_pipeline.reader.packing.suppression import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.text.ranking import Query
    from memory_pipeline.graph import GraphFact
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.memories.search import RecalledMemory
    from memory_pipeline.reader.packing.suppression import SuppressionRules
    from memory_pipeline.search.row_block import RowBlock
    from memory_pipeline.search.searcher import Searcher
    from memory_pipeline.search.selection import Choice

    RulesFor = Callable[[Iterable[Statement]], SuppressionRules]

_log = logging.getLogger(__name__)

_LEAST_TOKENS: Final = 10
#: Strength of a graph fact around a durable memory, relative to that of the memory.
_AROUND: Final = 0.5


class RecallCandidates(NamedTuple):
    """Facts and points that were found for a question, best first.

    `hides` returns whether to leave out a graph fact.
    """

    facts: list[Recalled]
    points: list[Recalled]
    rules: SuppressionRules
    hides: Callable[[GraphFact], bool]


class Fitting(NamedTuple):
    """What fits a question: facts and points, and durable memories and graph facts."""

    said: list[Recalled]
    lasting: list[Recalled]


def fitting(said: Sequence[Recalled], lasting: Iterable[Recalled], minimum_score: float) -> Fitting:
    """Leave out facts and points with a lower score.

    If none is left, durable memories and graph facts that come from messages alone are left out too: they are few, so
    their own scores tell less. What an agent remembered by itself stays.
    """
    fits = [item for item in said if item.score >= minimum_score]
    if fits or not said:
        return Fitting(fits, list(lasting))
    message = f"{MESSAGE}:"
    return Fitting([], [one for one in lasting if not all(source.startswith(message) for source in one.source_ids)])


def considered(budget: int) -> int:
    """Return the number of facts to consider for a token budget, from 20 to 1,000."""
    return min(max(budget // _LEAST_TOKENS, 20), 1_000)


def choose(
    facts: Sequence[Recalled],
    points: Sequence[Recalled],
    calendar: Calendar,
    budget: int,
    memories: Sequence[Recalled] = (),
) -> Recollection:
    """Return the items that fit into a budget of tokens, best first; `memories` are durable ones and graph facts."""
    packer = Packer(calendar, budget)
    packer.fill(by_worth([*facts, *points, *memories]))
    places = {item.id: place for place, item in enumerate([*memories, *facts, *points])}
    return Recollection(sorted(packer.chosen, key=lambda item: (-item.strength, places[item.id])))


def recalled(
    grain: Grain, choices: Iterable[Choice], calendar: Calendar, score: Callable[[Choice], float]
) -> list[Recalled]:
    """Return rows of a grain as recalled items."""
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
            said_by=_said_by(grain, choice.row),
        )
        for choice in choices
    ]


def _said_by(grain: Grain, row: Mapping[str, Any]) -> Authority:
    """Return who said a message: the assistant, the user, or nobody, if the user pasted most of it."""
    if grain is not Grain.WORKING:
        return Authority.USER
    if row["role"] == Role.ASSISTANT:
        return Authority.ASSISTANT
    said = row["content"].removeprefix(f"{row['speaker']}: ")
    is_pasted = row["kind"] == FactKind.TURN and 2 * len(own_text(said).split()) < len(said.split())
    return Authority.PASTED if is_pasted else Authority.USER


def excerpted(item: Recalled, choice: Choice) -> Recalled:
    """Return a fact with the passage that was chosen from it."""
    return replace(item, content=compact(choice.row["content"]), is_excerpt=choice.is_excerpt)


def durable_items(
    memories: Iterable[RecalledMemory], calendar: Calendar, hides: Callable[[GraphFact], bool] = lambda _: False
) -> list[Recalled]:
    """Return durable memories as recalled items without duplicates, each followed by its graph facts."""
    items: dict[str, Recalled] = {}
    for found in memories:
        memory = found.memory
        items[memory.id] = Recalled(
            id=memory.id,
            grain=DURABLE,
            period=Reference.parse(memory.id).period.key,
            date=calendar.day_of(memory.updated_at),
            content=compact(memory.content),
            source_ids=memory.source_ids,
            score=found.score,
            strength=found.strength,
            kind=memory.kind.value,
            warning=found.warning,
            identity=found.identity,
            said_by=found.said_by,
        )
        for fact in found.facts:
            if fact.id not in items and not hides(fact):
                items[fact.id] = graph_item(fact, found.strength * _AROUND, found.score)
    return list(items.values())


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
    *,
    now: datetime,
    rules_for: RulesFor,
) -> RecallCandidates:
    """Return the facts and points for a question, as many as a token budget could hold. `where` filters both.

    `now` is UTC. `rules_for` returns the suppression rules, given the excluded facts and points.
    """
    limit = min(considered(max_tokens) + len(exclude), 1_000)
    ranked = searcher.everything(text, limit, where, now=now)
    # Whether a message may be shown depends on its whole text.
    passages = {one.row["id"]: one.excerpted(ranked.words) for one in ranked.said}
    facts = recalled(Grain.WORKING, ranked.said, searcher.local_calendar, ranked.score)
    points = [
        item
        for grain, found in ranked.points.items()
        for item in recalled(grain, found, searcher.calendar, ranked.score)
    ]
    rules = rules_for(_forms(Grain.WORKING, ranked.facts, exclude) + _points(ranked.summaries, exclude))
    facts, points = (rules.visible(item for item in items if item.id not in exclude) for items in (facts, points))
    own, others = _persons(ranked.question, [*ranked.facts, *chain.from_iterable(ranked.summaries.values())])

    def hides(fact: GraphFact) -> bool:
        is_of_another = name_key(fact.source) in others and name_key(fact.target) not in own
        return is_of_another or fact.id in exclude or rules.hides_fact(fact)

    return RecallCandidates([excerpted(item, passages[item.id]) for item in facts], points, rules, hides)


def forms_shown(searcher: Searcher, text: str, where: Filter, exclude: Collection[str]) -> list[Statement]:
    """Return the excluded facts and points that a search for the question finds. If it fails, return none."""
    if all(one.startswith(f"{MEMORY}:") for one in exclude):
        return []
    try:
        facts, _, _ = searcher.candidates.passing(Grain.WORKING, where, considered(0) + len(exclude), text)
        return _forms(Grain.WORKING, facts, exclude) + _points(searcher.summaries(), exclude)
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


def _points(summaries: Mapping[Grain, Sequence[RowBlock]], exclude: Collection[str]) -> list[Statement]:
    return [form for grain, segments in summaries.items() for form in _forms(grain, segments, exclude)]


def _persons(question: Query, segments: Iterable[RowBlock]) -> tuple[set[str], set[str]]:
    """Return the one speaker that a question names, and all others; two empty sets if it names none or several."""
    if len(question.about) != 1:
        return set(), set()
    named = set(map(name_key, question.about))
    return named, {name_key(name) for segment in segments for name in segment.speakers if name} - named
