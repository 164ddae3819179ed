"""The sources of summaries, and which summaries are up to date: most are, when a few scopes of a period change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.identity import digest, digest_of_all
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.domain.summaries import summary_id
from memory_pipeline.lake.codec.codec import scope_of
from memory_pipeline.steps.group import by_period

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.periods import Calendar, Period
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.summaries import Summarizer

_OF_SUMMARIES = ("id", "period", *SCOPE_COLUMNS, "source_digest", "source_ids", "fallback")


def source_digest(summarizer: Summarizer, scope: Scope, period: Period, digests: list[str]) -> str:
    """Return the digest of how, and from which sources, a summary is made."""
    return digest(summarizer.method(scope, period.grain), digest_of_all(digests))


def are_current(summarizer: Summarizer, summaries: pa.Table, sources: Mapping[Period, pa.Table]) -> NDArray[np.bool_]:
    """Return a mask of the summaries whose sources and method are unchanged, and that are no fallback.

    `sources` are all present sources of each period, with at least their id, scope and digest.
    """
    current = np.zeros(summaries.num_rows, np.bool_)
    if not current.size or not sources:
        return current
    by_key = {period.key: period for period in sources}
    parts = [
        pl.DataFrame(pl.from_arrow(rows.select(["scope", "id", "digest"]))).select(
            pl.lit(key).alias("period"), "scope", pl.col("id").alias("sources"), pl.col("digest").alias("digests")
        )
        for key, rows in ((period.key, rows) for period, rows in sources.items())
    ]
    found = pl.concat(parts).group_by("period", "scope").agg("sources", "digests")
    known = pl.DataFrame(pl.from_arrow(summaries.select(_OF_SUMMARIES))).with_row_index("row")
    known = known.filter(pl.col("fallback").is_null()).join(found, on=["period", "scope"])
    is_whole = pl.col("source_ids").list.set_difference("sources").list.len() == 0
    columns = ("row", "id", "period", "source_digest", "digests", *SCOPE_COLUMNS)
    for row, identifier, key, its_digest, digests, *ids in known.filter(is_whole).select(columns).iter_rows():
        scope, period = scope_of(*ids), by_key[key]
        is_same = identifier == summary_id(scope, period)
        current[row] = is_same and its_digest == source_digest(summarizer, scope, period, digests)
    return current


def by_parent(calendar: Calendar, rows: pa.Table, parents: Mapping[Period, Sequence[Period]]) -> dict[Period, pa.Table]:
    """Return the sources of each period that has some."""
    parts: dict[Period, list[pa.Table]] = {}
    for child, part in by_period(rows, list(parents)).items():
        has_two_days = child.grain is Grain.WORKING and len(calendar.days_of(child)) > 1
        for period in parents[child] if part.num_rows else ():
            parts.setdefault(period, []).append(_within(calendar, period, part) if has_two_days else part)
    return {period: pa.concat_tables(own) for period, own in parts.items()}


def without_unchanged(parts: Mapping[Period, pa.Table], unchanged: pa.Table) -> dict[Period, pa.Table]:
    """Return the sources of periods without those of the unchanged summaries."""
    known = by_period(unchanged.select(["period", "scope"]), list(parts))
    left = {
        period: part.filter(pc.invert(pc.is_in(part["scope"], known[period]["scope"].combine_chunks())))
        for period, part in parts.items()
    }
    return {period: part for period, part in left.items() if part.num_rows}


def _within(calendar: Calendar, day: Period, facts: pa.Table) -> pa.Table:
    """Return the facts of messages between the midnights of a day."""
    start, end = calendar.midnights(day)
    return facts.filter((pc.field("event_at") >= start) & (pc.field("event_at") < end))
