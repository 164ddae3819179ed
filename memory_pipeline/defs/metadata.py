"""Metadata of assets: columns, lineage, and previews of content.

Previews are in Dagster's event log, which retention and erasure do not change: old events may show erased or expired
content. ``previews: false`` in the configuration keeps a workspace's content out of Dagster.

Content is untrusted and must not format the page or fetch anything. So it is shown in indented code blocks, which have
no markup and which no line can end.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.index_rows import index_schema
from memory_pipeline.lake.schema_types import TableSpec
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset
from memory_pipeline.steps.group import by_period, by_scope
from memory_pipeline.steps.results import PartitionResult

#: Maximum number of previews of a run: a long backfill must not fill Dagster's database.
MOST_PREVIEWS = 50
MOST_CHARACTERS = 1_500

#: Scopes per preview, facts or points per scope, rows per fact or point, and characters per row, since code blocks are
#: not wrapped. Together they stay below MOST_CHARACTERS.
_SCOPES, _POINTS, _ROWS, _WIDTH = 3, 3, 2, 62
_COLUMNS = (*SCOPE_COLUMNS, "period", "content")
#: These invisible characters join letters and emoji. All others are removed.
_JOINERS = "\u200c\u200d"


def with_previews(
    lake: Lake, periods: Sequence[Period], results: Iterable[PartitionResult]
) -> Iterator[tuple[PartitionResult, str | None]]:
    """Yield each result with its preview, or None. Only changed tables among the newest `periods` have one.

    Content is read once per batch: results of an asset follow each other.
    """
    newest = set(sorted(periods, key=lambda period: period.key)[-MOST_PREVIEWS:])
    tables: list[PartitionResult] = []
    for result in results:
        if result.asset == table_asset(result.period.grain):
            tables.append(result)
            continue
        yield from _previewed(lake, tables, newest)
        tables = []
        yield result, None
    yield from _previewed(lake, tables, newest)


def _previewed(
    lake: Lake, tables: Sequence[PartitionResult], newest: set[Period]
) -> Iterator[tuple[PartitionResult, str | None]]:
    shown = [part.period for part in tables if part.changed and part.rows and part.period in newest]
    previews = previews_of(lake, shown) if shown else {}
    for part in tables:
        yield part, previews.get(part.period)


def previews_of(lake: Lake, periods: Sequence[Period]) -> Mapping[Period, str]:
    """Return previews of periods of one grain, in one read. Periods without content to show are omitted."""
    grain = periods[0].grain
    keys = [period.key for period in periods]
    if grain is Grain.WORKING:
        columns = [*_COLUMNS, "importance", "event_at", "position"]
        asserts = pc.field("kind") != FactKind.TURN.value
        rows = lake.tables.read(FACTS, keys, columns=columns, where=asserts)
    else:
        rows = lake.tables.read(SUMMARIES, keys, columns=_COLUMNS, grain=grain.value)
    configuration = lake.configuration()
    allowed = [name for name in pc.unique(rows["workspace_id"]).to_pylist() if configuration.previews(name)]
    rows = rows.filter(pc.is_in(rows["workspace_id"], pa.array(allowed, pa.string())))
    previews = {}
    for period, part in by_period(rows, list(periods)).items():
        scopes = by_scope(part)
        shown = sorted(scopes, key=lambda scope: scope.ids)[:_SCOPES]
        if shown:
            previews[period] = markdown(grain, {scope: _texts(grain, scopes[scope]) for scope in shown}, len(scopes))
    return previews


def _texts(grain: Grain, rows: pa.Table) -> list[str]:
    """Return a scope's most important facts, or the first points of its summary."""
    if grain is Grain.WORKING:
        order = [("importance", "descending"), ("event_at", "ascending"), ("position", "ascending")]
        best = pc.sort_indices(rows, sort_keys=order)[:_POINTS]
        return [str(content) for content in rows["content"].take(best).to_pylist()]
    return str(rows["content"][0].as_py()).split("\n", _POINTS)[:_POINTS]


def markdown(grain: Grain, scopes: Mapping[Scope, Sequence[str]], total: int) -> str:
    """Return a preview of the untrusted texts of `scopes`, of at most :data:`MOST_CHARACTERS` characters."""
    title = "Most important facts" if grain is Grain.WORKING else "First points of the summaries"
    what = "scope" if any(scope.identity for scope in scopes) else "agent"
    count = f"{len(scopes)} of {total} {what}s" if total > len(scopes) else f"{total} {what}{'s' * (total != 1)}"
    parts = [f"{title} of {count}:"]
    for scope, texts in scopes.items():
        name = " / ".join(scope.ids)
        rows = [
            name if len(name) <= _WIDTH else f"{name[: _WIDTH - 1]}…",
            *(row for text in texts for row in _rows(text)),
        ]
        parts.append("\n".join(f"    {row}" for row in rows))
    return "\n\n".join(parts)


def _rows(text: str) -> list[str]:
    """Wrap the beginning of a text. Remove invisible characters, which could reverse or hide parts of it."""
    beginning = text[: 4 * _ROWS * _WIDTH]
    printable = " ".join("".join(c if c.isprintable() or c in _JOINERS else " " for c in beginning).split())
    return textwrap.wrap(
        printable,
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        max_lines=_ROWS,
        placeholder="…",
        break_on_hyphens=False,
    )


#: Descriptions of index columns that differ from the table's column of the same name.
_OF_INDEX = {
    "id": "Id of the row, as in the table.",
    "period": "Key of the period, as in the table.",
    "kind": "Kind of the fact, or summary.",
    "content": "The fact, starting with its speaker, or the summary.",
    "terms": "Search terms, including those of the speaker and the date.",
    "starts_at": "Time of a fact, or start of a summary's period.",
    "ends_at": "Time of a fact, or end of a summary's period.",
    "importance": "Importance, 0 to 1.",
    "source_ids": "Sources: messages of a fact, facts or finer summaries of a summary.",
    "digest": "Digest of the row.",
    "vector": "Embedding of the content, of unit length; null if the embedder failed or is the built-in one.",
}
_ITEM = re.compile(r"\b(item|element): ")
#: The dimension depends on the embedder, which is unknown before a run.
_SIZE = re.compile(r"fixed_size_list<(.*)>\[\d+\]")


def table_columns(spec: TableSpec) -> Mapping[str, dg.TableSchema]:
    """Return the column schema of a table of the lake, as asset metadata."""
    return _metadata(_column(field, field.metadata[b"comment"].decode(), field.nullable) for field in spec.schema)


def index_columns() -> Mapping[str, dg.TableSchema]:
    """Return the column schema of all index tables, as asset metadata."""
    comments = {field.name: field.metadata[b"comment"].decode() for spec in (SUMMARIES, FACTS) for field in spec.schema}
    comments |= _OF_INDEX
    return _metadata(
        _column(field, comments[field.name], nullable=field.name not in {"id", "period", "kind", "content", "digest"})
        for field in index_schema(1)
    )


def _metadata(columns: Iterable[dg.TableColumn]) -> Mapping[str, dg.TableSchema]:
    return {"dagster/column_schema": dg.TableSchema(columns=list(columns))}


def _column(field: pa.Field, comment: str, nullable: bool) -> dg.TableColumn:
    description = comment if comment.endswith((".", "…")) else f"{comment}."
    return dg.TableColumn(
        field.name, _type(field.type), description, constraints=dg.TableColumnConstraints(nullable=nullable)
    )


def _type(kind: pa.DataType) -> str:
    """Return a short name of a type. Types of struct fields are left to the column's description."""
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return f"list<{', '.join(field.name for field in kind.value_type)}>"
    return _ITEM.sub("", _SIZE.sub(r"list<\1>", str(kind)))


# From tags with the data versions of a partition and its sources, Dagster decides whether it is stale. Without them it
# reports every day as stale: hours without messages, which were never materialized, look like new input.


def source_of(asset: str, grain: Grain) -> str | None:
    """Return the source of an asset, or None for messages, which come from the journal."""
    if asset == MESSAGES_ASSET:
        return None
    if asset != table_asset(grain):
        return table_asset(grain)
    return MESSAGES_ASSET if grain.finer is None else table_asset(grain.finer)


class Provenance:
    """Data versions of the sources of a run's partitions. Create it before the run reads anything."""

    def __init__(self, instance: dg.DagsterInstance, partitions: Partitions) -> None:
        self._instance = instance
        self._partitions = partitions
        self._before = self._newest_event()
        self._version = version("memory-pipeline")
        self._asset = ""
        self._seen = self._before

    def tags(self, result: PartitionResult) -> Mapping[str, str]:
        """Return the tags of a partition. The events of its sources must have been logged before."""
        source = source_of(result.asset, result.period.grain)
        tags = {"dagster/data_version": result.output_digest, "dagster/code_version": self._version}
        if source is not None:
            name = self._partitions.asset(source).to_user_string()
            tags[f"dagster/input_data_version/{name}"] = result.input_digest
            tags[f"dagster/input_event_pointer/{name}"] = str(self._newest_seen(result))
        return tags

    def _newest_seen(self, result: PartitionResult) -> int:
        """Return the newest event about the partition's source that the run may have seen."""
        grain = result.period.grain
        if grain is not Grain.WORKING and result.asset == table_asset(grain):
            return self._before  # a concurrent run may write the finer grain
        if result.asset != self._asset:  # read once per batch, since the partitions of an asset follow each other
            self._asset, self._seen = result.asset, self._newest_event()
        return self._seen

    def _newest_event(self) -> int:
        return self._instance.event_log_storage.get_maximum_record_id() or 1
