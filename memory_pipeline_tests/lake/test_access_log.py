"""The log of access: rows of calls, the table, the mart, retention, erasure, and what may go wrong."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.analytics import Warehouse
from memory_pipeline.client.pipeline import run_all
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.errors import AccessDeniedError
from memory_pipeline.lake import Lake, access_log, waiting_rows
from memory_pipeline.lake.schemas import ACCESS_LOG
from memory_pipeline_tests.erasure.lakes import assert_verified

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

NOW = datetime.now(UTC)


def memory(root: str, agent: str, user_id: str | None = None) -> Memory:
    return Memory(root, workspace_id="acme", agent_id=agent, user_id=user_id)


@pytest.fixture
def shared(shared_folder: SharedFolder, root: str) -> str:
    """A lake in which agent A lets agent B write to its own memory, and read that of Anna."""

    def fill(folder: Path) -> None:
        a = memory(str(folder), "A")
        a.add("The code of the vault is 4711.", conversation_id="c")
        a.remember("The vault was built by Doctor Silva.")
        a.grant("B", level="write")
        a.grant("B", user_id="anna")
        memory(str(folder), "A", "anna").remember("Anna likes figs.")

    shutil.copytree(shared_folder("access-log", fill), root)
    return root


def rows(*memories: Memory) -> list[dict[str, Any]]:
    """Return the rows of the table, oldest first, with what these objects have not written yet."""
    for one in memories:
        one.lake.access_log.flush()
    lake = memories[0].lake
    lake.access_log.settle(datetime.now(UTC))
    found = [row for row in lake.tables.read(ACCESS_LOG).to_pylist() if row["operation"] != access_log.USE]
    return sorted(found, key=lambda row: str(row["called_at"]))


def test_each_call_is_one_row(shared: str) -> None:
    a, b, c = (memory(shared, name) for name in "ABC")
    own, anna = b.of_agent("A"), b.of_agent("A", "anna")
    hit = own.reader.search_memory(query="code of the vault")[0]
    anna.reader.context("What does Anna like?")
    anna.reader.memories.list()
    own.reader.graph.facts_about("Silva")
    own.reader.get(hit.id)
    own.reader.of_agent("A")  # reads nothing
    new = own.writer.remember("The vault is green.")
    a.search("vault")  # one's own memory
    a.reader.of_agent("A").search_memory()
    with pytest.raises(AccessDeniedError):
        c.search_shared("vault", "A")
    assert c.of_agent("A").reader.imagine(["vault"]) == []
    with pytest.raises(AccessDeniedError):
        own.writer.grant("C")
    with pytest.raises(AccessDeniedError):
        c.of_agent("A", "anna").writer.remember("x")
    found = rows(b, c)
    assert {(row["workspace_id"], row["agent_id"]) for row in found} == {("acme", "A")}
    assert [(row["asking_agent"], row["operation"], row["outcome"], row["identity"]) for row in found] == [
        ("B", "search_memory", "ok", ""),
        ("B", "context", "ok", "user:anna"),
        ("B", "memories.list", "ok", "user:anna"),
        ("B", "graph.facts_about", "ok", ""),
        ("B", "get", "ok", ""),
        ("B", "remember", "ok", ""),
        ("C", "search_memory", "denied", ""),
        ("C", "imagine", "denied", ""),
        ("B", "share_with_agent", "denied", ""),
        ("C", "remember", "denied", "user:anna"),
    ]
    [search, context, listed, graph, got, wrote, *denied] = found
    assert hit.id in search["result_ids"]
    assert (got["result_ids"], wrote["result_ids"]) == ([hit.id], [new])
    assert (search["level"], context["level"], graph["results"], listed["results"]) == ("write", "write", 0, 2)
    assert [len(row["grant_ids"]) for row in found] == [1, 2, 2, 1, 1, 1, 0, 0, 0, 0]
    assert set(context["grant_ids"]) == {
        one.id for name in (None, "anna") for one in memory(shared, "A", name).grants()
    }
    assert {(row["level"], row["results"]) for row in denied} == {(None, 0)}


SCRIPT = """
import sys
from memory_pipeline import Memory
Memory(sys.argv[1], workspace_id="acme", agent_id="B").search_shared("code of the vault", "A")
"""


def test_a_read_is_in_the_mart_after_a_run(shared: str, models: Models) -> None:
    lake = Lake(shared)
    b = memory(shared, "B")
    b.search_shared("code of the vault", "A")
    b.lake.access_log.flush()
    list(run_all(lake, models, NOW))
    [row] = Warehouse(lake).query("shared_access").to_pylist()
    assert (row["agent_id"], row["asking_agent"], row["operation"]) == ("A", "B", "search_memory")
    assert (row["outcome"], row["calls"], row["level"]) == ("ok", 1, "write")
    assert row["grant_ids"] == [memory(shared, "A").grants()[0].id]
    before = lake.tables.version(ACCESS_LOG)
    list(run_all(lake, models, NOW))
    assert lake.tables.version(ACCESS_LOG) == before
    assert lake.storage.list("access") == []


def test_rows_are_written_soon_and_only_once(shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_rows, "DELAY", 0.05)
    b = memory(shared, "B")
    b.search_shared("vault", "A")
    deadline = time.monotonic() + 10
    while not (files := b.lake.storage.list("access")) and time.monotonic() < deadline:
        time.sleep(0.01)
    [file] = files
    data = b.lake.storage.read(file.path) or b""
    assert len(rows(b)) == 1
    b.lake.storage.write(file.path, data)  # a killed run had not deleted it
    assert len(rows(b)) == 1


def test_a_log_that_cannot_be_written_or_read_stops_nothing(
    shared: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    b = memory(shared, "B")
    assert b.search_shared("code of the vault", "A")
    monkeypatch.setattr(b.lake.storage, "write", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
    assert rows(b) == []
    assert "1 rows of access/pending are lost: OSError: the disk is full" in caplog.text


def test_damaged_rows_are_set_aside_and_the_others_are_stored(shared: str) -> None:
    b = memory(shared, "B")
    b.search_shared("vault", "A")
    b.lake.access_log.flush()
    [file] = b.lake.storage.list("access")
    good = (b.lake.storage.read(file.path) or b"").decode()
    lines = [
        "{", "[]", "7", "{}", "\ufffd\0", '{"called_at": "soon"}', '{"called_at": 7}',
        '{"called_at": "0001-01-01T00:00:00+14:00"}', "[" * 100_000,
    ]  # fmt: skip
    wrong: list[dict[str, object]] = [
        {"results": "many"}, {"level": 7}, {"asking_agent": ""}, {"results": 10**30}, {"operation": "\ud800"},
        {"operation": None}, {"workspace_id": "a\nb"}, {"result_ids": [7]},
    ]  # fmt: skip
    lines += [json.dumps(json.loads(good) | {"id": "0" * 32} | value) for value in wrong]
    b.lake.storage.write(file.path, "\n".join([*lines, good]).encode())
    assert [row["operation"] for row in rows(b)] == ["search_memory"]
    rejected = {one.where: one for one in b.lake.journal.quarantined()}
    assert {where: one.record for where, one in rejected.items()} == {
        f"{file.path}:{number}": line for number, line in enumerate(lines, start=1)
    }
    assert all("access" in one.reason for one in rejected.values())
    assert b.lake.storage.list("access") == []


def test_rows_are_deleted_after_a_year(shared: str) -> None:
    b = memory(shared, "B")
    b.search_shared("vault", "A")
    assert len(rows(b)) == 1
    b.lake.access_log.settle(datetime.now(UTC) + timedelta(days=364))
    assert b.lake.tables.keys(ACCESS_LOG)
    b.lake.access_log.settle(datetime.now(UTC) + timedelta(days=367))
    assert not b.lake.tables.keys(ACCESS_LOG)


def read_all(root: str) -> Memory:
    b = memory(root, "B")
    b.of_agent("A").reader.memories.list()
    b.of_agent("A", "anna").reader.memories.list()
    b.lake.access_log.flush()
    return b


@pytest.mark.parametrize(
    ("subject", "left"),
    [
        (Subject.user("acme", "anna"), [""]),
        (Subject.agent(Scope("acme", "A")), []),
        (Subject.agent(Scope("acme", "B")), []),
        (Subject.agent(Scope("other", "A")), ["", "user:anna"]),
    ],
)
def test_an_erasure_removes_rows_and_ids(shared: str, models: Models, subject: Subject, left: list[str]) -> None:
    b = read_all(shared)
    report = forget(b.lake, models, subject, datetime.now(UTC))
    assert [row["identity"] for row in rows(b)] == left
    counts = {part.place: part.count for part in report.removed if part.what == "rows"}
    assert counts.get("access_log", 0) == 2 - len(left)
    assert_verified(Lake(shared), report)


def test_ids_of_erased_items_leave_the_log(shared: str, models: Models) -> None:
    b = memory(shared, "B")
    b.search_shared("code of the vault", "A")
    assert len(rows(b)[0]["result_ids"]) == 2
    b.search_shared("code of the vault", "A")  # still in memory at the erasure
    reader = memory(shared, "C")
    memory(shared, "A").grant("C")
    reader.search_shared("code of the vault", "A")  # in another process
    report = forget(b.lake, models, Subject.conversation(Scope("acme", "A"), "c"), datetime.now(UTC))
    assert [row["result_ids"] for row in rows(b, reader)] == [[]] * 3
    assert_verified(Lake(shared), report)


def test_a_fork_writes_its_own_rows(shared: str) -> None:
    b = memory(shared, "B")
    b.search_shared("vault", "A")
    if (child := os.fork()) == 0:
        try:
            b.search_shared("vault", "A")
            b.lake.access_log.flush()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert len(rows(b)) == 2


def test_the_exit_writes_what_waits_also_to_a_bucket(s3_root: str) -> None:
    a = memory(s3_root, "A")
    a.add("The code of the vault is 4711.", conversation_id="c")
    a.grant("B")
    subprocess.run([sys.executable, "-c", SCRIPT, s3_root], check=True)
    [file] = Lake(s3_root).storage.list("access")
    assert json.loads(Lake(s3_root).storage.read(file.path) or b"")["asking_agent"] == "B"


def test_a_lake_that_is_gone_loses_no_row(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_rows, "DELAY", 0.05)
    logs = [Lake(root).access_log]
    logs[0].note(Scope("acme", "B"), Scope("acme", "A"), "search_memory")
    logs.clear()
    gc.collect()
    deadline = time.monotonic() + 10
    while not (files := Lake(root).storage.list("access")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(files) == 1
