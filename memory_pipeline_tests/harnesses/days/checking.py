"""Compare every way of reading a memory with the model."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from memory_pipeline import Memory
from memory_pipeline_tests.harnesses.days.agent import REPEATED, Agent

_OF_PEOPLE = {"user", "assistant"}
#: Texts that are searched at each check.
_SAMPLE = 3


def differences(agent: Agent, now: datetime) -> list[str]:
    """Return how the reads of both users differ from the model, in lines; none if they are equal."""
    found = []
    for user, memory in agent.memories.items():
        found += [f"{user}: {line}" for line in _conversations(agent, user, memory)]
        found += [f"{user}: {line}" for line in _listed(agent, user, memory)]
        found += [f"{user}: {line}" for line in _searched(agent, user, memory, now)]
    return found


def _conversations(agent: Agent, user: str, memory: Memory) -> list[str]:
    lines = []
    for talk, said in agent.model.of(user).items():
        stored = Counter(
            (message.role.value, message.content)
            for message in memory.conversations.get(talk)
            if message.role.value in _OF_PEOPLE
        )
        lines += _compared(f"conversation {talk}", stored, Counter((one.role, one.text) for one in said))
    return lines


def _listed(agent: Agent, user: str, memory: Memory) -> list[str]:
    """All turns are listed, page by page. A text that is listed must have been said."""
    texts, cursor = Counter[str](), None
    while True:
        page = memory.list("fact", cursor=cursor, limit=100)
        texts.update(hit.content.partition(": ")[2] for hit in page)
        cursor = page.cursor
        if cursor is None:
            break
    expected = agent.model.texts(user)
    unique = {text for text in expected if "harbour" in text}
    listed = Counter({text: count for text, count in texts.items() if "harbour" in text})
    return _compared("list", listed, Counter({text: expected[text] for text in unique}))


def _searched(agent: Agent, user: str, memory: Memory, now: datetime) -> list[str]:
    """A text that was said once is found once, at the first place; what nobody said to this user is not found."""
    lines = []
    expected = agent.model.texts(user)
    mine = sorted(text for text in expected if "harbour" in text)
    others = sorted({text for one in agent.memories for text in agent.model.texts(one)} - set(expected) - set(REPEATED))
    for text in agent.random.sample(mine, min(_SAMPLE, len(mine))):
        hits = [hit.content.partition(": ")[2] for hit in memory.search(text, 20, sources=("turns",), now=now)]
        if hits[:1] != [text] or hits.count(text) != 1:
            lines.append(f"search {text!r} finds {hits[:3]}")
    unseen = agent.random.sample(others, min(_SAMPLE, len(others)))
    found = [text for text in unseen if any(text in hit.content for hit in memory.search(text, 20, now=now))]
    return lines + [f"search finds {text!r} of another user" for text in found]


def _compared(what: str, stored: Counter[Any], said: Counter[Any]) -> list[str]:
    return [f"{what} lacks {count} of {one}" for one, count in (said - stored).items()] + [
        f"{what} has {count} too many of {one}" for one, count in (stored - said).items()
    ]
