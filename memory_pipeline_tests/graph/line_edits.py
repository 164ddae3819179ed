"""Helpers for tests of the graph: messages that state operations, edits, and split histories."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import Extraction, FactKind
from memory_pipeline.domain.graph.operations import Edit, Operation
from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.graph import Graph
from memory_pipeline.graph.state import GraphOverlay
from memory_pipeline.graph.writer import GraphWriter
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.graph import operations_to_rows
from memory_pipeline.lake.schemas import GRAPH_OPERATIONS, IS_FACT
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.overlay import PendingFile, PendingJournal
from memory_pipeline.steps.fold_graph import refold_graph, sync_operations
from memory_pipeline_tests.building import ACME, NOW, START
from memory_pipeline_tests.domain.graph_oracle import AT, histories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.facts import ConversationHour
    from memory_pipeline.models.factory import Models

Rows = list[dict[str, Any]]

#: A configuration that declares predicates, and its vocabulary.
CONFIGURATION = b"defaults:\n  graph:\n    single_valued: [pet, alias]\n    multi_valued: [age, born_in]\n"


VOCABULARY = Vocabulary(single=frozenset({"pet", "alias"}), multi=frozenset({"age", "born_in"}))


class LineExtractor:
    """Parses operations from lines such as ``INSERT Anna | likes | tea``, in place of a model."""

    def __init__(self) -> None:
        self._rules = DeterministicExtractor()

    def method(self, scope: Scope) -> str:
        return "telling-1"

    def extract(
        self, passages: Sequence[ConversationHour], recall: Callable[[], Mapping[Scope, Sequence[Operation]]]
    ) -> list[Extraction]:
        return [
            Extraction(
                tuple(
                    replace(
                        fact,
                        operations=operations_in(fact.content.partition(": ")[2], fact.message_ids, fact.event_at)
                        if fact.kind is FactKind.TURN
                        else (),
                    )
                    for fact in self._rules.facts_of(passage.messages)
                )
            )
            for passage in passages
        ]


def line_models(models: Models) -> Models:
    """Return the models with the parsing extractor."""
    return replace(models, extractor=LineExtractor())


def operations_in(text: str, message_ids: Sequence[str], at: datetime) -> tuple[Operation, ...]:
    """Return the operations in the lines of a text."""
    lines = [line.split(" ", 1) for line in text.splitlines() if line.count("|") == 2]
    return tuple(
        replace(
            Operation.of(verb, *rest.split("|"), confidence=0.8, message_ids=message_ids, event_at=at), received_at=at
        )
        for verb, rest in lines
    )


def graph_of(lake: Lake, scope: Scope = ACME) -> Graph:
    """Return the graph of a new reader."""
    return Graph(GraphOverlay(lake, scope, PendingJournal(lake, scope)), lake.calendar)


def writer_of(lake: Lake, scope: Scope = ACME) -> GraphWriter:
    """Return a graph writer that accepts the lake's first day."""
    return GraphWriter(lake, scope, START, PendingJournal(lake, scope))


def hour(number: float) -> datetime:
    """Return the time `number` hours after the start of the histories."""
    return AT + timedelta(hours=number)


def write_edits(lake: Lake, *changes: str, scope: Scope = ACME, at: datetime = AT) -> list[str]:
    """Write edits such as ``INSERT Anna | likes | tea`` to the journal, a minute apart. Return their ids."""
    made = []
    for place, change in enumerate(changes):
        verb, terms = change.split(" ", 1)
        subject, predicate, value = (term.strip() for term in terms.split("|"))
        made.append(
            {
                "edit": verb,
                "subject": subject,
                "predicate": predicate,
                "object": value or None,
                "timestamp": at + timedelta(minutes=place),
            }
        )
    return writer_of(lake, scope).apply(made, now=NOW)


def land(lake: Lake, operations: Mapping[Scope, Sequence[Operation]]) -> None:
    """Replace the operations of some agents and fold them, with the pipeline's own steps."""
    lake.ensure()
    rows = operations_to_rows(operations, are_edits=True)
    own = pa.array([scope.key for scope in operations], pa.string())

    def changed(old: pa.Table) -> pa.Table:
        return pa.concat_tables([old.filter(pc.invert(pc.is_in(old["scope"], own))), rows])

    hours = {*lake.tables.keys(GRAPH_OPERATIONS), *rows["period"].to_pylist()}
    lake.tables.transform(GRAPH_OPERATIONS, hours, changed)
    refold_graph(lake, operations, sync_operations(lake, hours).changed)


class Waiting(PendingJournal):
    """Pending entries with the given operations, one file per list, without a journal."""

    def __init__(self, lake: Lake, scope: Scope, *files: Sequence[Operation]) -> None:
        super().__init__(lake, scope)
        self.held = {
            f"file {number}": PendingFile((), (Edit("edit", scope, tuple(own), NOW),))
            for number, own in enumerate(files)
        }

    def files(self) -> dict[str, PendingFile]:
        return dict(self.held)


def cut(seed: object, count: int, predicates: list[str]) -> Iterator[tuple[list[Operation], list[list[Operation]]]]:
    """Yield histories of messages at distinct times, split into committed ones and two pending files."""
    chance = random.Random(f"{seed} cut")
    for operations, _ in histories(seed, count, predicates):
        at = dict(zip(operations, chance.sample(range(len(operations)), len(operations)), strict=False))
        own = [
            replace(one, message_ids=(f"m{minute}",), event_at=AT + timedelta(minutes=7 * minute), conversation_id="c")
            for one, minute in at.items()
        ]
        parts: list[list[Operation]] = [[], [], []]
        for one in own:
            chance.choice(parts).append(one)
        yield parts[0], parts[1:]


def graph_rows(lake: Lake) -> dict[str, Rows]:
    """Return all rows of the graph, by table, in one order."""
    rows = {
        "graph_operations": lake.tables.read(GRAPH_OPERATIONS),
        "operations": lake.operations.scan(),
        "graph_facts": lake.graph_rows.scan(where=IS_FACT),
        "states": lake.graph_rows.scan(["id", "source_digest"], where=f"NOT ({IS_FACT})"),
    }
    return {name: sorted(own.to_pylist(), key=lambda row: str(row["id"])) for name, own in rows.items()}


def lines(facts: object) -> list[str]:
    """Return facts as ``Anna likes tea``."""
    return [f"{one.source} {one.label} {one.target}" for one in facts]  # type: ignore[attr-defined]
