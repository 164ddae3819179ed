"""Verification finds all remnants and nothing else."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ulid import ULID

from memory_pipeline import Memory
from memory_pipeline.client.pipeline import run_all
from memory_pipeline.domain.model_calls import Call, Purpose, Use
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import ErasureReport, forget, verify
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.lance_tables import run_coroutine
from memory_pipeline.lake.journal import folder_of
from memory_pipeline.lake.layout import SHARDS, folder_name, shard_of, shard_table
from memory_pipeline.lake.orphans import vacuum
from memory_pipeline.lake.schemas import MESSAGES, MODEL_CALLS, SUMMARIES
from memory_pipeline_tests.building import ACME, conversation, run, write
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.erasure.lakes import ANNA, EARLY, END, SALES
from memory_pipeline_tests.index_rows import index_folder
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder
    from memory_pipeline_tests.erasure.conftest import Erased


PROJECTIONS = ("index", "graph", "operations", "events", "memories")


def put(folder: Path, path: str, data: str | bytes | object) -> None:
    """Write a file: bytes and texts as they are, anything else as JSON."""
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    text = data if isinstance(data, str | bytes) else json.dumps(data)
    target.write_bytes(text if isinstance(text, bytes) else text.encode())


def parquet(folder: Path, path: str, **columns: list[Any]) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / path)


def old_version(folder: Path, original: Path) -> None:
    """Put back all versions of an index table that there were."""
    table = index_folder("", ACME)
    for path in (original / table).rglob("*"):
        target = folder / table / path.relative_to(original / table)
        if path.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def old_data(folder: Path, original: Path) -> None:
    """Put back the data of an index table, without the version that read it."""
    shutil.copytree(index_folder(original, ACME) / "data", folder / "projections/index-099.lance/data")


def old_table_file(folder: Path, original: Path) -> None:
    (path,) = (original / "tables/messages/period=2024-01-16T10").rglob("*.parquet")
    shutil.copy(path, folder / "tables/messages/period=2024-01-16T10/left.parquet")


def planted_by(plant: Callable[[Path, Path], object], folder: Path, original: Path) -> tuple[str, ...]:
    """Plant something in a lake; return the paths that it is found under: of an index, tables are named."""
    known = set(folder.rglob("*"))
    plant(folder, original)
    new = [path for path in folder.rglob("*") if path not in known and (path.is_file() or not any(path.iterdir()))]
    return tuple({path.relative_to(folder).as_posix().partition(".lance/")[0] for path in new})


PERSON: dict[str, Callable[[Path, Path], object]] = {
    "table file": old_table_file,
    "index version": old_version,
    "index data": old_data,
    "quarantine": lambda at, _: put(
        at, "journal/quarantine/1.json", {"reason": "r", "where": "w", "record": '{"content": "Ask A\\u006ena'}
    ),
    "journal": lambda at, _: put(
        at,
        f"{folder_of(ACME)}/2024-02-01T08__01HNGZ0000000000000000000A.jsonl",
        {"workspace_id": "acme", "agent_id": "support", "content": "ask ÄNNA", "timestamp": "2024-02-01T08:00+00:00"},
    ),
    "journal, of the user": lambda at, _: put(
        at,
        f"{folder_of(ACME)}/2024-02-01T08__01HNGZ0000000000000000000B.jsonl",
        {"workspace_id": "acme", "agent_id": "support", "content": "Hello.", "user_id": "u-17"},
    ),
    "write that was broken off": lambda at, _: put(
        at, f"{folder_of(ACME)}/.2024-02-01T08.jsonl.01H", '{"workspace_id": "acme", "content": "Anna sa'
    ),
    "mart": lambda at, _: parquet(at, "marts/entities/part-0.parquet", workspace_id=["acme"], entity=["anna"]),
    "nested column": lambda at, _: parquet(at, "marts/x.parquet", workspace_id=["acme"], names=[[{"a": ["Anna"]}]]),
    "answer": lambda at, _: put(
        at,
        f"calls/pending/answers/{'1' * 32}.json",
        {"calls": [], "answer": {"workspace_id": "acme", "agent_id": "support", "answer": '{"name": "Anna"}'}},
    ),
    "configuration": lambda at, _: put(at, "config/workspaces.yaml", "# ask Anna\nworkspaces: {}\n"),
    "bytes": lambda at, _: put(at, "core.1", b"\xff\x00user Anna \xfe u-17 in memory; anna-marie" + bytes(9)),
    "name of a file": lambda at, _: put(at, "exports/anna.csv", "1;2"),
    "log": lambda at, _: put(at, "tables/facts/_delta_log/9.json", {"commitInfo": {"userMetadata": "for Anna"}}),
}


def test_remnants_of_a_person_are_found(erased: Erased, original: Path) -> None:
    planted = {place: planted_by(plant, erased.folder, original) for place, plant in PERSON.items()}
    result = verify(Lake(str(erased.folder)), erased.person)
    assert not result.ok
    found = [*(finding.file for finding in result.findings), *result.unsearched]
    for place, folders in planted.items():
        assert any(file.startswith(folders) for file in found), place
    every = tuple(folder for folders in planted.values() for folder in folders)
    assert [file for file in found if not file.startswith(every)] == []
    assert not any("Lisbon" in str(finding) or "ask" in str(finding) for finding in result.findings)


AGENT: dict[str, Callable[[Path, Path], object]] = {
    "folder": lambda at, _: (at / folder_of(SALES)).mkdir(parents=True),
    "index": lambda at, original: shutil.copytree(
        index_folder(original, SALES), index_folder(at, SALES), dirs_exist_ok=True
    ),
    "collection": lambda at, _: put(at, f"vectordb/{folder_name(SALES)}/default.lance/data/1.lance", b"x"),
    "table file": old_table_file,
    "mart": lambda at, _: parquet(at, "marts/growth/part-0.parquet", workspace_id=["acme"], agent_id=["sales"]),
    "log": lambda at, _: put(at, "tables/old/_delta_log/9.json", {"commitInfo": {"of": "acme/other, acme/sales"}}),
    "journal": lambda at, _: put(
        at,
        f"{folder_of(SALES)}/2024-02-01T08__01HNGZ0000000000000000000A.jsonl",
        {"workspace_id": "acme", "agent_id": "sales", "content": "Hi."},
    ),
    "quarantine": lambda at, _: put(
        at, "journal/quarantine/1.json", {"reason": "r", "record": {"workspace_id": "acme", "agent_id": "sales"}}
    ),
    "broken record": lambda at, _: put(
        at, "journal/quarantine/2.json", {"reason": "r", "record": '{"agent_id": "sales", "content": "Hi'}
    ),
    "spending": lambda at, _: put(
        at, "calls/pending/calls/1.json", {"calls": [{"workspace_id": "acme", "agent_id": "sales"}], "answer": None}
    ),
}


def test_remnants_of_an_agent_are_found(erased: Erased, original: Path) -> None:
    planted = {place: planted_by(plant, erased.folder, original) for place, plant in AGENT.items()}
    found = [finding.file for finding in verify(Lake(str(erased.folder)), erased.agent).findings]
    for place, folders in planted.items():
        assert any(file.startswith(folders) for file in found), place


def test_ids_and_texts_of_removed_rows_are_found(erased: Erased) -> None:
    lake = Lake(str(erased.folder))
    put(erased.folder, "marts/a.csv", f"fact;working:2024-01-15T08:{erased.person.ids[0]}\n")
    put(erased.folder, "state/b.bin", b"\xff" + erased.person.ids[1].encode())
    parquet(erased.folder, "marts/c.parquet", said=["I live in Lisbon, near the old harbour."])
    found = {finding.file: finding.what for finding in verify(lake, erased.person).findings}
    assert found.keys() == {"marts/a.csv", "state/b.bin", "marts/c.parquet"}
    assert "removed texts" in found["marts/c.parquet"]


def test_deleted_rows_that_no_version_shows_were_not_searched(erased: Erased) -> None:
    lake = Lake(str(erased.folder))
    names = [shard_table(name, shard_of(ACME.key, SHARDS)) for name in PROJECTIONS]

    async def delete(table: Any) -> None:
        rows = (await table.query().select(["id"]).to_arrow())["id"].to_pylist()
        await table.delete(f"id = '{rows[0]}'")

    for name in names:
        run_coroutine(lake.index._databases.edit("projections", name, delete, None))
    assert verify(lake, erased.conversation).ok  # an earlier version shows them
    for name in names:
        versions = list((erased.folder / "projections" / f"{name}.lance" / "_versions").glob("*.manifest"))
        for path in sorted(versions, key=lambda path: path.stat().st_mtime_ns)[:-1]:
            path.unlink()
    result = verify(Lake(lake.storage.uri), erased.conversation)
    assert sorted(result.unsearched) == sorted(
        f"projections/{name}.lance: 1 of its rows are deleted, but still on the disk" for name in names
    )


def test_data_of_others_is_not_reported(erased: Erased) -> None:
    """Mentions of another agent, an Anna of another workspace, and later statements are not remnants."""
    later = {"content": "Anna again", "user_id": "u-17", "timestamp": "2026-03-01T08:00+00:00"}
    put(erased.folder, "marts/a.json", {"workspace_id": "acme", "agent_id": "support", "content": "the sales team"})
    put(erased.folder, "marts/b.json", {"workspace_id": "other", "agent_id": "sales", "content": "Anna, u-17"})
    put(erased.folder, "marts/c.json", {"workspace_id": "acme", "agent_id": "support", **later})
    parquet(erased.folder, "marts/d.parquet", of=["acme/sales2", "acme/presales"], workspace_id=["acme", "acme"])
    parquet(erased.folder, "marts/e.parquet", workspace_id=["other"], name=["Anna"])
    lake = Lake(str(erased.folder))
    for receipt in (erased.person, erased.conversation, erased.agent):
        result = verify(lake, receipt)
        assert [*map(str, result.findings), *result.unsearched] == []
        assert result.files == len([path for path in erased.folder.rglob("*") if path.is_file()])
        assert result.places["marts"] == 5


def test_a_person_may_be_remembered_again_after_an_erasure(lake: Lake, models: Models) -> None:
    receipt = forget(lake, models, ANNA, EARLY.replace(day=20))
    write(lake, conversation("Anna is back, so they say.", name="Dora", at="2024-01-21T08:00", conversation_id="c7"))
    run(lake, models, EARLY)
    assert any("Anna is back" in row for row in lake.tables.read(MESSAGES)["content"].to_pylist())
    assert [str(finding) for finding in verify(lake, receipt).findings] == []


def test_a_receipt_survives_a_round_trip_through_json(erased: Erased) -> None:
    text = erased.person.to_json()
    assert ErasureReport.from_json(text) == erased.person
    assert "Lisbon" not in text


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "[]",
        lambda text: "[" * 100_000,
        lambda text: "{}",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("Anna", "Bob"),
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: json.dumps({**json.loads(text), "ids": 5}),
    ],
)
def test_an_invalid_receipt_is_refused(erased: Erased, change: Callable[[str], str]) -> None:
    with pytest.raises(InputError, match="receipt"):
        ErasureReport.from_json(change(erased.person.to_json()))


def test_a_receipt_of_another_lake_is_refused(erased: Erased, lake: Lake) -> None:
    with pytest.raises(InputError, match="receipt is of the lake at"):
        verify(lake, erased.person)
    moved = replace(erased.person, lake="/elsewhere")
    assert verify(Lake(str(erased.folder)), moved).ok  # a lake may be moved


def test_the_command_line(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    where = ("--root", lake.storage.uri)
    who = ("--workspace", "acme", "--person", "Anna", "--person", "u-17")
    before = read("forget", *where, *who, "--dry-run")
    assert before["found"]["counts"]["messages"] == 6
    assert "messages" in call("forget", *where, *who, "--dry-run").output
    assert call("forget", *where, *who).exit_code == 1  # not confirmed
    inside = call("forget", *where, *who, "--yes", "--receipt", f"{lake.storage.uri}/r.json")
    assert "is in the lake" in str(inside.exception)
    assert read("forget", *where, *who, "--dry-run") == before

    done = call("forget", *where, *who, "--yes", "--receipt", "r.json", "--now", EARLY.isoformat())
    assert done.exit_code == 0, done.output
    assert "erased" in done.output
    assert "new file" in str(call("forget", *where, *who, "--yes", "--receipt", "r.json").exception)
    checked = call("verify-erasure", "r.json")
    assert (checked.exit_code, "nothing is left" in checked.output) == (0, True), checked.output
    put(Path(lake.storage.uri), "marts/a.csv", "Anna")
    checked = call("verify-erasure", "r.json", *where)
    assert (checked.exit_code, "marts/a.csv" in checked.output) == (1, True), checked.output
    assert "cannot be read" in str(call("verify-erasure", "none.json").exception)
    Path("other.json").write_text("[]", encoding="utf-8")
    assert str(call("verify-erasure", "other.json").exception).startswith("receipt other.json: ")
    for wrong in [("--conversation", "c1", "--person", "Anna"), ("--conversation", "c1"), ("--person", "A")]:
        assert call("forget", *where, "--workspace", "acme", *wrong).exception


# --- what processes that were killed have left -----------------------------------------------------------------------


def test_receipt_and_verification_report_files_of_killed_processes(lake: Lake, original: Path, models: Models) -> None:
    root = Path(lake.storage.uri)
    old_table_file(root, original)
    (index,) = list((root / index_folder("", ACME) / "data").iterdir())[:1]
    shutil.copy(index, index.with_name("left.lance"))
    receipt = forget(lake, models, ANNA, EARLY)
    [note] = [part for part in receipt.not_covered if "killed" in part]
    assert note.startswith("2 files younger than an hour")
    assert "memory-pipeline expire" in note
    result = verify(lake, receipt)
    assert {file.file for file in result.findings} >= {"tables/messages/period=2024-01-16T10/left.parquet"}
    [remedy] = result.remedies
    assert remedy.startswith("2 of these files")
    assert "memory-pipeline expire" in remedy
    for path in root.rglob("left.*"):
        os.utime(path, (0, 0))
    vacuum(lake.storage, lake.tables, datetime.now(UTC))
    result = verify(lake, receipt)
    assert result.ok
    assert result.remedies == []


def test_killed_processes_are_not_mentioned_if_there_were_none(erased: Erased) -> None:
    assert not [part for part in erased.person.not_covered if "killed" in part]


@pytest.mark.parametrize(
    ("subject", "others"), [(Subject.person("acme", ["Anna"]), 0), (Subject.conversation(ACME, "c1"), 1)]
)
def test_a_resumed_erasure_leaves_no_byte_of_an_agent_that_has_no_rows_any_more(
    root: str, models: Models, monkeypatch: pytest.MonkeyPatch, subject: Subject, others: int
) -> None:
    lake = Lake(root)
    write(lake, conversation("Anna moved to Zanzibar.", conversation_id="c1"))
    if others:
        write(lake, conversation("The weather is bad.", conversation_id="c2", scope=SALES, name="Dora"))
    run(lake, models, EARLY)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # The package's function has the name of its module.
        patch.setattr(importlib.import_module("memory_pipeline.erasure.forget"), "_finish", killed)
        with pytest.raises(KeyboardInterrupt):
            forget(lake, models, subject, EARLY)
    result = verify(Lake(root), forget(Lake(root), models, subject, EARLY))
    assert [str(finding) for finding in result.findings] == []
    assert not any(b"Zanzibar" in path.read_bytes() for path in Path(root).rglob("*") if path.is_file())


USER, AGENT_OF_ALL = Subject.user("default", "anna-71"), Subject.agent(Scope("default", "default"))
BY_NAMES = Subject.user("default", "anna-71", ["Anna Berg"])
#: Subjects, and the hours between their erasure and what they say next.
LATER = [(USER, 1), (BY_NAMES, 48), (AGENT_OF_ALL, 24 * 40)]
CUTOFF = END.replace(month=11, day=10, hour=10)


def says(root: Path | str, models: Models, text: str, at: datetime) -> None:
    memory = Memory(str(root), user_id="anna-71")
    memory.add(text, now=at)
    memory.remember(f"{text} So she said.", now=at)
    list(run_all(Lake(str(root)), models, datetime(2026, 2, 1, tzinfo=UTC)))


@pytest.mark.parametrize(
    ("subject", "hours"), list(product((USER, BY_NAMES, AGENT_OF_ALL), (1, 48, 24 * 40))) if IS_THOROUGH else LATER
)
def test_what_an_erased_subject_writes_later_is_no_remnant(
    root: str, models: Models, shared_folder: SharedFolder, subject: Subject, hours: int
) -> None:
    """Also in summaries of the day, week, month or year of the erasure."""
    text = "I am Anna Berg and I moved to Porto."
    shutil.copytree(
        shared_folder("erasure-said", lambda path: says(path, models, text, CUTOFF - timedelta(hours=1))), root
    )
    report = forget(Lake(root), models, subject, CUTOFF)
    assert verify(Lake(root), report).ok
    says(root, models, "I am Anna Berg and I like rye bread.", CUTOFF + timedelta(hours=hours))
    Memory(root, user_id="anna-71").add("Anna Berg likes figs.", now=CUTOFF + timedelta(hours=hours + 1))  # pending
    Lake(root).index.purge(None)
    assert [str(one) for one in verify(Lake(root), report).findings] == []
    grains = set(Lake(root).tables.read(SUMMARIES)["grain"].to_pylist())
    assert grains == {"daily", "weekly", "monthly", "quarterly", "yearly"}


def test_what_an_erased_subject_reads_later_is_no_remnant(root: str, models: Models) -> None:
    """Reads leave rows of model calls and of the log of access, in pending files, in tables and in marts."""
    cutoff = datetime.now(UTC) - timedelta(minutes=2)
    Memory(root, user_id="anna-71").add("I moved to Porto.", now=cutoff - timedelta(hours=1))
    lake = Lake(root)
    list(run_all(lake, models, cutoff))
    reports = [forget(lake, models, subject, cutoff) for subject in (USER, AGENT_OF_ALL)]
    own = lake.scope("default", "default", "user:anna-71")

    def called(at: datetime) -> None:
        use = Use(own, hour_of(at))
        lake.reading_calls.keep(
            [Call(str(ULID()), "r1", "k1", use, Purpose.READING, "openai/m", None, 1, 90, 9, 0.1, 0.5, "ok", at)]
        )

    called(cutoff + timedelta(seconds=1))
    lake.access_log.note(Scope("default", "other"), own, "search")
    lake.access_log.flush()
    for _ in range(2):
        for report in reports:
            assert [str(one) for one in verify(Lake(root), report).findings] == []
        list(run_all(Lake(root), models, cutoff + timedelta(minutes=1)))
    assert own.key in Lake(root).tables.read(MODEL_CALLS)["scope"].to_pylist()
    called(cutoff - timedelta(seconds=1))
    assert not any(verify(Lake(root), report).ok for report in reports)
