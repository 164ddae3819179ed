"""Fill a token budget with recalled items.

Items of all sources are in one order: by their relevance, less what their tokens cost (:func:`by_worth`). In this
order each is chosen if it fits. Nothing is said twice:

- A summary is made from its whole period in one scope. A point is not chosen beside anything of its scope and period,
  and a message takes the place of the points of its periods.
- A durable memory or a graph fact is not chosen beside the whole messages it comes from, or beside a message with its
  words. The message has its date, so a warning of age need not move to it.
- A point is not chosen beside a durable memory with its words, and of a durable memory and a document with the same
  words, only the first is chosen.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.model_calls import BYTES_PER_TOKEN
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.reader.packing.items import Recalled, Size, Source, as_compared, cut_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory_pipeline.domain.periods import Calendar

#: Source and id; of a document also the text, because its pieces have one id.
_Key = tuple[Source, str, str]

#: Strength that each token costs: fifty tokens must be worth one point.
_PRICE: Final = 0.02
_REPLACEABLE: Final = frozenset([Source.DURABLE, Source.GRAPH])
_COMPARED: Final = frozenset([Source.DURABLE, Source.DOCUMENT])


def by_worth(items: Iterable[Recalled]) -> list[Recalled]:
    """Sort items by their strength, less the price of their tokens; equal ones keep their order."""
    price = _PRICE / BYTES_PER_TOKEN
    return sorted(items, key=lambda item: price * len(item.text.encode()) - item.strength)


class Packer:
    """Chooses items for one text.

    Attributes:
        chosen: the chosen items, in the order of choice.
    """

    def __init__(
        self,
        calendar: Calendar,
        max_tokens: int,
        *,
        is_block: bool = False,
        most: int | None = None,
        periods: frozenset[str] = frozenset(),
    ) -> None:
        """Choose at most `most` items for `max_tokens`. The text is a block, with delimiters and headings, or lines.

        `calendar` is that of the summaries. `periods` are ids of points that may stand beside others of their period.
        """
        self._asked = periods
        self._budget = max_tokens * BYTES_PER_TOKEN
        self._most = most
        self._size = Size(is_block=is_block)
        self._above = _periods_above(calendar)
        self._chosen: dict[_Key, Recalled] = {}
        #: Of each scope: the periods that contain chosen items, and the chosen points by period.
        self._taken: defaultdict[str, set[Period]] = defaultdict(set)
        self._points: defaultdict[tuple[str, Period], list[_Key]] = defaultdict(list)
        self._messages: set[str] = set()
        #: The words and sources of the chosen durable memories and graph facts.
        self._lasting: dict[_Key, tuple[str, frozenset[str]]] = {}
        self._said: list[str] = []
        #: The words of the chosen durable memories and documents.
        self._worded: dict[_Key, str] = {}

    @property
    def chosen(self) -> list[Recalled]:
        """The chosen items, in the order of choice."""
        return list(self._chosen.values())

    def fill(
        self, items: Iterable[Recalled], *, share: float = 1.0, most: int | None = None, may_cut: bool = True
    ) -> None:
        """Choose items that fit into a share of the budget, at most `most` more of them.

        The first item, if it is too long, is cut to the space that is left.
        """
        budget = int(self._budget * share)
        limit = None if most is None else len(self._chosen) + most
        for item in items:
            if len(self._chosen) in {self._most, limit}:
                return
            key = item.source, item.id, item.content if item.source is Source.DOCUMENT else ""
            if key in self._chosen or self._is_covered(item):
                continue
            replaced = {other: self._chosen[other] for other in self._replaced_by(item)}
            for old in replaced.values():
                self._size.remove(old)
            room = budget - self._size.bytes - self._size.added(item)
            if room >= 0:
                for other, old in replaced.items():
                    self._forget(other, old)
                self._choose(key, item)
                may_cut = False
                continue
            for old in replaced.values():
                self._size.add(old)
            cut = cut_to(item, room + len(str(item).encode())) if may_cut and not replaced else None
            if cut is not None:
                self._choose(key, cut)
                may_cut = False

    def _forget(self, key: _Key, item: Recalled) -> None:
        del self._chosen[key]
        self._lasting.pop(key, None)
        self._worded.pop(key, None)
        if item.source is Source.SUMMARY and item.id not in self._asked:
            self._points[item.identity, Period(Grain(item.grain), item.period)].remove(key)

    def _choose(self, key: _Key, item: Recalled) -> None:
        self._size.add(item)
        self._chosen[key] = item
        if item.source in _COMPARED:
            self._worded[key] = as_compared(words_in(item.content))
        if item.source in _REPLACEABLE or item.id in self._asked:
            self._lasting[key] = words_in(item.content), item.evidence
        if not isinstance(item.grain, Grain) or item.id in self._asked:
            return
        period = Period(item.grain, item.period)
        self._taken[item.identity] |= self._above(period)
        if item.source is Source.SUMMARY:
            self._points[item.identity, period].append(key)
            return
        self._said.append(words_in(item.content))
        if item.is_whole_message:
            self._messages.update(item.source_ids)

    def _is_covered(self, item: Recalled) -> bool:
        """Return whether the chosen items say what an item says."""
        words = words_in(item.content)
        if item.id in self._asked:
            return any(words in kept for kept, _ in self._lasting.values()) or any(words in said for said in self._said)
        if item.source is Source.SUMMARY:
            period = Period(Grain(item.grain), item.period)
            return (
                period in self._taken[item.identity]
                or any(self._points.get((item.identity, above)) for above in self._above(period))
                or any(words in kept for kept, _ in self._lasting.values())
            )
        if item.source in _COMPARED and not item.is_standing:
            worded = as_compared(words)
            if any(worded == other for (source, *_), other in self._worded.items() if source is not item.source):
                return True
        if item.source not in _REPLACEABLE:
            return False
        is_in_messages = bool(item.source_ids) and self._messages.issuperset(item.source_ids)
        return is_in_messages or any(words in said for said in self._said)

    def _replaced_by(self, item: Recalled) -> list[_Key]:
        """Return the keys of the chosen items that say no more than an item."""
        words = words_in(item.content)
        if item.source in _REPLACEABLE:
            points = (key for keys in self._points.values() for key in keys)
            return [key for key in points if words_in(self._chosen[key].content) in words]
        if item.source is not Source.MEMORY:
            return []
        above = self._above(Period(Grain(item.grain), item.period))
        replaced = [key for period in above for key in self._points.get((item.identity, period), ())]
        messages = self._messages.union(item.source_ids) if item.is_whole_message else self._messages
        for key, (kept, sources) in self._lasting.items():
            if kept in words or (sources and messages.issuperset(sources)):
                replaced.append(key)
        return replaced


_ADDED_DATES = re.compile(r" \[[0-9]{4}[^\]]*\]")


def words_in(content: str) -> str:
    """Return a text as it is compared: in lower case, without dates that were added."""
    return _ADDED_DATES.sub("", content).casefold()


def _periods_above(calendar: Calendar) -> Callable[[Period], frozenset[Period]]:
    @cache
    def above(period: Period) -> frozenset[Period]:
        parent = calendar.parent(period)
        return frozenset() if parent is None else above(parent) | {parent}

    return above
