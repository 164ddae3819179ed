"""Which summaries are up to date: as the columns of their sources say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from memory_pipeline.domain.periods import Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.summaries import Summary, summary_id
from memory_pipeline.lake.codec.facts import rows_to_summaries, summaries_to_rows
from memory_pipeline.lake.schemas import SUMMARIES
from memory_pipeline.models.deterministic.summarization import ExtractiveSummarizer
from memory_pipeline.steps.current_summaries import are_current, source_digest
from memory_pipeline_tests.building import ACME, conversation, run, write

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

SALES, NIGHT = Scope("acme", "sales"), Scope("acme", "night")
#: A time at which all periods have closed.
END = datetime(2025, 1, 7, 9, tzinfo=UTC)
DAYS = [Period.parse("daily", "2024-01-15"), Period.parse("daily", "2024-01-16")]
SUMMARIZER = ExtractiveSummarizer()


def sources(scope: Scope, **digests: str) -> pa.Table:
    rows = [{"id": name, "scope": scope.key, "digest": value} for name, value in digests.items()]
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in ("id", "scope", "digest")]))


def summary(scope: Scope, day: Period, source_ids: list[str], *digests: str) -> Summary:
    at = datetime(2024, 1, 15, tzinfo=UTC)
    return Summary(
        summary_id(scope, day), scope, day, at, at + timedelta(days=1), "text", (), (), 0.5, tuple(source_ids),
        source_digest(SUMMARIZER, scope, day, [*digests]), 1, 1, SUMMARIZER.name,
    )  # fmt: skip


SOURCES = {
    DAYS[0]: pa.concat_tables([sources(ACME, a="1", b="2"), sources(SALES, a="1")]),
    DAYS[1]: sources(ACME, a="3"),
}
CURRENT = summary(ACME, DAYS[0], ["a", "b"], "2", "1")


@pytest.mark.parametrize(
    ("stored", "is_current"),
    [
        (CURRENT, True),
        (summary(SALES, DAYS[0], ["a"], "1"), True),
        (summary(ACME, DAYS[1], [], "3"), True),  # of sources that say nothing
        (summary(ACME, DAYS[0], ["a"], "1"), False),  # a new source
        (summary(ACME, DAYS[1], ["a"], "2"), False),  # a changed one
        (summary(ACME, DAYS[0], ["a", "gone"], "1", "2"), False),
        (summary(NIGHT, DAYS[0], ["a"], "1"), False),  # it has no sources
        (summary(SALES, DAYS[1], ["a"], "3"), False),
        (replace(CURRENT, fallback="timeout"), False),
        (replace(CURRENT, id=summary_id(SALES, DAYS[0])), False),
        (replace(CURRENT, source_digest=source_digest(SUMMARIZER, ACME, DAYS[0].next(), ["1"])), False),
    ],
)
def test_a_summary_is_current_if_its_sources_and_method_are(stored: Summary, is_current: bool) -> None:
    others = [summary(SALES, DAYS[0], ["a"], "1"), summary(NIGHT, DAYS[1], [], "9")]
    rows = summaries_to_rows([others[0], stored, others[1]])
    assert are_current(SUMMARIZER, rows, SOURCES).tolist() == [True, is_current, False]
    assert not are_current(SUMMARIZER, rows, {}).any()
    assert are_current(SUMMARIZER, rows.slice(0, 0), SOURCES).size == 0


def days(lake: Lake) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in lake.tables.read(SUMMARIES, grain="daily").to_pylist()}


def test_only_the_summaries_of_changed_agents_are_decoded(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, conversation("I moved to Porto."), conversation("I like tea.", scope=SALES))
    run(lake, models, END)
    before = days(lake)
    decoded: list[Any] = []

    def noted(rows: pa.Table) -> list[Summary]:
        decoded.extend(rows["agent_id"].to_pylist())
        return rows_to_summaries(rows)

    monkeypatch.setattr("memory_pipeline.steps.summaries.rows_to_summaries", noted)
    write(lake, conversation("I sold a boat in Bergen.", at="2024-01-15T09:00", conversation_id="late"))
    run(lake, models, END)
    after = days(lake)
    assert set(decoded) == {ACME.agent_id}
    assert {row["agent_id"] for key, row in after.items() if row != before[key]} == {ACME.agent_id}
