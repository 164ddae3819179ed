"""Removals of partitions and rows affect only the given ones, in one commit."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.schema_types import TableSpec
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline_tests.effort import examples

SCHEMA = pa.schema(
    [
        pa.field("grain", pa.string(), nullable=False),
        pa.field("period", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("texts", pa.list_(pa.string())),
    ]
)
THINGS = TableSpec("things", SCHEMA, partition_by=("grain", "period"))


def things(grain: str, **ids: list[int]) -> pa.Table:
    rows = [{"grain": grain, "period": key, "id": n, "texts": [f"{n}"]} for key, own in ids.items() for n in own]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@pytest.fixture
def tables(root: str) -> Tables:
    tables = Tables(Storage(root))
    tables.replace(THINGS, ["a", "b", "c"], things("daily", a=[1, 2, 3], b=[4, 5], c=[6]), grain="daily")
    tables.replace(THINGS, ["a"], things("weekly", a=[1, 2]), grain="weekly")
    return tables


def ids(tables: Tables, grain: str = "daily") -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in tables.read(THINGS, grain=grain).to_pylist():
        assert row["texts"] == [f"{row['id']}"]
        found.setdefault(row["period"], []).append(row["id"])
    return found


def parquet_files(root: str) -> set[Path]:
    return {path for path in Path(root, "tables", "things").rglob("*.parquet") if "_delta_log" not in path.parts}


def test_partitions_are_removed_in_one_commit_that_writes_no_rows(root: str, tables: Tables) -> None:
    version, files = tables.version(THINGS), parquet_files(root)
    assert tables.remove(THINGS, ["a", "c", "never"], grain="daily") == {"a", "c"}
    assert tables.version(THINGS) == version + 1
    assert parquet_files(root) == files
    assert ids(tables) == {"b": [4, 5]}
    assert ids(tables, "weekly") == {"a": [1, 2]}
    assert ids(Tables(Storage(root))) == {"b": [4, 5]}


@pytest.mark.on_s3
def test_removing_missing_partitions_changes_nothing(root: str, tables: Tables) -> None:
    version = tables.version(THINGS)
    assert tables.remove(THINGS, ["never"], grain="daily") == frozenset()
    assert tables.remove(THINGS, [], grain="daily") == frozenset()
    assert tables.drop_rows(THINGS, ["never"], lambda rows: pc.less(rows["id"], 9), ["id"], grain="daily") == {}
    assert tables.version(THINGS) == version
    empty = Tables(Storage(f"{root}-other"))
    assert empty.remove(THINGS, None) == frozenset()
    assert empty.drop_rows(THINGS, None, lambda rows: pc.less(rows["id"], 9), ["id"]) == {}


@pytest.mark.on_s3(always=True)
def test_all_partitions_are_removed(tables: Tables) -> None:
    assert tables.remove(THINGS, None, grain="daily") == {"a", "b", "c"}
    assert tables.keys(THINGS) == ["a"]
    assert tables.remove(THINGS, None) == {"a"}
    assert tables.read(THINGS).num_rows == 0
    tables.replace(THINGS, ["a"], things("daily", a=[7]), grain="daily")
    assert ids(tables) == {"a": [7]}


def test_rows_are_dropped_in_one_commit_without_touching_other_partitions(root: str, tables: Tables) -> None:
    version, states = tables.version(THINGS), {key: tables.state(THINGS, [key], grain="daily") for key in "abc"}
    seen = []

    def gone(rows: pa.Table) -> np.ndarray:
        seen.append(rows)
        return np.isin(rows["id"].to_numpy(), [2, 4, 5])

    assert tables.drop_rows(THINGS, None, gone, ["period", "id"], grain="daily") == {"a": 1, "b": 2}
    assert [rows.column_names for rows in seen] == [["period", "id"]], "all partitions are asked about at once"
    assert sorted(zip(*seen[0].to_pydict().values(), strict=True)) == [
        ("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5), ("c", 6)
    ]  # fmt: skip
    assert tables.version(THINGS) == version + 1
    assert ids(tables) == {"a": [1, 3], "c": [6]}
    assert ids(tables, "weekly") == {"a": [1, 2]}
    assert tables.state(THINGS, ["c"], grain="daily") == states["c"]
    assert tables.state(THINGS, ["a"], grain="daily") != states["a"]
    assert tables.drop_rows(THINGS, None, gone, ["period", "id"], grain="daily") == {}
    assert tables.version(THINGS) == version + 1
    assert tables.replace(THINGS, ["a"], things("daily", a=[1, 3]), grain="daily") == frozenset()


def test_partitions_of_several_grains_may_share_a_name(tables: Tables) -> None:
    assert tables.drop_rows(THINGS, ["a"], lambda rows: pc.equal(rows["id"], 1), ["id"]) == {"a": 2}
    assert (ids(tables)["a"], ids(tables, "weekly")["a"]) == ([2, 3], [2])


def test_a_retry_reads_only_new_files_and_leaves_none_behind(root: str, tables: Tables) -> None:
    other = Tables(Storage(root))
    seen: list[list[int]] = []

    def gone(rows: pa.Table) -> np.ndarray:
        seen.append(rows["id"].to_pylist())
        if len(seen) == 1:
            other.replace(THINGS, ["a"], things("daily", a=[1, 8]), grain="daily")
        return np.isin(rows["id"].to_numpy(), [1, 4])

    assert tables.drop_rows(THINGS, None, gone, ["id"], grain="daily") == {"a": 1, "b": 1}
    assert [sorted(rows) for rows in seen] == [[1, 2, 3, 4, 5, 6], [1, 8]]
    assert ids(tables) == {"a": [8], "b": [5], "c": [6]}
    tables.purge(THINGS)
    assert len(parquet_files(root)) == 4, "one for each partition"


def test_a_removal_that_always_loses_raises_and_removes_nothing(
    root: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_pipeline.lake.tables.handles._ATTEMPTS", 2)
    other = Tables(Storage(root))
    numbers = iter(range(100, 200))

    def gone(rows: pa.Table) -> np.ndarray:
        other.replace(THINGS, ["a"], things("daily", a=[1, next(numbers)]), grain="daily")
        return np.isin(rows["id"].to_numpy(), [1, 4])

    with pytest.raises(CommitConflictError, match=r"table things: 2 attempts to remove rows of it lost"):
        tables.drop_rows(THINGS, ["a", "b"], gone, ["id"], grain="daily")
    assert ids(tables) == {"a": [1, 101], "b": [4, 5], "c": [6]}
    tables.purge(THINGS)
    assert len(parquet_files(root)) == 4


def test_an_error_while_selecting_rows_propagates(tables: Tables) -> None:
    def gone(rows: pa.Table) -> np.ndarray:
        raise ValueError("no idea")

    with pytest.raises(ValueError, match="no idea"):
        tables.drop_rows(THINGS, None, gone, ["id"])


def test_a_table_of_an_older_version_keeps_its_columns(root: str) -> None:
    older = TableSpec("things", SCHEMA.remove(3), partition_by=("grain", "period"))
    tables = Tables(Storage(root))
    tables.replace(older, ["a"], things("daily", a=[1, 2]).drop_columns(["texts"]), grain="daily")
    assert tables.drop_rows(THINGS, ["a"], lambda rows: pc.equal(rows["id"], 1), ["id"], grain="daily") == {"a": 1}
    assert tables.read(THINGS).to_pylist() == [{"grain": "daily", "period": "a", "id": 2, "texts": None}]
    tables.replace(THINGS, ["b"], things("daily", b=[3]), grain="daily")
    assert tables.read(THINGS)["id"].to_pylist() == [3, 2]


def _among(numbers: list[int], rows: pa.Table) -> np.ndarray:
    return np.isin(rows["id"].to_numpy(), numbers)


@settings(max_examples=examples(12), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["replace", "remove", "drop", "purge"]),
            st.sets(st.sampled_from("abcd")),
            st.sets(st.integers(0, 5)),
        ),
        min_size=2,
        max_size=7,
    )
)
def test_a_table_behaves_like_a_dictionary(steps: list[tuple[str, set[str], set[int]]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        tables = Tables(Storage(root))
        model: dict[str, list[int]] = {}
        for verb, keys, numbers in steps:
            chosen = sorted(numbers)
            if verb == "replace":
                tables.replace(THINGS, keys, things("daily", **dict.fromkeys(keys, chosen)), grain="daily")
                model |= dict.fromkeys(keys, chosen)
            elif verb == "remove":
                assert tables.remove(THINGS, keys, grain="daily") == keys & model.keys()
                model = {key: own for key, own in model.items() if key not in keys}
            elif verb == "drop":
                wanted = {key: len(numbers & set(model.get(key, ()))) for key in keys}
                among = partial(_among, chosen)
                dropped = tables.drop_rows(THINGS, keys, among, ["id"], grain="daily")
                assert dropped == {key: count for key, count in wanted.items() if count}
                model = {k: [n for n in own if k not in keys or n not in numbers] for k, own in model.items()}
            else:
                tables.purge(THINGS)
            model = {key: own for key, own in model.items() if own}
            assert ids(tables) == model
            assert ids(Tables(Storage(root))) == model
