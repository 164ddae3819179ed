"""A memory without a pipeline: a run in the background, or a warning, when much is pending."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import ConfigurationError
from memory_pipeline.overlay import segments
from memory_pipeline.writer import adding

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "LEAST", (4, 4))
    monkeypatch.setattr(adding, "MANY", 8)
    monkeypatch.setattr(adding, "_TOO_MANY", 12)


def add(memory: Memory, count: int) -> None:
    for number in range(count):
        memory.add(f"I bought {number} apples.", now=NOW)


def finish() -> None:
    for thread in threading.enumerate():
        if thread.name == "memory-pipeline run":
            thread.join()


def test_much_that_is_pending_starts_a_run(tmp_path: Path) -> None:
    memory = Memory(tmp_path, user_id="anna", auto_run=True)
    add(memory, 40)
    finish()
    add(memory, 8)
    finish()
    assert len(memory.lake.journal.paths(memory.writer.scope)) < 8
    assert memory.search("apples", limit=100, now=NOW).total == 48


def test_a_run_that_fails_is_logged_and_the_next_write_starts_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    memory = Memory(tmp_path, user_id="anna", auto_run=True)
    with monkeypatch.context() as patch:
        patch.setattr("memory_pipeline.client.pipeline.run_all", failing)
        add(memory, 10)
        finish()
    assert "the disk is full" in caplog.text
    add(memory, 10)
    finish()
    assert len(memory.lake.journal.paths(memory.writer.scope)) < 8


def test_without_runs_a_writer_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    memory = Memory(tmp_path, user_id="anna")
    add(memory, 11)
    assert not caplog.records
    add(memory, 40)
    assert len(caplog.records) == 1
    assert "auto_run=True" in caplog.text


def test_auto_run_names_the_missing_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_pipeline.client.opened.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"memory-pipeline\[run\]"):
        Memory(tmp_path, auto_run=True)
