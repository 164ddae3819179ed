"""The journal's unprocessed tail: what was written and is not in the index yet, made searchable in memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.lake.rows import facts_to_index, facts_to_rows, vectors_of
from memory_pipeline.models.deterministic import DeterministicExtractor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.vectors import Filter

#: Words of a query that are looked for in the tail.
_MOST_WORDS = 50


class Tail:
    """Keeps the facts of one agent's pending files, each file read and extracted once, by rules: no model is asked.

    Turns are those that the pipeline will make, with the same ids, and so are facts where it works by rules too:
    whoever has both a fact of the tail and one of the index has the same fact twice and drops one. Read the tail
    before the index: what is acknowledged in between is then found in both, never in neither.
    """

    def __init__(self, lake: Lake, scope: Scope, embedder: Embedder) -> None:
        self._lake = lake
        self._scope = scope
        self._extractor = DeterministicExtractor(lake.calendar.timezone)
        self._embedder = embedder
        self._files: dict[str, pa.Table | None] = {}
        self._rows: pa.Table | None = None

    def newest(self, where: Filter, limit: int) -> list[pa.Table]:
        """Return the rows that pass and were said last, at most `limit`; no table if the tail is empty."""
        rows = self._filtered(where)
        return [] if rows is None else [rows.sort_by([("ends_at", "descending"), ("id", "ascending")]).slice(0, limit)]

    def matching(self, where: Filter, limit: int, vector: NDArray[np.float32] | None, query: str) -> list[pa.Table]:
        """Return the rows that pass and are nearest to `vector` or share most words with `query`, `limit` of each."""
        rows = self._filtered(where)
        if rows is None or rows.num_rows <= limit:
            return [] if rows is None else [rows]
        words = list(dict.fromkeys(re.findall(r"\w+", query)))[:_MOST_WORDS]
        shared = np.zeros(rows.num_rows)
        for word in words:
            shared += pc.match_substring(rows["content"], word, ignore_case=True).to_numpy()
        best = set(_top(shared, limit))
        if vector is not None:
            best.update(_top(np.nan_to_num(vectors_of(rows, len(vector)) @ vector, nan=-1.0), limit))
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
        new = {
            file.path: self._extractor.facts_of(self._lake.journal.read(file)[0])
            for file in files
            if file.path not in self._files
        }
        # A file without facts holds nothing memorable, or was acknowledged since it was listed.
        self._files = {path: table for path, table in self._files.items() if path in paths}
        self._files |= dict.fromkeys(new)
        self._files |= self._embedded({path: facts for path, facts in new.items() if facts})
        tables = [table for table in self._files.values() if table is not None]
        self._rows = pa.concat_tables(tables).combine_chunks() if tables else None
        return self._rows

    def _embedded(self, facts: dict[str, list[Fact]]) -> dict[str, pa.Table]:
        """Return the facts of files as rows of the index, with vectors made in one batch."""
        if not facts:
            return {}
        together = facts_to_rows([fact for part in facts.values() for fact in part])
        vectors = self._embedder.embed(together["content"].to_pylist())
        lists = [None if np.isnan(vector[0]) else vector for vector in vectors]
        at = together.schema.get_field_index("vector")
        column = pa.array(lists, together.schema.field(at).type)
        names = pa.array([None if vector is None else self._embedder.name for vector in lists], pa.string())
        together = together.set_column(at, "vector", column).set_column(at + 1, "embed_model", names)
        rows = facts_to_index(together, self._embedder.dimension)
        tables, start = {}, 0
        for path, part in facts.items():
            tables[path] = rows.slice(start, len(part))
            start += len(part)
        return tables


def _top(values: NDArray[np.floating], count: int) -> Sequence[int]:
    """Return the places of the `count` greatest values; of equals, the first."""
    places: list[int] = np.argsort(-values, kind="stable")[:count].tolist()
    return places
