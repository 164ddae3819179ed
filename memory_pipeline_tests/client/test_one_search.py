"""One search finds all that is memory: what was said, durable memories, values and entries of contexts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

MARCH = datetime(2026, 3, 2, 9, tzinfo=UTC)
QUESTIONS = {
    "What is the wifi password of the cabin?": "heronlake",
    "What is Anna allergic to?": "walnuts",
    "Which editor theme?": "solarized",
    "Who owns the retry runbook?": "Zoltan",
    "When does the depot close?": "six",
    "Which hotel on our trip?": "Mar Azul",
}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    memory = Memory(str(tmp_path_factory.mktemp("one-search")), user_id="anna")
    memory.add("The wifi password of the cabin is heronlake.", now=MARCH)
    memory.add("I moved to Porto.", now=MARCH)
    memory.add([{"role": "user", "content": f"Today I walked {n} miles by the river."} for n in range(20)], now=MARCH)
    memory.remember("Anna is allergic to walnuts.", now=MARCH)
    memory.write("editor theme", "solarized", tier="long_term", now=MARCH)
    memory.contexts.create("runbooks", "knowledge_base", now=MARCH)
    memory.contexts.put("runbooks", "retry", "The retry runbook.", {"owner": "Zoltan"}, now=MARCH)
    memory.contexts.create("trip", now=MARCH)
    memory.contexts.put("trip", "hotel", "Mar Azul, four nights", now=MARCH)
    memory.remember("The depot closes at six.", tags=["depot"], now=MARCH)
    return memory


@pytest.mark.parametrize("question", QUESTIONS)
def test_everything_is_found_and_the_answer_is_first(memory: Memory, question: str) -> None:
    hit = memory.search(question, now=MARCH)[0]
    value = memory.history(hit.id)[-1].value if hit.grain == "durable" else ""
    assert QUESTIONS[question] in f"{hit.content} {value}"


def test_a_message_and_the_memory_made_of_it_are_one_hit_with_the_id_of_the_message(memory: Memory) -> None:
    made = [one for one in memory.reader.memories.list() if "Porto" in one.content]
    hits = [hit for hit in memory.search("Who moved to Porto?", 100, now=MARCH) if "Porto" in hit.content]
    assert made
    assert [hit.grain for hit in hits] == ["working"]
    assert set(made[0].source_ids) <= set(hits[0].source_ids)
    memory.writer.update(made[0].id, content="User: I moved from Porto to Lisbon.", now=MARCH)
    hits = memory.search("Who moved to Lisbon?", now=MARCH)
    assert hits[0].id == made[0].id  # what a change says is not in the message


def test_pages_hold_each_hit_once(memory: Memory) -> None:
    whole = memory.search("river walnuts depot", 100, now=MARCH)
    read = memory.reader.search_memory
    pages = [
        read(query="river walnuts depot", max_results=7, offset=at, now=MARCH, sources="all") for at in range(0, 35, 7)
    ]
    assert [hit.id for page in pages for hit in page] == [hit.id for hit in whole]
    assert {page.total for page in pages} == {len(whole)}


def test_sources_restrict_and_dates_do_not_bind_durable_memories(memory: Memory) -> None:
    later = MARCH + timedelta(days=30)
    since = (MARCH + timedelta(days=20)).date()
    assert {hit.grain for hit in memory.search("walnuts", now=later, since=since)} == {"durable"}
    assert {hit.grain for hit in memory.search("walnuts", now=later, sources=("turns",))} == {"working"}
    entry = memory.search("walnuts", now=later, sources="contexts")
    assert [hit.content for hit in entry if "runbook" in hit.content] == ["The retry runbook."]
    assert "The retry runbook." not in [hit.content for hit in memory.search("retry", now=later, sources="memories")]
    alone = memory.reader.search_memory(query="What is Anna allergic to?", now=later)
    named = memory.search("What is Anna allergic to?", now=later, sources=("turns",))
    assert list(alone) == list(named)
    for sources in ("notes", (), ["turns", "notes"]):
        with pytest.raises(InputError, match="sources"):
            memory.search("walnuts", sources=sources)


def test_what_is_another_users_is_not_found(memory: Memory, tmp_path: Path) -> None:
    ben = Memory(memory.lake.storage.uri, user_id="ben")
    ben.remember("Ben hides the key.", now=MARCH)
    assert [hit.content for hit in ben.search("walnuts key", 100, now=MARCH)] == ["Ben hides the key."]
    assert all("key" not in hit.content for hit in memory.search("walnuts key", 100, now=MARCH))


def test_memories_after_now_are_not_found(memory: Memory) -> None:
    before = MARCH - timedelta(days=3)  # clocks may differ by a day
    assert memory.search("walnuts", now=before) == []
