"""Filters on rows in memory and in the index's SQL, alone and combined, with any text."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index.filters import Filter, folded
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.index_rows import NOON, Row, by_period, fact, put_rows, scoped, summary, table

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOSTILE = [
    "'", "''", '"', "' OR 1=1 --", "'; DROP TABLE x; --", "\\", "\\'", "a\nb", "a\tb", "%", "_", "100%", "*", "?", "$1",
    "{}", "日本", "🚲", "\x01", "--", "/* */", "NULL", "true", " x ", "O'Brien", "O''Brien", "a" * 256,
]  # fmt: skip
SPEAKERS = ["Anna Lee", "anna lee", "Joanna", "Zoë", "Zoe Ann", "José María", "STRAẞE", "O'Brien", "Ann\nLee", None]
#: Persons whose names differ only in case; another test covers accents.
PLAIN = [*(text for text in HOSTILE if folded(text) == text.casefold()), "Anna Lee", "LEE", "joanna", "Ben", "brien"]


def _rows() -> list[Row]:
    rows = [
        fact(
            f"row {n}",
            n,
            id=f"row {n}",
            conversation=HOSTILE[n % len(HOSTILE)],
            kind=list(FactKind)[n % len(FactKind)],
            speaker=SPEAKERS[n % len(SPEAKERS)],
            importance=[0.0, 1e-05, 0.1, 0.30000000000000004, 0.5, 1.0][n % 6],
            entities=[[], ["Anna Lee"], ["Zoë", "Ben"], [HOSTILE[n % len(HOSTILE)], "x"]][n % 4],
            tags=[[], ["phone"], ["phone", "vip"], [HOSTILE[n % len(HOSTILE)]], ["PHONE"]][n % 5],
        )
        for n in range(60)
    ]
    nulls: Row = {"speaker": None, "conversation_id": None, "tags": None, "entities": None, "mentioned_at": None}
    rows += [summary("a day", 15), summary("another", 16) | nulls]
    rows += [fact(f"earlier {n}", -1, id=f"earlier {n}") | nulls for n in range(2)]
    return rows


ROWS = _rows()
TABLE = table(ROWS)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> VectorIndex:
    index = VectorIndex(Storage(str(tmp_path_factory.mktemp("filters") / "lake")))
    periods = [Period(Grain.WORKING, period) for period in by_period(ROWS)]
    put_rows(index, Grain.WORKING, periods, scoped(ACME, ROWS))
    return index


def in_memory(where: Filter) -> set[str]:
    mask: NDArray[Any] = where.mask(TABLE)
    return {id for id, passes in zip(TABLE["id"].to_pylist(), mask.tolist(), strict=True) if passes}


def on_disk(index: VectorIndex, where: Filter) -> set[str]:
    found: list[str] = index.newest(ACME, Grain.WORKING, where, 1_000)["id"].to_pylist()
    assert index.count(ACME, Grain.WORKING, where) == len(set(found)) == len(found)
    return set(found)


def expected(where: Filter) -> set[str]:
    """Return the ids of the rows that pass, computed in plain Python."""

    def passes(row: Row) -> bool:
        name = None if where.person is None else f" {folded(where.person)} "
        names = [row["speaker"], *(row["entities"] or [])]
        return (
            (where.since is None or row["ends_at"] > where.since or row["starts_at"] == row["ends_at"] == where.since)
            and (where.until is None or row["starts_at"] <= where.until)
            and (where.ends_since is None or row["ends_at"] >= where.ends_since)
            and (where.ends_until is None or row["ends_at"] <= where.ends_until)
            and (where.kind is None or row["kind"] == where.kind)
            and (where.conversation_id is None or row["conversation_id"] == where.conversation_id)
            and (where.minimum_importance is None or row["importance"] >= where.minimum_importance)
            and (where.tag is None or where.tag in (row["tags"] or []))
            and (name is None or any(name in f" {folded(each)} " for each in names if each is not None))
        )

    return {row["id"] for row in ROWS if passes(row)}


times = st.integers(-70, 70).map(lambda minutes: NOON + timedelta(minutes=minutes))
texts = st.sampled_from([*HOSTILE, "phone", "vip", "c"]) | st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=5
)
filters = st.builds(
    Filter,
    since=st.none() | times,
    until=st.none() | times,
    ends_since=st.none() | times,
    ends_until=st.none() | times,
    kind=st.none() | st.sampled_from(FactKind),
    conversation_id=st.none() | texts,
    tag=st.none() | texts,
    minimum_importance=st.none()
    | st.sampled_from([0.0, 1e-05, 0.1, 0.3, 0.30000000000000004, 0.9, 1.0])
    | st.floats(0, 1),
)


@settings(max_examples=examples(120), deadline=None)
@given(where=filters)
def test_the_same_rows_pass_in_memory_and_in_the_index(index: VectorIndex, where: Filter) -> None:
    assert in_memory(where) == on_disk(index, where) == expected(where)


@settings(max_examples=examples(60), deadline=None)
@given(person=st.sampled_from([*HOSTILE, *filter(None, SPEAKERS), "lee", "ZOE", "ann", "ben"]) | texts)
def test_persons_match_whole_words_in_memory(person: str) -> None:
    assert in_memory(Filter(person=person)) == expected(Filter(person=person))


@settings(max_examples=examples(60), deadline=None)
@given(person=st.sampled_from(PLAIN), where=filters)
def test_no_row_that_passes_in_memory_is_missed_by_the_index(index: VectorIndex, person: str, where: Filter) -> None:
    both = Filter(**{field.name: getattr(where, field.name) for field in fields(where)} | {"person": person})
    assert in_memory(both) == expected(both)
    assert on_disk(index, both) >= in_memory(both)


@pytest.mark.parametrize(
    "where",
    [
        Filter(since=NOON + timedelta(minutes=30)),
        Filter(until=NOON + timedelta(minutes=30)),
        Filter(ends_since=NOON + timedelta(minutes=30)),
        Filter(ends_until=NOON + timedelta(minutes=30)),
        Filter(kind=FactKind.EVENT),
        Filter(person="Anna"),
        Filter(conversation_id="' OR 1=1 --"),
        Filter(tag="phone"),
        Filter(minimum_importance=0.5),
    ],
    ids=lambda where: next(field.name for field in fields(where) if getattr(where, field.name) is not None),
)
def test_each_term_passes_some_rows(index: VectorIndex, where: Filter) -> None:
    found = in_memory(where)
    assert 0 < len(found) < len(ROWS)
    assert found == expected(where)
    assert on_disk(index, where) >= found


def test_a_row_must_match_all_terms(index: VectorIndex) -> None:
    row = ROWS[21]
    terms: dict[str, Any] = {
        "since": row["ends_at"],
        "until": row["ends_at"],
        "ends_since": row["ends_at"],
        "ends_until": row["ends_at"],
        "kind": FactKind(row["kind"]),
        "person": row["speaker"],
        "conversation_id": row["conversation_id"],
        "tag": row["tags"][0],
        "minimum_importance": row["importance"],
    }
    assert in_memory(Filter(**terms)) == on_disk(index, Filter(**terms)) == {"row 21"}
    others: dict[str, Any] = {
        "since": row["ends_at"] + timedelta(microseconds=1),
        "until": row["ends_at"] - timedelta(microseconds=1),
        "ends_since": row["ends_at"] + timedelta(microseconds=1),
        "ends_until": row["ends_at"] - timedelta(microseconds=1),
        "kind": FactKind(ROWS[22]["kind"]),
        "person": "nobody",
        "conversation_id": "other",
        "tag": "other",
        "minimum_importance": row["importance"] + 1e-9,
    }
    for name, other in others.items():
        assert in_memory(Filter(**{**terms, name: other})) == on_disk(index, Filter(**{**terms, name: other})) == set()


def test_times_are_compared_to_the_microsecond_in_any_zone(index: VectorIndex) -> None:
    berlin = timezone(timedelta(hours=1))
    at = datetime(2024, 1, 15, 13, 7, tzinfo=berlin)
    for names in (("since", "until"), ("ends_since", "ends_until")):
        exactly: dict[str, Any] = dict.fromkeys(names, at)
        where = Filter(**exactly, kind=FactKind.TURN)
        assert in_memory(where) == on_disk(index, where) == {"row 7"}
        exactly = dict.fromkeys(names, at + timedelta(microseconds=1))
        later = Filter(**exactly, kind=FactKind.TURN)
        assert in_memory(later) == on_disk(index, later) == set()


def test_a_summary_passes_if_any_of_its_period_lies_in_the_range(index: VectorIndex) -> None:
    day, tick = datetime(2024, 1, 16, tzinfo=UTC), timedelta(microseconds=1)
    for since, until, passes in (
        (day, day + timedelta(days=1) - tick, True),
        (day + timedelta(days=1) - tick, None, True),
        (day + timedelta(days=1), None, False),
        (None, day, True),
        (None, day - tick, False),
    ):
        where = Filter(since=since, until=until)
        assert ("daily:16:another" in in_memory(where)) == passes
        assert on_disk(index, where) == in_memory(where)


@pytest.mark.parametrize("year", [1, 999, 1000, 1900, 9999])
def test_times_of_any_year_can_be_compared(index: VectorIndex, year: int) -> None:
    where = Filter(since=datetime(year, 1, 1, tzinfo=UTC))
    assert len(in_memory(where)) == len(on_disk(index, where)) == (0 if year == 9999 else len(ROWS))


@pytest.mark.parametrize("name", ["person", "conversation_id", "tag"])
def test_hostile_texts_neither_break_nor_widen_a_filter(index: VectorIndex, name: str) -> None:
    other = fact("other", id="other", conversation="c", tags=["t"], speaker="s")
    for text in HOSTILE:
        row = fact("own", id="own", conversation=text, tags=[text], speaker=text)
        terms: dict[str, Any] = {name: text}
        where = Filter(**terms)
        assert where.mask(table([row, other])).tolist() == [True, False]
        assert on_disk(index, where) < {row["id"] for row in ROWS}


@pytest.mark.parametrize(
    ("person", "names"),
    [
        ("Anna", ["Anna Lee", "anna lee"]),
        ("LEE", ["Anna Lee", "anna lee", "Ann\nLee"]),
        ("Anna Lee", ["Anna Lee", "anna lee"]),
        ("Lee Anna", []),
        ("Ann", ["Zoe Ann", "Ann\nLee"]),
        ("zoe", ["Zoë", "Zoe Ann"]),
        ("ZOË", ["Zoë", "Zoe Ann"]),
        ("Jose Maria", ["José María"]),
        ("María", ["José María"]),
        ("straße", ["STRAẞE"]),
        ("Brien", []),
        ("o'brien", ["O'Brien"]),
        ("oann", []),
    ],
)
def test_a_person_matches_by_one_word_without_case_and_accents(person: str, names: list[str]) -> None:
    rows = table([fact("x", n, speaker=name) for n, name in enumerate(SPEAKERS)])
    mask = Filter(person=person).mask(rows)
    assert [name for name, passes in zip(SPEAKERS, mask, strict=True) if passes] == names
    named = table([fact("x", n, speaker=None, entities=["Nobody", name]) for n, name in enumerate(SPEAKERS) if name])
    assert [name for name, passes in zip(SPEAKERS, Filter(person=person).mask(named), strict=False) if passes] == names


def test_rows_without_speaker_conversation_or_tags_fail_filters_on_them(index: VectorIndex) -> None:
    rows = table([summary("Anna", 15), summary("x", 16) | {"tags": None, "entities": None}])
    for where in (Filter(person="Anna"), Filter(conversation_id="c"), Filter(tag="t")):
        assert where.mask(rows).tolist() == [False, False]
        assert not {row["id"] for row in ROWS if row["speaker"] is None and not row["entities"]} & on_disk(index, where)
    assert Filter(person="Anna").mask(table([summary("x") | {"entities": ["Anna Lee"]}])).tolist() == [True]


def test_filters_accept_empty_and_chunked_tables() -> None:
    where = Filter(since=NOON, kind=FactKind.TURN, person="Anna", conversation_id="c", tag="t", minimum_importance=0.1)
    assert where.mask(table([])).tolist() == []
    assert where.mask(TABLE.slice(0, 0)).tolist() == []
    whole = Filter(person="Anna", tag="phone")
    pieces = pa.concat_tables([TABLE.slice(first, 7) for first in range(0, len(ROWS), 7)])
    assert whole.mask(pieces).tolist() == whole.mask(TABLE).tolist()
    assert whole.mask(TABLE.slice(11, 20)).tolist() == whole.mask(TABLE).tolist()[11:31]


@given(st.text(max_size=20))
def test_folding_is_idempotent(text: str) -> None:
    assert folded(folded(text)) == folded(text)
    assert folded(f"  {text}\n") == folded(text)


@settings(max_examples=examples(120), deadline=None)
@given(where=filters)
def test_a_range_that_covers_all_times_passes_all_rows(where: Filter) -> None:
    ends = [row["ends_at"] for row in ROWS]
    first, last = (round(end.timestamp() * 1e6) for end in (min(ends), max(ends)))
    starts = round(min(row["starts_at"] for row in ROWS).timestamp() * 1e6)
    if where.covers(starts, first, last):
        assert len(in_memory(where)) == len(ROWS)
    range_alone = where == Filter(ends_since=where.ends_since, ends_until=where.ends_until)
    if range_alone:
        assert where.covers(starts, first, last) == (len(in_memory(where)) == len(ROWS))
