"""Share the memory of an agent with other agents of its workspace, and change what another one shares."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.access import (
    EVERYONE,
    POOL,
    AccessEvent,
    AccessLevel,
    AccessVerb,
    decide,
    denial,
    fold_access,
)
from memory_pipeline.domain.authority import OTHER_AGENT
from memory_pipeline.domain.memories.events import AGENT, MemoryVerb
from memory_pipeline.domain.memories.record import SourceType
from memory_pipeline.domain.scopes import Scope, label_of, user_identity
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.access_log import ids_in
from memory_pipeline.lake.event_clock import placed_after
from memory_pipeline.memories.writer import MemoryEventWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from memory_pipeline.domain.periods import When
    from memory_pipeline.lake import Lake


class Shareable(NamedTuple):
    """The memory of an agent, or of its user, that may be shared; and the agent that shares it, if it is another."""

    lake: Lake
    scope: Scope
    user_id: str | None
    by: Scope | None = None


class AccessWriter:
    """Gives other agents access to the memory of one agent. A change is durable when the method returns.

    It takes effect at the next read or write, also in programs that are running. In all methods `now` is the time of
    the change, not in the future; by default the current time. A change follows those that its writer sees, whatever
    their clocks said.
    """

    @property
    @abstractmethod
    def _shareable(self) -> Shareable:
        """The memory that is shared."""

    def grant(
        self,
        agent: str | None = None,
        user_id: str | None = None,
        level: AccessLevel | str = AccessLevel.READ,
        *,
        team: str | None = None,
        context: str | None = None,
        now: When | None = None,
    ) -> None:
        """Let another agent of the workspace, or a team of agents, use the agent's own memory, or one context of it.

        That covers no memory of a user: name each user whose memory is shared. The memory of a group cannot be shared.
        A second grant replaces the first one; that of a context is apart from that of the whole memory.

        Args:
            agent: the agent that gets access; ``*`` lets all agents of the workspace read. Or name a `team`.
            user_id: the user whose memory is shared, in place of the agent's own. A writer for a user accepts no other,
                and shares the contexts of this user without it.
            level: ``read``; ``write``, to change durable memories too; or ``admin``, to share it with others too.
            team: a team that this agent keeps; see :meth:`add_to_team`. Its later members get access too.
            context: the context that is shared, in place of the whole memory. Those with a grant of it are its members:
                ``grants(context=…)`` lists them. ``pool:`` and a name shares a private pool.
            now: the time of the grant.

        Raises:
            InputError: an argument is invalid, the writer is of a group, or there is no such context. Nothing was
                written.
        """
        scope, rank = self._shared(user_id, context), AccessLevel.parse(level)
        self._change(AccessVerb.GRANT, agent, team, scope, rank, now, context)

    if not TYPE_CHECKING:  # the old name: accepted, and not listed
        share_with_agent = grant

    def revoke(
        self,
        agent: str | None = None,
        user_id: str | None = None,
        *,
        team: str | None = None,
        context: str | None = None,
        now: When | None = None,
    ) -> bool:
        """Take back what was given with the same agent or team, user and context. Return whether it had access.

        What it granted by the level ``admin`` ends too. An agent may still have access by a team. The grants of
        contexts and that of the whole memory are apart: each is revoked by itself, and :meth:`grants` lists those that
        are left. Of a grant and a revoke at the same time that do not know of each other, the revoke counts.

        Raises:
            InputError: as for :meth:`grant`.
        """
        return self._change(AccessVerb.REVOKE, agent, team, self._shared(user_id, context), None, now, context)

    def accessible_by(
        self,
        agent: str,
        level: AccessLevel | str = AccessLevel.READ,
        *,
        user_id: str | None = None,
        context: str | None = None,
    ) -> bool:
        """Return whether an agent of the workspace may use this memory, or one context of it, at a level.

        Args:
            agent: the agent; ``*`` is any agent of the workspace.
            level: ``read``, ``write`` or ``admin``.
            user_id: the user whose memory it is; see :meth:`grant`.
            context: the context; see :meth:`grant`.

        Raises:
            InputError: an argument is invalid.
        """
        lake, _, _, by = self._shareable
        scope = self._shared(user_id, context)
        if by is not None and by.agent_id != agent:
            require_grant(lake, by, AccessLevel.ADMIN, scope, scope.user_id, "accessible_by", context)
        asking = Scope(scope.workspace_id, agent)
        return decide(asking, AccessLevel.parse(level), scope, lake.access.state(scope), context).is_allowed

    def add_to_team(self, team: str, agent: str, *, now: When | None = None) -> None:
        """Add an agent to a team: it gets the access that this agent gave to the team.

        Each agent keeps its own teams. A team of the same name that another agent keeps is another team.

        Raises:
            InputError: an id is invalid.
        """
        self._change(AccessVerb.JOIN, agent, team, self._shareable.scope.own, None, now)

    def remove_from_team(self, team: str, agent: str, *, now: When | None = None) -> bool:
        """Remove an agent from a team. Return whether it was a member.

        Raises:
            InputError: an id is invalid.
        """
        return self._change(AccessVerb.LEAVE, agent, team, self._shareable.scope.own, None, now)

    def grants(self, *, context: str | None = None, now: When | None = None) -> list[AccessEvent]:
        """Return the grants in force on this memory and its contexts, by context, team and agent.

        `context` selects those of one context: its members. `now` selects those of a past time.
        """
        lake, scope, _, _ = self._shareable
        until = None if now is None else lake.calendar.moment("now", now)
        shown = set(self.access_history(context=context))
        found = shown & fold_access(lake.access.deciding(scope), until).grants
        return sorted(found, key=lambda one: (one.context or "", one.to_team or "", one.to_agent or ""))

    def access_history(self, *, context: str | None = None) -> list[AccessEvent]:
        """Return all grants, revokes and changes of teams on this memory, oldest first; or those of a `context`."""
        lake, scope, user_id, by = self._shareable
        grant = require_grant(lake, by, AccessLevel.ADMIN, scope, user_id, "access_history", context)
        events = [event for event in lake.access.of(scope) if context in {None, event.context}]
        if by is not None and grant is not None:
            note_use(lake, by, scope, "access_history", grant, (), len(events))
        return sorted(events, key=lambda event: event.order)

    def _share_context(self, context: str, team: str | None, now: When | None) -> None:
        self.grant(EVERYONE if team is None else None, team=team, context=context, now=now)

    def _shared(self, user_id: str | None, context: str | None) -> Scope:
        lake, scope, own_user, by = self._shareable
        own = scope.own
        if scope.is_group:
            raise InputError(f"the memory of {scope.identity} belongs to its members; it cannot be shared")
        if user_id is None:
            return own if context is None else scope
        if own_user not in {None, user_id}:
            raise InputError(f"this writer is for user {shown(own_user)}, not {shown(user_id)}; open another one")
        if by is not None:
            return _scope_of(lake, by, AccessLevel.ADMIN, own, user_id, context)
        identity = user_identity(label_of("user_id", user_id))
        found = lake.new_scope(own.workspace_id, own.agent_id, identity)
        if not found.identity:
            raise InputError(f"users of agent {shown(own.agent_id)} share its own memory; leave out user_id")
        return found

    def _change(
        self,
        verb: AccessVerb,
        agent: str | None,
        team: str | None,
        scope: Scope,
        level: AccessLevel | None,
        now: When | None,
        context: str | None = None,
    ) -> bool:
        """Write an event unless it changes nothing. Return whether access, or the membership, was in force before."""
        lake, _, _, by = self._shareable
        if by is not None and verb.is_of_team:
            raise InputError(f"the teams of agent {shown(scope.agent_id)} are kept by this agent alone")
        operation = "share_with_agent" if verb is AccessVerb.GRANT else "revoke"  # as in logs of earlier versions
        grant = require_grant(lake, by, AccessLevel.ADMIN, scope, scope.user_id, operation, context)
        clock = datetime.now(UTC)
        at = lake.calendar.moment("now", clock if now is None else now)
        if at > clock:
            raise InputError(f"now {at.isoformat()} is in the future; grants and revokes hold at once: leave it out")
        event = AccessEvent(scope, verb, agent, team, level, at, None if by is None else by.agent_id, context)
        if context is not None and not context.startswith(POOL) and verb is AccessVerb.GRANT:
            known = [one.name for one in MemoryEventWriter(lake, scope).contexts.list()]
            if context not in known:
                whose = f"of {scope.identity or 'the agent itself'}" if by is None else "of this memory"
                listed = f"; there is: {', '.join(map(shown, known)) or 'none'}" if by is None else ""
                raise InputError(f"no context {whose} is named {shown(context)}{listed}")
        before = lake.access.deciding(scope)
        state = fold_access(before)
        current = next((one for one in state.grants if one.decides == event.decides), None)
        is_member = team is not None and agent in state.teams.get((scope, team), ())
        was_in_force = is_member if verb.is_of_team else current is not None
        is_wanted = verb in {AccessVerb.GRANT, AccessVerb.JOIN}
        # A grant of the owner replaces an equal one of an admin, to outlast it.
        is_other = current is not None and (current.level != level or (by is None and current.by_agent is not None))
        if now is None and was_in_force == is_wanted and not (is_wanted and is_other):
            return was_in_force
        if event not in before:  # the clock of another writer may have been ahead
            event = replace(event, ordered_at=placed_after(at, (one.order[0] for one in before)))
        lake.ensure()
        lake.access.add(event)
        if by is not None and grant is not None:
            note_use(lake, by, scope, operation, grant, (), 1)
        return was_in_force


class GrantedWriter(AccessWriter, MemoryEventWriter):
    """Changes durable memories of another agent of the workspace; take it from :meth:`MemoryWriter.of_agent`.

    A change needs a grant of the level ``write``, a grant or a revoke one of the level ``admin``. Each call looks it
    up, so it ends with a revoke. Without it, the methods raise :class:`~memory_pipeline.errors.AccessDeniedError`. A
    grant of one context opens :attr:`contexts` alone, and of them this one. The editor of a change is ``agent:`` and
    the id of the agent that makes it. Teams are kept by their own agent alone.
    """

    def __init__(self, lake: Lake, asking: Scope, owner: Scope, user_id: str | None, start: date) -> None:
        """Change the memory of the agent `owner`, or of its user, for the agent `asking`."""
        scope = owner if user_id is None else _scope_of(lake, asking, AccessLevel.WRITE, owner, user_id)
        super().__init__(lake, scope, start)
        self._asking = asking
        self._user_id = user_id

    @property
    def scope(self) -> Scope:
        """The scope that is changed."""
        return self._scope

    @property
    def users(self) -> Sequence[str]:
        """The user whose memory is changed; none for the agent's own memory."""
        return [] if self._user_id is None else [self._user_id]

    @property
    def _shareable(self) -> Shareable:
        return Shareable(self._lake, self._scope, self._user_id, self._asking)

    def _require_grant(
        self, operation: str, level: AccessLevel = AccessLevel.WRITE, context: str | None = None
    ) -> AccessEvent | None:
        return require_grant(self._lake, self._asking, level, self._scope, self._user_id, operation, context)

    def _log_use(self, operation: str, grant: AccessEvent | None, result: object) -> None:
        if grant is not None:
            ids, count = ids_in(result)
            note_use(self._lake, self._asking, self._scope, operation, grant, ids, count)

    def _write(self, changes: Sequence[object], now: When | None, context: str | None = None) -> list[str]:
        named = [change.get("memory") for change in changes if isinstance(change, Mapping)]
        verbs = {verb.value.lower() for verb in MemoryVerb if verb.value in named}
        operation = "+".join(sorted(verbs)) or "change_memories"  # never text of the agent, which may lack a grant
        grant = self._require_grant(operation, context=context)
        ids = super()._write([self._signed(change) for change in changes], now, context)
        if grant is not None and ids:
            note_use(self._lake, self._asking, self._scope, operation, grant, ids, len(ids))
        return ids

    def _signed(self, change: object) -> object:
        """Return a change with the agent as its editor."""
        if not isinstance(change, Mapping):
            return change
        if (editor := change.get("editor", AGENT)) != AGENT:
            raise InputError(f"editor {shown(editor)} is not accepted: the editor is the agent that makes the change")
        signed = {**change, "editor": f"{OTHER_AGENT}{self._asking.agent_id}"}
        states = change.get("memory") in {MemoryVerb.REMEMBER.value, MemoryVerb.UPDATE.value}
        return signed | ({"source_type": SourceType.ASSISTANT.value} if states else {})


def require_grant(
    lake: Lake,
    agent: Scope | None,
    level: AccessLevel,
    target: Scope,
    user_id: str | None,
    operation: str,
    context: str | None = None,
) -> AccessEvent | None:
    """Return the grant of an agent for an operation; None of the owner itself, which needs none.

    Raises:
        AccessDeniedError: it has no grant. This is logged.
    """
    if agent is None:
        return None
    decision = decide(agent, level, target, lake.access.state(target), context)
    if not decision.is_allowed:
        if lake.exists:
            lake.access_log.note(agent, target, operation)
        raise denial(agent, level, target.own, user_id, context)
    return decision.grant


def note_use(
    lake: Lake, agent: Scope, target: Scope, operation: str, grant: AccessEvent, ids: Sequence[str], count: int
) -> None:
    """Log that an agent used the memory of another one by a grant."""
    lake.access_log.note(agent, target, operation, ids, results=count, grant_ids=[grant.id], level=grant.level)


def _scope_of(
    lake: Lake, agent: Scope, level: AccessLevel, owner: Scope, user_id: str, context: str | None = None
) -> Scope:
    """Return the scope of a user of another agent. Raise AccessDeniedError if nothing can be granted there."""
    identity = user_identity(label_of("user_id", user_id))
    if not lake.exists:
        raise denial(agent, level, owner, user_id, context)
    return lake.scope(owner.workspace_id, owner.agent_id, identity)
