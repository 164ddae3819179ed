"""Embeddings from a model behind LiteLLM, in batches that several agents share."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from memory_pipeline.domain.model_calls import Trouble, Use, count_tokens
from memory_pipeline.domain.values import batched
from memory_pipeline.errors import ConfigurationError, ModelError
from memory_pipeline.models.hosted.transport.requests import identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

#: Most tokens in one request; providers limit a request's size.
_MOST_TOKENS = 100_000
#: A text refused as too long is halved until it has at most this many characters.
_SHORTEST = 200


class HostedEmbedder:
    """Embed texts with the configured model; a :class:`memory_pipeline.domain.ports.Embedder`.

    Texts of all agents share requests, except for workspaces with their own key or budget. A text longer than the
    model's context is embedded by its beginning; full-text search still finds the rest.
    """

    def __init__(self, executor: LlmExecutor) -> None:
        self._executor = executor
        self._endpoint = executor.configuration.embedding
        if self._endpoint.dimension is None:
            raise ConfigurationError(
                f"embedding.dimension of {self._endpoint.model} is missing; set it to the length of the model's vectors"
            )
        self._dimension = self._endpoint.dimension

    @property
    def name(self) -> str:
        """The model and its dimension."""
        return f"{identity_of(self._endpoint)} ({self._dimension})"

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return self._dimension

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), float32. Rows are NaN where the model failed."""
        vectors = np.full((len(texts), self._dimension), np.nan, np.float32)
        batches = list(self.batches(texts, uses))
        tasks = [
            partial(self._batch, [texts[place] for place in places], [uses[place] for place in places] if uses else ())
            for places in batches
        ]
        for places, batch in zip(batches, self._executor.gather(tasks) if tasks else [], strict=True):
            vectors[places] = batch
        return vectors

    def batches(self, texts: Sequence[str], uses: Sequence[Use]) -> Iterator[list[int]]:
        """Yield, for each request, the positions of its texts."""
        configuration = self._executor.configuration
        payers: dict[object, list[int]] = defaultdict(list)
        for place in range(len(texts)):
            workspace_id = uses[place].scope.workspace_id if uses else ""
            budgeted = workspace_id if uses and configuration.budget(workspace_id) else None
            payers[configuration.embedding_key(workspace_id) if uses else None, budgeted].append(place)
        endpoint = self._endpoint
        for places in payers.values():
            yield from batched(
                places,
                lambda place: min(count_tokens(texts[place]), endpoint.context_tokens),
                _MOST_TOKENS,
                endpoint.batch_size,
            )

    def _batch(self, texts: Sequence[str], uses: Sequence[Use]) -> NDArray[np.float32]:
        """Embed a batch. Halve a batch that is refused as too long, then a single text that is."""
        beginnings = [_beginning(text, self._endpoint.context_tokens) for text in texts]
        try:
            return self._executor.embed(self._endpoint, beginnings, uses)
        except ModelError as error:
            if error.trouble == Trouble.TOO_LONG and len(texts) > 1:
                half = len(texts) // 2
                return np.concatenate([self._batch(texts[:half], uses[:half]), self._batch(texts[half:], uses[half:])])
            if error.trouble == Trouble.TOO_LONG and len(beginnings[0]) > _SHORTEST:
                return self._batch([beginnings[0][: len(beginnings[0]) // 2]], uses)
            self._executor.log_failure(error)
            return np.full((len(texts), self._dimension), np.nan, np.float32)


def _beginning(text: str, tokens: int) -> str:
    if count_tokens(text) <= tokens:
        return text
    return text.encode(errors="replace")[: tokens * 4].decode(errors="ignore")
