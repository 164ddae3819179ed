"""The command `repair`: exit codes and output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import LakeError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, MESSAGES
from memory_pipeline_tests.building import conversation, write
from memory_pipeline_tests.damaging import damage, file_of
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.lake_digest import differing, lake_digest, marts_digest

NOW = ["--now", "2024-01-17T12:00:00+00:00"]


def test_a_damaged_lake_is_repaired(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    lake = Lake(root)
    write(lake, conversation("I moved to Porto."), conversation("I like tea.", at="2024-01-16T08:00"))
    read("run", *NOW)
    before = lake_digest(lake) | marts_digest(lake)
    damage(file_of(lake, FACTS), "cut")
    for path in Path(root, "marts", "memory_growth").rglob("*.parquet"):
        damage(path, "empty")
    assert call("repair", "--dry-run", *NOW).exit_code == 1
    read("repair", *NOW)
    assert read("repair", *NOW)["found"] == []
    repaired = Lake(root)
    assert differing(before, lake_digest(repaired) | marts_digest(repaired)) == []

    lost = file_of(repaired, MESSAGES, "2024-01-15T08")
    damage(lost, "missing")
    write(repaired, conversation("I sold the van.", at="2024-01-17T08:00", conversation_id="c3"))
    for command in ("run", "repair"):
        done = call(command, *NOW)
        assert done.exit_code != 0
        assert lost.name in done.output + str(done.exception)
    assert Lake(root).tables.keys(FACTS)[-1] == "2024-01-17T08"


def test_a_lost_or_replaced_manifest_is_refused_and_restored_from_its_copy(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    lake = Lake(root)
    Memory(root, user_id="anna").add("I moved to Porto.", now="2024-01-15T08:00Z")
    manifest = lake.storage.read("lake.json")
    assert manifest is not None
    replaced = json.dumps(json.loads(manifest) | {"secret": "0" * 64}).encode()
    for other in (None, b"{", replaced):
        lake.storage.delete(["lake.json"])
        if other is not None:
            lake.storage.write("lake.json", other)
        with pytest.raises(LakeError, match=r"lake\.json"):
            write(Lake(root), conversation("I like tea."))
        assert call("run", *NOW).exit_code == 1
        found = json.loads(call("repair", "--dry-run", "--json", *NOW).stdout)["found"]
        assert [each["path"] for each in found] == ["lake.json"]
        if other == replaced:
            assert call("check", *NOW).exit_code == 1
        read("repair", *NOW)
        assert Lake(root).storage.read("lake.json") == manifest
    read("check", *NOW)


def test_of_the_manifest_and_its_copy_the_one_that_fits_the_lake_stays(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    lake = Lake(root)
    Memory(root, user_id="anna").add("I moved to Porto.", now="2024-01-15T08:00Z")
    read("run", *NOW)
    manifest = lake.storage.read("lake.json") or b""
    another_secret = manifest.replace(str(json.loads(manifest)["secret"]).encode(), b"0" * 64)
    for path, changed in (
        ("lake.json", b""),
        ("lake.json", another_secret),
        ("lake.json", manifest.replace(b'"UTC"', b'"UTG"')),
        ("state/lake.json", another_secret),
        ("state/lake.json", manifest.replace(b'"UTC"', b'"UTG"')),
    ):
        lake.storage.write(path, changed)
        assert call("repair", "--dry-run", *NOW).exit_code == 1
        read("repair", *NOW)
        assert lake.storage.read("lake.json") == lake.storage.read("state/lake.json") == manifest


def test_a_lost_manifest_is_not_restored_from_a_damaged_copy(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    lake = Lake(root)
    Memory(root, user_id="anna").add("I moved to Porto.", now="2024-01-15T08:00Z")
    lake.storage.delete(["lake.json"])
    lake.storage.write("state/lake.json", b"{")
    assert "state/lake.json" in str(call("repair", *NOW).exception)
    assert lake.storage.read("lake.json") is None


def test_a_manifest_that_was_replaced_before_it_had_a_copy_fails_its_check_and_is_not_copied(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    lake = Lake(root)
    Memory(root, user_id="anna").add("I moved to Porto.", now="2024-01-15T08:00Z")
    read("run", *NOW)
    lake.storage.delete(["state/lake.json"])
    read("run", *NOW)
    copy = lake.storage.read("state/lake.json")
    assert copy == lake.storage.read("lake.json")
    lake.storage.delete(["state/lake.json"])
    lake.storage.write("lake.json", json.dumps(json.loads(copy or b"") | {"secret": "0" * 64}).encode())
    read("run", *NOW)
    assert not lake.storage.is_there("state/lake.json")
    assert [each["check"] for each in json.loads(call("check", "--json", *NOW).stdout) if each["result"] != "ok"] == [
        "manifest"
    ]
