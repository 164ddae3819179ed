"""The local embedder, with a replaced fastembed."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory_pipeline.configuration.model_settings import Embedding
from memory_pipeline.errors import ConfigurationError
from memory_pipeline.models.local import LocalEmbedder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

ENDPOINT = Embedding(model="fastembed/BAAI/bge-small-en-v1.5", dimension=8, batch_size=3)


class Model:
    """Yields vectors like fastembed: one by one, of any length, perhaps in half precision."""

    def __init__(self, rows: Sequence[Sequence[float]]) -> None:
        self.rows = rows
        self.asked: list[tuple[list[str], int]] = []

    def embed(self, documents: Sequence[str], batch_size: int = 256) -> Iterator[NDArray[Any]]:
        self.asked.append((list(documents), batch_size))
        yield from (np.array(row, np.float16) for row in self.rows)


def test_vectors_are_normalized_in_the_order_of_the_texts() -> None:
    model = Model([[2, *[0] * 7], [0, 3, *[0] * 6]])
    names: list[str] = []
    embedder = LocalEmbedder(ENDPOINT, lambda name: names.append(name) or model)  # type: ignore[func-returns-value]
    vectors = embedder.embed(["a", "b"])
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[1, *[0] * 7], [0, 1, *[0] * 6]]
    assert (names, model.asked) == (["BAAI/bge-small-en-v1.5"], [(["a", "b"], 3)])
    assert embedder.name == "fastembed/BAAI/bge-small-en-v1.5 (8)"
    assert embedder.embed([]).shape == (0, 8)


def test_an_invalid_vector_is_missing() -> None:
    embedder = LocalEmbedder(ENDPOINT, lambda _: Model([[0.0] * 8, [np.nan] * 8, [1.0] * 8]))
    missing = np.isnan(embedder.embed(["a", "b", "c"]))
    assert missing.all(axis=1).tolist() == [True, True, False]


def test_a_wrong_dimension_is_an_error_that_names_the_setting() -> None:
    embedder = LocalEmbedder(ENDPOINT, lambda _: Model([[1.0] * 5]))
    with pytest.raises(
        ConfigurationError, match=r"dimension is 8, .* vectors of 5 numbers; set embedding\.dimension to 5"
    ):
        embedder.embed(["a"])


def test_without_network_and_cache_vectors_are_missing_and_a_warning_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried: list[str] = []

    def offline(name: str) -> Model:
        tried.append(name)
        raise ValueError("Could not load model from any source.")

    embedder = LocalEmbedder(ENDPOINT, offline)
    with caplog.at_level(logging.WARNING):
        assert np.isnan(embedder.embed(["a"])).all()
    assert "FASTEMBED_CACHE_PATH" in caplog.text
    embedder.embed(["a"])
    assert len(tried) == 2  # it is tried again


def test_a_missing_extra_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(ConfigurationError, match=r'pip install "memory-pipeline\[local\]"'):
        LocalEmbedder(ENDPOINT).embed(["a"])
