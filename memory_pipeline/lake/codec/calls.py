"""Calls and answers as rows of tables and of temporary files.

Others may write to the bucket that holds the files, so values read from them are validated.
"""

from __future__ import annotations

from datetime import UTC
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memory_pipeline.domain.messages import timestamp_of
from memory_pipeline.domain.model_calls import Answer, Call, Purpose, Use
from memory_pipeline.domain.periods import Period, hour_of
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.domain.values import one_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.codec.codec import SCOPE_ATTRIBUTES, Attribute, Codec
from memory_pipeline.lake.schemas import ANSWERS, MODEL_CALLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MOST = 2**63


def _use(workspace_id: str, agent_id: str, identity: str, key: str, grain: str, period: str) -> Use:
    return Use(Scope(workspace_id, agent_id, identity, key), Period.parse(grain, period))  # both check


_USE: dict[str, Callable[[Any], object]] = {
    **{name: attrgetter(f"use.scope.{attribute}") for name, attribute in SCOPE_ATTRIBUTES.items()},
    "grain": lambda one: one.use.period.grain.value,
    "period": lambda one: one.use.period.key,
    "purpose": lambda one: one.purpose.value,
}
_FORMS: dict[str, Attribute | Callable[[Any], object]] = {
    "use": Attribute((*SCOPE_COLUMNS, "grain", "period"), _use),
    "purpose": partial(one_of, Purpose, "purpose"),
}
_CALLS = Codec(
    MODEL_CALLS,
    Call,
    columns={
        **_USE,
        "hour": lambda call: hour_of(call.called_at).key,
        "called_at": lambda call: call.called_at.astimezone(UTC),
    },
    attributes=_FORMS,
)
_ANSWERS = Codec(
    ANSWERS,
    Answer,
    columns={**_USE, "answer": lambda answer: answer.text},
    attributes={**_FORMS, "text": Attribute(("answer",))},
)


#: A call as a row of the ``model_calls`` table, and an answer as a row of the ``answers`` table.
call_to_row, answer_to_row = _CALLS.to_row, _ANSWERS.to_row


def row_to_call(row: Mapping[str, object]) -> Call:
    """Return a row of the ``model_calls`` table as a call. `called_at` may be a text.

    Raises:
        InputError: a value is missing or invalid; the message names it.
    """
    return _CALLS.to_record(row, _checked)


def row_to_answer(row: Mapping[str, object]) -> Answer:
    """Return a row of the ``answers`` table as an answer.

    Raises:
        InputError: a value is missing or invalid; the message names it.
    """
    return _ANSWERS.to_record(row, _checked)


def _checked(column: pa.Field, value: object) -> object:
    if pa.types.is_timestamp(column.type):
        return timestamp_of(column.name, value)
    if value is None and column.nullable:
        return None
    if pa.types.is_string(column.type):
        if not isinstance(value, str) or not is_unicode(value):
            raise _problem(column.name, value, "a text")
        return value
    is_whole = pa.types.is_integer(column.type)
    if value is None and not is_whole:
        return 0.0
    # A negative number would let a budget be overspent.
    if not isinstance(value, int if is_whole else int | float) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise _problem(column.name, value, "a count" if is_whole else "a number from 0 on")
    return value if is_whole else float(value)


def _problem(name: str, value: object, expected: str) -> InputError:
    return InputError(f"{name} {shown(value)} is not valid; expected {expected}")
