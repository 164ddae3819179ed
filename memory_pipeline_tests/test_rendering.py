"""Terminal output and JSON: search results, reports of consolidation, the state of the lake."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.reader import Hit
from memory_pipeline.rendering import consolidation_line, consolidation_lines, hit_lines, status_lines, to_json
from memory_pipeline.steps.consolidation.days import ConsolidationStatus
from memory_pipeline.steps.consolidation.report import ConsolidationReport, DayResult, MemoryDiff
from memory_pipeline.steps.scheduling.planner import GrainStatus

AT = datetime(2024, 1, 15, 8, 3, tzinfo=UTC)

FACT = Hit(
    id="working:2024-01-15T08:0",
    grain=Grain.WORKING,
    period="2024-01-15T08",
    kind="turn",
    content="Anna: I moved to Porto.",
    starts_at=AT,
    ends_at=AT,
    date=date(2024, 1, 15),
    source_ids=("m1",),
    conversation_id="call",
    score=1.5,
)
WEEK = dataclasses.replace(
    FACT,
    id="weekly:2024-W03:0",
    grain=Grain.WEEKLY,
    period="2024-W03",
    kind="summary",
    content="\n".join(f"line {n}" for n in range(1, 10)),
    source_ids=("d1", "d2"),
    conversation_id=None,
    score=0.0,
)


def status(grain: Grain = Grain.DAILY, rows: int = 0, **periods: list[str]) -> GrainStatus:
    listed: dict[str, Any] = {
        name: [Period(grain, key) for key in periods.get(name, [])]
        for name in ("made", "empty", "pending", "missing", "unfinished", "open", "early")
    }
    return GrainStatus(grain=grain, rows=rows, **listed)


def lines_of(statuses: list[GrainStatus], quarantined: list[str] | None = None) -> list[str]:
    return list(status_lines(statuses, quarantined or []))


def test_a_fact_takes_two_lines() -> None:
    assert list(hit_lines([FACT])) == [
        " 1. [2024-01-15] Anna: I moved to Porto.",
        "    turn of call, id working:2024-01-15T08:0",
    ]


def test_scores_are_shown_only_for_a_query() -> None:
    assert list(hit_lines([FACT], "Porto"))[-1] == "    turn of call, score 1.50, id working:2024-01-15T08:0"
    no_match = dataclasses.replace(FACT, score=0.0)
    assert ", score 0.00, " in list(hit_lines([no_match], "Lisbon"))[-1]


def test_a_long_fact_is_cut_to_one_line() -> None:
    fact = dataclasses.replace(FACT, content="Anna: one\n\n  two\t" + "x" * 500)
    first = next(iter(hit_lines([fact])))
    assert first.startswith(" 1. [2024-01-15] Anna: one two xxx")
    assert first.endswith("…")
    assert len(first) < 140


def test_a_summary_shows_its_sources_and_how_many_lines_are_shown() -> None:
    assert list(hit_lines([WEEK], lines=2)) == [
        " 1. [2024-01-15] weekly summary of 2024-W03, 2 of 9 lines:",
        "      line 1",
        "      line 2",
        "    from 2 daily summaries, id weekly:2024-W03:0",
    ]


def test_the_best_lines_of_a_summary_are_shown_in_order() -> None:
    week = dataclasses.replace(WEEK, content="Ben cooked.\nAnna moved.\nBen slept.\nAnna moved to Porto.")
    assert list(hit_lines([week], "Where did Anna move? Porto?", lines=2))[1:-1] == [
        "      Anna moved.",
        "      Anna moved to Porto.",
    ]


def test_hits_are_numbered_and_may_be_empty() -> None:
    empty = dataclasses.replace(WEEK, content="")
    firsts = [line[:40] for line in hit_lines([FACT, empty, FACT]) if line[:3].strip()]
    assert firsts == [
        " 1. [2024-01-15] Anna: I moved to Porto.",
        " 2. [2024-01-15] weekly summary of 2024-",
        " 3. [2024-01-15] Anna: I moved to Porto.",
    ]
    assert list(hit_lines([])) == []


@pytest.mark.parametrize("hit", [FACT, WEEK])
def test_a_terminal_gets_no_control_characters(hit: Hit) -> None:
    hostile = dataclasses.replace(hit, content="Anna: \x1b[2J\x1b]0;owned\x07 hi \x9b1m\x08")
    assert all(line.isprintable() for line in hit_lines([hostile]))


def done_with(*changes: MemoryDiff, **numbers: object) -> ConsolidationReport:
    night = DayResult(Period(Grain.DAILY, "2024-01-15"), agents=1, **numbers)  # type: ignore[arg-type]
    return ConsolidationReport([night], list(changes), agents=1)


def change(
    verb: str, title: str, other: str | None = None, reason: str = "so", night: str = "2024-01-15"
) -> MemoryDiff:
    return MemoryDiff(Scope("w", "a"), Period(Grain.DAILY, night), verb, "m1", title, other and "m2", other, reason)


def test_consolidation_reports_each_agents_changes_with_reasons() -> None:
    done = done_with(
        change("HEAT", "Anna"), change("MERGE", "new", "old"), change("SUPERSEDE", "Porto", "Faro", night="2024-01-16")
    )
    assert list(consolidation_lines(done, dry_run=True)) == [
        "w / a",
        "  2024-01-15",
        "    add to hot    “Anna”",
        "                  so",
        "    merge         “old” into “new”",
        "                  so",
        "  2024-01-16",
        "    supersede     “Porto” by “Faro”",
        "                  so",
        "1 day, 1 agent: 1 added to the hot index, 1 merged, 1 superseded; nothing was written",
    ]
    withdrawn = dataclasses.replace(change("COOL", "x"), is_withdrawn=True)
    lines = list(consolidation_lines(done_with(withdrawn), dry_run=False))
    assert lines[2] == "    cool          undone: “x”"
    assert lines[-1] == "1 day, 1 agent: 1 withdrawn (0.0 s)"
    assert list(consolidation_lines(ConsolidationReport(), dry_run=True)) == ["no day is pending"]


def test_titles_and_reasons_cannot_steer_or_flood_the_terminal() -> None:
    hostile = change("HEAT", "\x1b[2Jred\u202e" + "x" * 500, reason="word " * 100 + "\x1b[0m")
    text = "\n".join(consolidation_lines(done_with(hostile, troubles=["w / a: \x1b[31m" + "y" * 500]), dry_run=True))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert max(map(len, text.splitlines())) < 200
    assert text.count("word") == 100  # reasons are not cut


def test_failed_passes_and_memories_to_review_are_listed() -> None:
    done = done_with(troubles=["w / a: staleness: no model"], review=[f"memory {number}" for number in range(12)])
    lines = list(consolidation_lines(done, dry_run=False))
    assert lines[0] == "2024-01-15 FAILED, the next run retries: w / a: staleness: no model"
    assert lines[-2:] == ["  … and 2 more; --json lists all", "1 day, 1 agent: no changes (0.0 s)"]
    assert consolidation_line(done).endswith("1 passes failed, the next run retries")


def test_the_status_of_consolidation_follows_the_grains() -> None:
    nights = [Period(Grain.DAILY, f"2024-01-{day}") for day in (15, 16, 17)]
    found = ConsolidationStatus(made=nights[:2], pending=nights[1:], missing=nights[2:], troubled=nights[1:2], events=7)
    lines = list(status_lines([status()], [], found))
    assert lines[2].split() == ["consolidation", "2", "7", "2024-01-15", "2024-01-16", "2", "1", "0"]
    assert lines[3] == "pending: run `memory-pipeline run`"
    assert lines[4].startswith("a pass of consolidation failed on 1 day, the last one 2024-01-16")


def test_the_status_counts_periods_and_names_the_next_command() -> None:
    made = status(
        made=["2024-01-15", "2024-01-17"],
        rows=1234,
        pending=["2024-01-18"],
        missing=["2024-01-18"],
        open=["2024-01-19"],
    )
    _, row, hint = lines_of([made])
    assert row.split() == ["daily", "2", "1,234", "2024-01-15", "2024-01-17", "1", "1", "1"]
    assert hint == "pending: run `memory-pipeline run`"


def test_hours_before_the_first_day_name_the_setting() -> None:
    last = lines_of([status(Grain.WORKING, early=["2019-05-01T08", "2019-05-01T09"])])[-1]
    assert last.startswith("2 hours with messages before the first day of the memory, from 2019-05-01T08; ")
    assert "set MEMORY_PIPELINE_START to an earlier 1 January that is a Monday" in last


def test_quarantined_records_are_counted_by_reason() -> None:
    found = lines_of([], ["naive", "no text", "naive"])
    assert found[1:] == ["records in journal/quarantine: 3", "  2 × naive", "  1 × no text"]


def test_at_most_ten_reasons_are_shown() -> None:
    found = lines_of([], [f"reason {n}" for n in range(25)])
    assert len(found) == 13
    assert found[-1] == "  … and 15 more reasons; --json lists all"


def test_a_hit_as_json_has_all_fields() -> None:
    [found] = json.loads(to_json([FACT]))
    assert list(found) == [field.name for field in dataclasses.fields(Hit)]
    assert (found["grain"], found["date"], found["starts_at"]) == ("working", "2024-01-15", "2024-01-15T08:03:00+00:00")
    assert found["source_ids"] == ["m1"]


def test_nested_records_become_json() -> None:
    value = {
        "status": status(made=["2024-01-15"]),
        "rejected": Rejection("why", "where", {"a": [1, None]}),
        "scope": Scope("acme", "support"),
        "count": Counter(a=2),
        "path": Path("x"),
    }
    found = json.loads(to_json(value))
    assert found["status"]["grain"] == "daily"
    assert found["status"]["made"] == ["2024-01-15"]
    assert found["rejected"] == {"reason": "why", "where": "where", "record": {"a": [1, None]}, "owner": {}}
    assert found["scope"] == {"workspace_id": "acme", "agent_id": "support", "identity": ""}
    assert (found["count"], found["path"]) == ({"a": 2}, "x")


def test_json_keeps_non_ascii_characters() -> None:
    assert "Zoë 你好" in to_json({"content": "Zoë 你好"})


def test_lone_surrogates_become_json_escapes() -> None:
    text = to_json(Rejection("why", "where", {"content": "a\ud800"}))
    assert json.loads(text.encode())["record"] == {"content": "a\ud800"}
