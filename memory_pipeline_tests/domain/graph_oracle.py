"""A naive model of the graph's fold, and random histories to compare the real fold with.

The model is slow and simple: it applies all operations of an agent in order, and each step scans all facts.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from memory_pipeline.domain.graph.operations import Operation, Verb
from memory_pipeline.domain.graph.triples import Triple, Vocabulary
from memory_pipeline.domain.identity import make_id
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.scopes import Scope

#: Predicates that give their subject an alias.
NAMING = ["is_called", "also_known_as", "alias", "nickname"]

#: The start of histories.
AT = datetime(2024, 1, 15, 8, tzinfo=UTC)
#: Equivalent spellings of each name. Two names differ only in a vowel sign.
SPELLINGS = [
    ["Anna", "ANNA", "anna", "Ａｎｎａ"],
    ["Änna", "A\u0308nna", "ÄNNA", "a\u0308NNA"],
    ["New York", "new  york", "NEW\u00a0YORK"],
    ["Straße", "STRASSE", "strasse"],
    ["ﬁn", "Fin"],
    ["कि"],
    ["का"],
    ["zoë", "ZOË"],
]
DECLARED = Vocabulary(single=frozenset({"pet", "alias", "age"}), multi=frozenset({"age", "born_in"}))
#: Single-valued, single-valued if declared, multi-valued, single-valued by prefix, multi-valued if declared.
PLAIN = ["lives_in", "pet", "likes", "favourite_food", "age"]

Compared = Callable[[str], str]


@dataclass(eq=False)
class Fact:
    """An open or ended fact."""

    source: str
    label: str
    target: str
    evidence: list[Operation] = field(default_factory=list)
    ends: datetime | None = None
    successor: Fact | None = None


def compared(name: str) -> str:
    """Return the normalized form of a name. Normalization is repeated until nothing changes."""
    before = None
    while name != before:
        before = name
        letters = unicodedata.normalize("NFKC", name).casefold()
        name = " ".join(unicodedata.normalize("NFKC", letters).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").split())
    return name


def model(scope: Scope, operations: Iterable[Operation], vocabulary: Vocabulary) -> list[Triple]:
    """Return all triples of the operations, in the order of ``fold``."""
    once = list(dict.fromkeys(operations))
    facts = walk(once, vocabulary, meaning(once, vocabulary))
    facts.sort(key=lambda fact: (fact.source, fact.label, began(fact), fact.target, first_message(fact.evidence[0])))
    return [as_triple(scope, fact) for fact in facts]


def meaning(operations: list[Operation], vocabulary: Vocabulary) -> Compared:
    """Return a function that resolves aliases."""
    naming = [
        operation
        for operation in operations
        if operation.predicate in NAMING and not (operation.predicate == "is_called" and operation.subject[0].islower())
    ]
    last = [fact for fact in walk(naming, vocabulary, compared) if fact.ends is None]
    means: dict[str, str] = {}
    for name in {fact.target for fact in last}:
        holders = {fact.source for fact in last if fact.target == name}
        if len(holders) == 1 and name not in holders and name not in ("user", "agent"):
            means[name] = holders.pop()

    def resolved(name: str) -> str:
        own = compared(name)
        # After as many steps as there are aliases, the name is at the end of a chain or within a cycle.
        for _ in means:
            own = means.get(own, own)
        # The same number of steps then visits the whole cycle.
        visited = {own}
        for _ in means:
            own = means.get(own, own)
            visited.add(own)
        return min(visited)

    return resolved


def walk(operations: list[Operation], vocabulary: Vocabulary, resolved: Compared) -> list[Fact]:
    """Apply operations step by step. Return all facts."""

    def object_of(operation: Operation) -> str:
        return compared(operation.object) if operation.predicate in NAMING else resolved(operation.object)

    def place(operation: Operation) -> tuple[object, ...]:
        return (
            operation.event_at,
            operation.turn,
            first_message(operation),
            operation.place,
            0 if operation.verb is Verb.DELETE else 1,
            object_of(operation),
            operation.object,
            operation.subject,
            str(operation.verb),
            operation.confidence,
            (0, 0.0) if operation.weight is None else (1, operation.weight),
            operation.conversation_id or "",
        )

    facts: list[Fact] = []
    withdrawn: list[tuple[tuple[object, ...], Fact]] = []  # with the message of the deletion
    for operation in sorted(operations, key=place):
        source, label, target = resolved(operation.subject), operation.predicate, object_of(operation)
        message = (operation.event_at, first_message(operation))
        there = [fact for fact in facts if (fact.source, fact.label) == (source, label) and fact.ends is None]
        if operation.verb is Verb.DELETE:
            for fact in there:
                if operation.object == "" or fact.target == target:
                    fact.ends = operation.event_at
                    withdrawn.append((message, fact))
            continue
        same = [fact for fact in there if fact.target == target]
        fact = same[0] if same else Fact(source, label, target)
        fact.evidence.append(operation)
        if not same:
            facts.append(fact)
            mine = [
                (by, gone) for by, gone in withdrawn if by == message and (gone.source, gone.label) == (source, label)
            ]
            for entry in mine:
                withdrawn.remove(entry)
                if entry[1].target != target:
                    entry[1].successor = fact
        if vocabulary.holds_one(label):
            for other in there:
                if other.target != target:
                    other.ends, other.successor = operation.event_at, fact
    return facts


def as_triple(scope: Scope, fact: Fact) -> Triple:
    messages = []
    for operation in fact.evidence:
        if first_message(operation) not in messages:
            messages.append(first_message(operation))
    weight = 1.0
    for _ in messages:
        weight /= 2
    weight = 1 - weight
    for operation in fact.evidence:
        if operation.weight is not None:
            weight = operation.weight
    newest = fact.evidence[-1]
    return Triple(
        id=identity(scope, fact),
        source_id=fact.source,
        source=newest.subject,
        label=fact.label,
        target_id=fact.target,
        target=newest.object,
        confidence=max(operation.confidence for operation in fact.evidence),
        weight=weight,
        valid_from=began(fact),
        valid_to=fact.ends,
        superseded_by=identity(scope, fact.successor) if fact.successor else None,
        evidence=tuple(messages),
        conversation_id=newest.conversation_id,
        origin=None,
        updated_at=newest.event_at,
    )


def identity(scope: Scope, fact: Fact) -> str:
    """Return the id of a fact. Ids are stored, so this recipe must not change."""
    begins = began(fact)
    first = fact.evidence[0]
    parts = (fact.source, fact.label, fact.target, begins.isoformat(), first_message(first), first.place)
    return make_id("graph", hour_of(begins), scope.workspace_id, scope.agent_id, *parts)


def began(fact: Fact) -> datetime:
    return fact.evidence[0].event_at


def first_message(operation: Operation) -> str:
    return operation.message_ids[0]


def drawn(chance: random.Random, predicates: list[str]) -> tuple[list[Operation], Vocabulary]:
    """Return a random history of 1 to 25 operations with few names, messages and times."""
    things = chance.sample(SPELLINGS, chance.randint(2, 4))
    messages = [
        ((f"m{number}",), AT + timedelta(minutes=40 * chance.randint(0, chance.choice([0, 2, 6]))))
        for number in range(chance.randint(1, 8))
    ]
    labels = chance.sample(predicates, chance.randint(1, min(3, len(predicates))))
    verbs = chance.choices([Verb.INSERT, Verb.UPDATE, Verb.DELETE], k=8)
    operations = []
    for _ in range(chance.randint(1, 25)):
        verb = chance.choice(verbs)
        subject, value = chance.choice(chance.choice(things)), chance.choice(chance.choice(things))
        label = chance.choice(labels)
        if verb is Verb.DELETE and chance.random() < 0.3:
            value = ""
        ids, at = chance.choice(messages)
        operations.append(
            Operation(
                verb,
                subject,
                label,
                value,
                confidence=chance.choice([0, 0.5, 0.9, 1.0]),
                message_ids=ids if chance.random() < 0.8 else (*ids, "m0", "another"),
                event_at=at,
                weight=chance.choice([None, None, None, 0, 0.3, 1.0]),
                conversation_id=chance.choice([None, "c1", "c2"]),
                turn=len(ids[0]) % 2 + int(ids[0][1:]) % 3,
                place=chance.choice([0, 0, 1, 2]),
                speaker=chance.choice([None, "Anna"]),
                received_at=at,
            )
        )
    return operations, chance.choice([Vocabulary(), DECLARED])


def histories(seed: object, count: int, predicates: list[str]) -> Iterator[tuple[list[Operation], Vocabulary]]:
    """Yield histories with their vocabularies, determined by the seed."""
    chance = random.Random(str(seed))
    for _ in range(count):
        yield drawn(chance, predicates)
