"""Read the subject and the verb of a clause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.domain.graph.operations import Verb, snake_case
from memory_pipeline.models.deterministic.language.grammar import is_plain_form
from memory_pipeline.models.deterministic.triples import nouns, patterns
from memory_pipeline.models.deterministic.triples.patterns import IRREGULAR, PATTERNS, Form

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_pipeline.models.deterministic.triples.phrases import Phrases, Token


class SpokenTriple(NamedTuple):
    """A triple that a sentence asserts, with the operation on it."""

    verb: Verb
    subject: str
    predicate: str
    object: str


class ClauseSubject(NamedTuple):
    """The subject of a clause.

    Attributes:
        name: the stored subject.
        person: inflection of its verb: "i" ("I live"), "s" ("Tom lives") or "p" ("my parents live").
        end: position of the word after it.
        is_named: whether it is a name, of a person or a thing.
        is_thing: whether it is a thing, as in "the rent".
        relation: for a relative without a name: the owner and the predicate.
        found: triples asserted by the subject alone: "my sister Maria".
        has_aside: whether an aside separates it from its verb: "my brother, who you met, lives".
    """

    name: str
    person: str
    end: int
    is_named: bool = False
    is_thing: bool = False
    relation: tuple[str, str] | None = None
    found: tuple[SpokenTriple, ...] = ()
    has_aside: bool = False


def relation_of(word: str) -> str:
    """Return the predicate of a relation: ``has_sister``."""
    return f"has_{snake_case(nouns.SPELLINGS.get(word, word))}"


class Subjects:
    """Read the subjects of one sentence.

    `speaker` is the name for "I"; `names` has the lower-case words of all names in the message.
    """

    def __init__(self, tokens: Sequence[Token], phrases: Phrases, speaker: str, names: frozenset[str]) -> None:
        self._tokens = tokens
        self._words = [token.word for token in tokens]
        self._phrases = phrases
        self._speaker = speaker
        self._names = names

    def subject(self, place: int) -> ClauseSubject | None:
        """Return the subject that begins at a position, or None."""
        if place >= len(self._tokens):
            return None
        word = self._words[place]
        if word == "i":
            return ClauseSubject(self._speaker, "i", place + 1)
        if word in ("my", "the", "our"):
            relation = self.relation(self._speaker, place + 1) if word != "the" else None
            return relation or self._thing(place + 1, f"{self._speaker}'s" if word == "my" else "the")
        end = self.name_end(place)
        if end == place:
            return None
        name = self._phrases.span(place, end)
        relation = self.relation(name, end + 1) if self._words[end : end + 1] == ["'s"] else None
        return relation or self._aside(ClauseSubject(name, "s", end, is_named=True))

    def name_end(self, place: int) -> int:
        """Return the end of the name that begins at `place`; `place` itself if there is none."""
        first = self._tokens[place]
        if not first.is_capital or first.word in nouns.NOT_NAMES or len(first.word) < 2:
            return place
        if place == 0 and first.word not in self._names and first.word.endswith(("ing", "ly")):
            return place
        end = place + 1
        while (
            end < len(self._tokens)
            and end - place < 4
            and (self._tokens[end].is_capital or self._words[end].isdigit())
            and self._tokens[end].gap.strip() in ("", ".", "&")
            and self._words[end] not in ("i", "'s")
            and (self._tokens[end].gap.strip() != "." or self._words[end - 1] in ("dr", "mr", "mrs", "ms", "st"))
        ):
            end += 1
        return end

    def relation(self, owner: str, place: int) -> ClauseSubject | None:
        """Read a relation after "my" or "Nadia's": "sister", "older sister Maria", "sister's name is"."""
        begin = place
        while place < len(self._tokens) and self._words[place] in nouns.RELATION_ADJECTIVES:
            place += 1
        if place >= len(self._tokens) or any(token.is_cut_off for token in self._tokens[begin : place + 1]):
            return None
        word = self._words[place]
        is_plural = word in nouns.RELATIVES or (word.endswith("s") and word[:-1] in nouns.RELATIONS)
        if word not in nouns.RELATIONS and not is_plural:
            return None
        adjectives = [token.raw for token in self._tokens[begin:place] if token.word in nouns.TELLING_ADJECTIVES]
        name = f"{owner}'s {' '.join([*adjectives, word])}"
        if is_plural:
            return self._aside(ClauseSubject(name, "p", place + 1))
        relation = relation_of(word)
        end = place + 1
        is_apposition = end < len(self._tokens) and self._tokens[end].gap.strip() == ","
        if end < len(self._tokens) and (is_apposition or not self._tokens[end].is_cut_off):
            named = self.name_end(end)
            closes = named < len(self._tokens) and self._tokens[named].gap.strip() == ","
            is_verb = is_plain_form(self._words[end].removesuffix("ed")) or is_plain_form(
                self._words[end].removesuffix("d")
            )
            if (
                named > end
                and not is_verb
                and self._words[named : named + 1] != ["'s"]
                and (closes or not is_apposition)
            ):
                who = self._phrases.span(end, named)
                found = (SpokenTriple(Verb.INSERT, owner, relation, who),)
                return self._aside(ClauseSubject(who, "s", named, is_named=True, found=found))
        return self._aside(ClauseSubject(name, "s", end, relation=(owner, relation)))

    def related(self, start: int, end: int) -> Iterator[SpokenTriple]:
        """Yield the triples of names after relations, anywhere in a clause: "I saw my sister Maria"."""
        for place in range(start, end - 2):
            if self._words[place] in ("my", "our"):
                relation = self.relation(self._speaker, place + 1)
                if relation and not any(token.is_cut_off for token in self._tokens[place + 1 : relation.end]):
                    yield from relation.found

    def _aside(self, subject: ClauseSubject) -> ClauseSubject:
        """Skip ", who you met, " after a subject."""
        place = subject.end
        if not (place < len(self._tokens) and self._tokens[place].gap.strip() == ","):
            return subject
        if self._words[place] not in ("who", "whom", "which", "my"):
            return subject
        for later in range(place + 1, len(self._tokens)):
            if self._tokens[later].is_cut_off:
                return subject._replace(end=later, has_aside=True)
        return subject

    def _thing(self, place: int, determiner: str) -> ClauseSubject | None:
        """Read a thing, at most four words before its verb: "the rent" in "our rent costs"."""
        for end in range(place, min(place + 5, len(self._tokens))):
            if self._tokens[end].is_cut_off and self._tokens[end].gap.strip() not in ("-", "'"):
                return None
            word = self._words[end]
            if word in patterns.THING_VERBS:
                if end == place:
                    return None
                return ClauseSubject(f"{determiner} {self._phrases.span(place, end)}", "s", end, is_thing=True)
            if word in patterns.OBJECT_ENDS or word in patterns.PREPOSITIONS - {"of"}:
                return None
        return None


class VerbReading(NamedTuple):
    """A verb in a sentence: its base form, its form, whether it is negated, and the position of the next word."""

    lemma: str
    form: Form
    is_denied: bool
    end: int


def _inflected() -> dict[str, list[tuple[str, str]]]:
    """Map each inflected verb of the patterns to its base forms and form names (base, s, ing, past, participle)."""
    forms: dict[str, list[tuple[str, str]]] = {}
    for pattern in PATTERNS:
        for lemma in pattern.phrase.split()[0].split("|"):
            stem = lemma.removesuffix("e")
            third = lemma[:-1] + "ies" if lemma.endswith(("dy", "ry")) else lemma + "s"
            past = lemma[:-1] + "ied" if third.endswith("ies") else stem + "ed"
            regular = (third, stem + "ing", past, past)
            inflected = (lemma, *IRREGULAR.get(lemma, regular))
            for form, name in zip(inflected, ("base", "s", "ing", "past", "participle"), strict=True):
                if (lemma, name) not in forms.setdefault(form, []):
                    forms[form].append((lemma, name))
    return forms


FORMS: Final = _inflected()


#: By :attr:`ClauseSubject.person`.
_AM: Final = {"i": ("am", "'m"), "s": ("is", "'s"), "p": ("are", "'re")}
_HAVE: Final = {"i": ("have", "'ve"), "s": ("has", "'s"), "p": ("have", "'ve")}


class Verbs:
    """Read the verbs of one sentence."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._words = [token.word for token in tokens]

    def verbs(self, subject: ClauseSubject, place: int) -> list[VerbReading]:
        """Return the possible readings of the subject's verb at a position, best first."""
        person = subject.person
        if place < len(self._words) and self._tokens[place].is_cut_off and not subject.has_aside:
            return []
        is_not = "not" in self._words[self.skip_adverbs(place) :][:1]
        denied, place = self.denied(place)
        word = self._words[place] if place < len(self._words) else ""
        readings: list[VerbReading] = []
        if word in _AM[person]:
            readings += self._being(denied, place + 1)
        if word in _HAVE[person]:
            readings += self._having(denied, place + 1)
        if word in ("do", "does", "used", "was", "can"):
            return self._with_auxiliary(person, denied, place)
        if not readings and not is_not:  # "busy but not like yesterday" denies nothing
            form = "s" if person == "s" else "base"
            readings = [
                VerbReading(lemma, Form.PRESENT, denied, place + 1)
                for lemma in self._lemmas(place, form)
                if lemma != "be"
            ]
            if not denied:
                readings += [VerbReading(lemma, Form.PAST, False, place + 1) for lemma in self._lemmas(place, "past")]
        return readings

    def _with_auxiliary(self, person: str, denied: bool, place: int) -> list[VerbReading]:
        """Read the auxiliaries "do", "used", "was" and "can" with their verb."""
        word, following = self._words[place], self._words[place + 1 : place + 2]
        readings: list[VerbReading] = []
        if word == ("does" if person == "s" else "do"):
            denied, place = self.denied(place + 1)
            readings = [VerbReading(lemma, Form.PRESENT, denied, place + 1) for lemma in self._lemmas(place, "base")]
        elif word == "used" and following == ["to"]:
            readings = [VerbReading(lemma, Form.USED, False, place + 3) for lemma in self._lemmas(place + 2, "base")]
        elif word == "used" and not denied:
            readings = [VerbReading("use", Form.PAST, False, place + 1)]
        elif word == "was" and following == ["born"] and not denied:
            readings = [VerbReading("be", Form.WAS, False, place + 1)]
        elif word == "can" and not denied:
            cannot, verb = self.denied(place + 1)
            if cannot and self._words[verb : verb + 1] in (["stand"], ["bear"], ["abide"]):
                readings = [VerbReading("hate", Form.PRESENT, False, verb + 1)]
        return readings

    def _being(self, denied: bool, place: int) -> list[VerbReading]:
        negated, place = self.denied(place)
        denied |= negated
        going = [VerbReading(lemma, Form.GOING, denied, place + 1) for lemma in self._lemmas(place, "ing")]
        return going or [VerbReading("be", Form.PRESENT, denied, place)]

    def _having(self, denied: bool, place: int) -> list[VerbReading]:
        negated, place = self.denied(place)
        denied |= negated
        if self._words[place : place + 1] == ["been"]:
            place = self.skip_adverbs(place + 1)
            going = [VerbReading(lemma, Form.LASTING, denied, place + 1) for lemma in self._lemmas(place, "ing")]
            return going or [VerbReading("be", Form.LASTING, denied, place)]
        readings = []
        for lemma in self._lemmas(place, "participle"):
            if not denied:
                readings.append(VerbReading(lemma, Form.PERFECT, False, place + 1))
            if lemma != "get" and not patterns.LASTING.isdisjoint(self._words[place:]):
                readings.append(VerbReading(lemma, Form.LASTING, denied, place + 1))
        # "'s" is "is" unless something shows that it is "has".
        if self._words[place - 1] != "'s" or self._words[place : place + 1] == ["got"]:
            readings.append(VerbReading("have", Form.PRESENT, denied, place))
        return readings

    def _lemmas(self, place: int, form: str) -> list[str]:
        if place >= len(self._words):
            return []
        return [lemma for lemma, name in FORMS.get(self._words[place], ()) if name == form]

    def denied(self, place: int) -> tuple[bool, int]:
        """Skip adverbs and "not". Return whether there was a negation, and the next position."""
        place = self.skip_adverbs(place)
        if self._words[place : place + 1] in (["not"], ["n't"]):
            return True, self.skip_adverbs(place + 1)
        if self._words[place : place + 2] == ["no", "longer"]:
            return True, self.skip_adverbs(place + 2)
        return False, place

    def skip_adverbs(self, place: int) -> int:
        """Return the first position from `place` on that is not an adverb."""
        while place < len(self._words) and self._words[place] in patterns.ADVERBS:
            place += 1
        return place
