"""A copy of a lake holds what the lake holds, or what it held at an earlier time."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.lake import Lake
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.transfer.copying import CopySelection, copy_lake
from memory_pipeline.transfer.deriving import derive, models_without_requests
from memory_pipeline_tests.lake_digest import differing
from memory_pipeline_tests.transfer.histories import digests, live

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_as_of_a_time_equals_a_lake_that_stopped_then(seed: int, tmp_path: Path) -> None:
    stopped = live(tmp_path / "lake", seed, 12)
    shutil.copytree(tmp_path / "lake", tmp_path / "stopped")
    Memory(tmp_path / "stopped").run(now=stopped)
    now = live(tmp_path / "lake", seed + 100, 12, stopped)
    memory = Memory(tmp_path / "lake")
    memory.run(now=now + timedelta(days=30))
    copy = memory.lake.new_copy(tmp_path / "copy")
    selection = CopySelection(None, stopped)
    copy_lake(memory.lake, copy, selection)
    models = models_without_requests(
        copy, HashingEmbedder(), memory.lake.calls, stopped, vectors_of=memory.lake, summaries_wait=True
    )
    derive(copy, models, stopped)
    assert differing(digests(Lake(tmp_path / "stopped")), digests(copy)) == []
