"""What `dagster dev` loads: assembles the definitions from the settings of the environment."""

from __future__ import annotations

import dagster as dg

from memory_pipeline.defs.assets.grains import grain_assets
from memory_pipeline.defs.assets.marts import mart_assets
from memory_pipeline.defs.partitions import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.defs.sensors import healing_sensor, journal_sensor
from memory_pipeline.domain.grains import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.models.selection import Models  # noqa: TC001  # Dagster reads it at run time
from memory_pipeline.settings import Settings


def build_definitions(settings: Settings | None = None, models: Models | None = None) -> dg.Definitions:
    """Return the definitions of a deployment.

    Args:
        settings: where the lake lies and when it starts; those of the environment if not given.
        models: what extracts, embeds and summarizes; if not given, what the lake's configuration names at each run.

    Raises:
        ConfigurationError: a setting is not accepted, or does not fit the lake.
    """
    settings = settings or Settings.from_environment()
    calendar = Lake(settings.root, settings.timezone).calendar
    partitions = Partitions(settings.start, calendar)
    grains = {grain: grain_assets(grain, models, partitions, calendar) for grain in Grain}
    return dg.Definitions(
        assets=[*grains.values(), *mart_assets(calendar.timezone)],
        sensors=[
            journal_sensor(grains[Grain.WORKING], partitions, settings.start),
            healing_sensor(grains, partitions, settings.start),
            dg.AutomationConditionSensorDefinition(
                "roll_up_sensor",
                target=dg.AssetSelection.all(),
                default_status=dg.DefaultSensorStatus.RUNNING,
                description="Asks for the summaries whose conditions hold: closed periods, late data.",
            ),
        ],
        resources={"memory": LakeResource(root=settings.root, timezone=calendar.timezone)},
        # One step a run: a process for each step would only cost its start.
        executor=dg.in_process_executor,
    )


defs = build_definitions()
