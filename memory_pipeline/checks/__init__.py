"""Whether memory is as it should be: checks of a lake, each of one asset, run by Dagster, a command or a program.

::

    for finding in run_checks(Look(lake, now), all_checks()):
        print(finding.check.asset, finding.check.name, finding.passed, finding.sample)

A check reads and never writes. Its findings name ids, agents and periods, and nothing that was said. What would make a
partition wrong is refused when it is made, by :mod:`memory_pipeline.steps.validation`; checks look at all that there
is.
"""

from memory_pipeline.checks.check import Check, CheckContext, Finding, Offences, Scan, Severity, run_checks
from memory_pipeline.checks.registry import all_checks, checks_of

__all__ = ["Check", "CheckContext", "Finding", "Offences", "Scan", "Severity", "all_checks", "checks_of", "run_checks"]
