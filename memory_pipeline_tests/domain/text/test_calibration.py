"""Scores that compare between questions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.text.calibration import DEFAULT_FLOOR, Calibration, Evidence

evidence = st.builds(
    Evidence,
    best=st.floats(-20, 40),
    words=st.floats(0, 1),
    unknown=st.floats(0, 1),
    unknown_name=st.booleans(),
    speaker=st.booleans(),
    rows=st.integers(0, 10**7),
    near=st.floats(-5, 10),
)
amounts = st.floats(-1e6, 1e6)


@given(evidence, amounts, amounts)
def test_a_score_is_a_share_and_grows_with_the_sum_of_signals(found: Evidence, one: float, other: float) -> None:
    calibration = Calibration(found.logit, found.best)
    low, high = sorted((one, other))
    assert 0 <= calibration(low) <= calibration(high) <= 1
    assert calibration(found.best) == calibration(found.best + 1)  # no hit is better than the best


@given(evidence)
def test_better_evidence_never_lowers_the_score(found: Evidence) -> None:
    for better in (
        replace(found, best=found.best + 1),
        replace(found, words=found.words + 0.1),
        replace(found, unknown=found.unknown - 0.1),
        replace(found, unknown_name=False),
        replace(found, speaker=True),
        replace(found, rows=found.rows // 2),
        replace(found, near=found.near + 1),
    ):
        assert better.logit >= found.logit


def test_the_floor_divides_a_question_that_fits_from_one_that_does_not() -> None:
    fits = Evidence(14.0, 0.5, 0.1, unknown_name=False, speaker=True, rows=2_000)
    stranger = Evidence(5.0, 0.1, 0.6, unknown_name=True, speaker=False, rows=2_000)
    assert Calibration(stranger.logit, 5.0)(5.0) < DEFAULT_FLOOR < 0.5 < Calibration(fits.logit, 14.0)(14.0)
