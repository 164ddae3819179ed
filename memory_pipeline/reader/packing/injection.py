"""Build the context for a prompt from durable memories, facts, the graph, summaries, and the caller's documents.

Sources are queried in parallel. If one fails, the others still answer. Duplicates are merged. Then the packer chooses
items, up to a count and a token budget (:mod:`memory_pipeline.reader.packing.packer`). Memory and the documents each
have half of both, and what the other leaves of its half: many documents cannot displace memory. Within memory, the
items that are worth most are chosen, whatever their source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from itertools import zip_longest
from math import fsum, log
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory_pipeline.domain.model_calls import BYTES_PER_TOKEN
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.errors import InputError, MemoryPipelineError, shown
from memory_pipeline.reader.packing.asked import is_small_talk
from memory_pipeline.reader.packing.items import (
    DOCUMENT,
    Document,
    InjectedContext,
    Recalled,
    Recollection,
    Source,
    as_compared,
    compact,
    in_order,
)
from memory_pipeline.reader.packing.packer import Packer, by_worth
from memory_pipeline.reader.packing.recall import fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory_pipeline.configuration.model_settings import Injection
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.models.factory import ReadingModels
    from memory_pipeline.reader.packing.recall import RecallCandidates

#: Characters of a long text that are compared with the query.
_COMPARED: Final = 4_000
#: Weight of a document's rank, relative to the words it shares with the query.
_RANK_WEIGHT: Final = 0.5
_CANDIDATES_PER_ITEM: Final = 4
MAX_PARTS: Final = 50


class Searches(NamedTuple):
    """The searches of memory for a text.

    Attributes:
        memory: returns facts and points, as many as a token budget could hold.
        graph: returns graph facts, best first, optionally by the names in the text. Those that the text asks for have
            a strength, others about those whom it names have none.
        durable: returns at most so many durable memories, best first.
        instructions: returns the instructions that apply to any text.
        hot_index: returns the durable memories that fill the rest of the budget.
    """

    memory: Callable[[int], RecallCandidates]
    graph: Callable[[int, list[str] | None], Iterable[Recalled]]
    durable: Callable[[int], Iterable[Recalled]] = lambda _: ()
    instructions: Callable[[], Iterable[Recalled]] = tuple
    hot_index: Callable[[], Iterable[Recalled]] = tuple


#: Shares of the budget, and of the number of items, for what comes before the other items.
_INSTRUCTIONS, _PERIODS, _FACTS, _ABOUT_NAMED = 0.2, 0.4, 0.2, 0.05
#: Share of the budget for all that is shown with small talk.
_LITTLE: Final = 0.2


def inject(
    query: str | None,
    documents: Sequence[Recalled],
    settings: Injection,
    models: ReadingModels,
    searches: Searches,
    calendar: Calendar,
) -> InjectedContext:
    """Return the context for a prompt, within the limits of the settings. `calendar` is that of the summaries.

    Without a query, the context has only the instructions and the hot index; with small talk, a few lines of them.
    """
    most, max_tokens = settings.max_results, settings.max_tokens
    is_small = query is not None and is_small_talk(query)
    found, troubles = Selection(), dict[str, str]()
    if query is not None and not is_small:
        found, troubles = select(query, settings, models, searches)
    standing = list(searches.instructions())
    leading = _within(standing, _INSTRUCTIONS, max_tokens, most)
    packer = Packer(calendar, max_tokens, is_block=True, most=most, periods=found.periods)
    if settings.rerank == "deterministic" and query is not None:
        documents = by_words(query, documents)
    ranked = distinct(in_turn([*leading, *found.items], documents))
    if models.reranker is not None and query is not None and ranked:
        try:
            ranked = [ranked[place] for place in models.reranker.order(query, [one.text for one in ranked])]
        except Exception as error:  # noqa: BLE001  # after any error, the order is unchanged
            troubles["rerank"] = _message_of(error)
    _fill(packer, ranked, most)
    left_out = len(ranked) - len(packer.chosen)
    rest = [*standing, *searches.hot_index()]
    packer.fill(rest, may_cut=False, share=_LITTLE if is_small else 1.0)
    return InjectedContext(tuple(in_order(packer.chosen)), left_out, troubles)


def recall(
    query: str, settings: Injection, models: ReadingModels, searches: Searches, calendar: Calendar
) -> Recollection:
    """Return what memory holds about a question, best first: the same items as :func:`inject`, without standing ones.

    Raises:
        Exception: whatever a search raises.
    """
    found, _ = select(query, settings, models, searches, is_strict=True)
    packer = Packer(calendar, settings.max_tokens, periods=found.periods)
    packer.fill(found.items)
    return Recollection(packer.chosen)


class Selection(NamedTuple):
    """The items for a query, those to choose first first, and the ids of points of periods that it asks about."""

    items: Sequence[Recalled] = ()
    periods: frozenset[str] = frozenset()


def select(
    query: str, settings: Injection, models: ReadingModels, searches: Searches, *, is_strict: bool = False
) -> tuple[Selection, dict[str, str]]:
    """Return the items for a query, and the error message of each search that failed.

    Points of asked periods are first, then graph facts about those whom the query names, each within a share of the
    limits, then the others by their worth, then more graph facts. Facts and points with a lower score than the
    settings' are left out; see :func:`~memory_pipeline.reader.packing.recall.fitting`. If `is_strict`, errors are
    raised.
    """
    most, max_tokens = settings.max_results, settings.max_tokens
    several = _CANDIDATES_PER_ITEM * min(most, MAX_PARTS)
    without_names: dict[str, str] = {}

    def graph_facts() -> Iterable[Recalled]:
        names = None
        if models.entity_finder is not None:
            try:
                names = models.entity_finder.find(query)
            except Exception as error:  # noqa: BLE001  # after any error, rules find the names instead
                without_names["entities"] = _message_of(error)
        return searches.graph(several, names)

    found, troubles = gather(
        {
            "memory": lambda: searches.memory(max_tokens),
            "graph": graph_facts,
            "durable": lambda: searches.durable(min(most, MAX_PARTS)),
        },
        is_strict=is_strict,
    )
    # A search that failed found nothing.
    facts, points, periods = found.get("memory", ([], [], []))
    graph = list(found.get("graph", ()))
    said = [item for part in (facts, points) for item in part[: max(several, most)]]
    others = settled(fitting(said, found.get("durable", ()), settings.minimum_score))
    asked_for, about_named = ([item for item in graph if bool(item.strength) is one] for one in (True, False))
    first = [
        *_within(periods, _PERIODS, max_tokens, most),
        *_within(asked_for, _FACTS, max_tokens, most),
        *_within(about_named, _ABOUT_NAMED, max_tokens, most),
    ]
    items = distinct([*first, *by_worth(distinct(others)), *graph])
    return Selection(items, frozenset(item.id for item in periods)), without_names | troubles


def _within(items: Iterable[Recalled], share: float, max_tokens: int, most: int) -> list[Recalled]:
    """Return the first items that fit into a share of the tokens and of the number of items, at least one."""
    taken: list[Recalled] = []
    left = int(share * max_tokens * BYTES_PER_TOKEN)
    for item in items:
        size = len(str(item).encode()) + 1
        if len(taken) < max(share * most, 1) and size <= left:
            taken.append(item)
            left -= size
    return taken


def in_turn(*lists: Sequence[Recalled]) -> list[Recalled]:
    """Return the items of all lists in turn: the best of each, then the second of each, and so on."""
    return [item for each in zip_longest(*lists) for item in each if item is not None]


def _fill(packer: Packer, ranked: Sequence[Recalled], most: int) -> None:
    """Choose items of memory and documents, half of the budget and of the count for each, then the best of the rest."""
    own, documents = ([item for item in ranked if (item.source is Source.DOCUMENT) is one] for one in (False, True))
    half = most // 2
    if not own or not documents:
        packer.fill(ranked)
        return
    # The smaller ones first: the others can use what they leave of their half.
    first, second = (own, most - half), (documents, half)
    if _size(documents) < _size(own):
        first, second = second, first
    packer.fill(first[0], share=0.5, most=first[1])
    if not packer.chosen and first[0] is own:
        packer.fill(own, most=1)
    packer.fill(second[0], most=second[1])
    packer.fill(ranked, may_cut=False)


def _size(items: Iterable[Recalled]) -> int:
    return sum(len(item.content) for item in items)


def gather(
    queries: Mapping[str, Callable[[], Any]], *, is_strict: bool = False
) -> tuple[dict[str, Any], dict[str, str]]:
    """Run queries in parallel. Return the results, and the error message of each query that failed.

    If `is_strict`, an error is raised.
    """
    found: dict[str, Any] = {}
    troubles: dict[str, str] = {}
    with ThreadPoolExecutor(max(len(queries), 1)) as pool:
        futures = {name: pool.submit(copy_context().run, ask) for name, ask in queries.items()}
        for name, future in futures.items():
            try:
                found[name] = future.result()
            except Exception as error:  # after any error, the other sources still answer
                if is_strict:
                    raise
                troubles[name] = _message_of(error)
    return found, troubles


def _message_of(error: Exception) -> str:
    return str(error) if isinstance(error, MemoryPipelineError) else f"{type(error).__name__}: {error}"


def document_parts(documents: Sequence[object]) -> list[Recalled]:
    """Return the caller's documents as items. Raise InputError if one is invalid."""
    if isinstance(documents, str | bytes | Mapping) or not isinstance(documents, Sequence):
        raise InputError(f"documents {shown(documents)} is not accepted; expected a list of texts or mappings")
    read = [Document.of(value, place) for place, value in enumerate(documents)]
    return [
        Recalled(one.id or f"document {place}", DOCUMENT, "", None, compact(one.content), label=one.id or "")
        for place, one in enumerate(read, start=1)
        if one.content  # empty if the document held only recalled memory
    ]


def settled(items: Iterable[Recalled]) -> list[Recalled]:
    """Merge permanent memories with facts and points of the same words: the memory replaces them."""
    standing: dict[str, Recalled] = {}
    others = []
    for item in sorted(items, key=lambda one: not one.is_standing):
        words = as_compared(item.content)
        if item.is_standing:
            standing.setdefault(words, item)
        elif words in standing:
            standing[words] = _merged(standing[words], item)
        else:
            others.append(item)
    return [*others, *standing.values()]


def distinct(parts: Iterable[Recalled]) -> list[Recalled]:
    """Merge items with the same words. The first one remains, with the evidence of all.

    Case and punctuation around words are ignored. A text also equals a message with the same words after the speaker's
    name; then the message remains. Texts that differ in a number, a "not" or the order of words are not equal.
    """
    unique: list[Recalled] = []
    seen: dict[str, int] = {}
    seen_with_speaker: dict[str, int] = {}
    seen_plain: dict[str, int] = {}
    for part in parts:
        whole = as_compared(part.content)
        speaker, colon, words = part.content.partition(": ")
        bare = as_compared(words) if colon and speaker and part.source is Source.MEMORY else None
        before = seen.get(whole)
        plain = None if before is not None or bare is None else seen_plain.pop(bare, None)
        if before is None and bare is None:
            before = seen_with_speaker.get(whole)
        if before is not None:
            unique[before] = _merged(unique[before], part)
            continue
        place = len(unique) if plain is None else plain
        seen[whole] = place
        if bare is None:
            seen_plain[whole] = place
        else:
            seen_with_speaker.setdefault(bare, place)
        if plain is None:
            unique.append(part)
        else:
            # The next item must match the text shown now, not the text it replaced.
            del seen[bare or ""]
            unique[place] = _merged(part, unique[place])
    return unique


def _merged(part: Recalled, other: Recalled) -> Recalled:
    return replace(
        part,
        source_ids=tuple(dict.fromkeys(part.source_ids + other.source_ids)),
        score=max(part.score, other.score),
        strength=max(part.strength, other.strength),
        # The date of a message tells its age.
        warning=part.warning or (None if part.source is Source.MEMORY else other.warning),
    )


def by_words(query: str, documents: Sequence[Recalled]) -> list[Recalled]:
    """Sort documents by the rare words they share with a query, and by their rank."""
    words = [frozenset(terms(one.text[:_COMPARED])) for one in documents]
    counts = Counter(word for own_words in words for word in own_words)
    weight = {word: log(1 + len(documents) / counts[word]) for word in set(terms(query)) if word in counts}
    whole = fsum(weight.values()) or 1.0
    # fsum is exact: the iteration order of a set differs between processes.
    scores = [
        fsum(weight[word] for word in own_words if word in weight) / whole + _RANK_WEIGHT / rank
        for rank, own_words in enumerate(words, start=1)
    ]
    return [documents[place] for place in sorted(range(len(documents)), key=lambda place: (-scores[place], place))]
