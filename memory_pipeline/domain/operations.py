"""Operations on what an agent knows: facts as (subject, predicate, object), asserted, replaced and withdrawn.

What holds is a fold of operations in the order of what was said: :mod:`memory_pipeline.domain.triples`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from memory_pipeline.domain.words import spaced
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

#: Longest subject, predicate or object, in characters.
MAX_TERM = 300

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
        verb: INSERT and UPDATE assert, in place of another object where the predicate holds one only; DELETE withdraws.
        subject: a canonical name: ``User``, ``Agent``, or a person's or thing's own.
        predicate: in snake_case, such as ``lives_in``.
        object: as text, numbers too; of a DELETE it may be empty, which withdraws whatever there is.
        confidence: 0 to 1.
        message_ids: the messages that it rests on.
        event_at: when that was said, UTC.
        weight: 0 to 1, how strong the relationship is, if somebody said so.
        conversation_id: where it was said; None for what an agent did itself.
        turn: position of its message in the conversation; tells apart what was said at one time.
        place: its position in what the message says.
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
        """Make an operation of terms as a model writes them: trimmed, names canonical, the predicate in snake_case.

        Raises:
            InputError: a term is missing or too long, the verb is unknown, or confidence or weight is not between 0
                and 1.
        """
        known = Verb.parse(verb)
        terms = {"subject": _text(subject), "predicate": snake_case(predicate), "object": _text(object)}
        for name, term in terms.items():
            if (not term and not (name == "object" and known is Verb.DELETE)) or len(term) > MAX_TERM:
                raise InputError(f"{name} {shown(term)} is not valid; expected a text of 1 to {MAX_TERM} characters")
        _check_share("confidence", confidence)
        if weight is not None:
            _check_share("weight", weight)
        return cls(
            verb=known,
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
        """Return it as ``Anna lives_in Porto``."""
        return f"{self.subject} {self.predicate} {self.object}"


def snake_case(text: str) -> str:
    """Return a predicate as ``lives_in``: its words in lower case, joined by underscores."""
    return spaced(_CAMEL.sub(" ", unicodedata.normalize("NFC", text))).lower().replace(" ", "_")


def _check_share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"{name} {shown(value)} is not valid; expected 0 to 1")


def _text(value: str) -> str:
    return " ".join(value.split())
