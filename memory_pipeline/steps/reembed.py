"""Build the index of another embedder beside the one in use.

First, all rows of the tables go into the new index without vectors; from then on runs write to it, too. Then the rows
are embedded, some at a time, each part in one commit. A killed process loses at most the part that it was at, and the
answers of a hosted embedder for this part are stored: they are not paid for again. Once all rows have vectors, the
index is complete, and readers and runs with this embedder use it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.model_calls import Usage, Use
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.domain.values import batched
from memory_pipeline.errors import ConfigurationError, LakeError
from memory_pipeline.lake.codec.codec import scopes_of
from memory_pipeline.lake.index.index_rows import COMPUTED, DURABLE
from memory_pipeline.lake.schemas import table_of
from memory_pipeline.steps.embed import embedded
from memory_pipeline.steps.group import scopes_in
from memory_pipeline.steps.index import sync_index
from memory_pipeline.steps.indices import every_index
from memory_pipeline.steps.memory_vectors import sync_memory_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memory_pipeline.domain.model_calls import CallStore
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.vector_index import VectorIndex

#: Texts that are embedded and committed together.
_TEXTS = 1_024
#: Rows and periods that are compared with their table at once; a larger period is compared shard by shard.
_ROWS, _PERIODS = 50_000, 400
#: The order in which rows are embedded.
_ORDER = [("scope", "ascending"), ("content", "ascending"), ("id", "ascending")]
#: Rounds over rows without vectors: runs may add some meanwhile.
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Reembedding:
    """How far a re-embedding is.

    Attributes:
        done, total: rows that were and have to be embedded by this call.
        failed: rows that the embedder gave no vector for.
        calls, tokens, cost: of the requests of this call; the cost is in US dollars, None if a price is unknown.
        seconds: since the first text.
        is_complete: whether the index is complete.
    """

    done: int
    total: int
    failed: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0
    is_complete: bool = False

    @property
    def rate(self) -> float:
        """Rows a second."""
        return (self.done + self.failed) / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The remaining time at the present rate; None before the first rows."""
        left = self.total - self.done - self.failed
        return left / self.rate if self.rate else None

    @property
    def cost_left(self) -> float | None:
        """The remaining cost at the present cost of a row; None if it is unknown."""
        left = self.total - self.done - self.failed
        return None if self.cost is None or not self.done else self.cost / self.done * left


def reembed(
    lake: Lake,
    embedder: Embedder,
    store: CallStore | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    accepts_missing: bool = False,
) -> Iterator[Reembedding]:
    """Build the index of an embedder, or complete it. Yield the progress, at last the result.

    Runs, readers and erasures may go on meanwhile. Safe to repeat, to interrupt and to run concurrently.

    Args:
        lake: it must exist.
        embedder: its vectors are made; an equal one reads them later.
        store: of the embedder's calls, if it is hosted.
        settings: of the embedder in the configuration, stored with the index.
        accepts_missing: use the index even if some texts could not be embedded. Words find these rows.

    Raises:
        LakeError: there is no lake, or the embedder failed, and the index is not complete yet.
    """
    if not lake.exists:
        raise LakeError(f"there is no lake at {lake.storage.uri}; write to it first")
    index = lake.indices.begin(embedder, settings)
    for one in every_index(lake):  # readers of each embedder need its vectors of memories, after a change and back
        if not (one.has_memories or str(one.made_by).startswith(COMPUTED)):
            one.describe({"has_memories": True})
    _sync(lake, index)
    now = Reembedding(0, 0)
    for _ in range(_ROUNDS):
        before = now.done
        now = replace(now, total=before + sum(index.waiting(name).num_rows for name in index.tables()))
        for at in _filled(index, embedder, store, now):
            yield at
            now = at
        if now.failed or now.done == before:
            break
    if now.failed and not accepts_missing:
        raise LakeError(
            f"{now.failed:,} of {now.total:,} rows could not be embedded with {embedder.name}, so that its index is "
            "not used yet; the log says why; run the command again: it continues where it was"
        )
    if not index.is_complete:
        index.describe({"is_complete": True})
    yield replace(now, is_complete=True)


def drop_index(lake: Lake, name: str, used: Embedder) -> list[str]:
    """Delete the index of an embedder that is not used any more. Return the name of the embedder.

    Args:
        lake: it has another index.
        name: of the embedder, or of its model.
        used: the embedder that is in use.

    Raises:
        ConfigurationError: no index, or only the one in use, has this name.
    """
    lake.indices.sweep()
    found = [index for index in every_index(lake) if index.embedder() and is_named(index, name)]
    others = [index for index in found if index.embedder() != (used.name, used.dimension)]
    if not others:
        known = ", ".join(str(index.made_by) for index in every_index(lake) if index.embedder())
        which = "is in use; change the embedder first" if found else f"has no index; there are indices of {known}"
        raise ConfigurationError(f"{name} {which}")
    lake.indices.of(used)  # it is complete
    names = [str(index.made_by) for index in others]
    for index in others:
        index.drop()
    return names


def is_named(index: VectorIndex, name: str) -> bool:
    """Return whether an index is meant by the name of its embedder, or of the model in the configuration."""
    return name in (index.made_by, str((index.settings or {}).get("model")), str(index.made_by).rpartition(" (")[0])


def _sync(lake: Lake, index: VectorIndex) -> None:
    """Make the rows of an index equal to those of the tables and the memories."""
    erased = digest(sorted(map(str, lake.tombstones.state())))
    for grain in Grain:
        spec, fixed = table_of(grain)
        counts = lake.tables.counts(spec, **fixed)
        keys = {*counts, *index.scan(["period"], f"grain = '{grain}'")["period"].unique().to_pylist()}
        periods = [Period(grain, key) for key in sorted(keys)]
        weights = {period: counts.get(period.key, 0) for period in periods}
        for batch in batched(periods, weights.__getitem__, _ROWS, _PERIODS):
            is_large = len(batch) == 1 and weights[batch[0]] > _ROWS
            for shard in range(lake.shards) if is_large else (None,):
                sync_index(lake, index, grain, batch, shard)
    stored = index.scan(SCOPE_COLUMNS, f"grain = '{DURABLE}'")
    sync_memory_vectors(lake, scopes_in(stored) | scopes_in(lake.memory_rows.scan(SCOPE_COLUMNS)))
    now = digest(sorted(map(str, lake.tombstones.state())))
    if index.erased not in (None, now) or erased != now:
        index.purge(None)  # an erasure did not know of rows that were copied at that moment
    index.describe({"erased": now})


def _filled(index: VectorIndex, embedder: Embedder, store: CallStore | None, now: Reembedding) -> Iterator[Reembedding]:
    """Embed the rows that have no vectors. Yield the progress after each part.

    A part is of one table, so that it is stored in one commit. Parts that were not stored have the same texts after an
    interruption, so that their answers are found.
    """
    started = time.monotonic() - now.seconds
    for name, ids in _parts(index):
        with index.alone():  # of two processes, one embeds a text
            rows = index.waiting(name, index.columns, ids).sort_by(_ORDER)
            uses = dict(zip(rows["content"].to_pylist(), map(_use, rows.to_pylist(), scopes_of(rows)), strict=True))
            found = embedded(uses, embedder)
            index.put_vectors(name, _with(rows, found, embedder))
            spent = store.settle({use.period for use in uses.values()}) if store else {}
        lacking = sum(content not in found for content in rows["content"].to_pylist())
        used = sum(spent.values(), Usage(now.calls, now.tokens, 0, now.cost))
        now = replace(
            now,
            done=now.done + len(ids) - lacking,
            failed=now.failed + lacking,
            calls=used.calls,
            tokens=used.tokens_in,
            cost=used.cost,
            seconds=time.monotonic() - started,
        )
        yield now
        if rows.num_rows and not found:
            yield replace(now, failed=now.total - now.done)  # it gives no vectors any more
            return


def _parts(index: VectorIndex) -> Iterator[tuple[str, list[str]]]:
    """Yield the ids of rows without vectors, with their table; those with equal texts of a scope together."""
    for name in index.tables():
        rows = index.waiting(name, ["id", "scope", "content"]).sort_by(_ORDER)
        texts = zip(rows["scope"].to_pylist(), rows["content"].to_pylist(), strict=True)
        ids, last, count = list[str](), None, 0
        for identifier, text in zip(rows["id"].to_pylist(), texts, strict=True):
            count += text != last
            if count > _TEXTS:
                yield name, ids
                ids, count = [], 1
            ids.append(identifier)
            last = text
        if ids:
            yield name, ids


def _use(row: Mapping[str, Any], scope: Any) -> Use:
    grain = Grain.WORKING if row["grain"] == DURABLE else Grain(row["grain"])
    return Use(scope, Period(grain, row["period"]))


def _with(rows: pa.Table, found: Mapping[str, Any], embedder: Embedder) -> pa.Table:
    """Return the rows for whose contents a vector was found, with it."""
    rows = rows.filter(pc.is_in(rows["content"], pa.array(list(found), pa.string())))
    place = rows.schema.get_field_index("vector")
    vectors = pa.array([found[content] for content in rows["content"].to_pylist()], rows.schema.field(place).type)
    rows = rows.set_column(place, rows.schema.field(place), vectors)
    models = pa.array([embedder.name] * rows.num_rows, pa.string())
    return rows.set_column(place - 1, rows.schema.field(place - 1), models)
