"""What marts were made from: remembered beside them, so that only what has changed is made again.

The state of a mart is a small file, ``state/marts/{name}.json``. It holds digests alone: of the SQL, of the partitions
that each month was made from, and of the files that were written. It is written after the mart; if the mart was written
by somebody else since, the two do not fit, and all is made again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from memory_pipeline.analytics.sources import DERIVED
from memory_pipeline.domain.identity import digest, digest_of_all
from memory_pipeline.lake.schemas import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.analytics.catalogue import Catalogue
    from memory_pipeline.analytics.sources import Sources
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.tables.marts import Marts

#: Changes when marts are written in another way, so that all are made again.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class State:
    """What a mart was made from.

    Attributes:
        sql: digest of its SQL, and of the SQL of what it reads.
        made: digest of the mart's own files; what was made is what stands there.
        versions: of the tables of the lake that it reads; equal versions, equal rows.
        inputs: digests of what was read: by table or mart; of an incremental mart, by month.
    """

    sql: str
    made: str
    versions: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, storage: Storage, name: str) -> State | None:
        """Read the state of a mart; None if there is none, or none that can be read."""
        data = storage.read(_path(name))
        try:
            return None if data is None else cls(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def write(self, storage: Storage, name: str) -> None:
        """Write it down, unless it is what is written already."""
        data = json.dumps(asdict(self), sort_keys=True).encode()
        if storage.read(_path(name)) != data:
            storage.write(_path(name), data)


def _path(name: str) -> str:
    return f"state/marts/{name}.json"


def made_digest(files: Iterable[str]) -> str:
    """Return a digest of the files that a mart consists of."""
    return digest_of_all(files)


def sql_digest(catalogue: Catalogue, name: str) -> str:
    """Return a digest of a mart's SQL and of the staging models under it; of marts it reads, the rows count."""
    read = [each for each in catalogue.needed(name, stop_at_marts=True) if each in catalogue.models]
    texts = [catalogue.models[each].sql for each in read if catalogue.models[each].folder != "marts"]
    return digest(_FORMAT, catalogue.models[name].sql, *texts)


def tables_of(catalogue: Catalogue, name: str) -> list[str]:
    """Return the tables that a mart reads through staging models, sorted; not those that other marts read for it."""
    return [each for each in catalogue.needed(name, stop_at_marts=True) if each not in catalogue.models]


def marts_of(catalogue: Catalogue, name: str) -> list[str]:
    """Return the marts that a model reads itself."""
    read = (catalogue.models.get(each) for each in catalogue.reads[name])
    return [model.name for model in read if model is not None and model.folder == "marts"]


def versions(sources: Sources, tables: Iterable[str]) -> dict[str, int]:
    """Return the versions of the tables of the lake that decide what is read."""
    deciding = {each for table in tables for each in (DERIVED.get(table) or (table,))}
    return {name: sources.version(name) for name in sorted(deciding) if name in TABLES}


def inputs(catalogue: Catalogue, sources: Sources, marts: Marts, name: str) -> dict[str, str]:
    """Return digests of all that a mart is made from, as it is now; reads no rows of memory."""
    tables = tables_of(catalogue, name)
    if catalogue.models[name].incremental:
        return sources.months(tables)
    return {
        **{table: sources.state(table) for table in tables},
        **{mart: made_digest(marts.files(mart)) for mart in marts_of(catalogue, name)},
    }


def is_fresh(catalogue: Catalogue, sources: Sources, storage: Storage, marts: Marts, name: str) -> bool:
    """Tell whether a mart, and all marts that it reads, hold what would be made of the lake now."""
    if not all(is_fresh(catalogue, sources, storage, marts, each) for each in marts_of(catalogue, name)):
        return False
    state = State.read(storage, name)
    if state is None or state.sql != sql_digest(catalogue, name) or state.made != made_digest(marts.files(name)):
        return False
    tables = tables_of(catalogue, name)
    if state.versions == versions(sources, tables):
        # Then only marts and the configuration can have changed.
        others = {mart: made_digest(marts.files(mart)) for mart in marts_of(catalogue, name)}
        others |= {table: sources.state(table) for table in tables if table not in TABLES and table not in DERIVED}
        if others.items() <= state.inputs.items():
            return True
    return state.inputs == inputs(catalogue, sources, marts, name)
