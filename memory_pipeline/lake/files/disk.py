"""Errors of a disk, as messages: the path, the reason, and the remedy."""

from __future__ import annotations

import errno
import os
import re

from memory_pipeline.errors import LakeError, one_line, shown

_ELSEWHERE = "or use another lake (--root, MEMORY_PIPELINE_ROOT)"
_FULL = "free some space and try again; acknowledged data is safe"
_FILES = "raise the limit of open files (ulimit -n) and try again; nothing is lost"
_REMEDIES = {
    errno.EACCES: f"let this user read and write it, {_ELSEWHERE}",
    errno.EPERM: f"let this user read and write it, {_ELSEWHERE}",
    errno.EROFS: f"mount the file system for writing, {_ELSEWHERE}",
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: f"raise the limit of the size of files (ulimit -f), {_ELSEWHERE}",
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EISDIR: f"a folder is in the place of a file: remove it, {_ELSEWHERE}",
    errno.EIO: f"check that the disk works, {_ELSEWHERE}",
}
_OTHER = f"check that a folder can be created there, {_ELSEWHERE}"
#: How Rust libraries quote errors of the system: "Permission denied (os error 13)", or "Os { code: 13, … }".
_OS_ERROR = re.compile(r"(?:\(os error |Os \{ code: )(\d{1,3})")
_PATH = re.compile(r"(?<![\w:/])/[^\s'\":,;()\[\]]+")


def disk_error(error: BaseException, path: str | None = None, default: str = "the lake") -> LakeError | None:
    """Return a disk's error as a one-line message, or None for other errors.

    The message names `path`, or else the path in the error, or else `default`. The error may be Python's, or of a
    library that quotes the system's error.
    """
    code = error.errno if isinstance(error, OSError) else None
    if code is None:
        quoted = _OS_ERROR.search(str(error))  # deltalake names the cause on a later line
        code = int(quoted[1]) if quoted else None
        if code not in _REMEDIES:
            return None
    elif path is None and code not in _REMEDIES and code != errno.ENOTDIR:
        return None
    named = getattr(error, "filename", None)
    found = _PATH.search(one_line(error))
    where = str(path or named or (found[0] if found else default))
    return LakeError(f"{shown(where, 300)[1:-1]}: {os.strerror(code)}; {_REMEDIES.get(code, _OTHER)}")


def raise_of_disk(error: BaseException, default: str) -> None:
    """Raise a disk's error as a LakeError that names its path or `default`; do nothing for other errors."""
    refused = disk_error(error, default=default)
    if refused is not None:
        raise refused from error
