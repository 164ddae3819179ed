"""Reads one agent's memory: searches it, recalls, and walks from a summary down to what was said."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.identity import MEMORY, NOT_GRAINS, Reference
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import InputError
from memory_pipeline.graph import MAX_HOPS, Graph
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.filters import Filter
from memory_pipeline.memories.search import CHOSEN, MemorySearch
from memory_pipeline.memories.state import MemoryOverlay
from memory_pipeline.models.factory import reading_embedder, reading_models
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.reader.injection import MAX_PARTS, InjectionRequest, document_parts, inject
from memory_pipeline.reader.knowledge import DURABLE
from memory_pipeline.reader.proactive_recall import proactive_recall
from memory_pipeline.reader.recall import forms_shown, recollect
from memory_pipeline.reader.suppression import SuppressionIndex, SuppressionRules
from memory_pipeline.search.arguments import (
    MAX_DAYS_AGO,
    MAX_OFFSET,
    MAX_RESULTS,
    MAX_TOKENS,
    count_of,
    filter_of,
    label_of,
    prompt_of,
    validate_ids,
    validate_query,
)
from memory_pipeline.search.candidates import DEFAULT_ROWS
from memory_pipeline.search.searcher import Hit, Hits, Later, Searcher
from memory_pipeline.search.selection import Choice

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.periods import Calendar, When
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.memories import HotIndex
    from memory_pipeline.memories.search import RecalledMemory
    from memory_pipeline.models.factory import ReadingModels
    from memory_pipeline.reader.knowledge import InjectedContext, Recollection
    from memory_pipeline.reader.lineage import Node
    from memory_pipeline.reader.suppression import Statement

_log = logging.getLogger(__name__)

#: Of a period that is read from disk, so many rows are looked through for an id.
_LOOKED_THROUGH = 10_000


class MemoryReader:
    """Reads one agent's memory. It cannot reach another agent's: every path it opens is built from its own scope.

    What was written a moment ago is found too: the journal's unprocessed tail is searched with the index. Safe to use
    from several threads; a reader that is kept open answers faster than a new one.

    Args:
        lake: where.
        scope: whose.
        embedder: what the pipeline uses.
        resident_rows: how many rows of the index are held in memory; larger tables are searched on disk.
    """

    def __init__(self, lake: Lake, scope: Scope, embedder: Embedder, *, resident_rows: int = DEFAULT_ROWS) -> None:
        self._lake = lake
        self._scope = scope
        self._embedder = embedder
        pending = PendingJournal(lake, scope)
        self._graph = Graph(lake, scope, pending)
        self._searching = Searcher(lake, scope, embedder, pending, resident_rows)
        state = MemoryOverlay(lake, scope, pending)
        self._retellings = SuppressionIndex(state)
        self._memories = MemorySearch(
            state, embedder, self._graph, lake.calendar, lambda: self._reading_models.selector
        )

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        workspace_id: str,
        agent_id: str,
        embedder: Embedder | None = None,
        resident_rows: int = DEFAULT_ROWS,
    ) -> MemoryReader:
        """Open the memory of one agent in the lake at `uri`. An agent that was never written of has none.

        Args:
            uri: a folder or ``s3://bucket/prefix``.
            workspace_id: whose memory.
            agent_id: likewise.
            embedder: what the pipeline uses; the one of the lake's config/workspaces.yaml if not given.
            resident_rows: how many rows of the index are held in memory; larger tables are searched on disk.

        Raises:
            InputError: an id is not accepted.
            ConfigurationError: the address or the lake's configuration is not accepted.
        """
        lake = Lake(uri)
        scope = Scope(workspace_id, agent_id)
        embedder = embedder or reading_embedder(lake.configuration(), lambda: datetime.now(UTC))
        return cls(lake, scope, embedder, resident_rows=resident_rows)

    def search_memory(
        self,
        grain: Grain | str = Grain.WORKING,
        minimum_days_ago: float = 0,
        maximum_days_ago: float = 365,
        max_results: int = 10,
        query_text: str | None = None,
        *,
        since: When | None = None,
        until: When | None = None,
        person: str | None = None,
        kind: FactKind | str | None = None,
        conversation_id: str | None = None,
        tag: str | None = None,
        minimum_importance: float | None = None,
        offset: int = 0,
        explain: bool = False,
        now: When | None = None,
    ) -> Hits:
        """Return what is remembered at one grain of a range of days.

        With a query, the best matches by words and vectors come first (by words alone if the embedder fails, which the
        log tells); without one, the newest, of working memory the messages, and facts of those that retention has
        taken. All filters are applied before anything is counted, and all that are given
        must be fulfilled. A summary's age counts from the end of its period, a fact's from when it was said; both ends
        of the range are included. A message gives at most one hit.

        Args:
            grain: working, daily, weekly, monthly, quarterly or yearly.
            minimum_days_ago: age in days of the newest memory wanted.
            maximum_days_ago: age in days of the oldest memory wanted, at most a century.
            max_results: 1 to 100.
            query_text: what to look for, at most 10,000 characters; None or blank looks for nothing in particular.
            since: the oldest memory wanted, in place of `maximum_days_ago`: a date in the lake's time zone, or a time
                with its zone; as a text in ISO 8601, too, like all times. These two find a summary if any of its period
                lies between them.
            until: the newest memory wanted, in place of `minimum_days_ago`; a date includes its whole day.
            person: who said it or is named in it; one word of the name is enough, case and accents do not matter.
            kind: of facts: turn, statement, event, plan, preference, instruction or gist.
            conversation_id: the conversation that a fact comes from.
            tag: a tag of that conversation.
            minimum_importance: 0 to 1.
            offset: how many hits to leave out, at most 10,000: 10 is the second page of 10.
            explain: tell of each hit what its score is made of.
            now: the time from which ages count; the clock's if not given. Summaries of periods that had not closed by
                then are not found.

        Raises:
            InputError: an argument is not accepted; the message names it.
            ConfigurationError: the index was made with another embedder than the reader's.
        """
        grain = Grain.parse(grain)
        where = filter_of(
            self._lake.calendar,
            _clock(now),
            minimum_days_ago,
            maximum_days_ago,
            since,
            until,
            grain=grain,
            kind=kind,
            labels={"person": person, "conversation_id": conversation_id, "tag": tag},
            minimum_importance=minimum_importance,
        )
        count_of("max_results", max_results, 1, MAX_RESULTS)
        wanted = count_of("offset", offset, 0, MAX_OFFSET) + max_results
        query = validate_query(query_text)
        if query is None:
            chosen, total = self._searching.newest(grain, where, wanted)
        else:
            self._lake.index.check(self._embedder)
            at = self._lake.calendar.moment("now", _clock(now))
            chosen, total = self._searching.best(grain, where, wanted, query, now=at, explain=explain)
        return Hits([self._hit(grain, choice) for choice in chosen[offset:]], total, offset)

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
        exclude: Collection[str] = (),
        hops: int = 1,
        now: When | None = None,
    ) -> Recollection:
        """Return what memory holds of a question, best first, within one budget of tokens.

        Nothing is told twice: no summary stands beside something that it was made from. Facts come first, summaries
        tell of what is remembered only there. Up to five durable memories that fit, each with facts of the graph around
        what it names, take three tenths of the budget at most, or 120 tokens. What an agent has revoked is left out
        where it was said in the same words. The same memory gives the same answer.

        Args:
            query: what to look for, at most 10,000 characters.
            max_tokens: what the text of the answer may take, estimated at 4 bytes a token; at most a million.
            since: the oldest memory wanted: a date in the lake's time zone, or a time with its zone; as a text in
                ISO 8601, too, like all times. A point of a summary is told if all that it tells of lies between these
                two: its day, else the summary's period.
            until: the newest; a date includes its whole day.
            person: who said it or is named in it.
            tag: of a conversation, or of a durable memory; summaries have none.
            minimum_importance: 0 to 1.
            exclude: ids of what is left out: what was shown before. It is left out in its other forms too.
            hops: how far around what a durable memory names the graph is told, 0 (not at all) to 3.
            now: the time until which is remembered; the clock's if not given.

        Raises:
            InputError: an argument is not accepted; the message names it.
            ConfigurationError: the index was made with another embedder than the reader's.
        """
        text = validate_query(query, "query")
        if text is None:
            raise InputError("query is blank; recall needs a question, search_memory shows the newest without one")
        count_of("max_tokens", max_tokens, 1, MAX_TOKENS)
        where = filter_of(
            self._lake.calendar,
            _clock(now),
            0,
            MAX_DAYS_AGO,
            since,
            until,
            kind=None,
            labels={"person": person, "tag": tag},
            minimum_importance=minimum_importance,
        )
        self._lake.index.check(self._embedder)
        left_out = validate_ids("exclude", exclude)
        count_of("hops", hops, 0, MAX_HOPS)

        at = self._lake.calendar.moment("now", _clock(now))
        as_of = None if now is None else at

        def keep(retelling: SuppressionRules) -> list[RecalledMemory]:
            return self._memories.fitting(
                text, CHOSEN, left_out, as_of, hops=hops, where=where, hides=retelling.hides_memory
            )

        return recollect(
            self._searching,
            text,
            max_tokens,
            where,
            left_out,
            now=at,
            retell=lambda shown: self._retellings.of(left_out, shown, as_of, at),
            keep=keep,
        )

    def imagine(
        self,
        messages: Sequence[object],
        max_results: int = CHOSEN,
        *,
        exclude: Collection[str] = (),
        now: When | None = None,
    ) -> list[RecalledMemory]:
        """Return durable memories that a conversation may need though nobody asks for them; none if that fails.

        Up to five queries are made from the last 20 messages, by a model if the configuration asks for one. What holds
        until it is revoked is found without being named. Never raises: the log tells what went wrong.

        Args:
            messages: texts, or messages with ``content`` and perhaps ``name`` and ``role``, oldest first; those of
                OpenAI's or LiteLLM's chat API as they are.
            max_results: how many at most, 1 to 100.
            exclude: ids of memories that were shown before.
            now: the time until which is remembered, and from which ages count; the clock's if not given.
        """
        try:
            most, left_out = count_of("max_results", max_results, 1, MAX_RESULTS), validate_ids("exclude", exclude)
            as_of = None if now is None else self._lake.calendar.moment("now", now)
            return proactive_recall(self._memories, self._reading_models.imaginer, messages, left_out, most, as_of)
        except Exception as error:  # noqa: BLE001  # nobody has asked for it, so nobody shall fail for it
            _log.warning("nothing could be imagined: %s: %s", type(error).__name__, error)
            return []

    def inject_knowledge(
        self,
        prompt: str,
        documents: Sequence[object] = (),
        *,
        max_results: int | None = None,
        max_tokens: int | None = None,
        speaker: str | None = None,
        hops: int = 1,
        exclude: Collection[str] = (),
        now: When | None = None,
    ) -> InjectedContext:
        """Return what to put before a model with a prompt: memories, summaries, facts of the graph, and documents.

        The block says of itself that it is recalled, and is dropped when it is written back with a conversation. A
        source that fails is told in `troubles`, and the others still serve. Count, budget, and whether a model helps to
        find and to sort, are set by ``injection`` in config/workspaces.yaml, which can also switch it off.

        Args:
            prompt: what a model is about to be asked; of more than 10,000 characters the first and last 5,000 count.
            documents: snippets that the caller has found, best first: texts, mappings with ``content`` and perhaps
                ``id``, or :class:`~memory_pipeline.reader.knowledge.Document`.
            max_results: how many things at most, 1 to 50; the configuration's if not given, which is 5 by default.
            max_tokens: what the block may take, estimated at 4 bytes a token, 50 to a million; likewise, 1,000.
            speaker: who asks, by name: what "I" means.
            hops: how far around what the prompt names the graph is looked at, 0 (not at all) to 3.
            exclude: ids of memories, points and facts that are left out, in their other forms too: what was shown
                before.
            now: the time until which is remembered; the clock's if not given.

        Raises:
            InputError: an argument is not accepted; the message names it.
        """
        instant = self._lake.calendar.moment("now", _clock(now))
        as_of = None if now is None else instant
        left_out = validate_ids("exclude", exclude)
        label_of("speaker", speaker)
        count_of("hops", hops, 0, MAX_HOPS)
        asking = InjectionRequest(
            prompt=prompt_of(prompt),
            documents=document_parts(documents),
            max_results=None if max_results is None else count_of("max_results", max_results, 1, MAX_PARTS),
            max_tokens=None if max_tokens is None else count_of("max_tokens", max_tokens, 50, MAX_TOKENS),
        )

        @cache
        def retelling() -> SuppressionRules:
            shown: list[Statement] = []
            if left_out and asking.prompt is not None:
                try:
                    shown = forms_shown(self._searching, asking.prompt, self._everything(instant), left_out)
                except Exception as error:  # noqa: BLE001  # what was said fails by itself, and the others still serve
                    _log.warning("what was shown before was not found: %s", error)
            return self._retellings.of(left_out, shown, as_of, instant)

        return inject(
            asking,
            self._configuration.injection(self._scope),
            self._reading_models,
            lambda text, tokens: self._said(text, tokens, instant, left_out, as_of),
            lambda text, limit, names: self.graph.search(
                text, limit, speaker=speaker, names=names, hops=hops, at=as_of, now=instant
            ),
            lambda text, limit: sorted(
                self._memories.fitting(text, limit, left_out, as_of, hides=retelling().hides_memory),
                key=lambda one: not one.memory.kind.is_permanent,
            ),
            lambda fact: fact.id in left_out or retelling().hides_fact(fact),
            len(left_out),
        )

    def _said(
        self, text: str, tokens: int, at: datetime, exclude: Collection[str], now: datetime | None
    ) -> Recollection:
        """Return what was said, and points of summaries, without what is kept for good."""
        self._lake.index.check(self._embedder)
        return recollect(
            self._searching,
            text,
            tokens,
            self._everything(at),
            exclude,
            now=at,
            retell=lambda shown: self._retellings.of(exclude, shown, now, at),
        )

    def _everything(self, now: datetime) -> Filter:
        """Return what all that is remembered fulfils."""
        return filter_of(
            self._lake.calendar, now, 0, MAX_DAYS_AGO, None, None, kind=None, labels={}, minimum_importance=None
        )

    @cached_property
    def _configuration(self) -> Configuration:
        return self._lake.configuration()

    @cached_property
    def _reading_models(self) -> ReadingModels:
        return reading_models(self._configuration, self._scope, lambda: datetime.now(UTC))

    @property
    def scope(self) -> Scope:
        """Whose memory it reads."""
        return self._scope

    @property
    def calendar(self) -> Calendar:
        """The calendar of the lake, by whose time zone days begin."""
        return self._lake.calendar

    @property
    def graph(self) -> Graph:
        """What the agent knows, as facts with the time that they hold."""
        return self._graph

    @property
    def memories(self) -> MemorySearch:
        """What the agent keeps for good: facts, instructions, preferences, …, with their history."""
        return self._memories

    def hot_index(self, *, now: When | None = None) -> HotIndex:
        """Return the table of contents of what is kept for good, to be put into a system prompt: a line each.

        Args:
            now: the time at which it is read; as it stands if not given.
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
        """Return cold memories, which nothing else finds; see :meth:`MemorySearch.search_archive`."""
        return self._memories.search_archive(query, max_results, exclude=exclude, now=now)

    def get(self, id: str, *, now: When | None = None) -> Hit | None:  # noqa: A002  # as in expand
        """Return one fact or summary by its id, or the turn of a message by the message's; None if there is none.

        What was written a moment ago is found too.

        Args:
            id: as searches return it.
            now: the time until which is remembered; the clock's if not given.

        Raises:
            InputError: it is no id.
        """
        reference = Reference.parse(id)
        if reference.what == MEMORY:
            return self._kept(id, now)
        grain = Grain.WORKING if reference.what in NOT_GRAINS else Grain(reference.what)
        start, end = self._lake.calendar.bounds(reference.period)
        where = Filter(since=start, until=end, ends_until=self._lake.calendar.moment("now", _clock(now)))
        segments, masks, _ = self._searching.candidates.passing(grain, where, _LOOKED_THROUGH, None)
        for segment, mask in zip(segments, masks, strict=True):
            rows = segment.rows if mask is None else segment.rows.filter(mask)
            for row in rows.to_pylist():
                if id == row["id"] or (row["kind"] == FactKind.TURN and id in row["source_ids"]):
                    return self._hit(grain, Choice(row, 0.0))
        return None

    def expand(self, id: str) -> Node:  # noqa: A002  # the name that every store gives it
        """Return a summary, a fact or a message with all that it rests on, down to the messages.

        Args:
            id: of a hit; or ``{summary id}#{n}``, which follows the summary's n-th point alone.

        Raises:
            InputError: it is no id, or this agent has nothing by that id.
        """
        from memory_pipeline.reader.lineage import expand

        return expand(self._lake, self._scope, id)

    def _kept(self, id: str, now: When | None) -> Hit | None:  # noqa: A002  # as above
        """Return a durable memory, or a version of one, as a hit."""
        memory = self._memories.get(id, now=now)
        if memory is None:
            return None
        return Hit(
            id=id,
            grain=DURABLE,
            period=Reference.parse(memory.id).period.key,
            kind=memory.kind.value,
            content=memory.content,
            starts_at=memory.created_at,
            ends_at=memory.updated_at,
            date=self._lake.calendar.day_of(memory.updated_at),
            source_ids=memory.source_ids,
            conversation_id=None,
            score=0.0,
        )

    def _hit(self, grain: Grain, choice: Choice) -> Hit:
        row, later = choice.row, choice.later
        return Hit(
            id=row["id"],
            grain=grain,
            period=row["period"],
            kind=row["kind"],
            content=row["content"],
            starts_at=row["starts_at"],
            ends_at=row["ends_at"],
            date=self._lake.calendar.day_of(row["starts_at"]),
            source_ids=tuple(row["source_ids"]),
            conversation_id=row["conversation_id"],
            score=round(choice.score, 4),
            parts=choice.parts,
            is_excerpt=choice.is_excerpt,
            later=None if later is None else Later(later["id"], self._lake.calendar.day_of(later["starts_at"])),
        )


def _clock(now: When | None) -> When:
    return datetime.now(UTC) if now is None else now
