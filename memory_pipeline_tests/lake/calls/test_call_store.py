"""Calls: no paid answer is lost, no question is asked twice, and all spending counts once."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ulid import ULID

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.model_calls import Answer, Call, Kind, Purpose, Usage, Use
from memory_pipeline.domain.periods import Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.calls.call_store import Calls, Spending
from memory_pipeline.lake.files.storage import FileInfo, Storage
from memory_pipeline.lake.schemas import ANSWERS, MODEL_CALLS
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline_tests.building import PROCESSES

NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
HOUR = Period.parse("working", "2026-11-20T07")
NEXT_HOUR = Period.parse("working", "2026-11-20T08")
DAY = Period.parse("daily", "2026-11-19")
LEASE = timedelta(minutes=5)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


class CountingStorage(Storage):
    """Counts storage requests."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.asked: Counter[str] = Counter()

    def write(self, path: str, data: bytes) -> None:
        self.asked["write"] += 1
        super().write(path, data)

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        self.asked["create"] += 1
        return super().create(path, data, durable=durable)

    def read(self, path: str) -> bytes | None:
        self.asked["read"] += 1
        return super().read(path)

    def list(self, prefix: str) -> list[FileInfo]:
        self.asked["list"] += 1
        return super().list(prefix)

    def delete(self, paths: Any) -> None:
        listed = [*paths]
        self.asked["delete"] += len(listed)
        super().delete(listed)

    def since(self) -> dict[str, int]:
        """Return the requests since the last call."""
        asked, self.asked = dict(self.asked), Counter()
        return asked


class CountingTables(Tables):
    """Counts table requests."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.asked: Counter[str] = Counter()

    def version(self, spec: Any) -> int:
        self.asked["version"] += 1
        return super().version(spec)

    def read(self, spec: Any, *args: Any, **kwargs: Any) -> Any:
        self.asked[f"read {spec.name}"] += 1
        return super().read(spec, *args, **kwargs)

    def transform(self, spec: Any, *args: Any, **kwargs: Any) -> Any:
        self.asked[f"transform {spec.name}"] += 1
        return super().transform(spec, *args, **kwargs)


def opened(root: str, clock: Clock | None = None) -> Calls:
    storage = Storage(root)
    return Calls(storage, Tables(storage), clock or Clock())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def calls(root: str, clock: Clock) -> Calls:
    return opened(root, clock)


def call(
    question: object = "?",
    *,
    use: Use | None = None,
    at: datetime = NOW,
    cost: float | None = 0.01,
    workspace: str = "acme",
    period: Period = HOUR,
    **fields: Any,
) -> Call:
    """Return a request of 10 tokens in and 2 out."""
    made = Call(
        id=str(ULID()),
        request_id=str(ULID()),
        key=digest(question),
        use=use or Use(Scope(workspace, "support"), period),
        purpose=Purpose.EXTRACTION,
        model="openai/m",
        prompt_version="facts-1",
        texts=1,
        tokens_in=10,
        tokens_out=2,
        cost=cost,
        seconds=1.5,
        outcome="ok",
        called_at=at,
    )
    return dataclasses.replace(made, **fields)


def answer(
    question: object = "?",
    text: str = "an answer",
    *,
    period: Period = HOUR,
    purpose: Purpose = Purpose.EXTRACTION,
    workspace: str = "acme",
) -> Answer:
    use = Use(Scope(workspace, "support"), period)
    return Answer(digest(question), use, purpose, "openai/m", "facts-1", text, 10, 2, 0.01)


def vectors(question: object = "?", period: Period = HOUR) -> Answer:
    return dataclasses.replace(answer(question, "AACAPw==", period=period), purpose=Purpose.EMBEDDING)


def keep(calls: Calls, *questions: object, period: Period = HOUR, workspace: str = "acme") -> None:
    for question in questions:
        keep_one = call(question, period=period, workspace=workspace)
        calls.keep([keep_one], answer(question, f"answer to {question}", period=period, workspace=workspace))


def found(calls: Calls, question: object, period: Period = HOUR) -> str | None:
    answer = calls.find(digest(question), period)
    return None if answer is None else answer.text


def with_tables(root: str) -> int:
    """Create the tables with one row each, so that a race is about rows. Return the number of rows."""
    calls = opened(root)
    keep(calls, "before", workspace="before")
    calls.settle()
    return 1


def pending(root: str) -> list[str]:
    return [entry.path for entry in Storage(root).list("calls/pending")]


def landed(root: str) -> tuple[list[str], list[str]]:
    """Return the keys of all answers and the ids of all calls in the tables."""
    tables = Tables(Storage(root))
    return tables.read(ANSWERS)["key"].to_pylist(), tables.read(MODEL_CALLS)["id"].to_pylist()


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.on_s3
def test_a_stored_answer_is_immediately_visible_to_all_processes(root: str, calls: Calls) -> None:
    assert calls.find(digest("?"), HOUR) is None
    calls.keep([call()], answer())
    assert calls.find(digest("?"), HOUR) == answer()
    assert opened(root).find(digest("?"), HOUR) == answer()


def test_an_answer_is_found_after_settling(root: str, calls: Calls) -> None:
    calls.keep([call()], answer(text="Zoë: 你好\x00\u2028\n"))
    calls.settle()
    assert pending(root) == []
    assert opened(root).find(digest("?"), HOUR) == answer(text="Zoë: 你好\x00\u2028\n")
    loaded = opened(root)
    loaded.load([HOUR, DAY])
    assert loaded.find(digest("?"), HOUR) == answer(text="Zoë: 你好\x00\u2028\n")


def test_an_answer_is_stored_in_the_partition_of_its_request(root: str, calls: Calls) -> None:
    keep(calls, "of the hour", period=HOUR)
    keep(calls, "of the day", period=DAY)
    calls.settle()
    tables = Tables(Storage(root))
    assert tables.keys(ANSWERS, grain="working") == [HOUR.key]
    assert tables.keys(ANSWERS, grain="daily") == [DAY.key]
    assert tables.keys(MODEL_CALLS) == ["2026-11-20T08"]
    assert found(opened(root), "of the day", DAY) == "answer to of the day"


@pytest.mark.on_s3(always=True)
def test_the_first_of_two_answers_is_kept_and_both_are_charged(root: str, calls: Calls) -> None:
    late = opened(root)
    calls.keep([call(cost=1.0)], answer(text="first"))
    late.keep([call(cost=2.0)], answer(text="second"))
    assert found(opened(root), "?") == "first"
    late.settle()
    assert found(opened(root), "?") == "first"
    assert opened(root).spent("acme", "2026-11").cost == 3.0
    late.keep([call(cost=4.0)], answer(text="third"))
    late.settle()
    assert found(opened(root), "?") == "third"  # asked again, as by `run --fresh`


def test_a_call_without_an_answer_is_charged_and_not_found(root: str, calls: Calls) -> None:
    calls.keep([call(outcome="timeout"), call(outcome="invalid")])
    calls.keep([])
    assert opened(root).find(digest("?"), HOUR) is None
    assert len(pending(root)) == 1
    calls.settle()
    assert landed(root)[0] == []
    assert len(landed(root)[1]) == 2


def test_lone_surrogates_in_an_answer_are_replaced(root: str, calls: Calls) -> None:
    calls.keep([call()], answer(text="half \ud83d of one"))
    assert found(calls, "?") == found(opened(root), "?") == "half ? of one"
    calls.settle()
    assert found(opened(root), "?") == "half ? of one"


def test_a_key_that_is_not_a_digest_is_refused(root: str, calls: Calls) -> None:
    with pytest.raises(InputError, match="expected 32 hex digits"):
        calls.keep([], dataclasses.replace(answer(), key="../../tables/facts"))
    assert pending(root) == []


@pytest.mark.on_s3
def test_an_answer_settled_after_the_table_was_read_is_found(root: str, calls: Calls) -> None:
    calls.load([HOUR])
    other = opened(root)
    for number in range(3):
        assert found(calls, number) is None
        keep(other, number)
        other.settle()
        assert found(calls, number) == f"answer to {number}"


@pytest.mark.parametrize("moment", ["before the files are read", "before the table is read"])
def test_an_answer_settled_during_the_look_up_is_found(
    root: str, calls: Calls, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    with_tables(root)
    keep(calls, 1)
    calls.load([HOUR])
    other = opened(root)
    other.load([DAY])
    owner: type = Storage if moment == "before the files are read" else Tables
    name = "read" if owner is Storage else "version"
    ask = getattr(owner, name)

    def settle_first(*args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, ask)
            calls.settle()
        return ask(*args)

    monkeypatch.setattr(owner, name, settle_first)
    assert found(other, 1) == "answer to 1"


def test_only_the_last_loaded_partitions_are_in_memory(root: str, calls: Calls) -> None:
    for period in (HOUR, NEXT_HOUR, DAY):
        keep(calls, *(f"{period} {number}" for number in range(5)), period=period)
    calls.settle()
    assert calls._spending.files() == set()
    for period in (HOUR, NEXT_HOUR, DAY):
        calls.load([period])
        assert {each.use.period for each in calls._answers.values()} == {period}
        assert len(calls._answers) == 5
    assert found(calls, f"{HOUR} 0", HOUR) == f"answer to {HOUR} 0"


# --- cost ------------------------------------------------------------------------------------------------------------


def test_loaded_answers_are_found_without_storage_requests(root: str, calls: Calls) -> None:
    keep(calls, *range(20))
    calls.settle()
    storage = CountingStorage(root)
    tables = CountingTables(storage)
    loaded = Calls(storage, tables)
    loaded.load([HOUR])
    assert storage.since() == {"list": 1}
    tables.asked.clear()
    for _ in range(500):
        for number in range(20):
            assert found(loaded, number)
    assert storage.since() == {}
    assert not tables.asked


def test_an_unknown_answer_costs_one_read_and_a_version_check(root: str, calls: Calls) -> None:
    keep(calls, "known")
    calls.settle()
    storage = CountingStorage(root)
    tables = CountingTables(storage)
    loaded = Calls(storage, tables)
    loaded.load([HOUR])
    storage.since()
    tables.asked.clear()
    for number in range(10):
        assert found(loaded, number) is None
    assert storage.since() == {"read": 10}
    assert tables.asked == {"version": 10}


def test_only_changed_partitions_are_read_again(root: str, calls: Calls) -> None:
    keep(calls, "known")
    calls.settle()
    storage = Storage(root)
    tables = CountingTables(storage)
    loaded = Calls(storage, tables)
    loaded.load([HOUR, DAY])
    keep(calls, "elsewhere", period=NEXT_HOUR)
    calls.settle()
    tables.asked.clear()
    assert found(loaded, "unknown") is None
    assert tables.asked["read answers"] == 0
    keep(calls, "here")
    calls.settle()
    assert found(loaded, "here") == "answer to here"
    assert tables.asked["read answers"] == 1


def test_settling_nothing_costs_one_listing(root: str) -> None:
    storage = CountingStorage(root)
    tables = CountingTables(storage)
    assert Calls(storage, tables).settle() == {}
    assert storage.since() == {"list": 1}
    assert not tables.asked
    assert not Path(root).exists()


@pytest.mark.on_s3
def test_settling_costs_a_read_and_a_deletion_per_file_and_a_commit_per_table_and_grain(root: str) -> None:
    storage = CountingStorage(root)
    tables = CountingTables(storage)
    calls = Calls(storage, tables)
    keep(calls, *range(20), period=HOUR)
    keep(calls, *range(20, 30), period=DAY)
    assert storage.since() == {"create": 30}
    before = tables.version(ANSWERS), tables.version(MODEL_CALLS)
    calls.settle()
    # Of the three commits, the second to the same table checks whether another writer has its turn.
    assert storage.since() == {"list": 1, "read": 30 + 1, "delete": 30}
    # Each table is created first, in a separate version.
    assert before == (-1, -1)
    assert (tables.version(ANSWERS), tables.version(MODEL_CALLS)) == (2, 1)


def test_a_lease_costs_a_creation_and_a_deletion(root: str) -> None:
    storage = CountingStorage(root)
    calls = Calls(storage, Tables(storage))
    assert calls.claim(digest("?"), LEASE)
    assert not calls.claim(digest("?"), LEASE)
    calls.release(digest("?"))
    assert storage.since() == {"create": 1, "delete": 1}


@pytest.mark.on_s3(always=True)
def test_a_lease_excludes_others(root: str, calls: Calls) -> None:
    other = opened(root)
    assert calls.claim(digest("?"), LEASE)
    assert not other.claim(digest("?"), LEASE)
    calls.release(digest("?"))
    assert other.claim(digest("?"), LEASE)


# --- settling --------------------------------------------------------------------------------------------------------


@pytest.mark.on_s3
def test_settling_returns_the_usage_of_each_partition(calls: Calls) -> None:
    keep(calls, 1, 2, period=HOUR)
    keep(calls, 3, period=DAY, workspace="other")
    calls.keep([call("failed", period=DAY, cost=None, outcome="timeout", tokens_in=0, tokens_out=0)])
    assert calls.settle() == {
        HOUR: Usage(calls=2, tokens_in=20, tokens_out=4, cost=0.02),
        DAY: Usage(calls=2, tokens_in=10, tokens_out=2, cost=0.01),
    }
    assert calls.settle() == {}


def test_a_crash_between_commit_and_deletion_duplicates_nothing(
    root: str, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(calls, *range(10))
    calls.keep([call("failed", outcome="timeout")])

    def crash(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "delete", crash)
        with pytest.raises(OSError, match="killed"):
            calls.settle()
    assert len(pending(root)) == 11
    before = landed(root)
    tables = Tables(Storage(root))
    versions = tables.version(ANSWERS), tables.version(MODEL_CALLS)
    again = opened(root)
    assert again.spent("acme", "2026-11").calls == 11  # both pending and settled
    assert again.settle() == {}
    assert pending(root) == []
    assert landed(root) == before
    assert (tables.version(ANSWERS), tables.version(MODEL_CALLS)) == versions
    assert again.spent("acme", "2026-11") == opened(root).spent("acme", "2026-11")


def test_a_crash_between_the_tables_is_recovered(root: str, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(calls, *range(5))
    whole = Tables.transform

    def crash(self: Tables, spec: Any, *args: Any, **kwargs: Any) -> Any:
        if spec is MODEL_CALLS:
            raise OSError("killed")
        return whole(self, spec, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "transform", crash)
        with pytest.raises(OSError, match="killed"):
            calls.settle()
    assert opened(root).settle()[HOUR].calls == 5
    assert [len(each) for each in landed(root)] == [5, 5]


def test_threads_that_settle_concurrently_store_everything_once(root: str) -> None:
    before = with_tables(root)
    writers = [opened(root) for _ in range(4)]
    for number, writer in enumerate(writers):
        keep(writer, *(f"{number} {n}" for n in range(10)))
    gate = threading.Barrier(4)

    def settle(calls: Calls) -> Usage:
        gate.wait()
        return calls.settle().get(HOUR, Usage())

    with ThreadPoolExecutor(4) as pool:
        usages = list(pool.map(settle, writers))
    assert sum(usage.calls for usage in usages) == 40
    keys, ids = landed(root)
    assert len(set(keys)) == len(keys) == len(set(ids)) == len(ids) == 40 + before
    assert pending(root) == []


def _keep_and_settle(root: str, writer: int, start: Any, counts: Any) -> None:
    calls = opened(root)
    start.wait()
    landed = 0
    for number in range(5):
        keep(calls, f"{writer} {number}", f"shared {number}", workspace=f"w{writer}")
        landed += calls.settle().get(HOUR, Usage()).calls
    counts.put(landed)


def test_processes_that_settle_concurrently_store_everything_once(root: str) -> None:
    before = with_tables(root)
    start, counts = PROCESSES.Barrier(2), PROCESSES.SimpleQueue()
    writers = [PROCESSES.Process(target=_keep_and_settle, args=(root, n, start, counts)) for n in range(2)]
    for process in writers:
        process.start()
    assert sum(counts.get() for _ in writers) == 20
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0, 0]
    keys, ids = landed(root)
    questions = ["before", *(each for n in range(5) for each in (f"0 {n}", f"1 {n}", f"shared {n}"))]
    assert Counter(keys) == Counter(map(digest, questions))
    assert len(set(ids)) == len(ids) == 20 + before
    assert pending(root) == []


@pytest.mark.on_s3
def test_settling_nothing_new_writes_no_version(root: str, calls: Calls) -> None:
    keep(calls, 1)
    calls.settle()
    tables = Tables(Storage(root))
    versions = tables.version(ANSWERS), tables.version(MODEL_CALLS)
    calls.settle()
    late = opened(root)
    late.load([HOUR])
    found(late, 1)
    late.spent("acme", "2026-11")
    late.settle()
    assert (tables.version(ANSWERS), tables.version(MODEL_CALLS)) == versions


# --- killed ----------------------------------------------------------------------------------------------------------


def _keep_and_die(root: str) -> None:
    calls = Calls(Storage(root), Tables(Storage(root)))
    calls.load([HOUR])
    for number in range(10):
        calls.keep([call(number, cost=1.0)], answer(number, f"answer to {number}"))
    calls.keep([call("vectors", cost=1.0, purpose=Purpose.EMBEDDING)], vectors("vectors"))
    calls.keep([call("failed", cost=1.0, outcome="timeout")])
    for number in range(5):
        assert calls.claim(digest("open", number), LEASE)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_loses_no_answer_and_holds_no_lease(root: str) -> None:
    process = PROCESSES.Process(target=_keep_and_die, args=(root,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    calls = Calls(Storage(root), Tables(Storage(root)))
    calls.load([HOUR])
    assert [found(calls, number) for number in range(10)] == [f"answer to {number}" for number in range(10)]
    assert calls.find(digest("vectors"), HOUR) == vectors("vectors")
    for number in range(5):
        assert calls.claim(digest("open", number), LEASE)
    spent = Usage(calls=12, tokens_in=120, tokens_out=24, cost=12.0)
    assert calls.spent("acme", "2026-11") == spent
    assert calls.settle() == {HOUR: spent}
    assert calls.spent("acme", "2026-11") == spent
    late = opened(root)
    assert late.spent("acme", "2026-11") == spent
    assert found(late, 3) == "answer to 3"
    assert len(pending(root)) == 1  # the vectors, whose rows are not written
    calls.settle([HOUR])
    assert pending(root) == []


# --- vectors ---------------------------------------------------------------------------------------------------------


def keep_vectors(calls: Calls, question: object, period: Period = HOUR) -> None:
    calls.keep([call(question, period=period, purpose=Purpose.EMBEDDING)], vectors(question, period))


def test_vectors_stay_pending_until_their_rows_are_written(root: str, calls: Calls) -> None:
    keep_vectors(calls, 1)
    assert calls.settle()[HOUR].calls == 1
    assert opened(root).find(digest(1), HOUR) == vectors(1)
    assert calls.settle([NEXT_HOUR]) == {}
    assert opened(root).find(digest(1), HOUR) == vectors(1)
    assert calls.settle([HOUR]) == {}
    assert pending(root) == []
    assert landed(root)[0] == []
    assert len(landed(root)[1]) == 1
    assert calls.spent("acme", "2026-11").calls == 1


def test_vectors_are_settled_and_deleted_in_one_step(root: str, calls: Calls) -> None:
    keep_vectors(calls, 1)
    keep(calls, 2)
    assert calls.settle([HOUR])[HOUR].calls == 2
    assert pending(root) == []


def test_pending_vectors_are_read_once(root: str) -> None:
    storage = CountingStorage(root)
    calls = Calls(storage, Tables(storage))
    keep_vectors(calls, 1)
    calls.settle()
    storage.since()
    calls.settle()
    assert storage.since() == {"list": 1}
    calls.settle([HOUR])
    assert storage.since() == {"list": 1, "delete": 1}


def test_a_process_deletes_the_vectors_that_it_found(root: str, calls: Calls) -> None:
    keep_vectors(calls, 1)
    later = opened(root)
    later.load([HOUR])
    assert later.find(digest(1), HOUR) == vectors(1)
    later.settle([HOUR])
    assert pending(root) == []


def test_vectors_of_a_concurrent_run_are_kept(root: str, calls: Calls) -> None:
    """That run may compute the partition from other rows, and be killed before it commits them."""
    keep_vectors(calls, 1)
    other = opened(root)
    other.load([HOUR])
    assert other.settle([HOUR])[HOUR].calls == 1
    assert opened(root).find(digest(1), HOUR) == vectors(1)


def test_unused_vectors_are_deleted_after_a_week(root: str, calls: Calls, clock: Clock) -> None:
    keep_vectors(calls, 1)
    calls.settle()
    clock.now += timedelta(days=7)
    later = opened(root, clock)
    later.settle()
    assert len(pending(root)) == 1
    clock.now += timedelta(seconds=1)
    later.settle()
    assert pending(root) == []
    assert opened(root).spent("acme", "2026-11").calls == 1


# --- spending --------------------------------------------------------------------------------------------------------


def test_spending_is_counted_at_once_by_workspace_and_month(root: str, calls: Calls) -> None:
    assert calls.spent("acme", "2026-11") == Usage()
    last = datetime(2026, 10, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    first = datetime(2026, 11, 1, tzinfo=UTC)
    elsewhere = first.astimezone(datetime.fromisoformat("2026-01-01T00:00:00-08:00").tzinfo)  # 31 October there
    calls.keep([call("a", at=last, cost=1.0)], answer("a"))
    calls.keep([call("b", at=first, cost=2.0)], answer("b"))
    calls.keep([call("c", at=elsewhere, cost=4.0, workspace="other")], answer("c"))
    for _ in range(2):  # pending, then landed
        for each in (calls, opened(root)):
            assert each.spent("acme", "2026-10") == Usage(1, 10, 2, 1.0)
            assert each.spent("acme", "2026-11") == Usage(1, 10, 2, 2.0)
            assert each.spent("other", "2026-11") == Usage(1, 10, 2, 4.0)
            assert each.spent("other", "2026-10") == each.spent("nobody", "2026-11") == Usage()
        calls.settle()


def test_shares_of_a_request_add_their_tokens_and_count_as_one_request(root: str, calls: Calls) -> None:
    shares = [
        call("batch", request_id="r", workspace=workspace, cost=cost, purpose=Purpose.EMBEDDING)
        for workspace, cost in [("acme", 0.25), ("acme", 0.5), ("other", None)]
    ]
    free = call("free", cost=None, tokens_in=0, tokens_out=0, outcome="timeout")
    calls.keep(shares, vectors("batch"))
    calls.keep([free])
    for _ in range(2):
        for each in (calls, opened(root)):
            assert each.spent("acme", "2026-11") == Usage(calls=2, tokens_in=20, tokens_out=4, cost=0.75)
            assert each.spent("other", "2026-11") == Usage(calls=1, tokens_in=10, tokens_out=2, cost=None, unpriced=1)
        calls.settle()


def test_usage_of_a_kind_of_call_is_summed_over_workspaces(root: str, calls: Calls) -> None:
    kind = Kind(Purpose.EXTRACTION, "openai/m", "facts-1")
    calls.keep([call("a"), call("b", workspace="other", tokens_out=8, cost=None)])
    calls.keep([call("c", model="openai/n"), call("d", prompt_version="facts-2"), call("e", purpose=Purpose.SUMMARY)])
    calls.keep([call("f", tokens_out=0, outcome="timeout"), call("g", at=datetime(2026, 10, 31, tzinfo=UTC))])
    for _ in range(2):  # pending, then landed
        for each in (calls, opened(root)):
            assert each.answered(kind, "2026-11") == Usage(2, 20, 10, 0.01, 1)
            assert each.answered(kind, "2026-10").calls == 1
            assert each.answered(kind, "2026-09") == Usage()
        calls.settle()


def test_spending_of_other_processes_is_counted_on_request(root: str, calls: Calls) -> None:
    assert calls.spent("acme", "2026-11") == Usage()
    other = opened(root)
    keep(other, 1)
    assert calls.spent("acme", "2026-11").calls == 0
    assert calls.spent("acme", "2026-11", look=True).calls == 1
    other.settle()
    assert calls.spent("acme", "2026-11", look=True).calls == 1


def test_spending_of_other_processes_is_counted_after_the_next_load(root: str, calls: Calls) -> None:
    other = opened(root)
    assert calls.spent("acme", "2026-11") == Usage()
    expected = 0
    for step in range(6):
        keep(other, step)
        if step % 2:
            other.settle()
        keep(calls, f"own {step}")
        if step % 3 == 1:
            calls.settle()
        expected += 2
        calls.load([HOUR])
        assert calls.spent("acme", "2026-11").calls == expected
    other.settle()
    calls.load([HOUR])
    assert calls.spent("acme", "2026-11") == opened(root).spent("acme", "2026-11")


def test_vectors_that_are_both_settled_and_pending_count_once(root: str, calls: Calls) -> None:
    keep_vectors(calls, 1)
    calls.settle()
    reader = opened(root)
    assert reader.spent("acme", "2026-11").calls == 1
    keep_vectors(calls, 2)
    calls.settle()
    reader.load([HOUR])
    assert reader.spent("acme", "2026-11").calls == 2
    calls.settle([HOUR])
    reader.load([HOUR])
    assert reader.spent("acme", "2026-11").calls == 2


def test_a_file_that_is_already_in_the_table_counts_once(root: str, calls: Calls) -> None:
    reader = opened(root)
    reader.load([HOUR])
    keep_vectors(calls, 1)
    calls.settle()
    assert reader.spent("acme", "2026-11").calls == 1
    reader.load([HOUR])
    assert reader.spent("acme", "2026-11").calls == 1


def test_a_file_found_by_its_own_writer_counts_once(root: str) -> None:
    spending = Spending(Tables(Storage(root)))
    spending.add("file", [call(1)])
    spending.refresh((), {"file": [call(1)]})
    assert spending.spent("acme", "2026-11").calls == 1
    spending.refresh(["file"], {})
    assert spending.spent("acme", "2026-11").calls == 0


def test_spending_reads_the_table_once_and_then_only_changed_hours(root: str, calls: Calls) -> None:
    for hour in range(5):
        calls.keep([call(hour, at=NOW - timedelta(hours=hour))], answer(hour))
    calls.settle()
    storage = Storage(root)
    tables = CountingTables(storage)
    reader = Calls(storage, tables)
    for _ in range(100):
        reader.spent("acme", "2026-11")
        reader.spent("other", "2026-11")
    assert tables.asked["read model_calls"] == 1
    reader.load([HOUR])
    reader.spent("acme", "2026-11")
    assert tables.asked["read model_calls"] == 1
    keep(calls, "new")
    calls.settle()
    reader.load([HOUR])
    assert reader.spent("acme", "2026-11").calls == 6
    assert tables.asked["read model_calls"] == 2


# --- foreign files ---------------------------------------------------------------------------------------------------


def content(**fields: object) -> bytes:
    """Return the content of the pending file of question 1, with changes."""
    record: dict[str, Any] = {
        "kept_at": NOW.isoformat(),
        "calls": [],
        "answer": {
            "key": digest(1),
            "workspace_id": "acme",
            "agent_id": "support",
            "identity": "",
            "scope": Scope("acme", "support").key,
            "grain": "working",
            "period": HOUR.key,
            "purpose": "extraction",
            "model": "m",
            "prompt_version": None,
            "tokens_in": 1,
            "tokens_out": 1,
            "cost": None,
            "answer": "text",
        },
    }
    for name, value in fields.items():
        target = record if name in record else record["answer"]
        target[name] = value
    return json.dumps(record).encode()


def test_a_valid_file_is_read(root: str, calls: Calls) -> None:
    Storage(root).write(f"calls/pending/answers/{digest(1)}.json", content())
    assert found(calls, 1) == "text"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"[" * 100_000,
        content()[:-20],
        content(kept_at="2026-11-20T08:00:00"),
        content(kept_at="9999-12-31T23:59:59-12:00"),
        content(kept_at=5),
        content(calls={}),
        content(calls=[5]),
        content(calls=[{}]),
        content(answer=[]),
        content(answer=None),
        content(key=digest("another")),
        content(workspace_id=""),
        content(grain="hourly"),
        content(period="2026-W01"),
        content(period="2026-11-20T07' OR '1'='1"),
        content(purpose="fun"),
        content(tokens_in=-1),
        content(tokens_in=2**63),
        content(tokens_in=True),
        content(tokens_in="1"),
        content(cost=-1.0),
        content(cost=float("nan")),
        content(cost=float("inf")),
        content(cost=10**400),
        content(model="\ud800"),
        content(prompt_version=1),
    ],
)
def test_an_unreadable_file_is_kept_and_reported_once(
    root: str, calls: Calls, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"calls/pending/answers/{digest(1)}.json"
    Storage(root).write(path, data)
    keep(calls, "good")
    with caplog.at_level(logging.WARNING):
        calls.load([HOUR])
        assert found(calls, 1) is None
        assert calls.settle()[HOUR].calls == 1
        calls.load([HOUR])
        assert calls.settle() == {}
    assert Storage(root).read(path) == data
    [record] = caplog.records
    assert "cannot be read and is ignored" in record.getMessage()
    assert len(record.getMessage()) < 500


def test_an_unreadable_file_is_read_again_after_a_change(root: str) -> None:
    storage = CountingStorage(root)
    path = f"calls/pending/answers/{digest(1)}.json"
    storage.write(path, b"garbage")
    calls = Calls(storage, Tables(storage))
    calls.settle()
    storage.since()
    calls.settle()
    assert storage.since() == {"list": 1}
    storage.write(path, content())
    calls.settle()
    assert found(opened(root), 1) == "text"


def test_an_answer_replaces_an_unreadable_file_of_the_same_name(root: str, calls: Calls) -> None:
    Storage(root).write(f"calls/pending/answers/{digest('?')}.json", b"garbage")
    calls.keep([call()], answer())
    calls.settle()
    assert opened(root).find(digest("?"), HOUR) == answer()


@pytest.mark.parametrize(
    "name",
    ["README.md", "answers/notes.json", f"answers/{digest(1)}.txt", f"{digest(1)}.json", f"answers/x/{digest(1)}.json"],
)
def test_files_with_foreign_names_are_left_alone(root: str, calls: Calls, name: str) -> None:
    path = f"calls/pending/{name}"
    Storage(root).write(path, content())
    calls.load([HOUR])
    assert calls.settle([HOUR]) == {}
    assert Storage(root).read(path) == content()
    assert found(calls, 1) is None


def test_a_file_deleted_while_it_is_read_is_ignored(root: str, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(calls, 1)
    monkeypatch.setattr(Storage, "read", lambda *_: None)
    assert calls.settle() == {}


# --- threads ---------------------------------------------------------------------------------------------------------


def test_threads_send_each_question_once(root: str) -> None:
    """Each thread calls like callers of models: find, claim, find, request, keep, release."""
    before = with_tables(root)
    each = [opened(root) for _ in range(2)]
    asked: list[object] = []
    gate = threading.Barrier(64)

    def ask(number: int) -> None:
        calls = each[number % 2]
        calls.load([HOUR])
        gate.wait()
        for question in range(20):
            key = digest(question)
            while calls.find(key, HOUR) is None:
                if not calls.claim(key, LEASE):
                    continue
                try:
                    if calls.find(key, HOUR) is None:
                        asked.append(question)
                        keep(calls, question)
                        if question % 5 == 0:
                            calls.settle()
                finally:
                    calls.release(key)

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(ask, range(64)))
    assert sorted(map(str, asked)) == sorted(map(str, range(20)))
    each[0].settle()
    assert [len(ids) for ids in landed(root)] == [20 + before, 20 + before]
    for calls in each:
        calls.load([HOUR])
        assert calls.spent("acme", "2026-11") == opened(root).spent("acme", "2026-11")


def test_a_lake_has_a_call_store(lake: Lake) -> None:
    keep(lake.calls, 1)
    assert found(Lake(lake.storage.uri).calls, 1) == "answer to 1"
    assert lake.calls is lake.calls


def _rows(root: str) -> Sequence[dict[str, Any]]:
    rows: Sequence[dict[str, Any]] = Tables(Storage(root)).read(MODEL_CALLS).to_pylist()
    return rows


def test_a_call_is_stored_as_the_expected_row(root: str, calls: Calls) -> None:
    made = call(cost=None, prompt_version=None, at=NOW.replace(microsecond=123_456))
    calls.keep([made])
    calls.settle()
    [row] = _rows(root)
    assert row == {
        "hour": "2026-11-20T08",
        "id": made.id,
        "request_id": made.request_id,
        "key": made.key,
        "called_at": made.called_at,
        "workspace_id": "acme",
        "agent_id": "support",
        "identity": "",
        "scope": Scope("acme", "support").key,
        "purpose": "extraction",
        "grain": "working",
        "period": HOUR.key,
        "model": "openai/m",
        "prompt_version": None,
        "texts": 1,
        "tokens_in": 10,
        "tokens_out": 2,
        "cost": None,
        "seconds": 1.5,
        "outcome": "ok",
    }
