"""What a step reports of each partition that it made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.lake.ledger import Entry

if TYPE_CHECKING:
    import pyarrow as pa

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

    @property
    def entry(self) -> Entry:
        """The line that the ledger keeps of it."""
        return Entry(self.asset, self.period.key, self.input_digest, self.output_digest, self.rows, self.agents)


def content_digest(rows: pa.Table) -> str:
    """Return a digest of rows of ``facts`` or ``summaries``, whatever their order; vectors count by their model."""
    return digest_of_all(map("/".join, zip(rows["digest"].to_pylist(), rows["embed_model"].to_pylist(), strict=True)))
