"""Periods without a summary, and rows without sources."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Calendar, Grain, Period
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import LedgerEntry
from memory_pipeline.lake.tables.tombstones import raise_marks
from memory_pipeline_tests.building import ACME, NOW, hours, run
from memory_pipeline_tests.checks.planting import context, plant

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

KEYS = {
    Grain.DAILY: "2024-02-20",
    Grain.WEEKLY: "2024-W08",
    Grain.MONTHLY: "2024-02",
    Grain.QUARTERLY: "2024-Q1",
    Grain.YEARLY: "2024",
}
#: The number of periods of all agents, by grain.
DUE = {Grain.DAILY: 3, Grain.WEEKLY: 3, Grain.MONTHLY: 3, Grain.QUARTERLY: 2, Grain.YEARLY: 2}


def drop_one(rows: list[dict[str, Any]]) -> None:
    rows[:] = [row for row in rows if row["agent_id"] != ACME.agent_id]


def expire(lake: Lake, kept: RetentionClass, through: str, agent_id: str = ACME.agent_id) -> None:
    raise_marks(lake.tables, {("acme", agent_id, kept): through}, NOW)


def test_a_closed_period_without_its_summary_is_found(lake: Lake) -> None:
    # From coarse to fine, because a missing summary is no source of the next one.
    for grain in reversed(SUMMARY_GRAINS):
        fine = context(lake, f"{grain}_summaries", "coverage")
        assert fine.passed
        assert fine.numbers == {"due": DUE[grain], "missing": 0, "waiting": 0}
        plant(lake, SUMMARIES, KEYS[grain], drop_one, grain=grain.value)
        finding = context(lake, f"{grain}_summaries", "coverage")
        assert (finding.offenders, finding.sample) == (1, (f"acme/support {KEYS[grain]}",))
        assert finding.numbers == {"due": DUE[grain], "missing": 1, "waiting": 0}
        # It is not expected before the period closes.
        closes_at = Calendar().closes_at(Period(grain, KEYS[grain]))
        assert not context(lake, f"{grain}_summaries", "coverage", now=closes_at).passed
        assert context(lake, f"{grain}_summaries", "coverage", now=closes_at - timedelta(seconds=1)).passed


def test_a_summary_that_has_expired_is_not_missing(lake: Lake) -> None:
    plant(lake, SUMMARIES, "2024-02-20", drop_one, grain="daily")
    expire(lake, RetentionClass.DAILY, "2024-02-19")
    assert not context(lake, "daily_summaries", "coverage").passed
    expire(lake, RetentionClass.DAILY, "2024-02-20", "sales")  # of another agent
    assert not context(lake, "daily_summaries", "coverage").passed
    expire(lake, RetentionClass.DAILY, "2024-02-20")
    assert context(lake, "daily_summaries", "coverage").passed


def test_a_summary_that_waits_for_a_budget_is_counted_and_not_missing(lake: Lake) -> None:
    plant(lake, SUMMARIES, "2024-02-20", drop_one, grain="daily")
    lake.ledger.record([LedgerEntry("daily_summaries", "2024-02-20", "", "", 1, 1, unfinished=1)])
    finding = context(lake, "daily_summaries", "coverage")
    assert finding.passed
    assert finding.numbers == {"due": 3, "missing": 0, "waiting": 1}


def test_coverage_checks_only_the_given_periods(lake: Lake) -> None:
    for key in ("2024-01-15", "2024-02-20"):
        plant(lake, SUMMARIES, key, drop_one, grain="daily")
    january = context(lake, "daily_summaries", "coverage", periods=[Period.parse("daily", "2024-01-15")])
    assert january.sample == ("acme/support 2024-01-15",)
    assert january.numbers["due"] == 1


def test_facts_without_messages_are_found_unless_these_expired(lake: Lake) -> None:
    fine = context(lake, "working_facts", "orphaned_sources")
    assert fine.passed
    facts = lake.tables.read(FACTS, ["2024-01-15T08"])["id"].to_pylist()
    plant(lake, MESSAGES, "2024-01-15T08", list.clear)
    finding = context(lake, "working_facts", "orphaned_sources")
    assert finding.offenders == len(facts)
    assert set(finding.sample) <= set(facts)
    assert finding.numbers["citations"] == fine.numbers["citations"]
    assert context(lake, "working_facts", "orphaned_sources", periods=hours("2024-02-20T09")).passed
    expire(lake, RetentionClass.CONVERSATIONS, "2024-01-15T07")
    assert context(lake, "working_facts", "orphaned_sources").offenders == len(facts)
    expire(lake, RetentionClass.CONVERSATIONS, "2024-01-15T08")
    gone = context(lake, "working_facts", "orphaned_sources")
    assert gone.passed
    assert gone.numbers["expired_citations"] == len(facts)


@pytest.mark.parametrize("kept", [RetentionClass.CONVERSATIONS, RetentionClass.FACTS, RetentionClass.PREFERENCES])
def test_a_day_without_its_facts_is_found_unless_these_expired(lake: Lake, kept: RetentionClass) -> None:
    plant(lake, FACTS, "2024-01-15T11", list.clear)
    finding = context(lake, "daily_summaries", "orphaned_sources")
    [day] = lake.tables.read(SUMMARIES, ["2024-01-15"], grain="daily")["id"].to_pylist()
    assert finding.sample == (day,)
    expire(lake, kept, "2024-01-15T11")
    assert context(lake, "daily_summaries", "orphaned_sources").passed


def test_a_summary_without_its_sources_is_found_unless_these_expired(lake: Lake) -> None:
    for finer, grain in pairwise(SUMMARY_GRAINS):
        plant(lake, SUMMARIES, KEYS[finer], drop_one, grain=finer.value)
        finding = context(lake, f"{grain}_summaries", "orphaned_sources")
        assert finding.offenders == 1
        assert finding.sample[0].startswith(f"{grain}:{KEYS[grain]}:")
        expire(lake, RetentionClass(finer.value), KEYS[finer])
        assert context(lake, f"{grain}_summaries", "orphaned_sources").passed


def test_a_point_that_cites_a_missing_source_is_found(lake: Lake) -> None:
    def invent(rows: list[dict[str, Any]]) -> None:
        rows[0]["key_points"][0]["source_ids"] = [f"weekly:2024-W08:{'0' * 32}#2"]

    plant(lake, SUMMARIES, "2024-02", invent, grain="monthly")
    assert context(lake, "monthly_summaries", "orphaned_sources").offenders == 1


def test_a_malformed_source_id_is_always_an_orphan(lake: Lake) -> None:
    odd = ["", "x", "#", "message", "message:", f"nonsense:2024:{'0' * 32}", "\U0001f600:\x00:", "::::", "working"]

    def cite(rows: list[dict[str, Any]]) -> None:
        rows[:] = [{**rows[0], "id": f"{number}", "message_ids": [text]} for number, text in enumerate(odd)]

    plant(lake, FACTS, "2024-01-15T11", cite)
    expire(lake, RetentionClass.CONVERSATIONS, "2024-01-15T11")
    finding = context(lake, "working_facts", "orphaned_sources")
    assert (finding.offenders, finding.sample[0]) == (len(odd), "0")


def test_memory_that_cites_another_agents_rows_is_found(lake: Lake) -> None:
    def change_hands(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["agent_id"] = "sales"

    plant(lake, FACTS, "2024-01-15T11", change_hands)
    assert context(lake, "working_facts", "orphaned_sources").offenders == len(
        lake.tables.read(FACTS, ["2024-01-15T11"])
    )


def test_the_graph_cites_messages_and_edits(lake: Lake, models: Models) -> None:
    edit = {
        "edit": "INSERT",
        "workspace_id": "acme",
        "agent_id": "support",
        "subject": "Anna",
        "predicate": "lives_in",
        "object": "Oslo",
        "timestamp": "2024-03-01T09:00:00+00:00",
        "received_at": "2024-03-01T09:00:00+00:00",
    }
    lake.journal.append([Edit.from_record(edit)])
    run(lake, models)
    assert context(lake, "graph_facts", "orphaned_sources").passed
    plant(lake, GRAPH_FACTS, "acme~support", lambda rows: rows[0]["evidence"].append(f"edit:2024-03-01T09:{'0' * 32}"))
    assert context(lake, "graph_facts", "orphaned_sources").offenders == 1
