"""The errors that this package raises deliberately.

::

    MemoryPipelineError
    ├── InputError            an argument or a record is invalid (also a ValueError)
    │   └── AccessDeniedError    an agent has no grant for the memory of another one
    ├── ConfigurationError    a setting is invalid, or two settings contradict each other
    │   └── MissingExtraError    a library is not installed (also an ImportError); the message names the extra
    ├── LakeError             an operation on the lake failed
    │   ├── CommitConflictError    concurrent commits won every retry; nothing was written, try again
    │   ├── VersionConflictError   an entry has another version than expected; nothing was written, read it again
    │   └── PartitionsError        some partitions failed; all others are complete
    │       ├── DamagedError           a file of the lake is missing or unreadable; try `memory-pipeline repair`
    │       │   └── DamagedLanceTableError    the file belongs to a Lance table, which runs rebuild
    │       ├── QualityError           computed rows failed validation; they are not indexed or used downstream
    │       └── UnexpectedError        the code fails on the input of a partition: a bug
    └── ModelError            a model is unreachable, or its answers failed validation

Every message names the argument or setting, the given value and the accepted values. Any other exception is a bug, or
an error of the operating system.
"""

from __future__ import annotations

import logging
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


_log = logging.getLogger(__name__)

#: Errors of code that does not expect its input. Unlike an outage, they concern one partition or scope.
BUGS = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class MemoryPipelineError(Exception):
    """Base class of all errors of this package."""


class InputError(MemoryPipelineError, ValueError):
    """An argument, a filter or an input record is invalid."""


class AccessDeniedError(InputError):
    """An agent has no grant for the memory of another agent, or there is no such agent."""


class ConfigurationError(MemoryPipelineError):
    """A setting is invalid, or does not match the lake."""


class MissingExtraError(ConfigurationError, ImportError):
    """A library that this feature needs is not installed."""

    def __init__(self, extra: str, library: str) -> None:
        super().__init__(f'{library} is not installed; run: pip install "memory-pipeline[{extra}]"')


class LakeError(MemoryPipelineError):
    """An operation on the lake failed."""


class CommitConflictError(LakeError):
    """Concurrent commits to the same partition won every retry; nothing was written."""


class VersionConflictError(LakeError):
    """An entry of a session or a pool has another version than expected; nothing was written.

    `version` is the one it has; 0 if there is none.
    """

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


class PartitionsError(LakeError):
    """An error in the partitions `keys`, empty if unknown. Other partitions are not affected."""

    def __init__(self, message: str, keys: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.keys = frozenset(keys)


class DamagedError(PartitionsError):
    """Files of the lake are missing or unreadable. A retry does not help."""


class DamagedLanceTableError(DamagedError):
    """A Lance table is missing or unreadable. Runs rebuild tables of projections from the records."""


class QualityError(PartitionsError):
    """Computed rows failed validation. They are not indexed, not recorded in the ledger and not used downstream."""


class UnexpectedError(PartitionsError):
    """The code fails on the input of a partition. This is a bug. Messages stay in the journal until it is corrected."""


def unexpected(what: str, error: Exception) -> UnexpectedError:
    """Log the traceback of a bug, and return the error that names what cannot be computed."""
    _log.error("%s cannot be computed", what, exc_info=error)
    return UnexpectedError(
        f"{what} cannot be computed: {type(error).__name__}: {shown(one_line(error))}; this is a bug, please report it "
        "with the log; everything else is complete"
    )


class ModelError(MemoryPipelineError):
    """A call to a model failed. The message contains no secret.

    `trouble` is the reason in one word, a :class:`memory_pipeline.domain.model_calls.Trouble`.
    """

    def __init__(self, trouble: str, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


def require(extra: str, library: str) -> None:
    """Raise unless a library is installed. It is not imported.

    Raises:
        MissingExtraError: it is not. The message names the extra that installs it.
    """
    try:
        found = find_spec(library)
    except ModuleNotFoundError:  # not even the package above
        found = None
    if found is None:
        raise MissingExtraError(extra, library.partition(".")[0])


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1: "1 row", "1,200 memories"."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{number:,} {plural}"


#: Rust libraries name the place in their source, on the machine that built them.
_BUILD_PATH = re.compile(r"(?:, | at )?(?:file: )?\"?/\S*\.rs\b[\":\d]*")


def one_line(error: BaseException) -> str:
    """Return the first line of an error's text, without paths of the machine on which a library was built."""
    return _BUILD_PATH.sub("", str(error).partition("\n")[0])


def shown(value: object, limit: int = 80) -> str:
    """Return `value` for an error message: quoted, printable and truncated to `limit` characters."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # an integer with thousands of digits, deeply nested lists
        text = f"a {type(value).__name__} too large to be written"
    head = text[: limit + 1]
    quoted = ascii(head[:limit]) if isinstance(value, str) else head[:limit]
    return quoted if len(text) <= limit else f"{quoted}… ({len(text):,} characters)"
