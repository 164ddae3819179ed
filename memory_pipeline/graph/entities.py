"""Find the entities that a text names and rank their facts, without a model."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import islice, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.domain.text.words import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.graph.snapshot import GraphSnapshot, Layer

    #: Score and time, both negative, id, and place of a fact.
    _Found = tuple[float, int, str, Layer, int]

#: Words of the longest name that is looked up in a text.
_LONGEST: Final = 6
#: Maximum entities for a name that only appears as a word of longer names, …
_MAX_PARTIAL: Final = 5
#: … out of this many candidates with the most facts.
_MAX_CANDIDATES: Final = 1_000
#: Newest facts of the entities that are compared with the text.
_MAX_COMPARED: Final = 2_000
#: Characters of a text that are read.
_READ: Final = 10_000

_TOKEN = re.compile(r"[^\W_]+(?:['’.\-&+][^\W_]+)*[+#]*")
_QUOTED = re.compile(r"[\"“„«]([^\"“”„«»\n]{1,100})[\"”»]")
_FIRST_PERSON = frozenset(["i", "me", "my", "mine", "myself", "i'm", "i've", "i'd", "i'll"])
_SECOND_PERSON = frozenset(["you", "your", "yours", "yourself"])
_ORDER: Final = itemgetter(0, 1, 2)
_YEAR: Final = 365.25 * 86_400e6  # microseconds


def named_in(
    graph: GraphSnapshot, text: str, *, speaker: str | None = None, names: Iterable[str] | None = None
) -> list[int]:
    """Return the codes of the entities that a text names, without duplicates, in the order of the text.

    Entities are found by name and alias in any case, longest names first. A name or quoted term that is not an entity
    finds entities with names that contain it as words. "I" is the speaker, or ``User``; "you" is ``Agent``. Only the
    first 10,000 characters are read. If a model has found `names`, the text is only searched for "I" and "you".
    """
    if names is not None:
        listed = list(names)
        found = [code for name in listed if (code := graph.code(name)) is not None]
        # The model does not know the meaning of "I" and "you".
        spoken_of = (_person_meant(graph, token[0], speaker) for token in _TOKEN.finditer(text[:_READ]))
        found += (code for code in spoken_of if code is not None)
        partial = [name for name in listed if graph.code(name) is None]
    else:
        text = text[:_READ]
        found = list(_known(graph, text, speaker))
        covered = {graph.codes.name(code) for code in found}
        partial = [name for name in _names(text) if name_key(name) not in covered and graph.code(name) is None]
    for name in partial[:20]:
        found += _with_words(graph, name)
    return list(dict.fromkeys(found))


_RELATION = re.compile(r"\b(?:my|our|the)((?:\s+[^\W\d_]+){1,3})", re.IGNORECASE)
_PARTNERS = ("wife", "husband", "partner", "girlfriend", "boyfriend", "fiancé", "fiancée", "spouse")
_CHILDREN, _PARENTS = ("son", "daughter", "child"), ("mother", "father", "mum", "mom", "dad")
_SIBLINGS = ("brother", "sister")
#: Relations that a word means, if it is not one itself.
_MEANT = {
    **dict.fromkeys(_PARTNERS, _PARTNERS),
    **dict.fromkeys(("kid", "kids", "children", "child"), _CHILDREN),
    **dict.fromkeys(("mum", "mom", "mother"), ("mother", "mum", "mom")),
    **dict.fromkeys(("dad", "father"), ("father", "dad")),
    **dict.fromkeys(("pet", "pets"), ("dog", "cat")),
    "parents": _PARENTS,
    "siblings": _SIBLINGS,
    "family": (*_PARTNERS, *_CHILDREN, *_PARENTS, *_SIBLINGS),
}


def related_in(graph: GraphSnapshot, text: str, owners: Iterable[int]) -> list[int]:
    """Return the entities that a text names by a relation: "my son", "our landlady", "the dog".

    A relation is a predicate ``has_…`` of one of `owners`, or of anybody if only one fact has it.
    """
    asked = {
        relation
        for match in _RELATION.finditer(text[:_READ])
        for word in match[1].lower().split()
        for relation in (_MEANT.get(word) or (word, word.removesuffix("s")))
    }
    if not asked:
        return []
    labels = pa.array(sorted(f"has_{relation}" for relation in asked), pa.string())
    codes = np.array(sorted(set(owners)), np.int64)
    own: list[int] = []
    others: list[int] = []
    for place, layer in enumerate(graph.layers):
        rows = graph.visible(place, np.flatnonzero(pc.is_in(layer.rows["label"], labels).to_numpy()))
        for row, is_own in zip(rows.tolist(), np.isin(layer.ends[0][rows], codes).tolist(), strict=True):
            (own if is_own else others).append(int(layer.ends[1][row]))
    found = own or (others if len(set(others)) == 1 else [])
    return list(dict.fromkeys(found))


def _known(graph: GraphSnapshot, text: str, speaker: str | None) -> Iterator[int]:
    tokens = list(_TOKEN.finditer(text))
    place = 0
    while place < len(tokens):
        for length in range(min(_LONGEST, len(tokens) - place), 0, -1):
            code = _at(graph, text, tokens[place].start(), tokens[place + length - 1].end(), length)
            if code is not None:
                yield code
                place += length
                break
        else:
            code = _person_meant(graph, tokens[place].group(), speaker)
            if code is not None:
                yield code
            place += 1


def says_i(text: str) -> bool:
    """Return whether a text has a pronoun of the first person."""
    return any(token.group().lower().replace("’", "'") in _FIRST_PERSON for token in _TOKEN.finditer(text[:_READ]))


def _person_meant(graph: GraphSnapshot, word: str, speaker: str | None) -> int | None:
    """Return the entity that "I" or "you" refers to; None for any other word."""
    lower = word.lower().replace("’", "'")
    name = (speaker or "User") if lower in _FIRST_PERSON else "Agent" if lower in _SECOND_PERSON else None
    return None if name is None else graph.code(name)


def _at(graph: GraphSnapshot, text: str, start: int, end: int, length: int) -> int | None:
    name = text[start:end].replace("’", "'")
    if length == 1 and name.lower() in STOP_WORDS | _FIRST_PERSON | _SECOND_PERSON:
        return None
    code = graph.code(name)
    if code is None and name.lower().endswith("'s"):
        code = graph.code(name[:-2])
    return code


def _names(text: str) -> list[str]:
    # Imported late: the rules compile many patterns.
    from memory_pipeline.models.deterministic.language.grammar import sentences_of
    from memory_pipeline.models.deterministic.language.names import names_in

    quoted = [match[1].strip() for match in _QUOTED.finditer(text)]
    sentences = sentences_of(text)
    named = [name for each in names_in(sentences) for name in each]
    return [name for name in dict.fromkeys([*quoted, *named]) if name and name.lower() not in STOP_WORDS]


def _with_words(graph: GraphSnapshot, name: str) -> list[int]:
    """Return the entities with names that contain a name as words, those with the most facts first."""
    key = name_key(name.encode(errors="replace").decode())
    if len(key) < 3:
        return []
    whole = re.compile(rf"(?<![^\W_]){re.escape(key)}(?![^\W_])")
    codes = np.array(graph.codes.holding(key), np.int64)
    codes = codes[graph.degrees[codes] > 0]
    best = codes[np.argsort(-graph.degrees[codes], kind="stable")][:_MAX_CANDIDATES].tolist()
    best.sort(key=lambda code: (-graph.degrees[code], graph.codes.name(code)))
    return list(islice((code for code in best if whole.search(graph.codes.name(code))), _MAX_PARTIAL))


def ranked(
    graph: GraphSnapshot, codes: list[int], text: str, limit: int, hops: int, now: int, at: datetime | None = None
) -> tuple[list[tuple[Layer, int, float]], int]:
    """Return the facts around entities that fit a text best, with scores, and the total number of facts.

    The first ring contains the facts of the entities, the second those of their neighbours, and so on. A fact scores:

    - for each end from which the ring starts, ``1 / log2(1 + facts of that entity)``: a rare thing counts for more than
      a person with many facts;
    - 1.5 times the share of the words of its label and other end that are in the text;
    - half its confidence;
    - 0.3 if it was stated now, half as much for each year of age.

    The sum is halved for each ring after the first. A kind (``Anna is_a person``) leads to no ring. Each ring has its
    own share of the limit. Otherwise a large first ring would leave no place for the others.

    `hops` is the number of rings, `now` the time from which ages count, in microseconds since 1970. With `at`, return
    the facts that were valid at that time.
    """
    question_terms = frozenset(terms(text[:_READ]))
    rings: list[list[_Found]] = []
    seen: list[NDArray[np.int64]] = [np.empty(0, np.int64) for _ in graph.layers]
    reached = frontier = np.array(codes, np.int64)
    for ring in range(hops):
        specific = {int(code): float(1 / np.log2(1 + max(int(graph.degrees[code]), 1))) for code in frontier}
        ends = [reached]
        found: list[_Found] = []
        for place, (layer, around) in enumerate(graph.around(frontier, only_holding=at is None)):
            touching = around if at is None else layer.held_at(around, at)
            rows = touching[~np.isin(touching, seen[place])]
            seen[place] = np.concatenate([seen[place], rows])
            leading = rows[layer.leads[rows]]
            ends += [numbers[leading] for numbers in layer.ends]
            if len(rows) > _MAX_COMPARED:
                rows = rows[np.argpartition(-layer.updated_at[rows], _MAX_COMPARED)[:_MAX_COMPARED]]
            scores = 0.5**ring * _scores(layer, rows, specific, question_terms, now)
            ids = layer.rows["id"].take(pa.array(rows)).to_pylist()
            times = (-layer.updated_at[rows]).tolist()
            found += zip((-scores.round(6)).tolist(), times, ids, repeat(layer), rows.tolist(), strict=False)
        if graph.holds_one is not None:
            found = _newer_first(found, graph.holds_one)
        rings.append(sorted(found, key=_ORDER))
        everything = np.unique(np.concatenate(ends))
        frontier, reached = np.setdiff1d(everything, reached), everything
    share = limit // (hops + 1)
    first = [fact for ring in rings for fact in ring[:share]]
    others = sorted((fact for ring in rings for fact in ring[share:]), key=_ORDER)
    best = sorted([*first, *others[: limit - len(first)]], key=_ORDER)
    return [(layer, row, -score) for score, _, _, layer, row in best], sum(map(len, seen))


def _newer_first(found: list[_Found], holds_one: Callable[[str], bool]) -> list[_Found]:
    """Give the higher score to the newer of several values of a single-valued predicate; they are of several scopes."""
    values: defaultdict[tuple[int, str], list[_Found]] = defaultdict(list)
    for fact in found:
        *_, layer, row = fact
        values[int(layer.ends[0][row]), layer.rows["label"][row].as_py()].append(fact)
    ordered = []
    for (_, label), facts in values.items():
        if len(facts) > 1 and holds_one(label):
            scores = sorted(score for score, *_ in facts)
            facts.sort(key=lambda fact: fact[1:3])
            ordered += [(score, *fact[1:]) for score, fact in zip(scores, facts, strict=True)]
        else:
            ordered += facts
    return ordered


def _scores(
    layer: Layer, rows: NDArray[np.int64], specific: dict[int, float], question_terms: frozenset[str], now: int
) -> NDArray[np.float64]:
    texts = layer.rows.select(["source", "label", "target", "confidence"]).take(pa.array(rows))
    scores: NDArray[np.float64] = 0.5 * texts["confidence"].to_numpy()
    scores += 0.3 * 0.5 ** np.maximum((now - layer.updated_at[rows]) / _YEAR, 0)
    labels = {label: frozenset(terms(label.replace("_", " "))) for label in pc.unique(texts["label"]).to_pylist()}
    columns = (texts["source"].to_pylist(), texts["label"].to_pylist(), texts["target"].to_pylist())
    ends = zip(layer.ends[0][rows].tolist(), layer.ends[1][rows].tolist(), strict=True)
    for place, (source, label, target, (first, second)) in enumerate(zip(*columns, ends, strict=True)):
        scores[place] += specific.get(first, 0.0) + specific.get(second, 0.0)
        other = source if first not in specific else target if second not in specific else ""
        words = labels[label] | frozenset(terms(other))
        if words:
            scores[place] += 1.5 * len(words & question_terms) / len(words)
    return scores
