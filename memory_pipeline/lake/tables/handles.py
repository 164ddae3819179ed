"""Handles on Delta tables: opens them, keeps them, brings them up to date, and commits on top of their versions.

With :mod:`~memory_pipeline.lake.tables.marts` the only door to deltalake. A handle is of one version. What is done to
it may meet a purge, which takes files and versions of the past away, or another writer; :func:`overtaking` tells these
from failures.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from memory_pipeline.errors import CommitConflictError, DamagedError
from memory_pipeline.lake.commit_retry import CommitLostError, CommitToken, FairnessLock, retry
from memory_pipeline.lake.files.disk import raise_of_disk
from memory_pipeline.lake.files.storage_errors import REMEDY, is_of_store, store_policy
from memory_pipeline.lake.leases import Leases
from memory_pipeline.lake.tables.damage import damaged_log, is_damage
from memory_pipeline.lake.tables.delta_log import commit_path
from memory_pipeline.lake.tables.partitions import without_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.row_deletion import RowDeletion

_Result = TypeVar("_Result")

#: Only a purge takes away what the log says of the past.
HOOKS = PostCommitHookProperties(cleanup_expired_logs=False)

#: How often a log is read that changes while it is read, and how often a commit is tried.
_LOOKS, _ATTEMPTS = 6, 20
#: Row groups are small, so that a read by the column that sorts a large partition opens few of them.
_WRITER = WriterProperties(compression="ZSTD", compression_level=3, max_row_group_size=65_536)
#: Of what streams into a table a row group is in memory at a time, vectors and all.
_STREAM_WRITER = WriterProperties(compression="ZSTD", compression_level=3, max_row_group_size=8_192)
#: Reads name their partitions, so statistics of the columns would only make the log longer.
_CONFIGURATION = {"delta.dataSkippingNumIndexedCols": "0"}
#: To see that a handle is still of the newest version, it is enough that there is no next one, unless that can have
#: been purged since: no commit is, for an hour. The seconds are much less than that; with a handle is kept when it was
#: brought up to date.
_YOUNG, _SEEN_AT = 600.0, "_memory_pipeline_seen_at"
#: Where writers claim their turns.
_TURNS = "state/turns"
#: A process that writes a table again within so many seconds looks first whether another has its turn.
_OFTEN = 30.0


class Handles:
    """The handles that a process has on tables, by their paths below the root: one to read, and some to write.

    Attributes:
        claims: where the threads of the process claim their turns.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._handles: dict[str, DeltaTable] = {}
        self._lock = threading.Lock()
        self.claims = _claims(storage)
        # Handles of attempts to write, each used by one thread at a time: no other moves the version under it.
        self._writers: defaultdict[str, list[DeltaTable]] = defaultdict(list)
        self._wrote: dict[str, float] = {}

    def writer(self, path: str, turn: FairnessLock) -> DeltaTable | None:
        """Return a handle on the newest version that nobody else uses; None if there is no table yet.

        The turn is heeded by a process that knows of others that write, or that writes so often that others may find
        no gap. Whoever writes now and then, and alone, is spared the look.
        """
        self._storage.require_creating()
        with self._lock:
            idle = self._writers[path]
            handle = idle.pop() if idle else None
            is_busy = time.monotonic() < self._wrote.get(path, -math.inf) + _OFTEN
        version = version_of(handle)
        handle = newest(self._storage, path, handle)
        if (is_busy or -1 < version < version_of(handle)) and turn.heed():
            handle = newest(self._storage, path, handle)
        return handle

    def give_back(self, path: str, handle: DeltaTable | None) -> None:
        """Keep a handle that is no longer written with, for the next who writes."""
        if handle is not None:
            with self._lock:
                self._writers[path].append(handle)

    def note_write(self, path: str) -> None:
        """Note that the process has just written a table."""
        with self._lock:
            self._wrote[path] = time.monotonic()

    def latest(self, path: str) -> DeltaTable | None:
        """Return a handle on the newest version, which all readers share; None if there is no table yet."""
        with self._lock:
            handle = newest(self._storage, path, self._handles.pop(path, None))
            if handle is not None:
                self._handles[path] = handle
            return handle


def turn_at(storage: Storage, path: str, claims: Leases | None = None) -> FairnessLock:
    """Return what a writer takes its turn with at the table at `path` below the root.

    Args:
        storage: the lake's files.
        path: of the table.
        claims: those of the process, where threads of it write at once.
    """
    return FairnessLock(claims or _claims(storage), path.replace("/", "."))


def retry_commit(
    storage: Storage,
    path: str,
    what: str,
    aim: str,
    attempt: Callable[[FairnessLock, CommitToken[Any]], _Result],
    claims: Leases | None = None,
) -> _Result:
    """Return what `attempt` does, made again whenever it was overtaken.

    Args:
        storage: the lake's files.
        path: of the table that it commits to, below the root.
        what: the table, for the message where others were first every time.
        aim: what the commit is for, likewise: "replace …".
        attempt: what to do. It gets the turn, and what it marks its commits with.
        claims: those of the process, where threads of it write at once.

    Raises:
        CommitConflictError: others were first every time.
        LakeError: requests failed time and again.
    """
    lost = (
        f"{what}: {_ATTEMPTS} attempts to {aim} lost against other writers; nothing was written, run it again when "
        "they have finished"
    )
    turn = turn_at(storage, path, claims)
    # On a local disk answers are not lost.
    mark = CommitToken[Any](None if storage.is_local else lambda version: storage.read(commit_path(path, version)))
    policy = store_policy(f"table {path}", _ATTEMPTS, (CommitLostError,), lambda _: CommitConflictError(lost))
    return retry(lambda: attempt(turn, mark), policy, turn)


def _claims(storage: Storage) -> Leases:
    return Leases(storage, _TURNS, lambda: datetime.now(UTC))


@contextmanager
def overtaking(storage: Storage, path: str, table: DeltaTable, mark: CommitToken[Any] | None = None) -> Iterator[None]:
    """Tell failures of what is done to a table, at the version of the handle, that come of others being first.

    Args:
        storage: the lake's files.
        path: of the table, below the root.
        table: the handle.
        mark: of what is committed; what seems to have failed, and bears it, has not.

    Raises:
        CommitLostError: others have changed the table or purged what it was, or a request failed.
    """
    version = table.version()
    try:
        yield
    except (DeltaError, OSError) as error:
        if mark is not None and mark.made() is not None:
            return
        raise_of_disk(error, storage.locate(path))
        is_known = isinstance(error, CommitFailedError) or is_of_store(error)
        if not is_known and version_of(newest(storage, path)) == version:
            raise
        raise CommitLostError from error


def newest(storage: Storage, path: str, handle: DeltaTable | None = None) -> DeltaTable | None:
    """Bring a handle on the table at `path` below the root up to date, or open one; None where there is no table."""

    def attempt() -> DeltaTable | None:
        nonlocal handle
        known, handle = handle, None  # after a failure it is opened anew
        try:
            if known is None or known._storage_options != storage.options:  # keys were renewed
                known = DeltaTable(storage.locate(path), storage_options=storage.options)
                _refuse_empty(storage, path, known)
            elif time.monotonic() - vars(known)[_SEEN_AT] > _YOUNG or storage.is_there(
                commit_path(path, known.version() + 1)
            ):
                known.update_incremental()
            else:
                return known
        except TableNotFoundError:
            return None
        vars(known)[_SEEN_AT] = time.monotonic()
        return known

    def give_up(error: Exception) -> Exception:
        return damaged_log(path, error) if is_damage(error) or isinstance(error, DeltaError) else error

    # What fails and is no damage: a purge took away what was being read.
    errors = (DeltaError, OSError)
    return retry(attempt, store_policy(f"table {path}", _LOOKS, errors, give_up, place=storage.locate(path)))


def _refuse_empty(storage: Storage, path: str, handle: DeltaTable) -> None:
    """Raise if the newest commit is an empty file, which deltalake takes for a commit that says nothing."""
    newest_commit = commit_path(path, handle.version())
    if storage.is_local and storage.sizes([newest_commit], path).get(newest_commit) == 0:
        raise DamagedError(f"table {path}: its log cannot be read: {newest_commit} is empty; {REMEDY}")


def make(storage: Storage, path: str, spec: TableSpec) -> DeltaTable:
    """Make a table that was not there, and return a handle on its first version, which has no rows.

    Others may have made it too, and filled it since: the check of the commit on top of the handle tells whether they
    wrote the same partitions. Only then has the caller to start over.

    Args:
        storage: the lake's files.
        path: of the table, below the root.
        spec: its schema and partitions.

    Raises:
        CommitLostError: there is no first version any more, or a request failed. The caller tries again.
    """
    try:
        DeltaTable.create(
            storage.locate(path),
            without_metadata(spec.schema),
            mode="ignore",
            storage_options=storage.options,
            partition_by=list(spec.partition_by),
            configuration=_CONFIGURATION,
        )
    except CommitFailedError:  # another writer is making it
        pass
    except (DeltaError, OSError) as error:
        raise_of_disk(error, storage.locate(path))
        if not is_of_store(error):
            raise
        raise CommitLostError from error
    try:
        return DeltaTable(storage.locate(path), version=0, storage_options=storage.options)
    except (DeltaError, OSError) as error:
        raise CommitLostError from error


def commit(
    table: DeltaTable,
    spec: TableSpec,
    rows: pa.Table | pa.RecordBatchReader,
    condition: str,
    mark: CommitToken[Any],
) -> None:
    """Put rows in the place of those that a condition tells, in one commit on top of the handle's version.

    Args:
        table: the handle.
        spec: the table's.
        rows: all at once, or as a stream, of which a row group is in memory at a time.
        condition: as deltalake reads it; it names whole partitions.
        mark: of the call that commits.
    """
    write_deltalake(
        table,
        rows,
        partition_by=list(spec.partition_by),
        mode="overwrite",
        predicate=condition,
        schema_mode="merge" if _is_older(table, spec) else None,
        writer_properties=_WRITER if isinstance(rows, pa.Table) else _STREAM_WRITER,
        commit_properties=CommitProperties(custom_metadata=mark.metadata),
        post_commithook_properties=HOOKS,
    )


def exchange(
    table: DeltaTable, spec: TableSpec, files: pa.Table, verdicts: Mapping[str, RowDeletion], mark: CommitToken[Any]
) -> None:
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
        actions,
        "append",
        table.schema(),
        list(spec.partition_by),
        commit_properties=CommitProperties(custom_metadata=mark.metadata),
        post_commithook_properties=HOOKS,
    )


def version_of(table: DeltaTable | None) -> int:
    """Return the version of a handle; -1 where there is no table."""
    return -1 if table is None else table.version()


def _is_older(table: DeltaTable, spec: TableSpec) -> bool:
    """Tell whether a table was made before a column was added, or became nullable."""
    present = {field.name: field.nullable for field in table.schema().fields}
    return any(present.get(field.name, False) < field.nullable for field in spec.schema)
