"""Columns declare whether they hold people's words, and erasure skips none that do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from memory_pipeline.domain.erasure import Forgotten, Tombstone
from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.messages import Message, Role
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure.subject_matcher import SubjectMatcher
from memory_pipeline.lake.schema_types import (
    COPY,
    ID,
    IDS,
    NOTE,
    TEXT,
    TEXTS,
    TIME,
    USER,
    WORD_LIST,
    WORDS,
    Holds,
    TableSpec,
    Texts,
    field,
)
from memory_pipeline.lake.schemas import MESSAGES, TABLES
from memory_pipeline_tests.building import ACME

AT = datetime(2024, 1, 15, 8, tzinfo=UTC)
SAID = "ask Anna"
ANNA = Subject.person("acme", ["Anna"])
STRUCT = pa.struct([pa.field("at", TIME), pa.field("names", TEXTS)])


@pytest.mark.parametrize("kind", [TEXT, TEXTS, STRUCT, pa.list_(STRUCT)])
def test_a_text_column_must_declare_what_its_texts_are(kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="column mood has texts; declare what they are"):
        field("mood", kind, "How it was said.")
    spec = TableSpec("things", pa.schema([pa.field("mood", kind)]), ())
    assert spec.holding(Holds.WORDS) == ("mood",)  # a schema from elsewhere is searched as a whole


def test_the_kinds_of_texts_are_known_and_not_stored() -> None:
    kinds = {"a": WORDS, "b": WORD_LIST, "c": COPY, "d": NOTE, "e": USER, "f": ID, "g": IDS}
    fields = [field(name, kind, "A comment.") for name, kind in kinds.items()]
    fields += [field("h", Texts(pa.list_(STRUCT), Holds.WORDS), "A comment."), field("i", TIME, "A comment.")]
    spec = TableSpec("things", pa.schema(fields), ())
    assert spec.holding(Holds.WORDS) == ("a", "b", "h")
    assert spec.holding(Holds.NOTE, Holds.USER, Holds.COPY) == ("c", "d", "e")
    assert spec.holding(Holds.ID) == ("f", "g")
    assert {frozenset((own.metadata or {}).items()) for own in spec.schema} == {
        frozenset([(b"comment", b"A comment.")])
    }
    for table in TABLES.values():
        assert all(own.metadata.keys() == {b"comment"} for own in table.schema)


def test_a_name_in_any_text_column_erases_a_message() -> None:
    forgotten = Forgotten(Tombstone.of(ANNA, AT, "0" * 32))
    plain = Message("id", ACME, "c1", None, ("phone",), "m1", 0, Role.USER, "Dora", "Hello.", AT, AT)
    assert not forgotten.covers(plain)
    for name in MESSAGES.holding(Holds.WORDS):
        value = ("ask Anna",) if name == "tags" else "ask Anna"
        assert forgotten.covers(replace(plain, **{name: value})), name  # type: ignore[arg-type]  # of its type
    assert MESSAGES.holding(Holds.USER) == ("user_id",)
    assert forgotten.covers(replace(plain, user_id="Anna"))


def test_verification_scans_every_text_column() -> None:
    looker = SubjectMatcher(ANNA, AT)
    for spec in TABLES.values():
        ids = {name: ["acme", "m"] for name in ("workspace_id", "memory_id") if name in spec.schema.names}
        for name in spec.holding(Holds.WORDS, Holds.NOTE, Holds.COPY):
            kind = spec.schema.field(name).type
            is_nested = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
            nested = (
                {part.name: SAID for part in kind.value_type if pa.types.is_string(part.type)} if is_nested else SAID
            )
            value = [nested] if pa.types.is_list(kind) else SAID
            rows = pa.table({**{own: [values[0]] for own, values in ids.items()}, name: pa.array([value], kind)})
            # Relations have canonical names and are stored beside the original words.
            assert bool(looker.in_rows(rows)) is (name != "predicate"), (spec.name, name)


def test_a_name_in_any_text_erases_a_memory_event() -> None:
    forgotten = Forgotten(Tombstone.of(ANNA, AT, "0" * 32))
    kinds = {name: own.type for name, own in Changes.__dataclass_fields__.items()}
    texts = [name for name, kind in kinds.items() if str(kind).startswith("str")]
    assert {"content", "title", "value"} < set(texts)
    for said in [*({name: "Anna"} for name in texts), {"tags": ("Anna",)}]:
        event = MemoryEvent.of(ACME, MemoryVerb.REMEMBER, AT, Changes(**said))  # type: ignore[arg-type]  # texts
        assert forgotten.covers(event), said
