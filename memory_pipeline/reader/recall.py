"""Recall: what all of memory holds of a question, within one budget of tokens, nothing told twice.

Facts and the points of summaries are scored together. A summary is made from all that its period holds, so a point is
never recalled beside something of its own period, nor a fact beside a point that covers its hour. What was said comes
before what was made of it: facts fill three quarters of the budget, of a large one less, then points tell of the
periods of which nothing was taken yet, then facts fill the rest.

Durable memories, each with the facts of the graph around what it names, go first, and may take three tenths of the
budget, of a small one more; what they do not need is there for the others. One that says no more than what is shown
anyway gives way to it, and leaves it its warning. None is passed over for a worse one, unless it is longer than all of
their share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final, Literal

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.identity import Reference
from memory_pipeline.domain.model_calls import BYTES_PER_TOKEN, count_tokens
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.text.recalled_text import mark_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import date

    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.graph import GraphFact
    from memory_pipeline.reader.memories import RecalledMemory
    from memory_pipeline.reader.selection import Choice

#: In the place of a grain: of what is kept for good, and of facts of the graph.
DURABLE: Final = "durable"
GRAPH: Final = "graph"
#: The share of the budget that these two may fill, and so many tokens at least, if there are so many.
_KEPT, _LEAST_KEPT = 0.3, 120
#: The share of the budget that facts may fill before summaries are asked.
_FACTS_FIRST: Final = 0.75
#: Of a larger budget facts fill this share first, and so many tokens at least. Summaries then have a quarter of what is
#: left before facts fill the rest: else facts of all periods are told, and no summary has a place.
_LARGE, _FACTS_FIRST_OF_LARGE, _LEAST_FACTS_FIRST = 1_000, 0.05, 200
#: What is shorter takes the place of a fact that is too long only if it fits the question nearly as well.
_AS_GOOD: Final = 0.7
#: A fact takes at least so many tokens, with its date: no more of them are considered than could be told.
_LEAST_TOKENS: Final = 10
#: So many points of each grain are considered.
POINTS: Final = 40


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


class Recollection(list[Recalled]):
    """What was recalled, best first; as a text, a line each.

    Attributes:
        tokens: what the text takes, estimated as :func:`memory_pipeline.domain.model_calls.count_tokens` does.
    """

    def __str__(self) -> str:
        """Return all lines."""
        return "\n".join(map(str, self))

    @property
    def tokens(self) -> int:
        """Return the tokens of the text."""
        return count_tokens(str(self)) if self else 0


def considered(budget: int) -> int:
    """Return how many facts a budget of tokens could hold, from 20 to 1,000."""
    return min(max(budget // _LEAST_TOKENS, 20), 1_000)


def choose(
    facts: Sequence[Recalled],
    points: Sequence[Recalled],
    calendar: Calendar,
    budget: int,
    kept: Sequence[Recalled] = (),
) -> Recollection:
    """Return what fits into a budget of tokens, best first.

    Args:
        facts: best first.
        points: of summaries of any grain, best first.
        calendar: says which period lies in which.
        budget: tokens that the text of all together may take.
        kept: durable memories, best first, each with its facts of the graph behind it.
    """
    facts, points = ([_warned(item, kept) for item in items] for items in (facts, points))
    left = list(kept)
    costs: dict[str, int] = {}
    chosen = _chosen(facts, points, calendar, budget, left, costs)
    while told := [item for item in chosen if not isinstance(item.grain, Grain) and _is_told(item, chosen)]:
        left = [item for item in left if item not in told]
        again = _chosen(facts, points, calendar, budget, left, costs)
        if not all(_is_told(item, again) for item in told):
            break  # then what says the same would have no place
        chosen = again
    places = {item.id: place for place, item in enumerate(kept)}
    shown = places.keys() & {item.id for item in chosen}
    lost = [item for item in kept if item.id not in shown]
    final = []
    for item in chosen:
        told_of = _first_told(item, lost)
        if told_of is not None:  # what stands for a durable memory stands where that would
            places[item.id] = places[told_of.id]
        score = item.score if told_of is None else max(told_of.score, item.score)
        final.append(replace(_unwarned(item, kept, lost), score=score))
    final.sort(key=lambda item: (-item.score, places.get(item.id, len(places)), item.id))
    return Recollection(final)


def _first_told(item: Recalled, lost: Iterable[Recalled]) -> Recalled | None:
    """Return the best durable memory that is not shown and that something tells."""
    if not isinstance(item.grain, Grain):
        return None
    return next((one for one in lost if one.grain == DURABLE and _tells(item, one)), None)


def _warned(item: Recalled, kept: Sequence[Recalled]) -> Recalled:
    """Return what was said with the warning of the first that is kept of it, unless it has one."""
    if item.warning is not None:
        return item
    return next((replace(item, warning=one.warning) for one in kept if one.warning and _tells(item, one)), item)


def _unwarned(item: Recalled, kept: Sequence[Recalled], lost: Sequence[Recalled]) -> Recalled:
    """Return it without a warning that is told already, with what is kept of it."""
    if item.warning is None or not isinstance(item.grain, Grain):
        return item
    own = [one for one in kept if one.warning and _tells(item, one)]
    is_told = any(one.warning == item.warning for one in own) and not any(one in lost for one in own)
    return replace(item, warning=None) if is_told else item


def _tells(item: Recalled, kept: Recalled) -> bool:
    """Tell whether something says what is kept: in the same words, or as one of its messages."""
    if item.kind == FactKind.TURN and not item.is_excerpt and not set(item.source_ids).isdisjoint(kept.source_ids):
        return True
    return kept.content.casefold() in item.content.casefold()


def _is_told(item: Recalled, chosen: Sequence[Recalled]) -> bool:
    """Tell whether what was said, or made of it, tells all that is kept: by whole messages, or in the same words."""
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
    kept: Sequence[Recalled],
    costs: dict[str, int],
) -> list[Recalled]:
    """Return what fits into a budget; `costs` remembers what each takes, in bytes with its line break."""

    @cache
    def above(period: Period) -> frozenset[Period]:
        parent = calendar.parent(period)
        return frozenset() if parent is None else above(parent) | {parent}

    chosen: dict[str, Recalled] = {}
    taken: set[Period] = set()  # what was chosen lies in these
    told: set[Period] = set()  # periods of which a point was chosen
    size = 0  # in bytes: a token is estimated at four of them, rounded up once

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
                if not told.isdisjoint(above(period)) or (item.grain is not Grain.WORKING and period in taken):
                    continue
                taken.update(above(period))
                if item.grain is not Grain.WORKING:
                    told.add(period)
            chosen[item.id] = item
            size += cost

    share = min(max(budget * _KEPT, _LEAST_KEPT), budget)
    for item in kept:
        if count_tokens(str(item)) <= share:
            add([item], share)
            if item.id not in chosen:
                break  # else a worse one would take its place
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
    """Return rows that were chosen of a grain as what is recalled."""
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
        )
        for choice in choices
    ]


def excerpted(item: Recalled, choice: Choice) -> Recalled:
    """Return what was said with the text that was chosen of it."""
    return replace(item, content=choice.row["content"], is_excerpt=choice.is_excerpt)


def kept(
    memories: Iterable[RecalledMemory], calendar: Calendar, hides: Callable[[GraphFact], bool] = lambda _: False
) -> list[Recalled]:
    """Return durable memories as what is recalled, each with the facts around it, which have its score, and once.

    Args:
        memories: best first.
        calendar: tells their days.
        hides: tells of a fact whether it is left out.
    """
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
                )
    return list(items.values())


def together(*lists: Sequence[Recalled]) -> list[Recalled]:
    """Return several lists as one, best first."""
    return sorted(chain.from_iterable(lists), key=lambda item: (-item.score, item.id))
