"""Read the records of lakes of older formats.

Formats 2 and 3 keep messages, edits of the graph and changes of durable memories in the tables and journal files of
today, with fewer columns and other folders. Format 2 has one memory for all users of an agent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.messages import NothingSaidError
from memory_pipeline.errors import InputError, LakeError, MemoryPipelineError, shown
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.codec import scope_columns
from memory_pipeline.lake.files.storage import MANIFEST, Storage
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline.transfer.copying import put_rows, said_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.transfer.copying import Record

OLD: Final = (2, 3)
_PENDING: Final = "journal/pending"


def format_of(uri: str) -> object:
    """Return the format of a lake; None if there is none at `uri`."""
    manifest = _manifest(uri)
    return manifest and manifest.get("format")


def records_of(uri: str, folder: Path, new: str) -> tuple[Lake, list[str]]:
    """Return a lake in a folder with the records of one of an older format, and what could not be read.

    `new` is the address of the lake that is made of it; if it exists, the scopes have the same keys.

    Raises:
        LakeError: the format is none of :data:`OLD`, or a table cannot be read.
    """
    manifest, storage = _manifest(uri) or {}, Storage(uri)
    if manifest.get("format") not in OLD:
        raise LakeError(f"the lake at {uri} has format {shown(manifest.get('format'))}, which no version reads")
    secret = manifest.get("secret") or (_manifest(new) or {}).get("secret")
    lake = Lake(folder, str(manifest["timezone"]), secret=None if secret is None else str(secret))
    lake.ensure()
    problems = _copy_configuration(storage, lake)
    tables, unread = Tables(storage), 0
    pending: list[Record] = []
    for spec, at in ((MESSAGES, "sent_at"), (GRAPH_OPERATIONS, "event_at"), (MEMORY_EVENTS, "event_at")):
        rows = tables.dataset(spec).to_table()
        if rows.num_rows:
            lake.ensure(pc.min(rows[at]).as_py())
            put_rows(lake, spec, _filled(rows, spec, at, lake))
    for line in _lines(storage):
        try:
            pending.append(lake.journal.parsed(parse_json(line)))
        except NothingSaidError:
            continue
        except InputError:
            unread += 1
    if unread:
        problems.append(f"{unread:,} pending records, because they cannot be read")
    if pending:
        lake.ensure(min(map(said_at, pending)))
        lake.members.add(pending)
        lake.journal.append(pending)
    return lake, problems


def _manifest(uri: str) -> dict[str, object] | None:
    try:
        manifest = json.loads(Storage(uri).read(MANIFEST) or b"null")
    except ValueError:
        return None
    return manifest if isinstance(manifest, dict) else None


def _copy_configuration(storage: Storage, lake: Lake) -> list[str]:
    """Copy the configuration; return why it was not copied."""
    data = storage.read(CONFIGURATION)
    if data is None:
        return []
    lake.storage.write(CONFIGURATION, data)
    try:
        lake.configuration()
    except MemoryPipelineError as error:
        lake.storage.delete([CONFIGURATION])
        return [f"the configuration, because {error}; give one with --config"]
    return []


def _filled(rows: pa.Table, spec: TableSpec, at: str, lake: Lake) -> pa.Table:
    """Return rows with all columns of a table. `at` is the column of their time."""
    defaults = {"identity": pa.scalar(""), "received_at": rows[at], "redactions": pa.scalar([], pa.list_(pa.string()))}
    columns = {}
    for field in spec.schema:
        column = rows[field.name]
        if not field.nullable and column.null_count:
            column = pc.coalesce(column.cast(field.type), defaults[field.name].cast(field.type))
        columns[field.name] = column.cast(field.type)
    owners = zip(*(columns[name].to_pylist() for name in ("workspace_id", "agent_id", "identity")), strict=True)
    columns["scope"] = pa.array(scope_columns([lake.scope(*owner) for owner in owners])["scope"], pa.string())
    return pa.table(columns, schema=spec.schema)


def _lines(storage: Storage) -> Iterator[bytes]:
    for file in storage.list(_PENDING):
        if file.path.endswith(".jsonl"):
            yield from filter(bytes.strip, (storage.read(file.path) or b"").splitlines())
