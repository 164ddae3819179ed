"""A small lake with two agents and a few persons, and the same lake without some of the records."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.memories.events import AGENT, Changes, MemoryEvent, MemoryVerb, new_memory_id
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, verify
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests.building import ACME, NOW, START, conversation, index_rows, run, table_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.erasure import ErasureReport
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

#: A time at which days have closed, and weeks and coarser periods have not.
EARLY = datetime(2024, 1, 21, 12, tzinfo=UTC)
#: A time at which all periods have closed, the year too.
END = datetime(2025, 1, 7, 9, tzinfo=UTC)
ANNA = Subject.person("acme", ["Anna", "u-17"])
SALES = Scope("acme", "sales")
OTHER = Scope("other", "support")

TALKS = [
    conversation("I moved to Porto.", "My brother Bob lives in Berlin.", "I like Zanzibarium tea in the morning."),
    conversation("Anna likes coffee.", "Our landlord has moved to Berlin.", name="Dora", conversation_id="c4"),
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


def done(
    verb: str,
    at: str = "2024-01-15T08:50",
    *,
    to: str | None = None,
    scope: Scope = ACME,
    editor: str = AGENT,
    reason: str | None = None,
    **changes: Any,
) -> MemoryEvent:
    """Return an agent's own events on its durable memories."""
    when = datetime.fromisoformat(at).replace(tzinfo=UTC)
    return MemoryEvent.of(
        scope, MemoryVerb(verb), when, Changes.of(changes), memory_id=to, editor=editor, reason=reason, received_at=when
    )


def memory_of(content: str, at: str = "2024-01-15T08:00", kind: str = "fact") -> str:
    """Return the id of the memory that a statement at a time becomes."""
    return new_memory_id(ACME, Changes(MemoryKind(kind), content=content), datetime.fromisoformat(f"{at}+00:00"))


#: What agents did to memories that only Anna's own words, or words about her, had made.
UNATTACHED = [
    done("BOOST", "2024-01-15T08:55", to=memory_of("Call Anna in the morning only.", kind="instruction")),
    done("UPDATE", "2024-01-15T08:56", to=memory_of("Anna: My brother Bob lives in Berlin."), content="Bob has moved."),
]
ANNAS_EVENTS = [
    *UNATTACHED,
    done("REMEMBER", kind="instruction", content="Call Anna in the morning only."),
    done("REMEMBER", kind="preference", content="u-17: tea is green", user_id="u-17", key="tea", value='"green"'),
    done(
        "REMEMBER",
        content="Dora is allergic to nuts, says Anna.",
        subject="Dora",
        predicate="allergic_to",
        object="nuts",
    ),
    done("REMEMBER", content="Dora has told ANNA.", editor="Anna"),
]
#: Anna's actions and records about no person: they are kept without an author.
NOTED = done("REMEMBER", content="The warehouse closes at six in the evening.", editor="Anna")
EVENTS = [
    *ANNAS_EVENTS,
    NOTED,
    done("REMEMBER", content="Dora is allergic to nuts.", subject="Dora", predicate="allergic_to", object="nuts"),
    done("REMEMBER", kind="rule", content="Refunds above 500 euros need a second signature."),
    done("REMEMBER", kind="rule", content="Invoices are due within 30 days.", scope=SALES),
    done("REMEMBER", "2024-01-20T10:00", content="The order of Initech stands at 40 units.", is_point_in_time=True),
]

#: Whatever agents write.
Record = Message | Edit | MemoryEvent


def written(lake: Lake, is_wanted: Callable[[Record], bool] = lambda _: True) -> None:
    """Write the wanted conversations, edits and events to the journal."""
    lake.ensure()
    admission = Admission(START, NOW, lake.calendar)
    said: list[Record] = [
        message for talk in TALKS for message in read_messages(talk, admission, lake.new_scope).messages
    ]
    lake.journal.append([record for record in [*said, *EDITS, *EVENTS] if is_wanted(record)])


def built(
    lake: Lake,
    models: Models,
    is_wanted: Callable[[Record], bool] = lambda _: True,
    also: Sequence[Record] = (),
    now: datetime = END,
) -> Lake:
    """Build a lake from the wanted and the given records, and consolidate its durable memories."""
    written(lake, is_wanted)
    lake.journal.append(also)
    kept(lake, models, now)
    return lake


def kept(lake: Lake, models: Models, now: datetime = END) -> None:
    """Compute all pending periods, then consolidate."""
    run(lake, models, now)
    consolidate(lake, models, pending_days(lake, START, now), START)


def remembered(lake: Lake, models: Models, now: datetime) -> None:
    """Compute pending hours, then consolidate. Summaries are not needed for durable memories."""
    list(materialize(lake, models, Grain.WORKING, grain_status(lake, Grain.WORKING, START, now).pending))
    consolidate(lake, models, pending_days(lake, START, now), START)


def assert_verified(lake: Lake, receipt: ErasureReport) -> None:
    """Check that verifying a receipt finds nothing."""
    result = verify(lake, receipt)
    assert not [*map(str, result.findings), *result.unsearched]


def held(lake: Lake) -> dict[str, Any]:
    """Return the contents of a lake: the index, and tables except for those of its history."""
    tables = {name: rows for name, rows in table_rows(lake).items() if name not in ("ledger", "tombstones")}
    return {**tables, **{str(key): rows for key, rows in index_rows(lake, [ACME, SALES, OTHER]).items()}}


class _StopError(Exception):
    pass


#: The steps of an erasure.
STEPS = (
    "remove_members", "replace_events", "remove_unread", "scrub_summaries", "remove_nights", "remove_rows", "replay",
    "_finish",
)  # fmt: skip


def interrupt(
    lake: Lake,
    models: Models,
    subject: Subject,
    at: datetime,
    patch: pytest.MonkeyPatch,
    steps: Sequence[str] = STEPS,
) -> None:
    """Begin an erasure once for each of its steps, and interrupt it after that step."""
    forgetting = importlib.import_module("memory_pipeline.erasure.forget")  # the package has a function of this name

    def stopping(step: Any) -> Any:
        def stopped(*arguments: Any, **named: Any) -> None:
            step(*arguments, **named)
            raise _StopError

        return stopped

    for name in steps:
        with patch.context() as replaced:
            replaced.setattr(forgetting, name, stopping(getattr(forgetting, name)))
            with pytest.raises(_StopError):
                forget(lake, models, subject, at)
