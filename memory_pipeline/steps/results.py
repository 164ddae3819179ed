"""Results of steps: partitions, runs and expirations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.model_calls import Usage
from memory_pipeline.lake.tables.ledger import LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from typing import Self

    from memory_pipeline.domain.periods import Grain, Period
    from memory_pipeline.domain.retention import Expiry


_MODULUS = 1 << 128


class RowDigests:
    """Digests of rows, which combine to one digest: the sum of their hashes, modulo 2**128.

    It does not depend on the order of the rows, and the digests of the parts of a partition add up to the whole.
    """

    def __init__(self, digests: Iterable[str] = ()) -> None:
        hashes = (blake2b(each.encode(), digest_size=16).digest() for each in digests)
        self._sum = sum(int.from_bytes(each) for each in hashes) % _MODULUS

    @classmethod
    def of(cls, *combined: str) -> Self:
        """Return the sum of combined digests."""
        digests = cls()
        digests._sum = sum(int(each, 16) for each in combined) % _MODULUS
        return digests

    def __add__(self, other: RowDigests) -> RowDigests:
        """Return the digests of the rows of both."""
        return RowDigests.of(self.combined, other.combined)

    @property
    def combined(self) -> str:
        """The digest, as 32 hex digits."""
        return f"{self._sum:032x}"


#: The digest of no rows.
NO_ROWS = RowDigests().combined


def digests_of(rows: pa.Table) -> RowDigests:
    """Return the digests of rows of ``facts`` or ``summaries``. Vectors count by the name of their model."""
    models = pc.fill_null(rows["embed_model"], "None")
    return RowDigests(pc.binary_join_element_wise(rows["digest"], models, "/").to_pylist())


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """One partition of one asset, after the step.

    Attributes:
        asset: the asset's name in Dagster.
        input_digest, output_digest, unfinished: see :class:`memory_pipeline.lake.tables.ledger.LedgerEntry`.
        messages: number of messages read (hours only).
        bytes: size of its files.
        changed: whether it was written.
        seconds: its part of the duration of the batch.
        fallbacks: rows made by rules because the model failed.
        refused: rejected parts of model answers, by reason.
        expired, forgotten: messages dropped because their day had expired, or because they had been forgotten.
        redacted: messages from which secrets were removed before they were stored.
        not_captured: messages dropped because the configuration does not capture their conversation in full.
        usage: model usage of this run.
        tokens: of the sources of summaries, and of the summaries.
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
    refused: Counter[str] = field(default_factory=Counter)
    expired: int = 0
    forgotten: int = 0
    redacted: int = 0
    not_captured: int = 0
    tokens: tuple[int, int] = (0, 0)
    usage: Usage = field(default_factory=Usage)

    @property
    def compression(self) -> float | None:
        """Tokens of summaries per token of their sources; None without sources."""
        read, written = self.tokens
        return written / read if read else None

    @property
    def entry(self) -> LedgerEntry:
        """The ledger entry."""
        return LedgerEntry(
            self.asset,
            self.period.key,
            self.input_digest,
            self.output_digest,
            self.rows,
            self.agents,
            self.unfinished,
            refused=self.refused.total(),
            redacted=self.redacted,
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run of one grain.

    Attributes:
        changed: number of partitions written, of tables and index.
        rows: number of facts or summaries in the periods.
        cost_usd: cost of the model calls; 0 for calls of unknown price.
        fallbacks: rows made by rules because a model failed.
        unfinished: rows that wait for a model; the next run retries.
        refused: rejected parts of model answers, by reason.
        expired: messages that were dropped because all that was kept of their time has expired.
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
    refused: Counter[str] = field(default_factory=Counter)
    expired: int = 0


@dataclass(frozen=True, slots=True)
class Expired:
    """The expired rows of one workspace and retention class.

    Attributes:
        rows: number of messages and facts, summaries, or graph operations.
        partitions: number of periods.
        first: the first period that loses rows.
        is_archived: whether the rows move to the archive.
    """

    expiry: Expiry
    rows: int = 0
    partitions: int = 0
    agents: int = 0
    first: Period | None = None
    is_archived: bool = False


class ExpiredShare(NamedTuple):
    """What expires of one table and workspace: rows, and their share of the bytes of its files.

    `table` is ``index`` for the search index, which has a row for each fact and summary.
    """

    table: str
    grain: Grain
    workspace_id: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Expiration:
    """The result of a retention run, or of its dry run.

    Attributes:
        expired: per workspace and class, coarse to fine.
        periods: by asset, the number of rows that each partition lost.
        files, bytes: deleted from disk; 0 in a dry run.
    """

    expired: list[Expired]
    periods: dict[str, dict[Period, int]] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        """Total of expired rows."""
        return sum(each.rows for each in self.expired)

    @property
    def archived(self) -> int:
        """How many of them move to the archive."""
        return sum(each.rows for each in self.expired if each.is_archived)


def together(shards: Sequence[Sequence[PartitionResult]]) -> list[PartitionResult]:
    """Combine the results of shards, which have the same partitions in the same order."""
    return [_together(parts) for parts in zip(*shards, strict=True)]


def _together(parts: Sequence[PartitionResult]) -> PartitionResult:
    if len(parts) == 1:
        return parts[0]
    numbers = (
        "rows", "agents", "messages", "fallbacks", "unfinished", "expired", "forgotten", "redacted",
        "not_captured",
    )  # fmt: skip
    read, written = zip(*(part.tokens for part in parts), strict=True)
    return replace(
        parts[-1],  # with the final size
        input_digest=RowDigests.of(*(part.input_digest for part in parts)).combined,
        output_digest=RowDigests.of(*(part.output_digest for part in parts)).combined,
        changed=any(part.changed for part in parts),
        tokens=(sum(read), sum(written)),
        refused=sum((part.refused for part in parts), Counter()),
        **{name: sum(getattr(part, name) for part in parts) for name in numbers},
    )


def unfinished_rows(rows: pa.Table, lasting: Collection[str] = ()) -> int:
    """Return the number of rows that wait for a model: fallbacks of rules, and rows without a vector.

    Rows with ids in `lasting` count only if they have no vector.
    """
    is_fallback = pc.is_valid(rows["fallback"])
    if lasting:
        is_fallback = pc.and_not(is_fallback, pc.is_in(rows["id"], pa.array(sorted(lasting), pa.string())))
    return int(pc.sum(pc.or_(is_fallback, pc.is_null(rows["embed_model"]))).as_py() or 0)


def tokens_of(rows: pa.Table) -> tuple[int, int]:
    """Return the number of tokens of the sources of ``summaries`` rows, and of the rows themselves."""
    read, written = (int(pc.sum(rows[name]).as_py() or 0) for name in ("tokens_in", "tokens_out"))
    return read, written
