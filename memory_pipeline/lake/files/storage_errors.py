"""Errors of deltalake and lancedb when the object store below them fails, as messages.

Both reach S3 through the same Rust library. Its errors are long, coloured, and of uninformative types. It retries reads
by itself, within :data:`LIMITS`. It does not retry writes with a lost answer, which may have succeeded: writers check
that, and retry otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_pipeline.errors import LakeError, shown
from memory_pipeline.lake.commit_retry import FailureKind, RetryPolicy
from memory_pipeline.lake.files.disk import raise_of_disk

if TYPE_CHECKING:
    from collections.abc import Callable

#: Options of both libraries, under the names of each: timeouts in seconds (one request, connecting, a request with all
#: retries), and the number of retries.
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
#: Not modified, not found, exists already: expected answers.
_ANSWERS = ("304", "404", "409", "412")
_REPEATED = re.compile(r"after [1-9]\d* retries")
#: How the last error of a chain describes a lost connection.
_CAUSES = ("timed out", "refused", "reset by peer", "closed", "dns error", "unexpected EOF", "decoding response body")


def is_of_store(error: BaseException) -> bool:
    """Return whether a request to the object store failed. Answers about a file's existence are not failures."""
    text = str(error)
    if isinstance(error, FileNotFoundError) or not _OF_STORE.search(text):
        return False
    return _status(text) not in _ANSWERS


def is_final(error: BaseException) -> bool:
    """Return whether an immediate retry is useless: the store refuses the request, or retries are used up."""
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
    """Return the retry policy for operations on the object store, or a disk, through a library.

    `give_up` returns the error to raise in place of the last of `errors`, unless a request failed. `is_lost` returns
    whether an error means that other writers were faster. `what` and `place` are for messages about failed requests and
    disk errors without a path.
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
    """Return an error that says what failed, how, and what to do. `what` is the object, such as ``table facts``."""
    text = _COLOURS.sub("", str(error))
    request, code, status = _REQUEST.search(text), _CODE.search(text), _status(text)
    if status:
        answer = f"{status} {code[1]}" if code else status
    else:
        answer = next((cause for cause in _CAUSES if cause in text), shown(text, 200))
    description = f"{request[1]} {shown(request[2], 300)[1:-1]}" if request else "a request"
    return LakeError(
        f"{what}: the object store failed repeatedly: {description} ({answer}); nothing is lost, it "
        "is safe to run again once the store answers"
    )


def _status(text: str) -> str:
    found = _STATUS.search(text)
    return "" if found is None else found[1] or found[2]


#: Remedy for damage, at the end of messages.
REMEDY = "run `memory-pipeline repair`: it rebuilds derived data and lists lost files"
