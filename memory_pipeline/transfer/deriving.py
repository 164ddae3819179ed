"""Make what follows from copied rows: ledger, graph, durable memories, summaries and index. No model is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake.index.filters import listed
from memory_pipeline.lake.index.index_rows import COMPUTED
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.lake.tables.ledger import MEMORIES_ASSET
from memory_pipeline.models.factory import stored_models
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.embed import vectors_in
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.transfer.copying import EVERYTHING, HOURLY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.model_calls import CallStore, Use
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.transfer.copying import CopySelection, Progress


class StoredVectors:
    """An embedder that returns the vectors that a lake holds, and asks no model. Other texts have none, NaN."""

    def __init__(self, embedder: Embedder, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension
        self._vectors = vectors

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:  # noqa: ARG002
        """Return the vectors of texts, shape (len(texts), dimension)."""
        nothing = np.full(self.dimension, np.nan, np.float32)
        return np.array([self._vectors.get(text, nothing) for text in texts], np.float32).reshape(-1, self.dimension)


def models_without_requests(
    lake: Lake,
    embedder: Embedder,
    store: CallStore,
    now: datetime,
    *,
    vectors_of: Lake,
    selection: CopySelection = EVERYTHING,
    summaries_wait: bool = False,
    formerly: Callable[[Scope], Scope] = lambda scope: scope,
) -> Models:
    """Return the models that a lake configures, which ask nobody.

    Args:
        lake: the lake that is made.
        embedder: the embedder of its index.
        store: has the answers. Rules stand in for others.
        now: the current time.
        vectors_of: the lake whose vectors are used. Texts without one get it from the next run.
        selection: what was copied of it.
        summaries_wait: do not make summaries without a stored answer.
        formerly: returns the scope of whose memory the one of a scope is a copy.
    """
    models = stored_models(
        lake.configuration(),
        store,
        lake.calendar.timezone,
        lambda: now,
        summaries_wait=summaries_wait,
        formerly=formerly,
    )
    if embedder.name.startswith(COMPUTED):
        return replace(models, embedder=embedder)
    return replace(models, embedder=StoredVectors(embedder, _vectors(vectors_of, embedder, selection)))


def _vectors(lake: Lake, embedder: Embedder, selection: CopySelection) -> dict[str, NDArray[np.float32]]:
    """Return all vectors of the embedder in the selected rows of a lake, by text."""
    columns = ["content", "vector", "embed_model"]
    keys = None if selection.scopes is None else {scope.key for scope in selection.scopes}
    found = vectors_in(lake.tables.read(FACTS, columns=columns, scopes=keys), embedder)
    for grain in Grain:
        if grain is not Grain.WORKING:
            found |= vectors_in(lake.tables.read(SUMMARIES, columns=columns, scopes=keys, grain=grain.value), embedder)
    if lake.memory_rows.roster.present():
        rows = lake.memory_rows.scan((*columns, "scope"), "vector IS NOT NULL")
        found |= vectors_in(rows, embedder)
    index = lake.indices.find(embedder) if lake.indices.are_many else None
    if index is not None:  # rows that another embedder's runs have written have their vectors only there
        found |= index.vectors("true" if keys is None else f"scope IN ({listed(keys)})")
    return found


def derive(
    lake: Lake, models: Models, now: datetime, hours: Collection[str] = (), progress: Progress = lambda *_: None
) -> None:
    """Make what follows from copied rows, as a run at `now` does. Safe to repeat and to interrupt.

    `hours` are the keys of hours that had rows before.

    Raises:
        PartitionsError: some periods cannot be derived; all others of their grain are complete.
    """
    lake.indices.adopt(models.embedder)
    for grain in Grain:
        pending = {*grain_status(lake, grain, lake.start, now).pending}
        if grain is Grain.WORKING:  # hours with edits alone are not pending
            copied = {key for spec in HOURLY for key in lake.tables.keys(spec)}
            missing = copied - lake.ledger.entries(MEMORIES_ASSET).keys()
            pending |= {Period(grain, key) for key in {*missing, *hours}}
        done = set[str]()
        for part in materialize(lake, models, grain, pending):
            done.add(part.period.key)
            progress(str(grain), len(done), len(pending))
    if days := pending_days(lake, lake.start, now):
        progress("consolidation", 0, len(days))
        consolidate(lake, models, days, lake.start)
