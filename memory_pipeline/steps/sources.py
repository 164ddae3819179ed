"""What summaries are made from, which of them stand, and what becomes of those whose sources have expired.

A summary whose sources have expired cannot be made again: what it says is all that is left of them. It stays as it is,
until late data brings something new; then it is made from its own points and from that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.identity import digest, digest_of_all
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import Kept
from memory_pipeline.domain.summaries import Assignment, Material, Summarizer, Summary, summary_id
from memory_pipeline.errors import QualityError
from memory_pipeline.lake.codec.facts import rows_to_facts, rows_to_summaries
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import table_asset
from memory_pipeline.lake.tables.tombstones import Marks
from memory_pipeline.steps.digests import marks_of
from memory_pipeline.steps.group import by_period, by_scope
from memory_pipeline.steps.guard import are_sound
from memory_pipeline.steps.shares import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.summaries import KeyPoint
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.tables.ledger import Entry
    from memory_pipeline.steps.digests import Digests
    from memory_pipeline.steps.shares import Share


@dataclass(frozen=True, slots=True)
class Due:
    """One agent's period whose summary is missing, or no longer fits what it is made from.

    Attributes:
        assignment: what is to be summarized.
        source_ids: of all that the summary will rest on, sorted.
        source_digests: see :class:`~memory_pipeline.domain.summaries.Summary`.
        source_digest: likewise.
        old: the summary that is there.
        continues: whether `old`, whose sources have expired, is among the material.
    """

    assignment: Assignment
    source_ids: tuple[str, ...]
    source_digests: tuple[str, ...]
    source_digest: str
    old: Summary | None
    continues: bool = False


@dataclass
class Sources:
    """What periods are made from.

    Attributes:
        present: the rows of ``summaries`` that the periods hold now.
        inputs: of each period, by finer partition that it is made from: the digests of its rows, or, where rows of
            it have expired, its digest as it was made.
        kept: summaries that stand: same sources, same method, or sources that have expired.
        lasting: ids of those among them that can never be made better, since their sources have expired.
        unsound: ids of those in `present` that are wrong, and are made again whatever they were made from.
        due: those to be made.
    """

    present: pa.Table
    inputs: dict[Period, dict[Period, Digests | str]]
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
    share: Share = EVERYBODY,
) -> Sources:
    """Read what a share's `periods` are made from, and find out which summaries, in `present`, need not be made again.

    An agent whose sources and method are those of the summary that is there keeps it, unless it fell back on rules.
    Dagster's own mapping may ask for a month because of a week that another month owns; :meth:`Calendar.children`
    decides, and the month then finds its sources unchanged.
    """
    parents = {child: period for period in periods for child in lake.calendar.children(period)}
    # The ledger first: of what has expired it alone knows the digests, and rows read later are no older than it says.
    marks = Marks.of(lake.tables)
    expired = _with_expired_rows(lake, parents) if marks else {}
    rows = _read(lake, grain, [child.key for child in parents], share)
    if grain is Grain.DAILY:
        _refuse_orphans(lake, rows, marks, share)
    known: dict[Period, dict[Scope, Summary]] = {period: {} for period in periods}
    for summary in rows_to_summaries(present):
        known[summary.period][summary.scope] = summary

    sources = Sources(present, {period: {} for period in periods})
    sources.unsound |= set(present.filter(pa.array(~are_sound(present)))["id"].to_pylist())
    parts: dict[Period, list[pa.Table]] = {period: [] for period in periods}
    for child, part in by_period(rows, list(parents)).items():
        if part.num_rows:
            parts[parents[child]].append(part)
        if child.key in expired:
            sources.inputs[parents[child]][child] = expired[child.key].output_digest
        elif part.num_rows:
            sources.inputs[parents[child]][child] = marks_of(part)
    for period in periods:
        of_agents = by_scope(pa.concat_tables(parts[period])) if parts[period] else {}
        nothing = rows.slice(0, 0)
        for scope in {**of_agents, **known[period]}:
            _decide(sources, marks, summarizer, period, scope, of_agents.get(scope, nothing), known[period].get(scope))
    return sources


def _refuse_orphans(lake: Lake, facts: pa.Table, marks: Marks, share: Share) -> None:
    """Raise if facts rest on messages that are not there and have not expired: no day is made from them.

    Of hours whose messages cannot be read nobody can tell; their facts are all that is left.
    """
    hours = set(facts["period"].unique().to_pylist())
    said = lake.tables.read_sound(MESSAGES, hours, columns=["period", "id"], where=share.where)
    cited = pc.list_flatten(facts["message_ids"])
    is_known = pc.is_in(cited, said["id"].combine_chunks())
    if pc.all(is_known).as_py() in (True, None):
        return
    rows = pc.list_parent_indices(facts["message_ids"]).filter(pc.invert(is_known)).unique()
    damaged = hours & set(lake.tables.keys(MESSAGES)) - set(said["period"].unique().to_pylist())
    orphans = facts.take(rows)
    is_kept = marks.mask(orphans, Kept.CONVERSATIONS) | np.isin(orphans["period"].to_pylist(), sorted(damaged))
    orphans = orphans.filter(pa.array(~is_kept))
    if orphans.num_rows:
        wrong = sorted(orphans["period"].unique().to_pylist())
        raise QualityError(
            f"working {', '.join(wrong[:3])} fails orphaned_sources ({orphans.num_rows:,} rows, such as "
            f"{orphans['id'][0].as_py()}): facts rest on messages that are not there; make these hours again with "
            f"`memory-pipeline run --from {wrong[0][:10]} --to {wrong[-1][:10]}`"
        )


def _decide(
    sources: Sources,
    marks: Marks,
    summarizer: Summarizer,
    period: Period,
    scope: Scope,
    own: pa.Table,
    old: Summary | None,
) -> None:
    """Enter an agent's period among what stands or among what is to be made."""
    if period.key <= (marks.through(scope, Kept(period.grain)) or ""):
        # It has expired, and is not made again. What is there of it is about to be deleted.
        if old is not None:
            sources.kept.append(old)
        return
    source_digest = digest(summarizer.method(scope, period.grain), digest_of_all(own["digest"].to_pylist()))
    if own.num_rows and old is not None and _stands(sources, old, own, source_digest):
        sources.kept.append(old)
    elif old is not None and _has_lost(old, own, marks):
        due = _continuation(old, own, _reach(old, marks) or "")
        if due is None:
            sources.kept.append(old)
            sources.lasting.add(old.id)
        elif due.assignment.material:
            sources.due.append(due)
    elif own.num_rows:
        material, digests = _material(period, own)
        assignment = Assignment(scope, period, tuple(material))
        sources.due.append(Due(assignment, *_listed(period, digests), source_digest, old))


def _stands(sources: Sources, old: Summary, own: pa.Table, source_digest: str) -> bool:
    """Tell whether a summary is what would be made: of these sources, in this way, and resting on nothing else."""
    if old.source_digest != source_digest or old.fallback is not None or old.id in sources.unsound:
        return False
    return old.id == summary_id(old.scope, old.period) and set(own["id"].to_pylist()).issuperset(old.source_ids)


def _has_lost(old: Summary, own: pa.Table, marks: Marks) -> bool:
    """Tell whether something that a summary was made from is not there any more because it has expired."""
    through = _reach(old, marks)
    if through is None:
        return False
    there = set(own["id"].to_pylist())
    return any(_partition(source) <= through for source in old.source_ids if source not in there)


def _reach(old: Summary, marks: Marks) -> str | None:
    """Return the last period of what a summary is made from that has expired; None where nothing has."""
    finer = old.period.grain.finer
    assert finer is not None  # noqa: S101 - hours have no summaries
    reaches = [marks.through(old.scope, kept) for kept in Kept if kept.grain is finer]
    return max((reach for reach in reaches if reach), default=None)


def _continuation(old: Summary, own: pa.Table, through: str) -> Due | None:
    """Return what a summary with expired sources is to be made from; None if there is nothing that it does not know."""
    _, digests = _material(old.period, own)
    known = dict(zip(old.source_ids, old.source_digests or [None] * len(old.source_ids), strict=True))
    asserts = _asserted(own) if old.period.grain is Grain.DAILY else digests
    new = {
        source: its_digest
        for source, its_digest in digests.items()
        if source in asserts and (source not in known or known[source] not in (None, its_digest))
    }
    there = set(own["id"].to_pylist())
    gone = {source for source in known if source not in there and _partition(source) > through}  # forgotten, say
    if not new and not gone:
        return None
    rows = own.filter(pc.is_in(own["id"], pa.array(sorted(new), pa.string())))
    kept = [
        item
        for item, point in zip(old.material(), old.key_points, strict=True)
        if not all(_base(source) in new for source in point.source_ids)
        and not any(_base(source) in gone for source in point.source_ids)
    ]
    assignment = Assignment(old.scope, old.period, (*kept, *_material(old.period, rows)[0]))
    together = {**{source: known[source] or "" for source in known if source not in gone}, **new}
    source_digest = digest("continued", old.source_digest, digest_of_all([*new.values(), *gone]))
    return Due(assignment, *_listed(old.period, together), source_digest, old, continues=True)


def resolved(due: Due, points: Iterable[KeyPoint]) -> tuple[KeyPoint, ...]:
    """Return the points of a new summary: one that rests on a point of the summary before rests on what that did."""
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
    """Return what a summary is made from, and the rows that it comes from: their ids and digests."""
    if period.grain is not Grain.DAILY:
        summaries = rows_to_summaries(sources)
        digests = dict(zip(sources["id"].to_pylist(), sources["digest"].to_pylist(), strict=True))
        return [item for summary in summaries for item in summary.material()], digests
    facts = rows_to_facts(sources)
    # A day on which nothing was asserted is remembered by what was said.
    facts = [fact for fact in facts if fact.kind is not FactKind.TURN] or facts
    material = [
        Material(fact.id, fact.content, fact.event_at, fact.position, fact.importance, fact.entities) for fact in facts
    ]
    digests = dict(zip(sources["id"].to_pylist(), sources["digest"].to_pylist(), strict=True))
    return material, {fact.id: digests[fact.id] for fact in facts}


def _asserted(facts: pa.Table) -> Collection[str]:
    """Return the ids of facts that assert something: small talk does not reopen a day whose facts have expired."""
    ids: list[str] = facts.filter(pc.not_equal(facts["kind"], FactKind.TURN.value))["id"].to_pylist()
    return set(ids)


def _listed(period: Period, digests: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return ids, sorted, and their digests in that order: those of summaries; the ids of facts change with them."""
    ids = tuple(sorted(digests))
    return ids, () if period.grain is Grain.DAILY else tuple(digests[source] for source in ids)


def _with_expired_rows(lake: Lake, children: Iterable[Period]) -> dict[str, Entry]:
    """Return the ledger's entries of partitions of which rows have expired since they were made."""
    listed = list(children)
    entries = lake.ledger.entries(table_asset(listed[0].grain), listed) if listed else {}
    return {key: entry for key, entry in entries.items() if entry.expired and entry.rows}


def _base(source_id: str) -> str:
    return source_id.partition("#")[0]


def _partition(source_id: str) -> str:
    """Return the name of the partition that an id's row lies in; see :mod:`memory_pipeline.domain.identity`."""
    return source_id.partition(":")[2].rpartition(":")[0]


def _read(lake: Lake, grain: Grain, keys: list[str], share: Share) -> pa.Table:
    finer = grain.finer
    spec = FACTS if finer is Grain.WORKING else SUMMARIES
    columns = [name for name in spec.schema.names if name != "vector"]
    if finer is None or finer is Grain.WORKING:
        return lake.tables.read(FACTS, keys, columns=columns, where=share.where)
    return lake.tables.read(SUMMARIES, keys, columns=columns, where=share.where, grain=finer.value)
