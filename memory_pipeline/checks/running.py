"""Runs checks: those that scan the same rows in one pass over the files, since opening files is what takes the time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from memory_pipeline.checks.check import Scan, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from memory_pipeline.checks.check import Check, Finding, Look, Offences

#: How often a check is begun again because retention or a removal took away what it was reading.
_ATTEMPTS = 3


def run_checks(look: Look, checks: Iterable[Check]) -> Iterator[Finding]:
    """Yield what checks find, in their order. One that cannot be run has failed, and keeps no other from being run."""
    listed = list(checks)
    found: dict[Check, Finding] = {}
    for check in listed:
        if check not in found:
            if isinstance(check.run, Scan):
                found |= _scan(look, _sharing(look, check.run, (one for one in listed if one not in found)))
            else:
                found[check] = _run(look, check, check.run)
        yield found[check]


def _run(look: Look, check: Check, run: Callable[[Look], Offences]) -> Finding:
    error: Exception
    for _ in range(_ATTEMPTS):
        try:
            return check.found(run(look))
        except FileNotFoundError as gone:
            error = gone
        # What another check finds wrong, a column of another type, say, may keep this one from being run.
        except Exception as other:  # noqa: BLE001
            return check.failed(other)
    return check.failed(error)


def _sharing(look: Look, scan: Scan, checks: Iterable[Check]) -> dict[Check, Scan]:
    """Return the checks that scan the same partitions of the same place."""
    keys = scan.partitions(look)
    return {
        check: check.run
        for check in checks
        if isinstance(check.run, Scan) and check.run.place is scan.place and check.run.partitions(look) == keys
    }


def _scan(look: Look, scans: dict[Check, Scan]) -> dict[Check, Finding]:
    """Scan one place for several checks."""
    first = next(iter(scans.values()))
    columns = {column for scan in scans.values() for column in scan.columns}
    seen: dict[Check, list[Any]] = {check: [] for check in scans}
    found: dict[Check, Finding] = {}
    try:
        for part in parts_of(look, first.place, columns, first.partitions(look)):
            for check, scan in scans.items():
                if check not in found:
                    try:
                        seen[check].append(scan.see(look, part.select(scan.columns)))
                    except Exception as error:  # noqa: BLE001
                        found[check] = check.failed(error)
    except Exception as error:  # noqa: BLE001
        if len(scans) == 1:
            return {check: check.failed(error) for check in scans}
        # A column that one of them wants cannot be read; the others do without it.
        return {check: found for one, scan in scans.items() for check, found in _scan(look, {one: scan}).items()}
    for check, scan in scans.items():
        if check not in found:
            found[check] = _run(look, check, partial(_conclude, scan, seen[check]))
    return found


def _conclude(scan: Scan, seen: list[Any], look: Look) -> Offences:
    return scan.conclude(look, seen)
