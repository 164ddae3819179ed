"""Copies of messages in several scopes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.search.copies import Copies
from memory_pipeline_tests.index_rows import fact, segment

if TYPE_CHECKING:
    from memory_pipeline.search.row_block import RowBlock

SCOPES = [Scope("acme", name) for name in ("one", "two", "three")]


def block(number: int, *rows: dict[str, object]) -> RowBlock:
    made = segment(list(rows))
    made.scope = SCOPES[number]
    return made


def shown(*blocks: RowBlock, masks: list[list[bool] | None] | None = None) -> list[list[str]]:
    given = [None if mask is None else np.array(mask) for mask in masks or [None] * len(blocks)]
    found = Copies().hidden(blocks, given)
    return [
        [one for at, one in enumerate(each.ids.to_pylist()) if mask is None or mask[at]]
        for each, mask in zip(blocks, found, strict=True)
    ]


def test_the_first_scope_shows_a_message_of_several() -> None:
    one, two, three = (block(n, fact("hello", 1, id=f"a{n}"), fact(f"b{n}", 2, id=f"b{n}")) for n in range(3))
    assert shown(one, two, three) == [["a0", "b0"], ["b1"], ["b2"]]
    assert shown(three, one) == [["a2", "b2"], ["b0"]]


def test_a_message_that_the_first_scope_hides_is_shown_by_the_next() -> None:
    one, two, three = (block(n, fact("hello", 1, id=f"a{n}")) for n in range(3))
    assert shown(one, two, three, masks=[[False], None, None]) == [[], ["a1"], []]
    assert shown(one, two, three, masks=[[False], [False], None]) == [[], [], ["a2"]]


@pytest.mark.parametrize("other", [{"speaker": "Bruno"}, {"role": "assistant"}, {"kind": "event"}])
def test_messages_that_differ_are_no_copies(other: dict[str, str]) -> None:
    said = fact("hello", 1, id="a")
    assert shown(block(0, said), block(1, {**said, "id": "b", **other})) == [["a"], ["b"]]
    assert shown(block(0, said), block(1, fact("hello", 2, id="b"))) == [["a"], ["b"]]


def test_equal_rows_of_one_scope_are_no_copies() -> None:
    assert shown(block(0, fact("hello", 1, id="a")), block(0, fact("hello", 1, id="b"))) == [["a"], ["b"]]


def test_blocks_of_any_size_are_compared() -> None:
    many = [fact(f"text {n}", n, id=f"m{n}") for n in range(50)]
    few = fact("text 7", 7, id="few")
    assert set(shown(block(0, few), block(1, *many))[1]) == {f"m{n}" for n in range(50)} - {"m7"}
    assert shown(block(0, *many), block(1, few))[1] == []
