"""Calls of models: purposes, answers, usage and cost, and the port that stores them.

The key of a request is a hash of everything that determines its answer: model, settings, prompt version, exact input.
Answers are stored, so that the same request is not paid twice. Every sent request is stored too, with its tokens and
cost, whether or not it was answered.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from datetime import datetime, timedelta

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope

#: UTF-8 bytes per estimated token: four letters of English, fewer of other scripts.
BYTES_PER_TOKEN = 4


def count_tokens(text: str) -> int:
    """Return the estimated tokens of a text: 4 bytes of UTF-8 each, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


class Purpose(StrEnum):
    """The purpose of a call."""

    EXTRACTION = "extraction"
    #: Help with reading memory; the answers are not stored.
    READING = "reading"
    SUMMARY = "summary"
    EMBEDDING = "embedding"
    #: Consolidation of durable memories.
    CONSOLIDATION = "consolidation"
    #: Answers and judgements of `eval --answer`; they are stored in a file of their own.
    EVALUATION = "evaluation"


class Trouble(StrEnum):
    """Why a call failed. It is stored in rows of the fallback, so it never contains text from a server."""

    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    #: No connection, a broken connection, a server error or an empty answer.
    UNAVAILABLE = "unavailable"
    #: A permanent error: unknown model, invalid key, forbidden request.
    REFUSED = "refused"
    #: The input exceeds the model's limit.
    TOO_LONG = "too_long"
    #: The answer failed validation.
    INVALID = "invalid"
    #: The workspace's monthly budget does not suffice; nothing was sent.
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Use:
    """The agent and the partition of a call."""

    scope: Scope
    period: Period


if TYPE_CHECKING:
    #: The payer of a call: the id of a workspace, or the scope of a user or group.
    Payer: TypeAlias = str | Scope


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request; answers of one kind have similar lengths."""

    purpose: Purpose
    model: str
    prompt_version: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """One sent request, or the share of one agent and period in it.

    Attributes:
        request_id: shared by all shares of a request.
        key: key of the request; see this module's docstring.
        prompt_version: None for embeddings.
        texts: number of embedded texts; 1 for a completion.
        tokens_in, tokens_out: as counted by the provider; 0 without an answer.
        cost: US dollars; None if neither the provider nor a price list has a price.
        outcome: ``ok``, or a :class:`Trouble`.
        called_at: when it was sent, UTC.
    """

    id: str
    request_id: str
    key: str
    use: Use
    purpose: Purpose
    model: str
    prompt_version: str | None
    texts: int
    tokens_in: int
    tokens_out: int
    cost: float | None
    seconds: float
    outcome: str
    called_at: datetime


@dataclass(frozen=True, slots=True)
class Answer:
    """A validated answer.

    `text` is of a completion; for embeddings float32 numbers in base64. Tokens and `cost` include all attempts.
    """

    key: str
    use: Use
    purpose: Purpose
    model: str
    prompt_version: str | None
    text: str
    tokens_in: int
    tokens_out: int
    cost: float | None


class ReadCall(NamedTuple):
    """A question to a model that helps a read. A cost of None means that no price is known."""

    model: str
    tokens_in: int
    tokens_out: int
    cost: float | None


#: The questions of the current read; None if nobody counts them. Threads of a read share the list.
READ_CALLS: ContextVar[list[ReadCall] | None] = ContextVar("READ_CALLS", default=None)


@contextmanager
def read_calls() -> Iterator[list[ReadCall]]:
    """Collect the questions to models that are asked within."""
    calls: list[ReadCall] = []
    token = READ_CALLS.set(calls)
    try:
        yield calls
    finally:
        READ_CALLS.reset(token)


@dataclass(frozen=True, slots=True)
class Usage:
    """Total of requests, tokens and US dollars. A cost of None means that no price is known.

    `unpriced` is the number of calls without a known price, which are not included in `cost`.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    unpriced: int = 0

    @classmethod
    def of(cls, calls: Iterable[Call]) -> Usage:
        """Sum up calls; shares of one request count as one call."""
        all_calls = list(calls)
        costs = [call.cost for call in all_calls if call.cost is not None]
        return cls(
            calls=len({call.request_id for call in all_calls}),
            tokens_in=sum(call.tokens_in for call in all_calls),
            tokens_out=sum(call.tokens_out for call in all_calls),
            cost=sum(costs) if costs else None,
            unpriced=len({call.request_id for call in all_calls if call.cost is None and call.tokens_in}),
        )

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            cost=self.cost if other.cost is None else other.cost + (self.cost or 0.0),
            unpriced=self.unpriced + other.unpriced,
        )


class CallStore(Protocol):
    """Stores answers and calls for all processes that work on one lake."""

    def load(self, periods: Collection[Period]) -> None:
        """Prefetch the answers of partitions."""
        ...

    def find(self, key: str, period: Period) -> Answer | None:
        """Return the answer to a request for `period`, from any process, or None."""
        ...

    def claim(self, key: str, lease: timedelta) -> bool:
        """Claim a request; False if another thread or process holds it.

        A claim ends with :meth:`release`, after its lease, or with its process. If the claim fails, look for the answer
        with :meth:`find`, then claim again.
        """
        ...

    def release(self, key: str) -> None:
        """Release a claim, with or without an answer."""
        ...

    def keep(self, calls: Sequence[Call], answer: Answer | None = None) -> None:
        """Durably store the attempts of one request, and its answer if there is one."""
        ...

    def settle(self, written: Collection[Period] = ()) -> dict[Period, Usage]:
        """Move pending records to permanent storage, and return the usage of each partition.

        `written` are the partitions with committed rows and vectors.
        """
        ...

    def spent(self, payer: Payer, month: str, *, look: bool = False) -> Usage:
        """Return the usage of a workspace, user or group in a calendar month (UTC), such as ``2024-01``.

        `look` includes the latest usage of other processes.
        """
        ...

    def answered(self, kind: Kind, month: str) -> Usage:
        """Return the usage of answered requests of one kind in a calendar month, over all workspaces."""
        ...


_Item = TypeVar("_Item")


class TextLines(list[_Item]):
    """Items that are shown as one line each."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    @property
    def tokens(self) -> int:
        """Estimated tokens of the text (:func:`count_tokens`)."""
        return count_tokens(str(self)) if self else 0
