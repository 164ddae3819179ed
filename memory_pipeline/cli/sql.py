"""The command `sql`, which shows and runs the models of dbt_like_sql."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.common import cli, echo_table, lake_of, settings_of
from memory_pipeline.cli.verbs import command
from memory_pipeline.errors import InputError, counted
from memory_pipeline.rendering import table_lines, to_json

if TYPE_CHECKING:
    import pyarrow as pa

    from memory_pipeline.analytics import Catalog

#: Rows that --run prints for people.
_SHOWN = 50


@command(cli, arguments={"model"})
def sql(
    root: str | None,
    as_json: bool,
    model: str | None = None,
    run: bool = False,
    lineage: bool = False,
    dag: bool = False,
    build: bool = False,
    full: bool = False,
) -> None:
    """Print the SQL of a MODEL of dbt_like_sql. Without MODEL, list all models.

    \b
    memory-pipeline sql                           list the models
    memory-pipeline sql memory_growth             print the SQL of a mart
    memory-pipeline sql memory_growth --run       print its rows
    memory-pipeline sql growth_adds_up --run      run a test: prints the rows that violate it

    Staging models read the lake's tables, marts read staging models, and tests read both. --run reads the current
    lake, whether or not the mart was built.

    Args:
        model: a model of staging, marts or tests.
        run: run MODEL on the lake and print its rows.
        lineage: print the source columns of each column.
        dag: print dependencies in build order, of MODEL or of all models.
        build: build the mart MODEL and the marts it reads, in the lake's marts/.
        full: with --build: rebuild all months, not only those that changed.
    """
    from memory_pipeline.analytics import Warehouse, columns_of, read_catalog

    chosen = [
        name for name, given in (("--run", run), ("--lineage", lineage), ("--dag", dag), ("--build", build)) if given
    ]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} do not go together; give one of them")
    if full and not build:
        raise InputError("--full needs --build; add it, or leave out --full")
    known = read_catalog()
    if dag:
        _print_order(known, model, as_json=as_json)
    elif model is None:
        if chosen:
            raise InputError(f"{chosen[0]} needs a MODEL; accepted: {', '.join(sorted(known.models))}")
        _print_list(known, as_json=as_json)
    elif lineage:
        columns = columns_of(model)
        lines = (
            f"{each.name:<24} {', '.join(f'{table}.{column}' for table, column in each.comes_from)}".rstrip()
            for each in columns
        )
        click.echo(to_json(columns) if as_json else "\n".join(lines))
    elif build:
        built = Warehouse(lake_of(settings_of(root))).build(model, full=full)
        months = f"{counted(built.months, 'month')} rebuilt, " if known.model(model).incremental else ""
        state = "changed" if built.changed else "unchanged"
        read = f"{months}{counted(built.read, 'row')} read in {built.seconds:.1f} s"
        text = f"{model}: {counted(built.rows, 'row')}, {state}; {read}"
        click.echo(to_json(built) if as_json else text)
    elif run:
        _print_rows(Warehouse(lake_of(settings_of(root))).query(model), as_json=as_json)
    else:
        found = known.model(model)
        click.echo(to_json({"model": found, "columns": columns_of(model)}) if as_json else found.sql.rstrip())


def _print_list(known: Catalog, *, as_json: bool) -> None:
    models = list(known.models.values())
    if as_json:
        click.echo(to_json([{"folder": m.folder, "name": m.name, "description": m.description} for m in models]))
        return
    width = max(len(model.name) for model in models)
    click.echo("\n".join(f"{m.folder:<8} {m.name:<{width}}  {m.description.split('. ')[0]}" for m in models))


def _print_order(known: Catalog, name: str | None, *, as_json: bool) -> None:
    names = list(known.models)
    if name is not None:
        names = [each for each in (*known.needed(name), known.model(name).name) if each in known.models]
    rows = [{"folder": known.models[each].folder, "name": each, "reads": known.reads[each]} for each in names]
    width = max(map(len, names))
    lines = (f"{known.models[each].folder:<8} {each:<{width}} ← {', '.join(known.reads[each])}" for each in names)
    click.echo(to_json(rows) if as_json else "\n".join(lines))


def _print_rows(rows: pa.Table, *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(rows.to_pylist()))
        return
    echo_table(table_lines(rows.column_names, [[*row.values()] for row in rows.slice(0, _SHOWN).to_pylist()]))
    more = f", of which {_SHOWN} are shown; --json prints all" if rows.num_rows > _SHOWN else ""
    click.echo(f"{counted(rows.num_rows, 'row')}{more}")
