"""The cost of a backfill of a year, of a repeated backfill without changes, and of a late message.

100 agents speak three hours a week for 52 weeks, two or three messages each time (``--quick``: 10 agents, 13 weeks).
The conversations go into the journal from a file (:func:`memory_pipeline.writer.files.ingest_file`), then
:func:`memory_pipeline.client.pipeline.run_all` computes all grains and the marts, without Dagster.

The call is repeated (it should write nothing), then repeated with ``between``, which recomputes every partition
whatever the ledger says. Last, one message is written to an old hour and the call repeated.
Commits are versions of the Delta tables; index versions are those of all LanceDB tables together; questions are the
requests that a configured model would receive: passages and summaries.

The overhead of Dagster is measured on copies of the same journal: the steps as plain functions, through Dagster with an
ephemeral instance, and with an instance in SQLite.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from unittest.mock import patch

import dagster as dg
import lancedb

from benchmarks.generator import START, WORKSPACE, agent_name, sparse
from benchmarks.measure import Cell, Table, progress, versions
from memory_pipeline.client import pipeline
from memory_pipeline.defs.dagster_runner import DagsterRunner
from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import Models, default_models
from memory_pipeline.settings import Settings
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.results import RunResult
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.writer import MemoryWriter
from memory_pipeline.writer.files import ingest_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from memory_pipeline.domain.facts import ConversationHour, Extraction
    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.summaries import Assignment, Condensation

_Row = dict[str, Cell]


@dataclass
class _Counting:
    """An extractor and a summarizer that count requests."""

    models: Models
    questions: int = 0

    def method(self, scope: Scope, grain: Grain | None = None) -> str:
        return self.models.extractor.method(scope) if grain is None else self.models.summarizer.method(scope, grain)

    def extract(
        self, passages: Sequence[ConversationHour], recall: Callable[[], Mapping[Scope, Sequence[Operation]]]
    ) -> list[Extraction]:
        self.questions += len(passages)
        return self.models.extractor.extract(passages, recall)

    def summarize(self, assignments: Sequence[Assignment]) -> list[Condensation | None]:
        self.questions += len(assignments)
        return self.models.summarizer.summarize(assignments)


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with a lake below `folder`."""
    agents, weeks = (10, 13) if quick else (100, 52)
    lake = Lake(str(folder / "lake"))
    now = START + timedelta(weeks=weeks, days=8)
    first, messages, writing = _ingest(lake, folder, agents, weeks, now)
    overhead = _overhead(folder, now)

    whole: list[_Row] = []
    grains: list[_Row] = []
    commits: list[_Row] = []

    def measure(what: str, between: tuple[datetime, datetime] | None = None) -> None:
        progress(what)
        asked = _Counting(default_models())
        models = replace(asked.models, extractor=asked, summarizer=asked)
        before, indexed, started = versions(lake), _index_versions(lake), time.perf_counter()
        finished = started
        for event in pipeline.run_all(lake, models, now, between):
            if isinstance(event, RunResult):
                spent = time.perf_counter() - finished
                grains.append(_grain(what, event, spent))
            finished = time.perf_counter()
        marts = time.perf_counter() - finished
        total = time.perf_counter() - started
        nothing = {"periods": 0, "partitions changed": 0, "rows": 0}
        grains.append({"call": what, "grain": "marts", "seconds": marts, **nothing})
        after = versions(lake)
        written = {name: after[name] - before[name] for name in after}
        whole.append(
            {
                "call": what,
                "seconds": total,
                "partitions": sum(
                    int(row["partitions changed"]) for row in grains if row["call"] == what and row["grain"] != "marts"
                ),
                "questions": asked.questions,
                "table commits": sum(written.values()),
                "index versions": _index_versions(lake) - indexed,
            }
        )
        commits.append({"call": what, **written})

    measure("first")
    measure("again")
    measure("again, all partitions", (START, START + timedelta(weeks=weeks)))
    writer = MemoryWriter.open(lake.storage.uri, workspace_id=WORKSPACE, agent_id=agent_name(0))
    late = {"role": "user", "content": "Ines moved from Porto to Ghent.", "timestamp": first}
    writer.write({"conversation_id": "late", "messages": [late]}, now=now)
    measure("one late message")

    base = float(whole[0]["seconds"])
    whole = [{**row, "of the first": float(row["seconds"]) / base} for row in whole]
    rate = f"{messages:,} messages of {agents} agents in {weeks} weeks, written to the journal in {writing:.0f} s"
    return [
        Table("orchestrator", "the same journal, made with and without Dagster; marts are left out", overhead),
        Table("backfill", rate, whole),
        Table("backfill by grain", "periods: asked for; partitions changed and rows: of all assets of a grain", grains),
        Table("backfill: commits by table", "versions of each Delta table that a call made", commits),
    ]


def _overhead(folder: Path, now: datetime) -> list[_Row]:
    """Compute copies of a lake in three ways. Plain functions are first and last."""
    ways = ("plain functions", "Dagster, forgotten instance", "Dagster, SQLite instance", "plain functions, again")
    seconds: dict[str, float] = {}
    for number, way in enumerate(ways):
        progress(way)
        root = folder / f"copy-{number}"
        shutil.copytree(folder / "lake", root)
        home = folder / f"home-{number}"
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        started = time.perf_counter()
        if way.startswith("plain"):
            lake = Lake(str(root))
            for grain in Grain:
                for _ in materialize(
                    lake, default_models(), grain, grain_status(lake, grain, START.date(), now).pending
                ):
                    pass
        else:
            settings = Settings(root=str(root))
            lake, models = Lake(str(root)), default_models()
            stored = patch.dict(os.environ, {"DAGSTER_HOME": str(home)})
            with stored, patch("memory_pipeline.analytics.stale_marts", return_value=[]):
                instance = None if way.endswith("SQLite instance") else dg.DagsterInstance.ephemeral()
                with DagsterRunner(lake, settings, models, instance) as runner:
                    for _ in pipeline.run_all(lake, models, now, runner=runner):
                        pass
        seconds[way] = time.perf_counter() - started
        shutil.rmtree(root)
    plain = (seconds[ways[0]] + seconds[ways[-1]]) / 2
    return [{"way": way, "seconds": spent, "of plain functions": spent / plain} for way, spent in seconds.items()]


def _ingest(lake: Lake, folder: Path, agents: int, weeks: int, now: datetime) -> tuple[str, int, float]:
    """Write the conversations into the journal; return the first one's time, the number of messages, and seconds."""
    file = folder / "conversations.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        talks = list(sparse(agents, weeks))
        lines.writelines(json.dumps(talk) + "\n" for talk in talks)
    progress(f"{len(talks):,} talks into the journal")
    started = time.perf_counter()
    result = ingest_file(lake, file, Admission(START.date(), now, lake.calendar))
    first = (START + timedelta(hours=10)).isoformat()
    return first, result.accepted, time.perf_counter() - started


def _grain(what: str, event: RunResult, seconds: float) -> _Row:
    return {
        "call": what,
        "grain": event.grain.value,
        "seconds": seconds,
        "periods": len(event.periods),
        "partitions changed": event.changed,
        "rows": event.rows,
    }


def _index_versions(lake: Lake) -> int:
    database = lancedb.connect(lake.storage.locate("projections"))
    return sum(database.open_table(name).version for name in database.table_names(limit=100_000))
