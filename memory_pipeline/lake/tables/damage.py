"""Finds damaged files of a table: missing, truncated, or with another schema.

Reading a set of files fails at the first damaged one. After such a failure, the files are read one by one, to name all
damaged ones and to continue with the others.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.errors import DamagedError, shown
from memory_pipeline.lake.files.storage_errors import REMEDY, is_of_store
from memory_pipeline.lake.tables.partitions import dataset, keys_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec


_log = logging.getLogger(__name__)

#: The exceptions that pyarrow raises for a damaged file.
FAILURES = (pa.ArrowException, OSError)
_THREADS = 8


def is_damage(error: BaseException) -> bool:
    """Return whether an error means that a file is damaged, not that a disk or server failed."""
    if isinstance(error, FileNotFoundError):
        return True
    if isinstance(error, OSError):
        return error.errno is None and not is_of_store(error)
    return isinstance(error, pa.ArrowException)


def damaged_files(
    storage: Storage, files: pa.Table, spec: TableSpec, columns: Collection[str] | None = None
) -> pa.Table:
    """Return the unreadable files of a list from the table's log, with a column `why`. Reads all of them."""
    names = [name for name in spec.schema.names if columns is None or name in columns]
    schema = pa.schema([spec.schema.field(name) for name in names])

    def fault(some: slice) -> str | None:
        try:
            for batch in dataset(storage, files[some], spec).to_batches(columns=names):
                pa.Table.from_batches([batch]).cast(schema)
        except FAILURES as error:
            if not is_damage(error):
                raise
            return "it is missing" if isinstance(error, FileNotFoundError) else _first_line(error)
        return None

    if fault(slice(None)) is None:  # all at once takes half of the time
        return files.slice(0, 0).append_column("why", pa.array([], pa.string()))
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda at: fault(slice(at, at + 1)), range(files.num_rows))
        faults = pa.array(list(found), pa.string())
    return files.append_column("why", faults).filter(pc.is_valid(faults))


def sound_files(
    storage: Storage,
    files: pa.Table | None,
    spec: TableSpec,
    error: Exception,
    remade: Collection[str] | None = (),
    columns: Collection[str] | None = None,
) -> tuple[pa.Table, set[str]]:
    """Return the readable files of a list from the table's log, and the partitions of the others.

    `error` is the failure of reading all of them. It is raised again if no file is damaged. Damaged files may be
    skipped in the partitions `remade`, or in all if it is None.

    Raises:
        DamagedError: files of other partitions are damaged.
    """
    if files is None or not is_damage(error):
        raise error
    damaged = damaged_files(storage, files, spec, columns)
    if not damaged.num_rows:
        raise error
    is_damaged = pc.is_in(files["path"], damaged["path"].combine_chunks())
    keys = set(keys_of(damaged, spec))
    if remade is not None and not keys <= set(remade):
        raise damaged_error(spec, damaged) from error
    _log.warning("table %s: damaged files of %s are skipped", spec.name, ", ".join(sorted(keys)))
    return files.filter(pc.invert(is_damaged)), keys


def damaged_error(spec: TableSpec, damaged: pa.Table) -> DamagedError:
    """Return the error for files from :func:`damaged_files`, with the remedy."""
    path, why = min(zip(damaged["path"].to_pylist(), damaged["why"].to_pylist(), strict=True))
    others = f", nor can {damaged.num_rows - 1:,} more of its files" if damaged.num_rows > 1 else ""
    return DamagedError(
        f"table {spec.name}: tables/{spec.name}/{path} cannot be read{others}: {why}; {REMEDY}",
        keys_of(damaged, spec),
    )


def damaged_log(path: str, error: Exception) -> DamagedError:
    """Return the error for a table with an unreadable log, with the remedy."""
    return DamagedError(f"table {path}: its log {path}/_delta_log cannot be read: {_first_line(error)}; {REMEDY}")


def _first_line(error: Exception) -> str:
    text = str(error).partition("\n")[0].strip()
    # The text before is the address of the file, which the message names already.
    return shown(text.rpartition("': ")[2].strip() or type(error).__name__, 160)
