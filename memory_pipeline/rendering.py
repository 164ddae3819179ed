"""Format results as lines for a terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.periods import Calendar, Period
    from memory_pipeline.domain.retention import Expiry
    from memory_pipeline.reader import Hit
    from memory_pipeline.steps.consolidation.days import ConsolidationStatus
    from memory_pipeline.steps.consolidation.report import ConsolidationReport, MemoryDiff
    from memory_pipeline.steps.housekeeping import Cleaned
    from memory_pipeline.steps.promotion import Promotion
    from memory_pipeline.steps.results import Expiration, ExpiredShare, RunResult
    from memory_pipeline.steps.scheduling.planner import GrainStatus, OlderFacts

_WIDTH = 118
#: Longest cell of a table.
_CELL = 60
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def to_json(value: object) -> str:
    """Return records as JSON: times in ISO 8601, periods by their keys."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, indent=2)
    # Quarantined records may contain lone surrogates; write them as JSON escapes.
    return text.encode(errors="backslashreplace").decode()


def _plain(value: object) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if type(value).__name__ == "Period":
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.repr}
    return str(value)


def plain(text: str) -> str:
    """Replace control characters, which could steer the terminal. Keep line breaks."""
    return "\n".join(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", line) for line in text.split("\n"))


def hit_lines(hits: Sequence[Hit], query: str | None = None, *, lines: int | None = 5, first: int = 1) -> Iterator[str]:
    """Yield each search result: its date and text, then its source, score and id.

    A summary is shortened to the `lines` that share most words with `query`. Results are numbered from `first`.
    """
    for number, hit in enumerate(hits, start=first):
        if hit.grain == "durable":
            yield f"{number:2}. [{hit.date}] {_cut(' '.join(hit.content.split()))}"
            source = f"durable memory of kind {hit.kind}"
        elif hit.grain == "session":
            yield f"{number:2}. [{hit.date}] {_cut(' '.join(hit.content.split()))}"
            source = f"memory of the tier {hit.kind}"
        elif hit.grain is Grain.WORKING:
            yield f"{number:2}. [{hit.date}] {_cut(' '.join(hit.content.split()))}"
            source = f"{hit.kind} of {hit.conversation_id}{f', {hit.later_note}' if hit.later else ''}"
        else:
            text = hit.content.splitlines()
            shown = _best(text, query, len(text) if lines is None else lines)
            yield f"{number:2}. [{hit.date}] {hit.grain} summary of {hit.period}, {len(shown)} of {len(text)} lines:"
            yield from (f"      {_cut(line)}" for line in shown)
            source = f"from {len(hit.source_ids)} {hit.grain.finer} {'summaries' if hit.grain.rank > 1 else 'facts'}"
        whose = plain(", ".join(getattr(hit, "users", ())) or hit.identity)
        source += f", memory of {whose}" if whose else ""
        source += f", said by {hit.said_by}" if hit.said_by else ""
        score = f", score {hit.score:.2f}" if query else ""
        yield f"    {source}{score}, id {hit.id}"
        if hit.parts is not None:
            parts = sorted(hit.parts.items(), key=lambda part: -abs(part[1]))
            yield "    " + ", ".join(f"{name} {value:+.2f}" for name, value in parts if round(value, 2))


def _best(text: list[str], query: str | None, count: int) -> list[str]:
    """Return the lines that share most words with the query, or the first lines, in document order."""
    from memory_pipeline.domain.text.ranking import terms  # few commands rank

    words = set(terms(query or ""))
    shared = [len(words & set(terms(line))) for line in text]
    places = [place for place in range(len(text)) if shared[place] or not any(shared)]
    best = sorted(places, key=lambda place: (-shared[place], place))[:count]
    return [text[place] for place in sorted(best)]


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield a table, one line per row. Long cells are cut."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, (name, *(row[at] for row in cells)))) for at, name in enumerate(columns)]
    for row in ([*columns], ["-" * width for width in widths], *cells):
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(_plain(value)))
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def run_line(done: RunResult, seconds: float) -> str:
    """Return the result of a run of one grain, with its model usage."""
    counts = f"{len(done.periods):>6,} periods processed, {done.changed:>6,} partitions changed"
    text = f"{done.grain:<13} {counts}  ({seconds:.1f} s)"
    if done.calls:
        tokens = done.tokens_in + done.tokens_out
        text += f", {counted(done.calls, 'model call')}, {counted(tokens, 'token')}, ${done.cost_usd:.4f}"
    if done.refused:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in done.refused.most_common())
        text += f", {counted(done.refused.total(), 'part')} of answers rejected ({reasons})"
    if done.expired:
        text += f", {counted(done.expired, 'message')} dropped: older than the retention"
    if done.fallbacks:
        text += f", {counted(done.fallbacks, 'row')} fell back to rules"
    if done.unfinished:
        text += f"; {done.unfinished:,} wait for a model, the next run retries"
    return text


def estimate_lines(expected: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of the expected calls, and their total."""
    if not expected:
        yield "no model calls expected"
        return
    yield "grain      purpose       workspace            scopes  calls    tokens in   tokens out         cost  model"
    for row in expected:
        cost = "unknown" if row["cost"] is None else f"${row['cost']:.4f}"
        yield (
            f"{row['grain']:<10} {row['purpose']:<13} {row['workspace_id']:<20} {row['scopes']:>6,} "
            f"{row['calls']:>6,} {row['tokens_in']:>12,} {row['tokens_out']:>12,} {cost:>12}  {row['model']}"
        )
    calls, dollars = sum(row["calls"] for row in expected), sum(row["cost"] or 0.0 for row in expected)
    unpriced = sum(row["unpriced"] for row in expected)
    unknown = f", and {counted(unpriced, 'call')} of unknown price" if unpriced else ""
    yield f"{counted(calls, 'call')}, about ${dollars:.4f}{unknown}"


def expiration_lines(done: Expiration, *, dry_run: bool) -> Iterator[str]:
    """Yield the expired rows of each workspace and retention class, what is held back, and the total."""
    expired = [each for each in done.expired if each.rows]
    if expired:
        yield "workspace             memory          kept until   through             rows   periods   agents"
    for each in expired:
        expiry = each.expiry
        yield (
            f"{expiry.workspace_id:<20}  {expiry.kept:<14}  {expiry.cutoff:%Y-%m-%d}   {expiry.through.key:<14} "
            f"{each.rows:>9,} {each.partitions:>9,} {each.agents:>8,}"
        )
    yield from held_back_lines(each.expiry for each in done.expired)
    if not expired:
        yield "nothing has expired"
    elif dry_run:
        moved = f", {done.archived:,} of them archived" if done.archived else ""
        yield f"{counted(done.rows, 'row')} would be deleted{moved}"
    else:
        if done.archived:
            yield f"{counted(done.archived, 'row')} archived"
        rows, files, size = (
            counted(done.rows - done.archived, "row"),
            counted(done.files, "file"),
            counted(done.bytes, "byte"),
        )
        yield f"{rows}, {files}, {size} deleted ({done.seconds:.1f} s)"


def held_back_lines(plan: Iterable[Expiry]) -> Iterator[str]:
    """Yield what is old enough to expire, but is held back."""
    for held in {each.held_back_by: each for each in plan if each.held_back_by}.values():
        yield (
            f"{held.kept} memory from {held.held_back_by} on is held back: it or its parent is pending "
            "(see `memory-pipeline status`, then `memory-pipeline run`)"
        )


def share_lines(shares: Sequence[ExpiredShare]) -> Iterator[str]:
    """Yield the rows and bytes that would expire of each table and workspace, and the total."""
    if shares:
        yield "workspace             table               grain           rows           bytes"
    for each in shares:
        yield f"{each.workspace_id:<20}  {each.table:<18}  {each.grain:<9} {each.rows:>10,} {each.bytes:>15,}"
    rows = sum(each.rows for each in shares if each.table != "index")
    total = f"{counted(rows, 'row')}, about {counted(sum(each.bytes for each in shares), 'byte')}"
    yield f"{total} would be deleted" if shares else "nothing would expire"


def housekeeping_lines(cleaned: Cleaned, *, dry_run: bool) -> Iterator[str]:
    """Yield the deleted files of each kind that has any, and the number of compacted index tables."""
    deleted = "would be deleted" if dry_run else "deleted"
    for group, kinds in (
        ("old versions", cleaned.old_versions),
        ("left by killed processes", cleaned.left_behind),
    ):
        for kind, each in kinds.items():
            if each.files:
                size = f", {counted(each.bytes, 'byte')}" if each.bytes else ""
                yield f"{group}: {kind}: {counted(each.files, 'file')}{size} {deleted}"
    if cleaned.compacted:
        yield f"{counted(cleaned.compacted, 'index table')} compacted, {counted(cleaned.bytes_written, 'byte')} written"


def promotion_lines(done: Promotion) -> list[str]:
    """Return the result of the promotion of short-term entries, and why some were refused."""
    head = f"promotion     {done.promoted:>6,} short-term entries became memories"
    refused = f"; {counted(done.refused, 'entry')} cannot, and stay in the database" if done.refused else ""
    return [head + refused, *(plain(f"  {reason}") for reason in done.reasons)]


def consolidation_line(done: ConsolidationReport) -> str:
    """Return the result of consolidation, in the format of :func:`run_line`."""
    changed = sum(night.changed for night in done.nights)
    counts = f"{len(done.nights):>6,} days processed, {changed:>9,} memories changed"
    text = f"consolidation {counts}  ({done.seconds:.1f} s)"
    calls = sum(night.usage.calls for night in done.nights)
    if calls:
        cost = sum(night.usage.cost or 0.0 for night in done.nights)
        text += f", {counted(calls, 'model call')}, ${cost:.4f}"
    troubles = sum(len(night.troubles) for night in done.nights)
    if troubles:
        text += f"; {troubles:,} passes failed, the next run retries"
    return text


def consolidation_lines(done: ConsolidationReport, *, dry_run: bool) -> Iterator[str]:
    """Yield the changes of each agent and day with their reasons, the failed passes, and the total."""
    changes = sorted(done.changes, key=lambda each: (each.scope.workspace_id, each.scope.agent_id, each.night.key))
    before = None
    for each in changes:
        if before is None or each.scope != before.scope:
            yield plain(f"{each.scope.workspace_id} / {each.scope.agent_id}")
        if before is None or (each.scope, each.night) != (before.scope, before.night):
            yield f"  {each.night}"
        yield f"    {_change(each)}"
        reason = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", " ".join(each.reason.split()))
        yield from textwrap.wrap(reason, _WIDTH, initial_indent=" " * 18, subsequent_indent=" " * 18)
        before = each
    for night in done.nights:
        for trouble in night.troubles:
            yield f"{night.night} FAILED, the next run retries: {_cut(trouble)}"
    review = done.nights[-1].review if done.nights else []
    if review:
        yield f"stale memories that need a review: {len(review):,}"
        yield from (f"  {_cut(line)}" for line in review[:10])
        if len(review) > 10:
            yield f"  … and {len(review) - 10:,} more; --json lists all"
    counts: dict[str, int] = {}
    for each in changes:
        name = "withdrawn" if each.is_withdrawn else _VERBS[each.verb][1]
        counts[name] = counts.get(name, 0) + 1
    total = ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "no changes"
    days, agents = counted(len(done.nights), "day"), counted(done.agents, "agent")
    if not done.nights:
        yield "no day is pending"
    else:
        yield f"{days}, {agents}: {total}{'; nothing was written' if dry_run else f' ({done.seconds:.1f} s)'}"


def unloaded_lines(hours: Collection[Period], calendar: Calendar, now: datetime) -> Iterator[str]:
    """Yield a warning if the journal has files of `hours`, and when their day can be consolidated."""
    if not hours:
        return
    count = f"{len(hours):,} hour{' has' if len(hours) == 1 else 's have'}"
    yield f"{count} messages or changes that are not loaded yet: run `memory-pipeline run` first"
    ends = min(calendar.bounds(calendar.ancestor(hour, Grain.DAILY))[1] for hour in hours)
    if ends > now:
        yield f"their day can be consolidated from {ends:%Y-%m-%d %H:%M} UTC on"


#: Words for each verb of consolidation: for one memory, and in the total.
_VERBS = {
    "PROMOTE": ("promote", "promoted to facts"),
    "MERGE": ("merge", "merged"),
    "SUPERSEDE": ("supersede", "superseded"),
    "COOL": ("cool", "cooled"),
    "KEEP": ("keep", "reviewed and kept"),
    "ARCHIVE": ("archive", "archived"),
    "HEAT": ("add to hot", "added to the hot index"),
    "CHILL": ("drop from hot", "dropped from the hot index"),
}


def _change(change: MemoryDiff) -> str:
    word = _VERBS[change.verb][0]
    title = _quoted(change.title)
    if change.verb == "MERGE":
        title = f"{_quoted(change.other_title)} into {title}"
    elif change.verb == "SUPERSEDE":
        title = f"{title} by {_quoted(change.other_title)}"
    undone = "undone: " if change.is_withdrawn else ""
    return f"{word:<13} {undone}{title}"


def _quoted(title: str | None) -> str:
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", " ".join((title or "a deleted memory").split()))
    return f"“{text if len(text) <= _CELL else f'{text[: _CELL - 1]}…'}”"


#: What memory can and cannot make by rules alone.
WITHOUT_A_MODEL = (
    "no model is configured: messages are found, and summaries hold what users said, in any language; the graph and "
    "durable memories are made from English only"
)


def status_lines(
    statuses: Sequence[GrainStatus],
    quarantined: Sequence[str],
    nights: ConsolidationStatus | None = None,
    older: OlderFacts | None = None,
) -> Iterator[str]:
    """Yield a table of each grain's periods, then the problems."""
    yield "grain          periods      rows  first          last            pending  missing  open"
    for status in statuses:
        first, last = (str(status.made[0]), str(status.made[-1])) if status.made else ("-", "-")
        yield (
            f"{status.grain:<13} {len(status.made):>8,} {status.rows:>9,}  {first:<14} {last:<14} "
            f"{len(status.pending):>8,} {len(status.missing):>8,} {len(status.open):>5,}"
        )
    if nights is not None:
        first, last = (str(nights.made[0]), str(nights.made[-1])) if nights.made else ("-", "-")
        yield (
            f"consolidation {len(nights.made):>8,} {nights.events:>9,}  {first:<14} {last:<14} "
            f"{len(nights.pending):>8,} {len(nights.missing):>8,} {0:>5,}"
        )
    if any(status.pending for status in statuses) or (nights is not None and nights.pending):
        yield "pending: run `memory-pipeline run`"
    if nights is not None and nights.troubled:
        yield (
            f"a pass of consolidation failed on {counted(len(nights.troubled), 'day')}, "
            f"the last one {nights.troubled[-1]}: retry with `memory-pipeline consolidate`, which prints the reason"
        )
    if older is not None:
        yield (
            f"made by older rules, and valid: {'' if older.is_all else 'at least '}{counted(older.facts, 'fact')}; "
            f"make them anew with "
            f"`memory-pipeline run --from {older.first} --to {older.last}`"
        )
    for status in statuses:
        if status.expired:
            span = f"{status.expired[0]} to {status.expired[-1]}"
            yield f"expired: {counted(len(status.expired), f'{status.grain} period')}, {span}"
    unfinished, refused = sum(len(one.unfinished) for one in statuses), sum(one.refused for one in statuses)
    lines = {
        f"waiting for a model that failed, or for a budget: {counted(unfinished, 'period')}": unfinished,
        f"rejected: {counted(refused, 'part')} of model answers that the messages do not support": refused,
    }
    yield from (line for line, number in lines.items() if number)
    if redacted := sum(one.redacted for one in statuses):
        yield f"secrets were removed from {counted(redacted, 'message')}: see the column redactions of messages"
    for status in statuses:
        if status.early:
            yield (
                f"{counted(len(status.early), 'hour')} with messages before the first day of the memory, from "
                f"{status.early[0]}; set MEMORY_PIPELINE_START to an earlier 1 January that is a Monday, or unset it"
            )
    if quarantined:
        yield f"records in journal/quarantine: {len(quarantined):,}"
        reasons = {reason: quarantined.count(reason) for reason in quarantined}
        yield from (f"  {count} × {_cut(reason)}" for reason, count in list(reasons.items())[:10])
        if len(reasons) > 10:
            yield f"  … and {len(reasons) - 10} more reasons; --json lists all"


def _cut(text: str) -> str:
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
