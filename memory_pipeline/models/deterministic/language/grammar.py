"""Split messages into sentences and words, and find verbs and tenses, in linear time.

Code, quoted lines and other blocks (:func:`~memory_pipeline.domain.text.foreign_text.without_blocks`) and captions ("[a
photo of …]") are skipped, since the speaker does not assert them. List and heading markers are dropped. The regular
expressions use possessive quantifiers, so that no input makes them backtrack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.text.foreign_text import without_blocks
from memory_pipeline.domain.text.words import parts_of
from memory_pipeline.models.deterministic.language.lexicon import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


#: A longer "sentence" (dictation, a log) is split at blanks into pieces of at most this many characters.
MAX_LENGTH = 400
#: Most words that a judgement of single words remembers.
MOST_WORDS: Final = 1 << 15
#: Rules ask for the tense of a sentence several times.
_RECENT: Final = 256

_MARKER = re.compile(r"\A\s*(?:[-*•–+]|\d{1,3}[.)]|#{1,6})\s+(?=\S)")
#: A table, or a line that begins in bold, is laid out like a list.
_LAID_OUT = re.compile(r"\s*(?:\||\*\*)")
#: A caption, a stage direction or a placeholder; not the text of a link.
_CAPTION = re.compile(r"\[(?!secret:)[^\[\]\n]{12,}+\](?!\()")
_EMOJI = "\u2600-\u27bf\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff\ufe0f\u200d"
#: Possible end of a sentence: a run of marks with closing quotes and brackets, or a run of emoji.
_END = re.compile(rf"[.!?…]++[\"'”’»)\]]*+|[。！？؟۔।]++|[{_EMOJI}]++")
_WORD = re.compile(r"[^\W_]++(?:['’\-][^\W_]++|[.,:]\d++)*+")
_QUOTES = '"“”„«»'
_EMOJI_EDGE = re.compile(rf"^[\s{_EMOJI}]++")

#: Start of a question after a statement and a comma: "I have 300 euros a month, can you help me plan?"
_REQUEST = re.compile(
    r"(?:,|;|\s[-–—])\s+(?:(?:so|and|but|then|now)\s+)?(?=(?:"
    r"(?:can|could|would|will|do|does|did|is|are|should|shall|have)\s+"
    r"(?:you|i|we|it|he|she|they|there|this|that|these|someone|anyone|my|the)\b"
    r"|what\b"
    r"|how\s+(?:is|are|do|does|did|can|could|should|would|will|much|many|long|often)\b"
    r"|which\s+\w+\s+(?:is|are|do|does|did|can|could|should|would|will)\b"
    r"|(?:who|why|when|where)\s+(?:do|does|did|can|could|should|would)\b"
    r"|any\s+(?:advice|ideas?|recommendations?|suggestions?|thoughts?|tips?)\b))",
    re.IGNORECASE,
)
#: Fewest words of a statement before a question.
_LEAST_STATED = 4


#: Contractions written without an apostrophe that are no other words.
CASUAL: Final = MappingProxyType(
    {
        contraction.replace("'", ""): contraction
        for contraction in (
            "i'm i've don't doesn't didn't can't isn't aren't wasn't weren't haven't hasn't couldn't wouldn't "
            "shouldn't that's there's he's she's what's let's you're they're you've they've we've"
        ).split()
    }
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence.

    Attributes:
        text: as written, without list markers, outer quotes and leading emoji; line breaks are blanks.
        words: its words as written; contractions and numbers are single words: ``I'll``, ``21.50``, ``9:30``.
        starts: start of each word in `text`.
        parts: its words in lower case, contractions split: ``i``, ``'ll``.
        is_item: whether it is from a list, a heading or a table.
    """

    text: str
    words: tuple[str, ...]
    starts: tuple[int, ...]
    parts: tuple[str, ...]
    is_item: bool = False

    @classmethod
    def of(cls, text: str, *, is_item: bool = False) -> Sentence:
        """Build the sentence of a text."""
        matches = list(_WORD.finditer(text))
        words = tuple([match.group() for match in matches])
        parts: list[str] = []
        for word in words:
            lower = word.lower().replace("’", "'")
            lower = CASUAL.get(lower, lower)
            if "'" in lower:
                parts.extend(parts_of(lower))
            else:
                parts.append(lower)
        return cls(text, words, tuple([match.start() for match in matches]), tuple(parts), is_item)

    @property
    def is_question(self) -> bool:
        """Whether it ends with a question mark, perhaps followed by closing quotes or brackets."""
        return "?" in self.text[-4:] or "？" in self.text[-2:] or "؟" in self.text[-2:]


def sentences_of(text: str, most: int | None = None) -> list[Sentence]:
    """Return the sentences of a message, in order; only the first `most` of them, if given."""
    pieces = (
        Sentence.of(piece, is_item=is_item)
        for paragraph, is_item in _paragraphs(_CAPTION.sub("", without_blocks(text)))
        for sentence in _split(paragraph)
        for part in _stated_and_asked(_unquoted(_EMOJI_EDGE.sub("", sentence).strip(" \t*_~`")))
        for piece in _pieces(part)
    )
    return list(islice(pieces, most))


def _paragraphs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield runs of lines that belong together, and whether a run is a list item, a heading or a row of a table."""
    lines: list[str] = []
    is_item = False
    for line in text.splitlines():
        bare = _MARKER.sub("", line, count=1).strip()
        is_laid_out = bool(bare) and (bare != line.strip() or _LAID_OUT.match(line) is not None)
        if lines and (not bare or is_laid_out or not _continues(lines[-1], bare)):
            yield " ".join(lines), is_item
            lines = []
        if bare:
            is_item = is_laid_out or (is_item and bool(lines))
            lines.append(bare)
    if lines:
        yield " ".join(lines), is_item


def _continues(line: str, following: str) -> bool:
    return following[:1].islower() or (len(line) >= 60 and line[-1] not in '.!?…:"”)')


def _split(paragraph: str) -> Iterator[str]:
    start = 0
    for match in _END.finditer(paragraph):
        end = match.end()
        if _ends_sentence(paragraph, start, match.start(), end):
            yield paragraph[start:end]
            start = end
    yield paragraph[start:]


def _ends_sentence(text: str, start: int, mark: int, end: int) -> bool:
    """Return whether the mark at text[mark:end] ends the sentence that begins at `start`."""
    if text[mark] in "。！？؟۔।" or end == len(text):
        return True
    if not text[end].isspace():
        return False  # a decimal, an address, "p.m"
    after = text[end + 1 : end + 3].lstrip("\"'“‘(")[:1]
    if text[mark] in "!?":
        return not after.islower() or text[mark] == "?"
    if after.islower() or text[mark] != ".":
        return not after.islower()  # "e.g. this", "at 5 p.m. we met"; an ellipsis or an emoji
    before = text[max(start, mark - 12) : mark].rsplit(None, 1)
    last = before[-1].lstrip("\"'“‘(") if before else ""
    is_initial = last.isupper() and last != "I" and all(len(letter) == 1 for letter in last.split("."))
    last = last.lower()
    return not (last in WORDS["abbreviations"] or is_initial or (last in WORDS["before_numbers"] and after.isdigit()))


def _stated_and_asked(sentence: str) -> Iterator[str]:
    """Split a statement from the question that follows it. Otherwise the statement would count as a question."""
    if "?" in sentence[-4:] and sentence.partition(" ")[0].lower() not in WORDS["supposes"]:
        for match in _REQUEST.finditer(sentence):
            stated = sentence[: match.start()]
            if stated.count(" ") + 1 >= _LEAST_STATED:
                yield stated
                yield sentence[match.end() :]
                return
    yield sentence


def _unquoted(sentence: str) -> str:
    """Remove quotes around the whole sentence, and a quote without its partner."""
    around = sentence[:1] in _QUOTES and sentence[-1:] in _QUOTES
    return sentence.strip(_QUOTES) if around or sum(map(sentence.count, _QUOTES)) == 1 else sentence


def _pieces(sentence: str) -> Iterator[str]:
    start = 0
    while len(sentence) - start > MAX_LENGTH:
        cut = sentence.rfind(" ", start, start + MAX_LENGTH + 1)
        if cut > start:
            yield sentence[start:cut]
        else:  # no blank, so no sentence; skip it
            cut = sentence.find(" ", start + MAX_LENGTH)
            if cut < 0:
                return
        start = cut + 1
    if start < len(sentence):
        yield sentence[start:]


# Verbs and tenses. There is no parser; the lists have word forms that are rarely anything but verbs.


class Tense(Enum):
    """Tense of a sentence; NONE without a verb."""

    PAST = "past"
    FUTURE = "future"
    PRESENT = "present"
    NONE = "none"


#: Without 's, which may be "has".
_BE = WORDS["be"] - {"'s", "been"} | {"be"}
_HAVE, _PAST, _PARTICIPLES = WORDS["have"], WORDS["was"], WORDS["participles"]
IRREGULAR_PAST = WORDS["irregular_past"]
_CONDITIONAL = frozenset(["would", "'d"])
_VERBS = _BE | _HAVE | _PAST | IRREGULAR_PAST | _CONDITIONAL | WORDS["modals"] | WORDS["future"]
#: Words that may stand between a form of "have" or "be" and its participle.
_BETWEEN = frozenset("not n't just already also never always so all both still".split())


@lru_cache(MOST_WORDS)
def is_verb(word: str) -> bool:
    """Return whether a lower-case word (or part of a contraction) is probably a verb."""
    return word in _VERBS or is_plain_verb(word) or is_regular_past(word)


def is_plain_form(word: str) -> bool:
    """Return whether a lower-case word is the base form of a common verb, as in a command."""
    return word in WORDS["plain_verbs"]


@lru_cache(MOST_WORDS)
def is_plain_verb(word: str) -> bool:
    """Return whether a lower-case word is a common verb in the present tense."""
    forms = [word]
    if word.endswith("s"):
        forms += [word[:-1], word.removesuffix("es"), word[:-3] + "y" if word.endswith("ies") else ""]
    return any(map(is_plain_form, forms))


def is_regular_past(word: str) -> bool:
    """Return whether a lower-case word looks like a past form with -ed."""
    return len(word) > 3 and word.endswith("ed") and word not in WORDS["not_past"]


def has_verb(parts: Sequence[str]) -> bool:
    """Return whether :attr:`Sentence.parts` has a verb, or a subject that must have one."""
    return any(map(is_verb, parts)) or not WORDS["subjects"].isdisjoint(parts[:-1])


@lru_cache(_RECENT)
def tense_of(parts: tuple[str, ...]) -> Tense:
    """Return the tense of :attr:`Sentence.parts`. Any word of the future makes it FUTURE.

    "is closed" is not past; "has closed" is. A conditional ("I thought I'd go") is PRESENT.
    """
    past = present = False
    before = ""
    for place, part in enumerate(parts):
        after = parts[place + 1] if place + 1 < len(parts) else ""
        if part in WORDS["future"] or (part == "going" and after == "to"):
            return Tense.FUTURE
        if part in _CONDITIONAL:
            # "I'd gone" is past
            if part == "would" or not (after in _PARTICIPLES or after in _PAST or is_regular_past(after)):
                return Tense.PRESENT
            past = True
        elif part in _PAST or (part in IRREGULAR_PAST and before not in _BE):
            past = True
        elif part in _BE or part == "'s" or part in WORDS["modals"] or part in _HAVE:
            present = True
        elif (before in _HAVE and part in _PARTICIPLES) or (is_regular_past(part) and before not in _BE | {"'s"}):
            past = True
        elif is_plain_verb(part):
            present = True
        if part not in _BETWEEN:
            before = part
    return Tense.PAST if past else Tense.PRESENT if present else Tense.NONE
