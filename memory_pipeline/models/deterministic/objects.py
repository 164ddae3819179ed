"""Reads names, nouns, dates and other objects of assertions in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.models.deterministic import phrases
from memory_pipeline.models.deterministic.language.grammar import is_verb
from memory_pipeline.models.deterministic.language.lexicon import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_pipeline.domain.messages import Message

_CALLED: Final = frozenset(["called", "named"])
_NOUN_ENDS: Final = WORDS["ends"] | WORDS["spoils"] | _CALLED


class Token(NamedTuple):
    """A word in lower case and as written, its place in the text, and the characters before it."""

    word: str
    text: str
    start: int
    end: int
    gap: str


class ObjectReader:
    """Reads objects in one sentence, which it cuts into clauses.

    Positions are those of words. A method returns what it read, and the position after that.
    """

    def __init__(self, text: str, message: Message, names: frozenset[str]) -> None:
        self._text = text
        self._speaker, self._is_named, self._names = message.user, bool(message.name), names
        self._tokens = list(_tokens(self._text))
        self._words = [token.word for token in self._tokens]
        self._is_lower = not any(token.text[:1].isupper() and token.word != "i" for token in self._tokens[1:])
        starts = [at for at in range(len(self._words)) if at == 0 or self._begins_clause(at)]
        self._clauses = list(zip(starts, [*starts[1:], len(self._words)], strict=True))

    def _skip(self, place: int, end: int, words: frozenset[str]) -> int:
        while place < end and self._words[place] in words:
            place += 1
        return place

    def _begins_clause(self, at: int) -> bool:
        gap = self._tokens[at].gap
        is_stop = ". " in gap and len(self._words[at - 1]) > 2
        return self._words[at] in WORDS["joints"] or not phrases.MARKS.isdisjoint(gap) or " - " in gap or is_stop

    def closes(self, place: int, end: int) -> bool:
        """Return whether an object may end at a position."""
        word = self._words[place] if place < end else ""
        return place >= end or (word in WORDS["ends"] and word not in WORDS["spoils"])

    def objects(self, kind: str, place: int, end: int, number: int | None = None) -> tuple[list[str], int]:
        """Read the objects of a kind; none if there is something else.

        With the number of its clause, the objects may go on in the next clauses: "tea, coffee and jazz".
        """
        words = self._words
        if place >= end:
            return [], place
        if kind in phrases.PATTERNS:
            token = self._tokens[place]
            match = phrases.PATTERNS[kind].match(self._text, token.start - (token.gap[-1:] in tuple("+€£$")))
            if match is None or (kind == "rent" and "rent" not in words):
                return [], place
            return [match[1]], next((at for at in range(place, end) if self._tokens[at].start >= match.end()), end)
        if kind in ("place", "name", "own_name", "employer"):
            name, stop = self._named(kind, place, end)
            if name or kind != "employer":
                return ([name] if name else []), stop
        first, stop = self._item(kind, place, end)
        # Not "I love curling up with a book", "I have 30 kids in my class".
        is_passing = kind == "held" or (kind == "likings" and words[place].endswith("ing"))
        goes_on = is_passing and stop < end and words[stop] in WORDS["prepositions"]
        if not first or goes_on or not (self.closes(stop, end) or words[stop] in _CALLED or words[stop] == "as"):
            return [], stop
        is_whole = stop == end and WORDS["prepositions"].isdisjoint(first.split())
        found = [first, *(self._listed(kind, number + 1) if is_whole and number is not None else ())]
        shares_head = len(found) == 2 and " " not in first and found[1].split()[-1] in WORDS["shared_heads"]
        return ([" and ".join(found)] if kind == "role" or shares_head else found), stop

    def _listed(self, kind: str, number: int) -> Sequence[str]:
        """Return the objects in the clauses from a number on, if these are a list: ", coffee and jazz"."""
        found: list[str] = []
        is_closed = False
        for start, end in self._clauses[number:] if kind in phrases.LISTED else ():
            mark = self._tokens[start].gap.strip()
            is_joined = self._words[start] in ("and", "or")
            place = start + is_joined
            item, stop = self._item(kind, place, end)
            is_item = item and mark in ("", ",") and (is_joined or mark == ",") and self.closes(stop, end)
            if not is_item or is_verb(self._words[place]) or self._words[place] in WORDS["openers"]:
                break
            found.append(item)
            is_closed = is_joined
            if stop < end:
                break
        is_list = is_closed or kind in phrases.HEADS or (len(found) > 1 and self._names.isdisjoint(found))
        return found if is_list else ()

    def names(self, place: int, number: int) -> list[str]:
        """Read "Rex" or "Rex and Bo" after "called", or ", Rex and Bo" in the clauses after that of a number."""
        end = self._clauses[number][1]
        name, _ = self.name(place, end)
        found = [name] if name and self._words[place - 1] in _CALLED else []
        if not found and place < end:
            return []
        for start, last in self._clauses[number + 1 :]:
            is_joined = self._words[start] == "and"
            name, stop = self.name(start + is_joined, last)
            if stop != last or self._tokens[start].gap.strip() not in ("", ","):
                break
            found.append(name)
            if is_joined:
                return found
        return found[:1] if place < end else []

    def _item(self, kind: str, place: int, end: int) -> tuple[str, int]:
        """Read a noun of a kind, without its article."""
        start, place = place, self._skip(place, end, phrases.ARTICLES.get(kind, WORDS["article"]))
        noun, stop = self.noun(place, end)
        age = phrases.AGED.match(noun) if kind in ("role", "trait") else None
        noun = noun[age.end() :] if age else noun.removesuffix(" school") if kind == "subject" else noun
        if not noun or not _fits(kind, noun, has_article=place > start):
            return "", stop
        body, _, _ = noun.rpartition(" ")
        return {"age": noun.partition(" ")[0], "allergen": body, "fandom": body}.get(kind, noun), stop

    def noun(self, place: int, end: int) -> tuple[str, int]:
        """Read a noun of at most five words."""
        words, stop = self._words, place
        while stop < end and (
            words[stop] not in _NOUN_ENDS or (words[stop] == "'s" and words[stop - 1] in WORDS["health"])
        ):
            if stop > place and self._tokens[stop].gap not in (" ", ""):
                break
            stop += 1
        found = words[place:stop]
        if not 0 < len(found) <= 5 or found[0] in WORDS["no_object"] or not WORDS["inner_pronouns"].isdisjoint(found):
            return "", place
        return self._text[self._tokens[place].start : self._tokens[stop - 1].end], stop

    def _named(self, kind: str, place: int, end: int) -> tuple[str, int]:
        """Read something with a name; a place or employer also without capitals: "i live in porto"."""
        words = self._words
        if kind == "name" and words[place] in WORDS["article"]:  # "a man called Tom"
            place = next((at + 1 for at in range(place, min(place + 5, end - 1)) if words[at] in _CALLED), place)
        name, stop = self.name(place + (words[place] == "the"), end)
        is_closed = self.closes(stop, end) or words[stop] in ("from", "to", "as")
        if name and name.lower() not in WORDS["traits"] and is_closed:
            is_own = stop == end and name in self._names and not name.isupper()
            return (name if kind != "own_name" or is_own else ""), stop
        is_lower = kind == "place" or (kind == "employer" and self._tokens[0].text.islower())
        found, stop = self.noun(place, end) if is_lower and self._is_lower else ("", place)
        read = words[place:stop]
        is_name = (
            0 < len(read) < 3
            and WORDS["not_places" if kind == "place" else "not_employers"].isdisjoint(read)
            and (self.closes(stop, end) or (kind == "employer" and words[stop] == "as"))
            and all(word.isalpha() and len(word) > 2 for word in read)
        )
        return (found if is_name else ""), stop

    def name(self, place: int, end: int) -> tuple[str, int]:
        """Read a name: capitalized words, and "of" or "van" between them."""
        tokens, stop = self._tokens, place
        for at in range(place, min(place + 6, end)):
            token = tokens[at]
            is_initial = token.gap == ". " and len(tokens[at - 1].text) < 3
            is_joined = at == place or token.gap in (" ", " & ", "' ", "’ ") or is_initial
            is_capital = token.text[:1].isupper() and token.word not in WORDS["no_name_starts"]
            if not is_joined or not (is_capital or (at > place and token.word in WORDS["links"])):
                break
            if is_capital:
                stop = at + 1
        return (self._text[tokens[place].start : tokens[stop - 1].end], stop) if stop > place else ("", place)


def _fits(kind: str, noun: str, *, has_article: bool) -> bool:
    """Return whether a noun is of a kind."""
    words = noun.lower().replace("’", "'").split()
    head = words[-1].removesuffix("'s")
    is_verb_form = kind in ("held", "health") and words[0].endswith("ed")  # "I've always liked turtles"
    if is_verb_form or len(words) > phrases.LONGEST.get(kind, 5):
        return False
    if kind == "age":
        return words[0].isdecimal() and 0 < int(words[0][:4]) < 116 and words[1:] in ([], ["years", "old"], ["years"])
    if words[0] in WORDS["parents"]:
        return kind == "trait" and words[1:2] == ["of"]  # "a mother of three"
    if kind in ("role", "trait", "employer", "fandom"):
        is_praise = not (WORDS["praise"] | WORDS["adverbs"] | WORDS["vague"]).isdisjoint(words)
        if is_praise or words[0].endswith("ing") or (head in WORDS["parents"] and words[0] != "single"):
            return False
    if kind in phrases.HEADS or kind in phrases.ENDINGS:
        forms = {head, head.removesuffix("s"), head[:-3] + "y" if head.endswith("ies") else head}
        ending = phrases.ENDINGS.get(kind)
        is_known = not forms.isdisjoint(phrases.HEADS.get(kind, ())) or (ending is not None and ending.search(head))
        is_named = kind == "goods" and has_article and noun.rsplit(maxsplit=1)[-1][:1].isupper()  # "a Volvo"
        is_bare = (kind == "goods" and words[0].isdigit()) or (kind in ("allergen", "fandom") and len(words) < 2)
        return not is_bare and (is_named or bool(is_known))
    is_empty = words[0] in WORDS["general"] or words[0] in WORDS["article"] or words[0].isdigit()
    is_particle = words[0].endswith("ing") and not WORDS["prepositions"].isdisjoint(words)
    return not is_empty and not is_particle and WORDS["vague"].isdisjoint(words)


def _tokens(text: str) -> Iterator[Token]:
    end = 0
    for match in phrases.TOKEN.finditer(text):
        is_acronym = match[0] in ("IT", "US") and not text.isupper()
        word = match[0] if is_acronym else match[0].lower().replace("’", "'")
        first, second = phrases.SPLIT.get(word, (word, ""))
        yield Token(first, match[0], match.start(), match.end(), text[end : match.start()])
        end = match.end()
        if second:
            yield Token(second, "", end, end, "")
