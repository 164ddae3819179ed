"""The journal's unprocessed tail: what was written and is not in the index yet, made searchable in memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.lake.rows import facts_to_index, facts_to_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.facts import Extractor
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.vectors import Filter

#: Words of a query that are looked for in the tail.
_MOST_WORDS = 50


class Tail:
    """Keeps the facts of one agent's pending files, each file read and extracted once.

    The facts are those that the pipeline will make, with the same ids: whoever has both a fact of the tail and one of
    the index has the same fact twice and drops one. Read the tail before the index: what is acknowledged in between is
    then found in both, never in neither.
    """

    def __init__(self, lake: Lake, scope: Scope, extractor: Extractor, embedder: Embedder) -> None:
        self._lake = lake
        self._scope = scope
        self._extractor = extractor
        self._embedder = embedder
        self._files: dict[str, pa.Table | None] = {}
        self._rows: pa.Table | None = None

    def newest(self, where: Filter, limit: int) -> list[pa.Table]:
        """Return the rows that pass and were said last, at most `limit`; no table if the tail is empty."""
        rows = self._filtered(where)
        return [] if rows is None else [rows.sort_by([("ends_at", "descending"), ("id", "ascending")]).slice(0, limit)]

    def matching(self, where: Filter, limit: int, vector: NDArray[np.float32], query: str) -> list[pa.Table]:
        """Return the rows that pass and are nearest to `vector` or share most words with `query`, `limit` of each."""
        rows = self._filtered(where)
        if rows is None or rows.num_rows <= limit:
            return [] if rows is None else [rows]
        vectors = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        nearness = vectors.reshape(rows.num_rows, -1) @ vector
        words = list(dict.fromkeys(re.findall(r"\w+", query)))[:_MOST_WORDS]
        shared = np.zeros(rows.num_rows)
        for word in words:
            shared += pc.match_substring(rows["content"], word, ignore_case=True).to_numpy()
        best = {*_top(nearness, limit), *_top(shared, limit)}
        return [rows.take(pa.array(sorted(best)))]

    def _filtered(self, where: Filter) -> pa.Table | None:
        rows = self._table()
        return None if rows is None else where.apply(rows)

    def _table(self) -> pa.Table | None:
        """Return the facts of all pending files; None if there are none."""
        files = self._lake.journal.pending(self._scope)
        paths = {file.path for file in files}
        if paths == self._files.keys():
            return self._rows
        self._files = {path: table for path, table in self._files.items() if path in paths}
        for file in files:
            if file.path not in self._files:
                messages, _ = self._lake.journal.read(file)
                memorable = [message for message in messages if message.role.is_memorable]
                facts = self._extractor.extract(memorable)
                # No facts, no vectors, no table: nothing memorable, or acknowledged since it was listed.
                self._files[file.path] = facts_to_index(facts_to_rows(facts, self._embedder)) if facts else None
        tables = [table for table in self._files.values() if table is not None]
        self._rows = pa.concat_tables(tables).combine_chunks() if tables else None
        return self._rows


def _top(values: NDArray[np.floating], count: int) -> Sequence[int]:
    """Return the places of the `count` greatest values; of equals, the first."""
    places: list[int] = np.argsort(-values, kind="stable")[:count].tolist()
    return places
