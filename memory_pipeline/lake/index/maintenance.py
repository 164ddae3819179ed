"""Compaction of Lance tables: small files are put together, deleted rows leave, old versions go."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_pipeline.lake.index.lance_internals import LONGEST_WRITE, files_of, files_with_deletions, places_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from memory_pipeline.lake.files.storage import Storage


#: A row is the same as long as its digest and its vector's embedder are.
SAME = (
    "target.digest = source.digest AND (target.embed_model = source.embed_model "
    "OR (target.embed_model IS NULL AND source.embed_model IS NULL))"
)
#: An item of a collection is the same as long as all that it was written with is.
SAME_ITEM = " AND ".join(f"target.{name} = source.{name}" for name in ("content", "metadata", "vector"))


#: Fewer small files than this are left alone, and files of more rows are not put together, as they are read at once.
_FEW, _MOST_ROWS = 8, 100_000


def _worth_compacting(ids: NDArray[np.uint64], least: int) -> list[int]:
    """Return the numbers of the small files of a table, and of those of whose rows half are deleted.

    Args:
        ids: the numbers of the table's rows, sorted: the number of a file, and the place in it.
        least: fewer small files than this are left alone.
    """
    files, starts, counts = np.unique(files_of(ids), return_index=True, return_counts=True)
    written = places_of(ids[starts + counts - 1]) + 1  # or more, if the last ones were deleted
    small: list[int] = []
    rows = 0
    for place in np.argsort(counts, kind="stable"):
        count = int(counts[place])
        if count > _MOST_ROWS or (len(small) > 1 and count > rows):
            break
        small.append(int(files[place]))
        rows += count
    hollow = files[(counts <= _MOST_ROWS) & (written >= 2 * counts) & (written > 1)].tolist()
    return sorted({*hollow, *(small if len(small) >= least else [])})


#: Compaction writes a file anew when more of its rows than this were deleted.
_MATERIALIZED = 0.1
#: At once: of nought, lancedb warns at every table.
_MOMENT = timedelta(milliseconds=1)


async def compact(table: Any, same: str | None, least: int = _FEW) -> int:
    """Merge a table's small files into one, in one commit; return the bytes of their rows.

    LanceDB's own ``optimize()`` writes nearly the whole table anew, however little has come. Here a file is merged only
    with files that are together at least as large, so that a row is written again once each time the table doubles.
    The rows that were merged are in no index until the indices are made again.

    Args:
        table: which.
        same: the condition under which a row is still the one that was read, on ``target`` and ``source``; None where
            a row never changes.
        least: fewer small files than this are left alone.
    """
    await table.checkout_latest()
    ids = np.sort((await table.query().select([]).with_row_id().to_arrow())["_rowid"].to_numpy())
    chosen = _worth_compacting(ids, least)
    if not chosen:
        return 0
    rows = await table.take_row_ids(ids[np.isin(files_of(ids), chosen)].tolist()).to_arrow()
    await _rewrite(table, rows, same)
    return int(rows.nbytes)


async def compact_deletes(table: Any, storage: Storage, path: str, same: str) -> None:
    """Take from the disk the rows that were deleted from a table, and its old versions.

    Args:
        table: which.
        storage: the lake's files.
        path: the table's folder.
        same: the condition under which a row is still the one that was read, on ``target`` and ``source``.
    """
    marked = files_with_deletions(storage, path)
    if marked:
        ids = (await table.query().select(["id"]).with_row_id().to_arrow())["_rowid"].to_numpy()
        beside = np.concatenate([_left_alone(ids[files_of(ids) == file]) for file in marked])
        if beside.size:
            await _rewrite(table, await table.take_row_ids(beside.tolist()).to_arrow(), same)
    await _vacuum(table)


async def rewrite(table: Any, storage: Storage, path: str, same: str, indices: Mapping[str, Any]) -> None:
    """Write all rows and indices of a table anew, so that the disk holds nothing else of it.

    Files that were left behind by who was killed go too, once they are older than any write takes.

    Args:
        table: which.
        storage: the lake's files.
        path: the table's folder.
        same: the condition under which a row is still the one that was read, on ``target`` and ``source``.
        indices: configurations of the indices by column.
    """
    await _rewrite(table, await table.query().to_arrow(), same)
    for column, config in indices.items():
        await table.create_index(column, config=config, replace=True)
    await _vacuum(table)
    files = storage.list(path)
    newest = max(entry.modified_at for entry in files)
    storage.delete(entry.path for entry in files if newest - entry.modified_at > LONGEST_WRITE)


def _left_alone(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the rows of a file, if compaction does not write it anew because so few of its rows were deleted."""
    rows = int(places_of(ids).max()) + 1 if ids.size else 0  # or more, if the last ones were deleted
    return ids if rows - ids.size <= _MATERIALIZED * rows else ids[:0]


async def _rewrite(table: Any, rows: pa.Table, same: str | None) -> None:
    """Write rows of a table anew, but for those that are no longer the same."""
    if rows.num_rows:
        await table.merge_insert("id").when_matched_update_all(where=same).execute(rows, on_bad_vectors="null")


async def _vacuum(table: Any) -> None:
    await table.optimize()
    await asyncio.sleep(_MOMENT.total_seconds() * 2)  # or the version before would be too young to go
    await table.optimize(cleanup_older_than=_MOMENT)
