"""Operations of a soak: commands of `memory-pipeline`, each in a forked process."""

from __future__ import annotations

import sys
import traceback
from datetime import date, datetime
from typing import TYPE_CHECKING

from memory_pipeline.cli import cli
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import MemoryPipelineError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.settings import DEFAULT_START
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.promotion import promote
from memory_pipeline.steps.scheduling.planner import grain_status

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A command that the command line lacks: `run` without Dagster.
STEPS = "steps"


def make_all(lake: Lake, now: datetime, start: date = DEFAULT_START) -> int:
    """Compute all pending periods and consolidate. Return the number of periods."""
    models = default_models()
    count = 0
    promote(lake, now)
    for grain in Grain:
        periods = grain_status(lake, grain, start, now).pending
        count += len(periods)
        for _ in materialize(lake, models, grain, periods):
            pass
    nights = pending_days(lake, start, now)
    if nights:
        consolidate(lake, models, nights, start)
    return count + len(nights)


def perform(arguments: Sequence[str]) -> int:
    """Run a command. Return its exit code."""
    try:
        if arguments[0] == STEPS:
            make_all(Lake(arguments[1]), datetime.fromisoformat(arguments[2]))
        else:
            cli(list(arguments), standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except MemoryPipelineError as error:
        sys.stderr.write(f"memory-pipeline: {type(error).__name__}: {error}\n")
        return 2
    except Exception:  # noqa: BLE001  # the conductor reads the output
        traceback.print_exc()
        return 1
    return 0
