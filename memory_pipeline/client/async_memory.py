"""The memory of one user or agent, for programs with an event loop."""

from __future__ import annotations

import asyncio
from copy import copy
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from memory_pipeline.client.conversations import Conversations
from memory_pipeline.client.facts import FactStore
from memory_pipeline.client.memory import Memory
from memory_pipeline.client.sharing import AgentAccess, AgentPool
from memory_pipeline.graph import Graph
from memory_pipeline.memories.contexts import Contexts
from memory_pipeline.sessions.transcript import Transcript
from memory_pipeline.sessions.views import KeyValues, ScratchPad, SessionMemory, ShortTermMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from memory_pipeline.client.wrapping import Client
    from memory_pipeline.domain.periods import When

P = ParamSpec("P")
R = TypeVar("R")


class AsyncView:
    """A part of the memory, such as a session or a pool, with methods to await."""

    def __init__(self, opened: Callable[[], Any]) -> None:
        self._opened = cache(opened)


V = TypeVar("V", bound=AsyncView)


def _awaited(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return the same method to await. It has the arguments, result, errors and docstring of the original."""

    @wraps(method)
    async def call(self: AsyncView, /, *args: P.args, **options: P.kwargs) -> R:
        return await asyncio.to_thread(lambda: getattr(self._opened(), method.__name__)(*args, **options))

    return call


def _opens(view: type[V], method: Callable[Concatenate[Any, P], object]) -> Callable[Concatenate[Any, P], V]:
    """Return a method with the arguments of the original, whose result has methods to await. It is opened at a call."""

    @wraps(method)
    def call(self: AsyncView, /, *args: P.args, **options: P.kwargs) -> V:
        return view(lambda: getattr(self._opened(), method.__name__)(*args, **options))

    return call


class _Part(Generic[V]):
    """An attribute of the same name, with methods to await."""

    def __init__(self, view: type[V]) -> None:
        self._view = view

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, of: AsyncView, owner: type) -> V:
        return self._view(lambda: getattr(of._opened(), self._name))


class AsyncObject(AsyncView):
    """A part of which any method can be awaited."""

    def __getattr__(self, name: str) -> AsyncObject:
        return AsyncObject(lambda: getattr(self._opened(), name))

    async def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the method in a thread."""
        return await asyncio.to_thread(lambda: self._opened()(*args, **options))


class AsyncConversations(AsyncView):
    """:class:`Conversations`, with methods to await."""

    save = _awaited(Conversations.save)
    get = _awaited(Conversations.get)
    search = _awaited(Conversations.search)
    list = _awaited(Conversations.list)
    prune = _awaited(Conversations.prune)


class AsyncFacts(AsyncView):
    """:class:`FactStore`, with methods to await."""

    store = _awaited(FactStore.store)
    facts_about = _awaited(FactStore.facts_about)
    update_confidence = _awaited(FactStore.update_confidence)
    forget = _awaited(FactStore.forget)


class AsyncContexts(AsyncView):
    """:class:`Contexts`, with methods to await."""

    create = _awaited(Contexts.create)
    list = _awaited(Contexts.list)
    put = _awaited(Contexts.put)
    remove = _awaited(Contexts.remove)
    get = _awaited(Contexts.get)
    entries = _awaited(Contexts.entries)
    search = _awaited(Contexts.search)
    archive = _awaited(Contexts.archive)
    unarchive = _awaited(Contexts.unarchive)
    delete = _awaited(Contexts.delete)
    snapshot = _awaited(Contexts.snapshot)
    snapshots = _awaited(Contexts.snapshots)
    restore = _awaited(Contexts.restore)


class AsyncGraph(AsyncView):
    """:class:`Graph`, with methods to await."""

    entity = _awaited(Graph.entity)
    facts = _awaited(Graph.facts)
    fact = _awaited(Graph.fact)
    facts_about = _awaited(Graph.facts_about)
    history = _awaited(Graph.history)
    neighbors = _awaited(Graph.neighbors)
    search = _awaited(Graph.search)
    query = _awaited(Graph.query)
    export = _awaited(Graph.export)
    knows = _awaited(Graph.knows)


class _AsyncKeyed(AsyncView):
    """What values by key and short-term entries have in common."""

    exists = _awaited(KeyValues.exists)
    remove = _awaited(KeyValues.remove)
    keys = _awaited(KeyValues.keys)
    clear = _awaited(KeyValues.clear)


class AsyncKeyValues(_AsyncKeyed):
    """:class:`KeyValues`, with methods to await."""

    store = _awaited(KeyValues.store)
    retrieve = _awaited(KeyValues.retrieve)
    items = _awaited(KeyValues.items)


class AsyncShortTerm(_AsyncKeyed):
    """:class:`ShortTermMemory`, with methods to await."""

    store = _awaited(ShortTermMemory.store)
    retrieve = _awaited(ShortTermMemory.retrieve)
    touch_access = _awaited(ShortTermMemory.touch_access)
    refresh_ttl = _awaited(ShortTermMemory.refresh_ttl)
    list = _awaited(ShortTermMemory.list)


class AsyncScratchPad(AsyncView):
    """:class:`ScratchPad`, with methods to await."""

    append = _awaited(ScratchPad.append)
    read = _awaited(ScratchPad.read)
    clear = _awaited(ScratchPad.clear)


class AsyncSession(AsyncKeyValues):
    """:class:`SessionMemory`, with methods to await."""

    task_state = _Part(AsyncKeyValues)
    intermediate_results = _Part(AsyncKeyValues)
    conversation_context = _Part(AsyncKeyValues)
    tool_state = _Part(AsyncKeyValues)
    told = _Part(AsyncKeyValues)
    scratch_pad = _Part(AsyncScratchPad)
    short_term = _Part(AsyncShortTerm)
    append_to_conversation = _awaited(SessionMemory.append_to_conversation)
    store_scratch_pad = _awaited(SessionMemory.store_scratch_pad)
    persist = _awaited(SessionMemory.persist)
    load = _awaited(SessionMemory.load)


class AsyncTranscript(AsyncView):
    """:class:`Transcript`, with methods to await."""

    extend = _awaited(Transcript.extend)
    read = _awaited(Transcript.read)
    pop = _awaited(Transcript.pop)
    replace = _awaited(Transcript.replace)
    clear = _awaited(Transcript.clear)


class AsyncPool(AsyncView):
    """:class:`AgentPool`, with methods to await."""

    read = _awaited(AgentPool.read)
    write = _awaited(AgentPool.write)
    merge = _awaited(AgentPool.merge)
    remove = _awaited(AgentPool.remove)
    clear = _awaited(AgentPool.clear)
    snapshot = _awaited(AgentPool.snapshot)
    statistics = _awaited(AgentPool.statistics)
    grant = _awaited(AgentPool.grant)
    revoke = _awaited(AgentPool.revoke)
    public_read = _awaited(AgentPool.public_read)
    accessible_by = _awaited(AgentPool.accessible_by)


class AsyncAgentAccess(AsyncView):
    """:class:`AgentAccess`, with methods to await."""

    reader = _Part(AsyncObject)
    writer = _Part(AsyncObject)
    contexts = _Part(AsyncContexts)
    pool = _opens(AsyncPool, AgentAccess.pool)


class AsyncMemory(AsyncView):
    """:class:`~memory_pipeline.Memory` with methods to await. The work is done in threads.

    Attributes:
        memory: the object with the same methods without ``await``.
    """

    def __init__(self, uri: str | None = None, **options: Any) -> None:
        """Open the memory in a lake; see :class:`~memory_pipeline.Memory` for the options."""
        self.memory = Memory(uri, **options)
        super().__init__(lambda: self.memory)

    conversations = _Part(AsyncConversations)
    facts = _Part(AsyncFacts)
    contexts = _Part(AsyncContexts)
    graph = _Part(AsyncGraph)
    add = _awaited(Memory.add)
    search = _awaited(Memory.search)
    context = _awaited(Memory.context)
    receipt = _awaited(Memory.receipt)
    receipts = _awaited(Memory.receipts)
    list = _awaited(Memory.list)
    remember = _awaited(Memory.remember)
    history = _awaited(Memory.history)
    import_history = _awaited(Memory.import_history)
    trace = _awaited(Memory.trace)
    correct = _awaited(Memory.correct)
    undo = _awaited(Memory.undo)
    rollback = _awaited(Memory.rollback)
    corrections = _awaited(Memory.corrections)
    forget = _awaited(Memory.forget)
    restore = _awaited(Memory.restore)
    run = _awaited(Memory.run)
    check = _awaited(Memory.check)
    read = _awaited(Memory.read)
    write = _awaited(Memory.write)
    stats = _awaited(Memory.stats)
    consolidate = _awaited(Memory.consolidate)
    share_with_agent = _awaited(Memory.share_with_agent)
    retrieve_shared = _awaited(Memory.retrieve_shared)
    search_shared = _awaited(Memory.search_shared)
    grant = _awaited(Memory.grant)
    revoke = _awaited(Memory.revoke)
    grants = _awaited(Memory.grants)
    accessible_by = _awaited(Memory.accessible_by)
    access_history = _awaited(Memory.access_history)
    add_to_team = _awaited(Memory.add_to_team)
    remove_from_team = _awaited(Memory.remove_from_team)
    of_agent = _opens(AsyncAgentAccess, Memory.of_agent)
    session = _opens(AsyncSession, Memory.session)
    transcript = _opens(AsyncTranscript, Memory.transcript)
    transcripts = _awaited(Memory.transcripts)
    pool = _opens(AsyncPool, Memory.pool)
    workflow_memory = _opens(AsyncPool, Memory.workflow_memory)

    def with_now(self, now: When) -> AsyncMemory:
        """Return this memory at a fixed time; see :meth:`Memory.with_now`."""
        return self._with(self.memory.with_now(now))

    async def as_of(self, at: When) -> AsyncMemory:
        """Return this memory as it stood at a time; see :meth:`Memory.as_of`."""
        return self._with(await asyncio.to_thread(self.memory.as_of, at))

    def _with(self, memory: Memory) -> AsyncMemory:
        found = copy(self)
        found.memory = memory
        AsyncView.__init__(found, lambda: memory)
        return found

    def wrap(self, client: Client, **options: Any) -> Client:
        """Return a chat client with memory; see :meth:`Memory.wrap`."""
        return self.memory.wrap(client, **options)
