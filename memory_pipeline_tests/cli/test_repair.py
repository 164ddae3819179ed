"""The command `repair`: exit codes and output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, MESSAGES
from memory_pipeline_tests.building import conversation, write
from memory_pipeline_tests.damaging import damage, file_of
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.lake_digest import differing, lake_digest, marts_digest

if TYPE_CHECKING:
    import pytest

NOW = ["--now", "2024-01-17T12:00:00+00:00"]


def test_a_damaged_lake_is_repaired(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    lake = Lake(root)
    write(lake, conversation("I moved to Porto."), conversation("I like tea.", at="2024-01-16T08:00"))
    read("run", *NOW)
    before = lake_digest(lake) | marts_digest(lake)
    damage(file_of(lake, FACTS), "cut")
    for path in Path(root, "marts", "memory_growth").rglob("*.parquet"):
        damage(path, "empty")
    assert call("repair", "--dry-run", *NOW).exit_code == 1
    read("repair", *NOW)
    assert read("repair", *NOW)["found"] == []
    repaired = Lake(root)
    assert differing(before, lake_digest(repaired) | marts_digest(repaired)) == []

    lost = file_of(repaired, MESSAGES, "2024-01-15T08")
    damage(lost, "missing")
    write(repaired, conversation("I sold the van.", at="2024-01-17T08:00", conversation_id="c3"))
    for command in ("run", "repair"):
        done = call(command, *NOW)
        assert done.exit_code != 0
        assert lost.name in done.output + str(done.exception)
    assert Lake(root).tables.keys(FACTS)[-1] == "2024-01-17T08"
