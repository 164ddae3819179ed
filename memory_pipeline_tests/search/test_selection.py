"""Selection from scored rows: each message once, several talks, ties by id."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.text.ranking import WEIGHTS, Weights
from memory_pipeline.search import selection
from memory_pipeline.search.scoring import SIGNALS, Scored
from memory_pipeline.search.selection import Choice, with_later
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.index_rows import Row, fact, segment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_pipeline.search.row_block import RowBlock

STILL = Weights(repeats=0)


def scored(part: RowBlock, totals: dict[str, float]) -> Scored:
    """Score rows with the given totals by id; rows without a total are not candidates."""
    ids = part.rows["id"].to_pylist()
    places = [place for place, id in enumerate(ids) if id in totals]
    signals = np.zeros((len(SIGNALS), len(places)), np.float32)
    return Scored(np.array(places, np.intp), signals, np.array([totals[ids[place]] for place in places], np.float32))


def best(parts: list[list[Row]], totals: dict[str, float], count: int = 10, weights: Weights = WEIGHTS) -> list[Choice]:
    segments = [segment(rows) for rows in parts]
    return selection.best(segments, [scored(part, totals) for part in segments], count, weights)


def ids(choices: list[Choice]) -> list[str]:
    return [choice.row["id"] for choice in choices]


def everything(*parts: RowBlock) -> list[NDArray[np.bool_]]:
    return [np.ones(len(part), np.bool_) for part in parts]


def test_better_rows_come_first_up_to_the_count() -> None:
    rows = [fact("x", n, id=str(n), conversation=str(n)) for n in range(5)]
    totals = {str(n): float(n) for n in range(5)}
    assert ids(best([rows], totals)) == ["4", "3", "2", "1", "0"]
    assert ids(best([rows], totals, 2)) == ["4", "3"]
    assert [choice.score for choice in best([rows], totals, 2)] == [4, 3]


def test_a_message_gives_its_best_row_only() -> None:
    rows = [fact("x", id=str(n), position=n, sources=["m"]) for n in range(3)]
    assert ids(best([rows], {"0": 1, "1": 3, "2": 2})) == ["1"]


def test_rows_with_one_and_with_two_sources_are_different_messages() -> None:
    rows = [fact("x", id="one", sources=["m"]), fact("x", 1, id="both", sources=["m", "n"])]
    assert sorted(ids(best([rows], {"one": 1, "both": 1}))) == ["both", "one"]


def test_a_message_in_the_tail_and_in_the_index_is_chosen_once() -> None:
    index = [fact("x", id="extracted", sources=["m"]), fact("x", 1, id="other")]
    tail = [fact("x", id="by rules", sources=["m"]), fact("y", 2, id="new")]
    totals = {"extracted": 2.0, "by rules": 3.0, "other": 1.0, "new": 0.5}
    assert ids(best([tail, index], totals)) == ["by rules", "other", "new"]
    assert ids(best([index, tail], {**totals, "extracted": 4.0})) == ["extracted", "other", "new"]


def test_the_same_row_in_the_tail_and_in_the_index_is_chosen_once() -> None:
    row = fact("x", id="same")
    assert ids(best([[row], [row]], {"same": 1})) == ["same"]


@settings(max_examples=examples(40), deadline=None)
@given(order=st.permutations("abcdefgh"), count=st.integers(1, 9))
def test_ties_are_sorted_by_id(order: list[str], count: int) -> None:
    rows = [fact("x", n, id=id, conversation=f"talk of {id}") for n, id in enumerate(order)]
    totals = dict.fromkeys(order, 1.0)
    assert ids(best([rows], totals, count)) == sorted(order)[:count]
    assert ids(best([rows[:3], rows[3:]], totals, count)) == sorted(order)[:count]


def test_many_ties_are_sorted_by_id() -> None:
    order = [f"{n:03}" for n in range(100)]
    random.Random(1).shuffle(order)
    rows = [fact("x", n, id=id, conversation=f"{n:03}") for n, id in enumerate(order)]
    assert ids(best([rows], dict.fromkeys(order, 1.0), 10)) == sorted(order)[:10]


def test_ties_are_in_the_order_of_ids_if_a_message_occurs_twice() -> None:
    index = [fact("x", id="z", sources=["m"]), fact("y", 1, id="b", conversation="d")]
    tail = [fact("x", id="a", sources=["m"])]
    assert ids(best([tail, index], {"a": 1.0, "b": 1.0, "z": 0.5})) == ["a", "b"]


def test_each_hit_of_a_talk_lowers_the_next_ones() -> None:
    long = [fact("x", n, id=f"long {n}", conversation="long") for n in range(4)]
    short = [fact("y", id="short", conversation="short")]
    totals = {"long 0": 1.0, "long 1": 0.99, "long 2": 0.98, "long 3": 0.97, "short": 0.85}
    choices = best([[*long, *short]], totals, weights=Weights(repeats=-0.1))
    assert ids(choices) == ["long 0", "long 1", "short", "long 2", "long 3"]
    assert [choice.score for choice in choices] == pytest.approx([1.0, 0.89, 0.85, 0.78, 0.67])
    assert ids(best([[*long, *short]], totals, weights=STILL))[-1] == "short"


def test_another_day_of_a_conversation_is_another_talk() -> None:
    rows = [fact("x", id="a"), fact("x", 1, id="b"), fact("x", 24 * 60, id="c")]
    totals = {"a": 1.0, "b": 0.99, "c": 0.95}
    assert ids(best([rows], totals, weights=Weights(repeats=-0.1))) == ["a", "c", "b"]


def test_a_talk_in_the_tail_and_in_the_index_is_one_talk() -> None:
    index, tail = [fact("x", id="a"), fact("x", id="other", conversation="d")], [fact("x", 1, id="b")]
    totals = {"a": 1.0, "b": 0.99, "other": 0.95}
    assert ids(best([tail, index], totals, weights=Weights(repeats=-0.1))) == ["a", "other", "b"]


def test_a_longer_list_begins_with_the_shorter_one() -> None:
    long = [fact("x", n % 60, turn=n, id=f"long {n:03}", conversation="long") for n in range(70)]
    short = [fact("y", n, id=f"short {n}", conversation=f"short {n}") for n in range(20)]
    totals = {f"long {n:03}": 2 - n / 1000 for n in range(70)} | {f"short {n}": 1.85 - n / 1000 for n in range(20)}
    ten, twenty = (ids(best([[*long, *short]], totals, count)) for count in (10, 20))
    assert twenty[:10] == ten


def test_a_row_considered_later_can_tie_with_an_earlier_one() -> None:
    """Only the long talk of its segment is considered, with a penalty after its first hit."""
    long = [fact("x", n % 60, turn=n, id=f"long {n:03}", conversation="long") for n in range(60)]
    hidden, seen = fact("y", id="a", conversation="hidden"), fact("y", id="z", conversation="seen")
    totals = {f"long {n:03}": 3 - n / 100 for n in range(60)} | {"a": 1.0, "z": 1.0}
    assert ids(best([[*long, hidden], [seen]], totals, 2, Weights(repeats=-5))) == ["long 000", "a"]


def test_equal_scores_are_considered_together() -> None:
    rows = [fact("x", n, id=f"{n:03}", conversation=f"{n}") for n in range(9)]
    part = segment(rows)

    def looked_at(*totals: float) -> tuple[list[str], float]:
        of_rows = {row["id"]: total for row, total in zip(rows, totals, strict=True)}
        candidates, others = selection._highest([part], [scored(part, of_rows)], 3)
        return [candidate.id for candidate in candidates], others

    assert looked_at(9, 8, 7, 7, 7, 6, 5, 4, 3) == (["000", "001", "002", "003", "004"], 6)
    assert looked_at(9, 8, 7, 6, 6, 6, 5, 4, 3) == (["000", "001", "002"], 6)
    assert looked_at(*[1] * 9) == ([row["id"] for row in rows], -np.inf)


def test_explained_parts_include_the_penalty_for_repeats() -> None:
    part = segment([fact("x", n, id=str(n)) for n in range(3)])
    found = scored(part, {"0": 3.0, "1": 2.0, "2": 1.0})
    explained = selection.best([part], [found], 3, WEIGHTS, explain=True)
    taken = [0, WEIGHTS.repeats, 2 * WEIGHTS.repeats]
    assert [choice.parts and choice.parts["repeats"] for choice in explained] == pytest.approx(taken)
    assert all(choice.parts is None for choice in selection.best([part], [found], 3, WEIGHTS))


def test_no_scored_rows_give_no_choices() -> None:
    assert best([], {}) == []
    assert best([[]], {}) == []
    assert best([[fact("x", id="a")], []], {}) == []


def test_a_choice_has_the_shown_columns() -> None:
    row = fact("x", 7, id="a")
    [choice] = best([[row]], {"a": 1})
    assert {"id", "content", "starts_at", "ends_at", "source_ids", "role"} <= set(choice.row)
    assert choice.row == {name: (row | {"identity": ""})[name] for name in choice.row}
    assert choice.row["starts_at"].utcoffset() == timedelta(0)
    assert not {"terms", "vector"} & set(choice.row)


@settings(max_examples=examples(60), deadline=None)
@given(
    minutes=st.lists(st.integers(0, 4), max_size=12),
    passing=st.lists(st.booleans(), min_size=12, max_size=12),
    cut=st.integers(0, 12),
    count=st.integers(1, 13),
)
def test_the_newest_come_first_and_equals_are_sorted_by_id(
    minutes: list[int], passing: list[bool], cut: int, count: int
) -> None:
    rows = [fact("x", minute, id=f"{n * 7 % 13:02}") for n, minute in enumerate(minutes)]
    allowed = {row["id"] for row, passes in zip(rows, passing, strict=False) if passes}
    parts = [segment(rows[:cut]), segment(rows[cut:])]
    masks = [np.isin(part.rows["id"].to_pylist(), list(allowed)) if len(part) else np.zeros(0, bool) for part in parts]
    expected = sorted(
        (row for row in rows if row["id"] in allowed), key=lambda row: (-row["ends_at"].timestamp(), row["id"])
    )
    found = selection.newest(parts, masks, count)
    assert ids(found) == [row["id"] for row in expected][:count]
    assert all(choice.score == 0 and choice.parts is None for choice in found)


def test_the_newest_are_sorted_to_the_microsecond() -> None:
    first = fact("x", id="a")
    rows = [first, fact("x", id="b") | {"ends_at": first["ends_at"].replace(microsecond=1)}]
    part = segment(rows)
    assert ids(selection.newest([part], everything(part), 2)) == ["b", "a"]


def test_only_necessary_older_rows_are_considered() -> None:
    """Rows of one moment together, and as many rows as the messages need."""

    def looked_at(count: int, *minutes: int) -> list[float]:
        part = segment([fact("x", minute, id=f"{n:02}") for n, minute in enumerate(minutes)])
        rows = selection._latest(part, np.arange(len(part)), count)
        return sorted((part.ends_at[rows] - part.ends_at.min()) / 60_000_000, reverse=True)

    assert looked_at(2, 0, 1, 2, 3, 4) == [4, 3]
    assert looked_at(2, 0, 1, 3, 3, 4) == [4, 3, 3]
    assert looked_at(1, 0, 1, 3, 3) == [3, 3]
    assert looked_at(5, 0, 1, 2, 3, 4) == [4, 3, 2, 1, 0]


def test_a_row_in_the_tail_and_in_the_index_is_newest_once() -> None:
    parts = [segment([fact("x", id="same")]), segment([fact("x", id="same"), fact("x", 1, id="other")])]
    assert ids(selection.newest(parts, everything(*parts), 5)) == ["other", "same"]


def test_a_message_with_several_facts_is_counted_once() -> None:
    part = segment([fact("x", n, id=str(n), sources=[f"m{n // 3}"]) for n in range(7)])
    assert selection.total([part], everything(part)) == 3
    assert selection.total([part], [np.arange(7) < 4]) == 2
    assert selection.total([part], [np.zeros(7, np.bool_)]) == 0
    assert selection.total([], []) == selection.total([segment([])], everything(segment([]))) == 0


def test_a_message_in_the_tail_and_in_the_index_is_counted_once() -> None:
    parts = [segment([fact("x", id="by rules", sources=["m"])]), segment([fact("x", id="extracted", sources=["m"])])]
    assert selection.total(parts, everything(*parts)) == 1


def test_a_later_message_with_other_numbers_is_linked() -> None:
    rows = [
        fact("Anna: The budget is 400 euros.", 0),
        fact("Anna: The budget is 450 euros now.", 60),
        fact("Anna: The budget is 500 euros.", 120),
        fact("Agent: So the budget is 600 euros.", 180, role="assistant"),
        fact("Anna: We have 7 cats.", 240),
        fact("Anna: The budget is tight.", 300),
    ]
    found = with_later([Choice(row, 1.0) for row in rows], held)
    assert [one.later and one.later["content"] for one in found] == [rows[2]["content"]] * 2 + [None] * 4


def test_a_later_message_with_the_same_number_is_not_linked() -> None:
    rows = [fact("Anna: The budget is 400 euros.", 0), fact("Anna: The budget is 400 euros.", 60)]
    assert [one.later for one in with_later([Choice(row, 1.0) for row in rows], held)] == [None, None]


def held(text: str) -> dict[int, float]:
    return {number: 1.0 for number, word in enumerate(("budget", "euros")) if word in text}


def test_a_passage_keeps_the_speaker_and_nothing_else_before_it() -> None:
    long = "The oven needs a new door. " * 60
    said = Choice(fact(f"Anna: {long}The budget is tight."), 1.0).excerpted(held).row["content"]
    assert said.startswith("Anna: … ")
    assert "The budget is tight." in said
    written = Choice(fact(f"{long}Note: the budget is tight."), 1.0).excerpted(held).row["content"]
    assert len(written) < len(long) / 2
