"""The lake's Delta tables. Every write replaces whole partitions, atomically.

Reads and writes start over at the newest version if a purge deletes the files they use. Reasons and measurements:
docs/decisions/0002-delta-tables.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from memory_pipeline.lake.layout import SHARDS, shard_of
from memory_pipeline.lake.schema_types import PART, WHOLE
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
from memory_pipeline.lake.tables.held import HeldRows, rows_of
from memory_pipeline.lake.tables.partitions import (
    LARGE_FROM,
    by_shard,
    changed_keys,
    dataset,
    in_shard,
    keys_of,
    part_of,
    predicate,
    read,
    selected,
    sorted_rows,
    stored_schema,
    without_metadata,
)
from memory_pipeline.lake.tables.row_deletion import DeletionPlan, Gone, RowDeletion
from memory_pipeline.lake.tables.vacuum import Purge, Purged, Vacuum

if TYPE_CHECKING:
    from datetime import datetime

    from deltalake import DeltaTable

    from memory_pipeline.lake.commit_retry import CommitToken, WriteTurn
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec

__all__ = ["Change", "Gone", "Purged", "Tables", "changed_keys", "sorted_rows"]

_Result = TypeVar("_Result")

_NONE = timedelta(0)

Change = Callable[[pa.Table], pa.Table]


class Tables:
    """Reads, replaces and removes partitions of the lake's tables.

    A key is a value of the last partition column (such as ``period``). The partition columns before it (such as
    ``grain``) are keyword arguments, `fixed`, with one value each.
    """

    def __init__(self, storage: Storage, shards: int = SHARDS) -> None:
        self._storage = storage
        self._shards = shards
        self._handles = Handles(storage)
        self._held = HeldRows(storage)
        #: Within, small files are read once, however often their rows are read.
        self.holding = self._held.holding

    def rows_held(self, spec: TableSpec) -> pa.Table | None:
        """Return all rows of a table, within `holding`; None outside, of large tables, and if a file is damaged."""
        return self._held.read(spec, _files(self._handles.latest(_path(spec)), spec), is_small=True)

    def read(
        self,
        spec: TableSpec,
        keys: Collection[str] | None = None,
        *,
        columns: Collection[str] | None = None,
        where: pc.Expression | None = None,
        shard: int | None = None,
        scopes: Collection[str] | None = None,
        rare: Collection[str] = (),
        damaged: str = "raise",
        **fixed: str,
    ) -> pa.Table:
        """Return the rows of the given partitions, or of all, that meet `where`, in the table's schema.

        A missing table or partition has no rows. Without `columns`, all are read; without `shard`, those of all shards;
        without the keys `scopes`, those of all scopes. `rare` are the columns of `where`, if few files have such rows:
        of the others, only these columns are read. With ``skip`` for `damaged`, files that cannot be read
        are left out, for callers that recompute them.

        Raises:
            DamagedError: files cannot be read.
        """
        failed_at = None
        shards = [shard] if scopes is None else {shard_of(scope, self._shards) for scope in scopes}
        probe = (where, rare) if where is not None and rare else None
        if scopes is not None:
            is_own = pc.field("scope").isin(pa.array(list(scopes), pa.string()))
            where, probe = (is_own if where is None else where & is_own), (is_own, ["scope"])
        if shard is not None:
            is_in_shard = in_shard(shard, self._shards)
            where = is_in_shard if where is None else where & is_in_shard
        while True:
            table = self._handles.latest(_path(spec))
            version = version_of(table)
            files = _files(table, spec, keys, fixed, _parts(*shards), scopes)
            if (held := self._held.read(spec, files, is_small=probe is None)) is not None:
                return rows_of(held, spec, columns, where)
            try:
                return read(self._storage, files, spec, columns, where, probe)
            except FAILURES as error:
                if isinstance(error, FileNotFoundError) and version != failed_at:  # a purge may have deleted it
                    failed_at = version
                    continue
                sound, _ = sound_files(self._storage, files, spec, error, None if damaged == "skip" else (), columns)
            return read(self._storage, sound, spec, columns, where, probe)

    def keys(self, spec: TableSpec, **fixed: str) -> list[str]:
        """Return the partitions that have rows, sorted. Reads no rows."""
        return sorted(self.sizes(spec, **fixed))

    def version(self, spec: TableSpec) -> int:
        """Return the table's version, or -1 if it was never written."""
        return version_of(self._handles.latest(_path(spec)))

    def state(self, spec: TableSpec, keys: Collection[str], shard: int | None = None, **fixed: str) -> frozenset[str]:
        """Return a value that changes exactly when the rows of the given partitions do. Reads no rows.

        With `shard`, it may also change with rows of other shards.
        """
        return frozenset(path for _, path in self._listed(spec, "path", fixed, keys, shard))

    def part_states(self, spec: TableSpec, keys: Collection[str], **fixed: str) -> dict[str, frozenset[str]]:
        """Return a value for each part that changes exactly when its rows in the given partitions do."""
        states: defaultdict[str, set[str]] = defaultdict(set)
        files = _files(self._handles.latest(_path(spec)), spec, keys, fixed)
        for path, part in zip(files["path"], files[f"partition.{PART}"], strict=True) if files else ():
            states[part.as_py()].add(path.as_py())
        return {part: frozenset(paths) for part, paths in states.items()}

    def sizes(self, spec: TableSpec, **fixed: str) -> dict[str, int]:
        """Return the size of each partition's files in bytes. Reads no rows."""
        sizes: Counter[str] = Counter()
        for key, size in self._listed(spec, "size_bytes", fixed):
            sizes[key] += size
        return dict(sizes)

    def counts(self, spec: TableSpec, **fixed: str) -> dict[str, int]:
        """Return the number of rows of each partition. Reads no rows."""
        counts: Counter[str] = Counter()
        for key, rows in self._listed(spec, "num_records", fixed):
            counts[key] += rows
        return dict(counts)

    def _listed(
        self,
        spec: TableSpec,
        column: str,
        fixed: Mapping[str, str],
        keys: Collection[str] | None = None,
        shard: int | None = None,
    ) -> Iterator[tuple[str, Any]]:
        files = _files(self._handles.latest(_path(spec)), spec, keys, fixed, _parts(shard))
        if files is not None:
            yield from zip(keys_of(files, spec), files.column(column).to_pylist(), strict=True)

    def dataset(self, spec: TableSpec) -> ds.Dataset:
        """Return the newest version as a lazily scanned dataset, for SQL over more data than fits in memory.

        A scan raises FileNotFoundError once a purge has deleted that version.
        """
        files = _files(self._handles.latest(_path(spec)), spec)
        if files is None or not files.num_rows:
            return ds.dataset(without_metadata(spec.schema).empty_table())
        return dataset(self._storage, files, spec)

    def damaged(self, spec: TableSpec) -> pa.Table:
        """Return the unreadable files of a table, as its log lists them, with the reasons. Reads all rows.

        Raises:
            DamagedError: the table's log cannot be read.
        """
        files = None if self.rows_held(spec) is not None else _files(self._handles.latest(_path(spec)), spec)
        return pa.table({"path": []}) if files is None else damaged_files(self._storage, files, spec)

    def drop_files(self, spec: TableSpec, paths: Collection[str]) -> None:
        """Remove damaged files from a table in one commit, without reading them.

        Raises:
            CommitConflictError: other writers kept changing the table.
        """
        damaged = set(paths)

        def deletions(files: pa.Table) -> dict[str, RowDeletion]:
            return {path: RowDeletion(0, None) for path in files.column("path").to_pylist() if path in damaged}

        self._without(spec, None, {}, deletions)

    def replace(self, spec: TableSpec, keys: Collection[str], rows: pa.Table, **fixed: str) -> frozenset[str]:
        """Replace all rows of the given partitions by `rows`, in one commit. Return the partitions that were written.

        Equal partitions are not written.

        Raises:
            CommitConflictError: other writers kept changing the same partitions.
        """
        return self.transform(spec, keys, lambda _: rows, remade=keys, shard=None, **fixed)

    def transform(
        self,
        spec: TableSpec,
        keys: Collection[str],
        change: Change,
        *,
        remade: Collection[str] = (),
        shard: int | None = None,
        **fixed: str,
    ) -> frozenset[str]:
        """Replace the given partitions by the result of `change`, in one commit. Return those that were written.

        `change` receives their rows and returns the new ones. It may be slow: nothing is locked. After a concurrent
        commit it is called again with newer rows, so it must have no side effects.

        If files of partitions in `remade` are damaged, `change` gets the rows of the other files, and the partition is
        written: these partitions are recomputed without their old rows.

        With `shard`, only the rows of this shard are passed and replaced, in one partition, which is stored by shard
        from then on. Concurrent writes of different shards do not conflict.

        Raises:
            CommitConflictError: other writers kept changing the same partitions.
            DamagedError: files of partitions not in `remade` cannot be read; nothing was written.
        """

        def attempt(turn: WriteTurn, token: CommitToken[frozenset[str]]) -> frozenset[str]:
            table = self._handles.writer(_path(spec), turn)
            try:
                if (made := token.made()) is not None:
                    return made
                return self._written(table, spec, keys, change, frozenset(remade), shard, fixed, token)
            finally:
                # After a lost attempt, too: opening the table anew would read its log again.
                self._handles.give_back(_path(spec), table)

        aim = f"replace {', '.join(sorted(keys)[:3])}…"
        return retry_commit(self._storage, _path(spec), f"table {spec.name}", aim, attempt, self._handles.claims)

    def remove(self, spec: TableSpec, keys: Collection[str] | None, **fixed: str) -> frozenset[str]:
        """Remove the given partitions, or all, in one commit, without reading rows. Return the removed ones.

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
        """Remove rows of the given partitions, or of all, in one commit. Return the number removed from each partition.

        `gone` gets the given columns, with rows of many partitions at once, and returns a boolean array, true for rows
        to remove. Partitions without such rows are neither written nor returned.

        Raises:
            CommitConflictError: other writers kept removing rows of the table.
        """
        dropping = DeletionPlan(self._storage, spec, gone, columns)
        judged: Collection[str] | None = None
        try:
            counts, judged = self._without(spec, keys, fixed, dropping.verdicts)
        finally:
            # On S3, a commit that seemed to fail may still succeed, and would refer to the files written for it.
            if judged is not None or self._storage.is_local:
                dropping.discard(judged or ())
        return counts

    def purge(self, spec: TableSpec, *, grace: timedelta = _NONE, orphans: timedelta | None = None) -> Purged:
        """Purge a table of the lake; see :meth:`purge_path`."""
        return self.purge_path(_path(spec), grace=grace, orphans=orphans)

    def purge_path(self, path: str, *, grace: timedelta = _NONE, orphans: timedelta | None = None) -> Purged:
        """Delete files and log entries that the newest version of a table does not need. Return the deleted files.

        Concurrent readers and writers start over. Older versions can no longer be read. A missing table is ignored.

        Removed files and their log entries are kept for `grace`, rounded up to hours. Files that belong to no version,
        as killed writers leave them, are kept for `orphans`, at least an hour, to spare running writers; by default for
        ever.

        Raises:
            InputError: `grace` is negative, or `orphans` is less than an hour.
            CommitConflictError: other writers kept changing the table.
        """
        purge = Purge(self._storage, path, grace, orphans)
        return self._cleaned(path, "purge it", purge.make, purge.purged)

    def vacuum(self, path: str, before: datetime, now: datetime, *, dry_run: bool) -> dict[str, Purged]:
        """Delete unneeded files of a table while readers and writers are active. A missing table is ignored.

        Files removed from the table before `before`, rounded up to hours, are deleted. Log files and files of no
        version must be an hour older than `now`. Return the files by kind: ``replaced``, ``tables`` (in no version) and
        ``logs``.

        Raises:
            CommitConflictError: other writers kept changing the table.
        """
        vacuum = Vacuum(self._storage, path, before, now, dry_run=dry_run)
        return self._cleaned(path, "vacuum it", vacuum.clean, vacuum.found)

    def _cleaned(self, path: str, aim: str, clean: Callable[[DeltaTable], _Result], nothing: _Result) -> _Result:
        """Return `clean` of the newest version, retried after concurrent commits; `nothing` for a missing table."""

        def attempt(*_: object) -> _Result:
            table = newest(self._storage, path)
            if table is not None:
                with overtaking(self._storage, path, table):
                    return clean(table)
            return nothing

        return retry_commit(self._storage, path, f"table {path}", aim, attempt, self._handles.claims)

    def _written(
        self,
        table: DeltaTable | None,
        spec: TableSpec,
        keys: Collection[str],
        change: Change,
        remade: frozenset[str],
        shard: int | None,
        fixed: Mapping[str, str],
        token: CommitToken[frozenset[str]],
    ) -> frozenset[str]:
        parts = _parts(shard)
        whole, damaged, kept = spec.schema.empty_table(), set[str](), None
        if table is not None:
            whole, damaged = self._old_rows(table, spec, _files(table, spec, keys, fixed, parts), remade)
        old = whole
        if shard is not None:
            is_in_shard = in_shard(shard, self._shards)
            old = whole.filter(is_in_shard)
            # Rows of other shards are in the same file: the partition is not yet stored by shard.
            kept = whole.filter(~is_in_shard) if old.num_rows < whole.num_rows else None
        new = change(sorted_rows(old, spec)).select(spec.schema.names).cast(spec.schema).combine_chunks()
        changed = frozenset(changed_keys(old, new, spec) | damaged)
        if not changed:
            return changed
        if table is None:  # its first version holds the rows
            table = make(self._storage, _path(spec), spec)
        key = new.column(spec.partition_by[-1])
        if not changed.issuperset(pc.unique(key).to_pylist()):
            new = new.filter(pc.is_in(key, pa.array(list(changed))))
        if kept is not None:
            new, parts = pa.concat_tables([new, kept]), None
        stored = self._with_parts(new, spec, by_part=shard is not None).cast(stored_schema(spec))
        token.expect(table.version(), changed)
        with overtaking(self._storage, _path(spec), table, token):
            commit(table, spec, stored, predicate(spec, changed, fixed, parts), token)
        self._handles.note_write(_path(spec))
        return changed

    def _with_parts(self, rows: pa.Table, spec: TableSpec, *, by_part: bool) -> pa.Table:
        """Add the column ``part``: the shard if `by_part`, or if the row's period is large."""
        if not spec.has_parts:
            return rows
        periods = rows[spec.partition_by[-1]]
        counts = pc.value_counts(periods)
        large = counts.filter(pc.greater_equal(counts.field("counts"), 0 if by_part else LARGE_FROM)).field("values")
        is_large = pc.is_in(periods, large)
        has_large = pc.any(is_large).as_py()
        return rows.append_column(
            PART, pc.if_else(is_large, by_shard(rows, self._shards) if has_large else WHOLE, WHOLE)
        )

    def _old_rows(
        self, table: DeltaTable, spec: TableSpec, files: pa.Table, remade: Collection[str]
    ) -> tuple[pa.Table, set[str]]:
        """Return the readable rows, and the partitions of unreadable files."""
        try:
            with overtaking(self._storage, _path(spec), table):
                return read(self._storage, files, spec), set()
        except FAILURES as error:
            sound, keys = sound_files(self._storage, files, spec, error, remade)
        with overtaking(self._storage, _path(spec), table):
            return read(self._storage, sound, spec), keys

    def _without(
        self,
        spec: TableSpec,
        keys: Collection[str] | None,
        fixed: Mapping[str, str],
        judge: Callable[[pa.Table], Mapping[str, RowDeletion]],
    ) -> tuple[dict[str, int], Collection[str]]:
        """Commit the deletions that `judge` returns. Return the number of removed rows by key, and the judged files."""

        def attempt(turn: WriteTurn, token: CommitToken[Any]) -> tuple[dict[str, int], Collection[str]]:
            table = self._handles.writer(_path(spec), turn)
            if (made := token.made()) is not None:
                return cast("tuple[dict[str, int], Collection[str]]", made)
            files = _files(table, spec, keys, fixed)
            counts: dict[str, int] = {}
            verdicts: Mapping[str, RowDeletion] = {}
            if table is not None and files is not None and files.num_rows:
                with overtaking(self._storage, _path(spec), table, token):
                    verdicts = self._judged(spec, files, judge)
                    concerned = files.filter(pc.is_in(files["path"], pa.array(list(verdicts), pa.string())))
                    for path, key in zip(concerned["path"].to_pylist(), keys_of(concerned, spec), strict=True):
                        counts[key] = counts.get(key, 0) + verdicts[path].gone
                    if verdicts:
                        token.expect(table.version(), (counts, verdicts.keys()))
                        exchange(table, spec, concerned, verdicts, token)
            self._handles.give_back(_path(spec), table)
            return counts, verdicts.keys()

        what = f"table {spec.name}"
        return retry_commit(self._storage, _path(spec), what, "remove rows of it", attempt, self._handles.claims)

    def _judged(
        self, spec: TableSpec, files: pa.Table, judge: Callable[[pa.Table], Mapping[str, RowDeletion]]
    ) -> Mapping[str, RowDeletion]:
        try:
            return judge(files)
        except pa.ArrowException as error:  # for a missing file, the caller first checks whether it was removed
            sound_files(self._storage, files, spec, error)
            raise


def _path(spec: TableSpec) -> str:
    return f"tables/{spec.name}"


def _parts(*shards: int | None) -> list[str] | None:
    return None if None in shards else [WHOLE, *(part_of(shard) for shard in shards if shard is not None)]


def _files(
    table: DeltaTable | None,
    spec: TableSpec,
    keys: Collection[str] | None = None,
    fixed: Mapping[str, str] | None = None,
    parts: Collection[str] | None = None,
    scopes: Collection[str] | None = None,
) -> pa.Table | None:
    if table is None:
        return None
    return selected(pa.table(table.get_add_actions(flatten=True)), spec, keys, fixed, parts, scopes)
