"""Collections: items are found by cosine, by their owner only, beside other writers."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.lake import CollectionStats, Lake, VectorCollection, VectorItem, VectorMatch
from memory_pipeline.lake.collections.collection import compact_collection
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index import maintenance
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import PROCESSES
from memory_pipeline_tests.effort import examples

ACME = Scope("acme", "support")
HOSTILE = ["it's", "' OR '1'='1", "x'); DROP TABLE a; --", "../a", "a..b", "a\nb", "a\x00", "", "x" * 257, "\ud800"]
#: Maximum error of a similarity, due to rounding.
NEAR = 2e-6

counter = itertools.count()
vectors = st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3).filter(any)
names = st.text("abcdefgh", min_size=1, max_size=2)


def opened(root: str, scope: Scope = ACME, dimension: int = 3, name: str = "default") -> VectorCollection:
    return VectorCollection(Lake(root), scope, dimension, name)


def many(count: int, word: str = "item") -> list[VectorItem]:
    return [VectorItem(f"{word}-{number}", [1, number, 2], f"content {number}") for number in range(count)]


def ids(collection: VectorCollection, **arguments: Any) -> list[str]:
    return [match.id for match in collection.search([1, 0, 0], **{"top_k": 1_000, **arguments})]


@pytest.fixture
def collection(root: str) -> VectorCollection:
    return opened(root)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], VectorCollection]:
    """Return a function that opens an unused collection, for properties."""
    root = str(tmp_path_factory.mktemp("lake"))
    return lambda: opened(root, name=f"c{next(counter)}")


@pytest.mark.on_s3(always=True)
def test_an_item_is_found_with_its_content_and_metadata(collection: VectorCollection) -> None:
    metadata = {"page": 3, "score": 0.5, "draft": False, "author": None, "title": 'it\'s "quoted"; --'}
    collection.upsert([VectorItem("docs/a.md", [2, 0, 0], "a text", metadata), VectorItem("b", np.array([0.0, 3, 0]))])
    assert collection.search([5, 0, 0]) == [
        VectorMatch("docs/a.md", 1.0, "a text", metadata),
        VectorMatch("b", 0.0, "", {}),
    ]
    assert collection.search(np.array([-1, 0, 0]), top_k=1) == [VectorMatch("b", 0.0, "", {})]
    assert collection.search([-1, 0, 0])[1].similarity == -1


def test_250_items_need_3_commits_each_time(root: str, collection: VectorCollection) -> None:
    assert collection.stats() == CollectionStats(items=0, dimension=3, bytes=0, versions=0)
    assert collection.upsert(many(250)) == 3
    stats = collection.stats()
    assert (stats.items, stats.dimension, stats.versions) == (250, 3, 1 + 3)  # creating the table is a commit, too
    assert stats.bytes > 250 * 3 * 4
    assert collection.upsert(many(250)) == 3
    assert (collection.stats().items, collection.stats().versions) == (250, 4 + 3)
    assert opened(root).stats() == collection.stats()


@pytest.mark.parametrize(("count", "commits"), [(0, 0), (1, 1), (99, 1), (100, 1), (101, 2), (200, 2), (201, 3)])
def test_a_commit_holds_100_items(collection: VectorCollection, count: int, commits: int) -> None:
    assert collection.upsert(iter(many(count))) == commits
    assert collection.stats().items == count
    assert collection.stats().versions == (1 + commits if count else 0)


def test_the_last_item_with_an_id_replaces_earlier_ones(collection: VectorCollection) -> None:
    twice = [VectorItem(f"item-{number % 60}", [1, 0, 0], f"{number}") for number in range(120)]
    assert collection.upsert(twice) == 1
    assert collection.stats().items == 60
    assert {match.content for match in collection.search([1, 0, 0], 100)} == {str(number) for number in range(60, 120)}
    collection.upsert([VectorItem("item-7", [0, 1, 0], "new", {"a": 1})])
    assert collection.stats().items == 60
    assert collection.search([0, 1, 0], 1) == [VectorMatch("item-7", 1.0, "new", {"a": 1})]


@pytest.mark.parametrize(
    ("vector", "fault"),
    [
        ([1, 2], "has 2 numbers; expected .* of 3 finite"),
        ([1, 2, 3, 4], "has 4 numbers; expected .* of 3 finite"),
        ([1, float("nan"), 3], r"\[1\] is nan; expected"),
        ([1, 2, float("inf")], r"\[2\] is inf; expected"),
        ([0, 0, 0.0], "is all zero; expected"),
        ([True, False, True], "is not accepted; expected"),
        ("123", "'123' is not accepted; expected"),
    ],
)
def test_one_invalid_item_prevents_the_whole_write(collection: VectorCollection, vector: Any, fault: str) -> None:
    with pytest.raises(InputError, match=rf"^items\[150\]\.vector.*{fault}"):
        collection.upsert([*many(150), VectorItem("a", vector), *many(3)])
    assert collection.stats().versions == 0
    collection.upsert(many(1))
    with pytest.raises(InputError, match=rf"^vector.*{fault}"):
        collection.search(vector)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_ids_are_neither_written_nor_deleted(collection: VectorCollection, hostile: str) -> None:
    collection.upsert(many(2))
    with pytest.raises(InputError, match=r"^items\[1\]\.id .* is not accepted; expected 1 to 256 letters"):
        collection.upsert([VectorItem("a", [1, 2, 3]), VectorItem(hostile, [1, 2, 3])])
    with pytest.raises(InputError, match=r"^ids\[1\] .* is not accepted; expected 1 to 256 letters"):
        collection.delete(["item-0", hostile])
    assert sorted(ids(collection)) == ["item-0", "item-1"]


def test_hostile_contents_and_metadata_round_trip(collection: VectorCollection) -> None:
    texts = HOSTILE[:-1]  # except lone surrogates
    collection.upsert(VectorItem(f"{n}", [1, 1, 1], text, {"text": text}) for n, text in enumerate(texts))
    assert [match.content for match in collection.search([1, 1, 1])] == texts
    assert [match.metadata for match in collection.search([1, 1, 1])] == [{"text": text} for text in texts]


@pytest.mark.parametrize("items", ["ab", {"a": [1, 2, 3]}, None, VectorItem("a", [1, 2, 3]), [("a", [1, 2, 3])]])
def test_a_value_that_is_not_a_list_of_items_is_refused(collection: VectorCollection, items: Any) -> None:
    with pytest.raises(InputError, match=r"^items.* is not accepted; expected a"):
        collection.upsert(items)


@pytest.mark.on_s3
def test_delete_returns_the_number_of_deleted_items(collection: VectorCollection) -> None:
    assert collection.delete(["item-0"]) == 0
    assert collection.stats().versions == 0
    collection.upsert(many(5))
    assert collection.delete([]) == 0
    assert collection.delete(["unknown", "item"]) == 0
    assert collection.delete(["item-1", "item-3", "item-1", "unknown"]) == 2
    assert collection.delete(["item-1", "item-3", "item-1", "unknown"]) == 0
    assert sorted(ids(collection)) == ["item-0", "item-2", "item-4"]
    collection.upsert(many(2))
    assert collection.stats().items == 4
    with pytest.raises(InputError, match=r"^ids 'item-0' is not accepted; expected a list"):
        collection.delete("item-0")


def test_more_ids_than_fit_one_commit_are_deleted(collection: VectorCollection) -> None:
    collection.upsert(many(150))
    unknown = [f"unknown-{number}" for number in range(2_000)]
    assert collection.delete([*ids(collection)[:50], *unknown, *ids(collection)[50:]]) == 150
    assert collection.stats().items == 0
    assert ids(collection) == []


def test_reading_an_unwritten_collection_returns_nothing_and_creates_nothing(root: str) -> None:
    collection = opened(root)
    assert collection.search([1, 0, 0]) == []
    assert collection.delete(["a"]) == 0
    assert collection.upsert([]) == 0
    assert collection.stats() == CollectionStats(0, 3, 0, 0)
    assert not list(Path(root).rglob("*.lance"))


@pytest.mark.parametrize("top_k", [0, -1, 1_001, 1.0, True, "3", None])
def test_an_invalid_number_of_results_is_named(collection: VectorCollection, top_k: Any) -> None:
    with pytest.raises(InputError, match=r"^top_k .* is not accepted; expected 1 to 1,000$"):
        collection.search([1, 0, 0], top_k)


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), -1.01, 1.01, True, "0.5"])
def test_an_invalid_threshold_is_named(collection: VectorCollection, threshold: Any) -> None:
    with pytest.raises(InputError, match=r"^threshold .* is not accepted; expected -1 to 1$"):
        collection.search([1, 0, 0], threshold=threshold)


def test_a_threshold_excludes_less_similar_items(collection: VectorCollection) -> None:
    collection.upsert([VectorItem("same", [1, 0, 0]), VectorItem("near", [3, 4, 0]), VectorItem("far", [-1, 0, 0])])
    assert ids(collection, threshold=-1) == ids(collection) == ["same", "near", "far"]
    assert ids(collection, threshold=0.6) == ["same", "near"]
    assert ids(collection, threshold=0.600001) == ["same"]
    assert ids(collection, threshold=1) == ["same"]
    assert ids(collection, threshold=0.1, top_k=1) == ["same"]


def test_a_similarity_is_between_minus_1_and_1(collection: VectorCollection) -> None:
    """In float32 it may be 1.0000001, so a threshold of 1 would accept more than equal vectors."""
    generator = np.random.default_rng(1)
    some = generator.standard_normal((50, 3))
    collection.upsert(VectorItem(f"{number}", vector) for number, vector in enumerate(some))
    for number, vector in enumerate(some):
        assert collection.search(vector, 1, threshold=1)[0].id == f"{number}"
        assert collection.search(-vector)[-1].similarity >= -1


def test_a_similarity_is_never_minus_zero(collection: VectorCollection) -> None:
    collection.upsert([VectorItem("across", [-1e-8, 1, 0])])
    assert str(collection.search([1, 0, 0])[0].similarity) == "0.0"


@given(
    items=st.dictionaries(names, vectors, min_size=1, max_size=12),
    query=vectors,
    top_k=st.integers(1, 13),
    threshold=st.none() | st.floats(-1, 1),
)
@settings(deadline=None, max_examples=examples(30))
def test_a_search_agrees_with_a_full_comparison_in_numpy(
    fresh: Callable[[], VectorCollection],
    items: dict[str, list[float]],
    query: list[float],
    top_k: int,
    threshold: float | None,
) -> None:
    collection = fresh()
    collection.upsert(VectorItem(name, vector) for name, vector in items.items())
    found = collection.search(query, top_k, threshold)

    true = {name: unit(vector) @ unit(query) for name, vector in items.items()}
    least = -1 - NEAR if threshold is None else threshold
    for match in found:
        assert match.similarity == pytest.approx(true[match.id], abs=NEAR)
    assert [(-match.similarity, match.id) for match in found] == sorted((-m.similarity, m.id) for m in found)
    surely, maybe = (sum(cosine >= limit for cosine in true.values()) for limit in (least + NEAR, least - NEAR))
    assert min(top_k, surely) <= len(found) <= min(top_k, maybe)
    last = found[-1].similarity if len(found) == top_k else least
    assert all(true[name] <= last + NEAR for name in true.keys() - {match.id for match in found})


def unit(vector: list[float]) -> Any:
    array = np.array(vector) / np.abs(vector).max()
    return array / np.linalg.norm(array)


@given(
    items=st.dictionaries(
        names, st.tuples(st.integers(0, 2), st.sampled_from([-3.0, -1e-30, 1e-300, 0.1, 7.0])), max_size=40
    ),
    top_k=st.integers(1, 40),
)
@settings(deadline=None, max_examples=examples(30))
def test_equally_similar_items_are_sorted_by_id(
    fresh: Callable[[], VectorCollection], items: dict[str, tuple[int, float]], top_k: int
) -> None:
    collection = fresh()
    collection.upsert(VectorItem(name, (np.arange(3) == axis) * length) for name, (axis, length) in items.items())
    cosines = {name: np.sign(length) * (axis == 0) for name, (axis, length) in items.items()}
    assert ids(collection, top_k=top_k) == sorted(items, key=lambda name: (-cosines[name], name))[:top_k]


@given(st.lists(st.tuples(st.booleans(), st.lists(names, max_size=6)), max_size=5))
@settings(deadline=None, max_examples=examples(20))
def test_a_collection_behaves_like_a_dictionary(
    fresh: Callable[[], VectorCollection], turns: list[tuple[bool, list[str]]]
) -> None:
    collection = fresh()
    held: dict[str, str] = {}
    for turn, (deletes, members) in enumerate(turns):
        if deletes:
            assert collection.delete(members) == len(held.keys() & set(members))
            held = {name: content for name, content in held.items() if name not in members}
        else:
            collection.upsert(VectorItem(name, [1, turn, 2], f"{turn} {n}") for n, name in enumerate(members))
            held |= {name: f"{turn} {n}" for n, name in enumerate(members)}
    assert {match.id: match.content for match in collection.search([1, 1, 1], 1_000)} == held
    assert collection.stats().items == len(held)


def test_a_collection_is_visible_only_to_its_owner(root: str) -> None:
    """An agent id may contain dots, so it may look like another agent's collection."""
    owners = {
        (scope, name): opened(root, scope, name=name)
        for scope in (ACME, Scope("acme", "sales"), Scope("other", "support"), Scope("acme", "support.docs"))
        for name in ("default", "docs", "support_docs")
    }
    for number, collection in enumerate(owners.values()):
        collection.upsert([VectorItem("shared", [1, 0, 0], f"{number}"), VectorItem(f"own-{number}", [1, 0, 0])])
    for number, collection in enumerate(owners.values()):
        assert sorted(ids(collection)) == [f"own-{number}", "shared"]
        assert collection.search([1, 0, 0])[-1].content == f"{number}"
    first, *others = owners.values()
    assert first.delete(["shared", "own-1"]) == 1
    assert all(collection.stats().items == 2 for collection in others)


@pytest.mark.parametrize("name", ["", "_a", "-a", "a.b", "../a", "a/b", "a b", "a'b", "a\n", "ä", "x" * 101, None, 1])
def test_a_name_that_resembles_another_collection_or_a_path_is_refused(root: str, name: Any) -> None:
    with pytest.raises(InputError, match=r"^name .* is not accepted; expected 1 to 100 ASCII letters"):
        opened(root, name=name)


@pytest.mark.parametrize("agent_id", ["SUPPORT", "support.default", "../acme/support", "a/b", ".a", "con", "a."])
def test_an_agent_id_that_resembles_a_path_opens_nothing_else(root: str, agent_id: str) -> None:
    opened(root).upsert(many(1))
    other = VectorCollection.open(root, workspace_id="acme", agent_id=agent_id, dimension=3)
    assert ids(other) == []
    other.upsert(many(1, "other"))
    assert (ids(opened(root)), ids(other)) == (["item-0"], ["other-0"])
    assert sorted(path.name for path in Path(root, "..").resolve().iterdir()) == [Path(root).name]


def test_names_that_differ_in_case_are_different_collections(root: str) -> None:
    opened(root, name="docs").upsert(many(1))
    assert ids(opened(root, name="Docs")) == []
    names = {path.name.lower() for path in Path(root).glob("vectordb/*/*.lance")}
    opened(root, name="Docs").upsert(many(1))
    assert len({path.name.lower() for path in Path(root).glob("vectordb/*/*.lance")}) == len(names) + 1


def test_a_collection_that_is_only_read_leaves_no_folder(root: str) -> None:
    opened(root).upsert(many(1))
    ids(VectorCollection.open(root, workspace_id="acme", agent_id="sales", dimension=3, user_id="anna"))
    assert len(list(Path(root, "vectordb").iterdir())) == 1


def test_each_user_and_each_group_has_collections_of_its_own(root: str) -> None:
    fixed: dict[str, Any] = {"workspace_id": "acme", "agent_id": "support", "dimension": 3}
    owners: dict[str, dict[str, Any]] = {
        "agent": {},
        "anna": {"user_id": "anna"},
        "ben": {"user_id": "ben"},
        "both": {"users": ["anna", "ben"]},
        "team": {"users": ["anna"], "group_id": "team"},
    }
    opened_by = {name: VectorCollection.open(root, **fixed, **owner) for name, owner in owners.items()}
    for name, collection in opened_by.items():
        collection.upsert(many(1, name))
    assert {name: ids(collection) for name, collection in opened_by.items()} == {name: [f"{name}-0"] for name in owners}
    both = VectorCollection.open(root, **fixed, users=["ben", "anna"])
    assert ids(both) == ["both-0"]
    assert not [path for path in Path(root).rglob("*") if "anna" in path.name]


@pytest.mark.parametrize("dimension", [0, -1, 65_537, 3.0, True, "3", None])
def test_an_invalid_dimension_is_named(root: str, dimension: Any) -> None:
    with pytest.raises(InputError, match=r"^dimension .* is not accepted; expected 1 to 65,536$"):
        opened(root, dimension=dimension)


@pytest.mark.parametrize("dimension", [1, 1_536, 65_536])
def test_short_and_long_vectors_are_accepted(root: str, dimension: int) -> None:
    collection = opened(root, dimension=dimension)
    collection.upsert([VectorItem("a", np.ones(dimension)), VectorItem("b", -np.ones(dimension))])
    assert [match.similarity for match in collection.search([2.5] * dimension)] == [1, -1]


def test_another_dimension_is_refused_with_a_remedy(root: str) -> None:
    early = opened(root, dimension=4)
    opened(root).upsert(many(1))
    refused = pytest.raises(
        ConfigurationError,
        match=r"^dimension 4 does not fit collection 'default' of 'acme/support', which has dimension 3; "
        r"open it with that, or choose another name for the collection$",
    )
    with refused:
        opened(root, dimension=4)
    uses: list[Callable[[], object]] = [
        lambda: early.upsert([VectorItem("a", [1, 2, 3, 4])]),
        lambda: early.search([1, 2, 3, 4]),
        lambda: early.delete(["a"]),
        early.stats,
    ]
    for use in uses:
        with pytest.raises(ConfigurationError, match="dimension 4 does not fit"):
            use()
    opened(root, dimension=4, name="others").upsert([VectorItem("a", [1, 2, 3, 4])])
    assert opened(root).stats().items == 1


def test_a_lake_created_by_a_collection_accepts_any_time_zone_later(root: str) -> None:
    opened(root).upsert(many(1))
    writer = MemoryWriter.open(root, workspace_id="acme", agent_id="support", timezone="Europe/Lisbon")
    message = {"role": "user", "content": "Hello.", "timestamp": "2024-01-15T08:00:00Z"}
    writer.write({"conversation_id": "c", "messages": [message]})
    assert Lake(root).calendar.timezone == "Europe/Lisbon"
    assert opened(root).stats().items == 1


def _upsert(collection: VectorCollection, word: str) -> None:
    """Write separate items and shared ones. All delete one shared item."""
    for turn in range(8):
        own = [VectorItem(f"{word}-{turn}-{number}", [1, turn, number]) for number in range(3)]
        collection.upsert([*own, VectorItem("shared", [1, 2, 3], word), VectorItem("gone", [1, 2, 3])])
    collection.delete(["gone"])


def assert_whole(root: str, words: list[str]) -> None:
    expected = {f"{word}-{turn}-{number}" for word in words for turn in range(8) for number in range(3)}
    found = ids(opened(root))
    assert len(found) == len(set(found))
    assert set(found) - {"gone"} == {*expected, "shared"}
    assert opened(root).search([1, 2, 3], threshold=1)[-1].content in words


@pytest.mark.parametrize("together", [True, False])
def test_concurrent_threads_lose_nothing(root: str, together: bool) -> None:
    """With one shared collection object, or one each. One of the threads creates the table."""
    words = ["a", "b", "c"]
    one = opened(root)
    start = threading.Barrier(len(words))

    def write(word: str) -> None:
        mine = one if together else opened(root)
        start.wait()
        _upsert(mine, word)

    with ThreadPoolExecutor(len(words)) as pool:
        list(pool.map(write, words))
    assert_whole(root, words)


def _write(root: str, word: str, start: Any) -> None:
    collection = opened(root)
    start.wait(60)
    _upsert(collection, word)


def test_concurrent_processes_lose_nothing(root: str) -> None:
    start = PROCESSES.Barrier(2)
    other = PROCESSES.Process(target=_write, args=(root, "theirs", start))
    other.start()
    _write(root, "ours", start)
    other.join()
    assert other.exitcode == 0
    assert_whole(root, ["ours", "theirs"])


def test_a_search_during_writes_sees_every_item_once(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write replaces items in one commit, and a compaction does not disturb readers."""
    monkeypatch.setattr("memory_pipeline.lake.index.lance_tables.COMPACT_EVERY", 4)
    collection, writer = opened(root), opened(root)
    members = sorted(item.id for item in many(20))
    writer.upsert(VectorItem(member, [1, 2, 3], "before") for member in members)

    def write() -> None:
        for turn in range(30):
            writer.upsert(VectorItem(member, [1, 2, 3], f"{turn}") for member in members)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            found = collection.search([1, 1, 1], 100)
            assert [match.id for match in found] == members
            assert len({match.content for match in found}) == 1
        writing.result()
    assert {match.content for match in collection.search([1, 1, 1], 100)} == {"29"}


def test_a_compaction_does_not_undo_concurrent_writes(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    collection, writer = opened(root), opened(root)
    members = [f"m{number}" for number in range(12)]
    for member in members:
        writer.upsert([VectorItem(member, [1, 2, 3], "before")])
    rewrite = maintenance.rewrite_rows

    async def late(*arguments: Any) -> None:
        later = [VectorItem("m3", [1, 2, 3], "meanwhile"), VectorItem("m4", [3, 2, 1], "before")]
        await asyncio.to_thread(writer.upsert, later)
        await asyncio.to_thread(writer.delete, ["m5"])
        await rewrite(*arguments)

    monkeypatch.setattr(maintenance, "rewrite_rows", late)
    monkeypatch.setattr(maintenance, "_WHOLE_ROWS", 0)
    assert compact_collection(Storage(root), "/".join(collection._where) + ".lance") > 0
    found = {match.id: match for match in collection.search([1, 2, 3], 100)}
    assert sorted(found) == sorted({*members} - {"m5"})
    assert found["m3"].content == "meanwhile"
    assert found["m4"].similarity < 1
    assert found["m6"].content == "before"


def test_all_items_of_an_iterator_are_checked_before_the_first_write(collection: VectorCollection) -> None:
    def made() -> Iterator[VectorItem]:
        yield from many(150)
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        collection.upsert(made())
    assert collection.stats().versions == 0


def test_importing_collections_imports_no_database() -> None:
    code = "import sys; from memory_pipeline.lake import VectorCollection; assert 'lancedb' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
