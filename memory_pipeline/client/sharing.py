"""Memory that agents of a workspace share with each other."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.periods import Grain
from memory_pipeline.search.arguments import MAX_DAYS_AGO
from memory_pipeline.writer import MemoryWriter
from memory_pipeline.writer.sharing import AccessWriter

if TYPE_CHECKING:
    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.search.searcher import Hits
    from memory_pipeline.writer import GrantedWriter
    from memory_pipeline.writer.sharing import Shareable


class AgentAccess(NamedTuple):
    """What another agent shares: a reader, and a writer of its durable memories."""

    reader: MemoryReader
    writer: GrantedWriter


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
        """Return a reader and a writer of the memory that another agent of the workspace shares with this one.

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
        own = MemoryWriter(self.lake, self._scope)
        return AgentAccess(self.reader.of_agent(agent, user_id), own.of_agent(agent, user_id))

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
