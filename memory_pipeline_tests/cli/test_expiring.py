"""The commands `vacuum` and `expire`, and the daily vacuum of `run`."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.orphans import last_vacuum, vacuum
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline_tests.building import conversation, run, table_rows, write
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder


@pytest.fixture(autouse=True)
def made(shared_folder: SharedFolder, models: Models, root: str, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake whose tables have been written twice."""

    def fill(folder: Path) -> None:
        lake = Lake(str(folder))
        for hour in (8, 9):
            write(lake, conversation("I moved to Porto.", at=f"2024-01-15T{hour:02}:00", conversation_id=f"c{hour}"))
            run(lake, models)

    shutil.copytree(shared_folder("cli-expiring", fill), root)
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Lake(root)


def parquet_files(root: str, table: str) -> int:
    return sum("_delta_log" not in path.parts for path in Path(root, "tables", table).rglob("*.parquet"))


def test_a_dry_run_of_vacuum_reports_exactly_the_deleted_files(made: Lake, root: str) -> None:
    before, rows = parquet_files(root, "ledger"), table_rows(made)
    assert read("vacuum")["files"] == 0
    shown = read("vacuum", "--dry-run", "--older-than", "0")
    assert shown["files"] == sum(kind["files"] for kind in shown["old_versions"].values()) > 0
    assert "would be deleted" in call("vacuum", "--dry-run", "--older-than", "0").output
    assert parquet_files(root, "ledger") == before
    done = read("vacuum", "--older-than", "0")
    assert (done["files"], done["bytes"]) == (shown["files"], shown["bytes"])
    assert parquet_files(root, "ledger") < before
    assert table_rows(Lake(root)) == rows
    assert call("vacuum", "--older-than", "-1").exit_code == 2


def test_expire_deletes_old_versions_without_a_retention_plan(
    made: Lake, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = datetime.now(UTC) + timedelta(hours=2)
    monkeypatch.setattr(
        "memory_pipeline.steps.housekeeping.vacuum",
        lambda storage, tables, now, **options: vacuum(storage, tables, later, **options),
    )
    before = parquet_files(root, "ledger")
    done = read("expire")
    assert done["expired"] == []
    assert done["old_versions"]["replaced"]["files"] > 0
    assert parquet_files(root, "ledger") < before


def test_expired_memory_is_archived_and_restored(made: Lake) -> None:
    made.storage.write(CONFIGURATION, b"defaults: {retention: {plan: free, working: archive}}")
    own = ("--workspace", "acme", "--agent", "support")
    assert "nothing of it is archived" in call("restore", *own).stderr
    assert read("status")["archived"] == {}
    day = ("--now", "2024-02-01")
    assert "of them archived" in call("expire", "--dry-run", *day).output
    assert "6 rows archived" in call("expire", *day).output
    assert made.tables.keys(MESSAGES) == []
    assert {place: one["rows"] for place, one in read("status")["archived"].items()} == {"facts": 4, "messages": 2}
    assert "archived: 2 rows of messages" in call("status").output
    assert read("restore", *own, "--dry-run", "--until", "2024-01-14")["rows"] == {}
    assert read("restore", *own, "--dry-run")["rows"] == {"messages": 2, "facts": 4}
    assert made.tables.keys(MESSAGES) == []
    assert "2 messages of 2 periods" in call("restore", *own, "--days", "2", *day).output
    assert len(made.tables.keys(MESSAGES)) == 2
    assert read("expire", *day)["expired"][0]["rows"] == 0
    assert "6 rows archived" in call("expire", "--now", "2024-02-03").output
    assert call("restore", *own, "--days", "0").exit_code == 2


def test_a_run_vacuums_once_a_day(made: Lake) -> None:
    read("run")
    first = last_vacuum(made.storage)
    assert first is not None
    read("run")
    assert last_vacuum(made.storage) == first
    made.storage.write("state/vacuum.json", b'{"at": "2024-01-15T08:00:00+00:00"}')
    read("run")
    again = last_vacuum(made.storage)
    assert again is not None
    assert again > first


def test_expire_prints_expired_rows_as_json(made: Lake) -> None:
    made.storage.write(CONFIGURATION, b"defaults: {retention: {plan: free}}\n")
    done = read("expire", "--now", "2030-01-01T00:00:00Z")
    assert sum(each["rows"] for each in done["expired"]) > 0
    assert "periods" not in done


def test_another_retention_is_tried_with_questions(made: Lake, root: str, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    asked = {"workspace_id": "acme", "agent_id": "support", "question": "Where?", "evidence": ["m1"]}
    questions.write_text("\n".join(json.dumps({**asked, "answer": answer}) for answer in ("Porto", "Oslo")))
    plan = tmp_path / "plan.yaml"
    plan.write_text("plan: free\n")

    def state() -> list[tuple[str, int, int]]:
        files = [path for path in Path(root).rglob("*") if path.is_file()]
        return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)

    before = state()
    later = ("--now", "2030-01-01T00:00:00Z", "--evaluate", str(questions))
    for given in ("free", str(plan), "{plan: free}"):
        found = read("expire", "--what-if", given, *later)
        assert found["retention"]["daily"] == "30d"
        assert {"workspace_id": "acme", "table": "messages", "grain": "working", "rows": 2} in [
            {key: value for key, value in one.items() if key != "bytes"} for one in found["tables"]
        ]
        assert all(one["bytes"] > 0 for one in found["tables"])
        assert found["answers"][0] == {"grain": "working", "answers": 2, "contained": 1, "lost": 1}
        assert found["answers"][-1]["grain"] is None
    shown = call("expire", "--what-if", "free", *later).output
    assert "would be deleted" in shown
    assert "all grains" in shown
    assert "nothing would expire" in call("expire", "--what-if", "forever").output
    assert state() == before
    for wrong in (
        ("--what-if", "dear"),
        ("--evaluate", str(questions)),
        ("--what-if", "free", "--evaluate", str(tmp_path / "missing")),
    ):
        assert isinstance(call("expire", *wrong).exception, (InputError, ConfigurationError))
