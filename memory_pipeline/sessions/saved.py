"""Copies of sessions in the lake, as JSON files."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.sessions import micros_of, redacted_value, time_of
from memory_pipeline.errors import DamagedError, shown
from memory_pipeline.lake.files.storage_errors import REMEDY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.sessions import Container, Entry
    from memory_pipeline.domain.text.secrets import Redactor
    from memory_pipeline.lake.files.storage import Storage

SAVED: Final = "sessions/saved"
_FIELDS: Final = ("key", "type", "value", "accesses", "expires_at")


def save(
    storage: Storage,
    container: Container,
    name: str,
    parts: Mapping[str, Sequence[Entry]],
    short_term: Sequence[Entry],
    now: int,
) -> int:
    """Write the copy of a session; return the number of its entries. `name` is a hash that names the session."""
    entries = [
        {
            "is_short_term": is_short_term,
            "section": section,
            **{field: getattr(entry, field) for field in _FIELDS},
            **{name: time_of(getattr(entry, name)).isoformat() for name in ("created_at", "updated_at")},
        }
        for is_short_term, groups in ((False, parts), (True, {"": short_term}))
        for section, listed in groups.items()
        for entry in listed
    ]
    owner = {field: getattr(container, field) for field in ("workspace_id", "agent_id", "identity", "space")}
    record = {**owner, "updated_at": time_of(now).isoformat(), "entries": entries}
    storage.write(_path(name), json.dumps(record, ensure_ascii=False).encode())
    return len(entries)


def load(storage: Storage, name: str) -> Iterator[tuple[bool, str, dict[str, Any]]]:
    """Yield for each entry of a copy: whether it is a short-term one, its section, and its fields."""
    data = storage.read(_path(name))
    yield from () if data is None else _entries(_record(_path(name), data))


def damaged_copies(storage: Storage) -> dict[str, str]:
    """Return the copies that cannot be read, with the reasons."""
    found = {}
    for file in storage.list(SAVED):
        try:
            _record(file.path, storage.read(file.path) or b"")
        except DamagedError as error:
            found[file.path] = str(error)
    return found


def _entries(record: Mapping[str, Any]) -> Iterator[tuple[bool, str, dict[str, Any]]]:
    for entry in record["entries"]:
        created_at = micros_of(datetime.fromisoformat(entry["created_at"]))
        fields = {field: entry[field] for field in _FIELDS}
        yield entry["is_short_term"], entry["section"], {**fields, "created_at": created_at}


def _record(path: str, data: bytes) -> dict[str, Any]:
    """Return the record of a copy.

    Raises:
        DamagedError: it cannot be read.
    """
    try:
        record: dict[str, Any] = json.loads(data)
        list(_entries(record))
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"the saved session {path} cannot be read: {shown(str(error))}; {REMEDY}") from None
    return record


def delete_saved(storage: Storage, is_unwanted: Callable[[Mapping[str, Any]], bool]) -> int:
    """Delete the copies whose record is unwanted; return their number."""
    found = []
    for file in storage.list(SAVED):
        data = storage.read(file.path)
        with suppress(DamagedError):  # `memory-pipeline check` names it
            if data is not None and is_unwanted(_record(file.path, data)):
                found.append(file.path)
    storage.delete(found)
    storage.prune(SAVED)
    return len(found)


def redact_saved(storage: Storage, redactor_of: Callable[[str], Redactor], *, dry_run: bool) -> int:
    """Replace the secrets in the copies; return how many had some. With `dry_run`, only count them."""
    count = 0
    for file in storage.list(SAVED):
        with suppress(DamagedError):  # `memory-pipeline check` names it
            record = _record(file.path, storage.read(file.path) or b"")
            redactor = redactor_of(record["workspace_id"])
            entries = [
                {**entry, "value": redacted_value(redactor, entry["key"], entry["value"])}
                for entry in record["entries"]
            ]
            if entries != record["entries"]:
                count += 1
                if not dry_run:
                    storage.write(file.path, json.dumps({**record, "entries": entries}, ensure_ascii=False).encode())
    return count


def is_expired(record: Mapping[str, Any], now: int) -> bool:
    """Return whether all entries of a copy have expired."""
    return all(entry["expires_at"] <= now for entry in record["entries"])


def _path(name: str) -> str:
    return f"{SAVED}/{name}.json"
