"""Choose the messages that stay in a model's context window."""

from __future__ import annotations

from collections import Counter
from math import fsum, log
from typing import TYPE_CHECKING

from memory_pipeline.domain.text.ranking import terms

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Usual number of characters in a token of English text.
CHARACTERS_PER_TOKEN = 4


def estimated_tokens(text: str) -> int:
    """Return the number of tokens of a text, at four characters a token, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def newest(sizes: Sequence[int], limit: int) -> list[int]:
    """Return the places of the newest messages, without a gap, whose sizes add up to at most `limit`."""
    first, total = len(sizes), 0
    while first and total + sizes[first - 1] <= limit:
        first -= 1
        total += sizes[first]
    return list(range(first, len(sizes)))


def most_relevant(texts: Sequence[str], sizes: Sequence[int], limit: int) -> list[int]:
    """Return the places, in order, of the messages that matter most for the newest one, within `limit`.

    The newest message comes first. The others follow by the rare words that they share with it; of equal ones, the
    newer comes first. Those that do not fit are skipped.
    """
    words = [frozenset(terms(text)) for text in texts]
    counts = Counter(word for each in words for word in each)
    topic = words[-1] if words else frozenset[str]()
    rarity = {word: log(1 + len(texts) / counts[word]) for word in topic}
    # fsum is exact: the order of a set differs between processes.
    shared = [fsum(rarity[word] for word in each & topic) for each in words]
    order = sorted(range(len(texts)), key=lambda place: (place != len(texts) - 1, -shared[place], -place))
    chosen: list[int] = []
    for place in order:
        if sizes[place] <= limit:
            chosen.append(place)
            limit -= sizes[place]
    return sorted(chosen)
