"""Totals of calls, and the estimate of tokens."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.model_calls import Call, Purpose, Usage, Use, count_tokens
from memory_pipeline.domain.periods import Period
from memory_pipeline.domain.scopes import Scope

CALL = Call(
    id="1",
    request_id="1",
    key="k",
    use=Use(Scope("acme", "support"), Period.parse("working", "2024-01-15T08")),
    purpose=Purpose.EXTRACTION,
    model="openai/m",
    prompt_version="extraction-2",
    texts=1,
    tokens_in=100,
    tokens_out=10,
    cost=0.5,
    seconds=1.0,
    outcome="ok",
    called_at=datetime(2024, 1, 15, 9, tzinfo=UTC),
)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("äöü", 2), ("\ud800", 1)])
def test_a_token_is_four_bytes(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


@given(st.text(), st.text())
def test_estimated_tokens_are_additive_up_to_one(one: str, other: str) -> None:
    assert 0 <= count_tokens(one) + count_tokens(other) - count_tokens(one + other) <= 1


def test_shares_of_one_request_are_one_call() -> None:
    share = replace(CALL, id="1-1", tokens_in=30, tokens_out=0, cost=0.25)
    assert Usage.of([CALL, share]) == Usage(1, 130, 10, 0.75, 0)
    assert Usage.of([CALL, replace(share, request_id="2")]).calls == 2


def test_no_calls_have_no_known_cost() -> None:
    assert Usage.of([]) == Usage()
    assert Usage().cost is None
    assert Usage() + Usage() == Usage()


def test_calls_without_a_price_are_counted_separately_unless_free() -> None:
    unpriced = replace(CALL, id="2", request_id="2", cost=None)
    failed = replace(CALL, id="3", request_id="3", cost=None, tokens_in=0, tokens_out=0, outcome="timeout")
    assert Usage.of([unpriced, failed]) == Usage(2, 100, 10, None, 1)
    assert Usage.of([unpriced, failed, CALL]) == Usage(3, 200, 20, 0.5, 1)


def test_a_cost_of_zero_is_known() -> None:
    free = replace(CALL, id="2", request_id="2", cost=0.0)
    assert Usage.of([free]).cost == 0.0
    assert (Usage() + Usage.of([free])).cost == 0.0
    assert (Usage.of([free]) + Usage()).cost == 0.0


CALLS = st.lists(
    st.builds(
        lambda request, number, tokens, cost: replace(
            CALL, id=f"{request}-{number}", request_id=str(request), tokens_in=tokens, cost=cost
        ),
        st.integers(0, 5),
        st.integers(0, 5),
        st.integers(0, 9),
        st.sampled_from([None, 0.0, 0.25, 0.5]),
    )
)


@given(CALLS, CALLS)
def test_usage_is_the_sum_of_its_calls(some: list[Call], more: list[Call]) -> None:
    others = [replace(call, request_id=f"other {call.request_id}") for call in more]
    assert Usage.of([*some, *others]) == Usage.of(some) + Usage.of(others)
