"""Copies of sessions in the lake, as JSON files."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.sessions import micros_of, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.sessions import Container, Entry
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
    for entry in [] if data is None else json.loads(data)["entries"]:
        created_at = micros_of(datetime.fromisoformat(entry["created_at"]))
        fields = {field: entry[field] for field in _FIELDS}
        yield entry["is_short_term"], entry["section"], {**fields, "created_at": created_at}


def delete_saved(storage: Storage, is_unwanted: Callable[[Mapping[str, Any]], bool]) -> int:
    """Delete the copies whose record is unwanted; return their number."""
    found = []
    for file in storage.list(SAVED):
        data = storage.read(file.path)
        if data is not None and is_unwanted(json.loads(data)):
            found.append(file.path)
    storage.delete(found)
    storage.prune(SAVED)
    return len(found)


def is_expired(record: Mapping[str, Any], now: int) -> bool:
    """Return whether all entries of a copy have expired."""
    return all(entry["expires_at"] <= now for entry in record["entries"])


def _path(name: str) -> str:
    return f"{SAVED}/{name}.json"
