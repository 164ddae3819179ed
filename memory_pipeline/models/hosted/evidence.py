"""Sources and evidence: whether texts that a model was shown support what it derives.

The check is lexical and needs no model. Names, numbers and dates must occur in the sources, allowing for inflection,
numbers as words, and relative dates. At least half of the other words must occur there too, perhaps as a synonym.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import date
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.text.thesaurus import related
from memory_pipeline.domain.text.words import STOP_WORDS, stem, word_set
from memory_pipeline.models.deterministic.language.dates import dates_in
from memory_pipeline.models.deterministic.language.grammar import sentences_of
from memory_pipeline.models.hosted import claims
from memory_pipeline.models.hosted.claims import claim_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_pipeline.models.deterministic.language.dates import DateMention
    from memory_pipeline.models.hosted.claims import Claim

#: Share of a text's other words that its sources must have; less for summaries, which abstract.
SHARE, SHARE_OF_SUMMARY = 0.5, 0.34
#: Stands for the day of sources without one.
SOME_DAY = date(2000, 1, 1)
#: Most sentences of a source whose dates are resolved.
_MOST_SENTENCES = 200
#: Largest distance, in days, of a date of which the sources have only the number of the day.
_NEAR = 366
#: Most letters that an inflection adds to a name: "Annas", "Portos".
_ENDING = 2
#: Words for the speakers.
_LABELS = word_set("user agent assistant benutzer nutzer utilisateur usuario utente 用户 助手 ユーザー 사용자")
#: Words of predicates for which any sentence may stand: "I am 40", "Rex is my dog".
_RELATIONS = word_set("age pet kind type status member part full first last number date role")
#: What is told of the past may be denied now: "I do not live in Rome any more" and "Anna moved from Rome".
_ENDED = re.compile(r"\b(?:from|former\w*|until|left|used to|instead|stopped|no longer)\b", re.IGNORECASE)


class Unfounded(StrEnum):
    """Why a part of an answer was rejected."""

    FORM = "invalid, or citing unknown lines"
    NAME = "a name that no source has"
    NUMBER = "a number or date that no source has"
    WORDS = "words that no source has"
    PRONOUN = "a pronoun in place of a name"
    ASSISTANT = "said by the assistant alone"
    INSTRUCTION = "an instruction that no user gave"
    PASTED = "only in text that a user pasted"
    PROMPT = "text of the prompt"


class SourceText:
    """A text that a model was shown, prepared for look-ups. `said_on` is its day, for relative dates."""

    def __init__(self, text: str, said_on: date | None = None) -> None:
        self.text, self.said_on = text, said_on

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words in comparable form."""
        return frozenset(claims.folded(self.text))

    @cached_property
    def joined(self) -> str:
        """Its words in comparable form, between blanks."""
        return f" {' '.join(claims.folded(self.text))} "

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of its words."""
        return frozenset(map(stem, self.words))

    @cached_property
    def synonyms(self) -> frozenset[str]:
        """The stems of words that mean the same as its words."""
        return frozenset[str]().union(*map(related, self.stems))

    @cached_property
    def starts(self) -> Mapping[str, set[str]]:
        """Its words by their first three letters."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for word in self.words:
            found[word[:3]].add(word)
        return found

    @cached_property
    def numbers(self) -> frozenset[float]:
        """All values that its numbers may have."""
        return frozenset(claims.han_numbers_in(self.text).union(*claims.numbers_in(self.text, is_source=True)))

    @cached_property
    def dates(self) -> tuple[DateMention, ...]:
        """The dates that it mentions."""
        if self.said_on is None:
            return ()
        sentences = sentences_of(self.text, _MOST_SENTENCES)
        return tuple(mention for sentence in sentences for mention in dates_in(sentence, self.said_on))

    @cached_property
    def days(self) -> frozenset[date]:
        """The days that it mentions, and its own."""
        own = () if self.said_on is None else (self.said_on,)
        return frozenset([*own, *(mention.day for mention in self.dates)])

    @cached_property
    def denial(self) -> tuple[set[str], set[str]]:
        """The words that it denies, and the others."""
        return claims.denied_in(self.text)

    @cached_property
    def pairs(self) -> frozenset[str]:
        """The characters of its scripts without blanks, and their pairs."""
        runs = claims.runs_of(self.text)
        return frozenset(part for run in runs for part in (*run, *map("".join, pairwise(run))))


class SourceTexts:
    """Sources together. `names` may be named although no source does: the speakers, and names in `context`.

    `may_translate` accepts texts in another language, of which only names, numbers and dates are compared.
    """

    def __init__(
        self,
        sources: Iterable[SourceText],
        names: Iterable[str] = (),
        context: Iterable[SourceText] = (),
        *,
        may_translate: bool = False,
    ) -> None:
        self._speakers = SourceText(" \n ".join([*names, *_LABELS]))
        self._cited, self._context = list(sources), list(context)
        self._sources = [*self._cited, self._speakers]
        self._may_translate = may_translate

    def refuse(self, text: str, share: float = SHARE) -> Unfounded | None:
        """Return why a text is not founded; None if it is."""
        days = [source.said_on for source in self._cited if source.said_on is not None]
        is_translated = self._may_translate and self._is_foreign(text)
        claim = claim_of(text, max(days) if days else SOME_DAY, is_translated=is_translated)
        texts = [source.text.lower() for source in self._cited] if claim.addresses else []
        if not all(map(self.names, claim.names)) or not all(
            any(one in text for text in texts) for one in claim.addresses
        ):
            return Unfounded.NAME
        if not all(map(self._counts, claim.numbers)) or not all(map(self._dates, claim.dates)):
            return Unfounded.NUMBER
        if claim.denies and not any(claims.denies(source.text, is_source=True) for source in self._cited):
            return Unfounded.WORDS
        if is_translated:
            is_anchored = bool(claim.names or claim.numbers or claim.dates) or any(map(self.has, claim.words))
            return None if is_anchored else Unfounded.WORDS
        return None if self._supports(claim, text, share) else Unfounded.WORDS

    def names(self, name: str) -> bool:
        """Return whether a source has a name, perhaps inflected."""
        return all(self._inflected(word) for word in claims.folded(name) if len(word) > 1 or not word.isascii())

    def has(self, word: str) -> bool:
        """Return whether a source has a word, a form of it, or a synonym."""
        return all(map(self._has, claims.folded(word)))

    def has_term(self, term: str) -> bool:
        """Return whether the sources have all words of a term, its numbers and its dates."""
        if claims.runs_of(term):
            compact = "".join(term.split()).casefold()
            return any(compact in "".join(source.text.split()).casefold() for source in self._sources)
        if self.refuse(term, share=1.0) in (Unfounded.NAME, Unfounded.NUMBER):
            return False
        words = [word for word in claims.folded(term) if len(word) > 1 and word not in STOP_WORDS]
        names = {word for part in term.split() if part[0].isupper() for word in claims.folded(part)}
        return all(
            word[0].isdigit() or self._has(word) or self._is_number(word) or (word in names and self._inflected(word))
            for word in words
        )

    def relates(self, predicate: str) -> bool:
        """Return whether the sources support a predicate. Those in other languages than English are not compared."""
        words = [
            word for word in predicate.split("_") if word not in STOP_WORDS and word not in claims.WEAK | _RELATIONS
        ]
        theirs = _small_words(" ".join(source.text for source in self._cited))
        return not words or any(map(self.has, words)) or len(theirs & STOP_WORDS) * 3 <= len(theirs)

    def _is_number(self, word: str) -> bool:
        values = claims.numbers_in(word)
        return bool(values) and all(map(self._counts, values))

    def _inflected(self, word: str) -> bool:
        for source in (*self._sources, *self._context):
            if word in source.words or any(_is_inflected(word, other) for other in source.starts.get(word[:3], ())):
                return True
        return any(day.strftime(form).lower().startswith(word[:3]) for day in self._days for form in ("%A", "%B"))

    @cached_property
    def _days(self) -> frozenset[date]:
        return frozenset[Any]().union(*(source.days for source in self._sources))

    def _has(self, word: str) -> bool:
        form, synonyms, least = stem(word), related(stem(word)), max(4, -(-len(word) * 6 // 10))
        for source in self._sources:
            if word in source.words or form in source.stems or form in source.synonyms:
                return True
            if not synonyms.isdisjoint(source.stems):
                return True
            if any(
                _shared(word, other) >= max(least, len(other) * 6 // 10) for other in source.starts.get(word[:3], ())
            ):
                return True
            if not word.isascii() and word[1:] in source.joined:  # a prefix, as Arabic has them
                return True
        return False

    def _counts(self, values: set[float]) -> bool:
        return any(not values.isdisjoint(source.numbers) for source in self._sources)

    def _dates(self, mention: DateMention) -> bool:
        """Return whether a date is one of the sources' dates or days, or a period around one of them."""
        label = mention.label
        if mention.day in self._days or any(other.label == label for source in self._sources for other in source.dates):
            return True
        if any(day.isoformat().startswith(label) or day.strftime("%G-W%V") == label for day in self._days):
            return True
        numbers = [{float(part)} for part in re.findall(r"\d+", label)]
        if all(any(not one.isdisjoint(source.numbers) for source in self._sources) for one in numbers):
            return True
        # The month is a word of a language that the rules do not read.
        is_read = any(source.dates for source in self._sources)
        is_near = any(abs((mention.day - day).days) <= _NEAR for day in self._days)
        return not is_read and is_near and len(label) == len("2024-01-14") and self._counts({float(mention.day.day)})

    def _supports(self, claim: Claim, text: str, share: float) -> bool:
        if not all(map(self._has_run, claim.runs)):
            return False
        if not all(any(word[:2] in source.text for source in self._sources) for word in claim.syllables):
            return False
        words = [word for word in claim.words if not self._is_speaker(word)]
        names = [name for name in claim.names if not self._is_speaker(name)]
        found = [*names, *filter(self.has, words)]
        is_dated = any(source.dates for source in self._cited)
        certain = len(claim.numbers) + (len(claim.dates) if is_dated else 0)
        if not (words or names or certain or claim.runs or claim.syllables or share < SHARE):  # "Anna works."
            return any(
                self.has(word) for word in claims.folded(text) if word in claims.WEAK and not self._is_speaker(word)
            )
        if len(found) + certain < share * (len(words) + len(names) + certain):
            return False
        return claim.denies or _ENDED.search(text) is not None or not self._is_denied(found)

    def _is_speaker(self, name: str) -> bool:
        return self._speakers.words.issuperset(claims.folded(name))

    def _is_denied(self, words: Sequence[str]) -> bool:
        """Return whether the sources have one of the words only in what they deny."""
        stems = {stem(word) for text in words for word in claims.folded(text)}
        denied = frozenset[str]().union(*(source.denial[0] for source in self._cited))
        others = frozenset[str]().union(*(source.denial[1] for source in self._cited))
        return not stems.isdisjoint(denied - others)

    def _has_run(self, run: str) -> bool:
        """Return whether the sources have the pairs of a run of characters, apart from some grammar."""
        covered = bytearray(len(run))
        for place in range(len(run) - 1):
            if any(run[place : place + 2] in source.pairs for source in self._sources):
                covered[place] = covered[place + 1] = 1
        for gap in re.finditer(b"\0{2,}", covered):
            part = run[gap.start() : gap.end()]
            absent = sum(not any(one in source.pairs for source in self._sources) for one in part)
            if absent * 3 > len(part):
                return False
        return True

    def _is_foreign(self, text: str) -> bool:
        """Return whether a text is in another language than the sources: they share few small words."""
        lower, theirs = _small_words(text), _small_words(" ".join(source.text for source in self._cited))
        if not lower:
            return bool(claims.runs_of(text)) and not any(claims.runs_of(source.text) for source in self._cited)
        if all(len(words & STOP_WORDS) * 3 > len(words) for words in (lower, theirs)):
            return False  # both are English
        return len(lower & theirs) * 3 <= len(lower)


def _small_words(text: str) -> set[str]:
    return {word for word in text.split() if word.islower() and word.isalpha()}


def _is_inflected(name: str, other: str) -> bool:
    """Return whether two words are forms of one name."""
    shared = _shared(name, other)
    if shared < 3:  # too short to tell
        return False
    shorter, longer = sorted((len(name), len(other)))
    if shared == shorter:
        return longer - shorter <= _ENDING
    return not name.isascii() and shared >= longer - _ENDING  # Anna in Russian: Анна, Анну


def _shared(one: str, other: str) -> int:
    """Return the length of the common beginning of two words."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
