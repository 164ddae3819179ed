"""Graph operations for what a user plainly states: "I live in Porto", "my sister Maria is a nurse".

A sentence is cut into clauses, at punctuation and at words such as "and". A clause gives a triple if it has a subject
("I", "my sister", "Nadia"), then a phrase of the table in :mod:`phrases`, then an object of the kind that the phrase
takes. Everything else gives nothing: questions, guesses, conditions, plans, reports, tasks, the past, and whatever is
said in another way. So triples are mostly right, and many statements give none; they stay searchable as messages. Only
users' messages are read, since assistants repeat or guess.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.graph.operations import MAX_TERM, Operation, Verb, snake_case
from memory_pipeline.domain.messages import Role
from memory_pipeline.models.deterministic import phrases
from memory_pipeline.models.deterministic.language.grammar import MAX_LENGTH
from memory_pipeline.models.deterministic.language.lexicon import WORDS
from memory_pipeline.models.deterministic.objects import ObjectReader

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.models.deterministic.language.grammar import Sentence
    from memory_pipeline.models.deterministic.phrases import Phrase

#: Operation, subject, predicate and object.
_Triple = tuple[Verb, str, str, str]

#: What links "my sister" and a name.
_LINKS = [text.split() for text in ("'s name is", "is called", "is named", "'s called", "is")]
#: What may stand before a fact.
_PREFACES = [
    text.split() for text in ("i found out", "it turns out", "turns out", "i forgot to mention", "i should mention")
]
_IS = frozenset(["is", "are", "'s"])
_PLURAL = ("s", "children")
_ENDED = re.compile(r"\b(?:any ?more|any longer|no longer|used to)\b")


class Assertions:
    """The assertions of one message; none unless a user wrote it. Pure: they depend on the message alone.

    `sentences` come from :func:`grammar.sentences_of`, `names` (those in each sentence) from :func:`names.names_in`.
    The attribute `sentences` has those that the user says, not those after somebody else began to write ("This is Leo,
    I am using Mia's phone").
    """

    def __init__(self, message: Message, sentences: Sequence[Sentence], names: Iterable[Iterable[str]]) -> None:
        self.sentences = list(_own(sentences, message)) if message.role is Role.USER else []
        self._message = message
        self._names = frozenset(word for found in names for name in found for word in name.split())
        self._read: dict[str, list[Operation]] = {}  # by the text of a sentence: rules ask for each several times

    def operations(self) -> list[Operation]:
        """Return the distinct operations of the message, in order."""
        return list(dict.fromkeys(one for sentence in self.sentences for one in self.operations_of(sentence)))

    def operations_of(self, sentence: Sentence) -> list[Operation]:
        """Return the operations of one sentence, as if it were in the message."""
        if sentence.text not in self._read:
            self._read[sentence.text] = self._operations(sentence)
        return self._read[sentence.text]

    def _operations(self, sentence: Sentence) -> list[Operation]:
        if len(sentence.words) < 2 or len(sentence.text) > MAX_LENGTH or "?" in sentence.text:
            return []
        triples = dict.fromkeys(_Reader(sentence.text, self._message, self._names).triples())
        return [
            Operation.of(
                *triple,
                confidence=0.9 if triple[2] in phrases.CERTAIN else 0.7 if triple[2] in phrases.UNSURE else 0.8,
                message_ids=(self._message.id,),
                event_at=self._message.sent_at,
                conversation_id=self._message.conversation_id,
            )
            for triple in triples
            if snake_case(triple[2]) and all(len(term) <= MAX_TERM for term in triple[1:])
        ]


def _own(sentences: Iterable[Sentence], message: Message) -> Iterator[Sentence]:
    """Yield the sentences before another person begins to write with the user's account, or a play begins."""
    for sentence in sentences:
        introduced = phrases.INTRODUCED.match(sentence.text)
        name = introduced and (introduced["one"] or introduced["two"])
        is_other = message.name and name and name not in message.name.split() and name.lower() not in WORDS["openers"]
        if is_other or phrases.BORROWED.search(sentence.text) or not WORDS["play"].isdisjoint(sentence.parts[:3]):
            return
        yield sentence


class _Subject(NamedTuple):
    """Whom a clause is about: "I", "we" (a group), or an "I" that is left out ("Moved to Porto").

    `goes_on` is whether a later clause may go on without it: "My brother, who lives in Oslo, *is a pilot*".
    """

    name: str
    end: int
    is_group: bool = False
    is_elided: bool = False
    goes_on: bool = False


class _Reader(ObjectReader):
    """Reads what one sentence states."""

    def triples(self) -> Iterator[_Triple]:
        """Yield what the sentence states."""
        words = self._words
        is_task = not WORDS["single_tasks"].isdisjoint(words[:3]) or not WORDS["play"].isdisjoint(words)
        if is_task or not phrases.QUOTES.isdisjoint(self._text):
            return
        before: _Subject | None = None
        for number, (start, end) in enumerate(self._clauses):
            if not WORDS["stops"].isdisjoint(words[start:end]):
                return  # "If I lived in Rome, …"
            if self._doubts(start, end) or self._is_taken_back(number + 1):
                before = None
            else:
                yield from self._relations(start, end)
                before = yield from self._clause(number, before)

    def _clause(self, number: int, before: _Subject | None) -> Generator[_Triple, None, _Subject | None]:
        """Yield what a clause states; `before` is whom the clause before was about. Return whom this one is about."""
        start, end = self._clauses[number]
        place = self._after_openers(start, end)
        stated = self._naming(place, end) or self._property(place, number) or self._favourite(place, end)
        if stated:
            yield from stated
            return None
        subject = self._subject(place, end, is_first=number == 0)
        is_bare = before is not None and before.end == start
        if subject and subject.end == end:  # "My brother", of whom a later clause speaks
            if is_bare and before and not subject.goes_on and "'s " in before.name:
                owner, _, relation = before.name.rpartition("'s ")  # "our landlady, *Mrs. Okoye*"
                yield Verb.INSERT, owner, f"has_{relation.split()[-1]}", subject.name
                subject = subject._replace(goes_on=True)
            return subject
        first = self._words[start]
        if subject is None and before and is_bare and (first == "who" or before.goes_on):
            subject = before._replace(end=start + (first == "who"))
        elif subject is None and before and not is_bare and first in ("and", "but"):
            # "Nina is six and allergic to nuts" leaves out the second "is".
            subject = before._replace(end=place, is_elided=self._words[before.end] in WORDS["be"])
        stated = list(self._stated(subject, end, number)) if subject else []
        yield from stated
        if is_bare and before and first == "who":
            return before._replace(end=end, goes_on=True)
        return subject if stated else None

    # Clauses.

    def _is_taken_back(self, number: int) -> bool:
        """Return whether a clause is ", I think" or ", or so they say"."""
        if number >= len(self._clauses):
            return False
        start, end = self._clauses[number]
        return self._words[start] == "or" or (end - start <= 4 and self._doubts(start, end))

    def _doubts(self, start: int, end: int) -> bool:
        """Return whether a clause has a word of doubt. "May" and "Will" may be names."""
        tokens = enumerate(self._tokens[start:end])
        return any(one.word in WORDS["doubts"] and not (at and one.text in ("May", "Will")) for at, one in tokens)

    def _after_openers(self, place: int, end: int) -> int:
        """Return the position after "well", "it turns out", or a time: "last week I moved to Porto"."""
        words, before_times = self._words, WORDS["before_times"]
        place = self._skip(place, end, WORDS["openers"])
        for preface in _PREFACES:
            if words[place : place + len(preface)] == preface:
                return self._skip(place + len(preface), end, WORDS["openers"] | {"that"})
        if place < end and words[place] in before_times:
            for at in range(place + 1, min(place + 5, end)):
                if words[at] in ("i", "my") and words[at - 1] not in before_times:
                    return at if WORDS["fiction"].isdisjoint(words[place:at]) else end
        return place

    # Subjects.

    def _subject(self, place: int, end: int, *, is_first: bool) -> _Subject | None:
        words = self._words
        if place < end - 1 and words[place] in ("i", "we"):
            return _Subject(self._speaker, place + 1, is_group=words[place] == "we")
        if place < end - 1 and is_first and words[place] in WORDS["elided"]:
            return _Subject(self._speaker, place, is_elided=True)
        owner, after = self._owner(place, end)
        relation = self._relation(after, end) if owner else 0
        name, named = self._person(relation or place, end)
        if name and (relation or not owner):
            return _Subject(name, named, goes_on=relation > 0)
        whose = f"{owner}'s {' '.join(words[after:relation])}"
        return _Subject(whose, relation, goes_on=True) if relation else None

    def _owner(self, place: int, end: int) -> tuple[str, int]:
        """Read "my" or "Tom's"."""
        if place < end and self._words[place] in ("my", "our"):
            return self._speaker, place + 1
        name, after = self._person(place, end)
        return (name, after + 1) if name and self._words[after : after + 1] == ["'s"] else ("", place)

    def _relation(self, place: int, end: int) -> int:
        """Return the position after "older sister", or 0."""
        place = self._skip(place, end, WORDS["before_relatives"])
        return place + 1 if place < end and self._words[place] in WORDS["relatives"] else 0

    def _person(self, place: int, end: int) -> tuple[str, int]:
        """Read a name that the message has."""
        name, after = self.name(place, end)
        is_person = not self._names.isdisjoint(name.split()) and name.lower() not in WORDS["traits"]
        return (name, after) if is_person else ("", place)

    def _relations(self, start: int, end: int) -> Iterator[_Triple]:
        """Read "my sister Maria", "my sister is called Maria", "my sister's name is Maria", "Maria is my sister"."""
        words = self._words
        for place in range(start, end):
            if place > start and words[place] not in ("my", "our") and words[place - 1] not in _IS:
                continue
            owner, after = self._owner(place, end)
            later = self._relation(after, end) if owner else 0
            name = self._person(later, end)[0] if 0 < later < end and self._tokens[later].gap == " " else ""
            for link in _LINKS if later and not name else ():
                if words[later : later + len(link)] == link:
                    name, named = self._person(later + len(link), end)
                    is_other = link == ["is"] and (named < end or words[later + 1] in WORDS["roles"])
                    name = "" if is_other else name
                    break
            if not name and later == end and place > start + 1 and words[place - 1] in _IS:
                name, named = self.name(self._after_openers(start, end), end)
                name = name if named == place - 1 else ""
            if later and name and name != owner:
                yield Verb.INSERT, owner, f"has_{words[later - 1]}", name

    # What is said of a subject.

    def _naming(self, place: int, end: int) -> list[_Triple]:
        """Read "call me Jo" and "everyone calls me Jo"."""
        at = next((at for at in range(place, min(place + 4, end - 2)) if self._words[at] in ("call", "calls")), end)
        name = self.name(at + 2, end)[0] if self._words[at + 1 : at + 2] == ["me"] else ""
        is_asked = {"please", "you", "can", "may", "just", "always", "so"}.issuperset(self._words[place:at])
        predicate = "is_called" if is_asked else "also_known_as"
        return [(Verb.INSERT, self._speaker, predicate, name)] if name and name != self._speaker else []

    def _property(self, place: int, number: int) -> list[_Triple]:
        """Read "my address is …", "my new address: …", "my sister's birthday is …", "my favourite colour is …"."""
        words, end = self._words, self._clauses[number][1]
        owner, place = self._owner(place, end)
        relation = self._relation(place, end) if owner else 0
        if relation and words[relation : relation + 1] == ["'s"]:
            owner, place = f"{owner}'s {' '.join(words[place:relation])}", relation + 1
        verb = next((at for at in range(place, min(place + 5, end)) if words[at] in _IS), end)
        after = verb + 1
        if verb == end and number + 1 < len(self._clauses) and self._tokens[end].gap.strip() == ":":
            after, end = self._clauses[number + 1]
        if not owner or after >= end:
            return []
        what = words[self._skip(place, verb, frozenset("new current full own absolute all-time".split())) : verb]
        after = self._skip(after, end, WORDS["adverbs"])
        if what and what[0] in ("favourite", "favorite", "fave", "fav"):
            return self._favoured(owner, what[1:], after, end)
        predicate = phrases.PROPERTIES.get(" ".join(what), "")
        if not predicate or (predicate == "is_called" and relation):
            return []
        kind = phrases.VALUE_KINDS.get(predicate, predicate)
        values, _ = self.objects(kind, self._skip(after, end, frozenset(["at", "on"])), end)
        return [(Verb.UPDATE, owner, predicate, value) for value in values if value != owner]

    def _favourite(self, place: int, end: int) -> list[_Triple]:
        """Read "rye is my favourite bread"."""
        words = self._words
        verb = next((at for at in range(place, min(place + 6, end)) if words[at] in _IS), end)
        if words[verb + 1 : verb + 2] != ["my"] or words[verb + 2 : verb + 3] not in (["favourite"], ["favorite"]):
            return []
        last = next((at for at in range(verb + 3, end) if words[at] in WORDS["ends"]), end)
        return self._favoured(self._speaker, words[verb + 3 : last], place, verb)

    def _favoured(self, owner: str, what: Sequence[str], place: int, end: int) -> list[_Triple]:
        name, after = self.name(place + (self._words[place : place + 1] == ["the"]), end)
        value = self._text[self._tokens[place].start : self._tokens[after - 1].end] if name else ""
        if not name or not self.closes(after, end):
            value, after = self.noun(place, end)
        is_plain = 0 < len(what) < 4 and WORDS["not_favourites"].isdisjoint(what) and self.closes(after, end)
        return [(Verb.UPDATE, owner, f"favourite_{'_'.join(what)}", value)] if value and is_plain else []

    def _stated(self, subject: _Subject, end: int, number: int) -> Iterator[_Triple]:
        """Read the phrase after a subject, and its objects."""
        words = self._words
        positions, place, is_denied = self._verb(subject.end, end)
        is_ended = _ENDED.search(" ".join(words[subject.end : end])) is not None
        is_other = subject.is_group or subject.name != self._speaker
        for phrase in phrases.beginning_with((words[at] for at in positions[:2]), is_elided=subject.is_elided):
            after = self._matched(phrase, positions, subject)
            if not 0 <= after < end or (subject.is_group and phrase.predicate not in phrases.SHARED):
                continue
            if is_other and (phrase.predicate == "is_called" or words[place] == "based"):
                continue  # a relation, or a company
            is_perfect = words[place - 1] in WORDS["have"] and not {"for", "since", "years"}.isdisjoint(
                words[place:end]
            )
            if words[place] in WORDS["lasting_verbs"] and not is_perfect:
                continue
            is_single = subject.name != self._speaker and not subject.name.endswith(_PLURAL)
            if is_single and f"{words[place]}s" in phrase.slots[0][0]:
                continue  # "Treat Tom like a friend"
            objects, stop = self.objects(phrase.kind, after, end, number)
            if objects and not (is_denied or is_ended):
                yield from self._asserted(phrase, subject.name, objects, stop, number)
            elif objects and phrase.verb is not Verb.DELETE and words[place] not in WORDS["events"]:
                yield from _withdrawn(phrase, subject.name, objects, is_denied=is_denied)
            if objects:
                return

    def _verb(self, place: int, end: int) -> tuple[list[int], int, bool]:
        """Return the positions of a predicate, without negations and adverbs, that of its verb, and if it is denied."""
        words, positions, is_denied = self._words, list[int](), False
        while place < end:
            word = words[place]
            if word in ("not", "n't"):
                is_denied = True
            elif words[place : place + 2] in (["no", "longer"], ["used", "to"]):
                place += 1
            elif word == "been":
                positions = [place]
            elif word in WORDS["be"] or word in WORDS["have"]:
                positions.append(place)
            elif not (word in WORDS["adverbs"] or word in ("do", "does") or (word == "got" and positions)):
                break
            place += 1
        return [*positions, *range(place, end)], min(place, len(words) - 1), is_denied

    def _matched(self, phrase: Phrase, positions: Sequence[int], subject: _Subject) -> int:
        """Return the position of the object after a phrase; -1 if its words do not follow."""
        words = [self._words[at] for at in positions]
        slots, verbs = phrase.slots, phrase.slots[0][0]
        is_progressive = words[0] in WORDS["be"] and "".join(words[1:2]).endswith("ing")
        at = int(words[0] not in verbs and (words[0] in WORDS["have"] or is_progressive))
        if subject.is_elided and verbs >= WORDS["be"] and words[0] not in verbs and phrase.kind != "own_name":
            slots = slots[1:]  # "Based in Porto"
        for slot, is_required in slots:
            if at < len(words) and words[at] in slot:
                at += 1
            elif is_required:
                return -1
        return positions[at] if at < len(positions) else len(self._words)

    def _asserted(self, phrase: Phrase, name: str, objects: Sequence[str], stop: int, number: int) -> Iterator[_Triple]:
        """Yield what is stated, also after the object: "a nurse *at Bosch*", "a dog *called Rex*"."""
        end = self._clauses[number][1]
        for thing in objects:
            is_known = thing.casefold() == name.casefold() or (phrase.kind == "own_name" and self._is_named)
            if is_known or phrase.predicate == "-":
                continue  # "I'm Darryl" names the speaker, if nothing else does
            yield phrase.verb, name, phrase.predicate, thing
            if phrase.predicate in phrases.OPPOSITES:
                yield Verb.DELETE, name, phrases.OPPOSITES[phrase.predicate], thing
            for ended in phrases.ENDED_BY.get(thing, ()):
                yield Verb.DELETE, name, ended, ""
        word = self._words[stop] if stop < end else ""
        predicate, kind = phrases.CONTINUED.get((phrase.kind, word), ("", ""))
        if word == "to" and phrase.verb is Verb.DELETE:
            predicate, kind = "lives_in", "place"  # "moved from Lyon *to Nantes*"
        for value in self.objects(kind, stop + 1, end)[0] if predicate else ():
            yield Verb.UPDATE, name, predicate, value
        relation = objects[-1].lower().split()[-1]
        if phrase.predicate == "has":
            for called in self.names(stop + (word in ("called", "named")), number):
                single = {"children": "child"}.get(relation, relation.removesuffix("s"))
                yield from [(Verb.INSERT, name, f"has_{single}", called)] if single in WORDS["relatives"] else ()
        if phrase.kind == "own_name":  # "I'm Nadia, *a baker*"
            for start, last in self._clauses[number + 1 : number + 2]:
                roles = self.objects("role", start, last)[0] if self._words[start] in ("a", "an") else ()
                yield from ((Verb.UPDATE, name, "works_as", role) for role in roles)


def _withdrawn(phrase: Phrase, name: str, objects: Sequence[str], *, is_denied: bool) -> Iterator[_Triple]:
    opposite = phrases.OPPOSITES.get(phrase.predicate)
    for thing in objects:
        if opposite is None:
            yield Verb.DELETE, name, phrase.predicate, thing
        elif is_denied:  # "I don't like olives"; who used to like them may not mind them
            yield Verb.INSERT, name, opposite, thing
            yield Verb.DELETE, name, phrase.predicate, thing
