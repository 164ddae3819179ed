"""Writes conversations into the journal; and, with what it inherits, what an agent keeps for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from memory_pipeline.domain.chat_messages import as_mapping
from memory_pipeline.domain.conversations import Admission, Message, Scope, read_messages, same_id_other_content
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake import Lake
from memory_pipeline.settings import Settings
from memory_pipeline.writer.known import KnownMessages
from memory_pipeline.writer.memories import DurableWriter

if TYPE_CHECKING:
    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.summaries import Summarizer
    from memory_pipeline.graph.writer import GraphWriter


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


class MemoryWriter(DurableWriter):
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
        from memory_pipeline.writer.compaction import summary_of

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
