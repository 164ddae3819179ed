"""Run processes that reach loopback only, and record what else they try to reach."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: Python runs it at the start of each process. Children inherit it with the environment.
_SITE = """
import os, socket, sys

def local(host):
    host = host.decode() if isinstance(host, bytes) else host
    return host in (None, "", "localhost", "::1", "0.0.0.0", "::") or host.startswith("127.")

def refuse(what):
    with open({log!r}, "a") as file:
        file.write(f"{{what}} by {{' '.join(sys.orig_argv)[:200]!r}}\\n")
    raise OSError(f"no network: {{what}}")

def guarded(original):
    def connect(self, address):
        if isinstance(address, tuple) and not local(address[0]):
            refuse(f"connect {{address!r}}")
        return original(self, address)
    return connect

def guarded_look_up(original):
    def look_up(host, *rest, **more):
        if not local(host):
            refuse(f"look up {{host!r}}")
        return original(host, *rest, **more)
    return look_up

socket.socket.connect = guarded(socket.socket.connect)
socket.socket.connect_ex = guarded(socket.socket.connect_ex)
socket.getaddrinfo = guarded_look_up(socket.getaddrinfo)
socket.gethostbyname = guarded_look_up(socket.gethostbyname)
"""
#: A call that sends something to an address of the internet family; loopback is left out.
_SENT = re.compile(
    r'^.*(?:connect|sendto|sendmsg)\(.*(?:inet_addr\("(?!127\.)|inet_pton\(AF_INET6, "(?!::1"|::ffff:127\.)).*$',
    re.MULTILINE,
)


class RefusingNetwork:
    """An environment for processes in which Python reaches loopback only. `folder` is for its files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._log, self._trace = folder / "attempts", folder / "trace"
        (folder / "sitecustomize.py").write_text(_SITE.format(log=str(self._log)), encoding="utf-8")
        paths = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        self.variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def run(self, command: Sequence[str], *, trace: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command. With `trace`, strace also records what native code tries to reach, if it is installed."""
        if trace and (strace := shutil.which("strace")):
            options = ["-f", "--seccomp-bpf", "-qq", "-A", "-e", "trace=connect,sendto,sendmsg", "-o", str(self._trace)]
            command = [strace, *options, *command]
        environment: Mapping[str, str] = {**os.environ, **self.variables, **variables}
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    def attempts(self) -> list[str]:
        """Return what the processes tried to reach beyond loopback."""
        found = self._log.read_text("utf-8").splitlines() if self._log.exists() else []
        return found + (_SENT.findall(self._trace.read_text("utf-8")) if self._trace.exists() else [])
