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
from memory_pipeline.models.deterministic.objects import ObjectReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.models.deterministic.language.grammar import Sentence
    from memory_pipeline.models.deterministic.phrases import Phrase


#: What links "my sister" and a name.
_LINKS = [text.split() for text in ("'s name is", "is called", "is named", "'s called", "is")]
#: Words of somebody who asks for a name: "you can call me Jo".
_ASKING = frozenset(["please", "you", "can", "may", "just", "always", "so"])
_IS = frozenset(["is", "are", "'s"])
_PLURAL = ("s", "children")
_AT = frozenset(["at", "on"])
_NEW = frozenset(["new", "current", "full", "own", "absolute", "all-time"])
_ENDED = re.compile(r"\b(?:any ?more|any longer|no longer|used to)\b")


class _Subject(NamedTuple):
    """Whom a clause is about: "I", "we" (a group), or an "I" that is left out ("Moved to Porto")."""

    name: str
    end: int
    is_group: bool = False
    is_elided: bool = False


class _Triple(NamedTuple):
    """What a sentence states, or ends."""

    verb: Verb
    subject: str
    predicate: str
    object: str


class Assertions:
    """The assertions of one message; none unless a user wrote it. Pure: they depend on the message alone.

    `sentences` come from :func:`grammar.sentences_of`, `names` (those in each sentence) from :func:`names.names_in`.
    The attribute `sentences` has those that the user says, not those after somebody else began to write ("This is Leo,
    I am using Mia's phone").
    """

    def __init__(self, message: Message, sentences: Sequence[Sentence], names: Iterable[Iterable[str]]) -> None:
        is_users = message.role is Role.USER
        self.sentences = list(_own(sentences, message)) if is_users else []
        self._message = message
        self._names = frozenset(word for found in names for name in found for word in name.split())

    def operations(self) -> list[Operation]:
        """Return the distinct operations of the message, in order."""
        return self._operations(self.sentences)

    def operations_of(self, sentence: Sentence) -> list[Operation]:
        """Return the operations of one sentence, as if it were in the message."""
        return self._operations([sentence])

    def _operations(self, sentences: Iterable[Sentence]) -> list[Operation]:
        triples = dict.fromkeys(
            triple
            for sentence in sentences
            if len(sentence.words) > 1 and len(sentence.text) <= MAX_LENGTH and "?" not in sentence.text
            for triple in _Reader(sentence.text, self._message, self._names).triples()
        )
        return [
            Operation.of(
                triple.verb.value,
                triple.subject,
                triple.predicate,
                triple.object,
                confidence=confidence_of(triple.predicate),
                message_ids=(self._message.id,),
                event_at=self._message.sent_at,
                conversation_id=self._message.conversation_id,
            )
            for triple in triples
            if snake_case(triple.predicate) and all(len(term) <= MAX_TERM for term in triple[1:])
        ]


def confidence_of(predicate: str) -> float:
    """Return the confidence of a predicate that the rules extract."""
    return 0.9 if predicate in phrases.CERTAIN else 0.7 if predicate in phrases.UNSURE else 0.8


def _own(sentences: Iterable[Sentence], message: Message) -> Iterator[Sentence]:
    """Yield the sentences before another person begins to write with the user's account, or a play begins."""
    for sentence in sentences:
        introduced = phrases.INTRODUCED.match(sentence.text)
        name = introduced and (introduced["one"] or introduced["two"])
        is_other = message.name and name and name not in message.name.split() and name.lower() not in phrases.OPENERS
        if is_other or phrases.BORROWED.search(sentence.text) or not phrases.PLAY.isdisjoint(sentence.parts[:3]):
            return
        yield sentence


class _Reader(ObjectReader):
    """Reads what one sentence states."""

    def triples(self) -> Iterator[_Triple]:
        """Yield what the sentence states."""
        is_task = not phrases.TASKS.isdisjoint(self._words[:3]) or not phrases.PLAY.isdisjoint(self._words)
        if is_task or not phrases.QUOTES.isdisjoint(self._text):
            return
        before: _Subject | None = None  # of the clause before, if that stated something
        for number, (start, end) in enumerate(self._clauses):
            words = self._words[start:end]
            if words[0] in phrases.STOPS:
                return  # "If I lived in Rome, …"
            is_stopped = not phrases.STOPS.isdisjoint(words)
            stated: list[_Triple] = []
            subject = None
            if not is_stopped and not self._doubts(start, end) and not self._is_taken_back(number + 1):
                yield from self._relations(start, end)
                place = self._after_openers(start, end)
                stated = self._naming(place, end) or self._property(place, end) or self._favourite(place, end)
                if not stated:
                    subject = self._subject(place, end, is_first=number == 0)
                    if subject is None and before is not None and words[0] in ("and", "but"):
                        # "Nina is six and allergic to nuts" leaves out the second "is".
                        subject = before._replace(end=place, is_elided=self._words[before.end] in phrases.BE)
                    stated = list(self._stated(subject, end, number)) if subject else []
            yield from stated
            before = subject if stated else None
            if is_stopped:
                return

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
        return any(one.word in phrases.DOUBTS and not (at and one.text in ("May", "Will")) for at, one in tokens)

    def _after_openers(self, place: int, end: int) -> int:
        """Return the position after "well", or a time: "last week I moved to Porto"."""
        place = self._skip(place, end, phrases.OPENERS)
        if place < end and self._words[place] in phrases.BEFORE_TIMES:
            for at in range(place + 1, min(place + 5, end)):
                if self._words[at] in ("i", "my") and self._words[at - 1] not in phrases.BEFORE_TIMES:
                    return at if phrases.FICTION.isdisjoint(self._words[place:at]) else end
        return place

    # Subjects.

    def _subject(self, place: int, end: int, *, is_first: bool) -> _Subject | None:
        words = self._words
        if place >= end - 1:
            return None
        if words[place] in ("i", "we"):
            return _Subject(self._speaker, place + 1, is_group=words[place] == "we")
        if is_first and words[place] in phrases.ELIDED:
            return _Subject(self._speaker, place, is_elided=True)
        owner, after = self._owner(place, end)
        relation = self._relation(after, end) if owner else 0
        name, named = self._person(relation or place, end)
        if name and (relation or not owner):
            return _Subject(name, named)
        return _Subject(f"{owner}'s {' '.join(words[after:relation])}", relation) if relation else None

    def _owner(self, place: int, end: int) -> tuple[str, int]:
        """Read "my" or "Tom's"."""
        if place < end and self._words[place] in ("my", "our"):
            return self._speaker, place + 1
        name, after = self._person(place, end)
        return (name, after + 1) if name and self._words[after : after + 1] == ["'s"] else ("", place)

    def _relation(self, place: int, end: int) -> int:
        """Return the position after "older sister", or 0."""
        place = self._skip(place, end, phrases.BEFORE_RELATIVES)
        return place + 1 if place < end and self._words[place] in phrases.RELATIVES else 0

    def _person(self, place: int, end: int) -> tuple[str, int]:
        """Read a name that the message has."""
        name, after = self.name(place, end)
        is_person = not self._names.isdisjoint(name.split()) and name.lower() not in phrases.TRAITS
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
                    is_other = link == ["is"] and (named < end or words[later + 1] in phrases.ROLES)
                    name = "" if is_other else name
                    break
            if not name and later == end and place > start + 1 and words[place - 1] in _IS:
                name, named = self.name(self._after_openers(start, end), end)
                name = name if named == place - 1 else ""
            if later and name and name != owner:
                yield _Triple(Verb.INSERT, owner, f"has_{words[later - 1]}", name)

    # What is said of a subject.

    def _naming(self, place: int, end: int) -> list[_Triple]:
        """Read "call me Jo" and "everyone calls me Jo"."""
        at = next((at for at in range(place, min(place + 4, end - 2)) if self._words[at] in ("call", "calls")), end)
        name = self.name(at + 2, end)[0] if self._words[at + 1 : at + 2] == ["me"] else ""
        predicate = "is_called" if _ASKING.issuperset(self._words[place:at]) else "also_known_as"
        return [_Triple(Verb.INSERT, self._speaker, predicate, name)] if name and name != self._speaker else []

    def _property(self, place: int, end: int) -> list[_Triple]:
        """Read "my address is …", "my sister's birthday is …", "my favourite colour is …"."""
        words = self._words
        owner, place = self._owner(place, end)
        relation = self._relation(place, end) if owner else 0
        if relation and words[relation : relation + 1] == ["'s"]:
            owner, place = f"{owner}'s {' '.join(words[place:relation])}", relation + 1
        verb = next((at for at in range(place, min(place + 5, end)) if words[at] in _IS), 0)
        if not owner or not verb:
            return []
        what = words[self._skip(place, verb, _NEW) : verb]
        after = self._skip(verb + 1, end, phrases.ADVERBS)
        predicate = phrases.PROPERTIES.get(" ".join(what), "")
        if what and what[0] in phrases.FAVOURITE:
            return self._favoured(owner, what[1:], after, end)
        if not predicate or (predicate == "is_called" and relation):
            return []
        kind = phrases.VALUE_KINDS.get(predicate, predicate)
        values, _ = self.objects(kind, self._skip(after, end, _AT), end, None)
        return [_Triple(Verb.UPDATE, owner, predicate, value) for value in values if value != owner]

    def _favourite(self, place: int, end: int) -> list[_Triple]:
        """Read "rye is my favourite bread"."""
        words = self._words
        verb = next((at for at in range(place, min(place + 6, end)) if words[at] in _IS), end)
        if words[verb + 1 : verb + 2] != ["my"] or phrases.FAVOURITE.isdisjoint(words[verb + 2 : verb + 3]):
            return []
        last = next((at for at in range(verb + 3, end) if words[at] in phrases.ENDS), end)
        return self._favoured(self._speaker, words[verb + 3 : last], place, verb)

    def _favoured(self, owner: str, what: Sequence[str], place: int, end: int) -> list[_Triple]:
        name, after = self.name(place + (self._words[place : place + 1] == ["the"]), end)
        value = self._text[self._tokens[place].start : self._tokens[after - 1].end] if name else ""
        if not name or not self.closes(after, end):
            value, after = self.noun(place, end)
        is_plain = 0 < len(what) < 4 and phrases.NOT_FAVOURITES.isdisjoint(what) and self.closes(after, end)
        return [_Triple(Verb.UPDATE, owner, f"favourite_{'_'.join(what)}", value)] if value and is_plain else []

    def _stated(self, subject: _Subject, end: int, number: int) -> Iterator[_Triple]:
        """Read the phrase after a subject, and its objects."""
        words = self._words
        positions, place, is_denied = self._verb(subject.end, end)
        is_ended = _ENDED.search(" ".join(words[subject.end : end])) is not None
        is_other = subject.is_group or subject.name != self._speaker
        for phrase in phrases.TABLE if positions else ():
            after = self._matched(phrase, positions, subject)
            if not 0 <= after < end or (subject.is_group and phrase.predicate not in phrases.SHARED):
                continue
            if is_other and (phrase.predicate == "is_called" or words[place] == "based"):
                continue  # a relation, or a company
            if words[place] in phrases.LASTING and not self._lasts(place, end):
                continue
            is_single = subject.name != self._speaker and not subject.name.endswith(_PLURAL)
            if is_single and f"{words[place]}s" in phrase.slots[0][0]:
                continue  # "Treat Tom like a friend"
            objects, stop = self.objects(phrase.kind, after, end, number)
            if not objects:
                continue
            if not (is_denied or is_ended):
                yield from self._asserted(phrase, subject.name, objects, stop, end)
                following = self._clauses[number + 1 : number + 2] if phrase.kind == "own_name" else ()
                for start, last in following:  # "I'm Nadia, *a baker*"
                    roles = self.objects("role", start, last, None)[0] if words[start] in ("a", "an") else ()
                    yield from (_Triple(Verb.UPDATE, subject.name, "works_as", role) for role in roles)
            elif phrase.verb is not Verb.DELETE and words[place] not in phrases.EVENTS:
                yield from self._withdrawn(phrase, subject.name, objects, is_denied=is_denied)
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
            elif word in phrases.BE or word in phrases.HAVE:
                positions.append(place)
            elif not (word in phrases.ADVERBS or word in ("do", "does") or (word == "got" and positions)):
                break
            place += 1
        return [*positions, *range(place, end)], min(place, len(words) - 1), is_denied

    def _matched(self, phrase: Phrase, positions: Sequence[int], subject: _Subject) -> int:
        """Return the position of the object after a phrase; -1 if its words do not follow."""
        words = [self._words[at] for at in positions]
        slots, verbs = phrase.slots, phrase.slots[0][0]
        is_progressive = words[0] in phrases.BE and "".join(words[1:2]).endswith("ing")
        at = int(words[0] not in verbs and (words[0] in phrases.HAVE or is_progressive))
        if subject.is_elided and verbs >= phrases.BE and words[0] not in verbs and phrase.kind != "own_name":
            slots = slots[1:]  # "Based in Porto"
        for slot, is_required in slots:
            if at < len(words) and words[at] in slot:
                at += 1
            elif is_required:
                return -1
        return positions[at] if at < len(positions) else len(self._words)

    def _lasts(self, place: int, end: int) -> bool:
        is_perfect = self._words[place - 1] in phrases.HAVE
        return is_perfect and not {"for", "since", "years"}.isdisjoint(self._words[place:end])

    def _asserted(self, phrase: Phrase, name: str, objects: Sequence[str], stop: int, end: int) -> Iterator[_Triple]:
        """Yield what is stated, also after the object: "a nurse *at Bosch*", "a dog *called Rex*"."""
        for thing in objects:
            if thing.casefold() == name.casefold() or (phrase.kind == "own_name" and self._is_named):
                continue  # "I'm Darryl" names the speaker, if nothing else does
            yield _Triple(phrase.verb, name, phrase.predicate, thing)
            if phrase.predicate in phrases.OPPOSITES:
                yield _Triple(Verb.DELETE, name, phrases.OPPOSITES[phrase.predicate], thing)
            for ended in phrases.ENDED_BY.get(thing, ()):
                yield _Triple(Verb.DELETE, name, ended, "")
        word = self._words[stop] if stop < end else ""
        predicate, kind = phrases.CONTINUED.get((phrase.kind, word), ("", ""))
        if word == "to" and phrase.verb is Verb.DELETE:
            predicate, kind = "lives_in", "place"  # "moved from Lyon *to Nantes*"
        if predicate:
            for value in self.objects(kind, stop + 1, end, None)[0]:
                yield _Triple(Verb.UPDATE, name, predicate, value)
        relation = objects[-1].lower().split()[-1]
        if phrase.predicate == "has" and word in ("called", "named") and relation in phrases.RELATIVES:
            called, _ = self.name(stop + 1, end)
            if called:
                yield _Triple(Verb.INSERT, name, f"has_{relation}", called)

    @staticmethod
    def _withdrawn(phrase: Phrase, name: str, objects: Sequence[str], *, is_denied: bool) -> Iterator[_Triple]:
        opposite = phrases.OPPOSITES.get(phrase.predicate)
        for thing in objects:
            if opposite is None:
                yield _Triple(Verb.DELETE, name, phrase.predicate, thing)
            elif is_denied:  # "I don't like olives"; who used to like them may not mind them
                yield _Triple(Verb.INSERT, name, opposite, thing)
                yield _Triple(Verb.DELETE, name, phrase.predicate, thing)
