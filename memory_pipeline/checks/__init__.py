"""Checks of a lake. Each belongs to one asset and is run by Dagster, `memory-pipeline check` or a program.

::

    for finding in run_checks(CheckContext(lake, now), all_checks()):
        print(finding.check.asset, finding.check.name, finding.passed, finding.sample)

A check only reads. Its findings name ids, agents and periods, never message text. Checks read stored rows;
:mod:`memory_pipeline.steps.validation` rejects bad rows before they are written.
"""

from memory_pipeline.errors import require

require("run", "polars")

from memory_pipeline.checks.check import (  # noqa: E402  # it imports Polars
    Check,
    CheckContext,
    Finding,
    Offences,
    Scan,
    Severity,
    run_checks,
)
from memory_pipeline.checks.registry import all_checks, checks_of  # noqa: E402

__all__ = ["Check", "CheckContext", "Finding", "Offences", "Scan", "Severity", "all_checks", "checks_of", "run_checks"]
