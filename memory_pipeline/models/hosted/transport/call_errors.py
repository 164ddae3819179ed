"""Classify failed requests, and describe them without secrets.

LiteLLM's exception classes differ by provider for the same failure. So failures are classified by the HTTP status, and
by the message where the status is ambiguous.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from memory_pipeline.domain.model_calls import Trouble

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_LONGEST_MESSAGE: Final = 300
_HOW_TO_GIVE_A_KEY: Final = "set api_key in config/workspaces.yaml, or the provider's variable such as OPENAI_API_KEY"

#: Some providers send a general client error for it.
_TOO_LONG: Final = re.compile(
    r"context.?(length|window|size|limit)|(prompt|input|request)( is)?.too.(long|large)|too many (input )?tokens"
    r"|must have less than \d+ tokens|maximum (input|sequence) length",
    re.IGNORECASE,
)
#: Messages of LiteLLM and its clients before anything is sent.
_NO_KEY_GIVEN: Final = re.compile(
    r"missing credentials|missing \S+ api.?key|no key is set|api.?key.{0,30} must be set", re.IGNORECASE
)
#: Not "exceeded your current quota": Gemini says it of a quota per minute.
_ACCOUNT_IS_EMPTY: Final = re.compile(r"insufficient_quota|billing_hard_limit|credit balance is too low", re.IGNORECASE)

_SECRET: Final = re.compile(
    r"\b(?:(?:sk|pk|rk|xai|pplx|nvapi)-|(?:gsk|hf|r8|ghp)_|AIza|AKIA|ASIA)[\w*.-]{8,}"
    r"|(?i:\b(?:bearer|basic)\s+[^\s\"',;]{6,})"
    r"|(?i:(?<=key=)[^\s\"'&,;]+)"
)
#: Shorter keys are dummies such as "x", for servers that need none.
_SHORTEST_SECRET: Final = 4
_HIDDEN: Final = "[hidden]"
_CLASS_NAMES: Final = re.compile(
    r"^(?:(?:litellm\.)?\w*(?:Error|Timeout|Exception|Provider)\b(?: Error)?(?: -|:)(?: |$))+"
)


class CallError(Exception):
    """A failed request. The message is one line, without the model's name and without keys.

    Attributes:
        is_transient: whether a retry may help.
        retry_after: seconds of the server's Retry-After header, if any.
        tokens_in, tokens_out: tokens of an unusable answer and its request.
        cost: US dollars spent on an unusable answer.
    """

    def __init__(
        self,
        trouble: Trouble,
        message: str,
        *,
        is_transient: bool,
        retry_after: float | None = None,
        tokens_in: int = 0,
        tokens_out: int = 0,
        cost: float | None = None,
    ) -> None:
        super().__init__(message)
        self.trouble = trouble
        self.is_transient = is_transient
        self.retry_after = retry_after
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out
        self.cost = cost


def failure_of(error: Exception, secrets: Collection[str], *, has_key: bool, is_sent: bool) -> CallError:
    """Return the CallError for an exception of LiteLLM, without any of `secrets` in its message.

    `has_key` says whether a key was configured, `is_sent` whether the request is known to have been sent.
    """
    import httpx

    chain = list(_chain(error))
    is_sent = is_sent or any(isinstance(cause, httpx.HTTPError | OSError) for cause in chain)
    broken = next((cause for cause in reversed(chain) if isinstance(cause, httpx.TransportError)), None)
    # Without an answer, LiteLLM invents a status.
    status = getattr(error, "status_code", None) if broken is None else None
    words = str(error) if broken is None else f"{type(broken).__name__}: {broken}"
    details = f"{words} {getattr(error, 'body', None)}"
    trouble, is_transient = Trouble.UNAVAILABLE, True
    if not is_sent or isinstance(broken, httpx.LocalProtocolError | httpx.UnsupportedProtocol):
        trouble, is_transient, status = Trouble.REFUSED, False, None
        if _NO_KEY_GIVEN.search(words):
            words = f"no key was given; {_HOW_TO_GIVE_A_KEY}"
    elif isinstance(broken, httpx.TimeoutException) or status in {408, 504}:
        trouble = Trouble.TIMEOUT
    elif (
        status == 413
        or type(error).__name__ == "ContextWindowExceededError"
        or (status in {400, 422} and _TOO_LONG.search(details))
        or (status == 429 and "request too large" in details.lower())  # larger than the whole limit per minute
    ):
        trouble, is_transient = Trouble.TOO_LONG, False
    elif status == 429 and not _ACCOUNT_IS_EMPTY.search(details):
        trouble = Trouble.RATE_LIMITED
    elif isinstance(status, int) and 400 <= status < 500 and status not in {409, 425}:
        trouble, is_transient = Trouble.REFUSED, False
    elif isinstance(chain[-1], ValueError | LookupError | AttributeError | TypeError):
        status, words = None, f"LiteLLM cannot read the answer: {chain[-1]}"
    message = plain(words, secrets)
    if status == 401 and not has_key:
        message = f"{message[: _LONGEST_MESSAGE - 120]}; {_HOW_TO_GIVE_A_KEY}"
    return CallError(
        trouble,
        (f"{status}: {message}" if status else message)[:_LONGEST_MESSAGE],
        is_transient=is_transient,
        retry_after=_retry_after(chain) if is_transient else None,
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        yield cause
        cause = cause.__cause__ or cause.__context__


def plain(words: str, secrets: Collection[str]) -> str:
    """Return an error message on one line, without secrets and LiteLLM's class names."""
    for secret in sorted((secret for secret in secrets if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True):
        for form in {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]}:
            words = words.replace(form, _HIDDEN)
    words = _SECRET.sub(_HIDDEN, words).partition("Traceback (most recent call last)")[0]
    return _CLASS_NAMES.sub("", " ".join(words.split()))[:_LONGEST_MESSAGE] or "no reason was given"


def _retry_after(chain: Sequence[BaseException]) -> float | None:
    """Return the seconds of the Retry-After header, which is a number or a date."""
    for cause in chain:
        response = getattr(cause, "response", None)
        for headers in (getattr(cause, name, None) for name in ("litellm_response_headers", "headers")):
            if headers and (value := headers.get("retry-after")):
                return _seconds(value)
        if (headers := getattr(response, "headers", None)) and (value := headers.get("retry-after")):
            return _seconds(value)
    return None


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else None
