"""The memory of one user or agent, for programs with an event loop."""

from __future__ import annotations

import asyncio
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from memory_pipeline.client.memory import Memory
from memory_pipeline.domain.sessions import DEFAULT_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from memory_pipeline.client.wrapping import Client

P = ParamSpec("P")
R = TypeVar("R")


def _awaited(
    method: Callable[Concatenate[Memory, P], R],
) -> Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]]:
    """Return the same method to await. It has the arguments, result, errors and docstring of the original."""

    @wraps(method)
    async def call(self: AsyncMemory, /, *args: P.args, **options: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.memory, *args, **options)

    return call


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

    add = _awaited(Memory.add)
    search = _awaited(Memory.search)
    context = _awaited(Memory.context)
    list = _awaited(Memory.list)
    remember = _awaited(Memory.remember)
    history = _awaited(Memory.history)
    forget = _awaited(Memory.forget)
    run = _awaited(Memory.run)
    check = _awaited(Memory.check)
    read = _awaited(Memory.read)
    write = _awaited(Memory.write)
    stats = _awaited(Memory.stats)
    consolidate = _awaited(Memory.consolidate)
    share_with_agent = _awaited(Memory.share_with_agent)
    grant = _awaited(Memory.grant)
    accessible_by = _awaited(Memory.accessible_by)
    revoke = _awaited(Memory.revoke)
    grants = _awaited(Memory.grants)
    access_history = _awaited(Memory.access_history)
    add_to_team = _awaited(Memory.add_to_team)
    remove_from_team = _awaited(Memory.remove_from_team)
    retrieve_shared = _awaited(Memory.retrieve_shared)
    search_shared = _awaited(Memory.search_shared)

    def of_agent(self, agent: str, user_id: str | None = None) -> AsyncAgentAccess:
        """Return what another agent shares, with methods to await; see :meth:`Memory.of_agent`."""
        return AsyncAgentAccess(lambda: self.memory.of_agent(agent, user_id))

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
