"""The memory of one user or agent, as one object."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard, Unpack

from memory_pipeline.client.conversations import Conversations
from memory_pipeline.client.facts import FactStore
from memory_pipeline.client.history import AddedReceipt, HistoricMemory
from memory_pipeline.client.listing import Page, listed
from memory_pipeline.client.opened import clock
from memory_pipeline.client.tiers import LONG_TERM, tiers_of
from memory_pipeline.domain.chat_messages import answer_in, as_mapping
from memory_pipeline.domain.fields import ConversationFilters, check_names
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.events import AGENT
from memory_pipeline.domain.memories.record import MAX_CONTENT
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import label_of
from memory_pipeline.domain.sessions import MAX_TTL
from memory_pipeline.domain.values import count_of
from memory_pipeline.errors import InputError, MemoryPipelineError, shown
from memory_pipeline.overlay import one_read
from memory_pipeline.parameters import Within
from memory_pipeline.search.arguments import MAX_DAYS_AGO, MAX_RESULTS, MAX_TOKENS
from memory_pipeline.search.searcher import Hits

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.client.wrapping import Client
    from memory_pipeline.domain.fields import NewMemoryFields
    from memory_pipeline.domain.memories.record import DurableMemory, MemoryKind
    from memory_pipeline.domain.periods import When
    from memory_pipeline.graph import Graph
    from memory_pipeline.memories.contexts import Contexts
    from memory_pipeline.reader.packing.items import InjectedContext
    from memory_pipeline.reader.read_receipts import MAX_RECEIPTS, ReadReceipt
    from memory_pipeline.steps.consolidation.report import ConsolidationReport
    from memory_pipeline.steps.promotion import Promotion
    from memory_pipeline.steps.results import RunResult

    # Inside of the class, `list` is its method.
    Results = list[RunResult | ConsolidationReport | Promotion]


class Memory(HistoricMemory):
    """The memory of a user, or of an agent without users: add, search, and get the context for a prompt.

    ::

        from memory_pipeline import Memory

        memory = Memory("./lake", user_id="anna")
        memory.add("I moved to Porto.")
        print(memory.search("Where does Anna live?")[0])

    What is added is durable when :meth:`add` returns, and the next search finds it. :meth:`run`, or the pipeline in
    Dagster, makes summaries and durable memories of it. Safe to use from several threads. Keep it open: the first
    search of a new object reads the index.

    Attributes:
        lake: where memory is stored.
        user_id: the user, or None for the agent's own memory.
    """

    @cached_property
    def conversations(self) -> Conversations:
        """The conversations, to get, list and prune."""
        return Conversations(self, self.add, self.forget)

    @cached_property
    def facts(self) -> FactStore:
        """The durable memories that are facts, to store, look up and forget."""
        return FactStore(self)

    @property
    def contexts(self) -> Contexts:
        """The contexts of this user or agent: named containers of durable memories, with snapshots."""
        return self.writer.contexts

    @property
    def graph(self) -> Graph:
        """The graph: facts with a subject, a predicate and an object, each with the time in which it holds."""
        return self.reader.graph

    def add(
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
    ) -> AddedReceipt:
        """Add what was said. It is durable when the method returns.

        The ``trace`` of the receipt tells what was learned at once.

        Args:
            messages: a text that the user said; a message; or a list of texts and messages, oldest first. Messages and
                answers of OpenAI, LiteLLM, Anthropic, LangChain, Gemini, Bedrock and Vercel clients are accepted. The
                time of a message is its ``timestamp``, or else ``created_at``, ``date``, ``ts`` or the like, if it is
                unambiguous: ISO 8601 with a zone, or seconds or milliseconds since 1970. Messages without a time were
                said now; the receipt names keys that look like times and were not read.
            conversation_id: the conversation, to continue it. A text and a single message are new, unless the id of the
                message is known. A list may repeat messages that are stored: see `history`. By default a new
                conversation begins; the receipt has its id.
            users: all users who took part. What is said in a group is found by its members alone.
            group_id: the group, if it has an id; its members may change.
            tags: labels of the conversation; a text is one of them.
            source: where it comes from, such as ``slack``.
            history: whether a list repeats messages that are stored, so that only its new messages are added. By
                default it does if it goes on after the last stored message, or begins with the first one.
            idempotency_key: identifies this call within its conversation, or without one among all calls of the user:
                a call with the key of an earlier one adds nothing. Give a retry the key of the first attempt.
            now: the current time.

        Raises:
            InputError: a message is invalid, or its id is already used for another text; nothing was written.
        """
        at = self.lake.calendar.moment("now", now or clock())
        is_new = conversation_id is None and idempotency_key is None
        if conversation_id is None:
            conversation_id = self.new_conversation_id(at)
            if idempotency_key is not None:  # a retry finds its conversation
                conversation_id = digest("conversation", label_of("idempotency_key", idempotency_key))
            history = False
        receipt = self.writer.extend(
            {
                "conversation_id": conversation_id,
                "messages": _messages_of(messages, self.user_id if users or group_id else None),
                "users": users,
                "group_id": group_id,
                "tags": _listed(tags),
                "source": source,
                "timezone": self._timezone,
            },
            history=history,
            idempotency_key=idempotency_key,
            is_new=is_new,
            now=at,
        )
        return AddedReceipt.of(receipt, conversation_id, self._traced)

    def new_conversation_id(self, now: datetime) -> str:
        """Return an id for a conversation that begins `now`. It names the time, and collides with no other."""
        return f"{now:%Y-%m-%dT%H:%M:%S}-{secrets.token_hex(4)}"

    def search(
        self,
        query: str,
        limit: Annotated[int, Within(1, MAX_RESULTS)] = 10,
        *,
        grain: Grain | str = Grain.WORKING,
        tiers: str | Sequence[str] = LONG_TERM,
        sources: str | Collection[str] = "all",
        minimum_score: Annotated[float | None, Within(0, 1)] = None,
        now: When | None = None,
        **filters: Unpack[ConversationFilters],
    ) -> Hits:
        """Return what was said and durable memories, of any age, best matches first, in one list.

        A message and the memory made of it are one hit, the message.

        Args:
            query: at most 10,000 characters; blank for the newest of what was said.
            limit: 1 to 100 results.
            grain: ``working`` for what was said; ``daily`` to ``yearly`` for summaries.
            tiers: ``all``, or some of ``session``, ``short_term``, ``long_term`` and ``shared``. Entries of sessions
                and pools that share words with the query come first; the filters do not apply to them.
            sources: some of ``turns`` (what was said), ``memories`` (durable memories, with values that were written to
                the long-term tier, and promoted entries of sessions) and ``contexts`` (their entries); by default all.
            minimum_score: leave out hits of long-term memory with a lower score, 0 to 1; by default none.
            now: ignore everything after this time; by default the current time.
            filters: see :class:`~memory_pipeline.domain.fields.ConversationFilters`. Durable memories have no range of
                time.

        Raises:
            InputError: an argument is invalid.
        """
        check_names(filters, ConversationFilters)
        count_of("limit", limit, 1, MAX_RESULTS)
        wanted = tiers_of(tiers)
        fresh = [] if wanted == (LONG_TERM,) else self._search_tiers(query, limit, wanted, now)
        if LONG_TERM not in wanted:
            return Hits(fresh, len(fresh))
        found = self.reader.search_memory(
            grain, 0, MAX_DAYS_AGO, limit, query, minimum_score=minimum_score, sources=sources, now=now, **filters
        )
        return Hits([*fresh, *found][:limit], found.total + len(fresh)) if fresh else found

    @one_read()
    def context(
        self,
        query: str | Sequence[object] = "",
        max_tokens: Annotated[int, Within(50, MAX_TOKENS)] = 1_000,
        *,
        conversation: Mapping[str, object] | None = None,
        exclude: Collection[str] = (),
        only_new: bool = False,
        now: When | None = None,
    ) -> InjectedContext:
        """Return the context for a prompt. ``str()`` of it is the text for the model; empty if nothing was found.

        It has what fits the query: durable memories, facts of the graph, messages and summaries. Lines of the hot
        index, the most important durable memories, fill the rest. The text is marked, so that it is not added again as
        something said.

        Args:
            query: the prompt, or the last messages of a conversation, oldest first; blank for the hot index alone.
            max_tokens: size of the text, estimated at 4 bytes a token, 50 to a million.
            conversation: the conversation, with ``conversation_id``, ``tags`` or ``source``, if its capture may be
                restricted by the configuration.
            exclude: ids of items that the model has seen before.
            only_new: leave out what earlier calls with the ``conversation_id`` returned within a day, in any process,
                and what was said in the conversation itself. The session of this id keeps what was told; its ``clear``
                forgets it. Needs ``memory-pipeline[sessions]``.
            now: ignore everything after this time; by default the current time.

        Raises:
            InputError: an argument is invalid.
            ConfigurationError: `only_new`, and there is no database for sessions; see :meth:`session`.
        """
        if not only_new:
            return self.reader.context(query, max_tokens, conversation=conversation, exclude=exclude, now=now)
        conversation_id = (conversation or {}).get("conversation_id")
        if not isinstance(conversation_id, str):
            raise InputError("only_new needs a conversation with a conversation_id")
        told, at = self.session(conversation_id).told, self.lake.calendar.moment("now", now or clock())
        before = list(told.items(now=at).values())
        if now is not None:
            before = [one for one in before if one.get("at", 0) <= at.timestamp()]
        seen = {*exclude, *(one for earlier in before for one in earlier["ids"])}
        said = [message.id for message in self.conversations.get(conversation_id)]
        found = self.reader.context(
            query, max_tokens, conversation=conversation, exclude=seen, known_messages=said, now=now
        )
        if found.parts:
            ids = [part.id for part in found.parts]
            told.store(digest("told", ids), {"ids": ids, "at": at.timestamp()}, ttl=MAX_TTL, now=at)
        return found

    def receipt(self, id: str) -> ReadReceipt | None:  # noqa: A002  # as in forget
        """Return what an earlier :meth:`context` or recall handed to a model, and what is known of it now.

        `id` is the `receipt_id` of what it returned. None if it is unknown, is no longer kept, or is of another user or
        agent; see :meth:`MemoryReader.receipt`.
        """
        return self.reader.receipt(id)

    def receipts(
        self, *, conversation_id: str | None = None, limit: Annotated[int, Within(1, MAX_RECEIPTS)] = 100
    ) -> Sequence[str]:
        """Return the ids of the newest receipts, newest first; see :meth:`receipt`.

        Args:
            conversation_id: only those for a conversation, such as those of a client that :meth:`wrap` returned.
            limit: 1 to 10,000.

        Raises:
            InputError: `limit` is out of range.
        """
        return self.reader.receipts(conversation_id=conversation_id, limit=limit)

    def _context(self, *args: Any, **options: Any) -> InjectedContext:
        return self.reader.context(*args, **options)

    def list(
        self,
        kind: Literal["memory", "fact", "summary"] | str | None = None,
        *,
        since: When | None = None,
        cursor: str | None = None,
        limit: Annotated[int, Within(1, MAX_RESULTS)] = 100,
    ) -> Page:
        """Return everything, page by page, newest first. What is there at the first page is returned exactly once.

        Args:
            kind: ``memory`` for durable memories, ``fact`` for what was said, ``summary``; by default all of them, in
                this order.
            since: time of the oldest item.
            cursor: the ``cursor`` of the page before.
            limit: 1 to 100 items.

        Raises:
            InputError: an argument is invalid.
        """
        return listed(self.reader, kind, since, cursor, limit)

    def remember(
        self,
        text: Annotated[str, Within(1, MAX_CONTENT)],
        kind: MemoryKind | str = "fact",
        *,
        editor: str = AGENT,
        now: When | None = None,
        **fields: Unpack[NewMemoryFields],
    ) -> str:
        """Store a durable memory; return its id. A text that is stored already counts as stated again.

        Args:
            text: the memory, at most 20,000 characters.
            kind: fact, preference, instruction, rule, decision or another kind of durable memory.
            editor: the author of the change.
            now: the current time.
            fields: see :class:`~memory_pipeline.domain.fields.NewMemoryFields`.

        Raises:
            InputError: an argument is invalid.
        """
        if "tags" in fields:
            fields["tags"] = _listed(fields["tags"])
        return self.writer.remember(text, kind, editor=editor, now=now, **fields)

    def history(self, id: str) -> tuple[DurableMemory, ...]:  # noqa: A002  # as in forget
        """Return all versions of a durable memory, oldest first; none if it is unknown.

        Raises:
            InputError: `id` is not the id of a durable memory.
        """
        return self.reader.memories.history(id)

    def run(self, *, now: When | None = None) -> Results:
        """Process all pending data of the lake: facts, summaries of closed periods, graph, and durable memories.

        Return a result for each grain, and the report of consolidation; first what became of short-term entries of
        sessions, if any was promoted or refused. Needs ``memory-pipeline[run]``. Safe to repeat and to interrupt.
        Dagster does the same on a schedule. Marts, which only SQL reads, are built by ``memory-pipeline run``, or by
        Dagster once a day. Once a day, small files are merged, and unneeded ones deleted, as by
        ``memory-pipeline vacuum``.

        Raises:
            QualityError: rows of some partitions are invalid; all others are complete.
            DamagedError: some partitions or their sources cannot be read; all others are complete.
            UnexpectedError: the code fails on the input of some partitions, a bug; all others are complete.
        """
        from memory_pipeline.client.pipeline import run_all
        from memory_pipeline.steps.housekeeping import clean_daily

        self.lake.ensure()
        at = self.lake.calendar.moment("now", now or clock())
        events = run_all(self.lake, self._models, at, builds_marts=False)
        results = [event for event in events if not isinstance(event, Grain)]
        clean_daily(self.lake, clock())
        return results

    def check(self, *, now: When | None = None) -> tuple[str, ...]:
        """Return what is wrong with the store, a text for each problem; none if it can be read and written.

        With ``memory-pipeline[run]``, these are also the failed checks of ``memory-pipeline check``.
        """
        try:
            problems = list(self.lake.storage.problems())
            if not problems and self.lake.exists:
                self.reader.open_tables()
                with suppress(ImportError):
                    from memory_pipeline.checks import CheckContext, all_checks, run_checks

                    at = self.lake.calendar.moment("now", now or clock())
                    failed = [one for one in run_checks(CheckContext(self.lake, at), all_checks()) if one.is_error]
                    problems += [f"{one.check.asset}: {one.check.name} failed; {one.remedy}" for one in failed]
        except (MemoryPipelineError, OSError) as error:
            return (str(error),)
        return tuple(problems)

    def wrap(
        self,
        client: Client,
        *,
        conversation_id: str | None = None,
        max_tokens: int = 1_000,
        tags: Sequence[str] = (),
        source: str | None = None,
    ) -> Client:
        """Return a chat client with memory: it adds context to prompts, and stores what is said.

        See :mod:`memory_pipeline.client.wrapping`.

        Args:
            client: a client of OpenAI or Anthropic, or one with the same calls, sync or async; a Router of LiteLLM; or
                a function with the argument ``messages``, such as ``litellm.completion``.
            conversation_id: the conversation of all calls. By default, calls belong to one conversation if the messages
                of the later one begin with those of the earlier one.
            max_tokens: size of the context that is added to one prompt.
            tags: labels of the conversations.
            source: where they come from.

        Raises:
            InputError: the calls of the client cannot be recorded, as those of a LangChain model.
        """
        from memory_pipeline.client.wrapping import ChatMemory, wrapped

        methods = ChatMemory(self._context, self.add, self.new_conversation_id, self.session)
        return wrapped(methods, client, conversation_id, max_tokens, _listed(tags), source)


def _messages_of(value: object, user_id: str | None) -> list[object]:
    """Return what a user hands to :meth:`Memory.add` as a list of messages, those of the user with the user's id."""
    value = (
        [value] if isinstance(value, str) else answer_in(value) or ([value] if isinstance(value, Mapping) else value)
    )
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise InputError(f"messages {shown(value)} are not accepted; expected a text, a message, or a list of them")
    messages = [{"role": "user", "content": one} if isinstance(one, str) else as_mapping(one) for one in value]
    if user_id is None:
        return messages
    return [{"user_id": user_id, **one} if _is_of_user(one) else one for one in messages]


def _listed(tags: object) -> Any:
    """Return tags as a list. A text is one tag, not one for each of its characters; what is no list raises later."""
    return [tags] if isinstance(tags, str) else list(tags) if isinstance(tags, Collection) else tags


def _is_of_user(message: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(message, Mapping) and (message.get("role") == "user" or message.get("type") == "human")
