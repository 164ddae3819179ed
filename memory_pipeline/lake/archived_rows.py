"""The archive: Parquet files with the rows that retention has taken out of the tables.

A file has rows of one table or grain, one period and one scope, with all columns of the table::

    archive/AGENT/PLACE/PERIOD/SCOPE-NUMBER-ROWS.parquet

AGENT names workspace and agent (:func:`~memory_pipeline.lake.layout.folder_name`), PLACE is ``messages``, ``facts`` or
the grain of summaries, and SCOPE is the scope's key. Files do not change, so that no two writers can lose each other's
rows: what comes later has another number. ``archive/AGENT/restored`` says which rows are back in the tables, and until
when retention leaves them there.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.errors import DamagedError
from memory_pipeline.lake.layout import folder_name
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.partitions import without_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec

#: The folder of the archive.
ARCHIVED = "archive"
_RESTORED = "restored"
#: The tables by the names of their folders.
PLACES: dict[str, TableSpec] = {
    MESSAGES.name: MESSAGES,
    FACTS.name: FACTS,
    **{grain.value: SUMMARIES for grain in SUMMARY_GRAINS},
}
_FILE = re.compile(
    rf"{ARCHIVED}/(?P<agent>[^/]+)/(?P<place>[^/]+)/(?P<period>[^/]+)/"
    r"(?P<scope>[0-9a-f]{32})-(?P<number>[0-9]+)-(?P<rows>[0-9]+)\.parquet"
)
_UNREADABLE = (OSError, pa.ArrowException, KeyError)


def place_of(spec: TableSpec, grain: Grain) -> str:
    """Return the name of the folder of a table, or of one grain of the summaries."""
    return grain.value if spec is SUMMARIES else spec.name


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of the archive: path, table or grain, key of the period, key of the scope, numbers of rows and bytes."""

    path: str
    place: str
    period: str
    scope: str
    number: int
    rows: int
    bytes: int

    @property
    def spec(self) -> TableSpec:
        """The table of the rows."""
        return PLACES[self.place]


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """Restored rows of a scope, which retention leaves in the tables until a time.

    Attributes:
        periods: keys of the periods, by place and retention class.
    """

    scope: str
    until: datetime
    periods: Mapping[str, Mapping[str, tuple[str, ...]]]


class ArchivedRows:
    """Reads and writes the archive of a lake.

    Attributes:
        storage: where it is: the lake, or another folder or bucket.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def files(
        self,
        scope: Scope | None = None,
        place: str | None = None,
        period: str | None = None,
        *,
        agent: Scope | None = None,
    ) -> list[ArchivedFile]:
        """Return all files, those of an agent, or of a scope, in one place, of one period, in the order of writing."""
        owner = agent or scope
        folder = "/".join(part for part in (ARCHIVED, owner and folder_name(owner.own), place, period) if part)
        found = []
        for entry in self.storage.list(folder):
            name = _FILE.fullmatch(entry.path)
            if name and name["place"] in PLACES and (scope is None or scope.key == name["scope"]):
                place_and_period = name["place"], name["period"]
                numbers = int(name["number"]), int(name["rows"])
                found.append(ArchivedFile(entry.path, *place_and_period, name["scope"], *numbers, entry.size))
        return sorted(found, key=lambda file: (file.path.rpartition("/")[0], file.scope, file.number, file.rows))

    def read(self, file: ArchivedFile) -> pa.Table | None:
        """Return the rows of a file in the table's schema, or None if it is gone. Later columns are null.

        Raises:
            DamagedError: it cannot be read.
        """
        data = self.storage.read(file.path)
        if data is None:
            return None
        schema = file.spec.schema
        try:
            rows = pq.ParquetFile(io.BytesIO(data)).read()
            columns = [
                rows[column.name] if column.name in rows.column_names else pa.nulls(rows.num_rows, column.type)
                for column in schema
            ]
            return pa.table(dict(zip(schema.names, columns, strict=True))).cast(schema)
        except _UNREADABLE as error:
            raise DamagedError(
                f"{self.storage.locate(file.path)} cannot be read ({error}); restore the file from a "
                "backup, or delete it"
            ) from error

    def totals(self) -> dict[str, dict[str, int]]:
        """Return the numbers of rows and bytes, by place."""
        found: dict[str, dict[str, int]] = {}
        for file in self.files():
            numbers = found.setdefault(file.place, {"rows": 0, "bytes": 0})
            numbers["rows"] += file.rows
            numbers["bytes"] += file.bytes
        return found

    def dataset(self, spec: TableSpec) -> ds.Dataset:
        """Return the archived rows of a table, to be read in parts. Columns that a file lacks are null."""
        files = [self.storage.file_path(file.path) for file in self.files() if file.spec is spec]
        if not files:
            return ds.dataset(spec.schema.empty_table())
        schema, filesystem = without_metadata(spec.schema), self.storage.arrow_filesystem()
        return ds.FileSystemDataset.from_paths(files, schema, ds.ParquetFileFormat(), filesystem)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of each file."""
        yield from (rows for rows in map(self.read, self.files()) if rows is not None)

    def add(self, scope: Scope, place: str, period: str, rows: pa.Table) -> str | None:
        """Write the rows that the archive does not have yet. Return the path of the new file, or None."""
        known = self.files(scope, place, period)
        for file in known:
            stored = self.read(file)
            if stored is not None:
                rows = rows.filter(pc.invert(pc.is_in(states_of(rows), states_of(stored))))
        number = max((file.number for file in known), default=0)
        folder = f"{ARCHIVED}/{folder_name(scope.own)}/{place}/{period}"
        while rows.num_rows:
            number += 1
            path = f"{folder}/{scope.key}-{number}-{rows.num_rows}.parquet"
            if self.storage.create(path, _data(rows)):
                return path
        return None

    def replace(self, file: ArchivedFile, scope: Scope, rows: pa.Table) -> None:
        """Replace the rows of a file of a scope, or delete it if there are none. The order of the files stays.

        The old file is deleted after the new one is there. A killed process may leave both: do it again.
        """
        path = f"{file.path.rpartition('/')[0]}/{file.scope}-{file.number}-{rows.num_rows}.parquet"
        if path == file.path:
            self.storage.write(path, _data(rows))
            return
        if rows.num_rows and not self.storage.create(path, _data(rows)):
            self.add(scope, file.place, file.period, rows)  # it is there, unless two runs had the same number
        self.storage.delete([file.path])

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, and folders that are then empty."""
        self.storage.delete(paths)
        self.storage.prune(ARCHIVED)

    def note_restored(self, scope: Scope, rows: RestoredRows) -> None:
        """Note which rows of a scope are restored, before they are."""
        record = {"until": rows.until.isoformat(), "periods": rows.periods}
        folder, number = f"{ARCHIVED}/{folder_name(scope.own)}/{_RESTORED}", 1
        while not self.storage.create(f"{folder}/{scope.key}-{number}.json", json.dumps(record).encode()):
            number += 1

    def restored(self) -> Iterator[tuple[str, RestoredRows]]:
        """Yield what is restored, each with the path of its file."""
        for agent in self.storage.folders(ARCHIVED):
            for name in self.storage.names(f"{ARCHIVED}/{agent}/{_RESTORED}"):
                path = f"{ARCHIVED}/{agent}/{_RESTORED}/{name}"
                data = self.storage.read(path)
                if data is not None:
                    record = json.loads(data)
                    until = datetime.fromisoformat(record["until"])
                    yield path, RestoredRows(name.partition("-")[0], until, record["periods"])


def states_of(rows: pa.Table) -> pa.Array:
    """Return for each row a text that differs if another row, or another state of the row, is meant."""
    if "digest" in rows.column_names:
        state = rows["digest"]
    else:  # a message changes by its edits alone
        state = pc.fill_null(pc.list_value_length(rows["edits"]), 0).cast(pa.string())
    return pc.binary_join_element_wise(rows["id"], state, " ").combine_chunks()


def _data(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows.replace_schema_metadata(), sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
