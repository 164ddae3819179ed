"""The local embedder and cross-encoder: with a replaced fastembed, and with the real one where it has a model."""

from __future__ import annotations

import logging
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory_pipeline.configuration.model_settings import CrossEncoder, Embedding
from memory_pipeline.domain.model_calls import Use
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.errors import ConfigurationError, ModelError
from memory_pipeline.models import local
from memory_pipeline.models.local import LocalCrossEncoder, LocalEmbedder
from memory_pipeline_tests.building import ACME, NOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

ENDPOINT = Embedding(model="fastembed/BAAI/bge-small-en-v1.5", dimension=8, batch_size=3)


class Model:
    """Yields vectors like fastembed: one by one, of any length, perhaps in half precision."""

    def __init__(self, rows: Mapping[str, Sequence[float]]) -> None:
        self.rows = rows
        self.asked: list[list[str]] = []

    def embed(self, documents: Sequence[str], batch_size: int = 256) -> Iterator[NDArray[Any]]:
        assert len(documents) <= batch_size
        self.asked.append(list(documents))
        yield from (np.array(self.rows[text], np.float16) for text in documents)


class Lengths:
    """Embeds a text by its length, and counts the texts."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def embed(self, documents: Sequence[str], batch_size: int = 256) -> Iterator[NDArray[Any]]:
        self.asked.append(list(documents))
        yield from (np.eye(8, dtype=np.float32)[len(text) % 8] for text in documents)


def test_vectors_are_normalized_in_the_order_of_the_texts() -> None:
    model = Model({"a": [2, *[0] * 7], "bb": [0, 3, *[0] * 6]})
    names: list[str] = []
    embedder = LocalEmbedder(ENDPOINT, lambda name: names.append(name) or model)  # type: ignore[func-returns-value]
    vectors = embedder.embed(["a", "bb"])
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[1, *[0] * 7], [0, 1, *[0] * 6]]
    assert (names, sorted(model.asked[0])) == (["BAAI/bge-small-en-v1.5"], ["a", "bb"])
    assert embedder.name == "fastembed/BAAI/bge-small-en-v1.5 (8)"
    assert embedder.embed([]).shape == (0, 8)


def test_texts_of_similar_length_share_a_batch() -> None:
    model, texts = Lengths(), ["x", "x" * 7, "xx", "x" * 6, "xxx"]
    vectors = LocalEmbedder(ENDPOINT, lambda _: model).embed(texts)
    assert model.asked == [["x" * 7, "x" * 6, "xxx"], ["xx", "x"]]
    assert vectors.argmax(axis=1).tolist() == [1, 7, 2, 6, 3]


def test_a_batch_has_16_texts_unless_batch_size_is_set() -> None:
    model = Lengths()
    LocalEmbedder(Embedding(model="fastembed/any", dimension=8), lambda _: model).embed(["text"] * 40)
    assert list(map(len, model.asked)) == [16, 16, 8]


def test_the_vector_of_a_query_is_kept() -> None:
    model = Lengths()
    embedder = LocalEmbedder(ENDPOINT, lambda _: model)
    first = embedder.embed(["where"])
    first[:] = 0  # the caller's own
    assert embedder.embed(["where"])[0, 5] == 1
    assert model.asked == [["where"]]
    embedder.embed(["where"], [Use(ACME, hour_of(NOW))])  # the pipeline keeps vectors in rows
    assert len(model.asked) == 2


def test_long_work_is_logged_with_its_rate(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10_000, 6))
    monkeypatch.setattr(local, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    with caplog.at_level(logging.INFO):
        LocalEmbedder(ENDPOINT, lambda _: Lengths()).embed([f"text {number}" for number in range(12)])
    first, *_, last = caplog.messages
    assert first.startswith("fastembed/BAAI/bge-small-en-v1.5: 6 of 12 texts embedded, ")
    assert last.startswith("fastembed/BAAI/bge-small-en-v1.5: 12 texts embedded, ")
    assert " a second, in " in last


def test_an_invalid_vector_is_missing() -> None:
    rows = {"a": [0.0] * 8, "b": [np.nan] * 8, "c": [1.0] * 8}
    embedder = LocalEmbedder(ENDPOINT, lambda _: Model(rows))
    missing = np.isnan(embedder.embed(["a", "b", "c"]))
    assert missing.all(axis=1).tolist() == [True, True, False]


def test_a_wrong_dimension_is_an_error_that_names_the_setting() -> None:
    embedder = LocalEmbedder(ENDPOINT, lambda _: Model({"a": [1.0] * 5}))
    with pytest.raises(
        ConfigurationError, match=r"dimension is 8, .* vectors of 5 numbers; set embedding\.dimension to 5"
    ):
        embedder.embed(["a"])


def test_without_network_and_cache_vectors_are_missing_and_a_warning_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def offline(name: str) -> Model:
        tried.append(name)
        raise ValueError("Could not load model from any source.")

    embedder = LocalEmbedder(ENDPOINT, offline)
    with caplog.at_level(logging.WARNING):
        assert np.isnan(embedder.embed(["a"])).all()
    assert "FASTEMBED_CACHE_PATH" in caplog.text
    embedder.embed(["b"])
    assert len(tried) == 1  # a search does not wait for the next failure
    monkeypatch.setattr(local, "_TRY_AGAIN_AFTER", 0.0)
    embedder.embed(["c"])
    assert len(tried) == 2


def test_a_missing_extra_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(ConfigurationError, match=r'pip install "memory-pipeline\[local\]"'):
        LocalEmbedder(ENDPOINT).embed(["a"])


class Fastembed:
    """What a replaced fastembed has: the models it knows, and those in its cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cached: Sequence[str] = ()) -> None:
        self.opened: list[tuple[str, dict[str, Any]]] = []
        local._shared.cache_clear()
        opened = self.opened

        class TextEmbedding(Lengths):
            def __init__(self, name: str, **options: Any) -> None:
                super().__init__()
                opened.append((name, options))
                if options.get("local_files_only") and name not in cached:
                    raise ValueError("Could not load model from any source.")

            @classmethod
            def list_supported_models(cls) -> list[dict[str, Any]]:
                return [{"model": "BAAI/bge-small-en-v1.5", "dim": 8, "size_in_GB": 0.067}]

        logger = SimpleNamespace(disable=lambda _: None, enable=lambda _: None)
        for name, contents in (("fastembed", {"TextEmbedding": TextEmbedding}), ("loguru", {"logger": logger})):
            module = ModuleType(name)
            module.__spec__ = ModuleSpec(name, None)
            vars(module).update(contents)
            monkeypatch.setitem(sys.modules, name, module)


MODEL_ONLY = Embedding(model="fastembed/BAAI/bge-small-en-v1.5", parameters={"threads": 1})


def test_the_model_alone_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    fastembed = Fastembed(monkeypatch, ["BAAI/bge-small-en-v1.5"])
    embedder = LocalEmbedder(MODEL_ONLY)
    assert (embedder.dimension, embedder.name) == (8, "fastembed/BAAI/bge-small-en-v1.5 (8)")
    assert not fastembed.opened  # not yet loaded
    assert embedder.embed(["one", "three"]).argmax(axis=1).tolist() == [3, 5]
    assert fastembed.opened == [("BAAI/bge-small-en-v1.5", {"threads": 1, "local_files_only": True})]
    LocalEmbedder(MODEL_ONLY).embed(["four"])
    assert len(fastembed.opened) == 1  # a process loads a model once


def test_a_download_is_logged_with_its_size(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    fastembed = Fastembed(monkeypatch)
    with caplog.at_level(logging.INFO):
        assert LocalEmbedder(MODEL_ONLY).embed(["one"]).shape == (1, 8)
    assert fastembed.opened[-1] == ("BAAI/bge-small-en-v1.5", {"threads": 1})
    before, after = caplog.messages
    assert before == "downloading fastembed/BAAI/bge-small-en-v1.5, about 67 MB"
    assert after.startswith("downloaded fastembed/BAAI/bge-small-en-v1.5 in ")


def test_an_unknown_model_is_an_error_that_lists_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    Fastembed(monkeypatch)
    with pytest.raises(ConfigurationError, match=r"fastembed/BAAI/nothing is unknown .* BAAI/bge-small"):
        _ = LocalEmbedder(Embedding(model="fastembed/BAAI/nothing")).dimension


class Pairs:
    """Scores a document by its length."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def rerank(self, query: str, documents: Sequence[str], batch_size: int = 64) -> Iterable[float]:
        self.asked.append((query, list(documents)))
        return (float(len(text)) for text in documents)


CROSS = CrossEncoder(model="fastembed/Xenova/ms-marco-MiniLM-L-6-v2")


def test_a_cross_encoder_scores_texts_in_batches() -> None:
    model = Pairs()
    texts = ["x" * (number % 7) for number in range(40)]
    scores = LocalCrossEncoder(CROSS, lambda _: model).scores("who", texts, threading.Event())
    assert dict(scores) == {place: float(len(text)) for place, text in enumerate(texts)}
    assert [len(documents) for _, documents in model.asked] == [16, 16, 8]


def test_a_cross_encoder_stops_when_the_time_is_over() -> None:
    model, is_over = Pairs(), threading.Event()
    is_over.set()
    with pytest.raises(ModelError, match="the time is over"):
        LocalCrossEncoder(CROSS, lambda _: model).scores("who", ["a", "b"], is_over)
    assert not model.asked


@pytest.mark.slow_environment
def test_real_vectors_of_similar_texts_are_near() -> None:
    fastembed = pytest.importorskip("fastembed", reason="the extra local is not installed")
    name = "sentence-transformers/all-MiniLM-L6-v2"
    try:
        fastembed.TextEmbedding(name, local_files_only=True)
    except ValueError:
        pytest.skip(f"{name} is not in fastembed's cache (FASTEMBED_CACHE_PATH)")
    embedder = LocalEmbedder(Embedding(model=f"fastembed/{name}"))
    eaten, food, baby = embedder.embed(
        ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."]
    )
    assert embedder.dimension == 384
    assert eaten @ food == pytest.approx(0.755, abs=0.02)
    assert eaten @ baby < 0.1
