"""Bytes of a fact on disk, in the tables and in the index, against the bytes of its text and vector.

Two lakes, because each file has overhead: a dense one (4 agents speak in each of 48 hours, 40 messages an hour) and a
sparse one (20 agents, three hours a week, two or three messages each time, for 13 weeks), computed by
:func:`memory_pipeline.client.pipeline.run_all` up to the quarter; ``--quick``: half the hours and weeks.

- raw: the UTF-8 bytes of the facts' texts plus 4 bytes for each number of their vectors;
- live: for tables, the files of the newest version; for the index, a copy that LanceDB has optimized and stripped of
  old versions (its full-text index then covers all rows, so it may be larger than the index in the lake);
- all: every file at the end of the run, including superseded versions and logs.

Summaries and the ledger are included, divided by the number of facts.
"""

from __future__ import annotations

import shutil
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import lancedb
import pyarrow.compute as pc

from benchmarks.generator import START, WORKSPACE, busy, sparse
from benchmarks.ingest import write
from benchmarks.measure import Cell, Table, bytes_below, progress
from memory_pipeline.client.pipeline import run_all
from memory_pipeline.domain.periods import SUMMARY_GRAINS
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, SUMMARIES, TABLES
from memory_pipeline.models.factory import default_models

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.generator import Conversation

_NOW = START + timedelta(weeks=14)


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with lakes below `folder`."""
    hours, weeks = (24, 6) if quick else (48, 13)
    return [
        _sizes(folder / "dense", "dense", busy(4, hours, 4 * hours * 40)),
        _sizes(folder / "sparse", "sparse", sparse(20, weeks)),
    ]


def _sizes(folder: Path, name: str, talks: Iterable[Conversation]) -> Table:
    lake = Lake(str(folder))
    messages = write(lake, talks)
    progress(f"{name}: {messages:,} messages")
    for _ in run_all(lake, default_models(), _NOW):
        pass

    read = lake.tables.read(FACTS, columns=["content"])
    facts = read.num_rows
    dimension = default_models().embedder.dimension
    raw = pc.sum(pc.binary_length(read["content"])).as_py() + facts * dimension * 4

    def row(what: str, live: int, total: int) -> dict[str, Cell]:
        return {
            "what": what,
            "live bytes/fact": live / facts,
            "all bytes/fact": total / facts,
            "live/raw": live / raw,
            "all/raw": total / raw,
        }

    tables = {spec.name: _table(lake, spec.name) for spec in TABLES.values()}
    index = (_compacted(folder / "projections"), bytes_below(folder / "projections"))
    everything = [*tables.values(), index]
    files = sum(1 for path in folder.rglob("*") if path.is_file())
    return Table(
        f"size, {name} lake",
        f"{messages:,} messages, {facts:,} facts in {len(lake.tables.keys(FACTS)):,} hours, {files:,} files",
        [
            row("raw text and vectors", raw, raw),
            *(row(f"table {table}", *sizes) for table, sizes in tables.items()),
            row("tables", sum(live for live, _ in tables.values()), sum(total for _, total in tables.values())),
            row("index", *index),
            row("tables and index", sum(live for live, _ in everything), sum(total for _, total in everything)),
        ],
    )


def _table(lake: Lake, name: str) -> tuple[int, int]:
    """Return the bytes of a table's live files, and of all its files and its log."""
    spec = TABLES[name]
    if spec is SUMMARIES:
        live = sum(sum(lake.tables.sizes(spec, grain=grain.value).values()) for grain in SUMMARY_GRAINS)
    else:
        live = sum(lake.tables.sizes(spec).values())
    return live, bytes_below(Path(lake.storage.locate(f"tables/{name}")))


def _compacted(folder: Path) -> int:
    """Return the bytes of an index once it is compacted and has no old versions; works on a copy."""
    copy = Path(shutil.copytree(folder, folder.with_name("compacted")))
    database = lancedb.connect(copy / WORKSPACE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of other readers; a copy has none
        for name in database.table_names(limit=100_000):
            database.open_table(name).optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
    size = bytes_below(copy)
    shutil.rmtree(copy)
    return size
