"""Inject Knowledge: what to put before a model with a prompt, from memory, graph, summaries and the caller's documents.

Sources are asked side by side, and one that fails leaves the others be. What says the same is told once. Then things
are chosen in three steps, within a count and a budget of tokens that nothing exceeds:

1. Each source that has something gets one place, and as much of the budget as an equal share; its best is cut to fit.
2. Each gets further places up to half of an equal share of the count.
3. The places that are left go to the best of all sources; what no longer fits is passed over.
"""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from math import log
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.calls import BYTES_PER_TOKEN
from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.ranking import terms
from memory_pipeline.errors import MemoryPipelineError, ModelError
from memory_pipeline.reader.knowledge import Document, Knowledge, Part, Source, cut_to, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memory_pipeline.configuration.endpoints import Injection
    from memory_pipeline.domain.ports import Reranker
    from memory_pipeline.graph import Facts
    from memory_pipeline.models.selection import ReadingModels
    from memory_pipeline.reader.recall import Recollection

#: Who goes first where there are fewer places than sources: what was said, what is known, what the caller brings.
_FIRST: Final = (Source.MEMORY, Source.GRAPH, Source.DOCUMENT, Source.SUMMARY)
#: A text says nothing new if another one has so many of its words …
_SAME: Final = 0.9
#: … and is not much longer. Numbers, and words that deny, must be the same.
_LONGER: Final = 1.5
_DENYING: Final = re.compile(r"no|not|never|none|nothing|nobody|without|hardly|\w+n['’]t")
_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
#: How much the place counts that a source itself gives to something, against the words that it shares with the prompt.
_OWN_ORDER: Final = 0.5

Found = dict[Source, list[Part]]
#: Most parts of a block.
MAX_PARTS: Final = 50
#: Of memory and graph so many times as many things are looked at as there are places.
_CONSIDERED: Final = 4
#: What is recalled to choose from takes so many tokens at least.
_LEAST_RECALLED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked for, checked.

    Attributes:
        prompt: what a model is about to be asked; None if it is blank.
        documents: what the caller brings.
        max_results, max_tokens: the most that is wanted; None for the configuration's.
    """

    prompt: str | None
    documents: Sequence[Part]
    max_results: int | None = None
    max_tokens: int | None = None


def inject(
    asking: Asking,
    settings: Injection,
    models: ReadingModels,
    recall: Callable[[str, int], Recollection],
    search: Callable[[str, int, list[str] | None], Facts],
) -> Knowledge:
    """Return what is known of a prompt.

    Args:
        asking: what is asked for.
        settings: what is configured for the agent.
        models: those that help, if any do.
        recall: returns what memory holds of a text, within a budget of tokens.
        search: returns facts of the graph: of a text so many, by the names in it, if they are known.
    """
    prompt, most = asking.prompt, asking.max_results or settings.max_results
    budget = asking.max_tokens or settings.max_tokens
    if prompt is None or not settings.enabled:
        reason = "prompt is blank" if settings.enabled else "injection is switched off in config/workspaces.yaml"
        return Knowledge(left_out=len(asking.documents), troubles={"injection": reason})
    troubles: dict[str, str] = {}

    def known() -> list[Part]:
        names = None
        if models.entity_finder is not None:
            try:
                names = models.entity_finder.find(prompt)
            except ModelError as error:
                troubles["entities"] = str(error)
        return graph_parts(search(prompt, _CONSIDERED * most, names))

    found, failed = gather(
        {
            "memory": lambda: memory_parts(recall(prompt, max(budget, _LEAST_RECALLED)))[: _CONSIDERED * most],
            "graph": known,
            "documents": lambda: asking.documents,
        }
    )
    troubles |= failed
    ranked = in_turn(distinct(found))
    if models.reranker is not None and ranked:
        try:
            ranked = by_model(prompt, ranked, models.reranker)
        except ModelError as error:
            troubles["rerank"] = str(error)
    elif settings.rerank == "deterministic":
        ranked = by_words(prompt, ranked)
    return choose(ranked, most, budget, troubles)


def gather(asked: dict[str, Callable[[], Iterable[Part]]]) -> tuple[Found, dict[str, str]]:
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
                known = isinstance(error, MemoryPipelineError)
                troubles[name] = str(error) if known else f"{type(error).__name__}: {error}"
    return found, troubles


def memory_parts(recollection: Recollection) -> list[Part]:
    """Return what was recalled as parts: what was said, and points of summaries."""
    return [
        Part(
            Source.MEMORY if item.grain is Grain.WORKING else Source.SUMMARY,
            item.id,
            str(item),
            item.content,
            frozenset(item.source_ids),
        )
        for item in recollection
    ]


def graph_parts(facts: Facts) -> list[Part]:
    """Return facts of the graph as parts."""
    return [
        Part(Source.GRAPH, fact.id, str(fact), f"{fact.source} {fact.label} {fact.target}", frozenset(fact.evidence))
        for fact in facts
    ]


def document_parts(documents: Sequence[object]) -> list[Part]:
    """Return the caller's documents as parts.

    Raises:
        InputError: one of them is not accepted.
    """
    read = [Document.of(value, place) for place, value in enumerate(documents)]
    return [
        Part(
            Source.DOCUMENT,
            one.id or f"document {place}",
            f"[{one.id}] {one.content}" if one.id else one.content,
            one.content,
        )
        for place, one in enumerate(read, start=1)
    ]


def distinct(found: Found) -> Found:
    """Return what was found, each thing once: a fact of the graph is left out beside the message that it rests on."""
    kept: Found = {source: [] for source in Source}
    told: list[frozenset[str]] = []
    said: set[str] = set()
    for source in _FIRST:
        for part in found[source]:
            words = frozenset(_WORD.findall(part.said.casefold()))
            is_told = source is Source.GRAPH and part.evidence and part.evidence <= said
            if is_told or any(_says_nothing_new(words, other) for other in told):
                continue
            told.append(words)
            kept[source].append(part)
            if source is Source.MEMORY:
                said |= part.evidence
    return kept


def _says_nothing_new(words: frozenset[str], told: frozenset[str]) -> bool:
    if len(words & told) < _SAME * len(words) or len(told) > _LONGER * len(words) + 1:
        return False
    return not any(word[0].isdigit() or _DENYING.fullmatch(word) for word in words ^ told)


def in_turn(found: Found) -> list[Part]:
    """Return the parts of all sources, by turns: the best of each, then the second of each."""
    rounds = zip_longest(*(found[source] for source in _FIRST))
    return [part for each in rounds for part in each if part is not None]


def by_words(prompt: str, parts: Sequence[Part]) -> list[Part]:
    """Return parts in the order in which they fit a prompt: by the rare words that they share, and their own place."""
    words = [frozenset(terms(part.text)) for part in parts]
    holding = Counter(word for own in words for word in own)
    weight = {word: log(1 + len(parts) / holding[word]) for word in set(terms(prompt)) if word in holding}
    whole = sum(weight.values()) or 1.0
    places: Counter[Source] = Counter()
    scores = []
    for part, own in zip(parts, words, strict=True):
        places[part.source] += 1
        scores.append(sum(weight.get(word, 0.0) for word in own) / whole + _OWN_ORDER / places[part.source])
    return [parts[place] for place in sorted(range(len(parts)), key=lambda place: (-scores[place], place))]


def by_model(prompt: str, parts: Sequence[Part], reranker: Reranker) -> list[Part]:
    """Return parts in the order that a model gives them.

    Raises:
        ModelError: the model did not help.
    """
    return [parts[place] for place in reranker.order(prompt, [part.text for part in parts])]


def choose(ranked: Sequence[Part], most: int, max_tokens: int, troubles: dict[str, str]) -> Knowledge:
    """Return what is taken of `ranked`, best first; see the top of this module.

    Args:
        ranked: parts of all sources.
        most: how many at most.
        max_tokens: what the block may take at most.
        troubles: what did not help.
    """
    budget = max_tokens * BYTES_PER_TOKEN
    places = {source: [at for at, part in enumerate(ranked) if part.source is source] for source in _FIRST}
    # The shortest first: what one does not need of its share is there for the others.
    present = [source for source in _FIRST if places[source]][:most]
    present.sort(key=lambda source: len(ranked[places[source][0]].lines))
    chosen: list[Part] = []
    taken: set[int] = set()

    def add(place: int, part: Part) -> None:
        if place not in taken and len(chosen) < most and size_of((*chosen, part)) <= budget:
            chosen.append(part)
            taken.add(place)

    for turn, source in enumerate(present):
        place = places[source][0]
        share = (budget - size_of(tuple(chosen))) // (len(present) - turn)
        while share > 0 and place not in taken:
            add(place, cut_to(ranked[place], share))
            share -= 20  # what frame and heading take is found by trying
    guaranteed = most // (2 * len(present)) if present else 0
    for source in present:
        for place in places[source][:guaranteed]:
            add(place, ranked[place])
    for place, part in enumerate(ranked):
        add(place, part)
    order = {id(part): place for place, part in enumerate(chosen)}
    parts = sorted(chosen, key=lambda part: (list(Source).index(part.source), order[id(part)]))
    return Knowledge(tuple(parts), len(ranked) - len(parts), troubles)
