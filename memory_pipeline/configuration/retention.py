"""The section ``retention``: a plan, and for how long a class of memory is kept where the plan does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from memory_pipeline.configuration.checks import described
from memory_pipeline.configuration.endpoints import Record
from memory_pipeline.domain.retention import (
    DURATION_OR_FOREVER_FORM,
    FOREVER,
    PLANS,
    WORKING_CLASSES,
    Kept,
    Retention,
    contradictions,
    parse_duration,
)
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The key that stands for all classes of working memory.
_WORKING = "working"


def _check_duration(value: object) -> object:
    try:
        parse_duration(value)
    except InputError:
        # The domain's message would show a long text, which may be a key of a model in the wrong place.
        raise ValueError(f"{described(value)} is not accepted; expected {DURATION_OR_FOREVER_FORM}") from None
    return value


_Duration = Annotated[str, BeforeValidator(_check_duration), Field(description=DURATION_OR_FOREVER_FORM)]


class RetentionSection(Record):
    """For how long memory is kept; only keys that were given count.

    Attributes:
        plan: where to start from; what was inherited is then dropped.
        working: sets `conversations`, `facts` and `preferences` where they say nothing themselves.
    """

    plan: Literal["free", "starter", "pro", "standard", "forever"] = "forever"
    working: _Duration = FOREVER
    conversations: _Duration = FOREVER
    facts: _Duration = FOREVER
    preferences: _Duration = FOREVER
    daily: _Duration = FOREVER
    weekly: _Duration = FOREVER
    monthly: _Duration = FOREVER
    quarterly: _Duration = FOREVER
    yearly: _Duration = FOREVER
    graph: _Duration = FOREVER


def resolve_retention(
    inherited: Retention, keys: Mapping[str, object]
) -> tuple[Retention | None, list[tuple[str, str]]]:
    """Return what a section makes of what it inherits.

    Args:
        inherited: what holds where the section says nothing.
        keys: what it says.

    Returns:
        What holds now, or None if something does not fit; and of all that does not fit the key and the reason.
    """
    plan = keys.get("plan")
    durations = (inherited if plan is None else PLANS[str(plan)]).durations
    said_by = {kept: kept.value for kept in Kept if kept.value in keys}
    if _WORKING in keys:
        said_by = {**dict.fromkeys(WORKING_CLASSES, _WORKING), **said_by}
    durations.update((kept, parse_duration(keys[key])) for kept, key in said_by.items())
    found = contradictions(durations)
    if found:
        # A plan, or what is inherited, contradicts itself nowhere: one of the two was said here.
        return None, [(said_by.get(each.coarser) or said_by[each.finer], each.text) for each in found]
    return Retention(**{kept.value: duration for kept, duration in durations.items()}), []
