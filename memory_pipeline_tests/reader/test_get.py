"""``MemoryReader.get``."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.reader import MemoryReader
from memory_pipeline_tests.building import ACME, NOW, conversation, write
from memory_pipeline_tests.reader.ways import make_hours

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models


@pytest.mark.parametrize("resident_rows", [0, 1_000], ids=["on disk", "in memory"])
def test_every_search_result_is_returned_by_its_id(walked: Path, root: str, models: Models, resident_rows: int) -> None:
    shutil.copytree(walked, root)
    write(Lake(root), conversation("I like figs.", at="2024-03-13T08:00", conversation_id="c3"))  # still in the journal
    reader = MemoryReader(Lake(root), ACME, models.embedder, resident_rows=resident_rows)
    for grain in Grain:
        hits = reader.search_memory(grain, 0, 1_000, 50, "Porto dog figs", now=NOW)
        assert hits
        for hit in hits:
            found = reader.get(hit.id, now=NOW)
            assert found is not None
            assert (found.id, found.content, found.grain) == (hit.id, hit.content, grain)


def test_the_id_of_a_message_returns_its_turn(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto. I like figs."))
    reader = MemoryReader(lake, ACME, models.embedder)
    [turn] = reader.search_memory(kind="turn", maximum_days_ago=1_000, now=NOW)
    assert reader.get(turn.source_ids[0], now=NOW) == turn


def test_unknown_ids_return_none_and_invalid_ids_are_rejected(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto."))
    make_hours(lake.storage.uri, models)
    reader = MemoryReader(lake, ACME, models.embedder)
    [hit] = reader.search_memory(maximum_days_ago=1_000, now=NOW)
    assert reader.get(f"{hit.id[:-32]}{'0' * 32}", now=NOW) is None
    assert reader.get(hit.id, now=hit.starts_at - timedelta(seconds=1)) is None
    assert reader.get(reader.graph.facts()[0].id, now=NOW) is None
    assert MemoryReader(lake, Scope("acme", "sales"), models.embedder).get(hit.id, now=NOW) is None
    for identifier in ("", "Porto", "working:2024-13:0", "weekly:2024-W03:xyz"):
        with pytest.raises(InputError):
            reader.get(identifier, now=NOW)
