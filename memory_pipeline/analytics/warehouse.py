"""Runs the models of ``dbt_like_sql``.

``staging/`` holds one view over each table of the lake, ``marts/`` what analysts read, ``tests/`` queries that return
the rows that should not be. A file is one SELECT under a header of comments, and is named after what it makes; a mart
may select from staging models, a test from both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.ledger import Entry, table_asset
from memory_pipeline.lake.schemas import MODEL_CALLS, TABLES
from memory_pipeline.lake.sql import connect

if TYPE_CHECKING:
    import pyarrow as pa

    from memory_pipeline.lake import Lake

FOLDERS = ("staging", "marts", "tests")
#: The period under which the ledger enters a mart.
_WHOLE = "all"
_ROOT = Path(__file__).parents[2] / "dbt_like_sql"


@dataclass(frozen=True, slots=True)
class Model:
    """One SQL file: its folder, its name, the text of its header, and the SELECT."""

    folder: str
    name: str
    description: str
    sql: str


def models_of(*folders: str) -> list[Model]:
    """Return the models of the given folders, or of all, by folder and name."""
    return [
        Model(folder, path.stem, _header(text), text)
        for folder in folders or FOLDERS
        for path in sorted((_ROOT / folder).glob("*.sql"))
        for text in [path.read_text(encoding="utf-8")]
    ]


class Warehouse:
    """A DuckDB session over a lake, with its tables and the staging models and marts as views. It downloads nothing."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._connection = connect()
        for name, spec in TABLES.items():
            self._connection.register(name, lake.tables.dataset(spec))
        self._models = {model.name: model for model in models_of()}
        for model in models_of("staging", "marts"):
            self._connection.execute(f'CREATE VIEW "{model.name}" AS {model.sql}')

    def query(self, name: str) -> pa.Table:
        """Return the rows of a model.

        Raises:
            InputError: there is no model of that name.
        """
        return self._connection.sql(self.model(name).sql).to_arrow_table()

    def model(self, name: str) -> Model:
        """Return a model by its name.

        Raises:
            InputError: there is no model of that name.
        """
        if name not in self._models:
            raise InputError(f"SQL model {shown(name)} is unknown; there are: {', '.join(self._models)}")
        return self._models[name]

    def build(self, name: str) -> tuple[int, bool]:
        """Write a mart's rows to ``marts/{name}`` in the lake; return their number, and whether they had changed."""
        state = lake_state(self._lake)
        rows = self.query(name)
        changed = self._lake.tables.replace_whole(f"marts/{name}", rows)
        self._lake.ledger.record([Entry(name, _WHOLE, state, "", rows.num_rows, 0)])
        return rows.num_rows, changed


def stale_marts(lake: Lake) -> list[Model]:
    """Return the marts that were not made from what the lake holds now; reads the ledger alone."""
    state = lake_state(lake)
    made = {model.name: lake.ledger.entries(model.name).get(_WHOLE) for model in models_of("marts")}
    return [model for model in models_of("marts") if (entry := made[model.name]) is None or entry.input_digest != state]


def lake_state(lake: Lake) -> str:
    """Return a digest of all facts and summaries, by what the ledger says of them, and of the calls of models."""
    assets = [table_asset(grain) for grain in Grain]
    made = (
        f"{asset} {period} {entry.output_digest}"
        for asset in assets
        for period, entry in lake.ledger.entries(asset).items()
    )
    calls = lake.tables.version(MODEL_CALLS)
    return digest_of_all([*made, *([f"calls {calls}"] if calls >= 0 else [])])


def _header(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return "\n".join(lines)
