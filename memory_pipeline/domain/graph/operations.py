"""Operations on the knowledge graph: assert, replace or withdraw a (subject, predicate, object) fact.

The state of the graph is a fold of operations in the order of event time: :mod:`memory_pipeline.domain.graph.triples`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from memory_pipeline.domain.authority import Authority
from memory_pipeline.domain.identity import EDIT, make_id
from memory_pipeline.domain.messages import members_fields, ordered_at_in, recorded_scope, timestamp_of, users_in
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.scopes import Scope, optional_label
from memory_pipeline.domain.text.words import is_unicode, spaced
from memory_pipeline.domain.values import MAX_TURN, count_of, one_of, share_of
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import ScopeOf


#: Longest subject, predicate or object, in characters.
MAX_TERM = 300

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SELF = {"user": "User", "the user": "User", "agent": "Agent", "assistant": "Agent", "the assistant": "Agent"}


class Verb(StrEnum):
    """The action of an operation."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"

    @classmethod
    def parse(cls, text: str) -> Verb:
        """Parse a verb in any case; ADD is a synonym of INSERT.

        Raises:
            InputError: the verb is unknown.
        """
        word = text.strip().upper()
        try:
            return cls.INSERT if word == "ADD" else cls(word)
        except ValueError:
            raise InputError(f"operation {shown(text)} is unknown; accepted: INSERT, ADD, UPDATE, DELETE") from None


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of an agent's knowledge graph.

    Attributes:
        verb: INSERT and UPDATE assert, and replace the object of a single-valued predicate; DELETE withdraws.
        subject: canonical name: ``User``, ``Agent``, or the name of a person or thing.
        predicate: in snake_case, such as ``lives_in``.
        object: text, also for numbers; for DELETE it may be empty, which withdraws all objects.
        confidence, weight: 0 to 1; `weight` is the strength of the relationship, if stated.
        message_ids: the source messages.
        event_at: time of the source, UTC.
        conversation_id: conversation of the source; None for direct edits by an agent; the source of an import.
        turn, place: position of the message in the conversation, and of the operation in the message.
        speaker: name of the speaker of the source; None for direct edits by an agent.
        received_at: when the journal received the source, UTC; None until it is stored.
        ordered_at: place in the order of operations, UTC, if the writer of an edit saw a later operation on the same
            subject and predicate; None if the place is `event_at`.
        origin: ``import``, ``assistant`` or ``tool``; None if the speaker, or the operator by an edit, said it.
    """

    verb: Verb
    subject: str
    predicate: str
    object: str
    confidence: float
    message_ids: tuple[str, ...]
    event_at: datetime
    weight: float | None = None
    conversation_id: str | None = None
    turn: int = 0
    place: int = 0
    speaker: str | None = None
    received_at: datetime | None = None
    ordered_at: datetime | None = None
    origin: str | None = None

    @classmethod
    def of(
        cls,
        verb: str,
        subject: str,
        predicate: str,
        object: str,  # noqa: A002  # the term's own name
        *,
        confidence: float,
        message_ids: Sequence[str],
        event_at: datetime,
        weight: float | None = None,
        conversation_id: str | None = None,
    ) -> Operation:
        """Create an operation from a model's terms, with canonical names and a predicate in snake_case.

        Raises:
            InputError: a term is missing or too long, the verb is unknown, or confidence or weight is not in 0 to 1.
        """
        parsed = Verb.parse(verb)
        terms = {"subject": _text(subject), "predicate": snake_case(predicate), "object": _text(object)}
        for name, term in terms.items():
            if (not term and not (name == "object" and parsed is Verb.DELETE)) or len(term) > MAX_TERM:
                raise InputError(f"{name} {shown(term)} is not valid; expected a text of 1 to {MAX_TERM} characters")
        share_of("confidence", confidence)
        if weight is not None:
            share_of("weight", weight)
        return cls(
            verb=parsed,
            subject=_SELF.get(terms["subject"].casefold(), terms["subject"]),
            predicate=terms["predicate"],
            object=_SELF.get(terms["object"].casefold(), terms["object"]),
            confidence=confidence,
            message_ids=tuple(message_ids),
            event_at=event_at,
            weight=weight,
            conversation_id=conversation_id,
        )

    def __str__(self) -> str:
        return f"{self.subject} {self.predicate} {self.object}"

    @property
    def placed_at(self) -> datetime:
        """Its place in the order of operations, UTC."""
        return self.ordered_at or self.event_at


def snake_case(text: str) -> str:
    """Return a predicate such as ``lives_in``: lower-case words, joined by underscores."""
    return spaced(_CAMEL.sub(" ", unicodedata.normalize("NFC", text))).lower().replace(" ", "_")


def _text(value: str) -> str:
    return " ".join(value.split())


_TERMS = ("subject", "predicate", "object", "replaces")


@dataclass(frozen=True, slots=True)
class Edit:
    """One validated direct change by an agent, not extracted from conversations.

    In the journal it is a line::

        {"edit": "UPDATE", "workspace_id": "acme", "agent_id": "support", "subject": "Anna", "predicate": "lives_in",
         "object": "Porto", "replaces": "Berlin", "confidence": 1.0, "weight": null, "turn": 0,
         "timestamp": "2024-01-15T07:03:00+00:00", "received_at": "2024-01-15T07:03:00+00:00"}

    An edit that the operator did not make also has its ``origin``, and one that was imported the source of the import
    as its ``conversation_id``. Neither is part of its id.

    `operations` are one operation, or two if an UPDATE names the replaced object. Their source is the edit. `users` are
    the members of the group, if the scope is a group's.
    """

    id: str
    scope: Scope
    operations: tuple[Operation, ...]
    received_at: datetime
    users: tuple[str, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, object], scope_of: ScopeOf = Scope) -> Edit:
        """Parse and validate the form of :meth:`to_record`. The id is always computed.

        `scope_of` is needed for scopes of users and groups.

        Raises:
            InputError: a field is missing or invalid; the message names it.
        """
        scope = recorded_scope(record, scope_of)
        verb = record.get("edit")
        if not isinstance(verb, str):
            raise InputError(f"edit {shown(verb)} is unknown; accepted: INSERT, UPDATE, DELETE")
        terms = {name: _term(name, record.get(name)) for name in _TERMS}
        confidence, weight = record.get("confidence", 1.0), record.get("weight")
        turn = count_of("turn", record.get("turn", 0), 0, MAX_TURN)
        at, ordered_at = timestamp_of("timestamp", record.get("timestamp")), ordered_at_in(record)
        conversation_id = optional_label("conversation_id", record.get("conversation_id"))
        origin = None if record.get("origin") is None else one_of(Authority, "origin", record["origin"]).value

        def operation(verb: str, value: str) -> Operation:
            return Operation.of(
                verb,
                terms["subject"],
                terms["predicate"],
                value,
                confidence=confidence,  # type: ignore[arg-type]  # of() checks it
                message_ids=(),
                event_at=at,
                weight=weight,  # type: ignore[arg-type]  # likewise
                conversation_id=conversation_id,
            )

        operations = [operation(verb, terms["object"])]
        if terms["replaces"]:
            if operations[0].verb is not Verb.UPDATE:
                raise InputError(f"replaces {shown(terms['replaces'])} is not accepted with {verb}; use UPDATE")
            operations.insert(0, operation(Verb.DELETE, terms["replaces"]))
        changes = [(one.verb, one.subject, one.predicate, one.object) for one in operations]
        edit_id = make_id(
            EDIT,
            hour_of(at),
            *scope.ids,
            changes,
            confidence,
            weight,
            at.isoformat(),
            turn,
            *([] if ordered_at is None else [ordered_at.isoformat()]),
        )
        received_at = timestamp_of("received_at", record.get("received_at"))
        numbered = [
            replace(
                one,
                message_ids=(edit_id,),
                turn=turn,
                place=place,
                received_at=received_at,
                ordered_at=ordered_at,
                origin=origin,
            )
            for place, one in enumerate(operations)
        ]
        return cls(edit_id, scope, tuple(numbered), received_at, users_in(record))

    def to_record(self) -> dict[str, object]:
        """Return the edit as a flat JSON object, as stored in the journal."""
        *withdrawn, main = self.operations
        return {
            "edit": main.verb.value,
            "workspace_id": self.scope.workspace_id,
            "agent_id": self.scope.agent_id,
            **members_fields(self.scope, self.users),
            "subject": main.subject,
            "predicate": main.predicate,
            "object": main.object or None,
            "replaces": withdrawn[0].object if withdrawn else None,
            "confidence": main.confidence,
            "weight": main.weight,
            "turn": main.turn,
            "timestamp": main.event_at.isoformat(),
            **({} if main.ordered_at is None else {"ordered_at": main.ordered_at.isoformat()}),
            **({} if main.origin is None else {"origin": main.origin}),
            **({} if main.conversation_id is None else {"conversation_id": main.conversation_id}),
            "received_at": self.received_at.isoformat(),
        }

    @property
    def event_at(self) -> datetime:
        """The time of the edit, UTC."""
        return self.operations[0].event_at

    @property
    def hour(self) -> Period:
        """The partition of the edit."""
        return hour_of(self.event_at)


def _term(name: str, value: object) -> str:
    """Return a term on one line; reject text that cannot be stored or is invisible."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{name} {shown(value)} is not a text")
    if not is_unicode(value):
        raise InputError(f"{name} {shown(value)} is not valid Unicode text")
    line = " ".join(value.split())
    if not line and name in ("object", "replaces"):
        raise InputError(f"{name} {shown(value)} is blank; leave it out, or set a name")
    if any(unicodedata.category(character) == "Cc" for character in line):
        raise InputError(f"{name} {shown(value)} is not valid; control characters are not accepted")
    return line
