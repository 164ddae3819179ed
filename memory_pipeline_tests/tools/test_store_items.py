"""Items that clients put into the LangGraph store."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, Op, PutOp, SearchOp

from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, verify
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.tools.langgraph import MemoryStore
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, NOW, PROCESSES, START, conversation, run, write
from memory_pipeline_tests.tools.remembering import SALES, clock

AGENT: dict[str, Any] = {"workspace_id": "acme", "agent_id": "support"}
ANNA, BEN = ("memories", "anna"), ("memories", "ben")


def store_on(root: str, user_id: str | None = None, **options: Any) -> MemoryStore:
    reader = MemoryReader.open(root, **AGENT, user_id=user_id, embedder=default_models().embedder)
    return MemoryStore(reader, MemoryWriter.open(root, **AGENT, user_id=user_id), **options)


@pytest.fixture
def store(root: str) -> MemoryStore:
    return store_on(root)


def value_of(store: MemoryStore, namespace: tuple[str, ...], key: str) -> dict[str, Any] | None:
    item = store.get(namespace, key)
    return None if item is None else item.value


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


# Putting, getting, deleting


def test_a_put_replaces_the_item_with_the_same_key(store: MemoryStore, root: str) -> None:
    store.put(ANNA, "home", {"text": "Anna lives in Porto."})
    first = store.get(ANNA, "home")
    store.put(ANNA, "home", {"text": "Anna lives in Lisbon."})
    second = store_on(root).get(ANNA, "home")
    assert first is not None
    assert second is not None
    assert (second.namespace, second.key, second.value) == (ANNA, "home", {"text": "Anna lives in Lisbon."})
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert keys(store.search(ANNA)) == ["home"]
    assert store.get(ANNA, "work") is None
    assert store.get((*ANNA, "deeper"), "home") is None


def test_a_deleted_item_is_gone_and_can_be_put_again(store: MemoryStore) -> None:
    store.put(("docs",), "a", {"text": "first"})
    store.delete(("docs",), "a")
    store.delete(("docs",), "never there")
    assert store.get(("docs",), "a") is None
    assert store.search(("docs",)) == []
    assert store.search(("docs",), query="first") == []
    assert store.list_namespaces() == []
    store.put(("docs",), "a", {"text": "second"})
    assert value_of(store, ("docs",), "a") == {"text": "second"}
    store.batch([PutOp(("docs",), "a", None)])
    assert store.get(("docs",), "a") is None


VALUES: list[dict[str, Any]] = [
    {},
    {"": None, "a.b": {"$gt": [1, 2.5, -0.0, 1e300, 10**30, True]}, "é\u0085\x00\n": "\u202e<b>\\ud800 \"'", "z": [[]]},
    {"text": "  spaces  stay \n"},
    {"text": "<recalled-memory 000000000000>\nAnna likes tea.\n</recalled-memory 000000000000>"},
    {"text": "x" * 19_900},
]


def test_any_json_comes_back_as_it_was_put(root: str) -> None:
    lake, store = Lake(root), store_on(root, now=clock(NOW))
    values = {f"k{number}": json.dumps(value) for number, value in enumerate(VALUES)}
    for key, value in zip(values, VALUES, strict=True):
        store.put(("docs",), key, value)
    assert {key: json.dumps(value_of(store, ("docs",), key)) for key in values} == values
    run(lake, default_models())
    consolidate(lake, default_models(), pending_days(lake, START, NOW + timedelta(days=2)), START)
    assert {key: json.dumps(value_of(store_on(root), ("docs",), key)) for key in values} == values
    found = store_on(root).search(("docs",), query="tea")
    assert {item.key: json.dumps(item.value) for item in found} == values


def test_values_that_are_no_json_or_too_long_are_refused(store: MemoryStore) -> None:
    deep: dict[str, Any] = {}
    for _ in range(2_000):
        deep = {"in": deep}
    for value, message in [
        (
            {"text": "x" * 1_000_000},
            r"value of 'k' in .*docs.* has 1,000,012 characters as JSON; expected at most 20,000",
        ),
        ({"n": float("nan")}, "expected a JSON value"),
        ({"n": object()}, "expected a JSON value"),
        ({"n": "\ud800"}, "value of 'k' .* is not valid Unicode"),
        (deep, "nested"),
        (["a"], "expected a mapping"),
    ]:
        with pytest.raises(InputError, match=message):
            store.put(("docs",), "k", value)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="nested"):
        store.batch([PutOp(("docs",), "good", {"a": 1}), PutOp(ANNA, "bad", deep)])
    assert store.search(()) == []


@pytest.mark.parametrize(
    "key",
    ["a", "../../etc/passwd", "key with blanks", "'; DROP TABLE items", "k" * 256, "ключ", "*", "a.b", "{user_id}"],
)
def test_keys_are_opaque(store: MemoryStore, key: str) -> None:
    namespace = ("docs", "'/\\*%_", "ümlaut {x}")
    store.put(namespace, key, {"n": 1})
    [item] = store.search(())
    assert (item.namespace, item.key) == (namespace, key)
    assert value_of(store, namespace, key) == {"n": 1}
    assert store.list_namespaces() == [namespace]
    assert value_of(store, namespace[:2], key) is None


def test_invalid_namespaces_and_keys_are_refused(store: MemoryStore) -> None:
    for namespace in [(), ("a.b",), ("",), ("langgraph", "x")]:
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "k", {"n": 1})
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("a.b",), "k", {"n": 1})])
    for namespace, key in [
        (("docs",), ""), (("docs",), " k"), (("docs",), "a  b"), (("docs",), "a\nb"), (("docs",), "k" * 257),
        (("d" * 247,), "k"), (("do\ncs",), "k"), (("memories", " "), "k"),
    ]:  # fmt: skip
        with pytest.raises(InputError):
            store.put(namespace, key, {"n": 1})
        assert store.get(namespace, key) is None if namespace != ("memories", " ") else True
    with pytest.raises(NotImplementedError, match="ttl 5"):
        store.batch([PutOp(("docs",), "k", {"n": 1}, ttl=5)])
    for namespace in [("working",), ("durable", "x"), (*ANNA, "daily")]:
        with pytest.raises(InputError, match="is read-only"):
            store.put(namespace, "k", {"n": 1})


# Searching and listing


@pytest.fixture
def filled(store: MemoryStore) -> MemoryStore:
    items: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
        ("tea", ("notes", "kitchen"), {"text": "Green tea brews for two minutes.", "rank": 3, "by": {"name": "Ada"}}),
        ("oven", ("notes", "kitchen"), {"text": "The oven needs a new door.", "rank": 1, "by": {"name": "Bo", "n": 2}}),
        ("lock", ("notes", "door"), {"text": "The lock of the door sticks.", "rank": 2, "tags": ["a", "b"]}),
        ("other", ("notebook",), {"text": "Not below notes."}),
    ]
    for key, namespace, value in items:
        store.put(namespace, key, value)
    return store


def test_a_prefix_is_of_whole_labels(filled: MemoryStore) -> None:
    assert keys(filled.search(("notes",))) == ["lock", "oven", "tea"]
    assert keys(filled.search(("notes", "kitchen"))) == ["oven", "tea"]
    assert keys(filled.search(())) == ["other", "lock", "oven", "tea"]
    assert filled.search(("note",)) == filled.search(("kitchen",)) == []


def test_a_query_finds_the_best_item_first(filled: MemoryStore) -> None:
    found = filled.search(("notes",), query="How long does green tea take?")
    assert keys(found)[0] == "tea"
    assert len(found) == 3
    scores = [item.score or 0.0 for item in found]
    assert scores == sorted(scores, reverse=True)
    pages = [filled.search(("notes",), query="door", limit=1, offset=offset) for offset in range(4)]
    assert [key for page in pages for key in keys(page)] == keys(filled.search(("notes",), query="door"))


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"rank": 2}, ["lock"]),
        ({"rank": {"$gte": 2}}, ["lock", "tea"]),
        ({"rank": {"$gt": 1, "$lt": 3}}, ["lock"]),
        ({"rank": {"$ne": 2}}, ["oven", "tea"]),
        ({"by": {"name": "Bo"}}, ["oven"]),
        ({"by": {"n": {"$lte": 2}}}, ["oven"]),
        ({"tags": ["a", "b"]}, ["lock"]),
        ({"tags": ["a"]}, []),
        ({"missing": None}, ["lock", "oven", "tea"]),
    ],
)
def test_filters_are_on_the_fields_of_the_value(filled: MemoryStore, wish: dict[str, Any], expected: list[str]) -> None:
    assert keys(filled.search(("notes",), filter=wish)) == expected
    assert sorted(keys(filled.search(("notes",), filter=wish, query="door"))) == expected
    assert keys(filled.search(("notes",), filter=wish, limit=1)) == expected[:1]


def test_only_indexed_fields_are_compared(root: str) -> None:
    store = store_on(root, fields=["text"])
    store.put(("docs",), "default", {"text": "about boats", "note": "zeppelin"})
    store.put(("docs",), "named", {"text": "about trains", "parts": [{"note": "zeppelin"}]}, index=["parts[*].note"])
    store.put(("docs",), "never", {"text": "zeppelin zeppelin"}, index=False)
    found = store.search(("docs",), query="zeppelin")
    assert keys(found) == ["named", "default", "never"]
    assert (found[0].score or 0) > (found[1].score or 0)
    assert found[2].score is None
    store.put(("docs",), "never", {"text": "zeppelin zeppelin"})
    assert store.search(("docs",), query="zeppelin")[0].key == "never"


def test_searches_go_through_all_items(store: MemoryStore) -> None:
    store.batch([PutOp(("many", str(n % 2)), f"k{n}", {"text": f"book {n}", "n": n}) for n in range(250)])
    for query in (None, "book"):
        assert len({item.key for item in store.search(("many",), query=query, limit=1_000)}) == 250
        assert keys(store.search(("many", "1"), query=query, filter={"n": {"$lt": 2}})) == ["k1"]


def test_namespaces_are_listed(filled: MemoryStore) -> None:
    every = [("notebook",), ("notes", "door"), ("notes", "kitchen")]
    assert filled.list_namespaces() == every
    assert filled.list_namespaces(prefix=("notes",)) == every[1:]
    assert filled.list_namespaces(suffix=("kitchen",)) == every[2:]
    assert filled.list_namespaces(prefix=("*", "door")) == [("notes", "door")]
    assert filled.list_namespaces(max_depth=1) == [("notebook",), ("notes",)]
    assert filled.list_namespaces(limit=1, offset=1) == every[1:2]


# Batches


def test_reads_of_a_batch_come_before_its_puts(store: MemoryStore) -> None:
    store.put(("docs",), "a", {"n": 0})
    operations: list[Op] = [
        PutOp(("docs",), "a", {"n": 1}),
        GetOp(("docs",), "a"),
        PutOp(("docs",), "a", {"n": 2}),
        PutOp(("docs",), "b", {"n": 3}),
        SearchOp(("docs",)),
        PutOp(ANNA, "b", {"n": 4}),
        PutOp(("docs",), "c", None),
    ]
    answers: list[Any] = asyncio.run(store.abatch(operations))
    assert answers[1].value == {"n": 0}
    assert keys(answers[4]) == ["a"]
    assert [answers[place] for place in (0, 2, 3, 5, 6)] == [None] * 5
    found = [value_of(store, ("docs",), "a"), value_of(store, ("docs",), "b"), value_of(store, ANNA, "b")]
    assert found == [{"n": 2}, {"n": 3}, {"n": 4}]


def test_async_methods_do_the_same(store: MemoryStore) -> None:
    async def use() -> Any:
        await asyncio.gather(*(store.aput(("docs",), f"k{n}", {"n": n}) for n in range(8)))
        await store.adelete(("docs",), "k0")
        return await store.aget(("docs",), "k1"), await store.asearch(("docs",)), await store.alist_namespaces()

    item, found, namespaces = asyncio.run(use())
    assert (item.value, len(found), namespaces) == ({"n": 1}, 7, [("docs",)])


# Users


def test_one_user_does_not_reach_the_items_of_another(store: MemoryStore, root: str) -> None:
    store.put(ANNA, "pin", {"text": "Anna's PIN is 1111."})
    store.put((*BEN, "work"), "pin", {"text": "Ben's PIN is 2222."})
    assert keys(store.search(BEN, query="PIN")) == ["pin"]
    assert value_of(store, BEN, "pin") is None
    for namespace in [(), ("memories",), ("memories", "*")]:
        assert store.search(namespace, query="PIN") == []
        assert store.list_namespaces(prefix=namespace or None) == []
    assert store.list_namespaces(prefix=BEN) == [(*BEN, "work")]
    own = store_on(root, "anna")
    for reach in (
        lambda: own.get(BEN, "pin"),
        lambda: own.search(BEN),
        lambda: own.put(BEN, "pin", {"text": "0"}),
        lambda: own.list_namespaces(prefix=BEN),
    ):
        with pytest.raises(InputError, match="anna"):
            reach()
    assert value_of(own, ANNA, "pin") == {"text": "Anna's PIN is 1111."}
    sales = MemoryReader(Lake(root), SALES, default_models().embedder)
    assert MemoryStore(sales).search(ANNA, query="PIN") == []


def test_a_store_of_a_user_writes_to_that_users_memory(store: MemoryStore, root: str) -> None:
    store.put(("docs",), "opening", {"text": "nine"})
    anna, ben = store_on(root, "anna"), store_on(root, "ben")
    assert value_of(anna, ("docs",), "opening") == {"text": "nine"}
    anna.put(("docs",), "opening", {"text": "ten"})
    assert value_of(anna, ("docs",), "opening") == {"text": "ten"}
    assert [item.value for item in anna.search(("docs",), query="opening")] == [{"text": "ten"}]
    assert value_of(ben, ("docs",), "opening") == value_of(store, ("docs",), "opening") == {"text": "nine"}
    ben.delete(("docs",), "opening")
    assert value_of(ben, ("docs",), "opening") == {"text": "nine"}  # it is the agent's, which a user cannot change


def test_the_template_of_users_can_be_chosen(root: str) -> None:
    store = store_on(root, users=("users", "{user_id}", "notes"))
    store.put(("users", "anna", "notes"), "k", {"n": 1})
    store.put(("users", "anna"), "k", {"n": 2})
    assert value_of(store_on(root, "anna", users=("users", "{user_id}", "notes")), ("users", "anna", "notes"), "k")
    assert [item.value for item in store.search(())] == [{"n": 2}]
    for users in ((), ("users",), ("{user_id}", "{user_id}"), "{user_id}"):
        with pytest.raises(InputError, match="users"):
            store_on(root, users=users)


def test_a_reader_and_a_writer_of_different_users_are_refused(root: str) -> None:
    with pytest.raises(InputError, match="open both for the same agent and user"):
        MemoryStore(MemoryReader.open(root, **AGENT), MemoryWriter.open(root, **AGENT, user_id="anna"))


def test_items_of_an_erased_user_are_gone_from_every_byte(root: str) -> None:
    lake, store = Lake(root), store_on(root, now=clock(NOW))
    store.put(ANNA, "pin", {"text": "The zanzibar code is 1111."})
    run(lake, default_models())
    store.put(ANNA, "pin", {"text": "The zanzibar code is 2222."})
    store.put(BEN, "pin", {"text": "The code is 3333."})
    receipt = forget(lake, default_models(), Subject.user("acme", "anna"), NOW + timedelta(hours=1))
    result = verify(lake, receipt)
    assert not [*result.findings, *result.unsearched]
    left = store_on(root)
    assert left.search(ANNA) == left.list_namespaces(prefix=ANNA) == []
    assert value_of(left, BEN, "pin") == {"text": "The code is 3333."}
    assert not [path for path in Path(root).rglob("*") if path.is_file() and b"zanzibar" in path.read_bytes()]


# With the pipeline


def test_items_and_what_the_pipeline_made_stay_apart(root: str) -> None:
    lake = Lake(root)
    write(lake, conversation("I like tea.", conversation_id="c1"))
    store = store_on(root, now=clock(NOW))
    store.put(("docs",), "k", {"text": "Anna likes tea."})
    run(lake, default_models())
    store = store_on(root, now=clock(NOW), is_marked=False)
    assert keys(store.search((), query="tea")) == ["k"]
    assert len(store.search(("working",), query="tea")) == 1
    assert not [item for item in store.search(("durable",)) if item.value["content"] == "Anna likes tea."]
    assert {("docs",), ("working",)} <= set(store.list_namespaces())
    reader = MemoryReader(lake, ACME, default_models().embedder)
    assert "docs" in {item.namespace[0] for item in MemoryStore(reader, now=clock(NOW)).search((), query="tea")}
    [memory] = [one for one in reader.memories.list() if one.key == "k"]
    assert (memory.content, memory.temperature.value) == ("Anna likes tea.", "warm")
    assert reader.get(memory.id) is not None


def test_items_can_be_read_as_they_were(store: MemoryStore, root: str) -> None:
    for days, text in ((0, "first"), (1, "second")):
        store_on(root, now=clock(NOW - timedelta(days=3 - days))).put(("docs",), "k", {"text": text})
    store_on(root, now=clock(NOW - timedelta(days=1))).delete(("docs",), "k")
    seen = [store_on(root, now=clock(NOW - timedelta(days=3 - days, hours=-1))) for days in range(3)]
    assert [value_of(one, ("docs",), "k") for one in seen] == [{"text": "first"}, {"text": "second"}, None]
    assert [len(one.search(("docs",))) for one in seen] == [1, 1, 0]


# Several processes, S3


def _put_many(root: str, writer: int, count: int) -> None:
    store = store_on(root)
    for number in range(count):
        store.put(ANNA, "shared", {"writer": writer, "number": number})
        store.put(ANNA, f"own-{writer}-{number}", {"n": number})


def test_two_processes_write_the_same_key(root: str) -> None:
    workers = [PROCESSES.Process(target=_put_many, args=(root, writer, 5)) for writer in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    store = store_on(root)
    assert len(store.search(ANNA, limit=100)) == 11
    last = store.get(ANNA, "shared")
    assert last is not None
    assert last.value["number"] == 4


def test_items_on_s3(s3_root: str) -> None:
    store = store_on(s3_root)
    store.put(ANNA, "home", {"text": "Anna lives in Porto."})
    store.put(ANNA, "home", {"text": "Anna lives in Lisbon."})
    other = store_on(s3_root)
    assert value_of(other, ANNA, "home") == {"text": "Anna lives in Lisbon."}
    assert keys(other.search(ANNA, query="Where does Anna live?")) == ["home"]
    other.delete(ANNA, "home")
    assert store.search(ANNA) == []
