"""Warnings of memories that may be outdated."""

from __future__ import annotations

from datetime import timedelta

import pytest

from memory_pipeline.domain.memories.decay import warning
from memory_pipeline.domain.memories.permanence import PERMANENT_KINDS
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline_tests.domain.memories.histories import NOON, do, only, remember

FACT = remember("The gate code is on the board.")
SNAPSHOT = remember("The queue has 40 jobs.", is_point_in_time=True)


@pytest.mark.parametrize(
    ("hours", "said"),
    [
        (0, None),
        (23, None),
        (23.999, None),
        (24, "yesterday"),
        (47.9, "yesterday"),
        (48, "2 days ago"),
        (12 * 24 + 5, "12 days ago"),
        (400 * 24, "400 days ago"),
        (-5, None),
    ],
)
def test_f6_a_warning_is_shown_from_one_day_on(hours: float, said: str | None) -> None:
    found = warning(only(FACT), NOON + timedelta(hours=hours))
    if said is None:
        assert found is None
    else:
        assert found == f"last heard {said}: verify it before relying on it"


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (timedelta(0), "a moment ago"),
        (timedelta(seconds=-9), "a moment ago"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(hours=3, minutes=5), "3 hours ago"),
        (timedelta(days=1), "yesterday"),
        (timedelta(days=12), "12 days ago"),
        (timedelta(days=3_000), "3,000 days ago"),
    ],
)
def test_f6_a_snapshot_has_a_warning_at_once(age: timedelta, said: str) -> None:
    found = warning(only(SNAPSHOT), NOON + age)
    assert found == f"a snapshot of {said}: query the source again before relying on it"


@pytest.mark.parametrize("kind", MemoryKind)
def test_permanent_kinds_have_no_warning(kind: MemoryKind) -> None:
    later = NOON + timedelta(days=400)
    assert (warning(only(remember("Be brief.", kind=kind)), later) is None) is (kind in PERMANENT_KINDS)
    assert warning(only(remember("Be brief.", kind=kind, is_point_in_time=True)), later)


def test_restating_and_confirming_refresh_a_memory_and_using_does_not() -> None:
    later = NOON + timedelta(hours=50)
    assert warning(only(FACT, do("CONFIRM", FACT, 49)), later) is None
    assert warning(only(FACT, remember("The gate code is on the board.", 49)), later) is None
    assert warning(only(FACT, do("ACCESS", FACT, 49)), later) == warning(only(FACT), later)
