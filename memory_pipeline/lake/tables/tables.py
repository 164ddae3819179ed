"""The lake's tables. Every write replaces whole partitions, atomically.

Why Delta Lake, and what was measured: docs/decisions/0002-delta-tables.md. Whatever reads or writes may meet a purge,
which takes files and versions of the past away; it then looks again, at the newest version.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from memory_pipeline.lake.tables.damage import FAILURES, damaged_files, sound_files
from memory_pipeline.lake.tables.handles import (
    Handles,
    commit,
    exchange,
    make,
    newest,
    overtaking,
    retry_commit,
    version_of,
)
from memory_pipeline.lake.tables.partitions import (
    PartialUpdate,
    StreamingWrite,
    changed_keys,
    dataset,
    keys_of,
    predicate,
    read,
    selected,
    sorted_rows,
    without_metadata,
)
from memory_pipeline.lake.tables.row_deletion import DeletionPlan, Gone, RowDeletion
from memory_pipeline.lake.tables.vacuum import Purge, Purged, Vacuum

if TYPE_CHECKING:
    from datetime import datetime

    from deltalake import DeltaTable

    from memory_pipeline.lake.commit_retry import CommitToken, FairnessLock
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec

__all__ = ["Change", "Gone", "Purged", "Replacement", "Tables", "changed_keys", "sorted_rows"]

_Result = TypeVar("_Result")

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
        self._handles = Handles(storage)

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

        Raises:
            DamagedError: files cannot be read.
        """
        return self._read(spec, keys, columns, where, fixed, ())

    def read_sound(
        self,
        spec: TableSpec,
        keys: Collection[str] | None = None,
        *,
        columns: Collection[str] | None = None,
        where: pc.Expression | None = None,
        **fixed: str,
    ) -> pa.Table:
        """Return rows as :meth:`read` does, without those of damaged files, for callers that make these again."""
        return self._read(spec, keys, columns, where, fixed, None)

    def keys(self, spec: TableSpec, **fixed: str) -> list[str]:
        """Return the names of the partitions that have rows, sorted; reads no rows."""
        return sorted(self.sizes(spec, **fixed))

    def version(self, spec: TableSpec) -> int:
        """Return the table's version; -1 if it was never written."""
        return version_of(self._handles.latest(_path(spec)))

    def state(self, spec: TableSpec, keys: Collection[str], **fixed: str) -> frozenset[str]:
        """Return what changes whenever the rows of the named partitions do, and only then; reads no rows."""
        return frozenset(path for _, path in self._listed(spec, "path", fixed, keys))

    def states(self, spec: TableSpec, **fixed: str) -> dict[str, frozenset[str]]:
        """Return of each partition what changes whenever its rows do, and only then; reads no rows."""
        states: defaultdict[str, set[str]] = defaultdict(set)
        for key, path in self._listed(spec, "path", fixed):
            states[key].add(path)
        return {key: frozenset(paths) for key, paths in states.items()}

    def sizes(self, spec: TableSpec, **fixed: str) -> dict[str, int]:
        """Return the bytes of the files of each partition; reads no rows."""
        sizes: Counter[str] = Counter()
        for key, size in self._listed(spec, "size_bytes", fixed):
            sizes[key] += size
        return dict(sizes)

    def counts(self, spec: TableSpec, **fixed: str) -> dict[str, int]:
        """Return the number of rows of each partition; reads no rows."""
        counts: Counter[str] = Counter()
        for key, rows in self._listed(spec, "num_records", fixed):
            counts[key] += rows
        return dict(counts)

    def _listed(
        self, spec: TableSpec, column: str, fixed: Mapping[str, str], keys: Collection[str] | None = None
    ) -> Iterator[tuple[str, Any]]:
        """Yield of each file of the named partitions, or of all, the partition and what the log says of it."""
        files = _files(self._handles.latest(_path(spec)), spec, keys, fixed)
        if files is not None:
            yield from zip(keys_of(files, spec), files.column(column).to_pylist(), strict=True)

    def dataset(self, spec: TableSpec) -> ds.Dataset:
        """Return the table as a dataset that is read when it is scanned, for SQL over more than fits in memory.

        It is of the version that is newest now. A scan raises FileNotFoundError once a purge has taken that away.
        """
        files = _files(self._handles.latest(_path(spec)), spec)
        if files is None or not files.num_rows:
            return ds.dataset(without_metadata(spec.schema).empty_table())
        return dataset(self._storage, files, spec)

    def damaged(self, spec: TableSpec) -> pa.Table:
        """Return the files of a table that cannot be read, as its log lists them, with the reason; reads all rows.

        Raises:
            DamagedError: its log cannot be read.
        """
        files = _files(self._handles.latest(_path(spec)), spec)
        return pa.table({"path": []}) if files is None else damaged_files(self._storage, files, spec)

    def drop_files(self, spec: TableSpec, paths: Collection[str]) -> None:
        """Take files out of a table, in one commit, without reading them: they are damaged.

        Raises:
            CommitConflictError: other writers kept changing the table.
        """
        gone = set(paths)

        def those(files: pa.Table) -> dict[str, RowDeletion]:
            return {path: RowDeletion(0, None) for path in files.column("path").to_pylist() if path in gone}

        self._without(spec, None, {}, those)

    def replace(self, spec: TableSpec, keys: Collection[str], rows: pa.Table, **fixed: str) -> Replacement:
        """Make `rows` all that the named partitions hold, in one commit; a partition that is equal is not written.

        Raises:
            CommitConflictError: other writers kept changing the same partitions.
        """
        return self.transform(spec, keys, lambda _: rows, remade=keys, **fixed)

    def transform(
        self, spec: TableSpec, keys: Collection[str], change: Change, *, remade: Collection[str] = (), **fixed: str
    ) -> Replacement:
        """Replace the named partitions by what `change` makes of them, in one commit.

        `change` gets their rows and returns those that shall stand in their place. It may take its time: nobody waits
        for it. It is called again with newer rows when another writer came first, so it must have no effects.

        Args:
            spec: the table.
            keys: values of the last partition column.
            change: what to make of the rows.
            remade: the partitions of which `change` needs no old rows to make all new ones. Where files of these are
                damaged, it gets the rows of the others, and the partition is written.
            fixed: the value of each partition column before the last.

        Raises:
            CommitConflictError: other writers kept changing the same partitions.
            DamagedError: files of other partitions than `remade` cannot be read; nothing was written.
        """
        return self._changed(spec, keys, change, frozenset(remade), fixed)

    def transform_parts(
        self,
        spec: TableSpec,
        keys: Collection[str],
        parts: PartialUpdate,
        *,
        remade: Collection[str] = (),
        **fixed: str,
    ) -> frozenset[str]:
        """Replace the named partitions as :meth:`transform` does, in one commit, with one part in memory at a time.

        Returns:
            The names of the partitions whose rows changed.

        Raises:
            CommitConflictError: other writers kept changing the same partitions.
            DamagedError: files of other partitions than `remade` cannot be read; nothing was written.
            LakeError: the disk that holds temporary files takes no more.
        """
        return self._changed(spec, keys, parts, frozenset(remade), fixed).changed

    def remove(self, spec: TableSpec, keys: Collection[str] | None, **fixed: str) -> frozenset[str]:
        """Remove the named partitions, or all, in one commit, without reading or writing rows.

        Returns:
            The names of those that there were.

        Raises:
            CommitConflictError: other writers kept removing rows of the table.
        """

        def all_of(files: pa.Table) -> dict[str, RowDeletion]:
            return dict.fromkeys(files.column("path").to_pylist(), RowDeletion(0, None))

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
        dropping = DeletionPlan(self._storage, spec, gone, columns)
        judged: Collection[str] | None = None
        try:
            counts, judged = self._without(spec, keys, fixed, dropping.verdicts)
        finally:
            # On S3 a commit that seemed to fail may still be made, and would name what was written for it.
            if judged is not None or self._storage.is_local:
                dropping.discard(judged or ())
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
        return self._cleaned(path, "purge it", purge.make, purge.purged)

    def vacuum(self, path: str, before: datetime, now: datetime, *, dry_run: bool) -> dict[str, Purged]:
        """Delete files of the table at `path` below the root that nobody needs any more, beside readers and writers.

        Args:
            path: of the table; nothing happens where there is none.
            before: what was removed from the table before this time goes, by hours, rounded up.
            now: the time, UTC. Files that no version names, and the log, count from an hour before it on.
            dry_run: only count.

        Returns:
            The files that are gone: ``replaced`` ones, those of ``tables`` that no version names, and ``logs``.

        Raises:
            CommitConflictError: other writers kept changing the table.
        """
        vacuum = Vacuum(self._storage, path, before, now, dry_run=dry_run)
        return self._cleaned(path, "vacuum it", vacuum.clean, vacuum.found)

    def _cleaned(self, path: str, aim: str, clean: Callable[[DeltaTable], _Result], nothing: _Result) -> _Result:
        """Return what `clean` makes of the newest version, done until nobody comes first; `nothing` without a table."""

        def attempt(*_: object) -> _Result:
            table = newest(self._storage, path)
            if table is not None:
                with overtaking(self._storage, path, table):
                    return clean(table)
            return nothing

        return retry_commit(self._storage, path, f"table {path}", aim, attempt, self._handles.claims)

    def _read(
        self,
        spec: TableSpec,
        keys: Collection[str] | None,
        columns: Collection[str] | None,
        where: pc.Expression | None,
        fixed: Mapping[str, str],
        remade: Collection[str] | None,
    ) -> pa.Table:
        failed_at = None
        while True:
            table = self._handles.latest(_path(spec))
            version = version_of(table)
            files = _files(table, spec, keys, fixed)
            try:
                return read(self._storage, files, spec, columns, where)
            except FAILURES as error:
                if isinstance(error, FileNotFoundError) and version != failed_at:  # somebody may have removed it
                    failed_at = version
                    continue
                sound, _ = sound_files(self._storage, files, spec, error, remade, columns)
            return read(self._storage, sound, spec, columns, where)

    def _changed(
        self,
        spec: TableSpec,
        keys: Collection[str],
        change: Change | PartialUpdate,
        remade: frozenset[str],
        fixed: Mapping[str, str],
    ) -> Replacement:
        aim = f"replace {', '.join(sorted(keys)[:3])}…"
        attempt = partial(self._transformed, spec, keys, change, remade, fixed)
        return retry_commit(self._storage, _path(spec), f"table {spec.name}", aim, attempt, self._handles.claims)

    def _transformed(
        self,
        spec: TableSpec,
        keys: Collection[str],
        change: Change | PartialUpdate,
        remade: frozenset[str],
        fixed: Mapping[str, str],
        turn: FairnessLock,
        mark: CommitToken[Replacement],
    ) -> Replacement:
        """Replace partitions, at the version that was read."""
        table = self._handles.writer(_path(spec), turn)
        try:
            if (made := mark.made()) is not None:
                return made
            if isinstance(change, PartialUpdate):
                return self._written_in_parts(table, spec, keys, change, remade, fixed, mark)
            return self._written(table, spec, keys, change, remade, fixed, mark)
        finally:
            # After a lost attempt, too: to open the table anew would read its log again.
            self._handles.give_back(_path(spec), table)

    def _written(
        self,
        table: DeltaTable | None,
        spec: TableSpec,
        keys: Collection[str],
        change: Change,
        remade: frozenset[str],
        fixed: Mapping[str, str],
        mark: CommitToken[Replacement],
    ) -> Replacement:
        old, damaged = spec.schema.empty_table(), set[str]()
        if table is not None:
            old, _, damaged = self._old_rows(table, spec, _files(table, spec, keys, fixed), remade, None)
        old = sorted_rows(old, spec)
        new = sorted_rows(change(old).select(spec.schema.names).cast(spec.schema), spec)
        changed = changed_keys(old, new, spec) | damaged
        if not changed:
            return Replacement(frozenset(), new)
        if table is None:  # the rows were made of nothing, which its first version holds
            table = make(self._storage, _path(spec), spec)
        written = new.filter(pc.is_in(new.column(spec.partition_by[-1]), pa.array(sorted(changed))))
        replacement = Replacement(frozenset(changed), new)
        self._commit_rows(table, spec, written.cast(without_metadata(spec.schema)), replacement, fixed, mark)
        return replacement

    def _old_rows(
        self,
        table: DeltaTable,
        spec: TableSpec,
        files: pa.Table | None,
        remade: Collection[str],
        where: pc.Expression | None,
    ) -> tuple[pa.Table, pa.Table | None, set[str]]:
        """Return the rows of files, the files that could be read, and the partitions of those that could not."""
        try:
            with overtaking(self._storage, _path(spec), table):
                return read(self._storage, files, spec, where=where), files, set()
        except FAILURES as error:
            sound, keys = sound_files(self._storage, files, spec, error, remade)
        with overtaking(self._storage, _path(spec), table):
            return read(self._storage, sound, spec, where=where), sound, keys

    def _written_in_parts(
        self,
        table: DeltaTable | None,
        spec: TableSpec,
        keys: Collection[str],
        parts: PartialUpdate,
        remade: frozenset[str],
        fixed: Mapping[str, str],
        mark: CommitToken[Replacement],
    ) -> Replacement:
        if table is None:
            table = make(self._storage, _path(spec), spec)
        files = _files(table, spec, keys, fixed)
        changed: set[str] = set()
        with StreamingWrite(spec, without_metadata(spec.schema)) as spool:
            for number, condition in enumerate(parts.conditions):
                old, files, damaged = self._old_rows(table, spec, files, remade, condition)
                old = sorted_rows(old, spec)
                new = sorted_rows(parts.change(number, old).select(spec.schema.names).cast(spec.schema), spec)
                changed |= changed_keys(old, new, spec) | damaged
                spool.add(new)
                del old, new  # or they would stand beside those of the next part
            replacement = Replacement(frozenset(changed), spec.schema.empty_table())
            if changed:
                self._commit_rows(table, spec, spool.reader(changed), replacement, fixed, mark)
        return replacement

    def _commit_rows(
        self,
        table: DeltaTable,
        spec: TableSpec,
        rows: pa.Table | pa.RecordBatchReader,
        replacement: Replacement,
        fixed: Mapping[str, str],
        mark: CommitToken[Replacement],
    ) -> None:
        """Commit the rows of all partitions that have changed, on top of the handle's version."""
        mark.expect(table.version(), replacement)
        with overtaking(self._storage, _path(spec), table, mark):
            commit(table, spec, rows, predicate(spec, replacement.changed, fixed), mark)
        self._handles.note_write(_path(spec))

    def _without(
        self,
        spec: TableSpec,
        keys: Collection[str] | None,
        fixed: Mapping[str, str],
        judge: Callable[[pa.Table], Mapping[str, RowDeletion]],
    ) -> tuple[dict[str, int], Collection[str]]:
        """Commit what `judge` says of the files of partitions; return the rows that went by key, and these files."""

        def attempt(turn: FairnessLock, mark: CommitToken[Any]) -> tuple[dict[str, int], Collection[str]]:
            table = self._handles.writer(_path(spec), turn)
            if (made := mark.made()) is not None:
                return cast("tuple[dict[str, int], Collection[str]]", made)
            files = _files(table, spec, keys, fixed)
            counts: dict[str, int] = {}
            verdicts: Mapping[str, RowDeletion] = {}
            if table is not None and files is not None and files.num_rows:
                with overtaking(self._storage, _path(spec), table, mark):
                    verdicts = self._judged(spec, files, judge)
                    concerned = files.filter(pc.is_in(files["path"], pa.array(list(verdicts), pa.string())))
                    for path, key in zip(concerned["path"].to_pylist(), keys_of(concerned, spec), strict=True):
                        counts[key] = counts.get(key, 0) + verdicts[path].gone
                    if verdicts:
                        mark.expect(table.version(), (counts, verdicts.keys()))
                        exchange(table, spec, concerned, verdicts, mark)
            self._handles.give_back(_path(spec), table)
            return counts, verdicts.keys()

        what = f"table {spec.name}"
        return retry_commit(self._storage, _path(spec), what, "remove rows of it", attempt, self._handles.claims)

    def _judged(
        self, spec: TableSpec, files: pa.Table, judge: Callable[[pa.Table], Mapping[str, RowDeletion]]
    ) -> Mapping[str, RowDeletion]:
        try:
            return judge(files)
        except pa.ArrowException as error:  # of a file that is missing, the caller looks first whether it was removed
            sound_files(self._storage, files, spec, error)
            raise


def _path(spec: TableSpec) -> str:
    return f"tables/{spec.name}"


def _files(
    table: DeltaTable | None,
    spec: TableSpec,
    keys: Collection[str] | None = None,
    fixed: Mapping[str, str] | None = None,
) -> pa.Table | None:
    """Return the files that hold partitions; None where there is no table."""
    return None if table is None else selected(pa.table(table.get_add_actions(flatten=True)), spec, keys, fixed)
