"""The sources of a search: rows in memory, pending journal entries, rows on disk, and mixtures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, NOW, START

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memory_pipeline.models.factory import Models

#: A few days after all messages of the tests.
JANUARY = datetime(2024, 1, 20, 8, tzinfo=UTC)
WAYS = ("held", "tail", "disk", "held and tail", "disk and tail")


class Said(NamedTuple):
    """A test message: speaker and text."""

    name: str | None
    text: str
    role: str = "user"


def talk(conversation_id: str, at: str, *said: Said, tags: Sequence[str] = (), seconds: float = 60) -> dict[str, Any]:
    """Return a conversation of any speakers, from `at` (UTC) on."""
    start = datetime.fromisoformat(at).replace(tzinfo=UTC)
    return {
        "conversation_id": conversation_id,
        "tags": list(tags),
        "messages": [
            {
                "id": f"m{number}",
                "role": one.role,
                "name": one.name,
                "content": one.text,
                "timestamp": (start + timedelta(seconds=seconds * number)).isoformat(),
            }
            for number, one in enumerate(said)
        ],
    }


def write_talks(root: str, *talks: dict[str, Any]) -> list[str]:
    """Write conversations; return the ids of their messages."""
    writer = MemoryWriter.open(root, workspace_id=ACME.workspace_id, agent_id=ACME.agent_id)
    return [identifier for one in talks for identifier in writer.write(one, now=NOW).message_ids]


def make_hours(root: str, models: Models) -> None:
    """Load all journal entries into the index of working memory."""
    lake = Lake(root)
    list(materialize(lake, models, Grain.WORKING, grain_status(lake, Grain.WORKING, START, NOW).pending))


def keep(folder: Path, models: Models, talks: Sequence[dict[str, Any]]) -> None:
    """Build a lake of the same conversations for each of :data:`WAYS`; in a mixture, the last part is pending."""
    whole, tail, both = _lakes(folder)
    write_talks(whole, *talks)
    make_hours(whole, models)
    write_talks(tail, *talks)
    write_talks(both, *talks[:-1])
    make_hours(both, models)
    write_talks(both, talks[-1])


def readers(folder: Path, models: Models) -> dict[str, MemoryReader]:
    """Return a reader of each lake from :func:`keep`."""
    whole, tail, both = _lakes(folder)
    return {
        "held": MemoryReader(Lake(whole), ACME, models.embedder),
        "tail": MemoryReader(Lake(tail), ACME, models.embedder),
        "disk": MemoryReader(Lake(whole), ACME, models.embedder, resident_rows=0),
        "held and tail": MemoryReader(Lake(both), ACME, models.embedder),
        "disk and tail": MemoryReader(Lake(both), ACME, models.embedder, resident_rows=0),
    }


def _lakes(folder: Path) -> tuple[str, str, str]:
    return str(folder / "whole"), str(folder / "tail"), str(folder / "both")
