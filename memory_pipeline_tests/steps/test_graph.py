"""Graphs and memories are the same whether the journal is loaded late, twice, at once, in parts or after a fault."""

from __future__ import annotations

import random
import shutil
import threading
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

from memory_pipeline.domain.graph.triples import fold_operations
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure.forget import forget
from memory_pipeline.errors import DamagedError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.graph import (
    operations_to_rows,
    rows_to_operations,
    rows_to_triples,
    triples_to_rows,
)
from memory_pipeline.lake.index.lance_tables import run_coroutine
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.layout import SHARDS, shard_of
from memory_pipeline.lake.schemas import GRAPH_OPERATIONS, IS_FACT, LEDGER, MEMORY_EVENTS
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps import materialize as steps
from memory_pipeline.steps.fold_graph import (
    GraphFold,
    fold_graph,
    stale_scopes,
)
from memory_pipeline.steps.fold_memories import MemoryFold
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.replay import replay
from memory_pipeline.steps.results import NO_ROWS
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.steps.scopes import known_scopes
from memory_pipeline_tests.building import ACME, NOW, PROCESSES, START, conversation, hours, table_rows, versions, write
from memory_pipeline_tests.domain.graph_oracle import NAMING, PLAIN, histories, model
from memory_pipeline_tests.domain.memories.histories import do, remember
from memory_pipeline_tests.effort import IS_THOROUGH, examples
from memory_pipeline_tests.graph.line_edits import CONFIGURATION as DECLARING
from memory_pipeline_tests.graph.line_edits import (
    VOCABULARY,
    LineExtractor,
    cut,
    graph_of,
    graph_rows,
    hour,
    land,
    line_models,
    lines,
    write_edits,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Event
    from pathlib import Path

    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

OTHER = Scope("acme", "sales")
#: The history of two agents in four hours: messages, edits, aliases, replacements and ends.
Write = tuple[str, Any]
HISTORY: list[tuple[str, Scope, str, tuple[str, ...]]] = [
    ("said", ACME, "2024-01-15T08:00", ("INSERT Anna|lives_in|Porto", "INSERT Anna|likes|tea\nINSERT Anna|likes|figs")),
    ("said", OTHER, "2024-01-15T08:00", ("INSERT Anna|lives_in|Oslo",)),
    ("edit", ACME, "2024-01-15T08:30", ("INSERT Annie | lives_in | Rome", "INSERT Anna | also_known_as | Annie")),
    ("said", ACME, "2024-01-15T09:00", ("UPDATE Annie|lives_in|Lisbon", "DELETE Anna|likes|tea", "nothing to tell")),
    ("edit", OTHER, "2024-01-15T09:10", ("DELETE Anna | lives_in |",)),
    ("said", ACME, "2024-01-20T10:00", ("INSERT Anna|likes|tea", "DELETE Anna|likes|figs\nINSERT Anna|likes|dates")),
    ("edit", ACME, "2024-01-20T10:20", ("DELETE Anna | lives_in | Lisbon",)),
    ("said", OTHER, "2024-01-21T10:00", ("INSERT Anna|lives_in|Bergen", "INSERT Bergen|is|wet")),
]  # fmt: skip
#: What the agents do to durable memories in the same hours: hours after noon of the first day.
TEA, FIGS = remember("Anna likes tea.", -3.9), remember("Anna likes figs.", -2.9, scope=OTHER)
EVENTS = [
    TEA,
    do("BOOST", TEA, -3.8),
    do("UPDATE", TEA, -2.8, content="Anna likes green tea."),
    FIGS,
    do("FORGET", FIGS, 142.1, scope=OTHER, reason="no longer so"),
]
ENTRIES = len(HISTORY) + len(EVENTS)
HOURS = ["2024-01-15T08", "2024-01-15T09", "2024-01-20T10", "2024-01-21T10"]


def at(text: str) -> Any:
    return hour(0).fromisoformat(f"{text}:00+00:00")


def put(lake: Lake, number: int) -> None:
    """Write one entry of the history; the events follow the messages and edits."""
    if number >= len(HISTORY):
        lake.ensure()
        lake.journal.append([EVENTS[number - len(HISTORY)]])
        return
    kind, scope, when, texts = HISTORY[number]
    if kind == "said":
        write(lake, conversation(*texts, at=when, scope=scope, conversation_id=f"c{number}"))
    else:
        lake.ensure()
        write_edits(lake, *texts, scope=scope, at=at(when))


def put_all(lake: Lake) -> None:
    for number in range(ENTRIES):
        put(lake, number)


def rows_of(lake: Lake) -> dict[str, Any]:
    """Return all rows of the graph and of durable memories."""
    memories = {
        name: rows for name, rows in table_rows(lake).items() if name in ("memory_events", "events", "memories")
    }
    return graph_rows(lake) | memories


def run(lake: Lake, models: Models, *keys: str) -> list[Any]:
    periods = hours(*keys) if keys else grain_status(lake, Grain.WORKING, START, NOW).pending
    return list(materialize(lake, models, Grain.WORKING, periods))


@pytest.fixture(scope="module")
def outspoken() -> Models:
    return line_models(default_models())


@pytest.fixture(scope="module")
def written_once(shared_folder: SharedFolder) -> Path:
    return shared_folder("graph-written", lambda path: put_all(Lake(str(path))))


@pytest.fixture
def written(written_once: Path, root: str) -> Lake:
    """A copy of a lake with the whole history in its journal."""
    return Lake(shutil.copytree(written_once, root))


@pytest.fixture(scope="module")
def made_once(shared_folder: SharedFolder, written_once: Path, outspoken: Models) -> Path:
    """A lake whose history was loaded in one run."""

    def fill(path: Path) -> None:
        lake = Lake(str(shutil.copytree(written_once, path)))
        run(lake, outspoken)
        assert lake.journal.pending() == []

    return shared_folder("graph-made", fill)


@pytest.fixture
def made(made_once: Path, root: str) -> Lake:
    """A copy of `made_once`."""
    return Lake(shutil.copytree(made_once, root))


@pytest.fixture(scope="module")
def whole(made_once: Path) -> dict[str, Any]:
    """The rows of `made_once`."""
    return rows_of(Lake(str(made_once)))


def test_the_tables_hold_all_operations(whole: dict[str, Any]) -> None:
    facts = {
        (
            row["agent_id"],
            row["source"],
            row["label"],
            row["target"],
            row["valid_to"] is None,
            row["superseded_by"] is not None,
        )
        for row in whole["graph_facts"]
    }
    assert facts == {
        ("support", "Anna", "lives_in", "Porto", False, True),
        ("support", "Annie", "lives_in", "Rome", False, True),
        ("support", "Annie", "lives_in", "Lisbon", False, False),
        ("support", "Anna", "also_known_as", "Annie", True, False),
        ("support", "Anna", "likes", "tea", False, False),
        ("support", "Anna", "likes", "tea", True, False),
        ("support", "Anna", "likes", "figs", False, True),
        ("support", "Anna", "likes", "dates", True, False),
        ("sales", "Anna", "lives_in", "Oslo", False, False),
        ("sales", "Anna", "lives_in", "Bergen", True, False),
        ("sales", "Bergen", "is", "wet", True, False),
    }
    assert {row["source_id"] for row in whole["graph_facts"]} == {"anna", "bergen"}
    assert {row["is_edit"] for row in whole["graph_operations"]} == {True, False}
    assert len(whole["graph_operations"]) == 15
    assert len(whole["operations"]) == 15
    assert len({row["source_digest"] for row in whole["states"]}) == 2


@pytest.mark.parametrize("seed", range(5 if IS_THOROUGH else 1))
def test_late_hours_and_random_order_give_the_same_rows(
    lake: Lake, outspoken: Models, whole: dict[str, Any], seed: int
) -> None:
    chance = random.Random(seed)
    for number in chance.sample(range(ENTRIES), ENTRIES):
        put(lake, number)
        if chance.random() < 0.5:
            waiting = sorted(map(str, lake.journal.pending_hours()))
            run(lake, outspoken, *chance.sample(waiting, chance.randint(1, len(waiting))))
    run(lake, outspoken)
    assert rows_of(lake) == whole


def test_a_second_run_writes_nothing(made: Lake, outspoken: Models, whole: dict[str, Any]) -> None:
    lake = made
    before = versions(lake)
    assert grain_status(lake, Grain.WORKING, START, NOW).pending == []
    assert not any(one.changed for one in run(lake, outspoken, *HOURS))
    assert versions(lake) == before
    put_all(lake)
    assert len(lake.journal.pending()) == ENTRIES
    assert not any(one.changed for one in run(lake, outspoken))
    assert versions(lake) == before
    assert lake.journal.pending() == []
    assert rows_of(lake) == whole


def test_each_hour_reports_its_operations(written: Lake, outspoken: Models) -> None:
    lake = written
    run(lake, outspoken, *HOURS[1:])
    made = {str(one.period): one for one in run(lake, outspoken) if one.asset == GRAPH_ASSET}
    assert {key: (one.rows, one.agents, one.changed) for key, one in made.items()} == {HOURS[0]: (6, 2, True)}
    again = {str(one.period): one for one in run(lake, outspoken, *HOURS) if one.asset == GRAPH_ASSET}
    assert {key: (one.rows, one.agents, one.changed) for key, one in again.items()} == {
        HOURS[0]: (6, 2, False), HOURS[1]: (3, 2, False), HOURS[2]: (4, 1, False), HOURS[3]: (2, 1, False)
    }  # fmt: skip
    assert set(lake.ledger.entries(GRAPH_ASSET)) == set(HOURS)


def numbers(lake: Lake, scope: Scope) -> list[Any]:
    """Return the rows of a scope's graph with LanceDB's row ids, which change when a row is rewritten."""
    projection = lake.graph_rows

    async def read(table: Any) -> Any:
        return await table.query().where(f"scope = '{scope.key}'").select(["id", "digest"]).with_row_id().to_arrow()

    rows = run_coroutine(projection._on(scope, read, None))
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def test_only_agents_whose_operations_changed_are_folded_again(made: Lake, outspoken: Models) -> None:
    lake = made
    before, mine = (numbers(lake, scope) for scope in (OTHER, ACME))
    write(lake, conversation("INSERT Anna|likes|honey", at="2024-01-21T10:30", conversation_id="late"))
    run(lake, outspoken)
    assert numbers(lake, OTHER) == before
    assert numbers(lake, ACME) != mine


# --- concurrent runs -------------------------------------------------------------------------------------------------


def at_once(*tasks: Callable[[], object]) -> None:
    """Run tasks in threads that start together. Raise the first error."""
    failed: list[BaseException] = []
    barrier = threading.Barrier(len(tasks))

    def done(task: Callable[[], object]) -> None:
        barrier.wait()
        try:
            task()
        except BaseException as error:  # noqa: BLE001  # told by the main thread
            failed.append(error)

    threads = [threading.Thread(target=done, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


SHARES = [[HOURS[:3], HOURS[1:]], [HOURS, HOURS], [HOURS[:2], HOURS[2:]]]  # some hours are the same, all, none


@pytest.mark.parametrize("shares", SHARES if IS_THOROUGH else SHARES[:1])
def test_concurrent_runs_give_the_same_rows(
    written: Lake, root: str, outspoken: Models, whole: dict[str, Any], shares: list[list[str]]
) -> None:
    lake = written
    at_once(*(lambda own=own: run(Lake(root), outspoken, *own) for own in shares))
    run(lake, outspoken)
    assert rows_of(lake) == whole
    assert lake.journal.pending() == []


def test_writes_during_runs_are_not_lost(root: str, outspoken: Models, whole: dict[str, Any]) -> None:
    lake = Lake(root)

    def write_all() -> None:
        for number in random.Random(7).sample(range(ENTRIES), ENTRIES):
            put(Lake(root), number)

    def run_often() -> None:
        own = Lake(root)
        for _ in range(4):
            run(own, outspoken)

    at_once(write_all, run_often, run_often)
    run(lake, outspoken)
    assert rows_of(lake) == whole
    assert lake.journal.pending() == []


def _run_in_process(root: str, keys: list[str], started: Event) -> None:
    lake, models = Lake(root), line_models(default_models())
    lake.tables.version(GRAPH_OPERATIONS)  # imports first
    started.set()
    run(lake, models, *keys)


def test_concurrent_processes_give_the_same_rows(
    written: Lake, root: str, outspoken: Models, whole: dict[str, Any]
) -> None:
    lake = written
    started = PROCESSES.Event()
    process = PROCESSES.Process(target=_run_in_process, args=(root, HOURS[:3], started))
    process.start()
    assert started.wait(60)
    run(lake, outspoken, *HOURS[1:])
    process.join()
    assert process.exitcode == 0
    run(lake, outspoken)
    assert rows_of(lake) == whole


@pytest.mark.parametrize("moment", ["before the records", "before the sync", "before the fold", "before the graph"])
def test_a_run_folds_operations_of_a_concurrent_commit(
    root: str, outspoken: Models, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    lake = Lake(root)
    write(lake, conversation("INSERT Anna|likes|tea"))
    overtaken: list[bool] = []

    def overtake() -> None:
        if not overtaken:
            overtaken.append(True)
            other = Lake(root)
            write(other, conversation("INSERT Anna|likes|figs", conversation_id="newer"))
            run(other, outspoken)

    place: Any = {
        "before the records": (lake.tables, "transform"),
        "before the sync": (lake.operations, "replace"),
        "before the fold": (lake.operations, "read"),
        "before the graph": (lake.graph_rows, "replace"),
    }[moment]
    owner, name = place
    original = getattr(owner, name)

    def slow(*args: Any, **fixed: Any) -> Any:
        if moment != "before the records" or args[0] is GRAPH_OPERATIONS:
            overtake()
        return original(*args, **fixed)

    monkeypatch.setattr(owner, name, slow)
    run(lake, outspoken)
    assert overtaken
    assert sorted(row["target"] for row in graph_rows(lake)["graph_facts"]) == ["figs", "tea"]
    assert stale_scopes(lake) == set()
    run(Lake(root), outspoken)
    assert grain_status(Lake(root), Grain.WORKING, START, NOW).pending == []


def test_a_run_refolds_a_graph_written_by_a_concurrent_run(
    root: str, outspoken: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read the operations of a run that had not folded them yet."""
    write(Lake(root), conversation("INSERT Anna|likes|tea"))
    with monkeypatch.context() as patch:
        patch.setattr("memory_pipeline.steps.fold_graph.GraphFold.refold", broken_disk)
        with pytest.raises(OSError, match="disk is full"):
            run(Lake(root), outspoken)
    lake = Lake(root)
    original = lake.graph_rows.replace

    def overtaken(*args: Any) -> Any:
        run(Lake(root), outspoken)
        return original(*args)

    monkeypatch.setattr(lake.graph_rows, "replace", overtaken)
    run(lake, outspoken)
    assert [row["target"] for row in graph_rows(lake)["graph_facts"]] == ["tea"]


def broken_disk(*args: object, **options: object) -> None:
    raise OSError("the disk is full")


# --- interrupted -----------------------------------------------------------------------------------------------------

STEPS = {
    "load_messages": "memory_pipeline.steps.materialize.load_messages",
    "extract_facts": "memory_pipeline.steps.materialize.extract_facts",
    "fold_graph": "memory_pipeline.steps.materialize.fold_graph",
    "fold_memories": "memory_pipeline.steps.materialize.fold_memories",
    "refold of memories": "memory_pipeline.steps.fold_memories.MemoryFold.refold",
    "sync": "memory_pipeline.steps.fold_graph.GraphFold.sync",
    "refold": "memory_pipeline.steps.fold_graph.GraphFold.refold",
    "index_periods": "memory_pipeline.steps.materialize.index_periods",
    "record": "memory_pipeline.lake.tables.ledger.Ledger.record",
    "acknowledge": "memory_pipeline.steps.materialize.acknowledge",
}
CALLED = {"sync": GraphFold.sync, "refold": GraphFold.refold, "refold of memories": MemoryFold.refold}


def of_step(step: str) -> Any:
    from memory_pipeline.lake.tables.ledger import Ledger

    return Ledger.record if step == "record" else CALLED.get(step) or getattr(steps, step)


def broken_after(step: Any) -> Any:
    def broken(*args: object, **named: object) -> None:
        step(*args, **named)
        broken_disk()

    return broken


#: The steps at which runs stop, each further than the one before. `fold_graph` and `fold_memories` call the others.
ENDS = [
    *product(("load_messages", "extract_facts"), ("instead", "after")),
    ("fold_graph", "instead"), ("sync", "instead"), ("sync", "after"),
    ("refold", "instead"), ("refold", "after"), ("fold_graph", "after"),
    ("fold_memories", "instead"), ("refold of memories", "instead"), ("refold of memories", "after"),
    ("fold_memories", "after"),
    *product(("index_periods", "record", "acknowledge"), ("instead", "after")),
]  # fmt: skip


def test_runs_interrupted_at_any_step_lose_nothing(
    written: Lake, outspoken: Models, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = {edit.id for file in written.journal.pending() for edit in written.journal.read(file).edits}
    assert len(edits) == 4
    known = {event.id for event in EVENTS}
    assert {step for step, _ in ENDS} == set(STEPS)
    for step, moment in ENDS:
        lake = Lake(written.storage.uri)
        with monkeypatch.context() as patch:
            patch.setattr(STEPS[step], broken_after(of_step(step)) if moment == "after" else broken_disk)
            with pytest.raises(OSError, match="disk is full"):
                run(lake, outspoken)
        folded = set(lake.tables.read(GRAPH_OPERATIONS)["evidence_id"].to_pylist())
        landed = set(lake.tables.read(MEMORY_EVENTS)["id"].to_pylist())
        files = [lake.journal.read(file) for file in lake.journal.pending()]
        waiting = {edit.id for file in files for edit in file.edits}
        events = {event.id for file in files for event in file.events}
        assert edits <= folded | waiting, (step, moment)
        assert known <= landed | events, (step, moment)
        if (step, moment) != ("acknowledge", "after"):
            assert (waiting, events) == (edits, known), ("the files stay until the whole run is done", step, moment)
    lake = Lake(written.storage.uri)
    run(lake, outspoken)
    assert rows_of(lake) == whole
    assert lake.journal.pending() == []
    assert grain_status(lake, Grain.WORKING, START, NOW).pending == []


def test_facts_of_a_run_that_was_interrupted_before_the_fold_are_folded_by_the_next(
    lake: Lake, outspoken: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, conversation("INSERT Anna|likes|honey"))  # no edit, which would be folded anyway
    with monkeypatch.context() as patch:
        patch.setattr(GraphFold, "refold", broken_disk)
        with pytest.raises(OSError, match="disk is full"):
            run(lake, outspoken)
    run(lake, outspoken)
    assert lines(graph_of(lake).facts_about("Anna")) == ["Anna likes honey"]


def test_a_file_stays_until_its_edits_are_among_the_operations(
    lake: Lake, outspoken: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_edits(lake, "INSERT Anna | likes | tea")
    with monkeypatch.context() as patch:
        patch.setattr(steps, "fold_graph", lambda lake, hours, edits, *rest: fold_graph(lake, hours, [], *rest))
        run(lake, outspoken)
    assert len(lake.journal.pending()) == 1
    run(lake, outspoken)
    assert lake.journal.pending() == []
    assert lines(graph_of(lake).facts_about("Anna")) == ["Anna likes tea"]


#: The loaded entries, and whether they rename entities.
LANDING = {
    "facts": ("INSERT Annie | lives_in | Rome", "DELETE Anna | likes | tea", "INSERT Anna | likes | figs"),
    "an alias": ("INSERT Anna | also_known_as | Nan", "INSERT Nan | lives_in | Rome"),
}


@pytest.mark.parametrize("landing", LANDING)
def test_readers_find_an_edit_exactly_once_before_during_and_after_the_run(
    lake: Lake, outspoken: Models, monkeypatch: pytest.MonkeyPatch, landing: str
) -> None:
    known = ("INSERT Anna | lives_in | Porto", "INSERT Anna | also_known_as | Annie", "INSERT Nan | drinks | milk")
    write_edits(lake, *known, at=hour(0))
    run(lake, outspoken)
    write_edits(lake, *LANDING[landing], at=hour(0.5))
    write_edits(lake, "INSERT Anna | likes | tea", at=hour(2))
    opened = graph_of(lake)

    def seen() -> list[Any]:
        """Return the facts found by an open graph, and by a new one."""
        return [
            (graph.history("Anna"), graph.history("Nan"), graph.entity("Annie"), graph.facts_about("Rome"))
            for graph in (opened, graph_of(Lake(lake.storage.uri)))
        ]

    before = seen()
    assert before[0] == before[1]
    assert len(before[0][0]) == {"facts": 5, "an alias": 6}[landing]
    moments: dict[str, list[str]] = {"before": [], "after": []}
    for step, path in STEPS.items():

        def watched(*args: Any, _step: str, _original: Any, **named: Any) -> Any:
            moments["before"] += [] if seen() == before else [_step]
            made = _original(*args, **named)
            moments["after"] += [] if seen() == before else [_step]
            passed.append(_step)
            return made

        wrapped = partial(watched, _step=step, _original=of_step(step))
        monkeypatch.setattr(path, lambda *args, _wrapped=wrapped, **named: _wrapped(*args, **named))
    passed: list[str] = []
    run(lake, outspoken)
    assert set(passed) == set(STEPS)
    assert moments == {"before": [], "after": []}
    assert lake.journal.pending() == []
    assert seen() == before


# --- the plan --------------------------------------------------------------------------------------------------------


def test_an_hour_without_a_graph_is_pending(made: Lake, outspoken: Models, whole: dict[str, Any]) -> None:
    """Lakes of older versions have no graph: the next run folds all earlier operations."""
    lake = made
    for projection in (lake.graph_rows, lake.operations):
        projection.delete("true")
    stored = lake.tables.read(GRAPH_OPERATIONS)
    # Edits by agents have no other record.
    lake.tables.replace(GRAPH_OPERATIONS, lake.tables.keys(GRAPH_OPERATIONS), stored.filter(stored["is_edit"]))
    lake.tables.replace(LEDGER, ["graph_facts.2024-01"], LEDGER.schema.empty_table())
    assert [str(period) for period in grain_status(lake, Grain.WORKING, START, NOW).pending] == HOURS
    run(lake, outspoken)
    assert grain_status(lake, Grain.WORKING, START, NOW).pending == []
    assert rows_of(lake) == whole


def test_an_hour_whose_graph_is_behind_its_facts_is_pending(
    lake: Lake, outspoken: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph was folded from other facts."""
    write(lake, conversation("INSERT Anna|likes|tea"))
    run(lake, outspoken)
    [entry] = lake.ledger.entries(GRAPH_ASSET).values()
    [table] = lake.ledger.entries("working_facts").values()
    assert entry.input_digest == table.output_digest != NO_ROWS
    lake.ledger.record([replace(entry, input_digest="of other facts")])
    assert [str(period) for period in grain_status(lake, Grain.WORKING, START, NOW).pending] == ["2024-01-15T08"]
    run(lake, outspoken)
    assert lake.ledger.entries(GRAPH_ASSET) == {"2024-01-15T08": entry}


def test_an_hour_without_operations_and_memories_is_processed_once(lake: Lake, outspoken: Models) -> None:
    write(lake, conversation("Hello."))
    run(lake, outspoken)
    for asset, spec in ((GRAPH_ASSET, GRAPH_OPERATIONS), (MEMORIES_ASSET, MEMORY_EVENTS)):
        assert lake.ledger.entries(asset)["2024-01-15T08"].rows == 0
        assert lake.tables.version(spec) == -1
    assert grain_status(lake, Grain.WORKING, START, NOW).pending == []
    projections = (lake.operations, lake.graph_rows, lake.events, lake.memory_rows)
    assert not any(projection.roster.tables() for projection in projections)


def test_an_hour_with_only_edits_is_processed_once(lake: Lake, outspoken: Models) -> None:
    write_edits(lake, "INSERT Anna | likes | tea", "DELETE Omar | likes | tea")
    made = [str(period) for period in grain_status(lake, Grain.WORKING, START, NOW).pending]
    assert made == ["2024-01-15T08"]
    run(lake, outspoken)
    assert grain_status(lake, Grain.WORKING, START, NOW).pending == []
    assert graph_of(lake).facts_about("tea").total == 1


def test_hours_with_early_or_future_edits_wait(lake: Lake, outspoken: Models) -> None:
    write_edits(lake, "INSERT Anna | likes | tea", at=at("2024-01-15T08:00"))
    later = START.replace(year=2029)
    assert [str(period) for period in grain_status(lake, Grain.WORKING, later, NOW).early] == ["2024-01-15T08"]
    before = grain_status(lake, Grain.WORKING, START, at("2024-01-15T07:00"))
    assert (before.pending, [str(period) for period in before.open]) == ([], ["2024-01-15T08"])


# --- changes ---------------------------------------------------------------------------------------------------------


def test_a_declared_predicate_refolds_the_graph_in_the_next_hour(lake: Lake, outspoken: Models) -> None:
    for scope in (ACME, OTHER):
        write(
            lake,
            conversation(
                "INSERT Anna|pet|Bruno",
                "INSERT Anna|pet|Rex",
                "INSERT Anna|lives_in|Oslo",
                "INSERT Anna|lives_in|Rome",
                scope=scope,
            ),
        )
    run(lake, outspoken)

    def now(scope: Scope) -> list[str]:
        return sorted(lines(one for one in graph_of(lake, scope).facts_about("Anna")))

    assert now(ACME) == now(OTHER) == ["Anna lives_in Rome", "Anna pet Bruno", "Anna pet Rex"]
    text = (
        b"workspaces:\n  acme:\n    agents:\n      support:\n        graph:\n          single_valued: [pet]\n"
        b"          multi_valued: [lives_in]\n"
    )
    lake.storage.write(CONFIGURATION, text)
    write(lake, conversation("Hello.", at="2024-01-16T08:00", conversation_id="next"))
    run(lake, outspoken)
    assert now(ACME) == ["Anna lives_in Oslo", "Anna lives_in Rome", "Anna pet Rex"]
    assert now(OTHER) == ["Anna lives_in Rome", "Anna pet Bruno", "Anna pet Rex"]
    before = versions(lake)
    run(lake, outspoken, "2024-01-16T08")
    assert versions(lake) == before
    lake.storage.write(CONFIGURATION, b"")
    run(lake, outspoken, "2024-01-15T08")
    assert now(ACME) == now(OTHER)


def test_facts_of_a_new_extraction_replace_the_old_ones(lake: Lake, outspoken: Models) -> None:
    class Better(LineExtractor):
        def method(self, scope: Scope) -> str:
            return "telling-2"

        def extract(self, passages: Any, recall: Any) -> Any:
            found = super().extract(passages, recall)
            return [
                replace(one, facts=tuple(replace(fact, operations=fact.operations[1:]) for fact in one.facts))
                for one in found
            ]

    write(lake, conversation("INSERT Anna|likes|tea\nINSERT Anna|likes|figs"))
    write_edits(lake, "INSERT Anna | likes | honey")
    run(lake, outspoken)
    run(lake, replace(outspoken, extractor=Better()), "2024-01-15T08")
    assert sorted(lines(graph_of(lake).facts_about("Anna"))) == ["Anna likes figs", "Anna likes honey"]
    run(lake, replace(outspoken, extractor=Better()), "2024-01-15T08")


def test_an_earlier_message_with_the_same_id_wins_in_any_order(tmp_path: Path, outspoken: Models) -> None:
    """It changes the facts of one agent; another has no facts in the hour any more and loses its operations."""
    roles = {ACME: "user", OTHER: "tool"}  # the earlier message is a tool message, which gives no facts
    outcomes = []
    for order in ((0, 1), (1, 0)):
        lake = Lake(str(tmp_path / str(order[0])))
        for place in order:
            for scope, role in roles.items():
                first = conversation("INSERT Anna|likes|tea", role=role, scope=scope)
                second = conversation("INSERT Anna|likes|figs", scope=scope)
                write(lake, (first, second)[place], now=NOW.replace(second=place))
            run(lake, outspoken)
        outcomes.append(graph_rows(lake))
    assert outcomes[0] == outcomes[1]
    assert [(row["agent_id"], row["target"]) for row in outcomes[0]["graph_facts"]] == [("support", "tea")]
    assert {row["agent_id"] for row in outcomes[0]["graph_operations"]} == {"support"}


def test_many_orders_of_the_same_operations_give_the_same_rows(lake: Lake) -> None:
    """In the order of table rows: the stored fold must not change."""
    chance = random.Random(0)
    for operations, _ in histories("orders", 12, PLAIN + NAMING):
        own = [replace(one, conversation_id="c") for one in operations]
        expected = None
        for _ in range(examples(20)):
            chance.shuffle(own)
            stored = rows_to_operations(operations_to_rows({ACME: own}, are_edits=False))
            made = triples_to_rows({ACME: fold_operations(ACME, stored)})
            expected = expected or made
            assert made.equals(expected)


#: The number of agents with random histories.
AGENTS = 60 if IS_THOROUGH else 15


def grown(lake: Lake, seed: str, predicates: list[str], count: int) -> list[Scope]:
    """Load random histories in parts. Return the agents whose facts differ from a fold of everything at once."""
    lake.ensure()
    lake.storage.write(CONFIGURATION, DECLARING)
    parts = [[landed, *files] for landed, files in cut(seed, count, predicates)]
    scopes = [Scope("acme", f"agent-{number}") for number in range(count)]
    for pieces in (1, 2, 3):
        land(lake, {scope: sum_of(own[:pieces]) for scope, own in zip(scopes, parts, strict=True)})
    wrong = []
    for scope, own in zip(scopes, parts, strict=True):
        stored = sorted(rows_to_triples(lake.graph_rows.read([scope], where=IS_FACT)), key=lambda one: one.id)
        if stored != sorted(model(scope, sum_of(own), VOCABULARY), key=lambda one: one.id):
            wrong.append(scope)
    return wrong


def sum_of(parts: list[list[Operation]]) -> list[Operation]:
    return [operation for part in parts for operation in part]


@pytest.mark.parametrize("chunk", range(3 if IS_THOROUGH else 1))
def test_a_graph_folded_in_pieces_equals_one_folded_at_once(lake: Lake, chunk: int) -> None:
    """Compared with a naive model of the fold; the parts are late and shuffled."""
    assert grown(lake, f"grown {chunk}", PLAIN, AGENTS) == []


def test_a_graph_with_changing_aliases_equals_one_folded_at_once(lake: Lake) -> None:
    assert grown(lake, "named", PLAIN + NAMING, AGENTS) == []


def test_facts_about_an_alias_are_kept_when_the_alias_ends(lake: Lake, outspoken: Models) -> None:
    endings = {ACME: "INSERT Clara|also_known_as|Annie", OTHER: "DELETE Anna|also_known_as|Annie"}
    for scope in endings:
        write(lake, conversation("INSERT Anna|also_known_as|Annie", "INSERT Annie|likes|tea", scope=scope))
    run(lake, outspoken)
    for scope, ending in endings.items():
        write(lake, conversation(ending, at="2024-01-15T09:00", conversation_id="c2", scope=scope))
    run(lake, outspoken)
    likes = [(row["agent_id"], row["source_id"]) for row in graph_rows(lake)["graph_facts"] if row["label"] == "likes"]
    assert sorted(likes) == [("sales", "annie"), ("support", "annie")]


#: Statements, and the facts that are valid after them.
SAID_LAST = [
    (["I live in Berlin.", "I moved to Porto."], "Anna lives_in Porto"),
    (["I live in Porto. I live in Berlin now."], "Anna lives_in Berlin"),
    (["I like olives. I don't like olives any more."], "Anna dislikes olives"),
    (["I got a job at Zeiss. I left Zeiss. I work at Bosch."], "Anna works_at Bosch"),
]


def test_the_last_statement_wins_even_within_one_message(lake: Lake, models: Models) -> None:
    holds = {}
    for case, (said, held) in enumerate(SAID_LAST):
        for number in range(4):  # ids are hashes, so a single order could be right by chance
            scope = Scope("acme", f"a{case}-{number}")
            talk = conversation(*said, conversation_id=f"c{number}", scope=scope)
            for message in talk["messages"]:
                message["timestamp"] = "2024-01-15T08:00:00+00:00"
            write(lake, talk)
            holds[scope] = [held]
    for _ in range(2):  # pending in the journal, and loaded
        found = {scope: MemoryReader(lake, scope, models.embedder).graph.facts_about("Anna") for scope in holds}
        assert {scope: lines(facts) for scope, facts in found.items()} == holds
        list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T08")))


def test_a_cat_with_a_persons_name_does_not_replace_the_person(lake: Lake, models: Models) -> None:
    write(lake, conversation("I live in Porto.", name="Tom"))
    write_edits(lake, "INSERT the boat | is_called | Tom")
    tom = MemoryReader(lake, ACME, models.embedder).graph.entity("Tom")
    assert tom is not None
    assert tom.id == "tom"


# --- projections -----------------------------------------------------------------------------------------------------


def test_only_the_facts_that_changed_are_folded(
    made: Lake, outspoken: Models, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(made, conversation("INSERT Anna|likes|honey", at="2024-01-21T10:30", conversation_id="late"))
    with monkeypatch.context() as patch:
        patch.setattr("memory_pipeline.steps.fold_graph.fold_operations", broken_disk)  # all operations of a scope
        run(made, outspoken)
    rows = graph_rows(made)
    new = [row for row in rows["graph_facts"] if row not in whole["graph_facts"]]
    assert [row["target"] for row in new] == ["honey"]
    assert len(rows["graph_facts"]) == len(whole["graph_facts"]) + 1
    assert stale_scopes(made) == set()


@pytest.mark.parametrize("lost", ["operations", "graph_facts"])
def test_a_lost_projection_is_rebuilt_by_the_next_run(
    made: Lake, outspoken: Models, whole: dict[str, Any], lost: str
) -> None:
    for name in made.projections[lost].roster.present():
        shutil.rmtree(f"{made.storage.uri}/projections/{name}.lance")
    lake = Lake(made.storage.uri)
    with pytest.raises(DamagedError, match="repair"):
        lake.projections[lost].scan()
    if lost == "graph_facts":
        with pytest.raises(DamagedError, match="repair"):
            graph_of(lake).facts_about("Anna")
    write(lake, conversation("Hello.", at="2024-01-21T10:30", conversation_id="late", scope=OTHER))
    run(lake, outspoken)
    replay(lake, outspoken, {}, known_scopes(lake))  # of agents that did not speak
    assert rows_of(lake) == whole


def test_a_projection_without_any_trace_is_rebuilt(made: Lake, outspoken: Models, whole: dict[str, Any]) -> None:
    for folder in ("projections", "state/projections"):
        shutil.rmtree(f"{made.storage.uri}/{folder}")
    lake = Lake(made.storage.uri)
    run(lake, outspoken, *HOURS)
    assert rows_of(lake) == whole


def neighbour(scope: Scope) -> Scope:
    """Return another scope of the same shard."""
    names = (Scope(scope.workspace_id, f"neighbour-{number}") for number in range(1_000))
    return next(other for other in names if shard_of(other.key, SHARDS) == shard_of(scope.key, SHARDS))


def test_scopes_of_one_shard_do_not_touch_each_other(lake: Lake, outspoken: Models) -> None:
    other = neighbour(ACME)
    for scope in (ACME, other):
        write(lake, conversation("INSERT Anna|likes|tea", "INSERT Anna|lives_in|Porto", scope=scope))
    run(lake, outspoken)
    assert len(lake.graph_rows.roster.present()) == len(lake.operations.roster.present()) == 1
    before = numbers(lake, other)
    assert len(before) == 3
    theirs = lake.tables.read(GRAPH_OPERATIONS, where=pc.field("scope") == other.key)
    ended = conversation(
        "DELETE Anna|likes|tea", "INSERT Anna|lives_in|Rome", at="2024-01-15T09:00", conversation_id="c2"
    )
    write(lake, ended)
    run(lake, outspoken)
    assert numbers(lake, other) == before
    assert lines(graph_of(lake).facts_about("Anna")) == ["Anna lives_in Rome"]
    forget(lake, outspoken, Subject.conversation(ACME, "c2"), at("2024-01-17T09:00"))
    assert sorted(lines(graph_of(lake).facts_about("Anna"))) == ["Anna likes tea", "Anna lives_in Porto"]
    forget(lake, outspoken, Subject.agent(ACME), at("2024-01-17T09:00"))
    for projection in (lake.operations, lake.graph_rows):
        assert set(projection.scan(["agent_id"])["agent_id"].to_pylist()) == {other.agent_id}
    assert [row[:2] for row in numbers(lake, other)] == [row[:2] for row in before]
    assert lake.tables.read(GRAPH_OPERATIONS).equals(theirs)
    assert stale_scopes(lake) == set()
