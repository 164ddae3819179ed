"""Calls of the operating system that differ between Linux, macOS and Windows. No other module makes such calls.

`make types-elsewhere` checks the package's types for macOS and Windows.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

#: A file for a child process: an open descriptor, or on Windows a path. The built-in `open` accepts both.
SharedFile = int | str


class _NativeErrors:
    """The standard error of native code, apart from that of Python.

    Attributes:
        descriptor: a copy of the standard error; None if both are the same.
        muted: number of callers that have muted it.
    """

    lock = threading.Lock()
    descriptor: int | None = None
    muted = 0


def separate_errors() -> None:
    """Give Python a standard error of its own, so that :func:`muted_panics` can mute that of native code alone."""
    usual = sys.__stderr__
    if _NativeErrors.descriptor is None and usual is not None and sys.stderr is usual:
        _NativeErrors.descriptor = os.dup(2)
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding=usual.encoding, errors="backslashreplace")


@contextmanager
def muted_panics() -> Iterator[None]:
    """Discard what native code writes to the standard error, if :func:`separate_errors` was called before.

    A panic in Rust prints paths of the machine that built the library. It is raised in Python, too.
    """
    descriptor = _NativeErrors.descriptor
    if descriptor is None:
        yield
        return
    with _NativeErrors.lock:
        _NativeErrors.muted += 1
        if _NativeErrors.muted == 1:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 2)
            os.close(nowhere)
    try:
        yield
    finally:
        with _NativeErrors.lock:
            _NativeErrors.muted -= 1
            if not _NativeErrors.muted:
                os.dup2(descriptor, 2)


def create_private(path: str | os.PathLike[str]) -> BinaryIO:
    """Create a file and open it for writing bytes. Only its owner has access, except on Windows, which has no modes.

    Raises:
        FileExistsError: there is a file already.
    """
    # Without O_BINARY, Windows converts ends of lines.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def flush(descriptor: int) -> None:
    """Wait until the content of an open file or folder has reached the disk."""
    if sys.platform == "darwin":
        import fcntl

        with suppress(OSError):  # network file systems refuse it
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync would leave the content in the disk's cache
            return
    os.fsync(descriptor)


def flush_folder(path: str | os.PathLike[str]) -> None:
    """Wait until the names in a folder have reached the disk. Windows cannot open a folder, so there it does nothing.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if sys.platform == "win32":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        flush(folder)
    finally:
        os.close(folder)


def is_open_to_all(path: str | os.PathLike[str]) -> bool:
    """Return whether the mode of a file or folder lets every user read it. Windows has no modes: False."""
    return sys.platform != "win32" and bool(Path(path).stat().st_mode & stat.S_IROTH)


def group_id(name: str) -> int | None:
    """Return the id of a group of users, by its name or number. None if there is none, as on Windows."""
    if sys.platform == "win32":
        return None
    import grp

    try:
        return (grp.getgrgid(int(name)) if name.isdecimal() else grp.getgrnam(name)).gr_gid
    except (KeyError, OverflowError):
        return None


def give_to_group(path: str | os.PathLike[str], group: int, mode: int) -> None:
    """Set the group and the mode of a file or folder.

    Raises:
        PermissionError: this process's user is not a member of the group. The error names the group.
    """
    if sys.platform != "win32":  # which has no groups: see `group_id`
        import grp

        try:
            os.chown(path, -1, group)
            Path(path).chmod(mode)
        except PermissionError as error:
            raise PermissionError(error.errno, error.strerror, grp.getgrgid(group).gr_name) from None


def is_running(pid: int) -> bool:
    """Return whether a process of this machine runs. On Windows, where a signal would end it, assume that it does."""
    if sys.platform == "win32":
        return True
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # another user's
    return True


def release_freed_memory() -> None:
    """Return freed memory to the system, if the C library is glibc. Others do so by themselves."""
    if sys.platform == "linux":
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def available_memory() -> int:
    """Return how many bytes of memory this process may still take without swapping; 0 if that is not known."""
    with suppress(OSError, ValueError, IndexError):
        known = Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")[2]
        found = int(known.split()[0]) * 1024
        with suppress(OSError, ValueError):  # the limit of a container; "max" is none
            group = Path("/sys/fs/cgroup")
            used = int((group / "memory.current").read_text("ascii"))
            found = min(found, int((group / "memory.max").read_text("ascii")) - used)
        return found
    return 0


def share(write: Callable[[IO[bytes]], object]) -> SharedFile:
    """Create a temporary file for child processes and fill it with `write`. Where it can, it is in memory.

    It exists until :func:`unshare`. On Linux and macOS it has no name, so it also ends with its processes.
    """
    if sys.platform == "win32":
        with tempfile.NamedTemporaryFile(delete=False) as named:
            write(named)
        return named.name
    descriptor: int
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("shared")
    else:
        with tempfile.TemporaryFile() as temporary:
            descriptor = os.dup(temporary.fileno())
    with os.fdopen(os.dup(descriptor), "wb") as file:
        write(file)
    return descriptor


def unshare(file: SharedFile) -> None:
    """Delete a file of :func:`share`. Its child processes have ended."""
    if isinstance(file, int):
        os.close(file)
    else:
        Path(file).unlink(missing_ok=True)


def options_of_child(files: Collection[SharedFile]) -> dict[str, Any]:
    """Return the arguments of `subprocess.Popen` for a child that inherits `files`, no environment and no Ctrl-C."""
    if sys.platform == "win32":
        import subprocess  # nosec B404  # only its constants are used

        # Python does not start without SYSTEMROOT.
        environment = {name: value for name, value in os.environ.items() if name.upper() == "SYSTEMROOT"}
        return {"env": environment, "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {
        # Few arenas, because the address space is limited.
        "env": {"MALLOC_ARENA_MAX": "2"},
        "cwd": "/",
        "pass_fds": tuple(file for file in files if isinstance(file, int)),
        "start_new_session": True,
    }


def set_alarm(seconds: float) -> None:
    """End this process after some seconds, whatever it does then; 0 cancels it. Windows has no alarms."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)


def confine_process(headroom: int) -> None:
    """Give up new files and sockets, file writes, core dumps, and memory beyond `headroom` more bytes.

    Windows has no such limits, and macOS does not limit memory.
    """
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with suppress(OSError, ValueError):  # some systems have no limit of address space, or no /proc
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        bound = pages * resource.getpagesize() + headroom
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
