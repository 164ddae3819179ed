"""Row blocks: rows by talk and message, with postings and neighbours."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.search.row_block import RowBlock
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.index_rows import DIMENSION, Row, axis, fact, segment, summary, table

DAY = 24 * 60


@st.composite
def memories(draw: st.DrawFn) -> list[Row]:
    rows = [
        fact(
            " ".join(draw(st.lists(st.sampled_from(["tea", "milk", "Porto", "the", "日本語"]), max_size=5))),
            draw(st.sampled_from([0, 1, 2, 2, DAY, -DAY])),
            id=f"row {number}",
            conversation=draw(st.sampled_from("ab")),
            turn=draw(st.integers(0, 2)),
            position=draw(st.integers(0, 2)),
            speaker=draw(st.sampled_from(["Anna", "Ben", None])),
            sources=[f"message {draw(st.integers(0, 3))}"],
            vector=draw(st.sampled_from([axis(0), axis(1), None])),
        )
        for number in range(draw(st.integers(0, 10)))
    ]
    return rows + [summary("tea", day) for day in range(1, draw(st.integers(1, 3)))]


def contents(part: RowBlock) -> list[str]:
    found: list[str] = part.rows["content"].to_pylist()
    return found


def talk_of(row: Row) -> tuple[object, ...]:
    return (row["conversation_id"] or row["id"], row["starts_at"].date())


@settings(max_examples=examples(50), deadline=None)
@given(rows=memories())
def test_rows_are_sorted_by_talk_with_their_columns_and_vectors(rows: list[Row]) -> None:
    part = segment(rows)
    known = {row["id"]: row for row in rows}
    found = part.rows.to_pylist()
    assert sorted(row["id"] for row in found) == sorted(known)
    near = part.vectors.nearness(np.array(axis(0), np.float32), np.arange(len(part)))
    for place, row in enumerate(found):
        expected = known[row["id"]]
        assert {name: row[name] for name in expected if name not in ("terms", "vector")} == {
            name: value for name, value in expected.items() if name not in ("terms", "vector")
        }
        assert part.lengths[place] == len(expected["terms"])
        assert part.importance[place] == pytest.approx(expected["importance"])
        assert part.ends_at[place] == int(expected["ends_at"].timestamp() * 1_000_000)
        assert (None if part.speaker[place] < 0 else part.speakers[part.speaker[place]]) == expected["speaker"]
        assert np.isnan(near[place]) == (expected["vector"] is None)
        if expected["vector"] is not None:
            assert near[place] == expected["vector"][0]


@settings(max_examples=examples(50), deadline=None)
@given(rows=memories())
def test_a_talk_is_a_conversation_on_a_day_and_each_message_is_a_slot(rows: list[Row]) -> None:
    part = segment(rows)
    found = part.rows.to_pylist()
    for (one, first), (other, second) in pairwise(enumerate(found)):
        same_talk = talk_of(first) == talk_of(second)
        same_slot = same_talk and (first["starts_at"], first["turn"]) == (second["starts_at"], second["turn"])
        assert part.slot[other] - part.slot[one] == (not same_slot)
        assert part.talk[part.slot[other]] - part.talk[part.slot[one]] == (not same_talk)
        if same_talk:
            assert first["starts_at"] <= second["starts_at"]
        if same_slot:
            assert (first["position"] or 0) <= (second["position"] or 0)
    assert part.talks == len({talk_of(row) for row in rows})
    assert part.slots == len(part.talk) == len({(*talk_of(row), row["starts_at"], row["turn"]) for row in rows})


@settings(max_examples=examples(50), deadline=None)
@given(rows=memories())
def test_postings_give_the_rows_and_counts_of_a_word(rows: list[Row]) -> None:
    part = segment(rows)
    terms: dict[str, Counter[str]] = {row["id"]: Counter(row["terms"]) for row in rows}
    ids = part.rows["id"].to_pylist()
    assert list(part.vocabulary.words) == sorted({term for counts in terms.values() for term in counts})
    for word in [*part.vocabulary.words, "unheard"]:
        expected = [(place, terms[id][word]) for place, id in enumerate(ids) if word in terms[id]]
        assert list(zip(part.holding(word).tolist(), part.times(word).tolist(), strict=True)) == expected
        assert part.talks_holding(word) == len({part.talk[part.slot[place]] for place, _ in expected})


@settings(max_examples=examples(50), deadline=None)
@given(rows=memories())
def test_rows_with_the_same_sources_share_a_message(rows: list[Row]) -> None:
    part = segment(rows)
    sources = part.rows["source_ids"].to_pylist()
    pairs = {(number, *ids) for number, ids in zip(part.message.tolist(), sources, strict=True)}
    assert len(pairs) == len({number for number, *_ in pairs}) == len({tuple(ids) for ids in sources})


@settings(max_examples=examples(50), deadline=None)
@given(rows=memories(), distance=st.integers(-4, 4))
def test_neighbours_are_slots_of_the_same_talk(rows: list[Row], distance: int) -> None:
    part = segment(rows)
    slot_at = {place: slot for slot, place in enumerate(part.place.tolist())}
    for slot, place in enumerate(part.place.tolist()):
        assert 0 <= place + distance < part.places
        other = slot + distance
        is_neighbour = 0 <= other < part.slots and part.talk[slot] == part.talk[other]
        assert slot_at.get(place + distance) == (other if is_neighbour else None)


@settings(max_examples=examples(50), deadline=None)
@given(rows=memories(), data=st.data())
def test_rows_of_slots_are_grouped_by_slot(rows: list[Row], data: st.DataObject) -> None:
    part = segment(rows)
    slots = np.array(data.draw(st.lists(st.integers(0, max(part.slots - 1, 0)), max_size=5)), np.intp)
    slots = slots[: 0 if not part.slots else None]
    found, bounds = part.rows_of(slots)
    expected = [np.flatnonzero(part.slot == slot).tolist() for slot in slots]
    assert found.tolist() == [place for places in expected for place in places]
    assert bounds.tolist() == [sum(map(len, expected[:number])) for number in range(len(expected))]


@settings(max_examples=examples(30), deadline=None)
@given(rows=memories(), cuts=st.lists(st.integers(0, 12), max_size=3))
def test_chunks_do_not_matter(rows: list[Row], cuts: list[int]) -> None:
    whole = table(rows)
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = pa.concat_tables([whole.slice(first, last - first) for first, last in pairwise(bounds)])
    one, other = RowBlock.of(whole, DIMENSION), RowBlock.of(pieces, DIMENSION)
    assert one.rows == other.rows
    assert one.speakers == other.speakers
    by_row, by_slot = ("slot", "speaker", "message", "lengths", "norms", "counted"), ("talk", "brevity", "slot_asks")
    for name in (*by_row, *by_slot):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert all(np.array_equal(one.holding(word), other.holding(word)) for word in one.vocabulary.words)


@pytest.mark.parametrize(
    "content",
    ["Tea?", "Tea? ", 'He said "tea?"', "(tea?)", "Tea? [sends a photo: of tea]", "お茶？", "شاي؟", "Tea?\n", "“Tea?”"],
)
def test_a_text_that_ends_with_a_question_mark_asks(content: str) -> None:
    assert segment([fact(content)]).slot_asks.tolist() == [True]


@pytest.mark.parametrize("content", ["Tea.", "Tea? Yes.", "", "Tea [green?].", "Tea? [a photo] Yes", "\\?x"])
def test_a_text_without_a_question_mark_does_not_ask(content: str) -> None:
    assert segment([fact(content)]).slot_asks.tolist() == [False]


@pytest.mark.parametrize("content", ["3 cups", "Twice.", "A DOZEN cups", "half a cup", "room B12", "one-way"])
def test_digits_and_words_for_numbers_are_numbers(content: str) -> None:
    assert segment([fact(content)]).counted.tolist() == [True]


@pytest.mark.parametrize("content", ["someone", "often", "halfway", "tea", "", "phone"])
def test_number_words_within_other_words_are_not_numbers(content: str) -> None:
    assert segment([fact(content)]).counted.tolist() == [False]


def test_a_message_asks_if_one_of_its_rows_does() -> None:
    part = segment([fact("Hm. Tea?"), fact("Hm.", position=1), fact("No.", 1)])
    assert part.slot_asks.tolist() == [True, False]


def test_each_summary_is_a_separate_talk() -> None:
    part = segment([summary("tea", 1), summary("milk", 2), summary("milk too", 2)])
    assert (part.talks, part.slots) == (3, 3)
    assert part.speakers == []
    assert part.speaker.tolist() == [-1, -1, -1]


def test_talks_end_at_midnight_utc_even_before_the_epoch() -> None:
    rows = []
    for minutes in (-1, 0, 1):
        at = datetime(1965, 3, 1, tzinfo=UTC) + timedelta(minutes=minutes)
        rows.append(fact("tea", minutes) | {"starts_at": at, "ends_at": at})
    part = segment(rows)
    assert [part.talk[slot] for slot in part.slot] == [0, 1, 1]


def test_an_empty_block_answers_every_query() -> None:
    part = segment([])
    nothing = np.empty(0, np.intp)
    assert (len(part), part.slots, part.talks, list(part.vocabulary.words), part.speakers) == (0, 0, 0, [], [])
    assert len(part.holding("tea")) == len(part.times("tea")) == part.talks_holding("tea") == 0
    assert [len(found) for found in part.rows_of(nothing)] == [0, 0]
    assert part.answers(np.empty(0, np.float32)).tolist() == []


def test_rows_without_terms_have_no_words() -> None:
    part = segment([fact("tea") | {"terms": None}, fact("tea", 1), fact("milk", 2) | {"terms": []}])
    assert part.lengths.tolist() == [0, 4, 0]
    assert part.holding("tea").tolist() == [1]


def test_word_counts_are_capped_at_65535() -> None:
    assert segment([fact("tea " * 70_000)]).times("tea").tolist() == [65_535]


def test_facts_are_listed_if_their_messages_have_no_turn() -> None:
    laid = segment(
        [
            fact("one", id="one", sources=["m1"]),
            fact("sentence of one", id="part", sources=["m1"], kind="statement", position=1),
            fact("two", 1, id="two", sources=["m2"]),
            fact("both", 1, id="both", sources=["m1", "m2"], kind="gist", position=2),
            fact("sentence of three", 2, id="three", sources=["m3"], kind="statement", position=1),
            fact("three and four", 2, id="others", sources=["m3", "m4"], kind="gist", position=2),
        ]
    )
    ids = laid.ids.to_pylist()

    def listed(*gone: str) -> set[str]:
        stands = np.array([own not in gone for own in ids])
        return {own for own, passes in zip(ids, laid.listed(stands) & stands, strict=True) if passes}

    assert listed() == {"one", "two", "three", "others"}
    assert listed("one") == {"part", "two", "three", "others"}
    assert listed("one", "two") == {"part", "both", "three", "others"}
    assert segment([]).listed(None).tolist() == []
