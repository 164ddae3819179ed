"""The journal's unprocessed tail: what was written and is not in the index yet, made searchable in memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from memory_pipeline.lake.codec.facts import facts_to_rows
from memory_pipeline.lake.index.index_rows import facts_to_index
from memory_pipeline.reader.segment import RowBlock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.graph.pending import PendingJournal


class PendingRows:
    """Keeps the facts of one agent's pending files as rows of the index, each embedded once.

    Turns are those that the pipeline will make, with the same ids, and so are facts where it works by rules too:
    whoever has both a fact of the tail and one of the index has the same fact twice and drops one. Read the tail
    before the index: what is acknowledged in between is then found in both, never in neither.
    """

    def __init__(self, pending: PendingJournal, embedder: Embedder) -> None:
        self._pending = pending
        self._embedder = embedder
        self._files: dict[str, pa.Table | None] = {}
        self._segment: RowBlock | None = None
        self._lock = threading.Lock()

    def segment(self) -> RowBlock | None:
        """Return the facts of all pending files; None if there are none."""
        files = self._pending.files()
        with self._lock:
            if files.keys() == self._files.keys():
                return self._segment
            new = {path: file.facts for path, file in files.items() if path not in self._files}
            kept: dict[str, pa.Table | None] = {path: rows for path, rows in self._files.items() if path in files}
            kept |= dict.fromkeys(new)
            kept |= self._embedded({path: facts for path, facts in new.items() if facts})
            tables = [rows for rows in kept.values() if rows is not None]
            self._segment = RowBlock.of(pa.concat_tables(tables), self._embedder.dimension) if tables else None
            self._files = kept
            return self._segment

    def _embedded(self, facts: Mapping[str, Sequence[Fact]]) -> dict[str, pa.Table]:
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
