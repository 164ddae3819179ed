"""Strict JSON: no repeated keys, no numbers outside the standard, limited depth."""

from __future__ import annotations

from memory_pipeline.domain.json_text import RepeatedKeyError, read_json
from memory_pipeline.errors import InputError, shown

#: Maximum nesting of a record: far more than conversations need, far below the limits of JSON libraries.
MAX_DEPTH = 100


def depth_of(value: object) -> int:
    """Return the nesting depth of a JSON value, without recursion, which has a limit."""
    depth, level = 0, [value]
    while level := [item for value in level for item in _items(value)]:
        depth += 1
    return depth


def _items(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def parse_json(line: bytes) -> dict[str, object]:
    """Parse one JSON object.

    Raises:
        InputError: it is not UTF-8, not JSON, nested too deep, repeats a key, or is not an object.
    """
    try:
        value = read_json(line.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"not valid UTF-8 at byte {error.start}") from None
    except RepeatedKeyError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {shown(str(error), 200)}") from None
    if depth_of(value) > MAX_DEPTH:
        raise InputError(f"nested more than {MAX_DEPTH} levels deep")
    if not isinstance(value, dict):
        raise InputError(f"expected a JSON object, not {shown(value)}")
    return value
