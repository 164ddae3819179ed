"""A chat store of LlamaIndex: the histories of its chat memories.

::

    store = MemoryChatStore(Memory("./my-lake", user_id="anna"))
    buffer = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="c1", token_limit=3_000)

A history is a transcript (:meth:`memory_pipeline.Memory.transcript`), whose id is the key. Messages that are added one
by one are also added to memory, as the conversation of this id, so that all later conversations can remember them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.chat_messages import is_empty
from memory_pipeline.errors import InputError, require

require("llama-index", "llama_index.core")

from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402
from llama_index.core.llms import ChatMessage  # noqa: E402
from llama_index.core.storage.chat_store.base import BaseChatStore  # noqa: E402

if TYPE_CHECKING:
    from memory_pipeline import Memory
    from memory_pipeline.domain.sessions import Ttl
    from memory_pipeline.sessions.transcript import Transcript

_log = logging.getLogger(__name__)
_SPEAKERS: Final = ("user", "assistant")


class MemoryChatStore(BaseChatStore):
    """The chat histories of one user or agent.

    What is removed from a history was said: memory keeps it until it is forgotten or erased
    (:meth:`memory_pipeline.Memory.forget`). An erasure of the conversation or the user reaches the history.

    Args:
        memory: whose memory it is. The same key of another user is another history.
        learns: whether to add what is said to memory. Without it, only the history is stored.
        ttl: how long messages live in a history, in seconds or as a timedelta; by default until they are removed.
    """

    _memory: Any = PrivateAttr()
    _learns: bool = PrivateAttr()
    _ttl: Any = PrivateAttr()

    def __init__(self, memory: Memory, *, learns: bool = True, ttl: Ttl | None = None) -> None:
        super().__init__()
        self._memory = memory
        self._learns = learns
        self._ttl = ttl

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex knows the class."""
        return "MemoryChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace the history of a key. Memory learns nothing from it."""
        self._transcript(key).replace([_record(message) for message in messages])

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the history of a key, oldest first."""
        return [ChatMessage.model_validate(record) for record in self._transcript(key).read()]

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Add a message to the history of a key. It is durable when this returns."""
        self._transcript(key).extend([_record(message)])
        said = {"role": message.role.value, "content": message.content}
        if not self._learns or said["role"] not in _SPEAKERS or is_empty(said):
            return
        try:
            self._memory.add(said, conversation_id=key)
        except InputError as error:  # such as a text that is too long: the agent goes on
            _log.warning("conversation %s: what was said is not remembered: %s", key, error)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Remove the history of a key, and return it."""
        removed = self.get_messages(key)
        self._transcript(key).clear()
        return removed or None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message with this number, from 0, and return it."""
        messages = self.get_messages(key)
        if not 0 <= idx < len(messages):
            return None
        removed = messages.pop(idx)
        self.set_messages(key, messages)
        return removed

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Remove the last message, and return it."""
        record = self._transcript(key).pop()
        return None if record is None else ChatMessage.model_validate(record)

    def get_keys(self) -> list[str]:
        """Return the keys that have a history."""
        return list(self._memory.transcripts())

    def _transcript(self, key: str) -> Transcript:
        transcript: Transcript = self._memory.transcript(key, ttl=self._ttl)
        return transcript


def _record(message: ChatMessage) -> dict[str, Any]:
    record: dict[str, Any] = message.model_dump(mode="json")
    return record
