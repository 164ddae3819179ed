"""The memory of one user or agent, for programs with an event loop."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

from memory_pipeline.client.memory import Memory
from memory_pipeline.client.tiers import LONG_TERM
from memory_pipeline.domain.sessions import DEFAULT_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from memory_pipeline.client.listing import Page
    from memory_pipeline.client.memory import Results
    from memory_pipeline.client.tiers import TierStatistics, TierValue
    from memory_pipeline.client.wrapping import Client
    from memory_pipeline.domain.access import AccessEvent
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Grain, When
    from memory_pipeline.erasure import ErasureReport
    from memory_pipeline.reader.packing.items import InjectedContext
    from memory_pipeline.search.searcher import Hits
    from memory_pipeline.writer import Receipt


class AsyncView:
    """A part of the memory, such as a session, a pool or the graph, with methods to await."""

    def __init__(self, opened: Callable[[], Any]) -> None:
        self._opened = cache(opened)

    def __getattr__(self, name: str) -> AsyncView:
        return AsyncView(lambda: getattr(self._opened(), name))

    async def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the method in a thread."""
        return await asyncio.to_thread(lambda: self._opened()(*args, **options))


class AsyncAgentAccess(AsyncView):
    """The memory that another agent shares, with methods to await; see :class:`AgentAccess`."""

    def pool(self, name: str = DEFAULT_NAME, *, team: str | None = None) -> AsyncView:
        """Return a pool whose methods are awaited; see :meth:`AgentAccess.pool`."""
        return AsyncView(lambda: self._opened().pool(name, team=team))


class AsyncMemory:
    """:class:`~memory_pipeline.Memory` with methods to await. The work is done in threads.

    Attributes:
        memory: the object with the same methods without ``await``.
    """

    def __init__(self, uri: str | None = None, **options: Any) -> None:
        """Open the memory in a lake; see :class:`~memory_pipeline.Memory` for the options."""
        self.memory = Memory(uri, **options)

    async def add(
        self,
        messages: object,
        *,
        conversation_id: str | None = None,
        users: Sequence[str] | None = None,
        group_id: str | None = None,
        tags: Sequence[str] = (),
        source: str | None = None,
        history: bool | None = None,
        idempotency_key: str | None = None,
        now: When | None = None,
    ) -> Receipt:
        """Add what was said; see :meth:`Memory.add`."""
        return await asyncio.to_thread(
            self.memory.add,
            messages,
            conversation_id=conversation_id,
            users=users,
            group_id=group_id,
            tags=tags,
            source=source,
            history=history,
            idempotency_key=idempotency_key,
            now=now,
        )

    async def search(
        self,
        query: str,
        limit: int = 10,
        *,
        since: When | None = None,
        until: When | None = None,
        person: str | None = None,
        tag: str | None = None,
        grain: Grain | str = "working",
        tiers: str | Sequence[str] = LONG_TERM,
        sources: str | Collection[str] = "all",
        minimum_score: float | None = None,
        now: When | None = None,
    ) -> Hits:
        """Return what was said and durable memories, best matches first; see :meth:`Memory.search`."""
        return await asyncio.to_thread(
            self.memory.search,
            query,
            limit,
            since=since,
            until=until,
            person=person,
            tag=tag,
            grain=grain,
            tiers=tiers,
            sources=sources,
            minimum_score=minimum_score,
            now=now,
        )

    async def context(
        self,
        query: str = "",
        max_tokens: int = 1_000,
        *,
        conversation: Mapping[str, object] | None = None,
        exclude: Collection[str] = (),
        only_new: bool = False,
        now: When | None = None,
    ) -> InjectedContext:
        """Return the context for a prompt; see :meth:`Memory.context`."""
        return await asyncio.to_thread(
            self.memory.context,
            query,
            max_tokens,
            conversation=conversation,
            exclude=exclude,
            only_new=only_new,
            now=now,
        )

    async def list(
        self, kind: str | None = None, *, since: When | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page:
        """Return everything, page by page; see :meth:`Memory.list`."""
        return await asyncio.to_thread(self.memory.list, kind, since=since, cursor=cursor, limit=limit)

    async def remember(
        self, text: str, kind: str = "fact", *, tags: Sequence[str] = (), now: When | None = None, **options: Any
    ) -> str:
        """Store a durable memory; see :meth:`Memory.remember` for the options."""
        return await asyncio.to_thread(self.memory.remember, text, kind, tags=tags, now=now, **options)

    async def history(self, id: str) -> tuple[DurableMemory, ...]:  # noqa: A002  # as in Memory
        """Return all versions of a durable memory; see :meth:`Memory.history`."""
        return await asyncio.to_thread(self.memory.history, id)

    async def forget(
        self,
        id: str | None = None,  # noqa: A002  # as in Memory
        *,
        conversation_id: str | None = None,
        everything: bool = False,
        now: When | None = None,
    ) -> ErasureReport | None:
        """Forget a durable memory, or erase a conversation or everything; see :meth:`Memory.forget`."""
        return await asyncio.to_thread(
            self.memory.forget, id, conversation_id=conversation_id, everything=everything, now=now
        )

    async def run(self, *, now: When | None = None) -> Results:
        """Process all pending data of the lake; see :meth:`Memory.run`."""
        return await asyncio.to_thread(self.memory.run, now=now)

    async def check(self, *, now: When | None = None) -> tuple[str, ...]:
        """Return what is wrong with the store; see :meth:`Memory.check`."""
        return await asyncio.to_thread(self.memory.check, now=now)

    async def read(
        self, key: str, *, session_id: str = DEFAULT_NAME, pool: str = DEFAULT_NAME, now: When | None = None
    ) -> TierValue | None:
        """Return the value of a key with the tier that has it; see :meth:`Memory.read`."""
        return await asyncio.to_thread(self.memory.read, key, session_id=session_id, pool=pool, now=now)

    async def write(
        self,
        key: str,
        value: object,
        *,
        tier: str = "session",
        session_id: str = DEFAULT_NAME,
        pool: str = DEFAULT_NAME,
        now: When | None = None,
    ) -> None:
        """Write a value to a tier; see :meth:`Memory.write`."""
        await asyncio.to_thread(self.memory.write, key, value, tier=tier, session_id=session_id, pool=pool, now=now)

    async def stats(self, *, now: When | None = None) -> dict[str, TierStatistics]:
        """Return figures of each tier; see :meth:`Memory.stats`."""
        return await asyncio.to_thread(self.memory.stats, now=now)

    async def share_with_agent(
        self,
        agent: str | None = None,
        user_id: str | None = None,
        level: str = "read",
        *,
        team: str | None = None,
        context: str | None = None,
        now: When | None = None,
    ) -> None:
        """Let another agent use this memory; see :meth:`Memory.share_with_agent`."""
        share = self.memory.share_with_agent
        await asyncio.to_thread(share, agent, user_id, level, team=team, context=context, now=now)

    async def revoke(
        self,
        agent: str | None = None,
        user_id: str | None = None,
        *,
        team: str | None = None,
        context: str | None = None,
        now: When | None = None,
    ) -> bool:
        """Take access back; see :meth:`Memory.revoke`."""
        return await asyncio.to_thread(self.memory.revoke, agent, user_id, team=team, context=context, now=now)

    async def grants(self, *, context: str | None = None, now: When | None = None) -> Sequence[AccessEvent]:
        """Return the grants in force; see :meth:`Memory.grants`."""
        return await asyncio.to_thread(self.memory.grants, context=context, now=now)

    async def access_history(self, *, context: str | None = None) -> Sequence[AccessEvent]:
        """Return all grants, revokes and changes of teams; see :meth:`Memory.access_history`."""
        return await asyncio.to_thread(self.memory.access_history, context=context)

    async def add_to_team(self, team: str, agent: str, *, now: When | None = None) -> None:
        """Add an agent to a team; see :meth:`Memory.add_to_team`."""
        await asyncio.to_thread(self.memory.add_to_team, team, agent, now=now)

    async def remove_from_team(self, team: str, agent: str, *, now: When | None = None) -> bool:
        """Remove an agent from a team; see :meth:`Memory.remove_from_team`."""
        return await asyncio.to_thread(self.memory.remove_from_team, team, agent, now=now)

    def of_agent(self, agent: str, user_id: str | None = None) -> AsyncAgentAccess:
        """Return what another agent shares, with methods to await; see :meth:`Memory.of_agent`."""
        return AsyncAgentAccess(lambda: self.memory.of_agent(agent, user_id))

    async def retrieve_shared(
        self, query: str, agent: str, user_id: str | None = None, limit: int = 10, **filters: Any
    ) -> Hits:
        """Search the memory that another agent shares; see :meth:`Memory.retrieve_shared` for the filters."""
        return await asyncio.to_thread(self.memory.retrieve_shared, query, agent, user_id, limit, **filters)

    @property
    def conversations(self) -> AsyncView:
        """Return the conversations, with methods to await; see :attr:`Memory.conversations`."""
        return AsyncView(lambda: self.memory.conversations)

    @property
    def facts(self) -> AsyncView:
        """Return the facts, with methods to await; see :attr:`Memory.facts`."""
        return AsyncView(lambda: self.memory.facts)

    @property
    def contexts(self) -> AsyncView:
        """Return the contexts, with methods to await; see :attr:`Memory.contexts`."""
        return AsyncView(lambda: self.memory.contexts)

    @property
    def graph(self) -> AsyncView:
        """Return the graph, with methods to await; see :attr:`Memory.graph`."""
        return AsyncView(lambda: self.memory.graph)

    def session(self, session_id: str = DEFAULT_NAME) -> AsyncView:
        """Return a session whose methods are awaited; see :meth:`Memory.session`."""
        return AsyncView(lambda: self.memory.session(session_id))

    def pool(self, name: str = DEFAULT_NAME, **options: str | None) -> AsyncView:
        """Return a pool whose methods are awaited; see :meth:`Memory.pool` for the options."""
        return AsyncView(lambda: self.memory.pool(name, **options))

    def wrap(self, client: Client, **options: Any) -> Client:
        """Return a chat client with memory; see :meth:`Memory.wrap`."""
        return self.memory.wrap(client, **options)
