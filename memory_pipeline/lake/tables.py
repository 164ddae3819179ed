"""The lake's tables: the only door to deltalake. Every write replaces whole partitions, atomically.

Why Delta Lake, and what was measured: docs/decisions/0002-delta-tables.md.
"""

from __future__ import annotations

import operator
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, PostCommitHookProperties, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from memory_pipeline.errors import CommitConflictError

if TYPE_CHECKING:
    from memory_pipeline.lake.schemas import TableSpec
    from memory_pipeline.lake.storage import Storage

#: How often a commit that lost against another writer is tried again.
_ATTEMPTS = 20
_LONGEST_PAUSE = 0.5
#: Row groups are small, so that a read by the column that sorts a large partition opens few of them.
_WRITER = WriterProperties(compression="ZSTD", compression_level=3, max_row_group_size=65_536)
#: Reads name their partitions, so statistics of the columns would only make the log longer.
_CONFIGURATION = {"delta.dataSkippingNumIndexedCols": "0"}

Change = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a write did: the partitions whose rows changed, and the rows that stand in all partitions it was given."""

    changed: frozenset[str]
    rows: pa.Table


class Tables:
    """Reads and replaces partitions of the lake's tables.

    A partition is named by the value of the table's last partition column (``period``, say); the columns before it
    (``grain``) are given as keyword arguments, with one value each.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._handles: dict[str, DeltaTable] = {}
        self._lock = threading.Lock()
        # Handles of attempts to write, each used by one thread at a time: no other moves the version under it.
        self._writers: defaultdict[str, list[DeltaTable]] = defaultdict(list)

    def read(
        self,
        spec: TableSpec,
        keys: Collection[str] | None = None,
        *,
        columns: Collection[str] | None = None,
        where: pc.Expression | None = None,
        **fixed: str,
    ) -> pa.Table:
        """Return the rows of the named partitions, or of all, in the table's schema.

        A table that was never written, and a partition that does not exist, have no rows.

        Args:
            spec: the table.
            keys: values of the last partition column.
            columns: the columns to read; all of them if not given.
            where: a condition on the rows.
            fixed: the value of each partition column before the last.
        """
        return _read(self._storage, self._latest(spec), spec, keys, fixed, columns, where)

    def keys(self, spec: TableSpec, **fixed: str) -> list[str]:
        """Return the names of the partitions that have rows, sorted; reads no rows."""
        return sorted(self.sizes(spec, **fixed))

    def version(self, spec: TableSpec) -> int:
        """Return the table's version; -1 if it was never written."""
        table = self._latest(spec)
        return -1 if table is None else table.version()

    def state(self, spec: TableSpec, keys: Collection[str], **fixed: str) -> frozenset[str]:
        """Return what changes whenever the rows of the named partitions do, and only then; reads no rows."""
        table = self._latest(spec)
        return frozenset() if table is None else frozenset(_files(table, spec, keys, fixed)["path"].to_pylist())

    def sizes(self, spec: TableSpec, **fixed: str) -> dict[str, int]:
        """Return the bytes of the files of each partition; reads no rows."""
        table = self._latest(spec)
        sizes: dict[str, int] = {}
        if table is not None:
            files = _files(table, spec, None, fixed)
            names = files.column(f"partition.{spec.partition_by[-1]}").to_pylist()
            for name, size in zip(names, files.column("size_bytes").to_pylist(), strict=True):
                sizes[name] = sizes.get(name, 0) + size
        return sizes

    def dataset(self, spec: TableSpec) -> ds.Dataset:
        """Return the table as a dataset that is read when it is scanned, for SQL over more than fits in memory."""
        table = self._latest(spec)
        if table is None or not (files := _files(table, spec, None, {})).num_rows:
            return ds.dataset(_without_metadata(spec.schema).empty_table())
        return _dataset(self._storage, files, spec)

    def replace_whole(self, path: str, rows: pa.Table) -> bool:
        """Make `rows` all that the table at `path` below the root holds, schema included; False if it does already."""
        uri = self._storage.locate(path)
        try:
            present = DeltaTable(uri).to_pyarrow_table()
            if present.schema.equals(rows.schema) and present.equals(rows):
                return False
        except TableNotFoundError:
            pass
        write_deltalake(uri, rows, mode="overwrite", schema_mode="overwrite", writer_properties=_WRITER)
        return True

    def replace(self, spec: TableSpec, keys: Collection[str], rows: pa.Table, **fixed: str) -> Replacement:
        """Make `rows` all that the named partitions hold, in one commit; a partition that is equal is not written.

        Raises:
            CommitConflictError: other writers kept changing the same partitions.
        """
        return self.transform(spec, keys, lambda _: rows, **fixed)

    def transform(self, spec: TableSpec, keys: Collection[str], change: Change, **fixed: str) -> Replacement:
        """Replace the named partitions by what `change` makes of them, in one commit.

        `change` gets their rows and returns those that shall stand in their place. It may take its time: nobody waits
        for it. It is called again with newer rows when another writer came first, so it must have no effects.

        Raises:
            CommitConflictError: other writers kept changing the same partitions.
        """
        for attempt in range(_ATTEMPTS):
            result = self._attempt(spec, keys, change, fixed)
            if result is not None:
                return result
            pause = min(_LONGEST_PAUSE, 0.01 * 2**attempt)
            time.sleep(random.uniform(pause / 2, pause))  # noqa: S311  # jitter, not a secret
        raise CommitConflictError(
            f"table {spec.name}: {_ATTEMPTS} attempts to replace {', '.join(sorted(keys)[:3])}… lost against other "
            "writers; nothing was written, run it again when they have finished"
        )

    def _attempt(
        self, spec: TableSpec, keys: Collection[str], change: Change, fixed: Mapping[str, str]
    ) -> Replacement | None:
        """Try once; return None if another writer came first. The commit is made at the version that was read."""
        key_column = spec.partition_by[-1]
        table = self._writer(spec)
        old = sorted_rows(_read(self._storage, table, spec, keys, fixed, None, None), spec)
        new = sorted_rows(change(old).select(spec.schema.names).cast(spec.schema), spec)
        changed = changed_keys(old, new, spec)
        if not changed:
            self._give_back(spec, table)
            return Replacement(frozenset(), new)
        if table is None:
            with suppress(CommitFailedError):  # another writer is making it
                self._create(spec)
            return None  # read again: another writer may have made it too, and filled it
        written = new.filter(pc.is_in(new.column(key_column), pa.array(sorted(changed))))
        try:
            write_deltalake(
                table,
                written.cast(_without_metadata(spec.schema)),
                partition_by=list(spec.partition_by),
                mode="overwrite",
                predicate=_predicate(spec, changed, fixed),
                schema_mode="merge" if _is_older(table, spec) else None,
                writer_properties=_WRITER,
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except CommitFailedError:
            return None
        self._give_back(spec, table)
        return Replacement(frozenset(changed), new)

    def _writer(self, spec: TableSpec) -> DeltaTable | None:
        """Return a handle on the newest version that nobody else uses; None if there is no table yet."""
        with self._lock:
            idle = self._writers[spec.name]
            handle = idle.pop() if idle else None
        try:
            if handle is None:
                return DeltaTable(self._uri(spec))
            handle.update_incremental()
        except TableNotFoundError:
            return None
        return handle

    def _give_back(self, spec: TableSpec, handle: DeltaTable | None) -> None:
        if handle is not None:
            with self._lock:
                self._writers[spec.name].append(handle)

    def _uri(self, spec: TableSpec) -> str:
        return self._storage.locate(f"tables/{spec.name}")

    def _create(self, spec: TableSpec) -> DeltaTable:
        return DeltaTable.create(
            self._uri(spec),
            _without_metadata(spec.schema),
            mode="ignore",
            partition_by=list(spec.partition_by),
            configuration=_CONFIGURATION,
        )

    def _latest(self, spec: TableSpec) -> DeltaTable | None:
        """Return a handle on the newest version that is the caller's own; None if there is no table yet."""
        with self._lock:
            handle = self._handles.get(spec.name)
            try:
                if handle is None:
                    handle = self._handles[spec.name] = DeltaTable(self._uri(spec))
                else:
                    handle.update_incremental()
            except TableNotFoundError:
                self._handles.pop(spec.name, None)
                return None
            return handle


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.remove_metadata() for field in schema])


def _is_older(table: DeltaTable, spec: TableSpec) -> bool:
    """Tell whether a table was made before a column was added, or became nullable."""
    present = {field.name: field.nullable for field in table.schema().fields}
    return any(present.get(field.name, False) < field.nullable for field in spec.schema)


def _add_actions(table: DeltaTable) -> pa.Table:
    return pa.table(table.get_add_actions(flatten=True))


def _files(table: DeltaTable, spec: TableSpec, keys: Collection[str] | None, fixed: Mapping[str, str]) -> pa.Table:
    actions = _add_actions(table)
    for column, value in fixed.items():
        actions = actions.filter(pc.equal(actions.column(f"partition.{column}"), value))
    if keys is not None:
        column = actions.column(f"partition.{spec.partition_by[-1]}")
        actions = actions.filter(pc.is_in(column, pa.array(list(keys), pa.string())))
    return actions


def _read(
    storage: Storage,
    table: DeltaTable | None,
    spec: TableSpec,
    keys: Collection[str] | None,
    fixed: Mapping[str, str],
    columns: Collection[str] | None,
    where: pc.Expression | None,
) -> pa.Table:
    names = [name for name in spec.schema.names if columns is None or name in columns]
    schema = pa.schema([spec.schema.field(name) for name in names])
    if table is None or not (files := _files(table, spec, keys, fixed)).num_rows:
        return schema.empty_table()
    return _dataset(storage, files, spec).to_table(columns=names, filter=where).cast(schema)


def _dataset(storage: Storage, files: pa.Table, spec: TableSpec) -> ds.Dataset:
    """Open files of the log's own list: several times faster than DeltaTable.to_pyarrow_table() on many partitions."""
    partitions = [
        reduce(operator.and_, (pc.field(column) == row[f"partition.{column}"] for column in spec.partition_by))
        for row in files.select([f"partition.{column}" for column in spec.partition_by]).to_pylist()
    ]
    return ds.FileSystemDataset.from_paths(
        [storage.file_path(f"tables/{spec.name}/{path}") for path in files.column("path").to_pylist()],
        schema=_without_metadata(spec.schema),
        format=ds.ParquetFileFormat(),
        filesystem=storage.arrow_filesystem(),
        partitions=partitions,
    )


def sorted_rows(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return rows in the order in which partitions are kept and compared."""
    return rows.sort_by([(name, "ascending") for name in (*spec.partition_by, *spec.order_by)]).combine_chunks()


def changed_keys(old: pa.Table, new: pa.Table, spec: TableSpec) -> set[str]:
    """Return the keys of the partitions whose rows differ between two sorted tables."""
    before, after = _split(old, spec), _split(new, spec)
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _split(rows: pa.Table, spec: TableSpec) -> dict[str, pa.Table]:
    """Cut a sorted table into its partitions, without copying, and without the columns that are not compared."""
    compared = rows.drop_columns(list(spec.not_compared)).replace_schema_metadata()
    runs = pc.run_end_encode(rows.column(spec.partition_by[-1]).combine_chunks())
    runs = runs.chunk(0) if isinstance(runs, pa.ChunkedArray) and runs.num_chunks else runs
    parts: dict[str, pa.Table] = {}
    start = 0
    if rows.num_rows:
        for key, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            parts[key] = compared.slice(start, end - start)
            start = end
    return parts


def _predicate(spec: TableSpec, keys: Collection[str], fixed: Mapping[str, str]) -> str:
    """Return the SQL condition that selects partitions; their names come from domain types and hold no quotes."""
    terms = [f"{column} = '{value}'" for column, value in fixed.items()]
    listed = ", ".join(f"'{key}'" for key in sorted(keys))
    terms.append(f"{spec.partition_by[-1]} IN ({listed})")
    return " AND ".join(terms)
