"""Digests of lakes whose contents a change of the code must not change.

Each lake is a story in steps, with a digest of all tables, projections and marts after each step: the sample of the
demo with late data, edits and erasures; the same behind a model server; and, if their files are given, the talks of
LoCoMo. Save the digests before a change, and compare after it::

    python -m benchmarks.digests --locomo conv-26.json > before.json
    python -m benchmarks.digests --locomo conv-26.json --compare before.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import progress
from memory_pipeline import Memory
from memory_pipeline.analytics import Warehouse, models_of
from memory_pipeline.client.pipeline import run_all
from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.evaluation.formats import read_locomo_set
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import configured_models
from memory_pipeline.sample import AFTERWARDS, AGENT, HISTORY, WORKSPACE
from memory_pipeline.writer.files import ingest_file
from memory_pipeline_tests.lake_digest import differing, lake_digest, marts_digest
from memory_pipeline_tests.openai_server import OpenAIServer
from memory_pipeline_tests.oracle import EMBEDDING, answer, configure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET = "0" * 64
#: The address of a model is part of the keys of its answers.
_PORT = 8197
LATE = datetime(2025, 3, 5, 10, tzinfo=UTC)


def _run(lake: Lake, now: datetime = AFTERWARDS) -> None:
    models = configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: now)
    for _ in run_all(lake, models, now):
        pass
    for _ in Warehouse(lake).build_all([model.name for model in models_of("marts")]):
        pass


def _forget(lake: Lake, subject: Subject) -> None:
    models = configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: AFTERWARDS)
    forget(lake, models, subject, AFTERWARDS)


def _told(lake: Lake, steps: dict[str, Callable[[], object]]) -> Iterator[tuple[str, dict[str, str]]]:
    for name, step in steps.items():
        progress(name)
        step()
        yield name, lake_digest(lake) | marts_digest(lake)


def _sample(lake: Lake) -> dict[str, Callable[[], object]]:
    """Return the steps of the sample: each but the first is followed by a run, erasures before it, too."""
    nadia, agent = (
        Memory(lake.storage.uri, workspace_id=WORKSPACE, agent_id=AGENT, user_id=u) for u in ("nadia", None)
    )
    admission = Admission(lake.accepts_from, AFTERWARDS, lake.calendar)

    def late() -> None:
        nadia.add("I moved to Lisbon. I am allergic to sesame.", conversation_id="late", now=LATE)
        _run(lake)

    def remembered() -> None:
        identifier = nadia.remember("The flour arrives on Tuesdays.", now=LATE)
        nadia.writer.update(identifier, content="The flour arrives on Mondays.", now=AFTERWARDS)
        _run(lake)

    def edited() -> None:
        agent.writer.graph.insert("Oven", "located_in", "Cellar", now=LATE)
        _run(lake)

    def forgotten(*subjects: Subject) -> dict[str, Callable[[], object]]:
        return {
            f"{name} {subject.kind} {number}": step
            for number, subject in enumerate(subjects)
            for name, step in (("forgot", partial(_forget, lake, subject)), ("run after", partial(_run, lake)))
        }

    return {
        "ingested": lambda: ingest_file(lake, HISTORY, admission),
        "run": lambda: _run(lake),
        "run again": lambda: _run(lake),
        "late message": late,
        "remembered and updated": remembered,
        "edit of the graph": edited,
        "pending message": lambda: nadia.add("My new bicycle is red.", conversation_id="late", now=AFTERWARDS),
        **forgotten(
            Subject.conversation(Scope(WORKSPACE, AGENT), "late"),
            Subject.person(WORKSPACE, ["Clara"]),
            Subject.user(WORKSPACE, "milo"),
            Subject.agent(Scope(WORKSPACE, AGENT)),
        ),
    }


def _locomo(lake: Lake, files: list[Path]) -> dict[str, Callable[[], object]]:
    messages = list(read_locomo_set(files).messages.values())
    lake.ensure(min(message.sent_at for message in messages))
    names = sorted({message.speaker for message in messages})
    return {
        "written": lambda: lake.journal.append(messages),
        "run": lambda: _run(lake),
        "forgot a person": lambda: _forget(lake, Subject.person(messages[0].scope.workspace_id, names[:1])),
        "run after it": lambda: _run(lake),
    }


def stories(files: list[Path]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the digests of each step of each lake."""
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(_PORT) as server:
        server.answer = answer
        lakes = {name: Lake(f"{folder}/{name}", secret=SECRET) for name in ("demo", "models", "locomo")}
        lakes["demo"].ensure()
        configure(lakes["models"], server, EMBEDDING)
        told = {"demo": _sample(lakes["demo"]), "models": _sample(lakes["models"])}
        if files:
            told["locomo"] = _locomo(lakes["locomo"], files)
        for name, steps in told.items():
            for step, digests in _told(lakes[name], steps):
                yield f"{name}: {step}", digests | ({"requests": str(len(server.requests))} if name == "models" else {})


def main() -> int:
    """Print the digests as JSON, or what differs from saved ones; return 1 if anything does."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.digests", description=__doc__.partition("\n")[0])
    parser.add_argument("--locomo", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="digests that an earlier version printed")
    arguments = parser.parse_args()
    os.environ.pop("DAGSTER_HOME", None)
    found = dict(stories(arguments.locomo))
    if arguments.compare is None:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return 0
    saved = json.loads(arguments.compare.read_text("utf-8"))
    lines = [
        f"{step}: {line}"
        for step in saved | found
        for line in differing(saved.get(step, {}), found.get(step, {}))
        if not line.startswith("tables/ledger")
    ]
    sys.stdout.write("\n".join(lines or [f"{len(found)} digests are equal"]) + "\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
