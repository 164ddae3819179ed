"""Runs in a copy of the package with an additional column of facts, ``mood``, and kind of memory, ``habit``."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import memory_pipeline
from memory_pipeline.checks import CheckContext, all_checks, run_checks
from memory_pipeline.cli.memories import memories as commands
from memory_pipeline.configuration.sections import MemoriesSettings
from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.record import MemoryKind, Status, Temperature
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, preview, verify
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.facts import facts_to_rows, rows_to_facts
from memory_pipeline.lake.codec.memories import rows_to_memories
from memory_pipeline.lake.schemas import FACTS, IS_FACT
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.tools.memory_tools import add_memory as remember
from memory_pipeline_tests.building import ACME, START, conversation, run, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.facts import Fact

HABIT = MemoryKind("habit")
NOW = datetime(2024, 1, 18, 12, tzinfo=UTC)
MOOD = "as cheerful as Zoe"
ZOE = Subject.person("acme", ["Zoe"])


class Feeling(DeterministicExtractor):
    """Adds a mood to facts about a bicycle."""

    def facts_of(self, messages: Sequence[Message]) -> list[Fact]:
        facts: list[Any] = super().facts_of(messages)
        return [replace(fact, mood=MOOD) if "bicycle" in fact.content else fact for fact in facts]


def habit(minute: int, place: str, content: str) -> MemoryEvent:
    """Return an event about Anna's habit."""
    at = datetime(2024, 1, 15, 8, minute, tzinfo=UTC)
    said = Changes(HABIT, content=content, subject="Anna", predicate="lives_in", object=place, importance=0.9)
    return MemoryEvent.of(ACME, MemoryVerb.REMEMBER, at, said, received_at=at)


def made(folder: str) -> Lake:
    lake, models = Lake(folder), replace(default_models(), extractor=Feeling())
    write(lake, conversation("I bought a bicycle in Vienna.", "I moved to Porto."))
    lake.journal.append([habit(30, "Lisbon", "Anna sleeps in Lisbon."), habit(40, "Porto", "Anna sleeps in Porto.")])
    run(lake, models, NOW)
    consolidate(lake, models, pending_days(lake, START, NOW), START)
    return lake


def see_column(lake: Lake) -> None:
    rows = lake.tables.read(FACTS)
    assert set(rows["mood"].to_pylist()) == {MOOD, None}
    facts: list[Any] = rows_to_facts(rows)
    assert [fact.mood for fact in facts] == rows["mood"].to_pylist()
    again = facts_to_rows(facts)
    for name in set(FACTS.schema.names) - {"vector", "embed_model"}:
        assert again[name].combine_chunks().equals(rows[name].combine_chunks()), name


def see_kind(lake: Lake) -> None:
    rows = lake.memory_rows.scan(where=IS_FACT)
    lisbon, porto = sorted(
        (one for one in rows_to_memories(rows)[ACME].newest.values() if one.kind is HABIT),
        key=lambda one: one.created_at,
    )
    assert (lisbon.status, lisbon.superseded_by) == (Status.SUPERSEDED, porto.id)
    assert (porto.status, porto.temperature) == (Status.ACTIVE, Temperature.HOT)
    reader = MemoryReader(lake, ACME, default_models().embedder)
    assert [one.memory.id for one in reader.memories.search("Porto", kind="habit", now=NOW)] == [porto.id]
    assert HABIT in MemoriesSettings().kinds
    assert any("habit" in (one.choices or ()) for one in remember.parameters)
    [option] = [one for one in commands.commands["remember"].params if one.name == "kind"]
    assert option.type.convert("habit", None, None) == "habit"


def see_checks(lake: Lake) -> None:
    found = [finding for finding in run_checks(CheckContext(lake, NOW), all_checks()) if not finding.passed]
    assert not found, [(one.check.asset, one.check.name, one.sample, one.trouble) for one in found]


def see_erasure(lake: Lake) -> None:
    feeling = sum(mood is not None for mood in lake.tables.read(FACTS)["mood"].to_pylist())
    assert preview(lake, ZOE, NOW).counts["facts"] == feeling > 0
    receipt = forget(lake, default_models(), ZOE, NOW)
    assert {part.place: part.count for part in receipt.removed if part.what == "rows"}["facts"] == feeling
    assert not lake.tables.read(FACTS)["mood"].drop_null()
    result = verify(lake, receipt)
    assert not [*map(str, result.findings), *result.unsearched]
    assert preview(lake, Subject.person("acme", ["Lisbon"]), NOW).counts["memory_events"] == 1
    forget(lake, default_models(), Subject.person("acme", ["Lisbon"]), NOW)
    assert [
        one.content
        for one in rows_to_memories(lake.memory_rows.scan(where=IS_FACT))[ACME].newest.values()
        if one.kind is HABIT
    ] == ["Anna sleeps in Porto."]


if __name__ == "__main__":
    assert Path(str(memory_pipeline.__file__)).is_relative_to(sys.argv[1])
    of_test = made(f"{sys.argv[1]}/lake")
    see_column(of_test)
    see_kind(of_test)
    see_checks(of_test)
    see_erasure(of_test)
    see_checks(of_test)
