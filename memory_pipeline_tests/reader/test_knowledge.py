"""Documents, items and the block: the text is marked, complete, and has the reported size."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.text.recalled_text import FRAME_BYTES, LINE, mark, mark_lines, without_recalled
from memory_pipeline.errors import InputError
from memory_pipeline.reader.packing.injection import document_parts
from memory_pipeline.reader.packing.items import (
    Document,
    InjectedContext,
    Recalled,
    Recollection,
    Size,
    Source,
    compact,
    cut_to,
    in_order,
)
from memory_pipeline_tests.reader.injecting import TEXTS, WORDED, part

DAYS = st.none() | st.integers(1, 3).map(lambda day: date(2024, 1, day))
PARTS = st.lists(
    st.builds(lambda text, source, day: replace(part(text, source), date=day), TEXTS, st.sampled_from(Source), DAYS),
    max_size=6,
).map(tuple)


def test_an_empty_context_has_no_text() -> None:
    nothing = InjectedContext()
    assert (nothing.block, str(nothing), nothing.tokens, nothing.parts, nothing.left_out) == ("", "", 0, (), 0)
    assert dict(nothing.troubles) == {}
    assert nothing.of(Source.MEMORY) == []


def test_the_block_names_its_sources_in_one_order() -> None:
    parts = [part(f"the {source}", source) for source in reversed(Source)]
    known = InjectedContext(tuple(parts))
    first, _, *lines, last = known.block.splitlines()
    assert first.startswith("<recalled-memory ")
    assert last == first.replace("<", "</")
    assert lines == [
        "⁍ What to keep in mind:",
        "⁍ the durable",
        "⁍ Known facts:",
        "⁍ the graph",
        "⁍ Said before:",
        "⁍ the memory",
        "⁍ From summaries of longer times:",
        "⁍ the summary (daily summary of 2022-01-15)",
        "⁍ From documents:",
        "⁍ the document",
    ]
    assert str(known) == known.block == f"{known}"


@pytest.mark.parametrize("source", Source)
def test_items_can_be_filtered_by_the_name_of_a_source(source: Source) -> None:
    known = InjectedContext((part("a", source), *(part("b", other) for other in Source if other is not source)))
    assert known.of(source) == known.of(source.value) == [part("a", source)]
    assert known.of("nobody") == []


def test_lines_are_indented_and_never_blank() -> None:
    known = InjectedContext((part("one\n\n  \r\ntwo\u2028three"),))
    assert "⁍ one\n⁍   two\n⁍   three\n<" in known.block


@given(PARTS)
def test_a_written_back_block_is_removed(parts: tuple[Recalled, ...]) -> None:
    known = InjectedContext(parts)
    assert known.tokens == count_tokens(known.block) == count_tokens(str(known))
    assert known.tokens * 4 >= FRAME_BYTES or not parts
    assert without_recalled(known.block) == ""
    assert without_recalled(f"Where do I live?\n\n{known.block}") == "Where do I live?" or not parts


@given(PARTS)
def test_the_block_contains_all_words_of_all_items(parts: tuple[Recalled, ...]) -> None:
    block = " ".join(InjectedContext(parts).block.split())
    for one in parts:
        content = " ".join(mark_lines(compact(one.content)).removeprefix(LINE).split())
        assert content.lower().replace("recalled-memory", "recalled memory") in block.lower()


@given(PARTS, st.data())
def test_the_size_of_a_text_is_exact(parts: tuple[Recalled, ...], data: st.DataObject) -> None:
    block, lines = Size(is_block=True), Size(is_block=False)
    chosen: list[Recalled] = []
    for one in parts:
        before = block.bytes, lines.bytes
        added = block.added(one), lines.added(one)
        block.add(one)
        lines.add(one)
        chosen.append(one)
        assert (block.bytes - before[0], lines.bytes - before[1]) == added
        if data.draw(st.booleans()):
            gone = chosen.pop(data.draw(st.integers(0, len(chosen) - 1)))
            block.remove(gone)
            lines.remove(gone)
        assert block.bytes == len(InjectedContext(tuple(chosen)).block.encode())
        assert lines.bytes == len(str(Recollection(chosen)).encode())


@given(PARTS)
def test_the_text_is_in_the_order_of_sources_and_time(parts: tuple[Recalled, ...]) -> None:
    ordered = in_order(parts)
    assert sorted(map(id, ordered)) == sorted(map(id, parts))
    assert [one.source for one in ordered] == sorted((one.source for one in ordered), key=list(Source).index)
    days = [one.date or date.min for one in ordered if one.source is Source.MEMORY]
    assert days == sorted(days, reverse=True)


def test_a_date_is_shown_once_a_day() -> None:
    def said(text: str, day: int, hour: int) -> Recalled:
        at = datetime(2024, 1, day, hour, tzinfo=UTC)
        return replace(part(text), date=at.date(), said_at=at)

    items = [said("Anna: Good night.", 15, 22), said("Ben: Hello.", 16, 8), said("Anna: Good morning.", 15, 8)]
    lines = ["⁍ [2024-01-16] Ben: Hello.", "⁍ [2024-01-15] Anna: Good morning.", "⁍ Anna: Good night."]
    assert str(Recollection(items)).splitlines() == lines
    assert InjectedContext(tuple(items)).block.splitlines()[3:-1] == lines


@given(TEXTS, st.integers(0, 600))
def test_an_item_is_cut_to_its_budget(text: str, size: int) -> None:
    whole = part(text)
    cut = cut_to(whole, size)
    if len(str(whole).encode()) <= size:
        assert cut is whole
    elif cut is not None:
        assert len(str(cut).encode()) <= size
        assert (cut.source, cut.id, cut.evidence) == (whole.source, whole.id, whole.evidence)
        assert cut.text.endswith("…")
        assert str(whole).startswith(str(cut)[:-1])
        assert len(cut.text) > 12


@given(WORDED, st.integers(110, 600))
def test_a_cut_keeps_words_if_there_is_room(text: str, size: int) -> None:
    assert cut_to(part(text), size) is not None


@pytest.mark.parametrize(
    "text",
    [
        "word " * 1_000,
        "Жа " * 3_000,
        "word\n" * 1_000,
        "Ж" * 3_000,
        "\n" * 50 + "word " * 1_000,
        pytest.param("I said: " + "Ж" * 3_000),
        pytest.param("\n" * 500 + "word " * 1_000),
    ],
)
def test_a_cut_uses_most_of_the_room(text: str) -> None:
    cut = cut_to(part(compact(text)), 400)
    assert cut is not None
    assert 340 <= len(str(cut).encode()) <= 400


@pytest.mark.parametrize(
    ("size", "text"), [(24, "Anna moved to…"), (21, "Anna moved to…"), (20, "Anna moved to…"), (19, None), (0, None)]
)
def test_a_cut_ends_between_words_and_leaves_some(size: int, text: str | None) -> None:
    cut = cut_to(part("Anna moved to Porto last week"), size)
    assert (cut and cut.text) == text


def test_a_date_alone_is_dropped() -> None:
    dated = replace(part("Anna moved to Porto"), date=date(2024, 1, 15))
    left = {size: cut and cut.text for size in range(40) if (cut := cut_to(dated, size)) is not dated}
    assert {text for size, text in left.items() if size < 33} == {None}
    assert left[33] == "[2024-01-15] Anna moved to…"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a text", Document("a text")),
        ({"content": "a text"}, Document("a text")),
        ({"content": "a text", "id": "report.pdf", "score": 3}, Document("a text", "report.pdf")),
        (Document("a text", "x"), Document("a text", "x")),
    ],
)
def test_documents_are_taken_in_three_forms(value: object, expected: Document) -> None:
    assert Document.of(value, 0) == expected


@pytest.mark.parametrize(
    "value",
    [
        None, 5, True, 1.5, b"bytes", "", "  \n", [], ["a"], {}, {"text": "a"}, {"content": None}, {"content": ""},
        {"content": b"a"}, {"content": ["a"]}, {"content": "a", "id": 7}, {"content": "a", "id": b"x"},
        Document(""), Document(5),  # type: ignore[arg-type]
        Document("a", 7),  # type: ignore[arg-type]
        "x" * 5 + "\ud800", {"content": "a", "id": "\udfff"}, object(),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", [0, 2])
def test_a_wrong_document_is_named_by_its_place(value: object, place: int) -> None:
    documents: list[Any] = [*["good"] * place, value, "good"]
    with pytest.raises(InputError, match=rf"documents\[{place}\]") as raised:
        document_parts(documents)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("value", ["x" * 10_000_000, {"content": "x", "id": ["y" * 1_000_000]}, ["z"] * 1_000_000])
def test_an_error_does_not_quote_a_huge_document(value: object) -> None:
    if isinstance(value, str):
        assert Document.of(value, 0).content is value
        return
    with pytest.raises(InputError) as raised:
        Document.of(value, 0)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("documents", [None, 5, "Porto", b"Porto", {"content": "Porto"}, {"Porto"}, iter(["Porto"])])
def test_documents_must_be_a_list(documents: Any) -> None:
    with pytest.raises(InputError, match="documents"):
        document_parts(documents)


def test_documents_are_named_by_their_id_or_their_number() -> None:
    parts = document_parts(["one", {"content": "two", "id": "b.pdf"}, {"content": "three", "id": ""}])
    assert [one.id for one in parts] == ["document 1", "b.pdf", "document 3"]
    assert [one.text for one in parts] == ["one", "[b.pdf] two", "three"]
    assert [one.content for one in parts] == ["one", "two", "three"]
    assert {one.source for one in parts} == {Source.DOCUMENT}


def test_recalled_blocks_are_removed_from_documents() -> None:
    block = mark("- Anna: I moved to Porto.")
    assert Document.of(f"Before.\n{block}\nAfter.", 0) == Document("Before.\nAfter.")
    assert Document.of({"content": f"{block}\nAfter.", "id": "x"}, 0) == Document("After.", "x")
    assert Document.of(Document(block, "x"), 0) == Document("", "x")
    parts = document_parts([block, "one", {"content": f"> {block}", "id": "b.pdf"}, f"{block}two"])
    assert [(one.id, one.text) for one in parts] == [("document 2", "one"), ("document 4", "two")]


@given(st.lists(TEXTS, max_size=4))
def test_no_document_is_blank_or_holds_a_block(documents: list[str]) -> None:
    for one in document_parts(documents):
        assert one.content.strip()
        assert without_recalled(one.content) is one.content
