"""Words and names in texts: normalization, contractions, stop words, stems and mentions.

The stemmer follows Harman's S-stemmer ("How effective is suffixing?", 1991) and adds ``-ing`` and ``-ed``. Its results
need not be words.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def word_set(text: str) -> frozenset[str]:
    """Return the words of a word list with blanks."""
    return frozenset(text.split())


#: Stop words, including parts of contractions ("'ll", "n't"); see :func:`parts_of`.
STOP_WORDS = word_set(
    """
    a about above after again all almost alone along already also although always am among an and another any
    anybody anyone anything are around as at away back be because been before being below between both but by can
    could did do does doing done down during each either else enough even ever every everybody everyone everything
    few for from further get gets getting go goes going gonna got had has have having he her here hers herself him
    himself his how however i if in instead into is it its itself just kind least less let like lot lots made make
    makes making many may me might mine more most much must my myself neither never no nobody none nor not nothing
    now of off often oh on once one only onto or other others ought our ours ourselves out over own per perhaps
    quite rather really same shall she should since so some somebody someone something sometimes soon still such
    sure than that the their theirs them themselves then there these they thing things this those though through
    till to together too toward towards under until unless up upon us very via was way we were what whatever when
    where whether which while who whole whom whose why will with within without would yes yet you your yours
    yourself 's 't 'm 're 've 'll 'd n't
    """
)

_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
#: Characters that Unicode ignores by default, but does not class as format characters.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_IRREGULAR_NEGATIONS = {"ca": "can", "wo": "will", "sha": "shall"}


def plain(text: str) -> str:
    """Return a text case-folded, without accents and other marks, in compatibility form (NFKD)."""
    if text.isascii():
        return text.lower()
    # Decompose first: special letters may hide upper-case ones. Decompose again: folding may yield composed letters.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    if decomposed.isascii():  # for example a truncated text ("…")
        return decomposed
    return "".join(character for character in decomposed if not unicodedata.category(character).startswith("M"))


def composed(text: str) -> str:
    """Return a text in Unicode's composed form (NFC): "é" is one character, however it was typed."""
    return unicodedata.normalize("NFC", text)


def is_blank(text: str) -> bool:
    """Return whether a text has no visible character: only blanks, and characters without width."""
    return not text.strip() or all(
        character.isspace() or unicodedata.category(character) == "Cf" or _INVISIBLE.match(character)
        for character in text
    )


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def spaced(text: str) -> str:
    """Return the words of a text, separated by single blanks. A word is a run of letters, marks and digits."""
    if text.isascii():
        return " ".join(_ASCII_WORD.findall(text))
    characters = (
        character if character.isalnum() or unicodedata.category(character).startswith("M") else " "
        for character in text
    )
    return " ".join("".join(characters).split())


@lru_cache(maxsize=4096)
def parts_of(contraction: str) -> tuple[str, ...]:
    """Split a lower-case contraction: "i'll" → ("i", "'ll"), "didn't" → ("did", "n't"), but not "o'brien"."""
    if contraction.endswith("n't"):
        head = contraction[:-3]
        return (_IRREGULAR_NEGATIONS.get(head, head), "n't") if head else ("n't",)
    head, mark, tail = contraction.rpartition("'")
    return (*parts_of(head), mark + tail) if head and mark + tail in STOP_WORDS else (contraction,)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return the stem of a lower-case English word: "cities" → "citi", "city" → "citi"."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-2] if word.endswith(("sses", "shes", "ches", "xes", "zes")) else word[:-1]
    for suffix in ("ing", "ed"):
        head = word.removesuffix(suffix)
        if head != word and len(head) > 2 and any(vowel in head for vowel in "aeiouy"):
            # "running" → "run", but "falling" → "fall".
            word = head[:-1] if head[-1] == head[-2] and head[-1] not in "lsz" else head
            break
    if word.endswith("e") and (len(word) > 3 or word.endswith("ie")):
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


# Mentions of names in texts. Words are compared without case and accents. In scripts without blanks each character is a
# word. "ANNA's" and "anna.k@…" mention "Anna"; "Annabel" and "Annas" do not. Other forms of a name must be listed.


_CONTROL_ESCAPE = re.compile(r'\\[bfnrt"/\\]')
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})")
_ASCII_NAME = re.compile(r"[a-z0-9]+")
#: Invisible characters: soft hyphens, joiners, directional marks and other Unicode format characters.
_UNSEEN = re.compile(
    "[\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
#: Scripts without blanks between words, and Korean, which attaches particles to names: each character is a word.
_ALONE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]"
)
#: Longest run without blanks that is cached.
_SHORT = 64


class Mentions:
    """Finds clear-text names in texts, with the same rules as tombstones."""

    def __init__(self, names: Iterable[str]) -> None:
        self._phrases = {" ".join(words) for name in names if (words := words_of_name(name))}
        self._sizes = {len(phrase.split(" ")) for phrase in self._phrases}

    def __bool__(self) -> bool:
        return bool(self._phrases)

    def mentioned_in(self, text: str) -> bool:
        """Return whether a text mentions a name."""
        return any(phrase in self._phrases for phrase in phrases_of(words_of(text), self._sizes))


def words_of(text: str) -> list[str]:
    """Return the words of a text in comparable form; for text with backslashes also those of its unescaped form."""
    return [*_seen_in(text), *_seen_in(_unescaped(text))] if "\\" in text else _seen_in(text)


def _seen_in(text: str) -> list[str]:
    if text.isascii():
        return _words_of(text)
    # Invisible characters must not hide a name, neither within a word nor between two words.
    seen = _UNSEEN.sub("", text)
    return _words_of(seen) if seen == text else [*_words_of(seen), *_words_of(_UNSEEN.sub(" ", text))]


def words_of_name(name: str) -> list[str]:
    """Return the words of a name, without invisible characters."""
    return _words_of(_UNSEEN.sub("", name))


def phrases_of(words: list[str], sizes: Iterable[int]) -> Iterator[str]:
    """Yield all runs of `sizes` words, each joined by blanks."""
    for size in sizes:
        if size == 1:
            yield from words
        else:
            yield from (" ".join(words[start : start + size]) for start in range(len(words) - size + 1))


def _unescaped(text: str) -> str:
    """Return a text with JSON escapes resolved."""
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
        return _ASCII_NAME.findall(run.lower())
    # plain() decomposes Korean syllables.
    folded = _ALONE.sub(r" \g<0> ", unicodedata.normalize("NFC", plain(run)))
    return "".join(character if character.isalnum() else " " for character in folded).split()
