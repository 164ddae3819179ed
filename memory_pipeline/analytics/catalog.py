"""The catalog of SQL models in ``dbt_like_sql``: dependencies, order and columns.

Staging models read tables of the lake, marts read staging models and marts, and tests read staging models and marts.
The names after FROM and JOIN are the dependencies of a SELECT. sqlglot checks them in models from outside; the tests
check those of the package, so that a run need not import it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline.analytics.lake_views import DERIVED, MONTHLY, SOURCES
from memory_pipeline.analytics.model_files import FOLDERS, Model, read_model
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.sql.session import connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlglot import exp


ROOT = Path(__file__).parents[2] / "dbt_like_sql"
_COMMENT = re.compile(r"--.*")
_READ = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)\b(?![.(])", re.IGNORECASE)
_NAMED = re.compile(r"(\w+)\s+AS\s+(?:(?:NOT\s+)?MATERIALIZED\s+)?\(", re.IGNORECASE)


@dataclass(frozen=True)
class Catalog:
    """All models by name, each after its dependencies, and the models and lake tables that each reads, sorted."""

    models: Mapping[str, Model]
    reads: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, models: Iterable[Model], *, is_trusted: bool = False) -> Catalog:
        """Validate and sort models. The SQL of trusted ones is not parsed.

        Raises:
            InputError: a file is not one SELECT, reads an unknown table or one that its folder may not read, is part of
                a cycle, or has a header with other columns than its SELECT. The message names the files.
        """
        known: dict[str, Model] = {}
        for model in models:
            if model.name in known or model.name in SOURCES:
                other = known[model.name].file if model.name in known else "a table of the lake"
                raise InputError(f"{model.file}: {other} has the same name")
            known[model.name] = model
        reads = {name: _reads(model) for name, model in known.items()}
        for name, model in known.items():
            if not is_trusted:
                _check_sql(model, reads[name])
            _check_reads(model, reads[name], known)
        graph = {name: [read for read in reads[name] if read in known] for name in sorted(known)}
        try:
            order = list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            files = " → ".join(known[name].file for name in reversed(error.args[1]))
            raise InputError(f"circular dependency of models: {files}") from None
        order.sort(key=lambda name: FOLDERS.index(known[name].folder))  # a stable sort keeps the dependency order
        ordered = cls({name: known[name] for name in order}, reads)
        for model in ordered.among("marts"):
            _check_incremental(model, ordered.needed(model.name), known)
        return ordered

    def model(self, name: str) -> Model:
        """Return a model by name.

        Raises:
            InputError: the model is unknown.
        """
        if name not in self.models:
            raise InputError(f"SQL model {shown(name)} is unknown; accepted: {', '.join(sorted(self.models))}")
        return self.models[name]

    def among(self, folder: str) -> list[Model]:
        """Return the models of one folder, each after its dependencies."""
        return [model for model in self.models.values() if model.folder == folder]

    def needed(self, name: str, *, stop_at_marts: bool = False) -> list[str]:
        """Return all direct and indirect dependencies of a model in build order, lake tables first.

        With `stop_at_marts`, marts count as stored tables and their dependencies are omitted.

        Raises:
            InputError: the model is unknown.
        """
        found: set[str] = set()
        waiting = [*self.reads[self.model(name).name]]
        while waiting:
            read = waiting.pop()
            if read not in found:
                found.add(read)
                if read in self.models and not (stop_at_marts and self.models[read].folder == "marts"):
                    waiting += self.reads[read]
        return [*sorted(found - self.models.keys()), *(each for each in self.models if each in found)]


@cache
def read_catalog(root: Path = ROOT) -> Catalog:
    """Read the models below a folder, once per process.

    Raises:
        InputError: see :meth:`Catalog.of` and :func:`memory_pipeline.analytics.model_files.read_model`.
    """
    models = (read_model(folder, path) for folder in FOLDERS for path in sorted((root / folder).glob("*.sql")))
    return Catalog.of(models, is_trusted=root == ROOT)


def models_of(*folders: str) -> list[Model]:
    """Return the models of the given folders, or of all, each after its dependencies."""
    return [model for folder in folders or FOLDERS for model in read_catalog().among(folder)]


def reads_of(name: str) -> tuple[list[str], list[str]]:
    """Return the marts and the lake tables that a model reads, directly or through staging models; both sorted.

    Raises:
        InputError: the model is unknown.
    """
    known = read_catalog()
    read = known.needed(name, stop_at_marts=True)
    marts = [each for each in read if each in known.models and known.models[each].folder == "marts"]
    return sorted(marts), sorted(each for each in read if each not in known.models)


def parsed(model: Model) -> exp.Query:
    """Return the syntax tree of a model's SELECT.

    Raises:
        InputError: the file is not one SELECT.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        statements = sqlglot.parse(model.sql, dialect="duckdb")
    except SqlglotError as error:
        raise InputError(f"{model.file} cannot be parsed: {str(error).splitlines()[0]}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise InputError(f"{model.file}: expected exactly one SELECT")
    return statements[0]


def _reads(model: Model) -> tuple[str, ...]:
    """Return the tables that a model reads, without its CTEs, sorted."""
    sql = _COMMENT.sub("", model.sql)
    return tuple(sorted({*_READ.findall(sql)} - {*_NAMED.findall(sql)}))


def _check_sql(model: Model, reads: Sequence[str]) -> None:
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    tree = parsed(model)
    sources = (source for scope in traverse_scope(tree) for source in scope.sources.values())
    others = {source.name for source in sources if isinstance(source, exp.Table)} ^ set(reads)
    if others:
        raise InputError(f"{model.file}: name each table after FROM or JOIN, and no CTE like one: {min(others)}")
    _check_columns(model, tree)


def _check_reads(model: Model, reads: Iterable[str], known: Mapping[str, Model]) -> None:
    for read in reads:
        if read not in known and read not in SOURCES:
            raise InputError(f"{model.file} reads {shown(read)}, which is neither a model nor a table of the lake")
        folder = known[read].folder if read in known else "lake"
        if folder not in _MAY_READ[model.folder]:
            what = known[read].file if read in known else f"the lake's table {read}"
            accepted = " and ".join(_MAY_READ[model.folder])
            raise InputError(f"{model.file} reads {what}; accepted in {model.folder}: {accepted}")


_MAY_READ = {"staging": ("lake",), "marts": ("staging", "marts"), "tests": ("staging", "marts")}


def _check_columns(model: Model, tree: exp.Query) -> None:
    if not model.columns:
        return
    selected = tree.named_selects
    if selected != list(model.columns):
        at = next(
            (place for place, pair in enumerate(zip(selected, model.columns, strict=False)) if pair[0] != pair[1]),
            min(len(selected), len(model.columns)),
        )
        described = [*model.columns, "nothing"][at]
        raise InputError(
            f"{model.file}: column {at + 1} is {[*selected, 'none'][at]}, but the header describes {described}"
        )


def _check_incremental(model: Model, needed: Iterable[str], known: Mapping[str, Model]) -> None:
    for read in needed:
        what = f"the mart {read}" if read in known else f"the lake's table {read}"
        is_whole = known[read].folder == "marts" if read in known else read not in MONTHLY
        if model.incremental and is_whole:
            accepted = ", ".join(sorted(MONTHLY))
            raise InputError(
                f"{model.file} is incremental and reads {what}, which cannot be read by the month; accepted: {accepted}"
            )


# DuckDB derives column types from empty tables. sqlglot traces columns back to the lake.


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a model. `type` is DuckDB's name, and `description` may be empty.

    `comes_from` lists (table, column) pairs of the mart and lake columns that determine its values, sorted; empty for a
    row count.
    """

    name: str
    type: str
    description: str
    comes_from: tuple[tuple[str, str], ...]


@cache
def columns_of(name: str) -> tuple[Column, ...]:
    """Return the columns of a model.

    Raises:
        InputError: the model is unknown.
    """
    model = read_catalog().model(name)
    direct = _direct(name)
    return tuple(
        Column(column, kind, model.columns.get(column, ""), tuple(sorted(_come_from(name, direct.get(column, ())))))
        for column, kind in _types()[name].items()
    )


def _come_from(name: str, direct: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the columns that determine a column; for tables derived from partitions, the periods of their tables."""
    tables = reads_of(name)[1]
    found = set()
    for table, column in _resolved(direct):
        named = [(each, "period") for each in DERIVED.get(table, ()) if each in tables]
        found |= set(named or [(table, column)])
    return found


@cache
def _types() -> Mapping[str, Mapping[str, str]]:
    known = read_catalog()
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
    from sqlglot import exp
    from sqlglot.lineage import lineage

    known = read_catalog()
    schema = {
        read: dict.fromkeys(SOURCES[read].names if read in SOURCES else _types()[read], "text")
        for read in known.reads[name]
    }
    # Only the end of each lineage is needed. Trimming the SELECTs of the steps would take most of the time.
    nodes = lineage(None, parsed(known.models[name]), schema=schema, dialect="duckdb", trim_selects=False, copy=False)
    assert isinstance(nodes, dict)  # noqa: S101  # nosec B101  # no column was asked for
    return {
        column: frozenset(
            (leaf.expression.name, leaf.name.rpartition(".")[2])
            for leaf in node.walk()
            if not leaf.downstream and isinstance(leaf.expression, exp.Table)
        )
        for column, node in nodes.items()
    }


def _resolved(columns: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for table, column in columns:
        if table in SOURCES or read_catalog().models[table].folder == "marts":
            found.add((table, column))
        else:
            found |= _resolved(_direct(table).get(column, ()))
    return found
