"""Which messages stay in a context window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.context_window import estimated_tokens, most_relevant, newest

SIZED = st.lists(st.tuples(st.text("figs kites rain", max_size=12), st.integers(0, 30)), max_size=20)


def test_three_messages_of_ten_tokens_in_a_window_of_25() -> None:
    assert newest([estimated_tokens("x" * 40)] * 3, 25) == [1, 2]
    assert estimated_tokens("12345") == 2


def test_messages_on_the_topic_stay() -> None:
    texts = ["My dog Bruno ate figs.", "The weather is fine.", "It may rain.", "What did Bruno eat?"]
    assert most_relevant(texts, [10] * 4, 20) == [0, 3]


@given(SIZED, st.integers(0, 100))
def test_the_newest_messages_are_contiguous_and_as_many_as_fit(messages: list[tuple[str, int]], limit: int) -> None:
    sizes = [size for _, size in messages]
    chosen = newest(sizes, limit)
    assert chosen == list(range(len(sizes) - len(chosen), len(sizes)))
    assert sum(sizes[place] for place in chosen) <= limit
    if len(chosen) < len(sizes):
        assert sum(sizes[place] for place in chosen) + sizes[-len(chosen) - 1] > limit


@given(SIZED, st.integers(0, 100))
def test_relevant_messages_are_in_order_and_no_other_fits(messages: list[tuple[str, int]], limit: int) -> None:
    texts, sizes = [text for text, _ in messages], [size for _, size in messages]
    chosen = most_relevant(texts, sizes, limit)
    assert chosen == sorted(set(chosen))
    used = sum(sizes[place] for place in chosen)
    assert used <= limit
    assert all(used + sizes[place] > limit for place in range(len(sizes)) if place not in chosen)
