"""Requests to models, their keys, their answers, and the record of the calls they took."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ulid import ULID

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.model_calls import Answer, Call, Use, count_tokens
from memory_pipeline.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.configuration.model_settings import Completion, Embedding, Endpoint
    from memory_pipeline.domain.model_calls import CallStore, Purpose
    from memory_pipeline.models.hosted.transport.call_errors import CallError


_Value = TypeVar("_Value")


class InvalidAnswerError(Exception):
    """An answer failed its checks. The message goes back to the model as a correction."""


class CutError(ModelError):
    """An answer was cut off at the largest number of tokens: ask about less."""


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """One question to a completion model.

    Attributes:
        system: the instructions, in the version `prompt_version`.
        user: the input.
        numbers: the line numbers that an answer may cite.
        length: most characters of an answer; None for no limit.
        schema: of the answer; None for free text.
        can_be_halved: whether a cut answer raises CutError, instead of being corrected.
    """

    use: Use
    purpose: Purpose
    endpoint: Completion
    prompt_version: str
    system: str
    user: str
    schema: Mapping[str, Any] | None
    name: str
    numbers: tuple[int, ...]
    length: int | None = None
    can_be_halved: bool = False

    @property
    def key(self) -> str:
        """Hash of everything that determines the answer, and of the agent and partition."""
        scope, period, endpoint = self.use.scope, self.use.period, self.endpoint
        return digest(
            "completion-1", *scope.ids, period.grain, period.key, identity_of(endpoint),
            endpoint.temperature, endpoint.max_output_tokens, endpoint.answer_format,
            self.prompt_version, self.system, self.user, self.schema, self.length,
        )  # fmt: skip

    @property
    def tokens(self) -> int:
        """Estimate of the tokens sent."""
        return count_tokens(self.system) + count_tokens(self.user)


@dataclass(frozen=True, slots=True)
class Answered(Generic[_Value]):
    """The answer to one request, or the parsed answer to a question with the tokens and cost of all its requests.

    Tokens are estimates if the provider reports none. `cost` is in US dollars, or None if neither the provider nor a
    price list gives it. `is_cut` says whether a text was cut off at the largest number of tokens.
    """

    value: _Value
    tokens_in: int
    tokens_out: int
    cost: float | None
    is_cut: bool = False


def identity_of(endpoint: Endpoint) -> str:
    """Return a name for the settings that determine a model's answers: no timeouts, no keys."""
    if not endpoint.api_base and not endpoint.parameters:
        return endpoint.model
    return f"{endpoint.model}-{digest(endpoint.api_base, endpoint.parameters)[:8]}"


def embedding_key(endpoint: Embedding, texts: Sequence[str]) -> str:
    """Return the hash of everything that determines the vectors of a batch."""
    return digest("embedding-1", identity_of(endpoint), endpoint.dimension, texts)


@dataclass(frozen=True, slots=True)
class UsageShare:
    """One use's share of a request: how many of its texts, and the share of its tokens (0 to 1)."""

    use: Use
    texts: int
    weight: float


@dataclass
class Sent:
    """When a request was sent, and the seconds until its answer."""

    at: datetime
    started: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0

    def stop(self) -> None:
        """Stop the clock; later calls change nothing."""
        self.seconds = self.seconds or time.perf_counter() - self.started


@dataclass
class Requests:
    """The requests sent for one question.

    `on_spent` is called after each request with its tokens in, tokens out and cost.
    """

    store: CallStore | None
    key: str
    purpose: Purpose
    endpoint: Endpoint
    prompt_version: str | None
    shares: list[UsageShare] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    on_spent: Callable[[int, int, float | None], None] | None = None

    def add(self, sent: Sent, outcome: str, spent: Answered[Any] | CallError) -> None:
        """Record a request, with the outcome and what it took, as one call per share."""
        sent.stop()
        tokens_in, tokens_out, cost = spent.tokens_in, spent.tokens_out, spent.cost
        request_id = str(ULID())
        before = 0.0
        for number, share in enumerate(self.shares):
            after = before + share.weight
            self.calls.append(
                Call(
                    id=f"{request_id}-{number}" if number else request_id,
                    request_id=request_id,
                    key=self.key,
                    use=share.use,
                    purpose=self.purpose,
                    model=self.endpoint.model,
                    prompt_version=self.prompt_version,
                    texts=share.texts,
                    # Differences of rounded sums, so that the parts add up to the whole.
                    tokens_in=round(tokens_in * after) - round(tokens_in * before),
                    tokens_out=round(tokens_out * after) - round(tokens_out * before),
                    cost=None if cost is None else cost * share.weight,
                    seconds=sent.seconds * share.weight,
                    outcome=str(outcome),
                    called_at=sent.at,
                )
            )
            before = after
        if self.on_spent is not None:
            self.on_spent(tokens_in, tokens_out, cost)

    def keep(self, answer: Answer | None) -> None:
        """Store the calls, and the answer if there is one."""
        if self.store and self.calls:
            self.store.keep(self.calls, answer)

    def answered(self, value: _Value, text: str) -> Answered[_Value]:
        """Store the answer. Return its value with the tokens and cost of all requests."""
        costs = [call.cost for call in self.calls if call.cost is not None]
        tokens_in = sum(call.tokens_in for call in self.calls)
        tokens_out = sum(call.tokens_out for call in self.calls)
        cost = sum(costs) if costs else None
        if self.shares:
            use, model = self.shares[0].use, self.endpoint.model
            self.keep(
                Answer(self.key, use, self.purpose, model, self.prompt_version, text, tokens_in, tokens_out, cost)
            )
        return Answered(value, tokens_in, tokens_out, cost)


def shares_of(texts: Sequence[str], uses: Sequence[Use]) -> list[UsageShare]:
    """Divide a batch among its uses in proportion to the tokens of their texts."""
    if not uses:
        return []
    lengths: Counter[Use] = Counter()
    for text, use in zip(texts, uses, strict=True):
        lengths[use] += max(1, count_tokens(text))
    counts = Counter(uses)
    whole = lengths.total()
    return [UsageShare(use, counts[use], length / whole) for use, length in lengths.items()]
