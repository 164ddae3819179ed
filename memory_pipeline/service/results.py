"""What verbs return, as JSON, and the JSON schema of it.

Both follow from the dataclasses and named tuples of the library: their fields, and what their docstrings say of them.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from memory_pipeline.domain.periods import Period
from memory_pipeline.parameters import described_in, hints_of, prose_of, record_hints

_Schema = dict[str, Any]
_PACKAGE = "memory_pipeline"
_PLAIN: Mapping[object, _Schema] = {
    str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"},
    Period: {"type": "string"}, timedelta: {"type": "number"}, types.NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"}, date: {"type": "string", "format": "date"},
}  # fmt: skip
#: Properties that are part of a result, by the name of its class.
_PROPERTIES: Mapping[str, tuple[str, ...]] = {
    "InjectedContext": ("block", "tokens"),
    "Receipt": ("message_ids",),
    "Correction": ("id",),
}
#: What a list tells besides its items, by the name of its class.
_OF_LISTS: Mapping[str, tuple[str, ...]] = {
    "Hits": ("total", "offset", "older"), "Page": ("cursor",), "Facts": ("total",), "Neighbors": ("total",),
    "Recollection": ("text", "tokens", "receipt_id"), "HotIndex": ("text", "tokens"),
}  # fmt: skip
_MORE: Mapping[str, _Schema] = {
    "total": {"type": "integer", "description": "their number without the limit."},
    "offset": {"type": "integer", "description": "the number of better ones before them."},
    "older": {"type": "integer", "description": "the number of those that only the range of days leaves out."},
    "cursor": {"type": ["string", "null"], "description": "selects the next page; null if this is the last one."},
    "text": {"type": "string", "description": "the text for a prompt."},
    "tokens": {"type": "integer", "description": "size of the text, estimated at 4 bytes a token."},
    "receipt_id": {"type": "string", "description": "of the receipt; empty without items, and if receipts are off."},
}


def to_bytes(value: object) -> bytes:
    """Return a result as JSON in UTF-8: times in ISO 8601, periods by their keys, durations in seconds.

    A list becomes an object with ``items`` and what else the list tells, such as its ``total``.
    """
    if isinstance(value, list | tuple) and not _names(type(value)):
        more = _OF_LISTS.get(type(value).__name__, ())
        value = {"items": [*value]} | {name: str(value) if name == "text" else getattr(value, name) for name in more}
    return json.dumps(_value(value), ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def _value(value: object) -> Any:  # noqa: PLR0911  # one for each kind of value
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(name): _value(one) for name, one in value.items()}
    if names := _names(type(value)):
        return {name: _value(getattr(value, name)) for name in names}
    if isinstance(value, Iterable):
        return [_value(one) for one in value]
    return str(value)


def _names(of: type) -> tuple[str, ...]:
    """Return the names of what a record shows; none if it is no record."""
    if of is Period:
        return ()
    if dataclasses.is_dataclass(of):
        own = tuple(one.name for one in dataclasses.fields(of) if one.repr)
    else:
        own = tuple(getattr(of, "_fields", ()))
    return own + tuple(name for base in of.__mro__ for name in _PROPERTIES.get(base.__name__, ()))


class Schemas:
    """Collects the JSON schemas of results, each class by its name.

    Attributes:
        components: the schemas, as in ``components.schemas`` of an OpenAPI document.
    """

    def __init__(self) -> None:
        self.components: dict[str, _Schema] = {}

    def of_result(self, hint: Any) -> _Schema:
        """Return the schema of what :func:`to_bytes` makes of a result."""
        schema = self.of(hint)
        if schema.get("type") != "array":
            return schema
        more = {name: _MORE[name] for name in _OF_LISTS.get(getattr(hint, "__name__", ""), ())}
        return {"type": "object", "properties": {"items": schema} | more, "required": ["items", *more]}

    def of(self, hint: Any) -> _Schema:  # noqa: PLR0911  # one for each kind of type
        """Return the schema of a type."""
        if (plain := _PLAIN.get(hint)) is not None:
            return plain
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Literal:
            return {"type": "string", "enum": [*inner]}
        if origin in {Union, types.UnionType}:
            return _either([self.of(one) for one in inner])
        if origin is tuple and inner[-1] is not ...:
            return {"type": "array", "prefixItems": [self.of(one) for one in inner], "minItems": len(inner)}
        kind = origin or hint
        if isinstance(kind, type):
            if issubclass(kind, Enum):
                return {"type": "string", "enum": [one.value for one in kind]}
            if issubclass(kind, Mapping):
                return {"type": "object", "additionalProperties": self.of(inner[1]) if inner else True}
            if _names(kind):
                return self._record(kind)
            if issubclass(kind, Collection) and not issubclass(kind, str | bytes):
                items = inner or get_args(next(iter(getattr(kind, "__orig_bases__", ())), None))
                return {"type": "array", "items": self.of(items[0]) if items else {}}
        return {}

    def _record(self, kind: type) -> _Schema:
        name = kind.__name__
        if name not in self.components:
            self.components[name] = {}  # a record may contain itself
            described = {key: text for base in reversed(kind.__mro__) for key, text in described_in(base).items()}
            hints = _hints(kind)
            names = _names(kind)
            properties = {one: self.of(hints[one]) for one in names}
            for one, schema in properties.items():
                if one in described:
                    properties[one] = {"description": described[one]} | schema
            self.components[name] = {
                "type": "object", "title": name, "description": prose_of(kind),
                "properties": properties, "required": [*names],
            }  # fmt: skip
        return {"$ref": f"#/components/schemas/{name}"}


def returned_by(function: Any) -> Any:
    """Return the type that a function returns."""
    function = inspect.unwrap(function)
    return hints_of({"return": function.__annotations__["return"]}, function.__module__)["return"]


def _hints(kind: type) -> dict[str, Any]:
    hints = record_hints(kind)
    for base in kind.__mro__:
        hints |= {name: returned_by(getattr(base, name).fget) for name in _PROPERTIES.get(base.__name__, ())}
    return hints


def _either(schemas: list[_Schema]) -> _Schema:
    if {} in schemas:
        return {}
    unique = [one for at, one in enumerate(schemas) if one not in schemas[:at]]
    if len(unique) == 1:
        return unique[0]
    if all(set(one) == {"type"} for one in unique):
        return {"type": [one["type"] for one in unique]}
    return {"anyOf": unique}
