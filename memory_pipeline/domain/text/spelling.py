"""Find the words of memory that are other forms of a word of the query, in any language.

English has a stemmer and a thesaurus. In other languages words are compared by the letters that they share: endings,
prefixes and compounds leave most letters of a word as they are. Where no blanks separate words, their letters are
compared piece by piece.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from difflib import SequenceMatcher
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Scripts without blanks between words: Thai, Lao, Burmese and Khmer. A run of their letters is stored as one word.
_RUN_TOGETHER = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
#: Number of letters of a piece of a run: of Burmese and Khmer, whose vowels are marks, and of Thai and Lao.
_PIECE_WITHOUT_VOWELS, _PIECE = 2, 3
#: Related by spelling ("adopt", "adoption"): minimum common prefix, and its share of the longer and the shorter word.
_SHARED_LETTERS, _SHARE, _SHARE_OF_SHORTER = 5, 0.6, 0.8
#: Scripts whose letters are syllables, without vowel marks, and scripts that write few vowels.
_SYLLABLES, _CONSONANTS = re.compile("[\u0900-\u0dff\u1200-\u139f]"), re.compile("[\u0590-\u08ff]")
#: Least likeness of two words: twice the number of common letters, relative to all letters of both.
_ALIKE = 0.5
#: At most so many letters of one of the words may precede the common letters: a prefix. Endings alone are not alike.
_PREFIX = 2
#: Letters that are often typed for others, and that Unicode does not decompose.
_FOLDED = str.maketrans(
    {
        "ı": "i", "ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "þ": "th", "æ": "ae", "œ": "oe", "ə": "e",
        "ى": "ي", "ی": "ي", "ک": "ك", "ة": "ه", "ہ": "ه", "ھ": "ه", "ٱ": "ا", "ـ": None,
        "ך": "כ", "ם": "מ", "ן": "נ", "ף": "פ", "ץ": "צ", "'": None, "ʼ": None,
    }
)  # fmt: skip


class Spellings:
    """The words of some rows.

    Attributes:
        words: the words, sorted.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words: Sequence[str] = sorted(words)

    def __contains__(self, word: str) -> bool:
        place = bisect_left(self.words, word)
        return self.words[place : place + 1] == [word]

    @cached_property
    def _lines(self) -> tuple[str, Sequence[int]]:
        """All words in simpler letters, each between line breaks, and where they start."""
        lines = [word.translate(_FOLDED) for word in self.words]
        return "\n".join(["", *lines, ""]), [*accumulate((len(line) + 1 for line in lines), initial=1)]

    def _holding(self, letters: str) -> set[int]:
        """Return the places of the words that contain some letters in a row."""
        text, starts = self._lines
        found, at = set[int](), text.find(letters)
        while at >= 0:
            place = bisect_right(starts, at + letters.startswith("\n")) - 1
            found.add(place)
            at = text.find(letters, starts[place + 1] - 1)
        return found

    def alike(self, term: str) -> Mapping[str, float]:
        """Return the words with a spelling close to `term` in any language, each with its likeness, up to 1."""
        term = term.translate(_FOLDED)
        least = 2 if _SYLLABLES.match(term) else 3 if _CONSONANTS.match(term) else 4
        shared = [term[at : at + least] for at in range(len(term) - least + 1)] or [f"\n{term}\n"]
        text, starts = self._lines
        matcher = SequenceMatcher(None, b=term, autojunk=False)
        found = {}
        for place in set[int]().union(*map(self._holding, shared)):
            word = text[starts[place] : starts[place + 1] - 1]
            letters = len(word) + len(term)
            if 2 * min(len(word), len(term)) < _ALIKE * letters:
                continue
            matcher.set_seq1(word)
            one, other, size = matcher.find_longest_match()
            prefix = min(one, other)
            if 2 * size >= _ALIKE * letters and prefix <= _PREFIX and (size > 3 or not prefix):
                found[self.words[place]] = 2 * size / letters
        return found


def pieces_of(word: str) -> list[str]:
    """Return the pieces of a run of words in a script without blanks, by which it is compared; otherwise the word."""
    size = _PIECE if word < "\u1000" else _PIECE_WITHOUT_VOWELS
    if len(word) <= size or not _RUN_TOGETHER.match(word):
        return [word]
    return [word[at : at + size] for at in range(len(word) - size + 1)]


def kin(term: str, vocabulary: Sequence[str]) -> list[str]:
    """Return the words of a sorted vocabulary with a spelling close to an English `term`: "adopt", "adoption".

    The common prefix has at least five letters, three fifths of the longer word and four fifths of the shorter one.
    """
    if len(term) < _SHARED_LETTERS:
        return []
    head = term[:_SHARED_LETTERS]
    found = []
    for place in range(bisect_left(vocabulary, head), len(vocabulary)):
        word = vocabulary[place]
        if not word.startswith(head):
            break
        shared = next(
            (n for n, (one, other) in enumerate(zip(word, term, strict=False)) if one != other),
            min(len(word), len(term)),
        )
        longer, shorter = max(len(word), len(term)), min(len(word), len(term))
        if word != term and shared >= _SHARE * longer and shared >= _SHARE_OF_SHORTER * shorter:
            found.append(word)
    return found
