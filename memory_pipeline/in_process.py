"""Run the pipeline in this process, without a daemon, for `memory-pipeline run`, the demo and evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.client import pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from memory_pipeline.domain.periods import Grain
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.settings import Settings
    from memory_pipeline.steps.consolidation.report import ConsolidationReport
    from memory_pipeline.steps.promotion import Promotion
    from memory_pipeline.steps.results import RunResult


def run_all(
    lake: Lake,
    settings: Settings,
    models: Models,
    now: datetime,
    between: tuple[datetime, datetime] | None = None,
) -> Iterator[Grain | RunResult | ConsolidationReport | Promotion]:
    """Process what is pending, as :func:`memory_pipeline.client.pipeline.run_all` does.

    With ``DAGSTER_HOME``, the steps are runs of Dagster, which ``dagster dev`` shows. Without it, they need no Dagster.
    """
    if not settings.has_dagster_home:
        yield from pipeline.run_all(lake, models, now, between)
        return
    from memory_pipeline.defs.dagster_runner import DagsterRunner

    with DagsterRunner(lake, settings, models) as runner:
        yield from pipeline.run_all(lake, models, now, between, runner)
