"""Random histories of a memory: what users and agents do over some weeks."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from memory_pipeline import Memory
from memory_pipeline_tests.lake_digest import lake_digest

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.lake import Lake

START = datetime(2025, 3, 3, 9, tzinfo=UTC)
CITIES = ("Porto", "Berlin", "Oslo", "Lima", "Quito", "Turin")
NAMES = ("Nadia", "Omar", "Pia", "Quentin")


def sentence(chance: random.Random) -> str:
    name, city = chance.choice(NAMES), chance.choice(CITIES)
    return chance.choice(
        [
            f"I moved to {city}.",
            f"My sister {name} lives in {city}.",
            f"{name} works at Contoso.",
            "I prefer short answers.",
            f"Tomorrow I meet {name} in {city}.",
            "I like tea.",
        ]
    )


def act(memory: Memory, chance: random.Random, now: datetime) -> None:
    """Do one of the things that users and agents do."""
    messages = [one for talk in memory.conversations.list() for one in memory.conversations.get(talk.id)]
    own = [one.id for one in memory.reader.memories.list()]
    match chance.randrange(9):
        case 0 | 1 | 2:
            memory.add(sentence(chance), now=now)
        case 3:  # late: it tells of an earlier time
            at = now - timedelta(days=chance.randrange(1, 40))
            memory.add([{"role": "user", "content": sentence(chance), "timestamp": at.isoformat()}], now=now)
        case 4:
            memory.remember(sentence(chance), now=now)
        case 5 if own:
            memory.forget(chance.choice(own), now=now)
        case 6:
            memory.writer.graph.insert("Anna", "knows", chance.choice(NAMES), now=now)
        case 7:  # a message, or a later text of it
            number = chance.randrange(2)
            at = START + timedelta(hours=number)
            message = {"id": f"m{number}", "role": "user", "content": sentence(chance), "timestamp": at.isoformat()}
            memory.add([message], conversation_id="edited", now=now)
        case 8 if messages:
            memory.correct(chance.choice(messages).id, now=now)
        case _:
            memory.run(now=now)


def live(folder: Path, seed: int, steps: int = 24, start: datetime = START) -> datetime:
    """Let Anna and Ben use the lake in a folder; return the time at the end. Some records are pending then."""
    chance, now = random.Random(seed), start
    for _ in range(steps):
        now += timedelta(hours=chance.randrange(1, 200))
        act(Memory(folder, user_id=chance.choice(["anna", "anna", "ben"])), chance, now)
    Memory(folder, user_id="anna").add(sentence(chance), now=now)
    return now


def digests(lake: Lake) -> dict[str, str]:
    """Return the digests of what is the same however it came about."""
    left_out = ("tables/ledger", "tables/consolidation", "tables/access_log", "tables/read_receipts", "journal/")
    return {name: text for name, text in lake_digest(lake).items() if not name.startswith(left_out)}
