"""Years on a frozen clock: every period is computed once it has closed, again for late data, and not otherwise.

The scheduler and planner are the real ones. The ledger and the journal are in memory and runs only enter digests, so
years take seconds; test_sensors.py and test_automation.py test the sensors on real lakes. Time jumps to the next
moment in the schedule.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.journal import JournalFile
from memory_pipeline.lake.schema_types import TableSpec
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET, LedgerEntry, index_asset, table_asset
from memory_pipeline.steps.results import RowDigests
from memory_pipeline.steps.scheduling.planner import GrainStatus, grain_status, journal_hours
from memory_pipeline.steps.scheduling.request_log import Request, RequestOutcome
from memory_pipeline.steps.scheduling.scheduler import Hours, RollUps, settled_at
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

START = date(2024, 1, 1)
FIRST, LAST = datetime(2024, 1, 1, tzinfo=UTC), datetime(2027 if IS_THOROUGH else 2026, 1, 6, tzinfo=UTC)
#: Interval of the sensor for roll-ups.
TICK = timedelta(seconds=30)
Span = tuple[datetime, datetime]


class PaperJournal:
    """Pending files, by name."""

    def __init__(self) -> None:
        self.files: dict[str, Period] = {}

    def pending(self, scope: Scope | None = None) -> list[JournalFile]:
        return [
            JournalFile(name, Scope("w", "a").key, (hour,), 1, "1", (hour,))
            for name, hour in sorted(self.files.items())
        ]

    def pending_hours(self) -> set[Period]:
        return set(self.files.values())


class PaperLedger:
    """Entries in memory."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, LedgerEntry]] = defaultdict(dict)
        self.versions: dict[Grain | None, int] = defaultdict(int)

    def entries(self, asset: str, periods: Any = None) -> Mapping[str, LedgerEntry]:
        return self.of[asset]

    def entries_of(self, assets: Collection[str], periods: Any = None) -> Mapping[str, Mapping[str, LedgerEntry]]:
        return {asset: self.of[asset] for asset in assets}

    def enter(self, grain: Grain, period: Period, source: str, *, unfinished: int = 0) -> None:
        out = digest(period.key, source)
        derived = [GRAPH_ASSET, MEMORIES_ASSET] if grain is Grain.WORKING else []
        for asset in (table_asset(grain), index_asset(grain), *derived):
            came_from = source if asset == table_asset(grain) else out
            self.of[asset][period.key] = LedgerEntry(asset, period.key, came_from, out, 1, 1, unfinished)
        self.versions[grain] += 1


class PaperTables:
    """Tables in sync with the ledger, as in an intact lake."""

    def __init__(self, ledger: PaperLedger) -> None:
        self._ledger = ledger

    def keys(self, spec: TableSpec, *, grain: str = Grain.WORKING) -> list[str]:
        return [] if spec is MESSAGES else list(self._ledger.of[table_asset(Grain(grain))])


def closed_ancestors(lake: Lake, said: list[tuple[datetime, Period]], until: datetime = LAST) -> set[Period]:
    """Return all periods computed from some messages that have closed by `until`."""
    periods = {period for _, hour in said for period in ancestors(lake, hour)}
    return {period for period in periods if settled_at(lake.calendar, period) < until}


@dataclass
class Run:
    """A running run: its inputs, its end and its outcome."""

    request: Request
    ends: datetime
    found: dict[Period, Any]
    fails: bool


@dataclass
class World:
    """A deployment: messages, requests, runs and computed periods, with their times."""

    lake: Lake
    rng: random.Random
    said: list[tuple[datetime, Period]]
    no_daemon: list[Span] = field(default_factory=list)
    no_model: list[Span] = field(default_factory=list)
    hours: Hours = field(default_factory=Hours)
    rolls: RollUps = field(default_factory=RollUps)
    runs: list[Run] = field(default_factory=list)
    ended: dict[str, tuple[RequestOutcome, str]] = field(default_factory=dict)
    made: dict[Period, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    asked: list[Request] = field(default_factory=list)
    failing: list[tuple[datetime, int]] = field(default_factory=list)
    seen: object = None
    known: dict[Grain, object] = field(default_factory=dict)
    statuses: dict[Grain, GrainStatus] = field(default_factory=dict)
    until: datetime = FIRST

    def __post_init__(self) -> None:
        self.journal, self.ledger = PaperJournal(), PaperLedger()
        self.lake.journal = self.journal  # type: ignore[assignment]
        self.lake.ledger = self.ledger  # type: ignore[assignment]
        self.lake.tables = PaperTables(self.ledger)  # type: ignore[assignment]
        self.said.sort(key=lambda item: item[0], reverse=True)

    def live(self, until: datetime) -> None:
        now = FIRST
        while now < until:
            now = self._next(now)
            if end := next((end for begin, end in self.no_daemon if begin <= now < end), None):
                now = end + TICK
            self._let_arrive(now)
            self._end_runs(now)
            self._tick(now)

    def _next(self, now: datetime) -> datetime:
        times = [now + timedelta(days=1), self.until + timedelta(seconds=1)]
        times += [self.said[-1][0]] if self.said else []
        times += [run.ends for run in self.runs]
        times += [again] if (again := self.hours.attempts.next_at(now)) else []
        return max(now + TICK, min(times) + TICK)

    def _let_arrive(self, now: datetime) -> None:
        while self.said and self.said[-1][0] <= now:
            at, hour = self.said.pop()
            self.journal.files[f"{hour}__{at.isoformat()}"] = hour

    def _end_runs(self, now: datetime) -> None:
        for run in [run for run in self.runs if run.ends <= now]:
            self.runs.remove(run)
            self.ended[run.request.id] = (RequestOutcome.FAILED, "no model") if run.fails else (RequestOutcome.DONE, "")
            for period, source in {} if run.fails else run.found.items():
                table = self.ledger.of[table_asset(period.grain)]
                if period.grain is Grain.WORKING:
                    before = table[period.key].input_digest if period.key in table else ""
                    self.ledger.enter(period.grain, period, digest(before, sorted(source)))
                    for name in source:
                        del self.journal.files[name]
                else:
                    assert now >= self.lake.calendar.closes_at(period), f"{period} was made before it closed"
                    assert period.key not in table or table[period.key].input_digest != source, f"{period} for nothing"
                    self.ledger.enter(period.grain, period, source)
                self.made[period].append(run.ends)

    def _tick(self, now: datetime) -> None:
        states = journal_hours(self.lake, START, now)
        outcomes = {
            request.id: self.ended.get(request.id, (RequestOutcome.UNDER_WAY, "")) for request in self._waiting()
        }
        self.hours = Hours.from_record(json.loads(json.dumps(self.hours.to_record())))
        _, changes = self.hours.attempts.settle(outcomes, now, states)
        self._start(self.hours.ask(states, (), now), now)

        seen = (dict(self.ledger.versions), states, outcomes)
        if seen != self.seen or now >= self.until:
            self.rolls = RollUps.from_record(json.loads(json.dumps(self.rolls.to_record())))
            done, more = self.rolls.attempts.settle(outcomes, now)
            self.failing += [(now, len(change.periods)) for change in [*changes, *more] if change.failure]
            self.rolls.made(done)
            statuses = self._statuses(now)
            asked = self.rolls.ask(self.lake.calendar, statuses, states, self._under_way(), now)
            self._start(asked, now)
            self.seen, self.until = None if asked else seen, self.rolls.next_look(self.lake.calendar, now)

    def _statuses(self, now: datetime) -> dict[Grain, GrainStatus]:
        """Return the planner's statuses, cached for a day unless something is written."""
        for grain in Grain:
            files = () if grain.rank else tuple(self.journal.files)
            known = (self.ledger.versions[grain], self.ledger.versions[grain.finer], files, now.date())
            if self.known.get(grain) != known:
                self.known[grain] = known
                self.statuses[grain] = grain_status(self.lake, grain, START, now)
        return self.statuses

    def _waiting(self) -> list[Request]:
        return [*self.hours.attempts.asked, *self.rolls.attempts.asked]

    def _under_way(self) -> dict[Grain, set[Period]]:
        found: dict[Grain, set[Period]] = defaultdict(set)
        for run in self.runs:
            found[run.request.grain].update(run.request.periods)
        return found

    def _start(self, requests: list[Request], now: datetime) -> None:
        for request in requests:
            self.asked.append(request)
            ends = now + timedelta(seconds=self.rng.randint(5, 100))
            fails = any(begin <= now < end for begin, end in self.no_model)
            found = {period: self._sources(period) for period in request.periods}
            self.runs.append(Run(request, ends, found, fails))

    def _sources(self, period: Period) -> Any:
        if period.grain is Grain.WORKING:
            return [name for name, hour in self.journal.files.items() if hour == period]
        finer = table_asset(period.grain.finer or Grain.WORKING)
        entries = self.ledger.of[finer]
        children = (child.key for child in self.lake.calendar.children(period))
        return RowDigests.of(*(entries[key].output_digest for key in children if key in entries)).combined

    def pending(self, now: datetime) -> dict[Grain, list[Period]]:
        found = {grain: grain_status(self.lake, grain, START, now).pending for grain in Grain}
        return {grain: periods for grain, periods in found.items() if periods}


def talk(rng: random.Random, until: datetime) -> list[tuple[datetime, Period]]:
    """Return the times of messages without delay: two to four a week, with weeks of silence."""
    found = []
    week = FIRST
    while week < until - timedelta(days=7):
        for _ in range(rng.choice((0, 2, 3, 4))):
            at = week + timedelta(minutes=rng.randrange(7 * 24 * 60))
            found.append((at, hour_of(at)))
        week += timedelta(days=7)
    return found


def hour_of(at: datetime) -> Period:
    return Period(Grain.WORKING, f"{at:%Y-%m-%dT%H}")


def ancestors(lake: Lake, hour: Period) -> list[Period]:
    return [lake.calendar.ancestor(hour, grain) for grain in SUMMARY_GRAINS]


def test_over_years_late_data_recomputes_only_its_ancestors(tmp_path: Path) -> None:
    rng, lake = random.Random(0), Lake(str(tmp_path))
    said = talk(rng, LAST)
    # At least a week apart, so that the windows of all grains pass in between: each is a separate flood.
    late, at = [], FIRST + timedelta(days=200, hours=3)
    while at < LAST - timedelta(days=12):
        late.append((at, rng.choice([hour for when, hour in said if when < at - timedelta(days=3)])))
        at += timedelta(days=rng.randint(8, 30), minutes=rng.randrange(24 * 60))
    world = World(lake, rng, [*said, *late])
    world.live(LAST)

    assert world.pending(LAST) == {}
    assert {period for period in world.made if period.grain.rank} == closed_ancestors(lake, said)
    again: dict[Period, list[datetime]] = defaultdict(list)
    for when, hour in late:
        for period in ancestors(lake, hour):
            if when > settled_at(lake.calendar, period):
                again[period].append(when)
    assert sum(len(times) for times in again.values()) > 3 * len(late)
    for period, times in world.made.items():
        if period.grain is Grain.WORKING:
            continue
        first = settled_at(lake.calendar, period)
        assert first <= times[0] < first + timedelta(minutes=15), f"{period} was made at {times[0]}"
        assert len(times) == 1 + len(again[period]), f"{period} was made at {times}, changed at {again[period]}"
        # By the next gate at the latest, after the finer roll-ups.
        longest = {Grain.DAILY: timedelta(hours=2), Grain.WEEKLY: timedelta(days=1, hours=3)}
        for when, made in zip(again[period], times[1:], strict=True):
            assert when < made < when + longest.get(period.grain, timedelta(days=8, hours=3))


def test_a_flood_of_late_hours_becomes_one_roll_up(tmp_path: Path) -> None:
    rng, lake = random.Random(1), Lake(str(tmp_path))
    said = [(FIRST + timedelta(days=n, hours=9), hour_of(FIRST + timedelta(days=n, hours=9))) for n in range(60)]
    # For forty minutes one after the other, from all hours of two old weeks.
    flood = [(FIRST + timedelta(days=40, hours=12, minutes=6, seconds=7 * n), hour_of(FIRST + timedelta(hours=n)))
             for n in range(14 * 24)]  # fmt: skip
    world = World(lake, rng, [*said, *flood])
    world.live(FIRST + timedelta(days=50))
    runs = [request for request in world.asked if request.at > FIRST + timedelta(days=40, hours=12)]
    for grain, expected in {
        Grain.DAILY: [f"2024-01-{day:02}" for day in range(1, 15)],
        Grain.WEEKLY: ["2024-W01", "2024-W02"],
        Grain.MONTHLY: ["2024-01"],
    }.items():
        old = [str(p) for request in runs if request.grain is grain for p in request.periods if str(p) <= expected[-1]]
        assert sorted(old) == expected
    assert len([request for request in runs if request.grain is Grain.WORKING]) < 120  # hours arrive one by one


def test_years_of_outages_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """The scheduler and the models are down for days and weeks, and late data arrives at any time, in floods too."""
    rng, lake = random.Random(101), Lake(str(tmp_path))
    last = LAST if IS_THOROUGH else FIRST + timedelta(days=372)
    busy = last - timedelta(days=8) - FIRST  # afterwards everything due is computed
    said = talk(rng, last)
    for _ in range(40):
        at = FIRST + busy * rng.random()
        old = [hour for when, hour in said if when < at]
        said += [(at + timedelta(seconds=n), rng.choice(old)) for n in range(rng.choice((1, 1, 30))) if old]

    def outages(number: int, most: int) -> list[Span]:
        begins = [FIRST + busy * rng.random() for _ in range(number)]
        lengths = [timedelta(minutes=2) * 2 ** rng.randint(0, most) for _ in begins]
        ends = [min(begin + length, FIRST + busy) for begin, length in zip(begins, lengths, strict=True)]
        return sorted(zip(begins, ends, strict=True))

    everything = list(said)
    world = World(lake, rng, said, no_daemon=outages(10, 14), no_model=outages(20, 11))
    world.live(last)
    assert world.pending(last) == {}
    assert {period for period in world.made if period.grain.rank} == closed_ancestors(lake, everything, last)
    # The simulation itself checks that nothing is computed too early or without new data.
    assert all(times[0] >= settled_at(lake.calendar, p) for p, times in world.made.items() if p.grain.rank)

    calm = [
        (period, times[0])
        for period, times in world.made.items()
        if period.grain.rank
        and not any(
            begin - timedelta(hours=3) < settled_at(lake.calendar, period) < end + timedelta(hours=3)
            for begin, end in [*world.no_daemon, *world.no_model]
        )
    ]
    assert len(calm) > 40
    for period, first in calm:
        assert first < settled_at(lake.calendar, period) + timedelta(minutes=30)
    longest = max(end - begin for begin, end in world.no_model)
    assert world.failing or longest < timedelta(hours=1)  # five failures were reported
    attempts = max(request.attempt for request in world.asked)
    assert attempts < longest / timedelta(hours=1) + 9  # and then requested hourly at most
