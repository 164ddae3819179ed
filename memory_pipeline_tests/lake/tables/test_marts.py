"""Marts are replaced in parts, in one commit, and equal parts are not written."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from memory_pipeline.lake.tables.marts import Marts

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake


@pytest.fixture
def marts(lake: Lake) -> Marts:
    return Marts(lake.storage)


def table(**months: int) -> pa.Table:
    return pa.table(
        {"month": pa.array(list(months), pa.string()), "n": pa.array(list(months.values()), pa.int64())}
    ).sort_by("month")


def held(marts: Marts, name: str = "m") -> dict[str, int]:
    dataset = marts.dataset(name)
    assert dataset is not None
    rows = dataset.to_table()
    return dict(zip(rows["month"].to_pylist(), rows["n"].to_pylist(), strict=True))


@pytest.mark.on_s3
def test_a_mart_does_not_exist_before_it_is_written(marts: Marts) -> None:
    assert (marts.dataset("m"), marts.files("m"), marts.size("m")) == (None, frozenset(), (0, 0))


@pytest.mark.on_s3(always=True)
def test_replacing_some_parts_keeps_the_files_of_the_others(marts: Marts) -> None:
    assert marts.replace("m", table(a=1, b=2, c=3), column="month", values=None).changed
    before = marts.files("m")
    done = marts.replace("m", table(b=20), column="month", values=["b", "c"])
    assert (done.changed, done.files) == (True, marts.files("m"))
    assert held(marts) == {"a": 1, "b": 20}
    assert {path for path in before if "month=a" in path} <= done.files
    assert marts.size("m")[0] == 2
    assert marts.size("m")[1] > 0


def test_equal_rows_are_not_written(marts: Marts) -> None:
    marts.replace("m", table(a=1, b=2), column="month", values=None)
    files = marts.files("m")
    for rows, values in ((table(a=1, b=2), None), (table(b=2), ["b"]), (table(), ["c"]), (table(), [])):
        done = marts.replace("m", rows, column="month", values=values)
        assert (done.changed, done.files) == (False, files)
    backwards = table(a=1, b=2).sort_by([("month", "descending")])
    assert not marts.replace("m", backwards, column="month", values=None).changed


def test_a_part_can_be_emptied(marts: Marts) -> None:
    marts.replace("m", table(a=1), column="month", values=None)
    assert marts.replace("m", table(), column="month", values=["a"]).changed
    assert held(marts) == {}
    assert marts.replace("m", table(a=1), column="month", values=["a"]).changed
    assert held(marts) == {"a": 1}


@pytest.mark.on_s3
def test_replacing_a_whole_mart_may_change_its_columns(marts: Marts) -> None:
    marts.replace("m", pa.table({"a": [1]}), column=None, values=None)
    assert marts.replace("m", pa.table({"b": ["x"]}), column=None, values=None).changed
    dataset = marts.dataset("m")
    assert dataset is not None
    assert dataset.to_table().to_pylist() == [{"b": "x"}]


@pytest.mark.parametrize(("before", "after"), [(None, "month"), ("month", None)])
def test_a_mart_may_switch_between_whole_and_partial_replacement(
    marts: Marts, before: str | None, after: str | None
) -> None:
    marts.replace("m", table(a=1, b=2), column=before, values=None)
    assert marts.replace("m", table(a=1, b=3), column=after, values=None).changed
    if after:
        assert marts.replace("m", table(b=4), column=after, values=["b"]).changed
    assert held(marts) == {"a": 1, "b": 4 if after else 3}


def test_writers_of_one_mart_wait_for_each_other(lake: Lake) -> None:
    Marts(lake.storage).replace("m", table(**{str(number): 0 for number in range(6)}), column="month", values=None)
    errors: list[Exception] = []

    def write(number: int) -> None:
        try:
            for value in range(1, 4):
                Marts(lake.storage).replace("m", table(**{str(number): value}), column="month", values=[str(number)])
        except Exception as error:  # noqa: BLE001  # whatever it is, the test shows it
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert held(Marts(lake.storage)) == {str(number): 3 for number in range(6)}
