"""Operations on what an agent knows: how they are written, what stands after them, and what is about a text."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.operations import MAX_TERM, Operation, Verb, about, present, snake_case
from memory_pipeline.errors import InputError

AT = datetime(2024, 1, 15, 8, tzinfo=UTC)


def operation(text: str, *, hours: int = 0, message: str = "m1", confidence: float = 1.0) -> Operation:
    """Return the operation that `text` writes as ``VERB subject predicate object``."""
    verb, subject, predicate, *rest = text.split(" ")
    return Operation.of(
        verb,
        subject,
        predicate,
        " ".join(rest),
        confidence=confidence,
        message_ids=[message],
        event_at=AT + timedelta(hours=hours),
    )


def standing(*texts: str) -> list[str]:
    """Return what stands after operations, each an hour after the one before."""
    return [str(one) for one in present(operation(text, hours=hour) for hour, text in enumerate(texts))]


@pytest.mark.parametrize(
    ("text", "verb"),
    [("INSERT", Verb.INSERT), ("add", Verb.INSERT), (" Update\n", Verb.UPDATE), ("dElEtE", Verb.DELETE)],
)
def test_a_verb_is_read_in_any_case(text: str, verb: Verb) -> None:
    assert Verb.parse(text) is verb


@pytest.mark.parametrize("text", ["", "UPSERT", "INSERT ADD", "insert;"])
def test_an_unknown_verb_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(InputError, match="accepted: INSERT, ADD, UPDATE, DELETE"):
        Verb.parse(text)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("user", "User"), ("The User", "User"), ("USER", "User"), ("agent", "Agent"), ("the assistant", "Agent"),
        ("Assistant", "Agent"), ("  Anna \n Maria ", "Anna Maria"), ("userland", "userland"),
        ("the agents", "the agents"),
    ],
)  # fmt: skip
def test_subjects_and_objects_have_canonical_names(written: str, name: str) -> None:
    made = Operation.of("ADD", written, "knows", written, confidence=1, message_ids=["m"], event_at=AT)
    assert (made.subject, made.object) == (name, name)


@pytest.mark.parametrize(
    ("written", "predicate"),
    [
        ("lives in", "lives_in"), ("LivesIn", "lives_in"), ("livesIn", "lives_in"), ("Lives-In!", "lives_in"),
        ("__lives__in__", "lives_in"), ("has 2 dogs", "has_2_dogs"), ("wohnt in Köln", "wohnt_in_köln"),
        ("HTTP", "http"), ("lives_in", "lives_in"), ("...", ""),
    ],
)  # fmt: skip
def test_predicates_are_snake_case(written: str, predicate: str) -> None:
    assert snake_case(written) == predicate


@given(st.text(max_size=30))
def test_a_predicate_has_no_capitals_blanks_or_marks(text: str) -> None:
    predicate = snake_case(text)
    assert predicate == predicate.lower()
    assert predicate.split() == ([predicate] if predicate else [])
    assert "__" not in predicate
    assert predicate == predicate.strip("_")
    if text.isascii():
        assert snake_case(predicate) == predicate


@pytest.mark.parametrize(
    ("verb", "subject", "predicate", "value"),
    [
        ("ADD", " ", "likes", "tea"),
        ("ADD", "Anna", "?!", "tea"),
        ("ADD", "Anna", "likes", " "),
        ("UPDATE", "Anna", "likes", ""),
        ("DELETE", "", "likes", "tea"),
        ("ADD", "A" * (MAX_TERM + 1), "likes", "tea"),
        ("ADD", "Anna", "l" * (MAX_TERM + 1), "tea"),
        ("DELETE", "Anna", "likes", "t" * (MAX_TERM + 1)),
        ("FORGET", "Anna", "likes", "tea"),
    ],
)
def test_terms_that_are_missing_or_too_long_are_refused(verb: str, subject: str, predicate: str, value: str) -> None:
    with pytest.raises(InputError):
        Operation.of(verb, subject, predicate, value, confidence=1, message_ids=["m"], event_at=AT)


@pytest.mark.parametrize("confidence", [-0.01, 1.01, math.inf, -math.inf, math.nan])
def test_a_confidence_lies_between_0_and_1(confidence: float) -> None:
    with pytest.raises(InputError, match="expected 0 to 1"):
        operation("ADD Anna likes tea", confidence=confidence)
    assert operation("ADD Anna likes tea", confidence=0).confidence == 0


def test_an_insert_stands_beside_what_there_is() -> None:
    assert standing("ADD Anna likes tea", "ADD Anna likes figs", "ADD Ben likes tea") == [
        "Anna likes tea",
        "Anna likes figs",
        "Ben likes tea",
    ]


def test_what_is_said_again_stands_once_as_the_newest() -> None:
    said = [operation("ADD Anna likes tea"), operation("ADD Anna likes figs", hours=1)]
    again = operation("ADD anna LIKES Tea", hours=2, message="m2")
    assert present([*said, again]) == [said[1], again]


def test_an_update_replaces_all_that_the_subject_has_for_the_predicate_and_nothing_else() -> None:
    others = ["Ben lives_in Rome", "Anna works_in Rome"]
    said = ["ADD Anna lives_in Rome", "ADD Anna lives_in Oslo", *(f"ADD {other}" for other in others)]
    assert standing(*said, "UPDATE ANNA lives_in Porto") == [*others, "ANNA lives_in Porto"]
    assert standing("UPDATE Anna lives_in Porto") == ["Anna lives_in Porto"]


def test_a_delete_withdraws_one_value_or_with_none_all_of_them() -> None:
    said = ["ADD Anna likes tea", "ADD Anna likes figs", "ADD Anna owns tea"]
    assert standing(*said, "DELETE anna likes TEA") == ["Anna likes figs", "Anna owns tea"]
    assert standing(*said, "DELETE Anna likes") == ["Anna owns tea"]
    assert standing(*said, "DELETE Anna likes rum") == ["Anna likes tea", "Anna likes figs", "Anna owns tea"]
    assert standing("DELETE Anna likes tea", "ADD Anna likes tea") == ["Anna likes tea"]


def test_what_one_message_withdraws_and_asserts_stands() -> None:
    assert str(*present([operation("ADD Anna likes tea"), operation("DELETE Anna likes tea")])) == "Anna likes tea"
    assert str(*present([operation("UPDATE Anna likes tea"), operation("DELETE Anna likes")])) == "Anna likes tea"


def test_it_decides_nothing_on_how_many_messages_an_operation_rests() -> None:
    """A table keeps the turn that it stands at, which is the first of them."""
    several = replace(operation("UPDATE Anna lives_in Oslo"), message_ids=("m1", "m0"))
    one = operation("UPDATE Anna lives_in Porto")
    [stands] = present([several, one])
    assert present([replace(several, message_ids=("m1",)), one]) == [stands]


def _drawn(verb: str, subject: str, value: str, hours: int, messages: tuple[str, ...], confidence: float) -> Operation:
    made = operation(f"{verb} {subject} likes {value or 'tea' if verb != 'DELETE' else value}", hours=hours)
    return replace(made, message_ids=messages, confidence=confidence)


OPERATIONS = st.builds(
    _drawn,
    st.sampled_from(["INSERT", "UPDATE", "DELETE"]),
    st.sampled_from(["Anna", "anna", "Ben"]),
    st.sampled_from(["tea", "Tea", "figs", ""]),
    st.integers(0, 2),
    st.sampled_from([("m1",), ("m2",), ("m1", "m0")]),
    st.sampled_from([0.5, 1.0]),
)


@given(st.lists(OPERATIONS, max_size=12), st.randoms(use_true_random=False))
def test_the_order_in_which_operations_come_decides_nothing(operations: list[Operation], random: object) -> None:
    shuffled = list(operations)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis's own class of Random
    assert present(shuffled) == present(operations)


@given(st.lists(OPERATIONS.map(lambda one: (one.verb, one.subject, one.object)), max_size=12))
def test_the_state_is_what_a_table_would_hold(steps: list[tuple[Verb, str, str]]) -> None:
    table: dict[str, set[str]] = {"anna": set(), "ben": set()}
    operations = []
    for hour, (verb, subject, value) in enumerate(steps):
        operations.append(operation(f"{verb} {subject} likes {value}", hours=hour))
        row = table[subject.casefold()]
        if verb is Verb.UPDATE or not value:
            row.clear()
        if verb is Verb.DELETE:
            row.discard(value.casefold())
        else:
            row.add(value.casefold())
    held = [(one.subject.casefold(), one.object.casefold()) for one in present(operations)]
    assert sorted(held) == sorted((subject, value) for subject, values in table.items() for value in values)


ASSERTIONS = [
    operation(f"ADD {text}", hours=hour)
    for hour, text in enumerate(
        ["Ann likes tea", "Anna lives_in New York", "User likes Jo", "Zoë owns Bruno", "Ben works_at O'Neill's"]
    )
]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Nothing of note.", []),
        ("ANNA called.", ["Anna lives_in New York"]),
        ("Annabel and Joanna called, Annas too.", []),
        ("The flight to new york, again!", ["Anna lives_in New York"]),
        ("A new flat in York", []),
        ("new\nYORK", ["Anna lives_in New York"]),
        ("(zoë's dog)", ["Zoë owns Bruno"]),
        ("is it bruno?", ["Zoë owns Bruno"]),
        ("I bought it at o'neill's.", ["Ben works_at O'Neill's"]),
        ("ann, jo", ["Ann likes tea", "User likes Jo"]),
        ("the user_s name", ["User likes Jo"]),
    ],
)
def test_what_is_about_a_text_is_named_in_it_by_whole_words(text: str, named: list[str]) -> None:
    assert [str(one) for one in about(ASSERTIONS, text, 10)] == named


def test_of_much_that_is_about_a_text_the_newest_is_returned_oldest_first() -> None:
    text = "Ann, Anna, Zoë"
    assert [one.subject for one in about(ASSERTIONS, text, 2)] == ["Anna", "Zoë"]
    assert about(ASSERTIONS, text, 0) == []


def test_a_name_without_letters_is_about_nothing() -> None:
    odd = Operation.of("ADD", "???", "likes", "!", confidence=1, message_ids=["m"], event_at=AT)
    assert about([odd], "What ??? ! is this", 5) == []
