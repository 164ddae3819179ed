"""Codecs: refused declarations, and missing, nested and long values."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from memory_pipeline.lake.codec.codec import Attribute, Codec, ids_digest, to_column, to_values
from memory_pipeline.lake.schema_types import ID, TEXT, TEXTS, WORD_LIST, WORDS, TableSpec, field

PART = pa.struct([pa.field("word", TEXT), pa.field("ids", TEXTS), pa.field("at", pa.int32())])


@dataclass(frozen=True)
class Part:
    word: str
    ids: tuple[str, ...]
    at: int | None


@dataclass(frozen=True)
class Thing:
    id: str
    text: str
    tags: tuple[str, ...] = ()
    seen: int = 0


FIELDS = [
    field("place", ID, "Where."),
    field("id", ID, "Id."),
    field("says", WORDS, "Text."),
    field("tags", WORD_LIST, "Tags?", nullable=True),
    field("made", ID, "By what?", nullable=True),
]
THINGS = TableSpec("things", pa.schema(FIELDS), ("place",))
FORMS = {"text": Attribute(("says",))}
CODEC = Codec(
    THINGS, Thing, columns={"says": lambda one: one.text}, given=("place", "made"), attributes=FORMS, unstored=["seen"]
)


@pytest.mark.parametrize("count", [0, 1, 3, 200])
def test_records_round_trip_through_any_number_of_rows_and_chunks(count: int) -> None:
    things = [Thing(f"t{n}", f"word {n}", ("a",) * (n % 3)) for n in range(count)]
    rows = CODEC.to_rows(things, place="here", made=[f"by {n}" for n in range(count)])
    rows.validate(full=True)
    assert rows.schema.equals(THINGS.schema, check_metadata=True)
    assert CODEC.to_records(rows) == things
    assert CODEC.to_records(pa.concat_tables([rows.slice(1), rows.slice(0, 1)])) == [*things[1:], *things[:1]]
    assert [CODEC.to_record(row) for row in rows.to_pylist()] == things
    alone = pa.Table.from_pylist(list(map(CODEC.to_row, things)), rows.select(["id", "says", "tags"]).schema)
    assert alone.equals(rows.select(["id", "says", "tags"]))


@pytest.mark.parametrize("count", [1, 200])
def test_a_missing_list_is_read_as_empty(count: int) -> None:
    rows = CODEC.to_rows([Thing("t", "word", ("a",))] * count, place="here")
    assert rows["made"].null_count == count
    without = rows.set_column(3, THINGS.schema.field("tags"), pa.nulls(count, TEXTS))
    assert (
        CODEC.to_records(pa.concat_tables([without, rows]))
        == [Thing("t", "word")] * count + [Thing("t", "word", ("a",))] * count
    )


def test_a_column_without_a_field_is_required_unless_nullable() -> None:
    with pytest.raises(TypeError, match="table things needs place"):
        CODEC.to_rows([])


@pytest.mark.parametrize("count", [0, 1, 200])
def test_lists_of_nested_records_round_trip_as_tuples(count: int) -> None:
    own = [(), (Part("a", ("x", "y"), None), Part("b", (), 2)), (Part("c", ("z",), 3),)] * count
    column = to_column(own, pa.list_(PART))
    column.validate(full=True)
    assert column.to_pylist() == [[{"word": p.word, "ids": [*p.ids], "at": p.at} for p in parts] for parts in own]
    assert to_values(column) == [tuple((part.word, part.ids, part.at) for part in parts) for parts in own]


def test_an_undeclared_column_or_field_is_refused() -> None:
    def refused(*, forms: dict[str, Attribute] = FORMS, given: tuple[str, ...] = ("place", "made"), seen: str) -> str:
        with pytest.raises(TypeError) as caught:
            Codec(THINGS, Thing, columns={"says": str}, given=given, attributes=forms, unstored=[seen])
        return str(caught.value)

    assert refused(given=("place",), seen="seen") == "table things and Thing do not fit: made"
    assert refused(forms={}, seen="seen") == "table things and Thing do not fit: text"
    assert refused(seen="tags") == "table things and Thing do not fit: seen, tags"


def test_the_digest_depends_on_the_set_of_ids() -> None:
    ids = [f"kind:{number:032x}" for number in range(9)]
    assert ids_digest(ids) == ids_digest(ids[::-1]) != ids_digest(ids[1:])
    assert ids_digest([]) != ids_digest(ids)
