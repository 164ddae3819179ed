"""What deltalake and lancedb raise when the object store below them fails, in words.

Both reach S3 through one library of Rust, whose errors are long, coloured, and of types that say little. It sends reads
again by itself, within the limits of :data:`LIMITS`; a write whose answer was lost it does not, for it may have been
done. Whoever writes looks whether it was, and else tries again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_pipeline.errors import LakeError, shown
from memory_pipeline.lake.commit_retry import FailureKind, RetryPolicy
from memory_pipeline.lake.files.disk import raise_of_disk

if TYPE_CHECKING:
    from collections.abc import Callable

#: Options of both libraries, under the names of each: the seconds that one request, connecting, and a request with all
#: its repetitions may take, and how often it is sent again.
LIMITS = {
    "timeout": "30s",
    "connect_timeout": "5s",
    "max_retries": "6",
    "retry_timeout": "45s",
    "backoff_config.max_backoff": "3s",
    "client_max_retries": "6",
    "client_retry_timeout": "45",
    "download_retry_count": "3",
}

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_OF_STORE = re.compile(r"Generic S3 error|Error performing (GET|PUT|POST|HEAD|DELETE) |error decoding response body")
_REQUEST = re.compile(r"Error performing (GET|PUT|POST|HEAD|DELETE) (?:https?://)?([^\s?]+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})|\b([345]\d\d) [A-Z][a-z]+")
#: Not changed, not there, there already: what somebody wanted to know.
_ANSWERS = ("304", "404", "409", "412")
_REPEATED = re.compile(r"after [1-9]\d* retries")
#: The last thing that a chain of errors says of a connection.
_CAUSES = ("timed out", "refused", "reset by peer", "closed", "dns error", "unexpected EOF", "decoding response body")


def is_of_store(error: BaseException) -> bool:
    """Tell whether an error says that a request to the object store failed, and not what the store knows of a file."""
    text = str(error)
    if isinstance(error, FileNotFoundError) or not _OF_STORE.search(text):
        return False
    return _status(text) not in _ANSWERS


def is_final(error: BaseException) -> bool:
    """Tell whether it is of no use to ask again at once: the store refuses, or was asked as often as it may be."""
    text = str(error)
    return _status(text).startswith("4") or bool(_REPEATED.search(text))


def store_policy(
    what: str,
    attempts: int,
    errors: tuple[type[Exception], ...],
    give_up: Callable[[Exception], Exception],
    *,
    is_lost: Callable[[Exception], bool] = lambda _: True,
    place: str | None = None,
) -> RetryPolicy:
    """Return how often something is tried that reaches the object store, or a disk, through a library.

    Args:
        what: is read or written, for the message where requests failed.
        attempts: how many there are at most.
        errors: of the library.
        give_up: returns what is raised in the place of the last of them, unless a request failed.
        is_lost: tells whether an error says that others were first.
        place: what the message names where a disk refuses, and the error does not.
    """

    def judge(error: Exception) -> FailureKind:
        raise_of_disk(error, place or what)
        if is_of_store(error):
            return FailureKind.FINAL if is_final(error) else FailureKind.TRANSIENT
        return FailureKind.LOST if is_lost(error) else FailureKind.FINAL

    def last(error: Exception) -> Exception:
        return in_words(error, what) if is_of_store(error) else give_up(error)

    return RetryPolicy(attempts, errors, judge, last)


def in_words(error: BaseException, what: str) -> LakeError:
    """Return an error that says of one of the store what failed, how, and what to do.

    Args:
        error: of deltalake or lancedb.
        what: what was read or written, as ``table facts``.
    """
    text = _COLOURS.sub("", str(error))
    request, code, status = _REQUEST.search(text), _CODE.search(text), _status(text)
    if status:
        answer = f"{status} {code[1]}" if code else status
    else:
        answer = next((cause for cause in _CAUSES if cause in text), shown(text, 200))
    asked = f"{request[1]} {shown(request[2], 300)[1:-1]}" if request else "a request"
    return LakeError(
        f"{what}: the object store failed time and again: {asked} ({answer}); nothing is lost, it "
        "is safe to run again once the store answers"
    )


def _status(text: str) -> str:
    found = _STATUS.search(text)
    return "" if found is None else found[1] or found[2]


#: What to do about damage, at the end of a message.
REMEDY = "`memory-pipeline repair` rebuilds what can be made again, and names what is lost"
