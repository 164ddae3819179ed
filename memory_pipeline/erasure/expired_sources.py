"""Cut erased data out of summaries. Those with expired sources are records: they cannot be made again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.erasure.erasure_log import sentences_of
from memory_pipeline.erasure.removal import drop
from memory_pipeline.erasure.scanner import cites
from memory_pipeline.lake.codec.facts import rows_to_summaries, summaries_to_rows
from memory_pipeline.lake.schema_types import Holds
from memory_pipeline.lake.schemas import SUMMARIES
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.archiving import summary_rows
from memory_pipeline.steps.replay import with_ancestors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.summaries import KeyPoint, Summary
    from memory_pipeline.erasure.erasure_log import ErasureLog
    from memory_pipeline.erasure.scanner import SubjectScanner
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.archived_rows import ArchivedFile

_DAILY = RetentionClass.DAILY
#: Columns of summaries that are derived from their points.
_OF_POINTS = ("content", "entities")
_WITHOUT_VECTORS = [name for name in SUMMARIES.schema.names if name != "vector"]


def scrub_summaries(
    lake: Lake, scanner: SubjectScanner, facts: Collection[str], days: Collection[str], log: ErasureLog
) -> dict[Grain, set[str]]:
    """Remove from summaries the points that name a person or cite forgotten facts. Return the changed periods by grain.

    Summaries with existing sources are made again later. If the sources have expired, scrubbing is all that is
    possible, and the receipt has a remark on the rest. Points after the cutoff remain. `days` are the days of the
    facts; for a person or an agent, all summaries are searched. A day that has expired and was made again from late
    data is no source of coarser summaries that can be told apart: these lose the sentences that it loses.
    """
    scrubbed: dict[Grain, set[str]] = {}
    lost, archived = _scrub_archived(lake, scanner, facts, log)
    marks = ExpirationMarks.of(lake.tables)
    is_conversation = scanner.subject.kind is SubjectKind.CONVERSATION
    periods = with_ancestors(lake.calendar, (), {Grain.DAILY: days})
    for grain in SUMMARY_GRAINS:
        if is_conversation and grain is not Grain.DAILY and not lost:
            break
        changed: dict[str, Summary | None] = {}
        keys = periods[grain] if is_conversation else None
        for rows in scanner.parts(SUMMARIES, _WITHOUT_VECTORS, keys=keys, grain=grain.value):
            matches = scanner.said(rows, SUMMARIES)
            if grain is Grain.DAILY and facts:
                matches |= cites(rows["source_ids"], facts)
            if lost:
                said = [{(each.scope, point.sentence) for point in each.key_points} for each in rows_to_summaries(rows)]
                matches |= np.array([not lost.isdisjoint(each) for each in said], np.bool_)
            candidates = rows.filter(pa.array(matches))
            for summary in rows_to_summaries(candidates):
                left = changed[summary.id] = _scrubbed(lake.calendar, scanner, summary, facts, lost)
                if grain is Grain.DAILY and summary.period.key <= (marks.through(summary.scope, _DAILY) or ""):
                    gone = {*summary.key_points} - {*(left.key_points if left else ())}
                    lost |= {(summary.scope, point.sentence) for point in gone}
                scrubbed.setdefault(grain, set()).add(summary.period.key)
                log.scopes.add(summary.scope)
            log.note((), candidates["content"].to_pylist())
            log.note((), sentences_of(candidates["key_points"]).to_pylist())
        if changed:
            new = summaries_to_rows([summary for summary in changed.values() if summary is not None])
            log.scrubbed |= {*new["content"].to_pylist(), *sentences_of(new["key_points"]).to_pylist()}

            keys = scrubbed[grain]
            if new.num_rows:
                ids = pa.array(sorted(changed), pa.string())

                def without(old: pa.Table, ids: pa.Array = ids, new: pa.Table = new) -> pa.Table:
                    present = new.filter(pc.is_in(new["id"], old["id"].combine_chunks()))
                    return pa.concat_tables([old.filter(pc.invert(pc.is_in(old["id"], ids))), present])

                lake.tables.transform(SUMMARIES, keys, without, grain=grain.value)
            else:  # such as those of an agent: the rows of others are not decoded
                drop(lake, SUMMARIES, [*keys], "id", changed.keys(), grain=grain.value)
            log.take(SUMMARIES.name, f"{grain} summaries that lost points", len(changed))
    for file, scope, left in archived:  # last, so that an interrupted run finds again what these have lost
        lake.archived.replace(file, scope, left)
    return scrubbed


def _scrub_archived(
    lake: Lake, scanner: SubjectScanner, facts: Collection[str], log: ErasureLog
) -> tuple[set[tuple[Scope, str]], list[tuple[ArchivedFile, Scope, pa.Table]]]:
    """Remove the points from archived summaries, as from others. Return the sentences that they lose, and the new rows.

    A coarser summary may have such a sentence from them, and it is not made again from days that have expired.
    """
    lost: set[tuple[Scope, str]] = set()
    replaced: list[tuple[ArchivedFile, Scope, pa.Table]] = []
    files = sorted(scanner.archived(SUMMARIES), key=lambda found: Grain(found[0].place).rank)
    counts: Counter[str] = Counter()
    for file, scope, rows in files:
        old = rows_to_summaries(rows)
        new = {one.id: _scrubbed(lake.calendar, scanner, one, facts, lost) for one in old}
        changed = [one for one in old if (left := new[one.id]) is None or left.key_points != one.key_points]
        if not changed:
            continue
        for one in changed:
            left = new[one.id]
            lost |= {(scope, point.sentence) for point in {*one.key_points} - {*(left.key_points if left else ())}}
            log.note((), [one.content, *(point.sentence for point in one.key_points)])
        ids = pa.array([one.id for one in changed], pa.string())
        made = summary_rows([left for one in changed if (left := new[one.id]) is not None], rows)
        log.scrubbed |= {*made["content"].to_pylist(), *sentences_of(made["key_points"]).to_pylist()}
        log.scopes.add(scope)
        counts[file.period] += len(changed)
        kept = rows.filter(pc.invert(pc.is_in(rows["id"], ids)))
        replaced.append((file, scope, pa.concat_tables([kept, made])))
    log.take("archive", "summaries that lost points", counts)
    return lost, replaced


def _scrubbed(
    calendar: Calendar,
    scanner: SubjectScanner,
    summary: Summary,
    facts: Collection[str],
    lost: Collection[tuple[Scope, str]],
) -> Summary | None:
    """Return a summary without the forgotten points; None if no point is left, or another column names the person."""
    is_own = scanner.subject.owns(summary.scope)

    def remains(point: KeyPoint) -> bool:
        if (summary.scope, point.sentence) in lost or any(source in facts for source in point.source_ids):
            return False
        return point.event_at > scanner.at or not (is_own or scanner.mentions([point.sentence, *point.entities]))

    points = tuple(point for point in summary.key_points if remains(point))
    others = (name for name in SUMMARIES.holding(Holds.WORDS) if name not in _OF_POINTS)
    whole = summaries_to_rows([summary])
    if not points or any(scanner.mentioned(whole[name]).any() for name in others):
        return None
    places = [place for place, source in enumerate(summary.source_ids) if source not in facts]
    return replace(
        summary,
        content="\n".join(f"{calendar.day_of(point.event_at)} {point.sentence}" for point in points),
        key_points=points,
        entities=tuple(sorted({entity for point in points for entity in point.entities})),
        importance=max(point.importance for point in points),
        source_ids=tuple(summary.source_ids[place] for place in places),
        source_digests=tuple(summary.source_digests[place] for place in places if summary.source_digests),
    )


def remark_expired(lake: Lake, scanner: SubjectScanner, log: ErasureLog) -> None:
    """Add remarks on data that cannot be attributed, because its sources have expired."""
    subject = scanner.subject
    is_person = subject.kind is SubjectKind.PERSON
    latest: dict[RetentionClass, str] = {}
    for scope, retention_class, through in ExpirationMarks.of(lake.tables):
        if scanner.matcher.is_within_reach((scope.workspace_id, scope.agent_id)):
            latest[RetentionClass(retention_class)] = max(through, latest.get(RetentionClass(retention_class), through))
    for retention_class, through in latest.items():
        if retention_class is RetentionClass.CONVERSATIONS:
            clue = "the names in them" if is_person else "the id of the conversation"
            log.remark(
                f"messages up to {through} have expired: facts and durable memories of that time could only be found "
                f"by {clue}"
            )
        elif retention_class.grain is Grain.WORKING and not is_person:
            log.remark(
                f"{retention_class} up to {through} have expired: in summaries of that time, this conversation cannot "
                "be told apart from others"
            )


def note_summaries(
    scanner: SubjectScanner, touched: Mapping[Grain, Collection[str]] | None, log: ErasureLog
) -> dict[Grain, set[str]]:
    """Add the summaries of periods, or of all, to the log. Return the keys of the periods with summaries, by grain."""
    periods: dict[Grain, set[str]] = {grain: set() for grain in SUMMARY_GRAINS}
    for grain in SUMMARY_GRAINS:
        listed = None if touched is None else set(touched.get(grain, ()))
        columns = ["id", "period", "content", "key_points", "workspace_id", "agent_id"]
        for rows in scanner.parts(SUMMARIES, columns, keys=listed, grain=grain.value):
            periods[grain] |= set(rows["period"].to_pylist())
            log.note(rows["id"].to_pylist(), rows["content"].to_pylist())
            log.note((), sentences_of(rows["key_points"]).to_pylist())
    return periods
