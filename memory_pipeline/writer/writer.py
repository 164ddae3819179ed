"""Writes conversations into the journal; and, with what it inherits, what an agent keeps for good."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from memory_pipeline.domain.chat_messages import as_mapping
from memory_pipeline.domain.conversations import Admission, Message, Scope, read_messages, same_id_other_content
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Calendar, Grain, Period
from memory_pipeline.domain.summaries import Assignment, Material
from memory_pipeline.errors import DamagedError, InputError, shown
from memory_pipeline.lake import Lake
from memory_pipeline.memories.writer import MemoryEventWriter
from memory_pipeline.models.deterministic import DeterministicExtractor, ExtractiveSummarizer
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.summaries import KeyPoint, Summarizer
    from memory_pipeline.graph.writer import GraphWriter


# A conversation that has grown too long for a context window: what is dropped is summarized, and was kept before.


def summary_of(messages: Sequence[Message], calendar: Calendar, summarizer: Summarizer) -> dict[str, object]:
    """Return a message that takes the place of `messages`: of a system, so that it never becomes memory itself.

    Args:
        messages: of one agent, in their order; at least one.
        calendar: of the lake.
        summarizer: makes it like the summary of a day. Where it is to wait for a budget, rules take its place.
    """
    last = messages[-1]
    facts = DeterministicExtractor(calendar.timezone).facts_of(messages)
    facts = [fact for fact in facts if fact.kind is not FactKind.TURN] or facts
    material = tuple(
        Material(fact.id, fact.content, fact.event_at, fact.position, fact.importance, fact.entities) for fact in facts
    )
    assignment = Assignment(last.scope, calendar.period(Grain.DAILY, last.sent_at), material)
    [made] = summarizer.summarize([assignment])
    points: tuple[KeyPoint, ...] = (made or ExtractiveSummarizer().condense(assignment)).points
    lines = [f"- {calendar.day_of(point.event_at)} {point.sentence}" for point in points]
    head = f"Summary of the {len(messages)} messages before, from memory; nobody has said this:"
    return {"role": "system", "content": "\n".join([head, *lines]), "timestamp": last.sent_at.isoformat()}


# What has been said already: looked up before something is written, so that contradictions are refused at the door.


_log = logging.getLogger(__name__)


class KnownMessages:
    """Looks up messages that have the ids of others, or were sent in the same hours.

    Args:
        lake: where.
        keeps: whether it keeps what it has read of pending files, for a writer that is asked again and again about the
            same conversations. Otherwise it keeps a number for each message, to know which files it must read again.
    """

    def __init__(self, lake: Lake, *, keeps: bool) -> None:
        self._lake = lake
        self._keeps = keeps
        self._files: dict[str, tuple[frozenset[int], Sequence[Message] | None]] = {}
        self._hours: dict[
            Scope, tuple[int, dict[str, frozenset[str]]]
        ] = {}  # of conversations, by version of the index

    def of(self, messages: Collection[Message]) -> list[Message]:
        """Return the messages that are known by the ids of some, pending or landed, at whatever hour they were sent.

        A message of a tool or the system that has landed is found in the hours of `messages`, and in hours in which
        somebody else said something in its conversation.
        """
        wanted = {_key(message) for message in messages}
        found = self._pending(wanted, {message.scope for message in messages})
        if not self._lake.exists:
            return found
        hours = {message.hour for message in messages}
        scopes = {message.scope for message in messages}
        found += landed_messages(self._lake, hours, next(iter(scopes)) if len(scopes) == 1 else None)
        known = {_key(message) for message in found}
        new: dict[Scope, set[str]] = {}
        for message in messages:
            if message.source_id and _key(message) not in known:
                new.setdefault(message.scope, set()).add(message.conversation_id)
        for scope, conversations in new.items():
            others = self._hours_of(scope, conversations) - hours
            found += landed_messages(self._lake, others, scope) if others else []
        return [message for message in found if _key(message) in wanted]

    def add(self, path: str, messages: Sequence[Message]) -> None:
        """Take note of a file that was just written."""
        self._files[path] = frozenset(map(_key, messages)), messages if self._keeps else None

    def _pending(self, wanted: set[int], scopes: Iterable[Scope]) -> list[Message]:
        found = []
        files = {}
        for file in (file for scope in scopes for file in self._lake.journal.pending(scope)):
            keys, held = self._files.get(file.path, (None, None))
            if keys is None or (held is None and not keys.isdisjoint(wanted)):
                held = self._lake.journal.read(file).messages
                keys = frozenset(map(_key, held))
            files[file.path] = keys, held if self._keeps else None
            found += [message for message in held or () if _key(message) in wanted]
        self._files = files
        return found

    def _hours_of(self, scope: Scope, conversations: set[str]) -> set[Period]:
        """Return the hours in which conversations have landed; the index is searched once for each of its versions."""
        try:
            version = self._lake.index.version(scope, Grain.WORKING)
            if version is None:
                return set()
            known = self._hours.get(scope)
            if known is None or known[0] != version:
                known = self._hours[scope] = version, {}
            hours = known[1]
            if new := conversations - hours.keys():
                hours |= dict.fromkeys(new, frozenset()) | self._lake.index.hours_of(scope, new)
            return {Period(Grain.WORKING, key) for one in conversations for key in hours[one]}
        except (DamagedError, OSError, RuntimeError, ValueError) as error:
            # What is said must not be lost because the index is damaged, which is made again.
            _log.warning(
                "the index of %s cannot be read, ids are looked up in the hours of a write alone: %s", scope, error
            )
            return set()


def _key(message: Message) -> int:
    return hash((message.scope, message.conversation_id, message.source_id or message.id, message.source_id is None))


def landed_messages(lake: Lake, hours: Iterable[Period], scope: Scope | None = None) -> list[Message]:
    """Return the messages of `hours` that have left the journal, of one agent or of all."""
    # Imported here, so that opening a writer stays light.
    import pyarrow.compute as pc

    from memory_pipeline.lake.codec.facts import rows_to_messages
    from memory_pipeline.lake.schemas import MESSAGES

    own = None
    if scope is not None:
        own = (pc.field("workspace_id") == scope.workspace_id) & (pc.field("agent_id") == scope.agent_id)
    return rows_to_messages(lake.tables.read(MESSAGES, {hour.key for hour in hours}, where=own))


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a write put into the journal: ids of the messages, and the files that hold them.

    `recalled` counts the messages that came with recalled memory in them, which was dropped; `forgotten` those of
    somebody who was forgotten since they were said, which were dropped whole.
    """

    message_ids: tuple[str, ...]
    files: tuple[str, ...]
    recalled: int = 0
    forgotten: int = 0


class MemoryWriter(MemoryEventWriter):
    """Writes one agent's conversations, and changes its durable memories and, as :attr:`graph`, its graph.

    A write is durable when it returns, and readers find it at once. A conversation may be written again with more
    messages: what is there already is not doubled.
    """

    def __init__(self, lake: Lake, scope: Scope, start: date | None = None) -> None:
        super().__init__(lake, scope, start)
        self._known = KnownMessages(lake, keeps=True)

    @classmethod
    def open(
        cls, uri: str, *, workspace_id: str, agent_id: str, start: When | None = None, timezone: str | None = None
    ) -> MemoryWriter:
        """Open a writer on the lake at `uri`, which is made on the first write.

        Args:
            uri: a folder or ``s3://bucket/prefix``.
            workspace_id: whose memory; 1 to 100 letters, digits, ``.``, ``_``, ``-``.
            agent_id: likewise.
            start: first day that is accepted; MEMORY_PIPELINE_START if not given. Without either the memory begins
                with its oldest record.
            timezone: the zone in which days begin, for a new lake; MEMORY_PIPELINE_TIMEZONE if not given.

        Raises:
            InputError: an id is not accepted.
            ConfigurationError: the address or the zone is not accepted.
        """
        settings = Settings.from_environment()
        first = settings.start if start is None else Calendar().instant("start", start).date()
        return cls(Lake(uri, timezone or settings.timezone, first), Scope(workspace_id, agent_id))

    def write(self, conversation: Mapping[str, object], *, now: When | None = None) -> Receipt:
        """Write a conversation, whole or not at all.

        What memory recalled is no part of it: it is dropped from the messages, and one that holds nothing else is left
        out.

        Args:
            conversation: as :mod:`memory_pipeline.domain.conversations` describes; ``workspace_id`` and ``agent_id``
                may be left out. Messages may be those of OpenAI's or LiteLLM's chat API, each with its ``timestamp``.
            now: the time at which it is received; the clock's if not given.

        Raises:
            InputError: something in it is not accepted, or a message id is already used for another text. The message
                names the field and the value; nothing was written.
        """
        record = as_mapping(conversation)
        if isinstance(record, Mapping):
            for name, mine in self._own.items():
                if record.get(name, mine) != mine:
                    raise InputError(f"{name} {shown(record[name])} is another's; this writer writes for {mine}")
            record = {**record, **self._own}
        messages, rejected, recalled = read_messages(record, self._admission(now))
        if rejected:
            more = f" (and {len(rejected) - 1} more)" if len(rejected) > 1 else ""
            raise InputError(f"{rejected[0].where}: {rejected[0].reason}{more}; nothing was written")
        taken = self._lake.tombstones.forgotten().filter(messages)
        forgotten = len(messages) - len(taken)
        if not taken:
            return Receipt((), (), recalled, forgotten)
        self._lake.ensure(min(message.sent_at for message in taken))
        new = _without_known(taken, self._known.of(taken))
        files = self._lake.journal.append(new)
        for path in files:
            self._known.add(path, new)
        return Receipt(tuple(message.id for message in taken), tuple(files), recalled, forgotten)

    def compact(
        self,
        conversation: Mapping[str, object],
        *,
        keep: int = 10,
        summarizer: Summarizer | None = None,
        now: When | None = None,
    ) -> dict[str, object]:
        """Return a conversation with all but its last messages replaced by one that sums them up.

        It is written first, so nothing that is summed up is lost to memory; and the summary is a message of the system,
        which never becomes memory. Recalled memory is not summed up; in the messages that stay it stays.

        Args:
            conversation: as :meth:`write` takes it.
            keep: how many messages stay as they are; one that has no more than one besides is returned whole.
            summarizer: what sums up; what the lake's configuration names for days if not given.
            now: the time at which it is received; the clock's if not given.

        Raises:
            InputError: as :meth:`write`; or `keep` is negative.
        """
        conversation = as_mapping(conversation)  # type: ignore[assignment]  # write() refuses anything but a mapping
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
            raise InputError(f"keep {shown(keep)} is not accepted; expected a number of messages from 0")
        self.write(conversation, now=now)
        records = list(conversation["messages"])  # type: ignore[call-overload]  # write() has checked it
        if len(records) <= keep + 1:
            return dict(conversation)
        from memory_pipeline.models.factory import configured_models

        kept = records[len(records) - keep :]
        dropped = {**conversation, **self._own, "messages": records[: len(records) - keep]}
        messages = read_messages(dropped, self._admission(now)).messages
        if not messages:  # nothing but recalled memory, which can be recalled again
            return {**conversation, "messages": kept or records}
        if summarizer is None:
            configuration, zone = self._lake.configuration(), self._lake.calendar.timezone
            summarizer = configured_models(configuration, self._lake.calls, zone, lambda: datetime.now(UTC)).summarizer
        summary = summary_of(messages, self._lake.calendar, summarizer)
        return {**conversation, "messages": [summary, *kept]}

    @property
    def scope(self) -> Scope:
        """Whose memory it writes."""
        return self._scope

    @cached_property
    def graph(self) -> GraphWriter:
        """Changes the agent's graph: what it says itself, rather than what is said to it."""
        from memory_pipeline.graph import Graph
        from memory_pipeline.graph.writer import GraphWriter

        return GraphWriter(self._lake, self._scope, self._start, Graph(self._lake, self._scope, self._pending))

    @property
    def _own(self) -> dict[str, str]:
        return {"workspace_id": self._scope.workspace_id, "agent_id": self._scope.agent_id}

    def _admission(self, now: When | None) -> Admission:
        calendar = self._lake.calendar
        return Admission(self._start, calendar.moment("now", datetime.now(UTC) if now is None else now), calendar)


def _without_known(messages: list[Message], known: list[Message]) -> list[Message]:
    """Return the messages that are new; those that are known already need not be written again.

    Raises:
        InputError: one of `messages` has the id of a known one and says something else.
    """
    said = {(message.conversation_id, message.source_id): message for message in messages if message.source_id}
    for message in known:
        new = said.get((message.conversation_id, message.source_id or ""))
        if new is not None and not new.says_the_same_as(message):
            raise InputError(f"{same_id_other_content(new, message)}; nothing was written")
    ids = {message.id for message in known}
    return [message for message in messages if message.id not in ids]
