"""Facts survive the conversion to rows and back, and rows of older lakes are read."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from memory_pipeline.domain.fact_events import events_of
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.lake.codec.facts import facts_to_rows, rows_to_facts
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.schema_types import TableSpec
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline_tests.models.deterministic.said import said

TEXT = "Hello! I live in Porto. Always quote prices with tax. We decided to close on Mondays."
#: Columns that lakes did not have before durable memories.
NEWER = {"durable", "is_point_in_time", "subject", "predicate", "object"}


def test_facts_round_trip() -> None:
    facts = DeterministicExtractor().facts_of([said(TEXT)])
    assert {fact.durable for fact in facts} == {
        None,
        MemoryKind.FACT,
        MemoryKind.INSTRUCTION,
        MemoryKind.DECISION,
    }
    rows = facts_to_rows(facts)
    assert rows.schema.equals(FACTS.schema)
    back = rows_to_facts(rows)
    assert back == [replace(fact, operations=tuple(fact.placed_operations)) for fact in facts]
    assert events_of(back) == events_of(facts)


def test_older_rows_have_no_durable_columns_until_they_are_rebuilt(root: str) -> None:
    tables = Tables(Storage(root))
    facts = DeterministicExtractor().facts_of([said(TEXT)])
    rows = facts_to_rows(facts)
    older = TableSpec(
        FACTS.name,
        pa.schema([field for field in FACTS.schema if field.name not in NEWER]),
        FACTS.partition_by,
        FACTS.order_by,
    )
    hour = rows["period"][0].as_py()
    tables.replace(older, [hour], rows.drop_columns(list(NEWER)))
    read = tables.read(FACTS, [hour])
    assert read.schema.equals(FACTS.schema)
    assert all(read[name].null_count == read.num_rows for name in NEWER)
    assert events_of(rows_to_facts(read)) == []
    tables.replace(FACTS, [hour], rows)
    assert {event.id for event in events_of(rows_to_facts(tables.read(FACTS, [hour])))} == {
        event.id for event in events_of(facts)
    }
