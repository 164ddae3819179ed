"""Clocks differ: each change follows those that its writer saw, whatever the clocks of both said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_pipeline.domain.memories.events import Changes
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline.graph import Graph
from memory_pipeline.graph.state import GraphOverlay
from memory_pipeline.lake import Lake
from memory_pipeline.memories import MemoryOverlay
from memory_pipeline.models.factory import default_models
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import START, run
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from collections.abc import Callable

NOON = datetime(2024, 1, 15, 12, tzinfo=UTC)
AHEAD = NOON + timedelta(seconds=90)

Call = tuple[str, "Callable[[MemoryWriter, datetime], object]"]


def the(writer: MemoryWriter, **fields: str) -> str:
    found = MemoryOverlay(writer._lake, writer.scope, PendingJournal(writer._lake, writer.scope)).find(
        Changes.of(fields)
    )
    assert found is not None
    return found.id


def tea(writer: MemoryWriter) -> str:
    return the(writer, kind="fact", content="Anna likes tea.")


def change(verb: str) -> Callable[[MemoryWriter, datetime], object]:
    return lambda w, at: w.change_memories([{"memory": verb, "memory_id": tea(w)}], now=at)


def linking(method: str) -> Callable[[MemoryWriter, datetime], object]:
    ends = {"kind": "fact", "content": "Anna likes cake."}
    return lambda w, at: getattr(w, method)(tea(w), the(w, **ends), "goes_with", now=at)


def context(method: str, *arguments: str) -> Callable[[MemoryWriter, datetime], object]:
    return lambda w, at: getattr(w.contexts, method)("notes", *arguments, now=at)


def graph(method: str, *arguments: str, **options: str) -> Callable[[MemoryWriter, datetime], object]:
    return lambda w, at: getattr(w.graph, method)(*arguments, **options, now=at)


FIRST: list[Call] = [
    ("remember", lambda w, at: w.remember("Anna likes tea.", now=at)),
    ("remember another", lambda w, at: w.remember("Anna likes cake.", now=at)),
    ("create", context("create")),
    ("put", context("put", "b", "Text 0.")),
]
#: Calls in groups, whose members undo or replace each other.
CALLS: list[list[Call]] = [
    [
        ("remember", lambda w, at: w.remember("Anna likes tea.", importance=0.5, now=at)),
        ("forget", lambda w, at: w.forget(tea(w), now=at)),
        ("archive one", change("DEACTIVATE")),
        ("bring one back", change("REACTIVATE")),
        ("confirm", lambda w, at: w.confirm(tea(w), now=at)),
        ("update", lambda w, at: w.update(tea(w), importance=0.3, now=at)),
        ("boost", lambda w, at: w.boost(tea(w), 0.9, now=at)),
        ("reduce", lambda w, at: w.reduce(tea(w), 0.9, now=at)),
    ],
    [("link", linking("link")), ("unlink", linking("unlink"))],
    [
        ("set_preference", lambda w, at: w.set_preference("anna", "tone", "short", now=at)),
        ("set_preference to another", lambda w, at: w.set_preference("anna", "tone", "long", now=at)),
        ("delete_preference", lambda w, at: w.delete_preference("anna", "tone", now=at)),
    ],
    [
        ("put", context("put", "a", "Text 1.")),
        ("put another", context("put", "a", "Text 2.")),
        ("remove", context("remove", "a")),
        ("archive", context("archive")),
        ("unarchive", context("unarchive")),
        ("snapshot", context("snapshot", "now")),
        ("restore", context("restore", "now")),
    ],
    [
        ("insert", graph("insert", "Anna", "lives_in", "Porto")),
        ("insert another", graph("insert", "Anna", "lives_in", "Riga")),
        ("delete", graph("delete", "Anna", "lives_in")),
    ],
    [
        ("insert one of many", graph("insert", "Anna", "plays", "chess")),
        ("update", graph("update", "Anna", "plays", "go", replaces="chess")),
        ("update back", graph("update", "Anna", "plays", "chess", replaces="go")),
        ("delete one", graph("delete", "anna", "plays", "chess")),
    ],
    [
        ("share", lambda w, at: w.grant("sales", now=at)),
        ("share more", lambda w, at: w.grant("sales", level="write", now=at)),
        ("revoke", lambda w, at: w.revoke("sales", now=at)),
    ],
    [
        ("join", lambda w, at: w.add_to_team("team", "sales", now=at)),
        ("leave", lambda w, at: w.remove_from_team("team", "sales", now=at)),
    ],
]


def attempt(writer: MemoryWriter, call: Call, at: datetime) -> bool:
    """Make a call; return whether it was accepted."""
    try:
        call[1](writer, at)
    except InputError:
        return False
    return True


def state(lake: Lake, scope: Scope) -> dict[str, Any]:
    """Return what readers see, without ids and times."""
    overlay = MemoryOverlay(lake, scope, PendingJournal(lake, scope))
    top = overlay.snapshot()
    headers = top.headers(lambda rows: np.ones(len(rows), np.bool_))
    found = top.load([header.id for header in headers])
    writer = MemoryWriter(lake, scope, START)
    facts = Graph(GraphOverlay(lake, scope, PendingJournal(lake, scope)), lake.calendar).facts()
    return {
        "memories": sorted(
            (one.content, one.key or "", one.status, one.value or "", round(one.importance, 4), one.confidence)
            for one in found.values()
        ),
        "links": [(link.relation, link.weight) for link in overlay.links(tea(writer))],
        "graph": sorted((one.source_id, one.label, one.target) for one in facts),
        "grants": [(one.to_agent, one.level) for one in writer.grants()],
        "teams": lake.access.state(scope).teams.get((scope, "team"), frozenset()),
    }


def histories() -> list[tuple[str, list[Call], list[list[datetime]]]]:
    """Each call before and after the next of its group, with two clocks; then long histories with many clocks.

    Return a name, the calls, and times of these calls, as several clocks say.
    """
    found: list[tuple[str, list[Call], list[list[datetime]]]] = []
    for place in range(max(map(len, CALLS))):
        pairs = [(group[place - 1], group[place]) for group in CALLS if place < len(group)]
        calls = [call for pair in pairs for call in pair]
        found.append((f"pairs {place}", calls, [[AHEAD, NOON] * len(pairs)]))
    for seed in range(50 if IS_THOROUGH else 2):
        chosen = Random(seed)
        calls = [chosen.choice(chosen.choice(CALLS)) for _ in range(40)]
        found.append(
            (f"seed {seed}", calls, [[NOON + timedelta(seconds=chosen.randrange(-90, 90, 30)) for _ in calls]])
        )
    return found


def made(lake: Lake, agent: str, start: datetime, calls: list[Call], times: list[datetime]) -> tuple[Scope, list[bool]]:
    """Make calls, by turns with two writers. Return the scope, and which calls were accepted."""
    writers = [MemoryWriter(lake, Scope("acme", agent), START) for _ in range(2)]
    for place, call in enumerate(FIRST):
        attempt(writers[0], call, start + timedelta(seconds=place))
    return writers[0].scope, [
        attempt(writers[place % 2], call, at) for place, (call, at) in enumerate(zip(calls, times, strict=True))
    ]


def test_no_clock_wins_over_what_its_writer_saw(lake: Lake) -> None:
    """What clocks say changes no result: neither while events are pending, nor when the pipeline has run."""
    scopes = []
    for name, calls, clocks in histories():
        even, accepted = made(
            lake, f"{name}", NOON, calls, [NOON + timedelta(minutes=1 + at) for at in range(len(calls))]
        )
        expected = state(lake, even)
        for number, times in enumerate(clocks):
            scope, also_accepted = made(lake, f"{name} {number}", AHEAD if number else NOON, calls, times)
            assert also_accepted == accepted, name
            assert state(lake, scope) == expected, name
            scopes.append((scope, expected))
    run(lake, default_models())
    assert not lake.journal.pending()
    assert [state(lake, scope) for scope, _ in scopes] == [expected for _, expected in scopes]


def test_a_time_that_a_change_states_is_its_place(lake: Lake) -> None:
    """What is told later about the past does not replace what came after it."""
    writer = MemoryWriter(lake, Scope("acme", "support"), START)
    known = writer.remember("Anna likes tea.", now=NOON)
    writer.update(known, "Anna likes cake.", now=AHEAD)
    past = {
        "memory": "UPDATE",
        "memory_id": known,
        "content": "Anna likes pie.",
        "timestamp": NOON + timedelta(seconds=9),
    }
    writer.change_memories([past], now=AHEAD)
    overlay = MemoryOverlay(lake, writer.scope, PendingJournal(lake, writer.scope))
    assert [one.content for one in overlay.history(known)] == ["Anna likes tea.", "Anna likes pie.", "Anna likes cake."]
    MemoryWriter(lake, writer.scope, START).update(known, "Anna likes ham.", now=NOON)
    [*_, last] = overlay.history(known)
    assert (last.content, last.updated_at) == ("Anna likes ham.", NOON)
