"""Summarize periods: read the sources, keep current summaries, and recompute the others.

A summary with expired sources is kept until late data arrives. Then its points are summarized with the new data. If
the late data is of an expired period, this period is summarized from it alone, as a source of the coarser one, and
retention deletes it again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.identity import digest, digest_of_all
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.domain.summaries import (
    Assignment,
    Condensation,
    Material,
    Summarizer,
    Summary,
    material_of,
    summary_id,
)
from memory_pipeline.errors import QualityError
from memory_pipeline.lake.codec.facts import rows_to_facts, rows_to_summaries, summaries_to_rows
from memory_pipeline.lake.schemas import MESSAGES, SUMMARIES, table_of
from memory_pipeline.lake.tables.ledger import table_asset
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.current_summaries import are_current, by_parent, source_digest, without_unchanged
from memory_pipeline.steps.embed import stored_vectors, with_vectors
from memory_pipeline.steps.group import agents_in, by_period, by_scope
from memory_pipeline.steps.lost_rows import has_lost, lost_rows
from memory_pipeline.steps.results import (
    PartitionResult,
    RowDigests,
    digests_of,
    tokens_of,
    unfinished_rows,
)
from memory_pipeline.steps.validation import are_sound, validate_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.periods import Calendar, Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.summaries import KeyPoint
    from memory_pipeline.lake import Lake

#: The columns of sources that show which summaries are current.
_DECIDING = ("id", *SCOPE_COLUMNS, "period", "digest", "embed_model", "event_at", "message_ids")


@dataclass(frozen=True, slots=True)
class Due:
    """One agent's period whose summary is missing or stale.

    Attributes:
        source_ids, source_digests, source_digest: see :class:`~memory_pipeline.domain.summaries.Summary`.
        old: the existing summary.
        continues: whether `old`, with expired sources, is part of the material.
    """

    assignment: Assignment
    source_ids: tuple[str, ...]
    source_digests: tuple[str, ...]
    source_digest: str
    old: Summary | None
    continues: bool = False


@dataclass
class SummarySources:
    """The sources of periods, and which summaries are due.

    Attributes:
        inputs: by period: the digests of its finer partitions; of those with expired rows, as in the ledger.
        unchanged: rows of current summaries, as they are stored.
        kept: other summaries to keep, such as those with expired sources.
        lasting: ids of kept summaries with expired sources, which no model can improve.
        unsound: ids of existing summaries that are made again although their sources are unchanged: invalid ones, …
        due: summaries to compute.
    """

    inputs: dict[Period, RowDigests]
    unchanged: pa.Table = field(default_factory=SUMMARIES.schema.empty_table)
    kept: list[Summary] = field(default_factory=list)
    lasting: set[str] = field(default_factory=set)
    unsound: set[str] = field(default_factory=set)
    due: list[Due] = field(default_factory=list)


def read_sources(
    lake: Lake,
    summarizer: Summarizer,
    grain: Grain,
    periods: Sequence[Period],
    present: pa.Table,
    shard: int | None = None,
    *,
    is_fresh: bool = False,
) -> SummarySources:
    """Read the sources of `periods` and find the summaries in `present` that are still current.

    A summary is current if its sources and method are unchanged and it did not fall back on rules. With `is_fresh`,
    none is whose sources exist. Dagster may request a month because of a week that belongs to another month:
    :meth:`Calendar.sources` decides, so nothing changes.
    """
    parents: dict[Period, list[Period]] = {}
    for period in periods:
        for child in lake.calendar.sources(period):
            parents.setdefault(child, []).append(period)
    # Read the ledger first: only it has the digests of expired rows, and rows read later are no older.
    marks = ExpirationMarks.of(lake.tables)
    entries = lake.ledger.entries(table_asset(grain.finer or Grain.WORKING), parents) if marks else {}
    expired = {key: entry for key, entry in entries.items() if entry.expired and entry.rows}
    is_stale = np.ones(present.num_rows, np.bool_) if is_fresh else ~are_sound(present)
    may_be_current = ~(is_stale | marks.mask(present, RetentionClass(grain)))
    # Most summaries are current, which a few columns show. All columns are read of the sources of the others.
    columns = _DECIDING if may_be_current.any() else None
    rows = _read(lake, grain, [child.key for child in parents], shard, columns)
    if grain is Grain.DAILY:
        _refuse_orphans(lake, rows, marks, shard)
    late = _late(lake, periods, rows, marks, shard)

    sources = SummarySources({period: RowDigests() for period in periods})
    sources.unsound |= set(present.filter(pa.array(is_stale))["id"].to_pylist())
    for child, part in by_period(rows, list(parents)).items():
        for period in parents[child]:
            if child.key not in expired:
                sources.inputs[period] += digests_of(part)
            elif not shard:  # the entry is of all shards
                sources.inputs[period] += RowDigests.of(expired[child.key].output_digest)
    parts = by_parent(lake.calendar, rows, parents)
    if columns is not None:
        is_current = may_be_current & are_current(summarizer, present, parts)
        sources.unchanged, present = present.filter(pa.array(is_current)), present.filter(pa.array(~is_current))
        parts = without_unchanged(parts, sources.unchanged)
        waiting = {key for part in parts.values() for key in part["period"].unique().to_pylist()}
        scopes = pa.array(sorted({key for part in parts.values() for key in part["scope"].unique().to_pylist()}))
        rows = _read(lake, grain, sorted(waiting), shard, None, pc.field("scope").isin(scopes.cast(pa.string())))
        parts = without_unchanged(by_parent(lake.calendar, rows, parents), sources.unchanged)
    known: dict[Period, dict[Scope, Summary]] = {period: {} for period in periods}
    for summary in rows_to_summaries(present):
        known[summary.period][summary.scope] = summary
    for period in periods:
        of_agents = by_scope(parts[period]) if period in parts else {}
        nothing = rows.slice(0, 0)
        for scope in {**of_agents, **known[period]}:
            own, old = of_agents.get(scope, nothing), known[period].get(scope)
            _decide(sources, marks, summarizer, period, scope, own, old, late)
    return sources


def _late(lake: Lake, periods: Sequence[Period], rows: pa.Table, marks: ExpirationMarks, shard: int | None) -> set[str]:
    """Return the ids of the sources of expired periods that arrived after they had expired themselves."""
    grain = periods[0].grain
    if min(period.key for period in periods) > marks.latest([RetentionClass(grain)]):
        return set()
    if grain is Grain.DAILY:
        last = marks.latest([RetentionClass.CONVERSATIONS])
        keys = [key for key in rows["period"].unique().to_pylist() if key <= last]
        messages = lake.tables.read(MESSAGES, keys, columns=["id"], shard=shard, damaged="skip")["id"].to_pylist()
        is_late = marks.mask(rows, RetentionClass.CONVERSATIONS) & ~has_lost(rows, marks, set(messages))
    else:
        is_late = marks.mask(rows, RetentionClass(str(grain.finer)))
    return set(rows.filter(pa.array(is_late))["id"].to_pylist())


def _refuse_orphans(lake: Lake, facts: pa.Table, marks: ExpirationMarks, shard: int | None) -> None:
    """Raise if facts cite missing messages that have not expired. Unreadable messages are not missing."""
    hours = set(facts["period"].unique().to_pylist())
    messages = lake.tables.read(MESSAGES, hours, columns=["period", "id"], shard=shard, damaged="skip")
    cited = pc.list_flatten(facts["message_ids"])
    is_known = pc.is_in(cited, messages["id"].combine_chunks())
    if pc.all(is_known).as_py() in (True, None):
        return
    rows = pc.list_parent_indices(facts["message_ids"]).filter(pc.invert(is_known)).unique()
    damaged = hours & set(lake.tables.keys(MESSAGES)) - set(messages["period"].unique().to_pylist())
    orphans = facts.take(rows)
    is_excused = marks.mask(orphans, RetentionClass.CONVERSATIONS) | np.isin(
        orphans["period"].to_pylist(), sorted(damaged)
    )
    orphans = orphans.filter(pa.array(~is_excused))
    if orphans.num_rows:
        keys = sorted(orphans["period"].unique().to_pylist())
        raise QualityError(
            f"working {', '.join(keys[:3])} fails orphaned_sources ({orphans.num_rows:,} rows, such as "
            f"{orphans['id'][0].as_py()}): facts cite missing messages; recompute these hours with "
            f"`memory-pipeline run --from {keys[0][:10]} --to {keys[-1][:10]}`"
        )


def _decide(
    sources: SummarySources,
    marks: ExpirationMarks,
    summarizer: Summarizer,
    period: Period,
    scope: Scope,
    rows: pa.Table,
    old: Summary | None,
    late: Collection[str],
) -> None:
    if period.key <= (marks.through(scope, RetentionClass(period.grain)) or ""):
        # Retention deletes an expired summary. Late data is summarized for the coarser period only.
        rows = rows.filter(pc.is_in(rows["id"], pa.array(late, pa.string())))
        if old is not None and not rows.num_rows:
            sources.kept.append(old)
            return
    its_digest = source_digest(summarizer, scope, period, rows["digest"].to_pylist())
    if rows.num_rows and old is not None and _is_current(sources, old, rows, its_digest):
        sources.kept.append(old)
    elif old is not None and _has_expired_sources(old, rows, marks):
        due = _continuation(old, rows, _expired_through(old, marks) or "")
        if due is None:
            sources.kept.append(old)
            sources.lasting.add(old.id)
        elif due.assignment.material:
            sources.due.append(due)
    elif rows.num_rows:
        material, digests = _material(period, rows)
        assignment = Assignment(scope, period, tuple(material))
        sources.due.append(Due(assignment, *_sorted_sources(period, digests), its_digest, old))


def _is_current(sources: SummarySources, old: Summary, rows: pa.Table, its_digest: str) -> bool:
    if old.source_digest != its_digest or old.fallback is not None or old.id in sources.unsound:
        return False
    return old.id == summary_id(old.scope, old.period) and set(rows["id"].to_pylist()).issuperset(old.source_ids)


def _has_expired_sources(old: Summary, rows: pa.Table, marks: ExpirationMarks) -> bool:
    through = _expired_through(old, marks)
    if through is None:
        return False
    present = dict(zip(rows["id"].to_pylist(), rows["digest"].to_pylist(), strict=True))
    # A source may have expired and then been made again, from late data alone.
    return any(
        _partition(source) <= through and (source not in present or its_digest not in (None, present[source]))
        for source, its_digest in _known_sources(old).items()
    )


def _known_sources(old: Summary) -> dict[str, str | None]:
    """Return the digests of a summary's sources by id; None for facts, whose ids change with the content."""
    return dict(zip(old.source_ids, old.source_digests or [None] * len(old.source_ids), strict=True))


def _expired_through(old: Summary, marks: ExpirationMarks) -> str | None:
    finer = old.period.grain.finer
    assert finer is not None  # noqa: S101  # nosec B101  # hours have no summaries
    keys = [
        marks.through(old.scope, retention_class)
        for retention_class in RetentionClass
        if retention_class.grain is finer
    ]
    return max((key for key in keys if key), default=None)


def _continuation(old: Summary, sources: pa.Table, through: str) -> Due | None:
    """Combine a summary that has expired sources with new ones. Return None if nothing is new or forgotten."""
    _, digests = _material(old.period, sources)
    known = _known_sources(old)
    # Turns alone do not reopen a day with expired facts.
    is_daily = old.period.grain is Grain.DAILY
    asserted = {*sources.filter(pc.field("kind") != FactKind.TURN.value)["id"].to_pylist()} if is_daily else digests
    new = {
        source: its_digest
        for source, its_digest in digests.items()
        if source in asserted and (source not in known or known[source] not in (None, its_digest))
    }
    present = set(sources["id"].to_pylist())
    # Sources that are missing but have not expired: forgotten, for example.
    gone = {source for source in known if source not in present and _partition(source) > through}
    if not new and not gone:
        return None
    rows = sources.filter(pc.is_in(sources["id"], pa.array(sorted(new), pa.string())))
    # An expired source was made again from late data alone, so what the old summary has of it stays.
    replaced = {source for source in new if is_daily or _partition(source) > through}
    kept = [
        item
        for item, point in zip(old.material(), old.key_points, strict=True)
        if not all(_base(source) in replaced for source in point.source_ids)
        and not any(_base(source) in gone for source in point.source_ids)
    ]
    said = {item.text for item in kept}
    added = [item for item in _material(old.period, rows)[0] if _base(item.id) in replaced or item.text not in said]
    assignment = Assignment(old.scope, old.period, (*kept, *added))
    all_digests = {**{source: known[source] or "" for source in known if source not in gone}, **new}
    source_digest = digest("continued", old.source_digest, digest_of_all([*new.values(), *gone]))
    return Due(assignment, *_sorted_sources(old.period, all_digests), source_digest, old, continues=True)


def resolved(due: Due, points: Iterable[KeyPoint]) -> tuple[KeyPoint, ...]:
    """Return the points of a new summary. Replace citations of the old summary's points by the sources of these."""
    if due.old is None or not due.continues:
        return tuple(points)
    before = {f"{due.old.id}#{place}": point.source_ids for place, point in enumerate(due.old.key_points)}
    return tuple(
        replace(
            point,
            source_ids=tuple(
                dict.fromkeys(found for source in point.source_ids for found in before.get(source, (source,)))
            ),
        )
        for point in points
    )


def _material(period: Period, sources: pa.Table) -> tuple[list[Material], dict[str, str]]:
    """Return the material of a summary, and the digests of its sources by id."""
    digests = dict(zip(sources["id"].to_pylist(), sources["digest"].to_pylist(), strict=True))
    if period.grain is not Grain.DAILY:
        return [item for summary in rows_to_summaries(sources) for item in summary.material()], digests
    material = material_of(rows_to_facts(sources))
    return material, {item.id: digests[item.id] for item in material}


def _sorted_sources(period: Period, digests: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sorted source ids, and their digests in that order. Facts need none: their ids change with the content."""
    ids = tuple(sorted(digests))
    return ids, () if period.grain is Grain.DAILY else tuple(digests[source] for source in ids)


def _base(source_id: str) -> str:
    return source_id.partition("#")[0]


def _partition(source_id: str) -> str:
    """Return the partition that an id names; see :mod:`memory_pipeline.domain.identity`."""
    return source_id.partition(":")[2].rpartition(":")[0]


def _read(
    lake: Lake,
    grain: Grain,
    keys: list[str],
    shard: int | None,
    columns: Collection[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.Table:
    spec, fixed = table_of(grain.finer or Grain.WORKING)
    columns = [name for name in spec.schema.names if name != "vector"] if columns is None else columns
    return lake.tables.read(spec, keys, columns=columns, where=where, shard=shard, **fixed)


def summarize_periods(
    lake: Lake,
    summarizer: Summarizer,
    embedder: Embedder,
    grain: Grain,
    periods: list[Period],
    shard: int | None = None,
    *,
    is_fresh: bool = False,
) -> list[PartitionResult]:
    """Recompute the ``summaries`` partitions of `periods`, from the next finer table. Return one result per period."""
    results: list[PartitionResult] = []

    def summarized(old: pa.Table) -> pa.Table:
        nonlocal results
        # Read inside the attempt: after a concurrent commit of summaries the attempt starts over with newer sources.
        sources = read_sources(lake, summarizer, grain, periods, old, shard, is_fresh=is_fresh)
        condensed = summarizer.summarize([due.assignment for due in sources.due]) if sources.due else []
        refused: dict[Period, Counter[str]] = defaultdict(Counter)
        waiting: dict[Period, int] = defaultdict(int)
        for due, condensation in zip(sources.due, condensed, strict=True):
            refused[due.assignment.period] += Counter() if condensation is None else condensation.refused
            waiting[due.assignment.period] += _waits(due, condensation)
        made = summaries_to_rows([*sources.kept, *_summaries(lake.calendar, sources.due, condensed)])
        validate_rows(grain, pa.concat_tables([sources.unchanged, made]), old)
        has_vector = pc.fill_null(pc.equal(sources.unchanged["embed_model"], embedder.name), fill_value=False)
        made = pa.concat_tables([sources.unchanged.filter(pc.invert(has_vector)), made])
        before = old.filter(pc.is_in(old["content"], made["content"].combine_chunks()))
        made = with_vectors(made, stored_vectors(lake, grain, before, embedder), periods, embedder)
        rows = pa.concat_tables([sources.unchanged.filter(has_vector), made])
        results = [
            PartitionResult(
                asset=table_asset(grain),
                period=period,
                input_digest=sources.inputs[period].combined,
                output_digest=digests_of(part).combined,
                rows=part.num_rows,
                agents=agents_in(part),
                fallbacks=part.num_rows - part["fallback"].null_count,
                unfinished=unfinished_rows(part, sources.lasting) + waiting[period],
                refused=refused[period],
                tokens=tokens_of(part),
            )
            for period, part in by_period(rows, periods).items()
        ]
        return rows

    keys = [period.key for period in periods]
    # Summaries with expired sources may be the only copy.
    remade = set(keys) - lost_rows(lake, grain, keys).keys()
    changed = lake.tables.transform(SUMMARIES, keys, summarized, remade=remade, shard=shard, grain=grain.value)
    sizes = lake.tables.sizes(SUMMARIES, grain=grain.value)
    return [replace(part, changed=part.period.key in changed, bytes=sizes.get(part.period.key, 0)) for part in results]


def _summaries(
    calendar: Calendar, dues: Sequence[Due], condensations: Sequence[Condensation | None]
) -> Iterator[Summary]:
    code_version = version("memory-pipeline")
    for due, condensation in zip(dues, condensations, strict=True):
        if condensation is not None and not _waits(due, condensation):
            yield _summary(calendar, due, condensation, code_version)
        elif due.old is not None:
            yield due.old


def _waits(due: Due, condensation: Condensation | None) -> bool:
    """Return whether to postpone a summary: the budget is spent, or a fallback would replace a model's permanently."""
    if condensation is None:
        return True
    return due.continues and condensation.fallback is not None and due.old is not None and due.old.fallback is None


def _summary(calendar: Calendar, due: Due, condensation: Condensation, code_version: str) -> Summary:
    scope, period = due.assignment.scope, due.assignment.period
    start, end = calendar.midnights(period)
    points = resolved(due, condensation.points)
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
        tokens_in=condensation.tokens_in,
        tokens_out=condensation.tokens_out,
        summary_method=condensation.method,
        cost=condensation.cost,
        model=condensation.model,
        prompt_version=condensation.prompt_version,
        fallback=condensation.fallback,
        code_version=code_version,
    )
