"""Search every byte of a lake for words: files as they are, and what Parquet, Arrow and Lance files hold compressed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from memory_pipeline.erasure.verification import LanceFolder, versions_of
from memory_pipeline.lake.index.lance_internals import table_of
from memory_pipeline.lake.index.lance_tables import Databases
from memory_pipeline.lake.index.scope_cache import CACHE, tables_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from memory_pipeline.lake import Lake


def places_of(lake: Lake, words: Collection[str]) -> dict[str, set[str]]:
    """Return the files and tables that hold one of the words, by word."""
    found: dict[str, set[str]] = {}
    for place, text in _texts(lake):
        for word in words:
            if word in text:
                found.setdefault(word, set()).add(place)
    return found


def _texts(lake: Lake) -> Iterator[tuple[str, str]]:
    tables: dict[str, LanceFolder] = {}
    for entry in lake.storage.list(""):
        data = lake.storage.read(entry.path) or b""
        yield entry.path, data.decode("utf-8", "replace")
        if data[:4] == b"PAR1":
            yield entry.path, _dumped([pq.read_table(io.BytesIO(data))])
        elif entry.path.startswith(f"{CACHE}/"):
            yield entry.path, _dumped(tables_in(data) or [])
        elif (folder := table_of(entry.path)) is not None:
            tables.setdefault(folder, LanceFolder(folder)).add(entry.path, data)
    databases = Databases(lake.storage)
    for path, lance in tables.items():
        for version, rows in versions_of(databases, lance, []):
            yield f"{path} (version {version})", _dumped([rows])


def _dumped(tables: Collection[pa.Table]) -> str:
    return "\n".join(
        str(table[name].to_pylist())
        for table in tables
        for name in table.column_names
        if not pa.types.is_fixed_size_list(table.schema.field(name).type)
    )
