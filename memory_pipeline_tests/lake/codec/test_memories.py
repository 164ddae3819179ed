"""Conversion of durable memories and their events to rows and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.identity import make_id
from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.domain.periods import Grain, Period, hour_of
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.codec.memories import (
    consolidation_to_rows,
    events_digest,
    events_to_rows,
    memories_to_rows,
    row_to_memory,
    rows_to_events,
    rows_to_memories,
)
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, MEMORIES, MEMORY_EVENTS
from memory_pipeline.lake.tables.partitions import sorted_rows
from memory_pipeline_tests.domain.memories.histories import ACME, NOON, at, do, histories, remember, stored
from memory_pipeline_tests.effort import examples

TEA = remember("Anna likes tea.", tags=["drinks"], importance=0.8, evidence=["m1"], conversation="c1")
UPDATE = do("UPDATE", TEA, 1, content="Anna likes coffee.", reason="she said so")
NIGHTS = {at(12): Period(Grain.DAILY, "2024-01-15"), at(36): Period(Grain.DAILY, "2024-01-16")}


@settings(max_examples=examples(50), deadline=None)
@given(histories(), st.booleans())
def test_events_round_trip(events: list[MemoryEvent], are_edits: bool) -> None:
    base = {event.id: event for event in events if not event.is_consolidation}
    rows = events_to_rows([*base.values(), *base.values()], are_edits=are_edits)
    assert rows.schema == MEMORY_EVENTS.schema
    assert rows_to_events(rows) == list(base.values())
    assert set(rows["is_edit"].to_pylist()) <= {are_edits}
    assert rows["period"].to_pylist() == [event.hour.key for event in base.values()]
    nightly = {event.id: event for event in events if event.is_consolidation}
    rows = consolidation_to_rows(nightly.values(), NIGHTS)
    assert rows.schema == CONSOLIDATION_EVENTS.schema
    assert rows_to_events(rows) == [replace(event, received_at=None) for event in nightly.values()]
    assert rows["period"].to_pylist() == [NIGHTS[event.event_at].key for event in nightly.values()]


def test_an_event_is_stored_as_the_expected_row() -> None:
    [row] = events_to_rows([UPDATE], are_edits=True).to_pylist()
    assert row == {
        "period": "2024-01-15T13", "id": UPDATE.id, "workspace_id": "acme",
        "agent_id": "support", "identity": "", "scope": ACME.key, "verb": "UPDATE",
        "memory_id": TEA.memory_id, "other_id": None,
        "changes": '{"content":"Anna likes coffee."}', "editor": "agent", "reason": "she said so", "evidence": [],
        "conversation_id": None, "turn": 0, "place": 0, "event_at": at(1), "speaker": None, "received_at": at(1),
        "users": [], "is_edit": True, "ordered_at": None,
    }  # fmt: skip


@settings(max_examples=examples(50), deadline=None)
@given(histories())
def test_memories_round_trip(events: list[MemoryEvent]) -> None:
    memories = fold_events(events)
    rows = memories_to_rows({ACME: memories}, {})
    assert rows.schema == MEMORIES.schema
    assert rows.equals(sorted_rows(rows, MEMORIES).replace_schema_metadata())
    chance = np.random.default_rng(1)
    found = rows_to_memories(rows.take(pa.array(chance.permutation(rows.num_rows)))).get(ACME, Memories())
    assert found == stored(memories)
    # The fold continues from them as from its own result.
    later = [remember("Anna likes tea.", 60), *(do("BOOST", own, 61) for own in memories.newest)]
    assert stored(fold_events(later, found)) == stored(fold_events([*events, *later]))


def test_memories_are_stored_as_the_expected_rows() -> None:
    vectors = {"Anna likes coffee.": np.array([0.6, 0.8], np.float32), "Anna likes tea.": np.ones(2, np.float32)}
    memories = fold_events([TEA, UPDATE, remember("Anna likes figs.", 2)])
    rows = memories_to_rows({ACME: memories}, vectors, "hashing").to_pylist()
    shown = [
        (row["content"], row["version"], row["is_newest"], row["vector"], row["embed_model"])
        for row in sorted(rows, key=lambda row: (row["content"] == "Anna likes figs.", row["version"]))
    ]
    assert shown == [
        ("Anna likes tea.", 1, False, None, None),  # history is not searched
        ("Anna likes coffee.", 2, True, pytest.approx([0.6, 0.8]), "hashing"),
        ("Anna likes figs.", 1, True, None, None),
    ]
    first = next(row for row in rows if row["version"] == 2)
    assert (first["id"], first["memory_id"]) == (f"{TEA.memory_id}#2", TEA.memory_id)
    assert {(row["scope"], row["workspace_id"], row["agent_id"], row["source_digest"]) for row in rows} == {
        (ACME.key, "acme", "support", None)
    }
    assert row_to_memory(first) == memories.newest[TEA.memory_id]
    none = memories_to_rows({ACME: Memories()}, {}, "hashing")
    assert (none.num_rows, none.schema) == (0, MEMORIES.schema)
    assert rows_to_memories(none) == {}


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=20), st.randoms(use_true_random=False))
def test_the_digest_depends_on_the_set_of_events(numbers: list[int], chance: object) -> None:
    ids = [make_id("event", hour_of(NOON + timedelta(hours=number % 9)), number) for number in numbers]
    digest = events_digest(ids)
    assert events_digest(ids[::-1]) == digest
    assert len({digest, events_digest([*ids, TEA.id])}) == 2
    assert not ids or events_digest(ids[1:]) != digest


def test_agents_have_separate_rows_and_ids() -> None:
    other = Scope("acme", "sales")
    rows = events_to_rows([TEA, remember("Anna likes tea.", scope=other)], are_edits=False)
    assert rows["scope"].to_pylist() == [ACME.key, other.key]
    assert [event.scope for event in rows_to_events(rows)] == [ACME, other]
    assert len(set(rows["id"].to_pylist())) == len(set(rows["memory_id"].to_pylist())) == 2
