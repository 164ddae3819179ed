"""Each benchmark runs, on small data. Figures are not judged."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from benchmarks import everyday
from benchmarks.__main__ import NAMES
from benchmarks.generator import WORKSPACE, agent_name
from benchmarks.history import grow
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from pathlib import Path

#: These need labelled sets, other environments, or a package index.
ELSEWHERE = {"everyday", "retrieval", "peers", "install"}


def test_everyday(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everyday, "_QUICK_SIZES", (3, 6, 12))
    monkeypatch.setattr(everyday, "_TALKS", 25)
    monkeypatch.setattr(everyday, "_EACH", 4)
    monkeypatch.setattr(everyday, "_LISTED", 60)
    growth, runs = everyday.run(tmp_path, quick=True)
    assert len(growth.rows) == 8
    assert len(runs.rows) == 11
    assert all(row["now"] > 0 for row in runs.rows if isinstance(row["now"], float))


def test_a_year_of_history(root: str) -> None:
    lake = Lake(root)
    grow(lake, 1)
    assert lake.index.count(Scope(WORKSPACE, agent_name(0)), Grain.WORKING) > 100


@pytest.mark.skipif(not IS_THOROUGH, reason="minutes; MEMORY_PIPELINE_THOROUGH=1 runs it")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_benchmark(name: str, tmp_path: Path) -> None:
    tables = importlib.import_module(f"benchmarks.{name}").run(tmp_path, quick=True)
    assert all(table.rows for table in tables)
