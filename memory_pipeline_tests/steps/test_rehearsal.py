"""A dry-run lake sees its own writes, and the real lake does not change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.steps.dry_run import DryRunLake, dry_run
from memory_pipeline_tests.building import NOW, START, conversation, run, table_rows, versions, write
from memory_pipeline_tests.domain.memories.histories import do, remember
from memory_pipeline_tests.steps.test_fold import Counting

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

HOUR = "2024-01-15T08"


@pytest.fixture
def rehearsal(lake: Lake, models: Models) -> DryRunLake:
    write(lake, conversation("I moved to Porto."), conversation("I like tea.", at="2024-02-01T09:00"))
    run(lake, models)
    return DryRunLake(lake.storage.uri)


def test_reads_come_from_the_real_lake_until_a_partition_is_replaced(lake: Lake, rehearsal: DryRunLake) -> None:
    for spec, fixed in [(MESSAGES, {}), (FACTS, {}), (SUMMARIES, {"grain": "daily"})]:
        assert rehearsal.tables.read(spec, shard=None, **fixed).equals(lake.tables.read(spec, shard=None, **fixed))
        assert rehearsal.tables.keys(spec, **fixed) == lake.tables.keys(spec, **fixed)
        assert rehearsal.tables.sizes(spec, **fixed) == lake.tables.sizes(spec, **fixed)


def test_replaced_partitions_are_visible_only_in_the_dry_run(lake: Lake, rehearsal: DryRunLake) -> None:
    before, rows = versions(lake), lake.tables.read(FACTS, [HOUR])
    renamed = rows.set_column(rows.schema.get_field_index("speaker"), "speaker", pc.utf8_upper(rows["speaker"]))
    assert rehearsal.tables.replace(FACTS, [HOUR], renamed) == {HOUR}
    assert rehearsal.tables.replace(FACTS, [HOUR], renamed) == frozenset()
    assert set(rehearsal.tables.read(FACTS, [HOUR])["speaker"].to_pylist()) == {"ANNA"}
    assert set(rehearsal.tables.read(FACTS, where=pc.field("speaker") == "ANNA")["period"].to_pylist()) == {HOUR}
    assert rehearsal.tables.read(FACTS, columns=["id"]).column_names == ["id"]
    assert rehearsal.tables.read(FACTS).num_rows == lake.tables.read(FACTS).num_rows
    rehearsal.tables.replace(FACTS, [HOUR], rows.slice(0, 0))
    assert rehearsal.tables.keys(FACTS) == ["2024-02-01T09"]
    assert versions(lake) == before
    assert lake.tables.read(FACTS, [HOUR]).equals(rows)


def test_a_dry_run_covers_every_grain_and_writes_nothing(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto."), conversation("I like tea.", at="2024-02-01T09:00"))
    before, files = versions(lake), lake.journal.pending()
    looked = dict(dry_run(DryRunLake(lake.storage.uri), models, START, NOW))
    assert {grain: len(periods) for grain, periods in looked.items()} == {
        "working": 2, "daily": 2, "weekly": 2, "monthly": 2, "quarterly": 1, "yearly": 1,
    }  # fmt: skip
    assert (versions(lake), lake.journal.pending()) == (before, files)
    assert lake.journal.quarantined() == []
    assert all(run(lake, models).values())


def test_a_dry_run_counts_the_embeddings_of_durable_memories(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto."))
    tea = remember("Anna likes tea.", -3.5)
    lake.journal.append([tea, do("UPDATE", tea, -3.4, content="Anna likes green tea.")])
    asked = []
    for own in (DryRunLake(lake.storage.uri), lake):
        embedder = Counting()
        counting = replace(models, embedder=embedder)
        if isinstance(own, DryRunLake):
            list(dry_run(own, counting, START, NOW))
        else:
            run(own, counting)
        asked.append(set(embedder.asked))
    assert asked[0] == asked[1]
    assert "Anna likes green tea." in asked[0]


def test_a_dry_run_does_not_set_contradictions_aside(lake: Lake, models: Models) -> None:
    write(lake, conversation("I live in Porto."))
    write(lake, conversation("I live in Oslo."), now=NOW.replace(second=1))
    list(dry_run(DryRunLake(lake.storage.uri), models, START, NOW))
    assert lake.journal.quarantined() == []
    run(lake, models)
    assert len(lake.journal.quarantined()) == 1
    assert table_rows(lake)["messages"]
