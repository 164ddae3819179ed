"""Entities in a text and ranking of their facts, for any text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.errors import InputError
from memory_pipeline.graph.entities import named_in
from memory_pipeline.lake import Lake
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.graph.line_edits import graph_of, hour, land, lines, operations_in, write_edits

if TYPE_CHECKING:
    from memory_pipeline.graph import Graph

SAID = """INSERT Anna|lives_in|Porto
INSERT Anna|also_known_as|Annie
INSERT Anna|likes|green tea
INSERT Anna Maria Lopez|works_at|Bosch
INSERT Anna's sister|lives_in|Rome
INSERT User|likes|figs
INSERT Agent|is_called|Juniper
INSERT Project Atlas|due_on|3 May
INSERT C++|is|hard
INSERT O'Brien|has|a dog
INSERT Łódź|located_in|Poland
DELETE Bruno|likes|bones
INSERT Clara|lives_in|Oslo"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Tests only read it."""
    lake = Lake(str(tmp_path_factory.mktemp("entities")))
    land(lake, {ACME: operations_in(SAID, ["m1"], hour(0))})
    write_edits(
        lake, "INSERT Clara | lives_in | Bergen", "INSERT Dora | likes | jazz", "DELETE Dora | likes |", at=hour(1)
    )
    return graph_of(lake)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where does Anna live?", ["anna"]),
        ("WHERE DOES ANNA LIVE", ["anna"]),
        ("where does anna live", ["anna"]),
        ("annie", ["anna"]),
        ("Anna's address?", ["anna"]),
        ("Anna’s address?", ["anna"]),
        ("Is anna's sister there?", ["anna's sister"]),
        ("Is Anna’s sister there?", ["anna's sister"]),
        ("Does Anna Maria Lopez know Anna?", ["anna maria lopez", "anna"]),
        ("What about green tea and Porto?", ["green tea", "porto"]),
        ("green  tea", ["green tea"]),
        ("When is 'Atlas' due?", ["project atlas"]),
        ('What is "atlas" about?', ["project atlas"]),
        ("When is Project Atlas due?", ["project atlas"]),
        ("Do I like figs?", ["user", "figs"]),
        ("what's my name? I'm hungry", ["user"]),
        ("What are you called?", ["agent"]),
        ("juniper", ["agent"]),
        ("Is C++ hard?", ["c++", "hard"]),
        ("Ask o'brien.", ["o'brien"]),
        ("ŁÓDŹ", ["łódź"]),
        ("Is there a plan for Lopez?", ["anna maria lopez"]),
        ("What is the weather like?", []),
        ("annabel, portofino, teapot", []),
    ],
)
def test_entities_of_a_text_are_found(graph: Graph, text: str, expected: list[str]) -> None:
    snapshot = graph._state.snapshot()
    assert [snapshot.codes.name(code) for code in named_in(snapshot, text)] == expected


def test_first_person_words_name_the_speaker(graph: Graph) -> None:
    assert {fact.source for fact in graph.search("Where do I live?", speaker="Anna")} == {"Anna"}
    assert {fact.source for fact in graph.search("Where do I live?", speaker="annie")} == {"Anna"}
    assert {fact.source for fact in graph.search("Where do I live?")} == {"User"}
    assert graph.search("Where do I live?", speaker="nobody") == []


def test_names_from_a_model_replace_those_of_the_text(graph: Graph) -> None:
    assert {fact.source for fact in graph.search("Where does Anna live?", names=["Clara"])} == {"Clara"}
    assert {fact.source for fact in graph.search("where is he", names=["Lopez"])} == {"Anna Maria Lopez"}
    assert graph.search("Where does Anna live?", names=[]) == []
    assert graph.search("Where does Anna live?", names=["nobody", "", "\x00", "x" * 10_000]) == []
    assert {fact.source for fact in graph.search("Where do I live?", names=[], speaker="Clara")} == {"Clara"}


def test_the_best_fact_comes_first(graph: Graph) -> None:
    assert lines(graph.search("Where does Anna live?"))[0] == "Anna lives_in Porto"
    assert lines(graph.search("Does Anna like tea?"))[0] == "Anna likes green tea"
    assert lines(graph.search("Does Anna live in Porto?"))[0] == "Anna lives_in Porto"
    facts = graph.search("Where does Anna live?", 1)
    assert (len(facts), facts.total) == (1, 3)
    scores = [fact.score for fact in graph.search("Where does Anna live?")]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1] > 0


def test_ended_facts_are_not_found(graph: Graph) -> None:
    assert lines(graph.search("Where does Clara live?")) == ["Clara lives_in Bergen"]
    assert graph.search("Oslo") == []
    assert graph.search("Does Dora like jazz?") == []
    assert graph.search("Does Bruno like bones?") == []


def test_pending_and_committed_facts_give_the_same_answer(lake: Lake) -> None:
    said = operations_in(SAID, ["m1"], hour(0))
    text = "What do I, Anna, Clara and Lopez like? Where do they live?"
    land(lake, {ACME: said[:6]})
    rest = [f"{one.verb} {one.subject} | {one.predicate} | {one.object}" for one in said[6:]]
    write_edits(lake, *rest, at=hour(1))
    before = graph_of(lake).search(text, now=hour(2))
    assert len(before) > 5
    edits = [edit for file in lake.journal.pending() for edit in lake.journal.read(file).edits]
    land(lake, {ACME: [*said[:6], *(operation for edit in edits for operation in edit.operations)]})
    lake.journal.acknowledge(lake.journal.pending())
    assert graph_of(lake).search(text, now=hour(2)) == before


def test_newer_facts_come_before_older_ones(lake: Lake) -> None:
    write_edits(lake, "INSERT Anna | met | Bruno", at=hour(0))
    write_edits(lake, "INSERT Anna | met | Clara", at=hour(24 * 300))
    write_edits(lake, "INSERT Anna | met | Dora", at=hour(24 * 100))
    assert [fact.target for fact in graph_of(lake).search("Anna", now=hour(24 * 301))] == ["Clara", "Dora", "Bruno"]


HOSTILE = {
    "empty": "",
    "blank": " \n\t ",
    "control": "\x00\x01\x1b[2J\x7f",
    "pattern": "(((((.*+?[^$\\Q|)}{",
    "one word": "a" * 1_000_000,
    "a name often": "Anna " * 200_000,
    "a known name often": '"Anna" ' * 150_000,
    "quotes": "\"“„«" * 250_000,
    "apostrophes": "x'" * 500_000,
    "first person": "I’m " * 250_000,
    "capitals": "Ab Cd Ef " * 110_000,
    "dots": "A.B-" * 250_000,
    "right to left": "\u202e" * 1_000_000,
    "marks": "a\u0301" * 500_000,
    "casefolds": "İſß" * 300_000,
    "emoji": "🏳️‍🌈" * 150_000,
    "lines": "Anna\n" * 200_000,
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_prompt_is_answered_quickly(graph: Graph, what: str) -> None:
    graph.search("Anna")
    begun = time.process_time()
    found = graph.search(HOSTILE[what])
    assert time.process_time() - begun < 1
    assert len(found) <= 10
    assert {fact.source for fact in found} <= {"Anna", "User"}


@pytest.mark.parametrize("names", [None, ["ab\ud800c"]])
def test_broken_unicode_names_nothing(graph: Graph, names: list[str] | None) -> None:
    assert graph.search('What of "ab\ud800c"?', names=names) == []


def test_a_name_beyond_the_read_limit_is_ignored(graph: Graph) -> None:
    assert graph.search("x " * 5_000 + "Anna") == []
    assert graph.search("x " * 4_900 + "Anna") != []


def test_an_entity_with_many_facts_is_bounded(lake: Lake) -> None:
    said = "\n".join(f"INSERT Anna|likes|thing {number}" for number in range(4_000))
    land(lake, {ACME: operations_in(said, ["m1"], hour(0))})
    write_edits(lake, "INSERT Anna | likes | honey", at=hour(1))
    graph = graph_of(lake)
    graph.search("Anna")
    begun = time.process_time()
    found = graph.search("Does Anna like honey, or thing 7?", 20)
    assert time.process_time() - begun < 1
    assert (len(found), found.total) == (20, 4_001)
    assert "Anna likes honey" in lines(found)


@pytest.mark.parametrize("query", [None, 5, b"Anna", ["Anna"]])
def test_a_query_that_is_not_a_text_is_refused(graph: Graph, query: object) -> None:
    with pytest.raises(InputError, match=r"^query "):
        graph.search(query)  # type: ignore[arg-type]


@pytest.mark.parametrize(("argument", "value"), [("speaker", 5), ("names", [5])])
def test_names_and_speakers_that_are_not_texts_are_refused(graph: Graph, argument: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{argument} "):
        graph.search("Where do I live?", **{argument: value})


def test_a_curly_apostrophe_in_a_stored_name_is_found(lake: Lake) -> None:
    write_edits(lake, "INSERT Anna’s sister | lives_in | Rome")
    assert lines(graph_of(lake).search("where does anna’s sister live?")) == ["Anna’s sister lives_in Rome"]


def test_each_hop_adds_a_ring_of_facts_and_the_nearer_comes_first(lake: Lake) -> None:
    write_edits(
        lake, *(f"INSERT {pair}" for pair in ("Anna|knows|Ben", "Ben|knows|Cleo", "Cleo|knows|Dora", "Dora|knows|Eve"))
    )
    graph = graph_of(lake)

    def found(hops: int) -> list[str]:
        return [f"{fact.source} {fact.target}" for fact in graph.search("What of Anna?", hops=hops, now=hour(2))]

    rings = ["Anna Ben", "Ben Cleo", "Cleo Dora"]
    assert [found(hops) for hops in range(4)] == [rings[:hops] for hops in range(4)]
    for hops in (-1, 4, True, 1.0):
        with pytest.raises(InputError, match="hops"):
            graph.search("Anna", hops=hops)  # type: ignore[arg-type]


def test_many_facts_of_the_first_ring_leave_room_for_the_others(lake: Lake) -> None:
    pairs = [f"INSERT Anna | knows | P{number}" for number in range(8)]
    pairs += [f"INSERT P{number} | lives_in | C{number}" for number in range(8)]
    pairs += [f"INSERT C{number} | located_in | L{number}" for number in range(8)]
    write_edits(lake, *pairs)
    graph = graph_of(lake)
    for hops, limit, outer in ((1, 5, 0), (2, 5, 1), (2, 10, 3), (3, 8, 4), (2, 1, 0), (2, 20, 8)):
        found = graph.search("What of Anna?", limit, hops=hops, now=hour(2))
        assert len(found) == min(limit, 8 * hops)
        assert sum("Anna" not in (fact.source, fact.target) for fact in found) == outer
        assert [fact.score for fact in found] == sorted((fact.score for fact in found), reverse=True)
