"""The hashing embedder."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.errors import ConfigurationError
from memory_pipeline.models.deterministic.embedding import HashingEmbedder

EMBEDDER = HashingEmbedder()
ANY_TEXT = st.text(max_size=60)
ODD = [
    "",
    " ",
    "\n",
    "😀",
    "!!!",
    "the",
    "a",
    "’",
    "我",
    "ذهبت",
    "\ufdfa",
    "ﬁ",
    "İ",
    "\ud800",
    "x" * 100_000,
    "." * 100_000,
]


def likeness(left: str, right: str) -> float:
    vectors = EMBEDDER.embed([left, right])
    return float(vectors[0] @ vectors[1])


@given(st.lists(ANY_TEXT, max_size=8))
def test_vectors_are_unit_vectors_and_do_not_depend_on_the_batch(texts: list[str]) -> None:
    together = EMBEDDER.embed(texts)
    assert together.shape == (len(texts), 384)
    assert together.dtype == np.float32
    for text, vector in zip(texts, together, strict=True):
        assert np.array_equal(EMBEDDER.embed([text])[0], vector)
        assert np.linalg.norm(vector.astype(np.float64)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("text", ODD)
def test_every_text_has_a_vector(text: str) -> None:
    vector = EMBEDDER.embed([text])[0]
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector.astype(np.float64)) == pytest.approx(1, abs=1e-6)


def test_vectors_do_not_depend_on_internal_chunks() -> None:
    texts = [f"message number {n} about {n * 7919 % 101} loaves {'of rye ' * (n % 90)}" for n in range(700)]
    assert sum(map(len, texts)) > 3 * (1 << 16)
    together = EMBEDDER.embed(texts)
    assert all(np.array_equal(EMBEDDER.embed([text])[0], together[n]) for n, text in enumerate(texts) if n % 37 == 0)


def test_vectors_are_equal_in_another_process() -> None:
    code = (
        "from memory_pipeline.models.deterministic.embedding import HashingEmbedder as E;"
        "print(E().embed(['Anna moved to Porto, 7 May 😀']).tobytes().hex())"
    )
    shown = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True
        )
        for seed in ("1", "2")
    ]
    assert {run.stdout.strip() for run in shown} == {EMBEDDER.embed(["Anna moved to Porto, 7 May 😀"]).tobytes().hex()}


def test_this_version_is_pinned() -> None:
    """A change of the values changes every stored vector: it needs a new name."""
    vector = EMBEDDER.embed(["Anna moved to Porto"])[0]
    assert np.flatnonzero(vector)[:6].tolist() == [16, 17, 45, 47, 61, 65]
    assert EMBEDDER.name == "hashed-ngrams-1"


@pytest.mark.parametrize(
    ("text", "related", "unrelated"),
    [
        ("I moved to Porto last week.", "She is moving to Porto.", "The oven costs 400 euros."),
        ("My dog is ill.", "The dog was ill at the vet's.", "I signed the loan today."),
        ("What does Anna like to eat?", "Anna loves eating tomatoes.", "It was raining in the morning."),
        ("the bakeries", "a bakery", "the banks"),
        ("我昨天去了北京", "他明天去北京", "面包很好吃"),
        ("CAFÉ", "café", "tea"),
    ],
)
def test_related_texts_are_nearer(text: str, related: str, unrelated: str) -> None:
    assert likeness(text, related) > likeness(text, unrelated) + 0.1


def test_unicode_form_and_case_do_not_matter() -> None:
    assert likeness("Cafe\u0301 ﬁne", "CAFÉ FINE") == pytest.approx(1, abs=1e-6)


def test_the_name_contains_dimension_and_version() -> None:
    assert HashingEmbedder(64).name == "hashed-ngrams-1-64"
    assert HashingEmbedder(64).dimension == 64
    assert HashingEmbedder(64).embed(["a"]).shape == (1, 64)
    with pytest.raises(ConfigurationError, match="dimension 7"):
        HashingEmbedder(7)
