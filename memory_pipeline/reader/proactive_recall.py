"""Imagining: what an agent should know for a conversation that it is in, though nobody has asked for it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.chat_messages import messages_in
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.text.ranking import Query, terms
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.errors import InputError
from memory_pipeline.memories.ranker import RankedMemories, Wanted
from memory_pipeline.models.deterministic.language.grammar import sentences_of
from memory_pipeline.models.deterministic.language.names import names_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from memory_pipeline.domain.ports import Imaginer
    from memory_pipeline.memories.ranker import Ranked
    from memory_pipeline.memories.search import MemorySearch, RecalledMemory

_log = logging.getLogger(__name__)

#: So many of the last messages are looked at, so much of each, in characters, …
MESSAGES: Final = 20
_READ: Final = 2_000
#: … and so many queries follow from them at most.
QUERIES: Final = 5
#: Names that are looked for, and words that make a topic.
_NAMES, _WORDS = 3, 6
_STANDING = frozenset(kind for kind in MemoryKind if kind.is_permanent)


def proactive_recall(
    memories: MemorySearch,
    imaginer: Imaginer | None,
    messages: Sequence[object],
    exclude: frozenset[str],
    most: int,
    now: datetime | None,
) -> list[RecalledMemory]:
    """Return memories that a conversation may need: what holds and fits comes first, then what its queries find.

    Places that are left are filled with what else holds until it is revoked: it may apply to anything.

    Args:
        memories: of the agent.
        imaginer: thinks of queries; rules do if it is None, or fails.
        messages: the conversation; what is no message is passed over.
        exclude: ids of memories that were shown before.
        most: how many at most.
        now: as of :meth:`MemorySearch.search`.
    """
    lines = lines_of(messages)
    if not lines:
        return []
    queries = _queries(imaginer, lines)
    texts = ["\n".join(lines), *queries]
    questions = [Query.of(text, ()) for text in texts]
    wanted = [
        Wanted(question, vector, most, exclude=exclude, only_fitting=True)
        for question, vector in zip(questions, memories.embedded(texts), strict=True)
    ]
    whole, *asked = wanted
    holding = Wanted(whole.question, whole.vector, most, _STANDING, exclude=exclude)
    fitting = Wanted(whole.question, whole.vector, most, _STANDING, exclude=exclude, only_fitting=True)
    found = [memories.ranked(one, now) for one in (fitting, *asked, holding)]
    best, *others, last = (one.memories for one in found)
    in_turn = [one for each in zip_longest(*others) for one in each if one is not None]
    first: dict[str, Ranked] = {}
    for one in (*best, *in_turn, *last):
        first.setdefault(one.id, one)
    return memories.told(RankedMemories(found[-1].top, list(first.values())[:most]), now)


def lines_of(messages: Sequence[object]) -> list[str]:
    """Return the last messages as lines, each with who says it if that is known; without what was recalled.

    Args:
        messages: texts, or messages with ``content`` and perhaps ``name`` and ``role``, in the format of OpenAI's and
            LiteLLM's chat API as well.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        return []
    lines = []
    for content, speaker in _contents(messages[-MESSAGES:]):
        if not isinstance(content, str) or not is_unicode(content):
            continue
        text = " ".join(without_recalled(content).replace("\x00", " ").split())[:_READ]
        if text:
            is_named = isinstance(speaker, str) and speaker.strip() and is_unicode(speaker)
            lines.append(f"{speaker}: {text}" if is_named else text)
    return lines


def _contents(messages: Sequence[object]) -> Iterator[tuple[object, object]]:
    """Yield the content of each message, and who says it; of a message that cannot be read nothing."""
    for message in messages:
        if isinstance(message, str):
            yield message, None
            continue
        with suppress(InputError):
            for part in messages_in(message):
                yield part.get("content"), part.get("name") or part.get("role")


def queries_of(lines: Sequence[str], most: int = QUERIES) -> list[str]:
    """Return what follows from a conversation without a model: its last message, whom and what it names, its topic."""
    named: list[str] = []
    for line in reversed(lines):
        named += [name for names in names_in(sentences_of(line)) for name in names]
    counts = Counter(word for line in lines for word in dict.fromkeys(terms(line)))
    topic = " ".join(word for word, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:_WORDS])
    names = list(dict.fromkeys(named))[:_NAMES]
    return list(dict.fromkeys(query for query in (lines[-1], *names, topic) if query))[:most]


def _queries(imaginer: Imaginer | None, lines: Sequence[str]) -> list[str]:
    if imaginer is not None:
        try:
            return list(imaginer.imagine(lines, QUERIES))[:QUERIES]
        except Exception as error:  # noqa: BLE001  # whatever it is, rules find queries too
            _log.warning("queries are imagined without a model: %s", error)
    return queries_of(lines)
