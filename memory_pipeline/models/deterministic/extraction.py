"""Facts by rules: each sentence that asserts something becomes a fact, with its dates resolved."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.facts import VERBATIM, Extraction, Fact, FactKind
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.messages import Message, Role
from memory_pipeline.domain.periods import zone_of
from memory_pipeline.domain.text.foreign_text import own_text
from memory_pipeline.domain.text.words import STOP_WORDS, stem, word_set
from memory_pipeline.models.deterministic.assertions import Assertions
from memory_pipeline.models.deterministic.language import lexicon
from memory_pipeline.models.deterministic.language.dates import DateMention, dates_in, with_dates
from memory_pipeline.models.deterministic.language.grammar import (
    IRREGULAR_PAST,
    MOST_WORDS,
    Sentence,
    Tense,
    has_verb,
    is_plain_form,
    is_regular_past,
    is_verb,
    sentences_of,
    tense_of,
)
from memory_pipeline.models.deterministic.language.languages import is_english, may_state
from memory_pipeline.models.deterministic.language.names import names_in
from memory_pipeline.models.deterministic.memory_rules import (
    Durable,
    durable_in,
    gives_task,
    lasting_triple,
    stands_alone,
    without_connective,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date, datetime

    from memory_pipeline.domain.facts import ConversationHour
    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.scopes import Scope

#: Confidence by kind; estimated, the same for all facts of a kind. A turn is verbatim.
CONFIDENCE: Final = {
    FactKind.TURN: 1.0,
    FactKind.INSTRUCTION: 0.7,
    FactKind.PREFERENCE: 0.7,
    FactKind.EVENT: 0.7,
    FactKind.PLAN: 0.6,
    FactKind.STATEMENT: 0.6,
}
#: Name and version of the rules; each name of rules begins with :data:`FAMILY`.
RULES: Final = "deterministic-7"
FAMILY: Final = "deterministic-"
#: Most sentences read of a message; the turn still has all of its text.
MOST_SENTENCES: Final = 1_000
#: Importance of a turn in which nothing was asserted.
SMALL_TALK: Final = 0.1
#: After these, a subject is described.
_DESCRIBE: Final = word_set("is was 's are were")
#: Least importance of a lasting fact, and of a durable memory other than a preference.
_LASTING: Final = 0.7
#: Importance of a sentence in another language than English.
_UNJUDGED: Final = 0.55


class DeterministicExtractor:
    """Extract facts by rules for English sentences; a :class:`memory_pipeline.domain.facts.Extractor`.

    Each message of a user or assistant gives its turn, verbatim. Each distinct sentence of a user that states something
    also gives a fact, and of an assistant what it has done, if the user's next message accepts it. Questions,
    greetings, headings, list items, captions and what a user pasted
    (:mod:`memory_pipeline.domain.text.foreign_text`) state nothing. The turn has the graph operations of a user's
    simple assertions. The sentences of a message in another language are facts if they are long enough, since no other
    rule applies. Only the first 1,000 sentences of a message are read (:data:`MOST_SENTENCES`), which bounds the work
    per message.

    ``importance`` is what a sentence is worth to somebody who reads it a year later; see :func:`_worth`. A turn is as
    important as its most important sentence.
    """

    def __init__(self, timezone: str = "UTC") -> None:
        self._timezone, self._zone = timezone, zone_of(timezone)

    @property
    def name(self) -> str:
        """Name and version, plus the time zone if it is not UTC."""
        return RULES if self._timezone == "UTC" else f"{RULES} {self._timezone}"

    def method(self, scope: Scope) -> str:
        """Return the name of the rules, the same for all agents."""
        del scope
        return self.name

    def extract(
        self, passages: Sequence[ConversationHour], recall: Callable[[], Mapping[Scope, Sequence[Operation]]]
    ) -> list[Extraction]:
        """Return the extraction of each passage."""
        del recall  # a passage's facts depend on its messages alone
        return [Extraction(tuple(self.facts_of(passage.messages))) for passage in passages]

    def facts_of(self, messages: Sequence[Message]) -> list[Fact]:
        """Return the facts of users' and assistants' messages, in order, each message's turn first. Pure."""
        memorable = [message for message in messages if message.role.is_memorable]
        return [
            fact
            for message, following in zip_longest(memorable, memorable[1:])
            for fact in self._facts(message, following)
        ]

    def _facts(self, message: Message, following: Message | None) -> list[Fact]:
        said = own_text(message.content) if message.role is Role.USER else message.content
        sentences = sentences_of(said, MOST_SENTENCES)
        names = names_in(sentences, message.name)
        said_on = message.said_at(self._zone).date()
        dates = [dates_in(sentence, said_on) for sentence in sentences]
        assertions = Assertions(message, sentences, names)
        own = set(map(id, assertions.sentences))
        in_task = gives_task(sentences)
        in_english = is_english(said)
        is_accepted = following is not None and _accepts(following, message)
        facts: dict[str, Fact] = {}
        most = SMALL_TALK
        found = zip(sentences, names, dates, strict=True)
        for position, (sentence, sentence_names, mentions) in enumerate(found, start=1):
            meaning = _meaning(sentence)
            durable, lasts = None, False
            if id(sentence) in own and not _asks(sentence):
                durable = durable_in(sentence, message.user, assertions.operations_of, in_task=in_task)
                lasts = lasting_triple(sentence, assertions.operations_of(sentence)) is not None
            # A durable sentence becomes a fact even if it asserts nothing: "Always be brief."
            if durable is None and not (
                _states(sentence, meaning, bool(mentions))
                if in_english
                else not _asks(sentence) and may_state(sentence.text)
            ):
                continue
            kind = _kind(sentence, mentions, message, said_on) if in_english else FactKind.STATEMENT
            first_person = not lexicon.FIRST_PERSON.isdisjoint(sentence.parts)
            others = [name for name in sentence_names if name != message.name]
            if others:
                addressed = {word for place, word in enumerate(sentence.words) if _is_addressed(sentence, place)}
                others = [name for name in others if name not in addressed]
            worth = _worth(sentence, meaning, kind, message, others, mentions, said_on) if in_english else _UNJUDGED
            if lasts or (durable is not None and durable.kind is not MemoryKind.PREFERENCE):
                worth = max(worth, _LASTING)
            most = max(most, worth)
            if message.role is Role.ASSISTANT and not (is_accepted and lexicon.DONE.search(sentence.text)):
                continue
            text = with_dates(sentence.text, mentions)
            if durable is not None:
                text = without_connective(text)
            fact = Fact.of(
                [message],
                kind,
                f"{message.speaker}: {text}",
                extraction_method=self.name,
                position=position,
                entities=[*sentence_names, message.name] if message.name and first_person else sentence_names,
                importance=worth,
                confidence=CONFIDENCE[kind],
                mentioned_at=mentions[0].instant if mentions else None,
            )
            facts.setdefault(fact.content, _with_durable_fields(fact, durable))
        first_date = next((mention.instant for mentions in dates for mention in mentions), None)
        turn = Fact.of(
            [message],
            FactKind.TURN,
            f"{message.speaker}: {message.content}",
            extraction_method=VERBATIM,
            entities=[name for sentence_names in names for name in sentence_names],
            importance=most,
            confidence=CONFIDENCE[FactKind.TURN],
            mentioned_at=first_date,
        )
        return [replace(turn, operations=tuple(assertions.operations())), *facts.values()]


def _accepts(following: Message, message: Message) -> bool:
    """Return whether a user's message accepts what the assistant did in the message before."""
    is_reply = message.role is Role.ASSISTANT and following.role is Role.USER
    return is_reply and "?" not in following.content and lexicon.ACCEPTS.match(following.content) is not None


def _with_durable_fields(fact: Fact, durable: Durable | None) -> Fact:
    if durable is None:
        return fact
    subject, predicate, thing = durable.triple or (None, None, None)
    return replace(fact, durable=durable.kind, subject=subject, predicate=predicate, object=thing)


def _meaning(sentence: Sentence) -> list[str]:
    """Return the meaningful words in lower case: no stop words, no politeness, no addressees."""
    meaning: list[str] = []
    for place, word in enumerate(sentence.words):
        lower = _meant(word)
        if lower and not (word[0].isupper() and _is_addressed(sentence, place)):
            meaning.append(lower)
    return meaning


@lru_cache(MOST_WORDS)
def _meant(word: str) -> str:
    """Return a meaningful word in lower case, or an empty text for another one."""
    lower = word.lower().replace("’", "'").removesuffix("'s")
    is_empty = lower in STOP_WORDS or lower in lexicon.PHATIC or lower.partition("'")[0] in STOP_WORDS
    return "" if is_empty else lower


def _is_addressed(sentence: Sentence, place: int) -> bool:
    """Return whether a word is the addressee: "Thanks, Anna!", "Hey Anna, …"."""
    if not place or not sentence.words[place][0].isupper():
        return False
    before = sentence.text[sentence.starts[place] - 2 : sentence.starts[place]]
    end = sentence.starts[place] + len(sentence.words[place])
    closes = place + 1 == len(sentence.words) or sentence.text[end] == ","
    return closes and (before == ", " or sentence.words[place - 1].lower() in lexicon.PHATIC)


def _asks(sentence: Sentence) -> bool:
    """Return whether a sentence only asks, offers, consoles or says goodbye."""
    openings = (lexicon.PROMPT, lexicon.QUESTION)
    return any(mark in sentence.text for mark in "?？؟") or any(one.match(sentence.text) for one in openings)


def _states(sentence: Sentence, meaning: Sequence[str], has_date: bool) -> bool:
    """Return whether an English sentence states something about someone or something.

    It needs a verb (also after "always" or "please"), or a number or date with three meaningful words ("Country loaf
    4.20, croissant 2.10"). With a verb, one meaningful word is enough if there is a number, a date, or a first- or
    third-person word. Otherwise it needs two, and three if it mentions "you", since less is a compliment. A heading or
    list item states something only if it begins in the first person.
    """
    parts = sentence.parts
    is_heading = sentence.text.endswith((":", "：")) or (
        sentence.is_item and parts[:1] and parts[0] not in lexicon.SELF
    )
    if not parts or _asks(sentence) or is_heading:
        return False
    is_concrete = has_date or any(word[0].isdigit() for word in meaning)
    if not has_verb(parts) and not lexicon.INSTRUCTION_START.match(sentence.text):
        return is_concrete and len(meaning) >= 3
    if is_concrete or not (lexicon.FIRST_PERSON.isdisjoint(parts) and lexicon.THIRD_PERSON.isdisjoint(parts)):
        return bool(meaning)
    return len(meaning) >= (2 if lexicon.SECOND_PERSON.isdisjoint(parts) else 3)


def _kind(sentence: Sentence, mentions: Sequence[DateMention], message: Message, said_on: date) -> FactKind:
    text = sentence.text
    if message.role is Role.USER and _instructs(sentence):
        return FactKind.INSTRUCTION
    if lexicon.PREFERENCE_OPENING.search(text):
        return FactKind.PREFERENCE
    tense = tense_of(sentence.parts)
    if tense is Tense.FUTURE or any(mention.day > said_on for mention in mentions) or lexicon.PLAN.search(text):
        return FactKind.PLAN
    return FactKind.EVENT if tense is Tense.PAST else FactKind.STATEMENT


def _instructs(sentence: Sentence) -> bool:
    if lexicon.INSTRUCTION_START.match(sentence.text) or lexicon.INSTRUCTION_INSIDE.search(sentence.text):
        return True
    verb, *after = [part for part in sentence.parts[:3] if part not in ("and", "then", "so", "also")] or [""]
    return (
        is_plain_form(verb)
        and verb not in lexicon.ELLIPTIC_VERBS
        and after[:1] != []
        and after[0] in lexicon.IMPERATIVE_OBJECTS
    )


def _worth(
    sentence: Sentence,
    meaning: Sequence[str],
    kind: FactKind,
    message: Message,
    others: Sequence[str],
    mentions: Sequence[DateMention],
    said_on: date,
) -> float:
    """Return what an English sentence is worth later, 0.05 to 1, with 2 decimals.

    Worth more is what speakers say about themselves and named others, what lasts, what happened, habits, and what is
    concrete. Worth less is what is vague, a trifle, about the listener or the task at hand, or unclear without the
    sentence before it.
    """
    parts = sentence.parts
    is_self = not lexicon.SELF.isdisjoint(parts) or message.name in sentence.words or _omits_subject(sentence)
    is_group = not is_self and not lexicon.FIRST_PERSON.isdisjoint(parts)
    is_named = not is_self and any(map(sentence.text.startswith, others)) and _DESCRIBE.isdisjoint(parts[1:2])
    is_request = kind is FactKind.INSTRUCTION or not lexicon.REQUESTS.isdisjoint(parts[:1]) or "please" in parts
    is_standing = is_request and not lexicon.STANDING.isdisjoint(parts)
    addresses = not lexicon.SECOND_PERSON.isdisjoint(parts) and not is_standing
    lasts = any(stem(word) in lexicon.LASTING_WORDS for word in meaning)
    is_past = tense_of(parts) is Tense.PAST
    owns = any(part in lexicon.OWN and _is_concrete(after) for part, after in pairwise(parts))
    is_habit = not lexicon.HABITS.isdisjoint(parts)
    has_number = any(word[0].isdigit() for word in meaning)
    contents = [word for word in meaning if _is_concrete(word)]
    total = (
        0.25 * (is_self or is_named)
        + 0.15 * is_group
        + 0.1 * owns
        + 0.1 * lasts
        + 0.1 * bool(others)
        + 0.05 * has_number
        + 0.15 * (kind is FactKind.PREFERENCE)
        + 0.1 * is_past
        + 0.1 * bool(mentions)
        + 0.05 * any(mention.day != said_on for mention in mentions)
        + 0.1 * any(mention.day > said_on for mention in mentions)
        + 0.1 * bool(contents)
        + 0.05 * (len(contents) > 1)
        + 0.05 * (len(contents) > 4)
        + 0.1 * is_habit
        + 0.5 * is_standing
        - 0.3 * (is_request and not is_standing)
        - 0.15 * (kind is not FactKind.PREFERENCE and not is_habit and not lexicon.PASSING.isdisjoint(parts))
        - 0.1 * (not lexicon.NEGATION.isdisjoint(parts) and kind is not FactKind.PREFERENCE)
        - 0.25 * (not is_habit and not lexicon.UNREAL.isdisjoint(parts))
        - 0.2 * (not (is_habit or lasts) and not lexicon.TRIFLES.isdisjoint(parts))
        - 0.15 * (lexicon.TASK_AT_HAND.search(sentence.text) is not None)
        - 0.2 * addresses
        - 0.1 * (parts[0] in lexicon.CONNECTIVES)
        - 0.25 * (parts[0] in lexicon.LEANING or not stands_alone(sentence.text))
    )
    return round(min(max(total, 0.05), 1.0), 2)


def _is_concrete(word: str) -> bool:
    return not (word in lexicon.ABSTRACT or is_verb(word) or word.endswith("ly"))


def _omits_subject(sentence: Sentence) -> bool:
    """Return whether a sentence begins with its verb: "Just finished the book", "Moved to Porto"."""
    first = next((part for part in sentence.parts if part not in ("just", "also", "recently", "been")), "")
    return is_regular_past(first) or first in IRREGULAR_PAST


def triple_of(text: str, scope: Scope, at: datetime) -> tuple[str, str, str] | None:
    """Return subject, predicate and object of a text, if it is one sentence that states a lasting fact; else None.

    It may be about anybody. "I" is the user of the scope. `at` is the time of the text.
    """
    sentences = sentences_of(text, 2)
    if len(sentences) != 1 or (scope.user_id is None and not lexicon.FIRST_PERSON.isdisjoint(sentences[0].parts)):
        return None
    said = Message("", scope, "", None, (), None, 0, Role.USER, None, text, at, at)
    return lasting_triple(sentences[0], Assertions(said, sentences, names_in(sentences)).operations())
