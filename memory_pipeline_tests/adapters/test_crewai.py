"""The storage of CrewAI's memory. `dev` leaves CrewAI out: it needs 120 libraries, and old ones."""

from __future__ import annotations

import asyncio
import zlib
from datetime import datetime
from typing import Any

import pytest

from memory_pipeline import Memory

pytest.importorskip("crewai.memory", reason="CrewAI is not installed")

import crewai
from crewai.memory.storage.backend import StorageBackend
from crewai.memory.types import MemoryRecord

from memory_pipeline.adapters.crewai import MemoryStorage
from memory_pipeline.errors import InputError

WORDS = 64


def embed(texts: list[str]) -> list[list[float]]:
    """Return a vector for each text that counts its words."""
    return [
        [
            float(sum(zlib.crc32(word.encode()) % WORDS == place for word in text.lower().split()))
            for place in range(WORDS)
        ]
        for text in texts
    ]


def record(text: str, scope: str = "/", **more: Any) -> MemoryRecord:
    return MemoryRecord(content=text, scope=scope, embedding=embed([text])[0], **more)


@pytest.fixture
def storage(root: str) -> MemoryStorage:
    return MemoryStorage(Memory(root, user_id="anna"))


def test_crewais_memory_remembers_recalls_and_forgets_with_it(root: str) -> None:
    def opened(user_id: str) -> crewai.Memory:
        return crewai.Memory(storage=MemoryStorage(Memory(root, user_id=user_id)), embedder=embed)

    memory = opened("anna")
    given: Any = {"categories": ["home"], "importance": 0.5, "metadata": {"sure": True}}
    for text, scope in (("anna lives in porto", "/family"), ("the depot closes at six", "/work/depot")):
        memory.remember(text, scope=scope, **given)
    memory.drain_writes()
    found = opened("anna").recall("when closes the depot", depth="shallow", limit=1)
    assert [(one.record.content, one.record.scope) for one in found] == [("the depot closes at six", "/work/depot")]
    assert opened("ben").recall("when closes the depot", depth="shallow") == []
    assert memory.list_scopes() == ["/family", "/work"]
    assert memory.forget(scope="/work") == 1
    assert [one.content for one in memory.list_records()] == ["anna lives in porto"]
    memory.reset()
    assert memory.list_records() == []


def test_it_is_a_storage_of_crewai(storage: MemoryStorage) -> None:
    assert isinstance(storage, StorageBackend)
    records = [
        record("one two", "/a/b", categories=["x"], metadata={"n": 1}),
        record("one three", "/a", categories=["x", "y"], metadata={"n": 2}),
        record("four", "/ab"),
    ]
    for number, one in enumerate(records):
        one.created_at = datetime(2026, 3, 2 + number)  # noqa: DTZ001  # as CrewAI's own
    asyncio.run(storage.asave(records))
    query = embed(["one two"])[0]
    found = storage.search(query)
    assert [(one.content, round(score, 2)) for one, score in found][:2] == [("one two", 1.0), ("one three", 0.5)]
    assert [one.content for one, _ in storage.search(query, "/a/b")] == ["one two"]
    assert [one.content for one, _ in storage.search(query, categories=["y"])] == ["one three"]
    assert [one.content for one, _ in storage.search(query, metadata_filter={"n": 1})] == ["one two"]
    assert [one.content for one, _ in storage.search(query, min_score=0.9)] == ["one two"]
    assert [one.content for one, _ in asyncio.run(storage.asearch(query, limit=1))] == ["one two"]
    assert storage.search(embed(["one two"])[0][:10]) == []
    assert storage.get_record(records[1].id) == records[1].model_copy(
        update={"embedding": storage.list_records("/a")[0].embedding}
    )
    assert storage.get_record("unknown") is None
    assert [one.content for one in storage.list_records("/a")] == ["one three", "one two"]
    assert [one.content for one in storage.list_records(limit=1, offset=1)] == ["one three"]
    assert (storage.count(), storage.count("/a"), storage.count("/a/")) == (3, 2, 2)
    assert (storage.list_scopes(), storage.list_scopes("/a")) == (["/a", "/ab"], ["/a/b"])
    assert storage.list_categories() == {"x": 2, "y": 1}
    info = storage.get_scope_info("/a/")
    assert (info.path, info.record_count, info.categories, info.child_scopes) == ("/a", 2, ["x", "y"], ["/a/b"])
    assert (info.oldest_record, info.newest_record) == (records[0].created_at, records[1].created_at)
    storage.update(records[2].model_copy(update={"content": "five", "embedding": embed(["five"])[0]}))
    assert [one.content for one in storage.list_records("/ab")] == ["five"]
    assert storage.delete(record_ids=["unknown"]) == 0
    assert storage.delete(older_than=records[1].created_at) == 1
    assert asyncio.run(storage.adelete(categories=["y"])) == 1
    storage.reset("/a")
    assert storage.count() == 1


def test_records_are_memories_of_their_user(storage: MemoryStorage, root: str) -> None:
    storage.save([record("Anna is allergic to nuts.")])
    memory = Memory(root, user_id="anna")
    [entry] = memory.contexts.entries("crewai")
    assert (entry.content, entry.source_type) == ("Anna is allergic to nuts.", "assistant")
    assert memory.contexts.search("crewai", "What is Anna allergic to?")[0].memory.id == entry.id
    with pytest.raises(InputError, match="20,000"):
        storage.save([record("x" * 20_001)])
    memory.forget(everything=True)
    assert MemoryStorage(Memory(root, user_id="anna")).count() == 0
