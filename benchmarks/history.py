"""A lake with a year of memory: every agent spoke on 50 days and has about 100 durable memories.

Messages and edits of memories are written directly to their tables, in bulk and without a journal. The steps of the
pipeline then compute everything else in batches of a month: facts, graph, memories, index, summaries, consolidation.
So the lake is valid: `memory-pipeline check` finds nothing, and a run of one of its hours writes nothing.

    python -m benchmarks.history FOLDER --agents 10000      # then: python -m benchmarks.scale --history FOLDER
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from benchmarks.generator import START, WORKSPACE, agent_name, conversation, sentence
from benchmarks.measure import progress
from memory_pipeline.checks import CheckContext, all_checks, run_checks
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.facts import messages_to_rows
from memory_pipeline.lake.codec.memories import events_to_rows
from memory_pipeline.lake.schemas import MEMORY_EVENTS, MESSAGES
from memory_pipeline.models.factory import default_models
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.domain.messages import Message

#: Messages of an agent in an hour in which it speaks.
EACH = 3
#: All periods of the year are closed.
NOW = START + timedelta(days=400)
_DAYS, _SPOKEN = 366, 50
#: Edits of an agent. Together with the memories from its conversations, there are about 100.
_EDITS = 60
_KINDS = (MemoryKind.FACT, MemoryKind.OBSERVATION, MemoryKind.DECISION, MemoryKind.PROCEDURE, MemoryKind.PREFERENCE)


def said(agent: int, at: datetime, messages: int = EACH, user_of: Lake | None = None) -> list[Message]:
    """Return the messages of an agent in the hour that starts at `at`; with `user_of`, of a user of one agent."""
    name = agent_name(agent)
    talk = conversation(random.Random(f"{name} {at}"), name, at, messages)
    if user_of is None:
        return read_messages(talk, Admission(START.date(), NOW))[0]
    return read_messages({**talk, "agent_id": "agent", "user_id": name}, Admission(START.date(), NOW), user_of.scope)[0]


def grow(lake: Lake, agents: int) -> None:
    """Fill an empty lake in UTC with the year."""
    lake.ensure()
    models = default_models()
    by_month: dict[int, list[tuple[int, datetime]]] = {}
    for agent in range(agents):
        source = random.Random(f"history {agent}")
        for day in source.sample(range(_DAYS), _SPOKEN):
            at = START + timedelta(days=day, hours=source.randint(9, 16))
            by_month.setdefault(at.month, []).append((agent, at))
    for month, spoken in sorted(by_month.items()):
        progress(f"month {month}: {len(spoken):,} conversations")
        messages = [message for agent, at in spoken for message in said(agent, at)]
        hours = sorted({message.hour for message in messages}, key=lambda hour: hour.key)
        keys = [hour.key for hour in hours]
        lake.tables.replace(MESSAGES, keys, messages_to_rows(messages))
        lake.tables.replace(MEMORY_EVENTS, keys, events_to_rows(_edits(spoken), are_edits=True))
        for _ in materialize(lake, models, Grain.WORKING, hours):
            pass
    for grain in SUMMARY_GRAINS:
        progress(f"{grain} summaries")
        for _ in materialize(lake, models, grain, grain_status(lake, grain, START.date(), NOW).pending):
            pass
    progress("consolidation")
    consolidate(lake, models, pending_days(lake, START.date(), NOW), START.date())


def _edits(spoken: list[tuple[int, datetime]]) -> Iterator[MemoryEvent]:
    for agent, at in spoken:
        source = random.Random(f"edits {agent} {at}")
        scope = Scope(WORKSPACE, agent_name(agent))
        for turn in range(1 + (source.random() < _EDITS / _SPOKEN - 1)):
            kind, content = source.choice(_KINDS), f"{sentence(source)} {sentence(source)}"
            changes = Changes(kind, content=content, importance=round(source.uniform(0.3, 1.0), 3))
            edited = at + timedelta(minutes=50)
            yield MemoryEvent.of(scope, MemoryVerb.REMEMBER, edited, changes, turn=turn, received_at=edited)


def findings(lake: Lake) -> list[str]:
    """Return the checks that the lake fails, and those with a warning."""
    found = run_checks(CheckContext(lake, NOW), all_checks())
    return [f"{each.check.asset} {each.check.name}: {each.sample}" for each in found if not each.passed]


def main() -> None:
    """Fill a folder with the year, and check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description="Write a year of memory.")
    parser.add_argument("folder", help="an empty or missing folder")
    parser.add_argument("--agents", type=int, default=1_000)
    arguments = parser.parse_args()
    lake = Lake(arguments.folder)
    if lake.exists:
        parser.error(f"{arguments.folder} is a lake already")
    grow(lake, arguments.agents)
    sizes = Counter({name: rows.scan(["id"]).num_rows for name, rows in lake.projections.items()})
    print(", ".join(f"{name} {number:,}" for name, number in sizes.items()))
    print("\n".join(findings(lake)) or "all checks passed")


if __name__ == "__main__":
    main()
