"""Checks of durable memories and of their daily consolidation."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, timedelta
from typing import TYPE_CHECKING

import polars as pl

from memory_pipeline.checks.check import DECIDED, DURABLE, SAMPLE, Offences, Scan, agent_names
from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.consolidation import RIVALS
from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.domain.memories.hot_index import HotEntry
from memory_pipeline.domain.memories.record import MAX_HOOK, MemoryKind, Status, Temperature, match_key, shortened
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import FIRST_YEAR, Grain, Period
from memory_pipeline.lake.codec.memories import events_digest
from memory_pipeline.lake.schemas import MEMORIES, MEMORY_EVENTS, UPKEEP, UPKEEP_EVENTS
from memory_pipeline.steps.consolidation.days import pending_nights

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from memory_pipeline.checks.check import CheckContext

#: Agents whose events are read at a time.
_AT_ONCE = 500
#: Consolidation of a day finishes within this time of the day's end. Later it is behind.
LONGEST_WAIT = timedelta(days=1)
_AGENT = ("workspace_id", "agent_id")


def is_current(context: CheckContext) -> Offences:
    """Find agents with memories that are not in sync with the agents' events. An offender is an agent."""
    tables = context.lake.tables
    owners = {key for spec in (MEMORY_EVENTS, UPKEEP_EVENTS, MEMORIES) for key in tables.keys(spec)}
    # Check stale agents twice: the first read may have been between the two commits of a run.
    stale = _stale(context, _stale(context, owners))
    numbers = {"agents": len(owners), "stale": len(stale)}
    return Offences.of((owner.replace("~", "/") for owner in sorted(stale)), numbers)


def _stale(context: CheckContext, owners: Collection[str]) -> list[str]:
    listed, tables = sorted(owners), context.lake.tables
    found = []
    for start in range(0, len(listed), _AT_ONCE):
        some = listed[start : start + _AT_ONCE]
        ids: defaultdict[str, list[str]] = defaultdict(list)
        remembering = set()
        for spec in (MEMORY_EVENTS, UPKEEP_EVENTS):
            rows = tables.read(spec, some, columns=["owner", "id", "verb"])
            for owner, identifier, verb in zip(
                *(rows[name].to_pylist() for name in ("owner", "id", "verb")), strict=True
            ):
                ids[owner].append(identifier)
                if verb == MemoryVerb.REMEMBER.value:
                    remembering.add(owner)
        rows = tables.read(MEMORIES, some, columns=["owner", "source_digest"])
        folded: defaultdict[str, set[str]] = defaultdict(set)
        for owner, digest in zip(rows["owner"].to_pylist(), rows["source_digest"].to_pylist(), strict=True):
            folded[owner].add(digest)
        for owner in some:
            # Without a `remember` event there is no memory, and so no row with a digest.
            expected = {events_digest(ids[owner])} if owner in remembering else set()
            if folded[owner] != expected:
                found.append(owner)
    return found


def says_the_same() -> Scan:
    """Find duplicate active memories of one kind that consolidation has already processed."""

    def see(context: CheckContext, part: pl.DataFrame) -> tuple[int, list[str]]:
        known: dict[tuple[str, ...], tuple[str, str]] = {}
        names = []
        standing = _standing(context, part)
        for owner, identifier, kind, content, user_id, key, target in standing.select(
            "owner", "memory_id", "kind", "content", "user_id", "key", "object"
        ).iter_rows():
            said = (owner, kind, user_id or "", key or "", match_key(MemoryKind(kind), content))
            own = name_key(target or "")
            other, others = known.setdefault(said, (identifier, own))
            # Equal text with different objects states two different things.
            if other != identifier and (own == others or "" in (own, others)):
                names.append(identifier)
        return len(standing), names

    columns = ("memory_id", "content", "subject", "predicate", "object", "user_id", "key", *_STANDING)
    return Scan(DURABLE, columns, see, _concluded)


def contradicts() -> Scan:
    """Find active memories that contradict another one, although consolidation has already processed both."""

    def see(context: CheckContext, part: pl.DataFrame) -> tuple[int, list[str]]:
        stated = _standing(context, part).filter(
            pl.col("kind").is_in([kind.value for kind in RIVALS]),
            pl.all_horizontal(pl.col("subject", "predicate", "object").is_not_null()),
        )
        known: dict[tuple[object, ...], str] = {}
        names = []
        for owner, workspace_id, agent_id, identifier, subject, predicate, target, kind, is_moment in stated.select(
            "owner", *_AGENT, "memory_id", "subject", "predicate", "object", "kind", "is_point_in_time"
        ).iter_rows():
            if context.configuration.vocabulary(Scope(workspace_id, agent_id)).holds_one(predicate):
                own = name_key(target)
                of_what = (owner, name_key(subject), predicate, RIVALS[MemoryKind(kind)], is_moment)
                if known.setdefault(of_what, own) != own:
                    names.append(identifier)
        return len(stated), names

    columns = ("memory_id", "subject", "predicate", "object", "is_point_in_time", *_STANDING)
    return Scan(DURABLE, columns, see, _concluded)


#: The columns that say whether a memory is active and consolidated.
_STANDING = ("owner", *_AGENT, "kind", "is_newest", "status", "temperature", "changed_at")


def _standing(context: CheckContext, part: pl.DataFrame) -> pl.DataFrame:
    """Return active, recallable memories that have not changed since the agent's last successful consolidation."""
    kept = pl.DataFrame(
        list(_kept_until(context).items()), schema={"owner": pl.String, "until": pl.Datetime("us", "UTC")}, orient="row"
    )
    recalled = part.filter(
        pl.col("is_newest"),
        pl.col("status") == Status.ACTIVE.value,
        pl.col("temperature") != Temperature.COLD.value,
    )
    kept_since = recalled.join(kept, on="owner", maintain_order="left")
    return kept_since.filter(pl.col("changed_at") < pl.col("until"))


def _kept_until(context: CheckContext) -> dict[str, datetime]:
    """Return the end of the last consolidated day by owner. Agents with a failed last day are missing."""
    rows = context.lake.tables.read(UPKEEP, columns=["id", "through", "troubles"])
    calendar = context.lake.calendar
    return {
        owner: calendar.bounds(Period(Grain.DAILY, through))[1]
        for owner, through, troubles in zip(
            *(rows[name].to_pylist() for name in ("id", "through", "troubles")), strict=True
        )
        if not troubles
    }


def _concluded(_: CheckContext, seen: list[tuple[int, list[str]]]) -> Offences:
    names = [name for _, own in seen for name in own]
    return Offences.of(names, {"memories": sum(rows for rows, _ in seen)})


def fits_caps() -> Scan:
    """Find agents with too many entries or tokens in the hot index, or with inactive entries.

    An offender is an agent.
    """

    def see(context: CheckContext, part: pl.DataFrame) -> tuple[int, int, list[str]]:
        hot = part.filter(pl.col("is_newest"), pl.col("temperature") == Temperature.HOT.value)
        names, most = [], 0
        for (workspace_id, agent_id), own in hot.group_by(_AGENT, maintain_order=True):
            settings = context.configuration.memories(Scope(str(workspace_id), str(agent_id))).upkeep_settings
            tokens = sum(_tokens(*line) for line in own.select("kind", "title", "hook").iter_rows())
            most = max(most, tokens)
            lost = own.filter(pl.col("status") != Status.ACTIVE.value)
            if len(own) > settings.hot_entries or tokens > settings.hot_tokens or len(lost):
                names.append(f"{workspace_id}/{agent_id}, {len(own)} entries, {tokens} tokens, {len(lost)} not active")
        return len(hot), most, names

    def conclude(_: CheckContext, seen: list[tuple[int, int, list[str]]]) -> Offences:
        numbers = {
            "entries": sum(rows for rows, *_ in seen),
            "most_tokens": max((most for _, most, _ in seen), default=0),
        }
        return Offences.of((name for *_, own in seen for name in own), numbers)

    return Scan(DURABLE, (*_AGENT, "is_newest", "temperature", "status", "kind", "title", "hook"), see, conclude)


def _tokens(kind: str, title: str, hook: str) -> int:
    line = HotEntry("", MemoryKind(kind), " ".join(title.split()), shortened(hook, MAX_HOOK), 0)
    return count_tokens(f"{line}\n")


def explains() -> Scan:
    """Find consolidation events without a reason."""

    def see(_: CheckContext, part: pl.DataFrame) -> tuple[int, list[str]]:
        return len(part), part.filter(pl.col("reason").fill_null("").str.strip_chars() == "")["id"].to_list()

    return Scan(DECIDED, ("id", "reason"), see, _concluded)


def is_behind(context: CheckContext) -> Offences:
    """Find days that ended more than a day ago and are not consolidated. An offender is a day."""
    nights = pending_nights(context.lake, date(FIRST_YEAR, 1, 1), context.now - LONGEST_WAIT)
    return Offences(len(nights), tuple(night.key for night in nights[:SAMPLE]), {"nights": len(nights)})


def has_troubles(context: CheckContext) -> Offences:
    """Find agents with a failed pass in the last consolidated day."""
    rows = pl.DataFrame(pl.from_arrow(context.lake.tables.read(UPKEEP, columns=[*_AGENT, "through", "troubles"])))
    troubled = rows.filter(pl.col("troubles").list.len() > 0).sort(_AGENT)
    return Offences.of(agent_names(troubled, "through"), {"agents": len(rows), "troubled": len(troubled)})
