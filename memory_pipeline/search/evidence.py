"""What a search found for a question as a whole, from which its scores are calibrated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from memory_pipeline.domain.text.calibration import Calibration, Evidence
from memory_pipeline.search.scoring import SIGNALS, rarity_among_talks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.text.ranking import Query, Weights
    from memory_pipeline.search.row_block import RowBlock
    from memory_pipeline.search.scoring import Scored, Word

#: Number of best rows whose words count.
_BEST: Final = 10
_VECTOR, _NEARBY, _WORDS = (SIGNALS.index(name) for name in ("vector", "nearby", "words"))


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
        return Evidence(0.0, 0.0, 0.0, 1.0, unknown_name=question.names_unknown, speaker=False, rows=rows), 0.0
    signals = np.concatenate([part.signals for part in scored], axis=1)
    top = np.argsort(-totals, kind="stable")[:_BEST]
    found = signals[:, top]
    best = float(totals[top[0]])
    of_vectors = weights.vector * found[_VECTOR, 0] + weights.nearby * found[_NEARBY, 0]
    weight = sum(word.weight for word in words) or 1.0
    every_word = sum(rarity_among_talks(word, segments) for word in words) or 1.0
    chance = math.sqrt(2 * math.log(max(rows, 2)))
    return Evidence(
        best=best - float(of_vectors),
        words=float(found[_WORDS].max()),
        talk=max(part.best_talk for part in scored) / every_word,
        unknown=sum(word.weight for word in words if not word.forms) / weight,
        unknown_name=question.names_unknown,
        speaker=bool(question.about),
        rows=rows,
        near=float(signals[_VECTOR].max()) - chance if is_semantic else 0.0,
    ), best
