"""Queries of durable memories by id, subject and filters; errors name the invalid argument."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline_tests.memories.keeping import (
    MONDAY,
    contents,
    event,
    kept_in,
    land,
    minute,
    remember,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.memories import DurableMemories

NIGHT = MONDAY + timedelta(hours=16)
ALICE = [
    remember("Alice lives in Porto.", subject="Alice", predicate="lives_in", object="Porto", tags=["home"]),
    remember("Alice likes tea.", minute(1), subject="ALICE", predicate="likes", object="tea", kind="preference"),
    remember("Bob likes tea.", minute(2), subject="Bob", predicate="likes", object="Tea"),
]


@pytest.fixture(params=["landed", "pending", "half"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> DurableMemories:
    """The results are the same for committed and pending events."""
    lake = Lake(str(tmp_path))
    landed = {"landed": 3, "pending": 0, "half": 2}[request.param]
    if landed:
        land(lake, *ALICE[:landed])
    if landed < 3:
        write(lake, *ALICE[landed:])
    return kept_in(lake)


def test_two_of_three_facts_are_about_alice(kept: DurableMemories) -> None:
    assert contents(kept.about("alice")) == ["Alice likes tea.", "Alice lives in Porto."]
    assert contents(kept.about("Carla")) == []


def test_filters_are_combined_with_and(kept: DurableMemories) -> None:
    assert contents(kept.list()) == ["Bob likes tea.", "Alice likes tea.", "Alice lives in Porto."]
    assert contents(kept.list(limit=1)) == ["Bob likes tea."]
    assert contents(kept.list(kind="preference")) == ["Alice likes tea."]
    assert contents(kept.list(tag="home")) == ["Alice lives in Porto."]
    assert contents(kept.list(object="TEA")) == ["Bob likes tea.", "Alice likes tea."]
    assert contents(kept.list(object="tea", subject="bob", predicate="Likes")) == ["Bob likes tea."]
    assert contents(kept.list(status="archived")) == []
    assert len(kept.list(status=None)) == 3
    assert [header.id for header in kept.headers(2)] == [one.memory_id for one in reversed(ALICE[1:])]


def test_memories_are_read_at_a_past_time(kept: DurableMemories, tmp_path: Path) -> None:
    lake, own = Lake(str(tmp_path)), ALICE[0].memory_id
    later = remember("Carla is a nurse.", NIGHT)
    changes = [
        event(MemoryVerb.UPDATE, NIGHT, own, content="Alice lives in Faro."),
        later,
    ]
    write(lake, *changes)
    before = NIGHT - timedelta(hours=1)
    assert contents(kept.list(now=before)) == ["Bob likes tea.", "Alice likes tea.", "Alice lives in Porto."]
    assert [header.id for header in kept.headers(1, now=before)] == [ALICE[2].memory_id]
    assert str(kept.get(own, now=before)) == "⁍ Alice lives in Porto."
    assert (kept.get(f"{own}#2", now=before), kept.get(later.memory_id, now=before)) == (None, None)
    assert contents(kept.history(own, now=before)) == ["Alice lives in Porto."]
    assert not kept.list(now=MONDAY - timedelta(days=1))
    for now in (None, NIGHT):
        assert str(kept.get(own, now=now)) == "⁍ Alice lives in Faro."
        assert len(kept.list(now=now)) == 4
    with pytest.raises(InputError, match=r"now .* has no time zone"):
        kept.list(now=NIGHT.replace(tzinfo=None))


def test_history_and_explain_return_versions_and_events(kept: DurableMemories, tmp_path: Path) -> None:
    own = ALICE[0].memory_id
    lake = Lake(str(tmp_path))
    write(lake, event(MemoryVerb.UPDATE, NIGHT, own, content="Alice lives in Faro.", editor="anna"))
    write(lake, event(MemoryVerb.BOOST, NIGHT + timedelta(minutes=1), own, reason="it matters"))
    memory = kept.get(own)
    assert memory is not None
    assert (memory.content, memory.version, memory.editor, memory.importance) == (
        "Alice lives in Faro.", 2, "anna", 0.6,
    )  # fmt: skip
    assert contents(kept.history(own)) == ["Alice lives in Porto.", "Alice lives in Faro."]
    first = kept.get(f"{own}#1")
    assert first is not None
    assert first.content == "Alice lives in Porto."
    assert kept.get(f"{own}#3") is None
    told = kept.explain(own)
    assert [(one.verb, one.reason) for one in told] == [("REMEMBER", None), ("UPDATE", None), ("BOOST", "it matters")]


def test_a_memory_that_is_said_again_in_another_hour_is_explained_by_both_events(
    kept: DurableMemories, tmp_path: Path
) -> None:
    again = remember("ALICE lives in Porto", NIGHT, subject="Alice", predicate="lives_in", object="Porto")
    write(Lake(str(tmp_path)), again)
    expected = [ALICE[0].id, again.id]
    assert [one.id for one in kept.explain(ALICE[0].memory_id)] == expected
    assert [one.id for one in kept.explain(again.memory_id)] == expected
    land(Lake(str(tmp_path)), *ALICE, again)
    assert [one.id for one in kept.explain(ALICE[0].memory_id)] == expected


def test_a_merged_memory_is_explained_by_all_its_events(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    merge = event(
        MemoryVerb.MERGE, NIGHT, ALICE[1].memory_id, ALICE[2].memory_id, editor="consolidation", reason="alike"
    )
    land(lake, *ALICE, consolidation=[merge])
    kept = kept_in(lake)
    assert kept.resolved(ALICE[2].memory_id) == ALICE[1].memory_id
    assert [one.id for one in kept.explain(ALICE[1].memory_id)] == [ALICE[1].id, ALICE[2].id, merge.id]
    old = kept.get(ALICE[2].memory_id)
    assert old is not None
    assert (old.status, old.superseded_by) == ("superseded", ALICE[1].memory_id)
    assert contents(kept.list(status="superseded")) == ["Bob likes tea."]


HALF = pytest.mark.parametrize("kept", ["half"], indirect=True)


@HALF
def test_an_invalid_id_is_named(kept: DurableMemories) -> None:
    invalid: list[Any] = [
        None, 5, "", "x", "../../etc/passwd", "memory:2024-01-15T08:" + "g" * 32, "memory:2024-01-15T08:" + "0" * 31,
        "message:2024-01-15T08:" + "0" * 32, "memory:2024-01-15T08:" + "0" * 32 + "#x", "memory:' OR 1=1 --", "\ud800",
        "memory:2024-01-15T08:" + "0" * 32 + "\n", "memory:" * 1_000,
    ]  # fmt: skip
    for value in invalid:
        for ask in (kept.get, kept.history, kept.explain, kept.resolved):
            with pytest.raises(InputError, match="id "):
                ask(value)


@HALF
def test_an_unknown_id_finds_nothing(kept: DurableMemories) -> None:
    unknown = "memory:2024-01-15T08:" + "0" * 32
    assert (kept.get(unknown), kept.history(unknown), kept.explain(unknown)) == (None, (), [])
    assert kept.get(f"{unknown}#1") is None
    assert kept.resolved(unknown) == unknown


@HALF
def test_an_invalid_filter_is_named(kept: DurableMemories) -> None:
    invalid: list[tuple[str, Any]] = [
        ("kind", "fiction"), ("kind", 5), ("status", "gone"), ("status", []), ("subject", ""), ("subject", 5),
        ("subject", "x" * 10_000), ("predicate", "\ud800"), ("tag", " "), ("limit", 0), ("limit", True),
        ("limit", 10**9), ("user_id", ["anna"]), ("object", b"tea"),
    ]  # fmt: skip
    for name, value in invalid:
        with pytest.raises(InputError, match=name):
            kept.list(**{name: value})


@HALF
def test_hostile_texts_find_nothing_and_break_nothing(kept: DurableMemories) -> None:
    for text in ("' OR 1=1 --", "../..", "\x00", "%", "Alice\n", "*"):
        assert kept.about(text) in ([], kept.about("Alice"))
        assert kept.list(tag=text) == []
        assert kept.preferences(text) == {}
