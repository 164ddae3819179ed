"""The messages of a conversation that fit into a model's context."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.chat_messages import as_mapping, messages_in
from memory_pipeline.domain.context_window import estimated_tokens, most_relevant, newest
from memory_pipeline.domain.values import count_of, one_of
from memory_pipeline.search.arguments import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.client.memory import Memory

_log = logging.getLogger(__name__)
#: Messages that a summary leaves as they are, at most, and the part of the window that is its own.
_KEPT, _RESERVED = 10, 4


class Strategy(StrEnum):
    """What happens to older messages when the window is full.

    ``fifo`` drops the oldest. ``semantic`` drops those that matter least for the present topic. ``summarize`` replaces
    all but the last ten by a summary, or all but those that leave a quarter of the window to the summary.
    """

    FIFO = "fifo"
    SEMANTIC = "semantic"
    SUMMARIZE = "summarize"


class ContextWindow:
    """The messages of a conversation that fit into a model's context, in order.

    ::

        window = ContextWindow(memory, max_tokens=4_096, strategy="summarize")
        window.add({"role": "user", "content": "I moved to Porto."})
        client.chat.completions.create(model=..., messages=window.messages)

    A message that is added over the limit makes room by itself. Every message is stored in `memory` first, so that what
    leaves the window is not lost. Not safe to use from several threads.

    Attributes:
        messages: the messages, oldest first.
        conversation_id: the conversation in memory; None before the first message.
    """

    def __init__(
        self,
        memory: Memory,
        max_tokens: int = 4_096,
        strategy: Strategy | str = Strategy.FIFO,
        *,
        conversation_id: str | None = None,
        count: Callable[[str], int] = estimated_tokens,
    ) -> None:
        """Open an empty window.

        Args:
            memory: where all messages are stored.
            max_tokens: limit of the contents of all messages.
            strategy: what leaves a full window. ``fifo``: the oldest messages. ``semantic``: those that matter least
                for the present topic. ``summarize``: a summary, of at most a quarter of the window, replaces all
                messages but the last ones, at most ten.
            conversation_id: the conversation, to continue it; by default a new one.
            count: returns the number of tokens of a text, as the model's tokenizer does. By default four characters are
                a token.

        Raises:
            InputError: an argument is invalid.
        """
        self.max_tokens = count_of("max_tokens", max_tokens, 1, MAX_TOKENS)
        self._strategy = one_of(Strategy, "strategy", strategy)
        self.messages: list[Any] = []
        self.conversation_id = conversation_id
        self._summary: dict[str, object] | None = None
        #: The messages of the summary: a new summary is made of all of them.
        self._summarized: list[Any] = []
        self._memory = memory
        self._count = count

    def add(self, message: object, *, now: datetime | None = None) -> None:
        """Store a message, and add it to the window. A text is one of the user.

        Older messages leave if there is no room. A message that alone exceeds the limit is stored but kept out, and a
        warning is logged.

        Raises:
            InputError: the message is invalid; nothing was stored.
        """
        message = {"role": "user", "content": message} if isinstance(message, str) else message
        receipt = self._memory.add(message, conversation_id=self.conversation_id, now=now)
        self.conversation_id = receipt.conversation_id
        if (size := self._size(message)) > self.max_tokens:
            _log.warning("a message of %d tokens exceeds max_tokens %d and is kept out", size, self.max_tokens)
            return
        self.messages.append(message)
        if self.tokens > self.max_tokens:
            self.prune(now=now)

    @property
    def tokens(self) -> int:
        """The number of tokens of all messages."""
        return sum(map(self._size, self.messages))

    @property
    def is_full(self) -> bool:
        """Whether the messages use all tokens."""
        return self.tokens >= self.max_tokens

    def clear(self) -> None:
        """Remove all messages from the window. They stay in memory."""
        self.messages, self._summarized, self._summary = [], [], None

    def get_context(self, max_tokens: int | None = None) -> list[Any]:
        """Return the newest messages, without a gap, whose contents fit into a limit, oldest first.

        Args:
            max_tokens: the limit; by default that of the window, which all messages fit into.

        Raises:
            InputError: the limit is not accepted.
        """
        limit = self.max_tokens if max_tokens is None else count_of("max_tokens", max_tokens, 1, MAX_TOKENS)
        return [self.messages[place] for place in newest([self._size(message) for message in self.messages], limit)]

    def prune(self, strategy: Strategy | str | None = None, *, now: datetime | None = None) -> None:
        """Let older messages leave, as :meth:`add` does when the window is over its limit. They stay in memory.

        Args:
            strategy: what leaves; by default by the strategy of the window. ``summarize`` replaces all but the last ten
                messages, also if all fit. The others remove what does not fit, after `max_tokens` was lowered.
            now: the time of the summary; by default the current time.

        Raises:
            InputError: the strategy is unknown.
        """
        strategy = self._strategy if strategy is None else one_of(Strategy, "strategy", strategy)
        if strategy is Strategy.SUMMARIZE:
            self._summarize(now or datetime.now(UTC))
            return
        sizes = [self._size(message) for message in self.messages]
        if strategy is Strategy.SEMANTIC:
            chosen = most_relevant([_text_of(message) for message in self.messages], sizes, self.max_tokens)
        else:
            chosen = newest(sizes, self.max_tokens)
        self.messages = [self.messages[place] for place in chosen]

    def _summarize(self, now: datetime) -> None:
        """Replace all but the last messages by a summary of all that have left, cut to the room that there is."""
        said = [message for message in self.messages if message is not self._summary]
        sizes = [self._size(message) for message in said]
        [first, *_] = newest(sizes, self.max_tokens - self.max_tokens // _RESERVED)[-_KEPT:] or [len(said) - 1]
        if first <= 0 and self.tokens <= self.max_tokens:
            return
        self._summarized += said[:first]
        conversation = {"conversation_id": self.conversation_id, "messages": self._summarized}
        summary = self._memory.writer.summarize(conversation, now=now)
        self._summary = None if summary is None else self._cut(summary, self.max_tokens - sum(sizes[first:]))
        self.messages = [*([] if self._summary is None else [self._summary]), *said[first:]]

    def _cut(self, summary: dict[str, object], room: int) -> dict[str, object] | None:
        """Return a summary without its oldest points, so that it fits; None if none of them fits."""
        head, *points = str(summary["content"]).split("\n")
        while points and self._count("\n".join([head, *points])) > room:
            del points[0]
        return {**summary, "content": "\n".join([head, *points])} if points else None

    def _size(self, message: object) -> int:
        return self._count(_text_of(message))


def _text_of(message: object) -> str:
    record = as_mapping(message)
    parts = messages_in(record) if isinstance(record, Mapping) else []
    return "\n".join(str(part["content"]) for part in parts if part.get("content"))
