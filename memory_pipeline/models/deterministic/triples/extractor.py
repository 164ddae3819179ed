"""Triples by rules: graph operations for the simple assertions in a user's message.

A sentence is read left to right, without a parser:

1. It is split into *clauses* at punctuation and at words such as "and" and "because". Questions are skipped, and so
   are clauses with a hedge ("maybe"), conditional clauses, and everything after "she said".
2. A clause must begin with a *subject*: "I", "my sister (Maria)", "Nadia('s brother)", "the rent". No "he" or "it".
3. Next comes a *verb*, perhaps negated, in a form that asserts something; see ``patterns.Form``.
4. The ``patterns.PATTERNS`` of that verb give the predicate and the kind of *object* that must follow. With an object
   of another kind the clause gives nothing.

To add a predicate, add a line to that table. Each step continues where the previous one ended, and sentences are short,
so the time is linear in the length of a message.

Only *users'* messages are read: assistants mostly repeat or guess.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.graph.operations import MAX_TERM, Operation, snake_case
from memory_pipeline.domain.messages import Role
from memory_pipeline.models.deterministic.language.grammar import MAX_LENGTH
from memory_pipeline.models.deterministic.triples import patterns
from memory_pipeline.models.deterministic.triples.clauses import FORMS, ClauseSubject, SpokenTriple, Subjects, Verbs
from memory_pipeline.models.deterministic.triples.objects import Objects
from memory_pipeline.models.deterministic.triples.patterns import CONFIDENCE
from memory_pipeline.models.deterministic.triples.phrases import tokens_of
from memory_pipeline.models.deterministic.triples.predicates import Predicates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.models.deterministic.language.grammar import Sentence


_QUOTES: Final = frozenset('"“”„«»')
#: A sentence without one of these …
_VERBS: Final = frozenset(FORMS) | {
    "'s",
    "'m",
    "'re",
    "am",
    "are",
    "was",
    "'ve",
    "call",
    "calls",
    "stand",
    "bear",
    "abide",
}
#: … or of these, before a relation: "I saw my sister Maria".
_OURS: Final = frozenset(["my", "our"])
#: Characters after the previous sentence within which the next one is searched for.
_FAR: Final = 2 * MAX_LENGTH


class Assertions:
    """The assertions of one message; none unless a user wrote it. Pure: they depend on the message alone.

    `sentences` come from :func:`grammar.sentences_of`, `names` (those in each sentence) from :func:`names.names_in`.
    The attribute `sentences` has those outside quotations.
    """

    def __init__(self, message: Message, sentences: Sequence[Sentence], names: Iterable[Iterable[str]]) -> None:
        self.sentences = list(_unquoted_sentences(sentences, message.content)) if message.role is Role.USER else []
        self._message = message
        self._said_on = message.sent_at.astimezone(UTC).date()
        self._names = frozenset(word.lower() for found in names for name in found for word in name.split())
        self._read: dict[str, tuple[SpokenTriple, ...]] = {}

    def operations(self) -> list[Operation]:
        """Return the distinct operations of the message, in order."""
        return self._operations(self.sentences)

    def operations_of(self, sentence: Sentence) -> list[Operation]:
        """Return the operations of one sentence, as if it were in the message."""
        return self._operations([sentence])

    def _operations(self, sentences: Iterable[Sentence]) -> list[Operation]:
        triples = dict.fromkeys(triple for sentence in sentences for triple in self._triples(sentence))
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
            if snake_case(triple.predicate) and all(term.strip() and len(term) <= MAX_TERM for term in triple[1:])
        ]

    def _triples(self, sentence: Sentence) -> tuple[SpokenTriple, ...]:
        if len(sentence.words) < 2 or len(sentence.text) > MAX_LENGTH or sentence.is_question:
            return ()
        found = self._read.get(sentence.text)
        if found is None:
            speaker = self._message.user
            found = tuple(_SentenceReader(sentence, speaker, self._names, self._said_on).triples())
            self._read[sentence.text] = found
        return found


def confidence_of(predicate: str) -> float:
    """Return the confidence of a predicate that the rules extract, by ``patterns.CONFIDENCE``."""
    known = CONFIDENCE.get(predicate)
    return CONFIDENCE[predicate.partition("_")[0] + "_"] if known is None else known


def _unquoted_sentences(sentences: Sequence[Sentence], content: str) -> Iterator[Sentence]:
    """Yield the sentences outside quotations, which may span several sentences: "I like tea. I hate it," she said.

    Each sentence is searched for shortly after the previous one, so that the time stays linear. One that is not found
    there (its line breaks became blanks) counts as unquoted.
    """
    if _QUOTES.isdisjoint(content):
        yield from sentences
        return
    done = 0
    is_quoted = False
    for sentence in sentences:
        start = content.find(sentence.text, done, done + len(sentence.text) + _FAR)
        if start >= 0:
            for character in content[done:start]:
                if character in _QUOTES:
                    is_quoted = character in "“„«" or (character == '"' and not is_quoted)
                elif character == "\n":
                    is_quoted = False
            done = start
        if start < 0 or not is_quoted:
            yield sentence


class _SentenceReader:
    def __init__(self, sentence: Sentence, speaker: str, names: frozenset[str], said_on: date) -> None:
        self._tokens = tokens_of(sentence)
        self._words = [token.word for token in self._tokens]
        objects = Objects(sentence, self._tokens, said_on, self._begins_clause)
        self._subjects = Subjects(self._tokens, objects, speaker, names)
        self._verbs = Verbs(self._tokens)
        self._predicates = Predicates(self._tokens, self._subjects, self._verbs, objects, speaker)
        self._last: ClauseSubject | None = None
        self._in_quotes = self._quoted()

    def triples(self) -> Iterator[SpokenTriple]:
        if _VERBS.isdisjoint(self._words) and _OURS.isdisjoint(self._words):
            return
        starts = [place for place in range(len(self._tokens)) if self._may_start(place)]
        if not patterns.NOT_MEANT.isdisjoint(self._words) or not patterns.TASKS.isdisjoint(self._words[:3]):
            return
        for number, start in enumerate(starts):
            end = starts[number + 1] if number + 1 < len(starts) else len(self._tokens)
            words = self._words[start:end]
            if ":" in self._tokens[start].gap and patterns.BEFORE_COLONS.isdisjoint(self._words[:start]):
                return  # "Tom: I live in Rome", "Write a poem: …"
            if words[0] in patterns.CONDITIONS or (start == 0 and words[0] in patterns.WEAKENING):
                return
            following = starts[number + 1 : number + 3]
            if self._is_sure(start, end) and not self._is_taken_back(following):
                yield from self._clause(start)
                reported = next((at for at in range(start, end) if self._words[at] in patterns.REPORTS), end)
                yield from self._subjects.related(start, reported)
            else:
                self._last = None
            if self._reports(words) or not patterns.CONDITIONS.isdisjoint(words):
                return

    @staticmethod
    def _reports(words: Sequence[str]) -> bool:
        """Return whether a clause attributes the rest of the sentence to somebody."""
        return not patterns.REPORTS.isdisjoint(words) or (words[0] in patterns.CALLERS and "say" in words)

    def _quoted(self) -> list[bool]:
        inside, found = False, []
        for token in self._tokens:
            inside ^= sum(map(token.gap.count, '"“”„«»')) % 2 == 1
            found.append(inside)
        return found

    def _may_start(self, place: int) -> bool:
        token = self._tokens[place]
        if place == 0:
            return True
        return token.word in patterns.JOINTS or (token.is_cut_off and token.gap.strip() != '"')

    def _is_sure(self, start: int, end: int) -> bool:
        if self._in_quotes[start]:
            return False
        return all(
            word not in patterns.HEDGES
            or (word in ("may", "will") and self._tokens[place].is_capital and place > start)
            for place, word in enumerate(self._words[start:end], start)
        )

    def _is_taken_back(self, following: Sequence[int]) -> bool:
        """Return whether a clause is followed by ", I think" or ", or so they say"."""
        if not following:
            return False
        start = following[0]
        end = following[1] if len(following) > 1 else len(self._tokens)
        words = self._words[start:end]
        is_last = end == len(self._tokens)
        return words[0] == "or" or (is_last and len(words) <= 4 and not patterns.HEDGES.isdisjoint(words))

    def _clause(self, start: int) -> Iterator[SpokenTriple]:
        place = self._after_openers(start)
        before, self._last = self._last, None
        if place >= len(self._tokens):
            return
        found = self._predicates.property(place) or self._predicates.calling(place) or self._predicates.deadline(place)
        if not found and self._words[start] not in ("and", "but"):
            found = self._predicates.favourite(place)
        if found:
            yield from found
            return
        subject = self._subjects.subject(place)
        if subject is None:
            if before is not None and self._words[start] in ("and", "but") and self._predicates.heads(before, place):
                subject = before._replace(end=place, found=())
            else:
                return
        self._last = subject
        yield from subject.found
        yield from self._predicates.predicates(subject)

    def _after_openers(self, place: int) -> int:
        """Return the position after a clause's openers ("well, by the way, …") and a time before "I"."""
        while place < len(self._tokens):
            phrase = next(
                (
                    words
                    for words in patterns.OPENINGS.get(self._words[place], ())
                    if tuple(self._words[place : place + len(words)]) == words
                ),
                None,
            )
            if phrase:
                place += len(phrase)
            elif self._words[place] in patterns.OPENERS:
                place += 1
            else:
                break
        if place < len(self._tokens) and self._words[place] in patterns.BEFORE_SUBJECTS:
            for later in range(place + 1, min(place + 6, len(self._tokens))):
                if self._tokens[later].is_cut_off or self._words[later] in patterns.NOT_BEFORE_SUBJECTS:
                    break
                is_subject = self._words[later] == "i" or (
                    self._words[later] == "my" and self._words[later - 1] not in patterns.PREPOSITIONS
                )
                if is_subject and self._subjects.subject(later):
                    return later
        return place

    def _begins_clause(self, place: int) -> bool:
        """Return whether a clause, a subject and a known verb, begins at "and" or at a word after a comma."""
        first = self._after_openers(place)
        if first >= len(self._words):
            return False
        if self._words[first] in patterns.PRONOUNS:
            return True
        subject = self._subjects.subject(first)
        if subject:
            verb = self._verbs.skip_adverbs(subject.end)
            is_verb = verb < len(self._words) and self._words[verb] in patterns.ANY_VERBS
            return is_verb or bool(self._verbs.verbs(subject, subject.end))
        return (
            self._words[place] in ("and", "but")
            and self._last is not None
            and self._predicates.heads(self._last, first)
        )
