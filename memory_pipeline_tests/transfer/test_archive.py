"""An archive holds the memory of an agent or a user, and gives the same memory in another lake."""

from __future__ import annotations

import json
import zipfile
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline_tests import oracle
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.lake_digest import differing
from memory_pipeline_tests.transfer.histories import START, digests, live

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline_tests.conftest import SharedFolder
    from memory_pipeline_tests.openai_server import OpenAIServer

NOW = "2026-01-01T00:00+00:00"
QUESTIONS = ("Where does Nadia live?", "Who works at Contoso?", "tea", "")


def fill(folder: Path) -> None:
    live(folder, 4, 30)
    memory = Memory(folder, user_id="anna")
    memory.run(now=NOW)
    memory.session("desk").store("plan", {"step": 2}, ttl=timedelta(hours=20))
    memory.contexts.create("trip", now=START)
    memory.writer.grant("helper", "anna", now=START)
    memory.correct(memory.search("Nadia")[0].id, now=NOW)
    memory.add("I collect maps.", now=NOW)  # pending


@pytest.fixture
def lived(shared_folder: SharedFolder) -> Path:
    """A lake with a history of some weeks. It is only read."""
    return shared_folder("archived", fill)


@pytest.fixture
def archive(lived: Path, tmp_path: Path) -> Path:
    read("export", str(tmp_path / "anna.zip"), "--root", str(lived), "--user", "anna", "--now", NOW)
    return tmp_path / "anna.zip"


def found(memory: Memory) -> list[object]:
    """Return what a user finds and is told."""
    reader, now = memory.with_now(NOW), NOW
    hits = [(hit.id, hit.content, hit.score) for query in QUESTIONS for hit in reader.search(query, 50)]
    grains = [
        (hit.id, hit.content, hit.source_ids)
        for grain in ("daily", "weekly", "monthly", "quarterly", "yearly")
        for hit in memory.reader.search_memory(grain, 0, 3_000, 50, None, now=now)
    ]
    graph = [(fact.id, fact.line, fact.valid_to) for fact in memory.graph.facts()]
    return [*hits, *grains, *graph, *(str(reader.context(query)) for query in QUESTIONS)]


def test_a_user_in_another_lake_finds_the_same(lived: Path, archive: Path, tmp_path: Path) -> None:
    done = read("import", str(archive), "--root", str(tmp_path / "new"), "--now", NOW)
    assert not done["is_copy"]
    assert done["differing"] == 0
    old, new = Memory(lived, user_id="anna"), Memory(tmp_path / "new", user_id="anna")
    assert found(new) == found(old)
    assert new.session("desk").retrieve("plan") == {"step": 2}
    assert [context.name for context in new.contexts.list()] == ["trip"]
    assert [grant.to_agent for grant in new.writer.grants(now=NOW)] == ["helper"]
    assert [one.content for one in new.history(new.reader.memories.list(now=NOW)[0].id)] == [
        one.content for one in old.history(new.reader.memories.list(now=NOW)[0].id)
    ]
    assert not Memory(tmp_path / "new", user_id="ben").search("", 50)


def test_importing_twice_changes_nothing(archive: Path, tmp_path: Path) -> None:
    read("import", str(archive), "--root", str(tmp_path / "new"), "--now", NOW)
    before = digests(Lake(tmp_path / "new"))
    read("import", str(archive), "--root", str(tmp_path / "new"), "--now", NOW)
    assert differing(before, digests(Lake(tmp_path / "new"))) == []


def test_the_memory_of_others_in_the_lake_stays(lived: Path, archive: Path, tmp_path: Path) -> None:
    other = Memory(tmp_path / "new", user_id="zoe")
    live(tmp_path / "new", 9, 10)
    other.add("I live in Quito.", now=START)
    other.run(now=NOW)
    before = found(other)
    read("import", str(archive), "--root", str(tmp_path / "new"), "--now", NOW)
    assert found(Memory(tmp_path / "new", user_id="zoe")) == before


def test_a_copy_under_other_ids_says_the_same(lived: Path, archive: Path, tmp_path: Path) -> None:
    done = read("import", str(archive), "--root", str(lived.parent / lived.name), "--dry-run")
    assert done["user_id"] == "anna"
    done = read(
        "import", str(archive), "--root", str(tmp_path / "new"), "--agent", "other", "--user", "eve", "--now", NOW
    )
    assert done["is_copy"]
    old, new = Memory(lived, user_id="anna"), Memory(tmp_path / "new", user_id="eve", agent_id="other")
    texts = [[hit.content for hit in one.with_now(NOW).search("", 100)] for one in (old, new)]
    assert texts[0] == texts[1]
    memories = [sorted(m.content for m in one.reader.memories.list(now=NOW)) for one in (old, new)]
    assert memories[0] == memories[1]
    conversations = {str(hit.conversation_id) for hit in new.search("", 5)}
    assert {message.user_id for one in conversations for message in new.conversations.get(one)} <= {"eve", None}
    assert not Memory(tmp_path / "new", user_id="anna", agent_id="other").search("", 5)


def test_the_files_can_be_read_without_this_library(archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        manifest = json.loads(opened.read("manifest.json"))
        for name, listed in manifest["files"].items():
            data = opened.read(name)
            if name.endswith(".jsonl"):
                assert len([json.loads(line) for line in data.splitlines()]) == listed["rows"]
            else:
                assert pq.read_table(pa.BufferReader(data)).num_rows == listed["rows"]
    assert {
        "tables/messages.parquet",
        "json/summaries.jsonl",
        "sessions.jsonl",
        "grants.jsonl",
        "journal.jsonl",
    } <= set(manifest["files"])


def test_equal_memories_have_equal_files(lived: Path, archive: Path, tmp_path: Path) -> None:
    read("import", str(archive), "--root", str(tmp_path / "new"), "--now", NOW)
    files: list[dict[str, bytes]] = []
    for root in (lived, tmp_path / "new"):
        memory = Memory(root, user_id="anna")
        path = tmp_path / f"{len(files)}.zip"
        read("export", str(path), "--root", str(memory.lake.storage.uri), "--user", "anna", "--now", NOW)
        with zipfile.ZipFile(path) as opened:
            files.append({name: opened.read(name) for name in ("json/summaries.jsonl", "json/graph_operations.jsonl")})
    assert files[0] == files[1]


def test_no_model_is_asked(server: OpenAIServer, tmp_path: Path) -> None:
    memory = Memory(tmp_path / "old", user_id="anna")
    oracle.configure(memory.lake, server)
    memory.add("I live in Berlin and my dog is called Bruno.", now=START)
    memory.run(now=NOW)
    read("export", str(tmp_path / "a.zip"), "--root", str(tmp_path / "old"), "--user", "anna")
    new = Lake(tmp_path / "new")
    oracle.configure(new, server)
    asked = len(server.requests)
    done = read("import", str(tmp_path / "a.zip"), "--root", str(tmp_path / "new"), "--now", NOW)
    assert (done["is_copy"], done["differing"]) == (False, 0)
    done = read("import", str(tmp_path / "a.zip"), "--root", str(tmp_path / "new"), "--user", "eve", "--now", NOW)
    assert done["is_copy"]
    assert len(server.requests) == asked
    texts = [
        [hit.content for hit in Memory(tmp_path / "new", user_id=user).reader.search_memory("daily", 0, 9_999, 9, None)]
        for user in ("anna", "eve")
    ]
    assert texts[0] == texts[1] != []


def tampered(archive: Path, tmp_path: Path, **changes: bytes) -> Path:
    """Return a copy of an archive in which files have other contents, by name with _ for / and without an ending."""
    path = tmp_path / "tampered.zip"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, changes.get(name.partition(".")[0].replace("/", "_"), old.read(name)))
    return path


def test_damaged_and_forged_archives_are_refused(archive: Path, tmp_path: Path) -> None:
    new = str(tmp_path / "new")

    def refusal(path: Path) -> str:
        return str(call("import", str(path), "--root", new).exception)

    assert "has changed since the export" in refusal(tampered(archive, tmp_path, tables_messages=b"x"))
    with zipfile.ZipFile(archive) as opened:
        manifest = json.loads(opened.read("manifest.json"))
    forged = json.dumps(manifest | {"agent_id": "victim"}).encode()
    assert "has rows of default/default/user:anna" in refusal(tampered(archive, tmp_path, manifest=forged))
    newer = json.dumps(manifest | {"version": 9}).encode()
    assert "version 9" in refusal(tampered(archive, tmp_path, manifest=newer))
    for wrong in ({"files": {"../x": {"sha256": "0"}}}, {"files": 3}, {"timezone": "Nowhere"}, {"user_id": ["anna"]}):
        path = tampered(archive, tmp_path, manifest=json.dumps(manifest | wrong).encode())
        assert isinstance(call("import", str(path), "--root", new).exception, InputError)
    assert not Lake(new).exists or not Memory(new, user_id="anna").search("", 5)


def test_what_cannot_be_exported_says_why(lived: Path, archive: Path, tmp_path: Path) -> None:
    def refusal(*arguments: str) -> str:
        return str(call("export", *arguments, "--root", str(lived)).exception)

    assert "user 'nobody' of agent default/default has no memory" in refusal(
        str(tmp_path / "x.zip"), "--user", "nobody"
    )
    assert "has no memory; `memory-pipeline agents`" in refusal(str(tmp_path / "x.zip"), "--agent", "nobody")
    assert "exists" in refusal(str(archive), "--user", "anna")
    assert not (tmp_path / "x.zip").exists()


def new_session(folder: Path) -> object:
    return Memory(folder, user_id="anna").session("desk").retrieve("plan")


def test_a_session_of_another_user_in_an_archive_is_refused(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        manifest, lines = json.loads(opened.read("manifest.json")), opened.read("sessions.jsonl")
    forged = lines.replace(b"user:anna", b"user:ben")
    manifest["files"]["sessions.jsonl"]["sha256"] = sha256(forged).hexdigest()
    path = tampered(archive, tmp_path, sessions=forged, manifest=json.dumps(manifest).encode())
    assert "has rows of default/default/user:ben" in str(
        call("import", str(path), "--root", str(tmp_path / "n")).exception
    )


def test_an_erased_user_does_not_come_back_by_an_archive(archive: Path, lived: Path, tmp_path: Path) -> None:
    read("import", str(archive), "--root", str(tmp_path / "new"), "--now", NOW)
    Memory(tmp_path / "new", user_id="anna").forget(everything=True)
    read("import", str(archive), "--root", str(tmp_path / "new"), "--now", NOW)
    assert not Memory(tmp_path / "new", user_id="anna").search("", 50)
    with pytest.raises(InputError):
        raise (
            call("export", str(tmp_path / "b.zip"), "--root", str(tmp_path / "new"), "--user", "anna").exception
            or AssertionError
        )
