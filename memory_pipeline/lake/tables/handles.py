"""Handles on Delta tables: opens, caches and refreshes them, and commits on top of their versions.

Only this module and :mod:`~memory_pipeline.lake.tables.marts` import deltalake. A handle belongs to one version. An
operation on it may meet another writer, or a purge, which deletes old files and versions; :func:`overtaking`
distinguishes these from failures.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from memory_pipeline.errors import CommitConflictError, DamagedError
from memory_pipeline.lake.commit_retry import CommitLostError, CommitToken, WriteTurn, retry
from memory_pipeline.lake.files.disk import raise_of_disk
from memory_pipeline.lake.files.storage_errors import REMEDY, is_of_store, store_policy
from memory_pipeline.lake.leases import Leases
from memory_pipeline.lake.tables.damage import damaged_log, is_damage
from memory_pipeline.lake.tables.partitions import order_of, stored_schema
from memory_pipeline.operating_system import muted_panics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.row_deletion import RowDeletion

_Result = TypeVar("_Result")

#: Only a purge deletes history from the log.
HOOKS = PostCommitHookProperties(cleanup_expired_logs=False)

#: Attempts to read a log that changes meanwhile, and to commit.
_LOOKS, _ATTEMPTS = 5, 20
#: Small row groups and batches. A read of a few scopes in a large partition opens few row groups; a write of 110,000
#: rows with vectors takes 190 MB besides the rows, and 790 MB with row groups of 65,536 rows.
_ROW_GROUP = 8_192
_BATCH_ROWS = 512
#: A handle is current if the next version does not exist. A purge may delete that version after an hour, so handles are
#: refreshed after these seconds. The refresh time is stored on the handle.
_YOUNG, _SEEN_AT = 600.0, "_memory_pipeline_seen_at"
_TURNS = "state/turns"
#: A process that writes a table again within this many seconds first checks whether another has its turn.
_OFTEN = 30.0


class Handles:
    """The open handles of a process, by path below the root: one to read, and some to write.

    `claims` holds the turns of its threads.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._handles: dict[str, DeltaTable] = {}
        self._lock = threading.Lock()
        self.claims = _claims(storage)
        # Handles for writing, each used by one thread at a time: no other thread moves its version.
        self._writers: defaultdict[str, list[DeltaTable]] = defaultdict(list)
        self._wrote: dict[str, float] = {}

    def writer(self, path: str, turn: WriteTurn) -> DeltaTable | None:
        """Return an exclusive handle on the newest version, or None if there is no table yet.

        Waits for another writer's turn only if the process has noticed other writers, or writes so often that they may
        find no gap.
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
        """Return a handle to the pool after writing."""
        if handle is not None:
            with self._lock:
                self._writers[path].append(handle)

    def note_write(self, path: str) -> None:
        """Record that the process has just written a table."""
        with self._lock:
            self._wrote[path] = time.monotonic()

    def latest(self, path: str) -> DeltaTable | None:
        """Return a handle on the newest version, shared by all readers, or None if there is no table yet."""
        with self._lock:
            handle = newest(self._storage, path, self._handles.pop(path, None))
            if handle is not None:
                self._handles[path] = handle
            return handle


def turn_at(storage: Storage, path: str, claims: Leases | None = None) -> WriteTurn:
    """Return a writer's turn at the table at `path`. Pass the process's `claims` if several of its threads write."""
    return WriteTurn(claims or _claims(storage), path.replace("/", "."))


def retry_commit(
    storage: Storage,
    path: str,
    what: str,
    aim: str,
    attempt: Callable[[WriteTurn, CommitToken[Any]], _Result],
    claims: Leases | None = None,
) -> _Result:
    """Return the result of `attempt`, retried after concurrent commits to the table at `path` below the root.

    `attempt` gets the turn, and the token that marks its commits. `what` and `aim` are for the error message: the
    table, and the purpose of the commit, such as "replace …". Pass the process's `claims` if several of its threads
    write.

    Raises:
        CommitConflictError: every attempt lost against other writers.
        LakeError: requests failed several times.
    """
    lost = (
        f"{what}: {_ATTEMPTS} attempts to {aim} lost against other writers; nothing was written, run it again when "
        "they have finished"
    )
    turn = turn_at(storage, path, claims)
    # A local disk loses no answers.
    token = CommitToken[Any](None if storage.is_local else lambda version: storage.read(_commit_path(path, version)))
    policy = store_policy(f"table {path}", _ATTEMPTS, (CommitLostError,), lambda _: CommitConflictError(lost))
    return retry(lambda: attempt(turn, token), policy, turn)


def _claims(storage: Storage) -> Leases:
    return Leases(storage, _TURNS, lambda: datetime.now(UTC))


@contextmanager
def overtaking(storage: Storage, path: str, table: DeltaTable, token: CommitToken[Any] | None = None) -> Iterator[None]:
    """Raise CommitLostError for failures caused by concurrent commits to a handle's table.

    With `token`, a commit with this token in the log has succeeded, despite its error.

    Raises:
        CommitLostError: others have changed the table or purged its version, or a request failed.
    """
    version = table.version()
    try:
        with muted_panics():  # deltalake panics in a thread of its own when a disk refuses a file
            yield
    except (DeltaError, OSError) as error:
        if token is not None and token.made() is not None:
            return
        raise_of_disk(error, storage.locate(path))
        is_known = isinstance(error, CommitFailedError) or is_of_store(error)
        if not is_known and version_of(newest(storage, path)) == version:
            raise
        raise CommitLostError from error


def newest(storage: Storage, path: str, handle: DeltaTable | None = None) -> DeltaTable | None:
    """Refresh a handle on the table at `path` below the root, or open one; return None if there is no table."""

    def attempt(known: DeltaTable | None) -> DeltaTable | None:
        try:
            if known is None or known._storage_options != storage.options:  # credentials were renewed
                known = DeltaTable(storage.locate(path), storage_options=storage.options)
                _refuse_empty(storage, path, known)
            elif time.monotonic() - vars(known)[_SEEN_AT] > _YOUNG or storage.is_there(
                _commit_path(path, known.version() + 1)
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

    # A failure without damage: a purge deleted what was being read.
    errors = (DeltaError, OSError)
    try:
        return attempt(handle)
    except errors:
        policy = store_policy(f"table {path}", _LOOKS, errors, give_up, place=storage.locate(path))
        return retry(lambda: attempt(None), policy)


def _refuse_empty(storage: Storage, path: str, handle: DeltaTable) -> None:
    """Raise if the newest commit is an empty file, which deltalake takes for a commit without changes."""
    newest_commit = _commit_path(path, handle.version())
    if storage.is_local and storage.sizes([newest_commit], path).get(newest_commit) == 0:
        raise DamagedError(f"table {path}: its log cannot be read: {newest_commit} is empty; {REMEDY}")


def make(storage: Storage, path: str, spec: TableSpec) -> DeltaTable:
    """Create a table, and return a handle on its first version, which has no rows.

    Others may have created and filled it meanwhile. The next commit detects whether they wrote the same partitions;
    only then must the caller start over.

    Raises:
        CommitLostError: the first version no longer exists, or a request failed. The caller retries.
    """
    try:
        DeltaTable.create(
            storage.locate(path),
            stored_schema(spec),
            mode="ignore",
            storage_options=storage.options,
            partition_by=list(spec.stored_partitions),
            configuration={"delta.dataSkippingStatsColumns": ",".join(spec.statistics)},
        )
    except CommitFailedError:  # another writer is creating it
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
    rows: pa.Table,
    condition: str,
    token: CommitToken[Any],
) -> None:
    """Replace the rows that meet a condition, in one commit on top of the handle's version.

    `rows` are sorted while they are written, since a sorted copy takes much memory. `condition` has deltalake's syntax
    and selects whole partitions.
    """
    order = order_of(rows, spec)
    batches = (
        batch
        for start in range(0, rows.num_rows, _BATCH_ROWS)
        for batch in rows.take(order.slice(start, _BATCH_ROWS)).to_batches()
    )
    write_deltalake(
        table,
        pa.RecordBatchReader.from_batches(rows.schema, batches),
        partition_by=list(spec.stored_partitions),
        mode="overwrite",
        predicate=condition,
        schema_mode="merge" if _is_older(table, spec) else None,
        writer_properties=_writer(spec),
        commit_properties=CommitProperties(custom_metadata=token.metadata),
        post_commithook_properties=HOOKS,
    )


def _writer(spec: TableSpec) -> WriterProperties:
    """Return how a table's files are written.

    Most hold a few dozen rows, so what Parquet keeps of each column beside its values counts: dictionaries, statistics
    and indices of pages took 15 to 40 % of a file, and a dictionary before zstd saves nothing in large files either.
    """
    return WriterProperties(
        compression="ZSTD",
        compression_level=3,
        max_row_group_size=_ROW_GROUP,
        default_column_properties=ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE"),
        column_properties={
            name: ColumnProperties(dictionary_enabled=False, statistics_enabled="CHUNK") for name in spec.statistics
        },
    )


def exchange(
    table: DeltaTable, spec: TableSpec, files: pa.Table, verdicts: Mapping[str, RowDeletion], token: CommitToken[Any]
) -> None:
    """Remove files from a table and add their replacements, in one commit."""
    now = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = []
    for row in files.to_pylist():
        values = {column: row[f"partition.{column}"] for column in spec.stored_partitions}
        actions.append(RemoveAction(row["path"], True, now, row["size_bytes"], values))
        written = verdicts[row["path"]].instead
        if written is not None:
            actions.append(AddAction(written.path, written.size, values, now, True, written.statistics))
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        list(spec.stored_partitions),
        commit_properties=CommitProperties(custom_metadata=token.metadata),
        post_commithook_properties=HOOKS,
    )


def _commit_path(path: str, version: int) -> str:
    """Return the path of the commit of a version, which may not exist yet, of the table at `path`."""
    return f"{path}/_delta_log/{version:020}.json"


def version_of(table: DeltaTable | None) -> int:
    """Return the version of a handle, or -1 if there is no table."""
    return -1 if table is None else table.version()


def _is_older(table: DeltaTable, spec: TableSpec) -> bool:
    present = {field.name: field.nullable for field in table.schema().fields}
    return any(present.get(field.name, False) < field.nullable for field in spec.schema)
