"""Validate rows before they are written. An invalid partition is refused: its old rows and journal files stay.

Only the rows themselves are read. Checks that need more of the lake are in :mod:`memory_pipeline.checks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.text.recalled_text import mark, without_recalled
from memory_pipeline.errors import QualityError

if TYPE_CHECKING:
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
    changed = pc.invert(pc.and_(_among(rows["id"], old["id"]), _among(rows["digest"], old["digest"])))
    is_changed = np.asarray(changed.to_numpy(zero_copy_only=False), np.bool_)
    issues = []
    for check, fails in _failing(rows).items():
        wrong = fails if check == "unique_ids" else fails & is_changed
        if wrong.any():
            ids: dict[str, list[str]] = {}
            offenders = rows.select(["period", "id"]).filter(pa.array(wrong))
            for period, identifier in zip(*(offenders[name].to_pylist() for name in ("period", "id")), strict=True):
                ids.setdefault(period, []).append(identifier)
            issues += [RowIssue(check, period, tuple(of_period)) for period, of_period in sorted(ids.items())]
    return issues


def are_sound(rows: pa.Table) -> NDArray[np.bool_]:
    """Return a mask of the valid rows of ``facts`` or ``summaries``. The others must be recomputed."""
    wrong = _in_other_partition(rows)
    for each in _failing(rows).values():
        wrong |= each
    return ~wrong


def is_recalled(text: str) -> bool:
    """Return whether a text contains a block of recalled memory, or part of one."""
    return without_recalled(text) is not text


def _failing(rows: pa.Table) -> dict[str, NDArray[np.bool_]]:
    wrong = {"unique_ids": _duplicate(rows["id"]), "fed_back_recall": _recalled(rows["content"])}
    if "key_points" in rows.column_names:
        wrong["empty_summaries"] = _empty(rows)
        wrong["orphaned_sources"] = _orphaned(rows)
    return wrong


def _duplicate(ids: pa.ChunkedArray) -> NDArray[np.bool_]:
    found = np.zeros(len(ids), np.bool_)
    if pc.count_distinct(ids).as_py() < len(ids):
        encoded = ids.combine_chunks().dictionary_encode().indices.to_numpy()
        found = np.bincount(encoded)[encoded] > 1
    return found


def _in_other_partition(rows: pa.Table) -> NDArray[np.bool_]:
    named = pc.replace_substring_regex(rows["id"], r"^[^:]*:(.*):[^:]*$", r"\1")
    return np.asarray(pc.not_equal(named, rows["period"]).to_numpy(zero_copy_only=False), np.bool_)


def _recalled(contents: pa.ChunkedArray) -> NDArray[np.bool_]:
    found = np.zeros(len(contents), np.bool_)
    # Few texts contain the name, and parsing blocks is slow.
    suspects = pc.match_substring(contents, RECALLED_NAME, ignore_case=True).to_numpy()
    for row in np.flatnonzero(suspects):
        found[row] = is_recalled(contents[row].as_py())
    return found


def _empty(rows: pa.Table) -> NDArray[np.bool_]:
    blank = pc.equal(pc.utf8_trim_whitespace(rows["content"]), "")
    return np.asarray(pc.or_(blank, pc.equal(pc.list_value_length(rows["key_points"]), 0)).to_numpy(), np.bool_)


def _orphaned(rows: pa.Table) -> NDArray[np.bool_]:
    """Return a mask of the summaries with a point that cites nothing, or a source outside the summary's sources."""
    found = np.zeros(rows.num_rows, np.bool_)
    points = rows["key_points"].combine_chunks()
    cited = pc.list_flatten(points).field("source_ids")
    of_point = pc.list_parent_indices(points)
    found[of_point.filter(pc.equal(pc.list_value_length(cited), 0)).to_numpy()] = True
    of_citation = of_point.take(pc.list_parent_indices(cited))
    sources = rows["source_ids"].combine_chunks()
    # Prefix ids with the row number, so that one lookup serves all rows.
    known = _numbered(pc.list_parent_indices(sources), pc.list_flatten(sources))
    used = _numbered(of_citation, pc.replace_substring_regex(pc.list_flatten(cited), "#[0-9]+$", ""))
    found[of_citation.filter(pc.invert(pc.is_in(used, known))).to_numpy()] = True
    return found


def _numbered(numbers: pa.Array, ids: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(numbers.cast(pa.string()), ids, " ")


def _among(values: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(values, others.combine_chunks())
