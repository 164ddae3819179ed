"""Mentions: whether a text names somebody, by words in the form in which names are compared.

Words are compared without case and accents, and in scripts that put no blanks between words each character is one:
"Anna" is mentioned in "ANNA's" and in "anna.k@…", and not in "Annabel" or "Annas". Other forms of a name are names of
their own.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from memory_pipeline.domain.words import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CONTROL_ESCAPE = re.compile(r'\\[bfnrt"/\\]')
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
#: Soft hyphens, joiners, marks of direction and the like: what Unicode calls formats.
_UNSEEN = re.compile(
    "[\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
#: Scripts without blanks between words, and Korean, whose particles stick to names: each character is a word.
_ALONE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]"
)
#: Longest run without blanks whose words are remembered.
_SHORT = 64


class Mentions:
    """Finds names in texts as tombstones do, for whoever has them in clear."""

    def __init__(self, names: Iterable[str]) -> None:
        self._phrases = {" ".join(words) for name in names if (words := words_of_name(name))}
        self._sizes = {len(phrase.split(" ")) for phrase in self._phrases}

    def __bool__(self) -> bool:
        """Tell whether there is any name."""
        return bool(self._phrases)

    def mentioned_in(self, text: str) -> bool:
        """Tell whether a text mentions one of the names."""
        return any(phrase in self._phrases for phrase in phrases_of(words_of(text), self._sizes))


def words_of(text: str) -> list[str]:
    """Return the words of a text in the form in which names are compared."""
    return [*_seen_in(text), *_seen_in(_unescaped(text))] if "\\" in text else _seen_in(text)


def _seen_in(text: str) -> list[str]:
    if text.isascii():
        return _words_of(text)
    # Characters that nobody sees must hide no name, whether they stand in a word or between two.
    seen = _UNSEEN.sub("", text)
    return _words_of(seen) if seen == text else [*_words_of(seen), *_words_of(_UNSEEN.sub(" ", text))]


def words_of_name(name: str) -> list[str]:
    """Return the words of a name, of which characters that nobody sees are no part."""
    return _words_of(_UNSEEN.sub("", name))


def phrases_of(words: list[str], sizes: Iterable[int]) -> Iterator[str]:
    """Yield the runs of so many words, each as one text."""
    for size in sizes:
        if size == 1:
            yield from words
        else:
            yield from (" ".join(words[start : start + size]) for start in range(len(words) - size + 1))


def _unescaped(text: str) -> str:
    """Return a text with the characters that JSON may write as their numbers."""
    escaped = _CONTROL_ESCAPE.sub(" ", _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text))
    return escaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _words_of(text: str) -> list[str]:
    words: list[str] = []
    for run in text.split():
        words += _words(run) if len(run) <= _SHORT else _cut(run)
    return words


@lru_cache(maxsize=65_536)
def _words(run: str) -> tuple[str, ...]:
    return tuple(_cut(run))


def _cut(run: str) -> list[str]:
    """Return the words of a text without blanks."""
    if run.isascii():
        return _ASCII_WORD.findall(run.lower())
    # plain() takes Korean syllables apart.
    folded = _ALONE.sub(r" \g<0> ", unicodedata.normalize("NFC", plain(run)))
    return "".join(character if character.isalnum() else " " for character in folded).split()
