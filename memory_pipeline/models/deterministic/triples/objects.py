"""Read the objects of triples by kind; see ``patterns.Takes``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from memory_pipeline.models.deterministic.language.dates import dates_in
from memory_pipeline.models.deterministic.language.grammar import IRREGULAR_PAST, is_plain_form, is_regular_past
from memory_pipeline.models.deterministic.triples import nouns, patterns
from memory_pipeline.models.deterministic.triples.patterns import Takes
from memory_pipeline.models.deterministic.triples.phrases import MAX_LISTED, MAX_WORDS, NO_WORDS, Found, Phrases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from memory_pipeline.models.deterministic.language.grammar import Sentence
    from memory_pipeline.models.deterministic.triples.phrases import Token

_RELATIVE: Final = frozenset(["that", "which", "who", "where", "whose", "i"])


class Objects(Phrases):
    """Read the objects of one sentence. `said_on` is the UTC day of its message."""

    def __init__(
        self, sentence: Sentence, tokens: Sequence[Token], said_on: date, is_clause: Callable[[int], bool]
    ) -> None:
        super().__init__(sentence.text, tokens, is_clause)
        self._sentence = sentence
        self._said_on = said_on
        #: Without any capitals, names are in lower case too.
        self._is_small = not any(character.isupper() for character in sentence.text)

    def read(self, takes: Takes, place: int, particles: frozenset[str] = NO_WORDS) -> Found:
        """Return the objects that begin at a position, and their end; none if they are of another kind.

        `particles` are words such as "at" that begin the verb's next object.
        """
        if place >= len(self._tokens):
            return [], place
        found, end = _READERS[takes](self, place, particles)
        return [value for value in found if value], end

    def _things(self, place: int, particles: frozenset[str]) -> Found:
        return self._liked(place, particles | {"over", "rather"})

    def _preferred(self, place: int, particles: frozenset[str]) -> Found:
        return self._liked(place, particles | {"to", "over", "rather", "instead", "for"})

    def _liked(self, place: int, stops: frozenset[str]) -> Found:
        """Read things liked in general: not "the colour", nor the restricted "films that end well"."""
        begin = self.skip_quantity(place)
        if self.head(begin, max(self.phrase_end(begin, stops), begin + 1)) in nouns.BARE_GERUNDS:
            return [], place
        found, end = self.several(place, stops, nouns.VAGUE_LIKES)
        if end < len(self._tokens) and self._tokens[end].word in _RELATIVE and not self._tokens[end].is_cut_off:
            return [], place
        return ([], place) if self._is_specific(place, stops) else (found, end)

    def _is_specific(self, place: int, stops: frozenset[str]) -> bool:
        """Return whether "the" refers to something that was mentioned before: "the game", not "the piano"."""
        if self._tokens[place].word != "the" or place + 1 >= len(self._tokens):
            return False
        head = self.head(place + 1, self.phrase_end(place + 1, stops))
        return not self._tokens[place + 1].is_capital and head not in nouns.KNOWN_BY_ALL

    def _activities(self, place: int, particles: frozenset[str]) -> Found:
        stops = particles | (patterns.PREPOSITIONS - {"of"})
        return ([], place) if self._is_specific(place, stops) else self.several(place, stops, nouns.NOT_DONE)

    def _owned(self, place: int, particles: frozenset[str]) -> Found:
        """Read a possession: a thing with "a" or a number, or an illness."""
        word = self._tokens[place].word
        if is_regular_past(word) or word in IRREGULAR_PAST:
            return [], place  # "I have watched"
        begin = self.skip_articles(place)
        if begin != self.skip_quantity(place):
            return [], place  # "a bunch of them"
        end = self.phrase_end(begin, particles | patterns.OWNED_ENDS)
        head = self._tokens[end - 1].word if end > begin else ""
        is_known = head in nouns.KNOWN_HAD or head.endswith(nouns.KNOWN_HAD_ENDINGS)
        is_counted = word in patterns.NUMBER_WORDS or (word.isdigit() and len(word) < 4)
        if not (word in ("a", "an", "my") or is_counted or is_known):
            return [], place
        if not nouns.EVALUATIONS.isdisjoint(token.word for token in self._tokens[begin:end]):
            return [], place
        if end < len(self._tokens) and self._tokens[end].word in ("coming", "going", "waiting"):
            return [], place
        return self.several(place, particles | patterns.OWNED_ENDS, NO_WORDS if is_known else nouns.VAGUE_HEADS)

    def _goods(self, place: int, particles: frozenset[str]) -> Found:
        word = self._tokens[place].word
        if word not in ("a", "an", "my", "the", "our"):
            return [], place  # "eleven buns"
        return self.several(place, particles | patterns.OWNED_ENDS, nouns.VAGUE_HEADS | nouns.CONSUMED)

    def _vehicle(self, place: int, particles: frozenset[str]) -> Found:
        if self._tokens[place].word not in ("a", "an") and not self._tokens[place].is_capital:
            return [], place
        return self.several(place, particles | patterns.PREPOSITIONS, nouns.VAGUE_HEADS | {"bargain"})

    def _named(self, place: int, particles: frozenset[str]) -> Found:
        if (decided := self.quoted(place)) is not None:
            return decided
        tokens = self._tokens
        begin = self.skip_articles(place)
        end = self.names_end(begin)
        first = tokens[begin]
        if end > begin and first.is_capital and first.word != "IT" and first.word not in nouns.NOT_NAMED:
            if tokens[end - 1].word == "'s" and not (self.ends(end) or tokens[end].word in patterns.AFTER_NAMES):
                return [], place  # "Anna's flat"
            return [self.span(begin, end)], end
        if self._is_small and begin == place:
            end = self.phrase_end(begin, particles | patterns.PREPOSITIONS)
            if end - begin == 1 and self.is_thing(begin, end, 1, nouns.NOT_PLACES):
                return [self.span(begin, end)], end
        return [], place

    def _employer(self, place: int, particles: frozenset[str]) -> Found:
        found, end = self._named(place, particles)
        if found or self._tokens[place].word not in ("a", "an", "the") or self._tokens[place].is_cut_off:
            return found, end
        begin = self.skip_articles(place)
        end = self.phrase_end(begin, particles | patterns.PREPOSITIONS)
        is_described = end - begin > 1 and self._tokens[place].word != "the"  # "a small IT company", not "the company"
        refused = nouns.NOT_EMPLOYERS - {"company", "firm"} if is_described else nouns.NOT_EMPLOYERS
        if self.is_thing(begin, end, MAX_LISTED, refused):
            return [self.span(begin, end)], end
        return [], place

    def _languages(self, place: int, particles: frozenset[str]) -> Found:
        return self.several(
            place, particles | patterns.PREPOSITIONS, NO_WORDS, lambda thing: thing.lower() in nouns.LANGUAGES
        )

    def _subjects(self, place: int, particles: frozenset[str]) -> Found:
        return self.several(place, particles | (patterns.PREPOSITIONS - {"of"}), nouns.NOT_STUDIED)

    def _role(self, place: int, particles: frozenset[str]) -> Found:
        """Read a lasting trait or role: an adjective or a noun."""
        tokens = self._tokens
        begin = self.skip_articles(place)
        has_article = begin > place
        if tokens[place].is_cut_off or (has_article and tokens[place].word not in ("a", "an")):
            return [], place
        end = self.phrase_end(begin, particles | patterns.PREPOSITIONS)
        words = [token.word for token in tokens[begin:end]]
        if not self.is_thing(begin, end, MAX_LISTED, nouns.NOT_ROLES) or not nouns.EVALUATIONS.isdisjoint(words):
            return [], place
        phrase = " ".join(words)
        following = [token.word for token in tokens[end : end + 2]]
        # "a student at heart", "married to my job", "mentoring players"
        is_manner_of_speaking = following == ["at", "heart"] or (
            not has_article and (following[:1] in (["to"], ["about"], ["with"]) or words[0].endswith("ing"))
        )
        is_trait = phrase in nouns.TRAITS or phrase in nouns.TRAIT_PHRASES or _is_demonym(tokens[begin:end])
        is_role = (has_article and _is_role(words[-1])) or _are_roles(words[-1])
        if words[-1] in nouns.RELATIVE_ROLES:
            end = self._related_end(end)
            is_role &= tokens[end - 1].word != words[-1]
        return ([self.span(begin, end)], end) if (is_trait or is_role) and not is_manner_of_speaking else ([], place)

    def _related_end(self, end: int) -> int:
        """Return the end of "of three" or "of Tom" after a role; `end` itself if neither follows."""
        tokens = self._tokens
        if end + 1 >= len(tokens) or tokens[end].word not in ("of", "to") or tokens[end + 1].is_cut_off:
            return end
        other = tokens[end + 1]
        if other.word in patterns.NUMBER_WORDS or other.word.isdigit():
            return max(self.phrase_end(end + 1, patterns.PREPOSITIONS), end + 2)
        return max(self.names_end(end + 1), end) if other.is_capital else end

    def _job(self, place: int, particles: frozenset[str]) -> Found:
        """Read an occupation: any noun with an article, or a known role."""
        if self._tokens[place].is_cut_off:
            return [], place
        begin = self.skip_articles(place)
        end = self.phrase_end(begin, particles | patterns.PREPOSITIONS)
        if not self.is_thing(begin, end, MAX_LISTED, nouns.NOT_JOBS):
            return [], place
        if begin == place and not _is_role(self._tokens[end - 1].word):
            return [], place
        return [self.span(begin, end)], end

    def _action(self, place: int, particles: frozenset[str]) -> Found:
        """Read an infinitive with its complements, times included."""
        del particles
        tokens = self._tokens
        verb = tokens[place].word
        if tokens[place].is_cut_off or tokens[place].is_capital or verb in patterns.PASSING_ACTIONS:
            return [], place
        if not is_plain_form(verb) and verb not in patterns.ACTION_VERBS:
            return [], place
        end = place + 1
        while end < len(tokens) and not tokens[end].is_cut_off and tokens[end].word not in patterns.ACTION_ENDS:
            if tokens[end].word == "and" and self._is_clause(end):
                break
            if end - place >= MAX_WORDS:
                return [], place
            end += 1
        words = [token.word for token in tokens[place:end]]
        if len(words) < 2 and verb not in patterns.ACTION_VERBS:
            return [], place
        if words[-1] in patterns.NOT_OBJECTS or not patterns.HEDGES.isdisjoint(words[1:]):
            return [], place
        return ([self.span(place, end)], end) if patterns.POINTING.isdisjoint(words) else ([], place)

    def _age(self, place: int, particles: frozenset[str]) -> Found:
        """Read "34" or "34 years old", not "34 minutes late"."""
        del particles
        token = self._tokens[place]
        if token.is_cut_off or not (token.word.isascii() and token.word.isdigit() and 0 < int(token.word[:4]) <= 120):
            return [], place
        after = tuple([later.word for later in self._tokens[place + 1 : place + 4]])
        is_said = after[:2] in (("years", "old"), ("year", "old")) or after[:1] == ("yrs",)
        following = self._tokens[place + 1] if after else None
        if is_said or following is None or (following.word in patterns.AFTER_AGE or following.is_cut_off):
            if following is not None and self._text[token.end : token.end + 1] in ("%", "°", "/", "€", "$"):
                return [], place
            return [token.raw], place + 1
        return [], place

    def _date(self, place: int, particles: frozenset[str]) -> Found:
        del particles
        tokens = self._tokens
        begin = self.skip_articles(place)
        if tokens[begin].is_cut_off:
            return [], place
        start = tokens[begin].start
        mentions = dates_in(self._sentence, self._said_on)
        end = next((mention.end for mention in mentions if mention.start <= start < mention.end), 0)
        if end:
            stop = begin
            while stop < len(tokens) and tokens[stop].start < end:
                stop += 1
            written = " ".join(self._text[start:end].split())
            # "tomorrow" is meaningless later.
            return ([written], stop) if any(map(str.isdigit, written)) else ([], place)
        word = tokens[begin].word
        if len(word) == 4 and word.isascii() and word.isdigit() and word[:2] in ("18", "19", "20"):
            return [word], begin + 1
        return [], place

    def _amount(self, place: int, particles: frozenset[str]) -> Found:
        begin = self.skip_articles(place)
        end = self.phrase_end(begin, particles | {"for", "to", "at", "with", "if"})
        value = self.span(begin, end)
        if not any(character.isdigit() for character in value) or end - begin > 5:
            return [], place
        return [value], end

    def _allergy(self, place: int, particles: frozenset[str]) -> Found:
        del particles
        words = [token.word for token in self._tokens[place : place + 4]]
        if "allergy" not in words[1:]:
            return [], place
        end = place + words.index("allergy", 1)
        if any(token.is_cut_off for token in self._tokens[place + 1 : end + 1]):
            return [], place
        begin = place + (words[0] in ("severe", "bad", "serious", "mild", "nasty", "slight"))
        return ([self.span(begin, end)], end + 1) if begin < end else ([], place)

    def _phone(self, place: int, particles: frozenset[str]) -> Found:
        del particles
        start = self._text.rfind(" ", 0, self._tokens[place].start) + 1
        match = _PHONE.match(self._text, start)
        if not match or sum(map(str.isdigit, match.group())) < 5:
            return [], place
        return [match.group().strip(" .-/(")], len(self._tokens)

    def _email(self, place: int, particles: frozenset[str]) -> Found:
        del particles
        run = self._text[self._tokens[place].start :].split(None, 1)[0].strip(".,;:!)>\"'")
        local, at, host = run.partition("@")
        if not local or not at or "." not in host.strip("."):
            return [], place
        return [run], len(self._tokens)

    def _address(self, place: int, particles: frozenset[str]) -> Found:
        end = self.phrase_end(place, particles)
        value = self.span(place, end)
        if end - place > MAX_WORDS or not any(map(str.isdigit, value)) or not any(map(str.isupper, value)):
            return [], place
        return [value], end

    def _value(self, place: int, particles: frozenset[str]) -> Found:
        if (decided := self.quoted(place)) is not None:
            return decided
        parts = self.parts(self.skip_articles(place), particles)
        begin, end = parts[0][0], parts[-1][1]
        named = self.names_end(begin)
        end = max(end, named)
        if not self.is_thing(begin, end, MAX_WORDS, nouns.VAGUE_LIKES | nouns.EVALUATIONS):
            return [], place
        return [self.span(begin, end)], end


def _is_role(word: str) -> bool:
    return word in nouns.ROLES or (len(word) > 4 and word.endswith(nouns.ROLE_ENDINGS) and word not in nouns.NOT_ROLES)


def _are_roles(word: str) -> bool:
    return word.endswith("s") and not word.endswith("ss") and _is_role(word[:-1])


def _is_demonym(tokens: Sequence[Token]) -> bool:
    last = tokens[-1]
    return (
        last.is_capital and last.word in nouns.DEMONYMS and all(token.word in ("half", "part") for token in tokens[:-1])
    )


_PHONE: Final = re.compile(r"[+(]*[0-9][0-9 ()./-]{0,30}")
_READERS: Final[dict[Takes, Callable[[Objects, int, frozenset[str]], Found]]] = {
    Takes.THINGS: Objects._things,
    Takes.PREFERRED: Objects._preferred,
    Takes.ACTIVITIES: Objects._activities,
    Takes.OWNED: Objects._owned,
    Takes.GOODS: Objects._goods,
    Takes.VEHICLE: Objects._vehicle,
    Takes.ROLE: Objects._role,
    Takes.JOB: Objects._job,
    Takes.NAMED: Objects._named,
    Takes.EMPLOYER: Objects._employer,
    Takes.LANGUAGES: Objects._languages,
    Takes.SUBJECTS: Objects._subjects,
    Takes.ACTION: Objects._action,
    Takes.AGE: Objects._age,
    Takes.DATE: Objects._date,
    Takes.AMOUNT: Objects._amount,
    Takes.ALLERGY: Objects._allergy,
    Takes.PHONE: Objects._phone,
    Takes.EMAIL: Objects._email,
    Takes.ADDRESS: Objects._address,
    Takes.VALUE: Objects._value,
}
