"""When a summary is made: once its period has closed, and again when late data changed what it is made from.

Trigger and reset hold no ``&``, ``|`` or ``~``: Dagster evaluates such operands at another moment than the rest and
loses hours that land while the day is being made. ``eager()`` would wait for hours in which nobody spoke.
"""

from __future__ import annotations

import dagster as dg

from memory_pipeline.domain.grains import Grain

#: When closed periods are looked at, one gate after the other. Months and coarser wait for a Monday: only then have
#: all of their weeks ended. A gate also turns a flood of late hours into one roll-up.
GATES = {
    Grain.DAILY: "10 * * * *",
    Grain.WEEKLY: "20 1 * * *",
    Grain.MONTHLY: "30 2 * * 1",
    Grain.QUARTERLY: "0 3 * * 1",
    Grain.YEARLY: "30 3 * * 1",
}
_MARTS_GATE = "0 4 * * *"


def roll_up(grain: Grain, timezone: str) -> dg.AutomationCondition:  # type: ignore[type-arg]  # of asset keys
    """Return the condition of a grain's summaries."""
    condition = dg.AutomationCondition
    gate = condition.cron_tick_passed(GATES[grain], timezone)
    first = (condition.missing() & condition.any_deps_match(~condition.missing())).newly_true().since_last_handled()
    late = condition.any_deps_match(condition.newly_updated()).since(condition.newly_requested())
    due = gate & (first | late) & ~condition.any_deps_in_progress() & ~condition.in_progress()
    # A failed run is not asked for again by itself.
    retry = gate & condition.execution_failed() & ~condition.in_progress()
    return (due | retry).with_label(f"{grain} period closed, or late data came")


def after_summaries(timezone: str) -> dg.AutomationCondition:  # type: ignore[type-arg]  # of asset keys
    """Return the condition of the marts: once a day, if anything was summarized since."""
    condition = dg.AutomationCondition
    updated = condition.any_deps_match(condition.newly_updated()).since(condition.newly_requested())
    return condition.cron_tick_passed(_MARTS_GATE, timezone) & updated & ~condition.in_progress()
