"""A session of the OpenAI Agents SDK, with memory.

::

    session = MemorySession("c1", Memory("./my-lake", user_id="anna"))
    await Runner.run(agent, "I moved to Porto.", session=session)

The items of a session, calls of tools among them, are a transcript (:meth:`memory_pipeline.Memory.transcript`): they
come back word for word and in order. What the user and the model said is also added to memory, as the conversation of
the same id, so that all later conversations can remember it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, cast

from memory_pipeline.domain.chat_messages import is_empty
from memory_pipeline.errors import InputError, require

require("openai-agents", "agents.memory")

from agents.memory import SessionSettings  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agents import TResponseInputItem

    from memory_pipeline import Memory
    from memory_pipeline.domain.sessions import Ttl

_log = logging.getLogger(__name__)
_SPEAKERS: Final = ("user", "assistant")


class MemorySession:
    """A session of an agent of the OpenAI Agents SDK. It implements the SDK's protocol ``Session``.

    Secrets are removed if the workspace's configuration says so. What is popped or cleared is no longer part of the
    session, but it was said: memory keeps it until it is forgotten or erased (:meth:`memory_pipeline.Memory.forget`).
    An erasure of the conversation or the user reaches the session.

    Args:
        session_id: the session, and the conversation in memory. The same id of another user is another session.
        memory: whose memory it is.
        session_settings: the SDK's settings, such as the number of items that a run gets.
        learns: whether to add what is said to memory. Without it, only the session is stored.
        ttl: how long items live in the session, in seconds or as a timedelta; by default until they are removed.
    """

    def __init__(
        self,
        session_id: str,
        memory: Memory,
        *,
        session_settings: SessionSettings | None = None,
        learns: bool = True,
        ttl: Ttl | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = session_settings or SessionSettings()
        self._memory = memory
        self._learns = learns
        self._transcript = memory.transcript(session_id, ttl=ttl)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, oldest first: the last `limit`, or as many as the settings say."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return await asyncio.to_thread(self._transcript.read, limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items. They are durable when this returns.

        Raises:
            InputError: an item has more than 1 MB as JSON; nothing was stored in the session.
        """
        if items:
            await asyncio.to_thread(self._add, items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it, or None if there is none."""
        item: TResponseInputItem | None = await asyncio.to_thread(self._transcript.pop)
        return item

    async def clear_session(self) -> None:
        """Remove all items."""
        await asyncio.to_thread(self._transcript.clear)

    def _add(self, items: list[TResponseInputItem]) -> None:
        self._transcript.extend(items)
        # Models other than OpenAI's give all messages the same id.
        said = [
            {name: item[name] for name in ("role", "content") if name in item}
            for item in cast("list[Mapping[str, Any]]", items)
            if item.get("role") in _SPEAKERS and not is_empty(item)
        ]
        if not (said and self._learns):
            return
        try:
            self._memory.add(said, conversation_id=self.session_id, history=False)
        except InputError as error:  # such as a text that is too long: the agent goes on
            _log.warning("session %s: what was said is not remembered: %s", self.session_id, error)
