"""Messages per second through the hourly steps, and the share of each stage.

20 agents speak in each of 48 hours (``--quick``: 5 agents, 12 hours). Each conversation is one durable write of
:class:`~memory_pipeline.writer.MemoryWriter`; then :func:`memory_pipeline.steps.materialize.materialize` computes all
hours. Stages are timed by wrapping the step functions, the extractor, the embedder and the ledger, so "extract: rows
and commit" is the extraction step without the extractor and the embedder.

Dagster computes the same journal with an ephemeral instance, up to the end of the working grain
(:class:`memory_pipeline.defs.dagster_runner.DagsterRunner`). Both ways run three times, in turns, in separate lakes,
after a small warm-up. The fastest counts.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from unittest.mock import patch

import dagster as dg

from benchmarks.generator import START, WORKSPACE, busy
from benchmarks.measure import Stopwatch, Table, progress
from memory_pipeline.client.pipeline import run_all
from memory_pipeline.defs.dagster_runner import DagsterRunner
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.lake.tables.ledger import Ledger
from memory_pipeline.models.factory import Models, default_models
from memory_pipeline.settings import Settings
from memory_pipeline.steps import materialize as chain
from memory_pipeline.steps.results import RunResult
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.generator import Conversation
    from memory_pipeline.domain.facts import ConversationHour, Extraction, Extractor
    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.model_calls import Use
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope

_ROUNDS = 3
_NOW = START + timedelta(days=366)
_STAGES = {
    "load_messages": "land",
    "extract_facts": "extract: rows and commit",
    "index_periods": "index",
    "acknowledge": "acknowledge",
}


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with lakes below `folder`."""
    agents, hours, messages = (5, 12, 1_500) if quick else (20, 48, 20_000)
    _warm_up(folder)
    journal, writing = Lake(str(folder / "journal")), Stopwatch()
    talks = list(busy(agents, hours, messages))
    with writing.measuring("journal: write"):
        written = write(journal, talks)
    watches: list[Stopwatch] = []
    dagster_seconds: list[float] = []
    for number in range(_ROUNDS):
        progress(f"{written:,} messages, round {number + 1} of {_ROUNDS}")
        for kind in ("plain", "dagster"):
            lake = Lake(str(shutil.copytree(folder / "journal", folder / f"{kind}-{number}")))
            if kind == "plain":
                watches.append(Stopwatch())
                with watches[-1].measuring("other: lists, batches"):
                    make_hours(lake, watches[-1])
                facts = lake.tables.read(FACTS, columns=["id"]).num_rows
            else:
                dagster_seconds.append(make_through_dagster(lake))

    fastest = min(watches, key=lambda watch: sum(watch.seconds.values()))
    made = sum(fastest.seconds.values())
    stages = {**writing.seconds, **fastest.seconds}
    total = sum(stages.values())
    return [
        Table(
            "ingest",
            f"{written:,} messages of {agents} agents in {hours} hours, {len(talks):,} talks, {facts:,} facts",
            [
                _rate("whole chain, plain functions", total, written, made),
                _rate("writing the journal", total - made, written, made),
                _rate("making the hours, plain functions", made, written, made),
                _rate("making the hours, through Dagster", min(dagster_seconds), written, made),
            ],
        ),
        Table(
            "ingest by stage",
            "of the whole chain with the plain functions",
            [
                {"stage": name, "seconds": seconds, "share %": 100 * seconds / total}
                for name, seconds in sorted(stages.items(), key=lambda item: -item[1])
            ],
        ),
    ]


def _rate(what: str, seconds: float, messages: int, base: float) -> dict[str, str | int | float]:
    return {"what": what, "messages/s": messages / seconds, "seconds": seconds, "of making the hours": seconds / base}


def write(lake: Lake, talks: Iterable[Conversation]) -> int:
    """Write conversations with one writer per agent. Return the number of messages."""
    writers: dict[object, MemoryWriter] = {}
    messages = 0
    for talk in talks:
        agent = talk["agent_id"]
        if agent not in writers:
            writers[agent] = MemoryWriter.open(lake.storage.uri, workspace_id=WORKSPACE, agent_id=str(agent))
        messages += len(writers[agent].write(talk, now=_NOW).message_ids)
    return messages


def make_hours(lake: Lake, watch: Stopwatch | None = None) -> None:
    """Compute all pending hours with plain functions."""
    watch = watch or Stopwatch()
    plain = default_models()
    models = Models(_TimedExtractor(plain.extractor, watch), _TimedEmbedder(plain.embedder, watch), plain.summarizer)
    with ExitStack() as patches:
        for name, stage in _STAGES.items():
            patches.enter_context(patch.object(chain, name, watch.timed(stage, getattr(chain, name))))
        patches.enter_context(patch.object(Ledger, "record", watch.timed("ledger", Ledger.record)))
        for _ in chain.materialize(lake, models, Grain.WORKING, lake.journal.pending_hours()):
            pass


def make_through_dagster(lake: Lake) -> float:
    """Compute all pending hours with Dagster. Return the seconds."""
    started = time.perf_counter()
    models = default_models()
    with DagsterRunner(lake, Settings(root=lake.storage.uri), models, dg.DagsterInstance.ephemeral()) as runner:
        for event in run_all(lake, models, _NOW, runner=runner):
            if isinstance(event, RunResult):
                break
    return time.perf_counter() - started


def _warm_up(folder: Path) -> None:
    """Trigger lazy imports and fill caches of words, for both ways."""
    for name, make_them in (("warm-plain", make_hours), ("warm-dagster", make_through_dagster)):
        lake = Lake(str(folder / name))
        write(lake, busy(2, 2, 40))
        make_them(lake)


@dataclass(frozen=True)
class _TimedExtractor:
    inner: Extractor
    watch: Stopwatch

    def method(self, scope: Scope) -> str:
        return self.inner.method(scope)

    def extract(
        self, passages: Sequence[ConversationHour], recall: Callable[[], Mapping[Scope, Sequence[Operation]]]
    ) -> list[Extraction]:
        with self.watch.measuring("extract: find facts"):
            return self.inner.extract(passages, recall)


@dataclass(frozen=True)
class _TimedEmbedder:
    inner: Embedder
    watch: Stopwatch

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        with self.watch.measuring("embed"):
            return self.inner.embed(texts, uses)
