"""Facts to days, days to weeks, … to years: each summary is made from the next finer table alone."""

from __future__ import annotations

from collections import defaultdict
from importlib.metadata import version
from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.domain.summaries import Condensation, Summarizer, Summary, summary_id
from memory_pipeline.lake.ledger import table_asset
from memory_pipeline.lake.rows import summaries_to_rows
from memory_pipeline.lake.schemas import SUMMARIES
from memory_pipeline.steps.embed import with_vectors
from memory_pipeline.steps.group import by_period
from memory_pipeline.steps.guard import guard
from memory_pipeline.steps.made import Made, compression_of, content_digest, unfinished_rows
from memory_pipeline.steps.sources import Due, Sources, read_sources, resolved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from memory_pipeline.domain.grains import Grain
    from memory_pipeline.domain.periods import Calendar, Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake


def summarize_periods(
    lake: Lake, summarizer: Summarizer, embedder: Embedder, grain: Grain, periods: list[Period]
) -> list[Made]:
    """Make the ``summaries`` partitions of `periods`; return what each holds."""
    keys = [period.key for period in periods]
    sources = Sources(SUMMARIES.schema.empty_table(), {})
    refused: dict[Period, int] = defaultdict(int)
    waiting: dict[Period, int] = defaultdict(int)

    def summarized(old: pa.Table) -> pa.Table:
        # Read inside the attempt: whoever commits summaries in between makes this start over, with newer ones.
        nonlocal sources
        sources = read_sources(lake, summarizer, grain, periods, old)
        made = summarizer.summarize([due.assignment for due in sources.due]) if sources.due else []
        refused.clear()
        waiting.clear()
        for due, condensation in zip(sources.due, made, strict=True):
            refused[due.assignment.period] += 0 if condensation is None else condensation.refused
            waiting[due.assignment.period] += _waits(due, condensation)
        rows = summaries_to_rows([*sources.kept, *_summaries(lake.calendar, sources.due, made)])
        guard(grain, rows, old)
        return with_vectors(rows, old, periods, embedder)

    result = lake.tables.transform(SUMMARIES, keys, summarized, grain=grain.value)

    sizes = lake.tables.sizes(SUMMARIES, grain=grain.value)
    return [
        Made(
            asset=table_asset(grain),
            period=period,
            input_digest=digest_of_all(sources.inputs[period]),
            output_digest=content_digest(rows),
            rows=rows.num_rows,
            agents=rows.num_rows,
            bytes=sizes.get(period.key, 0),
            changed=period.key in result.changed,
            fallbacks=rows.num_rows - rows["fallback"].null_count,
            unfinished=unfinished_rows(rows, sources.lasting) + waiting[period],
            refused=refused[period],
            compression=compression_of(rows),
        )
        for period, rows in by_period(result.rows, periods).items()
    ]


def _summaries(
    calendar: Calendar, dues: Sequence[Due], condensations: Sequence[Condensation | None]
) -> Iterator[Summary]:
    """Yield what was made; what waits is as it was before."""
    code_version = version("memory-pipeline")
    for due, condensation in zip(dues, condensations, strict=True):
        if condensation is not None and not _waits(due, condensation):
            yield _summary(calendar, due, condensation, code_version)
        elif due.old is not None:
            yield due.old


def _waits(due: Due, condensation: Condensation | None) -> bool:
    """Tell whether a summary is left for later: the budget is spent, or a stand-in would take the place of a model's.

    What continues a summary whose sources have expired cannot be made better afterwards.
    """
    if condensation is None:
        return True
    return due.continues and condensation.fallback is not None and due.old is not None and due.old.fallback is None


def _summary(calendar: Calendar, due: Due, made: Condensation, code_version: str) -> Summary:
    scope, period = due.assignment.scope, due.assignment.period
    start, end = calendar.bounds(period)
    points = resolved(due, made.points)
    return Summary(
        id=summary_id(scope, period),
        scope=scope,
        period=period,
        period_start=start,
        period_end=end,
        content="\n".join(f"{calendar.day_of(point.event_at)} {point.sentence}" for point in points),
        key_points=points,
        entities=tuple(sorted({entity for point in points for entity in point.entities})),
        importance=max((point.importance for point in points), default=0.0),
        source_ids=due.source_ids,
        source_digest=due.source_digest,
        source_digests=due.source_digests,
        tokens_in=made.tokens_in,
        tokens_out=made.tokens_out,
        summary_method=made.method,
        cost=made.cost,
        model=made.model,
        prompt_version=made.prompt_version,
        fallback=made.fallback,
        code_version=code_version,
    )
