"""Facts to days, days to weeks, … to years: each summary is made from the next finer table alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.domain.retention import Kept
from memory_pipeline.domain.summaries import Condensation, Summarizer, Summary, summary_id
from memory_pipeline.lake.codec.facts import summaries_to_rows
from memory_pipeline.lake.schemas import SUMMARIES
from memory_pipeline.lake.tables.ledger import table_asset
from memory_pipeline.lake.tables.tombstones import Marks
from memory_pipeline.steps.digests import Digests, marks_of
from memory_pipeline.steps.embed import with_vectors
from memory_pipeline.steps.group import by_period
from memory_pipeline.steps.guard import guard
from memory_pipeline.steps.made import Made, compression_of, together, tokens_of, unfinished_rows
from memory_pipeline.steps.shares import WHOLE, replace_in_shares
from memory_pipeline.steps.sources import Due, read_sources, resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from memory_pipeline.domain.periods import Calendar, Grain, Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.shares import Share


def summarize_periods(
    lake: Lake,
    summarizer: Summarizer,
    embedder: Embedder,
    grain: Grain,
    periods: list[Period],
    shares: Sequence[Share] = WHOLE,
) -> list[Made]:
    """Make the ``summaries`` partitions of `periods`; return what each holds.

    Args:
        lake: where.
        summarizer: condenses.
        embedder: makes vectors.
        grain: of the periods.
        periods: the partitions.
        shares: the agents, as they are worked on one after the other.
    """
    made: dict[Share, list[Made]] = {}
    inputs: dict[Share, dict[Period, dict[Period, Digests | str]]] = {}
    tokens: dict[Share, dict[Period, tuple[int, int]]] = {}

    def summarized(share: Share, old: pa.Table) -> pa.Table:
        # Read inside the attempt: whoever commits summaries in between makes this start over, with newer ones.
        sources = read_sources(lake, summarizer, grain, periods, old, share)
        condensed = summarizer.summarize([due.assignment for due in sources.due]) if sources.due else []
        refused: dict[Period, int] = defaultdict(int)
        waiting: dict[Period, int] = defaultdict(int)
        for due, condensation in zip(sources.due, condensed, strict=True):
            refused[due.assignment.period] += 0 if condensation is None else condensation.refused
            waiting[due.assignment.period] += _waits(due, condensation)
        rows = summaries_to_rows([*sources.kept, *_summaries(lake.calendar, sources.due, condensed)])
        guard(grain, rows, old)
        rows = with_vectors(rows, old, periods, embedder)
        of_periods = by_period(rows, periods)
        inputs[share] = sources.inputs
        tokens[share] = {period: tokens_of(own) for period, own in of_periods.items()}
        made[share] = [
            Made(
                asset=table_asset(grain),
                period=period,
                input_digest="",
                output_digest=marks.combined,
                rows=own.num_rows,
                agents=own.num_rows,
                fallbacks=own.num_rows - own["fallback"].null_count,
                unfinished=unfinished_rows(own, sources.lasting) + waiting[period],
                refused=refused[period],
                outputs=marks,
            )
            for period, own in of_periods.items()
            for marks in [marks_of(own)]
        ]
        return rows

    keys = [period.key for period in periods]
    # Summaries whose sources may have expired can be all that is left of them.
    expired = Marks.of(lake.tables).latest(kept for kept in Kept if kept.grain is grain.finer)
    remade = {period.key for period in periods if lake.calendar.children(period)[0].key > expired}
    changed = replace_in_shares(lake, SUMMARIES, keys, shares, summarized, remade, grain=grain.value)

    sizes = lake.tables.sizes(SUMMARIES, grain=grain.value)
    return [
        replace(
            whole,
            input_digest=_input_digest([inputs[share][whole.period] for share in shares]),
            bytes=sizes.get(whole.period.key, 0),
            changed=whole.period.key in changed,
            compression=compression_of([tokens[share][whole.period] for share in shares]),
        )
        for whole in together([made[share] for share in shares])
    ]


def _input_digest(shares: Iterable[Mapping[Period, Digests | str]]) -> str:
    """Return the digest of the digests of finer partitions, of each of which every share knows its rows."""
    of_rows: dict[Period, Digests] = {}
    expired: dict[Period, str] = {}
    for share in shares:
        for child, own in share.items():
            if isinstance(own, str):
                expired[child] = own
            else:
                of_rows[child] = of_rows.get(child, Digests()) + own
    return digest_of_all(({child: own.combined for child, own in of_rows.items()} | expired).values())


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
