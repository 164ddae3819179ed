"""Strict YAML: surprising text is rejected with its place, and no text can expand."""

from __future__ import annotations

import math
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.configuration import strict_yaml
from memory_pipeline.configuration.strict_yaml import MAX_TEXT, read_document
from memory_pipeline.errors import ConfigurationError

SOURCE = "lake/config/workspaces.yaml"


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers, because libyaml is not available on every platform."""
    loaders = {"libyaml": getattr(yaml, "CSafeLoader", yaml.SafeLoader), "python": yaml.SafeLoader}
    monkeypatch.setattr(strict_yaml, "_LOADER", loaders[request.param])


def faults(text: str) -> list[str]:
    return [fault.text for fault in read_document(text, SOURCE).faults]


@pytest.mark.parametrize("text", ["", "\n", "# a comment\n", "---\n", "---\n...\n", "\ufeff", "null", "~"])
def test_an_empty_text_has_no_values(text: str) -> None:
    assert read_document(text, SOURCE).tree is None


def test_values_have_the_types_of_yaml() -> None:
    text = """
    text: plain words
    quoted: "12"
    literal: |
      two
      lines
    whole: 1_000
    negative: -3
    number: 0.5
    large: 1.5e+3
    truth: [true, no, ON]
    nothing: ~
    empty:
    nested: {a: {b: [1, "x"]}}
    """
    assert read_document(text, SOURCE).tree == {
        "text": "plain words",
        "quoted": "12",
        "literal": "two\nlines\n",
        "whole": 1000,
        "negative": -3,
        "number": 0.5,
        "large": 1500.0,
        "truth": [True, False, True],
        "nothing": None,
        "empty": None,
        "nested": {"a": {"b": [1, "x"]}},
    }


def test_infinite_numbers_are_parsed_and_rejected_by_their_key() -> None:
    tree = read_document("a: [.inf, -.INF, .NaN]", SOURCE).tree
    assert isinstance(tree, dict)
    assert tree["a"][:2] == [math.inf, -math.inf]
    assert math.isnan(tree["a"][2])


def test_each_key_has_a_line_number() -> None:
    lines = read_document("a:\n  b: 1\n\n  c: {d: 2}\n", SOURCE).lines
    assert lines == {("a",): 1, ("a", "b"): 2, ("a", "c"): 4, ("a", "c", "d"): 4}


def test_a_repeated_key_is_an_error_and_the_first_value_counts() -> None:
    document = read_document("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n", SOURCE)
    assert [(fault.path, fault.line, fault.text) for fault in document.faults] == [
        (("b",), 4, "duplicate key 'c', first in line 3"),
        ((), 5, "duplicate key 'a', first in line 1"),
    ]
    assert document.tree == {"a": 1, "b": {"c": 1}}


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("2024-01-15", "a date"),
        ("2024-01-15 08:00:00", "a date"),
        ("15", "a number"),
        ("1.5", "a number"),
        ("0x1F", "a number"),
        ("yes", "true or false"),
        ("no", "true or false"),
        ("Off", "true or false"),
        ("null", "nothing"),
        ("~", "nothing"),
    ],
)
def test_a_key_that_is_not_a_text_must_be_quoted(key: str, kind: str) -> None:
    assert faults(f"a: {{{key}: 1}}") == [f"YAML reads the key '{key}' as {kind}; quote it"]
    assert read_document(f'a: {{"{key}": 1}}', SOURCE).tree == {"a": {key: 1}}


@pytest.mark.parametrize("key", ["? [a, b]\n: 1", "? {a: b}\n: 1"])
def test_a_key_that_is_a_list_or_a_mapping_is_an_error(key: str) -> None:
    assert faults(key) == ["a mapping or a list is not accepted as a key; expected a name"]


@pytest.mark.parametrize(
    "value", ["010", "0x10", "0b1", "1:30", "1:30.5", "9" * 20, pytest.param("9" * 10**5, id="9…")]
)
def test_an_ambiguous_number_is_an_error(value: str) -> None:
    assert faults(f"a: {value}") == ["the number is too long or not decimal; quote it if it is a text"]


@pytest.mark.parametrize("value", ["2024-01-15", "2024-01-15T08:00:00Z"])
def test_a_date_is_an_error_anywhere(value: str) -> None:
    document = read_document(f"a: {value}\nb: [{value}]\nc: 1", SOURCE)
    assert [fault.line for fault in document.faults] == [1, 2]
    assert document.tree == {"b": [None], "c": 1}
    assert value not in str(document.faults)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x 1", "1, column 4: anchors"),
        ("a: 1\nb: *x", "2, column 4: anchors"),
        ("&x a: 1", "anchors"),
        ("a: 1\n<<: *a", "anchors"),
        ("a: !!python/object:os.system 1", "tags"),
        ("a: !!binary aGVsbG8=", "tags"),
        ("!!str a: 1", "tags"),
        ("a: !secret-of-mine x", "tags"),
        ("--- 1\n--- 2", "a second document begins here"),
        ("[" * 100 + "]" * 100, "nested too deep"),
        ("{a: " * 100 + "}" * 100, "nested too deep"),
        ("[" * 400_000, "nested too deep"),
        ("? " * 30, "nested too deep"),
    ],
)
def test_unsupported_yaml_features_are_rejected(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{SOURCE}, line .*{said}"):
        read_document(text, SOURCE)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 'open", "line 1, column"),
        ("a: 1\n b: 2", "line 2, column 3"),
        ("a: 1\nb: @x", "line 2, column 4"),
        ("a: b: c", "line 1, column 5"),
        ("a: 1\n\tb: 2", "line 2, column 1"),
        ("a: x\x07y", "line 1, column 5"),
        ("a: 1\nb: \ud800", "line 2, column 4"),
        ("%YAML 3.0\n---\na: 1", "line 1"),
    ],
)
def test_invalid_yaml_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{SOURCE}, {place}.*: not YAML: ") as refusal:
        read_document(text, SOURCE)
    assert str(refusal.value).isprintable()
    assert refusal.value.__context__ is None or refusal.value.__suppress_context__


@pytest.mark.parametrize(
    "text", ['a: "\\UFFFFFFFF"', "a: !x!y z", "%TAG !sk-0123456789! y\n---\na: !sk-9876543210!z 1"]
)
def test_parser_errors_do_not_quote_the_text(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{SOURCE}") as refusal:
        read_document(text, SOURCE)
    assert "sk-" not in str(refusal.value)


def test_nested_anchors_cannot_expand_a_text() -> None:
    bomb = "a: &a [x]\n" + "".join(f"{n}: &{n} [*a, *a]\n" for n in "bcdefgh")
    with pytest.raises(ConfigurationError, match="anchors"):
        read_document(bomb, SOURCE)


def test_a_text_that_is_too_long_is_refused() -> None:
    read_document("#" * MAX_TEXT, SOURCE)
    with pytest.raises(ConfigurationError, match=r"1,000,001 characters are too many; accepted: up to 1,000,000"):
        read_document("#" * (MAX_TEXT + 1), SOURCE)


def test_long_sexagesimal_numbers_are_parsed_fast() -> None:
    started = time.perf_counter()
    assert len(faults("a: 1" + ":59" * 20_000)) == 1
    assert time.perf_counter() - started < 5


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("ab:-?{}[],#&*!|>'\"%@` \n\t01.<=~\\"), max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        said = [fault.text for fault in read_document(text, SOURCE).faults]
    except ConfigurationError as error:
        said = [str(error).removeprefix(SOURCE)]
    assert all(each.isprintable() and len(each) < 200 for each in said)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(PLAIN)
def test_dumped_yaml_is_parsed_as_by_pyyaml(value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    document = read_document(text, SOURCE)
    if not document.faults:
        assert repr(document.tree) == repr(yaml.safe_load(text))
