"""Fold operations into (source, label, target) triples with their validity, in their order.

An operation is placed at the time of its event, or after a later one that its writer saw.

``fold_operations`` is a pure function of the set of operations: order of arrival and duplicates do not change the
result. The pipeline folds the stored operations; readers also fold the pending ones.

- An assertion (INSERT or UPDATE) opens a triple, or adds evidence to an open one.
- For a single-valued predicate (:class:`Vocabulary`) an assertion ends the previous triple. For others it replaces only
  an object that the same message withdraws.
- DELETE ends a triple; without an object it ends all triples of the source and predicate.
- Ended triples remain, with their end and their successor.

Names are compared case-insensitively, and by alias: the object of "is called" or "also known as" (:data:`ALIASES`) is
another name of the same thing, if only one thing claims it.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from memory_pipeline.domain.graph.operations import Operation, Verb
from memory_pipeline.domain.identity import GRAPH, digest_of_all, make_id
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.text.words import spaced, stem, word_set

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope

#: Predicates whose object is another name of the subject.
ALIASES = word_set("is_called also_known_as alias nickname")

#: The predicate for the kind of a subject: ``Anna is_a person``.
KIND = "is_a"

_NEVER_ALIASES = frozenset(["user", "agent"])

#: Predicates that are single-valued, unless the configuration overrides them …
_SINGLE = word_set(
    """
    address age balance birth_date birth_place birthday birthplace blood_type born_in born_on costs current_job
    current_location date_of_birth deadline due_on email employer engaged_to first_name full_name gender has_name
    has_status height is_called is_married_to is_owned_by job_title last_name lives_in located_in marital_status
    married_to moved_to name native_language owned_by phone phone_number price pronouns relationship_status rent
    reports_to spouse status studies_at surname time_zone timezone version weight works_as works_at works_for
    """
)
#: … and prefixes of others, such as favourite_colour.
_SINGLE_PREFIXES = ("favourite_", "favorite_", "current_", "main_", "primary_", "preferred_")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The single-valued and multi-valued predicates. Undeclared predicates are multi-valued.

    `single` and `multi` are declared predicates beside the built-in ones, in snake_case; `multi` takes precedence.
    """

    single: frozenset[str] = frozenset()
    multi: frozenset[str] = frozenset()

    def holds_one(self, predicate: str) -> bool:
        """Return whether a predicate is single-valued."""
        if predicate in self.multi:
            return False
        return predicate in self.single or predicate in _SINGLE or predicate.startswith(_SINGLE_PREFIXES)

    @property
    def digest(self) -> str:
        """A hash of the declared predicates."""
        return digest_of_all([*(f"one {name}" for name in self.single), *(f"many {name}" for name in self.multi)])


@dataclass(frozen=True, slots=True)
class Triple:
    """A fact of the graph with its validity.

    Attributes:
        id: hash of scope, source, label, target, start, and first evidence.
        source_id, target_id: names in comparable form, with aliases resolved.
        source, label, target: from the newest evidence.
        confidence: 0 to 1, the highest of its evidence.
        weight: 0 to 1: as stated, or else 1 − 2⁻ⁿ for n messages of evidence.
        valid_from, updated_at: when it was first and last stated, UTC.
        valid_to: when it ended, UTC; None if it is valid.
        superseded_by: id of the triple that replaced it, if any.
        evidence: ids of the messages or edits that assert it; oldest first.
        conversation_id, origin: of the newest evidence; the conversation is None if that is an edit.
    """

    id: str
    source_id: str
    source: str
    label: str
    target_id: str
    target: str
    confidence: float
    weight: float
    valid_from: datetime
    valid_to: datetime | None
    superseded_by: str | None
    evidence: tuple[str, ...]
    conversation_id: str | None
    updated_at: datetime
    origin: str | None

    def __str__(self) -> str:
        return f"{self.source} {self.label} {self.target}"

    def holds_at(self, instant: datetime) -> bool:
        """Return whether it is valid at an instant; the start is included, the end is not."""
        return self.valid_from <= instant and (self.valid_to is None or instant < self.valid_to)


@lru_cache(maxsize=65_536)
def name_key(name: str) -> str:
    """Return a name in comparable form: case-folded, NFKC, with single blanks and the ASCII apostrophe.

    The entity of a user, such as ``user:Anna``, stays as it is: ids that differ in case are of different users.
    """
    if name.startswith("user:"):
        return name
    if name.isascii():
        return " ".join(name.lower().split())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).replace("’", "'")
    return " ".join(folded.split()) or name


class Names:
    """The aliases of an agent's graph. `aliases` maps an alias to its name, both as from :func:`name_key`."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self.aliases = dict(aliases)
        self._aliases_of: defaultdict[str, list[str]] = defaultdict(list)
        for alias, name in self.aliases.items():
            self._aliases_of[name].append(alias)

    @classmethod
    def of(cls, operations: Iterable[Operation], vocabulary: Vocabulary) -> Names:
        """Return the aliases that are valid after all `operations`.

        An alias that several things claim is ignored, even if it is the name of one of them: confusing two things is
        worse than keeping one thing apart. ``User``, ``Agent`` and names of common nouns ("the project is called
        Atlas") are not aliases.
        """
        aliasing = [
            operation
            for operation in operations
            if operation.predicate in ALIASES and not _names_common_noun(operation)
        ]
        return cls.claimed(
            (span.target_id, source_id)
            for (source_id, label), group in _groups(aliasing, NOBODY).items()
            for span in _spans(group, NOBODY, is_single=vocabulary.holds_one(label))
            if span.valid_to is None
        )

    @classmethod
    def claimed(cls, claims: Iterable[tuple[str, str]]) -> Names:
        """Return the aliases for claims as (alias, source) pairs."""
        sources: defaultdict[str, set[str]] = defaultdict(set)
        for alias, source in claims:
            if alias not in _NEVER_ALIASES:
                sources[alias].add(source)
        single = {alias: source for alias, (source, *others) in sources.items() if not others and source != alias}
        return cls({alias: name for alias, name in _ends(single).items() if name != alias})

    def key(self, name: str) -> str:
        """Return the id for a name, with aliases resolved."""
        key = name_key(name)
        return self.aliases.get(key, key)

    def all_of(self, identifiers: Collection[str]) -> set[str]:
        """Return all names of things by their ids, as from :func:`name_key`."""
        return {*identifiers, *(alias for name in identifiers for alias in self._aliases_of.get(name, ()))}


def _names_common_noun(operation: Operation) -> bool:
    """Return whether "is called" names a common noun ("the project is called Atlas")."""
    return operation.predicate == "is_called" and operation.subject[:1].islower()


NOBODY = Names({})


def _ends(steps: Mapping[str, str]) -> dict[str, str]:
    """Return the final name of each alias; in a cycle, the alphabetically first name."""
    ends: dict[str, str] = {}
    for alias in steps:
        path = [alias]
        seen = {alias: 0}
        while (following := steps.get(path[-1])) is not None and following not in ends and following not in seen:
            seen[following] = len(path)
            path.append(following)
        if following is None:
            end = path[-1]
        elif following in ends:
            end = ends[following]
        else:
            end = min(path[seen[following] :])
        ends |= dict.fromkeys(path, end)
    return ends


def fold_operations(
    scope: Scope,
    operations: Iterable[Operation],
    vocabulary: Vocabulary | None = None,
    names: Names | None = None,
) -> list[Triple]:
    """Fold the operations of one agent, in any order, into triples, including ended ones.

    The result is sorted by source, label, start and target. By default only built-in predicates are single-valued.
    `names` are the aliases; they are required if `operations` are only a part of the agent's, complete for some sources
    and labels.
    """
    listed = list(operations)
    declared = vocabulary or Vocabulary()
    names = names or Names.of(listed, declared)
    hours: dict[datetime, Period] = {}
    triples: list[Triple] = []
    for (source_id, label), group in sorted(_groups(listed, names).items()):
        spans = _spans(group, names, is_single=declared.holds_one(label))
        ids = {}
        for span in spans:
            begins = span.valid_from
            first = span.operations[0]
            identity = (source_id, label, span.target_id, begins.isoformat(), *first.message_ids[:1], first.place)
            hour = begins.replace(minute=0, second=0, microsecond=0)
            period = hours.get(hour) or hours.setdefault(hour, hour_of(begins))
            ids[id(span)] = make_id(GRAPH, period, *scope.ids, *identity)
        triples += [span.triple(source_id, label, ids) for span in spans]
    return triples


def standing(triples: Iterable[Triple]) -> list[Triple]:
    """Return the valid triples, in the order of their last statement."""
    return sorted((triple for triple in triples if triple.valid_to is None), key=lambda one: (one.updated_at, one.id))


def about(triples: Sequence[Triple], text: str, most: int) -> list[Triple]:
    """Return the `most` triples with a source or target that `text` names, those first that share most words with it.

    Of triples that share the same number of words, the newest is first.
    """
    words = f" {spaced(name_key(text))} "
    stems = {stem(word) for word in words.split()}
    found = []
    for triple in triples:
        terms = [spaced(name_key(name)) for name in (triple.source, triple.target)]
        if any(term and f" {term} " in words for term in terms):
            shared = {stem(word) for term in (*terms, spaced(triple.label)) for word in term.split()} & stems
            found.append((len(shared), triple.updated_at, triple.id, triple))
    return [triple for *_, triple in sorted(found, key=lambda one: one[:3], reverse=True)[:most]]


@dataclass(slots=True, eq=False)
class _Span:
    """A triple under construction."""

    target_id: str
    operations: list[Operation] = field(default_factory=list)
    valid_to: datetime | None = None
    successor: _Span | None = None

    @property
    def valid_from(self) -> datetime:
        return self.operations[0].event_at

    def triple(self, source_id: str, label: str, ids: Mapping[int, str]) -> Triple:
        newest = self.operations[-1]
        evidence = tuple(dict.fromkeys(identifier for one in self.operations for identifier in one.message_ids[:1]))
        weights = [one.weight for one in self.operations if one.weight is not None]
        return Triple(
            id=ids[id(self)],
            source_id=source_id,
            source=newest.subject,
            label=label,
            target_id=self.target_id,
            target=newest.object,
            confidence=max(one.confidence for one in self.operations),
            weight=weights[-1] if weights else 1 - 0.5 ** len(evidence),
            valid_from=self.valid_from,
            valid_to=self.valid_to,
            superseded_by=None if self.successor is None else ids[id(self.successor)],
            evidence=evidence,
            conversation_id=newest.conversation_id,
            updated_at=max(one.event_at for one in self.operations),
            origin=newest.origin,
        )


def _groups(operations: Iterable[Operation], names: Names) -> dict[tuple[str, str], list[Operation]]:
    groups: defaultdict[tuple[str, str], list[Operation]] = defaultdict(list)
    for operation in operations:
        groups[names.key(operation.subject), operation.predicate].append(operation)
    return groups


def _spans(group: Sequence[Operation], names: Names, *, is_single: bool) -> list[_Span]:
    """Return the triples of one source and label."""
    # The object of an alias predicate is a name itself, so it is not resolved.
    key = name_key if group[0].predicate in ALIASES else names.key
    open_spans: dict[str, _Span] = {}
    ended: list[_Span] = []
    withdrawn: list[_Span] = []  # by the current message, without a successor yet
    at: tuple[object, ...] | None = None
    for operation in sorted(group, key=lambda one: _order(one, key)) if len(group) > 1 else group:
        moment = (operation.event_at, operation.message_ids[:1])
        if moment != at:
            at, withdrawn = moment, []
        target_id = key(operation.object)
        if operation.verb is Verb.DELETE:
            ending = _end_spans(open_spans, [target_id] if operation.object else list(open_spans), operation, None)
            withdrawn += ending
            ended += ending
            continue
        span = open_spans.get(target_id)
        if span is None:
            span = _Span(target_id)
            for before in withdrawn:
                before.successor = span if before.target_id != target_id else None
            withdrawn = []
        if is_single:
            ended += _end_spans(open_spans, [other for other in open_spans if other != target_id], operation, span)
        span.operations.append(operation)
        open_spans[target_id] = span
    return sorted(
        [*ended, *open_spans.values()],
        key=lambda one: (one.valid_from, one.target_id, one.operations[0].message_ids[:1]),
    )


def _order(operation: Operation, key: Callable[[str], str]) -> tuple[object, ...]:
    # Only the first message counts: tables store an operation with the turn of that message. Within a message
    # withdrawals come first, so that an object that is also asserted stays valid.
    return (
        operation.placed_at,
        operation.turn,
        operation.message_ids[:1],
        operation.place,
        operation.verb is not Verb.DELETE,
        key(operation.object),
        operation.object,
        operation.subject,
        operation.verb,
        operation.confidence,
        -1 if operation.weight is None else operation.weight,
        operation.conversation_id or "",
    )


def _end_spans(
    open_spans: dict[str, _Span], targets: Iterable[str], operation: Operation, successor: _Span | None
) -> list[_Span]:
    """Remove the ending triples from `open_spans` and return them."""
    ending = [open_spans.pop(target) for target in targets if target in open_spans]
    for span in ending:
        # The clock of the assertion may have been ahead.
        span.valid_to, span.successor = max(operation.event_at, span.valid_from), successor
    return ending
