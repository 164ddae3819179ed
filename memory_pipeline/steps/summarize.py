"""Facts to days, days to weeks, … to years: each summary is made from the next finer table alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.identity import digest, digest_of_all
from memory_pipeline.domain.summaries import Assignment, Condensation, Material, Summarizer, Summary, summary_id
from memory_pipeline.lake.ledger import table_asset
from memory_pipeline.lake.rows import rows_to_facts, rows_to_summaries, summaries_to_rows
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.steps.embed import with_vectors
from memory_pipeline.steps.group import by_period, by_scope
from memory_pipeline.steps.made import Made, content_digest, unfinished_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_pipeline.domain.periods import Calendar, Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake


@dataclass(frozen=True, slots=True)
class Due:
    """One agent's period whose summary is missing, or no longer fits what it is made from."""

    assignment: Assignment
    source_ids: tuple[str, ...]
    source_digest: str
    old: Summary | None


@dataclass
class Sources:
    """What periods are made from.

    Attributes:
        parts: the rows of each period's sources, a table for each finer partition that has any.
        kept: summaries that stand: same sources, same method.
        due: those to be made.
        present: the rows of ``summaries`` that the periods hold now.
    """

    present: pa.Table
    parts: dict[Period, list[pa.Table]] = field(default_factory=dict)
    kept: list[Summary] = field(default_factory=list)
    due: list[Due] = field(default_factory=list)


def read_sources(lake: Lake, summarizer: Summarizer, grain: Grain, periods: Sequence[Period]) -> Sources:
    """Read what `periods` are made from, and find out which of their summaries need not be made again.

    An agent whose sources and method are those of the summary that is there keeps it, unless it fell back on rules.
    Dagster's own mapping may ask for a month because of a week that another month owns; :meth:`Calendar.children`
    decides, and the month then finds its sources unchanged.
    """
    parents = {child: period for period in periods for child in lake.calendar.children(period)}
    rows = _read(lake, grain, [child.key for child in parents])
    present = lake.tables.read(SUMMARIES, [period.key for period in periods], grain=grain.value)
    known = {summary.id: summary for summary in rows_to_summaries(present)}

    sources = Sources(present, {period: [] for period in periods})
    for child, part in by_period(rows, list(parents)).items():
        if part.num_rows:
            sources.parts[parents[child]].append(part)
    for period, parts in sources.parts.items():
        for scope, own in by_scope(pa.concat_tables(parts)).items() if parts else ():
            old = known.get(summary_id(scope, period))
            source_digest = digest(summarizer.method(scope, grain), digest_of_all(own["digest"].to_pylist()))
            if old is not None and old.source_digest == source_digest and old.fallback is None:
                sources.kept.append(old)
            else:
                material, source_ids = _material(period, own)
                assignment = Assignment(scope, period, tuple(material))
                sources.due.append(Due(assignment, tuple(sorted(source_ids)), source_digest, old))
    return sources


def summarize_periods(
    lake: Lake, summarizer: Summarizer, embedder: Embedder, grain: Grain, periods: list[Period]
) -> list[Made]:
    """Make the ``summaries`` partitions of `periods`; return what each holds."""
    keys = [period.key for period in periods]
    sources = read_sources(lake, summarizer, grain, periods)
    made = summarizer.summarize([due.assignment for due in sources.due]) if sources.due else []
    refused: dict[Period, int] = defaultdict(int)
    waiting: dict[Period, int] = defaultdict(int)
    for due, condensation in zip(sources.due, made, strict=True):
        refused[due.assignment.period] += 0 if condensation is None else condensation.refused
        waiting[due.assignment.period] += condensation is None
    summaries = [*sources.kept, *_summaries(lake.calendar, sources.due, made)]
    rows = with_vectors(summaries_to_rows(summaries), sources.present, periods, embedder)
    result = lake.tables.replace(SUMMARIES, keys, rows, grain=grain.value)

    sizes = lake.tables.sizes(SUMMARIES, grain=grain.value)
    return [
        Made(
            asset=table_asset(grain),
            period=period,
            input_digest=digest_of_all(map(content_digest, sources.parts[period])),
            output_digest=content_digest(rows),
            rows=rows.num_rows,
            agents=rows.num_rows,
            bytes=sizes.get(period.key, 0),
            changed=period.key in result.changed,
            fallbacks=rows.num_rows - rows["fallback"].null_count,
            unfinished=unfinished_rows(rows) + waiting[period],
            refused=refused[period],
        )
        for period, rows in by_period(result.rows, periods).items()
    ]


def _read(lake: Lake, grain: Grain, keys: list[str]) -> pa.Table:
    finer = grain.finer
    spec = FACTS if finer is Grain.WORKING else SUMMARIES
    columns = [name for name in spec.schema.names if name != "vector"]
    if finer is None or finer is Grain.WORKING:
        return lake.tables.read(FACTS, keys, columns=columns)
    return lake.tables.read(SUMMARIES, keys, columns=columns, grain=finer.value)


def _summaries(
    calendar: Calendar, dues: Sequence[Due], condensations: Sequence[Condensation | None]
) -> Iterator[Summary]:
    """Yield what was made; where nothing was, since it waits for a budget, what was there before."""
    code_version = version("memory-pipeline")
    for due, condensation in zip(dues, condensations, strict=True):
        if condensation is not None:
            yield _summary(calendar, due, condensation, code_version)
        elif due.old is not None:
            yield due.old


def _summary(calendar: Calendar, due: Due, made: Condensation, code_version: str) -> Summary:
    scope, period = due.assignment.scope, due.assignment.period
    start, end = calendar.bounds(period)
    return Summary(
        id=summary_id(scope, period),
        scope=scope,
        period=period,
        period_start=start,
        period_end=end,
        content="\n".join(f"{calendar.day_of(point.event_at)} {point.sentence}" for point in made.points),
        key_points=made.points,
        entities=tuple(sorted({entity for point in made.points for entity in point.entities})),
        importance=max((point.importance for point in made.points), default=0.0),
        source_ids=due.source_ids,
        source_digest=due.source_digest,
        tokens_in=made.tokens_in,
        tokens_out=made.tokens_out,
        summary_method=made.method,
        cost=made.cost,
        model=made.model,
        prompt_version=made.prompt_version,
        fallback=made.fallback,
        code_version=code_version,
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
