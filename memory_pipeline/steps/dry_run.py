"""Dry runs: estimate the model calls of a run, and preview what it learns, without writing anything."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.fact_events import events_of
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.codec.facts import rows_to_facts
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.journal import Contents, Journal, JournalFile
from memory_pipeline.lake.lake import Lake
from memory_pipeline.lake.layout import SHARDS
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.lake.tables.ledger import index_asset, table_asset
from memory_pipeline.lake.tables.tables import Change, Tables, changed_keys, sorted_rows
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.steps.batches import batches_of, weights_of
from memory_pipeline.steps.extract import extract_facts
from memory_pipeline.steps.fold_memories import embed_memories
from memory_pipeline.steps.ingest import filter_journal, load_messages
from memory_pipeline.steps.scheduling.planner import grain_status, periods_in
from memory_pipeline.steps.summaries import summarize_periods

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import date, datetime

    from memory_pipeline.domain.facts import Extractor, Fact
    from memory_pipeline.domain.graph.operations import Edit
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import ScopeOf
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.models.factory import Models
    from memory_pipeline.steps.results import PartitionResult


class DryRunLake(Lake):
    """A lake that writes no byte. Its projections are the real ones: do not write them.

    What is appended to the journal, and partitions of tables, are kept in memory. It need not exist.
    """

    journal: CollectingJournal

    def __init__(self, uri: str, timezone: str | None = None, start: date | None = None) -> None:
        super().__init__(uri, timezone, start)
        self.storage = _DiscardingStorage(uri)
        self.journal = CollectingJournal(self.storage, self.scope)

    def ensure(self, oldest: datetime | None = None) -> None:  # noqa: ARG002  # as the lake's
        """Make a lake that does not exist, in memory."""
        if not self.exists:
            self._adopt({"timezone": self.calendar.timezone, "shards": SHARDS, "secret": token_hex()})

    @cached_property
    def tables(self) -> Tables:
        """The real tables, overlaid with the results of the dry run."""
        return OverlaidTables(Tables(self.storage, self.shards))


class _DiscardingStorage(Storage):
    def write(self, path: str, data: bytes) -> None:
        """Discard the data."""

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:  # noqa: ARG002  # as the storage's
        """Discard the data. Return whether the file is absent."""
        return not self.is_there(path)

    def overwrite(self, path: str, data: bytes) -> None:
        """Discard the data."""

    def delete(self, paths: Iterable[str]) -> None:
        """Delete nothing."""

    def remove(self, folder: str) -> None:
        """Delete nothing."""


class CollectingJournal(Journal):
    """A journal that keeps appended messages in memory, as the contents of the file :attr:`collected`."""

    def __init__(self, storage: Storage, scope_of: ScopeOf) -> None:
        super().__init__(storage, scope_of)
        self.appended: list[Message] = []

    def append(self, records: Sequence[Message | Edit | MemoryEvent]) -> list[str]:
        """Keep messages. Return no path, because there is no file."""
        self.appended += (record for record in records if isinstance(record, Message))
        return []

    @property
    def collected(self) -> JournalFile:
        """A file, without a path, with all appended messages."""
        hours = tuple(sorted({message.hour for message in self.appended}, key=lambda hour: hour.key))
        return JournalFile("", "", hours, 0, "", hours)

    def read(self, file: JournalFile, hours: Collection[Period] | None = None) -> Contents:
        """Return the records of a file."""
        if file.path:
            return super().read(file, hours)
        return Contents([message for message in self.appended if hours is None or message.hour in hours], [], [])


class OverlaidTables(Tables):
    """Tables that keep replaced partitions in memory and read all others from `base`."""

    def __init__(self, base: Tables) -> None:
        self._base = base
        self._over: dict[tuple[str, tuple[str, ...]], dict[str, pa.Table]] = {}

    def read(
        self,
        spec: TableSpec,
        keys: Collection[str] | None = None,
        *,
        columns: Collection[str] | None = None,
        where: pc.Expression | None = None,
        shard: int | None = None,
        scopes: Collection[str] | None = None,
        rare: Collection[str] = (),
        damaged: str = "raise",
        **fixed: str,
    ) -> pa.Table:
        """Return rows of the tables, as they would be after the dry run."""
        over = self._replaced(spec, fixed)
        below = set(self._base.keys(spec, **fixed) if keys is None else keys) - over.keys()
        parts = [
            self._base.read(
                spec,
                below,
                columns=columns,
                where=where,
                shard=shard,
                scopes=scopes,
                rare=rare,
                damaged=damaged,
                **fixed,
            )
        ]
        for key, rows in over.items():
            if keys is None or key in keys:
                found = rows if where is None else rows.filter(where)
                if scopes is not None:
                    found = found.filter(pc.field("scope").isin(list(scopes)))
                parts.append(found.select(parts[0].column_names))
        return pa.concat_tables(parts)

    def sizes(self, spec: TableSpec, **fixed: str) -> dict[str, int]:
        """Return the bytes of each partition: on disk, or in memory if it was replaced here."""
        over = self._replaced(spec, fixed)
        below = {key: size for key, size in self._base.sizes(spec, **fixed).items() if key not in over}
        return below | {key: rows.nbytes for key, rows in over.items() if rows.num_rows}

    def counts(self, spec: TableSpec, **fixed: str) -> dict[str, int]:
        """Return the number of rows of each partition."""
        over = self._replaced(spec, fixed)
        return self._base.counts(spec, **fixed) | {key: rows.num_rows for key, rows in over.items()}

    def version(self, spec: TableSpec) -> int:
        """Return the version of the table in `base`."""
        return self._base.version(spec)

    def transform(
        self,
        spec: TableSpec,
        keys: Collection[str],
        change: Change,
        *,
        remade: Collection[str] = (),
        shard: int | None = None,
        **fixed: str,
    ) -> frozenset[str]:
        """Replace partitions in memory. A dry run processes all shards at once."""
        damaged = "skip" if frozenset(keys) <= frozenset(remade) else "raise"
        old = sorted_rows(self.read(spec, keys, shard=shard, damaged=damaged, **fixed), spec)
        new = sorted_rows(change(old).select(spec.schema.names).cast(spec.schema), spec)
        changed = changed_keys(old, new, spec)
        column = new.column(spec.partition_by[-1])
        for key in changed:
            self._replaced(spec, fixed)[key] = new.filter(pc.equal(column, key))
        return frozenset(changed)

    def _replaced(self, spec: TableSpec, fixed: Mapping[str, str]) -> dict[str, pa.Table]:
        values = tuple(fixed[name] for name in spec.partition_by[:-1])
        return self._over.setdefault((spec.name, values), {})


def dry_run(
    lake: DryRunLake,
    models: Models,
    start: date,
    now: datetime,
    between: tuple[datetime, datetime] | None = None,
) -> Iterator[tuple[Grain, list[Period]]]:
    """Simulate a run of the pending periods, or those in `between`. Yield the periods of each grain.

    `models` count requests and return placeholders. Each grain sees the simulated results of the finer one.
    """
    for grain in Grain:
        if between is None:
            periods = grain_status(lake, grain, start, now).pending
        else:
            periods = periods_in(lake, grain, *between, now)
        for batch in batches_of(weights_of(lake, grain, periods), grain, periods):
            results = _run_steps(lake, models, grain, batch)
            indexed = [
                replace(part, asset=index_asset(grain), input_digest=part.output_digest)
                for part in results
                if part.asset == table_asset(grain)
            ]
            lake.ledger.record(part.entry for part in [*results, *indexed])
        yield grain, periods


def _run_steps(lake: DryRunLake, models: Models, grain: Grain, batch: list[Period]) -> list[PartitionResult]:
    if grain is not Grain.WORKING:
        return summarize_periods(lake, models.summarizer, models.embedder, grain, batch)
    journal = filter_journal(lake, set(batch))
    messages = load_messages(lake, batch, journal)
    facts = extract_facts(lake, models.extractor, models.embedder, batch)
    # The graph needs no model; durable memories need the embedder.
    embed_memories(lake, models.embedder, batch, journal.events)
    return [*messages, *facts]


class Learned(NamedTuple):
    """What a run would make of messages.

    Attributes:
        facts: by conversation, in order; their operations are changes of the graph.
        events: of durable memories, as stated in the messages; equal memories are not merged yet.
        expired: number of messages that a run would drop, because their day has expired.
    """

    facts: list[Fact]
    events: list[MemoryEvent]
    expired: int


def learn(lake: DryRunLake, extractor: Extractor) -> Learned:
    """Extract facts from the messages that were appended to the journal of a dry-run lake."""
    hours = list(lake.journal.collected.hours)
    filtered = filter_journal(lake, hours, [lake.journal.collected])
    ids = {message.id for contents in filtered.contents.values() for message in contents.messages}
    load_messages(lake, hours, filtered)
    extract_facts(lake, extractor, HashingEmbedder(), hours)  # nobody searches the vectors
    rows = lake.tables.read(FACTS, [hour.key for hour in hours])
    rows = rows.filter(
        pa.array([not ids.isdisjoint(sources) for sources in rows["message_ids"].to_pylist()], pa.bool_())
    )
    facts = sorted(rows_to_facts(rows), key=lambda one: (one.scope.ids, one.conversation_id, one.turn, one.position))
    return Learned(facts, events_of(facts, lake.configuration().memories), filtered.expired.total())
