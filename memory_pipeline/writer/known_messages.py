"""Look up stored messages by their ids, and the last messages of a conversation."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_pipeline.domain.messages import Message, with_edits
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import DamagedError, shown
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.overlay.reads import journal_paths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.text.secrets import Redactor
    from memory_pipeline.lake import Lake

_log = logging.getLogger(__name__)
#: An import of more scopes reads its hours whole.
_MOST_SCOPES = 10
#: Conversations whose messages a writer caches.
_MAX_CONVERSATIONS = 10
#: More conversations are looked up by the ids in each file, which are cached.
_FEW = 10


class KnownMessages:
    """Looks up stored messages by id, so that an id cannot be used for two texts.

    With `keeps`, cache the messages of the latest conversations, for a writer that looks them up repeatedly. Otherwise
    cache only a hash per conversation and file, to know which files must be read again.
    """

    def __init__(self, lake: Lake, *, keeps: bool) -> None:
        self._lake = lake
        self._keeps = keeps
        #: The pending messages of the conversations used last, by file.
        self._talks: dict[tuple[Scope, str], dict[str, list[Message]]] = {}
        #: Hashes of the conversations in the pending files of each scope.
        self._named: dict[Scope, dict[str, frozenset[int]]] = {}
        # Version of the index, and the hours of each conversation.
        self._hours: dict[Scope, tuple[int, dict[str, frozenset[str]]]] = {}
        # Of the conversations used last: the version of the table, loaded messages by id, and the hours to read.
        self._landed: dict[tuple[Scope, str], tuple[int, Mapping[str, Message], Sequence[Period]]] = {}

    def of(self, messages: Collection[Message]) -> tuple[list[Message], list[Message]]:
        """Return the stored messages with the ids of `messages`, pending in the journal or loaded, from any hour.

        Of messages without ids from a client, these are all occurrences of an equal message.

        The second list has those of `messages` that are stored as the agent's own memory, because they were first
        written without their users. Loaded messages of tools and the system are found only in the hours of `messages`,
        and in hours with other messages of their conversation: the index does not contain them.
        """
        without_user = [
            (message, replace(message, scope=message.scope.own, users=()))
            for message in messages
            if message.scope.identity
        ]
        stored = self._stored([*messages, *(copy for _, copy in without_user)])
        keys = {_key(message) for message in messages}
        by_key = {_key(message): message for message in stored if not message.scope.identity}
        unnamed = [
            message
            for message, copy in (without_user if by_key else ())
            if (one := by_key.get(_key(copy))) is not None and one.says_the_same_as(copy)
        ]
        return [message for message in stored if _key(message) in keys], unnamed

    def repeated(self, messages: Collection[Message]) -> set[str]:
        """Return the ids of messages that are stored with these texts, now or before an edit, as far as seen quickly.

        Only texts are read, of pending messages and of the hours that the index knows of their conversations.
        """
        said = {*self._pending_texts(messages), *self._landed_texts(messages)}
        return {one.id for one in messages if (one.id, one.role, one.content) in said}

    def _pending_texts(self, messages: Collection[Message]) -> Iterator[tuple[str, object, object]]:
        """Yield id, role and each text of those of the messages that are pending and have an id of a client."""
        ids = {(one.scope, one.conversation_id, one.source_id): one.id for one in messages if one.source_id}
        for scope, conversations in _conversations_of(messages).items():
            for path, held in self._files_of(scope, conversations):
                for record in self._lake.journal.records_of(path, held):
                    identifier = ids.get((scope, str(record.get("conversation_id")), str(record.get("id"))))
                    role, content = record.get("role"), record.get("content")
                    if identifier is not None and isinstance(role, str) and isinstance(content, str):
                        yield identifier, role, content

    def _landed_texts(self, messages: Collection[Message]) -> Iterator[tuple[str, object, object]]:
        """Yield id, role and each text of the loaded messages of the same conversations and hours."""
        talks, wanted = _conversations_of(messages), {message.hour for message in messages}
        hours = [hour for scope, one in talks.items() for hour in self._hours_of(scope, one) & wanted]
        if not hours:
            return
        rows = _landed(self._lake, hours, talks, ["id", "role", "content", "original", "edits"])
        columns = (rows[name].to_pylist() for name in ("id", "role", "content", "original", "edits"))
        for identifier, role, content, original, edits in zip(*columns, strict=True):
            for text in (content, original, *(edit["content"] for edit in edits)) if edits else (content,):
                yield identifier, role, text

    def _stored(self, messages: Collection[Message]) -> list[Message]:
        keys = {_key(message) for message in messages}
        clean = {message.content for message in messages}
        talks = _conversations_of(messages)
        found = [one for scope, ids in talks.items() for one in self._pending(scope, ids, clean) if _key(one) in keys]
        if not self._lake.exists:
            return found
        hours = {message.hour for message in messages}
        scopes = {message.scope for message in messages}
        found += self._landed_in(hours, scopes if len(scopes) <= _MOST_SCOPES else None, clean)
        known = {_key(message) for message in found}
        new: dict[Scope, set[str]] = {}
        for message in messages:
            if message.source_id and _key(message) not in known:
                new.setdefault(message.scope, set()).add(message.conversation_id)
        for scope, conversations in new.items():
            others = self._hours_of(scope, conversations) - hours
            found += self._landed_in(others, [scope], clean) if others else []
        return with_edits(message for message in found if _key(message) in keys)

    def last_of(self, scope: Scope, conversation_id: str, count: int | None = None) -> list[Message]:
        """Return at least the last `count` stored messages of a conversation, oldest first; all by default.

        Of loaded hours in which only tools or the system speak, the messages are not found, as in :meth:`of`.
        """
        found = list(self._pending(scope, {conversation_id}))
        if self._lake.exists:
            found += self._landed_of(scope, conversation_id, None if count is None else count - len(found)).values()
        return sorted(with_edits(found), key=lambda message: (message.sent_at, message.turn))

    def _landed_in(
        self, hours: Iterable[Period], scopes: Iterable[Scope] | None, clean: Collection[str] = ()
    ) -> list[Message]:
        return list(self._redacted(landed_messages(self._lake, hours, scopes), clean))

    def _redacted(self, messages: Iterable[Message], clean: Collection[str] = ()) -> Iterator[Message]:
        """Yield messages as they would be written now: they may be stored with secrets, from before.

        The texts `clean` have none.
        """
        redactors: dict[str, Redactor] = {}

        def redactor_of(workspace_id: str) -> Redactor:
            if workspace_id not in redactors:
                redactors[workspace_id] = self._lake.redactor_of(workspace_id, of_messages=True)
            return redactors[workspace_id]

        return (
            one
            if one.content in clean and one.metadata is None and not one.edits
            else one.redacted(redactor_of(one.scope.workspace_id))
            for one in messages
        )

    def _landed_of(self, scope: Scope, conversation_id: str, count: int | None) -> Mapping[str, Message]:
        """Return at least the last `count` loaded messages of a conversation by id, or all."""
        version = self._lake.tables.version(MESSAGES)
        before, landed, hours = self._landed.get((scope, conversation_id), (None, {}, ()))
        if before != version:
            landed, hours = {}, sorted(self._hours_of(scope, {conversation_id}), key=lambda hour: hour.key)
        while hours and (count is None or len(landed) < count):
            hours, last = ((), hours) if count is None else (hours[:-1], hours[-1:])
            read = self._landed_in(last, [scope])
            landed = {**landed, **{one.id: one for one in read if one.conversation_id == conversation_id}}
        if self._keeps:
            self._landed.pop((scope, conversation_id), None)
            self._landed[scope, conversation_id] = version, landed, hours
            while len(self._landed) > _MAX_CONVERSATIONS:
                self._landed.pop(next(iter(self._landed)), None)
        return landed

    def add(self, path: str, messages: Sequence[Message]) -> None:
        """Remember a journal file that was just written."""
        named = self._named.get(messages[0].scope)
        if named is not None:
            named[path] = frozenset(hash(one.conversation_id) for one in messages)
        for (scope, conversation_id), files in list(self._talks.items()):  # other threads add to it
            if scope == messages[0].scope:
                files[path] = [one for one in messages if one.conversation_id == conversation_id]

    def _pending(self, scope: Scope, conversations: set[str], clean: Collection[str] = ()) -> Iterable[Message]:
        """Return the pending messages of conversations, which may be many."""
        journal = self._lake.journal
        if len(conversations) > _FEW or not self._keeps:
            holding = self._files_of(scope, conversations)
            return self._redacted(
                (one for path, held in holding for one in journal.messages_of(path, scope, held)), clean
            )
        paths = journal_paths(self._lake, scope)
        found = []
        for conversation in conversations:
            known = self._talks.pop((scope, conversation), {})
            files = {
                path: known[path]
                if path in known
                else list(self._redacted(journal.messages_of(path, scope, [conversation])))
                for path in paths
            }
            self._talks[scope, conversation] = files
            found += [one for messages in files.values() for one in messages]
        while len(self._talks) > _MAX_CONVERSATIONS:
            self._talks.pop(next(iter(self._talks)), None)
        return found

    def _files_of(self, scope: Scope, conversations: set[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield the pending files with messages of conversations, and these."""
        before, journal = self._named.get(scope, {}), self._lake.journal
        self._named[scope] = {
            path: before.get(path) or frozenset(map(hash, journal.conversations(path)))
            for path in journal_paths(self._lake, scope)
        }
        by_hash = {hash(one): one for one in conversations}
        for path, named in self._named[scope].items():
            if held := by_hash.keys() & named:
                yield path, [by_hash[one] for one in held]

    def _hours_of(self, scope: Scope, conversations: set[str]) -> set[Period]:
        """Return the hours with loaded messages of conversations. Cached per version of the index."""
        if self._lake.tables.version(MESSAGES) < 0:
            return set()  # before the first run, without opening the index
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


def _conversations_of(messages: Iterable[Message]) -> dict[Scope, set[str]]:
    talks: dict[Scope, set[str]] = {}
    for message in messages:
        talks.setdefault(message.scope, set()).add(message.conversation_id)
    return talks


def _key(message: Message) -> int:
    return hash(message.identity)


def without_users(message: Message) -> str:
    """Return the error for a message that is stored without its users."""
    return (
        f"message id {shown(message.source_id)} of conversation {shown(message.conversation_id)} was first written "
        "without a user; forget the conversation, then write it with its users"
    )


def landed_messages(lake: Lake, hours: Iterable[Period], scopes: Iterable[Scope] | None = None) -> list[Message]:
    """Return the loaded messages of `hours`, of some scopes or of all."""
    if lake.tables.version(MESSAGES) < 0:
        return []
    # Imported here to keep opening a writer fast.
    from memory_pipeline.lake.codec.facts import rows_to_messages

    return rows_to_messages(_landed(lake, hours, scopes))


def _landed(
    lake: Lake, hours: Iterable[Period], scopes: Iterable[Scope] | None, columns: Sequence[str] | None = None
) -> pa.Table:
    import pyarrow.compute as pc  # as above

    of_scopes = None if scopes is None else pc.field("scope").isin([scope.key for scope in scopes])
    return lake.tables.read(MESSAGES, {hour.key for hour in hours}, columns=columns, where=of_scopes)
