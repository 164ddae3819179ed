"""Conversion of graph operations and facts to rows and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory_pipeline.domain.graph.triples import fold_operations, name_key
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.graph import (
    operations_to_rows,
    rows_to_operations,
    rows_to_triples,
    triples_to_rows,
)
from memory_pipeline.lake.schemas import GRAPH_FACTS, GRAPH_OPERATIONS
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.domain.graph_oracle import NAMING, PLAIN, histories
from memory_pipeline_tests.graph.line_edits import hour, operations_in

OTHER = Scope("acme", "sales")
TEA = operations_in("INSERT Anna|likes|tea", ["m1"], hour(0))


@pytest.mark.parametrize("are_edits", [True, False])
def test_operations_round_trip_with_their_message(are_edits: bool) -> None:
    for operations, _ in histories("rows", 100, PLAIN + NAMING):
        own = [replace(one, conversation_id=f"of {one.message_ids[0]}") for one in operations]
        rows = operations_to_rows({ACME: own}, are_edits=are_edits)
        assert rows.schema.equals(GRAPH_OPERATIONS.schema)
        assert set(rows["is_edit"].to_pylist()) <= {are_edits}
        expected = {replace(one, message_ids=one.message_ids[:1]) for one in own}
        assert set(rows_to_operations(rows)) == expected
        assert rows.num_rows == len(expected) == len(set(rows["id"].to_pylist()))
        assert rows["subject_id"].to_pylist() == [name_key(name) for name in rows["subject"].to_pylist()]


def test_a_row_contains_its_scope_and_hour() -> None:
    rows = operations_to_rows({ACME: TEA, OTHER: operations_in("DELETE Anna|likes|", ["m2"], hour(2))}, are_edits=False)
    found = [(row["scope"], row["period"], row["agent_id"], row["verb"], row["object"]) for row in rows.to_pylist()]
    assert found == [
        (ACME.key, "2024-01-15T08", "support", "INSERT", "tea"),
        (OTHER.key, "2024-01-15T10", "sales", "DELETE", ""),
    ]


def test_duplicate_operations_become_one_row_and_different_ones_separate_rows() -> None:
    [tea] = TEA
    others = [
        replace(tea, confidence=0.1),
        replace(tea, weight=0.5),
        replace(tea, object="Tea"),
        replace(tea, message_ids=("m2",)),
        replace(tea, event_at=hour(1)),
    ]
    rows = operations_to_rows({ACME: [tea, tea, *others, tea], OTHER: [tea]}, are_edits=False)
    assert rows.num_rows == len(set(rows["id"].to_pylist())) == 2 + len(others)


def test_no_operations_give_no_rows() -> None:
    assert operations_to_rows({}, are_edits=True).equals(GRAPH_OPERATIONS.schema.empty_table())
    assert operations_to_rows({ACME: []}, are_edits=True).num_rows == 0
    assert rows_to_operations(GRAPH_OPERATIONS.schema.empty_table()) == []
    assert rows_to_triples(triples_to_rows({ACME: []})) == []


def test_facts_round_trip_through_the_table(lake: Lake) -> None:
    for number, (operations, vocabulary) in enumerate(histories("triples", 12, PLAIN + NAMING)):
        scope = Scope("acme", f"a{number}")
        triples = fold_operations(scope, operations, vocabulary)
        rows = triples_to_rows({scope: triples})
        assert rows.schema.equals(GRAPH_FACTS.schema)
        assert rows_to_triples(rows) == triples
        assert set(rows["source_digest"].to_pylist()) <= {None}
        assert rows["source_hour"].to_pylist() == [f"{one.valid_from:%Y-%m-%dT%H}" for one in triples]
        lake.graph_rows.replace(rows, [scope])
        stored = lake.graph_rows.read([scope])
        assert sorted(map(str, rows_to_triples(stored))) == sorted(map(str, triples))
        assert {one.id: one for one in rows_to_triples(stored)} == {one.id: one for one in triples}


@pytest.mark.parametrize("name", ["O'Brien", 'a"b', "x" * 300, "🏳️‍🌈", "\u202eabc", "null", "", "%s {0}"])
def test_terms_are_stored_unchanged(lake: Lake, name: str) -> None:
    [tea] = TEA
    own = replace(tea, object=name)
    rows = operations_to_rows({ACME: [own]}, are_edits=True)
    lake.tables.replace(GRAPH_OPERATIONS, rows["period"].to_pylist(), rows)
    assert rows_to_operations(lake.tables.read(GRAPH_OPERATIONS)) == [own]
