"""Within `holding`, small tables are read once, and reads return what they return without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import DamagedError
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables import held
from memory_pipeline_tests.building import conversation, run, write

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

SCOPES = (Scope("acme", "support"), Scope("acme", "sales"))


@pytest.fixture
def filled(lake: Lake, models: Models) -> Lake:
    for scope in SCOPES:
        for day in (15, 16):
            write(lake, conversation("I moved to Porto.", at=f"2024-01-{day}T08:00", scope=scope))
    run(lake, models)
    return lake


def reads(lake: Lake) -> list[pa.Table]:
    hour, key = "2024-01-15T08", lake.tables.read(FACTS, columns=["scope"])["scope"][0].as_py()
    of: list[dict[str, Any]] = [
        {},
        {"keys": [hour]},
        {"keys": []},
        {"columns": ["id", "content"]},
        {"where": pc.field("kind") == "turn", "columns": ["id"]},
        {"scopes": [key]},
        *({"shard": shard} for shard in range(lake.shards)),
    ]
    return [lake.tables.read(FACTS, **how) for how in of] + [
        lake.tables.read(SUMMARIES, grain="daily"),
        lake.tables.read(SUMMARIES, ["2024-W03"], grain="weekly"),
    ]


def test_reads_are_equal(filled: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = reads(filled)
    assert all(table.num_rows for table in (*expected[:2], *expected[3:6], *expected[-2:]))
    with filled.tables.holding():
        assert filled.tables.rows_held(FACTS) is not None
        found = reads(filled)
    assert [table.schema for table in found] == [table.schema for table in expected]
    assert found == expected
    assert filled.tables.rows_held(FACTS) is None
    monkeypatch.setattr(held, "_MOST_BYTES", 1)
    with filled.tables.holding():
        assert filled.tables.rows_held(FACTS) is None
        assert reads(filled) == expected


def test_files_are_read_once_and_a_commit_is_seen(filled: Lake) -> None:
    with filled.tables.holding():
        rows = filled.tables.read(FACTS)
        for file in Path(filled.storage.uri, "tables/facts").rglob("*.parquet"):
            file.unlink()
        assert filled.tables.read(FACTS) == rows
        filled.tables.replace(MESSAGES, ["2024-01-15T08"], MESSAGES.schema.empty_table())
        assert set(filled.tables.read(MESSAGES)["period"].to_pylist()) == {"2024-01-16T08"}


def test_a_damaged_file_is_reported(filled: Lake) -> None:
    next(Path(filled.storage.uri, "tables/facts").rglob("*.parquet")).write_bytes(b"damaged")
    with filled.tables.holding():
        assert filled.tables.damaged(FACTS).num_rows == 1
        with pytest.raises(DamagedError, match="tables/facts"):
            filled.tables.read(FACTS)
        assert filled.tables.read(FACTS, damaged="skip").num_rows
