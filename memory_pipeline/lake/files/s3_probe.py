"""Whether a server creates a file only if it is new: without that, one writer's commit takes the place of another's.

Some servers of S3 ignore the condition (``If-None-Match``), and say that they wrote what they overwrote: those are for
lakes with a single writer. Others refuse every request that has one: those keep no lake, for deltalake and lancedb
commit by such requests alone. Both are found out before the first write of a process, by creating one file twice.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ulid import ULID

from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake.files.s3_errors import NoConditionError

if TYPE_CHECKING:
    from memory_pipeline.lake.files.s3_files import Bucket

#: Where this process has looked: addresses, buckets, prefixes, and whether for a single writer.
_SEEN: set[tuple[str, str, str, bool]] = set()
_LOCK = threading.Lock()


def require_creating(bucket: Bucket, prefix: str, manifest: str) -> None:
    """Refuse a server that does not create a file only if it is new; look once for each root in a process.

    Nothing is left behind: a lake's manifest is there already, and where there is none, a file of another name is
    created, twice, and deleted.

    Args:
        bucket: where the lake lies.
        prefix: below which, with a slash at its end unless it is empty.
        manifest: the name of a file that every lake has, and that nobody changes.

    Raises:
        ConfigurationError: the server did it twice, or refused to do it at all.
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
            "commit by such requests alone. Use a server that knows them: docs/s3.md names some"
        ) from None
    if not bucket.store.is_single_writer:
        raise ConfigurationError(
            f"{bucket.store.address} cannot keep a lake that several processes write to: {_asked(bucket)}, and did so "
            "although it was there; one writer's commit would take the place of another's, and what was acknowledged "
            "would be lost. Use a server that heeds the condition (docs/s3.md names some); or, if no two processes "
            "ever write at a time, set MEMORY_PIPELINE_SINGLE_WRITER=1"
        )


def _asked(bucket: Bucket) -> str:
    return (
        f"it was asked to create a file in bucket {bucket.store.bucket!r} only if there is none (PUT with "
        "If-None-Match)"
    )
