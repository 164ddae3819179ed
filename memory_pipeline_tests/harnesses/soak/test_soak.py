"""A short version of `make soak`: real processes, kills, and a check of all invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.harnesses.soak.__main__ import soak
from memory_pipeline_tests.harnesses.soak.plan import Plan

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_all_invariants_hold_after_a_short_soak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The thorough run takes minutes, on an S3 server behind a proxy that injects faults.
    seconds, plan = (240.0, Plan(2)) if IS_THOROUGH else (3.0, Plan(4, agents=2, writers=1, readers=1))
    verdicts = soak(seconds, plan, tmp_path, on_s3=IS_THOROUGH, pace=0.0, idle=10)
    assert not [str(verdict) for verdict in verdicts if verdict.wrong]
    assert " 0 runs" not in capsys.readouterr().out.splitlines()[-30]
    assert (tmp_path / "events.jsonl").stat().st_size > 0
