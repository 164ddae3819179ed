"""Write an agent's conversations to the journal: what is new in them, and edits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.alignment import continuation, in_order, keyed, not_stored, numbered, written_before
from memory_pipeline.domain.capture import Capture, capture_in
from memory_pipeline.domain.chat_messages import as_mapping, is_empty
from memory_pipeline.domain.conversations import (
    Admission,
    Receipt,
    read_messages,
    unread_times,
    with_times,
)
from memory_pipeline.domain.messages import Role
from memory_pipeline.errors import InputError, MemoryPipelineError, shown
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.memories.writer import MemoryEventWriter
from memory_pipeline.overlay.reads import journal_paths, one_read
from memory_pipeline.overlay.segments import is_due, least_entries, merge
from memory_pipeline.telemetry import observed
from memory_pipeline.writer.histories import KnownHistories
from memory_pipeline.writer.known_messages import KnownMessages, without_users
from memory_pipeline.writer.sharing import AccessWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

_log = logging.getLogger(__name__)
#: Pending entries of a scope that start a run in the background, and those of which a writer warns once.
MANY, _TOO_MANY = 1_000, 5_000


class ConversationWriter(AccessWriter, MemoryEventWriter):
    """Writes conversations; see :class:`memory_pipeline.writer.MemoryWriter`."""

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
        self._histories = KnownHistories()
        #: Called after a write, if at least :data:`MANY` entries of its scope are pending.
        self.run_when_many: Callable[[], None] | None = None
        self._has_warned = False

    @observed("upsert_memory")
    @one_read(is_new=True)
    def write(
        self, conversation: Mapping[str, object], *, idempotency_key: str | None = None, now: When | None = None
    ) -> Receipt:
        """Write a conversation atomically.

        Recalled text is dropped from the messages, and messages without other text are left out. Nothing is stored of a
        conversation that is not captured in full: because it states so (``capture``), or by the configuration.

        Args:
            conversation: see :mod:`memory_pipeline.domain.conversations`; ``workspace_id`` and ``agent_id`` are
                optional. Messages of OpenAI's or LiteLLM's chat API are accepted, each with a ``timestamp``.
            idempotency_key: identifies this write within its conversation. If a write with the key was stored before,
                nothing is written.
            now: time of receipt; by default the current time.

        Raises:
            InputError: a value is invalid, or a message id is already used for another text; nothing was written.
        """
        record = self._own(conversation)
        if isinstance(record, Mapping) and not self._is_captured(record):
            return Receipt(not_captured=_messages_in(record))
        messages, recalled = self._accepted(record, now)
        noted = self._noted(record, now)
        if messages and idempotency_key is not None:
            with_ids = keyed(messages, idempotency_key)
            stored = self._known.last_of(messages[0].scope, messages[0].conversation_id)
            if before := written_before(messages, with_ids, stored):
                return replace(noted, repeated=before, recalled=recalled)
            messages = with_ids
        return replace(self._append(messages, recalled), unread_times=noted.unread_times)

    @observed("upsert_memory")
    @one_read(is_new=True)
    def extend(
        self,
        conversation: Mapping[str, object],
        *,
        history: bool | None = None,
        idempotency_key: str | None = None,
        is_new: bool = False,
        now: When | None = None,
    ) -> Receipt:
        """Write the messages of a conversation that are not stored yet. They need no timestamps.

        The list may repeat messages that are stored already, as the history that an agent sends to its model does: all
        of them, only the last ones, or the last ones after a summary. Only what is new is written. A list is a history
        if it goes on after the last stored message, or begins with the first one; in other lists, all messages are new,
        except those with a known id. An instruction (system, developer) is stored once per text. A message without a
        time gets the time of receipt; one that is stored keeps its time. Messages that say nothing are left out and
        counted.

        A known id with another text, and another answer to the last stored question, are edits: the message keeps its
        id and time, and has the later text. After an erasure, messages without a time that may be older than it are
        left out and counted as forgotten.

        Args:
            conversation: as for :meth:`write`.
            history: whether the list repeats messages that are stored; by default the list shows it.
            idempotency_key: as for :meth:`write`. Give a retry the key of the first attempt.
            is_new: whether the id of the conversation was just made, so that nothing is stored of it: no stored message
                is looked up.
            now: time of receipt; by default the current time.

        Raises:
            InputError: as for :meth:`write`.
        """
        record = self._own(conversation)
        if isinstance(record, Mapping) and not self._is_captured(record):
            return Receipt(not_captured=_messages_in(record))
        at = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
        if history is False or idempotency_key is not None or is_new or not isinstance(record, Mapping):
            return self._extended(record, history, idempotency_key, at, is_new=is_new)[0]
        state = self._lake.tables.version(MESSAGES), self._lake.tombstones.forgotten()
        known = self._histories.find(record, state)
        if known is not None:
            stored = in_order(self._known.last_of(known.scope, record["conversation_id"]))
            known = known if stored and stored[-1].id == known.ids[-1] else None
        omitted = () if known is None else known.omitted
        rest = {**record, "messages": record["messages"][len(omitted) :]} if omitted else record
        receipt, scope = self._extended(rest, history or known is not None or None, None, at)
        receipt = replace(receipt, repeated=(*omitted, *receipt.repeated))
        if scope is not None:
            self._histories.remember(record, receipt, scope, state, known)
        return receipt

    def _extended(
        self,
        record: object,
        history: bool | None,
        idempotency_key: str | None,
        at: datetime,
        *,
        is_new: bool = False,
    ) -> tuple[Receipt, Scope | None]:
        """Write what is new in a conversation; return the receipt, and the scope, None if nothing was said."""
        timed, times = with_times(record, self._admission(at))
        messages, recalled = self._accepted(timed, at, skips_empty=True)
        noted = self._noted(record, at)
        if not messages:
            return replace(noted, recalled=recalled), None
        scope, conversation_id = messages[0].scope, messages[0].conversation_id
        with_ids = messages if idempotency_key is None else keyed(messages, idempotency_key)
        is_compared = len(messages) > 1 and history is not False
        is_looked_up = history or any(one.source_id or one.role is Role.SYSTEM for one in with_ids)
        count = None if is_compared or is_looked_up else 1
        stored = in_order([] if is_new else self._known.last_of(scope, conversation_id, count))
        if before := written_before(messages, with_ids, stored):
            return replace(noted, repeated=before, recalled=recalled), scope
        untimed = {place for place, message in enumerate(messages) if message.sent_at in times}
        found = continuation(
            messages, with_ids, stored, untimed, at, self._lake.tombstones.forgotten(), history=history
        )
        receipt = self._append(found.new, recalled, found.fresh, found.edits, is_new=is_new)
        receipt = replace(
            receipt,
            forgotten=receipt.forgotten + found.erased,
            repeated=(*found.repeated, *receipt.repeated),
            empty=noted.empty,
            unread_times=noted.unread_times,
        )
        return receipt, scope

    def _own(self, conversation: object) -> object:
        """Return a conversation with the ids of this writer. Raise InputError if it names others."""
        record = as_mapping(conversation)
        if not isinstance(record, Mapping):
            return record
        for name, mine in self._ids.items():
            if record.get(name, mine) != mine:
                raise InputError(f"{name} {shown(record[name])} is not this writer's; expected {mine}, or leave it out")
        redactor = self._lake.redactor_of(self._scope.workspace_id, of_messages=True)
        return self._named(redactor.value(record))

    def _noted(self, record: object, now: When | None) -> Receipt:
        """Return a receipt of what is left out of a valid conversation."""
        records = record["messages"] if isinstance(record, Mapping) else ()
        return Receipt(empty=sum(map(is_empty, records)), unread_times=unread_times(records, self._admission(now)))

    def _accepted(self, record: object, now: When | None, *, skips_empty: bool = False) -> tuple[list[Message], int]:
        messages, rejected, recalled = read_messages(
            record, self._admission(now), self._lake.new_scope, self._lake.timezone_of, skips_empty=skips_empty
        )
        if rejected:
            more = f" (and {len(rejected) - 1} more)" if len(rejected) > 1 else ""
            raise InputError(f"{rejected[0].where}: {rejected[0].reason}{more}; nothing was written")
        if messages and self._user_id is not None:
            self._require_own(messages[0], self._user_id)
        return messages, recalled

    def _require_own(self, message: Message, user_id: str) -> None:
        """Refuse a conversation of others than this writer's user, and one that would let a user join a group.

        Raises:
            InputError: it is one; nothing was written.
        """
        scope = message.scope
        named = message.users if scope.is_group else [message.user_id or user_id]
        if user_id not in named:
            raise InputError(
                f"this writer is for user {shown(user_id)}, who is not among {', '.join(map(shown, named))}; name this "
                "user too, or open a writer without user_id; nothing was written"
            )
        if scope.is_group and self._lake.exists:
            members = self._lake.members.users_of(scope)
            new = sorted({*named} - {*members})
            if new and (members or self._has_memory(scope)):
                raise InputError(
                    f"{shown(new[0])} is not in this group, which has memory; to let the user read it, call add_member "
                    "of a writer of the group, opened with users and group_id; nothing was written"
                )

    def _has_memory(self, scope: Scope) -> bool:
        return bool(self._lake.journal.pending(scope)) or self._lake.scopes.read([scope], ["id"]).num_rows > 0

    def _append(
        self,
        messages: list[Message],
        recalled: int,
        fresh: Collection[int] = (),
        edits: Sequence[Message] = (),
        *,
        is_new: bool = False,
    ) -> Receipt:
        """Write messages that are not stored, and edits of stored ones.

        Messages with the turns `fresh` are new, though equal ones may be stored. No message of a conversation that
        `is_new` is stored.
        """
        tombstones = self._lake.tombstones.forgotten()
        remembered, changes = tombstones.filter(messages), tombstones.filter(edits)
        forgotten = len(messages) + len(edits) - len(remembered) - len(changes)
        lasting = self._lake.without_expired(remembered)
        expired, remembered = len(remembered) - len(lasting), lasting
        if not remembered and not changes:
            return Receipt(recalled=recalled, forgotten=forgotten, expired=expired)
        self._lake.ensure(min(message.sent_at for message in (*remembered, *changes)))
        stored, unnamed = ([], []) if is_new else self._known.of(remembered)
        if unnamed:
            raise InputError(f"{without_users(unnamed[0])}; nothing was written")
        remembered = numbered(remembered, stored, fresh)
        new = not_stored(remembered, stored)
        self._lake.members.add(new)
        files = self._lake.journal.append([*new, *changes])
        for path in files:
            self._known.add(path, [*new, *changes])
        for scope in {one.scope for one in (*new, *changes)}:
            self._merge_small_files(scope)
        accepted = tuple(message.id for message in new)
        repeated = tuple(message.id for message in remembered if message.id not in set(accepted))
        changed = tuple(message.id for message in changes)
        return Receipt(accepted, repeated, tuple(files), recalled, forgotten, expired, edited=changed)

    def _merge_small_files(self, scope: Scope) -> None:
        """Merge pending files of a scope, if there are many. The write is durable before: an error only delays this."""
        if not is_due(journal_paths(self._lake, scope)):
            return
        # Imported late: the rules compile many patterns.
        from memory_pipeline.models.factory import builtin_embedder

        try:
            merge(self._lake, scope, builtin_embedder(self._lake.configuration()))
        except (MemoryPipelineError, OSError) as error:
            _log.warning("small pending files of %s were not merged; a later write tries again: %s", scope, error)
        entries = least_entries(self._lake.journal.paths(scope))
        if self.run_when_many is not None and entries >= MANY:
            self.run_when_many()
        elif entries >= _TOO_MANY and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s has more than %s pending entries, which each new process reads; run `memory-pipeline run` or the "
                "pipeline in Dagster, or open Memory with auto_run=True",
                scope,
                f"{_TOO_MANY:,}",
            )

    @property
    def scope(self) -> Scope:
        """The scope of durable memories, of the graph, and of conversations that name no user."""
        return self._scope

    @property
    def users(self) -> Sequence[str]:
        """The users for whom it writes, unless a conversation names others; none for the agent's own memory."""
        return self._users or ([] if self._user_id is None else [self._user_id])

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

    def _admission(self, now: When | None) -> Admission:
        calendar = self._lake.calendar
        return Admission(self._start, calendar.moment("now", datetime.now(UTC) if now is None else now), calendar)


def _messages_in(conversation: Mapping[str, object]) -> int:
    messages = conversation.get("messages")
    return len(messages) if isinstance(messages, list | tuple) else 0
