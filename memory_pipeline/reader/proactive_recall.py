"""Proactive recall: durable memories that a conversation may need, without a question."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.chat_messages import readable
from memory_pipeline.domain.memories.permanence import PERMANENT_KINDS
from memory_pipeline.domain.text.ranking import Query, terms
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.memories.ranker import RankedMemories, Wanted

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.domain.ports import Imaginer
    from memory_pipeline.memories.ranker import Ranked
    from memory_pipeline.memories.search import MemorySearch, RecalledMemory

_log = logging.getLogger(__name__)

#: Number of last messages that are read, and characters of each.
MESSAGES: Final = 20
_READ: Final = 2_000
QUERIES: Final = 5
#: Most names that become queries, and most words of the topic.
_NAMES, _WORDS = 3, 6


def proactive_recall(
    memories: MemorySearch,
    imaginer: Imaginer | None,
    messages: Sequence[object],
    exclude: frozenset[str],
    limit: int,
    now: datetime | None,
) -> list[RecalledMemory]:
    """Return memories that a conversation may need: related permanent ones first, then results of the queries.

    Remaining places are filled with other permanent memories, which may apply to anything. Without `imaginer`, or if it
    fails, rules make the queries. `now` is as in :meth:`MemorySearch.search`.
    """
    lines = lines_of(messages)
    if not lines:
        return []
    queries = _queries(imaginer, lines)
    texts = ["\n".join(lines), *queries]
    questions = [Query.of(text, ()) for text in texts]
    requests = [
        Wanted(question, vector, limit, exclude=exclude, only_fitting=True)
        for question, vector in zip(questions, memories.embedded(texts), strict=True)
    ]
    whole, *for_queries = requests
    all_permanent = Wanted(whole.question, whole.vector, limit, PERMANENT_KINDS, exclude=exclude)
    related_permanent = Wanted(whole.question, whole.vector, limit, PERMANENT_KINDS, exclude=exclude, only_fitting=True)
    found = [memories.ranked(one, now) for one in (related_permanent, *for_queries, all_permanent)]
    best, *others, last = (one.memories for one in found)
    in_turn = [one for each in zip_longest(*others) for one in each if one is not None]
    first: dict[str, Ranked] = {}
    for one in (*best, *in_turn, *last):
        first.setdefault(one.id, one)
    return memories.load_results(RankedMemories(found[-1].top, list(first.values())[:limit]), now)


def lines_of(messages: Sequence[object]) -> list[str]:
    """Return the last messages as lines, with the speaker if known, without text marked as recalled.

    Messages are texts, or have ``content`` and optionally ``name`` and ``role``, also in the format of OpenAI's and
    LiteLLM's chat API.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        return []
    lines = []
    for message in readable(messages[-MESSAGES:]):
        content, speaker = message.get("content"), message.get("name") or message.get("role")
        if not isinstance(content, str) or not is_unicode(content):
            continue
        text = " ".join(without_recalled(content).replace("\x00", " ").split())[:_READ]
        if text:
            is_named = isinstance(speaker, str) and speaker.strip() and is_unicode(speaker)
            lines.append(f"{speaker}: {text}" if is_named else text)
    return lines


def queries_of(lines: Sequence[str], most: int = QUERIES) -> list[str]:
    """Make queries by rules: the last message, the names in it and before it, and the topic."""
    # Imported late: the rules compile many patterns.
    from memory_pipeline.models.deterministic.language.grammar import sentences_of
    from memory_pipeline.models.deterministic.language.names import names_in

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
        except Exception as error:  # noqa: BLE001  # after any error, rules make the queries instead
            _log.warning("proactive recall makes its queries by rules; the model failed: %s", error)
    return queries_of(lines)
