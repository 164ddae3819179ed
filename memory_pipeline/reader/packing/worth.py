"""Which of the rows that a search found are worth a line in a prompt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.text.ranking import terms

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from memory_pipeline.search.selection import Choice

#: A row with a word of the question, or the answer to one, is kept if its strength is at most so far behind that of the
#: best one; another row at most the second number. The rest holds next to no answers. The first rows are kept anyway.
_BEHIND, _BEHIND_WITHOUT_WORDS, _FIRST = 6.0, 4.0, 20
#: Points of summaries, which repeat what was said, are kept if their strength is this share of the best one's.
SHARE_OF_POINTS: Final = 0.7
_PHATIC: Final = frozenset(
    terms(
        """
        agree alright amazing awesome birthday bless bye cheer chat congrats congratulation cool course exactly
        excellent excite exciting fantastic fine fun glad good goodbye goodnight gosh great haha happy hear hello help
        hey hi hmm honestly hope idea indeed interesting interest keep know lol love lovely luck mean meet mention mind
        morning night evening afternoon nice no note noted okay ok perfect please pleasure problem remember right
        seal see sir sorry sound splendid super talk tell thank thanks today true understand understood welcome well
        wonderful wow yeah yep yes lip anytime absolutely totally definitely sweet brilliant enjoy assist question feel
        free let care take day week weekend got get
        """
    )
)
#: Words of a request that say nothing about its subject.
_GENERIC: Final = frozenset(
    terms(
        """
        know tell remember summarise summarize summary overview recap review happen happened happening news event plan
        everything anything information info detail story talk say please write give list describe explain
        """
    )
)
_GUESS = re.compile(
    r"\b(?:probably|perhaps|maybe|presumably|surely|you must|might|I (?:guess|suppose|bet|suspect))\b", re.IGNORECASE
)
_FRAME = re.compile(
    r"^\W*(?:(?:hey|hi|hello|so|please|now|(?:can|could|would|will) you|i want you to)\b[\s,]*)*"
    r"(?:(?:what|how much) (?:do|did) (?:you|we) (?:know|remember)|do you (?:know|remember)"
    r"|(?:tell|remind|inform|show|give) (?:me|us)|summari[sz]e|recap|what about)\b[\s,]*"
    r"(?:(?:again|anything|everything|something|more|all|what|you|know)\b[\s,]*)*(?:(?:about|of|on|for)\b\s*)?",
    re.IGNORECASE,
)
_ASKING = re.compile(r"\b(?:happen(?:s|ed|ing)?|summari[sz]e|summary|overview|recap|remember|know)\b", re.IGNORECASE)
_PERIOD = re.compile(
    r"(?<!\d )\b(?:(?:January|February|March|April|May|June|July|August|September|October|November|December)"
    r"(?:,? (?:of )?(?:19|20)\d\d)?|(?:19|20)\d\d)\b(?! \d)"
)
_SPAN = re.compile(r"\b(my|our|the past|past|the previous|previous) (week|month|year)\b", re.IGNORECASE)
_NAME = re.compile(r"(?<=[\w,] )[A-Z]\w+")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?…])\s+")


def subject_of(prompt: str) -> str:
    """Return a prompt without the words that ask: of "What do you know about Elise?", "Elise?".

    A month or a year that is asked about alone is named as a time: "in January".
    """
    rest = _ASKING.sub("", _FRAME.sub("", prompt, count=1))
    rest = _SPAN.sub(lambda match: f"{'this' if match[1].lower() in {'my', 'our'} else 'last'} {match[2]}", rest)
    period = _PERIOD.search(rest)
    if period is not None and is_generic(terms(rest.replace(period[0], ""))):
        return f"in {period[0]}"
    return rest if terms(rest) else prompt


def is_generic(words: Iterable[str]) -> bool:
    """Return whether the words of a question, without times, name no subject."""
    return _GENERIC.issuperset(words)


def worthy(found: Sequence[Choice], question: Collection[str]) -> list[Choice]:
    """Return the rows of a search, best first, without fill and without those that fit much worse than the best."""
    best = found[0].score if found else 0.0
    kept = []
    for place, one in enumerate(found):
        parts = one.parts or {}
        fits = parts.get("words", 0.0) > 0 or parts.get("answers", 0.0) > 0
        behind = _BEHIND if fits else _BEHIND_WITHOUT_WORDS
        if (place < _FIRST or one.score >= best - behind) and not is_fill(one.row, question):
            kept.append(one)
    return kept


def is_fill(row: Mapping[str, Any], question: Collection[str]) -> bool:
    """Return whether a row tells nothing: it is phatic, a question of an assistant, or one that repeats the prompt.

    A guess of an assistant ("She probably likes the sea.") tells nothing either.
    """
    speaker = row["speaker"] or ""
    text = row["content"].removeprefix(f"{speaker}: ")
    words = set(terms(text)).difference(terms(speaker))
    if row["role"] == Role.ASSISTANT:
        words -= set(terms(" ".join(_NAME.findall(text))))
    if text.isascii() and words <= _PHATIC and not any(letter.isdigit() for letter in text):
        return True
    sentences = _SENTENCE_ENDS.split(text.strip())
    is_question = all(sentence.endswith("?") for sentence in sentences)
    if row["role"] == Role.ASSISTANT:
        return is_question or all(
            sentence.endswith("?") or _GUESS.search(sentence) or _PHATIC.issuperset(terms(sentence))
            for sentence in sentences
        )
    return is_question and words.issubset(question)
