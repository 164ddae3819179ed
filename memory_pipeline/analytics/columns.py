"""What the columns of models are: their types, what they mean, and which columns of the lake they come from.

Types are DuckDB's own answer over tables without rows; where columns come from is read out of the SQL by sqlglot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from memory_pipeline.analytics.catalogue import catalogue, parsed, reads_of
from memory_pipeline.analytics.sources import DERIVED, SOURCES
from memory_pipeline.lake.sql.session import connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a model.

    Attributes:
        name: of the column.
        type: as DuckDB writes it.
        description: what it means, as the header says; empty where the header says nothing.
        comes_from: the columns of marts, and of tables of the lake, that decide its values, sorted: pairs of the
            table's name and the column's. A number of rows comes from none.
    """

    name: str
    type: str
    description: str
    comes_from: tuple[tuple[str, str], ...]


@cache
def columns_of(name: str) -> tuple[Column, ...]:
    """Return the columns of a model.

    Raises:
        InputError: there is no model of that name.
    """
    model = catalogue().model(name)
    direct = _direct(name)
    return tuple(
        Column(column, kind, model.columns.get(column, ""), tuple(sorted(_come_from(name, direct.get(column, ())))))
        for column, kind in _types()[name].items()
    )


def _come_from(name: str, direct: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return what decides a column; what follows from partitions comes from those that the model reads beside it."""
    tables = reads_of(name)[1]
    found = set()
    for table, column in _resolved(direct):
        named = [(each, "period") for each in DERIVED.get(table, ()) if each in tables]
        found |= set(named or [(table, column)])
    return found


@cache
def _types() -> Mapping[str, Mapping[str, str]]:
    """Return the types of the columns of all models."""
    known = catalogue()
    connection = connect()
    for name, schema in SOURCES.items():
        connection.register(name, schema.empty_table())
    types = {}
    for name, model in known.models.items():
        connection.execute(f'CREATE VIEW "{name}" AS {model.sql}')
        types[name] = {str(row[0]): str(row[1]) for row in connection.execute(f'DESCRIBE "{name}"').fetchall()}
    connection.close()
    return types


@cache
def _direct(name: str) -> Mapping[str, frozenset[tuple[str, str]]]:
    """Return, for each column of a model, the columns of what it reads itself."""
    from sqlglot import exp
    from sqlglot.lineage import lineage

    known = catalogue()
    schema = {
        read: dict.fromkeys(SOURCES[read].names if read in SOURCES else _types()[read], "text")
        for read in known.reads[name]
    }
    # Only where a column ends is of use here: SELECTs cut down to each step on the way would take most of the time.
    nodes = lineage(None, parsed(known.models[name]), schema=schema, dialect="duckdb", trim_selects=False, copy=False)
    assert isinstance(nodes, dict)  # noqa: S101  # no column was asked for
    return {
        column: frozenset(
            (leaf.expression.name, leaf.name.rpartition(".")[2])
            for leaf in node.walk()
            if not leaf.downstream and isinstance(leaf.expression, exp.Table)
        )
        for column, node in nodes.items()
    }


def _resolved(columns: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Follow columns through staging models, down to marts and to tables of the lake."""
    found: set[tuple[str, str]] = set()
    for table, column in columns:
        if table in SOURCES or catalogue().models[table].folder == "marts":
            found.add((table, column))
        else:
            found |= _resolved(_direct(table).get(column, ()))
    return found
