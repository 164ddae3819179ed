"""Run the SQL models of ``dbt_like_sql`` over a lake and build the marts.

A query reads lake tables, and stored marts if they are up to date. Incremental marts are built by the month: only
months with changed partitions are read and replaced.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.analytics.catalog import read_catalog
from memory_pipeline.analytics.lake_views import DERIVED, PROJECTED, SOURCES, LakeViews
from memory_pipeline.domain.identity import digest, digest_of_all
from memory_pipeline.errors import DamagedError, InputError, shown
from memory_pipeline.lake.schemas import TABLES
from memory_pipeline.lake.sql.session import connect
from memory_pipeline.lake.tables.damage import damaged_error
from memory_pipeline.lake.tables.marts import Marts, Replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pyarrow.dataset as ds

    from memory_pipeline.analytics.catalog import Catalog
    from memory_pipeline.analytics.model_files import Model
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.files.storage import Storage


# The state of a mart, ``state/marts/{name}.json``, holds digests of the SQL, of the partitions behind each month, and
# of the mart's files, so that only changes are rebuilt. It is written after the mart. If a concurrent build has written
# the mart since, the digests differ and the whole mart is rebuilt.


#: Increase if marts are written differently, to rebuild all.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class MartState:
    """The inputs that a mart was built from.

    Attributes:
        sql: digest of its SQL, and of the staging models it reads.
        made: digest of the mart's files.
        versions: of the lake tables it reads; equal versions mean equal rows.
        inputs: digests by table or mart, or by month if the mart is incremental.
    """

    sql: str
    made: str
    versions: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, storage: Storage, name: str) -> MartState | None:
        """Read the state of a mart; None if it is missing or unreadable."""
        data = storage.read(_path(name))
        try:
            return None if data is None else cls(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def write(self, storage: Storage, name: str) -> None:
        """Write the state if it has changed."""
        data = json.dumps(asdict(self), sort_keys=True).encode()
        if storage.read(_path(name)) != data:
            storage.write(_path(name), data)


def _path(name: str) -> str:
    return f"state/marts/{name}.json"


def made_digest(files: Iterable[str]) -> str:
    """Return a digest of a mart's files."""
    return digest_of_all(files)


def sql_digest(catalog: Catalog, name: str) -> str:
    """Return a digest of the SQL of a mart and its staging models. Marts that it reads are compared by their files."""
    read = [each for each in catalog.needed(name, stop_at_marts=True) if each in catalog.models]
    texts = [catalog.models[each].sql for each in read if catalog.models[each].folder != "marts"]
    return digest(_FORMAT, catalog.models[name].sql, *texts)


def tables_of(catalog: Catalog, name: str) -> list[str]:
    """Return the lake tables that a mart reads directly or through staging models, sorted."""
    return [each for each in catalog.needed(name, stop_at_marts=True) if each not in catalog.models]


def marts_of(catalog: Catalog, name: str) -> list[str]:
    """Return the marts that a model reads directly."""
    read = (catalog.models.get(each) for each in catalog.reads[name])
    return [model.name for model in read if model is not None and model.folder == "marts"]


def versions(sources: LakeViews, tables: Iterable[str]) -> dict[str, int]:
    """Return the versions of the lake tables behind these sources."""
    deciding = {each for table in tables for each in (DERIVED.get(table) or (table,))}
    return {name: sources.version(name) for name in sorted(deciding) if name in TABLES or name in PROJECTED}


def inputs(catalog: Catalog, sources: LakeViews, marts: Marts, name: str) -> dict[str, str]:
    """Return digests of the current inputs of a mart. Reads no rows of the lake."""
    tables = tables_of(catalog, name)
    if catalog.models[name].incremental:
        return sources.months(tables)
    return {
        **{table: sources.state(table) for table in tables},
        **{mart: made_digest(marts.files(mart)) for mart in marts_of(catalog, name)},
    }


def is_fresh(catalog: Catalog, sources: LakeViews, storage: Storage, marts: Marts, name: str) -> bool:
    """Return whether a mart, and all marts that it reads, are up to date."""
    if not all(is_fresh(catalog, sources, storage, marts, each) for each in marts_of(catalog, name)):
        return False
    state = MartState.read(storage, name)
    if state is None or state.sql != sql_digest(catalog, name) or state.made != made_digest(marts.files(name)):
        return False
    tables = tables_of(catalog, name)
    if state.versions == versions(sources, tables):
        # With equal table versions, only marts and the configuration can differ.
        others = {mart: made_digest(marts.files(mart)) for mart in marts_of(catalog, name)}
        others |= {
            table: sources.state(table) for table in tables if table not in state.versions and table not in DERIVED
        }
        if others.items() <= state.inputs.items():
            return True
    return state.inputs == inputs(catalog, sources, marts, name)


_Result = TypeVar("_Result")

#: Maximum number of months per query, to bound memory.
_MONTHS_AT_ONCE = 3
#: Attempts of a query, if retention or a replacement deletes its files.
_ATTEMPTS = 4
#: Error texts for a missing file, local and on S3.
_MISSING = ("No such file", "errno 2]", "NoSuchKey", "NOT_FOUND", "Not Found")


@dataclass(frozen=True, slots=True)
class Built:
    """The result of building a mart: number of rows, size in bytes, and duration in seconds.

    Attributes:
        changed: whether anything was written.
        months: number of rebuilt months; 0 for a mart that is not incremental.
        read: number of rows read from lake tables and other marts.
    """

    rows: int
    changed: bool
    months: int
    read: int
    bytes: int
    seconds: float


class Warehouse:
    """DuckDB over a lake, with its tables, the staging models, marts and tests. It downloads no extensions.

    It reads the state of the lake at the first query, and again when marts are built. Not thread-safe.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._marts = Marts(lake.storage)
        self._catalog = read_catalog()
        self._connection = connect()
        self._connection.execute("SET enable_profiling = 'no_output'")
        self._registered: set[str] = set()
        self._damaged: set[str] = set()  # marts with unreadable files
        self._look()

    def _look(self) -> None:
        self._sources = LakeViews(self._lake)
        self._fresh: dict[str, bool] = {}
        self._read = 0

    def query(self, name: str) -> pa.Table:
        """Return the rows of a model.

        Raises:
            InputError: the model is unknown.
        """
        model = self.model(name)
        return self._retrying(lambda: self._run(model))

    def model(self, name: str) -> Model:
        """Return a model by name.

        Raises:
            InputError: the model is unknown.
        """
        return self._catalog.model(name)

    def build(self, name: str, *, full: bool = False) -> Built:
        """Build a mart below ``marts/`` of the lake, after the marts it reads. Skip up-to-date marts unless `full`.

        Raises:
            InputError: the mart is unknown.
        """
        return dict(self.build_all([name], full=full))[name]

    def build_all(self, names: Collection[str], *, full: bool = False) -> Iterator[tuple[str, Built]]:
        """Build marts from one state of the lake, each after the marts it reads. Yield each when complete.

        Raises:
            InputError: a mart is unknown.
            DamagedError: some sources cannot be read; all other marts are complete.
        """
        for name in names:
            if self.model(name).folder != "marts":
                marts = ", ".join(model.name for model in self._catalog.among("marts"))
                raise InputError(f"SQL model {shown(name)} is not a mart; accepted: {marts}")
        self._look()
        selected = {*names, *(read for name in names for read in self._catalog.needed(name))}
        failed: dict[str, DamagedError] = {}
        for model in self._catalog.among("marts"):
            if model.name in selected:
                try:
                    built = self._retrying(lambda model=model: self._build(model, full=full))  # type: ignore[misc]
                except DamagedError as error:
                    failed[model.name] = error
                    continue
                if model.name in names:
                    yield model.name, built
        if failed:
            raise DamagedError(f"marts {', '.join(failed)} were not built: {next(iter(failed.values()))}")

    def _build(self, model: Model, *, full: bool) -> Built:
        """Build one mart, after those that it reads."""
        started, read_before = time.perf_counter(), self._read
        name, storage = model.name, self._lake.storage
        full = full or name in self._damaged
        before = MartState.read(storage, name)
        seen = versions(self._sources, tables_of(self._catalog, name))
        if not full and before is not None and self._is_fresh(name):
            replace(before, versions=seen).write(storage, name)  # speeds up the next freshness check
            return self._built(name, Replaced(changed=False, files=frozenset()), 0, 0, started)
        present = self._marts.files(name)
        # Read all versions before any rows.
        after = MartState(
            sql_digest(self._catalog, name),
            "",
            seen,
            inputs(self._catalog, self._sources, self._marts, name),
        )
        fits = before is not None and before.sql == after.sql and before.made == made_digest(present)
        known = before.inputs if before is not None and fits and not full else {}
        stale = sorted(key for key in known.keys() | after.inputs.keys() if known.get(key) != after.inputs.get(key))
        replaced = Replaced(changed=False, files=present)
        if stale or not fits or full:
            rows = self._months_of(model, stale) if model.incremental else self._run(model)
            values = stale if model.incremental and known else None
            replaced = self._marts.replace(name, rows, column=model.incremental, values=values)
            if replaced.changed:  # expired rows must not stay in old files; readers open the mart again
                self._lake.tables.purge_path(f"marts/{name}")
        replace(after, made=made_digest(replaced.files)).write(storage, name)
        self._damaged.discard(name)
        self._fresh[name] = True
        months = len(stale) if model.incremental else 0
        return self._built(name, replaced, months, self._read - read_before, started)

    def _built(self, name: str, replaced: Replaced, months: int, read: int, started: float) -> Built:
        rows, size = self._marts.size(name)
        return Built(rows, replaced.changed, months, read, size, time.perf_counter() - started)

    def _months_of(self, model: Model, months: Sequence[str]) -> pa.Table:
        """Return the rows of some months of an incremental mart, read from the sources of these months only."""
        column = str(model.incremental)
        parts = []
        for start in range(0, max(1, len(months)), _MONTHS_AT_ONCE):
            some = months[start : start + _MONTHS_AT_ONCE]
            rows = self._run(model, some)
            parts.append(rows.filter(pc.is_in(rows[column], pa.array(some, pa.string()))))
        return pa.concat_tables(parts)

    def _run(self, model: Model, months: Collection[str] | None = None) -> pa.Table:
        self._provide(model.name, months, set())
        rows = self._connection.sql(model.sql).to_arrow_table()
        self._read += _rows_read(json.loads(self._connection.get_profiling_information(format="json")))
        return rows

    def _provide(self, name: str, months: Collection[str] | None, there: set[str]) -> None:
        """Register all dependencies of a model in the session, replacing earlier ones of the same name."""
        for read in self._catalog.reads[name]:
            if read in there:
                continue
            there.add(read)
            if read in SOURCES:
                self._register(read, self._sources.read(read, months))
            elif (stored := self._stored(read)) is not None:
                self._register(read, stored)
            else:
                self._provide(read, months, there)
                if read in self._registered:  # it would hide the view
                    self._connection.unregister(read)
                    self._registered.remove(read)
                self._connection.execute(f'CREATE OR REPLACE VIEW "{read}" AS {self.model(read).sql}')

    def _register(self, name: str, rows: ds.Dataset | pa.Table) -> None:
        self._connection.register(name, rows)
        self._registered.add(name)

    def _stored(self, name: str) -> ds.Dataset | None:
        if self.model(name).folder != "marts":
            return None
        return self._marts.dataset(name) if self._is_fresh(name) else None

    def _is_fresh(self, name: str) -> bool:
        if name not in self._fresh:
            self._fresh[name] = is_fresh(self._catalog, self._sources, self._lake.storage, self._marts, name)
        return self._fresh[name] and name not in self._damaged

    def _retrying(self, action: Callable[[], _Result]) -> _Result:
        """Retry an action over the current lake if files were deleted while they were read.

        Damaged marts are computed instead of read.

        Raises:
            DamagedError: files of the lake's tables cannot be read.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return action()
            except Exception as error:
                if isinstance(error, DamagedError) or attempt == _ATTEMPTS - 1:
                    raise
                if not _is_missing_file(error) or attempt == _ATTEMPTS - 2:
                    self._note_damage(error)
            self._look()
        raise AssertionError("unreachable")

    def _note_damage(self, error: Exception) -> None:
        """Find the damaged marts after a failed query. Raise the error if it has another cause."""
        marts = self._marts.damaged(model.name for model in self._catalog.among("marts")) - self._damaged
        self._damaged |= marts
        if marts:
            return
        for spec in TABLES.values():
            files = self._lake.tables.damaged(spec)
            if files.num_rows:
                raise damaged_error(spec, files) from error
        raise error


def stale_marts(lake: Lake) -> list[Model]:
    """Return the marts that are not up to date. Reads no rows of the lake."""
    known, sources, marts = read_catalog(), LakeViews(lake), Marts(lake.storage)
    return [model for model in known.among("marts") if not is_fresh(known, sources, lake.storage, marts, model.name)]


def _rows_read(profile: dict[str, Any]) -> int:
    """Return the number of rows that a query read, from DuckDB's profile."""
    scanned = profile.get("intermediate_rows", 0) if profile.get("type") == "TABLE_SCAN" else 0
    below = [*profile.get("operator", ()), *profile.get("children", ())]
    return int(scanned) + sum(map(_rows_read, below))


def _is_missing_file(error: Exception) -> bool:
    # DuckDB reports file system errors only as text.
    return isinstance(error, FileNotFoundError) or any(word in str(error) for word in _MISSING)
