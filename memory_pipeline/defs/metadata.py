"""Metadata of assets: columns, lineage, and previews of what was remembered.

Dagster keeps a preview in its own event log. Neither retention nor erasure reaches there: what has been forgotten or
has expired in the lake can still be read in old events. A workspace that must not have that sets ``previews: false`` in
the configuration, and its content never leaves the lake.

Content is hostile: it must neither steer the page nor fetch anything. So it stands in indented code blocks, in which
Markdown knows no markup at all, and nothing in a line can end one.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.index_rows import index_schema
from memory_pipeline.lake.schema_types import TableSpec
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset
from memory_pipeline.steps.group import by_period, by_scope
from memory_pipeline.steps.results import PartitionResult

#: Partitions of a run that get a preview, the newest of them: a backfill of years must not fill Dagster's database.
MOST_PREVIEWS = 50
#: Characters of a preview.
MOST_CHARACTERS = 1_500

#: Agents of a preview, facts or points of each, rows of one of these, and characters of a row, which must fit on a
#: page: a code block is not wrapped. Together they are less than a preview may have.
_AGENTS, _POINTS, _ROWS, _WIDTH = 3, 3, 2, 62
_COLUMNS = ("workspace_id", "agent_id", "period", "content")
#: They join letters and emoji; all other invisible characters go.
_JOINERS = "\u200c\u200d"


def with_previews(
    lake: Lake, periods: Sequence[Period], made: Iterable[PartitionResult]
) -> Iterator[tuple[PartitionResult, str | None]]:
    """Yield what was made, each with the preview of its content if it has one.

    Facts and summaries have one if they changed and are among the newest that the run was asked for. They are read
    once a batch: :func:`~memory_pipeline.steps.materialize.materialize` yields the partitions of one asset after those
    of another.

    Args:
        lake: where it was made.
        periods: what the run was asked for.
        made: what it makes, as it is done.
    """
    newest = set(sorted(periods, key=lambda period: period.key)[-MOST_PREVIEWS:])
    held: list[PartitionResult] = []
    for part in made:
        if part.asset == table_asset(part.period.grain):
            held.append(part)
            continue
        yield from _previewed(lake, held, newest)
        held = []
        yield part, None
    yield from _previewed(lake, held, newest)


def _previewed(
    lake: Lake, tables: Sequence[PartitionResult], newest: set[Period]
) -> Iterator[tuple[PartitionResult, str | None]]:
    shown = [part.period for part in tables if part.changed and part.rows and part.period in newest]
    previews = previews_of(lake, shown) if shown else {}
    for part in tables:
        yield part, previews.get(part.period)


def previews_of(lake: Lake, periods: Sequence[Period]) -> Mapping[Period, str]:
    """Return previews of periods of one grain, in one read; none for those without content that may be shown."""
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
    found = {}
    for period, part in by_period(rows, list(periods)).items():
        agents = by_scope(part)
        shown = sorted(agents, key=lambda scope: (scope.workspace_id, scope.agent_id))[:_AGENTS]
        if shown:
            found[period] = markdown(grain, {scope: _texts(grain, agents[scope]) for scope in shown}, len(agents))
    return found


def _texts(grain: Grain, rows: pa.Table) -> list[str]:
    """Return what is shown of an agent: its most important facts, or the first points of its summary."""
    if grain is Grain.WORKING:
        order = [("importance", "descending"), ("event_at", "ascending"), ("position", "ascending")]
        best = pc.sort_indices(rows, sort_keys=order)[:_POINTS]
        return [str(content) for content in rows["content"].take(best).to_pylist()]
    return str(rows["content"][0].as_py()).split("\n", _POINTS)[:_POINTS]


def markdown(grain: Grain, agents: Mapping[Scope, Sequence[str]], total: int) -> str:
    """Return a preview, of at most :data:`MOST_CHARACTERS`.

    Args:
        grain: of the partition.
        agents: the texts of each agent that is shown, whatever stands in them.
        total: agents that could be shown.
    """
    what = "Most important facts" if grain is Grain.WORKING else "First points of the summaries"
    of_whom = f"{len(agents)} of {total} agents" if total > len(agents) else f"{total} agent{'s' * (total != 1)}"
    parts = [f"{what} of {of_whom}:"]
    for scope, texts in agents.items():
        name = f"{scope.workspace_id} / {scope.agent_id}"
        rows = [
            name if len(name) <= _WIDTH else f"{name[: _WIDTH - 1]}…",
            *(row for text in texts for row in _rows(text)),
        ]
        parts.append("\n".join(f"    {row}" for row in rows))
    return "\n\n".join(parts)


def _rows(text: str) -> list[str]:
    """Return the beginning of a text without anything invisible, which could reverse or hide a part of it."""
    some = text[: 4 * _ROWS * _WIDTH]
    printable = " ".join("".join(c if c.isprintable() or c in _JOINERS else " " for c in some).split())
    return textwrap.wrap(
        printable,
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        max_lines=_ROWS,
        placeholder="…",
        break_on_hyphens=False,
    )


# The columns of tables and indexes, as the Dagster UI shows them.


#: What the columns of an index hold where they do not come from the table under the same name.
_OF_INDEX = {
    "id": "Id of the row, as in the table.",
    "period": "The period's name, as in the table.",
    "kind": "A fact's kind, or summary.",
    "content": "The fact, beginning with its speaker, or the summary.",
    "terms": "Words that it is found by, with its speaker's and its date's.",
    "starts_at": "When a fact was said; when a summary's period begins.",
    "ends_at": "When a fact was said; when a summary's period ends.",
    "importance": "0 to 1: how much is lost if it is forgotten.",
    "source_ids": "What it rests on: messages of a fact, facts or finer summaries of a summary.",
    "digest": "Changes whenever anything about it changes.",
    "vector": "Embedding of the content; unit length; none where the embedder failed.",
}
#: Names that Arrow gives to the items of lists.
_ITEM = re.compile(r"\b(item|element): ")
#: The dimension is the embedder's, which is not known before a run.
_SIZE = re.compile(r"fixed_size_list<(.*)>\[\d+\]")


def table_columns(spec: TableSpec) -> Mapping[str, dg.TableSchema]:
    """Return the metadata that tells the columns of a table of the lake."""
    return _metadata(_column(field, field.metadata[b"comment"].decode(), field.nullable) for field in spec.schema)


def index_columns() -> Mapping[str, dg.TableSchema]:
    """Return the metadata that tells the columns of an index table, the same for all grains."""
    comments = {field.name: field.metadata[b"comment"].decode() for spec in (SUMMARIES, FACTS) for field in spec.schema}
    comments |= _OF_INDEX
    return _metadata(
        _column(field, comments[field.name], nullable=field.name not in {"id", "period", "kind", "content", "digest"})
        for field in index_schema(1)
    )


def _metadata(columns: Iterable[dg.TableColumn]) -> Mapping[str, dg.TableSchema]:
    return {"dagster/column_schema": dg.TableSchema(columns=list(columns))}


def _column(field: pa.Field, comment: str, nullable: bool) -> dg.TableColumn:
    # In the schemas a question mark says that a column may be null; here Dagster says it.
    told = comment.removesuffix("?")
    description = told if told.endswith((".", "…")) else f"{told}."
    return dg.TableColumn(
        field.name, _type(field.type), description, constraints=dg.TableColumnConstraints(nullable=nullable)
    )


def _type(kind: pa.DataType) -> str:
    """Name a type as people do: the fields of a structure are told by the column's description."""
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return f"list<{', '.join(field.name for field in kind.value_type)}>"
    return _ITEM.sub("", _SIZE.sub(r"list<\1>", str(kind)))


# From what a partition was made, in the tags by which Dagster tells whether it is in sync with that.
#
# Without them, Dagster takes every day for stale because of its hours in which nobody spoke: hours that were never made
# look to it like new input. With them, a partition is stale once what it was made from is made again with other
# content.


def source_of(asset: str, grain: Grain) -> str | None:
    """Return the asset that an asset of a grain is made from; None for messages, which come from the journal."""
    if asset == MESSAGES_ASSET:
        return None
    if asset != table_asset(grain):
        return table_asset(grain)
    return MESSAGES_ASSET if grain.finer is None else table_asset(grain.finer)


class Provenance:
    """Tells what the partitions of one run were made from. Made before the run reads anything."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._before = self._newest_event()
        self._version = version("memory-pipeline")
        self._asset = ""
        self._seen = self._before

    def tags(self, made: PartitionResult) -> Mapping[str, str]:
        """Return the tags of a partition; those of what it is made from must have been logged."""
        source = source_of(made.asset, made.period.grain)
        tags = {"dagster/data_version": made.output_digest, "dagster/code_version": self._version}
        if source is not None:
            tags[f"dagster/input_data_version/{source}"] = made.input_digest
            tags[f"dagster/input_event_pointer/{source}"] = str(self._newest_seen(made))
        return tags

    def _newest_seen(self, made: PartitionResult) -> int:
        """Return the newest event about the partition's source that the run knew of."""
        grain = made.period.grain
        if grain is not Grain.WORKING and made.asset == table_asset(grain):
            return self._before  # other runs make finer grains, and may do so meanwhile
        if made.asset != self._asset:  # asked once a batch, since the partitions of one asset follow each other
            self._asset, self._seen = made.asset, self._newest_event()
        return self._seen

    def _newest_event(self) -> int:
        return self._instance.event_log_storage.get_maximum_record_id() or 1
