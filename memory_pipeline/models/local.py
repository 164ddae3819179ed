"""Vectors by a model that runs in this process: the only door to fastembed, which the extra ``local`` installs.

A model is fetched from the network on its first use and kept in fastembed's cache (FASTEMBED_CACHE_PATH, or
``parameters: {cache_dir: …}``). Without network and cache, memory is made all the same: rows have no vector and are
found by words, the log says so, and the next run tries again.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from memory_pipeline.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.configuration.model_settings import Embedding
    from memory_pipeline.domain.model_calls import Use

_log = logging.getLogger(__name__)


class TextModel(Protocol):
    """What fastembed gives for a model."""

    def embed(self, documents: Sequence[str], batch_size: int = 256) -> Iterable[NDArray[Any]]:
        """Yield a vector for each document, in their order."""
        ...


class LocalEmbedder:
    """Embeds texts with fastembed; a :class:`memory_pipeline.domain.ports.Embedder`.

    Args:
        endpoint: the model, as ``fastembed/NAME``, and its dimension.
        load: opens a model by its name; fastembed's own if not given.
    """

    def __init__(self, endpoint: Embedding, load: Callable[[str], TextModel] | None = None) -> None:
        if endpoint.dimension is None:
            raise ConfigurationError(f"embedding.dimension of {endpoint.model} is missing")
        self._endpoint = endpoint
        self._dimension = endpoint.dimension
        self._load = load or self._fetched
        self._model: TextModel | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The model, and the length of its vectors."""
        return f"{self._endpoint.model} ({self._dimension})"

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return self._dimension

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), float32; NaN where there is no model or no vector.

        Raises:
            ConfigurationError: fastembed is not installed, does not know the model, or the model's vectors have
                another length.
        """
        del uses  # it costs nobody anything
        vectors = np.full((len(texts), self._dimension), np.nan, np.float32)
        model = self._opened() if texts else None
        if model is None:
            return vectors
        made = np.array(list(model.embed(list(texts), batch_size=self._endpoint.batch_size)), np.float32)
        if made.shape != vectors.shape:
            raise ConfigurationError(
                f"{self._endpoint.model} makes vectors of {made.shape[-1]} numbers; set embedding.dimension, which is "
                f"{self._dimension}, to that"
            )
        lengths = np.linalg.norm(made, axis=1)
        good = np.isfinite(lengths) & (lengths > 0)
        vectors[good] = made[good] / lengths[good, None]
        return vectors

    def _opened(self) -> TextModel | None:
        with self._lock:
            if self._model is None:
                try:
                    self._model = self._load(self._endpoint.model.partition("/")[2])
                except (OSError, RuntimeError, ValueError) as error:
                    _log.warning(
                        "%s is not in fastembed's cache and could not be fetched (%s): texts have no vectors and are "
                        "found by words; run it once with network access, or copy the cache and name it with "
                        "FASTEMBED_CACHE_PATH",
                        self._endpoint.model,
                        error,
                    )
            return self._model

    def _fetched(self, name: str) -> TextModel:
        try:
            from fastembed import TextEmbedding
        except ImportError:
            raise ConfigurationError(
                f"embedding.model {self._endpoint.model} needs fastembed: pip install 'memory-pipeline[local]'"
            ) from None
        known = [model["model"] for model in TextEmbedding.list_supported_models()]
        if name.lower() not in {model.lower() for model in known}:
            raise ConfigurationError(
                f"embedding.model fastembed/{name} is unknown to fastembed; it knows {', '.join(sorted(known))}"
            )
        parameters = self._endpoint.parameters
        try:
            # What is in the cache is taken without a question to the network.
            return _typed(TextEmbedding(name, local_files_only=True, **parameters))
        except (OSError, ValueError):
            return _typed(TextEmbedding(name, **parameters))


def _typed(model: Any) -> TextModel:
    opened: TextModel = model
    return opened
