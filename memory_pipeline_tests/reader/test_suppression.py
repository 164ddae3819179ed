"""Shown and revoked statements are hidden in all forms, and snapshots have a warning in all forms."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.lake import Lake
from memory_pipeline.reader import MemoryReader
from memory_pipeline.reader.packing.items import cut_to
from memory_pipeline_tests import building
from memory_pipeline_tests.building import ACME, conversation, run
from memory_pipeline_tests.memories.keeping import MONDAY, event, land, minute, remember, write
from memory_pipeline_tests.reader.injecting import part

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

STOCK, CODE = "We have 40 sacks of flour in stock.", "Remember that the alarm code is 4411."
TUESDAY = MONDAY + timedelta(days=1, hours=1)


@pytest.fixture
def reader(lake: Lake, shared_folder: SharedFolder, models: Models) -> MemoryReader:
    def fill(folder: Path) -> None:
        said = [CODE, "From now on, always answer in Portuguese."]
        write(Lake(str(folder)), remember(STOCK, kind="observation", is_point_in_time=True))
        building.write(Lake(str(folder)), conversation(*said, at="2024-01-15T08:00", conversation_id="c1"))
        run(Lake(str(folder)), models)

    shutil.copytree(shared_folder("reader-retelling", fill), lake.storage.uri)
    return MemoryReader(Lake(lake.storage.uri), ACME, models.embedder)


def recalled_text(reader: MemoryReader, query: str, now: datetime = TUESDAY, **options: object) -> str:
    return str(reader.recall(query, now=now, **options))  # type: ignore[arg-type]


def test_a_snapshot_has_a_warning_in_every_form(reader: MemoryReader) -> None:
    for text in (
        recalled_text(reader, "How many sacks?"),
        reader.inject_knowledge("How many sacks?", now=TUESDAY).block,
    ):
        [line] = [line for line in text.splitlines() if "40 sacks" in line]
        assert "snapshot" in line
        assert "query" in line
    [part] = [one for one in reader.inject_knowledge("How many sacks?", now=TUESDAY).parts if "40" in one.text]
    assert part.warning
    for budget in (10, 25, 40, 60):
        found = reader.recall("How many sacks?", budget, now=TUESDAY)
        assert found.tokens <= budget
        assert all("snapshot" in str(one) for one in found if "40 sacks" in one.content)


def test_a_former_snapshot_has_no_warning(reader: MemoryReader, lake: Lake) -> None:
    [stock] = [one for one in reader.memories.list() if "40 sacks" in one.content]
    assert "snapshot" in recalled_text(reader, "How many sacks?", TUESDAY)
    write(lake, event(MemoryVerb.UPDATE, TUESDAY, stock.id, is_point_in_time=False))
    assert "snapshot" not in recalled_text(reader, "How many sacks?", TUESDAY)


def test_revoked_content_is_not_recalled_in_the_same_words(reader: MemoryReader, lake: Lake) -> None:
    [code] = [one for one in reader.memories.list() if "4411" in one.content]
    assert "4411" in recalled_text(reader, "What is the alarm code?")
    write(lake, event(MemoryVerb.FORGET, TUESDAY, code.id))
    for now in (TUESDAY, TUESDAY + timedelta(days=400)):
        assert "4411" not in recalled_text(reader, "What is the alarm code?", now)
        block = reader.inject_knowledge("What is the alarm code?", now=now).block
        assert "4411" not in block
        assert "Portuguese" in block
    assert "4411" in recalled_text(
        reader, "What is the alarm code?", MONDAY + timedelta(hours=4)
    )  # it was not revoked then
    building.write(lake, conversation(CODE, at="2024-01-17T08:00", conversation_id="c2"))
    assert "4411" in recalled_text(reader, "What is the alarm code?", TUESDAY + timedelta(days=9))


def test_earlier_versions_of_a_revoked_memory_are_not_recalled(reader: MemoryReader, lake: Lake) -> None:
    [code] = [one for one in reader.memories.list() if "4411" in one.content]
    write(
        lake,
        event(MemoryVerb.UPDATE, TUESDAY, code.id, content="The alarm code is 9999."),
        event(MemoryVerb.FORGET, TUESDAY + timedelta(minutes=1), code.id),
    )
    text = recalled_text(reader, "What is the alarm code?", TUESDAY + timedelta(hours=1))
    assert "4411" not in text
    assert "9999" not in text


def test_excluded_items_are_hidden_in_all_forms(reader: MemoryReader) -> None:
    query = "How many sacks are in stock?"
    shown = [one.id for one in reader.recall(query, now=TUESDAY)]
    assert shown
    assert recalled_text(reader, query, exclude=shown) == ""
    assert reader.inject_knowledge(query, exclude=shown, now=TUESDAY).parts == ()
    parts = [one.id for one in reader.inject_knowledge(query, now=TUESDAY).parts]
    assert reader.inject_knowledge(query, exclude=parts, now=TUESDAY).parts == ()
    [stock] = [one for one in reader.memories.list() if "40 sacks" in one.content]
    for own in (stock.id, stock.version_id):
        assert "40 sacks" not in recalled_text(reader, query, exclude=[own])
        assert "4411" in recalled_text(reader, query, exclude=[own])
    points = [one.id for one in reader.recall(query, now=TUESDAY, exclude=["nothing"])]
    assert points == shown


def test_a_merged_memory_is_excluded_by_each_id(lake: Lake, models: Models) -> None:
    first, second = remember("Anna drinks black coffee."), remember("Anna has coffee without milk.", minute(1))
    merge = event(MemoryVerb.MERGE, TUESDAY, second.memory_id, first.memory_id, editor="consolidation")
    land(lake, first, second, consolidation=[merge])
    reader = MemoryReader(lake, ACME, models.embedder)
    now = TUESDAY + timedelta(hours=1)
    assert len(reader.memories.search("coffee", now=now)) == 1
    for one in (first, second):
        for own in (one.memory_id, f"{one.memory_id}#1"):
            assert reader.memories.search("coffee", exclude=[own], now=now) == []
            assert recalled_text(reader, "coffee", now, exclude=[own]) == ""
    assert reader.search_archive("coffee", now=now)
    assert reader.search_archive("coffee", exclude=[first.memory_id], now=now) == []


def test_recall_ranks_memories_as_their_search_does(lake: Lake, models: Models) -> None:
    building.write(lake, conversation("Nice weather.", name="Ruben"))
    contents = ["Ruben is badly allergic to hazelnuts.", "Ruben may leave early.", "Ruben likes to eat.", "Eat well."]
    land(lake, *(remember(content, minute(place)) for place, content in enumerate(contents)))
    reader = MemoryReader(lake, ACME, models.embedder)
    query = "What may Ruben not eat?"
    searched = [one.memory.id for one in reader.memories.search(query, now=TUESDAY)]
    found = [one.id for one in reader.recall(query, 10_000, now=TUESDAY) if one.grain == "durable"]
    assert found
    assert found == [one for one in searched if one in found]


def test_a_warning_is_never_cut() -> None:
    long = part("word " * 100, warning="a snapshot")
    for size in range(20, 200):
        cut = cut_to(long, size)
        assert cut is None or (len(str(cut).encode()) <= size and str(cut).endswith("… (a snapshot)"))
