"""Results of steps: what a partition holds, and what a run did or deleted."""

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


# Digests over many rows, which are gathered share by share: of a row some forty bytes stay in memory, no more.


#: Digests that are turned into text at a time.
_AT_ONCE = 10_000
#: How :func:`~memory_pipeline.domain.identity.digest` writes a list of texts.
_DUMP = {"ensure_ascii": False, "separators": (",", ":")}


class RowDigests:
    """Digests on the way to one over all of them, whatever their order.

    Args:
        digests: texts; a column of a table is taken as it is.
    """

    def __init__(self, digests: Iterable[str] | pa.Array | pa.ChunkedArray = ()) -> None:
        if not isinstance(digests, pa.Array | pa.ChunkedArray):
            digests = pa.array(list(digests), pa.large_string())
        self._chunks: list[pa.Array] = _chunks(digests)

    def __add__(self, other: RowDigests) -> RowDigests:
        """Return both together; nothing is copied."""
        both = RowDigests()
        both._chunks = [*self._chunks, *other._chunks]
        return both

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(map(len, self._chunks))

    @cached_property
    def combined(self) -> str:
        """What :func:`~memory_pipeline.domain.identity.digest_of_all` makes of them."""
        digests = pa.chunked_array(self._chunks, pa.large_string()).combine_chunks()
        digests = digests.take(pc.array_sort_indices(digests))
        whole = blake2b(b"[[", digest_size=16)
        for start in range(0, len(digests), _AT_ONCE):
            text = json.dumps(digests.slice(start, _AT_ONCE).to_pylist(), **_DUMP)  # type: ignore[arg-type]
            whole.update(b"," * bool(start) + text[1:-1].encode())
        whole.update(b"]]")
        return whole.hexdigest()


def marks_of(rows: pa.Table) -> RowDigests:
    """Return what tells rows of ``facts`` or ``summaries`` apart; vectors count by their model."""
    models = pc.fill_null(rows["embed_model"], "None")
    return RowDigests(pc.binary_join_element_wise(rows["digest"], models, "/"))


def _chunks(digests: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    chunks = digests.chunks if isinstance(digests, pa.ChunkedArray) else [digests]
    return [chunk.cast(pa.large_string()) for chunk in chunks]


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """One partition of one asset, as it stands after the step.

    Attributes:
        asset: the asset's name, as in Dagster.
        period: the partition.
        input_digest, output_digest: see :class:`memory_pipeline.lake.tables.ledger.LedgerEntry`.
        rows, agents: how much it holds.
        messages: messages read for it (working memory only).
        bytes: size of its files.
        changed: whether anything had to be written.
        seconds: its share of the time that its batch took.
        fallbacks: rows that rules made because the model did not help.
        unfinished: see :class:`memory_pipeline.lake.tables.ledger.LedgerEntry`.
        refused: parts of models' answers that were not taken.
        expired: messages that came when their day had expired, and were dropped.
        forgotten: messages that had been forgotten before they were taken, and were dropped.
        usage: what models were asked for it this time, and what that cost.
        compression: tokens of summaries for each token that they were made from; None where there are none.
        inputs, outputs: what the digests are of, where shares of the agents are put together; see :func:`together`.
        before: what `outputs` of the agents that the step looked at were before it; see
            :func:`~memory_pipeline.steps.materialize.with_inactive_agents`.
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
    before: RowDigests | None = field(default=None, compare=False, repr=False)

    @property
    def entry(self) -> LedgerEntry:
        """The line that the ledger keeps of it."""
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


@dataclass(frozen=True, slots=True)
class Expired:
    """What of a workspace and class expires, or has expired.

    Attributes:
        expiry: up to where, and why.
        rows: of tables: messages and facts, summaries, or operations of the graph.
        partitions: of how many periods.
        agents: of how many agents.
        first: the first period of which something goes; None where nothing is there to go.
    """

    expiry: Expiry
    rows: int = 0
    partitions: int = 0
    agents: int = 0
    first: Period | None = None


@dataclass(frozen=True, slots=True)
class Expiration:
    """What a run of retention did, or, if it was only to be shown, would do.

    Attributes:
        expired: for each workspace and class, coarse to fine.
        periods: by asset, the partitions that lost rows, with how many.
        files, bytes: how much left the disk; of those that are shown alone, none.
        seconds: how long it took.
    """

    expired: list[Expired]
    periods: dict[str, dict[Period, int]] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        """Rows of tables that go."""
        return sum(each.rows for each in self.expired)


def together(shares: Sequence[Sequence[PartitionResult]]) -> list[PartitionResult]:
    """Return what partitions hold, each of whose shares tells a part of it.

    Args:
        shares: the same partitions in each, in the same order.
    """
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
    before = [part.before for part in parts if part.before is not None]
    if before:
        whole = replace(whole, before=sum(before, RowDigests()))
    if inputs:
        of_all = sum(inputs, RowDigests())
        whole = replace(whole, inputs=of_all, input_digest=of_all.combined)
    if outputs:
        of_all = sum(outputs, RowDigests())
        whole = replace(whole, outputs=of_all, output_digest=of_all.combined)
    return whole


def content_digest(rows: pa.Table) -> str:
    """Return a digest of rows of ``facts`` or ``summaries``, whatever their order; vectors count by their model."""
    return marks_of(rows).combined


def unfinished_rows(rows: pa.Table, lasting: Collection[str] = ()) -> int:
    """Return how many rows wait for a model: made by a stand-in, or without a vector.

    Args:
        rows: of ``facts`` or ``summaries``.
        lasting: ids of rows that no model can make any more; of these only vectors count.
    """
    stands_in = pc.is_valid(rows["fallback"])
    if lasting:
        stands_in = pc.and_not(stands_in, pc.is_in(rows["id"], pa.array(sorted(lasting), pa.string())))
    return int(pc.sum(pc.or_(stands_in, pc.is_null(rows["embed_model"]))).as_py() or 0)


def tokens_of(rows: pa.Table) -> tuple[int, int]:
    """Return how many tokens rows of ``summaries`` were made from, and how many they have."""
    read, written = (int(pc.sum(rows[name]).as_py() or 0) for name in ("tokens_in", "tokens_out"))
    return read, written


def compression_of(tokens: Sequence[tuple[int, int]]) -> float | None:
    """Return how many tokens summaries have for each that they were made from; None where there are none.

    Args:
        tokens: of each share of them, as :func:`tokens_of` tells.
    """
    read, written = (sum(each) for each in zip(*tokens, strict=True))
    return written / read if read else None
