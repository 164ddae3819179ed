"""A lake is rebuilt with other settings, and loses nothing."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.transfer import rebuilding
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.lake_digest import differing
from memory_pipeline_tests.transfer.histories import digests, live

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline_tests.conftest import SharedFolder

NOW = "2026-01-01T00:00+00:00"


@pytest.fixture
def lived(shared_folder: SharedFolder) -> Path:
    """A lake with a history of some weeks and pending records. It is only read."""
    return shared_folder("rebuilt", lambda folder: live(folder, 3, 30))


def answers(folder: Path, now: str = NOW) -> list[str]:
    """Return what two users find and are told."""
    memories = [Memory(folder, user_id=user).with_now(now) for user in ("anna", "ben")]
    found = [hit.id for memory in memories for hit in memory.search("Where does Nadia live?", 50)]
    return found + [str(memory.context("Who lives in Porto?")) for memory in memories]


def test_a_lake_with_other_shards_holds_the_same(lived: Path, tmp_path: Path) -> None:
    done = read("rebuild", str(lived), str(tmp_path / "new"), "--shards", "3", "--now", NOW)
    assert done["copied"]["messages"] > 5
    assert done["not_copied"] == []
    new = Lake(tmp_path / "new")
    assert new.shards == 3
    shutil.copytree(lived, tmp_path / "old")
    Memory(tmp_path / "old").run(now=NOW)
    assert answers(tmp_path / "new") == answers(tmp_path / "old")
    assert differing(digests(Lake(tmp_path / "old")), digests(new)) == []
    assert read("status", "--root", str(tmp_path / "new"), "--now", NOW)["grains"]
    assert not [one for one in Memory(tmp_path / "new").run(now=NOW) if getattr(one, "changed", 0)]
    assert Memory(tmp_path / "new").check(now=NOW) == ()


def test_a_killed_rebuild_continues(lived: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memory_pipeline.cli", "rebuild", str(lived), "--now", NOW]
    started = time.monotonic()
    subprocess.run([*command[:5], str(tmp_path / "whole"), *command[5:]], check=True, capture_output=True)
    whole = time.monotonic() - started
    for part in range(1, 8):
        process = subprocess.Popen(
            [*command[:5], str(tmp_path / "new"), *command[5:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            process.wait(whole * part / 8)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    call("rebuild", str(lived), str(tmp_path / "new"), "--now", NOW)
    assert differing(digests(Lake(tmp_path / "whole")), digests(Lake(tmp_path / "new"))) == []


def test_users_get_a_memory_of_their_own(tmp_path: Path) -> None:
    shared = Lake(tmp_path / "shared")
    shared.ensure()
    shared.storage.write("config/workspaces.yaml", b"defaults: {per_user: false}\n")
    end = live(tmp_path / "shared", 5, 20)
    Memory(tmp_path / "shared").run(now=end + timedelta(days=40))
    (tmp_path / "config.yaml").write_text("defaults: {per_user: true}\n")
    arguments = ["rebuild", str(tmp_path / "shared"), str(tmp_path / "apart")]
    done = read(*arguments, "--config", str(tmp_path / "config.yaml"), "--now", NOW)
    assert done["renamed"] == ["default/default"]
    old = {
        (message.content, message.user_id, message.sent_at)
        for user in ("anna", "ben")
        for memory in [Memory(tmp_path / "shared", user_id=user)]
        for talk in memory.conversations.list(1_000)
        for message in memory.conversations.get(talk.id)
    }
    for user in ("anna", "ben"):
        memory = Memory(tmp_path / "apart", user_id=user)
        own = {
            (message.content, message.user_id, message.sent_at)
            for talk in memory.conversations.list(1_000)
            for message in memory.conversations.get(talk.id)
        }
        assert own
        assert own == {one for one in old if one[1] in (user, None)}


def test_a_lake_is_rebuilt_once_and_another_one_is_refused(lived: Path, tmp_path: Path) -> None:
    new, other = str(tmp_path / "new"), tmp_path / "other"
    read("rebuild", str(lived), new, "--now", NOW)
    with pytest.raises(InputError, match="is complete; use it"):
        raise call("rebuild", str(lived), new, "--now", NOW).exception or AssertionError
    with pytest.raises(InputError, match="there is a lake at"):
        raise call("rebuild", str(lived), str(lived), "--now", NOW).exception or AssertionError
    Memory(other).add("I like tea.", now=datetime.fromisoformat(NOW))
    with pytest.raises(InputError, match="there is a lake at"):
        raise call("rebuild", str(lived), str(other), "--now", NOW).exception or AssertionError


def test_an_erasure_between_two_parts_of_a_rebuild_begins_it_again(
    lived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(lived, tmp_path / "old")

    def stop(*_: object, **__: object) -> None:
        raise InputError("stopped")

    with monkeypatch.context() as patched:
        patched.setattr(rebuilding, "derive", stop)
        call("rebuild", str(tmp_path / "old"), str(tmp_path / "new"), "--now", NOW)
    Memory(tmp_path / "old", user_id="ben").forget(everything=True)
    stopped = call("rebuild", str(tmp_path / "old"), str(tmp_path / "new"), "--now", NOW)
    assert "something was erased since" in str(stopped.exception)
