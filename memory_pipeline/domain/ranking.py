"""Ranks what an index returned: one score for all, wherever a candidate was found.

BM25 and the cosine of the vectors are each standardised over the candidates (z-score) and added. On conversations
this finds more than reciprocal rank fusion, which throws the distances away. BM25 is computed here over the
candidates, so that a row of the index and a turn that is still in the journal are measured alike.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.domain.words import STOP_WORDS, stem

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Okapi BM25 (Robertson & Zaragoza 2009): k1 damps repetition, b the text's length. Short texts want both low.
K1, B = 0.9, 0.4

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text to rank: its words and how near its vector is to the query's (cosine, -1 to 1)."""

    text: str
    similarity: float


def terms(text: str) -> list[str]:
    """Return the words of a text as they are compared: case, accents and endings folded, stop words left out."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return [stem(word) for word in _WORD.findall(plain) if word not in STOP_WORDS]


def scores(query: str, candidates: Sequence[Candidate]) -> list[float]:
    """Return each candidate's score for `query`, in the candidates' order; higher is better."""
    documents = [Counter(terms(candidate.text)) for candidate in candidates]
    lexical = _standardised(_bm25(set(terms(query)), documents))
    semantic = _standardised([candidate.similarity for candidate in candidates])
    return [word + vector for word, vector in zip(lexical, semantic, strict=True)]


def _bm25(wanted: set[str], documents: Sequence[Counter[str]]) -> list[float]:
    lengths = [document.total() for document in documents]
    mean = sum(lengths) / len(lengths) if any(lengths) else 1.0
    weights = {}
    for term in sorted(wanted):
        holding = sum(term in document for document in documents)
        weights[term] = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
    return [
        sum(
            weight * document[term] * (K1 + 1) / (document[term] + K1 * (1 - B + B * length / mean))
            for term, weight in weights.items()
            if term in document
        )
        for document, length in zip(documents, lengths, strict=True)
    ]


def _standardised(values: Sequence[float]) -> list[float]:
    if not values:
        return []
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    return [(value - mean) / spread if spread > 1e-12 else 0.0 for value in values]
