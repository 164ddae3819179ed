"""Write an agent's conversations to the journal, and look up stored messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from memory_pipeline.domain.capture import Capture, capture_in
from memory_pipeline.domain.chat_messages import as_mapping
from memory_pipeline.domain.conversations import (
    Admission,
    ParsedConversation,
    audience_in,
    read_messages,
    same_id_other_content,
)
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.periods import Calendar, Grain, Period
from memory_pipeline.domain.scopes import Scope, label_of
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


def summary_of(messages: Sequence[Message], calendar: Calendar, summarizer: Summarizer) -> dict[str, object]:
    """Return a message that summarizes `messages` of one agent, at least one, in order, as `summarizer` does for a day.

    Its role is system, so that it never becomes memory itself. If the model must wait for a budget, rules summarize.
    """
    last = messages[-1]
    facts = DeterministicExtractor(calendar.timezone).facts_of(messages)
    facts = [fact for fact in facts if fact.kind is not FactKind.TURN] or facts
    material = tuple(
        Material(fact.id, fact.content, fact.event_at, fact.position, fact.importance, fact.entities) for fact in facts
    )
    assignment = Assignment(last.scope, calendar.period(Grain.DAILY, last.sent_at), material)
    [condensed] = summarizer.summarize([assignment])
    points: tuple[KeyPoint, ...] = (condensed or ExtractiveSummarizer().condense(assignment)).points
    lines = [f"- {calendar.day_of(point.event_at)} {point.sentence}" for point in points]
    head = f"Summary of the {len(messages)} messages before, from memory; nobody has said this:"
    return {"role": "system", "content": "\n".join([head, *lines]), "timestamp": last.sent_at.isoformat()}


_log = logging.getLogger(__name__)
#: An import of more scopes reads its hours whole.
_MOST_SCOPES = 10
#: Scopes of which a writer caches the pending messages: those of its latest writes.
_MOST_CACHED = 100


class KnownMessages:
    """Looks up stored messages by id, so that an id cannot be used for two texts.

    With `keeps`, cache the messages of pending files, for a writer that looks up the same conversations repeatedly.
    Otherwise cache only a hash per message, to know which files must be read again.
    """

    def __init__(self, lake: Lake, *, keeps: bool) -> None:
        self._lake = lake
        self._keeps = keeps
        #: The files of each scope, with the keys of their messages.
        self._files: dict[Scope, dict[str, tuple[frozenset[int], Sequence[Message] | None]]] = {}
        # Version of the index, and the hours of each conversation.
        self._hours: dict[Scope, tuple[int, dict[str, frozenset[str]]]] = {}

    def of(self, messages: Collection[Message]) -> tuple[list[Message], list[Message]]:
        """Return the stored messages with the ids of `messages`, pending in the journal or loaded, from any hour.

        The second list has those of `messages` that are stored as the agent's own memory, because they were first
        written without their users. Loaded messages of tools and the system are found only in the hours of `messages`,
        and in hours with other messages of their conversation: the index does not contain them.
        """
        without_user = [
            (message, Message.from_record({**message.to_record(), "identity": "", "users": ()}))
            for message in messages
            if message.scope.identity
        ]
        stored = self._stored([*messages, *(copy for _, copy in without_user)])
        keys = {_key(message) for message in messages}
        by_key = {_key(message): message for message in stored}
        unnamed = [
            message
            for message, copy in without_user
            if (one := by_key.get(_key(copy))) is not None and one.says_the_same_as(copy)
        ]
        return [message for message in stored if _key(message) in keys], unnamed

    def _stored(self, messages: Collection[Message]) -> list[Message]:
        keys = {_key(message) for message in messages}
        found = self._pending(keys, {message.scope for message in messages})
        if not self._lake.exists:
            return found
        hours = {message.hour for message in messages}
        scopes = {message.scope for message in messages}
        found += landed_messages(self._lake, hours, scopes if len(scopes) <= _MOST_SCOPES else None)
        known = {_key(message) for message in found}
        new: dict[Scope, set[str]] = {}
        for message in messages:
            if message.source_id and _key(message) not in known:
                new.setdefault(message.scope, set()).add(message.conversation_id)
        for scope, conversations in new.items():
            others = self._hours_of(scope, conversations) - hours
            found += landed_messages(self._lake, others, [scope]) if others else []
        return [message for message in found if _key(message) in keys]

    def add(self, path: str, messages: Sequence[Message]) -> None:
        """Remember a journal file that was just written."""
        files = self._files.setdefault(messages[0].scope, {})
        files[path] = frozenset(map(_key, messages)), messages if self._keeps else None

    def _pending(self, wanted_keys: set[int], scopes: Iterable[Scope]) -> list[Message]:
        found = []
        for scope in scopes:
            known, files = self._files.pop(scope, {}), {}
            for file in self._lake.journal.pending(scope):
                keys, stored = known.get(file.path, (None, None))
                if keys is None or (stored is None and not keys.isdisjoint(wanted_keys)):
                    stored = self._lake.journal.read(file).messages
                    keys = frozenset(map(_key, stored))
                files[file.path] = keys, stored if self._keeps else None
                found += [message for message in stored or () if _key(message) in wanted_keys]
            self._files[scope] = files
        while self._keeps and len(self._files) > _MOST_CACHED:
            del self._files[next(iter(self._files))]
        return found

    def _hours_of(self, scope: Scope, conversations: set[str]) -> set[Period]:
        """Return the hours with loaded messages of conversations. Cached per version of the index."""
        try:
            version = self._lake.index.version(scope)
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
            # The index can be rebuilt, so its damage must not block a write.
            _log.warning(
                "the index of %s cannot be read; message ids are checked only in the hours of each write: %s",
                scope,
                error,
            )
            return set()


def _key(message: Message) -> int:
    return hash((message.scope, message.conversation_id, message.source_id or message.id, message.source_id is None))


def without_users(message: Message) -> str:
    """Return the error for a message that is stored without its users."""
    return (
        f"message id {shown(message.source_id)} of conversation {shown(message.conversation_id)} was first written "
        "without a user; forget the conversation, then write it with its users"
    )


def landed_messages(lake: Lake, hours: Iterable[Period], scopes: Iterable[Scope] | None = None) -> list[Message]:
    """Return the loaded messages of `hours`, of some scopes or of all."""
    # Imported here to keep opening a writer fast.
    import pyarrow.compute as pc

    from memory_pipeline.lake.codec.facts import rows_to_messages
    from memory_pipeline.lake.schemas import MESSAGES

    of_scopes = None if scopes is None else pc.field("scope").isin([scope.key for scope in scopes])
    return rows_to_messages(lake.tables.read(MESSAGES, {hour.key for hour in hours}, where=of_scopes))


@dataclass(frozen=True, slots=True)
class Receipt:
    """Result of a write.

    Attributes:
        accepted: ids of the messages that were written.
        repeated: ids of the messages that were stored before.
        files: new journal files.
        recalled: number of messages from which recalled text was dropped.
        forgotten: number of messages that were dropped because their subject was erased later.
        not_captured: number of messages that were not stored, because their conversation is not captured in full.
    """

    accepted: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    recalled: int = 0
    forgotten: int = 0
    not_captured: int = 0

    @property
    def message_ids(self) -> tuple[str, ...]:
        """Ids of all messages that are stored now."""
        return (*self.accepted, *self.repeated)


class MemoryWriter(MemoryEventWriter):
    """Writes one agent's conversations, durable memories and, as :attr:`graph`, its graph.

    A conversation is written to the memory of those who take part: of its `user_id`, of the group of its `users`, or of
    the group with its `group_id`; else of the users that its messages name. If none is named, it is the agent's own.

    A write is durable when it returns, and readers find it at once. A conversation may be written again with more
    messages; stored messages are not duplicated.
    """

    def __init__(
        self,
        lake: Lake,
        scope: Scope,
        start: date | None = None,
        users: Sequence[str] = (),
        user_id: str | None = None,
    ) -> None:
        super().__init__(lake, scope, start, users)
        self._user_id = user_id or scope.user_id
        self._known = KnownMessages(lake, keeps=True)

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        workspace_id: str,
        agent_id: str,
        user_id: str | None = None,
        users: Sequence[str] | None = None,
        group_id: str | None = None,
        start: When | None = None,
        timezone: str | None = None,
    ) -> MemoryWriter:
        """Open a writer on the lake at `uri`. The first write creates the lake.

        Args:
            uri: a folder or ``s3://bucket/prefix``.
            workspace_id: any text up to 256 characters without control characters.
            agent_id: in the same format.
            user_id: the user whose memory is written, unless a conversation names others. Without users, memory is the
                agent's own. Naming a user creates the lake.
            users: the users of a group, in place of `user_id`.
            group_id: the group with this id, of which `users` are members.
            start: first accepted day, by default MEMORY_PIPELINE_START. Without either, memory begins with its oldest
                record.
            timezone: time zone in which days begin, for a new lake; by default MEMORY_PIPELINE_TIMEZONE.

        Raises:
            InputError: an id or `start` is invalid.
            ConfigurationError: the address or the time zone is invalid.
        """
        settings = Settings.from_environment()
        first = settings.start if start is None else Calendar().instant("start", start).date()
        lake = Lake(uri, timezone or settings.timezone, first)
        own = Scope(workspace_id, agent_id)
        fields = {"user_id": user_id, "users": users, "group_id": group_id}
        audience = audience_in(fields, ())
        if not audience.identity:
            return cls(lake, own)
        scope = lake.new_scope(workspace_id, agent_id, audience.identity)
        return cls(lake, scope, users=audience.users, user_id=user_id)

    def write(self, conversation: Mapping[str, object], *, now: When | None = None) -> Receipt:
        """Write a conversation atomically.

        Recalled text is dropped from the messages, and messages without other text are left out. Nothing is stored of a
        conversation that is not captured in full: because it states so (``capture``), or by the configuration.

        Args:
            conversation: see :mod:`memory_pipeline.domain.conversations`; ``workspace_id`` and ``agent_id`` are
                optional. Messages of OpenAI's or LiteLLM's chat API are accepted, each with a ``timestamp``.
            now: time of receipt; by default the current time.

        Raises:
            InputError: a value is invalid, or a message id is already used for another text; nothing was written.
        """
        record = as_mapping(conversation)
        if isinstance(record, Mapping):
            for name, mine in self._ids.items():
                if record.get(name, mine) != mine:
                    raise InputError(
                        f"{name} {shown(record[name])} is not this writer's; expected {mine}, or leave it out"
                    )
            record = self._named(record)
            if not self._is_captured(record):
                return Receipt(not_captured=_messages_in(record))
        messages, rejected, recalled = self._read(record, now)
        if rejected:
            more = f" (and {len(rejected) - 1} more)" if len(rejected) > 1 else ""
            raise InputError(f"{rejected[0].where}: {rejected[0].reason}{more}; nothing was written")
        remembered = self._lake.tombstones.forgotten().filter(messages)
        forgotten = len(messages) - len(remembered)
        if not remembered:
            return Receipt(recalled=recalled, forgotten=forgotten)
        self._lake.ensure(min(message.sent_at for message in remembered))
        stored, unnamed = self._known.of(remembered)
        if unnamed:
            raise InputError(f"{without_users(unnamed[0])}; nothing was written")
        new = _without_known(remembered, stored)
        self._lake.members.add(new)
        files = self._lake.journal.append(new)
        for path in files:
            self._known.add(path, new)
        accepted = tuple(message.id for message in new)
        repeated = tuple(message.id for message in remembered if message.id not in set(accepted))
        return Receipt(accepted, repeated, tuple(files), recalled, forgotten)

    def compact(
        self,
        conversation: Mapping[str, object],
        *,
        keep: int = 10,
        summarizer: Summarizer | None = None,
        now: When | None = None,
    ) -> dict[str, object]:
        """Return a conversation with all but its last messages replaced by a summary, to fit a context window.

        The conversation is written first, so nothing is lost. The summary is a system message, which never becomes
        memory. Recalled text is not summarized, but remains in the last messages. If the conversation is not captured,
        rules summarize it and nothing is stored.

        Args:
            conversation: as for :meth:`write`.
            keep: number of last messages to keep. A conversation with at most one more is returned unchanged.
            summarizer: by default the model that the lake's configuration names for days.
            now: time of receipt; by default the current time.

        Raises:
            InputError: as for :meth:`write`, or `keep` is negative.
        """
        conversation = as_mapping(conversation)  # type: ignore[assignment]  # write() refuses anything but a mapping
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
            raise InputError(f"keep {shown(keep)} is not accepted; expected a number of messages from 0")
        self.write(conversation, now=now)
        records = list(conversation["messages"])  # type: ignore[call-overload]  # write() has checked it
        if len(records) <= keep + 1:
            return dict(conversation)
        from memory_pipeline.models.factory import configured_models

        last_records = records[len(records) - keep :]
        dropped = {**self._named(conversation), "messages": records[: len(records) - keep]}
        messages = self._read(dropped, now).messages
        if not messages:  # only recalled text, which can be recalled again
            return {**conversation, "messages": last_records or records}
        if not self._is_captured(self._named(conversation)):
            summarizer = ExtractiveSummarizer()  # the answers of a model are stored
        elif summarizer is None:
            configuration, zone = self._lake.configuration(), self._lake.calendar.timezone
            summarizer = configured_models(configuration, self._lake.calls, zone, lambda: datetime.now(UTC)).summarizer
        summary = summary_of(messages, self._lake.calendar, summarizer)
        return {**conversation, "messages": [summary, *last_records]}

    def remove_member(self, user_id: str) -> bool:
        """Remove a user from this writer's group. The user no longer sees its memory, until a write names the user.

        Return whether the user was a member. The group keeps what the user said.

        Raises:
            InputError: this writer is not of a group, or `user_id` is invalid.
        """
        if not self._scope.is_group:
            raise InputError("this writer is not of a group; open it with group_id and users")
        return self._lake.members.remove(self._scope, label_of("user_id", user_id))

    @property
    def scope(self) -> Scope:
        """The scope of durable memories, of the graph, and of conversations that name no user."""
        return self._scope

    @property
    def users(self) -> Sequence[str]:
        """The users for whom it writes, unless a conversation names others; none for the agent's own memory."""
        return self._users or ([] if self._user_id is None else [self._user_id])

    @cached_property
    def graph(self) -> GraphWriter:
        """Changes the agent's graph directly, rather than through conversations."""
        from memory_pipeline.graph import Graph
        from memory_pipeline.graph.writer import GraphWriter

        return GraphWriter(
            self._lake, self._scope, self._start, Graph(self._lake, self._scope, self._pending), self._users
        )

    @property
    def _ids(self) -> dict[str, str]:
        return {"workspace_id": self._scope.workspace_id, "agent_id": self._scope.agent_id}

    def _named(self, conversation: Mapping[str, object]) -> dict[str, object]:
        """Return a conversation with the ids of this writer, and with its user if no other is named."""
        own: dict[str, object] = {**conversation, **self._ids}
        if all(own.get(name) is None for name in ("user_id", "users", "group_id")):
            own |= {**self._scope.audience_fields(self._users), "user_id": self._user_id}
        return own

    def _is_captured(self, conversation: Mapping[str, object]) -> bool:
        return capture_in(conversation, self._lake.capture_of) is Capture.FULL

    def _read(self, conversation: object, now: When | None) -> ParsedConversation:
        return read_messages(conversation, self._admission(now), self._lake.new_scope, self._lake.timezone_of)

    def _admission(self, now: When | None) -> Admission:
        calendar = self._lake.calendar
        return Admission(self._start, calendar.moment("now", datetime.now(UTC) if now is None else now), calendar)


def _messages_in(conversation: Mapping[str, object]) -> int:
    messages = conversation.get("messages")
    return len(messages) if isinstance(messages, list | tuple) else 0


def _without_known(messages: list[Message], known: list[Message]) -> list[Message]:
    """Return the messages that are not stored yet. Raise InputError if one has the id of another text."""
    said = {(message.conversation_id, message.source_id): message for message in messages if message.source_id}
    for message in known:
        new = said.get((message.conversation_id, message.source_id or ""))
        if new is not None and not new.says_the_same_as(message):
            raise InputError(f"{same_id_other_content(new, message)}; nothing was written")
    ids = {message.id for message in known}
    return [message for message in messages if message.id not in ids]
