"""Nearness of vectors: exact for few, nearly exact with sketches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memory_pipeline.search.vector_sketch import SKETCHED_FROM, VectorSketch
from memory_pipeline_tests.effort import examples


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    return found


def clustered(count: int, dimension: int, seed: int, clusters: int = 60) -> NDArray[np.float32]:
    """Return unit vectors around some centres, like texts about some topics."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((clusters, dimension))
    return unit(centres[random.integers(clusters, size=count)] + 0.7 * random.standard_normal((count, dimension)))


def shuffled(vectors: NDArray[Any], seed: int = 5) -> VectorSketch:
    return VectorSketch(vectors, np.random.default_rng(seed).permutation(len(vectors)))


def exactly(vectors: NDArray[Any], order: NDArray[np.intp], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = vectors[order].astype(np.float32) @ vector
    return found


@settings(max_examples=examples(60), deadline=None)
@given(
    count=st.integers(1, 30),
    wanted=st.integers(1, 35),
    seed=st.integers(0, 9),
    absent=st.sets(st.integers(0, 29)),
    data=st.data(),
)
def test_few_vectors_are_compared_exactly(
    count: int, wanted: int, seed: int, absent: set[int], data: st.DataObject
) -> None:
    random = np.random.default_rng(seed)
    vectors = unit(random.standard_normal((count, 6)))
    vectors[[place for place in absent if place < count]] = np.nan
    order = random.permutation(count)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    vector = unit(random.standard_normal(6))
    near = exactly(vectors, order, vector)
    both = VectorSketch(vectors, order)
    assert both.nearness(vector, np.arange(count)) == pytest.approx(near, nan_ok=True, abs=1e-6)
    found = both.nearest(vector, wanted, allowed)
    assert len(set(found.tolist())) == len(found) == min(wanted, count)
    eligible = np.flatnonzero(allowed & ~np.isnan(near))
    best = eligible[np.argsort(-near[eligible])][:wanted]
    if wanted < count:
        assert set(best.tolist()) <= set(found.tolist())


def test_a_sketch_finds_nearly_all_of_the_ten_nearest() -> None:
    count, dimension = 30_000, 64
    vectors = clustered(count, dimension, seed=1).astype(np.float16)
    order = np.random.default_rng(2).permutation(count)
    both = VectorSketch(vectors, order)
    found = wanted = 0
    for vector in clustered(40, dimension, seed=1)[:40]:
        near = exactly(vectors, order, vector)
        best = set(np.argsort(-near)[:10].tolist())
        found += len(best & set(both.nearest(vector, 400).tolist()))
        wanted += len(best)
    assert found / wanted >= 0.99


def test_sketches_skip_excluded_rows_and_missing_vectors() -> None:
    vectors = clustered(SKETCHED_FROM, 16, seed=3)
    vectors[::7] = np.nan
    order = np.random.default_rng(4).permutation(len(vectors))
    both = VectorSketch(vectors, order)
    vector = clustered(1, 16, seed=3)[0]
    near = exactly(vectors, order, vector)
    allowed = np.zeros(len(vectors), np.bool_)
    allowed[:900] = True
    found = both.nearest(vector, 400, allowed)
    assert allowed[found].all()
    assert not np.isnan(near[found]).any()
    eligible = np.flatnonzero(allowed & ~np.isnan(near))
    best = set(eligible[np.argsort(-near[eligible])][:10].tolist())
    assert best <= set(found.tolist())


@pytest.mark.parametrize("dimension", [1, 3, 100, 513])
def test_vectors_of_any_length_can_be_sketched(dimension: int) -> None:
    vectors = np.zeros((SKETCHED_FROM, dimension), np.float16)
    vectors[:, 0] = -1
    vectors[77, 0] = 1
    both = VectorSketch(vectors, np.arange(len(vectors)))
    vector = np.zeros(dimension, np.float32)
    vector[0] = 1
    assert 77 in both.nearest(vector, 5).tolist()


def test_sketches_are_deterministic() -> None:
    vectors = clustered(SKETCHED_FROM, 16, seed=6)
    one, other = shuffled(vectors), shuffled(vectors.copy())
    vector = vectors[9]
    assert one.nearest(vector, 50).tolist() == other.nearest(vector, 50).tolist()


def test_half_precision_changes_nearness_by_at_most_a_thousandth() -> None:
    vectors = clustered(2_000, 384, seed=7)
    halved, whole = shuffled(vectors.astype(np.float16)), shuffled(vectors)
    rows = np.arange(2_000)
    assert halved.nearness(vectors[3], rows) == pytest.approx(whole.nearness(vectors[3], rows), abs=1e-3)
    assert halved.nearness(vectors[3], rows).dtype == np.float32


def test_the_sample_leaves_out_rows_without_a_vector_and_is_spread_evenly() -> None:
    vectors = np.zeros((5_000, 2), np.float32)
    vectors[:, 0] = np.linspace(-1, 1, 5_000)
    vectors[::3] = np.nan
    near = VectorSketch(vectors, np.arange(5_000)).sample(np.array([1, 0], np.float32))
    assert 1_000 <= len(near) < 2_000
    assert not np.isnan(near).any()
    assert near.mean() == pytest.approx(0, abs=0.01)
    assert near.std() == pytest.approx(1 / np.sqrt(3), abs=0.01)


def test_the_sample_is_empty_if_no_row_has_a_vector() -> None:
    vectors = np.full((3, 4), np.nan, np.float32)
    both = VectorSketch(vectors, np.arange(3))
    assert len(both.sample(np.ones(4, np.float32))) == 0
    assert np.isnan(both.nearness(np.ones(4, np.float32), np.arange(3))).all()
    assert len(both.nearest(np.ones(4, np.float32), 2)) == 2


def test_a_block_without_vectors_works() -> None:
    both = VectorSketch(np.empty((0, 4), np.float32), np.empty(0, np.intp))
    assert both.nearest(np.ones(4, np.float32), 3).tolist() == []
    assert len(both.sample(np.ones(4, np.float32))) == 0


def test_the_callers_vectors_are_not_modified() -> None:
    vectors = clustered(50, 8, seed=8)
    before = vectors.copy()
    both = shuffled(vectors)
    both.nearest(vectors[0], 5, np.arange(50) % 2 == 0)
    assert np.array_equal(vectors, before)


@pytest.mark.parametrize("zeros", [0.9, 0.0])
def test_a_restored_sketch_is_the_same_and_sparse_vectors_take_less(zeros: float) -> None:
    source = np.random.default_rng(1)
    vectors = source.normal(size=(50, 64)).astype(np.float32)
    vectors[source.random(vectors.shape) < zeros] = 0
    vectors[7] = np.nan
    sketch = VectorSketch(vectors, np.arange(50)[::-1])
    arrays = sketch.arrays()
    assert (sum(one.nbytes for one in arrays.values()) < vectors.nbytes / 2) is (zeros > 0.5)
    restored, rows = VectorSketch.restored(arrays), np.arange(50)
    query = source.normal(size=64).astype(np.float32)
    np.testing.assert_array_equal(restored.nearness(query, rows), sketch.nearness(query, rows))
    assert restored.present == sketch.present == 49
