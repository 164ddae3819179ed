"""The ledger: which partitions have been made, from what, and what came out.

It is what tells "there was nothing to remember" from "nobody has looked yet", and "up to date" from "late data has
come": a period is stale when the digest of what it is made from is no longer the one that the ledger holds. It holds
no time of the clock, so that two lakes made from the same journal are equal.

What it says can be found out again: where a file of it is damaged, its periods count as not entered. Those that hold
rows are then pending, and are entered again once they have been made.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.lake.schemas import LEDGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake.tables.tables import Tables

    #: Rows of the ledger by asset and name of the period.
    Seen = Mapping[tuple[str, str], Mapping[str, Any]]

MESSAGES_ASSET = "messages"
GRAPH_ASSET = "graph_facts"
MEMORIES_ASSET = "durable_memories"


def table_asset(grain: str) -> str:
    """Return the name of the asset that holds a grain's rows: ``working_facts``, ``daily_summaries``, …."""
    return "working_facts" if grain == "working" else f"{grain}_summaries"


def index_asset(grain: str) -> str:
    """Return the name of a grain's index asset."""
    return f"{grain}_index"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One partition of one asset, as it was last made.

    Attributes:
        input_digest: of what it was made from.
        output_digest: of its rows.
        rows, agents: how many it holds.
        unfinished: how much of it waits for a model: rows that a stand-in made or that have no vector, and passages or
            summaries that wait for a budget. A partition with any is made again by the next run.
        expired: how many of the rows have expired since; the digests are still those of what was made.
    """

    asset: str
    period: str
    input_digest: str
    output_digest: str
    rows: int
    agents: int
    unfinished: int = 0
    expired: int = 0

    @property
    def bucket(self) -> str:
        """The ledger's partition: an asset's month for hours and days, its year for what is coarser."""
        fine = len(self.period) >= len("2024-01-15")
        return f"{self.asset}.{self.period[: 7 if fine else 4]}"


class Ledger:
    """Reads and records what was made."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def entries(self, asset: str, periods: Iterable[Period] | None = None) -> Mapping[str, LedgerEntry]:
        """Return the entries of an asset by period name; of the given periods, or of all."""
        keys = {key for key in self._tables.keys(LEDGER) if key.rpartition(".")[0] == asset}
        wanted = None
        if periods is not None:
            wanted = {period.key for period in periods}
            keys &= {LedgerEntry(asset, period, "", "", 0, 0).bucket for period in wanted}
        rows = self._tables.read_sound(LEDGER, keys).drop_columns(["bucket"]).to_pylist()
        return {
            # Of older lakes there are none of these.
            row["period"]: LedgerEntry(**{**row, "unfinished": row["unfinished"] or 0, "expired": row["expired"] or 0})
            for row in rows
            if wanted is None or row["period"] in wanted
        }

    def note_expired(self, remaining: Mapping[tuple[str, str], int]) -> None:
        """Note, in one commit, of which partitions rows expire. What waited there for a model waits no more.

        Args:
            remaining: how many rows stay, by asset and period.
        """
        buckets = {LedgerEntry(asset, period, "", "", 0, 0).bucket for asset, period in remaining}

        def noted(old: pa.Table) -> pa.Table:
            rows = old.to_pylist()
            for row in rows:
                left = remaining.get((row["asset"], row["period"]))
                if left is not None:
                    row |= {"expired": max(1, row["rows"] - left), "unfinished": 0}
            return pa.Table.from_pylist(rows, schema=LEDGER.schema)

        self._tables.transform(LEDGER, buckets, noted, remade=buckets)

    def seen(self, assets: Iterable[str], periods: Iterable[Period]) -> Seen:
        """Return what is entered of periods of some assets, for :meth:`record` to compare."""
        wanted = {(asset, period.key) for period in periods for asset in assets}
        buckets = {LedgerEntry(asset, key, "", "", 0, 0).bucket for asset, key in wanted}
        rows = self._tables.read_sound(LEDGER, buckets).to_pylist() if buckets else []
        return {key: row for row in rows if (key := (row["asset"], row["period"])) in wanted}

    def record(self, entries: Iterable[LedgerEntry], seen: Seen | None = None) -> bool:
        """Enter what was made, in one commit; an entry replaces that of the same asset and period.

        Args:
            entries: what to enter.
            seen: what was entered when the making began. Where another run has entered something else since, it may
                have come from newer rows than these did: then nothing is entered.

        Returns:
            Whether it is entered; if not, it is to be made again.
        """
        rows = [{**asdict(entry), "bucket": entry.bucket} for entry in entries]
        new = pa.Table.from_pylist(rows, schema=LEDGER.schema)
        own = {(row["asset"], row["period"]): row for row in rows}
        is_entered = True

        def merged(old: pa.Table) -> pa.Table:
            nonlocal is_entered
            if seen is not None:
                there = {key: row for row in old.to_pylist() if (key := (row["asset"], row["period"])) in own}
                is_entered = all(there.get(key) in (seen.get(key), own[key]) for key in own)
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
