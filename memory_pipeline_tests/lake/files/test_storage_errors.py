"""Errors of the object store are distinguished from its answers about files, and explained."""

from __future__ import annotations

import pytest

from memory_pipeline.lake.files.storage_errors import in_words, is_final, is_of_store

_REQUEST = (
    "Error performing PUT http://127.0.0.1:9/lakes/x/tables/facts/_delta_log/00000000000000000001.json?a=b in 3ms"
)
BUSY = (
    "Generic S3 error\n\x1b[31m↳\x1b[0m "
    f"{_REQUEST}, after 6 retries, max_retries: 6, retry_timeout: 45s  - Server returned non-2xx status code: "
    "503 Service Unavailable: <Error><Code>SlowDown</Code><Message>Please</Message></Error>"
)
RESET = f"Generic S3 error: {_REQUEST} - HTTP error: error sending request: Connection reset by peer (os error 104)"
DENIED = f"Generic S3 error: {_REQUEST} - Server returned non-2xx status code: 403 Forbidden: <Code>AccessDenied</Code>"
MISSING = f"Object at location x not found: {_REQUEST} - Server returned non-2xx status code: 404 Not Found: "
PRESENT = f"{_REQUEST} - Server returned non-2xx status code: 412 Precondition Failed: <Code>PreconditionFailed</Code>"


@pytest.mark.parametrize(
    ("error", "of_store", "final"),
    [
        (OSError(BUSY), True, True),
        (OSError(RESET), True, False),
        (RuntimeError(DENIED), True, True),
        (RuntimeError(MISSING), False, None),
        (OSError(PRESENT), False, None),
        (FileNotFoundError(RESET), False, None),
        (ValueError("Table 'x' was not found"), False, None),
        (RuntimeError("Generic S3 error: error decoding response body"), True, False),
    ],
)
def test_storage_errors_are_temporary_or_final(error: Exception, of_store: bool, final: bool | None) -> None:
    assert is_of_store(error) == of_store
    if final is not None:
        assert is_final(error) == final


@pytest.mark.parametrize(
    ("text", "answer"), [(BUSY, "503 SlowDown"), (RESET, "reset by peer"), (DENIED, "403 AccessDenied")]
)
def test_the_request_and_the_answer_are_named(text: str, answer: str) -> None:
    said = str(in_words(OSError(text), "table facts"))
    assert said == (
        "table facts: the object store failed repeatedly: PUT 127.0.0.1:9/lakes/x/tables/facts/_delta_log/"
        f"00000000000000000001.json ({answer}); nothing is lost, it is safe to run again once the store answers"
    )
