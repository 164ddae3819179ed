"""Untrusted JSON: duplicate keys are rejected; lists are split into the texts of their items."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.json_text import RepeatedKeyError, items_of, read_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": 1, "b": 2, "a": 1}', '[{"b": {"a": 1, "\\u0061": 2}}]', b'{"a": [], "a": []}']
)
def test_a_duplicate_key_is_rejected_and_named(text: str | bytes) -> None:
    with pytest.raises(RepeatedKeyError, match="'a'"):
        read_json(text)


@given(JSON)
def test_valid_json_is_parsed_like_the_standard_library(value: Any) -> None:
    assert read_json(json.dumps(value)) == value


@given(st.lists(JSON, max_size=4), st.sampled_from(["", " ", "\n\t"]))
def test_items_of_a_list_are_split_verbatim(values: list[Any], space: str) -> None:
    inside = f"{space},{space}".join(map(json.dumps, values))
    text = f"{space}[{space}{inside}{space}]{space}"
    assert [json.loads(item) for item in items_of(text)] == values
