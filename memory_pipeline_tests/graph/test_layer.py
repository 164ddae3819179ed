"""Facts in arrays: codes of entities, and rows of an entity."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from memory_pipeline.domain.graph.triples import fold_operations
from memory_pipeline.graph.snapshot import Codes, Layer
from memory_pipeline.lake.codec.graph import triples_to_rows
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.domain.graph_oracle import PLAIN, histories
from memory_pipeline_tests.graph.line_edits import hour, operations_in


def column(*names: str) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(names, pa.string())])


def layer(*said: str, codes: Codes | None = None) -> Layer:
    """Return a layer with a fact per line, an hour apart."""
    operations = [one for place, line in enumerate(said) for one in operations_in(line, [f"m{place}"], hour(place))]
    return Layer(triples_to_rows({ACME: fold_operations(ACME, operations)}), Codes() if codes is None else codes)


def test_names_are_numbered_in_order_of_arrival() -> None:
    codes = Codes()
    assert codes.of(column("a", "b", "a")).tolist() == [0, 1, 0]
    assert codes.of(column("c", "b")).tolist() == [2, 1]
    assert [codes.get(name) for name in ("a", "b", "c", "d")] == [0, 1, 2, None]
    assert [codes.name(code) for code in range(len(codes))] == ["a", "b", "c"]


def test_an_upper_layer_continues_the_codes_below() -> None:
    below = Codes()
    below.of(column("a", "b"))
    above = Codes(below)
    assert above.of(column("b", "c", "a", "c")).tolist() == [1, 2, 0, 2]
    assert (len(above), len(below), below.get("c")) == (3, 2, None)
    assert [above.name(code) for code in range(3)] == ["a", "b", "c"]
    another = Codes(below)
    assert another.of(column("d")).tolist() == [2]


def test_names_that_contain_a_text_are_found_in_lower_layers_too() -> None:
    below = Codes()
    below.of(column("green tea", "coffee"))
    above = Codes(below)
    above.of(column("tea house", "a.c"))
    assert above.holding("tea") == [0, 2]
    assert above.holding(".") == [3], "it is no pattern"
    above.of(column("tea bag"))
    assert above.holding("tea") == [0, 2, 4], "what came since is found"
    assert Codes().holding("x") == []


def test_an_empty_layer_has_no_rows() -> None:
    empty = layer()
    assert len(empty) == 0
    assert empty.rows_of(np.array([0]), 0).tolist() == []
    assert empty.touching(np.array([0, 5])).tolist() == []
    assert empty.degrees(3).tolist() == [0, 0, 0]
    assert empty.newest(0, 0) is None


def test_rows_are_found_by_one_end_and_by_both() -> None:
    codes = Codes()
    own = layer("INSERT A|x|B", "INSERT B|x|C", "INSERT A|y|A", codes=codes)
    a, b = codes.get("a"), codes.get("b")
    assert a is not None
    assert b is not None
    said = [f"{row['source']}{row['label']}{row['target']}" for row in own.rows.to_pylist()]
    assert {said[row] for row in own.rows_of(np.array([a]), 0)} == {"AxB", "AyA"}
    assert {said[row] for row in own.rows_of(np.array([a]), 1)} == {"AyA"}
    assert [said[row] for row in own.touching(np.array([a]))] == ["AxB", "AyA"], "each once"
    assert {said[row] for row in own.touching(np.array([a, b]))} == {"AxB", "AyA", "BxC"}
    assert own.rows_of(np.array([99]), 0).tolist() == []


def test_the_newest_row_of_an_end_is_found() -> None:
    codes = Codes()
    own = layer("INSERT A|x|B", "INSERT a|x|C", "INSERT Z|x|A", "INSERT A|x|B", codes=codes)
    targets, sources = own.rows["target"].to_pylist(), own.rows["source"].to_pylist()
    a, z = codes.get("a") or 0, codes.get("z") or 0
    row, other = own.newest(a, 0), own.newest(a, 1)
    assert row is not None
    assert other is not None
    assert (targets[row], sources[other]) == ("B", "Z")
    assert own.newest(z, 1) is None
    assert own.newest(99, 0) is None


@pytest.mark.parametrize("seed", range(3))
def test_arrays_agree_with_a_scan_of_all_rows(seed: int) -> None:
    chance = random.Random(seed)
    for operations, _ in histories(f"layer {seed}", 40, PLAIN):
        codes = Codes()
        own = Layer(triples_to_rows({ACME: fold_operations(ACME, operations)}), codes)
        rows = own.rows.to_pylist()
        asked = chance.sample(range(len(codes)), min(len(codes), 2))
        names = {codes.name(code) for code in asked}
        for end, column in enumerate(("source_id", "target_id")):
            expected = [place for place, row in enumerate(rows) if row[column] in names]
            assert sorted(own.rows_of(np.array(asked, np.int64), end).tolist()) == expected
        expected = [place for place, row in enumerate(rows) if {row["source_id"], row["target_id"]} & names]
        assert own.touching(np.array(asked, np.int64)).tolist() == expected
        assert own.holds.tolist() == [row["valid_to"] is None for row in rows]
        degrees = [
            sum(name in (row["source_id"], row["target_id"]) for row in rows if row["valid_to"] is None)
            for name in map(codes.name, range(len(codes)))
        ]
        assert own.degrees(len(codes)).tolist() == degrees
