"""How well memory fits a question: a score in [0, 1] that compares between questions.

Every question has a best hit, also one about something that was never mentioned. The sums by which hits are ranked
compare within one search only. This score estimates whether the question is about this memory at all: 0.5 if such a
search is as often one of a question about another memory. It is a logistic function, searched on questions of nine data
sets, each asked of its own memory and of others; docs/decisions/0024 has the figures. A
question on a topic of this memory, of which only the detail was never mentioned, has a high score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

#: Hits with a lower score are left out by default: nothing fits.
DEFAULT_FLOOR: Final = 0.11
#: How much each point of the ranking's sum, by which a hit is behind the best one, lowers its logit.
_BEHIND: Final = 0.02


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a search found for a question.

    Attributes:
        best: sum of the signals of the best row, without those of vectors.
        words: cosine of the question's words and those of the row with the most, 0 to 1.
        unknown: share of the question's words that memory does not contain, by weight, 0 to 1.
        unknown_name: whether it names somebody or something that memory does not contain.
        speaker: whether it names a speaker.
        rows: number of rows, of whatever time, without points of summaries, which repeat them: more rows have better
            hits by chance.
        near: similarity of the nearest vector, in standard deviations above the nearest that chance would give; 0 if
            vectors only encode spelling.
        is_english: whether the question is English. In other languages it has words that only ask ("wann", "где") and
            other forms of the words of memory, which count less.
    """

    best: float
    words: float
    unknown: float
    unknown_name: bool
    speaker: bool
    rows: int
    near: float = 0.0
    is_english: bool = True

    @property
    def logit(self) -> float:
        """The logarithm of the odds that the question is about this memory."""
        return (
            0.6
            + 0.11 * self.best
            + 2.9 * self.words
            - 0.7 * self.unknown
            - 1.5 * (self.unknown >= 1)
            - 0.6 * self.unknown_name
            + self.speaker
            + 0.3 * self.near
            + 0.85 * (not self.is_english)
            - 0.44 * math.log(max(self.rows, 1))
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """Turns the sums of one search's signals into scores.

    Attributes:
        logit: that of the best hit; see :attr:`Evidence.logit`.
        best: sum of the signals of the best hit.
    """

    logit: float
    best: float

    def __call__(self, total: float) -> float:
        """Return the score of a hit with this sum of signals: in [0, 1], higher for a higher sum."""
        logit = self.logit - _BEHIND * max(self.best - total, 0.0)
        return 1 / (1 + math.exp(-min(max(logit, -30.0), 30.0)))
