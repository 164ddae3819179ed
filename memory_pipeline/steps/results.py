"""Results of steps: partitions, runs and expirations."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.model_calls import Usage
from memory_pipeline.lake.tables.ledger import LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from memory_pipeline.domain.periods import Grain, Period
    from memory_pipeline.domain.retention import Expiry


#: Number of digests that are decoded at a time.
_AT_ONCE = 10_000
#: As in :func:`~memory_pipeline.domain.identity.digest`.
_DUMP = {"ensure_ascii": False, "separators": (",", ":")}


class RowDigests:
    """Digests of rows that combine to one digest, independent of order: about 40 bytes per row, columns are shared."""

    def __init__(self, digests: Iterable[str] | pa.Array | pa.ChunkedArray = ()) -> None:
        if not isinstance(digests, pa.Array | pa.ChunkedArray):
            digests = pa.array(list(digests), pa.large_string())
        self._chunks: list[pa.Array] = _chunks(digests)

    def __add__(self, other: RowDigests) -> RowDigests:
        """Concatenate without a copy."""
        both = RowDigests()
        both._chunks = [*self._chunks, *other._chunks]
        return both

    def __len__(self) -> int:
        """Return the number of digests."""
        return sum(map(len, self._chunks))

    @cached_property
    def combined(self) -> str:
        """The digest by :func:`~memory_pipeline.domain.identity.digest_of_all`."""
        digests = pa.chunked_array(self._chunks, pa.large_string()).combine_chunks()
        digests = digests.take(pc.array_sort_indices(digests))
        whole = blake2b(b"[[", digest_size=16)
        for start in range(0, len(digests), _AT_ONCE):
            text = json.dumps(digests.slice(start, _AT_ONCE).to_pylist(), **_DUMP)  # type: ignore[arg-type]
            whole.update(b"," * bool(start) + text[1:-1].encode())
        whole.update(b"]]")
        return whole.hexdigest()


def marks_of(rows: pa.Table) -> RowDigests:
    """Return the digests of rows of ``facts`` or ``summaries``. Vectors count by the name of their model."""
    models = pc.fill_null(rows["embed_model"], "None")
    return RowDigests(pc.binary_join_element_wise(rows["digest"], models, "/"))


def _chunks(digests: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    chunks = digests.chunks if isinstance(digests, pa.ChunkedArray) else [digests]
    return [chunk.cast(pa.large_string()) for chunk in chunks]


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
        refused: rejected parts of model answers.
        expired, forgotten: messages dropped because their day had expired, or because they had been forgotten.
        usage: model usage of this run.
        compression: tokens of summaries per token of their sources; None without sources.
        inputs, outputs: row digests, needed to combine shares of agents; see :func:`together`.
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
    expired: int = 0
    forgotten: int = 0
    compression: float | None = None
    usage: Usage = field(default_factory=Usage)
    inputs: RowDigests | None = field(default=None, compare=False, repr=False)
    outputs: RowDigests | None = field(default=None, compare=False, repr=False)

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
        refused: rejected parts of model answers.
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


@dataclass(frozen=True, slots=True)
class Expired:
    """The expired rows of one workspace and retention class.

    Attributes:
        rows: number of messages and facts, summaries, or graph operations.
        partitions: number of periods.
        first: the first period that loses rows.
    """

    expiry: Expiry
    rows: int = 0
    partitions: int = 0
    agents: int = 0
    first: Period | None = None


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


def together(shares: Sequence[Sequence[PartitionResult]]) -> list[PartitionResult]:
    """Combine the results of shares of agents, which have the same partitions in the same order."""
    if len(shares) == 1:
        return list(shares[0])
    return [_together(parts) for parts in zip(*shares, strict=True)]


def _together(parts: Sequence[PartitionResult]) -> PartitionResult:
    numbers = ("rows", "agents", "messages", "fallbacks", "unfinished", "refused", "expired", "forgotten")
    whole = replace(
        parts[0],
        changed=any(part.changed for part in parts),
        **{name: sum(getattr(part, name) for part in parts) for name in numbers},
    )
    inputs = [part.inputs for part in parts if part.inputs is not None]
    outputs = [part.outputs for part in parts if part.outputs is not None]
    if inputs:
        of_all = sum(inputs, RowDigests())
        whole = replace(whole, inputs=of_all, input_digest=of_all.combined)
    if outputs:
        of_all = sum(outputs, RowDigests())
        whole = replace(whole, outputs=of_all, output_digest=of_all.combined)
    return whole


def content_digest(rows: pa.Table) -> str:
    """Return an order-independent digest of ``facts`` or ``summaries``. Vectors count by the name of their model."""
    return marks_of(rows).combined


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


def compression_of(tokens: Sequence[tuple[int, int]]) -> float | None:
    """Return the tokens of summaries per token of their sources, summed over shares; None without sources."""
    read, written = (sum(each) for each in zip(*tokens, strict=True))
    return written / read if read else None
