"""What models are asked: a question's parts, the key that names it, and what its answer comes as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.model_calls import count_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_pipeline.configuration.model_settings import Completion, Embedding, Endpoint
    from memory_pipeline.domain.model_calls import Purpose, Use

_Value = TypeVar("_Value")


class InvalidAnswerError(Exception):
    """An answer failed its checks; the message says what was wrong in words that the model can act on."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question to a model that writes.

    Attributes:
        use: whose it is, and for which partition.
        endpoint: the model and its settings.
        prompt_version: name of the instructions.
        system, user: the instructions, and what they are applied to.
        schema: JSON schema of the answer.
        name: the schema's name.
        numbers: the lines that an answer may cite.
        length: characters that an answer may have, if it is limited.
    """

    use: Use
    purpose: Purpose
    endpoint: Completion
    prompt_version: str
    system: str
    user: str
    schema: Mapping[str, Any]
    name: str
    numbers: tuple[int, ...]
    length: int | None = None

    @property
    def key(self) -> str:
        """Hash of all that decides the answer, and of whose it is."""
        scope, period, endpoint = self.use.scope, self.use.period, self.endpoint
        return digest(
            "completion-1", scope.workspace_id, scope.agent_id, period.grain, period.key, identity_of(endpoint),
            endpoint.temperature, endpoint.max_output_tokens, endpoint.answer_format,
            self.prompt_version, self.system, self.user, self.schema, self.length,
        )  # fmt: skip

    @property
    def tokens(self) -> int:
        """Estimate of the tokens that are sent."""
        return count_tokens(self.system) + count_tokens(self.user)


@dataclass(frozen=True, slots=True)
class Answered(Generic[_Value]):
    """What an answer says, and what it took to get it."""

    value: _Value
    tokens_in: int
    tokens_out: int
    cost: float | None


def identity_of(endpoint: Endpoint) -> str:
    """Name a model by what decides its answers: not by how long it is waited for, nor by who pays."""
    if not endpoint.api_base and not endpoint.parameters:
        return endpoint.model
    return f"{endpoint.model}-{digest(endpoint.api_base, endpoint.parameters)[:8]}"


def embedding_key(endpoint: Embedding, texts: Sequence[str]) -> str:
    """Return the hash of all that decides the vectors of a batch."""
    return digest("embedding-1", identity_of(endpoint), endpoint.dimension, texts)
