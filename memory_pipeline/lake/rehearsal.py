"""A lake to rehearse on: reads are the true lake's, writes stay in memory and are forgotten."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.lake.journal import Journal
from memory_pipeline.lake.lake import Lake
from memory_pipeline.lake.tables.tables import Change, Replacement, Tables, changed_keys, sorted_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import date

    from memory_pipeline.domain.conversations import Rejection
    from memory_pipeline.lake.schema_types import TableSpec


class RehearsalLake(Lake):
    """A lake whose tables and journal take no writes. Its index is the true one; steps that write it are left out."""

    def __init__(self, uri: str, timezone: str | None = None, start: date | None = None) -> None:
        super().__init__(uri, timezone, start)
        self.journal = _ReadOnlyJournal(self.storage)

    @cached_property
    def tables(self) -> Tables:
        """The true tables, under what was rehearsed."""
        return OverlaidTables(Tables(self.storage))


class _ReadOnlyJournal(Journal):
    def set_aside(self, rejections: Iterable[Rejection]) -> None:
        """Leave what is not accepted where it is."""


class OverlaidTables(Tables):
    """Tables whose replaced partitions are kept in memory, over those of `base`."""

    def __init__(self, base: Tables) -> None:
        self._base = base
        self._over: dict[tuple[str, tuple[str, ...]], dict[str, pa.Table]] = {}

    def _read(
        self,
        spec: TableSpec,
        keys: Collection[str] | None,
        columns: Collection[str] | None,
        where: pc.Expression | None,
        fixed: Mapping[str, str],
        remade: Collection[str] | None,
    ) -> pa.Table:
        over = self._replaced(spec, fixed)
        below = set(self._base.keys(spec, **fixed) if keys is None else keys) - over.keys()
        parts = [self._base._read(spec, below, columns, where, fixed, remade)]
        for key, rows in over.items():
            if keys is None or key in keys:
                found = rows if where is None else rows.filter(where)
                parts.append(found.select(parts[0].column_names))
        return pa.concat_tables(parts)

    def sizes(self, spec: TableSpec, **fixed: str) -> dict[str, int]:
        """Return the bytes of each partition; of those that were replaced here, in memory."""
        over = self._replaced(spec, fixed)
        below = {key: size for key, size in self._base.sizes(spec, **fixed).items() if key not in over}
        return below | {key: rows.nbytes for key, rows in over.items() if rows.num_rows}

    def counts(self, spec: TableSpec, **fixed: str) -> dict[str, int]:
        """Return the number of rows of each partition."""
        over = self._replaced(spec, fixed)
        return self._base.counts(spec, **fixed) | {key: rows.num_rows for key, rows in over.items()}

    def version(self, spec: TableSpec) -> int:
        """Return the version of the table below."""
        return self._base.version(spec)

    def transform(
        self, spec: TableSpec, keys: Collection[str], change: Change, *, remade: Collection[str] = (), **fixed: str
    ) -> Replacement:
        """Replace partitions in memory."""
        read = self.read_sound if frozenset(keys) <= frozenset(remade) else self.read
        old = sorted_rows(read(spec, keys, **fixed), spec)
        new = sorted_rows(change(old).select(spec.schema.names).cast(spec.schema), spec)
        changed = changed_keys(old, new, spec)
        column = new.column(spec.partition_by[-1])
        for key in changed:
            self._replaced(spec, fixed)[key] = new.filter(pc.equal(column, key))
        return Replacement(frozenset(changed), new)

    def _replaced(self, spec: TableSpec, fixed: Mapping[str, str]) -> dict[str, pa.Table]:
        values = tuple(fixed[name] for name in spec.partition_by[:-1])
        return self._over.setdefault((spec.name, values), {})
