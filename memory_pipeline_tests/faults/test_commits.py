"""A commit whose answer is lost is made once, and its writer knows that it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.collections.collection import VectorCollection
from memory_pipeline.lake.collections.item import VectorItem
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.lake.lake import Lake
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline.lake.tables.marts import Marts
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.fault_proxy import Fault
from memory_pipeline_tests.faults.rows import indexed, ledger
from memory_pipeline_tests.index_rows import older, put_rows

if TYPE_CHECKING:
    from memory_pipeline_tests.fault_proxy import FaultProxyProcess

#: Faults after which the client does not know whether a request was executed, and one after which it was not. ``late``
#: is the worst case: the store executes the request and answers 500, so the client sends it again and gets a conflict.
#: After ``lost`` the client does not repeat the request.
KINDS = ("late", "lost", "half", "reset")
COMMIT = r"_delta_log/\d+\.json$"
ANNA = Scope("acme", "anna")


def struck_by(*kinds: str) -> pytest.MarkDecorator:
    """Parametrize a test by kinds of faults; by all of them in the thorough run."""
    return pytest.mark.parametrize("kind", KINDS if IS_THOROUGH else kinds)


def held(uri: str) -> list[tuple[str, str]]:
    """Return the ledger's rows, read by a new process."""
    rows = Tables(Storage(uri)).read(LEDGER)
    return sorted(zip(rows["bucket"].to_pylist(), rows["period"].to_pylist(), strict=True))


def made(uri: str) -> Tables:
    """Return tables with two partitions of the ledger."""
    tables = Tables(Storage(uri))
    tables.replace(LEDGER, ["a", "b"], pa.concat_tables([ledger("a", "1", "2"), ledger("b", "3")]))
    return tables


def strike(proxy: FaultProxyProcess, kind: str, match: str = COMMIT) -> None:
    """Inject a fault into the next matching write request."""
    proxy.faults = [Fault(kind, method="PUT", match=match)]


@struck_by("late", "lost")
def test_rows_are_added_once(far: str, proxy: FaultProxyProcess, kind: str) -> None:
    tables = made(far)
    strike(proxy, kind)
    # A change that appends to its input would append twice if it were retried on its own commit.
    done = tables.transform(LEDGER, ["a"], lambda old: pa.concat_tables([old, ledger("a", f"new {old.num_rows}")]))

    assert proxy.counts[kind] == 1
    assert done == {"a"}
    assert held(far) == [("a", "1"), ("a", "2"), ("a", "new 2"), ("b", "3")]
    assert tables.replace(LEDGER, ["b"], ledger("b", "4")) == {"b"}


@struck_by("late")
def test_a_table_is_created_once(far: str, proxy: FaultProxyProcess, kind: str) -> None:
    strike(proxy, kind, r"_delta_log/0+\.json$")
    made(far)
    assert proxy.counts[kind] == 1
    assert held(far) == [("a", "1"), ("a", "2"), ("b", "3")]


@struck_by("late", "lost")
def test_rows_are_dropped_once_and_others_are_kept(far: str, proxy: FaultProxyProcess, kind: str) -> None:
    tables = made(far)
    strike(proxy, kind)
    counts = tables.drop_rows(LEDGER, None, lambda rows: pc.equal(rows["period"], "1"), ["period"])

    assert proxy.counts[kind] == 1
    assert held(far) == [("a", "2"), ("b", "3")]
    assert counts == {"a": 1}


@struck_by("lost")
def test_partitions_are_removed_once(far: str, proxy: FaultProxyProcess, kind: str) -> None:
    tables = made(far)
    strike(proxy, kind)
    assert tables.remove(LEDGER, ["a"]) == {"a"}
    assert proxy.counts[kind] == 1
    assert held(far) == [("b", "3")]


@struck_by("late")
def test_a_table_is_purged(far: str, proxy: FaultProxyProcess, kind: str) -> None:
    tables = made(far)
    tables.remove(LEDGER, ["a"])
    strike(proxy, kind)
    tables.purge(LEDGER)

    assert proxy.counts[kind] == 1
    assert held(far) == [("b", "3")]
    assert not [entry for entry in Storage(far).list("tables") if "bucket=a" in entry.path]


@struck_by("late")
@pytest.mark.parametrize("match", [r"_delta_log/0+\.json$", r"_delta_log/0+1\.json$"], ids=["made", "changed"])
def test_a_mart_is_written_once(far: str, proxy: FaultProxyProcess, kind: str, match: str) -> None:
    marts = Marts(Storage(far))
    rows = ledger("a", "1", "2").select(["bucket", "period"])
    strike(proxy, kind, match)
    first = marts.replace("growth", rows, column="bucket", values=None)
    second = marts.replace("growth", ledger("b", "3").select(rows.column_names), column="bucket", values=["b"])

    assert proxy.counts[kind] == 1
    assert (first.changed, second.changed) == (True, True)
    found = Marts(Storage(far)).dataset("growth")
    assert found is not None
    assert sorted(found.to_table()["period"].to_pylist()) == ["1", "2", "3"]


def contents(uri: str) -> list[str]:
    return sorted(VectorIndex(Storage(uri)).read([ANNA], ["content"], "grain = 'daily'")["content"].to_pylist())


@struck_by("lost")
def test_rows_of_an_index_are_written_once(far: str, proxy: FaultProxyProcess, kind: str) -> None:
    index = VectorIndex(Storage(far))
    monday, tuesday = (Period.parse("daily", day) for day in ("2024-01-15", "2024-01-16"))
    strike(proxy, kind, r"\.manifest$")
    put_rows(index, Grain.DAILY, [monday], {ANNA: indexed("2024-01-15", "one", "two")})
    assert proxy.counts[kind] == 1
    assert contents(far) == ["one", "two"]
    strike(proxy, kind, r"\.manifest$")
    put_rows(index, Grain.DAILY, [monday, tuesday], {ANNA: indexed("2024-01-16", "three")})
    assert contents(far) == ["three"]


@struck_by("late")
def test_rows_are_removed_from_an_index_once(far: str, proxy: FaultProxyProcess, kind: str) -> None:
    index = VectorIndex(Storage(far))
    days = [Period.parse("daily", day) for day in ("2024-01-15", "2024-01-16")]
    both = pa.concat_tables([indexed("2024-01-15", "one"), indexed("2024-01-16", "two")])
    put_rows(index, Grain.DAILY, days, {ANNA: both})
    strike(proxy, kind, r"\.manifest$")
    assert index.delete(older("2024-01-15", grain="daily")) == 1
    assert proxy.counts[kind] == 1
    assert contents(far) == ["two"]


@struck_by("late")
def test_items_of_a_collection_are_written_once(far: str, proxy: FaultProxyProcess, kind: str) -> None:
    vectors = VectorCollection(Lake(far), ANNA, 2)
    vectors.upsert([VectorItem("a", [1.0, 0.0], "one")])
    strike(proxy, kind, r"\.manifest$")
    vectors.upsert([VectorItem("a", [1.0, 0.0], "two"), VectorItem("b", [0.0, 1.0], "three")])
    assert proxy.counts[kind] == 1
    assert [match.content for match in vectors.search([1.0, 0.0])] == ["two", "three"]
    strike(proxy, kind, r"\.manifest$")
    vectors.delete(["a"])
    assert vectors.stats().items == 1
