"""Checks of single values from outside, and lists of limited size. Errors name the argument and what is accepted."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_Item = TypeVar("_Item")
_One = TypeVar("_One", bound=StrEnum)
#: Largest position of a record in its conversation or write.
MAX_TURN = 2**31 - 1


def one_of(kind: type[_One], name: str, value: object) -> _One:
    """Return the member of an enumeration with a value.

    Raises:
        InputError: there is none.
    """
    try:
        return kind(value)  # type: ignore[arg-type]  # other values raise ValueError
    except ValueError:
        raise InputError(f"{name} {shown(value)} is unknown; accepted: {', '.join(kind)}") from None


def count_of(name: str, value: object, least: int, most: int, unit: str = "") -> int:
    """Return a whole number; `unit` is for the message.

    Raises:
        InputError: it is none, or not from `least` to `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name} {shown(value)} is not accepted; expected {least:,} to {most:,}{unit}")
    return value


def number_of(name: str, value: object, least: float, most: float, unit: str = "") -> float:
    """Return a number; `unit` is for the message.

    Raises:
        InputError: it is none, or not from `least` to `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InputError(f"{name} {shown(value)} is not accepted; expected {least:g} to {most:g}{unit}")
    return float(value)


def share_of(name: str, value: object, default: float | None = None) -> float:
    """Return a number from 0 to 1; the default, if there is one, for None.

    Raises:
        InputError: it is none.
    """
    return default if value is None and default is not None else number_of(name, value, 0, 1)


def batched(
    items: Iterable[_Item], weight_of: Callable[[_Item], int], most: float, most_items: int | None = None
) -> Iterator[list[_Item]]:
    """Cut items into lists of a total weight of `most` and a length of `most_items`; a heavier item is alone."""
    batch: list[_Item] = []
    weight = 0
    for item in items:
        own = weight_of(item)
        if batch and (weight + own > most or len(batch) == most_items):
            yield batch
            batch, weight = [], 0
        batch.append(item)
        weight += own
    if batch:
        yield batch
