"""Where the database is, its migrations, and what goes wrong with it."""

from __future__ import annotations

import random
import shutil
import sqlite3
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from memory_pipeline import Memory
from memory_pipeline.domain.sessions import Container, EntryKind, json_of
from memory_pipeline.errors import ConfigurationError, LakeError
from memory_pipeline.lake import Lake
from memory_pipeline.sessions import database as databases
from memory_pipeline.sessions.database import NEWEST, Database
from memory_pipeline.sessions.store import damaged_database, session_store

if TYPE_CHECKING:
    from memory_pipeline_tests.s3_server import S3Server


def test_the_newest_migration_is_the_one_that_is_expected() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(databases.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [NEWEST]


def test_the_file_has_the_rights_of_the_lake_and_opens_again(root: str) -> None:
    memory = Memory(root)
    memory.session("s1").store("k", 1)
    file = Path(root, "sessions", "sessions.db")
    for path in (file, Path(f"{file}-wal")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Memory(root).session("s1").retrieve("k") == 1


def test_a_lake_that_was_deleted_and_made_again_has_new_sessions(root: str) -> None:
    Memory(root).session("s1").store("k", 1)
    shutil.rmtree(root)
    memory = Memory(root)
    assert memory.session("s1").retrieve("k") is None
    memory.session("s1").store("k", 2)
    assert Memory(root).session("s1").retrieve("k") == 2


def test_a_database_of_a_newer_version_is_refused(root: str) -> None:
    Memory(root).session("s1").store("k", 1)
    path = Path(root, "sessions", "sessions.db")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE memory_pipeline_versions SET version_num = '9999'")
    with pytest.raises(LakeError, match="newer version"):
        Database(f"sqlite:///{path}")


def test_a_file_that_is_no_database_is_named(root: str) -> None:
    Memory(root).lake.ensure()
    Path(root, "sessions").mkdir()
    Path(root, "sessions", "sessions.db").write_text("not a database " * 100)
    with pytest.raises(LakeError, match=r"sessions\.db"):
        Memory(root).session("s1")


def test_a_write_that_waits_too_long_says_so(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "_PATIENCE", 0.1)
    session = Memory(root).session("s1")
    session.store("k", 1)
    connection = sqlite3.connect(Path(root, "sessions", "sessions.db"), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert session.retrieve("k") == 1
    with pytest.raises(LakeError, match="locked"):
        session.store("k", 2)
    connection.execute("ROLLBACK")
    session.store("k", 3)
    assert session.retrieve("k") == 3


def test_a_compacted_file_has_no_bytes_of_deleted_entries(root: str) -> None:
    """With this seed, SQLite moves an entry to another page before it is deleted, and a copy stays in the old one."""
    chance = random.Random(1)
    store = session_store(Lake(root))
    sessions = [store.entries(Container("w", "a", "", EntryKind.VALUE, f"s{number}")) for number in range(20)]
    for number in range(600):
        text = f"text-{number:04d}-end {'y' * chance.choice((5, 300, 3000))}"
        chance.choice(sessions).put(f"k{number}", json_of(text), None, number)
    deleted = [one.entry for one in store.stored() if chance.random() < 0.5]
    assert store.delete(deleted) == len(deleted)
    store.database.compact()
    data = b"".join(path.read_bytes() for path in Path(root, "sessions").iterdir())
    assert not [one.key for one in deleted if one.value[1:14].encode() in data]
    assert len(list(store.stored())) == 600 - len(deleted)


def test_a_missing_library_is_named_with_the_extra(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ConfigurationError, match=r"memory-pipeline\[sessions\]"):
        Memory(root).session("s1")


def test_a_lake_in_a_bucket_needs_the_address_of_a_database(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS", raising=False)
    with s3_server.in_environment():
        root = s3_server.new_root()
        with pytest.raises(ConfigurationError, match="MEMORY_PIPELINE_SESSIONS"):
            Memory(root).session("s1")
        monkeypatch.setenv("MEMORY_PIPELINE_SESSIONS", f"sqlite:///{tmp_path}/sessions.db")
        session = Memory(root).session("s1")
        session.store("k", 1)
        assert session.persist() == 1
        session.clear()
        assert (session.load(), session.retrieve("k")) == (1, 1)


def test_a_lake_remembers_that_its_sessions_are_elsewhere(
    root: str, monkeypatch: pytest.MonkeyPatch, postgresql_url: str
) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_SESSIONS", postgresql_url)
    Memory(root).session("s1").store("k", 1)
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS")
    with pytest.raises(
        ConfigurationError, match=r"postgresql\S*://127\.0\.0\.1:\d+/postgres.*MEMORY_PIPELINE_SESSIONS"
    ):
        Memory(root).session("s1")
    stored = Path(root, "state", "sessions.json").read_text()
    assert "for-one-test" not in stored
    assert "dagster" not in stored


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://user:hidden@host/db", "sqlite://", "postgresql://user:hidden@127.0.0.1:1/db"]
)
def test_a_wrong_address_is_refused_without_its_password(root: str, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_SESSIONS", url)
    with pytest.raises((ConfigurationError, LakeError), match="MEMORY_PIPELINE_SESSIONS") as raised:
        Memory(root).session("s1")
    assert "hidden" not in str(raised.value)


def test_a_server_that_drops_connections_is_reached_again(
    root: str, monkeypatch: pytest.MonkeyPatch, postgresql_url: str
) -> None:
    import psycopg2

    monkeypatch.setenv("MEMORY_PIPELINE_SESSIONS", postgresql_url)
    session = Memory(root).session("s1")
    session.store("k", 1)

    def drop() -> None:
        with psycopg2.connect(postgresql_url) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND usename = 'dagster'"
            )

    drop()
    with pytest.raises(LakeError, match="server"):
        session.store("k", 2)
    assert session.retrieve("k") == 1
    drop()
    monkeypatch.setattr(databases, "_IDLE", 0.0)  # a connection that was idle for long is tested first
    session.store("k", 3)
    assert session.retrieve("k") == 3


def test_a_file_that_cannot_be_written_is_not_damaged_and_a_cut_one_is(root: str) -> None:
    memory = Memory(root)
    memory.session("s1").store("step", "x" * 50_000)
    whole, folder = Path(root, "sessions", "sessions.db"), Path(root, "sessions", "sessions.db-shm")
    with sqlite3.connect(whole) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other = shutil.copytree(root, f"{root}-copy", ignore=shutil.ignore_patterns("*-shm", "*-wal"))
    Path(other, "sessions", folder.name).mkdir()  # as on a read-only file system, SQLite cannot share its log
    assert damaged_database(Lake(other)) is None
    path = Path(other, "sessions", whole.name)
    path.write_bytes(path.read_bytes()[:20_000])
    assert "malformed" in str(damaged_database(Lake(other)))
