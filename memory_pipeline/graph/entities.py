"""Which entities of a graph a text names, and which of their facts answer it best; without a model."""

from __future__ import annotations

import re
from itertools import islice, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.domain.text.words import STOP_WORDS
from memory_pipeline.models.deterministic.language.grammar import sentences_of
from memory_pipeline.models.deterministic.language.names import names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.graph.snapshot import GraphSnapshot, Layer

#: Longest name that is looked for in a text, in words.
_LONGEST: Final = 6
#: Of what is not a name as it stands, so many names that hold it as a word are taken.
_MOST_PARTIAL: Final = 5
#: … of so many that hold it at all, those of which most is known.
_LOOKED_AT: Final = 1_000
#: Of all facts of the entities, so many of the newest are compared with the text.
_COMPARED: Final = 2_000
#: Of a text so many characters are looked at.
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
    """Return the numbers of the entities that a text names, each once, in the text's order.

    Entities of the graph are found by name and alias, longest names first, whatever their case; names and quoted terms
    that are none, by the entities that hold them as words. "I" is the speaker, or ``User``; "you" is ``Agent``.

    Args:
        graph: where.
        text: the first 10,000 characters count.
        speaker: who says it.
        names: what the text names, if a model has said so; but for "I" and "you" the text is not looked at then.
    """
    if names is not None:
        wanted = list(names)
        found = [code for name in wanted if (code := graph.code(name)) is not None]
        # Whom "I" and "you" mean, no model is told.
        spoken_of = (_spoken_of(graph, token[0], speaker) for token in _TOKEN.finditer(text[:_READ]))
        found += (code for code in spoken_of if code is not None)
        partial = [name for name in wanted if graph.code(name) is None]
    else:
        text = text[:_READ]
        found = list(_known(graph, text, speaker))
        covered = {graph.codes.name(code) for code in found}
        partial = [name for name in _names(text) if name_key(name) not in covered and graph.code(name) is None]
    for name in partial[:20]:
        found += _holding(graph, name)
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
            code = _spoken_of(graph, tokens[place].group(), speaker)
            if code is not None:
                yield code
            place += 1


def _spoken_of(graph: GraphSnapshot, word: str, speaker: str | None) -> int | None:
    """Return the entity that "I" or "you" stands for; None for any other word."""
    lower = word.lower().replace("’", "'")
    own = (speaker or "User") if lower in _FIRST_PERSON else "Agent" if lower in _SECOND_PERSON else None
    return None if own is None else graph.code(own)


def _at(graph: GraphSnapshot, text: str, start: int, end: int, length: int) -> int | None:
    name = text[start:end].replace("’", "'")
    if length == 1 and name.lower() in STOP_WORDS | _FIRST_PERSON | _SECOND_PERSON:
        return None
    code = graph.code(name)
    if code is None and name.lower().endswith("'s"):
        code = graph.code(name[:-2])
    return code


def _names(text: str) -> list[str]:
    """Return quoted terms and names, as they are written."""
    quoted = [match[1].strip() for match in _QUOTED.finditer(text)]
    sentences = sentences_of(text)
    named = [name for own in names_in(sentences) for name in own]
    return [name for name in dict.fromkeys([*quoted, *named]) if name and name.lower() not in STOP_WORDS]


def _holding(graph: GraphSnapshot, name: str) -> list[int]:
    """Return the best known entities whose names hold a name as words."""
    key = name_key(name.encode(errors="replace").decode())
    if len(key) < 3:
        return []
    whole = re.compile(rf"(?<![^\W_]){re.escape(key)}(?![^\W_])")
    codes = np.array(graph.codes.holding(key), np.int64)
    codes = codes[graph.degrees[codes] > 0]
    best = codes[np.argsort(-graph.degrees[codes], kind="stable")][:_LOOKED_AT].tolist()
    best.sort(key=lambda code: (-graph.degrees[code], graph.codes.name(code)))
    return list(islice((code for code in best if whole.search(graph.codes.name(code))), _MOST_PARTIAL))


def ranked(
    graph: GraphSnapshot, codes: list[int], text: str, limit: int, hops: int, now: int, at: datetime | None = None
) -> tuple[list[tuple[Layer, int, float]], int]:
    """Return the facts around entities that fit a text best, with their scores, and how many facts there are in all.

    The first ring are the facts of the entities, the second those of the entities that these lead to, and so on. The
    score of a fact is 1 for each of its ends that the ring goes out from, less the more facts that entity has
    (``1 / log2(1 + facts)``, so that a rare thing counts for more than a person of whom much is known); plus 1.5 times
    the share of the words of its label and other end that stand in the text; plus half its confidence; plus 0.3 if it
    was said now, half as much a year ago; all of it halved for each ring after the first. A kind (``Anna is_a person``)
    leads to no ring.

    Each ring has a share of the limit to itself, lest many facts of the first leave no place for those of the others.

    Args:
        graph: where.
        codes: the entities.
        text: what is asked.
        limit: how many facts at most.
        hops: how many rings.
        now: microseconds since 1970, from which ages count.
        at: the facts that held then; those that hold if None.
    """
    asked = frozenset(terms(text[:_READ]))
    rings: list[list[tuple[float, int, str, Layer, int]]] = []
    seen: list[NDArray[np.int64]] = [np.empty(0, np.int64) for _ in graph.layers]
    reached = frontier = np.array(codes, np.int64)
    for ring in range(hops):
        specific = {int(code): float(1 / np.log2(1 + max(int(graph.degrees[code]), 1))) for code in frontier}
        ends = [reached]
        found: list[tuple[float, int, str, Layer, int]] = []
        for place, (layer, around) in enumerate(graph.around(frontier, only_holding=at is None)):
            touching = around if at is None else layer.held_at(around, at)
            rows = touching[~np.isin(touching, seen[place])]
            seen[place] = np.concatenate([seen[place], rows])
            leading = rows[layer.leads[rows]]
            ends += [numbers[leading] for numbers in layer.ends]
            if len(rows) > _COMPARED:
                rows = rows[np.argpartition(-layer.updated_at[rows], _COMPARED)[:_COMPARED]]
            scores = 0.5**ring * _scores(layer, rows, specific, asked, now)
            ids = layer.rows["id"].take(pa.array(rows)).to_pylist()
            times = (-layer.updated_at[rows]).tolist()
            found += zip((-scores.round(6)).tolist(), times, ids, repeat(layer), rows.tolist(), strict=False)
        rings.append(sorted(found, key=_ORDER))
        everything = np.unique(np.concatenate(ends))
        frontier, reached = np.setdiff1d(everything, reached), everything
    share = limit // (hops + 1)
    first = [fact for ring in rings for fact in ring[:share]]
    others = sorted((fact for ring in rings for fact in ring[share:]), key=_ORDER)
    best = sorted([*first, *others[: limit - len(first)]], key=_ORDER)
    return [(layer, row, -score) for score, _, _, layer, row in best], sum(map(len, seen))


def _scores(
    layer: Layer, rows: NDArray[np.int64], specific: dict[int, float], asked: frozenset[str], now: int
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
            scores[place] += 1.5 * len(words & asked) / len(words)
    return scores
