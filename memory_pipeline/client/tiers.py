"""The tiers of a memory, from the fastest: session, short-term, long-term and shared; sessions and pools to open."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property, lru_cache, wraps
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from memory_pipeline.client.opened import clock
from memory_pipeline.client.sharing import AgentPool, SharedMemory
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.scopes import label_of, user_identity
from memory_pipeline.domain.sessions import (
    DEFAULT_NAME,
    DEFAULT_TTL,
    RUN_POOL_TYPES,
    SHARED_BY,
    TOLD,
    TRANSCRIPT,
    Container,
    EntryKind,
    micros_of,
    pool_container,
    searchable,
    tag_of,
    time_of,
)
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.errors import InputError, shown
from memory_pipeline.search.searcher import Hit
from memory_pipeline.sessions.store import SessionStore, existing_stores, session_store
from memory_pipeline.sessions.transcript import Transcript
from memory_pipeline.sessions.views import RUN_POOL_TTL, KeyValues, SessionMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set

    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.sessions import Ttl
    from memory_pipeline.sessions.store import StoredEntry
    from memory_pipeline.steps.promotion import Promotion

SESSION, SHORT_TERM, LONG_TERM, SHARED = TIERS = ("session", "short_term", "long_term", "shared")
#: Session state has at most this share of the results of a search.
_SHARE: Final = 0.5
#: A name of a durable memory has at most this many characters.
_LONGEST_NAME: Final = 100


_Method = TypeVar("_Method", bound="Callable[..., Any]")


def _or_else(earlier: str, is_earlier: Callable[[Sequence[object], Set[str]], object]) -> Callable[[_Method], _Method]:
    """Accept the arguments that a method had before: those of the method with the name `earlier`."""

    def declared(method: _Method) -> _Method:
        @wraps(method)
        def call(self: TieredMemory, *given: Any, **named: Any) -> Any:
            if is_earlier(given, named.keys()):
                return getattr(self, earlier)(*given, **named)
            return method(self, *given, **named)

        return cast("_Method", call)

    return declared


class TierValue(NamedTuple):
    """A value, and the tier that it comes from."""

    tier: str
    value: Any


class TierStatistics(NamedTuple):
    """The number of entries of a tier, their size in bytes, and the number of reads that were counted."""

    entries: int = 0
    bytes: int = 0
    accesses: int = 0


class TieredMemory(SharedMemory):
    """The part of :class:`memory_pipeline.Memory` for sessions, pools and all tiers together."""

    @cached_property
    def _sessions(self) -> SessionStore:
        return session_store(self.lake)

    @cached_property
    def _opened(self) -> Callable[[str], SessionMemory]:
        """Returns sessions by id, and keeps those that were used last: opening one takes longer than a read."""

        @lru_cache(maxsize=1_024)
        def opened(session_id: str) -> SessionMemory:
            container = Container(*self._owner, EntryKind.VALUE, session_id)
            return SessionMemory(self._sessions, self.lake.storage, container, clock)

        return opened

    @cached_property
    def _owner(self) -> tuple[str, str, str]:
        identity = "" if self.user_id is None else user_identity(label_of("user_id", self.user_id))
        return self._scope.workspace_id, self._scope.agent_id, identity

    def session(self, session_id: str = DEFAULT_NAME) -> SessionMemory:
        """Return the memory of a session: values by key, a scratch pad and short-term entries, which all expire.

        ::

            session = memory.session("s1")
            session.store("step", 3, ttl=300)

        Needs ``memory-pipeline[sessions]``. It is stored in the lake's folder, or in the database that
        MEMORY_PIPELINE_SESSIONS names.

        Args:
            session_id: the session. That of another user or agent with the same id is another session.

        Raises:
            InputError: the id is invalid.
            ConfigurationError: the lake is in a bucket and MEMORY_PIPELINE_SESSIONS is not set.
        """
        return self._opened(label_of("session_id", session_id))

    def transcript(self, session_id: str, *, ttl: Ttl | None = None) -> Transcript:
        """Return the items of a conversation as a framework of agents sent them, in order.

        They are not searched: what was said is remembered by :meth:`add`. Needs ``memory-pipeline[sessions]``.

        Args:
            session_id: the conversation. The same id of another user or agent is another conversation.
            ttl: how long items that are added live, in seconds or as a timedelta; by default until they are removed.

        Raises:
            InputError: an argument is invalid.
            ConfigurationError: as for :meth:`session`.
        """
        container = Container(*self._owner, EntryKind.VALUE, label_of("session_id", session_id), TRANSCRIPT)
        return Transcript(self._sessions.entries(container), clock, ttl)

    def transcripts(self) -> Sequence[str]:
        """Return the ids of the conversations of this user or agent that have a transcript, sorted."""
        workspace_id, agent_id, identity = self._owner
        return sorted(
            {
                container.space
                for container, _ in self._sessions.stored(workspace_id, identity, EntryKind.VALUE)
                if (container.agent_id, container.section) == (agent_id, TRANSCRIPT)
            }
        )

    def pool(
        self,
        name: str = DEFAULT_NAME,
        *,
        type: str | None = None,  # noqa: A002  # as users call it
        scope: str | None = None,
        team: str | None = None,
        task: str | None = None,
        run: str | None = None,
    ) -> AgentPool:
        """Return a pool: values that several agents of the workspace read and write, with one version.

        By default all agents that work for this user see it; without a user, all agents that work for none.

        Args:
            name: the name. Pools with another type, scope, team, task or run are other pools.
            type: ``shared``, ``agent_private``, ``team_shared`` or ``task_scoped``; for a run ``shared_memory``,
                ``tool_cache`` or ``blackboard``.
            scope: ``global`` for all agents and users of the workspace; ``account`` for all agents of this user;
                ``team``, ``agent`` or ``task``.
            team: a team that this agent keeps, for its scope or type; see :meth:`add_to_team`. Its members open the
                pool by :meth:`of_agent`.
            task: the task, for its scope or type.
            run: the run that alone sees the pool. It expires a day after its last write.

        Raises:
            InputError: an argument is invalid, missing or does not fit the others.
            ConfigurationError: as for :meth:`session`.
        """
        kind = type or ("shared" if run is None else RUN_POOL_TYPES[0])
        workspace_id, agent_id, _ = self._owner
        container = pool_container(workspace_id, agent_id, self.user_id, name, kind, scope, team, task, run)
        ttl = RUN_POOL_TTL if container.kind is EntryKind.RUN_POOL else None
        owner = self if kind == "agent_private" and scope in {None, "agent"} else None
        return AgentPool(owner, self._sessions.entries(container), clock, name, kind, ttl)

    def workflow_memory(self, run: str, name: str = DEFAULT_NAME) -> AgentPool:
        """Return the memory of a run of a workflow: the pool of the type ``shared_memory`` that it alone sees.

        It is ``pool(name, run=run)``: all agents that name the run read and write it, for the same user.
        """
        return self.pool(name, run=run)

    @_or_else("grant", lambda given, names: len(given) < 2 and names.isdisjoint({"key", "value"}))
    def share_with_agent(
        self, agent: str, key: str, value: object, *, ttl: Ttl = DEFAULT_TTL, now: When | None = None
    ) -> int:
        """Share one value with another agent of the workspace, which works for the same user; return its version.

        Only this agent reads it, by :meth:`retrieve_shared`. To share a whole memory, see :meth:`grant`.

        Args:
            agent: the agent that gets the value.
            key: a text of 1 to 256 characters without control characters.
            value: any JSON up to 1 MB; it replaces the one that was shared under the key.
            ttl: time to live, in seconds or as a timedelta, at most a day.
            now: the current time.

        Raises:
            InputError: an argument is invalid.
        """
        return self._shared_values(agent, self._owner[1]).store(key, value, ttl=ttl, now=now)

    @_or_else(
        "search_shared", lambda given, names: names - {"agent", "key", "default", "now"} or ("agent" in names and given)
    )
    def retrieve_shared(self, agent: str, key: str, default: Any = None, *, now: When | None = None) -> Any:
        """Return the value that another agent shared with this one by :meth:`share_with_agent`, or `default`.

        To search a whole memory that another agent shares, see :meth:`search_shared`.

        Raises:
            InputError: an argument is invalid.
        """
        return self._shared_values(self._owner[1], agent).retrieve(key, default, now=now)

    def _shared_values(self, agent: str, by: str) -> KeyValues:
        """Return the values that an agent got from another one."""
        workspace_id, _, identity = self._owner
        of_agent = label_of("agent", agent), identity, EntryKind.VALUE, label_of("agent", by), SHARED_BY
        return KeyValues(self._sessions.entries(Container(workspace_id, *of_agent)), clock)

    def read(
        self,
        key: str,
        *,
        tier: str | None = None,
        session_id: str = DEFAULT_NAME,
        pool: str = DEFAULT_NAME,
        now: When | None = None,
    ) -> TierValue | None:
        """Return the value of a key with the tier that has it, or None.

        The fastest tier answers: the session, its short-term entries, long-term memory, the shared pool. Long-term
        memory has what was written there by :meth:`write`, and what became of short-term entries.

        Args:
            key: the key.
            tier: ask only this tier: ``session``, ``short_term``, ``long_term`` or ``shared``.
            session_id: the session.
            pool: the name of the shared pool.
            now: the current time.

        Raises:
            InputError: an argument is invalid, or the tier is unknown.
        """
        if tier is not None:
            tiers_of([tier])
        session = self.session(session_id)
        missing = object()
        looks: dict[str, Callable[[], object]] = {
            SESSION: lambda: session.retrieve(key, missing, now=now),
            SHORT_TERM: lambda: session.short_term.retrieve(key, missing, now=now),
            LONG_TERM: lambda: self._long_term(key, missing, now),
            SHARED: lambda: self.pool(pool).read(key, missing, now=now),
        }
        for name, look in looks.items():
            if tier in {None, name} and (value := look()) is not missing:
                return TierValue(name, value)
        return None

    def write(
        self,
        key: str,
        value: object,
        *,
        tier: str = "session",
        session_id: str = DEFAULT_NAME,
        pool: str = DEFAULT_NAME,
        ttl: Ttl | None = None,
        type: str | None = None,  # noqa: A002  # as users call it
        now: When | None = None,
    ) -> None:
        """Write a value to a tier.

        Args:
            key: a text of 1 to 256 characters; for long-term memory, at most 100.
            value: any JSON up to 1 MB; for long-term memory, at most 20,000 characters.
            tier: ``session``, ``short_term``, ``long_term`` or ``shared``.
            session_id: the session.
            pool: the name of the shared pool.
            ttl: time to live, in seconds or as a timedelta. By default, values in sessions live for an hour, and a pool
                as before. Long-term memory does not expire.
            type: of a short-term entry: task_context, conversation, tool_result, reflection or observation.
            now: the current time.

        Raises:
            InputError: an argument is invalid, or the tier is unknown.
        """
        if ttl is not None and tier == LONG_TERM:
            raise InputError(f"ttl {shown(ttl)} is not accepted: the tier long_term does not expire; leave it out")
        if type is not None and tier != SHORT_TERM:
            raise InputError(f"type {shown(type)} belongs to entries of the tier short_term; leave it out")
        given: dict[str, Any] = {"ttl": ttl, "type": type, "now": now}
        given = {name: one for name, one in given.items() if one is not None}
        if tier == SESSION:
            self.session(session_id).store(key, value, **given)
        elif tier == SHORT_TERM:
            self.session(session_id).short_term.store(key, value, **given)
        elif tier == LONG_TERM:
            self.writer.set_preference(self._named, key, value, **given)
        elif tier == SHARED:
            self.pool(pool).write(key, value, **given)
        else:
            raise _unknown(tier)

    def consolidate(self, session_id: str = DEFAULT_NAME, *, now: When | None = None) -> Promotion:
        """Make durable memories of the short-term entries of a session that were read three times or more, now.

        :meth:`run` does so when they expire. Return how many were promoted, and why durable memory refused others.
        Those stay, as do entries that were read less.

        Args:
            session_id: the session.
            now: the current time.

        Raises:
            InputError: the id is invalid.
        """
        from memory_pipeline.steps.promotion import promote

        session = Container(*self._owner, EntryKind.SHORT_TERM, label_of("session_id", session_id))
        return promote(self.lake, self.lake.calendar.moment("now", now or clock()), session)

    def stats(self, *, now: When | None = None) -> dict[str, TierStatistics]:
        """Return the number of entries of each tier, their size in bytes, and how often they were read.

        Of all pools, those of teams, tasks and runs are left out.
        """
        found = {tier: TierStatistics() for tier in TIERS}
        for tier, stored in self._visible(now):
            size, known = len(stored.entry.value.encode()), found[tier]
            found[tier] = TierStatistics(known.entries + 1, known.bytes + size, known.accesses + stored.entry.accesses)
        durable = self.reader.memories.page(now=now)
        used = sum(memory.access_count for memory in durable)
        size = sum(len(memory.content.encode()) for memory in durable)
        return {**found, LONG_TERM: TierStatistics(len(durable), size, used)}

    def _search_tiers(self, query: str, limit: int, tiers: Sequence[str], now: When | None) -> list[Hit]:
        """Return the entries of session state that share words with a query, best first."""
        wanted = set(terms(query))
        found = []
        for tier, stored in self._visible(now):
            if tier in tiers and wanted:
                text = searchable(stored.entry.key, stored.entry.value)
                score = len(wanted.intersection(terms(text))) / len(wanted)
                if score:
                    found.append(self._hit(tier, stored, text, score))
        found.sort(key=attrgetter("ends_at"), reverse=True)
        found.sort(key=attrgetter("score"), reverse=True)
        return found[: limit if LONG_TERM not in tiers else max(1, int(limit * _SHARE))]

    @property
    def _named(self) -> str:
        """The owner of named durable memories: the user, or else the agent."""
        return self.user_id or self._owner[1]

    def _long_term(self, key: str, missing: object, now: When | None) -> object:
        if len(key) <= _LONGEST_NAME:
            value = self.reader.memories.preference(self._named, key, missing, now=now)
            if value is not missing:
                return value
        for promoted in self.reader.memories.list(tag=tag_of(key), limit=1, now=now):
            return promoted.content if promoted.value is None else json.loads(promoted.value)
        return missing

    def _visible(self, now: When | None) -> Iterator[tuple[str, StoredEntry]]:
        """Yield the entries of all sessions, and of the pools that need neither team nor task nor run to be found."""
        at = micros_of(clock() if now is None else self.lake.calendar.moment("now", now))
        workspace_id, agent_id, identity = self._owner
        owners = [(identity, None), *([("", EntryKind.POOL)] if identity else [])]
        for store in existing_stores(self.lake):
            for stored in chain.from_iterable(store.stored(workspace_id, *owner) for owner in owners):
                container, entry = stored
                if entry.expires_at is not None and entry.expires_at <= at:
                    continue
                if container.kind is EntryKind.POOL:
                    _, scope, *named = json.loads(container.section)
                    of_user = container.identity == identity or scope == "global"
                    if not named and of_user and container.agent_id in {"", agent_id}:
                        yield SHARED, stored
                elif container.section in {TOLD, TRANSCRIPT}:  # copies of long-term memory
                    continue
                elif container.agent_id == agent_id and container.kind is EntryKind.VALUE:
                    yield SHARED if container.section == SHARED_BY else SESSION, stored
                elif container.agent_id == agent_id and container.kind is EntryKind.SHORT_TERM:
                    yield SHORT_TERM, stored

    def _hit(self, tier: str, stored: StoredEntry, text: str, score: float) -> Hit:
        container, entry = stored
        calendar, at = self.reader.local_calendar, time_of(entry.updated_at)
        return Hit(
            id=entry.id,
            grain="session",
            period=hour_of(at).key,
            kind=tier,
            content=text,
            starts_at=time_of(entry.created_at),
            ends_at=at,
            date=calendar.day_of(at),
            source_ids=(),
            conversation_id=container.space if tier != SHARED else None,
            score=round(score, 4),
            identity=container.identity,
        )


def tiers_of(value: str | Iterable[str]) -> tuple[str, ...]:
    """Return the tiers that an argument names; ``all`` is all of them.

    Raises:
        InputError: a tier is unknown, or none is named.
    """
    if value == "all":
        return TIERS
    if not isinstance(value, Iterable):
        raise _unknown(value)
    named = (value,) if isinstance(value, str) else tuple(value)
    for one in named:
        if one not in TIERS:
            raise _unknown(one)
    if not named:
        raise InputError(f"tiers is empty; accepted: {', '.join(TIERS)}, or all")
    return named


def _unknown(tier: object) -> InputError:
    return InputError(f"tier {shown(tier)} is unknown; accepted: {', '.join(TIERS)}")
