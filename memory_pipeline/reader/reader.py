"""Read memory: search, recall, inject context, and trace a summary back to its messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal, overload

from memory_pipeline.domain.capture import Capture, capture_in
from memory_pipeline.domain.identity import MEMORY, NOT_GRAINS, Reference
from memory_pipeline.domain.periods import Calendar, Grain
from memory_pipeline.domain.scopes import Scope, optional_label
from memory_pipeline.domain.text.calibration import DEFAULT_FLOOR
from memory_pipeline.errors import InputError, shown
from memory_pipeline.graph import MAX_HOPS
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.filters import Filter
from memory_pipeline.memories.search import CHOSEN, MemorySearch
from memory_pipeline.models.factory import reading_embedder, reading_models
from memory_pipeline.overlay import one_read
from memory_pipeline.reader.all_users import AllUsersReader
from memory_pipeline.reader.granted_scopes import GrantedScopes
from memory_pipeline.reader.packing.injection import MAX_PARTS, document_parts, inject
from memory_pipeline.reader.packing.items import InjectedContext
from memory_pipeline.reader.packing.recall import choose, fitting
from memory_pipeline.reader.packing.sources import MemorySources, RecallRequest
from memory_pipeline.reader.proactive_recall import proactive_recall
from memory_pipeline.reader.scope_states import ScopeStates
from memory_pipeline.search.arguments import (
    MAX_DAYS_AGO,
    MAX_OFFSET,
    MAX_RESULTS,
    MAX_TOKENS,
    count_of,
    filter_of,
    query_in,
    share_of,
    validate_ids,
    validate_query,
)
from memory_pipeline.search.candidates import DEFAULT_ROWS
from memory_pipeline.search.searcher import Hit, Hits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.facts import FactKind
    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.graph import Graph
    from memory_pipeline.memories import HotIndex
    from memory_pipeline.memories.search import RecalledMemory
    from memory_pipeline.models.factory import ReadingModels
    from memory_pipeline.reader.lineage import Node
    from memory_pipeline.reader.packing.items import Recalled, Recollection

_log = logging.getLogger(__name__)

#: Most items of a context.
_MOST_ITEMS = 1_000


class MemoryReader:
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
        self._searcher = self._states.searcher()
        self._graph = self._states.graph(user_id)
        self._memories = self._states.memories(self._graph, lambda: self._reading_models.selector)
        self._sources = MemorySources(self._searcher, self._states, self._graph, self._memories)

    @overload
    @classmethod
    def open(
        cls, uri: str, *, workspace_id: str, agent_id: str, user_id: None = None, users: Literal["all"]
    ) -> AllUsersReader: ...

    @overload
    @classmethod
    def open(
        cls,
        uri: str,
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
        uri: str,
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
            resident_rows: rows of the index to hold in memory; larger tables are searched on disk.
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

    @one_read()
    def search_memory(
        self,
        grain: Grain | str = Grain.WORKING,
        minimum_days_ago: float = 0,
        maximum_days_ago: float = 365,
        max_results: int = 10,
        query: str | None = None,
        *,
        since: When | None = None,
        until: When | None = None,
        person: str | None = None,
        kind: FactKind | str | None = None,
        conversation_id: str | None = None,
        tag: str | None = None,
        minimum_importance: float | None = None,
        minimum_score: float | None = None,
        offset: int = 0,
        explain: bool = False,
        now: When | None = None,
        query_text: str | None = None,
    ) -> Hits:
        """Return the facts or summaries of one grain in a range of days.

        With a query, the best matches by words and vectors come first. If the embedder fails, only words are compared,
        and a warning is logged. Without a query, the newest come first; at the working grain these are messages, and
        facts of messages that retention has deleted.

        All filters are combined with AND and apply before `max_results`. A summary's age counts from the end of its
        period, a fact's age from when it was said; both ends of the range are included. A message gives at most one
        hit.

        Args:
            grain: working, daily, weekly, monthly, quarterly or yearly.
            minimum_days_ago: age in days of the newest result.
            maximum_days_ago: age in days of the oldest result, at most a century.
            max_results: 1 to 100.
            query: at most 10,000 characters; None or blank returns the newest.
            since: time of the oldest result, in place of `maximum_days_ago`: a date in the reader's time zone, or a
                time with its zone, also as ISO 8601 text. Summaries match if their period overlaps the range.
            until: time of the newest result, in place of `minimum_days_ago`; a date includes its whole day.
            person: the speaker, or a name in the text; one word of the name is enough. Case and accents are ignored.
            kind: kind of fact: turn, statement, event, plan, preference, instruction or gist.
            conversation_id: the conversation that a fact comes from.
            tag: a tag of that conversation.
            minimum_importance: 0 to 1.
            minimum_score: leave out hits with a lower score, 0 to 1; by default 0.11, which nothing reaches if the
                query is about something else than this memory. 0 returns the best hits however badly they fit.
            offset: hits to skip, at most 10,000; 10 is the second page of 10.
            explain: add to each hit the parts of its score.
            now: the time from which ages count, by default the current time. Summaries of periods that end later are
                left out.
            query_text: the earlier name of `query`.

        Raises:
            InputError: an argument is invalid.
            ConfigurationError: the index was built with another embedder than the reader's.
        """
        grain = Grain.parse(grain)
        at = self._lake.calendar.moment("now", _clock(now))
        where = filter_of(
            self._calendar_of(grain),
            at,
            minimum_days_ago,
            maximum_days_ago,
            since,
            until,
            grain=grain,
            kind=kind,
            labels={"person": person, "conversation_id": conversation_id, "tag": tag},
            minimum_importance=minimum_importance,
        )
        floor = share_of("minimum_score", minimum_score, DEFAULT_FLOOR)
        count_of("max_results", max_results, 1, MAX_RESULTS)
        limit = count_of("offset", offset, 0, MAX_OFFSET) + max_results
        text = validate_query(query, query_text)
        if text is None:
            found = self._searcher.newest(grain, where, limit)
        else:
            found = self._searcher.best(grain, where, limit, text, now=at, explain=explain)
        calendar, score = self._calendar_of(grain), found.calibration
        hits = [
            Hit.of(grain, choice, calendar, score(choice.score) if score else 0.0) for choice in found.choices[offset:]
        ]
        if score:
            hits = [hit for hit in hits if hit.score >= floor]
        return Hits(hits, found.total, offset, found.older)

    def newest(
        self, grain: Grain | str, count: int, *, since: When | None = None, until: When | None = None
    ) -> list[Hit]:
        """Return the newest `count` facts or summaries of a grain; see :meth:`search_memory`. Ties are sorted by id.

        Raises:
            InputError: an argument is invalid.
        """
        grain, calendar = Grain.parse(grain), self.local_calendar
        where = filter_of(
            calendar, _clock(None), 0, MAX_DAYS_AGO, since, until, grain=grain, kind=None, labels={},
            minimum_importance=None,
        )  # fmt: skip
        found = self._searcher.newest(grain, where, count)
        return [Hit.of(grain, choice, self._calendar_of(grain)) for choice in found.choices]

    @one_read()
    def recall(
        self,
        query: str,
        max_tokens: int = 1_000,
        *,
        since: When | None = None,
        until: When | None = None,
        person: str | None = None,
        tag: str | None = None,
        minimum_importance: float | None = None,
        minimum_score: float | None = None,
        exclude: Collection[str] = (),
        hops: int = 1,
        now: When | None = None,
    ) -> Recollection:
        """Return what memory holds about a question, best first, within one token budget.

        Facts, points of summaries, and up to five matching durable memories, each with graph facts around the entities
        it names, are chosen by their score, less the price of their tokens. Nothing is repeated: a summary is never
        returned with one of its facts, nor a durable memory with the whole messages it comes from. Its text lists
        facts in the order of time. A sentence that repeats a revoked memory word for word is left out. The same memory
        gives the same answer.

        Args:
            query: at most 10,000 characters.
            max_tokens: budget of the answer's text, estimated at 4 bytes a token; at most a million.
            since: time of the oldest result: a date in the reader's time zone, or a time with its zone, also as ISO
                8601 text. The day of a summary's point must be in the range, or its whole period if it has no day.
            until: time of the newest result; a date includes its whole day.
            person: the speaker, or a name in the text.
            tag: a tag of a conversation or of a durable memory; summaries have none.
            minimum_importance: 0 to 1.
            minimum_score: leave out facts, points and durable memories with a lower score, 0 to 1; by default 0.11, as
                in :meth:`search_memory`.
            exclude: ids of items that were shown before. They are left out in their other forms too.
            hops: steps in the graph from the entities of a durable memory, 0 (no graph facts) to 3.
            now: ignore everything after this time; by default the current time.

        Raises:
            InputError: an argument is invalid.
            ConfigurationError: the index was built with another embedder than the reader's.
        """
        text = validate_query(query)
        if text is None:
            raise InputError("query is blank; expected a question. To list the newest memories, search without a query")
        count_of("max_tokens", max_tokens, 1, MAX_TOKENS)
        at = self._lake.calendar.moment("now", _clock(now))
        where = filter_of(
            self.local_calendar, at, 0, MAX_DAYS_AGO, since, until, kind=None, labels={"person": person, "tag": tag},
            minimum_importance=minimum_importance,
        )  # fmt: skip
        count_of("hops", hops, 0, MAX_HOPS)
        floor = share_of("minimum_score", minimum_score, DEFAULT_FLOOR)
        request = RecallRequest(where, at, None if now is None else at, validate_ids("exclude", exclude), floor)
        found = self._sources.candidates(text, max_tokens, request)
        durable = self._sources.durable(text, CHOSEN, request, found, hops)
        said, lasting = fitting([*found.facts, *found.points], durable, floor)
        return choose(said, (), self.calendar, max_tokens, lasting)

    @one_read()
    def imagine(
        self,
        messages: Sequence[object],
        max_results: int = CHOSEN,
        *,
        exclude: Collection[str] = (),
        now: When | None = None,
    ) -> list[RecalledMemory]:
        """Return durable memories that a conversation may need, without a question.

        Up to five queries are made from the last 20 messages, by a model if one is configured. Permanent memories are
        found even if no query names them. Never raises: an error is logged, and the result is empty.

        Args:
            messages: texts, or messages with ``content`` and optionally ``name`` and ``role``, oldest first. Messages
                of OpenAI's or LiteLLM's chat API are accepted unchanged.
            max_results: 1 to 100.
            exclude: ids of memories that were shown before.
            now: ignore everything after this time, and count ages from it; by default the current time.
        """
        try:
            self._require_grant()
            limit, excluded = count_of("max_results", max_results, 1, MAX_RESULTS), validate_ids("exclude", exclude)
            as_of = None if now is None else self._lake.calendar.moment("now", now)
            return proactive_recall(self._memories, self._reading_models.imaginer, messages, excluded, limit, as_of)
        except Exception as error:  # noqa: BLE001  # no caller asked for these memories, so no call may fail for them
            _log.warning("proactive recall failed: %s: %s", type(error).__name__, error)
            return []

    @one_read()
    def inject_knowledge(
        self,
        query: str,
        documents: Sequence[object] = (),
        *,
        max_results: int | None = None,
        max_tokens: int | None = None,
        speaker: str | None = None,
        hops: int = 1,
        minimum_score: float | None = None,
        exclude: Collection[str] = (),
        conversation: Mapping[str, object] | None = None,
        now: When | None = None,
    ) -> InjectedContext:
        """Return context for a prompt: durable memories, facts, points of summaries, graph facts, and documents.

        The block is marked as recalled, and the marked lines are removed when the block is written back with a
        conversation. An error in one source is reported in `troubles`; the other sources still answer. The section
        ``injection`` of config/workspaces.yaml sets the number of items, the budget, and whether a model makes queries
        and sorts results. It can also switch injection off.

        Args:
            query: the user's message or question. Of more than 10,000 characters, the first and last 5,000 are used.
            documents: your own snippets, best first: texts, mappings with ``content`` and optionally ``id``, or
                :class:`~memory_pipeline.reader.packing.items.Document`.
            max_results: number of items, 1 to 50; by default from the configuration (5).
            max_tokens: budget of the block, estimated at 4 bytes a token, 50 to a million; by default from the
                configuration (1,000).
            speaker: the person who asks; "I" in the query is this name.
            hops: steps in the graph from the entities in the query, 0 (no graph facts) to 3.
            minimum_score: leave out facts, points and durable memories with a lower score, 0 to 1; by default from the
                configuration (0.11).
            exclude: ids of items that were shown before. They are left out in their other forms too.
            conversation: the conversation of the query, with ``conversation_id``, ``tags``, ``source`` or ``capture``
                as for a write. If its capture is none, nothing is returned.
            now: ignore everything after this time; by default the current time.

        Raises:
            InputError: an argument is invalid.
        """
        if max_results is not None:
            count_of("max_results", max_results, 1, MAX_PARTS)
        return self._injected(
            query, document_parts(documents), max_results, max_tokens, exclude, conversation, now, speaker, hops,
            minimum_score,
        )  # fmt: skip

    @one_read()
    def context(
        self,
        query: str = "",
        max_tokens: int = 1_000,
        *,
        conversation: Mapping[str, object] | None = None,
        exclude: Collection[str] = (),
        now: When | None = None,
    ) -> InjectedContext:
        """Return the context for a prompt: what fits the query, as many items as the budget holds.

        Lines of the hot index fill the rest. The other arguments are those of :meth:`inject_knowledge`.

        Args:
            query: the user's message or question; blank for the hot index alone.
            max_tokens: budget of the block, 50 to a million.
            conversation: the conversation of the query.
            exclude: ids of items that were shown before.
            now: ignore everything after this time; by default the current time.

        Raises:
            InputError: an argument is invalid.
        """
        return self._injected(query, (), _MOST_ITEMS, max_tokens, exclude, conversation, now, is_filled=True)

    def _injected(
        self,
        query: str,
        documents: Sequence[Recalled],
        most: int | None,
        max_tokens: int | None,
        exclude: Collection[str],
        conversation: Mapping[str, object] | None,
        now: When | None,
        speaker: str | None = None,
        hops: int = 1,
        minimum_score: float | None = None,
        *,
        is_filled: bool = False,
    ) -> InjectedContext:
        """Return the context for a prompt; if `is_filled`, with lines of the hot index."""
        self._require_grant()
        if conversation is not None and self._capture_of(conversation) is Capture.NONE:
            return InjectedContext(
                left_out=len(documents), troubles={"injection": "capture of the conversation is none"}
            )
        instant = self._lake.calendar.moment("now", _clock(now))
        excluded = validate_ids("exclude", exclude)
        optional_label("speaker", speaker)
        count_of("hops", hops, 0, MAX_HOPS)
        text = query_in(query)
        if max_tokens is not None:
            count_of("max_tokens", max_tokens, 50, MAX_TOKENS)
        settings = self._configuration.injection(self._scope)
        if not settings.enabled:
            reason = "injection is switched off in config/workspaces.yaml"
            return InjectedContext(left_out=len(documents), troubles={"injection": reason})
        if text is None and not is_filled:
            return InjectedContext(left_out=len(documents), troubles={"injection": "query is blank"})
        everything = filter_of(
            self._lake.calendar, instant, 0, MAX_DAYS_AGO, None, None, kind=None, labels={}, minimum_importance=None
        )
        floor = share_of("minimum_score", minimum_score, settings.minimum_score)
        request = RecallRequest(everything, instant, None if now is None else instant, excluded, floor)
        return inject(
            text,
            documents,
            most or settings.max_results,
            max_tokens or settings.max_tokens,
            settings,
            self._reading_models,
            self._sources.searches(text or "", request, speaker, hops, is_filled=is_filled),
            self.calendar,
            floor,
        )

    def _require_grant(self) -> None:
        """Raise AccessDeniedError before the configuration or a model of another agent is used without a grant."""
        if self._asking != self._scope.own:
            self._states.scopes()

    def _capture_of(self, conversation: Mapping[str, object]) -> Capture:
        if not isinstance(conversation, Mapping):
            raise InputError(f"conversation {shown(conversation)} is not accepted; expected a mapping as for a write")
        ids = {"workspace_id": self._scope.workspace_id, "agent_id": self._scope.agent_id}
        return capture_in({**conversation, **ids}, self._lake.capture_of)

    @cached_property
    def _configuration(self) -> Configuration:
        return self._lake.configuration()

    @cached_property
    def _reading_models(self) -> ReadingModels:
        return reading_models(self._configuration, self._scope, lambda: datetime.now(UTC))

    @property
    def scope(self) -> Scope:
        """The workspace and agent."""
        return self._scope

    @property
    def scopes(self) -> Sequence[Scope]:
        """The scopes that it reads now: the agent's own memory and, for a user, the user's and that of the groups."""
        return self._states.scopes()

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
            return None if memory is None else Hit.of_memory(id, memory, self.local_calendar, identity)
        grain = Grain.WORKING if reference.what in NOT_GRAINS else Grain(reference.what)
        start, end = self._lake.calendar.bounds(reference.period)
        where = Filter(since=start, until=end, ends_until=self._lake.calendar.moment("now", _clock(now)))
        found = self._searcher.find(id, grain, where)
        return None if found is None else Hit.of(grain, found, self._calendar_of(grain))

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
