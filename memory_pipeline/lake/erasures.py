"""Erasures that are in progress, so that the next run can finish one whose process was killed.

::

    state/erasures/{digest}.json    the subject in clear, and the cutoff

A tombstone names nobody, so it cannot tell a run what to erase. The file is written before the tombstone, and deleted
once the erasure is complete.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.json_text import read_json
from memory_pipeline.domain.subjects import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.tables.tombstones import Tombstones

_FOLDER = "state/erasures"


def begin_erasure(storage: Storage, subject: Subject, at: datetime) -> None:
    """Note that the erasure of a subject, with the cutoff `at`, has begun."""
    record = {"subject": subject.to_record(), "at": at.isoformat()}
    storage.write(_path(subject), json.dumps(record).encode())


def end_erasure(storage: Storage, subject: Subject) -> None:
    """Note that the erasure of a subject is complete."""
    storage.delete([_path(subject)])
    storage.leave([_FOLDER])


def begun_erasures(storage: Storage) -> Iterator[tuple[Subject, datetime]]:
    """Yield the subjects and cutoffs of erasures in progress. Unreadable files are left out."""
    for entry in storage.list(_FOLDER):
        try:
            record = read_json((storage.read(entry.path) or b"").decode())
            yield Subject.from_record(record["subject"]), datetime.fromisoformat(record["at"])
        except (ValueError, KeyError, TypeError):
            continue


def unfinished_erasures(storage: Storage, tombstones: Tombstones) -> list[str]:
    """Return a name for each erasure that is not complete: a tombstone that is not done, or a file of this module."""
    undone = [f"tombstone {one.id} of workspace {one.workspace_id}" for one in tombstones.all() if not one.is_done]
    return undone or [entry.path for entry in storage.list(_FOLDER)]


def _path(subject: Subject) -> str:
    return f"{_FOLDER}/{digest(subject.to_record())}.json"
