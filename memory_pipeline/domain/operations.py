"""Operations on what an agent knows: facts as (subject, predicate, object), asserted, replaced and withdrawn.

The state is a fold of operations in the order of what was said; it is worked out when it is needed and stored nowhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

#: Longest subject, predicate or object, in characters.
MAX_TERM = 300

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SELF = {"user": "User", "the user": "User", "agent": "Agent", "assistant": "Agent", "the assistant": "Agent"}


class Verb(StrEnum):
    """What an operation does."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"

    @classmethod
    def parse(cls, text: str) -> Verb:
        """Read a verb in any case; ADD is another word for INSERT.

        Raises:
            InputError: it is none of these.
        """
        word = text.strip().upper()
        try:
            return cls.INSERT if word == "ADD" else cls(word)
        except ValueError:
            raise InputError(f"operation {shown(text)} is unknown; accepted: INSERT, ADD, UPDATE, DELETE") from None


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of what an agent knows.

    Attributes:
        verb: INSERT asserts; UPDATE replaces whatever the subject has for the predicate; DELETE withdraws.
        subject: a canonical name: ``User``, ``Agent``, or a person's or thing's own.
        predicate: in snake_case, such as ``lives_in``.
        object: as text, numbers too; of a DELETE it may be empty, which withdraws whatever there is.
        confidence: 0 to 1.
        message_ids: the messages that it rests on.
        event_at: when that was said, UTC.
    """

    verb: Verb
    subject: str
    predicate: str
    object: str
    confidence: float
    message_ids: tuple[str, ...]
    event_at: datetime

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
    ) -> Operation:
        """Make an operation of terms as a model writes them: trimmed, names canonical, the predicate in snake_case.

        Raises:
            InputError: a term is missing or too long, the verb is unknown, or the confidence is not between 0 and 1.
        """
        known = Verb.parse(verb)
        terms = {"subject": _text(subject), "predicate": snake_case(predicate), "object": _text(object)}
        for name, term in terms.items():
            if (not term and not (name == "object" and known is Verb.DELETE)) or len(term) > MAX_TERM:
                raise InputError(f"{name} {shown(term)} is not valid; expected a text of 1 to {MAX_TERM} characters")
        if not 0 <= confidence <= 1:
            raise InputError(f"confidence {confidence} is not valid; expected 0 to 1")
        return cls(
            verb=known,
            subject=_SELF.get(terms["subject"].casefold(), terms["subject"]),
            predicate=terms["predicate"],
            object=_SELF.get(terms["object"].casefold(), terms["object"]),
            confidence=confidence,
            message_ids=tuple(message_ids),
            event_at=event_at,
        )

    def __str__(self) -> str:
        """Return it as ``Anna lives_in Porto``."""
        return f"{self.subject} {self.predicate} {self.object}"


def snake_case(text: str) -> str:
    """Return a predicate as ``lives_in``: its words in lower case, joined by underscores."""
    return "_".join(_WORD.findall(_CAMEL.sub(" ", text))).lower()


def present(operations: Iterable[Operation]) -> list[Operation]:
    """Return the assertions that stand after `operations`, whatever order they come in; oldest first.

    Names and predicates are compared without regard to case.
    """
    standing: dict[tuple[str, str, str], Operation] = {}
    for operation in sorted(operations, key=_order):
        subject, predicate, value = (
            term.casefold() for term in (operation.subject, operation.predicate, operation.object)
        )
        if operation.verb is Verb.UPDATE or (operation.verb is Verb.DELETE and not value):
            for key in [key for key in standing if key[:2] == (subject, predicate)]:
                del standing[key]
        standing.pop((subject, predicate, value), None)
        if operation.verb is not Verb.DELETE:
            standing[subject, predicate, value] = operation
    return list(standing.values())


def about(assertions: Iterable[Operation], text: str, most: int) -> list[Operation]:
    """Return the newest `most` assertions whose subject or object is named in `text`, oldest first."""
    words = f" {_spaced(text)} "
    named = [
        assertion
        for assertion in assertions
        if any((term := _spaced(name)) and f" {term} " in words for name in (assertion.subject, assertion.object))
    ]
    return named[-most:] if most else []


def _order(operation: Operation) -> tuple[object, ...]:
    # By the first message alone: tables keep an operation with the turn that it stands at. Of what one message says of
    # one thing the withdrawal comes first: what it asserts as well, stands.
    said = (operation.event_at, operation.message_ids[:1], operation.subject, operation.predicate, operation.object)
    return (*said, operation.verb, operation.confidence, operation.message_ids)


def _spaced(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def _text(value: str) -> str:
    return " ".join(value.split())
