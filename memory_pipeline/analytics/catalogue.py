"""The models of ``dbt_like_sql`` together: which builds on which, as their SQL says, and in which order they are made.

Staging models read tables of the lake, marts read staging models and marts, and tests read all but tests. Nobody
writes the order down: sqlglot finds the tables in each SELECT.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline.analytics.headers import FOLDERS, Model, read_model
from memory_pipeline.analytics.sources import MONTHLY, SOURCES
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlglot import exp

ROOT = Path(__file__).parents[2] / "dbt_like_sql"


@dataclass(frozen=True)
class Catalogue:
    """All models, and what each reads.

    Attributes:
        models: by name, in an order in which each follows what it reads.
        reads: the names of the models, or of tables of the lake, that each model names in its SQL, sorted.
    """

    models: Mapping[str, Model]
    reads: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, models: Iterable[Model]) -> Catalogue:
        """Order models and check that they fit together.

        Raises:
            InputError: a file is not one SELECT, names what there is not, reads what its folder may not read, or reads
                itself in the end; or a header describes other columns than there are. The message names the files.
        """
        known: dict[str, Model] = {}
        for model in models:
            if model.name in known or model.name in SOURCES:
                other = known[model.name].file if model.name in known else "a table of the lake"
                raise InputError(f"{model.file}: {other} has the same name")
            known[model.name] = model
        trees = {name: parsed(model) for name, model in known.items()}
        reads = {name: tuple(sorted(_tables(tree))) for name, tree in trees.items()}
        for name, model in known.items():
            _check_reads(model, reads[name], known)
            _check_columns(model, trees[name])
        graph = {name: [read for read in reads[name] if read in known] for name in sorted(known)}
        try:
            order = list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            files = " → ".join(known[name].file for name in reversed(error.args[1]))
            raise InputError(f"these read each other in a circle: {files}") from None
        order.sort(key=lambda name: FOLDERS.index(known[name].folder))  # stable: it fits the graph as before
        ordered = cls({name: known[name] for name in order}, reads)
        for model in ordered.among("marts"):
            _check_incremental(model, ordered.needed(model.name), known)
        return ordered

    def model(self, name: str) -> Model:
        """Return a model by its name.

        Raises:
            InputError: there is no model of that name.
        """
        if name not in self.models:
            raise InputError(f"SQL model {shown(name)} is unknown; there are: {', '.join(sorted(self.models))}")
        return self.models[name]

    def among(self, folder: str) -> list[Model]:
        """Return the models of one folder, each after those that it reads."""
        return [model for model in self.models.values() if model.folder == folder]

    def needed(self, name: str, *, stop_at_marts: bool = False) -> list[str]:
        """Return all that a model reads, directly or not, each after what it reads itself; tables of the lake first.

        Args:
            name: of the model, which is not among them.
            stop_at_marts: whether what a mart reads is left out, since its rows are taken as they are stored.

        Raises:
            InputError: there is no model of that name.
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
def catalogue(root: Path = ROOT) -> Catalogue:
    """Read the models below a folder; the files are read once in a process.

    Raises:
        InputError: see :meth:`Catalogue.of` and :func:`memory_pipeline.analytics.headers.read_model`.
    """
    return Catalogue.of(
        read_model(folder, path) for folder in FOLDERS for path in sorted((root / folder).glob("*.sql"))
    )


def models_of(*folders: str) -> list[Model]:
    """Return the models of the given folders, or of all, each after those that it reads."""
    return [model for folder in folders or FOLDERS for model in catalogue().among(folder)]


def reads_of(name: str) -> tuple[list[str], list[str]]:
    """Return the marts and the tables of the lake that a model reads, itself or through staging models; both sorted.

    Raises:
        InputError: there is no model of that name.
    """
    known = catalogue()
    read = known.needed(name, stop_at_marts=True)
    marts = [each for each in read if each in known.models and known.models[each].folder == "marts"]
    return sorted(marts), sorted(each for each in read if each not in known.models)


def parsed(model: Model) -> exp.Query:
    """Return a model's SELECT as a tree.

    Raises:
        InputError: the file holds something else.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        statements = sqlglot.parse(model.sql, dialect="duckdb")
    except SqlglotError as error:
        raise InputError(f"{model.file} cannot be read: {str(error).splitlines()[0]}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise InputError(f"{model.file}: expected one SELECT, and nothing else")
    return statements[0]


def _tables(tree: exp.Query) -> set[str]:
    """Return the names of the tables that a query reads; a name that it gives to a part of itself is none."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    sources = (source for scope in traverse_scope(tree) for source in scope.sources.values())
    return {source.name for source in sources if isinstance(source, exp.Table)}


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
    """Raise if the header describes other columns than the SELECT has."""
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
            f"{model.file}: column {at + 1} is {[*selected, 'none'][at]}, and the header describes {described} there"
        )


def _check_incremental(model: Model, needed: Iterable[str], known: Mapping[str, Model]) -> None:
    """Raise if a mart that is made by the month reads what cannot be read by the month."""
    for read in needed:
        what = f"the mart {read}" if read in known else f"the lake's table {read}"
        is_whole = known[read].folder == "marts" if read in known else read not in MONTHLY
        if model.incremental and is_whole:
            accepted = ", ".join(sorted(MONTHLY))
            raise InputError(
                f"{model.file} is incremental and reads {what}, which cannot be read by the month; accepted: {accepted}"
            )
