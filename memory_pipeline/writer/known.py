"""What has been said already: looked up before something is written, so that contradictions are refused at the door."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from memory_pipeline.domain.conversations import Message, Scope
    from memory_pipeline.lake import Lake

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
