"""The journal's unprocessed tail: what was written and is not in the index yet, made searchable in memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from memory_pipeline.lake.rows import facts_to_index, facts_to_rows
from memory_pipeline.models.deterministic import DeterministicExtractor
from memory_pipeline.reader.segment import Segment

if TYPE_CHECKING:
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake


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
        self._segment: Segment | None = None
        self._lock = threading.Lock()

    def segment(self) -> Segment | None:
        """Return the facts of all pending files; None if there are none."""
        files = self._lake.journal.pending(self._scope)
        paths = {file.path for file in files}
        with self._lock:
            if paths == self._files.keys():
                return self._segment
            new = {
                file.path: self._extractor.facts_of(self._lake.journal.read(file)[0])
                for file in files
                if file.path not in self._files
            }
            # A file without facts holds nothing memorable, or was acknowledged since it was listed.
            kept: dict[str, pa.Table | None] = {path: rows for path, rows in self._files.items() if path in paths}
            kept |= dict.fromkeys(new)
            kept |= self._embedded({path: facts for path, facts in new.items() if facts})
            tables = [rows for rows in kept.values() if rows is not None]
            self._segment = Segment.of(pa.concat_tables(tables), self._embedder.dimension) if tables else None
            self._files = kept
            return self._segment

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
