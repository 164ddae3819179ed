"""Recall: answer a question from all of memory within one token budget, without repetition.

A summary is made from its whole period in one scope, so a point is never returned with anything else of that scope and
period, nor a fact with a point that covers its hour. Facts fill three quarters of the budget first, less of a large
budget. Then points fill in periods without results. Then facts fill the rest.

Durable memories, each with its graph facts, are chosen before both. They may take three tenths of the budget, more of a
small one; the others use what is left. A memory that other results cover is dropped, and its warning moves to them. No
memory is skipped in favour of a worse one, unless it is longer than the whole share.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.identity import MEMORY, Reference
from memory_pipeline.domain.model_calls import BYTES_PER_TOKEN, count_tokens
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.reader.knowledge import DURABLE, GRAPH, Recalled, Recollection
from memory_pipeline.reader.suppression import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.text.ranking import Query
    from memory_pipeline.graph import GraphFact
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.memories.search import RecalledMemory
    from memory_pipeline.reader.suppression import SuppressionRules
    from memory_pipeline.search.row_block import RowBlock
    from memory_pipeline.search.searcher import Searcher
    from memory_pipeline.search.selection import Choice

    RulesFor = Callable[[Iterable[Statement]], SuppressionRules]
    SearchMemories = Callable[[SuppressionRules], Iterable[RecalledMemory]]

_log = logging.getLogger(__name__)

#: Share of the budget for durable memories and their graph facts, and the least number of tokens.
_DURABLE, _LEAST_DURABLE = 0.3, 120
#: Share of the budget for facts before points are chosen.
_FACTS_FIRST: Final = 0.75
#: Budgets above `_LARGE` give facts this share first, at least so many tokens. Then points get a quarter of the rest.
#: Otherwise facts of all periods would be chosen and no points.
_LARGE, _FACTS_FIRST_OF_LARGE, _LEAST_FACTS_FIRST = 1_000, 0.05, 200
#: After a fact that is too long, a shorter one is chosen only with at least this fraction of its score.
_AS_GOOD: Final = 0.7
_LEAST_TOKENS: Final = 10


def considered(budget: int) -> int:
    """Return the number of facts to consider for a token budget, from 20 to 1,000."""
    return min(max(budget // _LEAST_TOKENS, 20), 1_000)


def choose(
    facts: Sequence[Recalled],
    points: Sequence[Recalled],
    calendar: Calendar,
    budget: int,
    durable: Sequence[Recalled] = (),
) -> Recollection:
    """Return the items that fit into a budget of tokens, best first.

    `facts`, `points` (of all grains) and `durable` are best first; each durable memory is followed by its graph facts.
    """
    facts, points = ([_with_warning(item, durable) for item in items] for items in (facts, points))
    remaining = list(durable)
    costs: dict[str, int] = {}
    chosen = _chosen(facts, points, calendar, budget, remaining, costs)
    while covered := [item for item in chosen if not isinstance(item.grain, Grain) and _is_covered(item, chosen)]:
        remaining = [item for item in remaining if item not in covered]
        retried = _chosen(facts, points, calendar, budget, remaining, costs)
        if not all(_is_covered(item, retried) for item in covered):
            break  # without the dropped items, the ones that cover them would not be chosen
        chosen = retried
    places = {item.id: place for place, item in enumerate(durable)}
    shown = places.keys() & {item.id for item in chosen}
    dropped = [item for item in durable if item.id not in shown]
    final = []
    for item in chosen:
        replaced = _best_covered(item, dropped)
        if replaced is not None:  # an item in place of a durable memory gets the memory's place
            places[item.id] = places[replaced.id]
        score = item.score if replaced is None else max(replaced.score, item.score)
        final.append(replace(_without_shown_warning(item, durable, dropped), score=score))
    final.sort(key=lambda item: (-item.score, places.get(item.id, len(places)), item.id))
    return Recollection(final)


def _best_covered(item: Recalled, dropped: Iterable[Recalled]) -> Recalled | None:
    if not isinstance(item.grain, Grain):
        return None
    return next((one for one in dropped if one.grain == DURABLE and _covers(item, one)), None)


def _with_warning(item: Recalled, durable: Sequence[Recalled]) -> Recalled:
    """Add the warning of the first durable memory that an item covers, unless the item has one."""
    if item.warning is not None:
        return item
    return next((replace(item, warning=one.warning) for one in durable if one.warning and _covers(item, one)), item)


def _without_shown_warning(item: Recalled, durable: Sequence[Recalled], dropped: Sequence[Recalled]) -> Recalled:
    if item.warning is None or not isinstance(item.grain, Grain):
        return item
    covered = [one for one in durable if one.warning and _covers(item, one)]
    is_shown = any(one.warning == item.warning for one in covered) and not any(one in dropped for one in covered)
    return replace(item, warning=None) if is_shown else item


def _covers(item: Recalled, memory: Recalled) -> bool:
    """Return whether an item contains a memory's words or is one of its messages."""
    if item.kind == FactKind.TURN and not item.is_excerpt and not set(item.source_ids).isdisjoint(memory.source_ids):
        return True
    return memory.content.casefold() in item.content.casefold()


def _is_covered(item: Recalled, chosen: Sequence[Recalled]) -> bool:
    """Return whether whole messages or the same words among the chosen items cover a memory."""
    others = [other for other in chosen if isinstance(other.grain, Grain)]
    whole = {
        source
        for other in others
        if other.kind == FactKind.TURN and not other.is_excerpt
        for source in other.source_ids
    }
    if item.source_ids and whole.issuperset(item.source_ids):
        return True
    words = item.content.casefold()
    return any(words in other.content.casefold() for other in others)


def _chosen(
    facts: Sequence[Recalled],
    points: Sequence[Recalled],
    calendar: Calendar,
    budget: int,
    durable: Sequence[Recalled],
    costs: dict[str, int],
) -> list[Recalled]:
    """Return the items that fit into a budget. `costs` caches their sizes in bytes, with the line break."""

    @cache
    def above(period: Period) -> frozenset[Period]:
        parent = calendar.parent(period)
        return frozenset() if parent is None else above(parent) | {parent}

    chosen: dict[str, Recalled] = {}
    all_taken: defaultdict[str, set[Period]] = defaultdict(set)  # periods above the chosen items, by identity
    all_summarized: defaultdict[str, set[Period]] = defaultdict(set)  # periods with a chosen point
    size = 0  # bytes; tokens are estimated at four bytes and rounded up once

    def add(items: Iterable[Recalled], limit: float) -> None:
        nonlocal size
        least = -inf
        for item in items:
            if item.id in chosen or item.score < least:
                continue
            cost = costs.get(item.id)
            if cost is None:
                cost = costs[item.id] = len(str(item).encode()) + 1
            if -(-(size + cost - 1) // BYTES_PER_TOKEN) > limit:
                least = max(least, item.score * _AS_GOOD)
                continue
            if isinstance(item.grain, Grain):
                period = Period(item.grain, item.period)
                taken, summarized = all_taken[item.identity], all_summarized[item.identity]
                if not summarized.isdisjoint(above(period)) or (item.grain is not Grain.WORKING and period in taken):
                    continue
                taken.update(above(period))
                if item.grain is not Grain.WORKING:
                    summarized.add(period)
            chosen[item.id] = item
            size += cost

    share = min(max(budget * _DURABLE, _LEAST_DURABLE), budget)
    for item in durable:
        if count_tokens(str(item)) <= share:
            add([item], share)
            if item.id not in chosen:
                break  # otherwise a worse one would take its place
    before = size / BYTES_PER_TOKEN
    if budget > _LARGE:
        add(facts, before + max(budget * _FACTS_FIRST_OF_LARGE, _LEAST_FACTS_FIRST))
        said = size / BYTES_PER_TOKEN
        add(points, said + (budget - said) * (1 - _FACTS_FIRST))
    else:
        add(facts, before + (budget - before) * _FACTS_FIRST)
        add(points, budget)
    add(facts, budget)
    add(points, budget)
    return list(chosen.values())


def recalled(grain: Grain, choices: Iterable[Choice], calendar: Calendar) -> list[Recalled]:
    """Return rows of a grain as recalled items."""
    return [
        Recalled(
            id=choice.row["id"],
            grain=grain,
            period=choice.row["period"],
            date=calendar.day_of(choice.row["starts_at"]),
            content=choice.row["content"],
            source_ids=tuple(choice.row["source_ids"]),
            score=round(choice.score, 4),
            kind=choice.row["kind"],
            identity=choice.row["identity"],
        )
        for choice in choices
    ]


def excerpted(item: Recalled, choice: Choice) -> Recalled:
    """Return a fact with the passage that was chosen from it."""
    return replace(item, content=choice.row["content"], is_excerpt=choice.is_excerpt)


def durable_items(
    memories: Iterable[RecalledMemory], calendar: Calendar, hides: Callable[[GraphFact], bool] = lambda _: False
) -> list[Recalled]:
    """Return durable memories as recalled items without duplicates, each followed by its graph facts with its score."""
    items: dict[str, Recalled] = {}
    for found in memories:
        memory = found.memory
        items[memory.id] = Recalled(
            id=memory.id,
            grain=DURABLE,
            period=Reference.parse(memory.id).period.key,
            date=calendar.day_of(memory.updated_at),
            content=memory.content,
            source_ids=memory.source_ids,
            score=found.score,
            kind=memory.kind.value,
            warning=found.warning,
            identity=found.identity,
        )
        for fact in found.facts:
            if fact.id not in items and not hides(fact):
                items[fact.id] = Recalled(
                    id=fact.id,
                    grain=GRAPH,
                    period=Reference.parse(fact.id).period.key,
                    date=fact.since,
                    content=f"{fact.source} {fact.label} {fact.target}",
                    source_ids=fact.evidence,
                    score=found.score,
                    identity=fact.identity,
                )
    return list(items.values())


def together(*lists: Sequence[Recalled]) -> list[Recalled]:
    """Merge lists, best first."""
    return sorted(chain.from_iterable(lists), key=lambda item: (-item.score, item.id))


def recollect(
    searcher: Searcher,
    text: str,
    max_tokens: int,
    where: Filter,
    exclude: Collection[str] = (),
    *,
    now: datetime,
    rules_for: RulesFor,
    search_memories: SearchMemories = lambda _: (),
) -> Recollection:
    """Answer a question from all grains and from durable memories. `where` filters facts and points.

    `now` is UTC. `rules_for` returns the suppression rules, given the excluded facts and points. `search_memories`
    returns the durable memories for the question under those rules.
    """
    limit = min(considered(max_tokens) + len(exclude), 1_000)
    ranked, calendar = searcher.everything(text, limit, where, now=now), searcher.calendar
    # Whether a message may be shown depends on its whole text.
    passages = {one.row["id"]: one.excerpted(ranked.words) for one in ranked.said}
    facts = recalled(Grain.WORKING, ranked.said, searcher.local_calendar)
    points = [recalled(grain, choices, calendar) for grain, choices in ranked.points.items()]
    rules = rules_for(_forms(Grain.WORKING, ranked.facts, exclude) + _points(ranked.summaries, exclude))
    lists = (facts, together(*points))
    facts, summary_points = (rules.visible(item for item in items if item.id not in exclude) for items in lists)
    facts = [excerpted(item, passages[item.id]) for item in facts]
    own, others = _persons(ranked.question, [*ranked.facts, *chain.from_iterable(ranked.summaries.values())])

    def hides(fact: GraphFact) -> bool:
        is_of_another = name_key(fact.source) in others and name_key(fact.target) not in own
        return is_of_another or fact.id in exclude or rules.hides_fact(fact)

    durable = durable_items(search_memories(rules), searcher.local_calendar, hides)
    return choose(facts, summary_points, calendar, max_tokens, durable)


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
