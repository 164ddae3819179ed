"""Pages of a search, totals, and parts of scores."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.ranking import WEIGHTS, Weights
from memory_pipeline.lake import Lake
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.materialize import materialize
from memory_pipeline_tests.building import ACME, hours
from memory_pipeline_tests.reader.ways import JANUARY, WAYS, Said, keep, readers, talk, write_talks

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader import Hits
    from memory_pipeline_tests.conftest import SharedFolder

#: A talk with more messages than a page considers, and as many talks of one message that score nearly as high.
PARCELS, STORMS = 66, 12
TALKS = [
    talk(
        "parcels",
        "2024-01-15T08:00",
        *(Said("Anna", f"Zebra parcel number {n} went to Oslo.") for n in range(PARCELS)),
        seconds=10,
    ),
    *(
        talk(f"storm {n}", f"2024-01-15T09:{n:02}", Said("Ben", f"A zebra ran from storm {n}, as many others did too."))
        for n in range(STORMS)
    ),
    talk("letter", "2024-01-16T09:00", Said("Cleo", "I bought a zebra. I sold a zebra. I painted a zebra in May.")),
]
MESSAGES = PARCELS + STORMS + 1
QUERIES = ["zebra parcel 7", "the"]


@pytest.fixture(scope="module")
def ways(shared_folder: SharedFolder, models: Models) -> dict[str, MemoryReader]:
    return readers(shared_folder("reader-paging", lambda folder: keep(folder, models, TALKS)), models)


def search(reader: MemoryReader, **options: Any) -> Hits:
    return reader.search_memory(**{"max_results": 100, "now": JANUARY, **options})


def paged(reader: MemoryReader, size: int, **options: Any) -> tuple[list[str], set[int]]:
    """Return the ids of all pages until an empty one, and their totals."""
    ids: list[str] = []
    totals = set()
    for offset in range(0, 1_000, size):
        page = search(reader, max_results=size, offset=offset, **options)
        assert page.offset == offset
        totals.add(page.total)
        ids += [hit.id for hit in page]
        if not page:
            return ids, totals
    raise AssertionError("there is no end of pages")


def _pages_are_one_list(reader: MemoryReader, **options: Any) -> None:
    longest = [hit.id for hit in search(reader, **options)]
    for size in (15, 40):
        ids, totals = paged(reader, size, **options)
        assert totals == {MESSAGES}
        assert len(ids) == len(set(ids)) == MESSAGES
        assert ids[:100] == longest


@pytest.mark.parametrize("way", WAYS)
def test_pages_of_the_newest_are_disjoint_and_make_one_list(ways: dict[str, MemoryReader], way: str) -> None:
    _pages_are_one_list(ways[way])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("query", QUERIES)
def test_pages_of_the_best_are_disjoint_and_make_one_list(ways: dict[str, MemoryReader], way: str, query: str) -> None:
    _pages_are_one_list(ways[way], query=query)


@pytest.mark.parametrize("way", ["held", "tail", "held and tail"])
def test_a_longer_list_begins_with_the_shorter_one(ways: dict[str, MemoryReader], way: str) -> None:
    for query in (None, *QUERIES):
        longest = search(ways[way], query=query)
        for count in (1, 2, 5, 20, 61, 99):
            assert search(ways[way], query=query, max_results=count) == longest[:count]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("query", [None, *QUERIES])
def test_pages_after_the_last_are_empty_with_the_same_total(
    ways: dict[str, MemoryReader], way: str, query: str | None
) -> None:
    assert len(search(ways[way], query=query, offset=MESSAGES - 1, max_results=10)) == 1
    for offset in (MESSAGES, 10_000):
        page = search(ways[way], query=query, offset=offset)
        assert (page, page.total, page.offset) == ([], MESSAGES, offset)


@pytest.mark.parametrize("way", WAYS)
def test_pages_of_a_filtered_search(ways: dict[str, MemoryReader], way: str) -> None:
    for query in (None, "zebra"):
        for options, count in (({"person": "Ben"}, STORMS), ({"conversation_id": "parcels"}, PARCELS)):
            ids, totals = paged(ways[way], 12, query=query, **options)
            assert (len(ids), len(set(ids)), totals) == (count, count, {count})


@pytest.mark.parametrize("way", WAYS)
def test_a_message_of_many_facts_counts_once(ways: dict[str, MemoryReader], way: str) -> None:
    for query in (None, "zebra", "sold"):
        hits = search(ways[way], query=query, person="Cleo")
        assert (len(hits), hits.total) == (1, 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_message_of_many_facts_of_one_kind_is_one_hit_and_counts_once(
    ways: dict[str, MemoryReader], way: str
) -> None:
    for query in (None, "zebra"):
        hits = search(ways[way], query=query, person="Cleo", kind="event")
        assert (len(hits), hits.total) == (1, 1)


@pytest.mark.parametrize("resident_rows", [100, 0])
def test_a_message_in_both_the_tail_and_the_index_counts_once(
    root: str, models: Models, monkeypatch: pytest.MonkeyPatch, resident_rows: int
) -> None:
    """The state after a run that was killed before it acknowledged its journal entries."""
    write_talks(root, talk("c", "2024-01-15T08:00", Said("Anna", "I moved to Porto."), Said("Anna", "Porto is hilly.")))
    from memory_pipeline.steps import materialize as steps

    monkeypatch.setattr(steps, "acknowledge", lambda *_: None)
    lake = Lake(root)
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T08")))
    assert lake.journal.pending(ACME)
    assert lake.index.count(ACME, Grain.WORKING)
    reader = MemoryReader(lake, ACME, models.embedder, resident_rows=resident_rows)
    for query in (None, "Porto"):
        hits = search(reader, query=query)
        assert (len(hits), hits.total) == (2, 2)
        assert paged(reader, 1, query=query)[0] == [hit.id for hit in hits]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "query", ["zebra", "When did Anna's parcel go to Oslo?", "How many zebras has Cleo?", "the", "?"]
)
def test_hits_are_in_the_order_of_the_sum_of_their_parts(ways: dict[str, MemoryReader], way: str, query: str) -> None:
    hits = search(ways[way], query=query, explain=True)
    assert hits
    assert all((hit.parts or {}).keys() == {field.name for field in fields(Weights)} for hit in hits)
    sums = [sum((hit.parts or {}).values()) for hit in hits]
    assert sums == pytest.approx(sorted(sums, reverse=True), abs=1e-3)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_parts_explain_the_score(ways: dict[str, MemoryReader]) -> None:
    def parts(query: str, **options: Any) -> list[dict[str, float]]:
        return [dict(hit.parts or {}) for hit in search(ways["held"], query=query, explain=True, **options)]

    [cleo] = parts("When did Cleo paint?", person="Cleo")
    assert cleo["speaker"] > 0
    assert cleo["words"] > 0
    assert all(other["speaker"] < 0 for other in parts("What did Cleo paint?", person="Ben"))
    assert all(other["counted"] > 0 for other in parts("How many parcels?", person="Anna"))
    assert all(other["counted"] == 0 for other in parts("parcels", person="Anna"))
    repeats = [other["repeats"] for other in parts("parcel", conversation_id="parcels")]
    assert repeats == pytest.approx([WEIGHTS.repeats * n for n in range(PARCELS)])
    assert {other["repeats"] for other in parts("storm", person="Ben")} == {0}


@pytest.mark.parametrize("way", WAYS)
def test_explain_adds_parts_and_keeps_the_scores(ways: dict[str, MemoryReader], way: str) -> None:
    plain = search(ways[way], query="zebra parcel")
    explained = search(ways[way], query="zebra parcel", explain=True)
    assert [hit.parts for hit in plain] == [None] * len(plain)
    assert [(hit.id, hit.score) for hit in plain] == [(hit.id, hit.score) for hit in explained]
    assert not any(hit.parts or hit.score for hit in search(ways[way], explain=True))
