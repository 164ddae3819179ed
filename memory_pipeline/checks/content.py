"""Whether what is remembered is worth remembering: no repetition, nothing fed back, summaries that say something."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from memory_pipeline.checks.check import FOUND, REMEMBERED, SUMMARIZED, Offences, Scan, agent_names
from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.models.deterministic.summarization import DEFAULT_BUDGETS
from memory_pipeline.steps.validation import RECALLED_NAME, is_recalled

if TYPE_CHECKING:
    from memory_pipeline.checks.check import Look, Place
    from memory_pipeline.domain.periods import Grain

_AGENT = ["workspace_id", "agent_id"]
#: An agent repeats itself if more than this share of its facts of an hour, and at least so many, say what another of
#: them says. People greet and thank in the same words, but in 169 hours of real talk (LoCoMo) 1 fact in 44 did at most.
DUPLICATE_SHARE, FEWEST_DUPLICATES = 0.2, 3
#: How much longer than configured a summary may be. Models count characters badly.
LONGEST = 1.5
#: Rules may take a model's place in this share of a period's rows: now and then a model fails, and is asked again.
FALLBACK_SHARE = 0.1


def repeats() -> Scan:
    """Find agents' hours in which too many facts say the same. Turns and what is found in them are counted apart."""
    own = [*_AGENT, "period"]

    def see(_: Look, part: pl.DataFrame) -> tuple[int, int, list[str]]:
        distinct = pl.struct(pl.col("kind") == FactKind.TURN.value, "content").n_unique()
        hours = part.group_by(own, maintain_order=True).agg(rows=pl.len(), surplus=pl.len() - distinct)
        surplus = pl.col("surplus")
        loops = hours.filter(surplus >= FEWEST_DUPLICATES, surplus > DUPLICATE_SHARE * pl.col("rows"))
        return len(part), int(hours["surplus"].sum()), agent_names(loops, "period")

    def conclude(_: Look, seen: list[tuple[int, int, list[str]]]) -> Offences:
        rows, surplus = sum(rows for rows, _, _ in seen), sum(surplus for _, surplus, _ in seen)
        numbers = {"rows": rows, "duplicates": surplus, "duplicate_share": surplus / rows if rows else 0.0}
        return Offences.of((name for _, _, names in seen for name in names), numbers)

    return Scan(FOUND, (*own, "kind", "content"), see, conclude)


def feeds_back(place: Place) -> Scan:
    """Find rows that hold what memory itself gave to a prompt."""

    def see(_: Look, part: pl.DataFrame) -> tuple[int, list[str]]:
        suspects = part.filter(pl.col("content").str.contains(f"(?i){RECALLED_NAME}"))
        return len(part), [row for row, content in suspects.select("id", "content").iter_rows() if is_recalled(content)]

    return Scan(place, ("id", "content"), see, partial(_listed, "recalled"))


def says_nothing(grain: Grain) -> Scan:
    """Find summaries without a text or without a point."""

    def see(_: Look, part: pl.DataFrame) -> tuple[int, list[str]]:
        is_empty = (pl.col("content").str.strip_chars() == "") | (pl.col("key_points").list.len() == 0)
        return len(part), part.filter(is_empty)["id"].to_list()

    return Scan(SUMMARIZED[grain], ("id", "content", "key_points"), see, partial(_listed, "empty"))


def _listed(name: str, _: Look, seen: list[tuple[int, list[str]]]) -> Offences:
    ids = [identifier for _, own in seen for identifier in own]
    return Offences.of(ids, {"rows": sum(rows for rows, _ in seen), name: len(ids)})


def runs_on(grain: Grain) -> Scan:
    """Find summaries that are much longer than they are configured to be."""

    def see(look: Look, part: pl.DataFrame) -> tuple[int, int, int, list[str]]:
        sized = part.select(*_AGENT, "id", length=pl.col("content").str.len_chars())
        agents = sized.select(_AGENT).unique()
        lengths = [_length(look, grain, Scope(*key)) for key in agents.iter_rows()]
        limits = agents.with_columns(limit=pl.Series(lengths, dtype=pl.Int64))
        long = sized.join(limits, on=_AGENT, maintain_order="left").filter(pl.col("length") > LONGEST * pl.col("limit"))
        longest, total = sized.select(pl.max("length").alias("longest"), pl.sum("length")).row(0)
        return len(part), longest, total, long["id"].to_list()

    def conclude(_: Look, seen: list[tuple[int, int, int, list[str]]]) -> Offences:
        rows, total = sum(rows for rows, *_ in seen), sum(total for _, _, total, _ in seen)
        longest = max((longest for _, longest, _, _ in seen), default=0)
        numbers = {"rows": rows, "longest_characters": longest, "mean_characters": total / rows if rows else 0.0}
        return Offences.of((row for *_, ids in seen for row in ids), numbers)

    return Scan(SUMMARIZED[grain], (*_AGENT, "id", "content"), see, conclude)


def _length(look: Look, grain: Grain, scope: Scope) -> int:
    return look.configuration.summarization(scope, grain).length or DEFAULT_BUDGETS[grain]


def falls_back(grain: Grain) -> Scan:
    """Find periods in which rules took a model's place too often. Rows that no model was to make do not count."""

    def see(_: Look, part: pl.DataFrame) -> pl.DataFrame:
        asked = part.filter(pl.col("model").is_not_null() | pl.col("fallback").is_not_null())
        counts = asked.group_by("period", maintain_order=True)
        return counts.agg(fallen=pl.col("fallback").count(), asked=pl.len()).select("period", "fallen", "asked")

    def conclude(_: Look, seen: list[pl.DataFrame]) -> Offences:
        fallen = sum(int(part["fallen"].sum()) for part in seen)
        asked = sum(int(part["asked"].sum()) for part in seen)
        too_often = (part.filter(pl.col("fallen") > FALLBACK_SHARE * pl.col("asked")) for part in seen)
        names = (f"{period}, {own} of {of}" for part in too_often for period, own, of in part.iter_rows())
        return Offences.of(
            names, {"asked": asked, "fallbacks": fallen, "fallback_share": fallen / asked if asked else 0.0}
        )

    return Scan(REMEMBERED[grain], ("period", "model", "fallback"), see, conclude)
