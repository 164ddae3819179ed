"""Recovers rows of tables with a damaged log from their data files, which name the partitions in their paths.

If several files hold a row, the newest counts. Rows that were replaced may come back, so only records are recovered,
which are added and seldom replaced. Derived rows are recomputed afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.errors import DamagedError
from memory_pipeline.lake.tables.damage import damaged_files
from memory_pipeline.lake.tables.partitions import keys_of, read

if TYPE_CHECKING:
    from collections.abc import Collection

    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.tables import Tables


def files_below(storage: Storage, spec: TableSpec) -> pa.Table:
    """Return all data files below a table's folder, in the form of its log, oldest first. Does not read the log."""
    folder = f"tables/{spec.name}/"
    entries = [entry for entry in storage.list(folder.rstrip("/")) if entry.path.endswith(".parquet")]
    entries = [entry for entry in entries if "/_delta_log/" not in entry.path]
    entries.sort(key=lambda entry: entry.modified_at)
    paths = [unquote(entry.path.removeprefix(folder)) for entry in entries]
    names = [dict(part.split("=", 1) for part in path.split("/")[:-1]) for path in paths]
    columns = {f"partition.{column}": [own.get(column, "") for own in names] for column in spec.partition_by}
    return pa.table({"path": pa.array(paths, pa.string()), **{name: pa.array(own) for name, own in columns.items()}})


def recover(storage: Storage, tables: Tables, spec: TableSpec, keys: Collection[str] | None = None) -> int:
    """Add the rows of all files below a table's folder. Return their number. An unreadable log is replaced."""
    try:
        tables.version(spec)
    except DamagedError:
        # The files are not touched: after an interruption they are found again.
        storage.remove(f"tables/{spec.name}/_delta_log")
    files = files_below(storage, spec)
    if keys is not None:
        files = files.filter(pc.is_in(files[f"partition.{spec.partition_by[-1]}"], pa.array(sorted(keys), pa.string())))
    if not files.num_rows:
        return 0
    broken = damaged_files(storage, files, spec)
    files = files.filter(pc.invert(pc.is_in(files["path"], broken["path"].combine_chunks())))
    before = sum(tables.counts(spec).values())
    for fixed in _outer(files, spec):
        selected_files = files
        for column, value in fixed.items():
            selected_files = selected_files.filter(pc.equal(selected_files[f"partition.{column}"], value))
        recovered = read(storage, selected_files, spec)
        key = [*spec.partition_by, *spec.order_by]

        def united(old: pa.Table, recovered: pa.Table = recovered, key: list[str] = key) -> pa.Table:
            both = pa.concat_tables([recovered, old])
            last = dict(zip(zip(*(both[name].to_pylist() for name in key), strict=True), range(len(both)), strict=True))
            return both.take(pa.array(sorted(last.values()), pa.int64()))

        tables.transform(spec, set(keys_of(selected_files, spec)), united, shard=None, **fixed)
    return sum(tables.counts(spec).values()) - before


def _outer(files: pa.Table, spec: TableSpec) -> list[dict[str, str]]:
    columns = spec.partition_by[:-1]
    values = zip(*(files[f"partition.{column}"].to_pylist() for column in columns), strict=True) if columns else [()]
    return [dict(zip(columns, own, strict=True)) for own in sorted(set(values))]
