"""Generated conversations of many agents in a year or some days of it, determined by a seed."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.periods import Calendar

if TYPE_CHECKING:
    from collections.abc import Iterator

START = date(2024, 1, 1)
YEAR, DAYS = 2024, 366
WORKSPACE = "harbour"
#: The time of receipt of all messages.
RECEIVED = datetime(2025, 1, 20, 9, tzinfo=UTC)

_NAMES = "Ada Bo Cleo Dan Eve Finn Gro Hal Ida Jon Kim Lev Mia Nils Oda Per Rut Sol Tor Uma".split()
_PLACES = "Porto Lisbon Bergen Turin Ghent Graz Lyon Cork Bath Faro".split()
_THINGS = "figs nuts rye plums kelp olives leeks quince oats cress".split()
_SAID = (
    "I moved to {place}.",
    "I like {thing}, and I can't stand {other}.",
    "I'm allergic to {thing}.",
    "From now on, always answer me in one sentence.",
    "{name} works at the bakery in {place}.",
    "I will visit {name} in {place} on {day}.",
    "Yesterday {name} sold all the {thing} for {number} euros.",
    "We decided to order {number} crates of {thing} from {place}.",
    "My sister {name} lives in {place}.",
    "{name} prefers {thing} to {other}.",
)
_ANSWERED = ("Noted.", "I will remember that.", "Understood: {thing}.", "Is {name} still in {place}?")


def agents(number: int) -> list[str]:
    return [f"agent-{index:05d}" for index in range(number)]


def year(number: int, talks: int, days: int = DAYS, seed: int = 8) -> Iterator[list[Message]]:
    """Yield the messages of each conversation.

    Args:
        number: the number of agents.
        talks: conversations of each agent at random times, with three to eight messages each.
        days: the number of days, from 1 January on.
        seed: determines all times and texts.
    """
    admission = Admission(START, RECEIVED, Calendar())
    for agent in agents(number):
        rng = random.Random(f"{seed} {agent}")
        user = rng.choice(_NAMES)
        for talk in range(talks):
            record = {
                "workspace_id": WORKSPACE,
                "agent_id": agent,
                "conversation_id": f"talk-{talk}",
                "messages": list(_messages(rng, user, days)),
            }
            messages, rejected, _ = read_messages(record, admission)
            assert not rejected, rejected
            yield messages


def _messages(rng: random.Random, user: str, days: int) -> Iterator[dict[str, str]]:
    at = datetime(YEAR, 1, 1, tzinfo=UTC) + timedelta(days=rng.randrange(days), hours=rng.randint(6, 22))
    for number in range(rng.randint(3, 8)):
        at += timedelta(seconds=rng.randint(20, 200))
        thing, other = rng.sample(_THINGS, 2)
        words = {
            "name": rng.choice(_NAMES), "place": rng.choice(_PLACES), "thing": thing, "other": other,
            "number": str(rng.randint(2, 90)), "day": f"{at + timedelta(days=rng.randint(1, 20)):%d %B}",
        }  # fmt: skip
        said = rng.choice(_ANSWERED if number % 2 else _SAID)
        yield {
            "id": f"m{number}",
            "role": "assistant" if number % 2 else "user",
            "name": "Agent" if number % 2 else user,
            "content": said.format(**words),
            "timestamp": at.isoformat(),
        }
