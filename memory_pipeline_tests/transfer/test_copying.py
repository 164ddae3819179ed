"""A copy of a lake holds what the lake holds, or what it held at an earlier time."""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.lake import Lake
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.transfer.copying import CopySelection, copy_lake
from memory_pipeline.transfer.deriving import derive, models_without_requests
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from pathlib import Path

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


def digests(lake: Lake) -> dict[str, str]:
    """Return the digests of what is the same however it came about."""
    left_out = ("tables/ledger", "tables/consolidation", "tables/access_log", "tables/read_receipts", "journal/")
    return {name: text for name, text in lake_digest(lake).items() if not name.startswith(left_out)}


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_as_of_a_time_equals_a_lake_that_stopped_then(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    memory = Memory(tmp_path / "lake", user_id="anna")
    now = START
    stop = 12
    for step in range(24):
        if step == stop:
            stopped = now
            shutil.copytree(tmp_path / "lake", tmp_path / "stopped")
            Memory(tmp_path / "stopped", user_id="anna").run(now=stopped)
        now += timedelta(hours=chance.randrange(1, 200))
        act(Memory(tmp_path / "lake", user_id="anna"), chance, now)
    memory = Memory(tmp_path / "lake", user_id="anna")
    memory.run(now=now + timedelta(days=30))
    copy = memory.lake.new_copy(tmp_path / "copy")
    selection = CopySelection(None, stopped)
    copy_lake(memory.lake, copy, selection)
    models = models_without_requests(memory.lake, HashingEmbedder(), selection, memory.lake.calls, stopped, waits=True)
    derive(copy, models, stopped)
    assert differing(digests(Lake(tmp_path / "stopped")), digests(copy)) == []
