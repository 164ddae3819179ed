"""Embeddings by feature hashing: texts that share words or parts of words are near each other.

The signed hashing trick is that of Weinberger et al. (2009), the n-grams within word boundaries are those of fastText
(Bojanowski et al., 2017). Nothing is learned: "car" and "automobile" are unrelated.

Weights are integers and added exactly, so a vector's bits do not depend on the batch or its order. Only the final
division by the length uses floats.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from memory_pipeline.domain.text.words import STOP_WORDS, parts_of, stem
from memory_pipeline.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.model_calls import Use

DEFAULT_DIMENSION: Final = 384

#: Weights of a term that occurs once in a text; n occurrences weigh 1 + ⌊log2 n⌋ times as much.
_WORD: Final = 3
_STOP_WORD: Final = 1
_PAIR: Final = 1
_GRAM: Final = 1

_GRAM_LENGTHS: Final = (3, 4, 5)
#: First code point of scripts without blanks between words, whose character pairs carry meaning.
_FIRST_UNSPACED: Final = 0x2E80

#: Characters of texts hashed together: enough for numpy to be efficient, few enough for CPU caches.
_CHUNK: Final = 1 << 16

_TOKEN = re.compile(r"[^\W_]++(?:['’][^\W_]++)*+")
#: Base of the polynomial hash: 2⁶⁴ divided by the golden ratio, made odd.
_BASE: Final = 0x9E3779B97F4A7C15


class HashingEmbedder:
    """Embed texts by feature hashing; a :class:`memory_pipeline.domain.ports.Embedder`.

    A text is normalized to NFKC and case-folded. Its features are its stemmed words, pairs of adjacent words (stop
    words skipped), and the character 3- to 5-grams of words with their boundaries. Each feature is hashed to one
    component and a sign. `dimension` is at least 8.
    """

    def __init__(self, dimension: int = DEFAULT_DIMENSION) -> None:
        if dimension < 8:
            raise ConfigurationError(f"dimension {dimension} of the hashing embedder is too small; expected at least 8")
        self._dimension = dimension

    @property
    def name(self) -> str:
        """Name and version, plus the dimension if it is not the default."""
        suffix = "" if self._dimension == DEFAULT_DIMENSION else f"-{self._dimension}"
        return f"hashed-ngrams-1{suffix}"

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return self._dimension

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), float32. A vector depends on its text alone.

        In a text without letters and digits, symbols count as words. An empty text, and one with features that cancel
        out, becomes the first unit vector.
        """
        del uses  # hashing costs nothing
        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        first = size = 0
        for place, text in enumerate(texts):
            size += len(text)
            if size >= _CHUNK or place + 1 == len(texts):
                vectors[first : place + 1] = self._embed(texts[first : place + 1])
                first, size = place + 1, 0
        return vectors

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        terms = _WordColumns()
        grams = _WordColumns()
        for row, text in enumerate(texts):
            _add_features(row, text, terms, grams)
        features = [terms.whole(), *(grams.grams(length) for length in _GRAM_LENGTHS), grams.grams(2, _FIRST_UNSPACED)]
        rows, hashes, weights = (np.concatenate(column) for column in zip(*features, strict=True))
        # Multiply and shift maps the upper 32 bits to a component without a division.
        components = ((hashes >> np.uint64(32)) * np.uint64(self._dimension)) >> np.uint64(32)
        signed = np.where(hashes & np.uint64(1), weights, -weights)
        cells = rows * self._dimension + components.astype(np.int64)
        # float64 holds these integers exactly, so their order does not matter.
        counts = np.bincount(cells, weights=signed, minlength=len(texts) * self._dimension)
        sums = counts.reshape(len(texts), self._dimension)
        sums[~sums.any(axis=1), 0] = 1.0
        lengths = np.sqrt(np.square(sums).sum(axis=1, keepdims=True))
        unit: NDArray[np.float32] = (sums / lengths).astype(np.float32)
        return unit


class _WordColumns:
    """Words of many texts, joined into one array of code points; each word has a row and a weight."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.rows: list[int] = []
        self.weights: list[int] = []

    def add(self, row: int, text: str, weight: int) -> None:
        self.texts.append(text)
        self.rows.append(row)
        self.weights.append(weight)

    def _points(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        encoded = "".join(self.texts).encode("utf-32-le", "surrogatepass")
        points = np.frombuffer(encoded, dtype="<u4").astype(np.uint64)
        lengths = np.fromiter(map(len, self.texts), dtype=np.int64, count=len(self.texts))
        return points, np.repeat(np.arange(len(self.texts)), lengths)

    def whole(self) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        points, word_of = self._points()
        starts = np.flatnonzero(np.diff(word_of, prepend=-1))
        offsets = np.arange(len(points)) - starts[word_of]
        powers = np.multiply.accumulate(np.full(int(offsets.max(initial=0)) + 1, _BASE, dtype=np.uint64))
        # uint64 wraps around: a polynomial hash modulo 2⁶⁴.
        hashes = np.add.reduceat(points * powers[offsets], starts) if len(starts) else points
        return np.array(self.rows, dtype=np.int64), _mixed(hashes, 0), np.array(self.weights, dtype=np.int64)

    def grams(self, length: int, least: int = 0) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        """Return row, hash and weight of each n-gram of `length` code points within a word, all at least `least`."""
        points, word_of = self._points()
        count = max(len(points) - length + 1, 0)
        hashes = np.zeros(count, dtype=np.uint64)
        inside = word_of[:count] == word_of[len(points) - count :]
        for offset in range(length):
            window = points[offset : offset + count]
            hashes = hashes * np.uint64(_BASE) + window
            if least:
                inside &= window >= least
        words = word_of[:count][inside]
        rows, weights = np.array(self.rows, dtype=np.int64)[words], np.array(self.weights, dtype=np.int64)[words]
        return rows, _mixed(hashes[inside], length), weights


def _add_features(row: int, text: str, terms: _WordColumns, grams: _WordColumns) -> None:
    text = unicodedata.normalize("NFKC", text).casefold()
    # Without letters and digits, symbols are the words: an emoji has a vector.
    words = _words(text) or text.split()
    content = [word for word in words if word not in STOP_WORDS]
    stems = list(map(stem, content))
    for word, count in Counter(content).items():
        grams.add(row, f" {word} ", _GRAM * count.bit_length())
    for word, count in Counter(stems).items():
        terms.add(row, word, _WORD * count.bit_length())
    for (left, right), count in Counter(pairwise(stems)).items():
        terms.add(row, f"{left} {right}", _PAIR * count.bit_length())
    for word, count in Counter(word for word in words if word in STOP_WORDS).items():
        terms.add(row, word, _STOP_WORD * count.bit_length())


def _words(text: str) -> list[str]:
    words: list[str] = []
    for token in _TOKEN.findall(text):
        if "'" in token or "’" in token:
            words.extend(parts_of(token.replace("’", "'")))
        else:
            words.append(token)
    return words


def _mixed(hashes: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Mix hashes so that each bit depends on all bits (finalizer of SplitMix64; Steele et al., 2014)."""
    hashes = hashes + np.uint64(seed * 0x632BE59BD9B4E019 % (1 << 64))
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
