"""The lake's tables: the only door to deltalake. Every write replaces whole partitions, atomically.

Why Delta Lake, and what was measured: docs/decisions/0002-delta-tables.md. Whatever reads or writes may meet a purge,
which takes files and versions of the past away; it then looks again, at the newest version.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, PostCommitHookProperties, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from memory_pipeline.lake.attempts import OvertakenError, persistently
from memory_pipeline.lake.dropping import Dropping, Gone, Verdict
from memory_pipeline.lake.partitions import (
    changed_keys,
    dataset,
    keys_of,
    predicate,
    read,
    selected,
    sorted_rows,
    without_metadata,
)
from memory_pipeline.lake.purging import Purge, Purged

if TYPE_CHECKING:
    from memory_pipeline.lake.schemas import TableSpec
    from memory_pipeline.lake.storage import Storage

__all__ = ["Change", "Gone", "Purged", "Replacement", "Tables", "changed_keys", "sorted_rows"]

#: How often a log is read again that changes while it is read.
_LOOKS = 6
#: Row groups are small, so that a read by the column that sorts a large partition opens few of them.
_WRITER = WriterProperties(compression="ZSTD", compression_level=3, max_row_group_size=65_536)
#: Reads name their partitions, so statistics of the columns would only make the log longer.
_CONFIGURATION = {"delta.dataSkippingNumIndexedCols": "0"}
#: Only a purge takes away what the log says of the past.
_HOOKS = PostCommitHookProperties(cleanup_expired_logs=False)
_NONE = timedelta(0)

Change = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a write did: the partitions whose rows changed, and the rows that stand in all partitions it was given."""

    changed: frozenset[str]
    rows: pa.Table


class Tables:
    """Reads, replaces and removes partitions of the lake's tables.

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
        failed_at = None
        while True:
            table = self._latest(spec)
            version = _version(table)
            try:
                return read(self._storage, _files(table, spec, keys, fixed), spec, columns, where)
            except FileNotFoundError:
                if version == failed_at:  # nobody has removed what is missing
                    raise
                failed_at = version

    def keys(self, spec: TableSpec, **fixed: str) -> list[str]:
        """Return the names of the partitions that have rows, sorted; reads no rows."""
        return sorted(self.sizes(spec, **fixed))

    def version(self, spec: TableSpec) -> int:
        """Return the table's version; -1 if it was never written."""
        return _version(self._latest(spec))

    def state(self, spec: TableSpec, keys: Collection[str], **fixed: str) -> frozenset[str]:
        """Return what changes whenever the rows of the named partitions do, and only then; reads no rows."""
        files = _files(self._latest(spec), spec, keys, fixed)
        return frozenset() if files is None else frozenset(files["path"].to_pylist())

    def states(self, spec: TableSpec, **fixed: str) -> dict[str, frozenset[str]]:
        """Return of each partition what changes whenever its rows do, and only then; reads no rows."""
        states: defaultdict[str, set[str]] = defaultdict(set)
        files = _files(self._latest(spec), spec, None, fixed)
        if files is not None:
            for key, path in zip(keys_of(files, spec), files.column("path").to_pylist(), strict=True):
                states[key].add(path)
        return {key: frozenset(paths) for key, paths in states.items()}

    def sizes(self, spec: TableSpec, **fixed: str) -> dict[str, int]:
        """Return the bytes of the files of each partition; reads no rows."""
        sizes: Counter[str] = Counter()
        files = _files(self._latest(spec), spec, None, fixed)
        if files is not None:
            for key, size in zip(keys_of(files, spec), files.column("size_bytes").to_pylist(), strict=True):
                sizes[key] += size
        return dict(sizes)

    def dataset(self, spec: TableSpec) -> ds.Dataset:
        """Return the table as a dataset that is read when it is scanned, for SQL over more than fits in memory.

        It is of the version that is newest now. A scan raises FileNotFoundError once a purge has taken that away.
        """
        files = _files(self._latest(spec), spec)
        if files is None or not files.num_rows:
            return ds.dataset(without_metadata(spec.schema).empty_table())
        return dataset(self._storage, files, spec)

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
        return persistently(
            lambda: self._transformed(spec, keys, change, fixed),
            f"table {spec.name}",
            f"replace {', '.join(sorted(keys)[:3])}…",
        )

    def remove(self, spec: TableSpec, keys: Collection[str] | None, **fixed: str) -> frozenset[str]:
        """Remove the named partitions, or all, in one commit, without reading or writing rows.

        Returns:
            The names of those that there were.

        Raises:
            CommitConflictError: other writers kept removing rows of the table.
        """

        def all_of(files: pa.Table) -> dict[str, Verdict]:
            return dict.fromkeys(files.column("path").to_pylist(), Verdict(0, None))

        counts, _ = self._without(spec, keys, fixed, all_of)
        return frozenset(counts)

    def drop_rows(
        self, spec: TableSpec, keys: Collection[str] | None, gone: Gone, columns: Collection[str], **fixed: str
    ) -> dict[str, int]:
        """Remove rows of the named partitions, or of all, in one commit. Partitions without such rows stay untouched.

        Args:
            spec: the table.
            keys: values of the last partition column.
            gone: tells of rows which go, as an array of booleans; it gets rows of many partitions at once.
            columns: the columns that it gets.
            fixed: the value of each partition column before the last.

        Returns:
            How many rows were removed, for each partition that had some.

        Raises:
            CommitConflictError: other writers kept removing rows of the table.
        """
        dropping = Dropping(self._storage, spec, gone, columns)
        judged: Collection[str] = ()
        try:
            counts, judged = self._without(spec, keys, fixed, dropping.verdicts)
        finally:
            dropping.discard(judged)
        return counts

    def purge(self, spec: TableSpec, *, grace: timedelta = _NONE, orphans: timedelta | None = None) -> Purged:
        """Purge a table of the lake; see :meth:`purge_path`."""
        return self.purge_path(_path(spec), grace=grace, orphans=orphans)

    def purge_path(self, path: str, *, grace: timedelta = _NONE, orphans: timedelta | None = None) -> Purged:
        """Take from the disk what the table at `path` below the root no longer holds, and what its log says of that.

        Readers and writers may be at work: they look again. Older versions can no longer be read.

        Args:
            path: of the table; nothing happens where there is none.
            grace: how long files stay after they were removed from the table, in hours, rounded up; what the log says
                of them stays as long.
            orphans: how old files must be that no version of the table ever held, as writers leave that were killed.
                At least an hour, for writers under way; such files stay if it is not given.

        Returns:
            The files that are gone. They may have been of versions that were read until now.

        Raises:
            InputError: `grace` is negative, or `orphans` less than an hour.
            CommitConflictError: other writers kept changing the table.
        """
        purge = Purge(self._storage, path, grace, orphans)

        def attempt() -> Purged:
            table = newest(self._storage, path)
            if table is not None:
                with overtaking(self._storage, path, table):
                    purge.make(table)
            return purge.purged

        return persistently(attempt, f"table {path}", "purge it")

    def _transformed(
        self, spec: TableSpec, keys: Collection[str], change: Change, fixed: Mapping[str, str]
    ) -> Replacement:
        """Replace partitions, at the version that was read."""
        table = self._writer(spec)
        if table is None:
            old = spec.schema.empty_table()
        else:
            with overtaking(self._storage, _path(spec), table):
                old = read(self._storage, _files(table, spec, keys, fixed), spec)
        old = sorted_rows(old, spec)
        new = sorted_rows(change(old).select(spec.schema.names).cast(spec.schema), spec)
        changed = changed_keys(old, new, spec)
        if not changed:
            self._give_back(spec, table)
            return Replacement(frozenset(), new)
        if table is None:
            with suppress(CommitFailedError):  # another writer is making it
                self._create(spec)
            raise OvertakenError  # read again: another writer may have made it too, and filled it
        written = new.filter(pc.is_in(new.column(spec.partition_by[-1]), pa.array(sorted(changed))))
        with overtaking(self._storage, _path(spec), table):
            write_deltalake(
                table,
                written.cast(without_metadata(spec.schema)),
                partition_by=list(spec.partition_by),
                mode="overwrite",
                predicate=predicate(spec, changed, fixed),
                schema_mode="merge" if _is_older(table, spec) else None,
                writer_properties=_WRITER,
                post_commithook_properties=_HOOKS,
            )
        self._give_back(spec, table)
        return Replacement(frozenset(changed), new)

    def _without(
        self,
        spec: TableSpec,
        keys: Collection[str] | None,
        fixed: Mapping[str, str],
        judge: Callable[[pa.Table], Mapping[str, Verdict]],
    ) -> tuple[dict[str, int], Collection[str]]:
        """Commit what `judge` says of the files of partitions; return the rows that went by key, and these files."""

        def attempt() -> tuple[dict[str, int], Collection[str]]:
            table = self._writer(spec)
            files = _files(table, spec, keys, fixed)
            counts: dict[str, int] = {}
            verdicts: Mapping[str, Verdict] = {}
            if table is not None and files is not None and files.num_rows:
                with overtaking(self._storage, _path(spec), table):
                    verdicts = judge(files)
                    concerned = files.filter(pc.is_in(files["path"], pa.array(list(verdicts), pa.string())))
                    if verdicts:
                        _commit(table, spec, concerned, verdicts)
                for path, key in zip(concerned["path"].to_pylist(), keys_of(concerned, spec), strict=True):
                    counts[key] = counts.get(key, 0) + verdicts[path].gone
            self._give_back(spec, table)
            return counts, verdicts.keys()

        return persistently(attempt, f"table {spec.name}", "remove rows of it")

    def _writer(self, spec: TableSpec) -> DeltaTable | None:
        """Return a handle on the newest version that nobody else uses; None if there is no table yet."""
        with self._lock:
            idle = self._writers[spec.name]
            handle = idle.pop() if idle else None
        return newest(self._storage, _path(spec), handle)

    def _give_back(self, spec: TableSpec, handle: DeltaTable | None) -> None:
        if handle is not None:
            with self._lock:
                self._writers[spec.name].append(handle)

    def _create(self, spec: TableSpec) -> DeltaTable:
        return DeltaTable.create(
            self._storage.locate(_path(spec)),
            without_metadata(spec.schema),
            mode="ignore",
            storage_options=self._storage.options,
            partition_by=list(spec.partition_by),
            configuration=_CONFIGURATION,
        )

    def _latest(self, spec: TableSpec) -> DeltaTable | None:
        """Return a handle on the newest version, which all readers share; None if there is no table yet."""
        with self._lock:
            handle = newest(self._storage, _path(spec), self._handles.pop(spec.name, None))
            if handle is not None:
                self._handles[spec.name] = handle
            return handle


@contextmanager
def overtaking(storage: Storage, path: str, table: DeltaTable) -> Iterator[None]:
    """Tell failures of what is done to a table, at the version of the handle, that come of others being first.

    Raises:
        OvertakenError: others have changed the table, or purged what it was.
    """
    version = table.version()
    try:
        yield
    except CommitFailedError as error:
        raise OvertakenError from error
    except (DeltaError, OSError) as error:
        if _version(newest(storage, path)) == version:
            raise
        raise OvertakenError from error


def newest(storage: Storage, path: str, handle: DeltaTable | None = None) -> DeltaTable | None:
    """Bring a handle on the table at `path` below the root up to date, or open one; None where there is no table."""
    for look in range(_LOOKS):
        try:
            if handle is None:
                return DeltaTable(storage.locate(path), storage_options=storage.options)
            handle.update_incremental()
        except TableNotFoundError:
            return None
        except (DeltaError, OSError):  # a purge took away what was being read
            if look == _LOOKS - 1:
                raise
            handle = None
            time.sleep(0.01 * 2**look)
        else:
            return handle
    raise AssertionError("unreachable")


def _path(spec: TableSpec) -> str:
    return f"tables/{spec.name}"


def _version(table: DeltaTable | None) -> int:
    return -1 if table is None else table.version()


def _files(
    table: DeltaTable | None,
    spec: TableSpec,
    keys: Collection[str] | None = None,
    fixed: Mapping[str, str] | None = None,
) -> pa.Table | None:
    """Return the files that hold partitions; None where there is no table."""
    return None if table is None else selected(pa.table(table.get_add_actions(flatten=True)), spec, keys, fixed)


def _is_older(table: DeltaTable, spec: TableSpec) -> bool:
    """Tell whether a table was made before a column was added, or became nullable."""
    present = {field.name: field.nullable for field in table.schema().fields}
    return any(present.get(field.name, False) < field.nullable for field in spec.schema)


def _commit(table: DeltaTable, spec: TableSpec, files: pa.Table, verdicts: Mapping[str, Verdict]) -> None:
    """Take files out of a table, and put in their place what the verdicts on them say."""
    now = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = []
    for row in files.to_pylist():
        values = {column: row[f"partition.{column}"] for column in spec.partition_by}
        actions.append(RemoveAction(row["path"], True, now, row["size_bytes"], values))
        written = verdicts[row["path"]].instead
        if written is not None:
            statistics = json.dumps({"numRecords": written.rows})
            actions.append(AddAction(written.path, written.size, values, now, True, statistics))
    table.create_write_transaction(
        actions, "append", table.schema(), list(spec.partition_by), post_commithook_properties=_HOOKS
    )
