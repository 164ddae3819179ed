"""Ranking without arrays: terms, synonyms, analysis of the query, and the weights of the signals.

The score of a memory is a weighted sum of explainable signals (:class:`Weights`), which
:mod:`memory_pipeline.search.scoring` computes.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.text.spelling import kin, pieces_of
from memory_pipeline.domain.text.thesaurus import related
from memory_pipeline.domain.text.topic import topic_of
from memory_pipeline.domain.text.words import STOP_WORDS, parts_of, plain, stem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import date, datetime

    from memory_pipeline.domain.text.spelling import Spellings


#: Okapi BM25 (Robertson & Zaragoza 2009) of whole conversations: k1 dampens repetition.
K1 = 0.9
#: Exponent of a word's rarity in the coverage of a query: rare words count more, but not much more.
COVERAGE_POWER = 0.5
#: Weight of a related word, relative to the word of the query.
RELATED = 0.6
#: Weight of a word one, two, three or four messages before or after in the same conversation.
NEARBY = (0.8, 0.6, 0.4, 0.3)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of all signals; the only place where ranking is tuned.

    Fitted by softmax regression to the questions of three data sets (conversations between people, real chats,
    conversations with an assistant), then rounded; `replies` and `instructs` were then halved, which loses more than a
    standard error on none of nine sets. docs/decisions/0008 and 0030 have the figures, also with each set left out.

    Attributes:
        coverage: share of the query's words, weighted by rarity, in the memory or its neighbours in the conversation; 0
            to 1. An answer seldom repeats the question, but is next to a message that does.
        words: cosine of the words of memory and query, 0 to 1: a word of the memory counts 1 + ln(frequency), a word of
            the query its rarity ("lnc.ltc", Manning et al., Introduction to Information Retrieval, 6.4.3).
        vector: similarity of the vectors, in standard deviations from the agent's average memory.
        nearby: the same for the most similar neighbour, weighted by :data:`NEARBY`; at least 0.
        talk: BM25 of the conversation, relative to the best conversation; 0 to 1.
        speaker: 1 if the query names the speaker, -1 if it names another speaker of the conversation; half of that if
            it names all speakers, and then the first one counts as named.
        importance: as extracted, 0 to 1.
        answers: `words` of the previous message, less if it is long, if it ends with a question and a user answers.
        replies: 0 to 1, growing with the length of an assistant's reply, which mostly repeats the user; 0 if the query
            asks what the assistant said.
        instructs: 1 if a user gives an assistant a standing instruction.
        prefers: 1 if the query seeks advice, and the memory is a preference that a user stated to an assistant.
        counted: 1 if the query asks for a number, and the memory contains one.
        repeats: per better hit of the same conversation, so that several conversations are represented. More if the
            query asks for a list or an order.
    """

    coverage: float = 7.1
    words: float = 6.8
    vector: float = 1.0
    nearby: float = 0.6
    talk: float = 2.0
    speaker: float = 1.2
    importance: float = 2.6
    answers: float = 5.5
    replies: float = -2.5
    instructs: float = 0.95
    prefers: float = 2.7
    counted: float = 1.5
    repeats: float = -0.15

    def for_query(self, query: Query) -> Weights:
        """Return the weights by which the hits for a query are chosen."""
        return replace(self, repeats=_REPEATS_IN_LISTS) if query.asks_for_several else self


WEIGHTS = Weights()
_REPEATS_IN_LISTS = -0.4
#: Prefix of embedders that only encode spelling, and so add little to the words.
_SPELLING_ONLY = "hashed-"


def weights_for(embedder: str) -> Weights:
    """Return the weights for vectors of this embedder."""
    return replace(WEIGHTS, vector=0.1, nearby=0.3) if embedder.startswith(_SPELLING_ONLY) else WEIGHTS


#: A word or an emoji, without skin tones and joiners.
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[\u2600-\u27bf\U0001f000-\U0001f3fa\U0001f400-\U0001faff]")
#: Scripts without blanks between words; pairs of characters are compared instead.
_UNSPACED = re.compile("[\u2e80-\uffdc]+|[^\u2e80-\uffdc]+")
_QUOTES = frozenset("\"'“”‘’„«»‚‹›「『")
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
_SEVERAL = re.compile(
    r"\b(?:all(?: of)?(?: the| my| of)|list|how (?:many|often)|in (?:what|which) order|(?:order|sequence) (?:of|in)"
    r"|timeline|chronolog\w+|(?:which|what) (?:\w+ ){0,2}\w+s (?:has|have|did|do|does|were|are)|what kinds? of|both"
    r"|alle|wie (?:oft|viele)|welche\w* \w+en (?:hat|habe|haben)|reihenfolge|tod[ao]s|cuánt[ao]s|qué orden|tou(?:s|tes)"
    r"|combien de|quel ordre)\b|所有|哪些|几次|多少次|顺序",
    re.IGNORECASE,
)
_HOW_MANY = re.compile(r"\bhow (?:many|much|old|often|far|big|tall)\b", re.IGNORECASE)
_MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip


def terms(text: str) -> list[str]:
    """Return the words of a text in comparable form: folded, without accents, stemmed, without stop words."""
    return list(chain.from_iterable(map(_terms_of, _TOKEN.findall(plain(text)))))


@lru_cache(maxsize=65536)
def _terms_of(token: str) -> tuple[str, ...]:
    found: list[str] = []
    for word in parts_of(token.replace("’", "'")) if "'" in token or "’" in token else (token,):
        if word in STOP_WORDS:
            continue
        if word.isascii():
            found.append(stem(word))
        else:
            found += _split_scripts(word)
    return tuple(found)


def _split_scripts(word: str) -> list[str]:
    """Split a token where scripts with and without blanks meet, and the latter into pairs of characters."""
    found: list[str] = []
    for run in _UNSPACED.findall(word):
        if run[0] < "\u2e80" or len(run) < 3:
            found.append(stem(run))
        else:
            found += (run[place : place + 2] for place in range(len(run) - 1))
    return found


def across_borders(unknown: Iterable[str], known: Collection[str]) -> set[str]:
    """Return the pairs of characters of a query that are no word: one of their characters belongs to a known pair.

    Of 我住在里加, memory may know 我住 and 里加; then 在里 is across the border of two words.
    """
    pairs = [term for term in known if _is_pair(term)]
    lasts, firsts = {pair[1] for pair in pairs}, {pair[0] for pair in pairs}
    return {term for term in unknown if _is_pair(term) and (term[0] in lasts or term[1] in firsts)}


def _is_pair(term: str) -> bool:
    return len(term) == 2 and all("\u2e80" <= character <= "\uffdc" for character in term)


def date_terms(day: datetime) -> list[str]:
    """Return the words for a day: its month, year and day of the month."""
    return [stem(_MONTH_NAMES[day.month - 1]), str(day.year), str(day.day)]


def _spelling_of(token: re.Match[str]) -> str:
    """Return a token without the possessive ending."""
    return token.group().replace("’", "'").removesuffix("'s")


class Window(NamedTuple):
    """A time in a query: first and last day, and their first and last instant (inclusive, UTC)."""

    first: date
    last: date
    start: datetime
    end: datetime


class Named(NamedTuple):
    """A window, and the start and end of its words in the query."""

    window: Window
    start: int
    end: int


class OwnName(NamedTuple):
    """The name of the user who asks.

    Attributes:
        name: the id of the user.
        speakers: the names under which memory has what the user said.
        is_of_another: returns whether memory knows another person of this name.
    """

    name: str
    speakers: tuple[str, ...]
    is_of_another: Callable[[], bool]

    @classmethod
    def of(cls, user_id: str, is_of_another: Callable[[], bool]) -> OwnName:
        """Return the name of a user. An unnamed speaker is ``User``, in a group ``user:`` and the id."""
        return cls(user_id, ("User", f"user:{user_id}"), is_of_another)

    def place_in(self, query: str) -> int | None:
        """Return where a query names the user, capitalized or quoted; None if it does not.

        A name that is a common word ("Will") must not be at the start of the query.
        """
        if any(character >= "\u2e80" for character in self.name):  # no capitals, and no blanks between words
            return place if (place := query.find(self.name)) >= 0 else None
        name = [plain(part) for part in _TOKEN.findall(self.name)]
        tokens = list(_TOKEN.finditer(query))
        for place in range(len(tokens) - len(name) + 1 if name else 0):
            start = tokens[place].start()
            is_marked = query[start].isupper() or query[:start][-1:] in _QUOTES
            said = [plain(_spelling_of(token)) for token in tokens[place : place + len(name)]]
            if said == name and is_marked and (start or terms(self.name)):
                return start
        return None


@dataclass(frozen=True, slots=True)
class Query:
    """An analyzed query.

    Attributes:
        terms: unique words in order, without those that name a time, that only ask, or that are about the conversation
            itself (:mod:`memory_pipeline.domain.text.topic`).
        windows, about: the times and the speakers that it names, in order.
        bare: the query without speakers, for the embedder. Names would attract everything that the speakers said.
        asks_the_assistant: it asks what the assistant said, or for a summary of the conversation.
        asks_for_several: it asks for a list, a number of times, or an order, so the answer is in several conversations.
        seeks_advice: it asks for a recommendation, which depends on the user's preferences.
        is_english: it seems to be in English.
        names_unknown: it is English and has a capitalized word that memory does not contain, such as a stranger's name.
    """

    terms: tuple[str, ...]
    windows: tuple[Window, ...]
    about: tuple[str, ...]
    bare: str
    asks_how_many: bool
    asks_for_several: bool
    asks_the_assistant: bool
    seeks_advice: bool
    names_unknown: bool = False
    is_english: bool = True

    @classmethod
    def of(
        cls,
        query: str,
        speakers: Iterable[str],
        *,
        times: Sequence[Named] = (),
        is_known: Callable[[str], bool] = lambda _: True,
        addressed: Callable[[str], str | None] = lambda _: None,
        own: OwnName | None = None,
    ) -> Query:
        """Analyze a query.

        Any word of a name names a speaker, or all speakers that share it. A name that is a common word ("Will") must be
        capitalized, and not at the start of the query. `is_known` returns whether memory contains a word in the form of
        :func:`terms`; an unknown name matches a speaker with a similar spelling ("Mohamed", "Muhammad"). `addressed`
        returns the speaker whom the others call by a name, if memory knows it. `own` is the
        name of the user who asks: it names the user, unless another person has it, and is no word to search for.
        """
        composed = unicodedata.normalize("NFC", query)
        timeless = _without_times(query, times)
        speakers = list(speakers)
        aliases = _aliases(timeless, speakers, is_known, addressed)
        place = None if own is None else own.place_in(composed)
        if own is None or place is None or _is_of_another(own, speakers):
            own, asking = None, set[str]()
        else:
            asking = set(terms(own.name))
            aliases = {word: name for word, name in aliases.items() if word not in asking}
        words = list(dict.fromkeys(aliases.get(word, word) for word in terms(topic_of(timeless)) or terms(timeless)))
        words = [word for word in words if word not in asking] or words
        names = {speaker: set(terms(speaker)) for speaker in speakers}
        places = {speaker: [words.index(part) for part in parts & set(words)] for speaker, parts in names.items()}
        common = {speaker for speaker, parts in names.items() if not parts and speaker[:1].isupper()}
        if own is not None:
            for speaker in names.keys() & set(own.speakers):
                places[speaker].append(len(set(terms(composed[:place])) & set(words)))
        before: set[str] = set()
        done, first = 0, len(composed) - len(composed.lstrip())
        for match in _TOKEN.finditer(composed) if common else ():
            if (name := _spelling_of(match)) in common and match.start() > first:
                before.update(terms(composed[done : match.start()]))
                done = match.start()
                places[name].append(len(before))
        about = tuple(
            sorted((speaker for speaker in names if places[speaker]), key=lambda name: (min(places[name]), name))
        )
        named = set().union(*(names[speaker] for speaker in about)) if about else set()
        named |= {alias for alias, name in aliases.items() if name in named} | asking

        def without_speaker(match: re.Match[str]) -> str:
            is_name = _spelling_of(match) in common.intersection(about) or named.issuperset(
                terms(match.group()) or [""]
            )
            return "" if is_name else match.group()

        bare = " ".join((_TOKEN.sub(without_speaker, composed) if about or asking else composed).split())
        return cls(
            terms=tuple(dict.fromkeys(piece for word in words for piece in pieces_of(word))),
            windows=tuple(time.window for time in times),
            about=about,
            bare=bare if terms(bare) else query,
            asks_how_many=bool(_HOW_MANY.search(query)),
            asks_for_several=bool(_SEVERAL.search(query)),
            asks_the_assistant=bool(_ASSISTANT_SAID.search(query) or _SUMMARY.search(query)),
            seeks_advice=bool(_SEEKS_ADVICE.search(query)),
            names_unknown=_names_unknown(timeless, speakers, {*aliases, *named}, is_known),
            is_english=_is_english(query),
        )

    def alternatives(self, term: str, vocabularies: Sequence[Spellings]) -> dict[str, float]:
        """Return the words of memory that are related to a word of the query, with weights, without the query's own.

        The spelling of a word of another language is compared more freely, and less so if memory has the word itself.
        """
        found = dict.fromkeys(related(term), RELATED)
        weight = RELATED if any(term in vocabulary for vocabulary in vocabularies) else 1.0
        for vocabulary in vocabularies:
            if self.is_english:
                found |= dict.fromkeys(kin(term, vocabulary.words), RELATED)
            else:
                found |= {word: weight * likeness for word, likeness in vocabulary.alike(term).items()}
        return {word: weight for word, weight in sorted(found.items()) if word not in self.terms}


def _is_of_another(own: OwnName, speakers: Iterable[str]) -> bool:
    """Return whether another speaker, or another person in memory, has the name of the user who asks."""
    name = set(terms(own.name)) or {own.name}
    others = (speaker for speaker in speakers if speaker not in own.speakers)
    return any(name <= {*terms(speaker), speaker} for speaker in others) or own.is_of_another()


def _is_english(query: str) -> bool:
    """Return whether more than a fifth of a query's words are common in English, one of them longer than "do".

    One or two words without accents are taken for English.
    """
    tokens = [part for token in _TOKEN.findall(plain(query)) for part in parts_of(token.replace("’", "'"))]
    common = [token for token in tokens if token in STOP_WORDS]
    is_common = 5 * len(common) > len(tokens) and any(len(token) > 2 for token in common)
    return is_common or (len(tokens) < 3 and query.isascii())


def _without_times(query: str, times: Iterable[Named]) -> str:
    pieces, done = [], 0
    for time in times:
        pieces.append(query[done : time.start])
        done = time.end
    return " ".join([*pieces, query[done:]])


#: Minimum similarity of two spellings of a name, for names of at least `_LONG_NAME` letters and for shorter ones.
_ALIKE, _LONG_NAME, _ALIKE_IF_SHORT = 0.7, 5, 0.8
#: Minimum length of the short form of a name.
_LEAST_NAME = 3
#: Maximum number of capitalized words of a query that are compared with names.
_MOST_NAMES = 30
_ENGLISH = re.compile(
    r"\b(?:the|of|is|are|did|does|do|what|when|where|which|who|why|how|has|have|with)\b", re.IGNORECASE
)
_NAME = re.compile(r"(?<![.?!:] )(?<!^)\b[A-Z][\w'’]+")


def _aliases(
    query: str, speakers: Iterable[str], is_known: Callable[[str], bool], addressed: Callable[[str], str | None]
) -> dict[str, str]:
    """Return the words of a query that are other names of a speaker, with a word of the speaker's own name.

    Other names are variants and short forms, and names by which the others address the speaker.
    """
    parts = {
        plain(part): words[0]
        for speaker in speakers
        for part in _TOKEN.findall(speaker)
        if len(part) >= _LEAST_NAME and len(words := terms(part)) == 1
    }
    found: dict[str, str] = {}
    capital = (token for match in _TOKEN.finditer(query) if parts and (token := _spelling_of(match))[:1].isupper())
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
        elif speaker := addressed(token):
            found[words[0]] = terms(speaker)[0]
    return found


def _names_unknown(query: str, speakers: Iterable[str], speaking: set[str], is_known: Callable[[str], bool]) -> bool:
    """Return whether an English query has a capitalized word, not at the start of a sentence, that is not known.

    `speaking` are the words that name speakers. A word spelt like a speaker's name is known. Other languages capitalize
    more than names.
    """
    if not _ENGLISH.search(query):
        return False
    parts = [plain(part) for speaker in speakers for part in _TOKEN.findall(speaker)]
    for match in islice(_NAME.finditer(query), _MOST_NAMES):
        name = plain(match.group())
        is_like_a_speaker = any(part[0] == name[0] and _likeness(name, part) >= _ALIKE for part in parts)
        if not is_like_a_speaker and any(word not in speaking and not is_known(word) for word in terms(name)):
            return True
    return False


def _likeness(one: str, other: str) -> float:
    """Return the similarity of two spellings, 0 to 1 (Ratcliff & Metzener 1988)."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
