"""Macs and Windows machines, imitated on Linux: this process loses the functions that they lack.

As a script it is a fresh interpreter that imitates one and runs the whole chain: `python -m … win32 ROOT WORKER`.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.abc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

#: Modules of the standard library that Windows lacks.
_MISSING_MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
#: Functions and constants that Windows lacks, except those that the standard library itself needs on Linux.
_MISSING: dict[Any, tuple[str, ...]] = {
    os: (
        "O_DIRECTORY",
        "chown",
        "fork",
        "getegid",
        "geteuid",
        "getgid",
        "getuid",
        "memfd_create",
        "statvfs",
    ),
    select: ("poll",),
    signal: ("SIGXFSZ", "alarm", "setitimer"),
}
#: A query that DuckDB does not end at its time limit.
_ENDLESS = "SELECT len(list_distinct(range(30000000)))"
#: What the imitated system refused, by name.
refused: Counter[str] = Counter()


def become(platform: str) -> None:
    """Make this process lack what `platform`, `win32` or `darwin`, lacks, and tell `operating_system` its name."""
    (_become_windows if platform == "win32" else _become_mac)()
    from memory_pipeline import operating_system

    operating_system.sys = SimpleNamespace(platform=platform)  # type: ignore[assignment,attr-defined]


class _Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in _MISSING_MODULES:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def _become_windows() -> None:
    sys.meta_path.insert(0, _Missing())
    for name in _MISSING_MODULES:
        sys.modules.pop(name, None)
    for module, names in _MISSING.items():
        for name in names:
            delattr(module, name)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    open_file, kill, start = os.open, os.kill, subprocess.Popen.__init__

    def open_no_folder(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if Path(path).is_dir():
            refused["folder"] += 1
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return open_file(path, flags, mode, **more)

    def kill_only(pid: int, number: int) -> None:
        assert number, "on Windows, signal 0 is Ctrl-C"
        kill(pid, number)

    def start_without(self: Any, *arguments: Any, **options: Any) -> None:
        assert not options.get("pass_fds"), "pass_fds not supported on Windows."
        start(self, *arguments, **options)

    os.open, os.kill = open_no_folder, kill_only
    subprocess.Popen.__init__ = start_without  # type: ignore[method-assign]
    subprocess.CREATE_NO_WINDOW = subprocess.CREATE_NEW_PROCESS_GROUP = 0  # type: ignore[attr-defined]


def _become_mac() -> None:
    import resource

    del os.memfd_create
    limit, flush = resource.setrlimit, os.fsync

    def limit_no_memory(which: int, limits: tuple[int, int]) -> None:
        if which == resource.RLIMIT_AS:
            refused["memory"] += 1
            raise ValueError("current limit exceeds maximum limit")
        limit(which, limits)

    def control(descriptor: int, command: int, *_: object) -> int:
        assert command == 51
        refused["cache"] += 1
        flush(descriptor)
        return 0

    def flush_to_cache(_: int) -> None:
        raise AssertionError("fsync leaves the content in the disk's cache")

    resource.setrlimit = limit_no_memory
    fcntl.F_FULLFSYNC = 51  # type: ignore[attr-defined]
    fcntl.fcntl = control  # type: ignore[assignment]
    os.fsync = flush_to_cache  # type: ignore[assignment]


def _run_chain(root: str) -> None:
    from datetime import UTC, datetime

    import pytest

    from memory_pipeline import Memory
    from memory_pipeline.errors import InputError
    from memory_pipeline.lake import VectorCollection, VectorItem

    now = datetime(2026, 3, 2, 9, tzinfo=UTC)
    # Names that Windows refuses for files.
    memory = Memory(root, workspace_id="con", agent_id="a:b|c?. ", user_id="nul")
    memory.add("I moved to Porto.\r\nMy dog is called Bruno.", conversation_id="aux.", now=now)
    assert "Porto" in memory.search("Where do I live?", now=now)[0].content
    memory.run(now=datetime(2027, 1, 12, tzinfo=UTC))
    [hit, *_] = Memory(root, workspace_id="con", agent_id="a:b|c?. ", user_id="nul").search("Where do I live?", now=now)
    assert "Porto" in hit.content
    assert memory.graph.query("SELECT target FROM facts WHERE target_id = 'porto'").rows == [("Porto",)]
    with pytest.raises(InputError, match="took longer"):
        memory.graph.query(_ENDLESS, max_seconds=0.2)
    assert memory.graph.query("SELECT 1").rows == [(1,)]
    collection = VectorCollection.open(root, workspace_id="con", agent_id="prn", dimension=2, name="lpt1")
    collection.upsert([VectorItem("a", [1, 0], "text")])
    assert len(collection.search([1, 0])) == 1


if __name__ == "__main__":
    become(sys.argv[1])
    from memory_pipeline.lake.sql import session

    session._SCRIPT = Path(sys.argv[3])
    _run_chain(sys.argv[2])
    sys.stdout.write(json.dumps(refused))
