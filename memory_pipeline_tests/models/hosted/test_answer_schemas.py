"""Parsers of models' answers: accepted items, rejected items, and invalid answers."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.models.hosted.answer_schemas import (
    MOST_NAMES,
    ExtractionAnswer,
    NamesAnswer,
    OrderAnswer,
    SummaryAnswer,
    read_answer,
    schema_of,
)
from memory_pipeline.models.hosted.transport.requests import InvalidAnswerError

FACT: dict[str, Any] = {
    "content": "Anna lives in Porto.",
    "kind": "statement",
    "importance": 0.5,
    "confidence": 0.9,
    "entities": ["Anna"],
    "date": None,
    "messages": [1],
}
OPERATION: dict[str, Any] = {
    "operation": "ADD",
    "subject": "Anna",
    "predicate": "is aged",
    "object": "40",
    "confidence": 1,
    "messages": [1],
    "known": 1,
}
#: Optional fields of a fact.
WORKING: dict[str, Any] = {
    "durable": None,
    "point_in_time": False,
    "subject": None,
    "predicate": None,
    "object": None,
}
KEPT: dict[str, Any] = {
    "durable": "fact",
    "point_in_time": True,
    "subject": "Anna",
    "predicate": "lives_in",
    "object": "Porto",
}
POINT: dict[str, Any] = {"sentence": "Anna moved.", "sources": [1], "importance": 0.5}

#: Invalid values for fields of any type.
HOSTILE: list[object] = [
    None,
    True,
    [],
    {},
    [[1]],
    {"a": 1},
    "",
    " \n",
    "\x1f",
    "\u200b",
    "\x00",
    "\ud800",
    -1,
    2,
    1.5,
    10**400,
    [0],
]
HOSTILE += [["x"], [1.5], [-1], [None], "inf", "NaN"]


def read_extraction(text: str) -> tuple[str, list[Any], list[Any], int]:
    answer, refused = read_answer(ExtractionAnswer, text)
    return answer.summary, answer.facts, answer.operations, refused


def read_points(text: str) -> tuple[list[Any], int]:
    answer, refused = read_answer(SummaryAnswer, text)
    return answer.points, refused


def read_names(text: str) -> list[str]:
    return read_answer(NamesAnswer, text)[0].names


def read_order(text: str) -> list[int]:
    return read_answer(OrderAnswer, text)[0].order


def extraction(*facts: object, operations: object = (), **more: object) -> str:
    return json.dumps({"summary": "They spoke.", "facts": facts, "operations": operations} | more)


def test_a_valid_answer_is_accepted_whole() -> None:
    summary, facts, operations, refused = read_extraction(extraction(FACT, operations=[OPERATION]))
    assert (summary, refused) == ("They spoke.", 0)
    assert [fact.model_dump() for fact in facts] == [FACT | WORKING]
    assert [operation.model_dump() for operation in operations] == [OPERATION]
    points, refused = read_points(json.dumps({"points": [POINT]}))
    assert ([point.model_dump() for point in points], refused) == ([POINT], 0)


@pytest.mark.parametrize("verb", ["insert", "Add", " UPDATE ", "dElete"])
def test_verbs_are_read_in_any_case(verb: str) -> None:
    _, _, [operation], refused = read_extraction(extraction(operations=[{**OPERATION, "operation": verb}]))
    assert (operation.operation, refused) == (verb.strip().upper(), 0)


def test_numbers_become_texts_where_a_text_is_expected() -> None:
    given = {**OPERATION, "subject": 7, "object": 40.5}
    _, [fact], [operation], refused = read_extraction(extraction({**FACT, "entities": [1984]}, operations=[given]))
    assert (fact.entities, operation.subject, operation.object, refused) == (["1984"], "7", "40.5", 0)


def test_texts_are_put_on_one_line() -> None:
    _, [fact], _, _ = read_extraction(extraction({**FACT, "content": " Anna\n lives\x85in\u2028 Porto. "}))
    assert fact.content == "Anna lives in Porto."
    summary, _, _, _ = read_extraction(extraction(summary=" They\n spoke. " + "x" * 3_000))
    assert summary.startswith("They spoke. x")
    assert len(summary) == 2_000


@pytest.mark.parametrize("field", FACT)
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:12])
def test_a_bad_value_rejects_only_its_own_fact(field: str, value: object) -> None:
    sound = [FACT, {**FACT, "content": "Another."}]
    _, facts, _, refused = read_extraction(extraction(*sound, {**FACT, field: value}))
    assert [fact.content for fact in facts[:2]] == ["Anna lives in Porto.", "Another."]
    assert len(facts) + refused == 3
    for fact in facts:
        fact.model_dump_json().encode()  # so a table can store it
        assert fact.content.strip()
        assert 0 <= fact.importance <= 1
        assert 0 <= fact.confidence <= 1
        assert all(number >= 1 for number in fact.messages)


@pytest.mark.parametrize("field", OPERATION)
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:12])
def test_a_bad_value_rejects_only_its_own_operation(field: str, value: object) -> None:
    _, _, operations, refused = read_extraction(extraction(operations=[OPERATION, {**OPERATION, field: value}]))
    assert operations[0].model_dump() == OPERATION
    assert len(operations) + refused == 2
    for operation in operations:
        operation.model_dump_json().encode()
        assert operation.subject.strip()
        assert operation.predicate.strip()


@pytest.mark.parametrize("field", POINT)
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:12])
def test_a_bad_value_rejects_only_its_own_point(field: str, value: object) -> None:
    points, refused = read_points(json.dumps({"points": [POINT, {**POINT, field: value}]}))
    assert points[0].model_dump() == POINT
    assert len(points) + refused == 2
    for point in points:
        point.model_dump_json().encode()
        assert point.sentence.strip()
        assert all(number >= 1 for number in point.sources)


def test_a_missing_field_rejects_the_item_and_an_extra_one_is_ignored() -> None:
    for name in FACT:
        _, facts, _, refused = read_extraction(extraction(FACT, {key: FACT[key] for key in FACT if key != name}))
        assert (len(facts), refused) == (1, 1)
    _, [fact], _, refused = read_extraction(extraction({**FACT, "because": "I say so"}))
    assert (fact.model_dump(), refused) == (FACT | WORKING, 0)


def test_durable_fields_of_a_fact_are_read() -> None:
    _, facts, _, refused = read_extraction(extraction(FACT | KEPT, FACT | WORKING | {"object": 40}))
    assert [fact.model_dump() for fact in facts] == [FACT | KEPT, FACT | WORKING | {"object": "40"}]
    assert ([fact.durable_kind for fact in facts], refused) == ([MemoryKind.FACT, None], 0)
    for kind in ("rule", " Instruction ", "PREFERENCE", "decision", "procedure", "observation"):
        _, [fact], _, _ = read_extraction(extraction(FACT | KEPT | {"durable": kind}))
        assert fact.durable_kind is MemoryKind(kind.strip().lower())


@pytest.mark.parametrize("field", WORKING)
@pytest.mark.parametrize("value", [*HOSTILE, "tool_output", "yes", 1e30, "a\ud800"], ids=lambda value: repr(value)[:12])
def test_bad_durable_fields_do_not_reject_the_fact(field: str, value: object) -> None:
    _, [fact], _, refused = read_extraction(extraction(FACT | KEPT | {field: value}))
    assert (fact.content, refused) == (FACT["content"], 0)
    fact.model_dump_json().encode()
    if field == "point_in_time":
        assert fact.point_in_time is (value is True)
    elif field == "durable":
        assert fact.durable is None
    else:
        assert getattr(fact, field) is None or getattr(fact, field).strip()


def test_the_last_of_duplicate_keys_counts() -> None:
    text = extraction(FACT).replace('"importance": 0.5', '"importance": 0.1, "importance": 0.7')
    assert read_extraction(text)[1][0].importance == 0.7


def test_numbers_out_of_range_are_rejected() -> None:
    for name in ("importance", "confidence", "messages"):
        bad = json.dumps({**FACT, name: "?"}).replace('"?"', "[1e999]" if name == "messages" else "1e999")
        text = extraction(FACT).replace(json.dumps([FACT]), f"[{json.dumps(FACT)}, {bad}]")
        _, facts, _, refused = read_extraction(text)
        assert (len(facts), refused) == (1, 1)


@pytest.mark.parametrize(("sound", "wrong", "is_taken"), [(1, 0, True), (2, 2, True), (2, 3, False), (0, 1, False)])
def test_an_answer_with_more_invalid_than_valid_items_is_invalid(sound: int, wrong: int, is_taken: bool) -> None:
    items = [*[POINT] * sound, *[{**POINT, "sources": []}] * wrong]
    if is_taken:
        assert read_points(json.dumps({"points": items}))[1] == wrong
    else:
        with pytest.raises(InvalidAnswerError, match=f"item {sound + 1}, sources: .*at least 1 item"):
            read_points(json.dumps({"points": items}))


def test_facts_and_operations_are_counted_together() -> None:
    bad = {**FACT, "kind": "gist"}
    assert read_extraction(extraction(bad, bad, operations=[OPERATION, OPERATION]))[3] == 2
    with pytest.raises(InvalidAnswerError, match="item 1, kind"):
        read_extraction(extraction(bad, bad, operations=[OPERATION]))


def test_correction_reasons_are_few_and_contain_no_values() -> None:
    text = extraction(*[{**FACT, "importance": "sk-secret"}] * 1_000)
    with pytest.raises(InvalidAnswerError) as caught:
        read_extraction(text)
    assert len(str(caught.value)) < 1_000
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "No.",
        "{}",
        '{"facts": {}, "operations": [], "summary": "s"}',
        '{"facts": [], "operations": {}, "summary": "s"}',
        '{"facts": [], "operations": null, "summary": "s"}',
        '{"facts": [], "operations": [], "summary": ["s"]}',
        '{"facts": "none", "operations": [], "summary": "s"}',
        '{"facts": [1, 2], "operations": [], "summary": "s"}',
    ],
)
def test_an_extraction_without_its_structure_is_invalid(text: str) -> None:
    with pytest.raises(InvalidAnswerError):
        read_extraction(text)


@pytest.mark.parametrize("points", ["[]", "{}", "null", '"none"', "[[]]", "[null, null]"])
def test_a_summary_without_points_is_invalid(points: str) -> None:
    with pytest.raises(InvalidAnswerError):
        read_points(f'{{"points": {points}}}')


def test_an_answer_without_facts_is_valid() -> None:
    assert read_extraction('{"facts": []}') == ("", [], [], 0)


def test_lone_surrogates_in_a_summary_are_replaced() -> None:
    assert read_extraction(extraction(summary="Anna \ud83d smiled \ud83d\ude00."))[0] == "Anna ? smiled 😀."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*FACT, *OPERATION, *POINT]), inner),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["summary", "facts", "operations", "points"]), JSON))
def test_any_object_is_read_or_invalid(answer: dict[str, Any]) -> None:
    text = json.dumps(answer)
    with suppress(InvalidAnswerError):
        summary, facts, operations, refused = read_extraction(text)
        assert len(facts) + len(operations) + refused == len(answer["facts"]) + len(answer.get("operations", []))
        summary.encode()
    with suppress(InvalidAnswerError):
        points, refused = read_points(text)
        assert len(points) + refused == len(answer["points"])


def test_schemas_contain_no_titles_and_docstrings() -> None:
    for answer in (ExtractionAnswer, SummaryAnswer):
        text = json.dumps(schema_of(answer))
        assert '"title"' not in text
        assert "what it is asked for" not in text
        assert "in a model's answer" not in text  # no docstrings
        assert '"description"' not in text  # the prompt explains the fields
    schema = schema_of(ExtractionAnswer)
    assert schema["required"] == ["summary", "facts", "operations"]
    fact = schema["$defs"]["FoundFact"]
    assert set(fact["required"]) == set(FACT | WORKING)
    assert "instruction" in json.dumps(fact["properties"]["durable"])
    assert "tool_output" not in json.dumps(fact["properties"]["durable"])
    order = schema_of(OrderAnswer)["properties"]["order"]
    assert order["description"] == "Numbers of the lines, most useful first."
    assert fact["properties"]["content"]["minLength"] == 1
    assert schema["$defs"]["FoundOperation"]["properties"]["operation"]["enum"] == ["INSERT", "ADD", "UPDATE", "DELETE"]


def test_names_and_numbers_are_read_unchanged() -> None:
    assert read_names('{"names": ["Nadia", "Project Atlas"]}') == ["Nadia", "Project Atlas"]
    assert read_order('{"order": [3, 1, 2]}') == [3, 1, 2]
    assert (read_names('{"names": []}'), read_order('{"order": []}')) == ([], [])


def test_names_are_distinct_and_limited() -> None:
    assert read_names(json.dumps({"names": ["Anna", "ANNA", " an\nna", 1984]})) == ["Anna", "an na", "1984"]
    many = [f"n{number}" for number in range(100)]
    assert read_names(json.dumps({"names": many})) == many[:MOST_NAMES]


@pytest.mark.parametrize("wrong", HOSTILE)
def test_invalid_names_and_numbers_are_rejected_one_by_one(wrong: object) -> None:
    names = read_names(json.dumps({"names": ["Anna", wrong, "Tom"]}))
    assert [name for name in names if name in {"Anna", "Tom"}] == ["Anna", "Tom"]
    assert all(isinstance(name, str) and name.strip() and name.isprintable() for name in names)
    numbers = read_order(json.dumps({"order": [2, wrong, 1]}))
    assert (numbers[0], numbers[-1], len(numbers) <= 3) == (2, 1, True)
    assert all(type(number) is int for number in numbers)
    assert not isinstance(wrong, bool) or numbers == [2, 1]


@pytest.mark.parametrize("read", [read_names, read_order])
@pytest.mark.parametrize("listed", [None, "x", {"a": 1}, 5, [None], [None, [], "Anna"], [{}, {}, 1]])
def test_a_list_of_mostly_invalid_items_is_invalid(read: Any, listed: object) -> None:
    with pytest.raises(InvalidAnswerError) as refusal:
        read(json.dumps({"names": listed, "order": listed}))
    assert "list" in str(refusal.value) or "item 1: " in str(refusal.value)


def test_schemas_of_read_answers_are_flat() -> None:
    assert schema_of(NamesAnswer)["required"] == ["names"]
    assert schema_of(NamesAnswer)["properties"]["names"]["maxItems"] == MOST_NAMES
    assert schema_of(OrderAnswer)["properties"]["order"]["items"] == {"type": "integer", "minimum": 1}
