"""The methods of a reader that collect memory for prompts: recall, imagine, inject_knowledge and context."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Unpack, cast

from memory_pipeline.configuration.model_settings import Injection
from memory_pipeline.domain.capture import Capture, capture_in
from memory_pipeline.domain.fields import PromptOptions, SearchFilters, check_names
from memory_pipeline.domain.model_calls import read_calls
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, optional_label, user_identity
from memory_pipeline.domain.text.calibration import DEFAULT_FLOOR
from memory_pipeline.domain.values import count_of, share_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.graph import MAX_HOPS
from memory_pipeline.memories.search import CHOSEN
from memory_pipeline.models.factory import ReadingModels, reading_models
from memory_pipeline.overlay import one_read
from memory_pipeline.parameters import Within
from memory_pipeline.reader.packing.asked import is_small_talk
from memory_pipeline.reader.packing.injection import MAX_PARTS, document_parts, inject, recall
from memory_pipeline.reader.packing.items import DURABLE, InjectedContext, Source
from memory_pipeline.reader.packing.sources import RecallRequest
from memory_pipeline.reader.proactive_recall import proactive_recall
from memory_pipeline.reader.read_receipts import row_of
from memory_pipeline.search.arguments import (
    MAX_RESULTS,
    MAX_TOKENS,
    filter_of,
    query_in,
    question_in,
    validate_ids,
)
from memory_pipeline.telemetry import observed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.fields import FactFilters
    from memory_pipeline.domain.model_calls import ReadCall
    from memory_pipeline.domain.periods import Calendar, When
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.memories.search import MemorySearch, RecalledMemory
    from memory_pipeline.reader.packing.items import Recalled, Recollection
    from memory_pipeline.reader.packing.sources import MemorySources
    from memory_pipeline.reader.scope_states import ScopeStates

_log = logging.getLogger(__name__)

#: Most items of a context.
_MOST_ITEMS = 1_000


class PromptReader:
    """The part of :class:`~memory_pipeline.reader.MemoryReader` that collects memory for prompts."""

    local_calendar: Calendar
    _lake: Lake
    _scope: Scope
    _asking: Scope
    user_id: str | None
    _states: ScopeStates
    _memories: MemorySearch
    _sources: MemorySources

    @property
    @abstractmethod
    def calendar(self) -> Calendar:
        """The lake's calendar."""

    @observed("search_memory")
    @one_read()
    def recall(
        self,
        query: str | Sequence[object],
        max_tokens: Annotated[int, Within(1, MAX_TOKENS)] = 1_000,
        *,
        minimum_score: Annotated[float | None, Within(0, 1)] = None,
        exclude: Collection[str] = (),
        hops: Annotated[int, Within(0, MAX_HOPS)] = 1,
        now: When | None = None,
        **filters: Unpack[SearchFilters],
    ) -> Recollection:
        """Return what memory holds about a question, best first, within one token budget.

        It has the same items as :meth:`context`, except instructions that apply to anything and the hot index. If the
        question asks about a period as a whole, the points of its summaries come first, then graph facts about those
        whom it names, also by a relation ("my son"), then facts, points and durable memories by their score, less the
        price of their tokens. Fill, such as "Thanks!", is left out, and so is what fits much worse than the best.
        Nothing is repeated: a summary is not returned with one of its facts, unless the question asks about its
        period, nor a durable memory with the whole messages it comes from. A sentence that repeats a revoked memory
        word for word is left out. The same memory gives the same answer.

        Args:
            query: the question, at most 10,000 characters, or the last messages of a conversation, oldest first.
            max_tokens: budget of the answer's text, estimated at 4 bytes a token; at most a million.
            minimum_score: leave out facts, points and durable memories with a lower score, 0 to 1; by default 0.11, as
                in :meth:`search_memory`.
            exclude: ids of items that were shown before. They are left out in their other forms too.
            hops: steps in the graph from the entities that the question names, and along links between memories, 0
                to 3.
            now: ignore everything after this time; by default the current time.
            filters: see :class:`~memory_pipeline.domain.fields.SearchFilters`. The tag may also be one of a durable
                memory; summaries have none.

        Raises:
            InputError: an argument is invalid.
            ConfigurationError: the index was built with another embedder than the reader's.
        """
        text = question_in(query)
        if text is None:
            raise InputError("query is blank; expected a question. To list the newest memories, search without a query")
        count_of("max_tokens", max_tokens, 1, MAX_TOKENS)
        at = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
        check_names(filters, SearchFilters)
        where = filter_of(self.local_calendar, now, cast("FactFilters", filters))
        count_of("hops", hops, 0, MAX_HOPS)
        floor = share_of("minimum_score", minimum_score, DEFAULT_FLOOR)
        request = RecallRequest(where, at, None if now is None else at, validate_ids("exclude", exclude), floor)
        limits = {"max_results": _MOST_ITEMS, "max_tokens": max_tokens, "minimum_score": floor}
        settings = Injection().model_copy(update=limits)
        searches = self._sources.searches(text, request, None, hops)
        began = datetime.now(UTC)
        chosen = recall(text, settings, ReadingModels(), searches, self.calendar)
        self.note_uses([item.id for item in chosen if item.grain == DURABLE], now=now)
        chosen.receipt_id = self._receipt("recall", chosen, (), began, now)
        return chosen

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
            found = proactive_recall(self._memories, self._reading_models.imaginer, messages, excluded, limit, as_of)
            self.note_uses([one.memory.id for one in found], now=now)
            return found
        except Exception as error:  # noqa: BLE001  # no caller asked for these memories, so no call may fail for them
            _log.warning("proactive recall failed: %s: %s", type(error).__name__, error)
            return []

    @observed("search_memory")
    @one_read()
    def inject_knowledge(
        self,
        query: str | Sequence[object],
        documents: Sequence[object] = (),
        *,
        max_results: int | None = None,
        max_tokens: int | None = None,
        now: When | None = None,
        **options: Unpack[PromptOptions],
    ) -> InjectedContext:
        """Return context for a prompt: as :meth:`context`, with few items, and with documents.

        The block is marked as recalled, and the marked lines are removed when the block is written back with a
        conversation. An error in one source is reported in `troubles`; the other sources still answer. The section
        ``injection`` of config/workspaces.yaml sets the number of items, the budget, and whether a model makes queries
        and sorts results. It can also switch injection off.

        Args:
            query: the user's message or question, or the last messages of a conversation, oldest first. Of more than
                10,000 characters, the first and last 5,000 are used.
            documents: your own snippets, best first: texts, mappings with ``content`` and optionally ``id``, or
                :class:`~memory_pipeline.reader.packing.items.Document`.
            max_results: number of items, 1 to 50; by default from the configuration (5).
            max_tokens: budget of the block, estimated at 4 bytes a token, 50 to a million; by default from the
                configuration (1,000).
            now: ignore everything after this time; by default the current time.
            options: see :class:`~memory_pipeline.domain.fields.PromptOptions`.

        Raises:
            InputError: an argument is invalid.
        """
        if max_results is not None:
            count_of("max_results", max_results, 1, MAX_PARTS)
        parts = document_parts(documents)
        return self._injected("inject_knowledge", query, parts, max_results, max_tokens, now, options)

    @observed("search_memory")
    @one_read()
    def context(
        self,
        query: str | Sequence[object] = "",
        max_tokens: int = 1_000,
        *,
        now: When | None = None,
        **options: Unpack[PromptOptions],
    ) -> InjectedContext:
        """Return the context for a prompt: instructions that apply, then what fits the query; see :meth:`recall`.

        Instructions have a fifth of the budget. Lines of the hot index fill the rest. Of what was said, the newest day
        is first.

        Args:
            query: the user's message or question, or the last messages of a conversation, oldest first; blank for the
                hot index alone.
            max_tokens: budget of the block, 50 to a million.
            now: ignore everything after this time; by default the current time.
            options: see :class:`~memory_pipeline.domain.fields.PromptOptions`.

        Raises:
            InputError: an argument is invalid.
        """
        return self._injected("context", query, (), _MOST_ITEMS, max_tokens, now, options)

    def _injected(
        self,
        operation: str,
        query: str | Sequence[object],
        documents: Sequence[Recalled],
        most: int | None,
        max_tokens: int | None,
        now: When | None,
        options: PromptOptions,
    ) -> InjectedContext:
        check_names(options, PromptOptions)
        self._require_grant()
        conversation, speaker, hops = options.get("conversation"), options.get("speaker"), options.get("hops", 1)
        if conversation is not None and self._capture_of(conversation) is Capture.NONE:
            return InjectedContext(
                left_out=len(documents), troubles={"injection": "capture of the conversation is none"}
            )
        instant = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
        excluded = validate_ids("exclude", options.get("exclude", ()))
        optional_label("speaker", speaker)
        count_of("hops", hops, 0, MAX_HOPS)
        text = query_in(query)
        last = text if isinstance(query, str) else query_in(query[-1:])
        if last is not None and is_small_talk(last):
            text = last
        if max_tokens is not None:
            count_of("max_tokens", max_tokens, 50, MAX_TOKENS)
        settings = self._configuration.injection(self._scope)
        if not settings.enabled:
            reason = "injection is switched off in config/workspaces.yaml"
            return InjectedContext(left_out=len(documents), troubles={"injection": reason})
        if text is None and operation == "inject_knowledge":
            return InjectedContext(left_out=len(documents), troubles={"injection": "query is blank"})
        everything = filter_of(self._lake.calendar, now, {})
        floor = share_of("minimum_score", options.get("minimum_score"), settings.minimum_score)
        request = RecallRequest(everything, instant, None if now is None else instant, excluded, floor)
        given = {"max_results": most, "max_tokens": max_tokens, "minimum_score": floor}
        limited = settings.model_copy(update={name: one for name, one in given.items() if one is not None})
        searches = self._sources.searches(text or "", request, speaker, hops)
        began, known = datetime.now(UTC), validate_ids("known_messages", options.get("known_messages", ()))
        with read_calls() as calls:
            context = inject(text, documents, limited, self._reading_models, searches, self.calendar)
        if known:
            parts = (part for part in context.parts if not part.evidence or not part.evidence <= known)
            context = replace(context, parts=tuple(parts))
        # Lines of the hot index have no kind: they only fill the budget.
        self.note_uses([item.id for item in context.of(Source.DURABLE) if item.kind], now=now)
        conversation_id = None if conversation is None else conversation.get("conversation_id")
        receipt_id = self._receipt(operation, context.parts, calls, began, now, conversation_id)
        return replace(context, receipt_id=receipt_id) if receipt_id else context

    def _receipt(
        self,
        operation: str,
        items: Sequence[Recalled],
        calls: Sequence[ReadCall],
        began: datetime,
        now: When | None,
        conversation_id: object = None,
    ) -> str:
        """Note what a model is handed. Return the id of the receipt; empty without one. Never raises."""
        try:
            kept = self._configuration.receipts(self._scope.workspace_id)
            if not items or kept is None or not self._lake.exists:
                return ""
            scope = self._own_scope
            place = {
                **dict(zip(SCOPE_COLUMNS, (*scope.own.ids, scope.identity, scope.key), strict=True)),
                "asking_agent": self._asking.agent_id,
                "as_of": None if now is None else self._lake.calendar.moment("now", now),
                "conversation_id": conversation_id if isinstance(conversation_id, str) else None,
            }
            redactor = self._lake.redactor_of(scope.workspace_id)  # memory has no secrets, but documents may
            return self._lake.read_receipts.note(row_of(operation, items, calls, place, redactor), began)
        except Exception as error:  # noqa: BLE001  # the items are returned anyway
            _log.warning("a read has no receipt: %s: %s", type(error).__name__, error)
            return ""

    @cached_property
    def _own_scope(self) -> Scope:
        """The scope of the user for whom it reads, or that of the agent."""
        if self.user_id is None:
            return self._scope
        return self._lake.scope(self._scope.workspace_id, self._scope.agent_id, user_identity(self.user_id))

    def note_uses(self, ids: Collection[str], *, now: When | None = None) -> None:
        """Note that a model was given durable memories, which delays their decay. Unknown ids are ignored.

        `recall`, `context`, `inject_knowledge` and `imagine` do this. The next run counts it. A read of the past (there
        are later changes of memory) does not count. Never raises.
        """
        try:
            if not ids or not self._lake.exists or self._states.is_past(now):
                return
            at = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
            scopes = {scope.identity: scope for scope in self._states.scopes()}
            uses = [(scopes[self._memories.identity_of(one, now=now)], one) for one in dict.fromkeys(ids)]
            self._lake.access_log.note_uses(self._asking, uses, at)
        except Exception as error:  # noqa: BLE001  # the memories are returned anyway
            _log.warning("uses of memories are not counted: %s: %s", type(error).__name__, error)

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
        scope = self._scope
        if self.user_id is not None and self._lake.exists:
            scope = self._lake.scope(scope.workspace_id, scope.agent_id, user_identity(self.user_id))
        return reading_models(self._configuration, scope, lambda: datetime.now(UTC), lambda: self._lake.reading_calls)
