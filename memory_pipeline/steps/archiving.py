"""Move expired rows to the archive, and restore them.

Rows are in the archive before they are dropped from the tables, and in the tables before they leave the archive. A
killed process leaves some in both: the same command then finishes, and no row is twice in either.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import LakeError, counted
from memory_pipeline.lake.archived_rows import PLACES, RestoredRows, states_of
from memory_pipeline.lake.codec.facts import rows_to_summaries, summaries_to_rows
from memory_pipeline.lake.erasures import unfinished_erasures
from memory_pipeline.lake.index.index_rows import COMPUTED
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset
from memory_pipeline.steps.group import by_period, by_scope, scopes_in
from memory_pipeline.steps.index import index_periods
from memory_pipeline.steps.results import digests_of
from memory_pipeline.steps.retention_classes import class_of, classes_in
from memory_pipeline.steps.scopes import enter_scopes, known_scopes, recompute_scopes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from datetime import datetime

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.summaries import Summary
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.archived_rows import ArchivedFile


@dataclass(slots=True)
class Restoration:
    """What was restored, or would be.

    Attributes:
        rows: numbers of rows by place: ``messages``, ``facts`` or the grain of summaries.
        periods: numbers of periods, by place.
        stays_until: the time until which retention leaves them in the tables.
    """

    stays_until: datetime
    rows: dict[str, int] = field(default_factory=dict)
    periods: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether there was anything."""
        return bool(self.rows)

    def lines(self) -> Iterator[str]:
        """Yield it as lines for people."""
        for place, rows in self.rows.items():
            what = counted(rows, place[:-1]) if PLACES[place] is not SUMMARIES else counted(rows, f"{place} summary")
            yield f"{what} of {counted(self.periods[place], 'period')}"
        if self.rows:
            yield f"kept until {self.stays_until:%Y-%m-%d %H:%M} UTC"


def archive_rows(lake: Lake, parts: Iterable[tuple[str, str, pa.Table]]) -> dict[str, pa.Array]:
    """Add rows, given with their place and period, to the archive. Return by place the states of the archived rows.

    Raises:
        LakeError: an erasure is not finished. Nothing is added.
    """
    before = _erased(lake)
    written: list[str] = []
    states: dict[str, list[pa.Array]] = defaultdict(list)
    for place, period, rows in parts:
        for scope, own in by_scope(rows).items():
            path = lake.archived.add(scope, place, period, own)
            written += [path] if path else []
        states[place].append(states_of(rows))
    if lake.tombstones.state() != before:  # the erasure may have searched before these files were there
        lake.archived.delete(written)
        raise LakeError("an erasure runs at the same time; expire again when it is complete")
    return {place: pa.concat_arrays(found) for place, found in states.items()}


def _erased(lake: Lake) -> object:
    """Return the state of the tombstones, if no erasure is unfinished."""
    state = lake.tombstones.state()
    if unfinished_erasures(lake.storage, lake.tombstones):
        raise LakeError("an erasure is not finished; finish it with `memory-pipeline run`, then try again")
    return state


def restore_rows(
    lake: Lake,
    scopes: Collection[Scope],
    since: datetime | None,
    until: datetime | None,
    stays: datetime,
    *,
    dry_run: bool = False,
) -> Restoration:
    """Move the archived rows of scopes, of periods that overlap a span of time, back to the tables.

    They have the same ids and vectors, and no model is asked. A summary that was made again from late data meanwhile
    gets the lines of both. Facts of messages that were corrected meanwhile are left out. Safe to repeat and to
    interrupt. `stays` is the time up to which retention leaves the rows.

    Raises:
        LakeError: an erasure is not finished.
        DamagedError: a file cannot be read.
    """
    before = _erased(lake)
    done = Restoration(stays)
    for scope in sorted(scopes, key=str):
        files = [file for file in lake.archived.files(scope) if _is_within(lake, file, since, until)]
        rows = {place: _rows_of(lake, place, [file for file in files if file.place == place]) for place in PLACES}
        rows = {place: own for place, own in rows.items() if own.num_rows}
        for place, own in rows.items():
            done.rows[place] = done.rows.get(place, 0) + own.num_rows
            done.periods[place] = done.periods.get(place, 0) + len(own["period"].unique())
        if not dry_run and files:
            lake.archived.note_restored(scope, RestoredRows(scope.key, stays, _periods(rows)))
            added = {place: _put(lake, place, own) for place, own in rows.items()}
            if lake.tombstones.state() != before:
                for place, ids in added.items():
                    _take_back(lake, place, ids)
                raise LakeError("an erasure runs at the same time; restore again when it is complete")
            _follow(lake, scope, rows)
            lake.archived.delete(file.path for file in files)
    return done


def archived_scopes(lake: Lake, agent: Scope) -> set[Scope]:
    """Return the scopes of an agent with archived rows."""
    own = {file.scope: file for file in lake.archived.files(agent=agent)}
    found = map(lake.archived.read, own.values())
    return {scope for rows in found if rows is not None for scope in scopes_in(rows)}


def _is_within(lake: Lake, file: ArchivedFile, since: datetime | None, until: datetime | None) -> bool:
    grain = Grain(file.place) if file.spec is SUMMARIES else Grain.WORKING
    start, end = lake.calendar.bounds(Period.parse(grain, file.period))
    return (until is None or start < until) and (since is None or end > since)


def _rows_of(lake: Lake, place: str, files: Collection[ArchivedFile]) -> pa.Table:
    """Return the rows of files of one scope, each in its last state. Summaries have the lines of all states."""
    spec = PLACES[place]
    parts = [rows for rows in map(lake.archived.read, files) if rows is not None]
    if not parts:
        return spec.schema.empty_table()
    rows = pa.concat_tables(parts)
    if spec is FACTS:
        rows = _without_corrected(lake, rows)
    ids = rows["id"].to_pylist()
    if len(set(ids)) == len(ids):
        return rows
    if spec is SUMMARIES:
        joined: dict[str, Summary] = {}
        for summary in rows_to_summaries(rows):
            joined[summary.id] = _joined(lake, joined[summary.id], summary) if summary.id in joined else summary
        return summary_rows(joined.values(), rows)
    last = {identifier: number for number, identifier in enumerate(ids)}
    return rows.take(pa.array(sorted(last.values())))


def _without_corrected(lake: Lake, facts: pa.Table) -> pa.Table:
    """Return facts without those of corrected messages, which were made again after these had expired."""
    corrected = {each for one in lake.corrections.among(lake.journal.entries()) for each in one.message_ids}
    is_current = [corrected.isdisjoint(listed) for listed in facts["message_ids"].to_pylist()]
    return facts.filter(pa.array(is_current, pa.bool_()))


def _joined(lake: Lake, old: Summary, late: Summary) -> Summary:
    """Return a summary with the lines of another one of the same period, which was made of late data."""
    said = {point.sentence for point in old.key_points}
    added = [point for point in late.key_points if point.sentence not in said]
    if not added:
        return old
    points = tuple(sorted((*old.key_points, *added), key=lambda point: point.event_at))
    digests = {**_sources(late), **_sources(old)}
    sources = tuple(sorted(digests))
    return replace(
        old,
        content="\n".join(f"{lake.calendar.day_of(point.event_at)} {point.sentence}" for point in points),
        key_points=points,
        entities=tuple(sorted({entity for point in points for entity in point.entities})),
        importance=max(point.importance for point in points),
        source_ids=sources,
        source_digests=tuple(digests[source] for source in sources) if old.source_digests else (),
    )


def summary_rows(summaries: Collection[Summary], old: pa.Table) -> pa.Table:
    """Return summaries as rows that replace rows of their scope with other lines.

    They have no vectors, except by an embedder that stores none: a run makes the others.
    """
    rows = summaries_to_rows(list(summaries))
    computed = [name for name in old["embed_model"].unique().to_pylist() if (name or "").startswith(COMPUTED)]
    if not computed or not rows.num_rows:
        return rows
    vectors = old.filter(pc.equal(old["embed_model"], computed[0])).slice(0, 1).take(pa.array([0] * rows.num_rows))
    for name in ("vector", "embed_model"):
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), vectors[name])
    return rows


def _sources(summary: Summary) -> dict[str, str]:
    return dict(zip(summary.source_ids, summary.source_digests or [""] * len(summary.source_ids), strict=True))


def _periods(rows: dict[str, pa.Table]) -> dict[str, dict[str, tuple[str, ...]]]:
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for place, own in rows.items():
        kept = class_of(classes_in(place), own)
        found[place] = {
            name: tuple(sorted(set(own.filter(pc.equal(kept, name))["period"].to_pylist())))
            for name in kept.unique().to_pylist()
        }
    return found


def _put(lake: Lake, place: str, rows: pa.Table) -> set[str]:
    """Add the rows that the table lacks, and return their ids. Summaries that it has get the lines of both."""
    added: set[str] = set()

    def merged(old: pa.Table) -> pa.Table:
        is_there = pc.is_in(rows["id"], old["id"].combine_chunks())
        new = rows.filter(pc.invert(is_there))
        changed: list[Summary] = []
        if PLACES[place] is SUMMARIES:
            archived = {one.id: one for one in rows_to_summaries(rows.filter(is_there))}
            late = rows_to_summaries(old.filter(pc.is_in(old["id"], pa.array(list(archived), pa.string()))))
            joined = [_joined(lake, archived[one.id], one) for one in late if one.digest != archived[one.id].digest]
            # One that has no further lines is the archived row itself, with its vector.
            same = [one.id for one in joined if one.digest == archived[one.id].digest]
            new = pa.concat_tables([new, rows.filter(pc.is_in(rows["id"], pa.array(same, pa.string())))])
            changed = [one for one in joined if one.id not in same]
            old = old.filter(pc.invert(pc.is_in(old["id"], pa.array([one.id for one in joined], pa.string()))))
        added.clear()
        added.update(new["id"].to_pylist(), (one.id for one in changed))
        return pa.concat_tables([old, new, *([summary_rows(changed, rows)] if changed else [])])

    lake.tables.transform(PLACES[place], set(rows["period"].to_pylist()), merged, shard=None, **_fixed(place))
    return added


def _take_back(lake: Lake, place: str, ids: Collection[str]) -> None:
    known = pa.array(sorted(ids), pa.string())
    lake.tables.drop_rows(PLACES[place], None, lambda rows: pc.is_in(rows["id"], known), ["id"], **_fixed(place))
    lake.tables.purge(PLACES[place])


def _follow(lake: Lake, scope: Scope, rows: dict[str, pa.Table]) -> None:
    """Bring index, ledger and scopes level with restored rows."""
    counts: dict[tuple[str, str], tuple[int, str | None]] = {}
    for place, own in rows.items():
        spec, grain = PLACES[place], Grain(place) if PLACES[place] is SUMMARIES else Grain.WORKING
        periods = [Period(grain, key) for key in sorted(set(own["period"].to_pylist()))]
        if spec is not MESSAGES:
            index_periods(lake, grain, periods)
        columns = ["id", "period", *(["digest", "embed_model"] if spec is not MESSAGES else [])]
        stored = lake.tables.read(
            spec, [period.key for period in periods], columns=columns, shard=None, **_fixed(place)
        )
        for period, part in by_period(stored, periods).items():
            asset = MESSAGES_ASSET if spec is MESSAGES else table_asset(grain)
            digest = None if spec is MESSAGES else digests_of(part).combined
            counts[asset, period.key] = part.num_rows, digest
    lake.ledger.note_restored(counts)
    if MESSAGES.name in rows:
        enter_scopes(lake, [Period(Grain.WORKING, key) for key in set(rows[MESSAGES.name]["period"].to_pylist())])
    if scope not in known_scopes(lake, scope.workspace_id):  # expiry has dropped it
        recompute_scopes(lake, [scope])


def _fixed(place: str) -> dict[str, str]:
    return {"grain": place} if PLACES[place] is SUMMARIES else {}
