"""Which other words a text may use for what was asked, from ``thesaurus.txt``: everyday English, no model.

A line of the file is one of two things::

    film = movie = cinema            each stands for each other
    pet > dog cat hamster            who asks for the general word may mean a specific one, not the other way round

Words are compared by their stems, so regular forms are not listed, and irregular ones are (``buy = bought``).
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from memory_pipeline.domain.words import stem

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIGNS = frozenset("=>")


def related(term: str) -> frozenset[str]:
    """Return the stems that a text may hold instead of a stem that was asked for."""
    return _relations().get(term, frozenset())


def parse(text: str) -> Mapping[str, frozenset[str]]:
    """Read lines as in this module's docstring; ``#`` begins a comment.

    Raises:
        ValueError: a line is in neither form.
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
    return parse(files("memory_pipeline.domain").joinpath("thesaurus.txt").read_text(encoding="utf-8"))
