"""Texts for models stay within their budget and report cuts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.text.recalled_text import LINE, without_recalled
from memory_pipeline.tools.texts import TextEntry, answer_text, line, lines

_TEXT = st.text(max_size=2_000) | st.text("é漢𝄞a ", min_size=300, max_size=3_000)
# `mark` changes a text that holds the delimiter, which hypothesis finds in the source.
_STORED = _TEXT.map(line).filter(lambda text: "recalled-memory" not in text.lower())
_ENTRIES = st.lists(st.builds(TextEntry, st.just("[2024-01-15] "), _STORED, st.just(f" (working:{'0' * 46})")))


@given(entries=_ENTRIES, max_tokens=st.integers(200, 3_000), hint=st.sampled_from(["", "More: raise max_results."]))
def test_an_answer_stays_within_its_budget_and_reports_all_cuts(
    entries: list[TextEntry], max_tokens: int, hint: str
) -> None:
    text = answer_text(f"{len(entries)} of 99 memories:", entries, max_tokens, hint)
    assert count_tokens(text) <= max_tokens
    assert without_recalled(text) == ""
    body = [part.removeprefix(LINE) for part in text.splitlines()[2:-1]]
    shown = [part for part in body if part.startswith("[2024-01-15] ")]
    note = next((part for part in body if part.startswith("Cut to ")), "")
    whole = [f"{entry.before}{entry.text}{entry.after}" for entry in entries]
    cut = sum(part not in whole for part in shown)
    assert (f"{cut} cut short at …" in note) is bool(cut)
    left = len(entries) - len(shown)
    assert (f"{left} left out" in note) is bool(left)
    assert body[-1:] == [hint] if hint else True


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_stored_text_is_one_line_and_its_lines_are_indented(one: str, other: str) -> None:
    assert len(line(f"{one}\n{other}").splitlines()) <= 1
    assert all(part.startswith("  ") for part in lines(f"{one}\n{other}").splitlines())


def test_long_texts_are_cut_before_short_ones() -> None:
    entries = [TextEntry("", "x" * 5_000), TextEntry("", "short"), TextEntry("", "y" * 5_000)]
    text = answer_text("3 of 3:", entries, 300)
    assert f"\n{LINE}short\n" in text
    assert "Cut to 300 tokens: 2 cut short at …" in text
    assert 0.9 * 300 < count_tokens(text) <= 300, "what there is room for is used"


def test_a_cut_summary_keeps_the_wanted_lines() -> None:
    rows = [f"  2024-01-{day:02} Anna: I went to the harbour and it was day {day}." for day in range(1, 29)]
    rows[20] = "  2024-01-21 Anna: The oven is broken again."
    summary = TextEntry("January:\n", "\n".join(rows), search_terms=frozenset({"oven"}))
    text = answer_text("1 of 1:", [summary], 200)
    assert count_tokens(text) <= 200
    assert "The oven is broken again." in text
    assert "day 1." in text, "then the first"
    assert " of 28 lines" in text
    assert text.index("day 1.") < text.index("oven"), "in their order"
    many = TextEntry("January:\n", "\n".join(rows * 10), search_terms=frozenset({"oven"}))
    assert "The oven is broken again." in answer_text("1 of 1:", [many], 200), (
        "marks of lines that are left out take nothing"
    )


@given(st.lists(st.text(max_size=300).map(line).filter(bool), min_size=2, max_size=30), st.integers(0, 3_000))
def test_lines_never_exceed_their_room(rows: list[str], size: int) -> None:
    entry = TextEntry("before", "\n".join(rows), "after", frozenset({"a", "b"}))
    least = len("before…after")
    assert len(entry.within(size).encode()) + 1 <= max(size, least + 3)
