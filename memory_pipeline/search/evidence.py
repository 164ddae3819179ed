"""What a search found for a question as a whole, from which its scores are calibrated."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from memory_pipeline.domain.text.calibration import Calibration, Evidence
from memory_pipeline.domain.text.ranking import across_borders, terms
from memory_pipeline.domain.text.words import plain
from memory_pipeline.search.scoring import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.domain.text.ranking import Query, Weights
    from memory_pipeline.search.row_block import RowBlock
    from memory_pipeline.search.scoring import Scored, Word

#: Number of best rows whose words count.
_BEST: Final = 10
#: A content word of a question is in at most this many rows, or this share of them: two words that are in many rows
#: meet in one of them by chance.
_RARE, _RARE_SHARE = 10, 0.005
#: Least share of a question's words in a text that holds two of them: of a long prompt, many texts do.
_SHARE = 0.2
#: How much more a long reply counts less than in the ranking: it has some words of any question.
_WORDY = 2.4
_VECTOR, _NEARBY, _WORDS, _REPLIES = (SIGNALS.index(name) for name in ("vector", "nearby", "words", "replies"))


def calibration_of(
    question: Query,
    words: Sequence[Word],
    segments: Sequence[RowBlock],
    scored: Sequence[Scored],
    weights: Weights,
    *,
    is_semantic: bool,
    fewest: int = 0,
) -> Calibration:
    """Return the calibration of a search from its scored rows.

    The best hit has the score 0.5 if nothing tells whether the question fits: if it has no words, such as "What was
    it?", or if there are less than `fewest` rows.
    """
    if not words or sum(map(len, segments)) < fewest:
        return Calibration(0.0, max((float(part.totals.max(initial=-np.inf)) for part in scored), default=0.0))
    evidence, best = evidence_of(question, words, segments, scored, weights, is_semantic=is_semantic)
    return Calibration(evidence.logit, best)


def evidence_of(
    question: Query,
    words: Sequence[Word],
    segments: Sequence[RowBlock],
    scored: Sequence[Scored],
    weights: Weights,
    *,
    is_semantic: bool,
) -> tuple[Evidence, float]:
    """Return the evidence of a search, and the sum of the signals of the best row."""
    totals = np.concatenate([part.totals for part in scored]) if scored else np.zeros(0, np.float32)
    rows = sum(map(len, segments))
    if not len(totals):
        nothing = Evidence(0.0, 0.0, 1.0, unknown_name=question.names_unknown, speaker=False, rows=rows)
        return nothing, 0.0
    signals = np.concatenate([part.signals for part in scored], axis=1)
    founded = totals - _WORDY * signals[_REPLIES]
    top = np.argsort(-founded, kind="stable")[:_BEST]
    found = signals[:, top]
    of_vectors = weights.vector * found[_VECTOR, 0] + weights.nearby * found[_NEARBY, 0]
    chance = math.sqrt(2 * math.log(max(rows, 2)))
    return Evidence(
        best=float(founded[top[0]] - of_vectors),
        words=float(found[_WORDS].max()),
        unknown=_unknown(words),
        unknown_name=question.names_unknown,
        speaker=bool(question.about),
        rows=rows,
        near=float(signals[_VECTOR].max()) - chance if is_semantic else 0.0,
        is_english=question.is_english,
    ), float(totals.max())


def _unknown(words: Sequence[Word]) -> float:
    """Return the share of a question's words, by weight, that no row has."""
    unknown = {word.term for word in words if not word.forms and word.term is not None}
    no_words = across_borders(unknown, {word.term for word in words if word.forms and word.term is not None})
    asked = [word for word in words if word.term not in no_words]
    return sum(word.weight for word in asked if not word.forms) / (sum(word.weight for word in asked) or 1.0)


def verbatim_in(query: str, question: Query, words: Sequence[Word], rows: int) -> Callable[[str], bool]:
    """Return a function that tells whether a text holds two content words of a question as they are, or all of it."""
    asked = frozenset(question.terms)
    rare = {word.term for word in words if 0 < word.count <= max(_RARE, _RARE_SHARE * rows)}
    letters = plain(query).strip(" \t\n.,;:!?。？！、'\"")
    # Scripts that have capitals separate words; in others, a word can stand inside a longer run of letters.
    has_borders = letters.upper() != letters
    whole = re.compile(rf"(?<!\w){re.escape(letters)}(?!\w)" if has_borders else re.escape(letters))

    def is_verbatim(text: str) -> bool:
        held = asked.intersection(terms(text))
        is_much = len(held & rare) > 1 and len(held) >= _SHARE * len(asked)
        return bool(asked) and (held == asked or is_much or whole.search(plain(text)) is not None)

    return is_verbatim
