"""The figures of the requirements, to four digits, and their invariants."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.memories.decay import (
    REVIEW,
    ROTTEN,
    days_between,
    faded,
    faded_at,
    relevance_at,
    rot,
    rot_at,
)
from memory_pipeline.domain.memories.permanence import lasts
from memory_pipeline_tests.domain.memories.histories import NOON, do, only, remember

SHARES = st.floats(0, 1)
DAYS = st.floats(0, 10_000)


@pytest.mark.parametrize(
    ("age", "access", "importance", "expected", "is_archived"),
    [(120, None, 0.1, 0.885, False), (100, None, 0.0, 0.9003, True), (99, None, 0.0, 0.8994, False)],
)
def test_p12_context_rot_follows_the_formula(
    age: float, access: float | None, importance: float, expected: float, is_archived: bool
) -> None:
    found = rot(age, access, importance)
    assert round(found, 4) == expected
    assert found >= REVIEW
    assert (found >= ROTTEN) is is_archived


def test_p12_counts_access_up_to_sixty_days() -> None:
    assert round(rot(0, 0, 1), 4) == 0.0
    assert round(rot(0, 30, 1), 4) == 0.15
    assert rot(0, 60, 1) == rot(0, 600, 1) == pytest.approx(0.3)
    assert round(rot(0, None, 1), 4) == 0.24
    assert round(rot(30, None, 0.5), 4) == 0.59


def test_p13_importance_fades_one_percent_a_day() -> None:
    assert round(faded(0.5, 30), 4) == 0.3699
    assert next(day for day in range(300) if faded(0.5, day) < 0.1) == 161


@given(SHARES, DAYS, DAYS)
def test_all_figures_are_between_0_and_1_and_only_get_worse(importance: float, days: float, more: float) -> None:
    for early, late in (
        (faded(importance, days), faded(importance, days + more)),
        (1 - rot(days, days, importance), 1 - rot(days + more, days + more, importance)),
        (1 - rot(days, None, importance), 1 - rot(days + more, None, importance)),
    ):
        assert 0 <= late <= early <= 1.0000001


def test_future_times_count_as_now() -> None:
    assert faded(0.5, -3) == 0.5
    assert rot(-3, -3, 0.5) == rot(0, 0, 0.5)


def test_days_are_fractional() -> None:
    assert days_between(NOON, NOON + timedelta(hours=36)) == 1.5
    assert days_between(NOON, NOON - timedelta(hours=12)) == -0.5


def test_age_counts_from_the_last_statement_and_fading_from_the_last_use() -> None:
    said = remember("Anna likes tea.", importance=0.8)
    memory, now = only(said), NOON + timedelta(days=40)
    assert rot_at(memory, now) == rot(40, None, 0.8)
    assert faded_at(memory, now) == faded(0.8, 40)
    used = only(said, do("ACCESS", said, 240))
    assert rot_at(used, now) == rot(40, 30, 0.8)
    assert faded_at(used, now) == faded(0.8, 30)


def test_p6_relevance_follows_the_formula() -> None:
    memory = only(remember("Anna likes tea.", importance=0.8, confidence=0.9, decay_rate=0.01))
    assert round(relevance_at(memory, NOON + timedelta(days=30)), 4) == 0.5334
    assert relevance_at(memory, NOON - timedelta(days=30)) == relevance_at(memory, NOON)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"predicate": "lives_in"}, True),
        ({"predicate": "is_called"}, True),
        ({"predicate": "works_at"}, True),
        ({"predicate": "has_sister"}, True),
        ({"predicate": "allergic_to"}, True),
        ({"predicate": "no_longer_lives_in"}, True),
        ({"predicate": "favourite_bread"}, True),
        ({"predicate": "favourite_bread", "kind": "preference"}, True),
        ({"kind": "preference"}, True),
        ({"predicate": "likes"}, False),
        ({"predicate": "likes", "kind": "preference"}, False),
        ({"predicate": "no_longer_likes", "kind": "preference"}, False),
        ({"predicate": "lives_in", "kind": "plan"}, False),
        ({"predicate": "has_status"}, False),
        ({"predicate": "located_in"}, False),
        ({"predicate": "lives_in", "is_point_in_time": True}, False),
        ({"predicate": "lives_in", "kind": "observation"}, False),
        ({"kind": "instruction"}, True),
        ({"kind": "rule"}, True),
        ({"kind": "plan"}, False),
        ({}, False),
    ],
)
def test_p13_what_lasts_is_told_by_kind_and_predicate(fields: dict[str, Any], expected: bool) -> None:
    terms: dict[str, Any] = {"subject": "Anna", "object": "it"} if "predicate" in fields else {}
    assert lasts(only(remember("It is so.", **terms, **fields))) is expected
