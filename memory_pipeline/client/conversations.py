"""The conversations of a memory: save, get, search, list and prune."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from memory_pipeline.domain.scopes import label_of
from memory_pipeline.domain.values import count_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.parameters import Within
from memory_pipeline.search.arguments import MAX_DAYS_AGO, MAX_RESULTS
from memory_pipeline.writer.known_messages import KnownMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memory_pipeline.client.opened import OpenedMemory
    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.periods import When
    from memory_pipeline.search.searcher import Hit
    from memory_pipeline.writer import Receipt

    # Inside of the class, `list` is its method.
    Found = list["Conversation"]
    Messages = list[Message]

#: Longest list of conversations.
_MOST: Final = 10_000


class Conversation(NamedTuple):
    """A conversation.

    Attributes:
        id: its id.
        last_at: when its last message was said, or the one that matches a query best.
        content: this message.
        identity: the user or group whose memory it is in: ``user:`` or ``group:`` and an id; empty for the agent's own.
    """

    id: str
    last_at: datetime
    content: str
    identity: str


class Conversations:
    """The conversations that a :class:`~memory_pipeline.Memory` sees. Take it from :attr:`Memory.conversations`."""

    def __init__(self, memory: OpenedMemory, add: Callable[..., Receipt], forget: Callable[..., object]) -> None:
        """Take a :class:`~memory_pipeline.Memory`, and two of its methods."""
        self._memory = memory
        self._add = add
        self._forget = forget
        self._known = KnownMessages(memory.lake, keeps=False)

    def save(self, messages: object, conversation_id: str | None = None, *, now: When | None = None) -> str:
        """Store a conversation, or its new end; return its id. See :meth:`Memory.add`.

        Raises:
            InputError: a message is invalid; nothing was written.
        """
        return self._add(messages, conversation_id=conversation_id, now=now).conversation_id

    def get(self, conversation_id: str) -> Messages:
        """Return the messages of a conversation, oldest first; none if it is unknown.

        Once the pipeline has processed them, hours in which only tools or the system speak are left out.

        Raises:
            InputError: the id is invalid.
        """
        label_of("conversation_id", conversation_id)
        found: Messages = []
        for scope in self._memory.reader.scopes:
            found += self._known.last_of(scope, conversation_id)
        return sorted(found, key=lambda message: (message.sent_at, message.turn))

    def search(self, query: str, limit: int = 10) -> Found:
        """Return the conversations that match a query, best first.

        Raises:
            InputError: `limit` is not from 1 to 100, or the query is too long.
        """
        count_of("limit", limit, 1, MAX_RESULTS)
        hits = self._memory.reader.search_memory("working", 0, MAX_DAYS_AGO, MAX_RESULTS, query)
        return list(_by_conversation(hits).values())[:limit]

    def list(
        self,
        limit: Annotated[int, Within(1, _MOST)] = 100,
        *,
        active_within: timedelta | None = None,
        now: When | None = None,
    ) -> Found:
        """Return the last conversations, newest first.

        Args:
            limit: 1 to 10,000.
            active_within: only conversations with a message in this time before `now`, such as the last day.
            now: the current time.

        Raises:
            InputError: an argument is invalid.
        """
        count_of("limit", limit, 1, _MOST)
        since = None if active_within is None else self._moment(now) - active_within
        count = limit
        while True:
            hits = self._memory.reader.newest("working", count, since=since)
            found = _by_conversation(hits)
            if len(found) >= limit or len(hits) < count:
                return list(found.values())[:limit]
            count *= 2

    def prune(self, older_than: timedelta, *, now: When | None = None) -> int:
        """Erase the conversations of this user or agent whose last message is older; return their number.

        They are erased with what was made of them, one by one (:meth:`Memory.forget`). Conversations of groups stay. To
        delete old messages of all agents on a schedule, use retention.

        Raises:
            InputError: `older_than` is negative.
        """
        if older_than < timedelta():
            raise InputError(f"older_than {shown(older_than)} is negative; expected the least age of what is erased")
        until = self._moment(now) - older_than
        identity = self._memory.writer.scope.identity
        old = [one for one in self.list(_MOST) if one.last_at < until and one.identity == identity]
        for one in old:
            self._forget(conversation_id=one.id, now=now)
        return len(old)

    def _moment(self, now: When | None) -> datetime:
        return self._memory.lake.calendar.moment("now", now or datetime.now(UTC))


def _by_conversation(hits: Iterable[Hit]) -> Mapping[tuple[str, str], Conversation]:
    found: dict[tuple[str, str], Conversation] = {}
    for hit in hits:
        if hit.conversation_id is not None:
            one = Conversation(hit.conversation_id, hit.ends_at, hit.content, hit.identity)
            found.setdefault((hit.identity, hit.conversation_id), one)
    return found
