"""What a sensor remembers from look to look, in the text that Dagster keeps for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

import dagster as dg

from memory_pipeline.domain.identity import digest

#: A cursor that another version wrote, or a hand, has another digest and is not read: the sensor begins anew, and asks
#: for what the lake says is pending.
_VERSION = 1


class Remembered(Protocol):
    """What can be read from a record of plain data."""

    def __init__(self) -> None: ...

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Read it; what is no such record raises KeyError, TypeError or ValueError."""
        ...


_Memory = TypeVar("_Memory", bound=Remembered)


def read_cursor(context: dg.SensorEvaluationContext, kind: type[_Memory]) -> _Memory:
    """Return what a sensor remembers; nothing if it has never looked, or its cursor cannot be read."""
    return kind() if (record := record_of(context)) is None else _read(context, kind, record)


def record_of(context: dg.SensorEvaluationContext) -> dict[str, Any] | None:
    """Return the cursor's record; None if there is none, or it cannot be read."""
    try:
        record = json.loads(context.cursor or "null")
    except (ValueError, RecursionError):
        record = "no JSON"
    if record is None:
        return None
    if isinstance(record, dict) and record.pop("digest", None) == digest(_VERSION, record):
        return record
    context.log.warning("the cursor is not one of this version and is not read; what is pending is asked for anew")
    return None


def written_cursor(record: Mapping[str, Any]) -> str:
    """Return the text of a record."""
    plain = json.loads(json.dumps(record))
    return json.dumps({"digest": digest(_VERSION, plain), **plain}, separators=(",", ":"))


def _read(context: dg.SensorEvaluationContext, kind: type[_Memory], record: dict[str, Any]) -> _Memory:
    try:
        return kind.from_record(record)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        context.log.warning(f"the cursor cannot be read ({error}); what is pending is asked for anew")
        return kind()
