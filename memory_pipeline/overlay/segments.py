"""Segments: small pending files of a scope, merged into one, with the facts of its messages beside it.

Each write is a file of its own. Without runs, thousands of files would remain: every write lists them, and the first
search of a process reads them all. So a writer that finds many small files merges some of them, as a log-structured
merge tree does: 64 writes become a segment, and 16 segments become a larger one. The rules read each message
once, when it is merged; readers load the facts from an Arrow file.

A segment is written before the files that it is made of are deleted. A process that is killed in between leaves records
in two files, which count once, as they have the same ids. Erased records are left out. If something is erased
meanwhile, the segment is deleted, because the erasure removes records only from the files that it found.
"""

from __future__ import annotations

from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Final

from memory_pipeline.lake.journal import facts_path, level_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from memory_pipeline.domain.graph.operations import Edit
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import JournalFile

#: The least number of files of each level that are merged.
LEAST: Final = (64, 16)
#: Most files that one call merges, and the size of the largest, in bytes: more work would delay a write.
_MOST, _LARGEST = 128, 1 << 20
#: The rules that made the facts, in the metadata of their file.
_RULES: Final = b"memory_pipeline.rules"


def is_due(paths: Iterable[str]) -> bool:
    """Return whether files of a scope's folder should be merged."""
    return bool(_due([path for path in paths if level_of(path) is not None]))


def least_entries(paths: Iterable[str]) -> int:
    """Return a number of entries that files of a scope's folder have at least, without reading them."""
    return sum(prod(LEAST[: level_of(path) or 0]) for path in paths)


def _due(paths: Sequence[str]) -> list[str]:
    """Return the files of the lowest level that has enough of them, in the order of their writes."""
    for level, least in enumerate(LEAST):
        found = [path for path in paths if level_of(path) == level]
        if len(found) >= least:
            return sorted(found, key=lambda path: path.rpartition("__")[2])
    return []


def merge(lake: Lake, scope: Scope, embedder: Embedder | None) -> None:
    """Merge small pending files of a scope, if there are many. Safe while others read, write, run and erase.

    The facts get the vectors of `embedder`, if it is given.
    """
    forgotten = lake.tombstones.forgotten()
    whole = {
        file.path: file
        for file in lake.journal.pending(scope)
        if file.size <= _LARGEST and file.pending_hours == file.hours
    }
    files = [whole[path] for path in _due(list(whole))[:_MOST]]
    messages: list[Message] = []
    others: list[Message | Edit | MemoryEvent] = []
    merged: list[JournalFile] = []
    facts: list[pa.Table | None] = []
    for file in files:
        contents = lake.journal.read(file)
        if contents.rejected:
            continue  # it is set aside by a run, with its reason
        remaining = forgotten.filter(contents.messages)
        plain = [one for one in remaining if not one.edits]
        messages += plain
        others += [one for one in remaining if one.edits]
        others += [*forgotten.filter(contents.edits), *forgotten.filter(contents.events)]
        if plain:  # stored facts may include those of erased messages
            facts.append(stored_facts(lake, file) if len(remaining) == len(contents.messages) else None)
        merged.append(file)
    if len(merged) < min(LEAST):
        return
    paths = [file.path for file in merged]
    level = 1 + max(level_of(path) or 0 for path in paths)
    written = []
    if messages:
        unique = list({one.id: one for one in messages}.values())
        written.append(lake.journal.write_segment(unique, level, paths, _facts_of(lake, unique, facts, embedder)))
    if others:
        written.append(lake.journal.write_segment(others, level, paths, None))
    is_erased = lake.tombstones.forgotten() is not forgotten
    lake.journal.delete(written if is_erased else paths)


def _facts_of(
    lake: Lake, messages: Sequence[Message], stored: Sequence[pa.Table | None], embedder: Embedder | None
) -> bytes:
    """Return the facts of messages as an Arrow file, made of stored facts if all are stored."""
    import pyarrow as pa

    from memory_pipeline.lake.codec.facts import facts_to_rows
    from memory_pipeline.lake.corrections import paths_among
    from memory_pipeline.lake.index.index_rows import with_vectors
    from memory_pipeline.models.deterministic.extraction import DeterministicExtractor

    extractor = DeterministicExtractor(lake.calendar.timezone)
    tables = [table for table in stored if table is not None]
    entries = lake.journal.entries(messages[0].scope)
    corrections = lake.corrections.in_force(entries)
    if stored and len(tables) == len(stored) and not paths_among(entries):
        rows = pa.concat_tables(tables)
        by_id = dict(zip(rows["id"].to_pylist(), range(rows.num_rows), strict=True))
        rows = rows.take(list(by_id.values()))
    else:
        # The facts of an answer depend on the next message of the conversation.
        talks = sorted(lake.as_evidence(messages, corrections), key=lambda one: one.conversation_id)
        grouped = groupby(talks, key=lambda one: one.conversation_id)
        rows = facts_to_rows([fact for _, talk in grouped for fact in extractor.facts_of(list(talk))])
        rows = rows if embedder is None else with_vectors(rows, embedder)
    sink = pa.BufferOutputStream()
    schema = rows.schema.with_metadata({_RULES: extractor.name.encode()})
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows.replace_schema_metadata(schema.metadata).combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data


def stored_facts(lake: Lake, file: JournalFile) -> pa.Table | None:
    """Return the facts of the pending hours of a segment, as rows of the ``facts`` table.

    None if there are none, or if the file of facts cannot be read, or is of other rules or another version.
    """
    if not level_of(file.path):
        return None
    data = lake.storage.read(facts_path(file.path))
    if data is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    from memory_pipeline.lake.schemas import FACTS
    from memory_pipeline.models.deterministic.extraction import DeterministicExtractor

    try:
        rows = pa.ipc.open_file(data).read_all()
    except (pa.ArrowInvalid, OSError):
        return None  # derived: the rules read the messages again
    rules = DeterministicExtractor(lake.calendar.timezone).name.encode()
    if (rows.schema.metadata or {}).get(_RULES) != rules or not rows.schema.equals(FACTS.schema):
        return None
    if file.pending_hours == file.hours:
        return rows
    keys = pa.array([hour.key for hour in file.pending_hours], pa.string())
    return rows.filter(pc.is_in(rows["period"], keys))
