"""Memory that agents of a workspace share with each other."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from memory_pipeline.client.opened import OpenedMemory
from memory_pipeline.domain.access import EVERYONE, POOL, AccessLevel, denial, is_member
from memory_pipeline.domain.fields import ConversationFilters, check_names
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.sessions import DEFAULT_NAME, pool_container
from memory_pipeline.errors import AccessDeniedError, InputError, shown
from memory_pipeline.search.arguments import MAX_DAYS_AGO
from memory_pipeline.sessions.store import session_store
from memory_pipeline.sessions.views import SharedPool
from memory_pipeline.writer import MemoryWriter
from memory_pipeline.writer.sharing import AccessWriter, note_use, require_grant

if TYPE_CHECKING:
    from memory_pipeline.domain.periods import When
    from memory_pipeline.memories.contexts import Contexts
    from memory_pipeline.search.searcher import Hits
    from memory_pipeline.writer.sharing import Shareable


class AgentPool(SharedPool):
    """A :class:`~memory_pipeline.sessions.views.SharedPool`, and who may use it.

    A pool of the type ``agent_private`` is its agent's alone, until :meth:`grant` lets others use it, each by
    ``memory.of_agent(owner).pool(name)``. Without a grant, or after :meth:`revoke`, each method of theirs raises
    AccessDeniedError. The arguments of :meth:`Memory.pool` decide who uses the pools of other types.
    """

    def __init__(self, owner: AccessWriter | None, *pool: Any) -> None:
        """`owner` shares the memory of which this is a private pool; None of a pool of another type or scope."""
        super().__init__(*pool)
        self._owner = owner
        self._context = f"{POOL}{self.name}"

    def grant(
        self,
        agent: str | None = None,
        level: AccessLevel | str = AccessLevel.READ,
        *,
        team: str | None = None,
        now: When | None = None,
    ) -> None:
        """Let another agent of the workspace, or a team of agents, use this private pool.

        Args:
            agent: the agent that gets access; or name a `team`.
            level: ``read``; ``write``, to change and clear it too; or ``admin``, to share it with others too.
            team: a team that this agent keeps.
            now: the time of the grant.

        Raises:
            InputError: an argument is invalid, or the pool is of another type.
        """
        self._access.grant(agent, level=level, team=team, context=self._context, now=now)

    def revoke(self, agent: str | None = None, *, team: str | None = None, now: When | None = None) -> bool:
        """Take back what :meth:`grant` gave; return whether it had access. A grant of the whole memory stays.

        Raises:
            InputError: as for :meth:`grant`.
        """
        return self._access.revoke(agent, team=team, context=self._context, now=now)

    def public_read(self, is_public: bool = True, *, now: When | None = None) -> None:
        """Let all agents of the workspace read this private pool, or end that. They can neither write nor clear it.

        Raises:
            InputError: the pool is of another type.
        """
        if is_public:
            self.grant(EVERYONE, now=now)
        else:
            self.revoke(EVERYONE, now=now)

    def accessible_by(self, agent: str, level: AccessLevel | str = AccessLevel.READ) -> bool:
        """Return whether an agent of the workspace may use this private pool at a level.

        Raises:
            InputError: as for :meth:`grant`.
        """
        return self._access.accessible_by(agent, level, context=self._context)

    @property
    def _access(self) -> AccessWriter:
        if self._owner is None:
            raise InputError(
                f"pool {shown(self.name)} has no grants: its type {self.type} and its scope decide who uses it; only a "
                "pool of the type agent_private, with its own scope, has them"
            )
        return self._owner


class AgentAccess:
    """The memory that another agent of the workspace shares. Take it from :meth:`Memory.of_agent`.

    Attributes:
        reader: reads its memory.
        writer: changes its durable memories and grants.
    """

    def __init__(self, memory: OpenedMemory, agent: str, user_id: str | None) -> None:
        """Open what an agent, or its user, shares with the agent and the user of a memory."""
        self.writer = MemoryWriter(memory.lake, memory._scope).of_agent(agent, user_id)
        self.reader = memory.reader.of_agent(agent, user_id)
        self._memory = memory
        self._user_id = user_id

    @property
    def contexts(self) -> Contexts:
        """Its contexts. A grant of one context opens this one, and nothing else."""
        return self.writer.contexts

    def pool(self, name: str = DEFAULT_NAME, *, team: str | None = None) -> AgentPool:
        """Return a pool of the agent or of its user: a private one, or that of a team.

        Each call of a method of a private pool needs a grant of the pool or of the whole memory: to read of the level
        ``read``, else ``write``. Each call of a method of a team's pool needs to be in the team, and for the pool of a
        user to work for this user, or a grant of the user's memory.

        Raises:
            InputError: an argument is invalid.
            AccessDeniedError: the lake does not exist.
            ConfigurationError: as for :meth:`Memory.session`.
        """
        kind, owner = "agent_private" if team is None else "team_shared", self.writer.scope
        container = pool_container(
            owner.workspace_id, owner.agent_id, self._user_id, name, kind, None, team, None, None
        )
        lake, asking = self._memory.lake, self._memory._scope.own
        if not lake.exists and asking != owner.own:  # it is not made for a stranger
            raise denial(asking, AccessLevel.READ, owner.own, self._user_id)
        entries = session_store(lake).entries(container).guarded(partial(self._require, name, team))
        return AgentPool(None if team else self.writer, entries, lambda: datetime.now(UTC), name, kind, None)

    def _require(self, name: str, team: str | None, is_write: bool) -> None:
        """Raise AccessDeniedError if the agent may not use a pool. Its use is logged."""
        operation, level = ("pool.write", AccessLevel.WRITE) if is_write else ("pool.read", AccessLevel.READ)
        lake, target, asking = self._memory.lake, self.writer.scope, self._memory._scope.own
        if team is None or self._user_id not in {None, self._memory.user_id}:
            label = f"{POOL}{name}" if team is None else None
            grant = require_grant(lake, asking, level, target, self._user_id, operation, label)
            if grant is not None:
                note_use(lake, asking, target, operation, grant, (), 0)
        if team is None or asking == target.own:
            return
        if not is_member(asking, team, target, lake.access.state(target)):
            lake.access_log.note(asking, target, operation)
            raise AccessDeniedError(
                f"agent {shown(asking.agent_id)} is in no team {shown(team)} of agent {shown(target.agent_id)}; that "
                "agent adds it with add_to_team, or `memory-pipeline team add`"
            )
        lake.access_log.note(asking, target, operation, level=AccessLevel.WRITE)  # a member may do both


class SharedMemory(OpenedMemory, AccessWriter):
    """The part of :class:`memory_pipeline.Memory` for memory that agents share."""

    @property
    def _shareable(self) -> Shareable:
        return self.writer._shareable

    def of_agent(self, agent: str, user_id: str | None = None) -> AgentAccess:
        """Return a reader, a writer and pools of the memory that another agent shares with this one.

        ::

            memory.of_agent("planner").writer.remember("The launch is on Friday.")

        Each call needs a grant: of the level ``read`` to read, ``write`` to change durable memories, and ``admin`` to
        share the memory with others.

        Args:
            agent: the other agent.
            user_id: a user of that agent. The reader reads the user's memory too, and the writer changes it.

        Raises:
            InputError: an id is invalid.
            AccessDeniedError: `user_id` is given and the lake does not exist.
        """
        return AgentAccess(self, agent, user_id)

    def search_shared(
        self,
        query: str,
        agent: str,
        user_id: str | None = None,
        limit: int = 10,
        *,
        grain: Grain | str = Grain.WORKING,
        now: When | None = None,
        **filters: Unpack[ConversationFilters],
    ) -> Hits:
        """Search the memory that another agent of the workspace shares with this one, best matches first.

        For recall, durable memories and the graph, use :meth:`of_agent`.

        Args:
            query: at most 10,000 characters.
            agent: the agent whose memory is searched.
            user_id: a user of that agent, whose memory is searched too, if it is shared.
            limit: 1 to 100 results.
            grain: ``working`` for what was said; ``daily`` to ``yearly`` for summaries.
            now: ignore everything after this time; by default the current time. Access is that of the present.
            filters: see :class:`~memory_pipeline.domain.fields.ConversationFilters`.

        Raises:
            AccessDeniedError: nothing is shared with this agent, or there is no such agent.
            InputError: an argument is invalid.
        """
        check_names(filters, ConversationFilters)
        reader = self.reader.of_agent(agent, user_id)
        return reader.search_memory(grain, 0, MAX_DAYS_AGO, limit, query, now=now, sources="all", **filters)
