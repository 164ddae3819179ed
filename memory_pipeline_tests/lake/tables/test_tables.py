"""Tables: partitions are replaced whole, equal ones are not written, and writers do not lose each other's rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import Dataset

from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.schema_types import TableSpec
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline.lake.tables.partitions import dataset
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline_tests.building import PROCESSES


def ledger(bucket: str, *periods: str, out: str = "x") -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "bucket": bucket,
                "asset": "a",
                "period": p,
                "input_digest": "i",
                "output_digest": out,
                "rows": 1,
                "agents": 1,
            }
            for p in periods
        ],
        schema=LEDGER.schema,
    )


@pytest.fixture
def tables(root: str) -> Tables:
    return Tables(Storage(root))


@pytest.mark.on_s3(always=True)
def test_an_unwritten_table_is_empty(tables: Tables) -> None:
    assert tables.read(LEDGER).num_rows == 0
    assert tables.read(LEDGER, ["a"]).schema == LEDGER.schema
    assert tables.keys(LEDGER) == []
    assert tables.version(LEDGER) == -1
    assert tables.dataset(LEDGER).to_table().num_rows == 0


@pytest.mark.on_s3
def test_replacing_a_partition_keeps_the_others(tables: Tables) -> None:
    tables.replace(LEDGER, ["a", "b"], pa.concat_tables([ledger("a", "1", "2"), ledger("b", "3")]))
    result = tables.replace(LEDGER, ["a"], ledger("a", "9"))
    assert result == {"a"}
    assert tables.read(LEDGER)["period"].to_pylist() == ["9", "3"]


@pytest.mark.on_s3
def test_the_first_write_to_a_table_computes_its_rows_once(tables: Tables) -> None:
    """Computing rows may call a model."""
    asked: list[int] = []

    def change(old: pa.Table) -> pa.Table:
        asked.append(old.num_rows)
        return ledger("a", "1")

    assert tables.transform(LEDGER, ["a"], change) == {"a"}
    assert asked == [0]
    assert tables.read(LEDGER)["period"].to_pylist() == ["1"]


@pytest.mark.on_s3(always=True)
@pytest.mark.parametrize("bucket", ["a", "b"])
def test_a_first_write_is_recomputed_only_after_a_concurrent_write_of_its_partition(root: str, bucket: str) -> None:
    mine, theirs = Tables(Storage(root)), Tables(Storage(root))
    seen: list[int] = []

    def change(old: pa.Table) -> pa.Table:
        if not seen:
            theirs.replace(LEDGER, [bucket], ledger(bucket, "theirs"))
        seen.append(old.num_rows)
        return pa.concat_tables([old, ledger("a", "mine")])

    assert mine.transform(LEDGER, ["a"], change) == {"a"}
    assert seen == ([0, 1] if bucket == "a" else [0])
    assert sorted(mine.read(LEDGER)["period"].to_pylist()) == ["mine", "theirs"]


@pytest.mark.on_s3
def test_a_partition_with_equal_rows_in_any_order_is_not_written(tables: Tables) -> None:
    tables.replace(LEDGER, ["a"], ledger("a", "1", "2"))
    version = tables.version(LEDGER)
    assert tables.replace(LEDGER, ["a"], ledger("a", "2", "1")) == frozenset()
    assert tables.version(LEDGER) == version


@pytest.mark.on_s3
def test_only_partitions_that_differ_are_written(tables: Tables) -> None:
    both = pa.concat_tables([ledger("a", "1"), ledger("b", "2")])
    tables.replace(LEDGER, ["a", "b"], both)
    before = tables.sizes(LEDGER)
    changed = tables.replace(LEDGER, ["a", "b"], pa.concat_tables([ledger("a", "1"), ledger("b", "2", "3")]))
    assert changed == {"b"}
    assert tables.sizes(LEDGER)["a"] == before["a"]


def test_a_partition_can_be_emptied(tables: Tables) -> None:
    tables.replace(LEDGER, ["a"], ledger("a", "1"))
    assert tables.replace(LEDGER, ["a"], LEDGER.schema.empty_table()) == {"a"}
    assert tables.keys(LEDGER) == []


@pytest.mark.on_s3
def test_reads_can_select_columns_and_filter_rows(tables: Tables) -> None:
    tables.replace(LEDGER, ["a"], ledger("a", "1", "2"))
    found = tables.read(LEDGER, columns=["period", "bucket"], where=pc.field("period") == "2")
    assert found.to_pylist() == [{"bucket": "a", "period": "2"}]


@pytest.mark.on_s3
def test_partitions_of_different_grains_are_separate(tables: Tables) -> None:
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("grain", "period", "id")])
    spec = TableSpec("things", schema, partition_by=("grain", "period"))

    def thing(grain: str) -> pa.Table:
        return pa.table({"grain": [grain], "period": ["2024"], "id": [f"a {grain} thing"]}, schema=schema)

    tables.replace(spec, ["2024"], thing("yearly"), grain="yearly")
    tables.replace(spec, ["2024"], thing("daily"), grain="daily")
    assert tables.read(spec, ["2024"], grain="daily")["id"].to_pylist() == ["a daily thing"]
    tables.replace(spec, ["2024"], schema.empty_table(), grain="daily")
    assert tables.read(spec)["id"].to_pylist() == ["a yearly thing"]


@pytest.mark.on_s3
def test_a_state_changes_exactly_when_the_rows_of_its_partitions_change(root: str) -> None:
    mine, theirs = Tables(Storage(root)), Tables(Storage(root))
    assert mine.state(LEDGER, ["a"]) == frozenset()
    theirs.replace(LEDGER, ["a", "b"], pa.concat_tables([ledger("a", "1"), ledger("b", "2")]))
    first = mine.state(LEDGER, ["a"])
    assert first
    assert first == mine.state(LEDGER, ["a"]) == theirs.state(LEDGER, ["a"])
    assert first < mine.state(LEDGER, ["a", "b"])
    theirs.replace(LEDGER, ["b"], ledger("b", "3"))
    theirs.replace(LEDGER, ["a"], ledger("a", "1"))  # equal rows are not written
    assert mine.state(LEDGER, ["a"]) == first
    theirs.replace(LEDGER, ["a"], ledger("a", "1", "2"))
    second = mine.state(LEDGER, ["a"])
    assert second != first
    theirs.replace(LEDGER, ["a"], ledger("a", "1"))
    assert mine.state(LEDGER, ["a"]) not in {first, second}, "the rows were others in between"
    theirs.replace(LEDGER, ["a"], LEDGER.schema.empty_table())
    assert mine.state(LEDGER, ["a"]) == mine.state(LEDGER, ["never written"]) == frozenset()


def test_partitions_of_different_grains_have_separate_states(tables: Tables) -> None:
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("grain", "period", "id")])
    spec = TableSpec("things", schema, partition_by=("grain", "period"))
    for grain in ("yearly", "daily"):
        row = pa.table({"grain": [grain], "period": ["2024"], "id": [grain]}, schema=schema)
        tables.replace(spec, ["2024"], row, grain=grain)
    yearly, daily = (tables.state(spec, ["2024"], grain=grain) for grain in ("yearly", "daily"))
    assert yearly
    assert daily
    assert not yearly & daily


@pytest.mark.on_s3(always=True)
def test_a_second_writer_sees_the_rows_of_the_first(root: str) -> None:
    mine, theirs = Tables(Storage(root)), Tables(Storage(root))
    mine.replace(LEDGER, ["seed"], ledger("seed", "0"))
    calls = []

    def append(old: pa.Table) -> pa.Table:
        calls.append(old["period"].to_pylist())
        if len(calls) == 1:
            theirs.replace(LEDGER, ["a"], ledger("a", "theirs"))
        return pa.concat_tables([old, ledger("a", "mine")])

    mine.transform(LEDGER, ["a"], append)
    assert calls == [[], ["theirs"]]
    assert sorted(mine.read(LEDGER, ["a"])["period"].to_pylist()) == ["mine", "theirs"]


def test_a_writer_that_always_loses_raises_and_writes_nothing(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_pipeline.lake.tables.handles._ATTEMPTS", 3)
    mine, theirs = Tables(Storage(root)), Tables(Storage(root))
    theirs.replace(LEDGER, ["a"], ledger("a", "0"))

    def overtaken(old: pa.Table) -> pa.Table:
        theirs.transform(LEDGER, ["a"], lambda rows: ledger("a", "0", out=rows["output_digest"][0].as_py() + "x"))
        return pa.concat_tables([old, ledger("a", "mine")])

    with pytest.raises(CommitConflictError, match=r"table ledger: 3 attempts to replace a"):
        mine.transform(LEDGER, ["a"], overtaken)
    assert mine.read(LEDGER)["period"].to_pylist() == ["0"]


def _append_many(root: str, writer: int, bucket: str) -> None:
    tables = Tables(Storage(root))
    for number in range(6):
        tables.transform(
            LEDGER,
            [bucket],
            lambda old, n=number: pa.concat_tables([old, ledger(bucket, f"{writer}-{n}")]),  # type: ignore[misc]
        )


@pytest.mark.parametrize("shared", [True, False], ids=["one partition", "a partition each"])
def test_concurrent_processes_neither_lose_nor_duplicate_rows(root: str, shared: bool) -> None:
    writers = [
        PROCESSES.Process(target=_append_many, args=(root, n, "shared" if shared else f"own-{n}")) for n in range(3)
    ]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * 3
    periods = Tables(Storage(root)).read(LEDGER)["period"].to_pylist()
    assert sorted(periods) == sorted(f"{w}-{n}" for w in range(3) for n in range(6))


@pytest.mark.on_s3(always=True)
def test_a_table_of_an_older_version_gets_new_columns(root: str) -> None:
    fields = [pa.field("period", pa.string(), nullable=False), pa.field("id", pa.string(), nullable=False)]
    older = TableSpec("things", pa.schema([*fields, pa.field("size", pa.int64(), nullable=False)]), ("period",))
    newer = TableSpec(
        "things", pa.schema([*fields, pa.field("size", pa.int64()), pa.field("colour", pa.string())]), ("period",)
    )
    tables = Tables(Storage(root))
    tables.replace(older, ["a"], pa.table({"period": ["a"], "id": ["1"], "size": [5]}, schema=older.schema))
    assert tables.read(newer).to_pylist() == [{"period": "a", "id": "1", "size": 5, "colour": None}]
    row = {"period": "b", "id": "2", "size": None, "colour": "red"}
    tables.replace(newer, ["b"], pa.Table.from_pylist([row], schema=newer.schema))
    tables.replace(newer, ["c"], pa.Table.from_pylist([{**row, "period": "c"}], schema=newer.schema))
    assert sorted(found["period"] for found in tables.read(newer).to_pylist()) == ["a", "b", "c"]
    assert row in tables.read(newer).to_pylist()


def test_a_file_keeps_statistics_of_those_columns_only_by_which_files_are_skipped(root: str) -> None:
    Tables(Storage(root)).replace(LEDGER, ["a"], ledger("a", "1", "2"))
    [file] = Path(root).glob("tables/ledger/**/*.parquet")
    columns = [pq.ParquetFile(file).metadata.row_group(0).column(place) for place in range(len(LEDGER.schema) - 1)]
    assert {column.path_in_schema for column in columns if column.is_stats_set} == set(LEDGER.statistics)
    assert not any(column.has_dictionary_page or column.has_column_index for column in columns)


@pytest.mark.on_s3
def test_rows_that_few_files_have_are_read_from_these_alone(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.concat_tables([ledger("a", "1", "2"), ledger("b", "3", out="y"), ledger("c", "2", out="y")])
    tables.replace(LEDGER, ["a", "b", "c"], rows)
    opened: list[list[str]] = []

    def noted(storage: Storage, files: pa.Table, spec: TableSpec) -> Dataset:
        opened.append(files["partition.bucket"].to_pylist())
        return dataset(storage, files, spec)

    monkeypatch.setattr("memory_pipeline.lake.tables.partitions.dataset", noted)
    where = (pc.field("period") == "2") & (pc.field("output_digest") == "y")
    found = tables.read(LEDGER, columns=["bucket", "asset"], where=where, rare=["period", "output_digest"])
    assert found.to_pylist() == [{"bucket": "c", "asset": "a"}]
    assert opened == [["c"]]
    assert not tables.read(LEDGER, where=pc.field("period") == "9", rare=["period"]).num_rows
    assert tables.read(LEDGER, ["a"], where=where, rare=["period", "output_digest"]).schema == LEDGER.schema
