"""What has been said already: looked up before something is written, so that contradictions are refused at the door."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.conversations import Message, Scope
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake


def landed_messages(lake: Lake, hours: Iterable[Period], scope: Scope | None = None) -> list[Message]:
    """Return the messages of `hours` that have left the journal, of one agent or of all."""
    # Imported here, so that opening a writer stays light.
    import pyarrow.compute as pc

    from memory_pipeline.lake.rows import rows_to_messages
    from memory_pipeline.lake.schemas import MESSAGES

    own = None
    if scope is not None:
        own = (pc.field("workspace_id") == scope.workspace_id) & (pc.field("agent_id") == scope.agent_id)
    return rows_to_messages(lake.tables.read(MESSAGES, {hour.key for hour in hours}, where=own))
