"""Inject Knowledge: what to put before a model with a prompt.

It comes from what is kept for good, from memory, graph and summaries, and from the caller's documents.

Sources are asked side by side, and one that fails leaves the others be. What says the same is told once. Then things
are chosen in three steps, within a count and a budget of tokens that nothing exceeds:

1. Each source that has something gets one place, and as much of the budget as an equal share; its best is cut to fit.
   Where the budget is too small for all, those that the agent remembers come first, and then documents.
2. Each gets further places up to half of an equal share of the count.
3. The places that are left go to the best of all sources; what no longer fits is passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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

#: Who goes first where there are fewer places than sources: what was said, what is kept for good, what is known, what
#: the caller brings.
_FIRST: Final = (Source.MEMORY, Source.DURABLE, Source.GRAPH, Source.DOCUMENT, Source.SUMMARY)
#: What gives way to the messages that it rests on.
_GIVING_WAY: Final = frozenset([Source.GRAPH, Source.DURABLE])
#: Marks around words, which make no other text.
_OPENING: Final = "\"'“”„«»(!?,;:"
_MARKS: Final = f"{_OPENING})."
#: Of a long text so much is compared with the prompt, in characters.
_COMPARED: Final = 4_000
#: How much the place counts that a source itself gives to something, against the words that it shares with the prompt.
_OWN_ORDER: Final = 0.5

Found = dict[Source, list[ContextItem]]
#: Most parts of a block.
MAX_PARTS: Final = 50
#: Of memory and graph so many times as many things are looked at as there are places.
_CONSIDERED: Final = 4
#: What is recalled to choose from takes so many tokens at least.
_LEAST_RECALLED: Final = 1_000


@dataclass(frozen=True, slots=True)
class InjectionRequest:
    """What is asked for, checked.

    Attributes:
        prompt: what a model is about to be asked; None if it is blank.
        documents: what the caller brings.
        max_results, max_tokens: the most that is wanted; None for the configuration's.
    """

    prompt: str | None
    documents: Sequence[ContextItem]
    max_results: int | None = None
    max_tokens: int | None = None


def inject(
    asking: InjectionRequest,
    settings: Injection,
    models: ReadingModels,
    recall: Callable[[str, int], Recollection],
    search: Callable[[str, int, list[str] | None], Facts],
    keep: Callable[[str, int], Sequence[RecalledMemory]] = lambda *_: (),
    hides: Callable[[GraphFact], bool] = lambda _: False,
    hidden: int = 0,
) -> InjectedContext:
    """Return what is known of a prompt.

    Args:
        asking: what is asked for.
        settings: what is configured for the agent.
        models: those that help, if any do.
        recall: returns what memory holds of a text, within a budget of tokens.
        search: returns facts of the graph: of a text so many, by the names in it, if they are known.
        keep: returns durable memories that fit a text, so many at most.
        hides: tells of a fact of the graph whether it is left out.
        hidden: how many may be, about.
    """
    prompt, most = asking.prompt, asking.max_results or settings.max_results
    budget = asking.max_tokens or settings.max_tokens
    if prompt is None or not settings.enabled:
        reason = "prompt is blank" if settings.enabled else "injection is switched off in config/workspaces.yaml"
        return InjectedContext(left_out=len(asking.documents), troubles={"injection": reason})
    troubles: dict[str, str] = {}

    def known() -> list[ContextItem]:
        names = None
        if models.entity_finder is not None:
            try:
                names = models.entity_finder.find(prompt)
            except Exception as error:  # noqa: BLE001  # whatever it is, rules find names too
                troubles["entities"] = _told(error)
        facts = search(prompt, _CONSIDERED * most + hidden, names)
        return graph_parts(fact for fact in facts if not hides(fact))

    found, failed = gather(
        {
            "memory": lambda: memory_parts(recall(prompt, max(budget, _LEAST_RECALLED)), _CONSIDERED * most),
            "graph": known,
            "durable": lambda: durable_parts(keep(prompt, most)),
            "documents": lambda: asking.documents,
        }
    )
    troubles |= failed
    ranked = distinct(in_turn(settled(found)))
    if models.reranker is not None and ranked:
        try:
            ranked = by_model(prompt, ranked, models.reranker)
        except Exception as error:  # noqa: BLE001  # whatever it is, the order stays
            troubles["rerank"] = _told(error)
    elif settings.rerank == "deterministic":
        ranked = by_words(prompt, ranked)
    return choose(ranked, most, budget, troubles)


def gather(asked: dict[str, Callable[[], Iterable[ContextItem]]]) -> tuple[Found, dict[str, str]]:
    """Ask sources side by side; return what they found, and of those that failed the reason.

    Args:
        asked: by name, what returns the parts of one or several sources, best first.
    """
    found: Found = {source: [] for source in Source}
    troubles: dict[str, str] = {}
    with ThreadPoolExecutor(max(len(asked), 1)) as pool:
        futures = {name: pool.submit(ask) for name, ask in asked.items()}
        for name, future in futures.items():
            try:
                for part in future.result():
                    found[part.source].append(part)
            except Exception as error:  # noqa: BLE001  # whatever it is, the other sources still serve
                troubles[name] = _told(error)
    return found, troubles


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, MemoryPipelineError) else f"{type(error).__name__}: {error}"


def memory_parts(recollection: Recollection, most: int) -> list[ContextItem]:
    """Return what was recalled as parts: what was said, and points of summaries, so many of each at most."""
    said = [item for item in recollection if item.grain is Grain.WORKING][:most]
    summed_up = [item for item in recollection if item.grain is not Grain.WORKING][:most]
    return [
        ContextItem(
            Source.MEMORY if item.grain is Grain.WORKING else Source.SUMMARY,
            item.id,
            compact(replace(item, warning=None).line),
            compact(item.content),
            frozenset(item.source_ids),
            warning=item.warning,
        )
        for item in (*said, *summed_up)
    ]


def durable_parts(memories: Iterable[RecalledMemory]) -> list[ContextItem]:
    """Return durable memories as parts."""
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
    """Return facts of the graph as parts."""
    return [
        ContextItem(
            Source.GRAPH, fact.id, fact.line, f"{fact.source} {fact.label} {fact.target}", frozenset(fact.evidence)
        )
        for fact in facts
    ]


def document_parts(documents: Sequence[object]) -> list[ContextItem]:
    """Return the caller's documents as parts.

    Raises:
        InputError: one of them is not accepted.
    """
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
        if one.content  # else it was nothing but recalled memory
    ]


def settled(found: Found) -> Found:
    """Return what was found without durable memories and messages that say the same.

    What holds until it is revoked, and was said in no other words, stays as what to keep in mind; else what somebody
    said stays, in the place of what was kept of it.
    """
    said = {_as_compared(part.said): part for part in reversed(found[Source.MEMORY])}
    sources = {part.evidence: part for part in reversed(found[Source.MEMORY]) if part.evidence}
    durable: list[ContextItem] = []
    gone: set[int] = set()
    for part in found[Source.DURABLE]:
        same = said.get(_as_compared(part.said))
        if same is None and not part.is_standing:
            same = sources.get(part.evidence)
        if same is None:
            durable.append(part)
            continue
        gone.add(id(same))
        stays = part if part.is_standing else same
        durable.append(_joined(stays, same if stays is part else part))
    memory = [part for part in found[Source.MEMORY] if id(part) not in gone]
    return {**found, Source.DURABLE: durable, Source.MEMORY: memory}


def distinct(parts: Iterable[ContextItem]) -> list[ContextItem]:
    """Return parts, each thing once: of those that say the same the first, which rests on the evidence of all.

    They say the same if they agree word for word, apart from case and the marks around words. A text agrees with what
    somebody said also without the speaker, and then what was said stays. More is not taken for the same: a number, a
    "not", who did it to whom.
    """
    kept: list[ContextItem] = []
    told: dict[str, int] = {}
    told_by_somebody: dict[str, int] = {}
    told_plainly: dict[str, int] = {}
    for part in parts:
        whole = _as_compared(part.said)
        speaker, colon, words = part.said.partition(": ")
        bare = _as_compared(words) if colon and speaker and part.source is Source.MEMORY else None
        before = told.get(whole)
        plain = None if before is not None or bare is None else told_plainly.pop(bare, None)
        if before is None and bare is None:
            before = told_by_somebody.get(whole)
        if before is not None:
            kept[before] = _joined(kept[before], part)
            continue
        place = len(kept) if plain is None else plain
        told[whole] = place
        if bare is None:
            told_plainly[whole] = place
        else:
            told_by_somebody.setdefault(bare, place)
        if plain is None:
            kept.append(part)
        else:
            # What comes next agrees with what is shown now, no longer with what that took the place of.
            del told[bare or ""]
            kept[place] = _joined(part, kept[place])
    return kept


def _joined(part: ContextItem, other: ContextItem) -> ContextItem:
    """Return a part that stands for another too: it rests on the evidence of both, and is warned of as either."""
    return replace(part, evidence=part.evidence | other.evidence, warning=part.warning or other.warning)


def _as_compared(text: str) -> str:
    return " ".join(word.lstrip(_OPENING).rstrip(_MARKS) or word for word in text.casefold().split())


def in_turn(found: Found) -> list[ContextItem]:
    """Return the parts of all sources, by turns: the best of each, then the second of each."""
    rounds = zip_longest(*(found.get(source, []) for source in _FIRST))
    return [part for each in rounds for part in each if part is not None]


def by_words(prompt: str, parts: Sequence[ContextItem]) -> list[ContextItem]:
    """Return parts in the order in which they fit a prompt: by the rare words that they share, and their own place."""
    words = [frozenset(terms(part.text[:_COMPARED])) for part in parts]
    holding = Counter(word for own in words for word in own)
    weight = {word: log(1 + len(parts) / holding[word]) for word in set(terms(prompt)) if word in holding}
    whole = fsum(weight.values()) or 1.0
    places: Counter[Source] = Counter()
    scores = []
    for part, own in zip(parts, words, strict=True):
        places[part.source] += 1
        # Added up exactly: the order of a set is another in each process.
        shared = fsum(weight[word] for word in own if word in weight)
        scores.append(shared / whole + _OWN_ORDER / places[part.source])
    return [parts[place] for place in sorted(range(len(parts)), key=lambda place: (-scores[place], place))]


def by_model(prompt: str, parts: Sequence[ContextItem], reranker: Reranker) -> list[ContextItem]:
    """Return parts in the order that a model gives them.

    Raises:
        ModelError: the model did not help.
    """
    return [parts[place] for place in reranker.order(prompt, [part.text for part in parts])]


def choose(ranked: Sequence[ContextItem], most: int, max_tokens: int, troubles: dict[str, str]) -> InjectedContext:
    """Return what is taken of `ranked`, best first; see the top of this module.

    A fact of the graph gives way to the message that it rests on, if that is taken, and so does a durable memory, which
    leaves it its warning.

    Args:
        ranked: parts of all sources.
        most: how many at most.
        max_tokens: what the block may take at most.
        troubles: what did not help.
    """
    budget = max_tokens * BYTES_PER_TOKEN
    kept = [part for part in ranked if part.source is Source.DURABLE and part.warning]
    left = [_warned(part, kept) for part in ranked]
    chosen = _chosen(left, most, budget)
    while told := _told_by_message(chosen, left):
        fewer = [part for part in left if part.source not in _GIVING_WAY or part.id not in told]
        again = _chosen(fewer, most, budget)
        if not told <= _told_by_message([*again, *(part for part in chosen if part.id in told)], left):
            break  # then the message would have no place
        left, chosen = fewer, again
    chosen = [_unwarned(part, kept, chosen) for part in chosen]
    parts = sorted(chosen, key=lambda part: (list(Source).index(part.source), not part.is_standing))
    return InjectedContext(tuple(parts), len(ranked) - len(parts), troubles)


def _warned(part: ContextItem, kept: Iterable[ContextItem]) -> ContextItem:
    """Return what was said with the warning of the first durable memory of the same message, unless it has one."""
    if part.source is not Source.MEMORY or part.warning is not None:
        return part
    warning = next((one.warning for one in kept if not part.evidence.isdisjoint(one.evidence)), None)
    return part if warning is None else replace(part, warning=warning)


def _unwarned(part: ContextItem, kept: Iterable[ContextItem], chosen: Iterable[ContextItem]) -> ContextItem:
    """Return it without a warning that is told already, with the durable memory."""
    if part.source is not Source.MEMORY or part.warning is None:
        return part
    shown = {one.id for one in chosen if one.source is Source.DURABLE}
    own = [one for one in kept if not part.evidence.isdisjoint(one.evidence)]
    is_told = any(one.warning == part.warning for one in own) and all(one.id in shown for one in own)
    return replace(part, warning=None) if is_told else part


def _told_by_message(chosen: Sequence[ContextItem], ranked: Sequence[ContextItem]) -> set[str]:
    """Return the ids of chosen facts and durable memories that rest on messages which are chosen whole."""
    whole = {id(part) for part in ranked}
    messages = [part.evidence for part in chosen if part.source is Source.MEMORY and id(part) in whole]
    said = frozenset[str]().union(*messages)
    return {part.id for part in chosen if part.source in _GIVING_WAY and part.evidence and part.evidence <= said}


def _chosen(ranked: Sequence[ContextItem], most: int, budget: int) -> list[ContextItem]:
    """Return what is taken, in the order in which it is taken; `budget` in bytes."""
    places = {source: [at for at, part in enumerate(ranked) if part.source is source] for source in _FIRST}
    chosen: dict[int, ContextItem] = {}
    present: list[Source] = []
    for source in [source for source in _FIRST if places[source]][:most]:
        # Where the budget is too small for all, a source never takes the place of one that goes before it.
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
    """Return the best of each source, by its place, cut to an equal share of the budget; without what does not fit."""
    chosen: dict[int, ContextItem] = {}
    size = Size()
    # The shortest first: what one does not need of its share is there for the others.
    for turn, place in enumerate(sorted(best.values(), key=lambda place: (len(ranked[place].text), place))):
        part, left = ranked[place], budget - size.bytes
        beside = size.plus(part).bytes - size.bytes - len(part.lines.encode())  # what frame and heading take
        share = min(left // (len(best) - turn), left - beside)
        shorter = cut_to(part, share)
        if shorter is None and part.warning:  # rather how old it is, without what to do about it, than nothing
            shorter = cut_to(replace(part, warning=part.warning.partition(":")[0]), share)
        if shorter is not None:
            chosen[place], size = shorter, size.plus(shorter)
    return chosen
