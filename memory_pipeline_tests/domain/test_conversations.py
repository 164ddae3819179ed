"""Validation of conversations: every rejection names the expected values."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain import conversations
from memory_pipeline.domain.conversations import Admission, Rejection, unread_times
from memory_pipeline.domain.messages import MAX_CONTENT, Message, NothingSaidError, Role
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.scopes import MAX_ID, Scope, scope_key
from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.errors import InputError

NOW = datetime(2024, 6, 1, tzinfo=UTC)
ADMISSION = Admission(start=date(2024, 1, 1), now=NOW)
AT = "2024-01-15T08:03:00+00:00"
NAIVE = datetime.fromisoformat("2024-01-15T08:03:00")

Record = dict[str, Any]


def scope_of(workspace_id: str, agent_id: str, identity: str) -> Scope:
    return Scope(workspace_id, agent_id, identity, scope_key("secret", workspace_id, agent_id, identity))


read_messages = partial(conversations.read_messages, scope_of=scope_of)

#: Invalid labels and names.
UNPRINTABLE = [
    "",
    " ",
    "a\x00b",
    "a\nb",
    "a\rb",
    "a\tb",
    "\x1b[2J",
    "a\x7fb",
    "a\x85b",
    "a\u2028b",
    "a\u2029b",
    "\ud800",
    pytest.param("x" * 10_000_000, id="10 MB"),
]
#: Ids that would break a path, a query or a name of a file, if they got into one.
HOSTILE_IDS = [
    *(".", "..", "../x", "a/../b", "/etc/passwd", "a\\b", "C:\\x", ".hidden", "con", "a.", "agent:main", "O'Brien"),
    *('say "hi"', "`id`", "x' OR '1'='1", "a~b", "a%2e", "{0}", "é", "１", " a", "a\u202eb", "🏳️‍🌈", "x" * 256),
]
#: JSON values of other types.
WRONG_TYPES = [5, 1.5, True, [], ["a"], {}, b"a"]


def message(**fields: object) -> Record:
    """Return a valid message with other `fields`; ... removes a field."""
    record: Record = {"role": "user", "content": "I moved to Porto.", "timestamp": AT, **fields}
    return {key: value for key, value in record.items() if value is not ...}


def conversation(*messages: object, **fields: object) -> Record:
    record: Record = {"workspace_id": "acme", "agent_id": "support", "conversation_id": "call", **fields}
    return {
        "messages": list(messages or [message()]),
        **{key: value for key, value in record.items() if value is not ...},
    }


def accepted(*messages: object, admission: Admission = ADMISSION, **fields: Any) -> list[Message]:
    found, rejected, _ = read_messages(conversation(*messages, **fields), admission)
    assert rejected == []
    return found


def refusal(*messages: object, admission: Admission = ADMISSION, **fields: Any) -> Rejection:
    """Return the only rejection of a conversation without accepted messages."""
    found, rejected, _ = read_messages(conversation(*messages, **fields), admission)
    assert found == []
    assert len(rejected) == 1
    assert rejected[0].reason.isprintable()
    assert len(rejected[0].reason) < 400
    return rejected[0]


# --- accepted --------------------------------------------------------------------------------------------------------


def test_a_message_inherits_the_fields_of_its_conversation() -> None:
    [read] = accepted(
        message(id="m1", name="Anna", timestamp="2024-01-15T08:03:00+01:00"), user_id="u-17", tags=["phone", "b", "b"]
    )
    assert read.scope == scope_of("acme", "support", "user:u-17")
    assert (read.conversation_id, read.user_id, read.tags) == ("call", "u-17", ("b", "phone"))
    assert (read.source_id, read.name, read.role, read.turn) == ("m1", "Anna", Role.USER, 0)
    assert (read.content, read.speaker) == ("I moved to Porto.", "Anna")
    assert (read.sent_at, read.received_at) == (datetime(2024, 1, 15, 7, 3, tzinfo=UTC), NOW)
    assert str(read.hour) == "2024-01-15T07"


def test_ids_never_change() -> None:
    [named] = accepted(message(id="m1", name="Anna"))
    [unnamed] = accepted(message(name="Anna"))
    assert named.id == "message:2024-01-15T08:37fa0f7f559947e10acb1b364ab42f72"
    assert unnamed.id == "message:2024-01-15T08:031412d6615ca3aacda91e57234356b2"


def test_optional_fields_may_be_missing_or_null() -> None:
    [bare] = accepted(message())
    [nulls] = accepted(message(id=None, name=None), user_id=None, tags=None)
    assert bare == nulls
    assert (bare.user_id, bare.tags, bare.source_id, bare.name) == (None, (), None, None)


def test_all_roles_are_kept_but_only_messages_of_people_and_agents_are_memorable() -> None:
    read = accepted(*(message(role=role, id=role) for role in ("user", "assistant", "system", "tool")))
    assert [each.role.value for each in read if each.role.is_memorable] == ["user", "assistant"]
    assert [each.speaker for each in read] == ["User", "Agent", "System", "Tool"]


@pytest.mark.parametrize(
    "timestamp",
    [
        "2024-01-15T08:03:00Z",
        "2024-01-15T08:03Z",
        "2024-01-15 08:03:00+00:00",
        "2024-01-15T09:03:00+01:00",
        "2024-01-15T13:48:00+05:45",
        "2024-01-14T20:03:00-12:00",
        "20240115T080300Z",
        datetime(2024, 1, 15, 8, 3, tzinfo=UTC),
        datetime(2024, 1, 15, 22, 3, tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_equal_times_in_any_notation_give_one_message(timestamp: object) -> None:
    assert accepted(message(timestamp=timestamp))[0].id == accepted(message())[0].id


@pytest.mark.parametrize(
    "content",
    [
        "yes",
        "Ω≈ç√ 你好 🙂 \u202eright to left",
        "it's \"quoted\" `code` ../../etc \\ 'x' OR 1=1 --",
        "two\nlines\r\n\tand a tab \u2028\x85\x0b",
        pytest.param("x" * MAX_CONTENT, id="longest"),
    ],
)
def test_a_text_may_contain_any_unicode(content: str) -> None:
    assert accepted(message(content=content))[0].content == content


@pytest.mark.parametrize("identifier", ["a", "u-17", "2024-01-15 call", "Zoë", "你好", "a.b:c@d#1", "x" * MAX_ID])
def test_ordinary_ids_are_accepted(identifier: str) -> None:
    [read] = accepted(message(id=identifier, name=identifier), conversation_id=identifier, user_id=identifier)
    assert {read.source_id, read.name, read.conversation_id, read.user_id} == {identifier}


@pytest.mark.parametrize("name", ["Miles O'Brien", "Jeanne d'Arc", 'William "Bill" Gates', "Anna / Support"])
def test_people_may_have_any_name(name: str) -> None:
    assert accepted(message(name=name))[0].speaker == name


# --- identity --------------------------------------------------------------------------------------------------------


def test_equal_texts_at_different_times_are_two_messages() -> None:
    read = accepted(message(content="yes"), message(content="yes", timestamp="2024-01-15T08:03:00.000001+00:00"))
    assert [each.content for each in read] == ["yes", "yes"]
    assert read[0].id != read[1].id


def test_an_exact_repetition_is_dropped_if_it_has_an_id_and_else_counted() -> None:
    assert len(accepted(message(id="m1"), message(id="m1"), message(id="m1"))) == 1
    read = accepted(message(occurrence=9), message(), message())
    assert [each.occurrence for each in read] == [None, 2, 3]
    assert len({each.id for each in read}) == 3
    assert read[0] == accepted(message())[0]
    assert [Message.from_record(each.to_record()) for each in read] == read


@pytest.mark.parametrize(
    "other",
    [
        {"content": "I moved to Lisbon."},
        {"role": "assistant"},
        {"name": "Ben"},
        {"timestamp": "2024-01-15T08:04:00+00:00"},
        {"timestamp": "2024-01-15T09:03:00+00:00"},
    ],
)
def test_messages_without_id_are_distinguished_by_content(other: Record) -> None:
    assert len(accepted(message(), message(**other))) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"content": "I moved to Lisbon."},
        {"role": "assistant"},
        {"name": "Ben"},
        {"timestamp": "2024-01-15T08:04:00+00:00"},
        {"timestamp": "2024-01-15T09:03:00+00:00"},
    ],
)
def test_an_id_cannot_be_reused_for_another_message(other: Record) -> None:
    found, rejected, _ = read_messages(conversation(message(id="m1"), message(id="m1", **other)), ADMISSION)
    assert [each.content for each in found] == ["I moved to Porto."]
    assert [each.where for each in rejected] == ["conversation call, message 2"]
    assert "message id 'm1' of conversation 'call' was already " in rejected[0].reason
    assert ("other content" in rejected[0].reason) is ("timestamp" not in other)
    assert "new message a new id" in rejected[0].reason
    if "timestamp" in other:
        assert "sent with the time 2024-01-15T08:03:00+00:00, not 2024-01-15T0" in rejected[0].reason


@pytest.mark.parametrize("other", [{"workspace_id": "other"}, {"agent_id": "other"}, {"conversation_id": "other"}])
@pytest.mark.parametrize("fields", [{"id": "m1"}, {}])
def test_the_same_words_in_another_scope_are_another_message(other: Record, fields: Record) -> None:
    assert accepted(message(**fields))[0].id != accepted(message(**fields), **other)[0].id


def test_an_id_equal_to_the_content_of_another_message_is_distinct() -> None:
    """A message whose id is another's text is not that other."""
    one, other = accepted(message(id="I moved to Porto."), message(content="I moved to Porto."))
    assert one.id != other.id


def test_position_and_reception_do_not_make_another_message() -> None:
    later = Admission(ADMISSION.start, NOW + timedelta(days=1))
    [first] = accepted(message())
    resent = accepted(message(content="Hello."), message(), admission=later)[1]
    assert (resent.id, resent.turn) == (first.id, 1)
    assert first.says_the_same_as(resent)


def test_turns_count_from_zero_and_include_rejected_messages() -> None:
    found, rejected, _ = read_messages(conversation(message(id="a"), message(content=""), message(id="c")), ADMISSION)
    assert [each.turn for each in found] == [0, 2]
    assert [each.where for each in rejected] == ["conversation call, message 2"]


# --- rejected messages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", " \n\t", *(each for each in WRONG_TYPES if each != ["a"])])
def test_a_message_needs_text(content: object) -> None:
    assert "is not valid; expected a text that is not blank" in refusal(message(content=content)).reason


@pytest.mark.parametrize("content", [..., None])
def test_a_missing_text_is_named(content: object) -> None:
    assert "content is missing" in refusal(message(content=content)).reason


def test_the_length_of_a_message_is_limited() -> None:
    reason = refusal(message(content="x" * (MAX_CONTENT + 1))).reason
    assert reason == "content has 1,000,001 characters; accepted: up to 1,000,000 in one message"


@pytest.mark.parametrize("content", ["a\ud800", "\udfffa", "a\x00b"])
def test_a_text_is_unicode(content: str) -> None:
    assert "is not valid Unicode text" in refusal(message(content=content)).reason


@pytest.mark.parametrize(
    "timestamp",
    [
        ...,
        None,
        "",
        "now",
        "yesterday",
        "15.01.2024 08:03",
        "2024-13-15T08:03:00Z",
        "2024-02-30T08:03:00Z",
        "2024-01-15T08:60:00Z",
        "٢٠٢٤-01-15T08:03:00Z",
        " 2024-01-15T08:03:00Z",
        "2024-01-15T08:03:00Z\n",
        "2024-01-15T08:03:00+25:00",
        "\x00",
        "\ud800",
        pytest.param("2024-01-15T08:03:00Z" * 500_000, id="10 MB"),
        1705305780,
        1705305780.0,
        True,
        [],
        {},
        date(2024, 1, 15),
        b"2024-01-15T08:03:00Z",
    ],
)
def test_a_message_needs_a_time(timestamp: object) -> None:
    reason = refusal(message(timestamp=timestamp)).reason
    assert reason.startswith("timestamp ")
    assert "expected an ISO 8601 time with its zone, such as 2024-01-15T08:30:00+01:00" in reason


@pytest.mark.parametrize(
    "key", ["created_at", "createdAt", "date", "ts", "time", "sent_at", "create_time", "sentAt", "created", "dateTime"]
)
@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("2024-01-15T08:03:00Z", AT),
        ("2024-01-15T09:03:00+01:00", AT),
        (datetime(2024, 1, 15, 8, 3, tzinfo=UTC), AT),
        (1705305780, AT),
        (1705305780.5, "2024-01-15T08:03:00.500000+00:00"),
        (1705305780500, "2024-01-15T08:03:00.500000+00:00"),
        ("1705305780.000200", "2024-01-15T08:03:00.000200+00:00"),
        ("2024-01-15T08:03:00", None),  # without a zone
        ("2024-01-15", None),
        (NAIVE, None),
        ("yesterday", None),
        ("2050-01-15T08:03:00Z", None),  # in the future
        ("1950-01-15T08:03:00Z", None),  # before the first day
        (17, None),
        (True, None),
        (float("nan"), None),
        (10**400, None),
        ({"seconds": 1705305780}, None),
    ],
)
def test_another_key_may_have_the_time_if_it_is_unambiguous(key: str, value: object, read: str | None) -> None:
    record = message(timestamp=..., **{key: value})
    assert unread_times([record], ADMISSION) == (() if read else (key,))
    if read is None:
        assert refusal(record).reason.startswith("timestamp None")
        record["timestamp"] = AT
    assert accepted(record)[0].sent_at == datetime.fromisoformat(read or AT)


def test_a_timestamp_precedes_other_times_and_the_best_key_others() -> None:
    times: Record = {"date": "2024-01-16T00:00:00Z", "created_at": AT, "updatedAt": AT, "expires_at": 17, "id": "m1"}
    assert accepted(message(timestamp=..., **times))[0].sent_at == datetime.fromisoformat(AT)
    assert unread_times([message(timestamp=..., **times)], ADMISSION) == ("date", "expires_at", "updatedAt")
    assert accepted(message(timestamp="2024-01-17T00:00:00Z", **times))[0].sent_at == datetime(2024, 1, 17, tzinfo=UTC)
    assert refusal(message(timestamp="soon", created_at=AT)).reason.startswith("timestamp 'soon' cannot be read")
    others: Record = {"status": "sent", "parts_count": 1, "format": "markdown", "lifetime": 3, "created_by": "ava"}
    assert unread_times([message(**others), "no message"], ADMISSION) == ()


@pytest.mark.parametrize("timestamp", ["2024-01-15T08:03:00", "2024-01-15", NAIVE])
def test_a_time_needs_its_zone(timestamp: object) -> None:
    assert "has no time zone; expected an ISO 8601 time with its zone" in refusal(message(timestamp=timestamp)).reason


@pytest.mark.parametrize(
    "timestamp",
    [
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",  # before the first instant that a datetime can hold in UTC
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-14:00",
        "1900-06-01T00:00:00Z",
        "2999-06-01T00:00:00Z",
    ],
)
def test_a_time_outside_the_supported_years_is_refused(timestamp: str) -> None:
    assert "is outside the years 1901 to 2998" in (reason := refusal(message(timestamp=timestamp)).reason) or (
        reason.startswith("timestamp ") and "is out of range" in reason
    )


@pytest.mark.parametrize("role", [..., None, "", "User", "USER", "human", "user ", *WRONG_TYPES])
def test_a_role_is_one_of_four(role: object) -> None:
    assert "accepted: user, assistant, system, tool" in refusal(message(role=role)).reason


@pytest.mark.parametrize("value", [*UNPRINTABLE, *WRONG_TYPES])
def test_an_unprintable_message_id_is_refused(value: object) -> None:
    assert refusal(message(id=value)).reason.startswith("id ")


@pytest.mark.parametrize("value", [*UNPRINTABLE, *WRONG_TYPES])
def test_names_that_cannot_be_printed_are_refused(value: object) -> None:
    assert refusal(message(name=value)).reason.startswith("name ")


@pytest.mark.parametrize("value", [None, "hello", 5, [], b"x"])
def test_a_message_is_an_object(value: object) -> None:
    assert refusal(value).reason.startswith("a message must be an object, not ")


@pytest.mark.parametrize("day", ["2023-12-31T23:59:59Z", "2018-01-01T00:00:00Z"])
def test_an_error_about_a_message_before_the_first_day_names_the_setting(day: str) -> None:
    reason = refusal(message(timestamp=day)).reason
    assert "is before the first day of this memory, 2024-01-01" in reason
    assert "set it to an earlier 1 January that is a Monday, such as 2018-01-01" in reason


def test_the_first_moment_of_the_memory_is_accepted() -> None:
    assert str(accepted(message(timestamp="2024-01-01T00:00:00Z"))[0].hour) == "2024-01-01T00"


def test_the_first_day_begins_in_the_zone_of_the_memory() -> None:
    berlin = Admission(ADMISSION.start, NOW, Calendar("Europe/Berlin"))
    assert accepted(message(timestamp="2023-12-31T23:00:00Z"), admission=berlin)
    assert "before the first day" in refusal(message(timestamp="2023-12-31T22:59:59Z"), admission=berlin).reason
    assert "before the first day" in refusal(message(timestamp="2023-12-31T23:00:00Z")).reason


def test_a_message_may_be_up_to_a_day_in_the_future() -> None:
    assert accepted(message(timestamp=(NOW + timedelta(hours=24)).isoformat()))
    reason = refusal(message(timestamp=(NOW + timedelta(hours=24, seconds=1)).isoformat())).reason
    assert reason == (
        "timestamp 2024-06-02T00:00:01+00:00 is in the future (now is 2024-06-01T00:00:00+00:00); "
        "accepted: up to 24 hours ahead"
    )


def test_one_invalid_message_does_not_reject_the_others() -> None:
    bad = message(id="m2", timestamp="2024-01-15T08:03:00")
    found, [rejection], _ = read_messages(conversation(message(id="m1"), bad, message(id="m3"), tags=["t"]), ADMISSION)
    assert [each.source_id for each in found] == ["m1", "m3"]
    assert rejection.where == "conversation call, message 2"
    assert rejection.record == conversation(bad, tags=["t"])  # so it can be corrected and sent alone


# --- rejected conversations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "hello", 5, [], [{}], b"x"])
def test_a_conversation_is_an_object(value: object) -> None:
    [rejection] = read_messages(value, ADMISSION).rejected
    assert rejection.reason.startswith("a conversation must be an object, not ")
    assert rejection.record is value


@pytest.mark.parametrize("messages", [..., None, [], (), "", "hello", b"hello", {}, {"0": {}}, 5])
def test_a_conversation_needs_messages(messages: object) -> None:
    record = conversation() | {"messages": messages}
    if messages is ...:
        del record["messages"]
    found, [rejection], _ = read_messages(record, ADMISSION)
    assert found == []
    assert rejection.reason.startswith("messages must be a list of at least one message, not ")
    assert rejection.where == "conversation call"


@pytest.mark.parametrize("field", ["workspace_id", "agent_id"])
@pytest.mark.parametrize("value", [..., None, *UNPRINTABLE, *WRONG_TYPES, "x" * 257])
def test_an_unprintable_id_of_an_agent_or_workspace_is_refused(field: str, value: Any) -> None:
    assert refusal(**{field: value}).reason.startswith(f"{field} ")


@pytest.mark.parametrize("value", HOSTILE_IDS)
def test_ids_are_opaque(value: str) -> None:
    ids: Record = dict.fromkeys(("workspace_id", "agent_id", "conversation_id", "user_id"), value)
    (found,) = accepted(message(id=value), **ids, tags=[value])
    assert (found.scope.ids, found.conversation_id, found.user_id) == ((value, value, f"user:{value}"), value, value)
    assert (found.source_id, found.tags) == (value, (value,))


@pytest.mark.parametrize("value", [..., None, *UNPRINTABLE, *WRONG_TYPES])
def test_an_unprintable_conversation_id_is_refused(value: object) -> None:
    rejection = refusal(conversation_id=value)
    assert rejection.reason.startswith("conversation_id ")
    assert rejection.where == "conversation"  # the id is not repeated in a trusted place


@pytest.mark.parametrize("value", [*UNPRINTABLE, *WRONG_TYPES])
def test_an_unprintable_user_id_is_refused(value: object) -> None:
    assert refusal(user_id=value).reason.startswith("user_id ")


@pytest.mark.parametrize("value", ["phone", 5, {"a": 1}, b"x", ["a", None], ["a\n"], [["a"]]])
def test_tags_are_a_list_of_labels(value: object) -> None:
    assert refusal(tags=value).reason.startswith("tags ")


def test_messages_cannot_override_the_ids_of_their_conversation() -> None:
    """A message must not enter another agent's memory."""
    sneaky = message(
        workspace_id="other", agent_id="other", conversation_id="other", turn=99, received_at="x", tags=["x"]
    )
    [read] = accepted(sneaky)
    assert (read.scope, read.conversation_id, read.turn, read.received_at) == (Scope("acme", "support"), "call", 0, NOW)
    assert read.tags == ()


json_values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(AT) | st.just("user"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    header=st.dictionaries(
        st.sampled_from(["workspace_id", "agent_id", "conversation_id", "user_id", "tags", "messages"]), json_values
    ),
    messages=st.lists(
        st.dictionaries(st.sampled_from(["id", "role", "name", "content", "timestamp"]), json_values) | json_values,
        max_size=4,
    ),
)
def test_every_message_is_accepted_dropped_or_rejected(header: Record, messages: list[object]) -> None:
    """For any JSON."""
    found, rejected, _ = read_messages(conversation(*messages, **header), ADMISSION)
    assert all(rejection.reason for rejection in rejected)
    assert found or rejected
    for each in found:
        assert Message.from_record(each.to_record(), scope_of) == each


# --- journal records -------------------------------------------------------------------------------------------------

labels = st.text(
    st.characters(exclude_characters="\"'`/\\.", exclude_categories=("C", "Zl", "Zp")), min_size=1, max_size=9
)
contents = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), min_size=1).filter(str.strip)
times = st.datetimes(
    NAIVE.replace(year=1950),
    NAIVE.replace(year=2100),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9.5))]),
)


@given(content=contents, name=st.none() | labels.filter(str.strip), tags=st.lists(labels.filter(str.strip)), at=times)
def test_a_record_round_trips(content: str, name: str | None, tags: list[str], at: datetime) -> None:
    admission = Admission(date(1900, 1, 1), datetime(2101, 1, 1, tzinfo=UTC))
    [read] = accepted(message(content=content, name=name, timestamp=at), tags=tags, admission=admission)
    assert read.sent_at == at
    assert read.content == content
    assert Message.from_record(read.to_record(), scope_of) == read


@pytest.mark.parametrize("turn", [None, -1, 1.0, "0", 2**31])
def test_a_record_needs_its_position(turn: object) -> None:
    [read] = accepted(message())
    with pytest.raises(InputError, match=r"turn .* is not accepted; expected 0 to"):
        Message.from_record(read.to_record() | {"turn": turn}, scope_of)


def test_the_id_is_always_computed() -> None:
    [read] = accepted(message())
    forged = read.to_record() | {"content": "I moved to Lisbon."}
    assert Message.from_record(forged, scope_of).id != read.id


# --- recalled memory -------------------------------------------------------------------------------------------------

BLOCK = mark("- [2024-01-14] Anna: I live in Lisbon.")


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("content", [f"{BLOCK}\n\nI moved.", f"I moved.\n\n{BLOCK}", f"{BLOCK}I moved.{BLOCK[:-9]}"])
def test_recalled_memory_of_any_role_is_dropped_and_counted(role: str, content: str) -> None:
    read = read_messages(conversation(message(content=content, role=role)), ADMISSION)
    assert [each.content for each in read.messages] == ["I moved."]
    assert (read.rejected, read.recalled) == ([], 1)


@pytest.mark.parametrize("fields", [{"id": "m1"}, {}])
def test_a_message_is_the_same_with_and_without_a_block(fields: Record) -> None:
    plain = message(**fields)
    assert accepted(plain | {"content": f"{BLOCK}\n\n{plain['content']}"}) == accepted(plain)


@pytest.mark.parametrize("content", ["  I moved.\n ", "What is a recalled-memory tag?\n\n"])
def test_a_message_without_a_block_keeps_its_white_space(content: str) -> None:
    read = read_messages(conversation(message(content=content)), ADMISSION)
    assert [each.content for each in read.messages] == [content]
    assert read.recalled == 0


@pytest.mark.parametrize("other", [{}, {"role": "robot"}, {"timestamp": None}, {"id": ""}])
def test_a_message_of_recalled_memory_alone_is_dropped(other: Record) -> None:
    records = [message(id="a"), message(content=BLOCK) | other, message(id="c")]
    found, rejected, recalled = read_messages(conversation(*records), ADMISSION)
    assert [(each.source_id, each.turn) for each in found] == [("a", 0), ("c", 2)]
    assert (rejected, recalled) == ([], 1)
    assert read_messages(conversation(records[1], records[1]), ADMISSION) == ([], [], 2)


def test_a_dropped_message_does_not_occupy_its_id() -> None:
    read = read_messages(conversation(message(id="m1", content=BLOCK), message(id="m1")), ADMISSION)
    assert [each.content for each in read.messages] == ["I moved to Porto."]
    assert read.rejected == []


def test_recalled_memory_does_not_count_toward_the_length() -> None:
    long = "x" * (MAX_CONTENT - 10)
    read = read_messages(conversation(message(content=f"{long}\n{mark(long)}\x00 cut")), ADMISSION)
    assert "is not valid Unicode text" in read.rejected[0].reason
    read = read_messages(conversation(message(content=f"{long}\n{mark(long)}")), ADMISSION)
    assert ([each.content for each in read.messages], read.recalled) == ([long], 1)


def test_a_rejected_message_is_kept_unchanged() -> None:
    bad = message(content=f"{BLOCK}\nI moved.", timestamp=None)
    [rejection] = read_messages(conversation(bad), ADMISSION).rejected
    assert rejection.record == conversation(bad)


def test_recalled_memory_is_removed_from_journal_lines_too() -> None:
    [read] = accepted(message())
    record = read.to_record()
    assert Message.from_record(record | {"content": f"I moved to Porto.\n\n{BLOCK}"}, scope_of) == read
    with pytest.raises(NothingSaidError, match="only recalled memory"):
        Message.from_record(record | {"content": BLOCK}, scope_of)


@pytest.mark.parametrize(
    ("fields", "offset"),
    [
        ({"timestamp": "2024-01-16T07:00:00+09:00"}, 540),
        ({"timestamp": "2024-01-15T14:00:00-08:00"}, -480),
        ({"timestamp": datetime(2024, 1, 15, 22, tzinfo=timezone(timedelta(hours=5, minutes=45)))}, 345),
        # A program writes the times of all speakers in UTC.
        ({"timestamp": "2024-01-15T22:00:00Z"}, None),
        ({"timestamp": "2024-01-15T22:00:00+00:00"}, None),
        ({"timestamp": "2024-01-15T22:00:00Z", "utc_offset": 540}, 540),
        ({"timestamp": "2024-01-15T22:00:00Z", "utc_offset": 0}, 0),
    ],
)
def test_a_message_keeps_the_offset_of_its_speaker(fields: Record, offset: int | None) -> None:
    (found,) = accepted(message(**fields))
    assert found.utc_offset == offset
    assert Message.from_record(found.to_record()) == found


def test_a_time_with_another_offset_is_the_same_message() -> None:
    tokyo, utc = (accepted(message(timestamp=at))[0] for at in ("2024-01-16T07:00:00+09:00", "2024-01-15T22:00:00Z"))
    assert tokyo.id == utc.id
    assert tokyo.says_the_same_as(utc)


@pytest.mark.parametrize(
    ("fields", "offset"),
    [
        ({}, 60),
        ({"timezone": "America/Los_Angeles"}, -480),
        ({"timezone": "UTC"}, 0),
        ({"timezone": None}, 60),
    ],
)
def test_a_time_without_an_offset_is_the_users_or_the_agents(fields: Record, offset: int) -> None:
    ones = [message(timestamp="2024-01-15T22:00:00Z"), message(timestamp="2024-01-16T07:00:00+09:00", id="m2")]
    read = read_messages(conversation(*ones, **fields), ADMISSION, zone_of=lambda _: "Europe/Berlin")
    assert [one.utc_offset for one in read.messages] == [offset, 540]


@pytest.mark.parametrize("value", ["Mars/Base", "", 5, "../UTC", ["UTC"]])
def test_an_unknown_time_zone_is_named(value: object) -> None:
    assert refusal(timezone=value).reason.startswith("timezone ")


@pytest.mark.parametrize("value", ["540", 1.5, True, 1440, -1440])
def test_an_invalid_offset_is_named(value: object) -> None:
    assert refusal(message(utc_offset=value)).reason.startswith("utc_offset ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda own: st.lists(own, max_size=3) | st.dictionaries(st.text(max_size=5), own, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_metadata_comes_back_or_is_refused(metadata: dict[str, Any]) -> None:
    found, rejected, _ = read_messages(conversation(message(metadata=metadata)), ADMISSION)
    if rejected:
        text = json.dumps(metadata)
        assert "\\u0000" in text or "\\ud" in text or text.count("[") + text.count("{") > 10
        return
    [one] = found
    assert (json.loads(one.metadata) if one.metadata else {}) == metadata
    assert Message.from_record(json.loads(json.dumps(one.to_record()))) == one


@pytest.mark.parametrize(
    "value",
    [
        "text", ["a"], 5, {"a": math.nan}, {"a": math.inf}, {"a": {1: 2}}, {"a": {"b", "c"}}, {"a": "\x00"},
        {"a": "\ud800"}, {"\ud800": 1}, {"a": "x" * 8_200}, json.loads('{"a":' * 11 + "1" + "}" * 11),
        {"a": [[[[[[[[[[1]]]]]]]]]]}, {"a": datetime(2024, 1, 1, tzinfo=UTC)},
    ],
)  # fmt: skip
def test_metadata_that_cannot_be_stored_is_named(value: object) -> None:
    reason = refusal(message(metadata=value)).reason
    assert reason.startswith("metadata ")
    assert reason.endswith("expected a JSON object, up to 8,192 characters and 10 levels deep")


def test_source_and_redactions_are_kept() -> None:
    [one] = accepted(message(redactions=["api_key", "email", "api_key"]), source="cron:nightly")
    assert (one.source, one.redactions) == ("cron:nightly", ("api_key", "email"))
    assert Message.from_record(one.to_record()) == one
    [bare] = accepted(message())
    assert (bare.source, bare.metadata, bare.redactions) == (None, None, ())


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"source": 5}, "source 5 "), ({"source": "a\nb"}, "source 'a\\nb' "), ({"source": ""}, "source '' ")],
)
def test_an_invalid_source_is_named(fields: Record, said: str) -> None:
    assert refusal(**fields).reason.startswith(said)


@pytest.mark.parametrize("value", ["api_key", [5], ["a\nb"], ["x"] * 101])
def test_invalid_redactions_are_named(value: object) -> None:
    assert refusal(message(redactions=value)).reason.startswith("redactions ")
