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
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Calendar, Grain, Period, hour_of
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.memories.search import MemorySearch
from memory_pipeline.models.factory import Models
from memory_pipeline.reader import MemoryReader, Recalled
from memory_pipeline.reader.packing.items import Recollection
from memory_pipeline.reader.packing.packer import Packer, by_worth
from memory_pipeline.reader.packing.recall import considered
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


def choose(
    facts: list[Recalled], points: list[Recalled], calendar: Calendar, budget: int, kept: list[Recalled] | None = None
) -> Recollection:
    """Return what the packer chooses, the strongest first."""
    packer, given = Packer(calendar, budget), [*(kept or []), *facts, *points]
    packer.fill(by_worth([*facts, *points, *(kept or [])]))
    places = {one.id: place for place, one in enumerate(given)}
    return Recollection(sorted(packer.chosen, key=lambda one: (-one.strength, places[one.id])))


def item(period: Period, strength: float = 1.0, text: str = "something", number: int = 0) -> Recalled:
    name = f"{period.grain}:{period.key}:{number}"
    return Recalled(name, period.grain, period.key, date(2024, 1, 1), text, (name,), strength=strength)


def durable(
    text: str, strength: float, name: str, *sources: str, grain: Literal["durable", "graph"] = "durable"
) -> Recalled:
    return Recalled(name, grain, "2024-01-15T08", date(2024, 1, 1), text, sources, kind="fact", strength=strength)


@pytest.fixture
def without_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find no durable memories: they would take the place of points with their words."""
    monkeypatch.setattr(MemorySearch, "fitting", lambda *_, **__: [])


def without_facts(filled: Path, root: str, models: Models) -> MemoryReader:
    """Return a reader of the lake as after retention: the index of working memory is empty."""
    shutil.copytree(filled, root)
    lake = Lake(root)
    keys = sorted(set(lake.tables.read(FACTS, columns=["period"])["period"].to_pylist()))
    empty = lake.index.read([ACME], None, "grain = 'working'").slice(0, 0)
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
    assert sum("moved to Porto" in one.content for one in found) == 1  # a durable memory takes the place of its point
    found = reader.recall("When does the ferry go?", now=NOW)
    point = next(one for one in found if "ferry" in one.content and isinstance(one.grain, Grain))
    assert point.date == date(2024, 6, 9)
    assert str(point).endswith(f"({point.grain} summary of {point.period})")
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


def test_filters_hold_for_all_grains(reader: MemoryReader) -> None:
    found = reader.recall("Porto violin ferry", since=date(2024, 3, 1), until=date(2024, 3, 31), now=NOW)
    assert found
    assert all(one.date and date(2024, 3, 1) <= one.date <= date(2024, 3, 31) for one in found)
    assert reader.recall("Porto", person="nobody", now=NOW) == []


@pytest.mark.usefixtures("without_memories")
def test_points_of_a_day_are_recalled_by_that_day(filled: Path, root: str, models: Models) -> None:
    reader = without_facts(filled, root, models)
    found = reader.recall("Porto violin ferry", since=date(2024, 3, 5), until=date(2024, 3, 5), now=NOW)
    assert {one.date for one in found} == {date(2024, 3, 5)}
    assert any("violin" in one.content for one in found if isinstance(one.grain, Grain))
    assert not reader.recall("Porto violin ferry", since=date(2024, 3, 6), until=date(2024, 3, 6), now=NOW)


@pytest.mark.usefixtures("without_memories")
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


def test_a_better_point_is_dropped_for_facts_of_its_period() -> None:
    hour = Period.parse("working", "2024-01-15T08")
    day = Period.parse("daily", "2024-01-15")
    other = Period.parse("daily", "2024-02-01")
    found = choose([item(hour, 1)], [item(day, 9), item(other, 5)], CALENDAR, 1_000)
    assert [(one.grain, one.period) for one in found] == [(Grain.DAILY, "2024-02-01"), (Grain.WORKING, "2024-01-15T08")]


def test_points_are_chosen_where_no_fact_of_their_period_is() -> None:
    day, hour = Period.parse("daily", "2024-01-15"), Period.parse("working", "2024-01-15T08")
    points = [item(day, 9), item(day, 8, number=1)]
    # The fact is too long for the budget.
    found = choose([item(hour, 1, "x" * 400)], points, CALENDAR, 100)
    assert found == points


def test_a_message_takes_the_place_of_the_points_of_its_day() -> None:
    day, hour = Period.parse("daily", "2024-01-15"), Period.parse("working", "2024-01-15T08")
    points = [item(day, 9, "x" * 80, number) for number in range(2)]
    said = item(hour, 1, "y" * 200)
    assert choose([said], points, CALENDAR, 70) == [said]  # beside the points it would not fit
    assert choose([], points, CALENDAR, 70) == points


hours = st.integers(0, 17_000).map(lambda hour: hour_of(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hour)))
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
    listed.sort(key=lambda one: (-one.strength, one.id))
    facts = [one for one in listed if one.grain is Grain.WORKING]
    points = [one for one in listed if one.grain is not Grain.WORKING]
    kept = [durable(text, score, f"{grain}:{n}:{text}", grain=grain) for grain, score, text, n in beside]
    found = choose(facts, points, CALENDAR, budget, kept)
    assert found.tokens <= budget
    assert len({one.id for one in found}) == len(found)
    periods = {Period(one.grain, one.period) for one in found if isinstance(one.grain, Grain)}
    for period in periods:
        assert not periods & {CALENDAR.ancestor(period, grain) for grain in Grain if grain.rank > period.grain.rank}
    assert [one.strength for one in found] == sorted((one.strength for one in found), reverse=True)
    said = [one.content.casefold() for one in found if one.grain is Grain.WORKING]
    for one in found:
        if one.grain in {"durable", "graph"}:
            assert not any(one.content.casefold() in other for other in said)


@given(items, st.integers(1, 400))
def test_a_longer_budget_and_a_memory_of_no_worth_lose_no_better_fact(records: list[Any], budget: int) -> None:
    """What is chosen is what fits in the order of worth: a worse item never displaces a better one."""
    facts = [item(hour, score, f"{n} {text}", place) for place, (hour, _, score, text, n) in enumerate(records)]
    alone = choose(facts, [], CALENDAR, budget)
    worst = durable("z" * 40, -9, "worst")
    assert [one for one in choose(facts, [], CALENDAR, budget, [worst]) if one != worst] == alone


def test_a_long_item_must_be_worth_its_tokens() -> None:
    hours = [hour_of(datetime(2024, 1, 1 + day, tzinfo=UTC)) for day in range(3)]
    long, short, other = item(hours[0], 2.0, "x" * 600), item(hours[1], 1.5, "y"), item(hours[2], 1.4, "z")
    assert choose([long, short, other], [], CALENDAR, 155) == [short, other]
    much_better = replace(long, strength=5.0)
    assert choose([much_better, short, other], [], CALENDAR, 155) == [much_better]


def test_a_memory_is_dropped_if_facts_cover_it() -> None:
    hour = Period.parse("working", "2024-01-15T08")
    turn = replace(item(hour, 1, "Anna: I moved to Porto. It rains."), kind="turn", source_ids=("m1",))
    others = [
        durable("Anna lives in Porto.", 5, "whole", "m1"),
        durable("anna: i moved to porto.", 5, "words", "m7", "m8"),
        durable("Anna lives_in Porto", 5, "graph", "m1", grain="graph"),
    ]
    assert choose([turn], [], CALENDAR, 1_000, others) == [turn]
    more = durable("Anna lives in Porto.", 5, "more", "m1", "m2")
    own = durable("Anna lives in Porto.", 5, "own")
    sentence = replace(turn, kind="statement", content="Anna: It rains.")
    assert choose([turn], [], CALENDAR, 1_000, [more, own]) == [more, own, turn]
    assert choose([sentence], [], CALENDAR, 1_000, others[:1]) == [others[0], sentence]
    assert choose([replace(turn, is_excerpt=True)], [], CALENDAR, 1_000, others[:1])[0] == others[0]


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


def test_unrelated_facts_are_not_recalled(lake: Lake, models: Models) -> None:
    write(lake, conversation("The oven is twenty years old.", at="2024-01-15T08:00"))
    write(lake, conversation("How is the knee?", at="2024-01-16T08:00", conversation_id="knee"))
    found = MemoryReader(lake, ACME, models.embedder).recall("Oven", 300, now=NOW)
    assert [one.content for one in found if one.grain is Grain.WORKING] == ["Anna: The oven is twenty years old."]
