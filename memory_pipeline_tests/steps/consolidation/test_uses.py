"""A memory that models are given stays; what only fills space, lists and reads of the past do not count."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.memories.record import Status
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import ACCESS_LOG
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import consolidation_status, days_between
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models

NOW, DAY = datetime(2024, 3, 4, 9, tzinfo=UTC), timedelta(days=1)
QUESTION = "Which colour has the kite of the club?"


@pytest.fixture
def memory(root: str) -> Memory:
    memory = Memory(root, user_id="anna")
    memory.remember("The kite of the club is blue.", now=NOW)
    memory.remember("The lift in the tower is slow.", now=NOW)
    memory.lake.storage.write(CONFIGURATION, b"defaults: {memories: {hot_entries: 0}}")
    return memory


def consolidated(memory: Memory, models: Models, days: int) -> dict[str, tuple[Status, int]]:
    """Consolidate the first days; return the status and the uses of all memories, by their second word."""
    lake, end = memory.lake, NOW + (days + 2) * DAY
    pending = grain_status(lake, Grain.WORKING, date(2024, 1, 1), end).pending
    list(materialize(lake, models, Grain.WORKING, pending))
    consolidate(lake, models, days_between(lake, NOW.date(), (NOW + days * DAY).date(), end), date(2024, 1, 1))
    assert consolidation_status(lake, date(2024, 1, 1), NOW + (days + 1) * DAY).pending == []
    found = memory.reader.memories.list(status=None)
    return {one.content.split()[1]: (one.status, one.access_count) for one in found}


def test_p13_a_memory_that_is_used_every_five_days_stays(memory: Memory, models: Models) -> None:
    [kite] = [one.id for one in memory.reader.memories.list() if "kite" in one.content]
    memory.context(QUESTION, now=NOW)
    memory.reader.recall(QUESTION, now=NOW + 5 * DAY)
    memory.reader.inject_knowledge(QUESTION, now=NOW + 10 * DAY)
    for day in range(15, 161, 5):
        memory.reader.note_uses([kite], now=NOW + day * DAY)
    assert consolidated(memory, models, 161) == {"kite": (Status.ACTIVE, 33), "lift": (Status.ARCHIVED, 0)}
    assert memory.stats()["long_term"].accesses == 33
    # A read of the past, and one of a day that is consolidated, change nothing.
    memory.context(QUESTION, now=NOW + 50 * DAY)
    memory.lake.access_log.settle()
    assert consolidated(memory, models, 161)["kite"] == (Status.ACTIVE, 33)
    # One row for each memory and day.
    assert memory.lake.tables.read(ACCESS_LOG).num_rows == 33
    forget(memory.lake, models, Subject.user("default", "anna"), datetime.now(UTC))
    assert memory.lake.tables.read(ACCESS_LOG).num_rows == 0


def test_uses_of_a_day_are_added_and_what_fills_space_is_no_use(memory: Memory, models: Models) -> None:
    for hour in range(3):
        Memory(memory.lake.storage.uri, user_id="anna").context(QUESTION, now=NOW + timedelta(hours=hour))
        memory.lake.access_log.settle()
    memory.context(now=NOW)
    memory.list()
    memory.reader.memories.list()
    memory.search("kite", now=NOW)
    assert consolidated(memory, models, 1) == {"kite": (Status.ACTIVE, 3), "lift": (Status.ACTIVE, 0)}
    assert memory.lake.tables.read(ACCESS_LOG).num_rows == 1
