"""Headers of SQL files are parsed; errors name file and line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline.analytics.model_files import read_model
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

MART = """\
-- How much there is,
-- of everything.
-- Row: one agent.
-- Owner: team:memory
-- Incremental: month
-- Columns:
--   month - As 2024-01.
--   agent_id - Agent, whose name
--     goes on.
SELECT month, agent_id FROM stg_facts -- not of the header: a comment
"""


def model(folder: Path, text: str, kind: str = "marts", name: str = "growth") -> object:
    path = folder / f"{name}.sql"
    path.write_text(text, encoding="utf-8")
    return read_model(kind, path)


def test_a_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / "growth.sql"
    path.write_text(MART, encoding="utf-8")
    read = read_model("marts", path)
    assert (read.folder, read.name, read.file) == ("marts", "growth", "marts/growth.sql")
    assert read.description == "How much there is, of everything."
    assert (read.row, read.owner, read.incremental) == ("one agent.", "team:memory", "month")
    assert read.columns == {"month": "As 2024-01.", "agent_id": "Agent, whose name goes on."}
    assert (read.asset, read.severity) == (None, None)
    assert read.sql == MART


def test_the_header_of_a_test_names_asset_and_severity(tmp_path: Path) -> None:
    path = tmp_path / "unique.sql"
    path.write_text(
        "-- Unique.\n-- Row: an id.\n-- Owner: a@b.example\n-- Checks: messages\n-- Severity: warning\nSELECT 1"
    )
    read = read_model("tests", path)
    assert (read.asset, read.severity, read.owner) == ("messages", "warning", "a@b.example")


def test_staging_models_need_only_a_description(tmp_path: Path) -> None:
    path = tmp_path / "stg_x.sql"
    path.write_text("-- What there is.\nSELECT 1")
    assert read_model("staging", path).description == "What there is."


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-- Row: one agent.\n", "", r"growth.sql:1: the header lacks Row"),
        ("-- Row: one agent.\n", "-- Row:\n", r"growth.sql:3: Row is empty"),
        ("-- Owner: team:memory\n", "", r"lacks Owner"),
        ("team:memory", "nobody", r"growth.sql:4: Owner 'nobody' is not accepted; expected team:NAME or an e-mail"),
        (
            "-- Owner",
            "-- Ovner",
            r"growth.sql:4: 'Ovner' is not accepted in marts; accepted: Columns, Incremental, Owner",
        ),
        ("-- Owner: team:memory\n", "-- Owner: team:a\n-- Owner: team:b\n", r"growth.sql:5: Owner is given twice"),
        ("-- Owner: team:memory\n", "-- Owner: team:a\n-- Checks: facts\n", r":5: 'Checks' is not accepted in marts"),
        ("Incremental: month", "Incremental: week", r"'week' is not a column; columns: month, agent_id"),
        ("Incremental: month", "Incremental: a; DROP", r"expected the name of a column"),
        ("agent_id - Agent", "month - Agent", r"growth.sql:8: column month is described twice"),
        ("month - As 2024-01.", "As 2024-01.", r"growth.sql:7: 'As 2024-01.' is not accepted; expected `name - desc"),
        ("-- How much there is,\n-- of everything.\n", "", r"growth.sql:1: the description is missing"),
        (
            "SELECT month, agent_id FROM stg_facts -- not of the header: a comment\n",
            "",
            r"expected a SELECT below the header",
        ),
    ],
)
def test_a_wrong_header_names_file_and_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in MART
    with pytest.raises(InputError, match=message):
        model(tmp_path, MART.replace(old, new))


@pytest.mark.parametrize(("line", "message"), [("-- Severity: bad", "expected error or warning"), ("", "Severity")])
def test_a_test_needs_a_severity(tmp_path: Path, line: str, message: str) -> None:
    text = f"-- Unique.\n-- Row: an id.\n-- Owner: team:a\n-- Checks: messages\n{line}\nSELECT 1"
    with pytest.raises(InputError, match=message):
        model(tmp_path, text, "tests")


@pytest.mark.parametrize("name", ["Growth", "a-b", "1st", "x y"])
def test_a_file_name_must_be_an_sql_identifier(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="expected a name of lowercase letters"):
        model(tmp_path, MART, name=name)
