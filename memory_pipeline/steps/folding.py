"""Fold records into a projection by scope: operations into graphs, events into durable memories.

Records are tables by period. A projection has the same rows by scope (the sources), and a second one their fold, which
readers see. A run writes the records of its hours, makes the sources equal to them, and folds the scopes whose sources
changed. Besides the fold, each scope has a row with its state, which says what was folded.

A :class:`Fold` is what a feature adds: how its records come from facts, and how its sources are folded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.retention import WORKING_CLASSES
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.codec.codec import fold_state
from memory_pipeline.lake.index.filters import listed
from memory_pipeline.lake.schemas import FACTS, MESSAGES
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.group import agents_in, by_period, by_scope, scopes_in
from memory_pipeline.steps.results import NO_ROWS, PartitionResult, RowDigests, digests_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.scoped_rows import ScopedRows
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.ledger import LedgerEntry

#: Maximum number of attempts if concurrent runs keep changing the same rows.
_ATTEMPTS = 10
#: Maximum number of scopes that are folded at a time.
_SCOPES_AT_ONCE = 2_000
#: Periods that are listed in a condition.
_PERIODS_AT_ONCE = 1_000

#: Rows to write, the scopes that are folded with them, and the condition on the stored rows that they replace.
Folded = tuple[pa.Table, list["Scope"], str]


class Synced(NamedTuple):
    """Sources of some periods, before and after they were made equal to their records."""

    before: pa.Table
    after: pa.Table

    @property
    def changed(self) -> pa.Table:
        """The sources that were added or removed."""
        return pa.concat_tables([without(self.after, self.before), without(self.before, self.after)])


class Fold(ABC):
    """A feature whose records are folded by scope.

    Attributes:
        asset: name in Dagster.
        records: the table of records by hour.
        evidence: its column with the source messages.
        covered: the column of the sources that a state covers.
        columns: those of the sources that :meth:`folded` needs of a change.
        project: returns records as sources.
        sources, stored: the projections.
    """

    asset: ClassVar[str]
    records: ClassVar[TableSpec]
    evidence: ClassVar[str]
    covered: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    project: Callable[[pa.Table], pa.Table]

    def __init__(self, lake: Lake, sources: ScopedRows, stored: ScopedRows) -> None:
        self.lake = lake
        self.sources = sources
        self.stored = stored

    @abstractmethod
    def derived(self, keys: list[str], shard: int | None) -> tuple[pa.Table, pa.Table]:
        """Return the facts of some hours, and the records that follow from them."""

    @abstractmethod
    def folded(
        self, scopes: list[Scope], deltas: Mapping[Scope, pa.Table], whole: Collection[Scope]
    ) -> Iterable[Folded]:
        """Fold scopes: continue from the stored rows where possible, unless a scope is in `whole`.

        `deltas` are the sources of scopes that were just added or removed, if they are known.
        """

    def method(self, scope: Scope) -> str:  # noqa: ARG002  # of the graph
        """Return what a fold depends on besides its sources, as the first part of the state."""
        return ""

    def kept(self, old: pa.Table, new: pa.Table, marks: ExpirationMarks) -> tuple[pa.Table, pa.Table]:  # noqa: ARG002
        """Return the old records that stay, and the new ones, without those that may not be stored."""
        return old, new

    def outdated(self, scopes: set[Scope], entries: Mapping[str, LedgerEntry], shard: int | None) -> set[Scope]:
        """Return the scopes to fold although their sources have not changed; `scopes` have messages in the hours."""
        raise NotImplementedError

    def unfinished(self, shard: int | None) -> dict[str, int]:  # noqa: ARG002
        """Return the number of rows that wait for a model, by hour."""
        return {}

    def whole(self, scopes: list[Scope]) -> set[Scope]:  # noqa: ARG002
        """Return the scopes that must be folded from all of their sources."""
        return set()

    def fold(
        self,
        hours: list[Period],
        edits: pa.Table,
        shard: int | None = None,
        entries: Mapping[str, LedgerEntry] = MappingProxyType({}),
    ) -> list[PartitionResult]:
        """Write and fold the records of hours: those that follow from facts, and `edits`. Return a result per hour.

        With `shard`, all scopes are in it. `entries` are those of the last complete run, by hour. Safe to repeat, to
        interrupt and to run concurrently: the next run of the hours folds what was written but not folded.
        """
        keys = [hour.key for hour in hours]
        # From messages, since facts of an earlier run may be gone.
        messages = self.lake.tables.read(MESSAGES, keys, columns=("period", *SCOPE_COLUMNS, "id"), shard=shard)
        marks = ExpirationMarks.of(self.lake.tables)
        facts = FACTS.schema.empty_table()

        def merged(old: pa.Table) -> pa.Table:
            # Read inside the attempt: after a concurrent commit of records the attempt starts over with newer facts.
            nonlocal facts
            facts, derived = self.derived(keys, shard)
            # Edits and rows that cannot be derived again stay.
            unchanged = old.filter(pc.or_(old["is_edit"], self._is_lost(old, marks, messages["id"])))
            return union(*self.kept(unchanged, pa.concat_tables([derived, edits]), marks))

        self.lake.tables.transform(self.records, keys, merged, shard=shard)
        synced = self.sync(self.records, keys, shard)
        before, after = by_period(synced.before, hours), by_period(synced.after, hours)
        # An earlier run of these hours may have changed the sources and not folded them.
        unsure = [
            hour.key
            for hour in hours
            if _digest(before[hour]) != (entries[hour.key].output_digest if hour.key in entries else NO_ROWS)
        ]
        edited = scopes_in(edits)
        suspects = edited | self.outdated(scopes_in(messages) | edited, entries, shard)
        for rows in (messages, synced.before, synced.after) if unsure else ():
            suspects |= scopes_in(rows.filter(pc.is_in(rows["period"], pa.array(unsure, pa.string()))))
        written = scopes_in(synced.changed) | self.refold(suspects, synced.changed)
        unfinished = self.unfinished(shard)
        return [
            PartitionResult(
                asset=self.asset,
                period=hour,
                input_digest=digests_of(rows).combined,
                output_digest=_digest(after[hour]),
                rows=after[hour].num_rows,
                agents=agents_in(after[hour]),
                changed=not written.isdisjoint(scopes_in(after[hour])),
                unfinished=unfinished.get(hour.key, 0),
            )
            for hour, rows in by_period(facts, hours).items()
        ]

    def _is_lost(self, records: pa.Table, marks: ExpirationMarks, messages: pa.ChunkedArray) -> pa.Array:
        """Return a mask of the records with expired messages, which cannot be derived again."""
        lost = np.zeros(records.num_rows, np.bool_)
        for retention_class in WORKING_CLASSES:
            lost |= marks.mask(records, retention_class)
        if lost.any():
            present = set(messages.to_pylist())
            evidence = records[self.evidence].filter(pa.array(lost)).to_pylist()
            lost[lost] = [not present.issuperset([ids] if isinstance(ids, str) else ids) for ids in evidence]
        return pa.array(lost)

    def sync(self, spec: TableSpec, keys: Iterable[str], shard: int | None = None) -> Synced:
        """Make the sources of periods equal to their records, of one shard or of all. Write only rows that differ.

        Raises:
            CommitConflictError: the records kept changing.
        """
        tables, ordered = self.lake.tables, sorted(keys)
        before = [self._sources_like(self.project(spec.schema.empty_table()))]
        after = [*before]
        for start in range(0, len(ordered), _PERIODS_AT_ONCE):
            batch = ordered[start : start + _PERIODS_AT_ONCE]
            within = f"period IN ({listed(batch)})"
            before.append(self._sources_like(self.sources.scan(self.columns, within, shard)))
            for _ in range(_ATTEMPTS):
                state = tables.state(spec, batch, shard)
                rows = self.project(tables.read(spec, batch, shard=shard))
                self.sources.replace(rows, None, within, shard)
                # A concurrent run may have written newer rows, and synced them before this one overwrote them.
                if tables.state(spec, batch, shard) == state:
                    break
            else:
                raise CommitConflictError(f"{spec.name} of {batch[0]} to {batch[-1]} keep changing; run it again later")
            after.append(self._sources_like(rows))
        return Synced(pa.concat_tables(before), pa.concat_tables(after))

    def _sources_like(self, rows: pa.Table) -> pa.Table:
        schema = self.project(self.records.schema.empty_table()).schema
        return rows.select(self.columns).cast(pa.schema([schema.field(name) for name in self.columns]))

    def refold(self, scopes: Iterable[Scope], changed: pa.Table | None = None) -> set[Scope]:
        """Fold the scopes that are not up to date. Return those with changed rows.

        `changed` are the sources that were added or removed just now.

        Raises:
            CommitConflictError: concurrent runs kept writing sources of these scopes, or their folds.
        """
        deltas = {} if changed is None else by_scope(changed)
        ordered = sorted({*scopes, *deltas}, key=lambda scope: scope.key)  # so that a shard is written once
        written: set[Scope] = set()
        for start in range(0, len(ordered), _SCOPES_AT_ONCE):
            written |= self._refold(ordered[start : start + _SCOPES_AT_ONCE], deltas)
        return written

    def _refold(self, scopes: list[Scope], deltas: Mapping[Scope, pa.Table]) -> set[Scope]:
        written: set[Scope] = set()
        whole = self.whole(scopes)
        sure = {scope for scope in scopes if scope in deltas or scope in whole}
        waiting = sure | self.stale(scope for scope in scopes if scope not in sure)
        for _ in range(_ATTEMPTS):
            if not waiting:
                return written
            part = [scope for scope in scopes if scope in waiting]
            before = self.sources.versions(part)
            folded: set[Scope] = set()
            for rows, own, within in self.folded(part, deltas, whole):
                keys = self.stored.replace(rows, own, within)
                written |= {scope for scope in own if scope.key in keys}
                folded |= {*own}
            # A concurrent run may have changed sources since they were read. Of two runs, the one that read older
            # sources finds them changed, and folds again what it may have overwritten.
            is_settled = self.sources.versions(part) == before
            waiting = self.stale(scope for scope in part if not (is_settled and scope in folded))
            deltas, whole = {}, set()
        if not waiting:
            return written
        raise CommitConflictError(f"{self.asset} of {len(waiting):,} agents keep changing; run it again later")

    def stale(self, scopes: Iterable[Scope]) -> set[Scope]:
        """Return the scopes whose stored rows are not the fold of their sources. Reads ids and digests only."""
        scopes = list(scopes)
        if not scopes:
            return set()
        sources = values_by_scope(self.sources.read(scopes, ("scope", self.covered)), self.covered)
        stored = self.stored.read(scopes, ("scope", "digest", "source_digest"))
        is_fact = pc.is_null(stored["source_digest"])
        rows, states = values_by_scope(stored.filter(is_fact), "digest"), stored.filter(pc.invert(is_fact))
        state_of = dict(zip(states["scope"].to_pylist(), states["source_digest"].to_pylist(), strict=True))
        return {
            scope
            for scope in scopes
            for own, held in [(sources.get(scope.key, []), rows.get(scope.key, []))]
            if state_of.get(scope.key) != (fold_state(self.method(scope), own, held) if own else None)
            or (held and not own)
        }

    def stale_scopes(self) -> set[Scope]:
        """Return all scopes whose stored rows are not the fold of their sources."""
        return self.stale(scopes_in(self.sources.scan(SCOPE_COLUMNS)) | scopes_in(self.stored.scan(SCOPE_COLUMNS)))


def union(rows: pa.Table, new: pa.Table) -> pa.Table:
    """Return rows, and the new ones with other ids."""
    return pa.concat_tables([rows, new.filter(pc.invert(pc.is_in(new["id"], rows["id"].combine_chunks())))])


def without(rows: pa.Table, others: pa.Table) -> pa.Table:
    """Return the rows with digests that no other row has."""
    return rows.filter(pc.invert(pc.is_in(rows["digest"], others["digest"].combine_chunks())))


def values_by_scope(rows: pa.Table, column: str) -> dict[str, list[str]]:
    """Return the ids or digests of rows by the key of their scope."""
    groups = pl.DataFrame(pl.from_arrow(rows.select(["scope", column]))).group_by("scope").agg(column)
    return dict(groups.iter_rows())


def _digest(sources: pa.Table) -> str:
    return RowDigests(sources["id"].to_pylist()).combined
