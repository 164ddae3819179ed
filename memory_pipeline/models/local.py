"""Embeddings and re-ranking by models that run in this process. The only adapter of fastembed, of the extra ``local``.

The first use downloads the model into fastembed's cache (FASTEMBED_CACHE_PATH, or ``parameters: {cache_dir: …}``).
Without network and cache the pipeline still runs: rows have no vector, search finds them by words, a warning is
logged, and a later run tries again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import numpy as np

from memory_pipeline.configuration.model_settings import LOCAL
from memory_pipeline.domain.model_calls import Trouble
from memory_pipeline.errors import ConfigurationError, ModelError, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.configuration.model_settings import CrossEncoder, Embedding, Endpoint
    from memory_pipeline.domain.model_calls import Use

_log = logging.getLogger(__name__)

_Model = TypeVar("_Model")

#: Queries whose vectors are kept in memory: an agent asks about the same text in several ways.
_KEPT_QUERIES: Final = 1_000
#: Texts of one batch, unless batch_size is set. Larger batches are slower on a CPU: the longest text pads the others.
_MOST_TEXTS: Final = 16
#: Seconds between lines of progress, and from a failed download to the next: fastembed tries for 40 seconds.
_REPORT_EVERY: Final = 10.0
_TRY_AGAIN_AFTER: Final = 300.0


class TextModel(Protocol):
    """The part of fastembed's ``TextEmbedding`` that is used."""

    def embed(self, documents: Sequence[str], batch_size: int = 256) -> Iterable[NDArray[Any]]:
        """Yield one vector for each document, in the given order."""
        ...


class PairModel(Protocol):
    """The part of fastembed's ``TextCrossEncoder`` that is used."""

    def rerank(self, query: str, documents: Sequence[str], batch_size: int = 64) -> Iterable[float]:
        """Yield one score for each document, in the given order; a better document has a higher one."""
        ...


class LocalEmbedder:
    """Embed texts with fastembed; a :class:`memory_pipeline.domain.ports.Embedder`.

    `load` opens a model by its name without ``fastembed/``; fastembed by default.
    """

    def __init__(self, endpoint: Embedding, load: Callable[[str], TextModel] | None = None) -> None:
        self._endpoint = endpoint
        self._model: _OnFirstUse[TextModel] = _shared_or_own("TextEmbedding", endpoint, load)
        self._query = lru_cache(_KEPT_QUERIES)(lambda text: self._vectors([text])[0])

    @property
    def name(self) -> str:
        """The model and its dimension."""
        return f"{self._endpoint.model} ({self.dimension})"

    @cached_property
    def dimension(self) -> int:
        """Length of the vectors: as configured, else as fastembed knows it.

        Raises:
            ConfigurationError: fastembed is not installed, or does not know the model.
        """
        return self._endpoint.dimension or int(_described("TextEmbedding", _name(self._endpoint))["dim"])

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), float32. Rows are NaN where there is no model or vector.

        Vectors of single texts without `uses`, which are queries, are kept in memory.

        Raises:
            ConfigurationError: fastembed is not installed, does not know the model, or the model has another
                dimension.
        """
        try:
            return self._query(texts[0])[None].copy() if len(texts) == 1 and not uses else self._vectors(texts)
        except ModelError:
            return np.full((len(texts), self.dimension), np.nan, np.float32)

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.full((len(texts), self.dimension), np.nan, np.float32)
        if not texts:
            return vectors
        model, name, done = self._model(), self._endpoint.model, 0
        started = reported = time.monotonic()
        size = self._endpoint.batch_size if "batch_size" in self._endpoint.model_fields_set else _MOST_TEXTS
        for places in _batches(texts, size):
            batch = model.embed([texts[place] for place in places], batch_size=len(places))
            raw = np.array(list(batch), np.float32)
            if raw.shape != (len(places), self.dimension):
                raise ConfigurationError(
                    f"embedding.dimension is {self.dimension}, but {name} returns vectors of {raw.shape[-1]} numbers; "
                    f"set embedding.dimension to {raw.shape[-1]}"
                )
            lengths = np.linalg.norm(raw, axis=1, keepdims=True)
            is_valid = np.isfinite(lengths) & (lengths > 0)
            vectors[places] = np.where(is_valid, raw / np.where(is_valid, lengths, 1), np.nan)
            done, now = done + len(places), time.monotonic()
            if now - reported >= _REPORT_EVERY:
                reported = now
                _log.info("%s: %s of %s texts embedded, %s", name, f"{done:,}", f"{len(texts):,}", _rate(done, started))
        if time.monotonic() - started >= 1:
            _log.info("%s: %s texts embedded, %s", name, f"{done:,}", _rate(done, started))
        return vectors


class LocalCrossEncoder:
    """Score texts for a query with fastembed. `load` is that of :class:`LocalEmbedder`."""

    def __init__(self, endpoint: CrossEncoder, load: Callable[[str], PairModel] | None = None) -> None:
        self._endpoint = endpoint
        self._model: _OnFirstUse[PairModel] = _shared_or_own("TextCrossEncoder", endpoint, load)

    def scores(self, query: str, texts: Sequence[str], is_over: threading.Event) -> list[tuple[int, float]]:
        """Return positions of texts with their scores, higher for better ones; stop once `is_over` is set.

        Raises:
            ConfigurationError: fastembed is not installed, or does not know the model.
            ModelError: the model could not be downloaded, or the time is over.
        """
        model = self._model()
        found: list[tuple[int, float]] = []
        for places in _batches(texts, _MOST_TEXTS):
            if is_over.is_set():
                raise ModelError(Trouble.TIMEOUT, f"{self._endpoint.model}: the time is over")
            batch = model.rerank(query, [texts[place] for place in places], batch_size=len(places))
            found += zip(places, map(float, batch), strict=True)
        return found


class _OnFirstUse(Generic[_Model]):
    """A model that is loaded by the first call. A failed download is repeated after some minutes."""

    def __init__(self, name: str, load: Callable[[str], _Model]) -> None:
        self._name = name
        self._load = load
        self._lock = threading.Lock()
        self._model: _Model | None = None
        self._failed_at, self._failure = -_TRY_AGAIN_AFTER, ""

    def __call__(self) -> _Model:
        """Return the model. Raise ModelError if it is neither cached nor downloaded."""
        with self._lock:
            if self._model is None:
                if time.monotonic() - self._failed_at < _TRY_AGAIN_AFTER:
                    raise ModelError(Trouble.UNAVAILABLE, self._failure)
                try:
                    self._model = self._load(self._name)
                except (OSError, RuntimeError, ValueError) as error:
                    self._failed_at = time.monotonic()
                    self._failure = (
                        f"{LOCAL}/{self._name} is not in fastembed's cache and could not be downloaded ({error}); "
                        "run once with network access, or set FASTEMBED_CACHE_PATH to a copy of the cache"
                    )
                    _log.warning("%s. Meanwhile memory is found and ranked without it", self._failure)
                    raise ModelError(Trouble.UNAVAILABLE, self._failure) from None
            return self._model


def _batches(texts: Sequence[str], size: int) -> Iterator[list[int]]:
    """Yield positions in batches of texts of similar length, the longest first, so that little padding is computed."""
    places = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    for start in range(0, len(places), size):
        yield places[start : start + size]


def _rate(done: int, started: float) -> str:
    seconds = time.monotonic() - started
    return f"{done / max(seconds, 1e-9):,.0f} a second, in {seconds:,.0f} seconds"


def _class(kind: str) -> Any:
    require("local", "fastembed")
    if kind == "TextEmbedding":
        from fastembed import TextEmbedding

        return TextEmbedding
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    return TextCrossEncoder


def _described(kind: str, name: str) -> dict[str, Any]:
    """Return what fastembed knows of a model."""
    known: dict[str, dict[str, Any]] = {model["model"].lower(): model for model in _class(kind).list_supported_models()}
    if name.lower() not in known:
        names = ", ".join(sorted(model["model"] for model in known.values()))
        raise ConfigurationError(f"model {LOCAL}/{name} is unknown to fastembed; expected one of {names}")
    return known[name.lower()]


def _name(endpoint: Endpoint) -> str:
    return endpoint.model.partition("/")[2]


def _shared_or_own(kind: str, endpoint: Endpoint, load: Callable[[str], Any] | None) -> _OnFirstUse[Any]:
    if load is not None:
        return _OnFirstUse(_name(endpoint), load)
    return _shared(kind, _name(endpoint), json.dumps(endpoint.parameters, sort_keys=True))


@lru_cache(maxsize=8)
def _shared(kind: str, name: str, parameters: str) -> _OnFirstUse[Any]:
    """Return the one model of this process, since each has a hundred megabytes or more."""
    return _OnFirstUse(name, lambda name: _loaded(kind, name, json.loads(parameters)))


def _loaded(kind: str, name: str, parameters: dict[str, Any]) -> Any:
    """Open a model from the cache, without a network request, else download it."""
    model, described = _class(kind), _described(kind, name)
    from loguru import logger  # fastembed's log

    logger.disable("fastembed")  # it calls a model that is not cached yet an error
    try:
        return model(name, **{**parameters, "local_files_only": True})
    except (OSError, ValueError):
        pass
    finally:
        logger.enable("fastembed")
    started = time.monotonic()
    _log.warning("downloading %s/%s, about %.0f MB", LOCAL, name, 1_000 * described["size_in_GB"])
    opened = model(name, **parameters)
    _log.info("downloaded %s/%s in %.0f seconds", LOCAL, name, time.monotonic() - started)
    return opened
