"""Build the context for a prompt from durable memories, facts, the graph, summaries, and the caller's documents.

Sources are queried in parallel. If one fails, the others still answer. Duplicates are merged. Then items are chosen in
three steps, within a maximum count and a token budget:

1. Each source gets its best item, cut to an equal share of the budget. If the budget is too small for all sources, they
   are served in the order of `_FIRST`.
2. Each source gets more items, up to half of an equal share of the count.
3. The best of the remaining items follow. Items that do not fit are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import fsum, log
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.model_calls import BYTES_PER_TOKEN
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.errors import InputError, MemoryPipelineError, shown
from memory_pipeline.reader.knowledge import ContextItem, Document, InjectedContext, Size, Source, compact, cut_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory_pipeline.configuration.model_settings import Injection
    from memory_pipeline.domain.ports import Reranker
    from memory_pipeline.graph import Facts, GraphFact
    from memory_pipeline.memories.search import RecalledMemory
    from memory_pipeline.models.factory import ReadingModels
    from memory_pipeline.reader.knowledge import Recollection

#: Order in which sources are served if there is no room for all.
_FIRST: Final = (Source.MEMORY, Source.DURABLE, Source.GRAPH, Source.DOCUMENT, Source.SUMMARY)
#: Sources with items that are dropped in favour of the messages they come from.
_REPLACEABLE: Final = frozenset([Source.GRAPH, Source.DURABLE])
_OPENING: Final = "\"'“”„«»(!?,;:"
_CLOSING: Final = f"{_OPENING})."
#: Characters of a long text that are compared with the query.
_COMPARED: Final = 4_000
#: Weight of an item's rank in its source, relative to the words it shares with the query.
_RANK_WEIGHT: Final = 0.5

#: Why a blank query gets no context.
BLANK: Final = "query is blank"

Found = dict[Source, list[ContextItem]]
MAX_PARTS: Final = 50
_CANDIDATES_PER_ITEM: Final = 4
#: Least token budget of the recall from which items are chosen.
_LEAST_RECALLED: Final = 1_000


@dataclass(frozen=True, slots=True)
class InjectionRequest:
    """A validated request. A blank query is None. Limits that are None come from the configuration."""

    query: str | None
    documents: Sequence[ContextItem]
    max_results: int | None = None
    max_tokens: int | None = None


def inject(
    request: InjectionRequest,
    settings: Injection,
    models: ReadingModels,
    recall: Callable[[str, int], Recollection],
    search_graph: Callable[[str, int, list[str] | None], Facts],
    search_memories: Callable[[str, int], Sequence[RecalledMemory]] = lambda *_: (),
    hides: Callable[[GraphFact], bool] = lambda _: False,
    hidden: int = 0,
) -> InjectedContext:
    """Return the context for a prompt.

    `recall` returns facts and points for a text, within a token budget. `search_graph` returns at most so many graph
    facts for a text, optionally by the names in it, and `search_memories` at most so many durable memories. `hidden`
    estimates how many graph facts `hides` leaves out.
    """
    query, limit = request.query, request.max_results or settings.max_results
    budget = request.max_tokens or settings.max_tokens
    if query is None or not settings.enabled:
        reason = BLANK if settings.enabled else "injection is switched off in config/workspaces.yaml"
        return InjectedContext(left_out=len(request.documents), troubles={"injection": reason})
    troubles: dict[str, str] = {}

    def graph_items() -> list[ContextItem]:
        names = None
        if models.entity_finder is not None:
            try:
                names = models.entity_finder.find(query)
            except Exception as error:  # noqa: BLE001  # after any error, rules find the names instead
                troubles["entities"] = _message_of(error)
        facts = search_graph(query, _CANDIDATES_PER_ITEM * limit + hidden, names)
        return graph_parts(fact for fact in facts if not hides(fact))

    found, errors = gather(
        {
            "memory": lambda: memory_parts(recall(query, max(budget, _LEAST_RECALLED)), _CANDIDATES_PER_ITEM * limit),
            "graph": graph_items,
            "durable": lambda: durable_parts(search_memories(query, limit)),
            "documents": lambda: request.documents,
        }
    )
    troubles |= errors
    ranked = distinct(in_turn(settled(found)))
    if models.reranker is not None and ranked:
        try:
            ranked = by_model(query, ranked, models.reranker)
        except Exception as error:  # noqa: BLE001  # after any error, the order is unchanged
            troubles["rerank"] = _message_of(error)
    elif settings.rerank == "deterministic":
        ranked = by_words(query, ranked)
    return choose(ranked, limit, budget, troubles)


def gather(queries: dict[str, Callable[[], Iterable[ContextItem]]]) -> tuple[Found, dict[str, str]]:
    """Run queries in parallel. Return the items found, and the error message of each query that failed."""
    found: Found = {source: [] for source in Source}
    troubles: dict[str, str] = {}
    with ThreadPoolExecutor(max(len(queries), 1)) as pool:
        futures = {name: pool.submit(copy_context().run, ask) for name, ask in queries.items()}
        for name, future in futures.items():
            try:
                for part in future.result():
                    found[part.source].append(part)
            except Exception as error:  # noqa: BLE001  # after any error, the other sources still answer
                troubles[name] = _message_of(error)
    return found, troubles


def _message_of(error: Exception) -> str:
    return str(error) if isinstance(error, MemoryPipelineError) else f"{type(error).__name__}: {error}"


def memory_parts(recollection: Recollection, most: int) -> list[ContextItem]:
    """Return recalled facts and points as items, at most `most` of each."""
    facts = [item for item in recollection if item.grain is Grain.WORKING][:most]
    points = [item for item in recollection if item.grain is not Grain.WORKING][:most]
    return [
        ContextItem(
            Source.MEMORY if item.grain is Grain.WORKING else Source.SUMMARY,
            item.id,
            compact(replace(item, warning=None).line),
            compact(item.content),
            frozenset(item.source_ids),
            warning=item.warning,
        )
        for item in (*facts, *points)
    ]


def durable_parts(memories: Iterable[RecalledMemory]) -> list[ContextItem]:
    """Return durable memories as items."""
    return [
        ContextItem(
            Source.DURABLE,
            found.memory.id,
            compact(found.memory.content),
            compact(found.memory.content),
            frozenset(found.memory.source_ids),
            found.memory.kind.is_permanent,
            found.warning,
        )
        for found in memories
    ]


def graph_parts(facts: Iterable[GraphFact]) -> list[ContextItem]:
    """Return graph facts as items."""
    return [
        ContextItem(
            Source.GRAPH, fact.id, fact.line, f"{fact.source} {fact.label} {fact.target}", frozenset(fact.evidence)
        )
        for fact in facts
    ]


def document_parts(documents: Sequence[object]) -> list[ContextItem]:
    """Return the caller's documents as items. Raise InputError if one is invalid."""
    if isinstance(documents, str | bytes | Mapping) or not isinstance(documents, Sequence):
        raise InputError(f"documents {shown(documents)} is not accepted; expected a list of texts or mappings")
    read = [Document.of(value, place) for place, value in enumerate(documents)]
    return [
        ContextItem(
            Source.DOCUMENT,
            one.id or f"document {place}",
            compact(f"[{one.id}] {one.content}" if one.id else one.content),
            compact(one.content),
        )
        for place, one in enumerate(read, start=1)
        if one.content  # empty if the document held only recalled memory
    ]


def settled(found: Found) -> Found:
    """Merge durable memories with messages that say the same.

    A permanent memory with the words of a message replaces the message. Otherwise the message replaces the memory and
    gets its place.
    """
    said = {_as_compared(part.said): part for part in reversed(found[Source.MEMORY])}
    sources = {part.evidence: part for part in reversed(found[Source.MEMORY]) if part.evidence}
    durable: list[ContextItem] = []
    merged_ids: set[int] = set()
    for part in found[Source.DURABLE]:
        same = said.get(_as_compared(part.said))
        if same is None and not part.is_standing:
            same = sources.get(part.evidence)
        if same is None:
            durable.append(part)
            continue
        merged_ids.add(id(same))
        winner = part if part.is_standing else same
        durable.append(_merged(winner, same if winner is part else part))
    memory = [part for part in found[Source.MEMORY] if id(part) not in merged_ids]
    return {**found, Source.DURABLE: durable, Source.MEMORY: memory}


def distinct(parts: Iterable[ContextItem]) -> list[ContextItem]:
    """Merge items with the same words. The first one remains, with the evidence of all.

    Case and punctuation around words are ignored. A text also equals a message with the same words after the speaker's
    name; then the message remains. Texts that differ in a number, a "not" or the order of words are not equal.
    """
    unique: list[ContextItem] = []
    seen: dict[str, int] = {}
    seen_with_speaker: dict[str, int] = {}
    seen_plain: dict[str, int] = {}
    for part in parts:
        whole = _as_compared(part.said)
        speaker, colon, words = part.said.partition(": ")
        bare = _as_compared(words) if colon and speaker and part.source is Source.MEMORY else None
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


def _merged(part: ContextItem, other: ContextItem) -> ContextItem:
    return replace(part, evidence=part.evidence | other.evidence, warning=part.warning or other.warning)


def _as_compared(text: str) -> str:
    return " ".join(word.lstrip(_OPENING).rstrip(_CLOSING) or word for word in text.casefold().split())


def in_turn(found: Found) -> list[ContextItem]:
    """Return the items of all sources in turn: the best of each, then the second of each, and so on."""
    rounds = zip_longest(*(found.get(source, []) for source in _FIRST))
    return [part for each in rounds for part in each if part is not None]


def by_words(query: str, parts: Sequence[ContextItem]) -> list[ContextItem]:
    """Sort items by the rare words they share with a query, and by their rank in their source."""
    words = [frozenset(terms(part.text[:_COMPARED])) for part in parts]
    counts = Counter(word for own_words in words for word in own_words)
    weight = {word: log(1 + len(parts) / counts[word]) for word in set(terms(query)) if word in counts}
    whole = fsum(weight.values()) or 1.0
    places: Counter[Source] = Counter()
    scores = []
    for part, own_words in zip(parts, words, strict=True):
        places[part.source] += 1
        # fsum is exact: the iteration order of a set differs between processes.
        shared = fsum(weight[word] for word in own_words if word in weight)
        scores.append(shared / whole + _RANK_WEIGHT / places[part.source])
    return [parts[place] for place in sorted(range(len(parts)), key=lambda place: (-scores[place], place))]


def by_model(query: str, parts: Sequence[ContextItem], reranker: Reranker) -> list[ContextItem]:
    """Sort items with a model."""
    return [parts[place] for place in reranker.order(query, [part.text for part in parts])]


def choose(ranked: Sequence[ContextItem], most: int, max_tokens: int, troubles: dict[str, str]) -> InjectedContext:
    """Choose items as the module docstring describes. `ranked` is best first.

    A graph fact is dropped if the messages it comes from are chosen. So is a durable memory; its warning moves to the
    message.
    """
    budget = max_tokens * BYTES_PER_TOKEN
    warned = [part for part in ranked if part.source is Source.DURABLE and part.warning]
    candidates = [_with_warning(part, warned) for part in ranked]
    chosen = _chosen(candidates, most, budget)
    while covered := _covered_by_messages(chosen, candidates):
        fewer = [part for part in candidates if part.source not in _REPLACEABLE or part.id not in covered]
        again = _chosen(fewer, most, budget)
        if not covered <= _covered_by_messages([*again, *(part for part in chosen if part.id in covered)], candidates):
            break  # without the dropped items, the message would not be chosen
        candidates, chosen = fewer, again
    chosen = [_without_shown_warning(part, warned, chosen) for part in chosen]
    items = sorted(chosen, key=lambda part: (list(Source).index(part.source), not part.is_standing))
    return InjectedContext(tuple(items), len(ranked) - len(items), troubles)


def _with_warning(part: ContextItem, warned: Iterable[ContextItem]) -> ContextItem:
    """Add the warning of the first durable memory from the same message, unless the message has one."""
    if part.source is not Source.MEMORY or part.warning is not None:
        return part
    warning = next((one.warning for one in warned if not part.evidence.isdisjoint(one.evidence)), None)
    return part if warning is None else replace(part, warning=warning)


def _without_shown_warning(
    part: ContextItem, warned: Iterable[ContextItem], chosen: Iterable[ContextItem]
) -> ContextItem:
    if part.source is not Source.MEMORY or part.warning is None:
        return part
    shown = {one.id for one in chosen if one.source is Source.DURABLE}
    same = [one for one in warned if not part.evidence.isdisjoint(one.evidence)]
    is_shown = any(one.warning == part.warning for one in same) and all(one.id in shown for one in same)
    return replace(part, warning=None) if is_shown else part


def _covered_by_messages(chosen: Sequence[ContextItem], ranked: Sequence[ContextItem]) -> set[str]:
    """Return the ids of chosen facts and durable memories whose messages are all chosen uncut."""
    whole = {id(part) for part in ranked}
    messages = [part.evidence for part in chosen if part.source is Source.MEMORY and id(part) in whole]
    said = frozenset[str]().union(*messages)
    return {part.id for part in chosen if part.source in _REPLACEABLE and part.evidence and part.evidence <= said}


def _chosen(ranked: Sequence[ContextItem], most: int, budget: int) -> list[ContextItem]:
    """Return the chosen items in the order of choice; `budget` in bytes."""
    places = {source: [at for at, part in enumerate(ranked) if part.source is source] for source in _FIRST}
    chosen: dict[int, ContextItem] = {}
    present: list[Source] = []
    for source in [source for source in _FIRST if places[source]][:most]:
        # If the budget is too small for all, a source never displaces one that precedes it in `_FIRST`.
        tried = _shared({one: places[one][0] for one in (*present, source)}, ranked, budget)
        if len(tried) > len(present):
            chosen, present = tried, [*present, source]
    size = Size()
    for part in chosen.values():
        size = size.plus(part)

    def add(place: int, part: ContextItem) -> None:
        nonlocal size
        if place in chosen or len(chosen) == most or len(part.text) > budget:
            return
        larger = size.plus(part)
        if larger.bytes <= budget:
            chosen[place], size = part, larger

    guaranteed = most // (2 * len(present)) if present else 0
    for source in present:
        for place in places[source][:guaranteed]:
            add(place, ranked[place])
    for place, part in enumerate(ranked):
        add(place, part)
    return list(chosen.values())


def _shared(best: Mapping[Source, int], ranked: Sequence[ContextItem], budget: int) -> dict[int, ContextItem]:
    """Return the best item of each source by its index, cut to an equal share of the budget, if it fits."""
    chosen: dict[int, ContextItem] = {}
    size = Size()
    # Shortest first: later items can use what an item leaves of its share.
    for turn, place in enumerate(sorted(best.values(), key=lambda place: (len(ranked[place].text), place))):
        part, left = ranked[place], budget - size.bytes
        beside = size.plus(part).bytes - size.bytes - len(part.lines.encode())  # frame and heading
        share = min(left // (len(best) - turn), left - beside)
        shorter = cut_to(part, share)
        if shorter is None and part.warning:  # keep the age in the warning, drop the advice after the colon
            shorter = cut_to(replace(part, warning=part.warning.partition(":")[0]), share)
        if shorter is not None:
            chosen[place], size = shorter, size.plus(shorter)
    return chosen
