"""Edits: changes of the graph that an agent makes itself, rather than somebody saying something.

In the journal an edit is a line as::

    {"edit": "UPDATE", "workspace_id": "acme", "agent_id": "support", "subject": "Anna", "predicate": "lives_in",
     "object": "Porto", "replaces": "Berlin", "confidence": 1.0, "weight": null, "turn": 0,
     "timestamp": "2024-01-15T07:03:00+00:00", "received_at": "2024-01-15T07:03:00+00:00"}
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Scope, timestamp_of
from memory_pipeline.domain.identity import EDIT, make_id
from memory_pipeline.domain.operations import Operation, Verb
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.words import is_unicode
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from memory_pipeline.domain.periods import Period

_TERMS = ("subject", "predicate", "object", "replaces")


@dataclass(frozen=True, slots=True)
class Edit:
    """One change, checked.

    Attributes:
        id: hash of scope, content and time; see :mod:`memory_pipeline.domain.identity`.
        operations: what it does: one operation, or two where an UPDATE names what it replaces. They rest on the edit.
        received_at: when the journal took it, UTC.
    """

    id: str
    scope: Scope
    operations: tuple[Operation, ...]
    received_at: datetime

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> Edit:
        """Read and check the form that :meth:`to_record` gives; the id is worked out, never believed.

        Raises:
            InputError: a field is missing or not acceptable; the message names it.
        """
        scope = Scope(record.get("workspace_id"), record.get("agent_id"))  # type: ignore[arg-type]  # Scope checks
        verb = record.get("edit")
        if not isinstance(verb, str):
            raise InputError(f"edit {shown(verb)} is unknown; accepted: INSERT, UPDATE, DELETE")
        terms = {name: _term(name, record.get(name)) for name in _TERMS}
        confidence, weight = record.get("confidence", 1.0), record.get("weight")
        turn = record.get("turn", 0)
        if isinstance(turn, bool) or not isinstance(turn, int) or not 0 <= turn < 2**31:
            raise InputError(f"turn {shown(turn)} is not valid; expected a position from 0")
        at = timestamp_of("timestamp", record.get("timestamp"))

        def operation(what: str, value: str) -> Operation:
            return Operation.of(
                what,
                terms["subject"],
                terms["predicate"],
                value,
                confidence=confidence,  # type: ignore[arg-type]  # of() checks it
                message_ids=(),
                event_at=at,
                weight=weight,  # type: ignore[arg-type]  # likewise
            )

        operations = [operation(verb, terms["object"])]
        if terms["replaces"]:
            if operations[0].verb is not Verb.UPDATE:
                raise InputError(f"replaces {shown(terms['replaces'])} is for an UPDATE; {verb} replaces nothing")
            operations.insert(0, operation(Verb.DELETE, terms["replaces"]))
        changes = [(one.verb, one.subject, one.predicate, one.object) for one in operations]
        own = make_id(
            EDIT,
            Calendar().hour(at),
            scope.workspace_id,
            scope.agent_id,
            changes,
            confidence,
            weight,
            at.isoformat(),
            turn,
        )
        received_at = timestamp_of("received_at", record.get("received_at"))
        placed = [replace(one, message_ids=(own,), turn=turn, place=place) for place, one in enumerate(operations)]
        return cls(own, scope, tuple(placed), received_at)

    def to_record(self) -> dict[str, object]:
        """Return the edit as a flat JSON object, the form in which the journal keeps it."""
        *withdrawn, main = self.operations
        return {
            "edit": main.verb.value,
            "workspace_id": self.scope.workspace_id,
            "agent_id": self.scope.agent_id,
            "subject": main.subject,
            "predicate": main.predicate,
            "object": main.object or None,
            "replaces": withdrawn[0].object if withdrawn else None,
            "confidence": main.confidence,
            "weight": main.weight,
            "turn": main.turn,
            "timestamp": main.event_at.isoformat(),
            "received_at": self.received_at.isoformat(),
        }

    @property
    def event_at(self) -> datetime:
        """When it was made."""
        return self.operations[0].event_at

    @property
    def hour(self) -> Period:
        """The partition that it belongs to."""
        return Calendar().hour(self.event_at)


def _term(name: str, value: object) -> str:
    """Return a term as a text on one line; it must be one that can be stored, and be seen."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{name} {shown(value)} is not a text")
    if not is_unicode(value):
        raise InputError(f"{name} {shown(value)} is not valid Unicode text")
    line = " ".join(value.split())
    if not line and name in ("object", "replaces"):
        raise InputError(f"{name} {shown(value)} is blank; leave it out, or name one")
    if any(unicodedata.category(character) == "Cc" for character in line):
        raise InputError(f"{name} {shown(value)} is not valid; control characters are not accepted")
    return line
