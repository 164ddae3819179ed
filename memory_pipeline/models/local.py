"""Embeddings from a model that runs in this process. The only adapter of fastembed, which the extra ``local`` installs.

The first use downloads the model into fastembed's cache (FASTEMBED_CACHE_PATH, or ``parameters: {cache_dir: …}``).
Without network and cache the pipeline still runs: rows have no vector, search finds them by words, a warning is
logged, and the next run tries again.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from memory_pipeline.errors import ConfigurationError, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.configuration.model_settings import Embedding
    from memory_pipeline.domain.model_calls import Use

_log = logging.getLogger(__name__)


class TextModel(Protocol):
    """The part of fastembed's ``TextEmbedding`` that is used."""

    def embed(self, documents: Sequence[str], batch_size: int = 256) -> Iterable[NDArray[Any]]:
        """Yield one vector for each document, in the given order."""
        ...


class LocalEmbedder:
    """Embed texts with fastembed; a :class:`memory_pipeline.domain.ports.Embedder`.

    `load` opens a model by its name without ``fastembed/``; fastembed by default.
    """

    def __init__(self, endpoint: Embedding, load: Callable[[str], TextModel] | None = None) -> None:
        if endpoint.dimension is None:
            raise ConfigurationError(
                f"embedding.dimension of {endpoint.model} is missing; set it to the length of the model's vectors"
            )
        self._endpoint = endpoint
        self._dimension = endpoint.dimension
        self._load = load or self._fetch
        self._model: TextModel | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The model and its dimension."""
        return f"{self._endpoint.model} ({self._dimension})"

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return self._dimension

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), float32. Rows are NaN where there is no model or vector.

        Raises:
            ConfigurationError: fastembed is not installed, does not know the model, or the model has another
                dimension.
        """
        del uses  # local embeddings cost nothing
        vectors = np.full((len(texts), self._dimension), np.nan, np.float32)
        model = self._open() if texts else None
        if model is None:
            return vectors
        raw = np.array(list(model.embed(list(texts), batch_size=self._endpoint.batch_size)), np.float32)
        if raw.shape != vectors.shape:
            raise ConfigurationError(
                f"embedding.dimension is {self._dimension}, but {self._endpoint.model} returns vectors of "
                f"{raw.shape[-1]} numbers; set embedding.dimension to {raw.shape[-1]}"
            )
        lengths = np.linalg.norm(raw, axis=1)
        valid = np.isfinite(lengths) & (lengths > 0)
        vectors[valid] = raw[valid] / lengths[valid, None]
        return vectors

    def _open(self) -> TextModel | None:
        with self._lock:
            if self._model is None:
                try:
                    self._model = self._load(self._endpoint.model.partition("/")[2])
                except (OSError, RuntimeError, ValueError) as error:
                    _log.warning(
                        "%s is not in fastembed's cache and could not be downloaded (%s): texts get no vectors and are "
                        "found by words only; run once with network access, or set FASTEMBED_CACHE_PATH to a copy of "
                        "the cache",
                        self._endpoint.model,
                        error,
                    )
            return self._model

    def _fetch(self, name: str) -> TextModel:
        require("local", "fastembed")
        from fastembed import TextEmbedding

        known = [model["model"] for model in TextEmbedding.list_supported_models()]
        if name.lower() not in {model.lower() for model in known}:
            raise ConfigurationError(
                f"embedding.model fastembed/{name} is unknown to fastembed; expected one of {', '.join(sorted(known))}"
            )
        parameters = self._endpoint.parameters
        try:
            # A cached model is opened without a network request.
            return _typed(TextEmbedding(name, local_files_only=True, **parameters))
        except (OSError, ValueError):
            return _typed(TextEmbedding(name, **parameters))


def _typed(model: Any) -> TextModel:
    opened: TextModel = model
    return opened
