"""A reader over several scopes: own memories of several agents stand for those of an agent, its users and groups."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope, scope_key
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.memories import DurableMemories, MemoryOverlay
from memory_pipeline.memories.state import JoinedOverlays
from memory_pipeline.reader import MemoryReader
from memory_pipeline_tests.building import conversation, run, write
from memory_pipeline_tests.graph.line_edits import Waiting, write_edits
from memory_pipeline_tests.memories.keeping import event, land, minute, remember
from memory_pipeline_tests.memories.keeping import write as write_events

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import CopiedLake


ONE, TWO, THREE, WHOLE = (Scope("acme", name) for name in ("one", "two", "three", "whole"))
SAID = {
    ONE: ["I moved to Porto with my dog Bruno.", "The PIN of my door is 4711."],
    TWO: ["Bruno has a new vet in Porto, Doctor Silva.", "I like green tea in the morning."],
    THREE: ["I began to play the violin in 2019.", "We booked a ferry to Madeira for 9 August."],
}
LATER = datetime(2024, 2, 20, tzinfo=UTC)


def reader_of(lake: Lake, models: Models, scopes: Sequence[Scope], resident_rows: int = 1_000) -> MemoryReader:
    uri = lake.storage.uri
    return MemoryReader(Lake(uri), scopes[0], models.embedder, resident_rows=resident_rows, scopes=lambda: scopes)


def write_all(lake: Lake) -> None:
    for number, (scope, texts) in enumerate(SAID.items()):
        for own in (scope, WHOLE):
            at = f"2024-01-1{number + 1}T08:00"
            write(lake, conversation(*texts, at=at, scope=own, conversation_id=f"c{number}"))


@pytest.fixture
def processed(copied: CopiedLake, models: Models) -> Lake:
    """A lake of three agents, and of one with the messages of all three."""

    def fill(folder: Path) -> None:
        write_all(Lake(str(folder)))
        run(Lake(str(folder)), models)

    return copied("reader-scopes", fill)


@pytest.mark.parametrize("is_processed", [False, True])
def test_scopes_read_together_give_the_results_of_one_with_all(
    request: pytest.FixtureRequest, models: Models, is_processed: bool
) -> None:
    lake: Lake = request.getfixturevalue("processed" if is_processed else "lake")
    if is_processed:
        for scope in (TWO, WHOLE):
            said = conversation("Bruno ate my passport.", at="2024-01-20T08:00", scope=scope, conversation_id="c9")
            write(lake, said)
    else:
        write_all(lake)
    together = reader_of(lake, models, [ONE, TWO, THREE])
    whole = MemoryReader(Lake(lake.storage.uri), WHOLE, models.embedder)
    for query in (None, "Where did Bruno move to?", "Who is the vet?", "violin"):
        found, expected = (one.search_memory(query=query, now=LATER) for one in (together, whole))
        assert [(hit.content, hit.score) for hit in found] == [(hit.content, hit.score) for hit in expected]
        assert found.total == expected.total == len(found)
    first, second = (together.search_memory(max_results=3, offset=offset, now=LATER) for offset in (0, 3))
    assert [hit.id for hit in (*first, *second)] == [hit.id for hit in together.search_memory(max_results=6, now=LATER)]
    asked = "Where is Bruno?"
    recalled = [
        {item.content for item in one.recall(asked, now=LATER) if item.grain is Grain.WORKING}
        for one in (together, whole)
    ]
    assert recalled[0] == recalled[1]


def test_tables_too_large_for_memory_are_searched_together(
    processed: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = processed
    write(lake, conversation("Bruno ate my passport.", at="2024-01-20T08:00", scope=TWO, conversation_id="c9"))
    cached = reader_of(lake, models, [ONE, TWO, THREE])
    monkeypatch.setattr(VectorIndex, "is_large", lambda *_: True)
    on_disk = reader_of(lake, models, [ONE, TWO, THREE], resident_rows=0)
    assert on_disk._states()[0].index.rows(Grain.WORKING).table is None
    newest, expected = (one.search_memory(now=LATER) for one in (on_disk, cached))
    assert [(hit.content, hit.identity) for hit in newest] == [(hit.content, hit.identity) for hit in expected]
    assert newest.total == expected.total == 7
    assert "vet" in on_disk.search_memory(query="Who is the vet?", now=LATER)[0].content


def test_what_one_scope_revoked_or_the_caller_was_shown_is_hidden(lake: Lake, models: Models) -> None:
    for scope, town in ((ONE, "Porto"), (TWO, "Oslo")):
        write(lake, conversation(f"I live in {town}.", scope=scope))
    run(lake, models)
    reader = reader_of(lake, models, [ONE, TWO])
    [moved] = [one for one in reader.memories.list() if "Porto" in one.content]
    asked = "Where do I live?"
    assert {"Porto", "Oslo"} <= set(str(reader.inject_knowledge(asked, now=LATER)).replace(".", " ").split())
    write_events(lake, event(MemoryVerb.FORGET, minute(2_000), moved.id, reason="wrong", scope=ONE))
    block = reader.inject_knowledge(asked, now=LATER).block
    assert "Anna: I live in Oslo" in block
    assert "I live in Porto" not in block
    [other] = [hit for hit in reader.search_memory(now=LATER) if "Oslo" in hit.content]
    assert "Oslo" not in reader.inject_knowledge(asked, exclude=[other.id], now=LATER).block


def test_points_of_all_scopes_are_ranked_together(processed: Lake, models: Models) -> None:
    together = reader_of(processed, models, [ONE, TWO, THREE])
    days = together.search_memory(Grain.DAILY, query="violin", now=LATER)
    assert {hit.period for hit in days} == {"2024-01-11", "2024-01-12", "2024-01-13"}
    assert "violin" in days[0].content
    asked = together.recall("Who plays the violin?", 4_000, now=LATER)
    assert any("violin" in item.content for item in asked)
    for hit in days:
        assert together.expand(hit.id).content
        assert together.get(hit.id, now=LATER) is not None


def test_an_open_reader_reads_exactly_the_scopes_of_the_list(processed: Lake, models: Models) -> None:
    lake = processed
    for scope in (ONE, TWO):
        write_edits(lake, f"INSERT Secret {scope.agent_id} | likes | tea", scope=scope)
        write_events(lake, remember(f"The secret word of {scope.agent_id} is tea.", scope=scope))
    listed = [ONE]
    reader = MemoryReader(Lake(lake.storage.uri), ONE, models.embedder, scopes=lambda: list(listed))
    [theirs] = reader_of(lake, models, [TWO]).search_memory(query="vet", max_results=1, now=LATER)
    memory = reader_of(lake, models, [TWO]).memories.list()[0]

    def reads_two() -> list[bool]:
        try:
            expanded = bool(reader.expand(theirs.id))
        except InputError:
            expanded = False
        block = reader.inject_knowledge("Which vet and which secret word likes tea?", max_results=50, now=LATER).block
        return [
            any("vet" in hit.content for hit in reader.search_memory(query="vet", now=LATER)),
            any("vet" in hit.content for hit in reader.search_memory(now=LATER)),
            any("vet" in hit.content for hit in reader.search_memory(Grain.DAILY, now=LATER)),
            "vet" in str(reader.recall("Who is the vet?", now=LATER)),
            "vet" in block or "word of two" in block,
            reader.get(theirs.id, now=LATER) is not None,
            expanded,
            reader.graph.knows("Secret two"),
            bool(reader.graph.query("SELECT * FROM facts WHERE source = 'Secret two'").rows),
            any("of two" in one.content for one in reader.memories.list()),
            any("two" in one.memory.content for one in reader.memories.search("secret word")),
            any("two" in one.memory.content for one in reader.imagine(["What is the secret word?"])),
            reader.memories.get(memory.id) is not None,
            bool(reader.memories.history(memory.id)),
            bool(reader.memories.explain(memory.id)),
        ]

    assert not any(reads_two())
    kept = reader._states()[0]
    listed.append(TWO)
    assert all(reads_two())
    assert reader._states()[0] is kept
    listed.remove(TWO)
    assert not any(reads_two())


@pytest.mark.parametrize("is_processed", [False, True])
def test_copies_of_a_message_are_shown_and_counted_once(lake: Lake, models: Models, is_processed: bool) -> None:
    told = ["I moved to Porto.", "My dog is called Bruno."]
    for scope in (ONE, TWO):
        write(lake, conversation(*told, scope=scope, conversation_id=scope.agent_id))
    write(lake, conversation("I moved to Porto.", scope=THREE, name="Carla"))
    if is_processed:
        run(lake, models)
    reader = reader_of(lake, models, [ONE, TWO, THREE])
    for query in (None, "Who moved to Porto?"):
        hits = reader.search_memory(query=query, now=LATER)
        assert sorted(hit.content for hit in hits) == [
            "Anna: I moved to Porto.", "Anna: My dog is called Bruno.", "Carla: I moved to Porto.",
        ]  # fmt: skip
        assert hits.total == 3
    # A filter that only the copy passes shows the copy, and each copy has its id.
    [copy, _] = reader.search_memory(conversation_id="two", now=LATER)
    assert (found := reader.get(copy.id, now=LATER)) is not None
    assert found.id == copy.id
    contents = [item.content for item in reader.recall("Who moved to Porto?", 2_000, now=LATER)]
    assert contents.count("Anna: I moved to Porto.") == 1


def test_hot_indexes_are_merged_within_their_limits(lake: Lake, models: Models) -> None:
    for scope, importance in ((ONE, 0.5), (TWO, 0.9)):
        told = [
            remember(
                f"Rule {number} of {scope.agent_id}.", minute(number), kind="rule", importance=importance, scope=scope
            )
            for number in range(15)
        ]
        heat = [
            event(MemoryVerb.HEAT, minute(3_000), one.memory_id, editor="consolidation", scope=scope) for one in told
        ]
        land(lake, *told, consolidation=heat)
    index = reader_of(lake, models, [ONE, TWO]).hot_index()
    settings = lake.configuration().memories(ONE)
    assert len(index) == settings.hot_entries == 20
    assert sum(entry.tokens for entry in index) <= settings.hot_tokens
    assert sum("of two" in entry.title for entry in index) == 15
    assert len(reader_of(lake, models, [ONE]).hot_index()) == 15


def test_a_users_preference_wins_over_a_groups_and_that_over_the_agents(lake: Lake) -> None:
    lake.ensure()
    own, user, group = (
        Scope("acme", "one", identity, identity and scope_key("a secret", "acme", "one", identity))
        for identity in ("", "user:u1", "group:g1")
    )
    for at, (scope, values) in enumerate(
        {user: {"tone": "dry"}, group: {"tone": "warm", "unit": "km"}, own: {"unit": "mile", "colour": "red"}}.items()
    ):
        preferences = [
            remember(
                f"{name} {value}",
                minute(at),
                kind="preference",
                user_id="u1",
                key=name,
                value=f'"{value}"',
                scope=scope,
            )
            for name, value in values.items()
        ]
        land(lake, *preferences)
    overlays = [MemoryOverlay(lake, scope, Waiting(lake, scope)) for scope in (own, group, user)]
    memories = DurableMemories(JoinedOverlays(lambda: overlays))
    assert memories.preferences("u1") == {"colour": "red", "tone": "dry", "unit": "km"}
    assert memories.preference("u1", "tone") == "dry"
    assert {memories.identity_of(one.id) for one in memories.list()} == {"", "group:g1", "user:u1"}
