"""An index that is out of sync with its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline_tests.building import ACME, hours
from memory_pipeline_tests.checks.planting import context, plant
from memory_pipeline_tests.index_rows import fact, put_rows, scoped

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake


def test_a_row_missing_from_the_index_is_found(indexed: Lake) -> None:
    for grain in Grain:
        assert context(indexed, f"{grain}_index", "index_level").passed
        spec, fixed = (FACTS, {}) if grain is Grain.WORKING else (SUMMARIES, {"grain": grain.value})
        key = indexed.tables.keys(spec, **fixed)[0]
        plant(indexed, spec, key, lambda rows: rows.append({**rows[0], "id": "another"}), **fixed)
        [agent] = {
            row["agent_id"]
            for row in indexed.tables.read(spec, [key], shard=None, **fixed).to_pylist()
            if row["id"] == "another"
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
    dimension = indexed.index.read([ACME], ["vector"], "grain = 'working'")["vector"].type.list_size
    put_rows(indexed.index, Grain.WORKING, hours("2024-01-15T12"), scoped(gone, [fact("Hello.")], dimension))
    finding = context(indexed, "working_index", "index_level")
    assert finding.sample == ("elsewhere/gone 2024-01-15T12",)
    assert finding.numbers["agents"] == 3
