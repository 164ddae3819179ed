"""What a step reports of each partition that it made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from memory_pipeline.domain.calls import Usage
from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.lake.ledger import Entry

if TYPE_CHECKING:
    import pyarrow as pa

    from memory_pipeline.domain.grains import Grain
    from memory_pipeline.domain.periods import Period


@dataclass(frozen=True, slots=True)
class Made:
    """One partition of one asset, as it stands after the step.

    Attributes:
        asset: the asset's name, as in Dagster.
        period: the partition.
        input_digest, output_digest: see :class:`memory_pipeline.lake.ledger.Entry`.
        rows, agents: how much it holds.
        messages: messages read for it (working memory only).
        bytes: size of its files.
        changed: whether anything had to be written.
        seconds: its share of the time that its batch took.
        fallbacks: rows that rules made because the model did not help.
        unfinished: see :class:`memory_pipeline.lake.ledger.Entry`.
        refused: parts of models' answers that were not taken.
        usage: what models were asked for it this time, and what that cost.
    """

    asset: str
    period: Period
    input_digest: str
    output_digest: str
    rows: int
    agents: int
    messages: int = 0
    bytes: int = 0
    changed: bool = False
    seconds: float = 0.0
    fallbacks: int = 0
    unfinished: int = 0
    refused: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def entry(self) -> Entry:
        """The line that the ledger keeps of it."""
        return Entry(
            self.asset,
            self.period.key,
            self.input_digest,
            self.output_digest,
            self.rows,
            self.agents,
            self.unfinished,
        )


@dataclass(frozen=True, slots=True)
class GrainRun:
    """What the run of one grain did.

    Attributes:
        grain: which.
        periods: those it was asked for.
        changed: partitions, of its tables and its index, that had to be written.
        rows: facts or summaries in those periods.
        calls, tokens_in, tokens_out, cost_usd: what models were asked for, and what that cost as far as it is known.
        fallbacks: rows that rules made because a model did not help.
        unfinished: what waits for a model; the next run tries again.
        refused: parts of models' answers that were not taken.
    """

    grain: Grain
    periods: list[Period]
    changed: int
    rows: int
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    fallbacks: int = 0
    unfinished: int = 0
    refused: int = 0


def content_digest(rows: pa.Table) -> str:
    """Return a digest of rows of ``facts`` or ``summaries``, whatever their order; vectors count by their model."""
    marks = zip(rows["digest"].to_pylist(), rows["embed_model"].to_pylist(), strict=True)
    return digest_of_all(f"{row}/{model}" for row, model in marks)


def unfinished_rows(rows: pa.Table) -> int:
    """Return how many rows wait for a model: made by a stand-in, or without a vector."""
    waits = pc.or_(pc.is_valid(rows["fallback"]), pc.is_null(rows["embed_model"]))
    return int(pc.sum(waits).as_py() or 0)
