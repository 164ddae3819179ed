"""With the real daemon, a write becomes an hour and a day of memory without manual steps."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake import Lake
from memory_pipeline.lake.tables.ledger import index_asset
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds, far more than the usual 30: the machine may be busy.
PATIENCE = 180
DEPLOYMENT = Path(__file__).parents[2] / "deploy" / "dagster.yaml"


@contextmanager
def daemon(home: Path, root: str) -> Iterator[Path]:
    """Run Dagster's daemon and code server in a process group, and kill it afterwards. Yield its log."""
    home.mkdir()
    shutil.copy(DEPLOYMENT, home / "dagster.yaml")
    variables = {**os.environ, "DAGSTER_HOME": str(home), "MEMORY_PIPELINE_ROOT": root}
    variables.pop("MEMORY_PIPELINE_START", None)
    log = home / "daemon.log"
    command = [sys.executable, "-m", "dagster._daemon", "run", "-m", "memory_pipeline.definitions"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=home, env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield log
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_the_daemon_computes_hours_and_days_after_a_write(tmp_path: Path) -> None:
    root = str(tmp_path / "lake")
    # Just after midnight, yesterday is not requested yet.
    earlier = datetime.now(UTC).replace(hour=12) - timedelta(days=2)
    writer = MemoryWriter.open(root, workspace_id="acme", agent_id="support")
    said = {"role": "user", "content": "I moved to Porto.", "timestamp": earlier.isoformat()}
    writer.write({"conversation_id": "c1", "messages": [said]})
    hour = Period(Grain.WORKING, f"{earlier:%Y-%m-%dT%H}")
    wanted = {grain: Lake(root).calendar.ancestor(hour, grain) for grain in (Grain.WORKING, Grain.DAILY)}

    def missing(lake: Lake) -> list[str]:
        made = {grain: lake.ledger.entries(index_asset(grain)) for grain in wanted}
        return [period.key for grain, period in wanted.items() if period.key not in made[grain]]

    with daemon(tmp_path / "home", root) as log:
        started = time.monotonic()
        lake = Lake(root)
        while missing(lake) and time.monotonic() < started + PATIENCE:
            time.sleep(0.2)
        assert not missing(lake), log.read_text()[-5000:]
    assert lake.journal.pending() == []
