"""Rules for durable memories: what of a sentence stays true until it is revoked, and how memories are curated.

The first of these that fits decides; whatever fits none stays working memory:

1. an *instruction*: what a user asks of an agent for good ("Always quote prices in euros", "call me Annie");
2. a *rule*: what everybody is to do ("The policy is …", "Every invoice must be signed");
3. a *decision* ("We have decided to …");
4. a triple by a predicate that lasts, or that it holds no longer: a *preference* where users say what they like, or
   else a *fact*;
5. a *preference* in other words ("My favourite bread is rye");
6. what names or numbers something ("The alarm code is 4411"), a *fact*;
7. how things stand at one moment ("We have 40 sacks in stock"), an *observation* that is soon no longer so;
8. what somebody noticed to come again and again, and a triple that is only supposed ("I think Tom lives in Porto"), an
   *observation*;
9. what an agent is told to remember, a *fact*.

What an assistant says is not durable: it mostly repeats, or guesses. What it has learnt it can keep itself.
What is asked for once ("Remind me tomorrow"), wishes, compliments, guesses ("that must be nice") and events are not
durable; see :mod:`.language.lexicon`, which holds the words.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.graph.operations import Verb
from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.memories.decay import days_between
from memory_pipeline.domain.memories.deduplication import union
from memory_pipeline.domain.memories.record import ENDED, MemoryKind
from memory_pipeline.models.deterministic.language import lexicon as cues
from memory_pipeline.models.deterministic.language.grammar import (
    IRREGULAR_PAST,
    Sentence,
    Tense,
    is_regular_past,
    tense_of,
)
from memory_pipeline.models.deterministic.language.lexicon import SECOND_PERSON

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period


#: How sure the rules are of what is only supposed, or said by an assistant.
SUPPOSED: Final = 0.4

_VOCABULARY: Final = Vocabulary()
_PARTICIPLES: Final = frozenset(
    ["been", "done", "given", "hidden", "kept", "known", "put", "read", "set", "shut", "worn"]
)


@dataclass(frozen=True, slots=True)
class Durable:
    """As what a sentence is kept.

    Attributes:
        kind: as which kind of memory.
        is_point_in_time: whether it says how things stand at one moment.
        triple: subject, predicate and object, where it says one thing of one.
        is_supposed: whether it is less sure than the rules otherwise are.
    """

    kind: MemoryKind
    is_point_in_time: bool = False
    triple: tuple[str, str, str] | None = None
    is_supposed: bool = False


def durable_in(
    sentence: Sentence,
    speaker: str,
    operations: Callable[[Sentence], Sequence[Operation]],
    *,
    has_date: bool = False,
) -> Durable | None:
    """Return as what a sentence that asserts something is to be kept; None if it is not.

    Pure.

    Args:
        sentence: of a user, no question, and in nobody else's words.
        speaker: as triples name who says it.
        operations: returns what a sentence of the same message changes in the graph.
        has_date: whether it names a day.
    """
    found = _Judging(sentence, speaker, operations, has_date).found()
    is_meant = (
        found is not None and not cues.NOT_MEANT.search(sentence.text) and not cues.CONDITION.match(sentence.text)
    )
    return found if is_meant else None


class _Judging:
    """One sentence, and what decides as what it is kept."""

    def __init__(
        self, sentence: Sentence, speaker: str, operations: Callable[[Sentence], Sequence[Operation]], has_date: bool
    ) -> None:
        self._sentence = sentence
        self._text = sentence.text
        self._speaker = speaker
        self._operations = operations
        self._has_date = has_date
        self._has_cue = not cues.WORDS.isdisjoint(sentence.parts)

    def found(self) -> Durable | None:
        """Return as what it is kept."""
        if not self._has_cue:
            return self._said_of_one()
        judges = (
            self._instruction, self._rule, self._decision, self._said_of_one, self._preference, self._identified,
            self._standing_now, self._regularity, self._supposed, self._reminder,
        )  # fmt: skip
        return next((found for judge in judges if (found := judge()) is not None), None)

    @property
    def _is_present(self) -> bool:
        return tense_of(self._sentence.parts) is Tense.PRESENT

    def _instruction(self) -> Durable | None:
        if not _instructs(self._text):
            return None
        named = self._triple(self._sentence, lambda one: one.predicate == "is_called")
        return Durable(MemoryKind.INSTRUCTION, triple=named)

    def _rule(self) -> Durable | None:
        return Durable(MemoryKind.RULE) if _is_rule(self._text, self._has_date) else None

    def _decision(self) -> Durable | None:
        return Durable(MemoryKind.DECISION) if _decides(self._text) else None

    def _said_of_one(self) -> Durable | None:
        triple = self._triple(self._sentence, _lasts)
        if triple is None:
            return self._ended()
        is_now = cues.NOW.search(self._text) is not None and self._is_present
        kind = MemoryKind.PREFERENCE if _is_liking(triple[1]) else MemoryKind.FACT
        return Durable(kind, is_point_in_time=is_now and triple[1] in cues.CHANGING, triple=triple)

    def _ended(self) -> Durable | None:
        """Return that something which lasts has come to an end: "I no longer live in Porto"."""
        for one in self._operations(self._sentence):
            if one.verb is Verb.DELETE and _lasts(one) and one.object and not _is_liking(one.predicate):
                return Durable(MemoryKind.FACT, triple=(one.subject, f"{ENDED}{one.predicate}", one.object))
        return None

    def _preference(self) -> Durable | None:
        is_one = not self._has_date and cues.PREFERENCE.search(self._text) is not None and self._is_present
        return Durable(MemoryKind.PREFERENCE) if is_one else None

    def _identified(self) -> Durable | None:
        return Durable(MemoryKind.FACT) if cues.IDENTIFIED.search(self._text) else None

    def _standing_now(self) -> Durable | None:
        is_one = cues.STANDS.search(self._text) is not None and self._is_present
        return Durable(MemoryKind.OBSERVATION, is_point_in_time=True) if is_one else None

    def _regularity(self) -> Durable | None:
        noticed = None if self._has_date else cues.NOTICED.match(self._text)
        is_one = noticed is not None and cues.REGULAR.search(self._text, noticed.end()) is not None
        return Durable(MemoryKind.OBSERVATION) if is_one else None

    def _supposed(self) -> Durable | None:
        asserted = _assertion_in(self._text)
        triple = None if asserted is None else self._triple(asserted, lambda one: one.predicate in cues.SUPPOSABLE)
        return None if triple is None else Durable(MemoryKind.OBSERVATION, triple=triple, is_supposed=True)

    def _reminder(self) -> Durable | None:
        reminder = None if self._has_date else cues.REMEMBER.match(self._text)
        if reminder is None or not SECOND_PERSON.isdisjoint(self._sentence.parts):
            return None
        rest = Sentence.of(self._text[reminder.end() :])
        return _Judging(rest, self._speaker, self._operations, has_date=False).found() or Durable(MemoryKind.FACT)

    def _triple(self, sentence: Sentence, is_meant: Callable[[Operation], bool]) -> tuple[str, str, str] | None:
        """Return the triple that a sentence asserts; of several the first of which there can be one only."""
        found = [
            (one.subject, one.predicate, one.object)
            for one in self._operations(sentence)
            if one.verb is not Verb.DELETE and is_meant(one) and not self._is_passing(one)
        ]
        return next((one for one in found if _VOCABULARY.holds_one(one[1])), found[0] if found else None)

    def _is_passing(self, operation: Operation) -> bool:
        """Tell whether somebody likes something in passing, or is said by others to like it."""
        is_own = operation.subject == self._speaker and not cues.IN_PASSING.match(operation.object)
        return _is_liking(operation.predicate) and not is_own


def _instructs(text: str) -> bool:
    """Tell whether a user asks an agent for something for good."""
    cued = (cues.ORDER.match(text), cues.ORDER_INSIDE.search(text), cues.WHENEVER.match(text))
    if any(cue is not None and _is_task(text, cue) for cue in cued):
        return True
    if (cues.LASTS.search(text) or cues.LASTS_START.match(text)) and (cues.WANTED.match(text) or _is_asked(text)):
        return True
    name = cues.CALL_ME.match(text)
    if name is not None:
        return name["name"].lower() not in cues.NO_NAMES
    is_manner = cues.RECURS.search(text) is not None or cues.MANNER.search(text) is not None
    return (is_manner and _is_asked(text, only_start=True) and not cues.DESCRIBED.search(text)) or _forbids(text)


def _forbids(text: str) -> bool:
    """Tell whether a user does not want something any more, for good."""
    no_longer = cues.NO_LONGER.match(text)
    if no_longer is None or cues.BOUNDED.search(text):
        return False
    return _is_task(text, no_longer) if no_longer["task"] else no_longer["stopped"].lower() in cues.STOPPED


def _is_asked(text: str, *, only_start: bool = False) -> bool:
    asked = cues.ASKED.match(text)
    if asked is not None and _is_task(text, asked):
        return True
    inside = None if only_start else cues.ASKED_INSIDE.search(text)
    return inside is not None and _is_task(text, inside)


def _is_task(text: str, cue: re.Match[str]) -> bool:
    """Tell whether the verb of a cue is work for an agent."""
    task = cue["task"].lower()
    if task == "be":
        return text[cue.end("task") :].strip(" .!").partition(" ")[0].lower() in cues.MANNERS
    return task in cues.TASKS and not cues.NO_TASK.match(text, cue.start("task"))


def _is_rule(text: str, has_date: bool) -> bool:
    if _is_policy(text, has_date):
        return True
    if has_date:
        return False
    allowed = cues.ALLOWED.search(text)
    if allowed is not None:
        return allowed["before"].lower() not in cues.POINTING
    house = cues.WE_NEVER.search(text)
    if house is not None and house["task"].lower() in cues.HOUSE_TASKS:
        return True
    return _is_duty(text)


def _is_policy(text: str, has_date: bool) -> bool:
    return not has_date and (cues.POLICY.search(text) is not None or cues.POLICY_START.match(text) is not None)


def _is_duty(text: str) -> bool:
    """Tell whether everybody, or a thing, must do something; not whether something must be so."""
    may = cues.MAY.match(text)
    if may is not None or cues.MUST_EVER.search(text):
        return True
    must = cues.MUST.match(text)
    if must is None:
        return False
    first, verb, participle = (must[name] or "" for name in ("subject", "verb", "participle"))
    if first.split()[0].lower() not in cues.QUANTIFIED and not (must["must"] == "must" and cues.EVER.search(text)):
        return False
    verb, participle = verb.lower(), participle.lower()
    if verb == "be":
        return is_regular_past(participle) or participle in IRREGULAR_PAST or participle in _PARTICIPLES
    return verb not in cues.GUESSED


def _decides(text: str) -> bool:
    return cues.DECIDED.search(text) is not None


def _lasts(operation: Operation) -> bool:
    """Tell whether what an operation says holds for long: where somebody lives, two daughters, asthma."""
    predicate = operation.predicate
    if predicate == "has":
        return operation.object.lower().rpartition(" ")[2] in cues.HELD
    return predicate in cues.LASTING or predicate.startswith(cues.LASTING_FAMILY) or _is_liking(predicate)


def _is_liking(predicate: str) -> bool:
    return predicate in cues.LIKINGS or predicate.startswith(cues.LIKING_FAMILY)


def _assertion_in(text: str) -> Sentence | None:
    """Return what a sentence only supposes as if it asserted it; None if it supposes nothing."""
    rest = cues.SUPPOSED_START.sub("", text, count=1)
    rest = cues.SUPPOSED_INSIDE.sub("", rest, count=1)
    return Sentence.of(rest[:1].upper() + rest[1:]) if rest != text else None


# Upkeep of durable memories by rules: contents are joined sentence by sentence, and age alone makes stale.


class RuleCurator:
    """Helps the upkeep without a model; a :class:`memory_pipeline.domain.memories.draft.Curator`."""

    def name(self, scope: Scope) -> str:
        """Return name and version."""
        del scope
        return "rules-1"

    def confirms(self, scope: Scope) -> bool:
        """Tell that no model looks at what may be stale."""
        del scope
        return False

    def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
        """Return the newer content, and after it those sentences of the older one that it does not have."""
        del scope, day
        return union(newer, older)

    def stale(self, scope: Scope, memories: Sequence[DurableMemory], at: datetime, day: Period) -> dict[str, str]:
        """Return all of them: what is shown to it is old, and was never sure to last."""
        del scope, day
        return {memory.id: _reason(memory, at) for memory in memories}


def _reason(memory: DurableMemory, at: datetime) -> str:
    what = "a snapshot of one moment" if memory.is_point_in_time else f"{memory.kind} that nobody confirmed"
    return f"{what}, last heard {floor(days_between(memory.updated_at, at)):,} days ago"
