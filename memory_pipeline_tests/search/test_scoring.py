"""Scores equal those of a slow oracle, for all layouts and filters."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.text.ranking import NEARBY, RELATED, WEIGHTS, Named, Query, Weights, Window, weights_for
from memory_pipeline.search import scoring
from memory_pipeline.search.row_block import RowBlock
from memory_pipeline.search.scoring import SIGNALS, Scored, score
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.index_rows import DIMENSION, NOON, Row, axis, fact, segment, summary
from memory_pipeline_tests.ranking_oracle import exact_scores, exact_signals

#: Words that are related by thesaurus ("film", "movie"; "pet", "dog") and by spelling, common and rare, and stop words.
WORDS = [
    "film", "movie", "cinema", "pet", "dog", "adopt", "adoption", "adopting", "Porto", "violin", "tea", "the", "of",
    "Anna", "Ben", "2024", "twice", "january", "日本語", "café",
]  # fmt: skip
ENDS = ["", ".", "?", "? [photo]", '?"', "? Yes.", "？"]
SPEAKERS = ["Anna Lee", "Ben", "Clara Ben", None]
NEAR = [[0.6, 0.8, 0, 0, 0, 0, 0, 0], [0, 0.6, 0.8, 0, 0, 0, 0, 0], axis(0), axis(3), [-1.0] + [0.0] * 7, None]
QUERIES = st.lists(
    st.sampled_from([*WORDS, "how many", "you said", "suggest", "Clara", "Lee", "unheard"]), max_size=5
).map(" ".join)


@st.composite
def memories(draw: st.DrawFn, most: int = 12) -> list[Row]:
    rows: list[Row] = []
    for number in range(draw(st.integers(1, most))):
        said = " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=6))) + draw(st.sampled_from(ENDS))
        vector, importance = draw(st.sampled_from(NEAR)), draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
        if draw(st.integers(0, 5)) == 0:
            rows.append(summary(said, draw(st.integers(1, 20)), importance=importance, vector=vector))
            rows[-1]["id"] += f" {number}"
        else:
            rows.append(
                fact(
                    said,
                    draw(st.sampled_from([0, 0, 1, 2, 3, 5, 24 * 60, -24 * 60])),
                    id=f"row {number}",
                    conversation=draw(st.sampled_from("abc")),
                    turn=draw(st.integers(0, 3)),
                    position=draw(st.integers(0, 2)),
                    speaker=draw(st.sampled_from(SPEAKERS)),
                    role=draw(st.sampled_from(["user", "assistant"])),
                    kind=draw(st.sampled_from(["turn", "instruction", "preference"])),
                    importance=importance,
                    mentioned=draw(st.sampled_from([None, NOON])),
                    vector=vector,
                )
            )
    return rows


def question(query: str, rows: list[Row]) -> Query:
    return Query.of(query, dict.fromkeys(row["speaker"] for row in rows if row["speaker"]))


def array(vector: list[float] | None) -> Any:
    return None if vector is None else np.array(vector, np.float32)


def by_id(segments: list[RowBlock], scored: list[Scored]) -> dict[str, float]:
    return {
        id: float(total)
        for part, found in zip(segments, scored, strict=True)
        for id, total in zip(part.rows["id"].take(found.rows).to_pylist(), found.totals, strict=True)
    }


def scores(
    query: str,
    *parts: list[Row],
    vector: list[float] | None = None,
    least: int = 10,
    weights: Weights = WEIGHTS,
) -> dict[str, float]:
    segments = [segment(part) for part in parts]
    asked = question(query, [row for part in parts for row in part])
    return by_id(segments, score(asked, segments, array(vector), [None] * len(segments), least, weights))


def signals(query: str, rows: list[Row], vector: list[float] | None = None) -> dict[str, dict[str, float]]:
    """Return the signals of rows by their contents."""
    part = segment(rows)
    [found] = score(question(query, rows), [part], array(vector), [None], 10)
    contents = part.rows["content"].take(found.rows).to_pylist()
    return {
        content: dict(zip(SIGNALS, map(float, found.signals[:, place]), strict=True))
        for place, content in enumerate(contents)
    }


@settings(max_examples=examples(150), deadline=None)
@given(rows=memories(), query=QUERIES, vector=st.sampled_from([*NEAR, axis(1)]))
def test_scores_match_the_oracle(rows: list[Row], query: str, vector: list[float] | None) -> None:
    asked = question(query, rows)
    expected = exact_scores(rows, asked, vector)
    assert scores(query, rows, vector=vector) == pytest.approx(expected, abs=2e-5, rel=2e-5)


@settings(max_examples=examples(50), deadline=None)
@given(rows=memories(), query=QUERIES, vector=st.sampled_from(NEAR), data=st.data())
def test_the_physical_order_of_rows_does_not_matter(
    rows: list[Row], query: str, vector: list[float] | None, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    assert scores(query, shuffled, vector=vector) == pytest.approx(scores(query, rows, vector=vector), abs=2e-5)


@settings(max_examples=examples(50), deadline=None)
@given(rows=memories(), query=QUERIES, vector=st.sampled_from(NEAR))
def test_talks_score_the_same_in_one_block_and_in_several(
    rows: list[Row], query: str, vector: list[float] | None
) -> None:
    talks: dict[Any, list[Row]] = {}
    for row in rows:
        talks.setdefault(row["conversation_id"] or row["id"], []).append(row)
    one = [row for talk in list(talks.values())[::2] for row in talk]
    other = [row for talk in list(talks.values())[1::2] for row in talk]
    assume(other)
    weights = Weights(speaker=0)  # see the test of the only speaker of pending entries
    whole = scores(query, rows, vector=vector, weights=weights)
    assert scores(query, one, other, vector=vector, weights=weights) == pytest.approx(whole, abs=2e-5)


@settings(max_examples=examples(50), deadline=None)
@given(rows=memories(), query=QUERIES, vector=st.sampled_from(NEAR), data=st.data())
def test_a_filter_changes_no_score(
    rows: list[Row], query: str, vector: list[float] | None, data: st.DataObject
) -> None:
    part = segment(rows)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), np.bool_)
    asked = question(query, rows)
    everything = by_id([part], score(asked, [part], array(vector), [None], 10))
    passing = by_id([part], score(asked, [part], array(vector), [mask], 10))
    assert set(passing) == set(np.array(part.rows["id"].to_pylist())[mask])
    assert passing == pytest.approx({id: everything[id] for id in passing}, abs=2e-5)


@settings(max_examples=examples(50), deadline=None)
@given(rows=memories(), query=QUERIES, vector=st.sampled_from(NEAR))
def test_signals_stay_within_their_documented_ranges(rows: list[Row], query: str, vector: list[float] | None) -> None:
    part = segment(rows)
    [found] = score(question(query, rows), [part], array(vector), [None], 10)
    given_by = dict(zip(SIGNALS, found.signals, strict=True))
    assert np.isfinite(found.totals).all()
    for name in ("coverage", "words", "talk", "importance", "replies", "instructs", "prefers", "counted"):
        assert (given_by[name] >= 0).all()
        assert (given_by[name] <= 1 + 1e-6).all()
    assert (given_by["nearby"] >= 0).all()
    assert set(np.unique(given_by["speaker"])) <= {-1, -0.5, 0, 0.5, 1}
    factors = np.array([getattr(WEIGHTS, name) for name in SIGNALS], np.float32)
    assert found.totals == pytest.approx(factors @ found.signals, abs=1e-5)


def test_a_word_that_no_row_contains_finds_nothing() -> None:
    found = signals("zeppelin", [fact("I drink tea."), fact("I drink milk.", 1)])
    assert all(each["words"] == each["coverage"] == each["talk"] == 0 for each in found.values())


def test_a_word_counts_more_than_its_alternatives() -> None:
    found = signals("film", [
        fact("film", conversation="a"), fact("movie", conversation="b"), fact("tea", conversation="c"),
    ])  # fmt: skip
    assert found["film"]["coverage"] == pytest.approx(1)
    assert found["movie"]["coverage"] == pytest.approx(RELATED)
    assert found["film"]["words"] > found["movie"]["words"] > found["tea"]["words"] == 0


def test_related_words_help_beside_an_embedder() -> None:
    """A related word decides among equally near memories; it outweighs neither the word itself nor a nearer memory."""
    film, movie = fact("film", conversation="a", vector=axis(1)), fact("movie", conversation="b", vector=axis(1))
    tea, near = fact("tea", conversation="c", vector=axis(1)), fact("film", conversation="d", vector=axis(0))
    found = scores("film", [film, movie, tea, near], vector=axis(0), weights=weights_for("text-embedding-3-small"))
    assert found[near["id"]] > found[film["id"]] > found[movie["id"]] > found[tea["id"]]


def test_a_general_word_finds_specific_ones_but_not_the_reverse() -> None:
    rows = [fact("pet", conversation="a"), fact("dog", conversation="b")]
    assert signals("pet", rows)["dog"]["coverage"] == pytest.approx(RELATED)
    assert signals("dog", rows)["pet"]["coverage"] == 0


def test_the_weight_of_neighbours_in_a_talk_falls_with_distance() -> None:
    rows = [fact("violin" if minute == 6 else f"line {minute}", minute) for minute in range(13)]
    found = signals("violin", rows)
    shares = [found["violin" if minute == 6 else f"line {minute}"]["coverage"] for minute in range(13)]
    assert shares == pytest.approx([0, 0, *reversed(NEARBY), 1, *NEARBY, 0, 0])


@pytest.mark.parametrize("other", [{"conversation": "d"}, {"minute": 24 * 60}])
def test_another_conversation_and_another_day_are_no_neighbours(other: dict[str, Any]) -> None:
    rows = [fact("violin"), fact("line", **{"minute": 1, **other})]
    assert signals("violin", rows)["line"]["coverage"] == 0


def test_the_answer_to_a_matching_question_scores_higher() -> None:
    rows = [fact("Is it a violin?", 0), fact("Yes, from Cremona.", 1), fact("It rains.", 2, speaker="Ben")]
    found = signals("violin", rows)
    assert found["Yes, from Cremona."]["answers"] == pytest.approx(found["Is it a violin?"]["words"]) != 0
    assert found["It rains."]["answers"] == 0


def test_a_message_after_a_statement_is_not_an_answer() -> None:
    assert signals("violin", [fact("It is a violin."), fact("Yes.", 1)])["Yes."]["answers"] == 0


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What does Anna drink?", {"Anna Lee": 1, "Ben": -1, "Clara": -1}),
        ("What do Ben and Anna drink?", {"Anna Lee": 1, "Ben": 1, "Clara": -1}),
        ("Clara, Ben, Anna: who drinks?", {"Anna Lee": -0.5, "Ben": -0.5, "Clara": 0.5}),
        ("Who drinks?", {"Anna Lee": 0, "Ben": 0, "Clara": 0}),
    ],
)
def test_the_person_in_the_question_is_preferred(query: str, expected: dict[str, float]) -> None:
    rows = [fact(f"{name} drinks", minute, speaker=name) for minute, name in enumerate(expected)]
    rows.append(fact("nobody", 9, speaker=None))
    found = signals(query, rows)
    assert {name: found[f"{name} drinks"]["speaker"] for name in expected} == expected
    assert found["nobody"]["speaker"] == 0


def test_a_single_speaker_gets_no_speaker_score() -> None:
    assert signals("Anna", [fact("tea", speaker="Anna")])["tea"]["speaker"] == 0


def test_the_only_speaker_of_pending_entries_is_preferred_as_in_the_index() -> None:
    index = [fact("milk", speaker="Anna", conversation="a"), fact("juice", speaker="Ben", conversation="b")]
    tail = [fact("tea", speaker="Anna", conversation="c")]
    assert scores("Anna", index, tail) == pytest.approx(scores("Anna", [*index, *tail]), abs=2e-5)


def test_numbers_count_where_the_question_asks_how_many() -> None:
    rows = [fact("half of it", 1), fact("3 of them", 2), fact("plain", 3)]
    found = signals("how many were there", rows)
    assert [found[row["content"]]["counted"] for row in rows] == [1, 1, 0]
    assert not any(each["counted"] for each in signals("what", rows).values())


def test_a_long_reply_counts_less_unless_the_question_is_about_the_assistants_words() -> None:
    long = " ".join(["tea"] * 60)
    rows = [fact(long, role="assistant", speaker="Agent"), fact("tea", 1), fact("Yes.", 2, role="assistant")]
    found = signals("tea", rows)
    assert [found[row["content"]]["replies"] > 0 for row in rows] == [True, False, False]
    asked = signals("what did you say of tea", rows)
    assert not any(each["replies"] for each in asked.values())


def test_standing_instructions_and_preferences_of_users_count() -> None:
    rows = [
        fact("Always add milk.", kind="instruction", importance=0.75),
        fact("Add milk.", 100, kind="instruction", importance=0.5),
        fact("I like milk.", 200, kind="preference"),
        fact("I like milk too.", 300, kind="preference", role="assistant"),
    ]
    found = signals("Which drink would you suggest?", rows)
    assert [found[row["content"]]["instructs"] for row in rows] == [1, 0, 0, 0]
    assert [found[row["content"]]["prefers"] for row in rows] == [0, 0, 1, 0]
    assert not any(each["prefers"] for each in signals("Which drink is it?", rows).values())


def test_a_time_in_the_question_raises_rows_from_or_about_that_time() -> None:
    rows = [
        fact("It rained.", 0, conversation="then"),
        fact("It snowed.", 60 * 24 * 40, conversation="later"),
        fact("It hailed.", 60 * 24 * 50, conversation="looking back", mentioned=datetime(2024, 1, 15, tzinfo=UTC)),
    ]
    day = Window(date(2024, 1, 15), date(2024, 1, 15), NOON - timedelta(hours=12), NOON + timedelta(hours=11))
    part = segment(rows)
    asked = Query.of("on 15 January", [], times=[Named(day, 3, 13)])
    assert (asked.terms, asked.windows) == ((), (day,))
    [found] = score(asked, [part], None, [None], 10)
    contents = part.rows["content"].take(found.rows).to_pylist()
    covered = dict(zip(contents, found.signals[SIGNALS.index("coverage")].tolist(), strict=True))
    assert covered == {"It rained.": 1, "It snowed.": 0, "It hailed.": 1}


def test_a_row_without_a_vector_gets_the_usual_nearness() -> None:
    rows = [fact("near", vector=axis(0)), fact("far", 9999, vector=axis(1)), fact("none", 5000)]
    found = signals("x", rows, axis(0))
    assert found["near"]["vector"] == pytest.approx(1)
    assert found["far"]["vector"] == pytest.approx(-1)
    assert found["none"]["vector"] == 0


def test_equal_vectors_do_not_affect_the_order() -> None:
    found = signals("x", [fact(f"row {n}", n, vector=axis(0)) for n in range(3)], axis(0))
    assert all(each["vector"] == pytest.approx(0, abs=1e-5) for each in found.values())


@pytest.mark.parametrize("vector", [None, axis(0)])
def test_an_empty_memory_gives_no_scores(vector: list[float] | None) -> None:
    assert scores("tea", [], vector=vector) == {}
    assert scores("tea", [], [fact("tea", vector=axis(0))], vector=vector).keys() == {fact("tea")["id"]}


def test_no_rows_are_scored_if_none_pass() -> None:
    part = segment([fact("tea", vector=axis(0)), fact("milk", 1)])
    [found] = score(question("tea", []), [part], array(axis(0)), [np.zeros(2, np.bool_)], 10)
    assert len(found.rows) == len(found.totals) == found.signals.shape[1] == 0


def test_parts_are_the_contributions_of_the_signals() -> None:
    rows = [fact("Anna: violin", vector=axis(0)), fact("Ben: tea?", 1, speaker="Ben", vector=axis(1))]
    part = segment(rows)
    [found] = score(question("When does Anna play the violin?", rows), [part], array(axis(0)), [None], 10)
    for place in range(2):
        parts = found.parts(place)
        assert set(parts) == set(SIGNALS)
        assert sum(parts.values()) == pytest.approx(float(found.totals[place]), abs=1e-3)


def many(count: int, seed: int = 1) -> list[Row]:
    """Return rows of many talks of ten messages, their words and vectors drawn from a few dozen."""
    draw = random.Random(seed)
    vectors = np.random.default_rng(seed).standard_normal((40, DIMENSION))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    words = [f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(60)]
    return [
        fact(
            " ".join(draw.choices(words, weights=range(1, 61), k=6)),
            number % 10,
            id=f"row {number:05}",
            conversation=f"talk {number // 10}",
            turn=number % 10,
            speaker=draw.choice(["Anna", "Ben"]),
            importance=round(draw.random(), 2),
            vector=vectors[draw.randrange(40)].tolist() if draw.random() < 0.95 else None,
        )
        for number in range(count)
    ]


def test_the_best_of_many_rows_match_the_oracle() -> None:
    rows = many(700)
    query, vector = "Anna wordaa wordac wordbb", axis(2)
    asked = question(query, rows)
    exact = exact_scores(rows, asked, vector)
    found = scores(query, rows, vector=vector)
    assert len(found) == 600
    assert found == pytest.approx({id: exact[id] for id in found}, abs=2e-4)
    best = sorted(exact, key=exact.__getitem__, reverse=True)
    assert len(set(best[:20]) & set(found)) >= 19


def test_a_narrow_filter_finds_all_rows_that_pass() -> None:
    rows = many(1_500)
    part = segment(rows)
    mask = np.zeros(len(part), np.bool_)
    mask[::500] = True
    for vector in (None, axis(2)):
        [found] = score(question("wordaa", rows), [part], array(vector), [mask], 10)
        assert found.rows.tolist() == [0, 500, 1000]


def test_more_candidates_are_found_if_more_are_requested() -> None:
    rows = many(1_500)
    assert len(scores("wordaa", rows, least=300)) == 1_200
    assert len(scores("wordaa", rows, vector=axis(2), least=300)) == 1_200
    assert len(scores("wordaa", rows, vector=axis(2), least=1_500)) == 1_500


def test_the_physical_order_of_many_rows_does_not_matter_either() -> None:
    rows = many(2_500)
    shuffled = random.Random(2).sample(rows, len(rows))
    one, other = (scores("wordaa", each, vector=axis(2), least=3_000) for each in (rows, shuffled))
    assert other == pytest.approx(one, abs=1e-4)


def test_usual_nearness_weighs_all_rows_equally() -> None:
    draw = random.Random(3)
    index = [fact("a", n, conversation="index", vector=axis(draw.randrange(2))) for n in range(6_000)]
    tail = [fact("a", n, conversation="tail", vector=axis(0)) for n in range(900)]
    query, vector = "unheard", axis(0)
    apart, together = scores(query, index, tail, vector=vector), scores(query, [*index, *tail], vector=vector)
    common = set(apart) & set(together)
    assert common
    assert {id: apart[id] for id in common} == pytest.approx({id: together[id] for id in common}, abs=0.05)


def test_a_word_in_very_many_rows_is_ignored() -> None:
    rows = [fact("tea" if n % 2 else "milk", n, conversation=f"c{n // 10}", id=f"{n:05}") for n in range(4_400)]
    rows += [fact("tea and a violin", conversation="other")]
    part = segment(rows)
    [found] = score(question("tea violin", rows), [part], None, [None], 10)
    coverage = found.signals[SIGNALS.index("coverage")]
    assert sorted(np.unique(coverage).tolist()) == [0, 1]
    assert float(coverage.sum()) == 1


def test_a_word_repeated_often_in_one_message_still_counts() -> None:
    found = signals("tea", [fact("tea " * 65_536), fact("milk", 1)])
    assert found["tea " * 65_536]["words"] > 0


def test_the_oracle_agrees_with_a_manually_computed_case() -> None:
    rows = [fact("violin", id="a", importance=0, conversation="x"), fact("tea", id="b", importance=1, conversation="y")]
    found = exact_signals(rows, question("violin", rows), None)
    rarity = math.log(1 + 1.5 / 1.5)
    # Each row has its word and the day's three: its length is 2.
    assert found["a"]["words"] == pytest.approx(rarity / 2 / rarity)
    assert found["a"]["talk"] == found["a"]["coverage"] == 1
    assert found["b"] == {**dict.fromkeys(SIGNALS, 0.0), "importance": 1}


@pytest.mark.parametrize("one_in", [0, 10**9], ids=["place by place", "whole arrays"])
def test_sparse_and_dense_addition_give_the_same_scores(one_in: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, query = many(500), "Anna wordaa wordac wordbb"
    exact = exact_scores(rows, question(query, rows), axis(2))
    monkeypatch.setattr(scoring, "_DENSE", one_in)
    assert scores(query, rows, vector=axis(2)) == pytest.approx(exact, abs=2e-4)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 70))
def test_the_highest_of_many_values_are_found(values: list[int], count: int) -> None:
    array = np.array(values, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "_MANY", 10)
        patch.setattr(scoring, "_SAMPLE", 7)
        places = scoring._highest(array, count)
    assert len(set(places.tolist())) == len(places) == min(count, len(values))
    assert sorted(array[places].tolist(), reverse=True) == sorted(map(float, values), reverse=True)[:count]
