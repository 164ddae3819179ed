"""A small lake that has something on each page, with hostile text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memory_pipeline import Memory

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script> {{ 7 * 7 }} \' " &amp;'
LATER = datetime(2026, 7, 6, 9, tzinfo=UTC)


def make_lake(folder: Path) -> None:
    """Make a lake of an agent, Anna and a group."""
    memory = Memory(str(folder), user_id="anna", agent_id="support", workspace_id="acme")
    talks = [
        ("2026-01-05T09:00:00Z", "I live in Porto. My sister Carla works at Wavefront."),
        ("2026-02-03T09:00:00Z", f"Please remember: {HOSTILE} is what he sent."),
        ("2026-03-09T09:00:00Z", "I moved to Faro. I am allergic to hazelnuts."),
    ]
    for number, (at, text) in enumerate(talks):
        memory.add([{"role": "user", "content": text, "timestamp": at}], conversation_id=f"talk {number} <b>")
    memory.add(
        [{"role": "user", "content": "The club meets on Monday.", "timestamp": "2026-03-10T09:00:00Z"}],
        users=["anna", "ben"], group_id="club",
    )  # fmt: skip
    memory.remember("Answer Anna in Portuguese.", "instruction", now="2026-03-11T09:00Z")
    memory.run(now="2026-04-02T09:00Z")
    memory.add([{"role": "user", "content": "I bought a kayak.", "timestamp": "2026-07-05T09:00:00Z"}])
