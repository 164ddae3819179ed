"""Tests of the helpers for messages."""

from __future__ import annotations

import pytest

from memory_pipeline.errors import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(0, "row", "0 rows"), (1, "row", "1 row"), (1_200, "memory", "1,200 memories"), (3, "day", "3 days")],
)
def test_a_noun_agrees_with_its_number(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
