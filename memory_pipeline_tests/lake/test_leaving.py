"""Folders of inactive agents are removed, so that listings skip them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline_tests.building import conversation, write

if TYPE_CHECKING:
    import pytest


def test_an_acknowledged_file_leaves_no_folder(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    write(lake, conversation("One."), conversation("Two.", at="2024-01-15T09:00"))
    first, second = lake.journal.pending()
    lake.journal.acknowledge([first])
    folder = tmp_path / second.path
    assert folder.parent.is_dir()
    lake.journal.acknowledge([second])
    assert not folder.parent.exists()
    write(lake, conversation("Three."))
    assert len(lake.journal.pending()) == 1


def test_a_writer_recreates_a_folder_removed_during_its_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, true = Storage(str(tmp_path)), Path.mkdir
    removed: list[Path] = []

    def made_and_removed(self: Path, *args: object, **kwargs: bool) -> None:
        true(self, *args, **kwargs)  # type: ignore[arg-type]
        if self.name == "agent" and self.exists() and len(removed) < 3:
            self.rmdir()
            removed.append(self)

    monkeypatch.setattr(Path, "mkdir", made_and_removed)
    storage.write("journal/agent/file", b"said")
    assert len(removed) == 3
    assert storage.read("journal/agent/file") == b"said"


def test_concurrent_writes_and_folder_removals_lose_nothing(tmp_path: Path) -> None:
    storage, done = Storage(str(tmp_path)), threading.Event()

    def leave() -> None:
        while not done.is_set():
            storage.leave(["journal/agent"])

    leaver = threading.Thread(target=leave)
    leaver.start()
    try:
        for number in range(60):
            storage.write(f"journal/agent/{number}", b"said")
            assert storage.read(f"journal/agent/{number}") == b"said"
            storage.delete([f"journal/agent/{number}"])
    finally:
        done.set()
        leaver.join()
