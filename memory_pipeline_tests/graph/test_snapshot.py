"""Graph snapshots of one layer and of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memory_pipeline.domain.graph.triples import NOBODY, Names, fold_operations
from memory_pipeline.graph.snapshot import GraphSnapshot
from memory_pipeline.lake.codec.graph import triples_to_rows
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.graph.line_edits import hour, operations_in

if TYPE_CHECKING:
    import pyarrow as pa


def rows(*said: str, names: Names = NOBODY) -> pa.Table:
    """Return a fact per line, an hour apart."""
    operations = [one for place, line in enumerate(said) for one in operations_in(line, [f"m{place}"], hour(place))]
    return triples_to_rows({ACME: fold_operations(ACME, operations, names=names)})


def facts_in(snapshot: GraphSnapshot) -> set[str]:
    return {f"{row['source']} {row['label']} {row['target']}" for row in snapshot.facts.to_pylist()}


BASE = ("INSERT Anna|likes|tea", "INSERT Anna|lives_in|Porto", "INSERT Bruno|likes|tea")


def test_a_single_layer_has_exactly_the_rows() -> None:
    snapshot = GraphSnapshot(rows(*BASE, "DELETE Bruno|likes|tea"), NOBODY)
    assert snapshot.history.num_rows == 3
    assert facts_in(snapshot) == {"Anna likes tea", "Anna lives_in Porto"}
    tea = snapshot.code("TEA")
    assert tea is not None
    assert snapshot.degrees[tea] == 1
    assert snapshot.code("coffee") is None


def test_a_layer_hides_only_the_rows_it_replaces() -> None:
    base = GraphSnapshot(rows(*BASE), NOBODY)
    top = GraphSnapshot(rows("INSERT Anna|likes|figs"), NOBODY, base, [("anna", "likes"), ("nobody", "likes")])
    assert facts_in(top) == {"Anna likes figs", "Anna lives_in Porto", "Bruno likes tea"}
    assert facts_in(base) == {"Anna likes tea", "Anna lives_in Porto", "Bruno likes tea"}
    counted = {name: int(top.degrees[top.code(name) or 0]) for name in ("anna", "tea", "figs", "porto", "bruno")}
    assert counted == {"anna": 2, "tea": 1, "figs": 1, "porto": 1, "bruno": 1}
    anna = np.array([top.code("anna")])
    found = [layer.rows["target"][int(row)].as_py() for layer, own in top.around(anna) for row in own]
    assert found == ["Porto", "figs"]


def test_ended_facts_are_hidden_too_and_returned_on_demand() -> None:
    base = GraphSnapshot(rows(*BASE, "DELETE Anna|likes|tea"), NOBODY)
    top = GraphSnapshot(rows(*BASE[:1]), NOBODY, base, [("anna", "likes")])
    anna = np.array([top.code("anna")])
    assert sum(len(own) for _, own in top.around(anna, only_holding=False)) == 2
    assert top.history.num_rows == 3
    assert facts_in(top) == {"Anna likes tea", "Anna lives_in Porto", "Bruno likes tea"}


def test_a_layer_may_only_remove_rows() -> None:
    base = GraphSnapshot(rows(*BASE), NOBODY)
    top = GraphSnapshot(rows(), NOBODY, base, [("anna", "likes"), ("anna", "lives_in")])
    assert facts_in(top) == {"Bruno likes tea"}
    assert [row["id"] for row in top.entities.to_pylist()] == ["bruno", "tea"]
    assert top.degrees.sum() == 2


def test_entities_have_their_newest_spelling_but_not_an_alias() -> None:
    names = Names({"annie": "anna"})
    said = ("INSERT ANNA|likes|Tea", "INSERT Anna|likes|figs", "INSERT Annie|likes|TEA")
    with_alias = GraphSnapshot(rows(*said, names=names), names)
    assert with_alias.spelt([with_alias.code("annie") or 0]) == ["Anna"]
    assert with_alias.spelt([with_alias.code("tea") or 0]) == ["TEA"]
    alone = GraphSnapshot(rows(*said), NOBODY)
    assert alone.spelt([alone.code("anna") or 0, alone.code("annie") or 0]) == ["Anna", "Annie"]
    unsaid = GraphSnapshot(rows("INSERT Annie|likes|tea", names=names), names)
    assert unsaid.spelt([unsaid.code("anna") or 0]) == ["anna"], "nobody ever wrote it"


def test_entities_are_counted_at_both_ends_with_first_and_last_time() -> None:
    names = Names({"annie": "anna"})
    said = (*BASE, "INSERT Bruno|knows|Annie", "INSERT Anna|also_known_as|Annie")
    snapshot = GraphSnapshot(rows(*said, names=names), names)
    [anna] = [row for row in snapshot.entities.to_pylist() if row["id"] == "anna"]
    assert (anna["facts"], anna["aliases"], anna["first_seen"], anna["last_seen"]) == (4, ["annie"], hour(0), hour(4))
    assert {row["id"] for row in snapshot.entities.to_pylist()} == {"anna", "annie", "tea", "porto", "bruno"}
