"""Probes whether a server can create a file only if it is absent. Otherwise commits could overwrite each other.

Some S3 servers ignore the condition (``If-None-Match``) and report success when they overwrite: they suit lakes with a
single writer. Others refuse every conditional request: they cannot hold a lake, because deltalake and lancedb need such
requests to commit. Creating one file twice, before a process's first write, detects both.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ulid import ULID

from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake.files.s3_errors import NoConditionError

if TYPE_CHECKING:
    from memory_pipeline.lake.files.s3_files import Bucket

#: Probes of this process: address, bucket, prefix, and whether for a single writer.
_SEEN: set[tuple[str, str, str, bool]] = set()
_LOCK = threading.Lock()


def require_creating(bucket: Bucket, prefix: str, manifest: str) -> None:
    """Refuse a server that does not create a file only if it is absent. Probe each root once per process.

    The probe leaves no file behind: it uses the lake's manifest, a file that never changes, or creates another file
    twice and deletes it.

    Raises:
        ConfigurationError: the server overwrote the file, or refused the condition.
    """
    store = bucket.store
    root = (store.address, store.bucket, prefix, store.is_single_writer)
    if root in _SEEN:
        return
    with _LOCK:
        if root in _SEEN:
            return
        key = f"{prefix}{manifest}"
        data = bucket.read(key)
        if data is None:
            key = f"{prefix}state/created-twice-{ULID()}"
            data = b""
            try:
                _create_twice(bucket, key, data, is_new=True)
            finally:
                bucket.delete([key])
        else:
            _create_twice(bucket, key, data, is_new=False)
        _SEEN.add(root)


def _create_twice(bucket: Bucket, key: str, data: bytes, *, is_new: bool) -> None:
    try:
        if is_new:
            bucket.create(key, data)
        bucket.create(key, data)
    except FileExistsError:
        return
    except NoConditionError as error:
        raise ConfigurationError(
            f"{bucket.store.address} cannot keep a lake: {_asked(bucket)}, and answered {error.code}; tables and index "
            "need such requests to commit. Use a server that supports them: docs/s3.md names some"
        ) from None
    if not bucket.store.is_single_writer:
        raise ConfigurationError(
            f"{bucket.store.address} cannot keep a lake that several processes write to: {_asked(bucket)}, and did so "
            "although it existed; one writer's commit would overwrite another's, and acknowledged data would be lost. "
            "Use a server that supports the condition (docs/s3.md names some); or, if no two processes ever write at "
            "a time, set MEMORY_PIPELINE_SINGLE_WRITER=1"
        )


def _asked(bucket: Bucket) -> str:
    return (
        f"it was asked to create a file in bucket {bucket.store.bucket!r} only if there is none (PUT with "
        "If-None-Match)"
    )
