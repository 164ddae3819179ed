"""What makes a memory answer a question: the words it is compared by, what a question asks for, and the weights.

The score of a memory is a weighted sum of signals, each of which can be shown and explained (:class:`Weights`). They
are worked out by :mod:`memory_pipeline.reader.scoring`; this module has what needs no arrays.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_pipeline.domain.thesaurus import related
from memory_pipeline.domain.words import STOP_WORDS, parts_of, plain, stem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

#: Okapi BM25 (Robertson & Zaragoza 2009): k1 damps repetition, b the text's length. Short texts want both low.
K1, B = 0.9, 0.4
#: What a related word counts, of the word that was asked for.
RELATED = 0.6
#: What a word counts that is said in the same talk one, two, three or four messages before or after.
NEARBY = (0.8, 0.6, 0.4, 0.3)


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal adds to the score; there is no other place where ranking is tuned.

    Chosen by a softmax regression over the questions of five LoCoMo conversations, leaving one conversation out at a
    time, then rounded; docs/decisions/0008 has the figures. Those of one conversation differ little from those
    of the others.

    Attributes:
        coverage: share of the question's words, by how rare they are, that the memory or its neighbours in the talk
            hold; 0 to 1. An answer seldom repeats the question, but stands beside what does.
        words: BM25 of the memory alone, against the most that its words could give.
        vector: nearness of the vectors, in standard deviations from the agent's average memory.
        nearby: likewise the nearest of the neighbours in the talk, each counting as in :data:`NEARBY`; not below 0.
        talk: BM25 of the talk that it belongs to, against the best talk's; 0 to 1.
        speaker: 1 where the question names who said it, -1 where it names somebody else who speaks here; half of
            that where it names all who speak here, and the one whom it names first is meant.
        importance: as extracted, 0 to 1.
        answers: BM25, as in `words`, of the message before, where that ends with a question.
        asks: 1 where the memory itself ends with a question, and so tells little.
        dated: 1 where the question asks when, and the memory names a date.
        counted: 1 where the question asks how many, and the memory holds a number.
        repeats: for each better hit of the same talk, so that what several talks tell comes together.
    """

    coverage: float = 4.5
    words: float = 1.0
    vector: float = 0.5
    nearby: float = 0.45
    talk: float = 2.3
    speaker: float = 1.2
    importance: float = 1.4
    answers: float = 1.9
    asks: float = -0.5
    dated: float = 1.35
    counted: float = 0.5
    repeats: float = -0.1


WEIGHTS = Weights()
#: Vectors of these embedders see no more than words do, and so tell little beside them.
_SPELLING_ONLY = "hashed-"


def weights_for(embedder: str) -> Weights:
    """Return the weights for vectors that an embedder of this name makes."""
    return replace(WEIGHTS, vector=0.1, nearby=0.3) if embedder.startswith(_SPELLING_ONLY) else WEIGHTS


#: A word, or a picture: skin tones and what joins pictures are left out.
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[\u2600-\u27bf\U0001f000-\U0001f3fa\U0001f400-\U0001faff]")
#: From here on scripts write words without blanks between them: pairs of characters are compared instead.
_UNSPACED = re.compile("[\u2e80-\uffdc]+|[^\u2e80-\uffdc]+")
_WHEN = re.compile(r"\b(?:when|how long|since when|(?:what|which) (?:date|day|week|month|year|time))\b", re.IGNORECASE)
_HOW_MANY = re.compile(r"\bhow (?:many|much|old|often|far|big|tall)\b", re.IGNORECASE)
_MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
#: Related by spelling ("adopt", "adoption"): so many first letters in common, which are this share of both words.
_SHARED_LETTERS, _SHARE, _SHARE_OF_SHORTER = 5, 0.6, 0.8


def terms(text: str) -> list[str]:
    """Return the words of a text as they are compared: case, accents and endings folded, stop words left out."""
    found: list[str] = []
    for token in _TOKEN.findall(plain(text)):
        words = parts_of(token.replace("’", "'")) if "'" in token or "’" in token else (token,)
        for word in words:
            if word in STOP_WORDS:
                continue
            if word.isascii():
                found.append(stem(word))
            else:
                found += _spaced(word)
    return found


def _spaced(word: str) -> list[str]:
    """Cut a word where its script changes between those with and without blanks, and the latter into pairs."""
    found: list[str] = []
    for run in _UNSPACED.findall(word):
        if run[0] < "\u2e80" or len(run) < 3:
            found.append(stem(run))
        else:
            found += (run[place : place + 2] for place in range(len(run) - 1))
    return found


def date_terms(day: datetime) -> list[str]:
    """Return the words by which a question may name a day: its month, year and number."""
    return [stem(_MONTH_NAMES[day.month - 1]), str(day.year), str(day.day)]


def kin(term: str, vocabulary: Sequence[str]) -> list[str]:
    """Return the words of a sorted vocabulary that are spelt much like `term`: "adopt", "adoption".

    They begin with the same five letters or more, which are three fifths of the longer word and four fifths of the
    shorter.
    """
    if len(term) < _SHARED_LETTERS:
        return []
    head = term[:_SHARED_LETTERS]
    found = []
    for place in range(bisect_left(vocabulary, head), len(vocabulary)):
        word = vocabulary[place]
        if not word.startswith(head):
            break
        shared = next(
            (n for n, (one, other) in enumerate(zip(word, term, strict=False)) if one != other),
            min(len(word), len(term)),
        )
        longer, shorter = max(len(word), len(term)), min(len(word), len(term))
        if word != term and shared >= _SHARE * longer and shared >= _SHARE_OF_SHORTER * shorter:
            found.append(word)
    return found


def _spoken(token: re.Match[str]) -> str:
    """Return a word as it is written, without the ending of the possessive."""
    return token.group().replace("’", "'").removesuffix("'s")


@dataclass(frozen=True, slots=True)
class Question:
    """What a query asks for.

    Attributes:
        terms: its words, each once, in order.
        about: the speakers whom it names, in the order in which it does.
        bare: the query without their names, which would pull everything that they say: this is what is embedded.
        asks_when: it asks for a time.
        asks_how_many: it asks for a number.
    """

    terms: tuple[str, ...]
    about: tuple[str, ...]
    bare: str
    asks_when: bool
    asks_how_many: bool

    @classmethod
    def of(cls, query: str, speakers: Iterable[str]) -> Question:
        """Read a query, put to an agent to whom `speakers` have spoken.

        A speaker is named by any word of the name. Whoever shares it with another is named with the other. A name that
        is a common word ("Will") has to be written as a name, and not where all words have a capital.
        """
        composed = unicodedata.normalize("NFC", query)
        words = list(dict.fromkeys(terms(query)))
        names = {speaker: set(terms(speaker)) for speaker in speakers}
        places = {speaker: [words.index(part) for part in parts & set(words)] for speaker, parts in names.items()}
        common = {speaker for speaker, parts in names.items() if not parts and speaker[:1].isupper()}
        before: set[str] = set()
        done, first = 0, len(composed) - len(composed.lstrip())
        for match in _TOKEN.finditer(composed) if common else ():
            if (name := _spoken(match)) in common and match.start() > first:
                before.update(terms(composed[done : match.start()]))
                done = match.start()
                places[name].append(len(before))
        about = tuple(
            sorted((speaker for speaker in names if places[speaker]), key=lambda name: (min(places[name]), name))
        )
        named = set().union(*(names[speaker] for speaker in about)) if about else set()

        def kept(match: re.Match[str]) -> str:
            is_name = _spoken(match) in common.intersection(about) or named.issuperset(terms(match.group()) or [""])
            return "" if is_name else match.group()

        bare = " ".join(_TOKEN.sub(kept, composed).split())
        return cls(
            terms=tuple(words),
            about=about,
            bare=bare if terms(bare) else query,
            asks_when=bool(_WHEN.search(query)),
            asks_how_many=bool(_HOW_MANY.search(query)),
        )

    def alternatives(self, term: str, vocabulary: Sequence[str]) -> list[str]:
        """Return the words of a sorted vocabulary that may stand for one of the question's, without these."""
        found = {*related(term), *kin(term, vocabulary)}
        return sorted(found.difference(self.terms))
