"""A run that is killed with SIGKILL at any moment and started again gives the lake of an undisturbed run.

By default this uses a day of the sample and two kills; with ``make test-thorough`` a year and eight. Kills at exact
requests are in :mod:`memory_pipeline_tests.faults.test_chain`.
"""

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
from click.testing import CliRunner
from deltalake import DeltaTable

from memory_pipeline.cli.common import cli
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.sample import AFTERWARDS, AGENT, HISTORY, WORKSPACE
from memory_pipeline_tests.building import index_rows, table_rows
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models

KILLS = 8 if IS_THOROUGH else 2
#: Maximum number of further files after which a run is killed.
STEP = 60 if IS_THOROUGH else 25
#: The conversations used: those of the day on which the loan was signed.
CHOSEN = '"conversation_id": "2025-' if IS_THOROUGH else '"conversation_id": "2025-03-12'
RUN = ["run", "--now", AFTERWARDS.isoformat(), "--root"]
SAMPLE = Scope(WORKSPACE, AGENT)


def finish(*command: str) -> None:
    """Run a command to its end."""
    done = CliRunner().invoke(cli, list(command), catch_exceptions=False)
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the chosen part of the sample in its journal."""
    root = tmp_path_factory.mktemp("killed") / "ingested"
    chosen = root.with_name("chosen.jsonl")
    chosen.write_text("".join(line for line in HISTORY.open(encoding="utf-8") if CHOSEN in line), encoding="utf-8")
    finish("ingest", str(chosen), "--root", str(root))
    return root


@pytest.fixture(scope="module")
def whole(ingested: Path) -> Path:
    """The lake of an undisturbed run."""
    root = ingested.with_name("whole")
    shutil.copytree(ingested, root)
    finish(*RUN, str(root))
    return root


def files_written(root: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(root))


def test_a_run_killed_at_random_moments_gives_the_same_result(ingested: Path, whole: Path) -> None:
    root = ingested.with_name("killed")
    shutil.copytree(ingested, root)
    rng = random.Random(20250106)
    killed = 0
    for _ in range(KILLS):
        # Each run gets a little further: it is killed after that many more files.
        files = files_written(root) + rng.randint(1, STEP)
        command = [sys.executable, "-m", "memory_pipeline.cli", *RUN, str(root)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            if files_written(root) >= files:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.04)  # polling takes time from the run
        killed += process.returncode == -signal.SIGKILL
    finish(*RUN, str(root))
    assert killed == KILLS
    left, right = Lake(str(root)), Lake(str(whole))
    assert table_rows(left) == table_rows(right)
    assert index_rows(left, [SAMPLE]) == index_rows(right, [SAMPLE])
    assert left.journal.pending() == []
    marts = [DeltaTable(lake.storage.locate("marts/memory_growth")).to_pyarrow_table() for lake in (left, right)]
    assert marts[0] == marts[1]


def test_a_single_statement_is_found_in_every_grain(whole: Path, models: Models) -> None:
    from memory_pipeline.reader import MemoryReader

    reader = MemoryReader(Lake(str(whole)), SAMPLE, models.embedder)
    loan = "loan with the Lanternfish Credit Union"
    for grain in ("daily", "weekly", "monthly", "quarterly", "yearly"):
        hits = reader.search_memory(grain, 0, 400, 3, loan, now=AFTERWARDS)
        assert any(loan in hit.content for hit in hits), grain
