"""Share the memory of an agent with other agents of its workspace, and take access back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from memory_pipeline.domain.access import AccessEvent, AccessLevel, AccessVerb, fold_access
from memory_pipeline.domain.scopes import label_of, user_identity
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

_TICK = timedelta(microseconds=1)


class AccessWriter:
    """Gives other agents access to the memory of one agent. A change is durable when the method returns.

    It takes effect at the next read, also in readers that are open. In all methods `now` is the time of the change, by
    default the current time, and later than the change before it.
    """

    _lake: Lake
    _scope: Scope
    _user_id: str | None

    def share_with_agent(
        self,
        agent: str | None = None,
        user_id: str | None = None,
        level: str = AccessLevel.READ,
        *,
        team: str | None = None,
        now: When | None = None,
    ) -> None:
        """Let another agent of the workspace, or a team of agents, use the agent's own memory.

        That covers no memory of a user: name each user whose memory is shared. The memory of a group cannot be shared.
        A second grant replaces the first one.

        Args:
            agent: the agent that gets access; or name a `team`.
            user_id: the user whose memory is shared, in place of the agent's own. A writer for a user accepts no other.
            level: ``read``, ``write`` or ``admin``; each includes those before it. So far an agent can only read from
                another one, with each level.
            team: a team that this agent keeps; see :meth:`add_to_team`. Its later members get access too.
            now: the time of the grant.

        Raises:
            InputError: an argument is invalid, or the writer is of a group. Nothing was written.
        """
        self._change(AccessVerb.GRANT, agent, team, self._shared(user_id), AccessLevel.parse(level), now)

    def revoke(
        self,
        agent: str | None = None,
        user_id: str | None = None,
        *,
        team: str | None = None,
        now: When | None = None,
    ) -> bool:
        """Take back what was given with the same agent or team, and the same user. Return whether it had access.

        An agent may still have access by a team. Of a grant and a revoke at the same time, the revoke counts.

        Raises:
            InputError: as for :meth:`share_with_agent`.
        """
        return self._change(AccessVerb.REVOKE, agent, team, self._shared(user_id), None, now)

    def add_to_team(self, team: str, agent: str, *, now: When | None = None) -> None:
        """Add an agent to a team: it gets the access that this agent gave to the team.

        Each agent keeps its own teams. A team of the same name that another agent keeps is another team.

        Raises:
            InputError: an id is invalid.
        """
        self._change(AccessVerb.JOIN, agent, team, self._scope.own, None, now)

    def remove_from_team(self, team: str, agent: str, *, now: When | None = None) -> bool:
        """Remove an agent from a team. Return whether it was a member.

        Raises:
            InputError: an id is invalid.
        """
        return self._change(AccessVerb.LEAVE, agent, team, self._scope.own, None, now)

    def grants(self, *, now: When | None = None) -> list[AccessEvent]:
        """Return the grants in force on this writer's memory, by agent and team; `now` selects those of a past time."""
        until = None if now is None else self._lake.calendar.moment("now", now)
        found = fold_access(self.access_history(), until).grants
        return sorted(found, key=lambda one: (one.to_team or "", one.to_agent or ""))

    def access_history(self) -> list[AccessEvent]:
        """Return all grants, revokes and changes of teams on this writer's memory, oldest first."""
        return sorted(self._lake.access.of(self._scope), key=lambda event: event.order)

    def _shared(self, user_id: str | None) -> Scope:
        if self._scope.is_group:
            raise InputError(f"the memory of {self._scope.identity} belongs to its members; it cannot be shared")
        if user_id is None:
            return self._scope.own
        if self._user_id not in {None, user_id}:
            raise InputError(f"this writer is for user {shown(self._user_id)}, not {shown(user_id)}; open another one")
        own = self._scope.own
        identity = user_identity(label_of("user_id", user_id))
        scope = self._lake.new_scope(own.workspace_id, own.agent_id, identity)
        if not scope.identity:
            raise InputError(f"users of agent {shown(own.agent_id)} share its own memory; leave out user_id")
        return scope

    def _change(
        self,
        verb: AccessVerb,
        agent: str | None,
        team: str | None,
        scope: Scope,
        level: AccessLevel | None,
        now: When | None,
    ) -> bool:
        """Write an event unless it changes nothing. Return whether access, or the membership, was in force before."""
        at = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
        event = AccessEvent(scope, verb, agent, team, level, at)
        before = [one for one in self._lake.access.of(scope) if one.decides == event.decides]
        last = max(before, key=lambda one: one.order, default=None)
        was_in_force = last is not None and last.verb in {AccessVerb.GRANT, AccessVerb.JOIN}
        if now is None:
            if (event.verb, event.level) == ((last.verb, last.level) if last else (AccessVerb.REVOKE, None)):
                return was_in_force
            if last is not None:  # the clock of the writer before may have been ahead
                event = replace(event, event_at=max(at, last.event_at + _TICK))
        self._lake.ensure()
        self._lake.access.add(event)
        return was_in_force
