"""Rules for durable memories: which sentences are durable and of which kind, and how memories are curated.

The first matching rule decides. A sentence that matches none stays working memory.

1. *Instruction*: a standing request to an agent ("Always quote prices in euros", "call me Annie").
2. *Rule*: a duty of everybody ("The policy is …", "Every invoice must be signed").
3. *Decision* ("We have decided to …").
4. A triple with a lasting predicate, or its end: a *preference* if users state what they like, else a *fact*.
5. *Preference* in other words ("My favourite bread is rye").
6. A name or number of something ("The alarm code is 4411"): a *fact*.
7. A state at one moment ("We have 40 sacks in stock"): an *observation* that soon becomes stale.
8. A noticed regularity, or a supposed triple ("I think Tom lives in Porto"): an *observation*.
9. Anything an agent is told to remember: a *fact*.

Assistants' messages are not durable: assistants mostly repeat or guess, and can save what they learn themselves.
Single requests ("Remind me tomorrow"), wishes, compliments, guesses ("that must be nice") and events are not durable
either. The cue words are in :mod:`.language.lexicon`.
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

    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope


#: Confidence of a supposition.
SUPPOSED: Final = 0.4

_VOCABULARY: Final = Vocabulary()
_PARTICIPLES: Final = frozenset(
    ["been", "done", "given", "hidden", "kept", "known", "put", "read", "set", "shut", "worn"]
)


@dataclass(frozen=True, slots=True)
class Durable:
    """The durable memory that a sentence becomes.

    `triple` is subject, predicate and object, if the sentence asserts one triple. A supposed memory has confidence
    :data:`SUPPOSED`.
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
    """Return the durable memory that a user's sentence states, or None. Pure.

    The sentence must be neither a question nor a quotation. `speaker` is the user's name in triples. `operations`
    returns the graph operations of a sentence of the same message. `has_date` says whether the sentence mentions a
    date.
    """
    found = _SentenceRules(sentence, speaker, operations, has_date).found()
    is_meant = (
        found is not None and not cues.NOT_MEANT.search(sentence.text) and not cues.CONDITION.match(sentence.text)
    )
    return found if is_meant else None


class _SentenceRules:
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
        if not self._has_cue:
            return self._asserted_triple()
        rules = (
            self._instruction, self._rule, self._decision, self._asserted_triple, self._preference, self._identified,
            self._momentary_state, self._regularity, self._supposed, self._reminder,
        )  # fmt: skip
        return next((found for rule in rules if (found := rule()) is not None), None)

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

    def _asserted_triple(self) -> Durable | None:
        triple = self._triple(self._sentence, _lasts)
        if triple is None:
            return self._ended()
        is_now = cues.NOW.search(self._text) is not None and self._is_present
        kind = MemoryKind.PREFERENCE if _is_liking(triple[1]) else MemoryKind.FACT
        return Durable(kind, is_point_in_time=is_now and triple[1] in cues.CHANGING, triple=triple)

    def _ended(self) -> Durable | None:
        if not cues.HELD_BEFORE.search(self._text):
            return None  # "I'm not Polish" ends nothing
        for one in self._operations(self._sentence):
            if one.verb is Verb.DELETE and _lasts(one) and one.object and not _is_liking(one.predicate):
                return Durable(MemoryKind.FACT, triple=(one.subject, f"{ENDED}{one.predicate}", one.object))
        return None

    def _preference(self) -> Durable | None:
        matches = not self._has_date and cues.PREFERENCE.search(self._text) is not None and self._is_present
        return Durable(MemoryKind.PREFERENCE) if matches else None

    def _identified(self) -> Durable | None:
        return Durable(MemoryKind.FACT) if cues.IDENTIFIED.search(self._text) else None

    def _momentary_state(self) -> Durable | None:
        matches = cues.STANDS.search(self._text) is not None and self._is_present
        return Durable(MemoryKind.OBSERVATION, is_point_in_time=True) if matches else None

    def _regularity(self) -> Durable | None:
        noticed = None if self._has_date else cues.NOTICED.match(self._text)
        matches = noticed is not None and cues.REGULAR.search(self._text, noticed.end()) is not None
        return Durable(MemoryKind.OBSERVATION) if matches else None

    def _supposed(self) -> Durable | None:
        asserted = _assertion_in(self._text)
        triple = None if asserted is None else self._triple(asserted, lambda one: one.predicate in cues.SUPPOSABLE)
        return None if triple is None else Durable(MemoryKind.OBSERVATION, triple=triple, is_supposed=True)

    def _reminder(self) -> Durable | None:
        reminder = None if self._has_date else cues.REMEMBER.match(self._text)
        if reminder is None or not SECOND_PERSON.isdisjoint(self._sentence.parts):
            return None
        rest = Sentence.of(self._text[reminder.end() :])
        return _SentenceRules(rest, self._speaker, self._operations, has_date=False).found() or Durable(MemoryKind.FACT)

    def _triple(self, sentence: Sentence, is_meant: Callable[[Operation], bool]) -> tuple[str, str, str] | None:
        """Return the triple that a sentence asserts. Among several, prefer one whose predicate has a single value."""
        found = [
            (one.subject, one.predicate, one.object)
            for one in self._operations(sentence)
            if one.verb is not Verb.DELETE and is_meant(one) and not self._is_passing(one)
        ]
        return next((one for one in found if _VOCABULARY.holds_one(one[1])), found[0] if found else None)

    def _is_passing(self, operation: Operation) -> bool:
        """Return whether a liking is only momentary, or another person's."""
        is_speakers = operation.subject == self._speaker and not cues.IN_PASSING.match(operation.object)
        return _is_liking(operation.predicate) and not is_speakers


def _instructs(text: str) -> bool:
    """Return whether a user gives an agent a standing instruction."""
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
        start = text[: allowed.start()]
        return (
            allowed["before"].lower() not in cues.POINTING
            and not cues.POINTED_AT.search(start)
            and cues.LIMITED.search(text) is not None
        )
    practice = cues.WE_NEVER.search(text)
    if practice is not None and practice["task"].lower() in cues.HOUSE_TASKS:
        return True
    return _is_duty(text)


def _is_policy(text: str, has_date: bool) -> bool:
    return not has_date and (cues.POLICY.search(text) is not None or cues.POLICY_START.match(text) is not None)


def _is_duty(text: str) -> bool:
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
    decided = cues.DECIDED.search(text)
    is_passing = cues.MOMENTARY.search(text) or cues.GUESSES.search(text)
    return decided is not None and not is_passing


def _lasts(operation: Operation) -> bool:
    predicate = operation.predicate
    if predicate == "has":
        return operation.object.lower().rpartition(" ")[2] in cues.HELD
    return predicate in cues.LASTING or predicate.startswith(cues.LASTING_FAMILY) or _is_liking(predicate)


def _is_liking(predicate: str) -> bool:
    return predicate in cues.LIKINGS or predicate.startswith(cues.LIKING_FAMILY)


def _assertion_in(text: str) -> Sentence | None:
    """Return a supposition as an assertion, without "I think"; None if the sentence supposes nothing."""
    rest = cues.SUPPOSED_START.sub("", text, count=1)
    rest = cues.SUPPOSED_INSIDE.sub("", rest, count=1)
    return Sentence.of(rest[:1].upper() + rest[1:]) if rest != text else None


class RuleCurator:
    """Curate durable memories by rules; a :class:`memory_pipeline.domain.memories.draft.Curator`.

    Contents are joined sentence by sentence. Age alone makes a memory stale.
    """

    def name(self, scope: Scope) -> str:
        """Return name and version of the rules."""
        del scope
        return "rules-1"

    def confirms(self, scope: Scope) -> bool:
        """Return False: no model confirms that a memory is stale."""
        del scope
        return False

    def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
        """Return the newer content, followed by the older one's sentences that it lacks."""
        del scope, day
        return union(newer, older)

    def contradicted(
        self, scope: Scope, pairs: Sequence[tuple[DurableMemory, DurableMemory]], day: Period
    ) -> dict[int, str]:
        """Return nothing: the rules compare triples alone, not texts."""
        del scope, pairs, day
        return {}

    def stale(self, scope: Scope, memories: Sequence[DurableMemory], at: datetime, day: Period) -> dict[str, str]:
        """Return all memories, each with a reason: the candidates are already old and unconfirmed."""
        del scope, day
        return {memory.id: _reason(memory, at) for memory in memories}


def _reason(memory: DurableMemory, at: datetime) -> str:
    what = "a snapshot of one moment" if memory.is_point_in_time else f"{memory.kind} that nobody confirmed"
    return f"{what}, last heard {floor(days_between(memory.updated_at, at)):,} days ago"
