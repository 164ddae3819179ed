"""Which of the rows that a search found are worth a line in a prompt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.reader.packing.asked import PHATIC_TERMS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from memory_pipeline.search.selection import Choice

#: A row with a word of the question, or the answer to one, is kept if its strength is at most so far behind that of the
#: best one; another row at most the second number. The rest holds next to no answers. The first fifth of the rows that
#: could fill the budget is kept anyway.
_BEHIND, _BEHIND_WITHOUT_WORDS, _FIRST = 6.0, 4.0, 5
#: Points of summaries, which repeat what was said, are kept if their strength is this share of the best one's.
SHARE_OF_POINTS: Final = 0.7
_GUESS = re.compile(
    r"\b(?:probably|perhaps|maybe|presumably|surely|you must|might|I (?:guess|suppose|bet|suspect))\b", re.IGNORECASE
)
_NAME = re.compile(r"(?<=[\w,] )[A-Z]\w+")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?…])\s+")


def worthy(found: Sequence[Choice], question: Collection[str], limit: int) -> list[Choice]:
    """Return the rows of a search, best first, without fill and without those that fit much worse than the best.

    `limit` is the number of rows that could fill the budget.
    """
    best = found[0].score if found else 0.0
    kept = []
    for place, one in enumerate(found):
        parts = one.parts or {}
        fits = parts.get("words", 0.0) > 0 or parts.get("answers", 0.0) > 0
        behind = _BEHIND if fits else _BEHIND_WITHOUT_WORDS
        if (place < limit // _FIRST or one.score >= best - behind) and not is_fill(one.row, question):
            kept.append(one)
    return kept


def is_fill(row: Mapping[str, Any], question: Collection[str]) -> bool:
    """Return whether a row tells nothing: it is phatic, a question of an assistant, or one that repeats the prompt.

    A guess of an assistant ("She probably likes the sea.") tells nothing either.
    """
    from memory_pipeline.models.deterministic.language.languages import is_courtesy  # compiles many patterns

    speaker = row["speaker"] or ""
    text = row["content"].removeprefix(f"{speaker}: ")
    words = set(terms(text)).difference(terms(speaker))
    if row["role"] == Role.ASSISTANT:
        words -= set(terms(" ".join(_NAME.findall(text))))
    if is_courtesy(text) or (text.isascii() and words <= PHATIC_TERMS and not any(map(str.isdigit, text))):
        return True
    sentences = _SENTENCE_ENDS.split(text.strip())
    is_question = all(sentence.endswith("?") for sentence in sentences)
    if row["role"] == Role.ASSISTANT:
        return is_question or all(
            sentence.endswith("?") or _GUESS.search(sentence) or PHATIC_TERMS.issuperset(terms(sentence))
            for sentence in sentences
        )
    return is_question and words.issubset(question)
