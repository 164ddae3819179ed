"""The journal's unprocessed tail: what was written and is not in the index yet, made searchable in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.lake.rows import facts_to_index, facts_to_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.facts import Extractor
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake


class Tail:
    """Keeps the facts of one agent's pending files, each file read and extracted once.

    The facts are those that the pipeline will make, with the same ids: whoever has both a fact of the tail and one of
    the index has the same fact twice and drops one.
    """

    def __init__(self, lake: Lake, scope: Scope, extractor: Extractor, embedder: Embedder) -> None:
        self._lake = lake
        self._scope = scope
        self._extractor = extractor
        self._embedder = embedder
        self._files: dict[str, pa.Table | None] = {}

    def rows(self) -> list[pa.Table]:
        """Return the facts of all pending files as rows of the index, a table a file.

        Read the tail before the index: what is acknowledged in between is then found in both, never in neither.
        """
        files = self._lake.journal.pending(self._scope)
        self._files = {file.path: self._files.get(file.path) for file in files if file.path in self._files}
        for file in files:
            if file.path not in self._files:
                messages, _ = self._lake.journal.read(file)
                memorable = [message for message in messages if message.role.is_memorable]
                facts = self._extractor.extract(memorable)
                # No facts, no vectors, no table: nothing memorable, or acknowledged since it was listed.
                self._files[file.path] = facts_to_index(facts_to_rows(facts, self._embedder)) if facts else None
        return [table for table in self._files.values() if table is not None]
