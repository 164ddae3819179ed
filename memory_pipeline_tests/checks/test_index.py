"""An index that is out of sync with its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline.checks import integrity
from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline_tests.building import ACME, hours
from memory_pipeline_tests.checks.planting import context, plant
from memory_pipeline_tests.index_rows import fact, scoped

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake


def test_a_row_missing_from_the_index_is_found(indexed: Lake) -> None:
    for grain in Grain:
        assert context(indexed, f"{grain}_index", "index_level").passed
        spec, fixed = (FACTS, {}) if grain is Grain.WORKING else (SUMMARIES, {"grain": grain.value})
        key = indexed.tables.keys(spec, **fixed)[0]
        plant(indexed, spec, key, lambda rows: rows.append({**rows[0], "id": "another"}), **fixed)
        [agent] = {
            row["agent_id"] for row in indexed.tables.read(spec, [key], **fixed).to_pylist() if row["id"] == "another"
        }
        finding = context(indexed, f"{grain}_index", "index_level")
        assert (finding.offenders, finding.sample) == (1, (f"acme/{agent} {key}",))
        assert finding.is_error


@pytest.mark.parametrize("change", [{"digest": "d"}, {"embed_model": "m"}])
def test_a_row_that_has_changed_since_it_was_indexed_is_found(indexed: Lake, change: dict[str, str]) -> None:
    plant(indexed, FACTS, "2024-01-15T11", lambda rows: rows[0].update(change))
    assert context(indexed, "working_index", "index_level").sample == ("acme/support 2024-01-15T11",)
    assert context(indexed, "working_index", "index_level", periods=hours("2024-01-15T08")).passed
    assert not context(indexed, "working_index", "index_level", periods=hours("2024-01-15T11")).passed


def test_an_extra_row_in_the_index_is_found(indexed: Lake) -> None:
    plant(indexed, FACTS, "2024-01-15T11", list.clear)
    assert context(indexed, "working_index", "index_level").sample == ("acme/support 2024-01-15T11",)


def test_an_index_of_an_agent_without_rows_is_found(indexed: Lake) -> None:
    gone = Scope("elsewhere", "gone")
    dimension = indexed.index.scan(ACME, Grain.WORKING, ["vector"])["vector"].type.list_size
    indexed.index.replace(Grain.WORKING, hours("2024-01-15T12"), scoped(gone, [fact("Hello.")], dimension))
    finding = context(indexed, "working_index", "index_level")
    assert finding.sample == ("elsewhere/gone 2024-01-15T12",)
    assert finding.numbers["agents"] == 3


def test_with_many_agents_each_day_checks_a_different_part(indexed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    from memory_pipeline_tests.building import NOW

    monkeypatch.setattr(integrity, "MOST_AGENTS", 1)
    plant(indexed, FACTS, "2024-02-20T09", lambda rows: [row.update(digest="d") for row in rows])
    found = [context(indexed, "working_index", "index_level", now=NOW + timedelta(days=day)) for day in range(2)]
    assert [finding.numbers["agents_looked_at"] for finding in found] == [1, 1]
    assert {name for finding in found for name in finding.sample} == {
        "acme/support 2024-02-20T09",
        "acme/sales 2024-02-20T09",
    }
