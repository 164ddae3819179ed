"""Budgets, retention, the journal's backlog and the quarantine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import yaml

from memory_pipeline import Memory
from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.journal import folder_of
from memory_pipeline.lake.schemas import ANSWERS, FACTS, GRAPH_OPERATIONS, MODEL_CALLS
from memory_pipeline.steps.promotion import promote
from memory_pipeline_tests.building import ACME, NOW, conversation, write
from memory_pipeline_tests.checks.planting import context, plant

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.lake import Lake


def configure(lake: Lake, tmp_path: Path, document: dict[str, Any]) -> None:
    file = tmp_path / "workspaces.yaml"
    file.write_text(yaml.safe_dump(document))
    lake.put_configuration(file)


def spend(lake: Lake, workspace_id: str, *, cost: float | None, tokens: int, at: datetime = NOW) -> None:
    """Enter one request of a workspace."""
    hour = f"{at:%Y-%m-%dT%H}"
    row = {
        "hour": hour,
        "id": f"{workspace_id} {at} {cost} {tokens}",
        "request_id": f"{workspace_id} {at} {cost} {tokens}",
        "key": "k",
        "called_at": at,
        "workspace_id": workspace_id,
        "agent_id": "a",
        "identity": "",
        "scope": "",
        "purpose": "summary",
        "grain": "daily",
        "period": "2024-01-15",
        "model": "m",
        "texts": 1,
        "tokens_in": tokens,
        "tokens_out": 0,
        "cost": cost,
        "seconds": 1.0,
        "outcome": "ok",
    }
    new = pa.Table.from_pylist([row], schema=MODEL_CALLS.schema)
    lake.tables.transform(MODEL_CALLS, [hour], lambda old: pa.concat_tables([old, new]))


def test_spent_and_nearly_spent_budgets_are_found(lake: Lake, tmp_path: Path) -> None:
    configure(
        lake,
        tmp_path,
        {
            "defaults": {"budget": {"usd_per_month": 10}},
            "workspaces": {
                "tokens": {"budget": {"usd_per_month": 1_000, "tokens_per_month": 1_000}},
                "nothing": {"budget": {"usd_per_month": 0}},
            },
        },
    )
    assert context(lake, "model_cost", "budget").passed
    spend(lake, "over", cost=6, tokens=5)
    spend(lake, "over", cost=4, tokens=5, at=NOW.replace(day=1))
    spend(lake, "near", cost=8, tokens=5)
    spend(lake, "below", cost=7.99, tokens=1_000_000)
    spend(lake, "before", cost=99, tokens=5, at=NOW - timedelta(days=31))
    spend(lake, "tokens", cost=None, tokens=900)
    spend(lake, "nothing", cost=0, tokens=0)
    finding = context(lake, "model_cost", "budget")
    assert finding.sample == (
        "near 2026-01, $8.00 of $10.00",
        "nothing 2026-01, $0.00 of $0.00",
        "over 2026-01, $10.00 of $10.00",
        "tokens 2026-01, 900 of 1,000 tokens",
    )
    numbers = {"workspaces": 5, "usd": 25.99, "tokens": 1_000_915, "spent": 2, "nearly_spent": 2}
    assert finding.numbers == pytest.approx(numbers)
    assert not finding.is_error
    assert context(lake, "model_cost", "budget", now=NOW - timedelta(days=62)).passed


def test_rows_kept_more_than_a_day_too_long_are_found(lake: Lake, tmp_path: Path) -> None:
    assert context(lake, "messages", "retention").passed
    configure(lake, tmp_path, {"defaults": {"retention": {"conversations": "30d"}}})
    # The hour from 08 to 09 ends before the cut-off from 2024-02-15 on; the day after, it is an offence.
    for now, rows in (("2024-02-15T23", 0), ("2024-02-16T08", 2 + 1), ("2024-03-30T00", 2 + 1 + 2)):
        moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
        finding = context(lake, "messages", "retention", now=moment)
        assert (finding.offenders, finding.numbers["rows_too_old"]) == (rows, rows)
    assert finding.sample == ("acme conversations: 5 rows, from 2024-01-15T08 on",)
    assert not finding.is_error


def test_each_class_of_facts_and_the_answers_have_their_own_retention(lake: Lake, tmp_path: Path) -> None:
    def kinds(rows: list[dict[str, Any]]) -> None:
        names = ["turn", "statement", "preference", "instruction", "gist", "plan"]
        rows[:] = [{**rows[0], "id": f"{number}", "kind": kind} for number, kind in enumerate(names)]

    plant(lake, FACTS, "2024-01-15T08", kinds)
    plant(lake, FACTS, "2024-01-15T11", list.clear)
    plant(lake, FACTS, "2024-02-20T09", list.clear)
    answer: dict[str, Any] = dict.fromkeys(ANSWERS.schema.names, "x") | {"grain": "working", "period": "2024-01-15T08"}
    answer |= {
        "workspace_id": "acme",
        "agent_id": "support",
        "identity": "",
        "scope": "",
        "tokens_in": 1,
        "tokens_out": 1,
        "cost": None,
    }
    rows = pa.Table.from_pylist([answer], schema=ANSWERS.schema)
    lake.tables.replace(ANSWERS, ["2024-01-15T08"], rows, grain="working")
    configure(
        lake,
        tmp_path,
        {"defaults": {"retention": {"working": "30d"}}, "workspaces": {"acme": {"retention": {"preferences": "1y"}}}},
    )
    finding = context(lake, "working_facts", "retention", now=datetime(2024, 6, 1, tzinfo=UTC))
    assert finding.sample == (
        "acme conversations: 1 row, from 2024-01-15T08 on",
        "acme facts: 4 rows, from 2024-01-15T08 on",  # three facts and an answer
    )
    assert context(lake, "working_facts", "retention", now=datetime(2025, 6, 1, tzinfo=UTC)).offenders == 7


def test_each_grain_has_its_own_retention(lake: Lake, tmp_path: Path) -> None:
    configure(lake, tmp_path, {"defaults": {"retention": {"plan": "free"}}})
    for asset, rows in {"daily_summaries": 3, "weekly_summaries": 3, "yearly_summaries": 0, "graph_facts": 0}.items():
        assert context(lake, asset, "retention").offenders == rows
    configure(lake, tmp_path, {"defaults": {"retention": {"graph": "1y"}}})
    finding = context(lake, "graph_facts", "retention")
    assert finding.offenders == lake.tables.read(GRAPH_OPERATIONS).num_rows > 0
    assert finding.sample[0].startswith("acme graph: ")


def test_journal_files_that_are_not_ingested_are_found(lake: Lake) -> None:
    assert context(lake, "messages", "journal_backlog").numbers == {
        "pending_files": 0,
        "stuck_files": 0,
        "oldest_hours": 0.0,
    }
    written = NOW - timedelta(hours=25)
    write(lake, conversation("Hello.", at="2024-05-01T10:00"), now=written)
    write(lake, conversation("Hello.", at="2024-05-01T10:00", scope=Scope("acme", "x")), now=written)
    write(lake, conversation("Hello again.", at="2024-05-01T11:00"), now=NOW - timedelta(hours=23))
    finding = context(lake, "messages", "journal_backlog")
    assert (finding.offenders, finding.sample) == (2, ("2024-05-01T10, 2 files",))
    assert finding.numbers == {"pending_files": 3, "stuck_files": 2, "oldest_hours": 25.0}
    assert context(lake, "messages", "journal_backlog", now=NOW - timedelta(hours=3)).passed


def test_entries_of_sessions_that_nobody_deletes_are_found(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.ensure()
    assert context(lake, "session_promotions", "overdue_sessions").passed
    session = Memory(lake.storage.uri).session("s1")
    session.store("k", 1, ttl=60, now=NOW)
    session.short_term.store("k", 1, ttl=60, now=NOW)
    assert context(lake, "session_promotions", "overdue_sessions", now=NOW + timedelta(hours=24)).passed
    late = NOW + timedelta(hours=25)
    finding = context(lake, "session_promotions", "overdue_sessions", now=late)
    assert finding.sample == ("short_term, 1 entry", "value, 1 entry")
    assert finding.numbers == {"overdue_entries": 2}
    promote(lake, late)
    assert context(lake, "session_promotions", "overdue_sessions", now=late).passed
    monkeypatch.setenv("MEMORY_PIPELINE_SESSIONS", "postgresql://nobody@127.0.0.1:9/none")
    lake.storage.write("state/sessions.json", b'{"database": "a database on a server"}')
    [text] = context(lake, "session_promotions", "overdue_sessions", now=late).sample
    assert "check MEMORY_PIPELINE_SESSIONS" in text


def test_a_journal_file_without_a_ulid_in_its_name_is_as_old_as_its_hour(lake: Lake) -> None:
    lake.storage.write(f"{folder_of(ACME)}/2026-01-12T08__mine.jsonl", b"")
    assert context(lake, "messages", "journal_backlog").passed
    lake.storage.write(f"{folder_of(ACME)}/2024-01-12T08__\xe9.jsonl", b"")
    assert context(lake, "messages", "journal_backlog").offenders == 1


def test_quarantined_records_are_found_and_not_shown(lake: Lake) -> None:
    assert context(lake, "messages", "quarantine").passed
    lake.journal.set_aside([Rejection("it says xylophone", "file f, line 3", {"content": "xylophone"})])
    finding = context(lake, "messages", "quarantine")
    assert (finding.offenders, finding.sample) == (1, ("file f, line 3",))
    assert "xylophone" not in repr(finding)
