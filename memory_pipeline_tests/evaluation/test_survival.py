"""Which known answers the text of each grain still contains."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.evaluation.survival import GrainContent, Loss, Remains, Span, Values, losses, remains, survival
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import table_of
from memory_pipeline.models.factory import Models
from memory_pipeline_tests.building import ACME, conversation, run, write

MONDAY = date(2024, 1, 15)


def memory(*texts: str, said_on: date = MONDAY) -> GrainContent:
    return GrainContent((text, said_on) for text in texts)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("Two cats and a dog", "Anna: we have a dog, and two cats."),
        ("the Café", "Anna: That CAFE closed!"),
        ("sunset", "Anna: I paint sunsets."),
    ],
)
def test_an_answer_is_found_in_other_forms_and_orders(answer: str, text: str) -> None:
    assert memory("Ruben: something else.", text).contains_words(terms(answer))


def test_all_words_must_be_in_one_text() -> None:
    assert not memory("Anna: I have a dog.", "Ruben: two cats came by.").contains_words(terms("two cats and a dog"))
    assert not memory().contains_words(terms("dog"))
    assert not memory("Anna: a dog.").contains_words([])


@pytest.mark.parametrize(
    ("answer", "first", "last"),
    [
        ("7 May 2023", date(2023, 5, 7), date(2023, 5, 7)),
        ("around November 16, 2023", date(2023, 11, 16), date(2023, 11, 16)),
        ("January, 2023", date(2023, 1, 1), date(2023, 1, 31)),
        ("The summer of 2022", date(2022, 1, 1), date(2022, 12, 31)),
        ("2022", date(2022, 1, 1), date(2022, 12, 31)),
        ("The week before 9 June 2023", date(2023, 5, 29), date(2023, 6, 4)),
        ("The weekend of 1 July 2023", date(2023, 7, 1), date(2023, 7, 2)),
        ("the Friday before 15 July 2023", date(2023, 7, 14), date(2023, 7, 14)),
        ("the day after 1 June 2023", date(2023, 6, 2), date(2023, 6, 2)),
    ],
)
def test_dates_of_answers_are_extracted(answer: str, first: date, last: date) -> None:
    assert Values.of_answer(answer) == Values(frozenset(), frozenset([Span(first, last)]), frozenset())


def test_numbers_and_names_of_answers_are_extracted() -> None:
    assert Values.of_answer("1,200 euros for three lamps").numbers == {"1200", "3"}
    assert Values.of_answer("a trip with Ruben to Porto").names == {("ruben",), ("porto",)}
    assert not Values.of_answer("a trip to the coast")
    assert not Values.of_answer("")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Anna: I went yesterday.", "14 January 2024"),
        ("Anna: I went on Sunday [2024-01-14].", "14 January 2024"),
        ("Anna: It was on 14 January.", "January 14, 2024"),
        ("Anna: I was away last weekend [2024-01-13/14].", "the week before 15 January 2024"),
        ("Anna: I was away last weekend [2024-01-13/14].", "January 2024"),
        ("Anna: I moved in 2019.", "2019"),
    ],
)
def test_a_date_is_found_in_any_spelling(text: str, answer: str) -> None:
    assert memory(text).contains_values(Values.of_answer(answer))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Anna: I was away last weekend [2024-01-13/14].", "13 January 2024"),  # which of the two days?
        ("Anna: I went yesterday [2024-01-14].", "13 January 2024"),
        ("Anna: I moved last year [2023].", "May 2023"),
    ],
)
def test_a_less_exact_date_does_not_count(text: str, answer: str) -> None:
    assert not memory(text).contains_values(Values.of_answer(answer))


def test_the_day_of_a_text_counts_as_a_date() -> None:
    texts = memory("Anna: I moved.")
    assert texts.contains_values(Values.of_answer("15 January 2024"))
    assert texts.contains_values(Values.of_answer("the week of 17 January 2024"))
    assert not texts.contains_values(Values.of_answer("January 2024"))
    assert memory("Anna: I moved today.").contains_values(Values.of_answer("January 2024"))


def test_all_values_are_needed_in_any_texts() -> None:
    texts = memory("Anna: Porto is far.", "Ruben: I paid two euros.")
    assert texts.contains_values(Values.of_answer("a fare of 2 euros to Porto"))
    assert not texts.contains_values(Values.of_answer("a fare of 3 euros to Porto"))
    assert not texts.contains_values(Values.of_answer("a fare of 2 euros to Lisbon"))
    assert not texts.contains_values(Values.of_answer("a fare to New Porto"))


@pytest.mark.parametrize("label", ["2023-13", "2023-02-31", "0000", "2023-W60", "2023-04-30/99"])
def test_brackets_without_a_date_are_ignored(label: str) -> None:
    assert memory(f"Anna: look [{label}] there.").contains_words(["look"])


def test_shares_are_computed_per_grain() -> None:
    other = Scope("acme", "other")
    found = remains(
        Grain.YEARLY,
        {ACME: memory("Anna: I moved to Porto.", "Ruben: no.")},
        {ACME: ["Porto", "a fare to Lisbon", "I moved to Porto", "Yes"], other: ["sunset"]},
    )
    assert found == Remains(Grain.YEARLY, len("Anna: I moved to Porto.Ruben: no."), 4, 2 / 4, 1 / 2)


def test_without_answers_or_memory_the_shares_are_0(lake: Lake) -> None:
    assert remains(Grain.DAILY, {}, {}) == Remains(Grain.DAILY, 0, 0, 0.0, 0.0)
    assert survival(lake, {ACME: ["Porto", ""]}) == [Remains(grain, 0, 1, 0.0, 0.0) for grain in Grain]


def test_a_lake_is_read_grain_by_grain(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto yesterday.", "How are you?"))
    write(lake, conversation("We moved to Lisbon.", scope=Scope("acme", "other")))
    run(lake, models)
    found = survival(lake, {ACME: ["a flat in Porto", "Porto", "14 January 2024", "Lisbon", "how"]})
    assert [each.grain for each in found] == list(Grain)
    assert {(each.answers, each.verbatim) for each in found} == {(4, 1 / 4)}
    summary = "Anna: I moved to Porto yesterday [2024-01-14]."
    assert [each.characters for each in found[1:]] == [len(summary)] * 5
    assert found[0].characters == len(f"{summary}Anna: I moved to Porto yesterday.Anna: How are you?")
    assert {each.values for each in found} == {1.0}


def test_lost_answers_are_counted_by_grain(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto yesterday.", "How are you?"))
    write(lake, conversation("We moved to Lisbon.", scope=Scope("acme", "other")))
    run(lake, models)
    answers = {ACME: ["Porto", "How are you", "Lisbon", "Madrid"]}

    def without(*grains: Grain) -> list[Loss]:
        def kept(grain: Grain, columns: Sequence[str]) -> pa.Table:
            spec, fixed = table_of(grain)
            rows = lake.tables.read(spec, columns=columns, shard=None, **fixed)
            return rows.slice(0, 0) if grain in grains else rows

        return losses(lake, kept, answers)

    assert without()[0] == Loss(Grain.WORKING, 3, 1, 0)
    assert [one.lost for one in without()] == [0] * 7
    found = {one.grain: (one.contained, one.lost) for one in without(Grain.WORKING, Grain.DAILY)}
    assert (found[Grain.WORKING], found[Grain.DAILY], found[Grain.WEEKLY]) == ((1, 1), (1, 1), (1, 0))
    assert found[None] == (1, 0), "a week has it"
    assert without(*Grain)[-1] == Loss(None, 3, 1, 1)


@given(st.lists(st.text()), st.lists(st.text()))
def test_any_text_is_accepted(texts: list[str], answers: list[str]) -> None:
    found = remains(Grain.DAILY, {ACME: memory(*texts)}, {ACME: answers})
    assert 0 <= found.verbatim <= 1
    assert 0 <= found.values <= 1
