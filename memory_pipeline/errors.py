"""The errors that this package raises on purpose.

::

    MemoryPipelineError
    ├── InputError            a caller's argument or record is wrong (also a ValueError)
    ├── ConfigurationError    a setting is wrong, or two settings contradict each other
    ├── LakeError             the lake could not do what was asked
    │   ├── CommitConflictError    other writers kept winning; nothing was written, try again
    │   ├── DamagedError           a file of the lake cannot be read; `memory-pipeline repair` rebuilds what it can
    │   └── QualityError           what was made is wrong; it was not indexed, and nothing is made from it
    └── ModelError            a model could not be reached, or its answers failed the checks

Every message names the argument or setting, the value that was given and what is accepted.
Whatever else comes out of this package is a bug, or an error of the operating system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class MemoryPipelineError(Exception):
    """Base of all errors raised on purpose."""


class InputError(MemoryPipelineError, ValueError):
    """An argument, a filter or a record from outside is not acceptable."""


class ConfigurationError(MemoryPipelineError):
    """A setting is not acceptable, or does not fit the lake it is used on."""


class LakeError(MemoryPipelineError):
    """The lake could not do what was asked."""


class CommitConflictError(LakeError):
    """Other writers kept changing the same partition; nothing was written."""


class _PartitionsError(LakeError):
    """An error of some partitions; others were not concerned.

    Attributes:
        keys: which; empty where nobody can tell.
    """

    def __init__(self, message: str, keys: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.keys = frozenset(keys)


class DamagedError(_PartitionsError):
    """Files of the lake are missing or cannot be read, and reading them again does not help."""


class QualityError(_PartitionsError):
    """Rows that were made are wrong; they are not indexed, not entered in the ledger, and nothing is made from them."""


class ModelError(MemoryPipelineError):
    """A model did not help; `trouble` says why in one word (:class:`memory_pipeline.domain.model_calls.Trouble`).

    Its message holds no key.
    """

    def __init__(self, trouble: str, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


def shown(value: object, limit: int = 80) -> str:
    """Return `value` as an error message may show it: quoted, printable, and short even if it is huge."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # a number of more than a few thousand digits, lists in lists in lists
        text = f"a {type(value).__name__} too large to be written"
    head = text[: limit + 1]
    quoted = ascii(head[:limit]) if isinstance(value, str) else head[:limit]
    return quoted if len(text) <= limit else f"{quoted}… ({len(text):,} characters)"
