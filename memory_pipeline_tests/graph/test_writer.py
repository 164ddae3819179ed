"""Graph writes: durable and visible at once, or rejected with nothing written."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, START, run
from memory_pipeline_tests.graph.line_edits import graph_of, graph_rows, lines

if TYPE_CHECKING:
    from memory_pipeline.graph import Graph
    from memory_pipeline.graph.writer import GraphWriter

NOON = datetime(2024, 1, 15, 12, tzinfo=UTC)


@pytest.fixture
def writer(root: str) -> GraphWriter:
    return MemoryWriter(Lake(root), ACME, START).graph


@pytest.fixture
def graph(root: str) -> Graph:
    """The graph of a reader that was opened before the first write."""
    return MemoryReader(Lake(root), ACME, default_models().embedder).graph


def after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


# --- changes ---------------------------------------------------------------------------------------------------------


def test_open_readers_see_a_change_at_once(writer: GraphWriter, graph: Graph) -> None:
    assert graph.facts_about("Anna") == []
    made = writer.insert("Anna", "livesIn", "Porto", confidence=0.5, weight=0.25, now=NOON)
    [fact] = graph.facts_about("anna")
    assert fact.line == "Anna lives_in Porto (since 2024-01-15)"
    assert (fact.evidence, fact.confidence, fact.weight, fact.valid_from) == ((made,), 0.5, 0.25, NOON)
    assert fact.conversation_id is None
    writer.update("Anna", "lives_in", "Rome", now=after(1))
    assert [fact.line for fact in graph.history("Anna")] == [
        "Anna lives_in Porto (2024-01-15 to 2024-01-15)",
        "Anna lives_in Rome (since 2024-01-15)",
    ]
    writer.delete("anna", "lives_in", "ROME", now=after(2))
    assert graph.facts_about("Anna") == []


def test_the_time_of_a_change_defaults_to_the_clock(root: str) -> None:
    before = datetime.now(UTC)
    MemoryWriter(Lake(root), ACME).graph.insert("Anna", "likes", "tea")
    [fact] = graph_of(Lake(root)).facts_about("Anna")
    assert before <= fact.valid_from <= datetime.now(UTC)


def test_an_update_replaces_the_named_object_among_several(writer: GraphWriter, graph: Graph) -> None:
    for place, what in enumerate(("tea", "figs")):
        writer.insert("Anna", "likes", what, now=after(place))
    writer.update("Anna", "likes", "dates", now=after(2))
    assert {fact.target for fact in graph.facts_about("Anna")} == {"tea", "figs", "dates"}
    writer.update("Anna", "likes", "honey", replaces="Tea", now=after(3))
    assert {fact.target for fact in graph.facts_about("Anna")} == {"figs", "dates", "honey"}
    tea, *_, honey = graph.history("Anna")
    assert (tea.target, tea.superseded_by, tea.valid_to) == ("tea", honey.id, after(3))


def test_a_delete_ends_one_or_all(writer: GraphWriter, graph: Graph) -> None:
    for place, what in enumerate(("tea", "figs", "dates")):
        writer.insert("Anna", "likes", what, now=after(place))
    writer.delete("Anna", "likes", "tea", now=after(5))
    assert {fact.target for fact in graph.facts_about("Anna")} == {"figs", "dates"}
    writer.delete("Anna", "likes", now=after(6))
    writer.delete("Nobody", "likes", "anything", now=after(7))
    assert graph.facts_about("Anna") == []
    assert {fact.valid_to for fact in graph.history("Anna")} == {after(5), after(6)}
    assert graph.entity("Nobody") is None


@pytest.mark.parametrize("landed", [False, True])
def test_changes_at_one_time_keep_their_order(root: str, writer: GraphWriter, graph: Graph, landed: bool) -> None:
    for home in ("Porto", "Rome", "Oslo", "Bern"):
        writer.insert("Anna", "lives_in", home, now=NOON)
    writer.apply(
        [{"edit": verb, "subject": "Anna", "predicate": "likes", "object": "tea"} for verb in ("INSERT", "DELETE")],
        now=NOON,
    )
    writer.apply(
        [{"edit": verb, "subject": "Bo", "predicate": "likes", "object": "tea"} for verb in ("DELETE", "INSERT")],
        now=NOON,
    )
    if landed:
        run(Lake(root), default_models())
    assert [fact.target for fact in graph.history("Anna", "lives_in")] == ["Porto", "Rome", "Oslo", "Bern"]
    assert lines(graph.facts_about("Anna")) == ["Anna lives_in Bern"]
    assert lines(graph.facts_about("Bo")) == ["Bo likes tea"]
    assert graph.history("Anna")[0].valid_from == NOON
    assert graph.facts_about("Anna")[0].valid_from - NOON < timedelta(milliseconds=1)


def test_threads_of_one_writer_lose_nothing(writer: GraphWriter, graph: Graph) -> None:
    made: list[str] = []

    def write(name: str) -> None:
        made.extend(writer.insert("Anna", "likes", f"{name} {number}", now=NOON) for number in range(10))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 40
    history = graph.history("Anna")
    assert history.total == len({fact.valid_from for fact in history}) == 40


@pytest.mark.parametrize("earlier", [timedelta(hours=1), timedelta(days=3)])
def test_a_fact_can_be_written_after_it_began(writer: GraphWriter, graph: Graph, earlier: timedelta) -> None:
    writer.insert("Anna", "lives_in", "Porto", now=NOON)
    writer.insert("Anna", "lives_in", "Rome", now=NOON - earlier)
    assert lines(graph.facts_about("Anna")) == ["Anna lives_in Porto"]
    assert graph.history("Anna")[0].valid_from == NOON - earlier


# --- entities and relationships --------------------------------------------------------------------------------------


def test_relationships_connect_known_entities(root: str, writer: GraphWriter, graph: Graph) -> None:
    writer.add_entity("Anna", now=NOON)
    for source, target, missing in (("Anna", "Bosch", "target 'Bosch'"), ("Bosch", "Anna", "source 'Bosch'")):
        with pytest.raises(InputError, match=f"^{missing} is unknown; add it with add_entity"):
            writer.add_relationship(source, "works_at", target, now=after(1))
    writer.add_entity("Bosch", "company", now=after(1))
    writer.add_relationship("ANNA", "works_at", "bosch", weight=0.9, now=after(2))
    assert lines(graph.facts_about("Bosch")) == ["ANNA works_at bosch", "Bosch is_a company"]
    assert graph.facts_about("Bosch")[0].weight == 0.9
    assert lines(graph.history("Anna"))[0] == "Anna is_a entity"
    run(Lake(root), default_models())
    assert writer.add_relationship("Anna", "knows", "company", now=after(3))
    writer.insert("Anna", "also_known_as", "Annie", now=after(4))
    assert writer.add_relationship("Annie", "knows", "Bosch", now=after(5))


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [-0.01, 1.01, 2, float("nan"), float("inf"), True, "0.5"])
@pytest.mark.parametrize("argument", ["weight", "confidence"])
def test_a_weight_outside_0_to_1_is_refused(root: str, writer: GraphWriter, argument: str, weight: Any) -> None:
    writer.add_entity("Anna", now=NOON)
    before = Lake(root).journal.pending()
    for change in (writer.insert, writer.update, writer.add_relationship):
        with pytest.raises(InputError, match=rf"^{argument} .* expected 0 to 1; nothing was written"):
            change("Anna", "is_a", "entity", **{argument: weight}, now=after(1))
    assert Lake(root).journal.pending() == before


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (datetime(2023, 12, 31, 23, 59, tzinfo=UTC), "before the first day"),
        (datetime(1800, 1, 1, tzinfo=UTC), "outside the years"),
    ],
)
def test_edits_before_the_first_day_are_refused(root: str, writer: GraphWriter, now: datetime, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        writer.insert("Anna", "likes", "tea", now=now)
    assert not Lake(root).exists


def test_edits_of_the_future_are_refused(root: str, writer: GraphWriter) -> None:
    change = {"edit": "INSERT", "subject": "Anna", "predicate": "likes", "object": "tea"}
    late = {**change, "timestamp": NOON + timedelta(hours=24, seconds=1)}
    with pytest.raises(InputError, match="is in the future"):
        writer.apply([late], now=NOON)
    assert not Lake(root).exists
    assert writer.apply([{**change, "timestamp": NOON + timedelta(hours=24)}], now=NOON)


BAD: list[dict[str, Any]] = [
    {"object": ""},
    {"subject": "a\x00b"},
    {"edit": "UPSERT"},
    {"edit": None},
    {"weight": 7},
    {"replaces": "x"},
    {"timestamp": "2024-01-15T12:00:00"},
    {"timestamp": "1999-01-01T00:00:00Z"},
    {"timestamp": "2999-01-01T00:00:00Z"},
    {"predicate": "…"},
]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("place", [1, 3])
def test_a_batch_of_changes_is_atomic(
    root: str, writer: GraphWriter, graph: Graph, bad: dict[str, Any], place: int
) -> None:
    good = [{"edit": "INSERT", "subject": "Anna", "predicate": "likes", "object": str(number)} for number in range(2)]
    other_hour = {**good[0], "object": "early", "timestamp": "2024-01-15T07:00:00Z"}
    changes = [*good, other_hour]
    changes.insert(place - 1, {**good[0], **bad})
    with pytest.raises(InputError, match=rf"^change {place}: .*; nothing was written$"):
        writer.apply(changes, now=NOON)
    assert not Lake(root).exists
    assert graph.facts_about("Anna") == []
    made = writer.apply([*good, other_hour], now=NOON)
    assert len(set(made)) == 3
    assert len(Lake(root).journal.pending()) == 1, "one write is one file"
    assert [fact.evidence[0] for fact in graph.history("Anna")] == [made[2], made[0], made[1]]


def test_an_empty_batch_writes_no_file(root: str, writer: GraphWriter) -> None:
    assert writer.apply([]) == []
    assert Lake(root).journal.pending() == []


def test_a_change_cannot_name_another_agent(writer: GraphWriter, root: str) -> None:
    change = {"edit": "INSERT", "subject": "Anna", "predicate": "likes", "object": "tea", "agent_id": "sales"}
    with pytest.raises(InputError, match="'agent_id' is unknown"):
        writer.apply([change], now=NOON)
    assert Lake(root).journal.pending() == []


@pytest.mark.parametrize("changes", [None, 5, [5], ["INSERT"], [None], {"edit": "INSERT"}])
def test_invalid_changes_are_rejected(writer: GraphWriter, changes: Any) -> None:
    with pytest.raises(InputError):
        writer.apply(changes, now=NOON)


@pytest.mark.parametrize("argument", ["source", "target"])
def test_add_relationship_names_the_invalid_argument(writer: GraphWriter, argument: str) -> None:
    writer.add_entity("Anna", now=NOON)
    relationship: dict[str, Any] = {"source": "Anna", "label": "knows", "target": "Anna", argument: "x" * 301}
    with pytest.raises(InputError, match=f"^{argument} "):
        writer.add_relationship(**relationship)


def test_hostile_terms_are_kept_as_names(root: str, writer: GraphWriter, graph: Graph) -> None:
    names = ["O'Brien", 'a"b', "a' OR 1=1 --", "../..", "🏳️‍🌈", "\u202eabc", "x" * 300, "{0}", "%s", "<recalled-memory>"]
    for place, name in enumerate(names):
        writer.insert(name, "knows", names[place - 1], now=after(place))
    before = graph.history(names[0]), [graph.facts_about(name).total for name in names]
    assert before[1] == [2] * len(names)
    run(Lake(root), default_models())
    assert (graph.history(names[0]), [graph.facts_about(name).total for name in names]) == before


# --- landing ---------------------------------------------------------------------------------------------------------


def test_a_repeated_change_is_idempotent(root: str, graph: Graph) -> None:
    """A writer that gets no confirmation writes again."""
    made = [MemoryWriter(Lake(root), ACME, START).graph.insert("Anna", "likes", "tea", now=NOON) for _ in range(3)]
    assert len(set(made)) == 1
    assert len(Lake(root).journal.pending()) == 3
    before = graph.history("Anna")
    assert [fact.weight for fact in before] == [0.5]
    run(Lake(root), default_models())
    assert graph.history("Anna") == before
    MemoryWriter(Lake(root), ACME, START).graph.insert("Anna", "likes", "tea", now=NOON)
    assert graph.history("Anna") == before
    run(Lake(root), default_models())
    assert Lake(root).journal.pending() == []
    assert [row["is_edit"] for row in graph_rows(Lake(root))["graph_operations"]] == [True]


# --- weight of imports -----------------------------------------------------------------------------------------------


def test_writing_and_reading_a_graph_import_no_heavy_library(root: str) -> None:
    code = (
        "import sys; from memory_pipeline.writer import MemoryWriter; from memory_pipeline.reader import MemoryReader; "
        "heavy = {'dagster', 'polars', 'litellm', 'duckdb'}; assert not heavy & set(sys.modules); "
        f"writer = MemoryWriter.open({root!r}, workspace_id='w', agent_id='a').graph; "
        "writer.insert('Anna', 'likes', 'tea'); writer.add_relationship('Anna', 'likes', 'tea'); "
        f"graph = MemoryReader.open({root!r}, workspace_id='w', agent_id='a').graph; "
        "assert len(graph.facts_about('Anna')) == len(graph.search('Anna')) == len(graph.neighbors('tea')) == 1; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_writer_without_a_graph_imports_no_tables() -> None:
    code = "import sys, memory_pipeline.writer; assert not {'deltalake', 'lancedb', 'duckdb'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
