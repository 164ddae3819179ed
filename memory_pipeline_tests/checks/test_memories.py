"""Durable memories that are out of sync, duplicate, contradictory or not consolidated."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.memories.hot_index import hot_entries
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.codec.memories import events_to_rows, row_to_memory
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import CONSOLIDATION, CONSOLIDATION_EVENTS, MEMORIES, MEMORY_EVENTS, MESSAGES
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.steps.fold_memories import refold_memories
from memory_pipeline_tests.building import NOW, memory_rows, put_events
from memory_pipeline_tests.checks.planting import context, plant
from memory_pipeline_tests.domain.memories.histories import do, remember

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.checks import Finding
    from memory_pipeline.lake import Lake

LEVEL = ("durable_memories", "level")
Rows = list[dict[str, Any]]


def twin(rows: Rows, **changes: Any) -> None:
    """Add a copy of the first active memory, as if from another source."""
    first = next(row for row in rows if row["is_newest"] and row["status"] == "active" and row["subject"])
    other = f"{first['memory_id'][:-32]}{'0' * 32}"
    rows.append({**first, "id": f"{other}#1", "memory_id": other, "version": 1, "match_keys": [], **changes})


def found(lake: Lake, check: tuple[str, str], change: Callable[[Rows], Any]) -> Finding:
    """Return the finding of a check on changed memories, then restore them."""
    before = lake.memory_rows.scan()
    plant(lake, MEMORIES, None, change)
    finding = context(lake, *check)
    lake.memory_rows.replace(before, None)
    return finding


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        (MEMORY_EVENTS, lambda rows: rows.pop()),
        (MEMORY_EVENTS, list.clear),
        (CONSOLIDATION_EVENTS, lambda rows: rows.pop()),
        (MEMORIES, list.clear),
        (MEMORIES, lambda rows: rows[-1].update(content="Changed.")),
    ],
)
def test_memories_out_of_sync_with_their_events_are_found(lake: Lake, spec: Any, change: Callable[[Rows], Any]) -> None:
    assert context(lake, *LEVEL).numbers == {"agents": 1, "stale": 0}
    plant(lake, spec, None, change)
    finding = context(lake, *LEVEL)
    assert (finding.offenders, finding.sample) == (1, ("acme/support",))


def test_events_without_a_remember_event_make_no_memory(lake: Lake) -> None:
    idle = Scope("acme", "idle")
    lost = do("FORGET", remember("Anna likes tea.", scope=idle), 1, scope=idle)
    put_events(lake, events_to_rows([lost], are_edits=True))
    assert not context(lake, *LEVEL).passed
    refold_memories(lake, HashingEmbedder(), [idle])
    assert context(lake, *LEVEL).passed


def test_an_event_whose_message_is_gone_is_found(lake: Lake) -> None:
    check = ("durable_memories", "orphaned_sources")
    assert context(lake, *check).numbers["citations"] > 0
    plant(lake, MESSAGES, "2024-01-15T08", list.clear)
    assert context(lake, *check).offenders == lake.tables.read(MEMORY_EVENTS).num_rows


def test_duplicate_memories_are_found_after_consolidation(lake: Lake) -> None:
    check = ("memory_consolidation", "duplicates")
    assert context(lake, *check).numbers["memories"] > 0
    first = next(row for row in memory_rows(lake).to_pylist() if row["subject"])
    shouted = f"The {first['content'].upper()}!"
    cases: list[tuple[dict[str, Any], int]] = [
        ({"content": shouted}, 1),
        ({"content": shouted, "object": None}, 1),
        ({"content": shouted, "object": "Rome"}, 0),  # different objects
        ({"content": shouted, "kind": "observation"}, 0),
        ({"content": shouted, "status": "superseded"}, 0),
        ({"content": shouted, "temperature": "cold"}, 0),
        ({"content": shouted, "is_newest": False}, 0),
        ({"content": shouted, "user_id": "u", "key": "k"}, 0),
        ({"content": shouted, "changed_at": NOW}, 0),  # not consolidated yet
        ({"content": f"Not {shouted}"}, 0),
    ]
    for changes, count in cases:
        assert found(lake, check, partial(twin, **changes)).offenders == count, changes
    # Agents with a failed consolidation are reported by another check.
    plant(lake, MEMORIES, None, lambda rows: twin(rows, content=shouted))
    plant(lake, CONSOLIDATION, None, lambda rows: [row.update(troubles=["2024-01-15 duplicates: no"]) for row in rows])
    assert context(lake, *check).passed
    troubles = context(lake, "memory_consolidation", "troubles")
    assert (troubles.offenders, troubles.numbers) == (1, {"agents": 1, "troubled": 1})
    assert troubles.sample[0].startswith("acme/support 2024-")


def test_memories_that_contradict_each_other_are_found(lake: Lake) -> None:
    check = ("memory_consolidation", "contradictions")
    terms = {"kind": "fact", "subject": "Anna", "predicate": "lives_in", "object": "Porto"}
    cases: list[tuple[dict[str, Any], int]] = [
        ({"subject": "ANNA", "object": "Rome"}, 1),
        ({"object": "porto"}, 0),
        ({"predicate": "likes", "object": "Rome"}, 0),
        ({"subject": "Bob", "object": "Rome"}, 0),
        ({"kind": "plan", "object": "Rome"}, 0),
        ({"object": None}, 0),
    ]
    for changes, count in cases:

        def contradict(rows: Rows, own: dict[str, Any] = changes) -> None:
            twin(rows, content="She lives there.", **terms)
            twin(rows, **{**terms, "id": "x#1", "memory_id": "x", "content": "Or elsewhere.", **own})

        assert found(lake, check, contradict).offenders == count, changes


def test_a_hot_index_beyond_its_caps_is_found(lake: Lake) -> None:
    check = ("hot_index", "caps")
    fine = context(lake, *check)
    assert fine.numbers["entries"] > 0
    lines = [str(entry) for entry in hot_entries(row_to_memory(row) for row in memory_rows(lake).to_pylist())]
    assert fine.numbers == {"entries": len(lines), "most_tokens": sum(count_tokens(f"{line}\n") for line in lines)}
    lost = found(lake, check, lambda rows: twin(rows, temperature="hot", status="superseded"))
    assert lost.sample[0].startswith(f"acme/support, {len(lines) + 1} entries, ")
    assert lost.sample[0].endswith(", 1 not active")
    for setting in ("hot_entries: 1", "hot_tokens: 10"):
        lake.storage.write(CONFIGURATION, f"defaults: {{memories: {{{setting}}}}}".encode())
        assert context(lake, *check).offenders == 1


def test_consolidation_events_without_a_reason_are_found(lake: Lake) -> None:
    plant(lake, CONSOLIDATION_EVENTS, None, lambda rows: (rows[0].update(reason=None), rows[1].update(reason="  ")))
    assert context(lake, "memory_consolidation", "explained").offenders == 2


def test_unconsolidated_days_are_found_after_a_day(lake: Lake) -> None:
    check = ("memory_consolidation", "nights")
    assert context(lake, *check).passed
    last = max(lake.ledger.entries("memory_consolidation"))
    ended = lake.calendar.bounds(Period(Grain.DAILY, last).next())[1]
    assert context(lake, *check, now=ended + timedelta(hours=23)).passed
    finding = context(lake, *check, now=ended + timedelta(hours=25))
    assert finding.sample == (Period(Grain.DAILY, last).next().key,)
    # A day with late data must be consolidated again.
    key, entry = next(pair for pair in lake.ledger.entries("durable_memories").items() if pair[1].rows)
    lake.ledger.record([replace(entry, output_digest="0" * 32)])
    assert context(lake, *check).sample == (key[:10],)
