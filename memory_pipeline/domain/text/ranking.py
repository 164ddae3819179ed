"""What makes a memory answer a question: its words and synonyms, what is asked for, and the weights.

The score of a memory is a weighted sum of signals, each of which can be shown and explained (:class:`Weights`). They
are worked out by :mod:`memory_pipeline.search.scoring`; this module has what needs no arrays.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.text.words import STOP_WORDS, parts_of, plain, stem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date, datetime


# Which other words a text may use for what was asked, from ``thesaurus.txt``: everyday English, no model.
#
# A line of the file is one of two things::
#
# film = movie = cinema            each stands for each other
# pet > dog cat hamster            who asks for the general word may mean a specific one, not the other way round
#
# Words are compared by their stems, so regular forms are not listed, and irregular ones are (``buy = bought``).


_SIGNS = frozenset("=>")


def related(term: str) -> frozenset[str]:
    """Return the stems that a text may hold instead of a stem that was asked for."""
    return _relations().get(term, frozenset())


def parse(text: str) -> Mapping[str, frozenset[str]]:
    """Read lines as in this module's docstring; ``#`` begins a comment.

    Raises:
        ValueError: a line is in neither form.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.partition("#")[0].split()
        if not entry:
            continue
        if entry[1:2] == [">"] and len(entry) > 2 and not _SIGNS & {entry[0], *entry[2:]}:
            found[stem(entry[0])].update(map(stem, entry[2:]))
        elif len(entry) > 2 and len(entry) % 2 and set(entry[1::2]) == {"="} and not _SIGNS & set(entry[::2]):
            stems = {stem(word) for word in entry[::2]}
            for each in stems:
                found[each].update(stems)
        else:
            raise ValueError(f"line {number}: {line!r} is neither 'word = word' nor 'word > word word'")
    return {term: frozenset(others - {term}) for term, others in found.items()}


@cache
def _relations() -> Mapping[str, frozenset[str]]:
    return parse(files("memory_pipeline.domain.text").joinpath("thesaurus.txt").read_text(encoding="utf-8"))


#: Okapi BM25 (Robertson & Zaragoza 2009) of whole talks: k1 damps repetition.
K1 = 0.9
#: In the coverage of a question a word counts its rarity to this power: rare words count more, but not much more.
COVERAGE_POWER = 0.5
#: What a related word counts, of the word that was asked for.
RELATED = 0.6
#: What a word counts that is said in the same talk one, two, three or four messages before or after.
NEARBY = (0.8, 0.6, 0.4, 0.3)


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal adds to the score; there is no other place where ranking is tuned.

    Fitted to the questions of three sets (talk between people, real chats, talk with an assistant) by a softmax
    regression, then rounded; docs/decisions/0008 has the figures, also with each set left out.

    Attributes:
        coverage: share of the question's words, by how rare they are, that the memory or its neighbours in the talk
            hold; 0 to 1. An answer seldom repeats the question, but stands beside what does.
        words: cosine of the memory's words and the question's, 0 to 1: a word of the memory counts 1 + ln(times), one
            of the question its rarity ("lnc.ltc", Manning et al., Introduction to Information Retrieval, 6.4.3).
        vector: nearness of the vectors, in standard deviations from the agent's average memory.
        nearby: likewise the nearest of the neighbours in the talk, each counting as in :data:`NEARBY`; not below 0.
        talk: BM25 of the talk that it belongs to, against the best talk's; 0 to 1.
        speaker: 1 where the question names who said it, -1 where it names somebody else who speaks here; half of
            that where it names all who speak here, and the one whom it names first is meant.
        importance: as extracted, 0 to 1.
        answers: `words` of the message before, less if that is long, where it ends with a question and a user answers.
        replies: 0, or up to 1 the longer an assistant's reply is, which mostly repeats what a user has said; 0 where
            the question asks what the assistant said.
        instructs: 1 where a user tells an assistant what is always to be done.
        prefers: 1 where the question seeks advice, and a user has told an assistant what they like.
        counted: 1 where the question asks how many, and the memory holds a number.
        repeats: for each better hit of the same talk, so that what several talks tell comes together.
    """

    coverage: float = 7.1
    words: float = 6.8
    vector: float = 1.0
    nearby: float = 0.6
    talk: float = 2.0
    speaker: float = 1.2
    importance: float = 2.6
    answers: float = 5.5
    replies: float = -4.9
    instructs: float = 1.9
    prefers: float = 2.7
    counted: float = 1.5
    repeats: float = -0.15


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
_ASSISTANT_SAID = re.compile(
    r"(?<!can )(?<!could )(?<!will )(?<!would )\b(?:you|assistant|agent|ai|bot)\b[^.?!]{0,30}"
    r"\b(?:advi[sc]ed?|answer(?:ed)?|describe[ds]?|explain(?:ed)?|gave|give|list(?:ed)?|mention(?:ed)?"
    r"|propose[ds]?|provide[ds]?|recommend(?:ed)?|said|say|suggest(?:ed)?|tell|told)\b"
    r"|\byour (?:advice|answer|explanation|list|recommendations?|reply|suggestions?)\b"
    r"|(?:[你您]|AI|助手)[^。？]{0,8}(?:推荐|建议|告诉|说|提到|介绍|回答|解释)"
    r"|\b(?:du|sie)\b[^.?!]{0,40}\b(?:empfohlen|erklärt|erwähnt|geantwortet|geraten|gesagt|genannt|vorgeschlagen)\b",
    re.IGNORECASE,
)
_SEEKS_ADVICE = re.compile(
    r"\b(?:advise|advice|help me|ideas? for|options?|recommend|should i|suggest|suggestions?|tips?"
    r"|what (?:can|could|would) (?:i|you)|how (?:can|could|should|would) (?:i|you))\b"
    r"|推荐|建议|应该|怎么办|おすすめ|empfiehl|empfehl|schlägst|soll ich|vorschlag",
    re.IGNORECASE,
)
_SUMMARY = re.compile(r"\b(?:summari[sz]e|summary|overview|recap)\b|总结|概括|要約|zusammenfass", re.IGNORECASE)
_HOW_MANY = re.compile(r"\bhow (?:many|much|old|often|far|big|tall)\b", re.IGNORECASE)
_MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
#: Related by spelling ("adopt", "adoption"): so many first letters in common, which are this share of both words.
_SHARED_LETTERS, _SHARE, _SHARE_OF_SHORTER = 5, 0.6, 0.8


def terms(text: str) -> list[str]:
    """Return the words of a text as they are compared: case, accents and endings folded, stop words left out."""
    return list(chain.from_iterable(map(_terms_of, _TOKEN.findall(plain(text)))))


@lru_cache(maxsize=65536)
def _terms_of(token: str) -> tuple[str, ...]:
    """Return the words of one run of letters and digits, in their plain form."""
    found: list[str] = []
    for word in parts_of(token.replace("’", "'")) if "'" in token or "’" in token else (token,):
        if word in STOP_WORDS:
            continue
        if word.isascii():
            found.append(stem(word))
        else:
            found += _spaced(word)
    return tuple(found)


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


class Window(NamedTuple):
    """A time that a question names: its first and last day, and when they begin and end, both included, UTC."""

    first: date
    last: date
    start: datetime
    end: datetime


class Named(NamedTuple):
    """A window, and where the words that name it begin and end in the question."""

    window: Window
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Query:
    """What a query asks for.

    Attributes:
        terms: its words, each once, in order; without those that name a time.
        windows: the times that it names.
        about: the speakers whom it names, in the order in which it does.
        bare: the query without their names, which would pull everything that they say: this is what is embedded.
        asks_how_many: it asks for a number.
        asks_the_assistant: it asks what the assistant said, or for a summary of all that was said.
        seeks_advice: it asks what to do or to choose, which the user's preferences decide.
    """

    terms: tuple[str, ...]
    windows: tuple[Window, ...]
    about: tuple[str, ...]
    bare: str
    asks_how_many: bool
    asks_the_assistant: bool
    seeks_advice: bool

    @classmethod
    def of(
        cls,
        query: str,
        speakers: Iterable[str],
        *,
        times: Sequence[Named] = (),
        is_known: Callable[[str], bool] = lambda _: True,
    ) -> Query:
        """Read a query, put to an agent to whom `speakers` have spoken.

        Args:
            query: the text.
            speakers: names of those who have spoken.
            times: the times that the query names, in order.
            is_known: tells of a word, as :func:`terms` returns it, whether memory holds it. A name that memory does not
                hold is taken for a speaker's if it is spelt much like it ("Mohamed", "Muhammad").

        A speaker is named by any word of the name. Whoever shares it with another is named with the other. A name that
        is a common word ("Will") has to be written as a name, and not where all words have a capital.
        """
        composed = unicodedata.normalize("NFC", query)
        timeless = _without(query, times)
        speakers = list(speakers)
        aliases = _aliases(timeless, speakers, is_known)
        words = list(dict.fromkeys(aliases.get(word, word) for word in terms(timeless)))
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
        named |= {alias for alias, name in aliases.items() if name in named}

        def kept(match: re.Match[str]) -> str:
            is_name = _spoken(match) in common.intersection(about) or named.issuperset(terms(match.group()) or [""])
            return "" if is_name else match.group()

        bare = " ".join((_TOKEN.sub(kept, composed) if about else composed).split())
        return cls(
            terms=tuple(words),
            windows=tuple(time.window for time in times),
            about=about,
            bare=bare if terms(bare) else query,
            asks_how_many=bool(_HOW_MANY.search(query)),
            asks_the_assistant=bool(_ASSISTANT_SAID.search(query) or _SUMMARY.search(query)),
            seeks_advice=bool(_SEEKS_ADVICE.search(query)),
        )

    def alternatives(self, term: str, vocabulary: Sequence[str]) -> list[str]:
        """Return the words of a sorted vocabulary that may stand for one of the question's, without these."""
        found = {*related(term), *kin(term, vocabulary)}
        return sorted(found.difference(self.terms))


def _without(query: str, times: Iterable[Named]) -> str:
    """Return a query without the words that name times."""
    pieces, done = [], 0
    for time in times:
        pieces.append(query[done : time.start])
        done = time.end
    return " ".join([*pieces, query[done:]])


#: Two names may be one if their spellings agree so far, which is asked of names of so many letters and of shorter ones.
_ALIKE, _LONG_NAME, _ALIKE_IF_SHORT = 0.7, 5, 0.8
#: A shorter word is no short form of a name.
_LEAST_NAME = 3
#: Of a query so many words with a capital are compared with names.
_MOST_NAMES = 30


def _aliases(query: str, speakers: Iterable[str], is_known: Callable[[str], bool]) -> dict[str, str]:
    """Return words of a query that name a speaker by another spelling or a short form, each with the speaker's word."""
    parts = {
        plain(part): words[0]
        for speaker in speakers
        for part in _TOKEN.findall(speaker)
        if len(part) >= _LEAST_NAME and len(words := terms(part)) == 1
    }
    found: dict[str, str] = {}
    capital = (token for match in _TOKEN.finditer(query) if parts and (token := _spoken(match))[:1].isupper())
    for token in islice(dict.fromkeys(capital), _MOST_NAMES):
        name = plain(token)
        words = terms(token) if len(name) >= _LEAST_NAME else []
        if len(words) != 1 or name in parts:
            continue
        longer = [part for part in parts if part.startswith(name)]
        if len(longer) == 1:
            found[words[0]] = parts[longer[0]]
        elif not is_known(words[0]):
            alike = [(_likeness(name, part), part) for part in sorted(parts) if part[0] == name[0]]
            if alike and max(alike)[0] >= (_ALIKE if len(name) >= _LONG_NAME else _ALIKE_IF_SHORT):
                found[words[0]] = parts[max(alike)[1]]
    return found


def _likeness(one: str, other: str) -> float:
    """Return how much two spellings agree, 0 to 1 (Ratcliff & Metzener 1988)."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
