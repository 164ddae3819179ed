"""Reads names, nouns, dates and other objects of assertions in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.models.deterministic import phrases
from memory_pipeline.models.deterministic.language.grammar import is_verb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_pipeline.domain.messages import Message

_AFTER = frozenset(["from", "to", "as"])


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
        return self._words[at] in phrases.JOINTS or not phrases.MARKS.isdisjoint(gap) or " - " in gap or is_stop

    def closes(self, place: int, end: int) -> bool:
        """Return whether an object may end at a position."""
        word = self._words[place] if place < end else ""
        return place >= end or (word in phrases.ENDS and word not in phrases.SPOILS)

    def objects(self, kind: str, place: int, end: int, number: int | None) -> tuple[list[str], int]:
        """Read the objects of a kind; none if there is something else.

        With the number of its clause, the objects may go on in the next clauses: "tea, coffee and jazz".
        """
        words = self._words
        if place >= end:
            return [], place
        if kind in phrases.PATTERNS:
            token = self._tokens[place]
            match = phrases.PATTERNS[kind].match(self._text, token.start - (token.gap[-1:] in tuple("+€£$")))
            return ([match[1]], end) if match and (kind != "rent" or "rent" in words) else ([], place)
        if kind in ("place", "name", "own_name", "employer"):
            name, stop = self._named(kind, place, end)
            if name or kind != "employer":
                return ([name] if name else []), stop
        first, stop = self._item(kind, place, end)
        if not first or not (self.closes(stop, end) or words[stop] in ("called", "named", "as")):
            return [], stop
        is_passing = kind == "held" or (kind == "likings" and words[place].endswith("ing"))
        if is_passing and stop < end and words[stop] in phrases.PREPOSITIONS:
            return [], stop  # "I love curling up with a book", "I have 30 kids in my class"
        is_whole = stop == end and phrases.PREPOSITIONS.isdisjoint(first.split())
        found = [first, *(self._listed(kind, number + 1) if is_whole and number is not None else ())]
        shares_head = len(found) == 2 and " " not in first and found[1].split()[-1] in phrases.SHARED_HEADS
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
            if not is_item or is_verb(self._words[place]) or self._words[place] in phrases.OPENERS:
                break
            found.append(item)
            is_closed = is_joined
            if stop < end:
                break
        is_list = is_closed or kind in phrases.HEADS or (len(found) > 1 and self._names.isdisjoint(found))
        return found if is_list else ()

    def _item(self, kind: str, place: int, end: int) -> tuple[str, int]:
        """Read a noun of a kind, without its article."""
        start, place = place, self._skip(place, end, phrases.ARTICLES.get(kind, phrases.ARTICLE))
        noun, stop = self.noun(place, end)
        age = phrases.AGED.match(noun) if kind in ("role", "trait") else None
        noun = noun[age.end() :] if age else noun
        if not noun or not _fits(kind, noun, has_article=place > start):
            return "", stop
        cut = {"age": noun.partition(" ")[0], "allergen": noun.rpartition(" ")[0]}
        return cut.get(kind, noun), stop

    def noun(self, place: int, end: int) -> tuple[str, int]:
        """Read a noun of at most five words."""
        words, stop = self._words, place
        ends = phrases.ENDS | phrases.SPOILS | {"called", "named"}
        while stop < end and (words[stop] not in ends or (words[stop] == "'s" and words[stop - 1] in phrases.HEALTH)):
            if stop > place and self._tokens[stop].gap not in (" ", ""):
                break
            stop += 1
        found = words[place:stop]
        if not 0 < len(found) <= 5 or found[0] in phrases.NO_OBJECT or not phrases.PRONOUNS.isdisjoint(found):
            return "", place
        return self._text[self._tokens[place].start : self._tokens[stop - 1].end], stop

    def _named(self, kind: str, place: int, end: int) -> tuple[str, int]:
        """Read something with a name; a place also in a sentence without capitals: "i live in porto"."""
        name, stop = self.name(place + (self._words[place] == "the"), end)
        if name and name.lower() not in phrases.TRAITS and (self.closes(stop, end) or self._words[stop] in _AFTER):
            is_own = stop == end and name in self._names and not name.isupper()
            return (name if kind != "own_name" or is_own else ""), stop
        found, stop = self.noun(place, end) if kind == "place" and self._is_lower else ("", place)
        words = self._words[place:stop]
        is_place = 0 < len(words) < 3 and phrases.NOT_PLACES.isdisjoint(words) and self.closes(stop, end)
        return (found if is_place and all(word.isalpha() and len(word) > 2 for word in words) else ""), stop

    def name(self, place: int, end: int) -> tuple[str, int]:
        """Read a name: capitalized words, and "of" or "van" between them."""
        tokens, stop = self._tokens, place
        for at in range(place, min(place + 6, end)):
            token = tokens[at]
            is_joined = at == place or token.gap in (" ", " & ") or (token.gap == ". " and len(tokens[at - 1].text) < 3)
            is_capital = token.text[:1].isupper() and token.word not in phrases.NOT_NAMES
            if not is_joined or not (is_capital or (at > place and token.word in phrases.LINKS)):
                break
            if is_capital:
                stop = at + 1
        return (self._text[tokens[place].start : tokens[stop - 1].end], stop) if stop > place else ("", place)


def _fits(kind: str, noun: str, *, has_article: bool) -> bool:
    """Return whether a noun is of a kind."""
    words = noun.lower().replace("’", "'").split()
    head = words[-1].removesuffix("'s")
    if len(words) > phrases.LONGEST.get(kind, 5):
        return False
    if kind == "age":
        return words[0].isdecimal() and 0 < int(words[0][:4]) < 116 and words[1:] in ([], ["years", "old"], ["years"])
    if words[0] in phrases.PARENTS:
        return kind == "trait" and words[1:2] == ["of"]  # "a mother of three"
    if kind in ("role", "trait", "employer"):
        is_praise = not (phrases.PRAISE | phrases.ADVERBS | phrases.VAGUE).isdisjoint(words)
        if is_praise or words[0].endswith("ing") or (head in phrases.PARENTS and words[0] != "single"):
            return False
    if kind in phrases.HEADS:
        singles = {head, head.removesuffix("s"), head[:-3] + "y" if head.endswith("ies") else head}
        is_named = kind == "goods" and has_article and noun.rsplit(maxsplit=1)[-1][:1].isupper()  # "a Volvo"
        is_bare = (kind == "goods" and words[0].isdigit()) or (kind == "allergen" and len(words) < 2)
        return not is_bare and (is_named or not singles.isdisjoint(phrases.HEADS[kind]))
    is_empty = words[0] in phrases.GENERAL or words[0] in phrases.ARTICLE or words[0].isdigit()
    is_particle = words[0].endswith("ing") and not phrases.PREPOSITIONS.isdisjoint(words)
    is_field = kind != "subject" or phrases.FIELD.search(head)
    return not is_empty and not is_particle and phrases.VAGUE.isdisjoint(words) and bool(is_field)


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
