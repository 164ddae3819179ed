"""Run the steps as runs of Dagster's assets, in this process, without a daemon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

import dagster as dg

from memory_pipeline.defs.assets.consolidation import OP, consolidation_asset
from memory_pipeline.defs.assets.grains import grain_assets
from memory_pipeline.defs.assets.marts import mart_assets
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import PartitionsError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset
from memory_pipeline.models.factory import Models
from memory_pipeline.settings import Settings
from memory_pipeline.steps.consolidation.report import ConsolidationReport
from memory_pipeline.steps.results import RunResult

_SUMMED = ("rows", "calls", "tokens_in", "tokens_out", "cost_usd", "fallbacks", "unfinished")
#: Tag of a run: the grain, "consolidation" or "marts".
_MADE = "memory_pipeline/made"
#: Do not print errors: they are raised, and are in Dagster's event log.
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class DagsterRunner:
    """Runs the steps as runs of Dagster's assets, which `instance` stores.

    By default it is the instance of ``DAGSTER_HOME``, and ``dagster dev`` shows the runs. Use it as a context manager.
    """

    def __init__(
        self, lake: Lake, settings: Settings, models: Models, instance: dg.DagsterInstance | None = None
    ) -> None:
        self._lake = lake
        self._models = models
        self._partitions = Partitions(lake.start, lake.calendar, settings.location)
        self._resource = LakeResource(root=settings.root, timezone=settings.timezone)
        self._instance = instance or dg.DagsterInstance.get()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._instance.dispose()

    def grain(self, grain: Grain, periods: list[Period]) -> tuple[RunResult, list[Exception]]:
        """Materialize periods of a grain."""
        raised: list[Exception] = []
        assets = grain_assets(grain, self._models, self._partitions, self._lake.calendar, on_error=raised.append)
        config = {"ops": {f"make_{grain}": {"config": {"periods": [period.key for period in periods]}}}}
        events = _materializations(self._run(grain.value, [assets], config, raised))
        changed = sum(bool(_value(event, "changed")) for event in events)
        table = [event for event in events if event.asset_key == self._partitions.asset(table_asset(grain))]
        sums = {name: sum(_value(event, name) for event in table) for name in _SUMMED}
        messages = [event for event in events if event.asset_key == self._partitions.asset(MESSAGES_ASSET)]
        expired = sum(_value(event, "expired") for event in messages)
        refused = sum((Counter(_value(event, "refused_because")) for event in table), Counter[str]())
        return RunResult(grain, periods, changed, expired=expired, refused=refused, **sums), raised

    def consolidation(self, days: Sequence[Period]) -> ConsolidationReport:
        """Consolidate durable memories as of the ends of days."""
        reports: list[ConsolidationReport] = []
        assets = consolidation_asset(
            self._models, self._partitions, self._lake.calendar, self._lake.start, reports.append
        )
        config = {"ops": {OP: {"config": {"periods": [day.key for day in days]}}}}
        self._run("consolidation", [assets], config)
        return reports[0]

    def marts(self) -> list[Exception]:
        """Build all marts."""
        raised: list[Exception] = []
        marts = mart_assets(self._partitions, self._lake.calendar.timezone, on_error=raised.append)
        self._run("marts", marts, {}, raised)
        return raised

    def _run(
        self,
        what: str,
        assets: Sequence[dg.AssetsDefinition],
        config: dict[str, Any],
        raised: Sequence[Exception] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Run assets. Raise all errors but those of single partitions, which are in `raised`."""
        result = dg.materialize(
            assets,
            resources={"memory": self._resource},
            instance=self._instance,
            run_config={**config, **_QUIET},
            tags={_MADE: what},
            raise_on_error=raised is None,
        )
        for error in raised or ():
            if not isinstance(error, PartitionsError):
                raise error
        if not result.success and not raised:
            raise dg.Failure(f"the run of {what} failed in steps {result.get_failed_step_keys()}", allow_retries=False)
        return result


def _materializations(result: dg.ExecuteInProcessResult) -> list[dg.AssetMaterialization]:
    return [
        event.step_materialization_data.materialization for event in result.all_events if event.is_step_materialization
    ]


def _value(event: dg.AssetMaterialization, name: str) -> Any:
    return event.metadata[name].value
