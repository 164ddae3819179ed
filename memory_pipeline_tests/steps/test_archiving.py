"""Retention moves memory to the archive; it comes back with the same rows and ids, and erasure reaches it there."""

from __future__ import annotations

import os
import shutil
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from memory_pipeline.analytics import Warehouse
from memory_pipeline.checks import CheckContext, all_checks, run_checks
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, verify
from memory_pipeline.erasure.redaction import redact
from memory_pipeline.errors import DamagedError, LakeError
from memory_pipeline.lake.erasures import begin_erasure
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index.lance_tables import Databases
from memory_pipeline.lake.lake import CONFIGURATION, Lake
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.archiving import archive_rows, archived_scopes, restore_rows
from memory_pipeline.steps.repair import find_damage
from memory_pipeline.steps.results import Expiration
from memory_pipeline.steps.retention import expire
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests.building import ACME, PROCESSES, START, conversation, run, table_rows, write
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.secret_samples import SECRETS

if TYPE_CHECKING:
    from memory_pipeline.erasure import ErasureReport
    from memory_pipeline.models.factory import Models
    from memory_pipeline.steps.archiving import Restoration
    from memory_pipeline_tests.conftest import SharedFolder

#: Days and weeks have expired under the free plan, months have not.
LATER = datetime(2024, 4, 20, 9, tzinfo=UTC)
STAYS = LATER + timedelta(days=30)
ALL_ARCHIVED = (
    "workspaces: {acme: {retention: {plan: free, working: archive, daily: archive, weekly: archive}}, other: {}}"
)
TALKS = [
    conversation("I moved to Porto last week.", "My dog is called Bruno."),
    conversation("Bruno ate my passport on Tuesday.", at="2024-01-15T10:00", conversation_id="c2", name="Milo"),
    conversation("I will fly to Oslo in March.", at="2024-01-23T09:00", conversation_id="c3"),
    conversation("The contract is worth 9,000 euros.", conversation_id="c5", scope=Scope("acme", "sales")),
]
#: What changes a lake. A killed process has done only the first of these.
CHANGES: tuple[tuple[type[Any], tuple[str, ...]], ...] = (
    (Storage, ("write", "create", "delete")),
    (Tables, ("transform", "drop_rows", "purge")),
    (Databases, ("edit", "commit", "drop")),
)
PARTS = [number / 20 for number in range(20)] if IS_THOROUGH else [0.0, 0.2, 0.4, 0.6, 0.8, 0.97]


@pytest.fixture(scope="module")
def made_once(shared_folder: SharedFolder, models: Models) -> Path:
    def fill(path: Path) -> None:
        made = Lake(str(path))
        made.ensure()
        made.storage.write(CONFIGURATION, ALL_ARCHIVED.encode())
        write(made, *TALKS, now=LATER)
        run(made, models, LATER)

    return shared_folder("archiving", fill)


@pytest.fixture
def kept(made_once: Path, root: str) -> Lake:
    """A lake whose hours, days and weeks are old enough for the archive."""
    return Lake(shutil.copytree(made_once, root))


@pytest.fixture
def archived(made_once: Path, shared_folder: SharedFolder, root: str) -> Lake:
    """The same, after they have moved there."""
    folder = shared_folder("archiving-expired", lambda path: expire_at(Lake(str(shutil.copytree(made_once, path)))))
    return Lake(shutil.copytree(folder, root))


def expire_at(lake: Lake, now: datetime = LATER) -> Expiration:
    return expire(lake, START, now)


def restore(lake: Lake, scope: Scope = ACME, **span: datetime) -> Restoration:
    since, until = span.get("since"), span.get("until")
    return restore_rows(lake, archived_scopes(lake, scope), since, until, STAYS)


def restore_all(lake: Lake) -> None:
    for agent in (ACME, Scope("acme", "sales")):
        restore(lake, agent)


def memory(lake: Lake) -> dict[str, Any]:
    """Return the rows that retention may move, and what a reader finds."""
    rows = table_rows(lake)
    found = {name: rows[name] for name in ("messages", "facts", "summaries", "operations", "memories", "graph_facts")}
    index = {grain: sorted(map(str, lake.index.scan(where=f"grain = '{grain}'").to_pylist())) for grain in Grain}
    return {**found, "index": index}


def archive(lake: Lake) -> dict[str, list[str]]:
    """Return the sorted ids in the archive by table."""
    found: dict[str, list[str]] = {}
    for file in lake.archived.files():
        rows = lake.archived.read(file)
        assert rows is not None
        assert rows.num_rows == file.rows
        found.setdefault(file.spec.name, []).extend(rows["id"].to_pylist())
    return {name: sorted(ids) for name, ids in found.items()}


def hits(lake: Lake, models: Models) -> list[str]:
    found = MemoryReader(lake, ACME, models.embedder).search_memory(
        query="What did Bruno do with the passport?", now=LATER
    )
    return [hit.id for hit in found if "passport" in hit.content and hit.grain is Grain.WORKING]


def assert_sound(lake: Lake, now: datetime = LATER) -> None:
    assert find_damage(lake) == []
    results = run_checks(CheckContext(lake, now), all_checks())
    assert not [one for one in results if one.is_error]
    assert not [status.pending for grain in Grain if (status := grain_status(lake, grain, START, now)).pending]


def test_expired_memory_is_not_found_until_it_is_restored_with_the_same_rows_and_ids(
    kept: Lake, models: Models
) -> None:
    before, found = memory(kept), hits(kept, models)
    assert found
    done = expire_at(kept)
    assert done.archived == done.rows > 0
    assert hits(kept, models) == []
    assert kept.tables.read(MESSAGES).num_rows == 0
    assert kept.tables.read(SUMMARIES, grain="daily").num_rows == 0
    assert kept.tables.read(SUMMARIES, grain="monthly").num_rows > 0
    moved = archive(kept)
    assert moved["messages"] == [row["id"] for row in before["messages"]]
    assert sum(map(len, moved.values())) == done.archived
    totals = kept.archived.totals()
    assert totals["messages"]["rows"] == 5
    assert sum(one["rows"] for one in totals.values()) == done.archived
    assert_sound(kept)

    restore_all(kept)
    assert memory(kept) == before
    assert hits(kept, models) == found
    assert archive(kept) == {}
    assert_sound(kept)


def test_a_part_is_restored_by_agent_and_time(archived: Lake) -> None:
    day = datetime(2024, 1, 15, tzinfo=UTC)
    done = restore(archived, since=day, until=day + timedelta(days=1))
    assert done.rows["messages"] == 3
    contents = archived.tables.read(MESSAGES)["content"].to_pylist()
    assert sorted(contents) == [
        "Bruno ate my passport on Tuesday.",
        "I moved to Porto last week.",
        "My dog is called Bruno.",
    ]
    assert archived.tables.read(SUMMARIES, grain="daily")["period"].to_pylist() == ["2024-01-15"]
    assert_sound(archived)
    # What is left comes back later, and nothing comes back twice.
    restore_all(archived)
    assert archived.tables.read(MESSAGES).num_rows == 5
    assert restore(archived).rows == {}


def test_restored_memory_stays_until_its_time_and_is_archived_again(archived: Lake, models: Models) -> None:
    before = archive(archived)
    restore_all(archived)
    rows = memory(archived)
    assert not any(run(archived, models, LATER).values())
    assert expire_at(archived).rows == 0
    assert memory(archived) == rows
    assert expire_at(archived, STAYS - timedelta(hours=1)).rows == 0
    assert expire_at(archived, STAYS).archived == sum(map(len, before.values()))
    assert archive(archived) == before
    assert list(archived.archived.restored()) == []


def test_a_late_message_joins_its_archived_day(archived: Lake, models: Models) -> None:
    late = conversation("I lost my umbrella in Braga.", at="2024-01-15T08:00", conversation_id="c9")
    write(archived, late, now=LATER)
    run(archived, models, LATER)
    expire_at(archived, LATER + timedelta(days=1))
    restore_all(archived)
    assert "I lost my umbrella in Braga." in archived.tables.read(MESSAGES)["content"].to_pylist()
    days = {row["period"]: row["content"] for row in archived.tables.read(SUMMARIES, grain="daily").to_pylist()}
    assert "Porto" in days["2024-01-15"] or "Bruno" in days["2024-01-15"]
    assert "Braga" in days["2024-01-15"]
    for spec in (MESSAGES, FACTS):
        ids = archived.tables.read(spec)["id"].to_pylist()
        assert len(ids) == len(set(ids))
    assert_sound(archived)


def test_a_message_that_arrives_while_others_move_is_not_lost(kept: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is dropped only once it is in the archive itself."""
    [row] = kept.tables.read(MESSAGES, ["2024-01-23T09"]).to_pylist()
    add, is_written = type(kept.archived).add, False

    def adding(*args: Any) -> Any:
        nonlocal is_written
        done = add(*args)
        if not is_written:
            is_written = True
            late = pa.Table.from_pylist([{**row, "id": "message:late"}], schema=MESSAGES.schema)
            Lake(kept.storage.uri).tables.transform(
                MESSAGES, ["2024-01-23T09"], lambda old: pa.concat_tables([old, late]), shard=None
            )
        return done

    monkeypatch.setattr(type(kept.archived), "add", adding)
    expire_at(kept)
    left = kept.tables.read(MESSAGES)["id"].to_pylist()
    assert set(left) | set(archive(kept)["messages"]) >= {"message:late", row["id"]}


def test_a_row_that_arrives_late_in_a_table_with_nothing_to_archive_is_not_lost(
    kept: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another workspace's rows of the hour are deleted, and this one's come after the archive was written."""
    kept.storage.write(
        CONFIGURATION,
        b"workspaces: {acme: {retention: {plan: free, working: archive}}, zeta: {retention: {plan: free}}}",
    )
    rows = kept.tables.read(MESSAGES).to_pylist()
    kept.tables.replace(MESSAGES, kept.tables.keys(MESSAGES), MESSAGES.schema.empty_table())
    other = pa.Table.from_pylist([{**rows[0], "workspace_id": "zeta"}], schema=MESSAGES.schema)
    late = pa.Table.from_pylist([{**rows[0], "id": "message:late"}], schema=MESSAGES.schema)
    kept.tables.replace(MESSAGES, {rows[0]["period"]}, other)

    def archiving(lake: Lake, parts: Any) -> Any:
        done = archive_rows(lake, parts)
        lake.tables.transform(MESSAGES, {rows[0]["period"]}, lambda old: pa.concat_tables([old, late]), shard=None)
        return done

    monkeypatch.setattr("memory_pipeline.steps.retention.archive_rows", archiving)
    expire_at(Lake(kept.storage.uri))
    assert Lake(kept.storage.uri).tables.read(MESSAGES)["id"].to_pylist() == ["message:late"]


def test_a_restore_beside_expire_loses_nothing(kept: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = sorted(kept.tables.read(MESSAGES)["id"].to_pylist())
    other = Lake(kept.storage.uri)

    def archiving(lake: Lake, parts: Any) -> Any:
        done = archive_rows(lake, parts)
        restore_all(other)
        return done

    monkeypatch.setattr("memory_pipeline.steps.retention.archive_rows", archiving)
    expire_at(kept)
    monkeypatch.undo()
    found = {*Lake(kept.storage.uri).tables.read(MESSAGES)["id"].to_pylist(), *archive(kept).get("messages", ())}
    assert sorted(found) == ids


def test_a_replaced_file_keeps_its_place_in_the_order(archived: Lake) -> None:
    file = next(one for one in archived.archived.files(ACME) if one.place == "messages" and one.rows > 1)
    rows = archived.archived.read(file)
    assert rows is not None
    archived.archived.replace(file, ACME, rows.slice(0, 1))
    [left] = archived.archived.files(ACME, "messages", file.period)
    assert (left.number, left.rows) == (file.number, 1)
    archived.archived.replace(left, ACME, rows.slice(1, 1))
    [again] = archived.archived.files(ACME, "messages", file.period)
    assert again.number == file.number
    assert archived.archived.read(again) == rows.slice(1, 1)


def test_only_the_classes_of_the_configuration_are_archived(kept: Lake) -> None:
    kept.storage.write(CONFIGURATION, b"defaults: {retention: {plan: free, daily: archive}}")
    lake = Lake(kept.storage.uri)
    done = expire_at(lake)
    assert 0 < done.archived < done.rows
    assert {file.place for file in lake.archived.files()} == {"daily"}
    restore_all(lake)
    assert lake.tables.read(SUMMARIES, grain="daily").num_rows == done.archived
    assert lake.tables.read(MESSAGES).num_rows == 0
    assert_sound(lake)


def test_a_damaged_file_is_named_and_nothing_is_restored(archived: Lake) -> None:
    file = next(file for file in archived.archived.files(ACME) if file.place == "messages")
    archived.storage.write(file.path, b"PAR1 broken")
    with pytest.raises(DamagedError, match=file.path):
        restore(archived)
    assert archived.tables.read(MESSAGES).num_rows == 0


def test_sql_reads_the_archive(archived: Lake) -> None:
    def rows(name: str) -> int:
        return int(Warehouse(archived).query(f"stg_{name}").num_rows)

    moved = archive(archived)
    for name in ("messages", "facts", "summaries"):
        assert rows(f"archived_{name}") == len(moved[name])
    assert Warehouse(archived).query("stg_archived_messages").schema == Warehouse(archived).query("stg_messages").schema
    assert rows("messages") == 0
    restore_all(archived)
    assert (rows("archived_messages"), rows("messages")) == (0, len(moved["messages"]))


def _operate(root: str, operation: str, most: int, done: Any = None) -> None:
    """Expire or restore. Kill this process at a change of the lake, or report the number of changes."""
    count = 0

    def counted(kind: type[Any], name: str) -> None:
        change = getattr(kind, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count > most:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **named)

        setattr(kind, name, counting)

    for kind, names in CHANGES:
        for name in names:
            counted(kind, name)
    (expire_at if operation == "expire" else restore_all)(Lake(root))
    if done is not None:
        done.put(count)


@pytest.fixture(scope="module")
def changes(made_once: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The numbers of changes of both operations."""
    root, queue, found = str(tmp_path_factory.mktemp("counting") / "lake"), PROCESSES.Queue(), {}
    shutil.copytree(made_once, root)
    for operation in ("expire", "restore"):
        process = PROCESSES.Process(target=_operate, args=(root, operation, 1_000_000, queue))
        process.start()
        found[operation] = queue.get(timeout=300)
        process.join()
    return found


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("operation", ["expire", "restore"])
def test_nothing_is_lost_or_doubled_by_a_kill(kept: Lake, changes: dict[str, int], operation: str, part: float) -> None:
    before = memory(kept)
    if operation == "restore":
        expire_at(kept)
    process = PROCESSES.Process(target=_operate, args=(kept.storage.uri, operation, int(part * changes[operation])))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    lake = Lake(kept.storage.uri)
    present = {row["id"] for row in table_rows(lake)["messages"]} | {*archive(lake).get("messages", ())}
    assert present == {row["id"] for row in before["messages"]}
    if operation == "expire":
        expire_at(lake)
        ids = [identifier for found in archive(lake).values() for identifier in found]
        assert len(ids) == len(set(ids))
    restore_all(lake)
    assert memory(lake) == before
    assert archive(lake) == {}
    assert_sound(lake)


def _found(lake: Lake, receipt: ErasureReport) -> list[str]:
    result = verify(lake, receipt)
    return [*map(str, result.findings), *result.unsearched]


def _texts(lake: Lake) -> str:
    """Return everything that is stored below the root, with Parquet files decoded."""
    found = []
    for path in Path(lake.storage.uri).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found += [str(path), f"{path}: {data.decode(errors='replace')}"]
            found += [str(pq.read_table(path, partitioning=None).to_pylist())] if data[:4] == b"PAR1" else []
    return "\n".join(found)


def test_an_erased_person_leaves_the_archive(archived: Lake, models: Models) -> None:
    assert "Milo" in _texts(archived)
    receipt = forget(archived, models, Subject.person("acme", ["Milo"]), LATER)
    assert _found(archived, receipt) == []
    assert "Milo" not in _texts(archived)
    assert any(one.place == "archive" for one in receipt.removed)
    restore_all(archived)
    contents = archived.tables.read(MESSAGES)["content"].to_pylist()
    assert len(contents) == 4
    assert _found(archived, receipt) == []
    assert_sound(archived)


def test_an_erased_conversation_leaves_the_archive_and_what_was_made_of_it(archived: Lake, models: Models) -> None:
    receipt = forget(archived, models, Subject.conversation(ACME, "c3"), LATER)
    assert _found(archived, receipt) == []
    assert "Oslo" not in _texts(archived)
    restore_all(archived)
    assert archived.tables.read(MESSAGES).num_rows == 4
    for grain in SUMMARY_GRAINS:
        assert "Oslo" not in str(archived.tables.read(SUMMARIES, grain=grain.value)["content"].to_pylist())
    assert _found(archived, receipt) == []


def test_an_erased_agent_leaves_no_file_in_the_archive(archived: Lake, models: Models) -> None:
    restore(archived, until=datetime(2024, 1, 20, tzinfo=UTC))
    receipt = forget(archived, models, Subject.agent(ACME), LATER)
    assert _found(archived, receipt) == []
    assert (
        archived.storage.folders("archive")
        == [file.path.split("/")[1] for file in archived.archived.files(Scope("acme", "sales"))][:1]
    )


def test_a_secret_is_redacted_in_the_archive(root: str, models: Models) -> None:
    lake, key = Lake(root), SECRETS["github-token"]
    lake.ensure()
    lake.storage.write(CONFIGURATION, f"defaults: {{secrets: {{redact: 'off'}}}}\n{ALL_ARCHIVED}".encode())
    write(lake, *TALKS, conversation(f"Please keep in mind that my key is {key}.", conversation_id="c9"), now=LATER)
    run(lake, models, LATER)
    expire_at(lake)
    assert key in _texts(lake)
    lake.storage.write(CONFIGURATION, ALL_ARCHIVED.encode())
    lake = Lake(root)
    assert redact(lake, models, LATER, dry_run=True).places["archive"] > 1
    assert redact(lake, models, LATER).places["archive"] > 1
    assert key not in _texts(lake)
    assert "archive" not in redact(lake, models, LATER).places
    restore_all(lake)
    assert key not in _texts(lake)
    run(lake, models, LATER)
    assert_sound(lake)


@pytest.mark.parametrize("is_whole_lake", [False, True])
def test_the_archive_is_in_a_bucket(s3_root: str, root: str, models: Models, is_whole_lake: bool) -> None:
    """The lake is in the bucket, or only its archive."""
    lake = Lake(s3_root if is_whole_lake else root)
    lake.ensure()
    place = "" if is_whole_lake else f"defaults: {{archive: '{s3_root}'}}\n"
    lake.storage.write(CONFIGURATION, f"{place}{ALL_ARCHIVED}".encode())
    write(lake, *TALKS, now=LATER)
    run(lake, models, LATER)
    before = memory(lake)
    done = expire_at(lake)
    assert done.archived > 0
    assert archive(lake)["messages"]
    files = Storage(s3_root).list("archive")
    assert len(files) > 5
    assert is_whole_lake or not lake.storage.list("archive")
    receipt = forget(lake, models, Subject.conversation(ACME, "c2"), LATER)
    assert _found(lake, receipt) == []
    left = [one.path for one in Storage(s3_root).list("archive") if one.path.endswith(".parquet")]
    stored = [pq.read_table(pa.BufferReader(Storage(s3_root).read(path))).to_pylist() for path in left]
    assert "passport" not in str(stored)
    restore_all(lake)
    assert not [one for one in Storage(s3_root).list("archive") if one.path.endswith(".parquet")]
    after = {row["id"] for row in lake.tables.read(MESSAGES).to_pylist()}
    assert len(after) == len(before["messages"]) - 1
    assert _found(lake, receipt) == []
    assert "passport" not in str(memory(lake))


def test_a_verification_reads_an_archive_elsewhere(s3_root: str, root: str, models: Models) -> None:
    lake = Lake(root)
    lake.ensure()
    lake.storage.write(CONFIGURATION, f"defaults: {{archive: '{s3_root}'}}\n{ALL_ARCHIVED}".encode())
    write(lake, *TALKS, now=LATER)
    run(lake, models, LATER)
    expire_at(lake)
    stolen = {one.path: Storage(s3_root).read(one.path) for one in Storage(s3_root).list("archive")}
    receipt = forget(lake, models, Subject.person("acme", ["Milo"]), LATER)
    assert _found(lake, receipt) == []
    for path, data in stolen.items():
        Storage(s3_root).write(path, data or b"")
    assert any(s3_root in one for one in _found(lake, receipt))


def test_a_verification_reads_the_archive(archived: Lake, models: Models) -> None:
    copies = {file.path: archived.storage.read(file.path) or b"" for file in archived.archived.files()}
    receipt = forget(archived, models, Subject.person("acme", ["Milo"]), LATER)
    for path, data in copies.items():
        archived.storage.write(path, data)
    assert any(one.startswith("archive/") for one in _found(archived, receipt))


def test_nothing_is_archived_or_restored_beside_an_unfinished_erasure(
    kept: Lake, made_once: Path, tmp_path: Path
) -> None:
    archived = Lake(shutil.copytree(made_once, tmp_path / "archived"))
    expire_at(archived)
    for lake in (kept, archived):
        begin_erasure(lake.storage, Subject.person("acme", ["Milo"]), LATER)
    before = memory(kept)
    with pytest.raises(LakeError, match="erasure"):
        expire_at(kept)
    assert memory(kept) == before
    assert archive(kept) == {}
    with pytest.raises(LakeError, match="erasure"):
        restore(archived)


def test_an_erasure_that_begins_meanwhile_is_not_undone(
    archived: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = type(archived.archived).note_restored

    def noting(*args: Any) -> None:
        note(*args)
        forget(Lake(archived.storage.uri), models, Subject.person("acme", ["Milo"]), LATER)

    monkeypatch.setattr(type(archived.archived), "note_restored", noting)
    with pytest.raises(LakeError, match="erasure"):
        restore(archived)
    monkeypatch.undo()
    assert pc.any(pc.match_substring(archived.tables.read(MESSAGES)["content"], "passport")).as_py() is not True
    restore_all(archived)
    assert "Milo" not in _texts(archived)
