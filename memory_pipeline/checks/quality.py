"""Checks of content: missing summaries, orphaned sources, duplicates, and empty or long summaries."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.checks.check import (
    AGAIN,
    FACT_ROWS,
    MESSAGE_ROWS,
    OPERATION_ROWS,
    RECOMPUTE,
    ROWS_OF_GRAIN,
    SUMMARY_ROWS,
    Offences,
    Severity,
    check,
    parts_of,
    scope_names,
    total,
)
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import FIRST_YEAR, Grain, Period
from memory_pipeline.domain.retention import WORKING_CLASSES, RetentionClass
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.lake.schemas import SUMMARIES
from memory_pipeline.lake.tables.ledger import table_asset
from memory_pipeline.models.deterministic.summarization import DEFAULT_BUDGETS
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.steps.validation import RECALLED_NAME, is_recalled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from memory_pipeline.checks.check import Check, CheckContext, Place


_SCOPE = [*SCOPE_COLUMNS]
#: The suffix of a citation of a summary's point.
_POINT = r"#[0-9]+$"
_PLACES = {place.what: place for place in (MESSAGE_ROWS, FACT_ROWS, *SUMMARY_ROWS.values())}
_EDIT = "edit"
#: A closed period is computed within this time.
_MOMENT = timedelta(hours=1)


def missing_summaries(grain: Grain) -> Check:
    """Return the check for closed periods of scopes that have source rows but no summary, and are not expired.

    Waiting periods are counted separately. They wait for a model or its budget, for the schedule window of late data,
    or have just closed.
    """
    finer = grain.finer or Grain.WORKING

    def children(context: CheckContext) -> list[str] | None:
        keys = context.keys(grain)
        if keys is None:
            return None
        return [child.key for key in keys for child in context.lake.calendar.sources(Period(grain, key))]

    def conclude(context: CheckContext, seen: list[pl.DataFrame]) -> Offences:
        due = _due(context, finer, pl.concat(seen))
        present = [part.select(due.columns) for part in parts_of(context, SUMMARY_ROWS[grain], due.columns, _keys(due))]
        missing = due.join(pl.concat(present), on=due.columns, how="anti", maintain_order="left")
        missing = missing.filter(~_expired(context, missing, [RetentionClass(grain.value)]))
        waiting_keys = _waiting(context, grain)
        waiting = missing.filter(pl.col("period").is_in(waiting_keys))
        missing = missing.filter(~pl.col("period").is_in(waiting_keys))
        numbers = {"due": len(due), "missing": len(missing), "waiting": len(waiting)}
        return Offences.of(scope_names(missing, "period"), numbers)

    return check(
        "coverage",
        SUMMARY_ROWS[grain].asset,
        AGAIN,
        blocks=True,
        description=f"Each agent has a summary for each closed {grain} period with source rows, unless it expired.",
        place=ROWS_OF_GRAIN[finer],
        columns=(*_SCOPE, "period"),
        conclude=conclude,
        keys=children,
    )(lambda _, part: part.unique())


def _waiting(context: CheckContext, grain: Grain) -> list[str]:
    """Return pending periods that were computed before or have just closed."""
    lake, entries = context.lake, context.lake.ledger.entries(table_asset(grain))
    pending = grain_status(lake, grain, date(FIRST_YEAR, 1, 1), context.now).pending
    present = set(lake.tables.keys(SUMMARIES, grain=grain.value))
    # A summary that was written and has disappeared is missing, although the next run would recompute it.
    lost = {key for key, entry in entries.items() if entry.rows > entry.expired and key not in present}
    return [
        period.key
        for period in pending
        if (period.key in entries and period.key not in lost) or lake.calendar.closes_at(period) > context.now - _MOMENT
    ]


def _due(context: CheckContext, finer: Grain, sources: pl.DataFrame) -> pl.DataFrame:
    calendar = context.lake.calendar
    # An hour with moments of two days says not for which of them a scope needs a summary.
    parents = {
        key: derived[0].key
        for key in _keys(sources)
        if len(derived := calendar.derived(Period(finer, key))) == 1 and calendar.closes_at(derived[0]) <= context.now
    }
    period = pl.col("period").replace_strict(parents, default=None, return_dtype=pl.String)
    return sources.with_columns(period).drop_nulls("period").unique().sort("period", *_SCOPE)


def _keys(rows: pl.DataFrame) -> list[str]:
    return rows["period"].unique().to_list()


def orphaned_sources(
    place: Place,
    description: str = "Cited sources exist or have expired. Facts cite messages, summaries cite facts or finer "
    "summaries, the graph cites messages and edits.",
) -> Check:
    """Return the check for rows that cite a source that neither exists nor has expired. An offender is a row."""
    citing = _CITING_COLUMNS[place.spec.name]

    def see(context: CheckContext, part: pl.DataFrame) -> Offences:
        citations = _citations(part, citing)
        unknown = _without_present(context, citations)
        expired = _has_expired(context, unknown)
        orphans = unknown.filter(~expired)["id"].unique(maintain_order=True)
        numbers = {"rows": len(part), "citations": len(citations), "expired_citations": int(expired.sum())}
        return Offences.of(orphans, {**numbers, "orphans": len(orphans)})

    columns = (*_SCOPE, "id", *citing)
    named = ("orphaned_sources", place.asset, RECOMPUTE)
    return check(*named, blocks=True, description=description, place=place, columns=columns)(see)


_CITING_COLUMNS = {
    "facts": ("message_ids",),
    "summaries": ("source_ids", "key_points"),
    "graph_facts": ("evidence",),
    "graph_operations": ("evidence_id",),
    "memory_events": ("evidence",),
}


def _citations(part: pl.DataFrame, citing: Sequence[str]) -> pl.DataFrame:
    """Return one row per citation: scope, id, source id, and the source's type (`what`) and period."""
    identity = [*_SCOPE, "id"]
    found = []
    for column in citing:
        source = pl.col(column)
        if column == "key_points":
            points = pl.element().struct.field("source_ids").explode().str.replace(_POINT, "")
            source = source.list.eval(points)
        rows = part.select(*identity, source.alias("source"))
        found.append(rows if rows.schema["source"] == pl.String else rows.explode("source").drop_nulls("source"))
    citations = found[0] if len(found) == 1 else pl.concat(found).unique(maintain_order=True)
    # An id is "type:period:hash". Periods contain no colon.
    parts = pl.col("source").str.splitn(":", 3).struct.rename_fields(["what", "period", "hash"])
    return citations.with_columns(parts.alias("parts")).unnest("parts").drop("hash").fill_null("")


def _without_present(context: CheckContext, citations: pl.DataFrame) -> pl.DataFrame:
    """Return the citations of missing sources. A source of another scope counts as missing."""
    missing = []
    for (what,), group in citations.group_by("what", maintain_order=True):
        rest = group
        for present in _present(context, str(what), group):
            rest = rest.join(present, on=[*_SCOPE, "source"], how="anti", maintain_order="left")
        missing.append(rest)
    return pl.concat(missing) if missing else citations


def _present(context: CheckContext, what: str, citations: pl.DataFrame) -> Iterator[pl.DataFrame]:
    if what == _EDIT:
        # Edits are stored with their operations, by hour.
        hours = citations["period"].unique().to_list()
        for part in parts_of(context, OPERATION_ROWS, [*_SCOPE, "evidence_id"], hours, where=pc.field("is_edit")):
            yield part.select(*_SCOPE, source="evidence_id").unique()
    elif what in _PLACES:
        for part in parts_of(context, _PLACES[what], [*_SCOPE, "id"], citations["period"].unique().to_list()):
            yield part.select(*_SCOPE, source="id")


def _has_expired(context: CheckContext, citations: pl.DataFrame) -> pl.Series:
    expired = np.zeros(len(citations), np.bool_)
    for what, classes in _CLASSES.items():
        named = (citations["what"] == what) & (citations["period"] != "")
        expired |= (named & _expired(context, citations, classes)).to_numpy()
    return pl.Series(expired)


#: Retention classes by the prefix of ids. The kind of a missing fact is unknown, so all of its classes apply.
_CLASSES: dict[str, Collection[RetentionClass]] = {
    "message": [RetentionClass.CONVERSATIONS],
    "working": WORKING_CLASSES,
    _EDIT: [RetentionClass.GRAPH],
    **{grain.value: [RetentionClass(grain.value)] for grain in SUMMARY_ROWS},
}


def _expired(context: CheckContext, rows: pl.DataFrame, classes: Collection[RetentionClass]) -> pl.Series:
    """Return a mask of the rows in a period that has expired for one of the classes."""
    expired = np.zeros(len(rows), np.bool_)
    if context.marks and len(rows):
        columns = [*_SCOPE, "period"]
        named = rows.select(columns).to_arrow().cast(pa.schema([(column, pa.string()) for column in columns]))
        for retention_class in classes:
            expired |= context.marks.mask(named, retention_class)
    return pl.Series(expired, dtype=pl.Boolean)


#: An agent repeats itself if more than this share of an hour's facts, and at least this number, are duplicates. People
#: repeat greetings and thanks, but in 169 hours of real conversation (LoCoMo) at most 1 fact in 44 was a duplicate.
DUPLICATE_SHARE, FEWEST_DUPLICATES = 0.2, 3
#: The tolerated factor over the configured length of summaries. Models count characters badly.
LONGEST = 1.5
#: The tolerated share of a period's rows made by rules in place of a model. Models fail now and then and are retried.
FALLBACK_SHARE = 0.1


def _with_share(name: str, part: str, whole: str) -> Callable[[CheckContext, list[Offences]], Offences]:
    """Return a conclusion: the sum of all parts, with the share of one number in another as `name`."""

    def conclude(context: CheckContext, seen: list[Offences]) -> Offences:
        found = total(context, seen)
        parts, rows = found.numbers[part], found.numbers[whole]
        return replace(found, numbers={**found.numbers, name: parts / rows if rows else 0.0})

    return conclude


@check(
    "duplicate_share",
    FACT_ROWS.asset,
    "set ids on the agent's messages, so that repeated ones are stored once",
    severity=Severity.WARNING,
    description=f"At most {DUPLICATE_SHARE:.0%} of an agent's facts in an hour are duplicates.",
    place=FACT_ROWS,
    columns=(*_SCOPE, "period", "kind", "content"),
    conclude=_with_share("duplicate_share", "duplicates", "rows"),
)
def duplicate_facts(_: CheckContext, part: pl.DataFrame) -> Offences:
    """Find hours of scopes with too many duplicate facts. Turns and the facts found in them are counted separately."""
    distinct = pl.struct(pl.col("kind") == FactKind.TURN.value, "content").n_unique()
    hours = part.group_by(*_SCOPE, "period", maintain_order=True).agg(rows=pl.len(), surplus=pl.len() - distinct)
    surplus = pl.col("surplus")
    loops = hours.filter(surplus >= FEWEST_DUPLICATES, surplus > DUPLICATE_SHARE * pl.col("rows"))
    return Offences.of(scope_names(loops, "period"), {"rows": len(part), "duplicates": int(hours["surplus"].sum())})


def injected_text(place: Place, what: str = "row") -> Check:
    """Return the check for rows with text that memory itself injected into a prompt."""

    @check(
        "fed_back_recall",
        place.asset,
        f"find the writer or the model that repeats injected text; {RECOMPUTE}",
        blocks=True,
        description=f"No {what} contains text that memory itself injected into a prompt.",
        place=place,
        columns=("id", "content"),
    )
    def injected(_: CheckContext, part: pl.DataFrame) -> Offences:
        suspects = part.filter(pl.col("content").str.contains(f"(?i){RECALLED_NAME}"))
        ids = [row for row, content in suspects.select("id", "content").iter_rows() if is_recalled(content)]
        return Offences.of(ids, {"rows": len(part), "recalled": len(ids)})

    return injected


def empty_summaries(grain: Grain) -> Check:
    """Return the check for summaries without text or without points."""

    @check(
        "empty_summaries",
        SUMMARY_ROWS[grain].asset,
        f"correct the prompt or the model; {RECOMPUTE}",
        blocks=True,
        place=SUMMARY_ROWS[grain],
        columns=("id", "content", "key_points"),
    )
    def empty(_: CheckContext, part: pl.DataFrame) -> Offences:
        """Each summary has text and at least one point."""
        is_empty = (pl.col("content").str.strip_chars() == "") | (pl.col("key_points").list.len() == 0)
        ids = part.filter(is_empty)["id"].to_list()
        return Offences.of(ids, {"rows": len(part), "empty": len(ids)})

    return empty


def long_summaries(grain: Grain) -> Check:
    """Return the check for summaries that are much longer than configured."""

    def conclude(context: CheckContext, seen: list[Offences]) -> Offences:
        found = total(context, seen)
        rows, characters = found.numbers["rows"], found.numbers["characters"]
        longest = max(part.numbers["longest_characters"] for part in seen)
        mean = characters / rows if rows else 0.0
        return replace(found, numbers={"rows": rows, "longest_characters": longest, "mean_characters": mean})

    @check(
        "long_summaries",
        SUMMARY_ROWS[grain].asset,
        "change the `length` of the agent's summaries in config/workspaces.yaml, the model or the prompt",
        severity=Severity.WARNING,
        description=f"No summary is longer than {LONGEST} times the length configured for its agent.",
        place=SUMMARY_ROWS[grain],
        columns=(*_SCOPE, "id", "content"),
        conclude=conclude,
    )
    def long(context: CheckContext, part: pl.DataFrame) -> Offences:
        sized = part.select(*_SCOPE, "id", length=pl.col("content").str.len_chars())
        scopes = sized.select(_SCOPE).unique()
        lengths = [
            context.configuration.summarization(Scope(*key), grain).length or DEFAULT_BUDGETS[grain]
            for key in scopes.iter_rows()
        ]
        limits = scopes.with_columns(limit=pl.Series(lengths, dtype=pl.Int64))
        long = sized.join(limits, on=_SCOPE, maintain_order="left").filter(pl.col("length") > LONGEST * pl.col("limit"))
        longest, characters = sized.select(pl.max("length").fill_null(0).alias("longest"), pl.sum("length")).row(0)
        numbers = {"rows": len(part), "longest_characters": longest, "characters": characters}
        return Offences.of(long["id"], numbers)

    return long


def fallbacks(grain: Grain) -> Check:
    """Return the check for periods with too many rows made by rules in place of a model."""

    @check(
        "fallbacks",
        table_asset(grain),
        "run `memory-pipeline run` to send the requests again; `outcome` in model_calls has the reason",
        severity=Severity.WARNING,
        description=f"At most {FALLBACK_SHARE:.0%} of a period's rows were computed by rules because a model failed.",
        place=ROWS_OF_GRAIN[grain],
        columns=("period", "model", "fallback"),
        conclude=_with_share("fallback_share", "fallbacks", "asked"),
    )
    def fallen(_: CheckContext, part: pl.DataFrame) -> Offences:
        """Count only rows that were meant for a model."""
        asked = part.filter(pl.col("model").is_not_null() | pl.col("fallback").is_not_null())
        counts = asked.group_by("period", maintain_order=True).agg(fallen=pl.col("fallback").count(), asked=pl.len())
        too_often = counts.filter(pl.col("fallen") > FALLBACK_SHARE * pl.col("asked"))
        numbers = {"asked": len(asked), "fallbacks": int(counts["fallen"].sum())}
        return Offences.of((f"{period}, {rows} of {of}" for period, rows, of in too_often.iter_rows()), numbers)

    return fallen
