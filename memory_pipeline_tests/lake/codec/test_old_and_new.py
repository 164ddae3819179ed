"""The codec gives the rows, and the records, that the functions before it gave. It goes with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.conversations import Message, Role, Scope
from memory_pipeline.domain.facts import Fact, FactKind
from memory_pipeline.domain.graph.operations import Operation, Verb
from memory_pipeline.domain.graph.triples import Triple
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.model_calls import Answer, Call, Purpose, Use
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.summaries import KeyPoint, Summary
from memory_pipeline.errors import InputError
from memory_pipeline.lake.codec import calls, facts, graph, memories, old_calls, old_facts, old_graph, old_memories
from memory_pipeline_tests.domain.memories.histories import ACME, histories

TEXT = st.text(max_size=12)
SOME = st.none() | TEXT
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))])
TIME = st.datetimes(datetime(2001, 1, 2), datetime(2030, 1, 1), timezones=ZONES)  # noqa: DTZ001  # as it asks for
SCORE = st.floats(0, 1)
SMALL = st.integers(0, 2**31 - 1)
SCOPES = st.builds(Scope, st.sampled_from(["acme", "a.b"]), st.sampled_from(["support", "x-1"]))
OPERATIONS = st.builds(
    Operation,
    st.sampled_from(Verb),
    TEXT,
    TEXT,
    TEXT,
    SCORE,
    st.lists(TEXT, min_size=1, max_size=3).map(tuple),
    TIME,
    st.none() | SCORE,
    SOME,
    SMALL,
    SMALL,
)
MESSAGES = st.builds(
    Message, TEXT, SCOPES, TEXT, SOME, TEXTS, SOME, SMALL, st.sampled_from(Role), SOME, TEXT, TIME, TIME
)
FACTS = st.builds(
    Fact,
    TEXT,
    SCOPES,
    st.sampled_from(FactKind),
    TEXT,
    TEXT,
    st.sampled_from(Role),
    TEXTS,
    SCORE,
    SCORE,
    TEXT,
    TEXTS,
    SMALL,
    SMALL,
    TIME,
    st.none() | TIME,
    TEXTS,
    TEXT,
    st.lists(OPERATIONS, max_size=3).map(tuple),
    st.none() | st.sampled_from(MemoryKind),
    st.booleans(),
    SOME,
    SOME,
    SOME,
    SOME,
    SOME,
    SOME,
    SOME,
)
POINTS = st.builds(KeyPoint, TEXT, TEXTS, TIME, SCORE, TEXTS)
PERIODS = st.sampled_from(
    [Period(Grain.DAILY, "2024-01-15"), Period(Grain.WEEKLY, "2024-W03"), Period(Grain.YEARLY, "2024")]
)
SUMMARIES = st.builds(
    Summary,
    TEXT,
    SCOPES,
    PERIODS,
    TIME,
    TIME,
    TEXT,
    st.lists(POINTS, max_size=3).map(tuple),
    TEXTS,
    SCORE,
    TEXTS,
    TEXT,
    SMALL,
    SMALL,
    TEXT,
    TEXTS,
    st.none() | SCORE,
    SOME,
    SOME,
    SOME,
    SOME,
)
TRIPLES = st.builds(
    Triple,
    TEXT.map(lambda own: f"graph:2024-01-15T08:{own}"),
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    SCORE,
    SCORE,
    TIME,
    st.none() | TIME,
    SOME,
    TEXTS,
    SOME,
    TIME,
)
USES = st.builds(Use, SCOPES, PERIODS)
CALLS = st.builds(
    Call,
    TEXT,
    TEXT,
    TEXT,
    USES,
    st.sampled_from(Purpose),
    TEXT,
    SOME,
    SMALL,
    SMALL,
    SMALL,
    st.none() | SCORE,
    SCORE,
    TEXT,
    TIME,
)
ANSWERS = st.builds(Answer, TEXT, USES, st.sampled_from(Purpose), TEXT, SOME, TEXT, SMALL, SMALL, st.none() | SCORE)
SIZES = st.sampled_from([1, 40])
FULL = settings(max_examples=300, deadline=None)


def same(old: pa.Table, new: pa.Table) -> pa.Table:
    new.validate(full=True)
    assert new.schema.equals(old.schema, check_metadata=True)
    assert new.equals(old)
    return pa.concat_tables([new, new.slice(0, 0), new.slice(1)])


@FULL
@given(st.lists(MESSAGES, max_size=4), SIZES)
def test_messages(own: list[Message], times: int) -> None:
    rows = same(old_facts.messages_to_rows(own * times), facts.messages_to_rows(own * times))
    assert facts.rows_to_messages(rows) == old_facts.rows_to_messages(rows)


@FULL
@given(st.lists(FACTS, max_size=4), SIZES)
def test_facts(own: list[Fact], times: int) -> None:
    rows = same(old_facts.facts_to_rows(own * times), facts.facts_to_rows(own * times))
    assert repr(facts.rows_to_facts(rows)) == repr(old_facts.rows_to_facts(rows))
    for name in ("durable", "is_point_in_time", "role", "operations", "subject"):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(name), pa.nulls(len(rows), rows.schema.field(name).type))
    assert repr(facts.rows_to_facts(rows)) == repr(old_facts.rows_to_facts(rows))
    for row in rows.to_pylist():
        assert facts.row_operations(row) == old_facts.row_operations(row)


@FULL
@given(st.lists(FACTS, max_size=3))
def test_operations_of_a_row(own: list[Fact]) -> None:
    for row in facts.facts_to_rows(own).to_pylist():
        assert repr(facts.row_operations(row)) == repr(old_facts.row_operations(row))


@FULL
@given(st.lists(SUMMARIES, max_size=4), SIZES)
def test_summaries(own: list[Summary], times: int) -> None:
    rows = same(old_facts.summaries_to_rows(own * times), facts.summaries_to_rows(own * times))
    assert repr(facts.rows_to_summaries(rows)) == repr(old_facts.rows_to_summaries(rows))
    name = "source_digests"
    place = rows.schema.get_field_index(name)
    rows = rows.set_column(place, rows.schema.field(name), pa.nulls(len(rows), rows.schema.field(name).type))
    assert repr(facts.rows_to_summaries(rows)) == repr(old_facts.rows_to_summaries(rows))


@FULL
@given(st.dictionaries(SCOPES, st.lists(OPERATIONS, max_size=4)), st.booleans(), SIZES)
def test_operations(own: dict[Scope, list[Operation]], are_edits: bool, times: int) -> None:
    rows = same(
        old_graph.operations_to_rows(own, are_edits=are_edits), graph.operations_to_rows(own, are_edits=are_edits)
    )
    rows = pa.concat_tables([rows] * times)
    assert repr(graph.rows_to_operations(rows)) == repr(old_graph.rows_to_operations(rows))
    assert graph.operations_digest(rows) == old_graph.operations_digest(rows)


@FULL
@given(st.lists(TRIPLES, max_size=4), SIZES)
def test_triples(own: list[Triple], times: int) -> None:
    rows = same(old_graph.triples_to_rows(ACME, own * times, "d"), graph.triples_to_rows(ACME, own * times, "d"))
    assert repr(graph.rows_to_triples(rows)) == repr(old_graph.rows_to_triples(rows))


@FULL
@given(histories(), st.booleans(), SIZES)
def test_events_and_memories(events: list[Any], are_edits: bool, times: int) -> None:
    base = [event for event in events if not event.is_upkeep]
    rows = same(
        memories.events_to_rows(base, are_edits=are_edits), old_memories.events_to_rows(base, are_edits=are_edits)
    )
    assert repr(memories.rows_to_events(rows)) == repr(old_memories.rows_to_events(rows))
    nightly = [event for event in events if event.is_upkeep]
    nights = {event.event_at: Period(Grain.DAILY, "2024-01-15") for event in nightly}
    rows = same(memories.upkeep_to_rows(nightly, nights), old_memories.upkeep_to_rows(nightly, nights))
    assert repr(memories.rows_to_events(rows)) == repr(old_memories.rows_to_events(rows))
    ids = [event.id for event in events]
    assert memories.events_digest(ids) == old_memories.events_digest(ids)
    found = fold_events(events)
    rows = same(old_memories.memories_to_rows(ACME, found, "d", {}), memories.memories_to_rows(ACME, found, "d", {}))
    assert repr(memories.rows_to_memories(rows)) == repr(old_memories.rows_to_memories(rows))
    for row in rows.to_pylist():
        assert repr(memories.row_to_memory(row)) == repr(old_memories.row_to_memory(row))


VALUES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | st.text() | st.just([]) | TIME
)


@FULL
@given(
    CALLS,
    st.dictionaries(
        st.sampled_from([*Call.__dataclass_fields__, "grain", "period", "workspace_id"]), VALUES, max_size=2
    ),
)
def test_calls(call: Call, wrong: dict[str, Any]) -> None:
    row = old_calls.call_to_row(call)
    assert calls.call_to_row(call) == row
    assert {name: type(value) for name, value in calls.call_to_row(call).items()} == {
        name: type(value) for name, value in row.items()
    }
    assert repr(calls.row_to_call(row)) == repr(old_calls.row_to_call(row))
    compare(calls.row_to_call, old_calls.row_to_call, row | wrong)
    compare(calls.row_to_call, old_calls.row_to_call, {name: row[name] for name in row if name not in wrong})


@FULL
@given(ANSWERS, st.dictionaries(st.sampled_from([*Answer.__dataclass_fields__, "grain", "answer"]), VALUES, max_size=2))
def test_answers(answer: Answer, wrong: dict[str, Any]) -> None:
    row = old_calls.answer_to_row(answer)
    assert calls.answer_to_row(answer) == row
    compare(calls.row_to_answer, old_calls.row_to_answer, row | wrong)
    compare(calls.row_to_answer, old_calls.row_to_answer, {name: row[name] for name in row if name not in wrong})


def compare(new: Any, old: Any, row: dict[str, Any]) -> None:
    try:
        expected = repr(old(row))
    except InputError as error:
        with pytest.raises(InputError) as caught:
            new(row)
        assert str(caught.value) == str(error)  # noqa: PT017  # of the other one
    else:
        assert repr(new(row)) == expected
