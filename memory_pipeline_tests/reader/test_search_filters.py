"""Filters of a search: the same rows pass in memory, in pending entries and on disk."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.text.ranking import WEIGHTS
from memory_pipeline.errors import InputError
from memory_pipeline_tests.effort import IS_THOROUGH, examples
from memory_pipeline_tests.reader.ways import JANUARY, WAYS, Said, keep, readers, talk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline_tests.conftest import SharedFolder

TALKS = [
    talk(
        "trip",
        "2024-01-10T08:00",
        Said("Anna Lee", "I moved to Porto with my dog Bruno. Nice weather today."),
        Said("Zoë", "My sister Clara studies marine biology in Bergen."),
        Said("José María", "I love green tea. I never drink coffee."),
        tags=["travel", "family"],
    ),
    talk(
        "work: O.Brien",
        "2024-01-12T09:00",
        Said("Anna Lee", "Never call me before nine."),
        Said("Joanna", "I will meet Bruno in Lisbon on 3 May."),
        Said(None, "Okay."),
        Said(None, "I noted it: nobody calls Anna early.", "assistant"),
        tags=["work", "100%", "büro"],
    ),
    talk(
        "late",
        "2024-01-15T23:30",
        Said("Sean O'Brien", "I booked a ferry to Madeira."),
        Said("Sean O'Brien", "It rains in Bergen."),
    ),
]
KOLKATA = timezone(timedelta(hours=5, minutes=30))
TRIP, WORK, LATE = {"porto", "clara", "tea"}, {"call", "lisbon", "okay", "noted"}, {"ferry", "rain"}
EVERYTHING = TRIP | WORK | LATE
QUERY = "Who drinks tea with Bruno in Bergen?"
#: Messages that share a word with the query.
RELATED = {"porto", "clara", "tea", "lisbon", "rain"}
#: Messages that pass each filter, without a query and with one.
EXPECTED: list[tuple[dict[str, Any], set[str]]] = [
    ({}, EVERYTHING),
    ({"since": date(2024, 1, 12)}, WORK | LATE),
    ({"since": datetime(2024, 1, 12, 9, 1, tzinfo=UTC)}, (WORK | LATE) - {"call"}),
    ({"since": datetime(2024, 1, 12, 14, 31, tzinfo=KOLKATA)}, (WORK | LATE) - {"call"}),
    ({"since": datetime(2024, 1, 12, 9, 1, 0, 1, tzinfo=UTC)}, (WORK | LATE) - {"call", "lisbon"}),
    ({"since": date(2024, 1, 16)}, set()),
    ({"until": date(2024, 1, 12)}, TRIP | WORK),
    ({"until": date(2024, 1, 9)}, set()),
    ({"until": datetime(2024, 1, 10, 8, 1, tzinfo=UTC)}, {"porto", "clara"}),
    ({"until": datetime(2024, 1, 10, 8, 0, 59, 999_999, tzinfo=UTC)}, {"porto"}),
    ({"maximum_days_ago": 8}, LATE | WORK),
    ({"minimum_days_ago": 8}, TRIP),
    ({"person": "Anna Lee"}, {"porto", "call"}),
    ({"person": "lee"}, {"porto", "call"}),
    ({"person": "SEAN O'BRIEN"}, LATE),
    ({"person": "Bruno"}, {"porto", "lisbon"}),
    ({"person": "Joanna"}, {"lisbon"}),
    ({"person": "User"}, {"okay"}),
    ({"person": "Agent"}, {"noted"}),
    ({"person": "nobody at all"}, set()),
    ({"kind": "turn"}, EVERYTHING),
    ({"kind": FactKind.PREFERENCE}, {"tea"}),
    ({"kind": "instruction"}, {"call"}),
    ({"kind": "gist"}, set()),
    ({"conversation_id": "trip"}, TRIP),
    ({"conversation_id": "work: O.Brien"}, WORK),
    ({"conversation_id": "Trip"}, set()),
    ({"conversation_id": "tri"}, set()),
    ({"conversation_id": "' OR 1=1 --"}, set()),
    ({"tag": "family"}, TRIP),
    ({"tag": "100%"}, WORK),
    ({"tag": "büro"}, WORK),
    ({"tag": "%"}, set()),
    ({"tag": "Family"}, set()),
    ({"minimum_importance": 0}, EVERYTHING),
    ({"minimum_importance": 1}, set()),
    ({"person": "Bruno", "tag": "work"}, {"lisbon"}),
    ({"person": "Anna Lee", "since": date(2024, 1, 11), "until": date(2024, 1, 13)}, {"call"}),
    ({"conversation_id": "trip", "tag": "work"}, set()),
    ({"kind": "turn", "person": "Sean", "until": datetime(2024, 1, 15, 23, 30, tzinfo=UTC)}, {"ferry"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def ways(shared_folder: SharedFolder, models: Models) -> dict[str, MemoryReader]:
    return readers(shared_folder("reader-filters", lambda folder: keep(folder, models, TALKS)), models)


@pytest.fixture(scope="module")
def messages(ways: dict[str, MemoryReader]) -> dict[tuple[str, ...], str]:
    """Short names of the messages, by the sources of their hits."""
    hits = search(ways["tail"])
    keys = "porto clara tea call lisbon okay noted ferry rain".split()
    return {hit.source_ids: key for hit, key in zip(reversed(hits), keys, strict=True)}


def search(reader: MemoryReader, **options: Any) -> Any:
    return reader.search_memory(**{"max_results": 100, "now": JANUARY, **options})


def _id(value: object) -> str | None:
    return ", ".join(f"{name} {option}" for name, option in value.items()) if isinstance(value, dict) else ""


@pytest.mark.parametrize(("options", "expected"), EXPECTED, ids=_id)
def test_filters_find_and_count_the_same_in_memory_in_pending_entries_and_on_disk(
    ways: dict[str, MemoryReader], messages: Mapping[Any, str], options: dict[str, Any], expected: set[str]
) -> None:
    for query in (None, QUERY):
        found = {way: search(ways[way], query=query, **options) for way in WAYS}
        for way, hits in found.items():
            assert ({messages[hit.source_ids] for hit in hits}, way) == (expected, way)
            assert (len(hits), hits.total) == (len(expected), len(expected))
        if query is None:
            times = [hit.starts_at for hit in found["held"]]
            assert times == sorted(times, reverse=True)
        # Statistics of rows on disk and of pending rows come from fewer candidates.
        for way in WAYS if query is None else ("tail", "held and tail"):
            assert (found[way], way) == (found["held"], way)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (options, expected)
        for options, expected in EXPECTED[:: 1 if IS_THOROUGH else 3]
        if not {"kind", "conversation_id", "minimum_days_ago", "maximum_days_ago"} & options.keys()
    ],
    ids=_id,
)
def test_recall_applies_filters(
    ways: dict[str, MemoryReader], messages: Mapping[Any, str], options: dict[str, Any], expected: set[str]
) -> None:
    for way in ("held", "disk and tail"):
        found = ways[way].recall(QUERY, 10_000, now=JANUARY, **options)
        told = {messages[one.source_ids] for one in found}
        assert told <= expected
        assert told >= expected & RELATED
        assert told or not expected


def test_minimum_importance_is_inclusive(ways: dict[str, MemoryReader]) -> None:
    held = search(ways["held"], query=QUERY, explain=True)
    weight = WEIGHTS.importance
    importances = sorted({round(hit.parts["importance"] / weight, 2) for hit in held})
    assert len(importances) > 2
    counts = {}
    for bound in importances:
        found = [search(ways[way], query=QUERY, minimum_importance=bound) for way in WAYS]
        [count] = {hits.total for hits in found}
        assert {len(hits) for hits in found} == {count}
        counts[bound] = count
    assert list(counts.values()) == sorted(counts.values(), reverse=True)
    assert counts[importances[-1]] >= 1


@pytest.mark.parametrize("way", ["tail", "held and tail"])
def test_the_best_have_the_same_scores_in_the_tail_as_in_the_index(ways: dict[str, MemoryReader], way: str) -> None:
    for query in ("Where does Anna live?", "When did Sean book a ferry?", "tea"):
        found, expected = search(ways[way], query=query), search(ways["held"], query=query)
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=2e-4)  # rounded
        assert [replace(hit, score=0) for hit in found] == [replace(hit, score=0) for hit in expected]


def test_the_best_have_the_same_scores_on_disk_where_all_rows_are_candidates(ways: dict[str, MemoryReader]) -> None:
    for query in (QUERY, "Where does Anna live?", "When did Sean book a ferry?"):
        assert search(ways["disk"], query=query) == search(ways["held"], query=query)


@pytest.mark.parametrize("way", ["held", "tail", "held and tail"])
def test_a_filter_never_changes_a_score(ways: dict[str, MemoryReader], way: str) -> None:
    everything = search(ways[way], query=QUERY, kind="turn", explain=True)
    own = {hit.id: {name: value for name, value in hit.parts.items() if name != "repeats"} for hit in everything}
    for options in ({"tag": "family"}, {"person": "Bruno"}, {"since": date(2024, 1, 12)}):
        hits = search(ways[way], query=QUERY, kind="turn", explain=True, **options)
        assert hits
        for hit in hits:
            assert {name: value for name, value in hit.parts.items() if name != "repeats"} == own[hit.id]


@pytest.mark.parametrize("label", ["person", "conversation_id", "tag"])
@pytest.mark.parametrize(
    "text", ["a\x00b", "\x01", "a\nb", "'", "''", '"', "\\'", "%", "$1", "\ufffe", "\u202e", "🚲", "x" * 256]
)
def test_hostile_labels_find_nothing_or_are_refused(ways: dict[str, MemoryReader], label: str, text: str) -> None:
    for way in ("held", "disk and tail"):
        for query in (None, QUERY):
            try:
                assert search(ways[way], query=query, **{label: text}) == []
            except InputError as error:
                assert label in str(error)  # noqa: PT017  # either answer is right


NAMES = ["Anna Lee", "Bruno", "Joanna", "Sean", "O'Brien", "User", "Agent", "Bergen", "nobody"]
times = st.integers(0, 8 * 24 * 60).map(lambda minutes: datetime(2024, 1, 9, tzinfo=UTC) + timedelta(minutes=minutes))


@settings(max_examples=examples(10), deadline=None)
@given(
    since=st.none() | times,
    until=st.none() | times | times.map(datetime.date),
    options=st.fixed_dictionaries(
        {},
        optional={
            "person": st.sampled_from(NAMES),
            "kind": st.sampled_from(FactKind),
            "conversation_id": st.sampled_from(["trip", "work: O.Brien", "late", "none"]),
            "tag": st.sampled_from(["travel", "family", "work", "100%", "none"]),
            "minimum_importance": st.sampled_from([0, 0.1, 0.3, 0.4, 0.5, 0.65, 0.8, 1]),
        },
    ),
    query=st.sampled_from([None, QUERY, "the", "Anna's dog"]),
)
def test_any_combination_of_filters_passes_the_same_rows_everywhere(
    ways: dict[str, MemoryReader], since: Any, until: Any, options: dict[str, Any], query: str | None
) -> None:
    if since is not None and until is not None and (since if isinstance(until, datetime) else since.date()) > until:
        since = None
    every = {"since": since, "until": until, "query": query, **options}
    held = search(ways["held"], **every)
    for way in WAYS:
        found = search(ways[way], **every)
        assert {hit.id for hit in found} == {hit.id for hit in held}
        assert found.total == held.total
