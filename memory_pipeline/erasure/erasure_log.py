"""The log of an erasure: rows removed and periods recomputed so far. The receipt is written from it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import Grain
from memory_pipeline.erasure.changes import texts_of
from memory_pipeline.erasure.report import LEAST_CHARACTERS, Removed, content_mark
from memory_pipeline.erasure.scanner import hex_of, in_parts
from memory_pipeline.erasure.subject_matcher import leaves
from memory_pipeline.lake.schema_types import Holds, has_texts
from memory_pipeline.lake.schemas import (
    MESSAGES,
    PROJECTED,
    table_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.erasure.scanner import SubjectScanner
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.vacuum import Purged

#: The tables of which no projection has all rows with all texts.
_TABLES: list[tuple[TableSpec, dict[str, str]]] = [
    (MESSAGES, {}),
    *map(table_of, Grain),
]


@dataclass
class ErasureLog:
    """Rows removed and periods recomputed.

    Attributes:
        scopes: agents that held data of the subject.
        remade: keys of the periods that were derived again, by grain.
        ids: hashes of the ids of removed or recomputed rows. Recomputed rows may have the same id as before.
        texts: texts of these rows. Recomputed rows may have the same text as before.
        scrubbed: texts of summaries that lost points. They hold nothing of the subject: a model may write them again.
        files, bytes: number and size of the deleted files.
        remarks: descriptions of data that may remain, because it cannot be attributed.
    """

    scopes: set[Scope] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    scrubbed: set[str] = field(default_factory=set)
    remade: dict[Grain, set[str]] = field(default_factory=lambda: defaultdict(set))
    files: int = 0
    bytes: int = 0
    remarks: list[str] = field(default_factory=list)
    _touched: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _partitions: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    def take(self, place: str, what: str, counts: Mapping[str, int] | int) -> None:
        """Add removed items of a place: counts by partition, or a total."""
        total = counts if isinstance(counts, int) else sum(counts.values())
        if total:
            self._counts[place, what] += total
            self._partitions[place, what] |= set() if isinstance(counts, int) else set(counts)

    def note(self, ids: Iterable[str], texts: Iterable[str | None]) -> None:
        """Add rows that are about to be removed or recomputed."""
        self.ids |= {hex_of(identifier) for identifier in ids}
        self.texts |= {text for text in texts if text is not None and len(text) >= LEAST_CHARACTERS}

    def touch(self, periods: Mapping[Grain, Collection[str]]) -> None:
        """Add periods that may have been recomputed."""
        for grain, keys in periods.items():
            self._touched[grain.value] |= set(keys)

    def purge(self, place: str, purged: Purged) -> None:
        """Add deleted files."""
        self.take(place, "files", purged.files)
        self.files += purged.files
        self.bytes += purged.bytes

    def remark(self, text: str) -> None:
        """Add a remark, unless it is already there."""
        if text not in self.remarks:
            self.remarks.append(text)

    @property
    def removed(self) -> tuple[Removed, ...]:
        """The removed items, sorted by place."""
        return tuple(
            Removed(place, what, count, tuple(sorted(self._partitions[place, what])))
            for (place, what), count in sorted(self._counts.items())
        )

    def gone(self, lake: Lake, scanner: SubjectScanner, salt: str) -> tuple[list[str], list[str]]:
        """Return the ids, and the digests of texts, that are no longer in the lake; both sorted."""
        ids, texts = set(self.ids), self.texts - self.scrubbed
        # Pending events may still name a removed memory.
        for file in lake.journal.pending():
            ids -= {hex_of(event.memory_id) for event in lake.journal.read(file).events}
        for spec, fixed in _TABLES:
            # Removed ids can only reappear in recomputed partitions, and in those of the subject's agents.
            keys = self._touched.get(fixed.get("grain", Grain.WORKING.value), set())
            for rows in scanner.parts(spec, ["id", "workspace_id", "agent_id"], keys=keys, **fixed):
                ids.difference_update(map(hex_of, rows["id"].to_pylist()))
        for rows in lake.archived.tables():
            ids.difference_update(map(hex_of, rows["id"].to_pylist()))
        for projection in lake.projections.values():
            named = {"id", "memory_id", "other_id"} & set(projection.schema.names)
            rows = projection.read(self.scopes, sorted(named))
            ids -= {hex_of(each) for name in named for each in rows[name].to_pylist() if each is not None}
        if texts:
            known = pa.array(sorted(texts), pa.string())
            for rows in _with_texts(lake):
                for _, found in leaves(rows, known):
                    texts.difference_update(found)
                if not texts:
                    return sorted(ids), []
            for file in lake.journal.pending():
                contents = lake.journal.read(file)
                texts.difference_update(message.content for message in contents.messages)
                texts.difference_update(
                    text for event in contents.events for text in texts_of(event.changes.to_record())
                )
        return sorted(ids), sorted(content_mark(salt, text) for text in texts)


def sentences_of(key_points: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the sentences of the points of summaries."""
    return pc.struct_field(pc.list_flatten(key_points), "sentence")


def _with_texts(lake: Lake) -> Iterator[pa.Table]:
    """Yield all texts of a lake: first those of the index and of projections, which are in few files."""
    holds = (Holds.WORDS, Holds.COPY, Holds.NOTE)
    for shard in range(lake.shards):
        yield lake.index.scan(["content"], shard=shard)
    for name, projection in lake.projections.items():
        for shard in range(lake.shards):
            yield projection.scan(PROJECTED[name].holding(*holds), shard=shard)
    for rows in lake.archived.tables():
        yield rows.select([column.name for column in rows.schema if has_texts(column.type)])
    for spec, fixed in _TABLES:
        for keys in in_parts(lake.tables.keys(spec, **fixed)):
            yield lake.tables.read(spec, keys, columns=spec.holding(*holds), shard=None, **fixed)
