"""Checks of content: missing summaries, orphaned sources, duplicates, and empty or long summaries."""

from __future__ import annotations

from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.checks.check import (
    FACT_ROWS,
    MESSAGE_ROWS,
    OPERATION_ROWS,
    ROWS_OF_GRAIN,
    SUMMARY_ROWS,
    Offences,
    Scan,
    parts_of,
    scope_names,
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
    from collections.abc import Collection, Iterator, Sequence

    from memory_pipeline.checks.check import CheckContext, Place


_SCOPE = [*SCOPE_COLUMNS]
#: The suffix of a citation of a summary's point.
_POINT = r"#[0-9]+$"
_PLACES = {place.what: place for place in (MESSAGE_ROWS, FACT_ROWS, *SUMMARY_ROWS.values())}
_EDIT = "edit"
#: A closed period is computed within this time.
_MOMENT = timedelta(hours=1)


def missing_summaries(grain: Grain) -> Scan:
    """Find closed periods of scopes that have source rows but no summary, and are not expired.

    Waiting periods are counted separately. They wait for a model or its budget, for the schedule window of late data,
    or have just closed.
    """
    finer = grain.finer or Grain.WORKING

    def children(context: CheckContext) -> list[str] | None:
        keys = context.keys(grain)
        if keys is None:
            return None
        return [child.key for key in keys for child in context.lake.calendar.sources(Period(grain, key))]

    def see(_: CheckContext, part: pl.DataFrame) -> pl.DataFrame:
        return part.unique()

    def conclude(context: CheckContext, seen: list[pl.DataFrame]) -> Offences:
        due = _due(context, finer, seen)
        present = [part.select(due.columns) for part in parts_of(context, SUMMARY_ROWS[grain], due.columns, _keys(due))]
        missing = due.join(pl.concat([due.clear(), *present]), on=due.columns, how="anti", maintain_order="left")
        missing = missing.filter(~_expired(context, missing, [RetentionClass(grain.value)]))
        waiting_keys = _waiting(context, grain)
        waiting = missing.filter(pl.col("period").is_in(waiting_keys))
        missing = missing.filter(~pl.col("period").is_in(waiting_keys))
        numbers = {"due": len(due), "missing": len(missing), "waiting": len(waiting)}
        return Offences.of(scope_names(missing, "period"), numbers)

    return Scan(ROWS_OF_GRAIN[finer], (*_SCOPE, "period"), see, conclude, children)


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


def _due(context: CheckContext, finer: Grain, material: list[pl.DataFrame]) -> pl.DataFrame:
    calendar = context.lake.calendar
    sources = pl.concat([pl.DataFrame(schema=dict.fromkeys([*_SCOPE, "period"], pl.String)), *material])
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


def orphaned_sources(place: Place) -> Scan:
    """Find rows that cite a source that neither exists nor has expired. An offender is a row."""
    citing = _CITING_COLUMNS[place.spec.name]

    def see(context: CheckContext, part: pl.DataFrame) -> tuple[int, int, int, pl.Series]:
        citations = _citations(part, citing)
        unknown = _without_present(context, citations)
        expired = _has_expired(context, unknown)
        return (
            len(part),
            len(citations),
            int(expired.sum()),
            unknown.filter(~expired)["id"].unique(maintain_order=True),
        )

    def conclude(_: CheckContext, seen: list[tuple[int, int, int, pl.Series]]) -> Offences:
        orphans = [identifier for *_, ids in seen for identifier in ids]
        numbers = {
            "rows": sum(rows for rows, *_ in seen),
            "citations": sum(cited for _, cited, _, _ in seen),
            "expired_citations": sum(expired for _, _, expired, _ in seen),
            "orphans": len(orphans),
        }
        return Offences.of(orphans, numbers)

    return Scan(place, (*_SCOPE, "id", *citing), see, conclude)


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


def duplicate_facts() -> Scan:
    """Find hours of scopes with too many duplicate facts. Turns and the facts found in them are counted separately."""
    by_hour = [*_SCOPE, "period"]

    def see(_: CheckContext, part: pl.DataFrame) -> tuple[int, int, list[str]]:
        distinct = pl.struct(pl.col("kind") == FactKind.TURN.value, "content").n_unique()
        hours = part.group_by(by_hour, maintain_order=True).agg(rows=pl.len(), surplus=pl.len() - distinct)
        surplus = pl.col("surplus")
        loops = hours.filter(surplus >= FEWEST_DUPLICATES, surplus > DUPLICATE_SHARE * pl.col("rows"))
        return len(part), int(hours["surplus"].sum()), scope_names(loops, "period")

    def conclude(_: CheckContext, seen: list[tuple[int, int, list[str]]]) -> Offences:
        rows, surplus = sum(rows for rows, _, _ in seen), sum(surplus for _, surplus, _ in seen)
        numbers = {"rows": rows, "duplicates": surplus, "duplicate_share": surplus / rows if rows else 0.0}
        return Offences.of((name for _, _, names in seen for name in names), numbers)

    return Scan(FACT_ROWS, (*by_hour, "kind", "content"), see, conclude)


def injected_text(place: Place) -> Scan:
    """Find rows with text that memory itself injected into a prompt."""

    def see(_: CheckContext, part: pl.DataFrame) -> tuple[int, list[str]]:
        suspects = part.filter(pl.col("content").str.contains(f"(?i){RECALLED_NAME}"))
        return len(part), [row for row, content in suspects.select("id", "content").iter_rows() if is_recalled(content)]

    return Scan(place, ("id", "content"), see, partial(_listed, "recalled"))


def empty_summaries(grain: Grain) -> Scan:
    """Find summaries without text or without points."""

    def see(_: CheckContext, part: pl.DataFrame) -> tuple[int, list[str]]:
        is_empty = (pl.col("content").str.strip_chars() == "") | (pl.col("key_points").list.len() == 0)
        return len(part), part.filter(is_empty)["id"].to_list()

    return Scan(SUMMARY_ROWS[grain], ("id", "content", "key_points"), see, partial(_listed, "empty"))


def _listed(name: str, _: CheckContext, seen: list[tuple[int, list[str]]]) -> Offences:
    ids = [identifier for _, found in seen for identifier in found]
    return Offences.of(ids, {"rows": sum(rows for rows, _ in seen), name: len(ids)})


def long_summaries(grain: Grain) -> Scan:
    """Find summaries that are much longer than configured."""

    def see(context: CheckContext, part: pl.DataFrame) -> tuple[int, int, int, list[str]]:
        sized = part.select(*_SCOPE, "id", length=pl.col("content").str.len_chars())
        scopes = sized.select(_SCOPE).unique()
        lengths = [_length(context, grain, Scope(*key)) for key in scopes.iter_rows()]
        limits = scopes.with_columns(limit=pl.Series(lengths, dtype=pl.Int64))
        long = sized.join(limits, on=_SCOPE, maintain_order="left").filter(pl.col("length") > LONGEST * pl.col("limit"))
        longest, total = sized.select(pl.max("length").alias("longest"), pl.sum("length")).row(0)
        return len(part), longest, total, long["id"].to_list()

    def conclude(_: CheckContext, seen: list[tuple[int, int, int, list[str]]]) -> Offences:
        rows, total = sum(rows for rows, *_ in seen), sum(total for _, _, total, _ in seen)
        longest = max((longest for _, longest, _, _ in seen), default=0)
        numbers = {"rows": rows, "longest_characters": longest, "mean_characters": total / rows if rows else 0.0}
        return Offences.of((row for *_, ids in seen for row in ids), numbers)

    return Scan(SUMMARY_ROWS[grain], (*_SCOPE, "id", "content"), see, conclude)


def _length(context: CheckContext, grain: Grain, scope: Scope) -> int:
    return context.configuration.summarization(scope, grain).length or DEFAULT_BUDGETS[grain]


def fallbacks(grain: Grain) -> Scan:
    """Find periods with too many rows made by rules in place of a model. Only rows meant for a model count."""

    def see(_: CheckContext, part: pl.DataFrame) -> pl.DataFrame:
        asked = part.filter(pl.col("model").is_not_null() | pl.col("fallback").is_not_null())
        counts = asked.group_by("period", maintain_order=True)
        return counts.agg(fallen=pl.col("fallback").count(), asked=pl.len()).select("period", "fallen", "asked")

    def conclude(_: CheckContext, seen: list[pl.DataFrame]) -> Offences:
        fallen = sum(int(part["fallen"].sum()) for part in seen)
        asked = sum(int(part["asked"].sum()) for part in seen)
        too_often = (part.filter(pl.col("fallen") > FALLBACK_SHARE * pl.col("asked")) for part in seen)
        names = (
            f"{period}, {fallen_rows} of {total}"
            for part in too_often
            for period, fallen_rows, total in part.iter_rows()
        )
        return Offences.of(
            names, {"asked": asked, "fallbacks": fallen, "fallback_share": fallen / asked if asked else 0.0}
        )

    return Scan(ROWS_OF_GRAIN[grain], ("period", "model", "fallback"), see, conclude)
