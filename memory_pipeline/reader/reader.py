"""Read memory: search, recall, inject context, and trace a summary back to its messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Final, Literal, Unpack, overload

from memory_pipeline.domain.facts import CONTEXTS, TURNS
from memory_pipeline.domain.identity import MEMORY, NOT_GRAINS, Reference
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Calendar, Grain, Period
from memory_pipeline.domain.scopes import Scope, optional_label
from memory_pipeline.domain.summaries import summary_id
from memory_pipeline.domain.values import count_of, share_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.filters import Filter
from memory_pipeline.models.factory import reading_embedder
from memory_pipeline.overlay import one_read
from memory_pipeline.parameters import Within
from memory_pipeline.reader.all_users import AllUsersReader
from memory_pipeline.reader.granted_scopes import GrantedScopes
from memory_pipeline.reader.packing.sources import MemorySources
from memory_pipeline.reader.prompts import PromptReader
from memory_pipeline.reader.read_receipts import MAX_RECEIPTS, ReadReceipt, receipt_of
from memory_pipeline.reader.scope_states import ScopeStates
from memory_pipeline.search.arguments import (
    MAX_OFFSET,
    MAX_RESULTS,
    filter_of,
    sources_of,
    validate_query,
)
from memory_pipeline.search.index_overlay import DEFAULT_ROWS
from memory_pipeline.search.searcher import Hit, Hits
from memory_pipeline.telemetry import observed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from os import PathLike

    from memory_pipeline.domain.fields import FactFilters
    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.graph import Graph
    from memory_pipeline.memories import HotIndex
    from memory_pipeline.memories.search import MemorySearch, RecalledMemory
    from memory_pipeline.reader.lineage import Node
    from memory_pipeline.search.copies import Block

#: Most entries of :meth:`MemoryReader.newest`.
MAX_NEWEST: Final = 1_000_000


class MemoryReader(PromptReader):
    """Reads the memory of one agent, or of several scopes. It opens no path of any other scope.

    New messages are found at once: pending journal entries are searched together with the index. Safe to use from
    several threads. Keep a reader open: it answers faster than a new one. Create it with :meth:`open`.

    Attributes:
        user_id: the user for whom it reads, or None.
        local_calendar: the calendar of the reader's time zone, for the days that are shown, and those in arguments and
            questions. Periods of summaries are those of :attr:`calendar`.
    """

    def __init__(
        self,
        lake: Lake,
        scope: Scope,
        embedder: Embedder,
        *,
        resident_rows: int = DEFAULT_ROWS,
        scopes: Callable[[], Sequence[Scope]] | None = None,
        user_id: str | None = None,
        timezone: str | None = None,
    ) -> None:
        """Read the scope `scope`, or those that `scopes` returns at each call, `scope` among them first.

        `user_id` is the user for whom to read: by default also the scopes of the user and of the user's groups. In the
        graph, the entities ``user:ID`` and ``User`` are one. `timezone` is the reader's, by default the lake's.
        """
        self.local_calendar = lake.calendar if timezone is None else Calendar(timezone)
        self._lake = lake
        self._scope = scope
        #: The agent that reads. It needs a grant for the memory of another one.
        self._asking = scope.own
        self._embedder = embedder
        self._resident_rows = resident_rows
        self.user_id = optional_label("user_id", user_id)
        if scopes is None:
            scopes = (
                (lambda: (scope,))
                if user_id is None
                else lambda: lake.scopes_for(scope.workspace_id, scope.agent_id, user_id)
            )
        self._states = ScopeStates(lake, scopes, embedder, resident_rows, self.local_calendar)
        own = self._states.own_name(user_id)
        self._searcher = self._states.searcher(own)
        self._graph = self._states.graph(user_id)
        self._memories = self._states.memories(self._graph, lambda: self._reading_models.selector, own, self.user_id)
        self._sources = MemorySources(self._searcher, self._states, self._graph, self._memories)

    @overload
    @classmethod
    def open(
        cls, uri: str | PathLike[str], *, workspace_id: str, agent_id: str, user_id: None = None, users: Literal["all"]
    ) -> AllUsersReader: ...

    @overload
    @classmethod
    def open(
        cls,
        uri: str | PathLike[str],
        *,
        workspace_id: str,
        agent_id: str,
        user_id: str | None = None,
        users: None = None,
        on_behalf_of: str | None = None,
        embedder: Embedder | None = None,
        resident_rows: int = DEFAULT_ROWS,
        timezone: str | None = None,
    ) -> MemoryReader: ...

    @classmethod
    def open(
        cls,
        uri: str | PathLike[str],
        *,
        workspace_id: str,
        agent_id: str,
        user_id: str | None = None,
        users: Literal["all"] | None = None,
        on_behalf_of: str | None = None,
        embedder: Embedder | None = None,
        resident_rows: int = DEFAULT_ROWS,
        timezone: str | None = None,
    ) -> MemoryReader | AllUsersReader:
        """Open the memory of one agent in the lake at `uri`. The memory of an unknown agent is empty.

        The reader sees the agent's own memory and, with `user_id`, that of the user and of the user's groups.

        Args:
            uri: a folder or ``s3://bucket/prefix``.
            workspace_id: the agent's workspace.
            agent_id: the agent.
            user_id: the user for whom to read.
            users: ``"all"`` in place of `user_id`, for operators: a reader that only lists, of all users; see
                :class:`~memory_pipeline.reader.all_users.AllUsersReader`.
            on_behalf_of: another agent of the workspace, for which it reads; see :meth:`of_agent`.
            embedder: the embedder that the pipeline uses; by default the one in the lake's config/workspaces.yaml.
            resident_rows: rows of the index to hold in memory; larger tables are searched in a mapped file, or on disk
                until a thread has made it.
            timezone: IANA name of the time zone in which days are shown, and "yesterday" in a question is meant; by
                default the agent's in the configuration, or the lake's.

        Raises:
            InputError: an id or `users` is invalid.
            ConfigurationError: the address, the time zone or the lake's configuration is invalid.
        """
        lake = Lake(uri)
        scope = Scope(workspace_id, agent_id)
        if users is not None:
            if users != "all" or user_id is not None or on_behalf_of is not None:
                raise InputError(
                    f"users {shown(users)} is not accepted; expected 'all' without user_id and on_behalf_of, or a "
                    "user_id"
                )
            return AllUsersReader(lake, scope)
        embedder = embedder or reading_embedder(lake.configuration(), lambda: datetime.now(UTC))
        asking = scope if on_behalf_of is None else Scope(workspace_id, on_behalf_of)
        zone = timezone or lake.timezone_of(asking)
        if asking != scope:
            return cls(lake, asking, embedder, resident_rows=resident_rows, timezone=zone).of_agent(agent_id, user_id)
        return cls(lake, scope, embedder, resident_rows=resident_rows, user_id=user_id, timezone=zone)

    def for_user(self, user_id: str) -> MemoryReader:
        """Return a reader of the same agent for a user. It shares the lake and the embedder.

        Raises:
            InputError: `user_id` is invalid, or this reader is for another user.
        """
        if self.user_id not in {None, user_id}:
            raise InputError(f"this reader is for user {shown(self.user_id)}, not {shown(user_id)}; open another one")
        if self._asking != self._scope.own:
            return self.of_agent(self._scope.agent_id, user_id)
        rows = self._resident_rows
        zone = self.local_calendar.timezone
        return MemoryReader(self._lake, self._scope, self._embedder, resident_rows=rows, user_id=user_id, timezone=zone)

    def of_agent(self, agent_id: str, user_id: str | None = None) -> MemoryReader:
        """Return a reader of the memory that another agent of the workspace shares with this one.

        It reads what is granted at each read: the other agent's own memory and, with `user_id`, that of the user. It
        never reads the memory of a group. If nothing is granted, or there is no such agent, its methods raise
        :class:`~memory_pipeline.errors.AccessDeniedError`.

        Raises:
            InputError: an id is invalid.
        """
        return self._of_agent(Scope(self._scope.workspace_id, agent_id), optional_label("user_id", user_id))

    @cached_property
    def _of_agent(self) -> Callable[[Scope, str | None], MemoryReader]:
        """Returns readers of other agents, and keeps those that were used last."""

        @lru_cache(maxsize=16)
        def opened(owner: Scope, user_id: str | None) -> MemoryReader:
            granted = GrantedScopes(self._lake, self._asking, owner, user_id)
            rows, zone = self._resident_rows, self.local_calendar.timezone
            reader = MemoryReader(
                self._lake, owner, self._embedder, resident_rows=rows, scopes=granted, user_id=user_id, timezone=zone
            )
            reader._asking = self._asking
            for target, prefix in ((reader, ""), (reader.graph, "graph."), (reader.memories, "memories.")):
                granted.log(target, prefix)
            return reader

        return opened

    @observed("search_memory")
    @one_read()
    def search_memory(
        self,
        grain: Grain | str = Grain.WORKING,
        minimum_days_ago: float = 0,
        maximum_days_ago: float = 365,
        max_results: int = 10,
        query: str | None = None,
        *,
        minimum_score: float | None = None,
        offset: int = 0,
        explain: bool = False,
        now: When | None = None,
        sources: str | Collection[str] = (TURNS,),
        query_text: str | None = None,
        **filters: Unpack[FactFilters],
    ) -> Hits:
        """Return the facts or summaries of one grain in a range of days.

        With a query, the best matches by words and vectors come first. If the embedder fails, only words are compared,
        and a warning is logged. Without a query, the newest come first; at the working grain these are messages, and
        facts of messages that retention has deleted.

        All filters are combined with AND and apply before `max_results`. A summary's age counts from the end of its
        period, a fact's age from when it was said; both ends of the range are included. A message gives at most one
        hit.

        Args:
            grain: working for what was said; daily, weekly, monthly, quarterly or yearly for summaries.
            minimum_days_ago: age in days of the newest result.
            maximum_days_ago: age in days of the oldest result, at most a century.
            max_results: maximum number of results, 1 to 100.
            query: text to search for, at most 10,000 characters; without it, the newest are returned.
            minimum_score: leave out hits with a lower score, 0 to 1; by default none.
            offset: hits to skip, at most 10,000; 10 is the second page of 10.
            explain: add to each hit the parts of its score.
            now: the time from which ages count, by default the current time. What was said later is left out, and
                summaries of periods that end later. Without `now`, messages of clocks up to a day ahead are found.
            sources: some of ``turns`` (what was said, the default), ``memories`` (durable memories) and ``contexts``
                (their entries), or ``all``. Hits of all sources are ranked in one list. If a message and the memory
                made of it both match, the message is returned. Memories and entries need a query and the working grain.
                The range of days does not apply to them, and none is found with `kind` or `conversation_id`.
            query_text: the earlier name of `query`.
            filters: see :class:`~memory_pipeline.domain.fields.FactFilters`. ``since`` takes the place of
                `maximum_days_ago`, and ``until`` that of `minimum_days_ago`.

        Raises:
            InputError: an argument is invalid.
            ConfigurationError: the index was built with another embedder than the reader's.
        """
        grain = Grain.parse(grain)
        at = self._lake.calendar.moment("now", _clock(now))
        where = filter_of(self._calendar_of(grain), now, filters, grain, minimum_days_ago, maximum_days_ago)
        floor = share_of("minimum_score", minimum_score, 0.0)
        count_of("max_results", max_results, 1, MAX_RESULTS)
        limit = count_of("offset", offset, 0, MAX_OFFSET) + max_results
        text = validate_query(query, query_text)
        wanted = sources_of(sources) if grain is Grain.WORKING else frozenset([TURNS])
        if text is None:
            if TURNS not in wanted:
                raise InputError("sources without turns need a query; to list durable memories, use memories.list")
            found = self._searcher.newest(grain, where, limit)
        else:
            memories = (
                wanted - {TURNS} if grain is Grain.WORKING and where.kind is where.conversation_id is None else ()
            )
            undated = replace(where, since=None, until=None, ends_since=None, ends_until=None)
            entries = None if len(memories) > 1 else CONTEXTS in memories

            def beside() -> Sequence[Block]:
                return self._memories.blocks(undated, entries=entries, now=None if now is None else at)

            found = self._searcher.best(
                grain,
                where,
                limit,
                text,
                now=at,
                explain=explain,
                beside=beside if memories else tuple,
                with_turns=TURNS in wanted,
            )
        calendar, chosen, score = self._calendar_of(grain), found.choices[offset:], found.calibration
        hits = [
            Hit.of(grain, choice, calendar, score(choice.score) if score else 0.0, self.user_id) for choice in chosen
        ]
        if score:
            hits = [hit for hit in hits if hit.score >= floor]
        return Hits(hits, found.total, offset, found.older)

    def newest(
        self,
        grain: Grain | str,
        count: Annotated[int, Within(1, MAX_NEWEST)] = 10,
        *,
        since: When | None = None,
        until: When | None = None,
    ) -> list[Hit]:
        """Return the newest `count` facts or summaries of a grain; see :meth:`search_memory`. Ties are sorted by id.

        Raises:
            InputError: an argument is invalid.
        """
        count_of("count", count, 1, MAX_NEWEST)
        grain, calendar = Grain.parse(grain), self.local_calendar
        where = filter_of(calendar, None, {"since": since, "until": until}, grain)
        found = self._searcher.newest(grain, where, count)
        return [Hit.of(grain, one, self._calendar_of(grain), reader=self.user_id) for one in found.choices]

    @property
    def scope(self) -> Scope:
        """The workspace and agent."""
        return self._scope

    @property
    def scopes(self) -> Sequence[Scope]:
        """The scopes that it reads now: the agent's own memory and, for a user, the user's and that of the groups."""
        return self._states.scopes()

    def open_tables(self) -> None:
        """Open the tables that it reads from, unless all that it needs of them is kept in files.

        Raises:
            DamagedLanceTableError: one is lost, or another version of the package wrote it; a run rebuilds it.
        """
        lake = self._lake
        for scope in self.scopes if lake.exists else ():
            index = lake.indices.of(self._embedder)
            is_cached = index.is_cached(scope)
            for rows in (index, lake.graph_rows, lake.events, lake.memory_rows):
                if is_cached:
                    rows.version(scope)  # it is there, and this version of the package has read from it
                else:
                    rows.open(scope)

    @property
    def calendar(self) -> Calendar:
        """The lake's calendar. Its time zone decides when the periods of summaries begin."""
        return self._lake.calendar

    def _calendar_of(self, grain: Grain) -> Calendar:
        return self.local_calendar if grain is Grain.WORKING else self.calendar

    @property
    def graph(self) -> Graph:
        """The agent's graph: facts, each with the time in which it holds."""
        return self._graph

    @property
    def memories(self) -> MemorySearch:
        """The agent's durable memories with their history: facts, instructions, preferences and so on."""
        return self._memories

    def hot_index(self, *, now: When | None = None) -> HotIndex:
        """Return the hot index: one line for each of the most important durable memories, for a system prompt.

        `now` selects the last consolidation before this time; by default the newest.
        """
        return self._memories.hot_index(now=now)

    def search_archive(
        self,
        query: str,
        max_results: int = 10,
        *,
        exclude: Collection[str] = (),
        now: When | None = None,
    ) -> list[RecalledMemory]:
        """Return cold memories, which no other search finds; see :meth:`MemorySearch.search_archive`."""
        return self._memories.search_archive(query, max_results, exclude=exclude, now=now)

    def get(self, id: str, *, now: When | None = None) -> Hit | None:  # noqa: A002  # as in expand
        """Return a fact, a summary or a durable memory by its id, or None. The id of a message returns its turn.

        Ignore everything after `now`, by default the current time.

        Raises:
            InputError: `id` is not an id.
        """
        reference = Reference.parse(id)
        if reference.what == MEMORY:
            memory = self._memories.get(id, now=now)
            identity = self._memories.identity_of(id, now=now)
            return None if memory is None else Hit.of_memory(id, memory, self.local_calendar, identity, self.user_id)
        grain = Grain.WORKING if reference.what in NOT_GRAINS else Grain(reference.what)
        start, end = self._lake.calendar.bounds(reference.period)
        where = Filter(since=start, until=end, ends_until=self._lake.calendar.moment("now", _clock(now)))
        found = self._searcher.find(id, grain, where)
        return None if found is None else Hit.of(grain, found, self._calendar_of(grain), reader=self.user_id)

    def summaries_of(self, grain: Grain | str, period: str, *, now: When | None = None) -> list[Hit]:
        """Return the summaries of one period: of the agent, of the user and of the user's groups, as there are any.

        Args:
            grain: ``daily``, ``weekly``, ``monthly``, ``quarterly`` or ``yearly``.
            period: its key: ``2024-01-15``, ``2024-W03``, ``2024-01``, ``2024-Q1`` or ``2024``.
            now: ignore everything after this time; by default the current time.

        Raises:
            InputError: the grain or the period is invalid.
        """
        key = Period.parse(grain, period)
        if key.grain not in SUMMARY_GRAINS:
            raise InputError(f"grain {shown(grain)} has no summaries; accepted: {', '.join(SUMMARY_GRAINS)}")
        found = (self.get(summary_id(scope, key), now=now) for scope in self.scopes)
        return [hit for hit in found if hit is not None]

    def receipt(self, id: str) -> ReadReceipt | None:  # noqa: A002  # as in get
        """Return what an earlier read handed to a model, and what is known of it now; None for an unknown receipt.

        `context`, `inject_knowledge` and `recall` write a receipt if they return anything. A reader finds those of the
        reads for the same agent and user. They are kept for 30 days, or as long as ``receipts`` in the configuration
        says. An item that was erased, or has expired, has no text any more. A killed process loses the receipts of its
        last seconds.

        Args:
            id: the `receipt_id` of what the read returned.
        """
        self._require_grant()
        row = self._lake.read_receipts.find(str(id)) if self._lake.exists else None
        if row is None or (row["scope"], row["asking_agent"]) != (self._own_scope.key, self._asking.agent_id):
            return None
        return receipt_of(row, self, self._lake)

    def receipts(
        self, *, conversation_id: str | None = None, limit: Annotated[int, Within(1, MAX_RECEIPTS)] = 100
    ) -> list[str]:
        """Return the ids of the newest receipts of reads, newest first; see :meth:`receipt`.

        Args:
            conversation_id: only those for a conversation, such as those of a wrapped client.
            limit: 1 to 10,000.

        Raises:
            InputError: `limit` is out of range.
        """
        count_of("limit", limit, 1, MAX_RECEIPTS)
        self._require_grant()
        if not self._lake.exists:
            return []
        rows = self._lake.read_receipts.newest(self._own_scope, self._asking.agent_id, conversation_id, limit)
        return [row["id"] for row in rows]

    def expand(self, id: str) -> Node:  # noqa: A002  # the usual name in stores
        """Return a summary, a fact or a message with all its sources, down to the messages.

        The id ``{summary id}#{n}`` follows only the summary's n-th point.

        Raises:
            InputError: `id` is not an id, or this memory has no such item.
        """
        from memory_pipeline.reader.lineage import expand

        return expand(self._lake, self._states.scopes(), id)


def _clock(now: When | None) -> When:
    return datetime.now(UTC) if now is None else now
