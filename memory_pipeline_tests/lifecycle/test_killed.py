"""A run that is killed with -9 at any moment, and started again, ends with the lake of a run that was not killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.sample import AFTERWARDS, AGENT, HISTORY, WORKSPACE
from memory_pipeline_tests.building import index_rows, table_rows

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.selection import Models

KILLS = 4
RUN = [sys.executable, "-m", "memory_pipeline.cli", "run", "--now", AFTERWARDS.isoformat(), "--root"]
SAMPLE = Scope(WORKSPACE, AGENT)


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake whose journal holds the sample year and of which nothing else was made."""
    root = tmp_path_factory.mktemp("killed") / "ingested"
    command = [sys.executable, "-m", "memory_pipeline.cli", "ingest", str(HISTORY), "--root", str(root)]
    subprocess.run(command, check=True, capture_output=True)
    return root


@pytest.fixture(scope="module")
def whole(ingested: Path) -> Path:
    """The lake of one undisturbed run."""
    root = ingested.with_name("whole")
    shutil.copytree(ingested, root)
    subprocess.run([*RUN, str(root)], check=True, capture_output=True)
    return root


def files_written(root: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(root))


def test_a_run_killed_at_random_moments_ends_as_one_that_was_not(ingested: Path, whole: Path) -> None:
    root = ingested.with_name("killed")
    shutil.copytree(ingested, root)
    rng = random.Random(20250106)
    killed = 0
    for _ in range(KILLS):
        # Each time a little further: after so many more files, wherever in the chain that is.
        files = files_written(root) + rng.randint(1, 60)
        process = subprocess.Popen([*RUN, str(root)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            if files_written(root) >= files:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.02)  # to look takes time that the run needs
        killed += process.returncode == -signal.SIGKILL
    subprocess.run([*RUN, str(root)], check=True, capture_output=True)
    assert killed >= KILLS // 2
    left, right = Lake(str(root)), Lake(str(whole))
    assert table_rows(left) == table_rows(right)
    assert index_rows(left, [SAMPLE]) == index_rows(right, [SAMPLE])
    assert left.journal.pending() == []
    marts = [DeltaTable(lake.storage.locate("marts/memory_growth")).to_pyarrow_table() for lake in (left, right)]
    assert marts[0] == marts[1]


def test_the_sample_year_is_what_it_says(whole: Path, models: Models) -> None:
    from memory_pipeline.reader import MemoryReader

    reader = MemoryReader(Lake(str(whole)), SAMPLE, models.embedder)
    loan = "loan with the Lanternfish Credit Union"
    for grain in ("daily", "weekly", "monthly", "quarterly", "yearly"):
        hits = reader.search_memory(grain, 0, 400, 3, loan, now=AFTERWARDS)
        assert any(loan in hit.content for hit in hits), grain
