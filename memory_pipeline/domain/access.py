"""Access of an agent to the memory of another agent of its workspace: grants, revokes, and teams of agents.

In the journal an event is a file of its own::

    {"access": "grant", "workspace_id": "acme", "agent_id": "support", "to_agent": "sales", "to_team": null,
     "level": "read", "timestamp": "2024-01-15T07:03:00+00:00"}

``agent_id`` gives access to its own memory, or, with an ``identity``, to that of one of its users. With a ``context``
it gives access to that context alone. A team is a list of agents that ``agent_id`` keeps: nobody else decides who is in
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.messages import members_fields, ordered_at_in, recorded_scope, timestamp_of
from memory_pipeline.domain.scopes import Scope, optional_label
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.domain.values import one_of
from memory_pipeline.errors import AccessDeniedError, InputError, shown

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping
    from datetime import datetime

    from memory_pipeline.domain.scopes import ScopeOf
    from memory_pipeline.domain.subjects import Subject

#: In place of an agent: all agents of the workspace. They may only read.
EVERYONE: Final = "*"
#: A grant whose context begins so is limited to the private pool with the rest as its name.
POOL: Final = "pool:"


class AccessLevel(StrEnum):
    """What a grant allows. Each level includes those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """1 for read to 3 for admin."""
        return list(AccessLevel).index(self) + 1

    @classmethod
    def parse(cls, value: object) -> AccessLevel:
        """Return the level with a name.

        Raises:
            InputError: there is none.
        """
        return one_of(cls, "level", value)


class AccessVerb(StrEnum):
    """The action of an event. JOIN and LEAVE change a team."""

    GRANT = "grant"
    REVOKE = "revoke"
    JOIN = "join"
    LEAVE = "leave"

    @property
    def is_of_team(self) -> bool:
        """Whether it changes a team."""
        return self in {AccessVerb.JOIN, AccessVerb.LEAVE}


@dataclass(frozen=True, slots=True)
class AccessEvent:
    """A grant, a revoke, or a change of a team, validated.

    Attributes:
        scope: the memory that is shared; of a change of a team, the own memory of the agent that keeps it.
        to_agent, to_team: the agent or the team that gets or loses access. A change of a team has both: the agent
            joins or leaves the team.
        level: of a grant.
        event_at: time, UTC.
        context: the context of the memory to which a grant or a revoke is limited.
        by_agent: the agent that made the change, if it is not the owner of the memory.
        ordered_at: place in the order of events, UTC, if its writer saw a later one that decides the same; None if the
            place is `event_at`.
    """

    scope: Scope
    verb: AccessVerb
    to_agent: str | None
    to_team: str | None
    level: AccessLevel | None
    event_at: datetime
    by_agent: str | None = None
    context: str | None = None
    ordered_at: datetime | None = None

    def __post_init__(self) -> None:
        optional_label("by_agent", self.by_agent)
        optional_label("context", self.context)
        optional_label("agent", self.to_agent)
        optional_label("team", self.to_team)
        if self.scope.is_group:
            raise InputError(f"the memory of {self.scope.identity} belongs to its members; it cannot be shared")
        if self.verb.is_of_team:
            if self.to_agent is None or self.to_team is None:
                raise InputError("agent and team are both needed to change a team")
            if self.scope.identity:
                raise InputError("a team is kept by an agent, not by one of its users; leave out user_id")
            if self.context is not None:
                raise InputError("a team belongs to no context; leave out context")
        elif (self.to_agent is None) == (self.to_team is None):
            problem = "neither is given" if self.to_agent is None else "both are given"
            raise InputError(f"access is given to an agent or to a team; {problem}")
        elif self.to_agent == self.scope.agent_id:
            raise InputError(f"agent {shown(self.to_agent)} has access to its own memory; name another agent")
        if self.to_agent == EVERYONE and (self.verb.is_of_team or self.level not in {None, AccessLevel.READ}):
            raise InputError(f"{shown(EVERYONE)} is all agents of the workspace, which may only read; name an agent")
        if (self.level is None) is (self.verb is AccessVerb.GRANT):
            raise InputError("level belongs to a grant, and to nothing else")

    @classmethod
    def from_record(cls, record: Mapping[str, Any], scope_of: ScopeOf = Scope) -> AccessEvent:
        """Parse and validate the form of :meth:`to_record`. `scope_of` is needed for scopes of users.

        Raises:
            InputError: a field is missing, invalid or unknown; the message names it.
        """
        level = record.get("level")
        event = cls(
            recorded_scope(record, scope_of),
            one_of(AccessVerb, "access", record.get("access")),
            record.get("to_agent"),
            record.get("to_team"),
            None if level is None else AccessLevel.parse(level),
            timestamp_of("timestamp", record.get("timestamp")),
            record.get("by_agent"),
            record.get("context"),
            ordered_at_in(record),
        )
        for name in record.keys() - event.to_record().keys():
            raise InputError(f"the field {shown(name)} is unknown")  # it may restrict the grant
        return event

    def to_record(self) -> dict[str, object]:
        """Return the event as a flat JSON object, as stored in the journal."""
        return {
            "access": self.verb.value,
            "workspace_id": self.scope.workspace_id,
            "agent_id": self.scope.agent_id,
            **members_fields(self.scope, ()),
            "to_agent": self.to_agent,
            "to_team": self.to_team,
            "level": None if self.level is None else self.level.value,
            "timestamp": self.event_at.isoformat(),
            **({} if self.ordered_at is None else {"ordered_at": self.ordered_at.isoformat()}),
            **({} if self.by_agent is None else {"by_agent": self.by_agent}),
            **({} if self.context is None else {"context": self.context}),
        }

    @property
    def id(self) -> str:
        """A hash of the event, 32 hexadecimal digits: the same event has the same id."""
        return digest("access", self.to_record())

    def concerns(self, subject: Subject) -> bool:
        """Return whether the erasure of a subject removes the event: it shares its memory, or shares with the agent."""
        is_receiver = subject.kind is SubjectKind.AGENT and self.to_agent == subject.agent_id
        return subject.owns(self.scope) or (is_receiver and self.scope.workspace_id == subject.workspace_id)

    @property
    def decides(self) -> Hashable:
        """The key of what the event decides. Of two events with the same key, the later one counts."""
        return self.scope, self.verb.is_of_team, self.to_agent, self.to_team, self.context

    @property
    def order(self) -> tuple[datetime, int]:
        """The sort key: of two events at the same time, the one that allows less comes last."""
        allows = 0 if self.level is None else self.level.rank
        return self.ordered_at or self.event_at, -allows if not self.verb.is_of_team else -(
            self.verb is AccessVerb.JOIN
        )


class AccessState(NamedTuple):
    """The grants in force, and the agents of each team, by the own scope of the agent that keeps it and its name."""

    grants: frozenset[AccessEvent]
    teams: Mapping[tuple[Scope, str], frozenset[str]]


def fold_access(events: Iterable[AccessEvent], until: datetime | None = None) -> AccessState:
    """Fold events, in any order, into the grants and teams that are in force: now, or at `until`, UTC.

    What an agent granted by a grant of the level ``admin`` ends with that grant. The events are all those of the memory
    and of its agent.
    """
    last: dict[Hashable, AccessEvent] = {}
    for event in sorted(events, key=lambda event: event.order):
        if (until is None or event.event_at <= until) and _is_backed(event, last):
            last[event.decides] = event
            while gone := [key for key, one in last.items() if not _is_backed(one, last)]:
                for key in gone:
                    del last[key]
    return _state_of(last)


def _is_backed(event: AccessEvent, last: Mapping[Hashable, AccessEvent]) -> bool:
    """Return whether the agent that made a grant may share the memory, after the `last` events."""
    if event.by_agent is None or event.verb is not AccessVerb.GRANT:
        return True
    agent = Scope(event.scope.workspace_id, event.by_agent)
    return decide(agent, AccessLevel.ADMIN, event.scope, _state_of(last), event.context).is_allowed


def _state_of(last: Mapping[Hashable, AccessEvent]) -> AccessState:
    teams: dict[tuple[Scope, str], frozenset[str]] = {}
    for event in last.values():
        if event.verb is AccessVerb.JOIN and event.to_team is not None and event.to_agent is not None:
            key = event.scope, event.to_team
            teams[key] = teams.get(key, frozenset()) | {event.to_agent}
    return AccessState(frozenset(event for event in last.values() if event.verb is AccessVerb.GRANT), teams)


class Decision(NamedTuple):
    """Whether an agent may use a scope, and by which grant: None for its own memory, and if it may not."""

    is_allowed: bool
    grant: AccessEvent | None = None


def decide(
    agent: Scope, level: AccessLevel, target: Scope, access: AccessState, context: str | None = None
) -> Decision:
    """Decide whether an agent may read, write or administer a scope, or one of its contexts.

    An agent may do everything with its own memory, and that of its users and groups. Otherwise it needs a grant for
    this very scope, to itself or to one of the teams of the scope's agent; the one with the highest level is returned.
    Nothing crosses workspaces, and no grant opens the memory of a group. A grant of a scope covers its contexts; one of
    a context covers nothing else.
    """
    if agent.own == target.own:
        return Decision(is_allowed=True)
    if agent.workspace_id != target.workspace_id or target.is_group:
        return Decision(is_allowed=False)
    found = [
        grant
        for grant in access.grants
        if grant.scope == target
        and grant.context in {None, context}
        and grant.level is not None
        and grant.level.rank >= level.rank
        and (
            grant.to_agent in {agent.agent_id, EVERYONE}
            or (grant.to_team is not None and is_member(agent, grant.to_team, target, access))
        )
    ]
    best = max(found, key=lambda grant: (grant.level and grant.level.rank, grant.id), default=None)
    return Decision(best is not None, best)


def is_member(agent: Scope, team: str, target: Scope, access: AccessState) -> bool:
    """Return whether an agent is in a team that the agent of a scope keeps."""
    return agent.agent_id in access.teams.get((target.own, team), ())


def denial(
    agent: Scope, level: AccessLevel, owner: Scope, user_id: str | None, context: str | None = None
) -> AccessDeniedError:
    """Return the error for an agent without a grant.

    It is the same whether or not there is such an agent, user or context.
    """
    user = "" if user_id is None else f" of user {shown(user_id)}"
    kind, name = ("pool", context[len(POOL) :]) if context and context.startswith(POOL) else ("context", context)
    what = "the memory" if name is None else f"{kind} {shown(name)}"
    action = {AccessLevel.READ: "read", AccessLevel.WRITE: "change", AccessLevel.ADMIN: "share"}[level]
    needed = "" if level is AccessLevel.READ else f" with the level {level}"
    return AccessDeniedError(
        f"agent {shown(agent.agent_id)} may not {action} {what}{user} of agent {shown(owner.agent_id)}; that agent "
        f"grants access{needed} with grant, or `memory-pipeline share`"
    )
