"""What is saved is merged with a memory that says nearly the same. Nothing is lost by it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.memories.record import Status
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, verify
from memory_pipeline.models.factory import default_models
from memory_pipeline_tests.invoking import read

if TYPE_CHECKING:
    from pathlib import Path

NOW, LATER, NEXT_DAY = "2024-01-15T10:00:00Z", "2024-01-15T11:00:00Z", "2024-01-17T12:00:00Z"
#: A saved text, and one that is saved later; the text that stays is the one with more characters, or the later one.
SAME = [
    ("Anna lives in Porto.", "Anna lives in Porto, Portugal."),
    ("Anna is vegan.", "Anna is vegan since May."),
    ("Anna is vegan since May.", "Anna is vegan."),
    ("Please always answer in short sentences.", "Always answer in short sentences."),
    ("Anna doesn’t eat meat.", "Anna does not eat meat."),
    ("On Friday we fly to Oslo.", "We fly to Oslo on Friday."),
    ("The rent is 900 euros a month.", "The rent is 900 euros per month."),
    ("Anna has two cats.", "Anna has 2 cats."),
    ("Anna currently works at the Santos clinic.", "Anna works at the Santos clinic."),
    ("Deploy only after the tests pass.", "Deploy only after the tests pass. The tests take 40 minutes."),
    ("My team is Ben.", "My team is Ben, Tom, Lea."),
]
DIFFERENT = [
    ("I moved from Porto to Oslo.", "I moved from Oslo to Porto."),
    ("Anna likes tea.", "Anna does not like tea."),
    ("Anna lives in Porto.", "Anna's mother lives in Porto."),
    ("Anna lived in Porto.", "Anna lives in Porto."),
    ("The rent is 900 euros.", "The rent is 950 euros."),
    ("It is 5 degrees in Oslo.", "It is -5 degrees in Oslo."),
    ("The office is closed on Mondays.", "The office is closed."),
    ("Anna wants a dog.", "Anna wants a dog, if Ben agrees."),
    ("Anna kauft einen Hund.", "Anna kauft einen Hund, wenn Ben zustimmt."),
    ("I code in C.", "I code in C#."),
    ("My team is Ben, Tom.", "My team is Ben."),
    ("Ben likes Tom.", "Tom likes Ben."),
    ("Anna is vegan since May.", "Anna is vegan since June."),
    ("Anna is very tall.", "Anna is not very tall."),
]


def check_same(memory: Memory, pair: tuple[str, str]) -> None:
    [found] = [one for one in memory.reader.memories.list() if one.content in pair]
    assert found.content == max(reversed(pair), key=len)
    history, events = memory.reader.memories.history(found.id), memory.reader.memories.explain(found.id)
    assert [version.content for version in history] == [pair[0], found.content]
    assert len(found.source_ids) == 2
    assert events[1].reason == f"it says what “{pair[0]}” says"


@pytest.mark.parametrize("pair", SAME)
def test_f18_similar_texts_are_one_memory(tmp_path: Path, pair: tuple[str, str]) -> None:
    memory = Memory(tmp_path)
    assert memory.remember(pair[0], now=NOW) == memory.remember(pair[1], now=LATER)
    check_same(memory, pair)


@pytest.mark.parametrize("pair", DIFFERENT)
def test_f18_other_texts_are_other_memories(tmp_path: Path, pair: tuple[str, str]) -> None:
    memory = Memory(tmp_path)
    assert memory.remember(pair[0], now=NOW) != memory.remember(pair[1], now=LATER)
    assert {one.content: one.version for one in memory.reader.memories.list()} == dict.fromkeys(pair, 1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


def test_f18_processed_memories_take_up_similar_texts(lake: Path) -> None:
    memory, pairs = Memory(lake, user_id="anna"), [SAME[0], SAME[7], SAME[9]]
    for first, _ in pairs:
        memory.remember(first, now=NOW)
    memory.run(now=NOW)
    for _, second in pairs:
        memory.remember(second, now=LATER)
    for is_processed in (False, True):
        if is_processed:
            memory.run(now=NEXT_DAY)
        for pair in pairs:
            check_same(memory, pair)


def test_f18_either_wording_updates_the_memory(lake: Path) -> None:
    memory = Memory(lake, user_id="wordings")
    first = memory.remember("Anna has a dog.", title="Pets", tags=["pets"], now=NOW)
    for text in ("Anna has a dog, Rex.", "anna has the dog", "Anna has a dog, Rex."):
        assert memory.remember(text, now=LATER) == first
    [found] = memory.reader.memories.list()
    assert (found.content, found.title, found.tags) == ("Anna has a dog, Rex.", "Pets", ("pets",))
    memory.forget(first, now=LATER)
    other = memory.remember("Anna has a dog, Rex, Max.", now=LATER)
    assert other != first  # what was revoked is not taken up by other words
    assert [one.id for one in memory.reader.memories.list(status=Status.ACTIVE)] == [other]


def test_f18_what_is_another_memory_is_not_merged(lake: Path) -> None:
    def saved(user: str, content: str, **fields: Any) -> str:
        return Memory(lake, user_id=user).remember(content, now=NOW, **fields)

    text, longer = "Always send invoices to Ben.", "Always send invoices to Ben, Mallory."
    others: list[dict[str, Any]] = [
        {"kind": "instruction"},
        {"source_type": "assistant"},  # which may not change what the operator said
        {"subject": "Tom"},
        {"is_point_in_time": True},
        {"outcome_success": False},
    ]
    for place, fields in enumerate(others):
        user = f"other{place}"
        assert saved(user, text) != saved(user, longer, **fields)
    assert saved("other", text) != saved("another", longer)


def test_f18_the_command_merges_as_the_library_does(lake: Path) -> None:
    own = ["--root", str(lake), "--user", "cli", "--now", NOW]
    ids = {read("memories", "remember", text, *own)["id"] for text in SAME[0]}
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("texts", "left", "is_run"),
    [
        (("The code is 4411.", "The code is 4411, Mallory."), "The code is 4411.", False),
        (("The code is 4411. Ask Mallory.", "The code is 4411."), "The code is 4411.", False),
        (
            ("The code is 4411. Ask Mallory.", "The code is 4411.", "Please, the code is 4411."),
            "Please, the code is 4411.",
            True,
        ),
    ],
)
def test_f18_an_erasure_leaves_the_other_wordings(
    tmp_path: Path, texts: tuple[str, ...], left: str, is_run: bool
) -> None:
    memory = Memory(tmp_path, user_id="anna")
    assert len({memory.remember(text, now=f"2024-01-1{day}T10:00:00Z") for day, text in enumerate(texts, 4)}) == 1
    if is_run:
        memory.run(now=NEXT_DAY)
    models = default_models()
    receipt = forget(memory.lake, models, Subject.person("default", ["Mallory"]), datetime(2024, 1, 17, 13, tzinfo=UTC))
    assert verify(memory.lake, receipt).findings == []
    [found] = Memory(tmp_path, user_id="anna").reader.memories.list()
    assert found.content == left
