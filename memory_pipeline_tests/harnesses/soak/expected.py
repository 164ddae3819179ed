"""The expected contents of a lake after a soak, from the logs of its writers, and a lake rebuilt from them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.authority import SESSION
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.memories.events import CONVERSATION, MemoryEvent
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.memories import rows_to_events
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES
from memory_pipeline.settings import DEFAULT_START
from memory_pipeline.steps.retention import expire
from memory_pipeline_tests.harnesses.soak import plan as plans
from memory_pipeline_tests.harnesses.soak.operating import make_all
from memory_pipeline_tests.harnesses.soak.shared import Tail

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.erasure import Forgotten
    from memory_pipeline_tests.harnesses.soak.shared import SharedFolder

Record = Message | Edit | MemoryEvent


@dataclass
class Written:
    """The records that writers have sent.

    Attributes:
        certain: acknowledged records by id.
        possible: records of dropped actions by id; they may be present or not.
        garbage: invalid lines.
        refused: words of conversations that must be refused.
        actions: the number of acknowledged actions.
    """

    certain: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    possible: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    garbage: list[tuple[Scope, str, datetime]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    actions: int = 0


def read_oracles(shared: SharedFolder) -> Written:
    """Read the logs of all writers."""
    found = Written()
    given: list[tuple[str, bool, list[Record]]] = []
    done: set[str] = set()
    for number in range(shared.plan.writers):
        open_write: tuple[str, list[Record]] | None = None
        for record in Tail(shared.oracle(f"w{number}")).read():
            key = record.get("action", "")
            if record["is"] in ("writing", "written", "begun", "tick") and open_write is not None:
                given.append((open_write[0], record["is"] == "written", open_write[1]))
                open_write = None
            if record["is"] == "writing":
                open_write = (key, [_parsed(line) for line in record["records"]])
            elif record["is"] == "done":
                done.add(key)
            elif record["is"] == "dropped" and open_write is not None:
                given.append((open_write[0], False, open_write[1]))
                open_write = None
        if open_write is not None:
            given.append((open_write[0], False, open_write[1]))
    # Written records of any attempt are certain, and so are all attempts of an acknowledged action.
    for key, was_written, records in given:
        into = found.certain if was_written or key in done else found.possible
        for one in records:
            into[one.id].append(one)
    found.actions = len(done)
    for key in done:
        action = shared.plan.action(key)
        if action.kind == "garbage":
            at = datetime.fromisoformat(action.body["at"])
            found.garbage.append((action.scope, action.body["line"], at))
        elif action.kind == "refused":
            found.refused.update(action.words)
    return found


def read_notes(shared: SharedFolder) -> dict[str, bool]:
    """Return the keys of actions that may have left a note, and whether all of it was acknowledged."""
    found: dict[str, bool] = {}
    for number in range(shared.plan.writers):
        for record in Tail(shared.oracle(f"w{number}")).read():
            if record["is"] == "begun" and shared.plan.action(record["action"]).kind == "talk":
                found.setdefault(record["action"], False)
            elif record["is"] == "shared":
                found[record["action"]] = True
    return found


def _parsed(line: dict[str, Any]) -> Record:
    if "memory" in line:
        return MemoryEvent.from_record(line, plans.scope_of)
    kind = Edit if "edit" in line else Message
    return kind.from_record(line, plans.scope_of)


@dataclass
class Present:
    """Ids of the writers' records that a lake contains; for messages with the time of receipt.

    `promoted` are the events of promotion.
    """

    messages: dict[str, datetime]
    edits: set[str]
    events: set[str]
    promoted: list[MemoryEvent]

    @classmethod
    def of(cls, lake: Lake) -> Present:
        rows = lake.tables.read(MESSAGES, columns=["id", "received_at"]).to_pylist()
        operations = lake.tables.read(GRAPH_OPERATIONS, columns=["evidence_id", "is_edit"]).to_pylist()
        events = rows_to_events(lake.tables.read(MEMORY_EVENTS))
        return cls(
            {row["id"]: row["received_at"] for row in rows},
            {row["evidence_id"] for row in operations if row["is_edit"]},
            {one.id for one in events if one.editor not in (CONVERSATION, SESSION)},
            [one for one in events if one.editor == SESSION],
        )

    def has(self, record: Record) -> bool:
        if isinstance(record, Message):
            return record.id in self.messages
        return record.id in (self.edits if isinstance(record, Edit) else self.events)

    @property
    def ids(self) -> set[str]:
        return {*self.messages, *self.edits, *self.events}


def journal_of(found: Written, present: Present, forgotten: Forgotten) -> list[Record]:
    """Return the records from which a rebuilt lake must equal the soaked one."""
    records: list[Record] = [*present.promoted]
    for identifier in found.certain.keys() | found.possible.keys():
        certain, possible = found.certain.get(identifier, []), found.possible.get(identifier, [])
        if not certain:
            if not any(present.has(one) for one in possible):
                continue
            certain = possible
        elif possible:
            certain = [*certain, *possible]
        # The lake has kept one of several duplicates, identified by its time of receipt.
        first = certain[0]
        if isinstance(first, Message) and identifier in present.messages:
            kept = [one for one in certain if one.received_at == present.messages[identifier]]
            certain = kept or certain
        records.append(min(certain, key=lambda one: (one.received_at is not None, one.received_at)))
    return sorted(forgotten.filter(records), key=lambda one: (one.received_at, one.id))


def rebuild(root: str, records: Iterable[Record], now: datetime) -> Lake:
    """Build a new lake from records in one run, and expire the same periods."""
    lake = Lake(root, secret=plans.SECRET)
    lake.ensure()
    lake.storage.write(CONFIGURATION, plans.CONFIGURATION)
    records = list(records)
    lake.members.add(records)
    lake.journal.append(records)
    make_all(lake, now)
    expire(lake, DEFAULT_START, now)
    make_all(lake, now)
    return lake
