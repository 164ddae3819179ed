"""Delta tables for analysts, below ``marts/``. They can be recomputed from the lake's tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError

from memory_pipeline.errors import DamagedError
from memory_pipeline.lake.commit_retry import CommitLostError
from memory_pipeline.lake.files.storage_errors import is_of_store
from memory_pipeline.lake.tables.damage import FAILURES, is_damage
from memory_pipeline.lake.tables.handles import HOOKS, Handles, newest, overtaking, retry_commit
from memory_pipeline.lake.tables.partitions import sql_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memory_pipeline.lake.commit_retry import CommitToken
    from memory_pipeline.lake.files.storage import Storage

_WRITER = WriterProperties(compression="ZSTD", compression_level=3)
#: Statistics would expose names in the log.
_CONFIGURATION = {"delta.dataSkippingNumIndexedCols": "0"}


@dataclass(frozen=True, slots=True)
class Replaced:
    """Result of a write to a mart: whether anything was written, and the files of the mart afterwards.

    `files` is empty if a concurrent write makes it unknown which rows they hold.
    """

    changed: bool
    files: frozenset[str]


class Marts:
    """Reads and writes marts by name."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._handles = Handles(storage)

    def files(self, name: str) -> frozenset[str]:
        """Return the files of a mart, which change whenever its rows do; empty if there is no mart."""
        table = self._handles.latest(_path(name))
        return frozenset() if table is None else _paths(table)

    def dataset(self, name: str) -> ds.Dataset | None:
        """Return a mart as a lazily scanned dataset, or None if it was never written."""
        table = self._handles.latest(_path(name))
        return None if table is None else table.to_pyarrow_dataset()

    def size(self, name: str) -> tuple[int, int]:
        """Return a mart's number of rows, and the size of its files in bytes. Reads no rows."""
        table = self._handles.latest(_path(name))
        if table is None:
            return 0, 0
        actions = pa.table(table.get_add_actions(flatten=True))
        rows, size = (int(pc.sum(actions[column]).as_py() or 0) for column in ("num_records", "size_bytes"))
        return rows, size

    def damaged(self, names: Iterable[str]) -> set[str]:
        """Return the given marts that exist and cannot be read. Reads all of their rows."""
        found = set()
        for name in names:
            try:
                mart = self.dataset(name)
                for _ in [] if mart is None else mart.to_batches():
                    pass
            except (DamagedError, *FAILURES) as error:
                if not isinstance(error, DamagedError) and not is_damage(error):
                    raise
                found.add(name)
        return found

    def remove(self, name: str) -> None:
        """Delete a mart. The next run recomputes it."""
        self._handles = Handles(self._storage)
        self._storage.remove(_path(name))

    def replace(self, name: str, rows: pa.Table, *, column: str | None, values: Collection[str] | None) -> Replaced:
        """Replace all rows of a mart, or those with some values of a column, in one commit. Equal rows are not written.

        `rows` are in the order in which they are compared. `column` is the text column that partitions a mart that is
        replaced in parts. Without `values`, everything is replaced, columns included.

        Raises:
            CommitConflictError: other writers kept changing the same mart.
        """

        def attempt(_: object, token: CommitToken[bool]) -> Replaced:
            return self._replace(name, rows, column, values, token)

        return retry_commit(self._storage, _path(name), f"mart {name}", "write it", attempt)

    def _replace(
        self, name: str, rows: pa.Table, column: str | None, values: Collection[str] | None, token: CommitToken[bool]
    ) -> Replaced:
        self._storage.require_creating()
        table = self._handles.latest(_path(name))
        rows = rows.replace_schema_metadata()
        properties = CommitProperties(custom_metadata=token.metadata)
        if table is None:
            token.expect(-1, result=True)
            try:
                write_deltalake(
                    self._storage.locate(_path(name)),
                    rows,
                    storage_options=self._storage.options,
                    partition_by=[column] if column else None,
                    configuration=_CONFIGURATION,
                    writer_properties=_WRITER,
                    commit_properties=properties,
                )
            except (DeltaError, OSError) as error:  # another writer is creating it, or an answer was lost
                if not is_of_store(error) and newest(self._storage, _path(name)) is None:
                    raise
                if not token.made():
                    raise CommitLostError from error
            table = DeltaTable(self._storage.locate(_path(name)), storage_options=self._storage.options)
            return Replaced(True, _paths(table) if table.version() == 0 else frozenset())
        condition = None if values is None else pc.is_in(pc.field(str(column)), pa.array(sorted(values), pa.string()))
        with overtaking(self._storage, _path(name), table, token):
            if _holds(table, condition, rows):
                # An attempt that seemed to fail may have written it.
                return Replaced(bool(token.made()), _paths(table))
            listed = ", ".join(map(sql_text, sorted(values or ())))
            version = table.version()
            token.expect(version, result=True)
            write_deltalake(
                table,
                rows,
                mode="overwrite",
                predicate=None if values is None else f"{column} IN ({listed})",
                schema_mode="overwrite" if values is None else None,
                partition_by=table.metadata().partition_columns or None,
                writer_properties=_WRITER,
                commit_properties=properties,
                post_commithook_properties=HOOKS,
            )
        written = self._handles.latest(_path(name))
        assert written is not None  # noqa: S101  # nosec B101  # it has just been written
        return Replaced(True, _paths(written) if written.version() == version + 1 else frozenset())


def _path(name: str) -> str:
    return f"marts/{name}"


def _paths(table: DeltaTable) -> frozenset[str]:
    return frozenset(pa.table(table.get_add_actions(flatten=True))["path"].to_pylist())


def _holds(table: DeltaTable, wanted: pc.Expression | None, rows: pa.Table) -> bool:
    """Return whether a mart holds exactly these rows; False if it is damaged."""
    try:
        return _is_equal(table.to_pyarrow_dataset().to_table(filter=wanted), rows)
    except FAILURES as error:
        if isinstance(error, FileNotFoundError) or not is_damage(error):  # others may have deleted it
            raise
        return False


def _is_equal(present: pa.Table, rows: pa.Table) -> bool:
    if present.schema.names != rows.schema.names or present.num_rows != rows.num_rows:
        return False
    try:
        present = present.cast(rows.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    keys = [(field.name, "ascending") for field in rows.schema]
    return bool(present.sort_by(keys).equals(rows.sort_by(keys)))
