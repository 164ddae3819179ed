"""The hook as the agents run it: a process of its own, with and without the service, and whatever fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from memory_pipeline import Memory
from memory_pipeline.coding_agents.hook import SERVICE
from memory_pipeline.coding_agents.plugin import HOOK_MODULE

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The goal is 0.3 s; it takes 0.06 s.
MOST_CPU = 0.3


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    cpu: float


def environment_of(**more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("MEMORY_PIPELINE_")}
    return {**own, **more}


def hook(root: object, event: object, *, user: str | None = "anna", cwd: Path | None = None, **environment: str) -> Ran:
    options = ["--root", str(root), "--workspace", "default", "--agent", "coding"]
    options += [] if user is None else ["--user", user]
    given = event if isinstance(event, bytes) else json.dumps(event).encode()
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-P", "-m", HOOK_MODULE, *options],
        input=given, capture_output=True, env=environment_of(**environment), cwd=cwd, check=False, timeout=60,
    )  # fmt: skip
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode(), cpu)


def prompt(text: str, session: str = "s1", **more: Any) -> dict[str, Any]:
    return {"hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": text, **more}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def served(root: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    port = free_port()
    command = [sys.executable, "-m", "memory_pipeline.cli", "serve", "--root", str(root), "--quiet"]
    process = subprocess.Popen(
        [*command, "--agent", "coding", "--port", str(port), *options],
        env=environment_of(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait(30)
        if process.stderr:
            process.stderr.close()


def said(root: Path, session: str = "s1", user: str | None = "anna") -> list[str]:
    memory = Memory(str(root), user_id=user, agent_id="coding")
    return [one.content for one in memory.conversations.get(session)]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_with_the_service_a_hook_is_cheap_and_does_the_same(lake: Path) -> None:
    with served(lake):
        first = hook(lake, prompt("The key is in the blue safe."))
        assert (first.code, first.out, first.err) == (0, "", "")
        second = hook(lake, prompt("Where is the key?", "s2"))
        assert "blue safe" in json.loads(second.out)["hookSpecificOutput"]["additionalContext"]
        assert min(first.cpu, second.cpu) < MOST_CPU
        assert said(lake) == ["The key is in the blue safe."]
        # What the service has told in a session, the hook alone does not tell again, and the other way round.
        alone = hook(lake, prompt("Where is the key?", "s2"), MEMORY_PIPELINE_HOOK_SECONDS="60")
        assert alone.out == ""
        assert hook(lake, {"hook_event_name": "Nothing", "session_id": "s1"}).code == 0
    assert not (lake / SERVICE).exists()
    without = hook(lake, prompt("Where is the key?", "s3"))
    assert "blue safe" in json.loads(without.out)["hookSpecificOutput"]["additionalContext"]
    assert (without.code, without.err) == (0, "")


def test_users_are_kept_apart(lake: Path) -> None:
    with served(lake):
        for user in ("jürgen 🔑", None):
            assert hook(lake, prompt(f"I am {user}."), user=user).err == ""
    assert said(lake, user="jürgen 🔑")[0] == "I am jürgen 🔑."
    assert said(lake, user="ben") == ["I am None."]  # an agent's own memory is its users' too
    assert said(lake, user=None) == ["I am None."]


def test_a_service_of_another_agent_is_not_asked(lake: Path) -> None:
    with served(lake, "--workspace", "other"):
        assert hook(lake, prompt("mine")).err == ""
    assert said(lake) == ["mine"]
    assert Memory(str(lake), user_id="anna", agent_id="coding", workspace_id="other").conversations.get("s1") == []


def test_a_service_that_was_killed_is_not_missed(lake: Path) -> None:
    with served(lake) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (lake / SERVICE).exists()
        done = hook(lake, prompt("still here"))
    assert (done.code, done.err, said(lake)) == (0, "", ["still here"])


def test_a_token_opens_its_own_memory_and_a_wrong_one_does_not_lose_what_was_said(lake: Path) -> None:
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.tokens import Right, ServiceToken
    from memory_pipeline.lake import Lake
    from memory_pipeline_tests.building import NOW

    opened = Lake(str(lake))
    opened.ensure()
    token, text = ServiceToken.new(Scope("default", "coding"), Right.WRITE, NOW, user_id="anna")
    opened.tokens.add(token)
    with served(lake):
        assert hook(lake, prompt("with a token"), MEMORY_PIPELINE_TOKEN=text).err == ""
        wrong = hook(lake, prompt("without"))
        assert (wrong.code, "401" in wrong.err) == (0, True)
    assert said(lake) == ["with a token", "without"]


def test_an_address_that_is_named_is_the_only_one(lake: Path) -> None:
    done = hook(lake, prompt("lost"), MEMORY_PIPELINE_URL=f"http://127.0.0.1:{free_port()}")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("memory-pipeline: ")
    assert not lake.exists()
    with served(lake / "a"):
        url = json.loads((lake / "a" / SERVICE).read_text())["url"]
        assert hook(lake / "b", prompt("there"), MEMORY_PIPELINE_URL=url).err == ""
        command = [sys.executable, "-P", "-m", HOOK_MODULE, "--url", url, "--user", "anna"]
        given = json.dumps(prompt("and there")).encode()
        subprocess.run(command, input=given, env=environment_of(), check=True, timeout=60)
    assert said(lake / "a") == ["there", "and there"]
    assert not (lake / "b").exists()


def test_an_event_that_is_handed_over_twice_is_stored_once(lake: Path, tmp_path: Path) -> None:
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_text("1")
    same = prompt("go on", transcript_path=str(transcript))
    with served(lake):
        hook(lake, same)
        hook(lake, same)
        transcript.write_text("12")
        hook(lake, same)
        for turn in ("t1", "t1", "t2"):
            hook(lake, prompt("codex", "s2", turn_id=turn, transcript_path=None))
    hook(lake, same)
    assert (said(lake), said(lake, "s2")) == (["go on"] * 2, ["codex"] * 2)


@pytest.mark.parametrize("event", [b"", b"{", b"[]", b"5", b'{"hook_event_name": "UserPromptSubmit"}', b"\xff"])
def test_whatever_fails_does_not_stop_the_agent(lake: Path, event: bytes) -> None:
    done = hook(lake, event)
    assert (done.code, done.out) == (0, "")
    assert len(done.err.splitlines()) == 1
    assert not lake.exists()


def test_an_agent_that_no_longer_reads_and_a_wrong_setting_are_no_failures(lake: Path) -> None:
    memory = Memory(str(lake), user_id="anna", agent_id="coding")
    memory.add("The key is in the blue safe.")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-P", "-m", HOOK_MODULE, "--root", str(lake), "--workspace", "default"]
    done = subprocess.run(
        [*command, "--agent", "coding", "--user", "anna"],
        input=json.dumps(prompt("Where is the key?", "s2")).encode(), stdout=writing, env=environment_of(), check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 0
    assert hook(lake, prompt("x"), MEMORY_PIPELINE_HOOK_SECONDS="soon").code == 0


def test_a_lake_that_cannot_be_opened_does_not_stop_the_agent(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    done = hook(tmp_path / "lake", prompt("x"))
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("memory-pipeline: ")


def test_a_service_that_does_not_answer_does_not_hold_the_agent(lake: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = hook(lake, prompt("x"), MEMORY_PIPELINE_URL=url, MEMORY_PIPELINE_HOOK_SECONDS="1")
        assert (done.code, done.out) == (0, "")
        assert "takes too long" in done.err
        assert time.monotonic() - began < 4


def test_what_a_strange_service_answers_does_not_stop_the_agent(lake: Path) -> None:
    with socket.socket() as strange:
        strange.bind(("127.0.0.1", 0))
        strange.listen()

        def answer() -> None:
            connection, _ = strange.accept()
            connection.recv(10_000)
            connection.sendall(b"SSH-2.0-hello\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        done = hook(lake, prompt("x"), MEMORY_PIPELINE_URL=f"http://127.0.0.1:{strange.getsockname()[1]}")
        thread.join()
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("memory-pipeline: ")


def test_modules_in_the_folder_of_a_project_are_not_imported(lake: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("json.py", "memory_pipeline.py", "threading.py"):
        (project / name).write_text("raise SystemExit(7)")
    assert hook(lake, prompt("safe"), cwd=project).code == 0
    assert said(lake) == ["safe"]


def test_nothing_heavy_is_imported_while_the_service_answers() -> None:
    code = f"import sys, {HOOK_MODULE}; print(*sorted(one for one in sys.modules if 'memory_pipeline' in one))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["memory_pipeline", "memory_pipeline.coding_agents", HOOK_MODULE]
