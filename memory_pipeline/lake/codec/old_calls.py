"""Between calls and answers and their rows, which stand in tables and, for a while, in files.

Files lie in a bucket that others may write to, so what is read back is checked.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.model_calls import Answer, Call, Purpose, Use
from memory_pipeline.domain.periods import Calendar, Period
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST = 2**63


def call_to_row(call: Call) -> dict[str, Any]:
    """Return a call as a row of the ``model_calls`` table."""
    return {
        "hour": Calendar().hour(call.called_at).key,
        "id": call.id,
        "request_id": call.request_id,
        "key": call.key,
        "called_at": call.called_at.astimezone(UTC),
        **_use_to_row(call.use),
        "purpose": call.purpose.value,
        "model": call.model,
        "prompt_version": call.prompt_version,
        "texts": call.texts,
        "tokens_in": call.tokens_in,
        "tokens_out": call.tokens_out,
        "cost": call.cost,
        "seconds": call.seconds,
        "outcome": call.outcome,
    }


def row_to_call(row: Mapping[str, object]) -> Call:
    """Return a row of the ``model_calls`` table as a call; `called_at` may be a text.

    Raises:
        InputError: a value is missing or not acceptable; the message names it.
    """
    return Call(
        id=_text(row, "id"),
        request_id=_text(row, "request_id"),
        key=_text(row, "key"),
        use=_row_to_use(row),
        purpose=_purpose(row),
        model=_text(row, "model"),
        prompt_version=_optional_text(row, "prompt_version"),
        texts=_count(row, "texts"),
        tokens_in=_count(row, "tokens_in"),
        tokens_out=_count(row, "tokens_out"),
        cost=_optional_number(row, "cost"),
        seconds=_optional_number(row, "seconds") or 0.0,
        outcome=_text(row, "outcome"),
        called_at=time_of(row, "called_at"),
    )


def answer_to_row(answer: Answer) -> dict[str, Any]:
    """Return an answer as a row of the ``answers`` table."""
    return {
        "key": answer.key,
        **_use_to_row(answer.use),
        "purpose": answer.purpose.value,
        "model": answer.model,
        "prompt_version": answer.prompt_version,
        "tokens_in": answer.tokens_in,
        "tokens_out": answer.tokens_out,
        "cost": answer.cost,
        "answer": answer.text,
    }


def row_to_answer(row: Mapping[str, object]) -> Answer:
    """Return a row of the ``answers`` table as an answer.

    Raises:
        InputError: a value is missing or not acceptable; the message names it.
    """
    return Answer(
        key=_text(row, "key"),
        use=_row_to_use(row),
        purpose=_purpose(row),
        model=_text(row, "model"),
        prompt_version=_optional_text(row, "prompt_version"),
        text=_text(row, "answer"),
        tokens_in=_count(row, "tokens_in"),
        tokens_out=_count(row, "tokens_out"),
        cost=_optional_number(row, "cost"),
    )


def time_of(row: Mapping[str, object], name: str) -> datetime:
    """Return a row's time, which may be a text; UTC.

    Raises:
        InputError: it is missing, has no zone, or lies outside the years that periods are kept for.
    """
    value = row.get(name)
    try:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        instant = None
    if not isinstance(instant, datetime):
        raise _problem(name, value, "a time with a zone")
    Calendar().hour(instant)  # has a zone, and lies in a year that has partitions
    return instant.astimezone(UTC)


def _use_to_row(use: Use) -> dict[str, Any]:
    return {
        "workspace_id": use.scope.workspace_id,
        "agent_id": use.scope.agent_id,
        "grain": use.period.grain.value,
        "period": use.period.key,
    }


def _row_to_use(row: Mapping[str, object]) -> Use:
    scope = Scope(row.get("workspace_id"), row.get("agent_id"))  # type: ignore[arg-type]  # Scope checks
    return Use(scope, Period.parse(row.get("grain"), row.get("period")))  # type: ignore[arg-type]  # parse checks


def _purpose(row: Mapping[str, object]) -> Purpose:
    try:
        return Purpose(row.get("purpose"))  # type: ignore[arg-type]  # whatever is no member raises ValueError
    except ValueError:
        raise _problem("purpose", row.get("purpose"), ", ".join(Purpose)) from None


def _text(row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not is_unicode(value):
        raise _problem(name, value, "a text")
    return value


def _optional_text(row: Mapping[str, object], name: str) -> str | None:
    return None if row.get(name) is None else _text(row, name)


def _count(row: Mapping[str, object], name: str) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise _problem(name, value, "a count")
    return value


def _optional_number(row: Mapping[str, object], name: str) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    # A number below zero would let a budget be overspent.
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise _problem(name, value, "a number from 0 on")
    return float(value)


def _problem(name: str, value: object, expected: str) -> InputError:
    return InputError(f"{name} {shown(value)} is not valid; expected {expected}")
