"""The source and the metadata of messages as labels."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.attributes import attributes_in, labels_of_attributes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
METADATA = st.dictionaries(st.text(), VALUES, max_size=4)


@given(source=st.none() | st.text(), metadata=METADATA, tags=st.lists(st.text('abc:[]"', min_size=1)))
def test_they_come_back_from_labels_and_are_told_from_tags(
    source: str | None, metadata: dict[str, Any], tags: list[str]
) -> None:
    assert attributes_in([*tags, *labels_of_attributes(source, metadata)]) == (source, metadata)


@given(one=VALUES, other=VALUES)
def test_labels_are_equal_exactly_if_the_values_are_equal_as_json(one: Any, other: Any) -> None:
    is_same = labels_of_attributes(None, {"key": one}) == labels_of_attributes(None, {"key": other})
    assert is_same == (_typed(one) == _typed(other))


def _typed(value: Any) -> Any:
    """Return a value that tells true from 1, but not 1 from 1.0."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return [_typed(one) for one in value]
    return {key: _typed(one) for key, one in value.items()} if isinstance(value, dict) else value


def test_a_source_is_no_entry_of_that_name() -> None:
    assert labels_of_attributes("a", None) != labels_of_attributes(None, {"source": "a"})
    assert attributes_in(None) == (None, {})
