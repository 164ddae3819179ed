"""A small lake with two agents and a few persons, and what it would be if some of it had never been said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.conversations import Admission, Message, Scope, read_messages
from memory_pipeline.domain.edits import Edit
from memory_pipeline_tests.building import ACME, NOW, START, conversation, index_rows, run, table_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.lake import Lake
    from memory_pipeline.models.selection import Models

SALES = Scope("acme", "sales")
OTHER = Scope("other", "support")

TALKS = [
    conversation("I moved to Porto.", "My brother Bob lives in Berlin.", "I prefer Zanzibarium tea in the morning."),
    conversation("Anna likes coffee.", "The weather in Berlin is bad.", name="Dora", conversation_id="c4"),
    conversation("I bought a bicycle in Vienna.", name="Dora", conversation_id="c2", at="2024-01-16T09:00"),
    conversation(
        "I live in Lisbon, near the old harbour.", name=None, conversation_id="c5", at="2024-01-16T09:30"
    ) | {"user_id": "u-17"},
    conversation(
        "I ask support about ANNA's invoice.", "Our office is in Madrid.",
        name="Dora", conversation_id="c3", at="2024-01-16T10:00", scope=SALES,
    ),
    conversation("Anna works at Initech.", name="Dora", at="2024-01-16T10:00", scope=OTHER),
]  # fmt: skip


def edit(subject: str, target: str, at: str = "2024-01-15T08:40") -> Edit:
    """Return an edit of the graph of agent acme/support."""
    return Edit.from_record(
        {
            "edit": "INSERT",
            "workspace_id": "acme",
            "agent_id": "support",
            "subject": subject,
            "predicate": "knows",
            "object": target,
            "timestamp": f"{at}+00:00",
            "received_at": f"{at}+00:00",
        }
    )


EDITS = [edit("Anna", "Carl"), edit("Carl", "Dora")]


def written(lake: Lake, is_wanted: Callable[[Message | Edit], bool] = lambda _: True) -> None:
    """Put what is wanted of all conversations and edits into the journal."""
    lake.ensure()
    admission = Admission(START, NOW, lake.calendar)
    said: list[Message | Edit] = [message for talk in TALKS for message in read_messages(talk, admission).messages]
    lake.journal.append([record for record in [*said, *EDITS] if is_wanted(record)])


def built(lake: Lake, models: Models, is_wanted: Callable[[Message | Edit], bool] = lambda _: True) -> Lake:
    """Make a lake of what is wanted."""
    written(lake, is_wanted)
    run(lake, models)
    return lake


def held(lake: Lake) -> dict[str, Any]:
    """Return all that a lake remembers: tables but for those that tell how it came about, and the index."""
    tables = {name: rows for name, rows in table_rows(lake).items() if name not in ("ledger", "tombstones")}
    return {**tables, **{str(key): rows for key, rows in index_rows(lake, [ACME, SALES, OTHER]).items()}}
