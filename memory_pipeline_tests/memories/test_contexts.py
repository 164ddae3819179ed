"""Contexts: entries by key, snapshots, and archived contexts, before and after the pipeline has run."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.memories.record import ContextType, Status
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.memories.contexts import RESTORED
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, START, run
from memory_pipeline_tests.effort import examples

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.memories.contexts import Contexts
    from memory_pipeline.memories.search import MemorySearch
    from memory_pipeline_tests.conftest import CopiedLake

NOON = datetime(2024, 1, 15, 12, tzinfo=UTC)
THREE = {"restart": "Restart the mill on Mondays.", "pause": "Pause before a retry.", "mail": "Answer mails at nine."}


def after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


@pytest.fixture
def memories(root: str) -> MemorySearch:
    return MemoryReader(Lake(root), ACME, default_models().embedder).memories


@pytest.fixture
def contexts(copied: CopiedLake) -> Contexts:
    """A knowledge base with three entries."""

    def fill(folder: Path) -> None:
        contexts = MemoryWriter(Lake(str(folder)), ACME, START).contexts
        contexts.create("runbooks", "knowledge_base", "How we run the mill.", now=NOON)
        for key, text in THREE.items():
            contexts.put("runbooks", key, text, now=NOON)

    return MemoryWriter(copied("memories-contexts", fill), ACME, START).contexts


def entries(memories: MemorySearch, **options: Any) -> dict[str | None, str]:
    return {one.key: one.content for one in memories.list(context="runbooks", **options)}


def found(memories: MemorySearch, query: str = "mill", **options: Any) -> set[str | None]:
    return {one.memory.key for one in memories.search(query, 100, **options)}


@pytest.mark.parametrize("is_run", [False, True])
def test_p4_a_restore_brings_back_the_three_entries(
    root: str, contexts: Contexts, memories: MemorySearch, is_run: bool
) -> None:
    def landed() -> None:
        if is_run:
            run(Lake(root), default_models())

    before = {one.key: one for one in memories.list(context="runbooks")}
    landed()
    contexts.snapshot("runbooks", "good", now=after(10))
    contexts.put("runbooks", "pause", "Never pause.", editor="clerk", now=after(20))
    landed()
    MemoryWriter(Lake(root), ACME, START).forget(before["mail"].id, now=after(21))
    contexts.put("runbooks", "coffee", "Coffee is at ten.", now=after(22))
    assert entries(memories) == {"restart": THREE["restart"], "pause": "Never pause.", "coffee": "Coffee is at ten."}
    landed()
    assert contexts.restore("runbooks", "good", editor="clerk", now=after(30)) == 3
    for _ in range(2):
        assert entries(memories) == THREE
        changed = {"restart": THREE["restart"], "pause": "Never pause.", "coffee": "Coffee is at ten."}
        assert entries(memories, now=after(24)) == changed, "the past stays"
        landed()
    assert [one.content for one in memories.history(before["pause"].id)] == [
        THREE["pause"], "Never pause.", THREE["pause"],
    ]  # fmt: skip
    assert [one.content for one in memories.list(status="deprecated")] == ["Coffee is at ten."]
    assert contexts.restore("runbooks", "good", now=after(40)) == 0, "twice gives the same"


def test_p4_a_restore_brings_back_values_and_importance(contexts: Contexts, memories: MemorySearch, root: str) -> None:
    made = contexts.put("runbooks", "rate", "The rate is 3.", {"rate": 3}, now=after(1))
    writer = MemoryWriter(Lake(root), ACME, START)
    contexts.snapshot("runbooks", "first", now=after(2))
    contexts.put("runbooks", "rate", "The rate is 4.", {"rate": 4}, now=after(3))
    writer.boost(made, 0.4, now=after(4))
    writer.update(made, outcome_success=False, tags=["money"], now=after(5))
    contexts.restore("runbooks", "first", now=after(6))
    memory = contexts.get("runbooks", "rate")
    assert memory is not None
    assert (memory.content, memory.value, memory.importance, memory.tags) == ("The rate is 3.", '{"rate": 3}', 0.5, ())
    assert (memory.outcome_success, memory.editor, memory.version) == (None, "agent", 4)


_EDITS = st.fixed_dictionaries(
    {},
    optional={
        "content": st.sampled_from(["Pause before a retry.", "Anna lives in Porto.", "Never pause."]),
        "kind": st.sampled_from(["fact", "rule", "plan"]),
        "title": st.sampled_from(["Retry", "Pause"]),
        "subject": st.sampled_from(["Anna", "the mill"]),
        "importance": st.sampled_from([0.0, 0.5, 1.0]),
        "decay_rate": st.sampled_from([0.0, 0.5]),
        "is_point_in_time": st.booleans(),
        "outcome_success": st.booleans(),
        "tags": st.sampled_from([[], ["a", "b"]]),
        "value": st.sampled_from([0, {"a": 1}, "text"]),
    },
).filter(bool)


@given(st.lists(_EDITS, max_size=3), st.lists(_EDITS, min_size=1, max_size=3))
@settings(max_examples=examples(5), deadline=None)
def test_p4_a_restore_brings_back_all_fields(before: list[dict[str, Any]], after_it: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        writer = MemoryWriter(Lake(root), ACME, START)
        contexts = writer.contexts
        contexts.create("runbooks", now=NOON)
        entry = contexts.put("runbooks", "retry", "Pause.", now=NOON)

        def state() -> dict[str, Any]:
            memory = contexts.get("runbooks", "retry")
            assert memory is not None
            return {name: getattr(memory, name) for name in RESTORED}

        def edit(edits: list[dict[str, Any]], minute: int) -> None:
            for number, one in enumerate(edits):
                change = {"memory": "UPDATE", "memory_id": entry, **one}
                writer.change_memories([change], now=after(minute + number))

        edit(before, 1)
        expected = state()
        contexts.snapshot("runbooks", "first", now=after(10))
        edit(after_it, 20)
        contexts.restore("runbooks", "first", now=after(30))
        assert state() == expected
        assert contexts.restore("runbooks", "first", now=after(40)) == 0


@pytest.mark.parametrize("is_run", [False, True])
def test_p4_entries_of_an_archived_context_are_not_found(
    root: str, contexts: Contexts, memories: MemorySearch, is_run: bool
) -> None:
    reader = MemoryReader(Lake(root), ACME, default_models().embedder)
    assert found(memories, context="runbooks") == set(THREE)
    if is_run:
        run(Lake(root), default_models())
    assert contexts.archive("runbooks", now=after(10)) == 3
    assert [one.is_archived for one in contexts.list()] == [True]
    for _ in range(2):
        assert found(memories) == set()
        assert entries(memories) == {}
        assert not [one for one in reader.recall("When to restart the mill?") if "Mondays" in one.content]
        assert contexts.get("runbooks", "pause") is None
        assert {one.memory.key for one in memories.search_archive("mill", 100, context="runbooks")} == set(THREE)
        assert entries(memories, now=after(4)) == THREE
        if is_run:
            run(Lake(root), default_models())
    with pytest.raises(InputError, match="context 'runbooks' is archived"):
        contexts.put("runbooks", "coffee", "Coffee is at ten.", now=after(11))
    with pytest.raises(InputError, match="context 'runbooks' is archived"):
        MemoryWriter(Lake(root), ACME).update(memories.list(status="archived")[0].id, importance=0.1, now=after(11))
    assert contexts.archive("runbooks", now=after(12)) == 0
    assert contexts.unarchive("runbooks", now=after(13)) == 3
    assert found(memories, context="runbooks") == set(THREE)
    assert entries(memories) == THREE
    assert [one.is_archived for one in contexts.list()] == [False]


def test_p4_an_archived_context_takes_no_snapshot_and_brings_back_only_what_it_archived(
    contexts: Contexts, root: str
) -> None:
    mail = contexts.get("runbooks", "mail")
    assert mail is not None
    alone = {"memory": "DEACTIVATE", "memory_id": mail.id, "reason": "stale"}
    MemoryWriter(Lake(root), ACME).change_memories([alone], now=after(5))
    assert contexts.archive("runbooks", now=after(10)) == 2
    for refused in (lambda: contexts.snapshot("runbooks", "late"), lambda: contexts.remove("runbooks", "pause")):
        with pytest.raises(InputError, match="context 'runbooks' is archived; unarchive it first"):
            refused()
    assert contexts.unarchive("runbooks", now=after(12)) == 2
    assert contexts.unarchive("runbooks", now=after(13)) == 0
    assert [one.key for one in contexts.entries("runbooks")] == ["pause", "restart"]


def test_p4_a_snapshot_has_what_is_visible_though_a_clock_was_ahead(contexts: Contexts, root: str) -> None:
    contexts.put("runbooks", "coffee", "Coffee is at nine.", now=after(10))
    contexts.put("runbooks", "coffee", "Coffee is at ten.", now=after(10))
    other = MemoryWriter(Lake(root), ACME, START).contexts
    before = {one.key: one.content for one in other.entries("runbooks")}
    for minutes in (9, 10):
        other.snapshot("runbooks", "now", now=after(minutes))
        assert other.restore("runbooks", "now", now=after(20)) == 0
        assert {one.key: one.content for one in other.entries("runbooks")} == before


def test_p4_a_revoked_entry_does_not_come_back_with_its_context(contexts: Contexts, root: str) -> None:
    mail = contexts.get("runbooks", "mail")
    assert mail is not None
    contexts.archive("runbooks", now=after(10))
    MemoryWriter(Lake(root), ACME).forget(mail.id, now=after(11))
    assert contexts.unarchive("runbooks", now=after(12)) == 2
    assert contexts.get("runbooks", "mail") is None


def test_p5_three_updates_of_an_entry_make_version_four(contexts: Contexts, memories: MemorySearch) -> None:
    for number in range(3):
        made = contexts.put(
            "runbooks", "pause", f"Pause {number} minutes.", editor=f"clerk {number}", now=after(number)
        )
    history = memories.history(made)
    assert [one.version for one in history] == [1, 2, 3, 4]
    assert [one.editor for one in history] == ["agent", "clerk 0", "clerk 1", "clerk 2"]
    pauses = [one.memory for one in memories.search("pause", 100) if one.memory.key == "pause"]
    assert [(one.content, one.version) for one in pauses] == [("Pause 2 minutes.", 4)]


def test_p4_contexts_have_a_type_and_are_apart(contexts: Contexts, memories: MemorySearch, root: str) -> None:
    writer = MemoryWriter(Lake(root), ACME, START)
    for kind in ContextType:
        assert writer.contexts.create(f"a {kind}", kind, now=after(1)).type is kind
    assert writer.contexts.create("a tool_cache", "tool_cache", now=after(2)).created_at == after(1) + timedelta(
        microseconds=3
    )
    assert [one.name for one in contexts.list()] == [*(f"a {kind}" for kind in sorted(ContextType)), "runbooks"]
    assert [one.name for one in contexts.list(now=NOON - timedelta(minutes=30))] == []
    # The same key, and the same words, in another context are another entry.
    contexts.put("a tool_cache", "pause", THREE["pause"], now=after(3))
    same = {writer.remember("Doors close at six.", context=name, now=after(4)) for name in ("runbooks", "a tool_cache")}
    assert len({*same, writer.remember("Doors close at six.", now=after(4))}) == 3
    assert writer.remember("The doors close at SIX", context="runbooks", now=after(5)) in same
    assert len(memories.list(context="runbooks")) == 4
    assert len(memories.list(context="a tool_cache")) == 2


@pytest.mark.parametrize("is_run", [False, True])
def test_p4_the_description_of_a_context_is_no_memory(
    root: str, contexts: Contexts, memories: MemorySearch, is_run: bool
) -> None:
    contexts.create("mill", "project_context", "All about the mill.", now=NOON)
    if is_run:
        run(Lake(root), default_models())
    query = "What is all about the mill?"
    told = {one.memory.content for one in [*memories.search(query, 100), *memories.search_archive(query, 100)]}
    told |= {one.content for one in [*memories.list(), *memories.list(status=None)]}
    told |= {one.hook for one in memories.headers()}
    assert told == set(THREE.values())
    assert MemoryWriter(Lake(root), ACME).forget(kind="fact") == 3
    assert [one.description for one in contexts.list()] == ["All about the mill.", "How we run the mill."]


def test_p4_consolidation_leaves_entries_alone(contexts: Contexts, memories: MemorySearch, root: str) -> None:
    lake, writer = Lake(root), MemoryWriter(Lake(root), ACME, START)
    for number in range(2):
        writer.remember(f"Pause before a retry{'!' * number}", kind=("fact", "observation")[number], now=after(1))
    writer.remember("Pause before each retry.", now=after(1))
    writer.remember("Pause before a retry", context="runbooks", importance=0.01, now=after(1))
    late = datetime(2025, 1, 15, 12, tzinfo=UTC)
    run(lake, default_models(), late)
    consolidate(lake, default_models(), pending_days(lake, START, late), START)
    assert len(entries(memories)) == len(memories.list(context="runbooks")) - 0 == 4
    assert all(one.status is Status.ACTIVE and not one.merged_ids for one in memories.list(context="runbooks"))
    assert not {one.id for one in memories.hot_index()} & {one.id for one in memories.list(context="runbooks")}
    assert not [event for one in memories.list(context="runbooks") for event in memories.explain(one.id)
                if event.is_consolidation]  # fmt: skip


def test_invalid_arguments_are_named(contexts: Contexts) -> None:
    invalid: list[tuple[str, list[Any], str]] = [
        ("create", ["x", "folder"], "type 'folder' is unknown; accepted: agent_memory, knowledge_base"),
        ("create", ["runbooks", "tool_cache"], "context 'runbooks' exists and has the type knowledge_base"),
        ("create", ["contexts"], "name 'contexts' is reserved"),
        ("create", [""], "name '' is not valid"),
        ("create", ["x", "tool_cache", 5], "description 5 is not a text"),
        ("get", ["notes", "a"], "context 'notes' is unknown"),
        ("get", [["runbooks"], "a"], r"name \['runbooks'\] is not"),
        ("remove", ["notes", "a"], "context 'notes' is unknown"),
        ("entries", [5], "name 5 is not"),
        ("put", ["runbooks", None, "b"], "key None is not"),
        ("restore", ["runbooks", ["x"]], r"label \['x'\] is not"),
        ("put", ["notes", "a", "b"], "context 'notes' is unknown; create it first"),
        ("put", ["runbooks", "", "b"], "key '' is not valid"),
        ("archive", ["notes"], "context 'notes' is unknown"),
        ("snapshot", ["notes", "a"], "context 'notes' is unknown"),
        ("snapshot", ["runbooks", " "], "label ' ' is not valid"),
        ("restore", ["runbooks", "best"], "context 'runbooks' has no snapshot 'best'; it has: good"),
        ("restore", ["notes", "best"], "context 'notes' is unknown"),
    ]
    contexts.snapshot("runbooks", "good", now=after(1))
    for method, arguments, says in invalid:
        with pytest.raises(InputError, match=says):
            getattr(contexts, method)(*arguments)
    assert list(contexts.snapshots("runbooks")) == ["good"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"context": "contexts", "key": "x", "tags": ["tool_cache"]}, "'contexts' is reserved; use contexts.create"),
        ({"context": "runbooks", "user_id": "u1", "key": "x", "value": 1}, "leave out user_id or context"),
        ({"key": "x"}, "user_id and key belong together"),
    ],
)
def test_other_ways_into_a_context_are_closed(contexts: Contexts, root: str, fields: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        MemoryWriter(Lake(root), ACME).change_memories([{"memory": "REMEMBER", "content": "x", **fields}])
