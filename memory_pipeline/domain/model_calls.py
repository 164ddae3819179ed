"""Calls of models: what they are for, what came back, what they cost, and the port by which they are remembered.

A question is named by a key, the hash of all that decides its answer: model, settings, prompt version, exact input.
Its answer is kept, so that nobody pays twice for one question; each request that was sent is kept too, with its tokens
and cost, whether or not it led to an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime, timedelta

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Period


#: Bytes of UTF-8 that count as one token where no model counted: four letters of English, less of other scripts.
BYTES_PER_TOKEN = 4


def count_tokens(text: str) -> int:
    """Return how many tokens a text has, estimated at 4 bytes of UTF-8 each, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


class Purpose(StrEnum):
    """What a model is called for."""

    EXTRACTION = "extraction"
    #: What helps to read memory; such calls are not remembered.
    READING = "reading"
    SUMMARY = "summary"
    EMBEDDING = "embedding"
    #: The nightly upkeep of durable memories.
    UPKEEP = "upkeep"


class Trouble(StrEnum):
    """Why a model did not help. Stands in the rows that a stand-in made instead, so it never holds a server's words."""

    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    #: No connection, a connection that broke, an error of the server, an answer that is none.
    UNAVAILABLE = "unavailable"
    #: The server will not do it, however often it is asked: no such model, no such key, a request it forbids.
    REFUSED = "refused"
    #: More input than the model takes.
    TOO_LONG = "too_long"
    #: It answered, and the answer failed the checks.
    INVALID = "invalid"
    #: The workspace's budget for the month has no room for it; nothing was sent.
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Use:
    """Whose call it is, and for which partition."""

    scope: Scope
    period: Period


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question: the answers to questions of one kind have about the same length."""

    purpose: Purpose
    model: str
    prompt_version: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """One request that was sent; of one that served several agents or periods, the share of one of them.

    Attributes:
        id: of this line.
        request_id: of the request; shares of one request have the same.
        key: of the question.
        model, prompt_version: what was asked, and with which prompt; no prompt for embeddings.
        texts: how many texts were embedded; 1 for a completion.
        tokens_in, tokens_out: as the provider counted them; 0 where it did not answer.
        cost: US dollars; None where neither the provider nor a price list tells.
        seconds: how long it took.
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
    """What came back, checked: the text of a completion; of embeddings, float32 numbers in base64.

    Attributes:
        tokens_in, tokens_out, cost: of all requests that it took to get it.
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


@dataclass(frozen=True, slots=True)
class Usage:
    """Requests, tokens and dollars, added up. A cost of None: nothing is known to have cost anything.

    Attributes:
        unpriced: how many of the calls are not in `cost` because nobody knows their price.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    unpriced: int = 0

    @classmethod
    def of(cls, calls: Iterable[Call]) -> Usage:
        """Add up calls; shares of one request count as one call."""
        listed = list(calls)
        costs = [call.cost for call in listed if call.cost is not None]
        return cls(
            calls=len({call.request_id for call in listed}),
            tokens_in=sum(call.tokens_in for call in listed),
            tokens_out=sum(call.tokens_out for call in listed),
            cost=sum(costs) if costs else None,
            unpriced=len({call.request_id for call in listed if call.cost is None and call.tokens_in}),
        )

    def __add__(self, other: Usage) -> Usage:
        """Return both together."""
        return Usage(
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            cost=self.cost if other.cost is None else other.cost + (self.cost or 0.0),
            unpriced=self.unpriced + other.unpriced,
        )


class CallStore(Protocol):
    """Remembers answers and calls, for all processes that work on one lake."""

    def load(self, periods: Collection[Period]) -> None:
        """Read ahead the answers of partitions that questions are going to be asked for."""
        ...

    def find(self, key: str, period: Period) -> Answer | None:
        """Return the answer to a question that was asked for `period`, by whatever process; None if there is none."""
        ...

    def claim(self, key: str, lease: timedelta) -> bool:
        """Take a question upon oneself; False if another thread or process is at it.

        A claim ends with :meth:`release`, after its lease, or with the process that holds it. Whoever is refused
        looks for the answer with :meth:`find`, and claims again.
        """
        ...

    def release(self, key: str) -> None:
        """Give a claim back, with or without an answer."""
        ...

    def keep(self, calls: Sequence[Call], answer: Answer | None = None) -> None:
        """Remember requests of one question, and its answer if they led to one; durable when it returns."""
        ...

    def settle(self, written: Collection[Period] = ()) -> dict[Period, Usage]:
        """Move what is kept to where it stays for good; return what was spent on each partition.

        Args:
            written: partitions whose rows, and the vectors in them, have been committed.
        """
        ...

    def spent(self, workspace_id: str, month: str, *, look: bool = False) -> Usage:
        """Return what a workspace has spent in a calendar month (UTC), named as ``2024-01``.

        Args:
            workspace_id: the workspace.
            month: which.
            look: whether to look for what other processes have spent meanwhile.
        """
        ...

    def answered(self, kind: Kind, month: str) -> Usage:
        """Return what requests of one kind that were answered took in a calendar month, of all workspaces together."""
        ...


_Item = TypeVar("_Item")


class TextLines(list[_Item]):
    """Things that are shown as a line each.

    Attributes:
        tokens: what the text takes, estimated as :func:`memory_pipeline.domain.model_calls.count_tokens` does.
    """

    def __str__(self) -> str:
        """Return all lines."""
        return "\n".join(map(str, self))

    @property
    def tokens(self) -> int:
        """Return the tokens of the text."""
        return count_tokens(str(self)) if self else 0
