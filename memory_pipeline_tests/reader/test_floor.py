"""Nothing fits is an answer: questions about something else get nothing, and hidden older memories are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError
from memory_pipeline.reader.packing.recall import fitting
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.reader.injecting import recalled
from memory_pipeline_tests.reader.ways import JANUARY, WAYS, Said, keep, readers, talk

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline_tests.conftest import SharedFolder

_TOPICS = [
    ("I moved to Porto with my dog Bruno.", "How do you like the hills there?"),
    ("The bakery in my street sells rye bread.", "I prefer wheat, but rye keeps longer."),
    ("My bike needs new brakes.", "The workshop at the station is cheap."),
    ("We planted tomatoes on the balcony.", "Mine dried up in the summer heat."),
    ("I read a novel about a lighthouse keeper.", "Tell me how it ends, I never finish books."),
]
TALKS = [
    talk("old", "2022-06-01T08:00", Said("Anna", "In Lisbon I had a red bike."), Said("Ben", "I sold my bike.")),
    *(
        talk(f"talk {number}", f"2024-01-{number + 1:02}T08:00", Said("Anna", one), Said("Ben", other))
        for number, (one, other) in enumerate(_TOPICS)
    ),
]
OWN = ["Where did Anna move with Bruno?", "What does the bakery sell?", "Which plants are on the balcony?", "my bike"]
UNRELATED = [
    "Which violin concerto did Mr Yamamoto rehearse in Vienna?",
    "How much was the invoice of the dentist?",
    "When is the deadline of the tax return?",
    "What did Olga say about the election in Norway?",
]


@pytest.fixture(scope="module")
def ways(shared_folder: SharedFolder, models: Models) -> dict[str, MemoryReader]:
    return readers(shared_folder("reader-floor", lambda folder: keep(folder, models, TALKS)), models)


@pytest.mark.parametrize("way", WAYS if IS_THOROUGH else ["held", "disk and tail"])
def test_prompts_about_something_else_get_nothing_and_searches_show_the_best(
    ways: dict[str, MemoryReader], way: str
) -> None:
    reader = ways[way]
    for question in UNRELATED:
        hits = reader.search_memory(query=question, now=JANUARY)
        assert (len(hits), hits.total) == (2 * len(_TOPICS), 2 * len(_TOPICS))
        assert not reader.recall(question, now=JANUARY)
        assert not reader.inject_knowledge(question, now=JANUARY).parts
    for question in OWN:
        assert reader.search_memory(query=question, now=JANUARY)
        assert reader.recall(question, now=JANUARY)
        assert reader.inject_knowledge(question, now=JANUARY).parts


def test_without_a_floor_the_best_are_returned_and_the_score_tells(ways: dict[str, MemoryReader]) -> None:
    def best(question: str) -> float:
        return ways["held"].search_memory(query=question, now=JANUARY)[0].score

    assert max(map(best, UNRELATED)) < min(map(best, OWN))
    assert ways["held"].recall(UNRELATED[0], minimum_score=0, now=JANUARY)
    assert ways["held"].inject_knowledge(UNRELATED[0], minimum_score=0, now=JANUARY).parts


def test_a_floor_leaves_out_hits_that_fit_worse(ways: dict[str, MemoryReader]) -> None:
    hits = ways["held"].search_memory(query=OWN[0], now=JANUARY)
    floor = hits[2].score
    above = ways["held"].search_memory(query=OWN[0], minimum_score=floor, now=JANUARY)
    assert [hit.id for hit in above] == [hit.id for hit in hits if hit.score >= floor]
    recalled = ways["held"].recall(OWN[0], minimum_score=floor, now=JANUARY)
    assert all(item.score >= floor for item in recalled)


def test_what_a_conversation_left_does_not_fit_alone_but_what_was_remembered_may() -> None:
    said = recalled("Anna: I moved to Porto.", 1)
    known = replace(said, grain="durable", id="memory:1", source_ids=("message:2024-01-15T08:1",))
    own = replace(known, id="memory:2", source_ids=("event:2024-01-15T08:1",))
    both = replace(known, id="memory:3", source_ids=(*known.source_ids, *own.source_ids))
    unfit = replace(said, score=0.1)
    assert fitting([unfit], [known, own, both], 0.5) == [own, both]
    assert fitting([unfit, said], [known, own], 0.5) == [said, known, own]
    assert fitting([], [known], 0.5) == [known]


def test_a_question_without_words_of_its_own_is_not_judged(ways: dict[str, MemoryReader]) -> None:
    assert ways["held"].search_memory(query="What was it?", now=JANUARY)


@pytest.mark.parametrize("floor", [-0.1, 1.1, True, "0.5", float("nan")])
def test_an_invalid_floor_is_named(ways: dict[str, MemoryReader], floor: Any) -> None:
    for read in (ways["held"].recall, ways["held"].inject_knowledge):
        with pytest.raises(InputError, match="minimum_score"):
            read(OWN[0], minimum_score=floor)
    with pytest.raises(InputError, match="minimum_score"):
        ways["held"].search_memory(query=OWN[0], minimum_score=floor)


@pytest.mark.parametrize("way", WAYS)
def test_memories_that_the_window_hides_are_counted(ways: dict[str, MemoryReader], way: str) -> None:
    reader = ways[way]
    assert reader.search_memory(query="bike", now=JANUARY).older == 2
    assert reader.search_memory(query="Lisbon", now=JANUARY).older == 1
    assert reader.search_memory(query="rye bread", now=JANUARY).older == 0
    assert reader.search_memory(query="bike", maximum_days_ago=1_000, now=JANUARY).older == 0
    assert reader.search_memory(person="Ben", now=JANUARY).older == 1
    assert reader.search_memory(since="2022-01-01", now=JANUARY).older == 0


@pytest.mark.parametrize(
    ("message", "prompt"),
    [
        ("我住在里加，养了一只猫。", "我住在哪里？"),
        ("The boiler man comes on Thursday.", "Hello, I am Yves, tell Olga when that boiler man will finally come"),
        ("ฉันแพ้ถั่วและชอบแมว", "แพ้ถั่ว"),
        ("Zugspitze", "Zugspitze?"),
    ],
)
def test_what_repeats_the_words_of_a_prompt_is_never_cut(tmp_path: Path, message: str, prompt: str) -> None:
    memory = Memory(str(tmp_path))
    memory.add([f"Today I walked {n} miles along the river and saw a heron." for n in range(60)])
    memory.add(message)
    assert message in str(memory.context(prompt))
    assert message in str(memory.reader.recall(prompt))
