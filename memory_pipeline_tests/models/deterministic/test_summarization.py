"""The extractive summarizer."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import survival
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period
from memory_pipeline.domain.summaries import KeyPoint, Material
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.deterministic.summarization import DEFAULT_BUDGETS, POINT_OVERHEAD, ExtractiveSummarizer
from memory_pipeline_tests.effort import IS_THOROUGH, examples

SUMMARIZER = ExtractiveSummarizer()
WEEK = Period.parse("weekly", "2024-W03")
START = datetime(2024, 1, 15, 8, tzinfo=UTC)


def material(
    text: str, *, number: int = 0, importance: float = 0.5, entities: tuple[str, ...] = (), hours: float = 0
) -> Material:
    return Material(f"fact:{number:05}", text, START + timedelta(hours=hours), number, importance, entities)


def length(points: tuple[KeyPoint, ...]) -> int:
    return sum(len(point.sentence) + POINT_OVERHEAD for point in points)


def many(count: int, seed: int = 0) -> list[Material]:
    """Return material about many things, spread over the week."""
    choice = random.Random(seed)
    words = [
        f"{first}{second}"
        for first in ("bak", "hav", "mil", "tor", "sel", "rud")
        for second in ("en", "or", "ist", "ung")
    ]
    names = ["Anna", "Ruben", "Elise", "Milo", "Aldo"]
    return [
        material(
            f"{choice.choice(names)}: {' '.join(choice.choices(words, k=8))} {number}.",
            number=number,
            importance=choice.randrange(1, 10) / 10,
            entities=tuple(choice.sample(names, k=choice.randrange(3))),
            hours=choice.randrange(168),
        )
        for number in range(count)
    ]


def test_texts_that_fit_are_all_kept_oldest_first() -> None:
    items = [material("Anna: I moved.", number=2, hours=5), material("Ruben: I paid 600 euros.", number=1, hours=1)]
    points = SUMMARIZER.points_of(WEEK, items)
    assert [point.sentence for point in points] == ["Ruben: I paid 600 euros.", "Anna: I moved."]
    assert points[0] == KeyPoint("Ruben: I paid 600 euros.", ("fact:00001",), START + timedelta(hours=1), 0.5, ())


def test_no_material_gives_no_points() -> None:
    assert SUMMARIZER.points_of(WEEK, []) == ()


def test_equal_texts_become_one_point_that_cites_both() -> None:
    points = SUMMARIZER.points_of(
        WEEK,
        [
            material("Anna: I moved to Porto.", number=9, importance=0.4, entities=("Porto",)),
            material("Anna:  i moved to porto!", number=3, importance=0.8, entities=("Anna",), hours=9),
        ],
    )
    assert points == (KeyPoint("Anna: I moved to Porto.", ("fact:00003", "fact:00009"), START, 0.8, ("Anna", "Porto")),)


def test_near_duplicates_become_one_point() -> None:
    first = "Anna: The new oven was installed at the Harbour Bakery this very morning by three strong people."
    (point,) = SUMMARIZER.points_of(
        WEEK, [material(first, number=1), material(first.replace("was", "has been"), number=2, hours=3)]
    )
    assert point.sentence == first
    assert point.source_ids == ("fact:00001", "fact:00002")


@pytest.mark.parametrize(
    ("word", "other"), [("4.20", "4.50"), ("is now", "is not"), ("two sacks", "three sacks"), ("Monday", "Sunday")]
)
def test_texts_with_other_numbers_negations_or_names_are_not_duplicates(word: str, other: str) -> None:
    text = (
        "Anna: the price of the big country loaf is now 4.20 euros with all taxes included, and that holds for two "
        "sacks of flour delivered early on Monday morning by the mill up in the valley behind the old harbour road."
    )
    changed = text.replace(word, other)
    assert changed != text
    name = other if other == "Sunday" else "Monday"
    items = [material(text, number=1, entities=("Monday",)), material(changed, number=2, entities=(name,))]
    assert len(SUMMARIZER.points_of(WEEK, items)) == 2


@pytest.mark.parametrize("grain", SUMMARY_GRAINS)
def test_the_budget_is_kept_and_well_used(grain: Grain) -> None:
    points = SUMMARIZER.points_of(Period.containing(grain, START.date()), many(400))
    assert DEFAULT_BUDGETS[grain] * 0.9 < length(points) <= DEFAULT_BUDGETS[grain]
    assert list(points) == sorted(points, key=lambda point: (point.event_at, point.source_ids))


@given(st.randoms(use_true_random=False), st.integers(0, 3))
@settings(max_examples=examples(6), deadline=None)
def test_the_order_of_the_material_does_not_matter(choice: random.Random, seed: int) -> None:
    items = many(120, seed)
    expected = SUMMARIZER.points_of(WEEK, items)
    choice.shuffle(items)
    assert SUMMARIZER.points_of(WEEK, items) == expected


def test_importance_decides_among_equals() -> None:
    items = [*many(300), material("Anna: I am allergic to hazelnuts.", number=999, importance=1.0, hours=50)]
    assert "fact:00999" in {source for point in SUMMARIZER.points_of(WEEK, items) for source in point.source_ids}


def test_no_single_day_fills_the_summary() -> None:
    busy = [
        material(f"Anna: note {n} about {'abcdefghij'[n % 10] * 6} flour.", number=n, importance=0.6)
        for n in range(300)
    ]
    quiet = [material(f"Ruben: day {n} was calm.", number=1000 + n, importance=0.5, hours=24 * n) for n in range(1, 7)]
    days = {point.event_at.date() for point in SUMMARIZER.points_of(WEEK, busy + quiet)}
    assert len(days) == 7


def test_new_names_come_before_more_of_the_same() -> None:
    known = [material(f"Anna: item {n} was sold here.", number=n, entities=("Anna",)) for n in range(300)]
    new = material("Anna: Zoltan came to the shop.", number=500, entities=("Anna", "Zoltan"))
    assert any("Zoltan" in point.entities for point in SUMMARIZER.points_of(WEEK, [*known, new]))


@pytest.mark.parametrize("text", ["word " * 10_000, "x" * 50_000, "我" * 50_000])
def test_a_long_text_is_trimmed_but_never_lost(text: str) -> None:
    (point,) = SUMMARIZER.points_of(WEEK, [material(text)])
    assert point.sentence.endswith("…")
    assert 300 < len(point.sentence) <= DEFAULT_BUDGETS[Grain.WEEKLY] // 3
    assert not point.sentence.endswith(" …")


@pytest.mark.parametrize(
    ("second", "place", "is_joined"),
    [
        ("Anna: It was loud.", 2, True),
        ("Anna: My brother Ruben sold his honey there.", 2, True),
        ("Anna: It was loud.", 3, False),
        ("Ruben: It was loud.", 2, False),
        ("Anna: " + "It was very loud there. " * 13, 2, False),
    ],
)
def test_consecutive_sentences_of_a_message_are_one_point(second: str, place: int, is_joined: bool) -> None:
    first = "Anna: I went to a fair in Porto."
    items = [material(first, number=1), material(second, number=place, importance=0.2)]
    (point,) = SUMMARIZER.points_of(Period.parse("daily", "2024-01-15"), items)
    assert point.sentence == (f"{first} {second.removeprefix('Anna: ')}" if is_joined else first)
    assert point.source_ids == tuple(item.id for item in items[: 1 + is_joined])
    other = replace(items[1], event_at=START + timedelta(minutes=1))
    assert len(SUMMARIZER.points_of(Period.parse("daily", "2024-01-15"), [items[0], other])[0].source_ids) == 1


def test_longer_periods_have_a_higher_bar_than_days() -> None:
    items = [material("Anna: I married Ruben.", number=1, importance=0.6), material("Anna: I swam.", number=3)]
    lines = {
        grain: [point.sentence for point in SUMMARIZER.points_of(Period.containing(grain, START.date()), items)]
        for grain in SUMMARY_GRAINS
    }
    assert len(lines[Grain.DAILY]) == len(lines[Grain.WEEKLY]) == 2
    assert lines[Grain.MONTHLY] == lines[Grain.YEARLY] == ["Anna: I married Ruben."]


def test_points_can_be_summarized_again() -> None:
    day = SUMMARIZER.points_of(Period.parse("daily", "2024-01-15"), many(200))
    again = [
        Material(f"daily:2024-01-15#{n}", p.sentence, p.event_at, n, p.importance, p.entities)
        for n, p in enumerate(day)
    ]
    year = SUMMARIZER.points_of(Period.parse("yearly", "2024"), again)
    assert [point.sentence for point in year] == [point.sentence for point in day]


def test_only_the_most_important_of_very_many_texts_are_compared() -> None:
    items = [material(f"Anna: {n} loaves.", number=n, importance=0.9 if n == 77 else 0.1) for n in range(6000)]
    points = SUMMARIZER.points_of(WEEK, items)
    assert "Anna: 77 loaves." in {point.sentence for point in points}
    assert length(points) <= DEFAULT_BUDGETS[Grain.WEEKLY]


def test_the_name_depends_on_the_settings() -> None:
    assert SUMMARIZER.name == "extractive-4"
    assert ExtractiveSummarizer(HashingEmbedder(), DEFAULT_BUDGETS).name == "extractive-4"
    shorter = ExtractiveSummarizer(budgets={Grain.DAILY: 500})
    other = ExtractiveSummarizer(HashingEmbedder(64))
    assert len({SUMMARIZER.name, shorter.name, other.name}) == 3
    assert shorter.name == ExtractiveSummarizer(budgets={Grain.DAILY: 500}).name
    assert length(shorter.points_of(Period.parse("daily", "2024-01-15"), many(100))) <= 500


def test_bad_settings_and_hours_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="budget 99 for daily"):
        ExtractiveSummarizer(budgets={Grain.DAILY: 99})
    with pytest.raises(ConfigurationError, match="working"):
        ExtractiveSummarizer(budgets={Grain.WORKING: 1000})
    with pytest.raises(InputError, match="2024-01-15T08"):
        SUMMARIZER.points_of(Period.parse("working", "2024-01-15T08"), many(1))


@given(st.lists(st.tuples(st.text(min_size=1), st.floats(0, 1), st.integers(-100, 300)), min_size=1, max_size=12))
@settings(deadline=None)
def test_any_material_gives_points_that_cite_it(rows: list[tuple[str, float, int]]) -> None:
    items = [
        material(text, number=n, importance=importance, hours=hours) for n, (text, importance, hours) in enumerate(rows)
    ]
    points = SUMMARIZER.points_of(WEEK, items)
    assert points
    cited = [source for point in points for source in point.source_ids]
    assert len(cited) == len(set(cited))
    assert set(cited) <= {item.id for item in items}


def test_milestones_come_before_any_amount_of_detail() -> None:
    milestone = material(
        "Anna: Ruben and Elise won.", number=999, importance=0.8, entities=("Ruben", "Elise"), hours=90
    )
    details = [
        material(f"Ruben: {n} loaves for Elise on {n % 28 + 1} May.", number=n, importance=0.75, entities=("Elise",))
        for n in range(400)
    ]
    assert "Anna: Ruben and Elise won." in {
        point.sentence for point in SUMMARIZER.points_of(WEEK, [milestone, *details])
    }


def test_concrete_texts_come_before_chatter() -> None:
    talk = "We are so very happy and proud and thankful that all of this has become such a wonderful {}."
    places = ("bakery", "harbour", "garden", "market", "winter", "summer", "kitchen", "river", "evening", "journey")
    chatter = [material(f"Ruben: {talk.format(place)}", number=n) for n, place in enumerate(places)]
    concrete = material("Ruben: Milo rents 8 Pier Street from 3 May [2024-05-03].", number=99, entities=("Milo",))
    points = ExtractiveSummarizer(budgets={Grain.WEEKLY: 200}).points_of(WEEK, [*chatter, concrete])
    assert concrete.text in {point.sentence for point in points}


def test_new_content_comes_before_repetition() -> None:
    said = [
        material(f"Anna: The {first} oven and the {second} oven bake bread.", number=10 * n + m)
        for n, first in enumerate(("old", "big", "small", "red", "loud"))
        for m, second in enumerate(("new", "blue", "quiet", "cheap", "spare"))
    ]
    new = material("Anna: The dentist has a canary and a parrot.", number=999)
    points = ExtractiveSummarizer(budgets={Grain.WEEKLY: 200}).points_of(WEEK, [*said, new])
    assert new.text in {point.sentence for point in points}


@pytest.mark.skipif(not IS_THOROUGH, reason="it makes five summaries of each day of a year")
def test_a_year_keeps_more_than_simple_baselines_of_its_length(tmp_path: Path) -> None:
    """Numbers, dates and names of the sample; see :mod:`benchmarks.survival`."""
    (table,) = survival.run(tmp_path, quick=True)
    ours, *plain = (row for row in table.rows if row["grain"] == Grain.YEARLY)
    assert ours["way"] == "extractive"
    for measure in ("verbatim", "values"):
        assert float(ours[measure]) > 1.1 * max(float(row[measure]) for row in plain)
    assert float(ours["characters"]) < 1.1 * min(float(row["characters"]) for row in plain)
