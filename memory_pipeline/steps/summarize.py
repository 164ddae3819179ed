"""Facts to days, days to weeks, … to years: each summary is made from the next finer table alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.identity import digest, digest_of_all
from memory_pipeline.domain.summaries import Material, Summarizer, Summary, summary_id
from memory_pipeline.lake.ledger import table_asset
from memory_pipeline.lake.rows import rows_to_facts, rows_to_summaries, summaries_to_rows
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.steps.group import by_period, by_scope
from memory_pipeline.steps.made import Made, content_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Calendar, Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake

#: Characters that count as one token where no model counted them.
_CHARACTERS_PER_TOKEN = 4


def summarize_periods(
    lake: Lake, summarizer: Summarizer, embedder: Embedder, grain: Grain, periods: list[Period]
) -> list[Made]:
    """Make the ``summaries`` partitions of `periods`; return what each holds.

    An agent whose sources and method are those of the summary that is there keeps it as it is. Dagster's own mapping
    may ask for a month because of a week that another month owns; :meth:`Calendar.children` decides, and the month
    then finds its sources unchanged.
    """
    keys = [period.key for period in periods]
    parents = {child: period for period in periods for child in lake.calendar.children(period)}
    sources = _read_sources(lake, grain, [child.key for child in parents])
    present = lake.tables.read(SUMMARIES, keys, grain=grain.value)
    known = {summary.id: summary for summary in rows_to_summaries(present)}

    parts: dict[Period, list[pa.Table]] = {period: [] for period in periods}
    for child, rows in by_period(sources, list(parents)).items():
        if rows.num_rows:
            parts[parents[child]].append(rows)
    summaries = [
        _summary(lake.calendar, summarizer, period, scope, rows, known)
        for period, tables in parts.items()
        if tables
        for scope, rows in by_scope(pa.concat_tables(tables)).items()
    ]
    result = lake.tables.replace(SUMMARIES, keys, summaries_to_rows(summaries, embedder), grain=grain.value)

    sizes = lake.tables.sizes(SUMMARIES, grain=grain.value)
    return [
        Made(
            asset=table_asset(grain),
            period=period,
            input_digest=digest_of_all(content_digest(table) for table in parts[period]),
            output_digest=content_digest(rows),
            rows=rows.num_rows,
            agents=rows.num_rows,
            bytes=sizes.get(period.key, 0),
            changed=period.key in result.changed,
        )
        for period, rows in by_period(result.rows, periods).items()
    ]


def _read_sources(lake: Lake, grain: Grain, keys: list[str]) -> pa.Table:
    finer = grain.finer
    spec = FACTS if finer is Grain.WORKING else SUMMARIES
    columns = [name for name in spec.schema.names if name != "vector"]
    if finer is None or finer is Grain.WORKING:
        return lake.tables.read(FACTS, keys, columns=columns)
    return lake.tables.read(SUMMARIES, keys, columns=columns, grain=finer.value)


def _summary(
    calendar: Calendar,
    summarizer: Summarizer,
    period: Period,
    scope: Scope,
    sources: pa.Table,
    known: Mapping[str, Summary],
) -> Summary:
    identifier = summary_id(scope, period)
    source_digest = digest(summarizer.name, content_digest(sources))
    old = known.get(identifier)
    if old is not None and old.source_digest == source_digest:
        return old
    material, source_ids = _material(period, sources)
    points = summarizer.summarize(period, material)
    start, end = calendar.bounds(period)
    content = "\n".join(f"{calendar.day_of(point.event_at)} {point.sentence}" for point in points)
    return Summary(
        id=identifier,
        scope=scope,
        period=period,
        period_start=start,
        period_end=end,
        content=content,
        key_points=points,
        entities=tuple(sorted({entity for point in points for entity in point.entities})),
        importance=max((point.importance for point in points), default=0.0),
        source_ids=tuple(sorted(source_ids)),
        source_digest=source_digest,
        tokens_in=sum(_tokens(item.text) for item in material),
        tokens_out=_tokens(content),
        summary_method=summarizer.name,
    )


def _material(period: Period, sources: pa.Table) -> tuple[list[Material], list[str]]:
    """Return what a summary is made from, and the ids of the rows that it comes from."""
    if period.grain is not Grain.DAILY:
        summaries = rows_to_summaries(sources)
        return [item for summary in summaries for item in summary.material()], [summary.id for summary in summaries]
    facts = rows_to_facts(sources)
    # A day on which nothing was asserted is remembered by what was said.
    facts = [fact for fact in facts if fact.kind is not FactKind.TURN] or facts
    material = [
        Material(fact.id, fact.content, fact.event_at, fact.position, fact.importance, fact.entities) for fact in facts
    ]
    return material, [fact.id for fact in facts]


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)
