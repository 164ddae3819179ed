"""Memory that libraries have freed, given back to the system between shares.

Delta writes a table's partitions side by side, on threads of its own, and the C library keeps what each of them frees
for that thread: without this a run would hold what all its shares took, one after the other, not what one takes.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


def give_back() -> None:
    """Give freed memory back to the system; takes some milliseconds, and changes nothing that is in use."""
    pa.default_memory_pool().release_unused()
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    """Return glibc's ``malloc_trim``; where another C library is at work, what does nothing."""
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # TypeError: Windows has no None
        return bool
    return trim
