"""The read-only store for LangGraph."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.text.recalled_text import mark, without_recalled
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.tools.langgraph import MemoryStore
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, conversation, run, write
from memory_pipeline_tests.tools.remembering import SALES, SOON, clock

SUMMARIES = ["daily", "weekly", "monthly"]


def store_on(root: str, scope: Scope = ACME, **options: Any) -> MemoryStore:
    reader = MemoryReader(Lake(root), scope, default_models().embedder)
    return MemoryStore(reader, now=clock(), **{"is_marked": False, **options})


@pytest.fixture(scope="module")
def store(remembered: str) -> MemoryStore:
    return store_on(remembered)


@pytest.fixture
def graph(root: str) -> MemoryStore:
    writer = MemoryWriter(Lake(root), ACME)
    writer.graph.insert("Anna", "lives_in", "Porto", now=SOON - timedelta(days=2))
    writer.graph.insert("Anna", "likes", "tea", confidence=0.6, now=SOON - timedelta(days=1))
    return store_on(root)


def contents(items: Any) -> list[str]:
    return [item.value["content"] for item in items]


def test_the_adapter_is_a_langgraph_store(store: MemoryStore) -> None:
    assert isinstance(store, BaseStore)
    assert not store.supports_ttl


# Searching


def test_a_query_finds_the_best_first(store: MemoryStore) -> None:
    items = store.search(("working",), query="Where does Anna live?", limit=2)
    assert items[0].value["content"] == "Anna: I live in Lisbon now."
    assert items[0].namespace == ("working",)
    scores = [item.score for item in items if item.score is not None]
    assert len(scores) == 2
    assert scores[0] >= scores[1]


def test_without_a_query_the_newest_are_first(store: MemoryStore) -> None:
    items = store.search(("working",))
    assert [item.created_at for item in items] == sorted((item.created_at for item in items), reverse=True)
    assert {item.score for item in items} == {None}
    assert len(items) == 5


def test_values_are_json_with_grain_period_and_sources(store: MemoryStore) -> None:
    [item] = store.search(("working",), query="passport", limit=1)
    assert json.loads(json.dumps(item.dict()))["value"] == item.value
    assert item.value == {
        "content": "Anna: Bruno ate my passport.",
        "grain": "working",
        "period": "2024-01-31T08",
        "date": "2024-01-31",
        "kind": item.value["kind"],
        "conversation_id": "c2",
        "source_ids": item.value["source_ids"],
        "starts_at": "2024-01-31T08:00:00+00:00",
        "ends_at": "2024-01-31T08:00:00+00:00",
    }
    assert item.key.startswith("working:2024-01-31T08:")


@pytest.mark.parametrize("name", ["working", *SUMMARIES])
def test_search_results_can_be_got_by_key(store: MemoryStore, name: str) -> None:
    for query in (None, "What about Bruno, tea, Maria and Porto?"):
        found = store.search((name,), query=query, limit=50)
        assert found
        for item in found:
            got = store.get((name,), item.key)
            assert got is not None
            assert got.dict() == {key: value for key, value in item.dict().items() if key != "score"}


@pytest.mark.parametrize("query", [None, "Bruno and tea"])
def test_pages_make_up_the_whole(store: MemoryStore, query: str | None) -> None:
    whole = store.search(("working",), query=query, limit=100)
    pages = [store.search(("working",), query=query, limit=2, offset=offset) for offset in range(0, 6, 2)]
    assert [item.key for page in pages for item in page] == [item.key for item in whole]
    assert store.search(("working",), query=query, offset=5) == []
    assert store.search(("working",), query=query, limit=0) == []


def test_limits_above_a_readers_maximum_are_supported(root: str) -> None:
    write(Lake(root), *(conversation(f"I bought book {n}.", conversation_id=f"c{n}") for n in range(250)))
    store = store_on(root)
    assert len(store.search(("working",), limit=1_000)) == 250
    assert len({item.key for item in store.search(("working",), limit=1_000, query="book")}) == 250
    late = store.search(("working",), limit=3, filter={"content": {"$gte": "Anna: I bought book 97."}})
    assert len(late) == 3


def test_the_empty_prefix_searches_everything(store: MemoryStore) -> None:
    found = store.search((), query="passport", limit=100)
    assert {item.namespace[0] for item in found} >= {"working", *SUMMARIES}
    scores = [item.score for item in found if item.score is not None]
    assert scores == sorted(scores, reverse=True)
    assert store.search(("working", "deeper")) == []
    assert store.search(("unknown",)) == []


@pytest.mark.parametrize(
    ("wish", "count"),
    [
        ({"conversation_id": "c1"}, 2),
        ({"conversation_id": {"$ne": "c1"}}, 3),
        ({"conversation_id": "c1", "date": "2024-01-15"}, 2),
        ({"date": {"$gte": "2024-01-31", "$lt": "2024-03-01"}}, 1),
        ({"date": {"$gt": "2024-01-31"}}, 2),
        ({"date": {"$lte": "2024-01-15"}}, 2),
        ({"content": {"$eq": "Anna: Bruno ate my passport."}}, 1),
        ({"grain": "daily"}, 0),
        ({"nothing": "of it"}, 0),
        ({"nothing": {"$gt": 3}}, 0),
        ({"kind": "turn"}, 5),
        ({}, 5),
    ],
)
def test_filters_are_applied_before_the_limit(store: MemoryStore, wish: dict[str, Any], count: int) -> None:
    found = store.search(("working",), filter=wish, limit=100)
    assert len(found) == count
    first = store.search(("working",), filter=wish, limit=1)
    assert [item.key for item in first] == [item.key for item in found[:1]]


def test_invalid_filters_are_refused(store: MemoryStore) -> None:
    with pytest.raises(InputError, match=r"operator '\$near' is unknown; accepted: \$eq"):
        store.search(("working",), filter={"date": {"$near": 1}})
    with pytest.raises(InputError, match="cannot be compared"):
        store.search(("working",), filter={"date": {"$gt": 1}})
    with pytest.raises(InputError, match="offset -1"):
        store.search(("working",), offset=-1)
    with pytest.raises(InputError, match="query"):
        store.search(("working",), query="x" * 20_000)


# The graph


def test_facts_of_the_graph_are_items_too(graph: MemoryStore) -> None:
    items = graph.search(("graph",))
    assert contents(items) == ["Anna likes tea (since 2024-03-01)", "Anna lives_in Porto (since 2024-02-29)"]
    assert items[0].value["confidence"] == 0.6
    assert (items[0].value["subject"], items[0].value["predicate"], items[0].value["object"]) == (
        "Anna", "likes", "tea",
    )  # fmt: skip
    got = graph.get(("graph",), items[0].key)
    assert got is not None
    assert got.value == items[0].value
    [found] = graph.search(("graph",), query="Where does Anna live?", limit=1)
    assert found.score is not None
    assert contents(graph.search(("graph",), filter={"predicate": "likes"})) == [contents(items)[0]]


# Getting


def test_unknown_keys_return_none(store: MemoryStore) -> None:
    [item] = store.search(("working",), limit=1)
    for namespace, key in [
        (("daily",), item.key),
        (("working",), item.key[:-1] + ("0" if item.key[-1] != "0" else "1")),
        (("working",), "../../etc/passwd"),
        (("working",), ""),
        (("working",), item.value["source_ids"][0]),
        (("unknown",), item.key),
        (("working", "deeper"), item.key),
        (("graph",), "graph:2024-01-15T08:" + "0" * 32),
    ]:
        assert store.get(namespace, key) is None


def test_every_fact_of_a_message_can_be_got(root: str) -> None:
    write(Lake(root), conversation("I like tea. I hate coffee. I love figs. I live in Porto."))
    for _ in range(2):  # in the journal, and loaded
        store = store_on(root)
        for query in ("tea", "coffee", "figs", "Porto"):
            [item] = store.search(("working",), query=query, limit=1)
            assert store.get(("working",), item.key) is not None
        run(Lake(root), default_models())


@pytest.mark.parametrize("rows", [0, 100_000])
def test_get_returns_the_same_from_cache_and_disk(remembered: str, rows: int) -> None:
    reader = MemoryReader(Lake(remembered), ACME, default_models().embedder, resident_rows=rows)
    store = MemoryStore(reader, now=clock(), is_marked=False)
    for name in ("working", "daily"):
        found = store.search((name,), query="What about Bruno, tea and Maria?")
        assert found
        assert [got.value for item in found if (got := store.get((name,), item.key))] == [item.value for item in found]


# Namespaces


def test_namespaces_with_items_are_listed(store: MemoryStore, graph: MemoryStore) -> None:
    assert {("working",), *((name,) for name in SUMMARIES)} <= set(store.list_namespaces())
    assert store.list_namespaces() == sorted(store.list_namespaces())
    assert graph.list_namespaces() == [("graph",)]
    assert store.list_namespaces(prefix=("weekly",)) == [("weekly",)]
    assert store.list_namespaces(suffix=("weekly",)) == [("weekly",)]
    assert store.list_namespaces(prefix=("*",)) == store.list_namespaces()
    assert store.list_namespaces(prefix=("weekly", "*")) == []
    assert store.list_namespaces(limit=1, offset=1) == store.list_namespaces()[1:2]
    assert store.list_namespaces(max_depth=1) == store.list_namespaces()


def test_an_empty_memory_is_an_empty_store(root: str) -> None:
    store = store_on(root)
    assert store.list_namespaces() == []
    assert store.search(()) == []
    assert store.search((), query="Porto") == []


# Writing


def test_nothing_can_be_written(store: MemoryStore) -> None:
    before = store.search(())
    with pytest.raises(NotImplementedError, match=r"read-only; .*MemoryStore\(reader, writer\)"):
        store.put(("working",), "key", {"content": "x"})
    with pytest.raises(NotImplementedError, match="read-only"):
        store.delete(("working",), before[0].key)
    with pytest.raises(NotImplementedError, match="read-only"):
        store.batch([GetOp(("working",), before[0].key), PutOp(("working",), "key", None)])
    with pytest.raises(NotImplementedError, match="read-only"):
        asyncio.run(store.aput(("working",), "key", {"content": "x"}))
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(("working",), "key", {"content": "x"}, ttl=5)
    assert store.search(()) == before


# Batches


def test_a_batch_answers_in_its_order_in_both_ways(store: MemoryStore) -> None:
    [item] = store.search(("weekly",), limit=1)
    operations: list[Op] = [
        GetOp(("weekly",), item.key),
        SearchOp(("working",), query="Porto", limit=2),
        ListNamespacesOp(match_conditions=(MatchCondition("prefix", ("daily",)),)),
        GetOp(("weekly",), "nothing"),
    ]
    answers = store.batch(operations)
    assert [type(answer).__name__ for answer in answers] == ["Item", "list", "list", "NoneType"]
    assert asyncio.run(store.abatch(operations)) == answers
    assert store.batch([]) == []
    with pytest.raises(TypeError, match="unknown operation"):
        store.batch(["get"])  # type: ignore[list-item]
    with pytest.raises(InvalidNamespaceError):
        store.batch([SearchOp(("a.b",))])


def test_concurrent_searches_are_independent(store: MemoryStore) -> None:
    async def both() -> Any:
        return await asyncio.gather(*(store.asearch(("working",), query=query) for query in ["Porto", "tea"] * 5))

    answers = asyncio.run(both())
    for number, query in enumerate(["Porto", "tea"] * 5):
        assert answers[number] == store.search(("working",), query=query)


# Data, not instructions; one agent


def test_texts_are_marked_by_default(remembered: str, store: MemoryStore) -> None:
    marked = store_on(remembered, is_marked=True)
    for namespace in (("working",), ("daily",)):
        plain = store.search(namespace, limit=50)
        texts = contents(marked.search(namespace, limit=50))
        assert texts == [mark(text) for text in contents(plain)]
        assert {without_recalled(text) for text in texts} == {""}
    reader = MemoryReader(Lake(remembered), ACME, default_models().embedder)
    assert MemoryStore(reader, now=clock()).search(("working",)) == marked.search(("working",))


def test_another_agents_memory_is_out_of_reach(remembered: str, store: MemoryStore) -> None:
    sales = store_on(remembered, SALES)
    assert contents(sales.search(("working",))) == ["Omar: The rent is 900 euros."]
    for item in store.search((), limit=100):
        assert sales.get(item.namespace, item.key) is None


def test_without_the_extra_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['langgraph'] = None\n"
        "try:\n    import memory_pipeline.tools.langgraph\n"
        "except ImportError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "memory-pipeline[langgraph]"' in result.stdout


# Durable memories


@pytest.fixture
def keeping(root: str) -> MemoryStore:
    writer = MemoryWriter(Lake(root), ACME)
    writer.remember(
        "Anna lives in Porto.", subject="Anna", predicate="lives_in", object="Porto", now=SOON - timedelta(days=3)
    )
    writer.remember("Always answer in Portuguese.", "instruction", importance=0.9, now=SOON - timedelta(days=2))
    writer.forget(writer.remember("Anna likes tea.", now=SOON - timedelta(days=1)), now=SOON)
    return store_on(root)


def test_durable_memories_are_items(keeping: MemoryStore) -> None:
    items = keeping.search(("durable",))
    assert contents(items) == ["Always answer in Portuguese.", "Anna lives in Porto."]
    assert {item.score for item in items} == {None}
    value = items[1].value
    assert (value["kind"], value["object"], value["importance"], value["status"]) == ("fact", "Porto", 0.5, "active")
    assert value["warning"].startswith("last heard 3 days ago")
    assert items[0].value["warning"] is None
    assert json.loads(json.dumps(items[1].dict()))["value"] == value
    [found] = keeping.search(("durable",), query="Where does Anna live?", limit=1)
    assert found.score is not None
    assert found.value == value
    for item in items:
        got = keeping.get(("durable",), item.key)
        assert got is not None
        assert got.value == item.value
        assert keeping.get(("working",), item.key) is None
    assert contents(keeping.search(("durable",), filter={"kind": "instruction"})) == ["Always answer in Portuguese."]
    assert keeping.list_namespaces() == [("durable",)]


def test_revoked_memories_are_no_items(keeping: MemoryStore, root: str) -> None:
    [gone] = MemoryReader(Lake(root), ACME, default_models().embedder).memories.list(status="deprecated")
    for key in (gone.id, f"{gone.id}#1", "memory:2024-01-15T08:" + "0" * 32, "../../etc/passwd"):
        assert keeping.get(("durable",), key) is None


def test_filters_on_durable_memories_are_applied_before_the_limit(root: str) -> None:
    writer = MemoryWriter(Lake(root), ACME)
    told = [{"memory": "REMEMBER", "content": f"Anna has book {n}.", "tags": ["late"] * (n > 245)} for n in range(250)]
    writer.change_memories(told, now=SOON - timedelta(days=1))
    store = store_on(root)
    assert len(store.search(("durable",), query="book", limit=1_000)) == 250
    assert len(store.search(("durable",), query="book", filter={"tags": ["late"]}, limit=10)) == 4
