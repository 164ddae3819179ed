"""The durable memories of several scopes as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.memories.snapshot import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from memory_pipeline.configuration import MemoriesSettings
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.links import Link
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.memories.snapshot import AnySnapshot
    from memory_pipeline.memories.state import MemoryOverlay


class JoinedOverlays:
    """The newest memories of the scopes that `scopes` returns; methods as in :class:`MemoryOverlay`.

    The ids of memories are unique over scopes. So the scopes are asked for an id in turn. `user_id` is the user for
    whom they are read, if any.
    """

    def __init__(self, scopes: Callable[[], Sequence[MemoryOverlay]], user_id: str | None = None) -> None:
        self._scopes = scopes
        self.user_id = user_id

    @property
    def calendar(self) -> Calendar:
        """The lake's calendar."""
        return self._scopes()[0].calendar

    @property
    def settings(self) -> MemoriesSettings:
        """The agent's configuration of durable memories."""
        return self._scopes()[0].settings

    def snapshot(self, until: datetime | None = None) -> AnySnapshot:
        """Return all memories, newest or at `until`, UTC."""
        return joined([scope.snapshot(until) for scope in self._scopes()])

    def get(self, memory_id: str, until: datetime | None = None) -> DurableMemory | None:
        """Return the newest version of a memory, or that at `until`, UTC; None if it is unknown."""
        found = (scope.get(memory_id, until) for scope in self._scopes())
        return next((memory for memory in found if memory is not None), None)

    def with_uses(self, memories: dict[str, DurableMemory], until: datetime | None = None) -> dict[str, DurableMemory]:
        """Return memories with the uses up to `until`, UTC, that the last run counted."""
        for scope in self._scopes():
            memories = scope.with_uses(memories, until)
        return memories

    def resolved(self, memory_id: str, until: datetime | None = None) -> str:
        """Return the id of the memory that a memory was merged into, or its own id."""
        found = (scope.resolved(memory_id, until) for scope in self._scopes())
        return next((other for other in found if other != memory_id), memory_id)

    def history(self, memory_id: str, until: datetime | None = None) -> tuple[DurableMemory, ...]:
        """Return all versions of a memory, oldest first."""
        return next((found for scope in self._scopes() if (found := scope.history(memory_id, until))), ())

    def links(self, memory_ids: Collection[str], until: datetime | None = None) -> list[Link]:
        """Return the links of some memories, strongest first in each scope. They do not leave their scope."""
        return [link for scope in self._scopes() for link in scope.links(memory_ids, until)]

    def aliases(self, memory_ids: Collection[str]) -> set[str]:
        """Return the ids of the REMEMBER events that repeated some memories in another hour."""
        return {alias for scope in self._scopes() for alias in scope.aliases(memory_ids)}

    def events(self, memory_ids: Collection[str] | None = None) -> list[MemoryEvent]:
        """Return the events of some memories, or of all, in order."""
        found = [event for scope in self._scopes() for event in scope.events(memory_ids)]
        return sorted(found, key=lambda event: event.order)
