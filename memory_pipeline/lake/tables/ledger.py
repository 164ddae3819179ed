"""The ledger: which partitions were built, from which inputs, and with which result.

It distinguishes "nothing to remember" from "not processed yet", and "up to date" from "late data": a period is stale if
the digest of its inputs differs from the one in the ledger. It contains no clock times, so two lakes built from the
same journal are equal.

If one of its files is damaged, its periods count as missing, and are entered again when they are rebuilt.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.lake.schemas import LEDGER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake.tables.tables import Tables

    #: Rows of the ledger by asset and name of the period.
    Seen = Mapping[tuple[str, str], Mapping[str, Any]]

_Found = TypeVar("_Found")

MESSAGES_ASSET = "messages"
GRAPH_ASSET = "graph_facts"
MEMORIES_ASSET = "durable_memories"
CONSOLIDATION_ASSET = "memory_consolidation"


def table_asset(grain: str) -> str:
    """Return the name of the asset with a grain's rows: ``working_facts``, ``daily_summaries``, …."""
    return "working_facts" if grain == "working" else f"{grain}_summaries"


def index_asset(grain: str) -> str:
    """Return the name of a grain's index asset."""
    return f"{grain}_index"


#: Columns that are null in older lakes.
_LATER = ("unfinished", "expired", "refused", "redacted")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One partition of one asset, as last built.

    Attributes:
        input_digest: of its inputs.
        output_digest: of its rows.
        rows, agents: their numbers.
        unfinished: number of rows, passages or summaries that wait for a model: built by a fallback, without a vector,
            or over the budget. The next run rebuilds a partition with any.
        expired: number of rows that have expired since. The digests still include them.
        refused: number of rejected parts of model answers.
        redacted: number of messages from which secrets were removed.
    """

    asset: str
    period: str
    input_digest: str
    output_digest: str
    rows: int
    agents: int
    unfinished: int = 0
    expired: int = 0
    refused: int = 0
    redacted: int = 0

    @property
    def bucket(self) -> str:
        """The ledger's partition: an asset's month for hours and days, its year for coarser grains."""
        return _bucket(self.asset, self.period)


def _bucket(asset: str, period: str) -> str:
    fine = len(period) >= len("2024-01-15")
    return f"{asset}.{period[: 7 if fine else 4]}"


class Ledger:
    """Reads and records built partitions."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def entries(self, asset: str, periods: Iterable[Period] | None = None) -> Mapping[str, LedgerEntry]:
        """Return the entries of an asset by period name, for the given periods or all."""
        return self.entries_of([asset], periods)[asset]

    def entries_of(
        self, assets: Collection[str], periods: Iterable[Period] | None = None
    ) -> dict[str, dict[str, LedgerEntry]]:
        """Return the entries of several assets, in one read."""
        keys = {key for key in self._tables.keys(LEDGER) if key.rpartition(".")[0] in assets}
        names = None
        if periods is not None:
            names = {period.key for period in periods}
            keys &= {_bucket(asset, period) for asset in assets for period in names}
        found: dict[str, dict[str, LedgerEntry]] = {asset: {} for asset in assets}
        for row in self._tables.read(LEDGER, keys, damaged="skip").drop_columns(["bucket"]).to_pylist():
            if names is None or row["period"] in names:
                row |= {name: row[name] or 0 for name in _LATER}
                found[row["asset"]][row["period"]] = LedgerEntry(**row)
        return found

    def note_expired(self, remaining: Mapping[tuple[str, str], int]) -> None:
        """Record expired rows in one commit. Expired rows no longer wait for a model.

        `remaining` is the number of rows that stay, by asset and period.
        """
        self._note_numbers(remaining, lambda row, left: {"expired": max(1, row["rows"] - left), "unfinished": 0})

    def note_restored(self, present: Mapping[tuple[str, str], tuple[int, str | None]]) -> None:
        """Record rows that are back from the archive, in one commit.

        `present` has the number of rows and their digest by asset and period. While the rows are others than those
        that were built, some count as expired, so that the digest of these is used.
        """

        def numbers(row: Mapping[str, Any], found: tuple[int, str | None]) -> dict[str, int]:
            is_whole = found[1] in (None, row["output_digest"])
            return {"expired": max(0 if is_whole else 1, row["rows"] - found[0])}

        self._note_numbers(present, numbers)

    def _note_numbers(
        self, found: Mapping[tuple[str, str], _Found], numbers: Callable[[Mapping[str, Any], _Found], dict[str, int]]
    ) -> None:
        buckets = {_bucket(asset, period) for asset, period in found}

        def noted(old: pa.Table) -> pa.Table:
            rows = [
                row if (one := found.get((row["asset"], row["period"]))) is None else row | numbers(row, one)
                for row in old.to_pylist()
            ]
            return pa.Table.from_pylist(rows, schema=LEDGER.schema)

        self._tables.transform(LEDGER, buckets, noted, remade=buckets)

    def seen(self, assets: Iterable[str], periods: Iterable[Period]) -> Seen:
        """Return the entries of periods of some assets, for :meth:`record` to compare."""
        pairs = {(asset, period.key) for period in periods for asset in assets}
        buckets = {_bucket(asset, key) for asset, key in pairs}
        rows = self._tables.read(LEDGER, buckets, damaged="skip").to_pylist() if buckets else []
        return {key: row for row in rows if (key := (row["asset"], row["period"])) in pairs}

    def record(self, entries: Iterable[LedgerEntry], seen: Seen | None = None) -> bool:
        """Record built partitions in one commit; an entry replaces that of the same asset and period.

        Return whether they were recorded. They are not if another run has changed one of the entries `seen` when the
        build began, because that run may have used newer rows: rebuild the partitions.
        """
        rows = [{**asdict(entry), "bucket": entry.bucket} for entry in entries]
        new = pa.Table.from_pylist(rows, schema=LEDGER.schema)
        new_rows = {(row["asset"], row["period"]): row for row in rows}
        is_entered = True

        def merged(old: pa.Table) -> pa.Table:
            nonlocal is_entered
            if seen is not None:
                current = {key: row for row in old.to_pylist() if (key := (row["asset"], row["period"])) in new_rows}
                is_entered = all(current.get(key) in (seen.get(key), new_rows[key]) for key in new_rows)
                if not is_entered:
                    return old
            replaced = pc.is_in(
                pc.binary_join_element_wise(old["bucket"], old["period"], "/"),
                pc.binary_join_element_wise(new["bucket"], new["period"], "/"),
            )
            return pa.concat_tables([old.filter(pc.invert(replaced)), new])

        buckets = {row["bucket"] for row in rows}
        self._tables.transform(LEDGER, buckets, merged, remade=buckets)
        return is_entered
