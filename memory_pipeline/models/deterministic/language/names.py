"""Names of people, places and things: words that English capitalizes.

A capitalized word inside a sentence is a name. The first word of a sentence is a name only if it is uncommon and has
further evidence: it is capitalized inside another sentence of the message, it is the speaker's name, the next word is
capitalized too, it has more capitals ("LGBTQ"), or it is a singular subject without an article ("Aldo has …",
"Elise's …"). Texts in capitals have no names.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from memory_pipeline.domain.text.words import STOP_WORDS
from memory_pipeline.models.deterministic.language.grammar import (
    IRREGULAR_PAST,
    MOST_WORDS,
    is_plain_verb,
    is_regular_past,
    is_verb,
    sentences_of,
)
from memory_pipeline.models.deterministic.language.lexicon import WORDS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memory_pipeline.models.deterministic.language.grammar import Sentence

#: Most words of a name; longer runs of capitalized words are headings.
_LONGEST_NAME = 5
#: Lower-case words inside names: "Loaf of the Year".
_LINKS = frozenset(["of", "of the", "de", "da", "del", "di", "la", "le", "van", "van der", "von", "&"])

#: The title of a book or film: capitalized, in quotes.
_TITLE = re.compile(r"[\"“„«]([A-Z][\w'’]* [^\"“”«».!?]{1,60})[\"”»]")


def names_in(sentences: Sequence[Sentence], speaker: str | None = None) -> list[tuple[str, ...]]:
    """Return the distinct names in each sentence of one message, as written, without possessive 's.

    A name in one of the sentences is a name in all, and so is that of the speaker.
    """
    known = {speaker.lower()} if speaker else set()
    for sentence in sentences:
        known.update(
            word.lower()
            for place, word in enumerate(map(_bare, sentence.words))
            if word[0].isupper() and _may_be_name(word) and not _is_initial(sentence, place)
        )
    return [_names(sentence, known) for sentence in sentences]


def subject_of(text: str) -> str | None:
    """Return the name that begins a text, or None: "Alice" for "Alice's sister likes tea", ``User`` for "The user"."""
    for sentence in sentences_of(text, 1):
        if sentence.parts[:2] == ("the", "user") or sentence.parts[:1] == ("user",):
            return "User"
        found = [name for names in names_in([sentence]) for name in names if sentence.text.startswith(name)]
        if found:
            return found[0]
        first, following = (*sentence.words[:1], "")[0], (*sentence.parts[1:2], "")[0]
        is_name = first[:1].isupper() and _may_be_name(first) and not is_plain_verb(first.lower())
        precedes_verb = following not in WORDS["plural_verbs"] and (
            is_verb(following) or following in WORDS["before_verbs"]
        )
        if is_name and not first.endswith(("ing", "ly", "ed")) and precedes_verb:
            return first  # "Alice enjoys …", "Alice doesn't …"
    return None


def _names(sentence: Sentence, known: Collection[str]) -> tuple[str, ...]:
    words = sentence.words
    in_capitals = sum(word.isupper() and len(word) > 1 for word in words)
    if len(words) >= 4 and in_capitals * 2 > len(words):
        return ()
    titles = [match for match in _TITLE.finditer(sentence.text) if match[1][-1].isalnum()]
    names = [match[1] for match in titles]
    run: list[str] = []
    end = 0  # end of the current run in the text
    for place, (word, start) in enumerate(zip(words, sentence.starts, strict=True)):
        if not word[0].isupper():
            continue
        bare = _bare(word)
        if titles and any(match.start() < start < match.end() for match in titles):
            continue
        if not (_may_be_name(bare) and _is_name(sentence, place, bare, known)):
            continue
        between = sentence.text[end:start].strip(" ") if run else ""
        joined = run and sentence.text[end : end + 1] == " " and (not between or between in _LINKS)
        if not joined:
            names.append(" ".join(run))
            run = []
        run += [between, bare] if between and joined else [bare]
        # A possessive ends a name ("Elise's Rye" is two names), except "Valentine's Day".
        following = words[place + 1] if place + 1 < len(words) else ""
        if bare != word and following in WORDS["after_possessive"]:
            run[-1] = word
        end = start + len(word) if bare == word or following in WORDS["after_possessive"] else len(sentence.text)
    names.append(" ".join(run))
    return tuple(dict.fromkeys(name for name in names if name and len(name.split()) <= _LONGEST_NAME))


def _is_name(sentence: Sentence, place: int, word: str, known: Collection[str]) -> bool:
    lower = word.lower()
    if not _is_initial(sentence, place) or lower in known or not word[1:].islower():
        return True
    if (
        is_plain_verb(lower)
        or (len(lower) > 4 and lower.endswith(("ing", "ly", "ed")))
        or place + 1 == len(sentence.words)
    ):
        return False
    is_possessive = word != sentence.words[place]
    touches_next = sentence.text[sentence.starts[place] + len(word) : sentence.starts[place + 1]] == " "
    return is_possessive or (touches_next and _follows_name(sentence.words[place + 1 : place + 3], word))


def _follows_name(words: Sequence[str], first: str) -> bool:
    following = words[-1] if words[0] == "and" else words[0]
    if words[0] in WORDS["before_verbs"] and len(words) > 1:
        following = words[1]
    if following[0].isupper():
        return _may_be_name(_bare(following)) or (following == "I" and len(words) > 1)
    if words[0] == "and" or first.endswith("s"):
        return False  # "Cats and dogs", a plural
    return following in WORDS["singular_verbs"] or following in IRREGULAR_PAST or is_regular_past(following)


def _is_initial(sentence: Sentence, place: int) -> bool:
    """Return whether a word begins the sentence, a quotation, or the part after a colon."""
    start = sentence.starts[place]
    return place == 0 or sentence.text[start - 1] in '"“„«(' or sentence.text[max(start - 2, 0) : start] == ": "


@lru_cache(MOST_WORDS)
def _may_be_name(word: str) -> bool:
    lower = word.lower()
    return (
        len(word) > 1
        and lower not in STOP_WORDS
        and lower not in WORDS["phatic"]
        and lower not in WORDS["not_names"]
        and "'" not in lower
        and "’" not in lower
    )


def _bare(word: str) -> str:
    return word[:-2] if word.endswith(("'s", "’s")) and len(word) > 2 else word
