"""Verbs of clauses: which one, in what form, and whether it is denied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.models.deterministic.triples import cues
from memory_pipeline.models.deterministic.triples.patterns import IRREGULAR, PATTERNS, Form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.models.deterministic.triples.phrases import Token
    from memory_pipeline.models.deterministic.triples.subjects import Subject


class Said(NamedTuple):
    """A verb as it stands: its plain form, how it is said, whether it is denied, and the word after it."""

    lemma: str
    form: Form
    is_denied: bool
    end: int


def _inflected() -> dict[str, list[tuple[str, str]]]:
    """Return each form of each verb of the patterns: its plain form, and base, s, ing, past or participle."""
    forms: dict[str, list[tuple[str, str]]] = {}
    for pattern in PATTERNS:
        for lemma in pattern.says.split()[0].split("|"):
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


#: By :attr:`Subject.person`.
_AM: Final = {"i": ("am", "'m"), "s": ("is", "'s"), "p": ("are", "'re")}
_HAVE: Final = {"i": ("have", "'ve"), "s": ("has", "'s"), "p": ("have", "'ve")}


class Verbs:
    """Reads verbs from one sentence.

    Args:
        tokens: its words.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._words = [token.word for token in tokens]

    def verbs(self, subject: Subject, place: int) -> list[Said]:
        """Return how the verb of a subject that begins at a word may be read, best first."""
        person = subject.person
        if place < len(self._words) and self._tokens[place].is_cut_off and not subject.has_aside:
            return []
        denied, place = self.denied(place)
        word = self._words[place] if place < len(self._words) else ""
        said: list[Said] = []
        if word in _AM[person]:
            said += self._being(denied, place + 1)
        if word in _HAVE[person]:
            said += self._having(denied, place + 1)
        if word in ("do", "does", "used", "was", "can"):
            return self._helped(person, denied, place)
        if not said:
            form = "s" if person == "s" else "base"
            said = [
                Said(lemma, Form.PRESENT, denied, place + 1) for lemma in self._lemmas(place, form) if lemma != "be"
            ]
            if not denied:
                said += [Said(lemma, Form.PAST, False, place + 1) for lemma in self._lemmas(place, "past")]
        return said

    def _helped(self, person: str, denied: bool, place: int) -> list[Said]:
        """Read "do", "used", "was" and "can" with the verb that they help."""
        word, following = self._words[place], self._words[place + 1 : place + 2]
        said: list[Said] = []
        if word == ("does" if person == "s" else "do"):
            denied, place = self.denied(place + 1)
            said = [Said(lemma, Form.PRESENT, denied, place + 1) for lemma in self._lemmas(place, "base")]
        elif word == "used" and following == ["to"]:
            said = [Said(lemma, Form.USED, False, place + 3) for lemma in self._lemmas(place + 2, "base")]
        elif word == "used" and not denied:
            said = [Said("use", Form.PAST, False, place + 1)]
        elif word == "was" and following == ["born"] and not denied:
            said = [Said("be", Form.WAS, False, place + 1)]
        elif word == "can" and not denied:
            cannot, verb = self.denied(place + 1)
            if cannot and self._words[verb : verb + 1] in (["stand"], ["bear"], ["abide"]):
                said = [Said("hate", Form.PRESENT, False, verb + 1)]
        return said

    def _being(self, denied: bool, place: int) -> list[Said]:
        """Read what follows "am" or "is"."""
        negated, place = self.denied(place)
        denied |= negated
        going = [Said(lemma, Form.GOING, denied, place + 1) for lemma in self._lemmas(place, "ing")]
        return going or [Said("be", Form.PRESENT, denied, place)]

    def _having(self, denied: bool, place: int) -> list[Said]:
        """Read what follows "have" or "has"."""
        negated, place = self.denied(place)
        denied |= negated
        if self._words[place : place + 1] == ["been"]:
            place = self.skip_adverbs(place + 1)
            going = [Said(lemma, Form.LASTING, denied, place + 1) for lemma in self._lemmas(place, "ing")]
            return going or [Said("be", Form.LASTING, denied, place)]
        said = []
        for lemma in self._lemmas(place, "participle"):
            if not denied:
                said.append(Said(lemma, Form.PERFECT, False, place + 1))
            if lemma != "get" and not cues.LASTING.isdisjoint(self._words[place:]):
                said.append(Said(lemma, Form.LASTING, denied, place + 1))
        # "'s" is "is" unless something shows that it is "has".
        if self._words[place - 1] != "'s" or self._words[place : place + 1] == ["got"]:
            said.append(Said("have", Form.PRESENT, denied, place))
        return said

    def _lemmas(self, place: int, form: str) -> list[str]:
        if place >= len(self._words):
            return []
        return [lemma for lemma, name in FORMS.get(self._words[place], ()) if name == form]

    def denied(self, place: int) -> tuple[bool, int]:
        """Skip adverbs and "not"."""
        place = self.skip_adverbs(place)
        if self._words[place : place + 1] in (["not"], ["n't"]):
            return True, self.skip_adverbs(place + 1)
        if self._words[place : place + 2] == ["no", "longer"]:
            return True, self.skip_adverbs(place + 2)
        return False, place

    def skip_adverbs(self, place: int) -> int:
        """Return the first word from a place on that is no adverb."""
        while place < len(self._words) and self._words[place] in cues.ADVERBS:
            place += 1
        return place
