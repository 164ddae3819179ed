"""Recall: all grains within one budget, without repetition, and deterministic."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Calendar, Grain, Period
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.models.factory import Models
from memory_pipeline.reader import MemoryReader, Recalled, Recollection
from memory_pipeline.reader.recall import choose, considered
from memory_pipeline.search.row_block import points_of
from memory_pipeline_tests.building import ACME, NOW, conversation, run, write
from memory_pipeline_tests.index_rows import put_rows, segment, summary

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder

CALENDAR = Calendar()


@pytest.fixture(scope="session")
def filled(shared_folder: SharedFolder, models: Models) -> Path:
    """A lake of half a year, with summaries of all grains; tests only read it, or copy it."""

    def fill(folder: Path) -> None:
        lake = Lake(str(folder))
        for day, text in (
            ("2024-01-15", "I moved to Porto with my dog Bruno."),
            ("2024-01-17", "Bruno has a new vet in Porto, Doctor Silva."),
            ("2024-03-05", "I play the violin on Tuesdays."),
            ("2024-06-09", "We booked a ferry to Madeira for 9 August."),
        ):
            write(lake, conversation(text, "Nice weather today.", at=f"{day}T08:00", conversation_id=day))
        run(lake, models)

    return shared_folder("reader-recall", fill)


@pytest.fixture
def reader(filled: Path, models: Models) -> MemoryReader:
    return MemoryReader(Lake(str(filled)), ACME, models.embedder)


def item(period: Period, score: float = 1.0, text: str = "something", number: int = 0) -> Recalled:
    name = f"{period.grain}:{period.key}:{number}"
    return Recalled(name, period.grain, period.key, date(2024, 1, 1), text, (name,), score)


def durable(
    text: str, score: float, name: str, *sources: str, grain: Literal["durable", "graph"] = "durable"
) -> Recalled:
    return Recalled(name, grain, "2024-01-15T08", date(2024, 1, 1), text, sources, score, "fact")


def without_facts(filled: Path, root: str, models: Models) -> MemoryReader:
    """Return a reader of the lake as after retention: the index of working memory is empty."""
    shutil.copytree(filled, root)
    lake = Lake(root)
    keys = sorted(set(lake.tables.read(FACTS, columns=["period"])["period"].to_pylist()))
    empty = lake.index.scan(ACME, Grain.WORKING).slice(0, 0)
    put_rows(lake.index, Grain.WORKING, [Period.parse("working", key) for key in keys], {ACME: empty})
    return MemoryReader(lake, ACME, models.embedder)


def test_facts_come_first_without_summaries_of_their_periods(reader: MemoryReader) -> None:
    found = reader.recall("Where does Bruno live?", now=NOW)
    assert found[0].content == "Anna: I moved to Porto with my dog Bruno."
    assert found[0].grain is Grain.WORKING
    assert found[0].date == date(2024, 1, 15)
    assert reader.expand(found[0].id).content == found[0].content


def test_no_result_appears_beside_its_sources(reader: MemoryReader) -> None:
    for budget in (30, 60, 120, 1_000):
        found = reader.recall("Bruno's violin on the ferry to Porto", budget, now=NOW)
        periods = [Period(one.grain, one.period) for one in found if isinstance(one.grain, Grain)]
        for one in periods:
            above = [CALENDAR.ancestor(one, grain) for grain in Grain if grain.rank > one.grain.rank]
            assert not set(above) & set(periods)


def test_summaries_fill_in_where_facts_are_gone(filled: Path, root: str, models: Models) -> None:
    reader = without_facts(filled, root, models)
    found = reader.recall("Where does Bruno live?", now=NOW)
    assert found
    assert {one.grain for one in found if isinstance(one.grain, Grain)} <= set(SUMMARY_GRAINS)
    assert any("moved to Porto" in one.content for one in found)
    point = next(one for one in found if "moved to Porto" in one.content)
    assert point.date == date(2024, 1, 15)
    assert point.warning is not None  # its durable memory is dropped
    assert str(point).endswith(f"({point.grain} summary of {point.period}; {point.warning})")
    assert reader.expand(point.id).content.endswith(point.content)


def test_new_messages_are_recalled(filled: Path, root: str, models: Models) -> None:
    shutil.copytree(filled, root)
    write(Lake(root), conversation("Bruno is afraid of thunder.", at="2024-07-01T08:00", conversation_id="late"))
    reader = MemoryReader(Lake(root), ACME, models.embedder)
    assert reader.recall("What is Bruno afraid of?", now=NOW)[0].content == "Anna: Bruno is afraid of thunder."


@pytest.mark.parametrize("budget", [1, 12, 15, 16, 40, 99, 100_000])
def test_the_budget_is_never_exceeded(reader: MemoryReader, budget: int) -> None:
    found = reader.recall("What do you know about Anna and Bruno?", budget, now=NOW)
    assert found.tokens == count_tokens(str(found)) <= budget


def test_the_same_memory_gives_the_same_answer(filled: Path, reader: MemoryReader, models: Models) -> None:
    first = reader.recall("Porto ferry violin", 80, now=NOW)
    assert first == reader.recall("Porto ferry violin", 80, now=NOW)
    assert first == MemoryReader(Lake(str(filled)), ACME, models.embedder).recall("Porto ferry violin", 80, now=NOW)


def test_filters_hold_for_all_grains(reader: MemoryReader) -> None:
    found = reader.recall("Porto violin ferry", since=date(2024, 3, 1), until=date(2024, 3, 31), now=NOW)
    assert found
    assert all(date(2024, 3, 1) <= one.date <= date(2024, 3, 31) for one in found)
    assert reader.recall("Porto", person="nobody", now=NOW) == []


def test_points_of_a_day_are_recalled_by_that_day(filled: Path, root: str, models: Models) -> None:
    reader = without_facts(filled, root, models)
    found = reader.recall("Porto violin ferry", since=date(2024, 3, 5), until=date(2024, 3, 5), now=NOW)
    assert {one.date for one in found} == {date(2024, 3, 5)}
    assert any("violin" in one.content for one in found if isinstance(one.grain, Grain))
    assert not reader.recall("Porto violin ferry", since=date(2024, 3, 6), until=date(2024, 3, 6), now=NOW)


def test_no_summary_is_recalled_before_its_period_has_closed(filled: Path, root: str, models: Models) -> None:
    reader = without_facts(filled, root, models)
    for now in (datetime(2024, 1, 17, 12, tzinfo=UTC), datetime(2024, 2, 2, tzinfo=UTC), NOW):
        found = reader.recall("Porto", now=now)
        periods = [Period(one.grain, one.period) for one in found if isinstance(one.grain, Grain)]
        assert periods
        assert all(CALENDAR.closes_at(one) <= now for one in periods)


def test_an_agent_without_memory_recalls_nothing(lake: Lake, models: Models) -> None:
    found = MemoryReader(lake, ACME, models.embedder).recall("Porto", now=NOW)
    assert (found, str(found), found.tokens) == ([], "", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": "  "}, "query is blank"),
        ({"query": "x" * 1_000_000}, "query 'xxx.* is not accepted"),
        ({"query": "x", "max_tokens": 0}, "max_tokens 0 is not accepted"),
        ({"query": "x", "max_tokens": True}, "max_tokens True"),
        ({"query": "x", "since": datetime.fromisoformat("2024-01-01T08:00")}, "since .* has no time zone"),
        ({"query": "x", "minimum_importance": 2}, "minimum_importance 2"),
    ],
)
def test_invalid_arguments_are_named(reader: MemoryReader, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reader.recall(**arguments)


def test_a_better_point_is_dropped_for_facts_of_its_period() -> None:
    hour = Period.parse("working", "2024-01-15T08")
    day = Period.parse("daily", "2024-01-15")
    other = Period.parse("daily", "2024-02-01")
    found = choose([item(hour, 1)], [item(day, 9), item(other, 5)], CALENDAR, 1_000)
    assert [(one.grain, one.period) for one in found] == [(Grain.DAILY, "2024-02-01"), (Grain.WORKING, "2024-01-15T08")]


def test_points_of_one_summary_replace_its_facts() -> None:
    day, hour = Period.parse("daily", "2024-01-15"), Period.parse("working", "2024-01-15T08")
    # The fact is too long for its share, and comes after the points, which cover its hour.
    found = choose([item(hour, 1, "x" * 320)], [item(day, 2), item(day, 1, number=1)], CALENDAR, 100)
    assert [one.grain for one in found] == [Grain.DAILY, Grain.DAILY]


hours = st.integers(0, 17_000).map(lambda hour: CALENDAR.hour(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hour)))
items = st.lists(
    st.tuples(hours, st.sampled_from(list(Grain)), st.floats(0, 9), st.text(max_size=80), st.integers(0, 5)),
    max_size=30,
)


lasting = st.lists(
    st.tuples(st.sampled_from(["durable", "graph"]), st.floats(0, 9), st.text(max_size=80), st.integers(0, 5)),
    max_size=8,
)


def test_a_point_and_a_fact_of_its_day_are_both_returned_if_they_are_of_two_scopes() -> None:
    point = item(Period(Grain.DAILY, "2024-01-15"), 1.0, "the day of a group")
    said = item(Period(Grain.WORKING, "2024-01-15T08"), 2.0, "the word of a user")
    assert [one.content for one in choose([said], [point], CALENDAR, 1_000)] == [said.content]
    theirs = replace(said, identity="user:u1")
    assert {one.content for one in choose([theirs], [point], CALENDAR, 1_000)} == {said.content, point.content}


@given(items, lasting, st.integers(1, 400))
def test_every_recall_fits_the_budget_without_repetition(records: list[Any], beside: list[Any], budget: int) -> None:
    listed = [item(CALENDAR.ancestor(hour, grain), score, text, n) for hour, grain, score, text, n in records]
    listed.sort(key=lambda one: (-one.score, one.id))
    facts = [one for one in listed if one.grain is Grain.WORKING]
    points = [one for one in listed if one.grain is not Grain.WORKING]
    kept = [durable(text, score, f"{grain}:{n}", grain=grain) for grain, score, text, n in beside]
    found = choose(facts, points, CALENDAR, budget, kept)
    assert found.tokens <= budget
    assert len({one.id for one in found}) == len(found)
    periods = {Period(one.grain, one.period) for one in found if isinstance(one.grain, Grain)}
    for one in periods:
        assert not periods & {CALENDAR.ancestor(one, grain) for grain in Grain if grain.rank > one.grain.rank}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    lasts = Recollection(one for one in found if not isinstance(one.grain, Grain))
    assert lasts.tokens <= max(0.3 * budget, min(budget, 120))


def test_durable_memories_stay_within_their_share() -> None:
    hours = [CALENDAR.hour(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hour)) for hour in range(30)]
    facts = [item(hour, 1, f"{place} " + "said " * 8) for place, hour in enumerate(hours)]
    alone = choose(facts, [], CALENDAR, 500)
    kept = [durable(f"{place} " + "kept " * 8, 5, f"m{place}") for place in range(9)] * 2
    found = choose(facts, [], CALENDAR, 500, kept)
    assert 100 < Recollection(one for one in found if one.grain == "durable").tokens <= 150
    assert sum(one.grain is Grain.WORKING for one in found) >= 0.6 * len(alone)
    assert choose(facts, [], CALENDAR, 500, []) == alone
    assert found.tokens > 450
    small = choose(facts, [], CALENDAR, 200, kept)
    assert 60 < Recollection(one for one in small if one.grain == "durable").tokens <= 120
    assert small.tokens <= 200


def test_a_worse_memory_never_replaces_a_better_one() -> None:
    best, better, worse = durable("a" * 200, 9, "best"), durable("b" * 320, 8, "better"), durable("c", 7, "worse")
    around = durable("Anna knows Bruno", 9, "fact", grain="graph")
    assert choose([], [], CALENDAR, 300, [best, around, better, worse]) == [best, around]
    assert choose([], [], CALENDAR, 1_000, [best, around, better, worse]) == [best, around, better, worse]
    huge = durable("d" * 4_000, 10, "huge")
    assert choose([], [], CALENDAR, 300, [huge, best, worse]) == [best, worse]


def test_a_warning_moves_to_the_item_that_replaces_the_memory() -> None:
    hour = Period.parse("working", "2024-01-15T08")
    turn = replace(item(hour, 1, "Anna: 40 sacks are in stock."), kind="turn", source_ids=("m1",))
    whole = replace(durable("Anna: 40 sacks are in stock.", 5, "whole", "m1"), warning="a snapshot of yesterday")
    other = replace(durable("There is flour.", 4, "other", "m1", "m2"), warning="last heard yesterday")
    [found] = choose([turn], [], CALENDAR, 1_000, [whole])
    assert (found.id, found.warning, found.score) == (turn.id, whole.warning, 5)
    assert str(found).endswith("stock. (a snapshot of yesterday)")
    assert [one.id for one in choose([turn], [], CALENDAR, 15, [whole])] == []
    told = choose([turn], [], CALENDAR, 1_000, [other])
    assert [(one.id, one.warning) for one in told] == [("other", other.warning), (turn.id, None)]
    point = item(Period.parse("daily", "2024-01-15"), 1, "Anna: 40 sacks are in stock.")
    [found] = choose([], [point], CALENDAR, 1_000, [whole])
    assert found.note == "daily summary of 2024-01-15; a snapshot of yesterday"


def test_a_memory_is_dropped_if_facts_cover_it() -> None:
    hour = Period.parse("working", "2024-01-15T08")
    turn = replace(item(hour, 1, "Anna: I moved to Porto. It rains."), kind="turn", source_ids=("m1",))
    others = [
        durable("Anna lives in Porto.", 5, "whole", "m1"),
        durable("anna: i moved to porto.", 5, "words", "m7", "m8"),
        durable("Anna lives_in Porto", 5, "graph", "m1", grain="graph"),
    ]
    assert choose([turn], [], CALENDAR, 1_000, others) == [replace(turn, score=5)]  # it has the memory's place
    more = durable("Anna lives in Porto.", 5, "more", "m1", "m2")
    own = durable("Anna lives in Porto.", 5, "own")
    sentence = replace(turn, kind="statement", content="Anna: It rains.")
    assert choose([turn], [], CALENDAR, 1_000, [more, own]) == [more, own, turn]
    assert choose([sentence], [], CALENDAR, 1_000, others[:1]) == [others[0], sentence]


def test_a_memory_stays_if_its_replacement_would_not_fit() -> None:
    """Without the memory the long fact would fit, and the message that covers the memory would not."""
    hour = Period.parse("working", "2024-01-15T08")
    kept = durable("Anna lives in Porto.", 9, "kept", "m1")
    long = replace(item(hour, 3, "x" * 200, 1), kind="turn", source_ids=("m0",))
    turn = replace(item(hour, 2, "Anna: I moved to Porto." + " y" * 20, 2), kind="turn", source_ids=("m1",))
    for budget in range(20, 140):
        found = choose([long, turn], [], CALENDAR, budget, [kept])
        assert {kept.id, turn.id} & {one.id for one in found}


def test_points_know_their_day_and_who_said_them() -> None:
    rows = segment([summary("2024-01-15 Anna: I moved.\n\n2024-13-99 Odd: date.\nIt rained all day.")])
    points = points_of(rows.rows, 8, CALENDAR)
    found = {row["id"].rpartition("#")[2]: row for row in points.rows.to_pylist()}
    assert sorted(found) == ["0", "2", "3"]
    assert (found["0"]["content"], found["0"]["speaker"]) == ("Anna: I moved.", "Anna")
    assert found["0"]["starts_at"] == datetime(2024, 1, 15, tzinfo=UTC)
    assert found["0"]["ends_at"] == datetime(2024, 1, 16, tzinfo=UTC)
    assert found["3"]["speaker"] is None
    assert found["3"]["ends_at"] - found["3"]["starts_at"] == timedelta(days=1)
    assert points.slots == 3


def test_no_more_facts_are_considered_than_a_budget_could_hold() -> None:
    assert [considered(budget) for budget in (1, 1_000, 10**6)] == [20, 100, 1_000]


def test_a_bad_short_fact_does_not_replace_a_long_one() -> None:
    hours = [CALENDAR.hour(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hour)) for hour in range(4)]
    best, long, good, bad = (
        item(hour, score, text)
        for hour, score, text in zip(hours, (10, 9, 8, 5), ("a" * 80, "b" * 400, "c", "d"), strict=True)
    )
    assert choose([best, long, good, bad], [], CALENDAR, 60) == [best, good]


def test_a_large_budget_has_room_for_summaries() -> None:
    days = [Period.containing(Grain.DAILY, date(2024, 1, 1) + timedelta(days=day)) for day in range(60)]
    facts = [item(CALENDAR.children(day)[8], 9, "said " * 20, n) for n, day in enumerate(days)]
    points = [item(day, 8, "summed up", n) for n, day in enumerate(days)]
    found = choose(facts, points, CALENDAR, 2_000)
    grains = [one.grain for one in found]
    assert grains.count(Grain.DAILY) >= 10
    assert grains.count(Grain.WORKING) >= 10


def test_unrelated_facts_are_not_recalled(lake: Lake, models: Models) -> None:
    write(lake, conversation("The oven is twenty years old.", at="2024-01-15T08:00"))
    write(lake, conversation("How is the knee?", at="2024-01-16T08:00", conversation_id="knee"))
    found = MemoryReader(lake, ACME, models.embedder).recall("Oven", 300, now=NOW)
    assert [one.content for one in found if one.grain is Grain.WORKING] == ["Anna: The oven is twenty years old."]
