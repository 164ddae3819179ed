"""The index: periods are replaced in one commit, and only if something differs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import LakeError
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index import projection, shard_tables
from memory_pipeline.lake.index.filters import Filter
from memory_pipeline.lake.index.index_rows import COMPUTED, OWNERS, index_schema, vectors_column
from memory_pipeline.lake.index.lance_tables import run_coroutine
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.lake.layout import PROJECTIONS
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline_tests.building import ACME, PROCESSES, hours
from memory_pipeline_tests.index_rows import put_rows

HOUR = "2024-01-15T08"
NOON = datetime(2024, 1, 15, 12, tzinfo=UTC)


def rows(
    period: str, *texts: str, dimension: int = 8, digest: str = "d", at: datetime = NOON, kind: str = "turn"
) -> pa.Table:
    records = []
    for number, text in enumerate(texts):
        vector = np.zeros(dimension)
        vector[number % dimension] = 1
        records.append({
            "id": f"working:{period}:{text}", "period": period, "kind": kind, "content": text,
            "starts_at": at + timedelta(minutes=number), "ends_at": at + timedelta(minutes=number),
            "terms": text.split(), "mentioned_at": None, "speaker": "Anna", "turn": number, "position": 0, "tags": [],
            "entities": [], "importance": 0.5, "conversation_id": "c", "source_ids": [text], "digest": digest,
            "embed_model": "test", "vector": vector.tolist(),
        })  # fmt: skip
    return pa.Table.from_pylist(records, schema=index_schema(dimension))


@pytest.fixture(params=["in a shard", "in a table of its own"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the rows of a scope in its shard, and in a table of its own."""
    if request.param != "in a shard":
        monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    return str(request.param)


@pytest.fixture
def index(root: str, layout: str) -> VectorIndex:
    return VectorIndex(Storage(root))


@pytest.fixture
def large(root: str, monkeypatch: pytest.MonkeyPatch) -> VectorIndex:
    """An index in which each scope has a table of its own, which can be searched on disk."""
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    return VectorIndex(Storage(root))


def contents(index: VectorIndex, scope: Scope = ACME) -> list[str]:
    return sorted(index.read([scope], None, "grain = 'working'")["content"].to_pylist())


@pytest.mark.on_s3
def test_an_agent_without_a_table_has_no_rows(index: VectorIndex) -> None:
    assert contents(index) == []
    assert index.newest(ACME, Grain.DAILY, Filter(), 5).num_rows == 0
    assert index.search(ACME, Grain.DAILY, Filter(), 5, [0.0] * 8, "x").num_rows == 0
    assert index.count(ACME, Grain.DAILY) == 0


@pytest.mark.on_s3
def test_replacing_a_period_keeps_the_others_and_other_agents(index: VectorIndex) -> None:
    sales = Scope("acme", "sales")
    put_rows(index, Grain.WORKING, hours(HOUR, "2024-01-15T09"), {
        ACME: pa.concat_tables([rows(HOUR, "one", "two"), rows("2024-01-15T09", "other")]),
        sales: rows(HOUR, "theirs"),
    })  # fmt: skip
    assert put_rows(index, Grain.WORKING, hours(HOUR), {ACME: rows(HOUR, "two", "three")}) == {HOUR}
    assert contents(index) == ["other", "three", "two"]
    assert contents(index, sales) == ["theirs"]


@pytest.mark.on_s3
def test_rows_with_equal_digests_are_not_written(index: VectorIndex) -> None:
    put_rows(index, Grain.WORKING, hours(HOUR), {ACME: rows(HOUR, "one")})
    assert put_rows(index, Grain.WORKING, hours(HOUR), {ACME: rows(HOUR, "one")}) == set()
    assert put_rows(index, Grain.WORKING, hours(HOUR), {ACME: rows(HOUR, "one", digest="new")}) == {HOUR}


@pytest.mark.on_s3
def test_a_row_without_a_vector_is_found_by_words_and_replaced_once_it_has_one(large: VectorIndex) -> None:
    whole = rows(HOUR, "one", "two")
    absent = pa.array([None, whole["vector"][1].as_py()], whole.schema.field("vector").type)
    at = whole.schema.get_field_index("vector")
    models = pa.array([None, "test"])
    half = whole.set_column(at, whole.schema.field(at), absent).set_column(at - 1, whole.schema.field(at - 1), models)
    assert put_rows(large, Grain.WORKING, hours(HOUR), {ACME: half}) == {HOUR}

    def found(vector: list[float] | None, text: str) -> set[str]:
        return set(large.search(ACME, Grain.WORKING, Filter(), 5, vector, text)["content"].to_pylist())

    assert found([1.0] + [0.0] * 7, "nothing") == {"two"}
    assert found([1.0] + [0.0] * 7, "one") == {"one", "two"}
    assert found(None, "one") == {"one"}
    assert put_rows(large, Grain.WORKING, hours(HOUR), {ACME: whole}) == {HOUR}
    assert found([1.0] + [0.0] * 7, "nothing") == {"one", "two"}
    assert put_rows(large, Grain.WORKING, hours(HOUR), {ACME: whole}) == set()


@pytest.mark.on_s3
def test_filters_are_applied_before_the_limit(large: VectorIndex) -> None:
    old = rows("2024-01-01T08", *(f"tea {n}" for n in range(20)), at=NOON - timedelta(days=14))
    put_rows(large, Grain.WORKING, hours(HOUR, "2024-01-01T08"), {ACME: pa.concat_tables([old, rows(HOUR, "tea now")])})
    found = large.search(ACME, Grain.WORKING, Filter(since=NOON - timedelta(days=1)), 1, [1.0] + [0.0] * 7, "tea")
    assert set(found["content"].to_pylist()) == {"tea now"}


def test_any_text_can_be_searched_for(large: VectorIndex) -> None:
    put_rows(large, Grain.WORKING, hours(HOUR), {ACME: rows(HOUR, "one")})
    for text in ("the", "'; DROP TABLE x; --", '"', "AND OR NOT (", "💥", "日本", "a*", "\\", "tea:2"):
        assert "one" in large.search(ACME, Grain.WORKING, Filter(), 5, [1.0] + [0.0] * 7, text)["content"].to_pylist()


def test_the_newest_rows_that_pass_a_filter_come_first_and_are_counted(index: VectorIndex) -> None:
    both = pa.concat_tables([rows(HOUR, "a", "b", "c"), rows(HOUR, "d", kind="event")])
    put_rows(index, Grain.WORKING, hours(HOUR), {ACME: both})
    found = index.newest(ACME, Grain.WORKING, Filter(kind=FactKind.TURN), 2)
    assert found["content"].to_pylist() == ["c", "b"]
    assert index.count(ACME, Grain.WORKING) == index.count(ACME, Grain.WORKING, Filter()) == 4
    assert index.count(ACME, Grain.WORKING, Filter(kind=FactKind.TURN)) == 3
    assert index.count(ACME, Grain.WORKING, Filter(kind=FactKind.TURN, since=NOON + timedelta(minutes=1))) == 2
    assert index.count(ACME, Grain.WORKING, Filter(tag="none")) == 0


def loaded(index: VectorIndex, dimension: int = 8) -> dict[str, list[float]]:
    """Return the loaded vectors by content."""
    table, vectors, _ = index.load(ACME, Grain.WORKING, HashingEmbedder(dimension))
    assert vectors.shape == (table.num_rows, dimension)
    return dict(zip(table["content"].to_pylist(), vectors.tolist(), strict=True))


@pytest.mark.on_s3(always=True)
def test_rows_are_loaded_with_their_own_vectors_after_any_writes(index: VectorIndex) -> None:
    assert loaded(index) == {}
    expected: dict[str, list[float]] = {}
    for hour, texts in (("08", "abc"), ("09", "de"), ("08", "axc"), ("10", "f")):
        table = rows(f"2024-01-15T{hour}", *(f"{text}{hour}" for text in texts))
        put_rows(index, Grain.WORKING, hours(f"2024-01-15T{hour}"), {ACME: table})
        expected |= dict(zip(table["content"].to_pylist(), table["vector"].to_pylist(), strict=True))
    del expected["b08"]
    assert loaded(index) == expected


def test_loaded_columns_are_those_of_ranking(index: VectorIndex) -> None:
    put_rows(index, Grain.WORKING, hours(HOUR), {ACME: rows(HOUR, "one", "two")})
    table, vectors, _ = index.load(ACME, Grain.WORKING, HashingEmbedder(8))
    assert set(table.column_names) == set(index_schema(8).names) - {*OWNERS, "grain", "digest", "vector"}
    assert vectors.dtype == np.float32
    nothing, none, _ = index.load(ACME, Grain.DAILY, HashingEmbedder(8))
    assert set(table.column_names) <= set(nothing.column_names)
    assert (nothing.num_rows, none.shape) == (0, (0, 8))


def test_a_small_table_is_created_in_one_version_and_compacted_to_a_small_one(root: str) -> None:
    index = VectorIndex(Storage(root))

    def manifests() -> list[Path]:
        return sorted(Path(root).glob(f"{PROJECTIONS}/*/_versions/*.manifest"))  # the newest is first

    assert put_rows(index, Grain.WORKING, hours(HOUR), {ACME: rows(HOUR, "one", "two")}) == {HOUR}
    assert len(manifests()) == 1
    for hour in ("2024-01-15T09", "2024-01-15T10"):
        put_rows(index, Grain.WORKING, hours(hour), {ACME: rows(hour, hour)})
    assert manifests()[0].stat().st_size > 30_000  # a merge lists the keys of its rows
    index.compact()
    assert manifests()[0].stat().st_size < 10_000
    assert contents(index) == ["2024-01-15T09", "2024-01-15T10", "one", "two"]


def hashed(*texts: str) -> tuple[pa.Table, dict[str, list[float]]]:
    """Return rows with vectors of the built-in embedder, and these vectors by text."""
    embedder = HashingEmbedder(8)
    assert embedder.name.startswith(COMPUTED)
    vectors = embedder.embed(texts)
    table = rows(HOUR, *texts)
    for name, column in (("vector", vectors_column(vectors)), ("embed_model", pa.array([embedder.name] * len(texts)))):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), column)
    return table, dict(zip(texts, vectors.tolist(), strict=True))


def with_vectors(found: pa.Table, vectors: dict[str, list[float]]) -> pa.Table:
    """Return stored rows with the vectors that the records have."""
    at = found.schema.get_field_index("vector")
    own = zip(found["content"].to_pylist(), found["vector"].to_pylist(), strict=True)
    column = pa.array([vectors.get(text, stored) for text, stored in own], found.schema.field(at).type)
    return found.set_column(at, found.schema.field(at), column)


def stored_vectors(index: VectorIndex) -> int:
    count: int = pc.count(index.read([ACME], ["vector"])["vector"]).as_py()
    return count


def test_vectors_of_the_built_in_embedder_are_computed_when_a_shard_is_read(root: str) -> None:
    index = VectorIndex(Storage(root))
    index.adopt(HashingEmbedder(8))
    table, expected = hashed("one", "two", "three")
    other = rows("2024-01-15T09", "of another model")
    put_rows(index, Grain.WORKING, hours(HOUR, "2024-01-15T09"), {ACME: pa.concat_tables([table, other])})
    assert stored_vectors(index) == 1
    assert loaded(index) == expected | {"of another model": other["vector"][0].as_py()}
    assert not index.damage_of(index.roster.name_of(ACME.key), wanted=lambda found: with_vectors(found, expected))


def test_a_table_of_one_scope_has_the_vectors_of_the_built_in_embedder(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = VectorIndex(Storage(root))
    index.adopt(HashingEmbedder(8))
    table, expected = hashed("one", "two", "three")
    put_rows(index, Grain.WORKING, hours(HOUR), {ACME: table[:2]})
    assert stored_vectors(index) == 0
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    with pytest.raises(LakeError, match="check the embedder first"):
        put_rows(VectorIndex(Storage(root)), Grain.WORKING, hours(HOUR), {ACME: table})
    index.compact()
    put_rows(index, Grain.WORKING, hours(HOUR), {ACME: table})
    assert index.is_large(ACME)
    assert stored_vectors(index) == 3
    assert loaded(index) == expected
    found = index.search(ACME, Grain.WORKING, Filter(), 1, expected["two"], "nothing")
    assert found["content"].to_pylist() == ["two"]


def test_a_compaction_removes_the_computed_vectors_that_an_earlier_version_stored(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = VectorIndex(Storage(root))
    index.adopt(HashingEmbedder(8))
    table, expected = hashed("one", "two", "three")
    with monkeypatch.context() as earlier:
        earlier.setattr("memory_pipeline.lake.index.vector_index.without_computed", lambda rows: rows)
        put_rows(index, Grain.WORKING, hours(HOUR), {ACME: table})
    assert stored_vectors(index) == 3
    assert loaded(index) == expected
    assert not index.damage_of(index.roster.name_of(ACME.key), wanted=lambda found: with_vectors(found, expected))
    index.compact()
    assert stored_vectors(index) == 0
    assert loaded(index) == expected


def test_a_missing_vector_is_loaded_as_nan(index: VectorIndex) -> None:
    whole = rows(HOUR, "one", "two", "three")
    at = whole.schema.get_field_index("vector")
    absent = pa.array([whole["vector"][0].as_py(), None, None], whole.schema.field(at).type)
    put_rows(index, Grain.WORKING, hours(HOUR), {ACME: whole.set_column(at, whole.schema.field(at), absent)})
    found = loaded(index)
    assert found["one"] == [1.0] + [0.0] * 7
    assert np.isnan(found["two"]).all()
    assert np.isnan(found["three"]).all()


@pytest.mark.parametrize(("count", "kind"), [(39, np.float32), (40, np.float16)])
def test_vectors_of_many_rows_are_loaded_in_half_precision(
    index: VectorIndex, monkeypatch: pytest.MonkeyPatch, count: int, kind: type[np.floating]
) -> None:
    monkeypatch.setattr("memory_pipeline.lake.index.vector_index.HALVED_FROM", 40)
    vectors = np.random.default_rng(1).uniform(-1, 1, (count, 8)).astype(np.float32)
    vectors[::10] = np.nan
    lists = pa.array([None if np.isnan(vector[0]) else vector for vector in vectors], pa.list_(pa.float32(), 8))
    table = rows(HOUR, *(f"{number:02}" for number in range(count)))
    at = table.schema.get_field_index("vector")
    table = table.set_column(at, table.schema.field(at), lists)
    put_rows(index, Grain.WORKING, hours(HOUR), {ACME: table[:5]})  # two commits, and so two batches at least
    put_rows(index, Grain.WORKING, hours(HOUR), {ACME: table})
    found, held, _ = index.load(ACME, Grain.WORKING, HashingEmbedder(8))
    assert held.dtype == kind
    order = [int(name) for name in found["content"].to_pylist()]
    assert sorted(order) == list(range(count))
    assert held == pytest.approx(vectors[order], abs=1e-3 if kind is np.float16 else 0, nan_ok=True)


@pytest.mark.on_s3
def test_a_version_grows_only_with_commits(root: str, index: VectorIndex) -> None:
    other = VectorIndex(Storage(root))
    assert index.version(ACME) is None
    seen = []
    for text in ("one", "two", "three"):
        put_rows(other, Grain.WORKING, hours(HOUR), {ACME: rows(HOUR, text)})
        version = index.version(ACME)
        assert version is not None
        seen.append(version)
        assert version == other.version(ACME) == index.version(ACME)
    assert seen == sorted(set(seen))
    put_rows(other, Grain.WORKING, hours(HOUR), {ACME: rows(HOUR, "three")})
    assert index.version(ACME) == seen[-1]
    assert index.version(Scope("acme", "other")) is None


@pytest.mark.on_s3
def test_files_are_merged_and_all_rows_stay(index: VectorIndex, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    monkeypatch.setattr(projection, "_MOST_FILES", 4)
    for number in range(7):
        period = f"2024-01-{number % 28 + 1:02}T{number % 24:02}"
        put_rows(index, Grain.WORKING, hours(period), {ACME: rows(period, f"text {number}")})
    assert index.count(ACME, Grain.WORKING) == 7
    table = run_coroutine(index._databases.table(PROJECTIONS, index.roster.name_of(ACME.key)))
    assert table is not None
    assert run_coroutine(table.stats())["fragment_stats"]["num_fragments"] <= 5
    if layout != "in a shard":
        found = index.search(ACME, Grain.WORKING, Filter(), 50, [1.0] + [0.0] * 7, "text")
        assert len(set(found["content"].to_pylist())) == 7


def _merge_many(root: str, writer: int) -> None:
    index = VectorIndex(Storage(root))
    for number in range(5):
        # Every process writes the same periods.
        period = f"2024-01-15T{number:02}"
        put_rows(index, Grain.WORKING, [Period.parse("working", period)], {ACME: rows(period, f"{number}")})


def test_processes_that_write_the_same_periods_duplicate_nothing(root: str) -> None:
    writers = [PROCESSES.Process(target=_merge_many, args=(root, n)) for n in range(3)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * 3
    assert contents(VectorIndex(Storage(root))) == [str(n) for n in range(5)]


def test_tables_and_indices_can_be_created_concurrently(root: str, layout: str) -> None:
    """All processes find no table or no indices, and create them. None may fail or lose a row."""
    scopes = [Scope("acme", f"agent-{number}") for number in range(4)]

    start = threading.Barrier(4)

    def fill(writer: int) -> None:
        hour = f"2024-01-15T0{writer}"
        start.wait()
        put_rows(VectorIndex(Storage(root)), Grain.WORKING, hours(hour), {scope: rows(hour, "one") for scope in scopes})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(4)))
    index = VectorIndex(Storage(root))
    assert [index.count(scope, Grain.WORKING) for scope in scopes] == [4] * 4
