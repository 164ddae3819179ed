"""Words: letters in their plain form, and of English contractions cut apart, stop words, and a light stemmer.

The stemmer follows the idea of Harman's S-stemmer ("How effective is suffixing?", 1991) and adds ``-ing`` and
``-ed``. It only has to bring the forms of a word together; its results need not be words.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text that has only words and blanks: how this package writes its tables."""
    return frozenset(text.split())


#: Words that say nothing alone. Parts of contractions ("'ll", "n't") are listed too; see :func:`parts_of`.
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
_IRREGULAR_NEGATIONS = {"ca": "can", "wo": "will", "sha": "shall"}


def plain(text: str) -> str:
    """Return a text without case, accents and other marks, and with ordinary letters for those that look special."""
    if text.isascii():
        return text.lower()
    # Decomposed first: what looks special may hide an upper case letter, and what is folded may be decomposed further.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    if decomposed.isascii():  # of a text that is cut ("…"), say
        return decomposed
    return "".join(character for character in decomposed if not unicodedata.category(character).startswith("M"))


def is_unicode(text: str) -> bool:
    """Tell whether a text can be stored: it holds no halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def spaced(text: str) -> str:
    """Return a text with one blank between its words, which are runs of letters, their marks, and digits."""
    if text.isascii():
        return " ".join(_ASCII_WORD.findall(text))
    kept = (
        character if character.isalnum() or unicodedata.category(character).startswith("M") else " "
        for character in text
    )
    return " ".join("".join(kept).split())


@lru_cache(maxsize=4096)
def parts_of(contraction: str) -> tuple[str, ...]:
    """Cut a lower-case word where it is contracted: "i'll" → ("i", "'ll"), "didn't" → ("did", "n't"), not "o'brien"."""
    if contraction.endswith("n't"):
        head = contraction[:-3]
        return (_IRREGULAR_NEGATIONS.get(head, head), "n't") if head else ("n't",)
    head, mark, tail = contraction.rpartition("'")
    return (*parts_of(head), mark + tail) if head and mark + tail in STOP_WORDS else (contraction,)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return what the forms of a lower-case English word share: "cities" → "citi", "city" → "citi"."""
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
