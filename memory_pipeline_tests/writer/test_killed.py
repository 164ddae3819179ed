"""Writes are atomic: a conversation is complete or absent if its writer is killed or the disk is full."""

from __future__ import annotations

import json
import resource
import signal
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.conversations import Admission
from memory_pipeline.errors import LakeError
from memory_pipeline.lake import Lake
from memory_pipeline.writer import MemoryWriter
from memory_pipeline.writer.files import ingest_file
from memory_pipeline_tests.building import PROCESSES
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2024, 6, 1, tzinfo=UTC)
#: Messages of a conversation, one per hour.
TURNS = 12
KILLS = 80 if IS_THOROUGH else 3


def talk(number: int, size: int = 10) -> dict[str, Any]:
    start = datetime(2024, 1, 15, 8, tzinfo=UTC) + timedelta(minutes=number)
    return {
        "workspace_id": "acme",
        "agent_id": "support",
        "conversation_id": f"talk-{number}",
        "messages": [
            {
                "role": "user",
                "content": f"{turn} " + size * "x",
                "timestamp": (start + timedelta(hours=turn)).isoformat(),
            }
            for turn in range(TURNS)
        ],
    }


def write_on(root: str) -> None:
    """Write conversation after conversation."""
    writer = MemoryWriter.open(root, workspace_id="acme", agent_id="support")
    for number in range(10_000):
        writer.write(talk(number), now=NOW)


def ingest_on(root: str) -> None:
    """Ingest the same file again and again. Each conversation has other hours."""
    path = Path(f"{root}.jsonl")
    path.write_text("\n".join(json.dumps(talk(61 * number)) for number in range(200)))
    ingest_file(Lake(root), path, Admission(date(2024, 1, 1), NOW))


def said(root: str) -> Counter[str]:
    """Return the number of messages of each conversation in the journal."""
    journal = Lake(root).journal
    return Counter(message.conversation_id for file in journal.pending() for message in journal.read(file).messages)


@pytest.mark.parametrize("work", [write_on, ingest_on])
def test_a_killed_write_leaves_the_whole_conversation_or_nothing(tmp_path: Path, work: Callable[[str], None]) -> None:
    for kill in range(KILLS):
        root = tmp_path / f"lake-{kill}"
        writer = PROCESSES.Process(target=work, args=(str(root),))
        writer.start()
        # Each kill comes a little later after the start, within the duration of one write.
        while not any(root.glob("journal/pending/*/*.jsonl")):
            assert writer.is_alive() or writer.exitcode == 0
            time.sleep(0.01)
        time.sleep(0.0007 * (kill % 11))
        writer.kill()
        writer.join()
        assert writer.exitcode in (-signal.SIGKILL, 0)
        counts = said(str(root))
        assert set(counts.values()) == {TURNS}


def fill_up(root: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # simulates a full disk
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    writer = MemoryWriter.open(root, workspace_id="acme", agent_id="support")
    writer.write(talk(1), now=NOW)
    with pytest.raises(LakeError, match="File too large"):
        writer.write(talk(2, size=4_000), now=NOW)


def test_a_write_to_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    root = str(tmp_path / "lake")
    writer = PROCESSES.Process(target=fill_up, args=(root,))
    writer.start()
    writer.join()
    assert writer.exitcode == 0
    assert said(root) == {"talk-1": TURNS}
    assert len(list(Path(root, "journal").rglob("*.jsonl*"))) == 1, "nor a part of a file"
