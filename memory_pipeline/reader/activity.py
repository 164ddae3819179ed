"""The scopes of agents with their first and last activity: loaded records, and those pending in the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.lake.codec.codec import scope_of
from memory_pipeline.lake.index.filters import quoted
from memory_pipeline.lake.journal import folder_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import JournalFile


class Activity(NamedTuple):
    """A scope, and the times of its first and last message, edit or event; the hour of one that is pending."""

    scope: Scope
    first_at: datetime
    last_at: datetime


def activities(lake: Lake, agent: Scope | None = None) -> list[Activity]:
    """Return the scopes of one agent, given its own, or of all agents, sorted by their ids."""
    times: dict[Scope, tuple[datetime, datetime]] = {}
    where = None
    if agent is not None:
        where = f"workspace_id = {quoted(agent.workspace_id)} AND agent_id = {quoted(agent.agent_id)}"
    for row in lake.scopes.scan((*SCOPE_COLUMNS, "first_at", "last_at"), where).to_pylist():
        times[scope_of(*map(row.get, SCOPE_COLUMNS))] = row["first_at"], row["last_at"]
    for scope, file in pending_files(lake, agent):
        hours = [lake.calendar.bounds(hour)[0] for hour in file.hours]
        known = times.get(scope, (hours[0], hours[-1]))
        times[scope] = min(known[0], hours[0]), max(known[1], hours[-1])
    return [Activity(scope, *times[scope]) for scope in sorted(times, key=lambda scope: scope.ids)]


def pending_files(lake: Lake, agent: Scope | None = None) -> Iterator[tuple[Scope, JournalFile]]:
    """Yield the pending files of one agent, given its own scope, or of all agents, with their scopes."""
    prefix = "" if agent is None else folder_of(agent).removesuffix(agent.key)
    for file in lake.journal.pending():
        if file.folder.startswith(prefix):
            scope = lake.journal.scope_of(file)
            if scope is not None and agent in {None, scope.own}:
                yield scope, file


def users_of(lake: Lake, scope: Scope) -> tuple[str, ...]:
    """Return the user of a scope, or the members of a group, sorted; none of the agent's own memory."""
    if scope.is_group:
        return lake.members.users_of(scope)
    return () if scope.user_id is None else (scope.user_id,)
