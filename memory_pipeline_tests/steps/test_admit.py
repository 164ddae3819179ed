"""The journal filter drops erased and expired entries, and a run removes those that it wrote during an erasure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.erasure import Tombstone
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.ingest import filter_journal
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, NOW, START, conversation, hours, memory_rows, run, write
from memory_pipeline_tests.domain.memories.histories import remember

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.facts import ConversationHour, Extraction
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

FORGOTTEN_AT = datetime(2024, 2, 1, tzinfo=UTC)
TALK = conversation("I live in Porto.", "My dog is called Bruno.")
OTHER = conversation("I live in Oslo.", scope=Scope("acme", "sales"))
[HOUR] = hours("2024-01-15T08")


def forget(lake: Lake, subject: Subject) -> None:
    lake.ensure()
    lake.tombstones.put(Tombstone.of(subject, FORGOTTEN_AT, "0" * 32))


def test_forgotten_messages_are_dropped_and_counted(lake: Lake, models: Models) -> None:
    write(lake, TALK, OTHER)
    forget(lake, Subject.conversation(ACME, "c1"))
    assert filter_journal(lake, {HOUR}).forgotten == {HOUR: 2}
    made = {each.asset: each for each in materialize(lake, models, Grain.WORKING, [HOUR])}
    assert (made["messages"].forgotten, made["messages"].rows) == (2, 1)
    assert lake.journal.pending() == []
    assert lake.tables.read(MESSAGES)["agent_id"].to_pylist() == ["sales"]


def test_messages_after_the_erasure_are_accepted(lake: Lake, models: Models) -> None:
    forget(lake, Subject.agent(ACME))
    write(lake, TALK, conversation("I live in Ghent.", at="2024-02-01T08:00"))
    run(lake, models)
    assert lake.tables.read(MESSAGES)["content"].to_pylist() == ["I live in Ghent."]


def test_an_edit_about_a_forgotten_person_is_not_folded(lake: Lake, models: Models) -> None:
    forget(lake, Subject.person("acme", ["Ines Moreau"]))
    writer = MemoryWriter(lake, ACME, START)
    writer.graph.insert("Ines Moreau", "lives_in", "Cork", now=datetime(2024, 1, 15, 8, tzinfo=UTC))
    writer.graph.insert("Ruben", "lives_in", "Cork", now=datetime(2024, 1, 15, 8, tzinfo=UTC))
    run(lake, models)
    assert lake.tables.read(GRAPH_OPERATIONS)["subject"].to_pylist() == ["Ruben"]


def test_memory_events_about_a_forgotten_person_are_dropped(lake: Lake, models: Models) -> None:
    forget(lake, Subject.person("acme", ["Ines Moreau", "u-17"]))
    about, by = remember("Ines Moreau likes tea.", -4), remember("Someone likes figs.", -4, editor="Ines Moreau")
    hers = remember("Drinks tea.", -4, kind="preference", user_id="u-17", key="drink", value='"tea"')
    stays = remember("Ruben likes tea.", -4)
    late = remember("Ines Moreau likes milk.", 24 * 40)
    lake.journal.append([about, by, hers, stays, late])
    admitted = filter_journal(lake, {stays.hour})
    assert admitted.forgotten == {stays.hour: 2}
    run(lake, models)
    memories = memory_rows(lake)
    contents = ["Ines Moreau likes milk.", "Ruben likes tea.", "Someone likes figs."]
    assert sorted(memories["content"].to_pylist()) == contents
    assert "Ines Moreau" not in memories["editor"].to_pylist()  # facts about her stay, her own statements do not
    assert lake.journal.pending() == []


def test_readers_do_not_find_forgotten_data_that_was_sent_again(lake: Lake, models: Models) -> None:
    forget(lake, Subject.conversation(ACME, "c1"))
    write(lake, TALK, conversation("Porto is in Portugal.", conversation_id="c2"))
    hits = MemoryReader(lake, ACME, models.embedder).search_memory(query="Porto", maximum_days_ago=900, now=NOW)
    assert [hit.conversation_id for hit in hits] == ["c2"]


class _ForgetsMeanwhile:
    """An extractor that forgets a person during its first extraction."""

    def __init__(self, models: Models, lake: Lake, subject: Subject) -> None:
        self._models = models
        self._lake = lake
        self._subject = subject
        self.asked = 0

    def method(self, scope: Scope) -> str:
        return self._models.extractor.method(scope)

    def extract(self, passages: Sequence[ConversationHour], recall: Any) -> list[Extraction]:
        self.asked += 1
        if self.asked == 1:
            forget(self._lake, self._subject)
        return self._models.extractor.extract(passages, recall)


def test_a_run_removes_messages_forgotten_while_it_ran(lake: Lake, models: Models) -> None:
    write(lake, TALK, OTHER)
    extractor = _ForgetsMeanwhile(models, lake, Subject.conversation(ACME, "c1"))
    made = list(materialize(lake, replace(models, extractor=extractor), Grain.WORKING, [HOUR]))
    # The other agent's conversation has the same id and is not affected.
    for spec in (MESSAGES, FACTS, GRAPH_OPERATIONS):
        assert set(lake.tables.read(spec)["agent_id"].to_pylist()) == {"sales"}, spec.name
    for name, projection in lake.projections.items():
        assert set(projection.scan()["agent_id"].to_pylist()) == {"sales"}, name
    assert lake.index.count(ACME, Grain.WORKING) == 0
    assert {each.rows for each in made if each.asset == "messages"} == {1}
    files = [
        path for path in (Path(lake.storage.uri) / "tables" / "facts").rglob("*.parquet") if "_log" not in str(path)
    ]
    assert len(files) == 1  # the rows of the first attempt were vacuumed


def test_a_run_removes_memory_events_forgotten_while_it_ran(lake: Lake, models: Models) -> None:
    write(lake, OTHER)
    lake.journal.append(
        [remember("Anna likes tea.", -4), remember("Omar likes tea.", -4, scope=Scope("acme", "sales"))]
    )
    extractor = _ForgetsMeanwhile(models, lake, Subject.agent(ACME))
    made = list(materialize(lake, replace(models, extractor=extractor), Grain.WORKING, [HOUR]))
    assert {each.rows for each in made if each.asset == "durable_memories"} == {2}  # messages to sales, and its events
    for rows in (lake.tables.read(MEMORY_EVENTS), lake.events.scan(), lake.memory_rows.scan()):
        assert set(rows["agent_id"].to_pylist()) == {"sales"}
    on_disk = (Path(lake.storage.uri) / "tables" / MEMORY_EVENTS.name).rglob("*.parquet")
    assert len([path for path in on_disk if "_log" not in str(path)]) == 1
    assert lake.journal.pending() == []
