"""Memory that agents of a workspace share with each other."""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.access import AccessLevel
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.sessions import DEFAULT_NAME, pool_container
from memory_pipeline.search.arguments import MAX_DAYS_AGO
from memory_pipeline.sessions.store import session_store
from memory_pipeline.sessions.views import SharedPool
from memory_pipeline.writer import MemoryWriter
from memory_pipeline.writer.sharing import AccessWriter, require_grant

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.search.searcher import Hits
    from memory_pipeline.writer import GrantedWriter
    from memory_pipeline.writer.sharing import Shareable


class AgentAccess:
    """What another agent of the workspace shares. Take it from :meth:`Memory.of_agent`.

    Attributes:
        reader: reads its memory.
        writer: changes its durable memories and grants.
    """

    def __init__(self, reader: MemoryReader, writer: GrantedWriter, open_pool: Callable[[str], SharedPool]) -> None:
        self.reader = reader
        self.writer = writer
        self._open_pool = open_pool

    def pool(self, name: str = DEFAULT_NAME) -> SharedPool:
        """Return a private pool of the agent, or of its user. Each call of its methods needs a grant.

        To read needs the level ``read``, all else ``write``.

        Raises:
            InputError: the name is invalid.
            ConfigurationError: as for :meth:`Memory.session`.
        """
        return self._open_pool(name)


class SharedMemory(AccessWriter):
    """The part of :class:`memory_pipeline.Memory` for memory that agents share."""

    lake: Lake
    reader: MemoryReader
    _scope: Scope

    @property
    @abstractmethod
    def writer(self) -> MemoryWriter:
        """Writes in more detail."""

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
        writer = MemoryWriter(self.lake, self._scope).of_agent(agent, user_id)

        def opened(name: str) -> SharedPool:
            def require(is_write: bool) -> None:
                level, target = AccessLevel.WRITE if is_write else AccessLevel.READ, writer.scope
                grant = require_grant(self.lake, self._scope, level, target, user_id)
                if grant is not None:
                    operation, granted = "pool.write" if is_write else "pool.read", grant.level
                    self.lake.access_log.note(self._scope, target, operation, grant_ids=[grant.id], level=granted)

            container = pool_container(
                self._scope.workspace_id, agent, user_id, name, "agent_private", None, None, None, None
            )
            entries = session_store(self.lake).entries(container).guarded(require)
            return SharedPool(entries, lambda: datetime.now(UTC), name, "agent_private", None)

        return AgentAccess(self.reader.of_agent(agent, user_id), writer, opened)

    def retrieve_shared(
        self,
        query: str,
        agent: str,
        user_id: str | None = None,
        limit: int = 10,
        *,
        since: When | None = None,
        until: When | None = None,
        person: str | None = None,
        tag: str | None = None,
        grain: Grain | str = Grain.WORKING,
        now: When | None = None,
    ) -> Hits:
        """Search the memory that another agent of the workspace shares with this one, best matches first.

        For recall, durable memories and the graph, use :meth:`of_agent`.

        Args:
            query: at most 10,000 characters.
            agent: the agent whose memory is searched.
            user_id: a user of that agent, whose memory is searched too, if it is shared.
            limit: 1 to 100 results.
            since: time of the oldest result, as for :meth:`search`.
            until: time of the newest result.
            person: the speaker, or a name in the text.
            tag: a tag of the conversation.
            grain: ``working`` for what was said; ``daily`` to ``yearly`` for summaries.
            now: ignore everything after this time; by default the current time. Access is that of the present.

        Raises:
            AccessDeniedError: nothing is shared with this agent, or there is no such agent.
            InputError: an argument is invalid.
        """
        return self.reader.of_agent(agent, user_id).search_memory(
            grain, 0, MAX_DAYS_AGO, limit, query, since=since, until=until, person=person, tag=tag, now=now
        )
