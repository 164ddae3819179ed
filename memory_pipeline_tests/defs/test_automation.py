"""Roll-ups: each closed period with material is asked for once, and again, with its ancestors, when late data came."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from memory_pipeline.definitions import build_definitions
from memory_pipeline.domain.grains import SUMMARY_GRAINS
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from memory_pipeline.models.selection import Models

#: A moment after each gate; never on the second of a cron tick.
GATES = [time(0, 10, 30), time(1, 20, 30), time(2, 30, 30), time(3, 0, 30), time(3, 30, 30), time(12, 10, 30)]
FIRST, LAST = date(2026, 12, 28), date(2027, 2, 8)
SILENT = {date(2027, 1, 16), date(2027, 1, 17)} | {date(2027, 1, 18) + timedelta(days=n) for n in range(7)}


class Simulation:
    """Days of messages and ticks of the daemon, on a clock of their own; what is asked for is made at once."""

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self.definitions = definitions
        self.instance = instance
        self.cursor: object = None
        self.asked: dict[str, list[str]] = defaultdict(list)

    def hour(self, key: str) -> None:
        for asset in ("messages", "working_facts", "working_index"):
            self.made(asset, key)

    def made(self, asset: str, partition: str) -> None:
        self.instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=partition))

    def tick(self, now: datetime) -> None:
        result = dg.evaluate_automation_conditions(
            self.definitions,
            self.instance,
            evaluation_time=now,
            cursor=self.cursor,  # type: ignore[arg-type]
        )
        self.cursor = result.cursor
        for grain in SUMMARY_GRAINS:
            periods = result.get_requested_partitions(dg.AssetKey(f"{grain}_summaries"))
            assert periods == result.get_requested_partitions(dg.AssetKey(f"{grain}_index"))
            for period in sorted(map(str, periods)):
                self.asked[grain].append(period)
                self.made(f"{grain}_summaries", period)
                self.made(f"{grain}_index", period)

    def day(self, day: date) -> None:
        for gate in GATES:
            self.tick(datetime.combine(day, gate, UTC))
            if gate.hour == 3 and gate.minute == 30 and day not in SILENT:
                self.hour(f"{day}T04")


def test_six_weeks_over_the_turn_of_a_year(root: str, models: Models) -> None:
    definitions = build_definitions(Settings(root), models)
    with dg.DagsterInstance.ephemeral() as instance:
        simulation = Simulation(definitions, instance)
        day = FIRST
        while day <= LAST:
            simulation.day(day)
            day += timedelta(days=1)
        assert simulation.asked == {
            "daily": [
                f"{FIRST + timedelta(days=n)}"
                for n in range((LAST - FIRST).days)
                if FIRST + timedelta(days=n) not in SILENT
            ],
            "weekly": ["2026-W53-1", "2027-W01-1", "2027-W02-1", "2027-W04-1", "2027-W05-1"],
            "monthly": ["2026-12", "2027-01"],
            "quarterly": ["2026-10"],
            "yearly": ["2026"],
        }

        simulation.asked.clear()
        simulation.hour("2026-12-29T15")  # late by six weeks
        for late in range(1, 9):
            simulation.day(LAST + timedelta(days=late))
        again = {
            grain: [p for p in asked if p < "2027-02" and "W06" not in p] for grain, asked in simulation.asked.items()
        }
        assert again == {
            "daily": ["2026-12-29"],
            "weekly": ["2026-W53-1"],
            # Dagster maps the week to both of its months; 2027-01 will find its sources unchanged.
            "monthly": ["2026-12", "2027-01"],
            "quarterly": ["2026-10"],
            "yearly": ["2026"],
        }
