"""Tokens of a sentence, and the boundaries of its phrases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.domain.text.words import parts_of
from memory_pipeline.models.deterministic.language.grammar import IRREGULAR_PAST, is_regular_past
from memory_pipeline.models.deterministic.triples import nouns, patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.models.deterministic.language.grammar import Sentence

#: Most words of an object, and of each object in a list.
MAX_WORDS: Final = 8
MAX_LISTED: Final = 5

_CLOSING: Final = frozenset(',;:()[]{}"“”„«»‘!?…—–|*=<>')
_QUOTES: Final = frozenset('"“”„«»')
#: Prepositions whose "and" mostly belongs to them.
_SPREADING: Final = frozenset(["about", "between", "on", "like", "from"])
_LINKS: Final = frozenset(["of", "the", "de", "da", "del", "di", "la", "le", "van", "der", "von", "den"])
_TYPED: Final = {
    "im": ("i", "'m"), "ive": ("i", "'ve"), "dont": ("do", "n't"), "doesnt": ("does", "n't"), "isnt": ("is", "n't"),
    "cant": ("can", "n't"), "didnt": ("did", "n't"), "cannot": ("can", "not"), "havent": ("have", "n't"),
    "hasnt": ("has", "n't"), "wont": ("will", "n't"),
}  # fmt: skip


class Token(NamedTuple):
    """A word or a part of a contraction, and its span in the sentence.

    `word` is in lower case with straight apostrophes, `raw` as written. `gap` is the text after the previous token.
    """

    word: str
    raw: str
    start: int
    end: int
    gap: str

    @property
    def is_capital(self) -> bool:
        """Whether it begins with a capital."""
        return self.raw[:1].isupper()

    @property
    def is_cut_off(self) -> bool:
        """Whether punctuation separates it from the previous token."""
        gap = self.gap
        if gap == ":":
            return False  # "CS:GO"
        return not _CLOSING.isdisjoint(gap) or " -" in gap or "..." in gap or (len(gap) > 2 and "/" in gap)


def tokens_of(sentence: Sentence) -> list[Token]:
    """Return the tokens of a sentence; contractions are split."""
    tokens: list[Token] = []
    done = 0
    for raw, start in zip(sentence.words, sentence.starts, strict=True):
        word = raw.lower().replace("’", "'")
        end = start + len(raw)
        if raw in ("IT", "US") and not sentence.text.isupper():
            word = raw  # not the pronoun
        parts = parts_of(word) if "'" in word else _TYPED.get(word, (word,))
        places = [end]
        for part in reversed(parts[1:]):
            places.append(max(places[-1] - len(part), start))
        places = [start, *reversed(places)]
        for part, begin, stop in zip(parts, places, places[1:], strict=False):
            tokens.append(Token(part, sentence.text[begin:stop], begin, stop, sentence.text[done:begin]))
            done = stop
    return tokens


#: Result of a reader: the objects, and the position after them.
Found = tuple[list[str], int]
NO_WORDS: Final[frozenset[str]] = frozenset()


class Phrases:
    """Find the boundaries of phrases in one sentence.

    `is_clause` returns whether another clause begins at a position.
    """

    def __init__(self, text: str, tokens: Sequence[Token], is_clause: Callable[[int], bool]) -> None:
        self._text = text
        self._tokens = tokens
        self._is_clause = is_clause

    def span(self, start: int, end: int) -> str:
        """Return the text of tokens `start` to `end` (exclusive), with adjoining signs ("$", "%")."""
        if start >= end:
            return ""
        first, last = self._tokens[start].start, self._tokens[end - 1].end
        while first and self._text[first - 1] in "$€£#+@":
            first -= 1
        while last < len(self._text) and self._text[last] in "+#%€$£°":
            last += 1
        return " ".join(self._text[first:last].split())

    def ends(self, place: int) -> bool:
        """Return whether an object must end before a position: at punctuation, a time, another clause."""
        tokens = self._tokens
        if place >= len(tokens):
            return True
        token = tokens[place]
        following = tuple([after.word for after in tokens[place : place + 4]])
        return (
            token.is_cut_off
            or token.word in patterns.OBJECT_ENDS
            or any(following[: len(phrase)] == phrase for phrase in patterns.OBJECT_END_PHRASES.get(token.word, ()))
            or (token.word in patterns.BEFORE_TIMES and self._are_times(following[1:]))
        )

    @staticmethod
    def _are_times(words: Sequence[str]) -> bool:
        for word in words:
            if word in patterns.TIME_NOUNS or (len(word) == 4 and word.isdigit() and word[:2] in ("19", "20")):
                return True
            if word not in patterns.TIME_WORDS:
                return False
        return False

    def closes(self, place: int) -> bool:
        """Return whether a phrase ends before a position."""
        return self.ends(place) or self._tokens[place].word in ("and", "from", "at", "in")

    def is_weakened(self, place: int) -> bool:
        """Return whether the next word limits the statement: "… if", "… when"."""
        if place >= len(self._tokens):
            return False
        token = self._tokens[place]
        return token.word in patterns.WEAKENING and not token.is_cut_off

    def skip_articles(self, place: int) -> int:
        """Return the position after articles and possessives."""
        tokens = self._tokens
        while (
            place + 1 < len(tokens)
            and tokens[place].word in patterns.ARTICLES
            and not tokens[place + 1].is_cut_off
            # "The" of "The Hague" is part of the name.
            and not (place and tokens[place].raw == "The" and tokens[place + 1].is_capital)
        ):
            place += 1
        return place

    def skip_quantity(self, place: int) -> int:
        """Return the position after articles, and after "a lot of"."""
        begin = self.skip_articles(place)
        of = next((at for at in range(begin, min(begin + 3, len(self._tokens))) if self._tokens[at].word == "of"), 0)
        if of > begin and self._tokens[of - 1].word in patterns.QUANTITIES and of + 1 < len(self._tokens):
            return self.skip_articles(of + 1)
        return begin

    def _joins(self, place: int) -> bool:
        token = self._tokens[place]
        return token.word in ("and", "or") or token.gap == " & "

    def _parts_clauses(self, place: int) -> bool:
        """Return whether the "and" at a position joins clauses instead of things."""
        following, later = (*[token.word for token in self._tokens[place + 1 : place + 3]], "", "")[:2]
        return (
            self._is_clause(place)
            or following in IRREGULAR_PAST
            or is_regular_past(following)
            or following in patterns.OBJECT_ENDS
            or later == "to"  # "and try to win"
            or self._precedes_verb(place + 1)
        )

    def _precedes_verb(self, place: int) -> bool:
        """Return whether a thing at a position is followed by its verb: "coffee is"."""
        end = self.phrase_end(self.skip_articles(place), NO_WORDS) if place < len(self._tokens) else place
        return place < end < len(self._tokens) and (
            self._tokens[end].word in patterns.AFTER_SUBJECTS and not self._tokens[end].is_cut_off
        )

    def phrase_end(self, start: int, stops: frozenset[str]) -> int:
        """Return the end of the phrase that begins at `start`, before "and"."""
        place = start
        while place < len(self._tokens) and place - start <= MAX_WORDS:
            if self._tokens[place].word in ("and", "or"):
                break
            if place > start and (self._joins(place) or (self.ends(place) or self._tokens[place].word in stops)):
                break
            place += 1
        return place

    def parts(self, place: int, stops: frozenset[str]) -> list[tuple[int, int]]:
        """Return the spans of the one or several things from a position on."""
        tokens = self._tokens
        parts: list[tuple[int, int]] = []
        while True:
            begin = self.skip_quantity(place)
            end = self.phrase_end(begin, stops)
            parts.append((begin, end))
            if end >= len(tokens) or end == begin or tokens[end].word == "or":
                return parts
            if self._joins(end):
                if self._parts_clauses(end):
                    return parts
            elif tokens[end].gap.strip() != "," or not self._lists(end, stops):
                return parts
            place = end + (tokens[end].word == "and")
            if place >= len(tokens):
                return parts

    def _lists(self, place: int, stops: frozenset[str]) -> bool:
        """Return whether the comma before a position is part of a list with an "and" before its last item."""
        tokens = self._tokens
        for _ in range(MAX_WORDS):
            if place >= len(tokens) or self._is_clause(place):
                return False
            if tokens[place].word == "and":
                return not self._parts_clauses(place)
            begin = self.skip_articles(place)
            end = self.phrase_end(begin, stops)
            if not begin < end <= begin + MAX_LISTED or end >= len(tokens):
                return False
            if tokens[end].word == "and":
                return not self._parts_clauses(end)
            if tokens[end].gap.strip() != ",":
                return False
            place = end
        return False

    def is_thing(self, start: int, end: int, most: int, refused: frozenset[str]) -> bool:
        """Return whether words are a noun phrase that is meaningful by itself."""
        words = [token.word for token in self._tokens[start:end]]
        if not 0 < len(words) <= most or words[0] in patterns.NOT_OBJECTS or words[-1] in patterns.NOT_OBJECTS:
            return False
        if not patterns.HEDGES.isdisjoint(words) or not patterns.POINTING.isdisjoint(words):
            return False
        if words[-1].endswith("ly") and words[-1] not in nouns.LY_NOUNS:
            return False
        if words[-1] in patterns.NUMBER_WORDS:
            return False
        return words[0] not in refused and self.head(start, end) not in refused

    def head(self, start: int, end: int) -> str:
        """Return the head noun of a phrase: the last word before "of", "in", "with"."""
        for place in range(start + 1, end):
            if self._tokens[place].word in patterns.PREPOSITIONS:
                return self._tokens[place - 1].word
        return self._tokens[end - 1].word

    def quoted(self, place: int) -> Found | None:
        """Return the quotation that begins at a position, nothing for a word that is cut off, and None for others."""
        tokens = self._tokens
        if _QUOTES.isdisjoint(tokens[place].gap):
            return ([], place) if tokens[place].is_cut_off else None
        end = place + 1
        while end < len(tokens) and end - place <= MAX_WORDS and _QUOTES.isdisjoint(tokens[end].gap):
            end += 1
        return ([self.span(place, end)], end) if end - place <= MAX_WORDS else ([], place)

    def several(
        self, place: int, stops: frozenset[str], refused: frozenset[str], accepts: Callable[[str], bool] | None = None
    ) -> Found:
        """Read one or several things. If the first is not acceptable, return none; skip others that are not."""
        if (decided := self.quoted(place)) is not None:
            return decided
        parts = self.parts(place, stops)
        most = MAX_LISTED if len(parts) > 1 else MAX_WORDS
        if not self.is_thing(*parts[0], MAX_WORDS, refused):
            return [], place
        if any(self._tokens[at].word in _SPREADING for at in range(*parts[0])):
            parts = parts[:1]  # "books about plants and mindset" are not two things
        things = [self.span(*part) for part in parts if self.is_thing(*part, most, refused)]
        return [thing for thing in things if accepts is None or accepts(thing)], parts[-1][1]

    def names_end(self, place: int) -> int:
        """Return the end of the name that begins at `place`."""
        tokens = self._tokens
        end = place
        while end < len(tokens) and end - place < MAX_WORDS:
            token = tokens[end]
            # A name may contain a blank, the point of "St. Gallen", "&", or a hyphen without blanks.
            if end > place and token.gap.strip() not in ("", ".", "&", "-", "'", "’"):
                break
            if end > place and token.gap.strip() == "." and tokens[end - 1].word not in ("st", "dr", "mr", "mrs", "ms"):
                break
            if token.is_capital or token.word.isdigit() or (token.word == "'s" and end > place):
                if token.word == "i" or token.word in ("'m", "'ve"):
                    break
                end += 1
                continue
            links = end
            while links < len(tokens) and tokens[links].word in _LINKS and tokens[links].gap == " ":
                links += 1
            if not end < links < len(tokens) or not tokens[links].is_capital or tokens[links].gap != " ":
                break
            if end == place or tokens[links].word == "i":
                break
            end = links
        return end
