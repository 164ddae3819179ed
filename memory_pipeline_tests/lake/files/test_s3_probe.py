"""A server that cannot create a file only if it is absent is detected before the first write, and refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline.steps.materialize import materialize
from memory_pipeline_tests.building import ACME, conversation, hours, write
from memory_pipeline_tests.lake.odd_servers import conditionless

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.s3_server import S3Server


@pytest.fixture
def odd_root(s3_server: S3Server) -> Iterator[str]:
    """The address of a lake on a server that ignores conditions."""
    with conditionless(s3_server.url, refuses=False) as server, s3_server.in_environment(server.url):
        yield s3_server.new_root()


def test_a_server_that_ignores_conditions_is_refused_and_no_file_remains(odd_root: str) -> None:
    lake = Lake(odd_root)
    assert not lake.exists, "it may be looked at"
    with pytest.raises(ConfigurationError) as refused:
        lake.ensure()
    for words in (
        "If-None-Match",
        "would be lost",
        "docs/s3.md",
        "MEMORY_PIPELINE_SINGLE_WRITER=1",
        "http://127.0.0.1",
    ):
        assert words in str(refused.value)
    for write_first in (lambda: lake.storage.create("claims/x", b""), lambda: Tables(lake.storage).remove(FACTS, None)):
        with pytest.raises(ConfigurationError, match="If-None-Match"):
            write_first()
    assert lake.storage.list("") == []


def test_a_server_that_rejects_conditions_is_refused_for_a_single_writer_too(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with conditionless(s3_server.url, refuses=True) as server, s3_server.in_environment(server.url):
        for setting in ("", "1"):
            monkeypatch.setenv("MEMORY_PIPELINE_SINGLE_WRITER", setting)
            lake = Lake(s3_server.new_root())
            with pytest.raises(ConfigurationError, match=r"cannot keep a lake: .*, and answered NotImplemented"):
                lake.ensure()
            assert lake.storage.list("") == []


def test_an_existing_lake_can_be_read_but_not_written(odd_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_SINGLE_WRITER", "1")
    Lake(odd_root).ensure()
    monkeypatch.delenv("MEMORY_PIPELINE_SINGLE_WRITER")
    lake = Lake(odd_root)
    assert lake.exists
    manifest = lake.storage.read("lake.json")
    with pytest.raises(ConfigurationError, match="If-None-Match"):
        lake.ensure()
    assert lake.storage.read("lake.json") == manifest
    assert [entry.path for entry in lake.storage.list("")] == ["lake.json", "state/lake.json"]


def test_a_single_writer_may_write_where_conditions_are_ignored(
    odd_root: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_SINGLE_WRITER", "1")
    lake = Lake(odd_root)
    write(lake, conversation("I moved to Lisbon in May.", "My dog is called Rex."))
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T08")))
    assert {row["content"] for row in lake.index.read([ACME], ["content"], "grain = 'working'").to_pylist()} != set()
    assert not lake.storage.create("lake.json", b"other"), "it is there"
    assert Lake(odd_root).calendar.timezone == "UTC"


def test_a_server_that_supports_conditions_is_probed_once(s3_server: S3Server) -> None:
    with conditionless(s3_server.url, refuses=False) as server:  # it records requests
        with s3_server.in_environment(server.url):
            root = s3_server.new_root()
            reader = Lake(root)
            asked = [line.split()[0] for line in server.asked]
            assert asked == ["GET"], "a reader asks for the manifest alone"
            with pytest.raises(ConfigurationError):
                reader.ensure()
        server.asked.clear()
    with s3_server.in_environment():
        Lake(root).ensure()
        assert [entry.path for entry in Storage(root).list("")] == ["lake.json", "state/lake.json"]
        assert json.loads(Storage(root).read("lake.json") or b"")["timezone"] == "UTC"
