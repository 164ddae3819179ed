"""A daemon for tests, with its own clock and with run outcomes chosen by the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.utils import make_new_run_id

from memory_pipeline.definitions import build_definitions
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.defs.run_requests import RANGE_END, RANGE_START
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake import Lake
from memory_pipeline.settings import Settings
from memory_pipeline.steps.materialize import materialize
from memory_pipeline_tests.building import START

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models

HOURS, ROLL_UPS = "journal_sensor", "roll_up_sensor"


@dataclass
class Ticking:
    """The sensors of a deployment with their state in Dagster.

    Attributes:
        lake: the lake of the sensors.
        instance: stores the runs.
        now: the current time; constant unless set.
        models: models of the runs; None means those of the lake's configuration.
        cursors, reasons, events: cursor, skip reason and asset events of each sensor.
    """

    lake: Lake
    instance: dg.DagsterInstance
    now: datetime
    models: Models | None = None
    cursors: dict[str, str | None] = field(default_factory=dict)
    reasons: dict[str, str | None] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = Settings(self.lake.storage.uri, START)
        self.definitions = build_definitions(settings, self.models, lambda: self.now)
        self.partitions = Partitions(START, self.lake.calendar)

    def tick(self, sensor: str, after: timedelta = timedelta()) -> list[dg.RunRequest]:
        """Advance the clock, evaluate a sensor and return its run requests."""
        self.now += after
        context = dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursors.get(sensor),
            resources=dict(self.definitions.resources or {}),
        )
        data = self.definitions.resolve_sensor_def(sensor).evaluate_tick(context)
        self.cursors[sensor], self.reasons[sensor] = data.cursor, data.skip_message
        self.events += data.asset_events
        return list(data.run_requests or [])

    def record(
        self, request: dg.RunRequest, status: dg.DagsterRunStatus = dg.DagsterRunStatus.SUCCESS
    ) -> dg.DagsterRun:
        """Store a run with the tags of a request, as the daemon would, with a given status."""
        run = dg.DagsterRun(
            job_name=str(request.job_name),
            run_id=make_new_run_id(),
            status=status,
            tags=dict(request.tags),
            run_config=request.run_config,
        )
        return self.instance.add_run(run)

    def execute(self, request: dg.RunRequest) -> None:
        """Execute a request, and store the run."""
        if grain := self.grain(request):
            models = self.models or LakeResource(root=self.lake.storage.uri).models()
            list(materialize(self.lake, models, grain, self.periods(request)))
        self.record(request)

    def grain(self, request: dg.RunRequest) -> Grain | None:
        """Return the grain of a request, or None for marts."""
        return next((grain for grain in Grain if str(request.job_name).endswith(f"_{grain}")), None)

    def periods(self, request: dg.RunRequest) -> list[Period]:
        grain = self.grain(request)
        assert grain is not None
        if RANGE_START in request.tags:
            first, last = (self.partitions.period(grain, request.tags[tag]) for tag in (RANGE_START, RANGE_END))
            return list(first.through(last))
        listed = request.run_config["ops"][f"make_{grain}"]["config"]["periods"]
        return [Period.parse(grain, key) for key in listed]

    def keys(self, requests: list[dg.RunRequest]) -> list[list[str]]:
        """Return the keys of the periods of each request."""
        return [[period.key for period in self.periods(request)] for request in requests]
