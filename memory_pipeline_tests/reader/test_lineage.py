"""Tracing a summary to its sources."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, NOW
from memory_pipeline_tests.reader.ways import make_hours

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader.lineage import Node


@pytest.fixture
def reader(walked: Path, models: Models) -> MemoryReader:
    return MemoryReader(Lake(str(walked)), ACME, models.embedder)


def leaves(node: Node) -> list[Node]:
    return [leaf for source in node.sources for leaf in leaves(source)] if node.sources else [node]


def the_year(reader: MemoryReader) -> str:
    [hit] = reader.search_memory("yearly", 0, 1000, now=NOW)
    return hit.id


def test_a_year_is_traced_to_every_message(reader: MemoryReader) -> None:
    year = reader.expand(the_year(reader))
    assert [(leaf.what, leaf.content) for leaf in leaves(year)] == [
        ("message", "08:00 Anna: I moved to Porto."),
        ("message", "08:01 Anna: My dog is called Bruno."),
        ("message", "10:00 Anna: Bruno ate my passport."),
    ]


def test_a_point_is_traced_to_its_message_through_all_grains(reader: MemoryReader) -> None:
    node = reader.expand(f"{the_year(reader)}#2")
    path = []
    while node:
        path.append((node.what, node.period))
        assert "Bruno ate my passport." in node.content
        node = node.sources[0] if node.sources else None  # type: ignore[assignment]
    assert path == [
        ("yearly", "2024"), ("quarterly", "2024-Q3"), ("monthly", "2024-07"), ("weekly", "2024-W27"),
        ("daily", "2024-07-02"), ("working", "2024-07-02T10"), ("message", "2024-07-02T10"),
    ]  # fmt: skip


def test_every_level_names_its_method(reader: MemoryReader) -> None:
    node = reader.expand(the_year(reader))
    assert node.method == "extractive-4"
    assert node.provenance.keys() == {"tokens_in", "tokens_out", "code_version", "embed_model"}
    assert next(node.lines()).startswith("yearly 2024  2024-03-12 Anna: I moved to Porto.")


def test_every_hit_can_be_expanded(reader: MemoryReader) -> None:
    for grain in Grain:
        for hit in reader.search_memory(grain, 0, 1000, now=NOW):
            node = reader.expand(hit.id)
            assert (node.id, node.period) == (hit.id, hit.period)
            assert {source.id for source in leaves(node)}


@pytest.mark.parametrize(
    "identifier",
    [
        "",
        "nonsense",
        "weekly:2024-W54:" + "0" * 32,
        "weekly:2024-W03:xyz",
        "../secret",
        "' OR 1=1 --",
        "x" * 10_000_000,
    ],
)
def test_an_invalid_id_is_rejected(reader: MemoryReader, identifier: str) -> None:
    with pytest.raises(InputError, match="is not valid; expected an id"):
        reader.expand(identifier)


@pytest.mark.parametrize("identifier", ["yearly:2024:" + "0" * 32, "message:2024-01-15T08:" + "f" * 32])
def test_an_unknown_id_is_rejected(reader: MemoryReader, identifier: str) -> None:
    with pytest.raises(InputError, match="is unknown in the memory of"):
        reader.expand(identifier)


def test_an_unknown_point_is_rejected(reader: MemoryReader) -> None:
    with pytest.raises(InputError, match="is unknown in the memory of"):
        reader.expand(f"{the_year(reader)}#99")


def test_a_graph_fact_is_traced_to_messages(reader: MemoryReader) -> None:
    [fact] = reader.graph.facts_about("Porto")
    node = reader.expand(fact.id)
    assert (node.what, node.content, node.period) == ("graph", "Anna lives_in Porto", "2024-03-12T08")
    assert [(leaf.what, leaf.content) for leaf in leaves(node)] == [("message", "08:00 Anna: I moved to Porto.")]


def test_an_agents_own_graph_fact_is_traced_to_its_edit(lake: Lake, models: Models) -> None:
    writer = MemoryWriter(lake, ACME)
    writer.graph.insert("Anna", "likes", "tea", now=NOW - timedelta(days=1))
    edit = writer.graph.update("Anna", "likes", "rum", replaces="tea", now=NOW)
    make_hours(lake.storage.uri, models)
    reader = MemoryReader(lake, ACME, models.embedder)
    [fact] = reader.graph.facts_about("rum")
    assert [leaf.content for leaf in leaves(reader.expand(fact.id))] == ["UPDATE Anna likes rum"]
    assert reader.expand(edit).what == "edit"
    for identifier in (fact.id, edit):
        with pytest.raises(InputError, match="is unknown in the memory of"):
            MemoryReader(lake, Scope("acme", "sales"), models.embedder).expand(identifier)
