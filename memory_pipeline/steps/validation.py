"""Validate rows before they are written. An invalid partition is refused: its old rows and journal files stay.

Only the rows themselves are read. Checks that need more of the lake are in :mod:`memory_pipeline.checks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from memory_pipeline.domain.text.recalled_text import mark, without_recalled
from memory_pipeline.errors import QualityError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from memory_pipeline.domain.periods import Grain

#: Part of all delimiters of recalled blocks.
RECALLED_NAME = mark("").partition(" ")[0].removeprefix("<")
#: Maximum number of partitions in a message.
_NAMED = 3
_REASONS = {
    "unique_ids": "the same id was given to different rows",
    "fed_back_recall": "the content repeats memory that was recalled into a prompt",
    "empty_summaries": "the summary of existing sources is empty",
    "orphaned_sources": "the points cite sources that were not provided",
}


@dataclass(frozen=True, slots=True)
class RowIssue:
    """Rows of a partition that fail a check of :mod:`memory_pipeline.checks`."""

    check: str
    period: str
    ids: tuple[str, ...]


def validate_rows(grain: Grain, rows: pa.Table, old: pa.Table) -> None:
    """Refuse invalid rows of ``facts`` or ``summaries``.

    `rows` are the complete new content of partitions, `old` their present content. Unchanged rows are checked only for
    duplicate ids: their sources may have expired.

    Raises:
        QualityError: some rows are invalid; the message names the checks, partitions and remedy.
    """
    issues = faults(rows, old)
    if not issues:
        return
    shown = "; ".join(
        f"{grain} {issue.period} fails {issue.check} ({len(issue.ids):,} rows, such as {issue.ids[0]})"
        for issue in issues[:_NAMED]
    )
    more = f"; and {len(issues) - _NAMED:,} more" if len(issues) > _NAMED else ""
    reasons = "; ".join(dict.fromkeys(_REASONS[issue.check] for issue in issues))
    raise QualityError(
        f"{shown}{more}. Nothing was written, existing rows are unchanged; {reasons}: correct the model or its prompt "
        "in config/workspaces.yaml, and run again"
    )


def faults(rows: pa.Table, old: pa.Table) -> list[RowIssue]:
    """Return the issues of rows, by check and partition; see :func:`validate_rows`."""
    frame, before = _frame(rows), _frame(old)
    is_changed = ~(frame["id"].is_in(before["id"].implode()) & frame["digest"].is_in(before["digest"].implode()))
    issues = []
    for check, fails in _failing(frame).items():
        wrong = fails if check == "unique_ids" else fails & is_changed
        offenders = frame.filter(wrong).group_by("period", maintain_order=True).agg("id").sort("period")
        issues += [RowIssue(check, period, tuple(ids)) for period, ids in offenders.iter_rows()]
    return issues


def are_sound(rows: pa.Table) -> NDArray[np.bool_]:
    """Return a mask of the valid rows of ``facts`` or ``summaries``. The others must be recomputed."""
    frame = _frame(rows)
    named = frame["id"].str.extract("^[^:]*:(.*):[^:]*$")
    wrong = named.ne_missing(frame["period"])
    for each in _failing(frame).values():
        wrong |= each
    return (~wrong).to_numpy()


def is_recalled(text: str) -> bool:
    """Return whether a text contains a block of recalled memory, or part of one."""
    return without_recalled(text) is not text


def _frame(rows: pa.Table) -> pl.DataFrame:
    columns = ["id", "period", "digest", "content", "key_points", "source_ids"]
    return pl.DataFrame(pl.from_arrow(rows.select([name for name in columns if name in rows.column_names])))


def _failing(rows: pl.DataFrame) -> dict[str, pl.Series]:
    """Return masks of the rows that fail, by check."""
    # Few texts contain the name, and parsing blocks is slow.
    suspects = rows["content"].str.contains(f"(?i){RECALLED_NAME}")
    recalled = [found and is_recalled(text) for found, text in zip(suspects, rows["content"], strict=True)]
    wrong = {"unique_ids": rows["id"].is_duplicated(), "fed_back_recall": pl.Series(recalled, dtype=pl.Boolean)}
    if "key_points" in rows.columns:
        wrong["empty_summaries"] = (rows["content"].str.strip_chars() == "") | (rows["key_points"].list.len() == 0)
        wrong["orphaned_sources"] = _orphaned(rows)
    return wrong


def _orphaned(rows: pl.DataFrame) -> pl.Series:
    """Return a mask of the summaries with a point that cites nothing, or a source outside the summary's sources."""
    numbered = rows.with_row_index("row")
    points = numbered.select("row", "key_points").explode("key_points").unnest("key_points")
    citations = points.select("row", "source_ids").explode("source_ids", empty_as_null=True)
    cited = citations.with_columns(pl.col("source_ids").str.replace("#[0-9]+$", ""))
    known = numbered.select("row", "source_ids").explode("source_ids")
    orphans = cited.join(known, on=["row", "source_ids"], how="anti")  # null, of no citation, equals none
    return numbered["row"].is_in(orphans["row"].implode())
