"""Edits of the graph: validation, and their form in the journal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.graph.operations import MAX_TERM, Edit
from memory_pipeline.domain.identity import Reference
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError

AT = datetime(2024, 1, 15, 8, 3, tzinfo=UTC)
RECORD: dict[str, object] = {
    "edit": "UPDATE",
    "workspace_id": "acme",
    "agent_id": "support",
    "subject": "Anna",
    "predicate": "livesIn",
    "object": "Porto",
    "timestamp": AT,
    "received_at": "2024-06-01T00:00:00+00:00",
}


def edit(**fields: object) -> Edit:
    return Edit.from_record({**RECORD, **fields})


def said(own: Edit) -> list[str]:
    return [f"{one.verb} {one}" for one in own.operations]


def test_an_edit_becomes_one_operation_that_cites_it() -> None:
    own = edit()
    assert said(own) == ["UPDATE Anna lives_in Porto"]
    [operation] = own.operations
    assert operation.message_ids == (own.id,)
    assert (operation.event_at, operation.confidence, operation.weight) == (AT, 1.0, None)
    assert operation.conversation_id is None
    assert (own.scope, str(own.hour), own.event_at) == (Scope("acme", "support"), "2024-01-15T08", AT)
    reference = Reference.parse(own.id)
    assert (reference.what, str(reference.period)) == ("edit", "2024-01-15T08")


def test_an_update_with_replaces_deletes_before_it_asserts() -> None:
    own = edit(replaces=" Berlin ")
    assert said(own) == ["DELETE Anna lives_in Berlin", "UPDATE Anna lives_in Porto"]
    assert {one.message_ids for one in own.operations} == {(own.id,)}
    assert said(edit(replaces=None)) == said(edit())
    for blank in ("", " \n"):
        with pytest.raises(InputError, match=r"replaces .* is blank; leave it out"):
            edit(replaces=blank)


@pytest.mark.parametrize("verb", ["INSERT", "DELETE", "ADD"])
def test_only_an_update_accepts_replaces(verb: str) -> None:
    with pytest.raises(InputError, match="replaces 'Berlin' is not accepted with"):
        edit(edit=verb, replaces="Berlin")


def test_only_a_delete_without_an_object_deletes_everything() -> None:
    own = edit(edit="delete", object=None)
    assert (said(own), own.operations[0].object) == (["DELETE Anna lives_in "], "")
    assert Edit.from_record(own.to_record()) == own
    for verb, value in (("INSERT", None), ("UPDATE", None), ("DELETE", ""), ("DELETE", "  "), ("INSERT", "")):
        with pytest.raises(InputError, match=r"^object "):
            edit(edit=verb, object=value)


def test_names_are_kept_on_one_line() -> None:
    own = edit(subject=" the  user\n", object="New\tYork\r\nCity\u2028Hall")
    assert said(own) == ["UPDATE User lives_in New York City Hall"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("edit", "UPSERT", "operation 'UPSERT' is unknown"),
        ("edit", None, "edit None is unknown"),
        ("edit", 5, "edit 5 is unknown"),
        ("edit", ["INSERT"], "edit "),
        ("subject", None, "subject '' is not valid"),
        ("subject", 5, "subject 5 is not a text"),
        ("subject", "x" * (MAX_TERM + 1), r"subject 'x+'… \(301 characters\) is not valid"),
        ("subject", "a\x00b", "subject .* control characters"),
        ("subject", "\x1b[2J", "subject .* control characters"),
        ("object", "a\x7f", "object .* control characters"),
        ("object", "\ud800", "object .* not valid Unicode"),
        ("object", b"Porto", "object .* is not a text"),
        ("predicate", "", "predicate '' is not valid"),
        ("predicate", "!?", "predicate '' is not valid"),
        ("predicate", None, "predicate '' is not valid"),
        ("predicate", "x" * 301, "predicate "),
        ("replaces", 5, "replaces 5 is not a text"),
        ("replaces", "x" * 301, "object "),
        ("timestamp", None, "timestamp None"),
        ("timestamp", "2024-01-15", "timestamp .* time zone"),
        ("timestamp", datetime(2024, 1, 15), "timestamp .* time zone"),  # noqa: DTZ001  # on purpose
        ("timestamp", "0001-01-01T00:00:00+00:00", "."),
        ("received_at", "now", "received_at 'now' cannot be read"),
        ("workspace_id", "", "workspace_id "),
        ("agent_id", "a\nb", "agent_id .* is not valid"),
        ("agent_id", None, "agent_id None"),
    ],
)
def test_invalid_fields_are_named(field: str, value: object, reason: str) -> None:
    with pytest.raises(InputError, match=f"^{reason}") as refused:
        edit(**{field: value})
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("field", ["weight", "confidence"])
@pytest.mark.parametrize("value", [-0.001, 1.001, 5, 10**400, float("nan"), float("inf"), True, "0.5", [0.5]])
def test_weight_and_confidence_outside_0_to_1_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"^{field} .* expected 0 to 1"):
        edit(**{field: value})


@pytest.mark.parametrize("value", [0, 1, 0.0, 0.25, 1.0, -0.0])
def test_weight_and_confidence_from_0_to_1_are_accepted(value: float) -> None:
    [operation] = edit(weight=value, confidence=value).operations
    assert (operation.weight, operation.confidence) == (value, value)


def test_a_null_confidence_is_refused() -> None:
    with pytest.raises(InputError, match=r"^confidence None"):
        edit(confidence=None)


def test_an_edit_round_trips_through_json() -> None:
    for own in (edit(), edit(replaces="Berlin", weight=0.5), edit(edit="DELETE", object=None), edit(confidence=0.25)):
        line = json.dumps(own.to_record(), ensure_ascii=False)
        assert Edit.from_record(json.loads(line)) == own


_TERM = st.text(min_size=1, max_size=MAX_TERM)


@given(
    _TERM,
    _TERM,
    _TERM,
    st.one_of(st.none(), _TERM),
    st.floats(0, 1),
    st.timedeltas(timedelta(0), timedelta(days=9_999)),
)
def test_any_edit_round_trips_or_is_rejected(
    subject: str, predicate: str, value: str, replaces: str | None, weight: float, later: timedelta
) -> None:
    fields = {"subject": subject, "predicate": predicate, "object": value, "replaces": replaces, "weight": weight}
    try:
        own = edit(**fields, timestamp=AT + later)
    except InputError:
        return
    line = json.dumps(own.to_record(), ensure_ascii=False)
    assert "\n" not in line
    assert line.encode()
    assert Edit.from_record(json.loads(line)) == own


def test_an_id_depends_on_content_time_and_agent_not_on_arrival() -> None:
    own = edit()
    assert edit(received_at="2025-01-01T00:00:00+00:00").id == own.id
    assert edit(timestamp=AT.astimezone(timezone(timedelta(hours=5)))) == own
    assert edit(timestamp=AT.isoformat(), unknown="ignored") == own
    assert edit(predicate="lives in").id == edit(edit=" update ").id == own.id
    others: list[dict[str, Any]] = [
        {"edit": "INSERT"},
        {"edit": "DELETE"},
        {"subject": "anna"},
        {"predicate": "likes"},
        {"object": "Rome"},
        {"replaces": "Rome"},
        {"weight": 1.0},
        {"confidence": 0.5},
        {"timestamp": AT + timedelta(microseconds=1)},
        {"agent_id": "sales"},
        {"workspace_id": "zeta"},
    ]
    assert len({own.id, *(edit(**other).id for other in others)}) == len(others) + 1
