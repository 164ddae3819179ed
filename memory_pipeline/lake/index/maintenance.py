"""Maintenance of Lance tables: merge small files, remove deleted rows, delete old versions."""

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


#: Two rows are the same if their digests and their vectors' embedders are.
SAME = (
    "target.digest = source.digest AND (target.embed_model = source.embed_model "
    "OR (target.embed_model IS NULL AND source.embed_model IS NULL))"
)
#: Two items of a collection are the same if everything that was written is.
SAME_ITEM = " AND ".join(f"target.{name} = source.{name}" for name in ("content", "metadata", "vector"))


#: Fewer small files than this are not merged, and neither are files of more rows, as they are read at once.
_FEW, _MOST_ROWS = 8, 100_000


def _worth_compacting(ids: NDArray[np.uint64], least: int) -> list[int]:
    """Return the numbers of a table's small files, and of files with at least half of their rows deleted.

    Args:
        ids: of the table's rows, sorted: file number and position in it.
        least: return nothing for fewer small files than this.
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


#: A table of so few rows is rewritten as a whole, indices too. The version after a merge has 66 kB about its keys.
_WHOLE_ROWS = 2_000
#: Compaction rewrites a file if more than this share of its rows was deleted.
_MATERIALIZED = 0.1
#: Immediately: for zero, lancedb warns at every table.
_MOMENT = timedelta(milliseconds=1)


async def compact(table: Any, same: str | None, least: int = _FEW) -> int:
    """Merge a table's small files into one, in one commit. Return the bytes of the merged rows.

    LanceDB's own ``optimize()`` rewrites nearly the whole table, however little is new, and is used for small tables
    only. In others, a file is merged only with files that are together at least as large, so a row is rewritten once
    each time the table doubles. Merged rows are unindexed until the indices are rebuilt.

    Args:
        table: an open Lance table.
        same: the condition on ``target`` and ``source`` under which a row is unchanged since it was read; None if rows
            never change.
        least: do nothing for fewer small files than this.
    """
    await table.checkout_latest()
    ids = np.sort((await table.query().select([]).with_row_id().to_arrow())["_rowid"].to_numpy())
    chosen = _worth_compacting(ids, least)
    if not chosen:
        return 0
    if len(ids) <= _WHOLE_ROWS:
        await _vacuum(table)
        return int((await table.stats())["total_bytes"])
    rows = await table.take_row_ids(ids[np.isin(files_of(ids), chosen)].tolist()).to_arrow()
    await rewrite_rows(table, rows, same)
    return int(rows.nbytes)


async def compact_deletes(table: Any, storage: Storage, path: str, same: str) -> None:
    """Remove deleted rows and old versions of a table from the disk.

    Args:
        table: an open Lance table.
        storage: the lake's files.
        path: the table's folder.
        same: the condition on ``target`` and ``source`` under which a row is unchanged since it was read.
    """
    marked = files_with_deletions(storage, path)
    if marked:
        ids = (await table.query().select(["id"]).with_row_id().to_arrow())["_rowid"].to_numpy()
        beside = np.concatenate([_left_alone(ids[files_of(ids) == file]) for file in marked])
        if beside.size:
            await rewrite_rows(table, await table.take_row_ids(beside.tolist()).to_arrow(), same)
    await _vacuum(table)


async def rewrite(table: Any, storage: Storage, path: str, same: str, indices: Mapping[str, Any]) -> None:
    """Rewrite all rows and indices of a table, so that the disk holds nothing else of it.

    Files left by killed writers are deleted too, once they are older than any write takes.

    Args:
        table: an open Lance table.
        storage: the lake's files.
        path: the table's folder.
        same: the condition on ``target`` and ``source`` under which a row is unchanged since it was read.
        indices: configurations of the indices by column.
    """
    await rewrite_rows(table, await table.query().to_arrow(), same)
    for column, config in indices.items():
        await table.create_index(column, config=config, replace=True)
    await _vacuum(table)
    files = storage.list(path)
    newest = max(entry.modified_at for entry in files)
    storage.delete(entry.path for entry in files if newest - entry.modified_at > LONGEST_WRITE)


def _left_alone(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a file's rows if compaction skips the file, because few of its rows were deleted; otherwise none."""
    rows = int(places_of(ids).max()) + 1 if ids.size else 0  # or more, if the last ones were deleted
    return ids if rows - ids.size <= _MATERIALIZED * rows else ids[:0]


async def rewrite_rows(table: Any, rows: pa.Table, same: str | None) -> None:
    """Rewrite those rows of a table that are unchanged."""
    if rows.num_rows:
        await table.merge_insert("id").when_matched_update_all(where=same).execute(rows, on_bad_vectors="null")


async def _vacuum(table: Any) -> None:
    await table.optimize()
    await asyncio.sleep(_MOMENT.total_seconds() * 2)  # otherwise the previous version would be too young
    await table.optimize(cleanup_older_than=_MOMENT)
