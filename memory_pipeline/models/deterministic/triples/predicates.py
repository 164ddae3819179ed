"""Read the triples of a subject and its verb, by the table of patterns and a few set phrases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.graph.operations import Verb, snake_case
from memory_pipeline.models.deterministic.triples import nouns
from memory_pipeline.models.deterministic.triples import patterns as cues
from memory_pipeline.models.deterministic.triples.clauses import ClauseSubject, SpokenTriple, VerbReading, relation_of
from memory_pipeline.models.deterministic.triples.patterns import OPPOSITES, PATTERNS, PROPERTIES, Form, Pattern, Takes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_pipeline.models.deterministic.triples.clauses import Subjects, Verbs
    from memory_pipeline.models.deterministic.triples.objects import Objects
    from memory_pipeline.models.deterministic.triples.phrases import Token

_IS: Final = frozenset(["is", "'s", "are"])
#: The speaker's possessives, which mean nothing in a triple. "My Hero Academia" is a name.
_OWN: Final = re.compile(r"(?<![\w'-])(?:my|our)(?![\w'-])")


def _by_lemma() -> dict[str, list[tuple[tuple[tuple[frozenset[str], bool], ...], Pattern]]]:
    """Return the patterns of each verb with its slots: the words that follow, and whether one is required."""
    found: dict[str, list[tuple[tuple[tuple[frozenset[str], bool], ...], Pattern]]] = {}
    for pattern in PATTERNS:
        verbs, *following = pattern.phrase.split()
        slots = tuple([(frozenset(slot.strip("[]").split("|")), not slot.startswith("[")) for slot in following])
        for lemma in verbs.split("|"):
            found.setdefault(lemma, []).append((slots, pattern))
    return found


_BY_LEMMA: Final = _by_lemma()
#: Words that begin a verb's next object: "I work as a nurse *at* Bosch".
_PARTICLES: Final = {
    lemma: frozenset(word for slots, _ in patterns for words, _ in slots[-1:] for word in words) & cues.PREPOSITIONS
    for lemma, patterns in _BY_LEMMA.items()
    if lemma not in ("be", "have")
}


class Predicates:
    """Read the triples of one sentence. `speaker` is the name for "I"."""

    def __init__(
        self, tokens: Sequence[Token], subjects: Subjects, verbs: Verbs, objects: Objects, speaker: str
    ) -> None:
        self._tokens = tokens
        self._words = [token.word for token in tokens]
        self._subjects = subjects
        self._verbs = verbs
        self._objects = objects
        self._speaker = speaker

    def predicates(self, subject: ClauseSubject) -> Iterator[SpokenTriple]:
        """Yield the triples of the verb after a subject, and of the particles after its first object."""
        found = self._is_relation(subject)
        if found:
            yield from found
            return
        for reading in self._verbs.verbs(subject, subject.end):
            place = reading.end
            for _ in range(3):
                triples, end = self._predicate(subject, reading, place)
                yield from triples
                if end <= place:
                    break
                place = end
                if reading.lemma == "be" and reading.form is not Form.WAS:
                    break
            if place > reading.end:
                return

    def heads(self, subject: ClauseSubject, place: int) -> bool:
        """Return whether a known verb with its required words begins at a position."""
        return any(
            self._after(slots, reading.end) is not None and reading.form in pattern.forms
            for reading in self._verbs.verbs(subject, place)
            for slots, pattern in _BY_LEMMA[reading.lemma]
            if slots or reading.lemma not in cues.ALSO_NOUNS or self._takes_object(reading.end)
        )

    def _takes_object(self, place: int) -> bool:
        """Return whether an object clearly begins at a position, so that the word before it is a verb."""
        return place < len(self._words) and (self._words[place] in cues.ARTICLES or self._tokens[place].is_capital)

    def _after(self, slots: Sequence[tuple[frozenset[str], bool]], place: int) -> int | None:
        """Return the position after a pattern's slots, or None if a required word is missing."""
        for words, is_needed in slots:
            if place < len(self._words) and self._words[place] in words and not self._tokens[place].is_cut_off:
                place += 1
            elif is_needed:
                return None
        return place

    def _predicate(self, subject: ClauseSubject, reading: VerbReading, place: int) -> tuple[list[SpokenTriple], int]:
        for slots, pattern in _BY_LEMMA[reading.lemma]:
            first = self._after(slots, place)
            if first is None or reading.form not in pattern.forms or not self._fits(subject, pattern):
                continue
            if place > reading.end and not slots:
                continue
            objects, end = self._objects.read(pattern.takes, first, _PARTICLES.get(reading.lemma, frozenset()))
            if objects and not self._is_sensible(subject, pattern, reading, objects[0], end):
                continue
            if not objects:
                continue
            if self._objects.is_weakened(end):
                return [], place
            triples = self._asserted(subject, pattern, reading, objects)
            if pattern.predicate == "has" and triples:
                triples += self._called(subject.name, objects[-1], end)
            return triples, end
        return [], place

    def _is_sensible(
        self, subject: ClauseSubject, pattern: Pattern, reading: VerbReading, value: str, end: int
    ) -> bool:
        words = value.lower().split()
        if pattern.predicate == "located_in":
            is_place = words[0] not in nouns.DEMONYMS and words[0] not in nouns.NOT_PLACES_OF_THINGS
            return is_place and subject.name.lower().split()[-1] not in nouns.NOT_PLACED
        if pattern.predicate == "lives_in":
            return words[0] not in nouns.NOT_HOMES
        # "I left Tom a note" is not about an employer; after one the object ends.
        return reading.lemma != "leave" or self._objects.ends(end) or self._words[end] in cues.AFTER_NAMES

    @staticmethod
    def _fits(subject: ClauseSubject, pattern: Pattern) -> bool:
        if subject.is_thing:
            return pattern.of_things
        return pattern.of_persons or (subject.is_named and not subject.found and pattern.of_names)

    def _asserted(
        self, subject: ClauseSubject, pattern: Pattern, reading: VerbReading, objects: Sequence[str]
    ) -> list[SpokenTriple]:
        predicate, verb, name = pattern.predicate, pattern.verb, subject.name
        if predicate == "is_called" and subject.relation:
            name, predicate = subject.relation
            verb = Verb.INSERT
        if reading.form is Form.USED:
            verb = Verb.DELETE
        elif reading.is_denied:
            if not pattern.denied or verb is Verb.DELETE:
                return []
            verb = Verb.DELETE
            if predicate in OPPOSITES:
                if reading.lemma not in ("like", "enjoy", "be"):
                    return []
                predicate, verb = OPPOSITES[predicate], Verb.INSERT
        triples = []
        owner = "their" if name == self._speaker else f"{self._speaker}'s"
        for spoken in objects:
            value = _OWN.sub(owner, spoken)
            if value.casefold() == name.casefold():
                continue
            triples.append(SpokenTriple(verb, name, predicate, value))
            if predicate in OPPOSITES and verb is Verb.INSERT:
                triples.append(SpokenTriple(Verb.DELETE, name, OPPOSITES[predicate], value))
        return triples

    def _called(self, owner: str, owned: str, place: int) -> list[SpokenTriple]:
        """Read "called Rex" after "I have a dog"."""
        relation = owned.lower().rpartition(" ")[2]
        if relation not in nouns.RELATIONS or self._words[place : place + 1] not in (["called"], ["named"]):
            return []
        names, _ = self._objects.read(Takes.NAMED, place + 1)
        return [SpokenTriple(Verb.INSERT, owner, relation_of(relation), name) for name in names]

    def _is_relation(self, subject: ClauseSubject) -> list[SpokenTriple]:
        """Read "Maria is my sister" and "my dentist is Dr. Meyer"."""
        place = subject.end
        if subject.relation and self._words[place : place + 1] == ["is"] and self._words[place + 1 : place + 2]:
            end = self._subjects.name_end(place + 1)
            owner, predicate = subject.relation
            if end > place + 1 and not self._tokens[place].is_cut_off and self._is_someone(predicate, place + 1, end):
                return [SpokenTriple(Verb.INSERT, owner, predicate, self._objects.span(place + 1, end))]
        if not subject.is_named or subject.found or self._words[subject.end : subject.end + 1] not in (["is"], ["'s"]):
            return []
        denied, place = self._verbs.denied(subject.end + 1)
        if place >= len(self._words) or self._tokens[place].is_cut_off:
            return []
        owner = self._speaker
        if self._words[place] == "my":
            relation = self._subjects.relation(owner, place + 1)
        else:
            end = self._subjects.name_end(place)
            if end == place or self._words[end : end + 1] != ["'s"]:
                return []
            owner = self._objects.span(place, end)
            relation = self._subjects.relation(owner, end + 1)
        if relation is None or relation.relation is None or not self._objects.closes(relation.end):
            return []
        return [SpokenTriple(Verb.DELETE if denied else Verb.INSERT, owner, relation.relation[1], subject.name)]

    def _is_someone(self, predicate: str, place: int, end: int) -> bool:
        """Return whether a capitalized word after "my dentist is" names a person: not "Polish"."""
        word = self._words[place]
        if word in nouns.TITLES:
            return True
        is_kind = word in nouns.DEMONYMS or word in nouns.TRAITS or word in nouns.ROLES or word in nouns.CONVICTIONS
        return not is_kind and predicate not in nouns.HAS_PET and self._objects.closes(end)

    def favourite(self, place: int) -> list[SpokenTriple]:
        """Read "rye is my favourite bread"."""
        words = self._words
        verb = next((at for at in range(place + 1, min(place + 6, len(words))) if words[at] in _IS), None)
        if verb is None or words[verb + 1 : verb + 2] != ["my"]:
            return []
        first = verb + 2 + (words[verb + 2 : verb + 3] in (["absolute"], ["all-time"]))
        if words[first : first + 1] not in (["favourite"], ["favorite"]):
            return []
        end = first + 1
        while end < len(words) and end - first < 4 and not self._objects.closes(end):
            end += 1
        named, begin = words[first + 1 : end], self._objects.skip_articles(place)
        is_cut = any(token.is_cut_off for token in self._tokens[place + 1 : end])
        if is_cut or not named or not self._objects.closes(end) or self._objects.is_weakened(end):
            return []
        is_vague = not (nouns.NOT_FAVOURITES.isdisjoint(named) and cues.PREPOSITIONS.isdisjoint(named))
        if is_vague or not self._objects.is_thing(begin, verb, 5, nouns.VAGUE_LIKES | nouns.EVALUATIONS):
            return []
        predicate = snake_case("_".join(["favourite", *named]))
        return [SpokenTriple(Verb.UPDATE, self._speaker, predicate, self._objects.span(begin, verb))]

    def property(self, place: int) -> list[SpokenTriple]:
        """Read "my favourite colour is blue", "Tom's birthday is …", "my sister's name is …"."""
        owner: ClauseSubject | None = None
        if self._words[place] == "my":
            owner, place = ClauseSubject(self._speaker, "i", place + 1), place + 1
            relation = self._subjects.relation(self._speaker, place)
            if relation and self._words[relation.end : relation.end + 1] == ["'s"]:
                owner, place = relation, relation.end + 1
        else:
            end = self._subjects.name_end(place)
            if end > place and self._words[end : end + 1] == ["'s"]:
                owner, place = ClauseSubject(self._objects.span(place, end), "s", end, is_named=True), end + 1
        if owner is None:
            return []
        verb = next((at for at in range(place + 1, min(place + 5, len(self._words))) if self._words[at] in _IS), None)
        if verb is None or any(token.is_cut_off for token in self._tokens[place : verb + 1]):
            return []
        words = self._words[place:verb]
        pattern = PROPERTIES.get(" ".join(words))
        if pattern is None and words[0] in ("favourite", "favorite") and len(words) > 1:
            if not nouns.NOT_FAVOURITES.isdisjoint(words) or not cues.PREPOSITIONS.isdisjoint(words):
                return []
            pattern = Pattern(
                "", snake_case("_".join(["favourite", *words[1:]])), Verb.UPDATE, Takes.VALUE, Form.PRESENT
            )
        if pattern is None:
            return []
        denied, first = self._verbs.denied(verb + 1)
        objects, end = self._objects.read(pattern.takes, first)
        if self._objects.is_weakened(end):
            return []
        triples = self._asserted(owner, pattern, VerbReading("be", Form.PRESENT, denied, first), objects)
        return [*owner.found, *triples]

    def calling(self, place: int) -> list[SpokenTriple]:
        """Read "call me Annie" and "people call me Annie"."""
        words = self._words[place : place + 6]
        by_others = words[0] in cues.CALLERS
        if by_others or words[0] == "please":
            words, place = words[1:], place + 1
        elif words[:3] == ["you", "can", "call"]:
            words, place = words[2:], place + 2
        if words[:2] not in (["call", "me"], ["calls", "me"]) or len(words) < 3:
            return []
        predicate = "also_known_as" if by_others else "is_called"
        names, _ = self._objects.read(Takes.NAMED, place + 2)
        return [SpokenTriple(Verb.INSERT, self._speaker, predicate, name) for name in names if name != self._speaker]

    def deadline(self, place: int) -> list[SpokenTriple]:
        """Read "the deadline for Atlas is 3 May"."""
        place += self._words[place] in ("the", "our", "my")
        if self._words[place : place + 1] != ["deadline"] or self._words[place + 1 : place + 2] not in (
            ["for"],
            ["of"],
        ):
            return []
        begin = self._objects.skip_articles(place + 2)
        end = next((at for at in range(begin + 1, min(begin + 6, len(self._words))) if self._words[at] in _IS), 0)
        if not end:
            return []
        denied, first = self._verbs.denied(end + 1)
        if self._words[first : first + 1] == ["on"]:
            first += 1
        dates, _ = self._objects.read(Takes.DATE, first)
        return [SpokenTriple(Verb.UPDATE, self._objects.span(begin, end), "due_on", day) for day in dates if not denied]
