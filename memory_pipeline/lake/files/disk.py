"""What a disk refuses, in words: the path, the reason, and what to do about it."""

from __future__ import annotations

import errno
import os
import re

from memory_pipeline.errors import LakeError, shown

_ELSEWHERE = "or use another lake (--root, MEMORY_PIPELINE_ROOT)"
_FULL = "free some space and do the same again; what was acknowledged is safe"
_REMEDIES = {
    errno.EACCES: f"let this user read and write it, {_ELSEWHERE}",
    errno.EPERM: f"let this user read and write it, {_ELSEWHERE}",
    errno.EROFS: f"mount the file system for writing, {_ELSEWHERE}",
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: f"raise the limit of the size of files (ulimit -f), {_ELSEWHERE}",
    errno.EIO: f"see that the disk works, {_ELSEWHERE}",
}
_OTHER = f"see that a folder can be made there, {_ELSEWHERE}"
#: How libraries of Rust end what the system said: "Permission denied (os error 13)".
_OS_ERROR = re.compile(r"\(os error (\d{1,3})\)")
_PATH = re.compile(r"(?<![\w:/])/[^\s'\":,;()\[\]]+")


def disk_error(error: BaseException, path: str | None = None, default: str = "the lake") -> LakeError | None:
    """Return what the disk said as an error of one line; None where an error is not of the disk.

    Args:
        error: of Python, or of a library that tells the system's error in its text.
        path: what was read or written; what the error names if not given.
        default: what was read or written, if the error names nothing.
    """
    text = str(error)
    code = error.errno if isinstance(error, OSError) else None
    if code is None:
        told = _OS_ERROR.search(text)
        code = int(told[1]) if told else None
        if code not in _REMEDIES:
            return None
    elif path is None and code not in _REMEDIES and code != errno.ENOTDIR:
        return None
    named = getattr(error, "filename", None)
    found = _PATH.search(text)
    where = str(path or named or (found[0] if found else default))
    return LakeError(f"{shown(where, 300)[1:-1]}: {os.strerror(code)}; {_REMEDIES.get(code, _OTHER)}")


def raise_of_disk(error: BaseException, default: str) -> None:
    """Raise what the disk said as a LakeError; do nothing where an error is not of the disk.

    Args:
        error: of a library.
        default: what was read or written, if the error names nothing.
    """
    refused = disk_error(error, default=default)
    if refused is not None:
        raise refused from error
