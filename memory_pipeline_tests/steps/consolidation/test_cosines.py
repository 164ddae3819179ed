"""Cosines of memories, in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import memory_pipeline.steps.consolidation.cosines as module
from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.steps.consolidation.cosines import NEAREST, CosineMatrix
from memory_pipeline.steps.consolidation.days import parse_day
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.lifecycle.durable_year import FIRST, at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.memories.record import DurableMemory

DAY = parse_day("2024-01-15")


class Made:
    """Embeds the given texts, counts requests, and fails for others."""

    name, dimension = "made", 4

    def __init__(self, vectors: dict[str, Sequence[float]]) -> None:
        self.vectors, self.asked = vectors, list[str]()
        self.requests = 0

    def embed(self, texts: Sequence[str], uses: Sequence[Any] = ()) -> Any:
        self.requests += 1
        assert [use.period for use in uses] == [DAY] * len(texts)
        self.asked += texts
        return np.array([self.vectors.get(text, [np.nan] * 4) for text in texts], np.float32)


def memories(*texts: str) -> list[DurableMemory]:
    events = [MemoryEvent.of(ACME, MemoryVerb.REMEMBER, at(FIRST), Changes(content=text)) for text in texts]
    return list(fold_events(events).newest.values())


def test_each_pair_above_the_threshold_is_returned_once() -> None:
    turned = [0.95, np.sqrt(1 - 0.95**2), 0, 0]
    embedder = Made({"a": [1, 0, 0, 0], "b": turned, "c": [0.91, 0, np.sqrt(1 - 0.91**2), 0], "d": [2, 0, 0, 0]})
    own = {memory.content: memory for memory in memories("a", "b", "c", "d", "no vector")}
    all_of_them = list(own.values())
    found = CosineMatrix(embedder).similar(all_of_them, all_of_them, 0.92, scope=ACME, day=DAY)
    name = {memory.id: memory.content for memory in all_of_them}
    pairs = {frozenset((name[one], name[other])): cosine for one, other, cosine in found}
    assert pairs == {  # vectors have the precision of 16-bit floats
        frozenset("ab"): pytest.approx(0.95, abs=1e-4),
        frozenset("ad"): pytest.approx(1.0, abs=1e-6),  # vectors are normalized
        frozenset("bd"): pytest.approx(0.95, abs=1e-4),
    }
    assert len(found) == 3
    alone = CosineMatrix(embedder).similar([own["c"]], all_of_them, 0.9, scope=ACME, day=DAY)
    assert {(name[one], name[other]) for one, other, _ in alone} == {("c", "a"), ("c", "d")}
    assert CosineMatrix(embedder).similar([], all_of_them, 0.9, scope=ACME, day=DAY) == []


def test_pairs_do_not_depend_on_block_size_or_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(60, 4))
    own = memories(*(f"t{number}" for number in range(60)))
    embedder = Made({f"t{number}": row.tolist() for number, row in enumerate(points)})
    whole = CosineMatrix(embedder).similar(own, own, 0.9, scope=ACME, day=DAY)
    monkeypatch.setattr(module, "_BLOCK", 130)
    parts = CosineMatrix(embedder).similar(own[::-1], own[::-1], 0.9, scope=ACME, day=DAY)
    assert whole
    assert sorted(parts) == sorted(whole)
    expected = points / np.linalg.norm(points, axis=1, keepdims=True)
    assert len(whole) == int(np.sum(np.triu(expected @ expected.T >= 0.9, k=1)))


def test_only_the_nearest_neighbours_are_returned() -> None:
    crowd = memories(*(f"t{number}" for number in range(3 * NEAREST)))
    embedder = Made({memory.content: [1, number / 1e4, 0, 0] for number, memory in enumerate(crowd)})
    found = CosineMatrix(embedder).similar(crowd[:1], crowd, 0.9, scope=ACME, day=DAY)
    assert len(found) == NEAREST
    ids = {memory.id for memory in crowd}
    assert all(one == crowd[0].id and other in ids for one, other, _ in found)


def test_new_contents_are_embedded_once_in_one_request() -> None:
    embedder = Made({"a": [1, 0, 0, 0], "b": [1, 0, 0, 0], "c": [1, 0, 0, 0]})
    vectors = CosineMatrix(embedder)
    vectors.learn({"a": np.array([1, 0, 0, 0], np.float32)})
    vectors.prepare([("a", ACME), ("b", ACME), ("c", ACME), ("b", ACME), ("none", ACME)], DAY)
    assert (embedder.asked, embedder.requests) == (["b", "c", "none"], 1)
    vectors.prepare([("b", ACME), ("none", ACME)], DAY)
    assert embedder.requests == 1
    assert vectors.missing_of(["a", "none", "b"]) == 1
