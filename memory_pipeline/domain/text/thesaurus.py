"""The thesaurus of everyday English: words of a question and of memory that mean the same."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from memory_pipeline.domain.text.words import stem

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIGNS = frozenset("=>")


def related(term: str) -> frozenset[str]:
    """Return the stems that the thesaurus relates to a stem of the query."""
    return _relations().get(term, frozenset())


def parse_thesaurus(text: str) -> Mapping[str, frozenset[str]]:
    """Parse a thesaurus of everyday English; ``#`` starts a comment.

    A line has one of two forms::

        film = movie = cinema       synonyms in all directions
        pet > dog cat hamster       a query for the general word matches the specific ones, not vice versa

    Words are compared by stem, so only irregular forms are listed (``buy = bought``).

    Raises:
        ValueError: a line has neither form.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.partition("#")[0].split()
        if not entry:
            continue
        if entry[1:2] == [">"] and len(entry) > 2 and not _SIGNS & {entry[0], *entry[2:]}:
            found[stem(entry[0])].update(map(stem, entry[2:]))
        elif len(entry) > 2 and len(entry) % 2 and set(entry[1::2]) == {"="} and not _SIGNS & set(entry[::2]):
            stems = {stem(word) for word in entry[::2]}
            for each in stems:
                found[each].update(stems)
        else:
            raise ValueError(f"line {number}: {line!r} is neither 'word = word' nor 'word > word word'")
    return {term: frozenset(others - {term}) for term, others in found.items()}


@cache
def _relations() -> Mapping[str, frozenset[str]]:
    return parse_thesaurus(files("memory_pipeline.domain.text").joinpath("thesaurus.txt").read_text(encoding="utf-8"))
