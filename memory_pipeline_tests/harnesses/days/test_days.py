"""Thirty days of an agent with memory: every read equals a plain model of what was said."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.harnesses.days.agent import BEN, START, Agent
from memory_pipeline_tests.harnesses.days.checking import differences

DAYS = 30
ACTIONS = 12 if IS_THOROUGH else 3
#: Days with a run, one in the middle of a day and one after days without any, and with erasures.
RUNS = range(0, DAYS, 2) if IS_THOROUGH else (3, 17, 27)
ERASES_CONVERSATION, ERASES_USER = 12, 21


@pytest.mark.parametrize("seed", range(20) if IS_THOROUGH else (7,))
def test_every_read_equals_the_model(seed: int, tmp_path: Path) -> None:
    agent = Agent(str(tmp_path / "lake"), seed)
    for day in range(DAYS):
        now = START + timedelta(days=day)
        for _ in range(ACTIONS):
            now += timedelta(minutes=agent.random.randint(3, 60))
            agent.act(now)
        now += timedelta(minutes=5)  # later than the clock of any client
        if day == ERASES_CONVERSATION:
            agent.erase_conversation(now)
        if day == ERASES_USER:
            agent.erase_user(BEN, now)
        if day in RUNS:
            agent.run(now)
        if IS_THOROUGH or day % 6 == 0 or day in {*RUNS, ERASES_CONVERSATION, ERASES_USER}:
            found = differences(agent, now)
            assert not found, "\n".join([f"seed {seed}, day {day}", *found, "after", *agent.log[-8:]])
