"""Validation of a collection's items (ids, vectors, contents, metadata) before anything is written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memory_pipeline.domain.messages import MAX_CONTENT
from memory_pipeline.domain.scopes import MAX_ID
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from memory_pipeline.domain.text.secrets import Redactor

    #: A vector, as callers pass it.
    Vector = Sequence[float] | NDArray[np.floating | np.integer]

#: A value in metadata.
Value = str | int | float | bool | None

#: Maximum size of an item's metadata, in bytes of JSON.
MAX_METADATA = 65_536
#: Accepts paths, addresses and hashes; refuses quotes and line ends, which would end a text in SQL.
_ID = re.compile(rf"(?!.*\.\.)[\w.:/#@+=~&?,%-]{{1,{MAX_ID}}}")
_ID_FORMAT = f"1 to {MAX_ID} letters, digits and . _ - : / # @ + = ~ & ? , % without '..'"


@dataclass(frozen=True, slots=True, eq=False)  # comparing arrays yields an array
class VectorItem:
    """An item of a collection, validated when it is written.

    Attributes:
        id: 1 to 256 letters, digits and ``. _ - : / # @ + = ~ & ? , %`` without ``..``, such as a path or an address.
        vector: finite numbers, as many as the collection's dimension, not all zero; of any length.
        content: any text, up to 1,000,000 characters.
        metadata: names of 1 to 256 characters, each with a text, a number, a boolean or None; up to 64 KiB as JSON.
    """

    id: str
    vector: Vector
    content: str = ""
    metadata: Mapping[str, Value] = field(default_factory=dict)


class Row(NamedTuple):
    """An item as it is stored: metadata as a JSON object, the vector with unit length."""

    id: str
    content: str
    metadata: str
    vector: NDArray[np.float32]


def row_of(name: str, item: object, dimension: int, redactor: Redactor) -> Row:
    """Return an item as it is stored. `name` is its name in error messages.

    Raises:
        InputError: it is not an item, or a field is invalid; the message names it.
    """
    if not isinstance(item, VectorItem):
        raise InputError(f"{name} {shown(item)} is not accepted; expected a VectorItem")
    return Row(
        id=id_of(f"{name}.id", item.id),
        content=redactor.text(_content(f"{name}.content", item.content)),
        metadata=_metadata(f"{name}.metadata", redactor.value(item.metadata)),
        vector=unit_vector(f"{name}.vector", item.vector, dimension),
    )


def id_of(name: str, value: object) -> str:
    """Return a valid id, which is safe between quotes in SQL.

    Raises:
        InputError: the id is invalid; the message names it `name`.
    """
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InputError(f"{name} {shown(value)} is not accepted; expected {_ID_FORMAT}")
    return value


def unit_vector(name: str, value: object, dimension: int) -> NDArray[np.float32]:
    """Return a vector scaled to unit length.

    Raises:
        InputError: it does not have `dimension` finite numbers, or all are zero; the message names it `name`.
    """
    numbers = _numbers(value)
    if numbers is None:
        fault = f" {shown(value)} is not accepted"
    elif len(numbers) != dimension:
        fault = f" has {len(numbers):,} numbers"
    elif not (finite := np.isfinite(numbers)).all():
        fault = f"[{finite.argmin()}] is {numbers[finite.argmin()]}"
    elif not numbers.any():
        fault = " is all zero"
    else:
        scaled = numbers / np.abs(numbers).max()  # avoids overflow and underflow of squares
        unit: NDArray[np.float32] = (scaled / np.linalg.norm(scaled)).astype(np.float32)
        return unit
    raise InputError(f"{name}{fault}; expected a list or an array of {dimension:,} finite numbers, not all zero")


def numbered(name: str, values: object) -> Iterable[tuple[str, Any]]:
    """Return each member of a list with its name for error messages.

    Raises:
        InputError: it is not a list; the message names it `name`.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InputError(f"{name} {shown(values)} is not accepted; expected a list")
    return ((f"{name}[{number}]", value) for number, value in enumerate(values))


def _numbers(value: object) -> NDArray[np.float64] | None:
    """Return the numbers of a list or an array, or None if it is neither or holds anything else."""
    if isinstance(value, np.ndarray):
        held: Any = value if value.ndim == 1 and value.dtype.kind in "iuf" else None
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        held = list(value) if all(map(_is_number, set(map(type, value)))) else None
    else:
        held = None
    try:
        with np.errstate(over="ignore"):  # numbers too large for float64 become infinite
            return None if held is None else np.asarray(held, np.float64)
    except OverflowError:
        return None  # an integer with hundreds of digits


def _is_number(kind: type) -> bool:
    return issubclass(kind, int | float | np.integer | np.floating) and not issubclass(kind, bool)


def _content(name: str, value: object) -> str:
    if not _is_text(value, MAX_CONTENT):
        raise InputError(f"{name} {shown(value)} is not accepted; expected a text of up to {MAX_CONTENT:,} characters")
    return str(value)


def _metadata(name: str, value: object) -> str:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} {shown(value)} is not accepted; expected a mapping of names to values")
    for key, held in value.items():
        if not key or not _is_text(key, MAX_ID):
            raise InputError(f"{name} has the name {shown(key)}; expected a text of 1 to {MAX_ID} characters")
        if not _is_value(held):
            raise InputError(
                f"{name}[{shown(key)}] {shown(held)} is not accepted; expected a text, a finite number (a whole one of "
                "up to 64 bits), True, False or None"
            )
    encoded = json.dumps(dict(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if len(encoded.encode()) > MAX_METADATA:
        raise InputError(f"{name} has {len(encoded.encode()):,} bytes as JSON; expected at most {MAX_METADATA:,}")
    return encoded


def _is_value(value: object) -> bool:
    match value:
        case int():
            return -(2**63) <= value < 2**63
        case float():
            return math.isfinite(value)
        case _:
            return value is None or _is_text(value, MAX_METADATA)


def _is_text(value: object, longest: int) -> bool:
    if not isinstance(value, str) or len(value) > longest:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
