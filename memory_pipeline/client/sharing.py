"""Memory that agents of a workspace share with each other."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from memory_pipeline.domain.access import AccessLevel
from memory_pipeline.domain.periods import Grain
from memory_pipeline.search.arguments import MAX_DAYS_AGO

if TYPE_CHECKING:
    from memory_pipeline.domain.access import AccessEvent
    from memory_pipeline.domain.periods import When
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.search.searcher import Hits
    from memory_pipeline.writer import MemoryWriter


class SharedMemory:
    """The part of :class:`memory_pipeline.Memory` for memory that agents share."""

    reader: MemoryReader

    @property
    @abstractmethod
    def writer(self) -> MemoryWriter:
        """Writes in more detail."""

    def share_with_agent(
        self,
        agent: str | None = None,
        user_id: str | None = None,
        level: str = AccessLevel.READ,
        *,
        team: str | None = None,
        now: When | None = None,
    ) -> None:
        """Let another agent of the workspace use this agent's own memory, or with `user_id` that of the user.

        See :meth:`memory_pipeline.writer.MemoryWriter.share_with_agent`, also for teams.

        Raises:
            InputError: an argument is invalid.
        """
        self.writer.share_with_agent(agent, user_id, level, team=team, now=now)

    def revoke(
        self,
        agent: str | None = None,
        user_id: str | None = None,
        *,
        team: str | None = None,
        now: When | None = None,
    ) -> bool:
        """Take back what was given with the same arguments, from the next read on. Return whether it was in force.

        Raises:
            InputError: an argument is invalid.
        """
        return self.writer.revoke(agent, user_id, team=team, now=now)

    def grants(self, *, now: When | None = None) -> list[AccessEvent]:
        """Return the grants in force on this memory: the user's if it is of a user, else the agent's own."""
        return self.writer.grants(now=now)

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

        For recall, durable memories and the graph, use ``memory.reader.of_agent(agent)``.

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
