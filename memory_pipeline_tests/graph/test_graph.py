"""Queries of a graph: facts, history, neighbours, entities, SQL; isolation between agents."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline.graph import Facts, Graph, GraphFact, Neighbor
from memory_pipeline.graph.state import GraphOverlay
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.models.factory import default_models
from memory_pipeline_tests.building import ACME, conversation, run, write
from memory_pipeline_tests.domain.graph_oracle import PLAIN, compared, model
from memory_pipeline_tests.graph.line_edits import CONFIGURATION as DECLARING
from memory_pipeline_tests.graph.line_edits import (
    VOCABULARY,
    Waiting,
    cut,
    graph_of,
    hour,
    land,
    lines,
    operations_in,
    write_edits,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


OTHER = Scope("acme", "sales")
ABROAD = Scope("zeta", "support")
SAID = """INSERT Anna|lives_in|Porto
INSERT Anna|likes|tea
INSERT Anna|also_known_as|Annie
INSERT Bruno|likes|Anna"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph with committed, pending and ended facts about Anna. Tests only read it."""
    return graph_in(Lake(str(tmp_path_factory.mktemp("graph"))))


def graph_in(lake: Lake) -> Graph:
    land(lake, {ACME: operations_in(SAID, ["m1"], hour(0))})
    write_edits(
        lake, "INSERT Annie | lives_in | Rome", "DELETE Anna | likes | tea", "INSERT Anna | likes | figs", at=hour(2)
    )
    return graph_of(lake)


# --- facts and history -----------------------------------------------------------------------------------------------


def test_facts_returns_current_facts_newest_first(graph: Graph) -> None:
    facts = graph.facts_about("ANNIE")
    assert lines(facts) == ["Anna likes figs", "Annie lives_in Rome", *lines(facts)[2:]]
    assert set(lines(facts)[2:]) == {"Anna also_known_as Annie", "Bruno likes Anna"}
    assert facts.total == 4
    assert str(facts).splitlines()[0] == "⁍ Anna likes figs (since 2024-01-15)"
    assert all(fact.valid_to is None and fact.score == 0 for fact in facts)
    assert graph.facts_about("tea") == []


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (-0.01, set()),
        (0, {"Porto", "tea"}),
        (1.99, {"Porto", "tea"}),
        (2, {"Rome", "tea"}),
        (2.02, {"Rome"}),
        (9_999, {"Rome", "figs"}),
    ],
)
def test_facts_at_a_past_time(graph: Graph, after: float, expected: set[str]) -> None:
    found = graph.facts_about("Anna", at=hour(after))
    assert {fact.target for fact in found if fact.source != "Bruno" and fact.label != "also_known_as"} == expected
    assert found.total == len(found)


def test_facts_at_any_time_equal_those_of_the_model(lake: Lake) -> None:
    lake.ensure()
    lake.storage.write(CONFIGURATION, DECLARING)
    parts = {Scope("acme", f"a{number}"): part for number, part in enumerate(cut("times", 15, PLAIN))}
    land(lake, {scope: landed for scope, (landed, _) in parts.items()})
    for scope, (landed, files) in parts.items():
        every = [*landed, *(one for file in files for one in file)]
        triples = model(scope, every, VOCABULARY)
        graph = Graph(GraphOverlay(lake, scope, Waiting(lake, scope, *files)), lake.calendar)
        name = every[0].subject
        own = [one for one in triples if compared(name) in {one.source_id, one.target_id}]
        for moment in [one.event_at for one in every[::3]]:
            held = {one.id for one in own if one.holds_at(moment)}
            assert {one.id for one in graph.facts_about(name, at=moment)} == held
        assert {one.id for one in graph.history(name)} == {one.id for one in own if one.source_id == compared(name)}


def test_history_returns_ended_facts_and_their_replacements(graph: Graph) -> None:
    history = graph.history("Anna")
    assert [fact.line for fact in history if fact.label == "lives_in"] == [
        "Anna lives_in Porto (2024-01-15 to 2024-01-15)",
        "Annie lives_in Rome (since 2024-01-15)",
    ]
    porto, rome = graph.history("anna", "livesIn")
    assert (porto.superseded_by, porto.valid_to) == (rome.id, hour(2))
    [tea, figs] = graph.history("Anna", "likes")
    assert (tea.target, tea.superseded_by, tea.until, figs.until) == ("tea", None, hour(2).date(), None)
    assert graph.history("Anna", "likes ").total == 2
    assert graph.history("Anna", "never said") == []
    assert graph.history("Porto") == [], "it is the source of nothing"
    assert [fact.valid_from for fact in history] == sorted(fact.valid_from for fact in history)


def test_a_limit_omits_facts_and_total_counts_all(lake: Lake) -> None:
    """A limit keeps the last facts, in the same order."""
    write_edits(lake, *(f"INSERT Anna | likes | thing {number}" for number in range(30)))
    write_edits(lake, *(f"DELETE Anna | likes | thing {number}" for number in range(5)), at=hour(1))
    graph = graph_of(lake)
    facts = graph.facts_about("Anna", limit=3)
    assert (lines(facts), facts.total) == (["Anna likes thing 29", "Anna likes thing 28", "Anna likes thing 27"], 25)
    history = graph.history("Anna", limit=2)
    assert (lines(history), history.total) == (["Anna likes thing 28", "Anna likes thing 29"], 30)
    every = graph.facts_about("Anna", limit=10_000)
    assert [graph.facts_about("Anna", limit=count) for count in (1, 7, 25)] == [every[:1], every[:7], every]


def test_a_smaller_limit_is_the_beginning_of_a_larger_one(lake: Lake) -> None:
    """Facts of one message have the same time and are ordered by id."""
    said = "\n".join(f"INSERT Anna|likes|thing {number}" for number in range(12))
    land(lake, {ACME: operations_in(said, ["m1"], hour(0))})
    graph = graph_of(lake)
    every = graph.facts_about("Anna")
    assert [graph.facts_about("Anna", limit=count) for count in range(1, 13)] == [
        every[:count] for count in range(1, 13)
    ]


def test_a_limited_history_has_the_last_facts(lake: Lake) -> None:
    write_edits(lake, "INSERT Anna | likes | tea", "INSERT Anna | likes | figs", "INSERT Anna | likes | tea")
    assert lines(graph_of(lake).history("Anna")) == ["Anna likes tea", "Anna likes figs"]
    assert lines(graph_of(lake).history("Anna", limit=1)) == ["Anna likes figs"]


def test_days_are_those_of_the_lakes_time_zone(root: str) -> None:
    lake = Lake(root, "Asia/Tokyo")
    lake.ensure()
    write_edits(lake, "INSERT Anna | likes | tea", at=hour(8))  # 16:00 UTC, the next day in Tokyo
    [fact] = graph_of(lake).facts_about("Anna")
    assert (str(fact.since), fact.valid_from) == ("2024-01-16", hour(8))


# --- entities --------------------------------------------------------------------------------------------------------


def test_an_entity_is_found_by_any_of_its_names(graph: Graph) -> None:
    entity = graph.entity("annie")
    assert entity == graph.entity(" ANNA ")
    assert entity is not None
    assert (entity.id, entity.name, entity.aliases, entity.facts) == ("anna", "Anna", ("annie",), 4)
    assert entity.updated_at == graph.facts_about("Anna")[0].updated_at
    assert entity.facts == graph.facts_about("Anna").total


@pytest.mark.parametrize("name", ["tea", "Porto", "nobody", "x\ud800", "'; DROP TABLE facts", "\x00"])
def test_a_name_without_current_facts_is_not_an_entity(graph: Graph, name: str) -> None:
    assert graph.entity(name) is None
    assert graph.facts_about(name) == []
    assert graph.neighbors(name) == []


def test_knows_includes_names_of_ended_facts(graph: Graph) -> None:
    assert [graph.knows(name) for name in ("anna", "ANNIE", "tea", "figs", "Porto", "nobody")] == [True] * 5 + [False]


def test_a_fact_of_a_thing_with_itself_is_one_fact(lake: Lake) -> None:
    write_edits(lake, "INSERT Anna | trusts | Anna")
    entity = graph_of(lake).entity("Anna")
    assert entity is not None
    assert entity.facts == graph_of(lake).facts_about("Anna").total == 1


# --- neighbours ------------------------------------------------------------------------------------------------------


def test_neighbours_come_by_distance_then_name(lake: Lake) -> None:
    write_edits(lake, "INSERT A | knows | B", "INSERT B | knows | C", "INSERT D | knows | C")
    graph = graph_of(lake)
    assert graph.neighbors("A", 2) == [Neighbor("B", 1), Neighbor("C", 2)]
    assert graph.neighbors("a", 6) == [Neighbor("B", 1), Neighbor("C", 2), Neighbor("D", 3)]
    assert graph.neighbors("C") == [Neighbor("B", 1), Neighbor("D", 1)]
    assert graph.neighbors("A").total == 1


def test_a_cycle_ends_and_no_entity_is_its_own_neighbour(lake: Lake) -> None:
    write_edits(lake, "INSERT A | knows | B", "INSERT B | knows | C", "INSERT C | knows | A", "INSERT A | knows | A")
    assert graph_of(lake).neighbors("A", 6) == [Neighbor("B", 1), Neighbor("C", 1)]


def test_entities_of_one_kind_are_not_neighbours(lake: Lake) -> None:
    kinds = [f"INSERT {name} | is_a | person" for name in "ABCDE"]
    land(lake, {ACME: operations_in("\n".join(line.replace(" | ", "|") for line in kinds[:3]), ["m1"], hour(0))})
    write_edits(lake, *kinds[3:], "INSERT A | knows | B", "INSERT B | knows | C", "INSERT C | knows | D", at=hour(1))
    graph = graph_of(lake)
    assert graph.neighbors("A", 2) == [Neighbor("B", 1), Neighbor("C", 2)]
    assert graph.neighbors("E", 6) == graph.neighbors("person") == []
    assert graph.facts_about("person").total == 5
    around = graph.search("", names=["A"], hops=2, now=hour(2))
    assert {(fact.source, fact.target) for fact in around} == {("A", "person"), ("A", "B"), ("B", "person"), ("B", "C")}


def test_aliases_are_not_neighbours_but_are_followed(graph: Graph) -> None:
    found = graph.neighbors("Annie", 2)
    assert found == [Neighbor("Bruno", 1), Neighbor("figs", 1), Neighbor("Rome", 1)]
    assert graph.neighbors("figs", 2) == [Neighbor("Anna", 1), Neighbor("Bruno", 2), Neighbor("Rome", 2)]


def test_ended_facts_do_not_connect_neighbours(lake: Lake) -> None:
    land(lake, {ACME: operations_in("INSERT A|knows|B\nINSERT B|knows|C", ["m1"], hour(0))})
    write_edits(lake, "DELETE A | knows | B", at=hour(1))
    assert graph_of(lake).neighbors("A", 6) == []
    assert graph_of(lake).neighbors("B", 6) == [Neighbor("C", 1)]


def test_neighbours_are_limited_nearest_first(lake: Lake) -> None:
    write_edits(lake, *(f"INSERT A | knows | B{number}" for number in range(5)), "INSERT B0 | knows | A0")
    found = graph_of(lake).neighbors("A", 2, limit=3)
    assert ([str(one.name) for one in found], found.total) == (["B0", "B1", "B2"], 6)
    assert [one.name for one in graph_of(lake).neighbors("A", 2)] == ["B0", "B1", "B2", "B3", "B4", "A0"]


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 5, "", "  ", "x" * 301, ["Anna"], b"Anna"])
def test_an_invalid_name_is_rejected(graph: Graph, value: Any) -> None:
    questions: list[Callable[[Any], object]] = [graph.entity, graph.facts_about, graph.neighbors, graph.knows]
    for ask in questions:
        with pytest.raises(InputError, match=r"^name "):
            ask(value)
    with pytest.raises(InputError, match=r"^subject "):
        graph.history(value)
    if value is not None:
        with pytest.raises(InputError, match=r"^predicate "):
            graph.history("Anna", value)


@pytest.mark.parametrize("value", [0, -1, 10_001, True, 1.0, "1", None])
def test_a_limit_out_of_range_is_refused(graph: Graph, value: Any) -> None:
    questions: list[Callable[[], object]] = [
        lambda: graph.facts_about("nobody", limit=value),
        lambda: graph.history("nobody", limit=value),
        lambda: graph.neighbors("nobody", limit=value),
        lambda: graph.search("nobody", value),
    ]
    for ask in questions:
        with pytest.raises(InputError, match=r"^limit "):
            ask()
    with pytest.raises(InputError, match=r"^depth "):
        graph.neighbors("nobody", value)


@pytest.mark.parametrize("value", ["yesterday", 5, datetime(2024, 1, 1)])  # noqa: DTZ001  # on purpose
def test_an_invalid_time_is_rejected(graph: Graph, value: Any) -> None:
    with pytest.raises(InputError, match=r"^at "):
        graph.facts_about("Anna", at=value)


@pytest.mark.parametrize("argument", ["at", "predicate"])
def test_arguments_are_checked_for_unknown_names_too(graph: Graph, argument: str) -> None:
    with pytest.raises(InputError, match=f"^{argument} "):
        graph.facts_about("nobody", at=5) if argument == "at" else graph.history("nobody", 5)  # type: ignore[arg-type]


# --- SQL and export --------------------------------------------------------------------------------------------------

FACTS = (
    "id source_id source label target_id target confidence weight valid_from valid_to superseded_by evidence "
    "conversation_id updated_at origin source_hour identity"
)


def test_sql_queries_the_newest_state(lake: Lake, tmp_path: Path) -> None:
    graph = graph_in(lake)
    assert " ".join(graph.query("SELECT * FROM facts").columns) == FACTS
    assert " ".join(graph.query("SELECT * FROM history").columns) == FACTS
    answer = graph.query("SELECT * FROM entities WHERE id = 'anna'")
    assert answer.columns == ("id", "name", "aliases", "facts", "first_seen", "last_seen")
    [row] = answer.rows
    assert (row[0], row[2:]) == ("anna", (["annie"], 4, hour(0), graph.facts_about("Anna")[0].updated_at))
    count = "SELECT (SELECT count(*) FROM facts), (SELECT count(*) FROM history)"
    assert graph.query(count).rows == [(4, 6)]
    write_edits(lake, "INSERT Anna | likes | honey", "DELETE Anna | likes | figs", at=hour(3))
    assert graph.query(count).rows == [(4, 7)]
    assert graph.export(tmp_path / "facts.parquet") == 7
    with pytest.raises(InputError, match=r"file .*facts\.parquet cannot be written"):
        graph.export(tmp_path / "missing" / "facts.parquet")
    assert sorted(pq.read_table(tmp_path / "facts.parquet")["target"].to_pylist()) == [
        "Anna", "Annie", "Porto", "Rome", "figs", "honey", "tea"
    ]  # fmt: skip
    for sql in ("DELETE FROM facts", "SELECT * FROM graph_operations", "SELECT 1; SELECT 2", "", 5):
        with pytest.raises(InputError, match=r"(?i)sql|accepted"):
            graph.query(sql)  # type: ignore[arg-type]


def test_sql_walks_through_the_same_facts(graph: Graph, lake: Lake) -> None:
    for name in ("ANNIE", "Bruno", "figs", "tea", "nobody"):
        for depth in (1, 2, 6):
            found = graph.query(f"SELECT name, distance FROM neighbors('{name}', {depth})").rows
            assert [Neighbor(*row) for row in found] == graph.neighbors(name, depth)
    assert graph.query("SELECT path FROM paths('Bruno', 'rome')").rows == [("Bruno -likes-> Anna -lives_in-> Rome",)]
    assert graph.query("FROM paths('Bruno', 'Porto', 6)").rows == [], "the fact has ended"
    fresh = graph_in(lake)
    assert fresh.query("FROM paths('Bruno', 'honey')").rows == []
    write_edits(lake, "INSERT Anna | likes | honey", at=hour(3))
    [(_, _, _, [_, fact], path)] = fresh.query("FROM paths('Bruno', 'honey')").rows
    assert path == "Bruno -likes-> Anna -likes-> honey"
    assert lines(fresh.facts_about("honey")) == ["Anna likes honey"]
    assert fresh.facts_about("honey")[0].id == fact


def test_an_entity_has_one_name(lake: Lake) -> None:
    write_edits(lake, "INSERT Anna | also_known_as | Annie", "INSERT Annie | likes | tea")
    graph = graph_of(lake)
    entity = graph.entity("Anna")
    assert entity is not None
    assert graph._state.snapshot().entities.to_pylist()[0]["name"] == entity.name == "Anna"


# --- whose -----------------------------------------------------------------------------------------------------------


def test_nothing_crosses_between_agents_and_workspaces(lake: Lake, tmp_path: Path) -> None:
    scopes = {ACME: "Porto", OTHER: "Oslo", ABROAD: "Rome"}
    land(
        lake, {scope: operations_in(f"INSERT Anna|lives_in|{home}", ["m1"], hour(0)) for scope, home in scopes.items()}
    )
    for scope, home in scopes.items():
        write_edits(lake, f"INSERT {home} | is | lovely", scope=scope, at=hour(1))
    for scope, home in scopes.items():
        graph = graph_of(lake, scope)
        assert lines(graph.facts_about("Anna")) == lines(graph.history("Anna")) == [f"Anna lives_in {home}"]
        assert [one.name for one in graph.neighbors("Anna", 6)] == [home, "lovely"]
        assert lines(graph.facts_about("lovely")) == [f"{home} is lovely"]
        assert {fact.target for fact in graph.search("Where does Anna live? Porto, Oslo, Rome?")} == {home, "lovely"}
        assert graph.export(tmp_path / "facts.parquet") == 2
        assert set(pq.read_table(tmp_path / "facts.parquet")["source"].to_pylist()) == {"Anna", home}
        for other in set(scopes.values()) - {home}:
            assert not graph.knows(other)
    assert graph_of(lake, OTHER).query("SELECT source, target FROM history ORDER BY 1").rows == [
        ("Anna", "Oslo"), ("Oslo", "lovely")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["O'Brien", '"quoted"', "a' OR '1'='1", "100 %", "..", "a/b", "🏳️‍🌈", "أحمد", "ａｂｃ", "x" * 300, "\u202eabc"],
)  # fmt: skip
def test_hostile_names_are_names(lake: Lake, name: str) -> None:
    land(lake, {ACME: operations_in(f"INSERT {name}|likes|tea", ["m1"], hour(0))})
    write_edits(lake, f"INSERT Anna | knows | {name}", at=hour(1))
    graph = graph_of(lake)
    assert graph.facts_about(name).total == 2
    assert graph.history(name)[0].source == name
    assert graph.neighbors("Anna", 2) == [Neighbor(graph.facts_about("Anna")[0].target, 1), Neighbor("tea", 2)]
    assert graph.entity(name.upper()) == graph.entity(name) is not None


# --- what users say --------------------------------------------------------------------------------------------------


def test_facts_of_a_message_are_visible_at_once_and_unchanged_by_the_commit(lake: Lake) -> None:
    """If the pipeline extracts by rules, as pending entries are."""
    write(lake, conversation("I live in Porto.", "I like green tea.", "My sister Maria works at Bosch."))
    write_edits(lake, "INSERT Anna | also_known_as | Annie", at=hour(1))
    graph = graph_of(lake)
    first = graph.history("Annie")
    assert {"Anna lives_in Porto", "Anna likes green tea", "Anna has_sister Maria"} <= set(lines(first))
    run(lake, default_models())
    assert graph.history("Anna") == graph_of(lake).history("Anna") == first
    write(
        lake, conversation("I moved to Rome.", "I don't like green tea.", at="2024-01-20T08:00", conversation_id="c2")
    )
    write_edits(lake, "UPDATE Maria | works_at | Siemens", at=hour(48))
    names = ("Anna", "Maria", "Rome", "Bosch", "green tea")
    before = [(graph.history(name), graph.facts_about(name), graph.entity(name)) for name in names]
    assert lines(graph.history("Anna", "lives_in")) == ["Anna lives_in Porto", "Anna lives_in Rome"]
    assert lines(graph.facts_about("Siemens")) == ["Maria works_at Siemens"]
    assert graph.facts_about("Bosch") == []
    run(lake, default_models())
    assert lake.journal.pending() == []
    assert [(graph.history(name), graph.facts_about(name), graph.entity(name)) for name in names] == before


# --- at once ---------------------------------------------------------------------------------------------------------


def test_a_declared_predicate_holds_one_object_immediately(lake: Lake) -> None:
    lake.ensure()
    lake.storage.write(CONFIGURATION, b"defaults:\n  graph:\n    single_valued: [pet]\n    multi_valued: [lives_in]\n")
    land(lake, {ACME: operations_in("INSERT Anna|pet|Bruno\nINSERT Anna|lives_in|Porto", ["m1"], hour(0))})
    write_edits(lake, "INSERT Anna | pet | Rex", "INSERT Anna | lives_in | Rome", at=hour(1))
    assert set(lines(graph_of(lake).facts_about("Anna"))) == {
        "Anna pet Rex", "Anna lives_in Porto", "Anna lives_in Rome"
    }  # fmt: skip


def test_one_graph_serves_several_threads_while_it_grows(lake: Lake) -> None:
    lake.ensure()
    graph = graph_of(lake)
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            last = 0
            for _ in range(25):
                facts = graph.facts_about("Anna")
                assert last <= facts.total <= 12, "it never shrinks"
                last = facts.total
                assert {one.distance for one in graph.neighbors("Anna", 3)} <= {1}
                graph.search("What does Anna like?")
        except BaseException as error:  # noqa: BLE001  # reported by the main thread
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(12):
        write_edits(lake, f"INSERT Anna | likes | thing {number}", at=hour(number / 60))
    for thread in threads:
        thread.join()
    assert failed == []
    assert graph.facts_about("Anna").total == 12


def test_answers_are_lists_of_facts(graph: Graph) -> None:
    facts = graph.facts_about("Anna")
    assert isinstance(facts, Facts)
    assert all(isinstance(fact, GraphFact) for fact in facts)
    assert Facts() == []
    assert Facts().total == 0
