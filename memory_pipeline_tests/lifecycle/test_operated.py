"""A lake operated day by day on a frozen clock, with repeated checks of all invariants.

People talk, data arrives late, memory expires, a person is erased. A year takes many minutes, so by default only some
days are simulated: ``MEMORY_PIPELINE_SIMULATED_DAYS=366 pytest memory_pipeline_tests/lifecycle/test_operated.py``.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from memory_pipeline.checks import CheckContext, checks_of, run_checks
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, verify
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.retention import expire
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests.building import START, conversation, run, versions, write
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

DAYS = int(os.environ.get("MEMORY_PIPELINE_SIMULATED_DAYS", "14" if IS_THOROUGH else "7"))
#: Number of days between checks.
LOOKS = 1 if IS_THOROUGH else 7
#: A week and a month end within the first days, and days expire.
FIRST = date(2024, 1, 25)
AGENTS = (Scope("free", "support"), Scope("free", "sales"), Scope("keeper", "support"))
CONFIGURED = "workspaces: {free: {retention: {plan: free, daily: 4d, weekly: 2w}}}"
PLACES = "Porto Leeds Graz Turin Bergen Nantes Cork Ghent Quito Osaka".split()


class Operation:
    """Some days of one lake."""

    def __init__(self, lake: Lake, models: Models) -> None:
        self.lake = lake
        self.models = models
        self.random = random.Random(20240396)
        self.written = 0

    def say(self, now: datetime, at: datetime, scope: Scope, text: str, conversation_id: str | None = None) -> None:
        """Write a message that may be long past."""
        self.written += 1
        talk = conversation_id or f"c{self.written}"
        said = conversation(text, at=f"{at:%Y-%m-%dT%H:%M}", scope=scope, conversation_id=talk)
        write(self.lake, said, now=now)

    def live_through(self, day: date) -> None:
        """Talk during the day, sometimes about earlier days; then run, expire and recompute at night."""
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        for scope in AGENTS:
            if self.random.random() < 0.6:
                place = self.random.choice(PLACES)
                self.say(noon, noon - timedelta(hours=self.random.randint(0, 4)), scope, f"I moved to {place}.")
        if self.random.random() < 0.4:
            late = noon - timedelta(days=self.random.randint(1, 25), hours=self.random.randint(0, 11))
            if late.date() >= FIRST:
                self.say(noon, late, self.random.choice(AGENTS), f"Order {self.written} came on {late:%d %B}.")
        night = noon + timedelta(hours=15)
        run(self.lake, self.models, night)
        self.keep(night)
        expire(self.lake, START, night)

    def keep(self, now: datetime) -> None:
        """Consolidate the pending days."""
        consolidate(self.lake, self.models, pending_days(self.lake, START, now), START)

    def look(self, now: datetime) -> None:
        """Check all invariants."""
        failed = [
            (finding.check.asset, finding.check.name, finding.sample, finding.trouble)
            for finding in run_checks(CheckContext(self.lake, now), checks_of())
            if not finding.passed
        ]
        assert not failed
        for grain in Grain:
            assert not grain_status(self.lake, grain, START, now).pending, (grain, now)
        before = versions(self.lake)
        assert not any(run(self.lake, self.models, now).values())
        assert pending_days(self.lake, START, now) == []
        assert versions(self.lake) == before
        assert expire(self.lake, START, now).rows == 0


def test_all_invariants_hold_day_by_day(lake: Lake, models: Models) -> None:
    lake.ensure()
    lake.storage.write(CONFIGURATION, CONFIGURED.encode())
    operation = Operation(lake, models)
    days = [FIRST + timedelta(days=number) for number in range(DAYS)]
    for number, day in enumerate(days):
        operation.live_through(day)
        night = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1, hours=4)
        if number % 12 == 6:
            operation.say(night, night - timedelta(days=2), AGENTS[2], "Ines Moreau is allergic to oysters.", "of-ines")
            run(lake, models, night)
            receipt = forget(lake, models, Subject.person("keeper", ["Ines Moreau"]), night)
            assert sum(part.count for part in receipt.removed)
            assert verify(lake, receipt).ok
        if number % LOOKS == LOOKS - 1 or day == days[-1]:
            operation.look(night)
    for gone in (RetentionClass.FACTS, RetentionClass.DAILY):
        assert any(ExpirationMarks.of(lake.tables).through(scope, gone) for scope in AGENTS[:2]), gone
    # The workspaces have different retention, and summaries reach further back than hours.
    old = f"{days[-1] - timedelta(days=4)}"
    kept = {row["workspace_id"] for row in lake.tables.read(FACTS).to_pylist() if row["period"] < old}
    assert kept == {"keeper"}
    assert {row["workspace_id"] for grain in SUMMARY_GRAINS for row in _rows(lake, grain)} == {"free", "keeper"}
    now = datetime(days[-1].year, days[-1].month, days[-1].day, 12, tzinfo=UTC)
    hits = MemoryReader(lake, AGENTS[2], models.embedder).search_memory("daily", 0, 400, query="moved", now=now)
    assert hits


def _rows(lake: Lake, grain: Grain) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = lake.tables.read(SUMMARIES, grain=grain.value, columns=["workspace_id"]).to_pylist()
    return rows
