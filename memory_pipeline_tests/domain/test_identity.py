"""Ids are hashes of content: the same today, tomorrow and on another machine. A changed golden value is a migration."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.identity import Reference, digest, digest_of_all, make_id
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import InputError

WEEK = Period.parse("weekly", "2024-W03")
HEX = "0123456789abcdef0123456789abcdef"


def test_digests_never_change() -> None:
    assert digest() == "7ebb3c7c2a87b1a2f8a7ed729ecb040d"
    assert digest("a", 1, None) == "fc64438b1d02ead43476828cf1c13e2d"
    assert digest_of_all(["b", "a"]) == "a75098a5cf13ff1a3b56c4f0f6f950ed"
    assert make_id("weekly", WEEK, "acme", "support") == "weekly:2024-W03:280b30053480e498e53cf90beeec05c1"


def test_equal_parts_of_different_types_have_equal_digests() -> None:
    assert digest(("a", "b"), {"x": 1, "y": 2}) == digest(["a", "b"], {"y": 2, "x": 1})
    assert digest(datetime(2024, 1, 15, tzinfo=UTC)) == digest("2024-01-15 00:00:00+00:00")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),  # parts keep their edges
        (("a", "b"), ("a,b",)),
        (('a","b',), ("a", "b")),
        (("a", ""), ("a",)),
        (("a", None), ("a", "None")),
        ((1,), ("1",)),
        ((True,), (1,)),
        (("é",), ("e\u0301",)),
        (("\ud800",), ("\udfff",)),  # even broken Unicode can be told apart
        ((["a"], "b"), (["a", "b"],)),
    ],
)
def test_different_parts_have_different_digests(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    assert digest(*one) != digest(*other)


@given(st.lists(st.text(), max_size=5), st.lists(st.text(), max_size=5))
def test_lists_of_texts_have_equal_digests_only_if_equal(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)


@given(st.lists(st.text(alphabet="0123456789abcdef", min_size=32, max_size=32), max_size=6), st.randoms())
def test_the_digest_of_many_ignores_order_but_not_number(digests: list[str], random: object) -> None:
    shuffled = list(digests)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert digest_of_all(iter(shuffled)) == digest_of_all(digests)
    assert digest_of_all([*digests, "0" * 32]) != digest_of_all(digests)


def test_an_id_depends_on_kind_and_period() -> None:
    ids = {
        make_id(what, Period.parse(grain, key), "acme")
        for what, grain, key in [
            ("working", "working", "2024-01-15T08"),
            ("message", "working", "2024-01-15T08"),
            ("working", "working", "2024-01-15T09"),
        ]
    }
    assert len({identifier[-32:] for identifier in ids}) == 3


@pytest.mark.parametrize(
    ("text", "what", "period", "point"),
    [
        (f"message:2024-01-15T08:{HEX}", "message", Period.parse("working", "2024-01-15T08"), None),
        (f"working:2024-01-15T08:{HEX}", "working", Period.parse("working", "2024-01-15T08"), None),
        (f"daily:2024-01-15:{HEX}#0", "daily", Period.parse("daily", "2024-01-15"), 0),
        (f"weekly:2024-W03:{HEX}#12", "weekly", WEEK, 12),
        (f"monthly:2024-01:{HEX}", "monthly", Period.parse("monthly", "2024-01"), None),
        (f"quarterly:2024-Q1:{HEX}", "quarterly", Period.parse("quarterly", "2024-Q1"), None),
        (f"yearly:2024:{HEX}", "yearly", Period.parse("yearly", "2024"), None),
    ],
)
def test_an_id_names_the_partition_of_its_row(text: str, what: str, period: Period, point: int | None) -> None:
    reference = Reference.parse(text)
    assert (reference.id, reference.what, reference.period) == (text.split("#", maxsplit=1)[0], what, period)
    assert reference.point == point


@given(st.sampled_from(["message", *Grain]), st.lists(st.text()))
def test_every_id_can_be_parsed(what: str, parts: list[str]) -> None:
    keys = {"weekly": "2024-W03", "daily": "2024-01-15", "monthly": "2024-01", "quarterly": "2024-Q1", "yearly": "2024"}
    grain = Grain.WORKING if what == "message" else Grain(what)
    period = Period.parse(grain, keys.get(what, "2024-01-15T08"))
    identifier = make_id(what, period, *parts)
    assert Reference.parse(identifier) == Reference(identifier, what, period)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "::",
        "weekly",
        "weekly:2024-W03",
        "weekly:2024-W03:",
        f"weekly:2024-W03:{HEX[:-1]}",
        f"weekly:2024-W03:{HEX}0",
        f"weekly:2024-W03:{HEX.upper()}",
        f"weekly:2024-W03:{HEX[:-1]}g",
        f"weekly:2024-W54:{HEX}",
        f"weekly:2024-01-15:{HEX}",
        f"hourly:2024-01-15T08:{HEX}",
        f"message:2024-01-15:{HEX}",
        f"weekly:2024-W03:{HEX}#x",
        f"weekly:2024-W03:{HEX}#-1",
        f"weekly:2024-W03:{HEX}#1#2",
        f" weekly:2024-W03:{HEX}",
        f"weekly:2024-W03:{HEX}\n",
        f"weekly:2024-W03' OR '1'='1:{HEX}",
        f"weekly:../../other:{HEX}",
        pytest.param("x" * 10**6, id="1 MB"),
        None,
        5,
        b"weekly",
    ],
)
def test_invalid_ids_are_rejected(text: object) -> None:
    with pytest.raises(InputError, match=r"is not valid; expected an id such as weekly:2024-W03:") as refusal:
        Reference.parse(text)
    assert len(str(refusal.value)) < 300
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "tail",
    ["#", "#٣"],
)
def test_a_point_is_a_plain_number(tail: str) -> None:
    with pytest.raises(InputError):
        Reference.parse(f"weekly:2024-W03:{HEX}{tail}")
