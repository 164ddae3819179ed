"""The six grains: names, order and errors."""

from __future__ import annotations

import pytest

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.errors import InputError


def test_six_grains_from_fine_to_coarse() -> None:
    assert [grain.value for grain in Grain] == ["working", "daily", "weekly", "monthly", "quarterly", "yearly"]
    assert [grain.rank for grain in Grain] == [0, 1, 2, 3, 4, 5]


def test_each_grain_is_computed_from_the_next_finer_one() -> None:
    assert [grain.finer for grain in Grain] == [None, *list(Grain)[:-1]]
    assert [grain.coarser for grain in Grain] == [*list(Grain)[1:], None]


def test_all_grains_but_working_have_summaries() -> None:
    assert set(SUMMARY_GRAINS) == set(Grain) - {Grain.WORKING}
    assert list(SUMMARY_GRAINS) == sorted(SUMMARY_GRAINS, key=lambda grain: grain.rank)


@pytest.mark.parametrize("grain", Grain)
def test_a_grain_is_parsed_from_its_name(grain: Grain) -> None:
    assert Grain.parse(grain.value) is grain
    assert Grain.parse(grain) is grain
    assert f"{grain}" == grain.value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hourly",
        "Daily",
        "DAILY",
        " daily",
        "daily\n",
        "durable",
        "ｄａｉｌｙ",
        None,
        1,
        1.5,
        [],
        {},
        b"daily",
        pytest.param("x" * 10**6, id="1 MB"),
    ],
)
def test_an_unknown_name_is_refused_with_the_accepted_ones(text: object) -> None:
    with pytest.raises(InputError, match="accepted: working, daily, weekly, monthly, quarterly, yearly") as refusal:
        Grain.parse(text)
    assert str(refusal.value).startswith("grain ")
    assert len(str(refusal.value)) < 250
    assert str(refusal.value).isprintable()
