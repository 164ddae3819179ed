"""Durable memories are the same whether the journal is loaded late, twice, concurrently, in parts or after a fault."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory_pipeline.domain.facts import Extraction, FactKind
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.memories import consolidation_to_rows, rows_to_events, rows_to_memories
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.layout import SHARDS, shard_of
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, EVENTS, LEDGER, MEMORIES, MEMORY_EVENTS
from memory_pipeline.lake.tables.ledger import MEMORIES_ASSET
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.models.factory import default_models
from memory_pipeline.steps import materialize as steps
from memory_pipeline.steps.fold_memories import fold_memories, refold_memories
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.retention import expire
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests.building import (
    ACME,
    NOW,
    START,
    conversation,
    event_rows,
    hours,
    memory_rows,
    put_events,
    table_rows,
    versions,
    write,
)
from memory_pipeline_tests.domain.memories.histories import do, remember, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from memory_pipeline.domain.facts import ConversationHour
    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

OTHER = Scope("acme", "sales")
TEA = remember("Anna likes tea.", 0.5, tags=["drinks"])
FIGS = remember("Anna likes figs.", 1.2, scope=OTHER)
#: Events of two agents in three hours, from conversations and from agents.
HISTORY: list[Any] = [
    ("2024-01-15T12:00", ACME, ("fact! Anna lives in Porto.", "nothing to keep", "rule! Always be brief.")),
    TEA,
    do("BOOST", TEA, 0.7),
    ("2024-01-15T12:10", OTHER, ("fact! Anna lives in Porto.",)),
    do("UPDATE", TEA, 1.1, content="Anna likes green tea."),
    FIGS,
    ("2024-01-15T13:30", ACME, ("fact! Anna lives in PORTO!", "fact! Anna likes tea.")),
    do("FORGET", FIGS, 48.1, scope=OTHER, reason="no longer so"),
    ("2024-01-17T12:00", ACME, ("fact! Anna likes green tea.",)),
]
HOURS = ["2024-01-15T12", "2024-01-15T13", "2024-01-17T12"]


class Keeping:
    """Extracts a durable memory from messages such as ``rule! Be brief.``, instead of a model."""

    def __init__(self) -> None:
        self._rules = DeterministicExtractor()

    def method(self, scope: Scope) -> str:
        return "keeping-1"

    def extract(
        self, passages: Sequence[ConversationHour], recall: Callable[[], Mapping[Scope, Sequence[Operation]]]
    ) -> list[Extraction]:
        found = []
        for passage in passages:
            facts = []
            for fact in self._rules.facts_of(passage.messages):
                speaker, _, text = fact.content.partition(": ")
                kind, mark, said = text.partition("! ")
                durable = MemoryKind(kind) if mark else None
                if fact.kind is FactKind.TURN:
                    content = f"{speaker}: {said if mark else text}"
                    facts.append(replace(fact, content=content, durable=durable, operations=()))
            found.append(Extraction(tuple(facts)))
        return found


class Counting(HashingEmbedder):
    """Counts its requests; fails for texts with certain words."""

    def __init__(self, *failing: str) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.failing = failing

    def embed(self, texts: Sequence[str], uses: Sequence[Any] = ()) -> Any:
        self.asked += texts
        vectors = super().embed(texts, uses)
        vectors[[any(word in text for word in self.failing) for text in texts]] = np.nan
        return vectors


@pytest.fixture(scope="module")
def keeping() -> Models:
    return replace(default_models(), extractor=Keeping())


def put(lake: Lake, entry: Any) -> None:
    """Write one entry of the history."""
    if isinstance(entry, tuple):
        when, scope, texts = entry
        write(lake, conversation(*texts, at=when, scope=scope, conversation_id=f"of {when}"))
    else:
        lake.ensure()
        lake.journal.append([entry])


def put_all(lake: Lake) -> None:
    for entry in HISTORY:
        put(lake, entry)


def run(lake: Lake, models: Models, *keys: str) -> list[Any]:
    """Run some hours, by default the pending ones. Return the results of durable memories."""
    periods = hours(*keys) if keys else grain_status(lake, Grain.WORKING, START, NOW).pending
    return [made for made in materialize(lake, models, Grain.WORKING, periods) if made.asset == MEMORIES_ASSET]


def rows_of(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    names = (MEMORY_EVENTS.name, CONSOLIDATION_EVENTS.name, EVENTS.name, MEMORIES.name)
    rows = table_rows(lake)
    return {name: sorted(rows[name], key=lambda row: (row["scope"], row["id"])) for name in names}


def kept(lake: Lake, scope: Scope = ACME) -> dict[str, int]:
    """Return the active memories of an agent: contents and versions."""
    memories = rows_to_memories(memory_rows(lake, scope)).get(scope, Memories())
    return {each.content: each.version for each in memories.newest.values() if each.is_active}


def pending(lake: Lake) -> list[str]:
    return [str(period) for period in grain_status(lake, Grain.WORKING, START, NOW).pending]


@pytest.fixture(scope="module")
def written_once(shared_folder: SharedFolder) -> Path:
    return shared_folder("memories-written", lambda path: put_all(Lake(str(path))))


@pytest.fixture
def written(written_once: Path, root: str) -> Lake:
    """A copy of a lake with the whole history in its journal."""
    return Lake(shutil.copytree(written_once, root))


@pytest.fixture(scope="module")
def made_once(shared_folder: SharedFolder, written_once: Path, keeping: Models) -> Path:
    """A lake whose history was loaded in one run."""

    def fill(path: Path) -> None:
        lake = Lake(str(shutil.copytree(written_once, path)))
        run(lake, keeping)
        assert lake.journal.pending() == []
        assert kept(lake) == {
            "Anna: Anna lives in PORTO!": 2, "Anna: Always be brief.": 1, "Anna likes green tea.": 2,
            "Anna: Anna likes tea.": 1, "Anna: Anna likes green tea.": 1,
        }  # fmt: skip
        assert kept(lake, OTHER) == {"Anna: Anna lives in Porto.": 1}

    return shared_folder("memories-made", fill)


@pytest.fixture
def made(made_once: Path, root: str) -> Lake:
    """A copy of `made_once`."""
    return Lake(shutil.copytree(made_once, root))


@pytest.fixture(scope="module")
def whole(made_once: Path) -> dict[str, Any]:
    """The rows of `made_once`."""
    return rows_of(Lake(str(made_once)))


def test_the_tables_hold_all_conversations_and_events(whole: dict[str, Any]) -> None:
    events = whole["memory_events"]
    assert len(events) == 11
    assert sum(row["is_edit"] for row in events) == 5
    assert {row["editor"] for row in events if not row["is_edit"]} == {"conversation"}
    assert all(row["evidence"] and row["conversation_id"] for row in events if not row["is_edit"])
    newest = [row for row in whole["memories"] if row["is_newest"]]
    assert {row["status"] for row in newest if row["content"] == "Anna likes figs."} == {"deprecated"}
    assert all((row["vector"] is not None) is row["is_newest"] for row in whole["memories"])
    # One row for each scope says which events are folded.
    assert [row["access_count"] for row in whole["memories"] if row["source_digest"]] == [3, 8]


def test_a_second_run_writes_nothing(written: Lake, keeping: Models, whole: dict[str, Any]) -> None:
    lake = written
    made = {str(one.period): one for one in run(lake, keeping)}
    assert {key: (one.rows, one.agents, one.changed, one.unfinished) for key, one in made.items()} == {
        HOURS[0]: (5, 2, True, 0), HOURS[1]: (4, 2, True, 0), HOURS[2]: (2, 2, True, 0)
    }  # fmt: skip
    assert set(lake.ledger.entries(MEMORIES_ASSET)) == set(HOURS)
    assert pending(lake) == []
    # One commit for all agents, after the one that creates the table.
    assert lake.tables.version(MEMORY_EVENTS) == 1
    before = versions(lake)
    assert not any(one.changed for one in run(lake, keeping, *HOURS))
    put_all(lake)
    assert not any(one.changed for one in run(lake, keeping))
    assert versions(lake) == before
    assert lake.journal.pending() == []
    assert rows_of(lake) == whole


def test_only_agents_whose_events_changed_are_written(made: Lake, keeping: Models) -> None:
    lake = made
    agents = (Scope("acme", f"agent-{number}") for number in range(100))
    elsewhere = next(scope for scope in agents if shard_of(scope.key, SHARDS) != shard_of(ACME.key, SHARDS))
    put(lake, remember("Rui likes tea.", 50, scope=elsewhere))
    run(lake, keeping)
    before = {scope: lake.memory_rows.version(scope) for scope in (ACME, elsewhere)}
    others = memory_rows(lake, OTHER)
    put(lake, remember("Anna likes honey.", 50))
    run(lake, keeping)
    assert lake.memory_rows.version(elsewhere) == before[elsewhere]
    assert lake.memory_rows.version(ACME) != before[ACME]
    assert memory_rows(lake, OTHER) == others


def test_rows_and_memories_are_the_fold_of_the_events(made_once: Path, whole: dict[str, Any]) -> None:
    lake = Lake(str(made_once))
    for scope in (ACME, OTHER):
        events = rows_to_events(event_rows(lake, scope))
        rows = memory_rows(lake, scope)
        assert rows_to_memories(rows)[scope] == stored(fold_events(events))
        assert {event.scope for event in events} == {scope}
    # The same words of two agents are two memories (F16).
    homes = [row for row in whole["memories"] if row["content"] == "Anna: Anna lives in Porto."]
    assert len({row["memory_id"] for row in homes}) == len({row["agent_id"] for row in homes}) == 2


# --- changes and removals --------------------------------------------------------------------------------------------


def test_memories_that_an_edited_conversation_no_longer_states_are_removed(lake: Lake, keeping: Models) -> None:
    write(lake, conversation("rule! Be brief.", "fact! Anna lives in Porto."))
    run(lake, keeping)
    assert kept(lake) == {"Anna: Be brief.": 1, "Anna: Anna lives in Porto.": 1}
    # The message that was received first wins, and this one is loaded last.
    write(lake, conversation("rule! Be polite.", "Good evening."), now=NOW - timedelta(hours=1))
    run(lake, keeping)
    assert kept(lake) == {"Anna: Be polite.": 1}
    write(lake, conversation("Hello.", "Good evening."), now=NOW - timedelta(hours=2))
    [made] = run(lake, keeping)
    assert (made.rows, made.changed) == (0, False)
    assert kept(lake) == {}
    assert rows_of(lake) == {"memory_events": [], "consolidation_events": [], "events": [], "memories": []}
    assert pending(lake) == []


def test_the_ledger_counts_inactive_agents_when_an_hour_is_recomputed(tmp_path: Path, keeping: Models) -> None:
    idle = Scope("acme", "idle")
    left, right = Lake(str(tmp_path / "once")), Lake(str(tmp_path / "often"))
    for lake in (left, right):
        for scope in (ACME, idle):
            put(lake, remember("Rui likes tea.", 0.5, scope=scope))
        if lake is right:
            run(lake, keeping)
        put(lake, ("2024-01-15T12:20", OTHER, ("fact! Anna lives in Porto.",)))
        run(lake, keeping)
    run(right, keeping, HOURS[0])
    entries = [lake.ledger.entries(MEMORIES_ASSET) for lake in (left, right)]
    assert entries[0] == entries[1]
    assert entries[0][HOURS[0]].agents == 3


def test_durable_memories_never_expire(made: Lake, keeping: Models) -> None:
    lake = made
    lake.storage.write(CONFIGURATION, b"defaults:\n  retention: {conversations: 1d, facts: 1d, daily: 1d, graph: 1d}\n")
    for grain in (Grain.DAILY, Grain.WEEKLY):  # facts and days do not expire before these are computed
        list(materialize(lake, keeping, grain, grain_status(lake, grain, START, NOW).pending))
    before = rows_of(lake)
    assert expire(lake, START, NOW).rows > 0
    assert lake.tables.read(LEDGER)["expired"].to_pylist()
    assert rows_of(lake) == before
    # The facts have expired, so recomputing the hour keeps their memories.
    assert pending(lake) == []
    assert not any(one.changed for one in run(lake, keeping, *HOURS))
    assert rows_of(lake) == before
    assert pending(lake) == []
    # Events of agents are never too late, nor are messages while a summary of their time is kept.
    put(lake, do("UPDATE", TEA, 1.4, content="Anna likes black tea."))
    put(lake, ("2024-01-15T13:40", ACME, ("fact! The week hears this.",)))
    run(lake, keeping)
    assert "Anna likes black tea." in kept(lake)
    assert any("hears" in content for content in kept(lake))
    assert lake.journal.pending() == []


def test_settings_decide_which_facts_become_memories(lake: Lake, keeping: Models) -> None:
    settings = b"defaults:\n  memories: {kinds: [rule], point_in_time: true}\n"
    lake.storage.write(CONFIGURATION, settings)
    write(lake, conversation("rule! Be brief.", "fact! Anna lives in Porto."))
    run(lake, keeping)
    assert kept(lake) == {"Anna: Be brief.": 1}
    assert memory_rows(lake)["is_point_in_time"].to_pylist() == [True]


# --- consolidation events --------------------------------------------------------------------------------------------


def night_of(event: MemoryEvent) -> Any:
    return consolidation_to_rows([event], {event.event_at: Period(Grain.DAILY, "2024-01-15")})


def test_consolidation_events_are_folded_with_the_rest(made: Lake, keeping: Models) -> None:
    lake = made
    cool = do("COOL", TEA, 12, reason="old", turn=4)
    put_events(lake, night_of(cool))
    embedder = Counting()
    assert refold_memories(lake, embedder, [ACME, OTHER]) == {ACME}
    memories = rows_to_memories(memory_rows(lake, ACME))[ACME]
    assert memories.newest[TEA.memory_id].status_reason == "old"
    assert embedder.asked == []
    assert refold_memories(lake, embedder, [ACME, OTHER]) == set()
    # A run that loads something later keeps it.
    put(lake, remember("Anna likes honey.", 50))
    run(lake, keeping)
    memories = rows_to_memories(memory_rows(lake, ACME))[ACME]
    assert memories.newest[TEA.memory_id].status_reason == "old"
    put_events(lake, CONSOLIDATION_EVENTS.schema.empty_table(), ["2024-01-15"])
    refold_memories(lake, embedder, [ACME])
    memories = rows_to_memories(memory_rows(lake, ACME))[ACME]
    assert memories.newest[TEA.memory_id].status_reason is None


def test_an_agent_without_events_has_no_memories(made: Lake, keeping: Models) -> None:
    lake = made
    put_events(lake, event_rows(lake, ACME), HOURS)
    assert refold_memories(lake, Counting(), [ACME, OTHER, Scope("acme", "nobody")]) == {OTHER}
    assert {row["agent_id"] for row in rows_of(lake)["memories"]} == {ACME.agent_id}


# --- vectors ---------------------------------------------------------------------------------------------------------


def test_only_memories_without_a_vector_are_embedded(written: Lake, keeping: Models) -> None:
    lake, embedder = written, Counting()
    models = replace(keeping, embedder=embedder)
    run(lake, models)
    # Memories from conversations reuse the vectors of their facts; of updated ones only the newest content is embedded.
    own = [text for text in embedder.asked if not text.startswith("Anna: ")]
    assert sorted(own) == ["Anna likes figs.", "Anna likes green tea."]
    embedder.asked.clear()
    put(lake, do("BOOST", TEA, 50))
    put(lake, remember("Anna likes honey.", 50))
    run(lake, models)
    assert embedder.asked == ["Anna likes honey."]


def test_failed_embeddings_are_retried_by_the_next_run(written: Lake, keeping: Models, whole: dict[str, Any]) -> None:
    lake = written
    made = run(lake, replace(keeping, embedder=Counting("figs")))
    assert {str(one.period): one.unfinished for one in made} == {HOURS[0]: 0, HOURS[1]: 0, HOURS[2]: 1}
    assert lake.journal.pending() == []
    lacking = [row["content"] for row in rows_of(lake)["memories"] if row["is_newest"] and row["embed_model"] is None]
    assert lacking == ["Anna likes figs."]
    assert pending(lake) == [HOURS[2]]
    run(lake, keeping)
    assert pending(lake) == []
    assert rows_of(lake) == whole


def test_failed_embeddings_of_an_hour_without_messages_are_retried(lake: Lake, keeping: Models) -> None:
    put(lake, TEA)
    run(lake, replace(keeping, embedder=Counting("tea")))
    assert pending(lake) == [HOURS[0]]
    embedder = Counting()
    run(lake, replace(keeping, embedder=embedder))
    assert embedder.asked == ["Anna likes tea."]
    assert pending(lake) == []


# --- concurrent runs and interrupted ones: see test_graph.py, too -----------------------------------------------------


def test_a_run_keeps_events_of_a_concurrent_commit(root: str, keeping: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(root)
    put(lake, TEA)
    overtaken: list[bool] = []
    original = lake.tables.transform

    def slow(spec: Any, keys: Any, change: Any, **fixed: Any) -> Any:
        def changed(old: Any) -> Any:
            made = change(old)
            if spec is MEMORY_EVENTS and not overtaken:
                overtaken.append(True)
                put(Lake(root), remember("Anna likes honey.", 0.8))
                run(Lake(root), keeping)
            return made

        return original(spec, keys, changed, **fixed)

    monkeypatch.setattr(lake.tables, "transform", slow)
    run(lake, keeping)
    assert overtaken
    assert kept(lake) == {"Anna likes tea.": 1, "Anna likes honey.": 1}
    run(Lake(root), keeping)
    assert pending(lake) == []
    assert lake.journal.pending() == []


def test_a_file_stays_until_its_events_have_landed(
    lake: Lake, keeping: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(lake, TEA)
    with monkeypatch.context() as patch:
        patch.setattr(
            steps,
            "fold_memories",
            lambda lake, embedder, hours, _, *rest: fold_memories(lake, embedder, hours, [], *rest),
        )
        run(lake, keeping)
    assert len(lake.journal.pending()) == 1
    run(lake, keeping)
    assert lake.journal.pending() == []
    assert kept(lake) == {"Anna likes tea.": 1}


# --- the plan --------------------------------------------------------------------------------------------------------


def test_lakes_of_older_versions_are_migrated_once(made: Lake, keeping: Models, whole: dict[str, Any]) -> None:
    lake = made
    derived = lake.tables.read(MEMORY_EVENTS)
    lake.tables.replace(MEMORY_EVENTS, lake.tables.keys(MEMORY_EVENTS), derived.filter(derived["is_edit"]))
    lake.events.delete("true")
    lake.memory_rows.delete("true")
    lake.tables.replace(LEDGER, [f"{MEMORIES_ASSET}.2024-01"], LEDGER.schema.empty_table())
    assert pending(lake) == HOURS
    run(lake, keeping)
    assert pending(lake) == []
    assert rows_of(lake) == whole


def test_an_hour_whose_memories_are_behind_its_facts_is_pending(lake: Lake, keeping: Models) -> None:
    write(lake, conversation("rule! Be brief."))
    run(lake, keeping)
    [entry] = lake.ledger.entries(MEMORIES_ASSET).values()
    [table] = lake.ledger.entries("working_facts").values()
    assert entry.input_digest == table.output_digest
    lake.ledger.record([replace(entry, input_digest="of other facts")])
    assert pending(lake) == ["2024-01-15T08"]
    run(lake, keeping)
    assert lake.ledger.entries(MEMORIES_ASSET) == {"2024-01-15T08": entry}
    # Nothing can be derived from expired facts.
    lake.ledger.record([replace(entry, input_digest="of other facts"), replace(table, expired=table.rows)])
    assert pending(lake) == []
