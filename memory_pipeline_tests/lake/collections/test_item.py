"""Validation of items: every error names item and field, and valid items are accepted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from memory_pipeline.domain.messages import MAX_CONTENT
from memory_pipeline.domain.text.secrets import REMOVES_NONE
from memory_pipeline.errors import InputError
from memory_pipeline.lake.collections.item import MAX_METADATA, VectorItem, id_of, numbered, row_of, unit_vector

NAN, INFINITY = float("nan"), float("inf")
SURROGATE = "\ud800"

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**300), 10**300)
vectors = st.lists(numbers, min_size=1, max_size=6).filter(any)
values = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)


def row_with(**fields: Any) -> tuple[str, str, str, NDArray[np.float32]]:
    return row_of("items[3]", VectorItem(**{"id": "a", "vector": [1, 0], **fields}), 2, REMOVES_NONE)


@pytest.mark.parametrize(
    "accepted",
    [
        "a", "0", "docs/2024/report.md", "https://example.com:8080/a?b=c&d=%20#e", "image@2x.png", "tool:search~1",
        "日本語", "Zoë", "a.b.c", ".", "-", "x" * 256, "a,b+c",
    ],
)  # fmt: skip
def test_paths_addresses_and_words_are_valid_ids(accepted: str) -> None:
    assert id_of("ids[0]", accepted) == accepted


@pytest.mark.parametrize(
    "refused",
    [
        "", " ", "x" * 257, "a b", "a\n", "\na", "a\nb", "a\r", "a\x00", "it's", 'say "x"', "`a`", "a;b", "a\\b", "(a)",
        "..", "../a", "a/../b", "a..b", "x'); DROP TABLE a; --", "' OR '1'='1", "a*", "\u2028", SURROGATE,
        None, 1, 1.5, True, b"a", ["a"], VectorItem("a", [1]),
    ],
)  # fmt: skip
def test_ids_with_quotes_or_parent_folders_are_refused(refused: object) -> None:
    with pytest.raises(InputError, match=r"^ids\[0\] .* is not accepted; expected 1 to 256 letters, digits and"):
        id_of("ids[0]", refused)


@given(st.text(max_size=300))
def test_an_id_contains_no_quotes_or_parent_folders(text: str) -> None:
    try:
        id_of("id", text)
    except InputError:
        return
    assert 1 <= len(text) <= 256
    assert not set("'\"\\;\n\r\x00 `") & set(text)
    assert ".." not in text
    text.encode()


@given(vectors)
def test_a_vector_of_any_magnitude_keeps_its_direction(vector: list[float]) -> None:
    """Squares of 1e300 are infinite, and those of 1e-300 zero; in float32 even 1e39 and 1e-46 are."""
    unit = unit_vector("vector", vector, len(vector))
    assert unit.dtype == np.float32
    assert np.linalg.norm(unit.astype(np.float64)) == pytest.approx(1, abs=1e-6)
    largest = max(map(abs, vector))
    scaled = np.array([number / largest for number in vector])
    assert unit == pytest.approx(scaled / np.linalg.norm(scaled), abs=1e-6)


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-45, 1, 1e39, 1e308])
def test_the_length_of_a_vector_does_not_matter(scale: float) -> None:
    assert unit_vector("vector", [scale, 0, -scale, 0], 4) == pytest.approx([0.5**0.5, 0, -(0.5**0.5), 0])


@pytest.mark.parametrize(
    "vector",
    [
        [3, 4], (3, 4.0), [np.float32(3), np.int64(4)], np.array([3, 4]), np.array([3, 4], np.float16),
        np.array([3, 4], np.uint8), np.array([3, 4], np.longdouble), np.array([3, 9, 4, 9])[::2],
        np.array([3, 4], ">f4"), range(3, 5),
    ],
)  # fmt: skip
def test_lists_and_arrays_of_any_number_type_are_vectors(vector: Any) -> None:
    assert unit_vector("vector", vector, 2) == pytest.approx([0.6, 0.8])


def test_the_callers_array_is_not_modified() -> None:
    vector = np.array([3, 4], np.float32)
    unit_vector("vector", vector, 2)
    assert vector.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("vector", "fault"),
    [
        ([NAN, 1], r"\[0\] is nan"),
        ([1, INFINITY], r"\[1\] is inf"),
        ([1, -INFINITY], r"\[1\] is -inf"),
        (np.array([1, np.nan], np.float32), r"\[1\] is nan"),
        (np.array(["1e4000", "1"], np.longdouble), r"\[0\] is inf"),
        ([0, 0], " is all zero"),
        ([0.0, -0.0], " is all zero"),
        (np.zeros(2), " is all zero"),
        ([], " has 0 numbers"),
        ([1], " has 1 numbers"),
        ([1, 2, 3], " has 3 numbers"),
        (np.ones(1_000), " has 1,000 numbers"),
        ([True, False], r" \[True, False\] is not accepted"),
        (np.array([True, False]), r" array\(\[ True, False\]\) is not accepted"),
        ([np.True_, 1.0], " .* is not accepted"),
        (["1", "2"], " .* is not accepted"),
        ([1, "2"], " .* is not accepted"),
        ([1, None], " .* is not accepted"),
        ([1, 2j], " .* is not accepted"),
        ([Decimal(1), Decimal(2)], " .* is not accepted"),
        ([[1, 2]], " .* is not accepted"),
        ([10**400, 1], " .* is not accepted"),
        (np.ones((1, 2)), " .* is not accepted"),
        (np.array(1.0), " .* is not accepted"),
        (np.array([1, 2], object), " .* is not accepted"),
        (np.array(["1", "2"]), " .* is not accepted"),
        (np.array([1, 2j]), " .* is not accepted"),
        ("12", " '12' is not accepted"),
        ("", " '' is not accepted"),
        (b"12", " .* is not accepted"),
        (bytearray(b"12"), " .* is not accepted"),
        ({0: 1.0, 1: 2.0}, " .* is not accepted"),
        ({1.0, 2.0}, " .* is not accepted"),
        ((number for number in (1, 2)), " .* is not accepted"),
        (1.0, " 1.0 is not accepted"),
        (None, " None is not accepted"),
    ],
)
def test_an_invalid_vector_is_refused_with_its_item_and_reason(vector: object, fault: str) -> None:
    expected = rf"^items\[3\]\.vector{fault}; expected a list or an array of 2 finite numbers, not all zero$"
    with pytest.raises(InputError, match=expected):
        row_with(vector=vector)


def test_a_message_about_a_huge_vector_is_short() -> None:
    with pytest.raises(InputError) as caught:
        unit_vector("vector", ["x" * 1_000] * 1_000, 1_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("content", ["", "  ", "a\nb", 'it\'s "quoted"; --', "\x00", "💥", "x" * MAX_CONTENT])
def test_any_text_is_content(content: str) -> None:
    assert row_with(content=content)[1] == content


@pytest.mark.parametrize("content", [None, 1, b"a", ["a"], SURROGATE, "x" * (MAX_CONTENT + 1)])
def test_content_must_be_a_text_of_limited_length(content: object) -> None:
    expected = r"^items\[3\]\.content .* is not accepted; expected a text of up to 1,000,000 characters"
    with pytest.raises(InputError, match=expected):
        row_with(content=content)


@given(st.dictionaries(st.text(min_size=1, max_size=9), values | st.text(max_size=9), max_size=5))
def test_metadata_round_trip(metadata: dict[str, Any]) -> None:
    kept = json.loads(row_with(metadata=metadata)[2])
    assert kept == metadata
    assert [type(value) for value in kept.values()] == [type(value) for value in metadata.values()]


@pytest.mark.parametrize("metadata", [{}, MappingProxyType({"a": 1}), {"'; --": '"'}, {"a": "x" * (MAX_METADATA - 8)}])
def test_any_flat_mapping_is_metadata(metadata: Mapping[str, Any]) -> None:
    assert json.loads(row_with(metadata=metadata)[2]) == metadata


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        (None, " None is not accepted; expected a mapping"),
        ([("a", 1)], " .* is not accepted; expected a mapping"),
        ("a", " 'a' is not accepted; expected a mapping"),
        ({1: "a"}, " has the name 1; expected a text of 1 to 256 characters"),
        ({None: "a"}, " has the name None; expected"),
        ({"": "a"}, " has the name ''; expected"),
        ({"x" * 257: "a"}, " has the name 'xxx.*; expected"),
        ({SURROGATE: "a"}, r" has the name '\\ud800'; expected"),
        ({"page": [1]}, r"\['page'\] \[1\] is not accepted; expected a text, a finite number"),
        ({"page": {"a": 1}}, r"\['page'\] .* is not accepted"),
        ({"page": b"a"}, r"\['page'\] .* is not accepted"),
        ({"page": SURROGATE}, r"\['page'\] .* is not accepted"),
        ({"page": NAN}, r"\['page'\] nan is not accepted"),
        ({"page": -INFINITY}, r"\['page'\] -inf is not accepted"),
        ({"page": 2**63}, r"\['page'\] 9223372036854775808 is not accepted; .* up to 64 bits"),
        ({"page": np.int64(3)}, r"\['page'\] np.int64\(3\) is not accepted"),
        ({"a": "x" * (MAX_METADATA - 7)}, " has 65,537 bytes as JSON; expected at most 65,536"),
        ({"a": "é" * (MAX_METADATA // 2)}, " has 65,544 bytes as JSON"),
        ({str(number): "" for number in range(9_000)}, " has .* bytes as JSON"),
    ],
)
def test_invalid_metadata_are_refused_with_their_item_and_name(metadata: object, fault: str) -> None:
    with pytest.raises(InputError, match=rf"^items\[3\]\.metadata{fault}"):
        row_with(metadata=metadata)


@pytest.mark.parametrize("item", [None, "a", ("a", [1, 0]), {"id": "a", "vector": [1, 0]}, VectorItem])
def test_a_value_that_is_not_an_item_is_refused(item: object) -> None:
    with pytest.raises(InputError, match=r"^items\[3\] .* is not accepted; expected a VectorItem$"):
        row_of("items[3]", item, 2, REMOVES_NONE)


def test_an_error_about_an_id_names_the_item() -> None:
    with pytest.raises(InputError, match=r"^items\[3\]\.id 'a b' is not accepted"):
        row_with(id="a b")


def test_members_of_any_iterable_are_numbered() -> None:
    assert list(numbered("ids", iter(["a", "b"]))) == [("ids[0]", "a"), ("ids[1]", "b")]
    assert sorted(numbered("ids", {"a"})) == [("ids[0]", "a")]
    assert list(numbered("ids", [])) == []


@pytest.mark.parametrize("values", ["ab", b"ab", {"a": 1}, None, 1, VectorItem("a", [1])])
def test_a_single_value_or_a_mapping_is_not_a_list(values: object) -> None:
    with pytest.raises(InputError, match=r"^ids .* is not accepted; expected a list$"):
        numbered("ids", values)
