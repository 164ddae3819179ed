"""Arguments of a search: valid ones become a filter, invalid ones an error that names them."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Calendar, Grain
from memory_pipeline.domain.values import count_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.filters import Filter
from memory_pipeline.reader import MemoryReader
from memory_pipeline.search.arguments import filter_of, validate_query
from memory_pipeline_tests.building import ACME

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.models.factory import Models

NOON = datetime(2024, 3, 15, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
NAIVE = datetime.fromisoformat("2024-03-01T08:00")
NAN, INFINITY = float("nan"), float("inf")
LABELS = ("person", "conversation_id", "tag")


def _cases(names: str, expected: str, *values: Any) -> list[tuple[str, Any, str]]:
    return [(name, value, expected) for name in names.split() for value in values]


#: An argument, its value, and the rest of the message.
REFUSED = [
    *_cases(
        "grain", "accepted: working, daily, weekly, monthly, quarterly, yearly",
        "hourly", "Working", "", " daily", None, 0, True, [], "'; DROP TABLE x", "\x00", "\ud800", "x" * 1_000_000,
    ),
    *_cases(
        "minimum_days_ago maximum_days_ago", "is not a number of days",
        True, False, None, "7", "", b"7", [7], {}, 1j, Decimal(7), Fraction(7), timedelta(days=7), NAN, INFINITY,
        -INFINITY, np.int64(7),
    ),
    *_cases(
        "minimum_days_ago maximum_days_ago", "accepted: 0 to 36525", -1, -0.001, 36_526, 36_525.5, 1e300, 10**30
    ),
    *_cases(
        "max_results", "expected 1 to 100",
        0, -1, 101, 10**30, True, False, None, "10", 10.0, NAN, [10], Decimal(10), np.int64(10),
    ),
    *_cases("offset", "expected 0 to 10,000", -1, 10_001, True, False, None, "0", 0.0, NAN, []),
    *_cases(
        "minimum_importance", "expected 0 to 1",
        -0.01, 1.01, -1, 2, 10**30, NAN, INFINITY, True, False, "0.5", "", [0.5], Decimal("0.5"), Fraction(1, 2), 1j,
    ),
    *_cases(
        "kind", "accepted: turn, statement, event, plan, preference, instruction, gist",
        "summary", "TURN", "", " turn", "turn ", 0, True, [], {}, ("turn",), b"turn", "' OR 1=1 --", "\x00", "\ud800",
        "x" * 1_000_000, Grain.DAILY,
    ),
    *_cases(
        " ".join(LABELS), "expected a text of 1 to 256 characters",
        "", " ", "\t\n", "x" * 257, "é" * 257, "x" * 1_000_000, 7, 0, True, False, b"Anna", [], ["Anna"], {}, object,
    ),
    *_cases(
        "since until", "is neither a date nor a time",
        0, 1, True, False, 1_700_000_000.0, NAN, [], (2024, 1, 1), b"2024-01-01", NOON.time(),
        timedelta(days=1), np.datetime64("2024-01-01"),
    ),
    *_cases("since until", "cannot be read; expected a date such as", "", "yesterday", "2024-13-01", "2024", "\ud800"),
    *_cases(
        "query", "expected a text of at most 10,000 characters",
        0, 5, True, False, b"Porto", ["Porto"], {}, NAN, "x" * 10_001, " " * 10_001, "é" * 1_000_000,
    ),
    *_cases("query", "is not valid Unicode text", "\ud800", "Porto \udfff", "\ude00\ud83d"),
]  # fmt: skip


@pytest.fixture
def reader(root: str, models: Models) -> MemoryReader:
    return MemoryReader(Lake(root), ACME, models.embedder)


def filtered(calendar: Calendar | None = None, now: datetime = NOON, **options: Any) -> Filter:
    """Return the filter of a search with these arguments and defaults for the others."""
    ages = {"minimum_days_ago": 0, "maximum_days_ago": 365, "grain": Grain.WORKING}
    given = {name: options.pop(name, default) for name, default in ages.items()}
    return filter_of(calendar or Calendar(), now, options, **given)  # type: ignore[arg-type]  # any arguments


def refused(ask: Callable[..., object], name: str, value: object, **options: Any) -> str:
    """Return the message with which a call refuses a value of an argument."""
    with pytest.raises(InputError) as raised:
        ask(**{"now": NOON, **options, name: value})
    assert str(raised.value).startswith(f"{name} {shown(value)}")
    return str(raised.value)


@pytest.mark.parametrize("argument", dict.fromkeys(name for name, *_ in REFUSED))
def test_errors_name_the_argument_the_value_and_the_remedy(reader: MemoryReader, argument: str) -> None:
    for name, value, expected in REFUSED:
        if name == argument:
            message = refused(reader.search_memory, name, value)
            assert expected in message
            assert len(message) < 500
            assert message.isprintable()


def test_recall_rejects_the_same_arguments(reader: MemoryReader) -> None:
    for name, value, expected in [
        *[case for case in REFUSED if case[0] in ("since", "until", "person", "tag", "minimum_importance")],
        *[("max_tokens", value, "expected 1 to 1,000,000") for value in (0, -1, 1_000_001, True, None, "9", 9.0, NAN)],
    ]:
        assert expected in refused(reader.recall, name, value, query="Porto")


def test_recall_needs_a_question_that_is_a_text(reader: MemoryReader) -> None:
    blank: list[Any] = ["", " ", "\t\n", "\x00", "\x00 \x00", "\u2003", None]
    for query in blank:
        with pytest.raises(InputError, match="query is blank; expected a question"):
            reader.recall(query, now=NOON)
    for query in (5, True, b"Porto", "x" * 10_001, "\ud800"):
        with pytest.raises(InputError, match=rf"query.* {re.escape(shown(query))} "):
            reader.recall(query, now=NOON)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["now", "since", "until"])
def test_a_time_without_its_zone_is_refused(reader: MemoryReader, name: str) -> None:
    options: dict[str, Any] = {"now": NOON, name: NAIVE}
    for ask in (reader.search_memory, lambda **options: reader.recall("Porto", **options)):
        with pytest.raises(InputError, match=f"^{name} 2024-03-01T08:00:00 has no time zone"):
            ask(**options)


@pytest.mark.parametrize("name", ["now", "since", "until"])
def test_a_time_may_be_a_text(reader: MemoryReader, name: str) -> None:
    for text in ("2024-03-01", "20240301", "2024-03-01T08:00:00Z", " 2024-03-01 09:00+01:00"):
        options: dict[str, Any] = {"now": NOON, name: text}
        assert reader.search_memory(**options) == []
        assert reader.recall("Porto", **options) == []
    naive: dict[str, Any] = {"now": NOON, name: "2024-03-01T08:00:00"}
    with pytest.raises(InputError, match=f"^{name} 2024-03-01T08:00:00 has no time zone; expected a date such as"):
        reader.search_memory(**naive)


def test_a_clock_in_distant_years_is_rejected(reader: MemoryReader) -> None:
    for year in (1, 1900, 2999, 3000, 9999):
        with pytest.raises(InputError, match=r"^now .* is outside the years 1901 to 2998"):
            reader.search_memory(now=datetime(year, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("since", "until"),
    [
        (date(2024, 1, 2), date(2024, 1, 1)),
        (NOON, NOON - timedelta(microseconds=1)),
        (date(2024, 3, 16), NOON),
        (NOON, date(2024, 3, 14)),
        (NOON.astimezone(BERLIN) + timedelta(seconds=1), NOON),
    ],
)
def test_since_after_until_is_refused(reader: MemoryReader, since: Any, until: Any) -> None:
    message = re.escape(f"since {since} is later than until {until}")
    with pytest.raises(InputError, match=message):
        reader.search_memory(since=since, until=until, now=NOON)
    with pytest.raises(InputError, match=message):
        reader.recall("Porto", since=since, until=until, now=NOON)


def test_minimum_age_must_not_exceed_maximum_age(reader: MemoryReader) -> None:
    with pytest.raises(InputError, match=r"minimum_days_ago 9 is greater than maximum_days_ago 8\.5"):
        reader.search_memory(minimum_days_ago=9, maximum_days_ago=8.5)


VALID: list[dict[str, Any]] = [
    *[{"grain": grain} for grain in Grain],
    *[{"grain": grain.value} for grain in Grain],
    *[{"kind": kind} for kind in FactKind],
    *[{"kind": kind.value} for kind in FactKind],
    *[{"max_results": number} for number in (1, 100)],
    *[{"offset": number} for number in (0, 1, 10_000)],
    *[{"minimum_days_ago": days, "maximum_days_ago": days} for days in (0, 0.0, 0.5, 1e-9, 36_525, np.float64(3))],
    *[{"minimum_importance": number} for number in (0, 1, 0.0, 1.0, 0.5, 5e-324, np.float64(0.5))],
    *[{name: text} for name in LABELS for text in ("x", "x" * 256, "日本", "🚲", "O'Brien", "' OR 1=1 --", "a;b\\")],
    *[{name: None} for name in (*LABELS, "kind", "minimum_importance", "since", "until", "query")],
    *[{"query": text} for text in ("", " ", "x", "x" * 10_000, "\x00", "é" * 10_000, "'\"\\;--", "\u202e")],
    {"since": NOON, "until": NOON},
    {"since": date(2024, 3, 15), "until": date(2024, 3, 15)},
    {"since": date(2030, 1, 1)},
    {"until": date(1970, 1, 1)},
    {"now": NOON.astimezone(BERLIN)},
]


def test_valid_arguments_return_nothing_from_an_empty_lake(reader: MemoryReader) -> None:
    for options in VALID:
        hits = reader.search_memory(**{"now": NOON, **options})
        assert (hits, hits.total, hits.offset) == ([], 0, options.get("offset", 0)), options


def test_the_last_year_is_searched_by_default() -> None:
    assert filtered() == Filter(ends_since=NOON - timedelta(days=365), ends_until=NOON)


def test_only_the_clock_of_the_reader_may_be_behind() -> None:
    before = datetime.now(UTC)
    found = filter_of(Calendar(), None, {}).ends_until
    assert found is not None
    assert before + timedelta(hours=24) <= found <= datetime.now(UTC) + timedelta(hours=24)


def test_ages_count_back_from_now() -> None:
    found = filtered(minimum_days_ago=1.5, maximum_days_ago=30)
    assert found == Filter(ends_since=NOON - timedelta(days=30), ends_until=NOON - timedelta(hours=36))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Auckland"])
@pytest.mark.parametrize("day", [date(2024, 3, 15), date(2024, 3, 31), date(2024, 10, 27), date(2024, 2, 29)])
def test_a_date_is_the_whole_day_of_the_lakes_zone(zone: str, day: date) -> None:
    found = filtered(Calendar(zone), datetime(2025, 1, 1, tzinfo=UTC), since=day, until=day)
    assert found.since is not None
    assert found.until is not None
    # Hours are in UTC; a day begins with the first hour that begins in it.
    begins = datetime.combine(day, datetime.min.time(), ZoneInfo(zone)).astimezone(UTC)
    assert timedelta(0) <= found.since - begins < timedelta(hours=1)
    following = filtered(Calendar(zone), datetime(2025, 1, 1, tzinfo=UTC), since=day + timedelta(days=1)).since
    assert found.until + timedelta(microseconds=1) == following


def test_times_keep_their_instant_in_any_zone() -> None:
    since = datetime(2024, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    until = datetime(2024, 1, 1, 1, 0, 0, 7, tzinfo=BERLIN)
    assert filtered(since=since, until=until) == Filter(
        since=datetime(2024, 1, 1, tzinfo=UTC),
        until=datetime(2024, 1, 1, 0, 0, 0, 7, tzinfo=UTC),
        ends_until=NOON,
    )


def test_since_and_until_replace_ages() -> None:
    options: dict[str, Any] = {"minimum_days_ago": 3, "maximum_days_ago": 9}
    assert filtered(**options, since=NOON - timedelta(days=20)) == Filter(
        since=NOON - timedelta(days=20), ends_until=NOON - timedelta(days=3)
    )
    assert filtered(**options, until=NOON) == Filter(ends_since=NOON - timedelta(days=9), until=NOON, ends_until=NOON)


@pytest.mark.parametrize(
    ("grain", "now", "last"),
    [
        ("daily", "2025-01-09T23:59", "2025-01-09"),
        ("daily", "2025-01-10T00:00", "2025-01-10"),
        ("weekly", "2025-01-09T12:00", "2025-01-06"),
        ("monthly", "2025-02-02T12:00", "2025-01-01"),  # the month holds the week that ends on 2 February
        ("monthly", "2025-02-03T00:00", "2025-02-01"),
        ("yearly", "2025-12-31T23:00", "2025-01-01"),
    ],
)
def test_no_summary_is_older_than_the_end_of_its_period(grain: str, now: str, last: str) -> None:
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert filtered(now=at, grain=Grain(grain)).ends_until == datetime.fromisoformat(last).replace(tzinfo=UTC)


def test_labels_kinds_and_importance_are_unchanged() -> None:
    found = filtered(kind="plan", person=" Zoë ", conversation_id="c 1", tag="T", minimum_importance=1)
    assert (found.kind, found.person, found.conversation_id, found.tag) == (FactKind.PLAN, " Zoë ", "c 1", "T")
    assert isinstance(found.minimum_importance, float)


def test_a_query_is_stripped_and_a_blank_one_counts_as_none() -> None:
    assert {validate_query(text) for text in ("Porto", " Porto\n", "\x00Porto\x00", "\tPorto\x00 ")} == {"Porto"}
    assert {validate_query(text) for text in (None, "", " ", "\n\t\r", "\x00", " \x00 ", "\u2028")} == {None}
    assert validate_query("é" * 10_000) == "é" * 10_000


def test_query_text_is_accepted_as_the_earlier_name_of_query() -> None:
    assert validate_query(None, " Porto ") == "Porto"
    with pytest.raises(InputError, match="query and query_text are both given"):
        validate_query("Porto", "Porto")


def test_a_query_of_a_megabyte_is_refused_at_once(reader: MemoryReader) -> None:
    started = time.perf_counter()
    for ask in (lambda text: reader.search_memory(query=text), reader.recall):
        with pytest.raises(InputError, match=r"query.* \(1,000,000 characters\) is not accepted"):
            ask("Where is Bruno? " * 62_500)
    assert time.perf_counter() - started < 20


@given(st.text(st.characters(codec=None), max_size=30))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    try:
        found = validate_query(text)
    except InputError as error:
        assert any("\ud800" <= character <= "\udfff" for character in text)
        assert "query" in str(error)  # noqa: PT017  # either answer is right
    else:
        assert found is None or (found == found.strip() != "" and "\x00" not in found)


@given(st.integers(), st.integers(-5, 5), st.integers(0, 5))
def test_a_count_within_its_bounds_is_unchanged(value: int, least: int, more: int) -> None:
    if least <= value <= least + more:
        assert count_of("offset", value, least, least + more) == value
    else:
        with pytest.raises(InputError, match=f"^offset {value} is not accepted; expected {least} to {least + more}"):
            count_of("offset", value, least, least + more)


anything = (
    st.none()
    | st.booleans()
    | st.integers(-(10**300), 10**300)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3)
    | st.lists(st.integers(), max_size=2)
    | st.dates(date(1000, 1, 1), date(2999, 1, 1))
    | st.datetimes(datetime(1000, 1, 1), datetime(2999, 1, 1))  # noqa: DTZ001
    | st.datetimes(datetime(1000, 1, 1), datetime(2999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(
    ["minimum_days_ago", "maximum_days_ago", "since", "until", "kind", "minimum_importance", *LABELS], anything
)))  # fmt: skip
def test_any_arguments_give_a_filter_or_an_error_that_names_one(options: dict[str, Any]) -> None:
    try:
        found = filtered(**options)
    except InputError as error:
        assert any(str(error).startswith(f"{name} ") for name in options)  # noqa: PT017  # either answer is right
    else:
        if {"since", "until"} <= {name for name, value in options.items() if value is not None}:
            assert found.since is not None
            assert found.until is not None
            assert found.since <= found.until


@pytest.mark.parametrize("now", ["yesterday", 1, 0, "", False, 1_700_000_000.0])
def test_a_clock_must_be_a_time(reader: MemoryReader, now: Any) -> None:
    with pytest.raises(InputError, match="now "):
        reader.search_memory(now=now)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("minimum_days_ago", 10**400),
        ("maximum_days_ago", 10**400),
        ("max_results", 10**5000),
        ("offset", -(10**5000)),
        ("minimum_importance", 10**5000),
        ("kind", 10**5000),
    ],
    ids=["minimum_days_ago", "maximum_days_ago", "max_results", "offset", "minimum_importance", "kind"],
)
def test_numbers_of_any_length_are_refused_by_name(reader: MemoryReader, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{name} "):
        reader.search_memory(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("until", date.max),
        ("since", date.max),
        ("since", datetime.min.replace(tzinfo=timezone(timedelta(hours=2)))),
        ("until", datetime.max.replace(tzinfo=timezone(timedelta(hours=-2)))),
    ],
)
def test_the_ends_of_the_calendar_are_accepted_or_refused(reader: MemoryReader, name: str, value: Any) -> None:
    try:
        assert reader.search_memory(**{"now": NOON, name: value}) == []
    except InputError as error:
        assert str(error).startswith(f"{name} ")  # noqa: PT017  # either answer is right


def test_a_replaced_age_is_not_validated_against_the_other() -> None:
    found = filtered(minimum_days_ago=400, since=date(2020, 1, 1))
    assert found == Filter(since=datetime(2020, 1, 1, tzinfo=UTC), ends_until=NOON - timedelta(days=400))


def test_ages_do_not_depend_on_the_zone_of_now() -> None:
    now = datetime(2024, 4, 1, 6, tzinfo=UTC)  # Berlin's clocks were changed the day before
    assert filtered(now=now.astimezone(BERLIN)) == filtered(now=now)
    assert filtered(now=now.astimezone(BERLIN), maximum_days_ago=30) == filtered(now=now, maximum_days_ago=30)


def test_broken_unicode_in_a_label_is_refused(reader: MemoryReader) -> None:
    for name in LABELS:
        refused(reader.search_memory, name, "Anna \ud800")
