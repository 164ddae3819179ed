"""Consolidate durable memories: find agents with changes, simulate their days, and write the results.

Agents are processed in batches, with one commit per table: the events (``consolidation_events``), their projection by
scope (``events``), memories (``memories``) and checkpoints (``consolidation``). The ledger is written last, so the next
run continues an interrupted one.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.identity import NOTHING, digest
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.domain.values import batched
from memory_pipeline.errors import BUGS, CommitConflictError, UnexpectedError, unexpected
from memory_pipeline.lake.codec.memories import (
    IS_STATE,
    STATE_COLUMNS,
    consolidation_to_rows,
    events_digest,
    events_projected,
    fold_states,
    rows_digest,
    rows_to_events,
    rows_to_memories,
)
from memory_pipeline.lake.index.filters import quoted
from memory_pipeline.lake.schemas import CONSOLIDATION, CONSOLIDATION_EVENTS, MEMORIES
from memory_pipeline.lake.tables.ledger import CONSOLIDATION_ASSET, LedgerEntry
from memory_pipeline.steps.consolidation.cosines import CosineMatrix
from memory_pipeline.steps.consolidation.days import (
    checkpoint_to_row,
    day_of,
    night_inputs,
    parse_day,
    read_checkpoints,
    write_checkpoints,
)
from memory_pipeline.steps.consolidation.report import ConsolidationReport
from memory_pipeline.steps.consolidation.simulation import AgentSimulation, SimulationInputs, simulate
from memory_pipeline.steps.embed import vectors_in
from memory_pipeline.steps.fold_memories import VECTOR_COLUMNS, refold_memories
from memory_pipeline.steps.group import by_scope
from memory_pipeline.steps.memory_vectors import memory_vectors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import date

    from memory_pipeline.domain.memories.consolidation import ConsolidationSettings
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.access_log import MemoryUse
    from memory_pipeline.models.factory import Models
    from memory_pipeline.steps.consolidation.days import ConsolidationCheckpoint

_log = logging.getLogger(__name__)

#: A batch is complete at this number of its agents' events, or at this number of agents.
_BATCH_EVENTS, _BATCH_AGENTS = 50_000, 1_000
#: Maximum number of attempts if other runs keep writing events of the same agents.
_ATTEMPTS = 10
#: Seconds between progress messages of a long simulation.
_PROGRESS_EVERY = 10.0
#: Increase if consolidation computes different results.
_VERSION = 3
_CACHE_PATH = "state/consolidation.json"


def consolidate(
    lake: Lake,
    models: Models,
    nights: Collection[Period],
    start: date,
    *,
    scopes: Collection[Scope] | None = None,
    dry_run: bool = False,
    explain: bool = False,
) -> ConsolidationReport:
    """Consolidate days, each as of its end, and all later days that change as a result.

    Safe to repeat, to interrupt and to run concurrently. The result does not depend on when or in which order days are
    requested: each agent is simulated from its first changed day to the last day ever requested. Days consolidated
    under other settings or models are recomputed only on request. Days before `start` are ignored.

    Uses of memories (:mod:`memory_pipeline.lake.access_log`) count when a day is simulated, and are no reason to
    simulate one again.

    With `scopes`, only these agents are processed, and the days are not entered in the ledger. A dry run writes nothing
    and reports the changes with their reasons; with `explain`, so does a real run.

    Raises:
        UnexpectedError: the code fails on the memories of an agent; all others are complete, and the days stay pending.
    """
    started = time.perf_counter()
    report = ConsolidationReport()
    inputs = night_inputs(lake)  # before events are read: a day that gets events meanwhile stays pending
    entries = lake.ledger.entries(CONSOLIDATION_ASSET)
    # Days before the first event are skipped, unless an earlier event, since removed, was consolidated on them.
    first = min((day.key for day in inputs), default="")
    requested = sorted({day for day in nights if day.first_day >= start and (day.key >= first or day.key in entries)})
    if not requested:
        return report
    for day in requested:
        report.night(day)
    if not dry_run:
        lake.access_log.settle()
    run = _Run(lake, models, requested, entries, report, dry_run=dry_run, explain=explain or dry_run)
    failure: UnexpectedError | None = None
    for batch in run.batches(scopes):
        waiting = [batch]
        while waiting:
            part = waiting.pop()
            try:
                _consolidate_batch(run, part)
            except BUGS as error:
                # Halve the batch until the faulty scope is alone, so that all others succeed.
                if len(part) == 1:
                    failure = failure or unexpected(f"the consolidation of {part[0]}", error)
                else:
                    waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
    if failure is not None:
        raise failure
    if not dry_run:
        _record_days(run, inputs, is_whole=scopes is None)
        if run.unchanged != run.unchanged_before:
            lake.storage.write(_CACHE_PATH, json.dumps(run.unchanged, sort_keys=True).encode())
    report.nights.sort(key=lambda each: each.night.key)
    report.seconds = time.perf_counter() - started
    return report


def _read_unchanged(lake: Lake) -> dict[str, str]:
    """Return the agents with nothing to do, each with the first day after `until` that has events, or "".

    Agents are named by a digest of their events and checkpoint. This is a cache: without it, all agents are read.
    """
    try:
        unchanged: dict[str, str] = json.loads(lake.storage.read(_CACHE_PATH) or b"{}")
    except ValueError:
        return {}
    return unchanged


def _agent_key(events: str, checkpoint: ConsolidationCheckpoint | None) -> str:
    return digest(_VERSION, events, None if checkpoint is None else checkpoint_to_row(checkpoint))


@lru_cache(maxsize=256)  # most agents have the same settings
def _values_of(settings: ConsolidationSettings) -> dict[str, object]:
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in asdict(settings).items()}


class _Run:
    def __init__(
        self,
        lake: Lake,
        models: Models,
        requested: Sequence[Period],
        entries: Mapping[str, LedgerEntry],
        report: ConsolidationReport,
        *,
        dry_run: bool,
        explain: bool,
    ) -> None:
        self.lake, self.models, self.requested, self.entries, self.report = lake, models, requested, entries, report
        self.dry_run, self.explain = dry_run, explain
        self.states = fold_states(lake.memory_rows.scan(("version", *STATE_COLUMNS), IS_STATE))
        self.checkpoints = read_checkpoints(lake.tables)
        self.unchanged_before = _read_unchanged(lake)
        self.unchanged: dict[str, str] = {}
        # Agents whose events have not changed, but are due, with their value in `unchanged`.
        self.only_due: dict[Scope, str] = {}
        earlier = [*self.entries, *(each.through.key for each in self.checkpoints.values())]
        self.until = max([requested[-1], *map(parse_day, earlier)])
        self._configuration = lake.configuration()
        self._rules: dict[Scope, SimulationInputs] = {}

    def rules(self, scope: Scope) -> SimulationInputs:
        """Return the settings, vocabulary and curator of an agent."""
        if scope not in self._rules:
            settings = self._configuration.memories(scope).consolidation_settings
            vocabulary = self._configuration.vocabulary(scope)
            curator = self.models.curator
            method = digest(
                _VERSION,
                _values_of(settings),
                vocabulary.digest,
                curator.name(scope),
                curator.confirms(scope),
                self.models.embedder.name,
            )
            self._rules[scope] = SimulationInputs(settings, vocabulary, curator, method)
        return self._rules[scope]

    def batches(self, scopes: Collection[Scope] | None) -> Iterator[list[Scope]]:
        """Yield the agents that may have days to consolidate, in batches that fit in memory."""
        known = self.states.keys() | {each.scope for each in self.checkpoints.values()}
        selected = known if scopes is None else known.intersection(scopes)
        ordered = sorted(selected, key=lambda scope: scope.key)  # so that a shard is written once
        waiting = (scope for scope in ordered if not self._is_current(scope))
        states = self.states
        return batched(waiting, lambda one: states[one].count if one in states else 0, _BATCH_EVENTS, _BATCH_AGENTS)

    def _is_current(self, scope: Scope) -> bool:
        checkpoint = self.checkpoints.get(scope.key)
        key = _agent_key(self.states[scope].events if scope in self.states else "", checkpoint)
        later = self.unchanged_before.get(key)
        if later is None or (later and later <= self.until.key):
            return False
        self.unchanged[key] = later
        if checkpoint is None:
            return True
        if checkpoint.troubles or checkpoint.method != self.rules(scope).method:
            return False
        is_due = checkpoint.due is not None and checkpoint.due.key <= self.until.key
        if is_due:
            self.only_due[scope] = later
        return not is_due


def _consolidate_batch(run: _Run, scopes: Sequence[Scope]) -> None:
    """Consolidate a batch of agents. Repeat if data was erased meanwhile."""
    lake, started = run.lake, time.perf_counter()
    is_repeated = False
    while True:
        tombstones = lake.tombstones.state()
        simulations, digests = _simulated(run, scopes)
        if run.dry_run:
            break
        touched = [simulation for simulation in simulations if simulation.first is not None]
        refold_memories(
            lake, run.models.embedder, [simulation.scope for simulation in touched if simulation.stored is None]
        )
        results = {simulation.scope: simulation.result() for simulation in simulations}
        replaced = write_checkpoints(
            lake.tables,
            [simulation.scope for simulation in touched],
            [each for simulation in touched if (each := results[simulation.scope]) is not None],
        )
        if replaced is not None and replaced.key > run.until.key:  # of a concurrent run for later days
            run.until, run.checkpoints = replaced, read_checkpoints(lake.tables)
            continue
        # Erasure may have written its tombstone after this run read, and deleted before this run wrote.
        if lake.tombstones.state() == tombstones:
            for simulation in simulations:
                scope = simulation.scope
                later = simulation.later.key if simulation.later else ""
                is_stored = simulation.stored is not None
                key = _agent_key(digests.get(scope, ""), results[scope])
                run.unchanged[key] = run.only_due[scope] if is_stored else later
            break
        _log.info("consolidation: data was erased during the run, repeating %s agents", f"{len(scopes):,}")
        run.checkpoints = read_checkpoints(lake.tables)
        is_repeated = True
    if is_repeated:
        for spec in (CONSOLIDATION_EVENTS, CONSOLIDATION):
            lake.tables.purge(spec)
        lake.events.purge(scopes)
        lake.memory_rows.purge(scopes)
    for simulation in simulations:
        run.report.note(simulation, explain=run.explain)
    days = {each.day for simulation in simulations for each in simulation.simulated}
    if run.models.store and not run.dry_run:
        for period, usage in run.models.store.settle(days).items():
            if period in days:
                run.report.night(period).usage += usage
    if days:
        first, last = min(days), max(days)
        _log.info(
            "consolidation: %s agents, %s days, %s to %s, in %.1f s",
            f"{sum(bool(simulation.simulated) for simulation in simulations):,}",
            len(days),
            first,
            last,
            time.perf_counter() - started,
        )


def _simulated(run: _Run, scopes: Sequence[Scope]) -> tuple[list[AgentSimulation], dict[Scope, str]]:
    """Simulate agents and write their consolidation events. Return the simulations and the digests of all events."""
    lake = run.lake
    reviewed = _reviewed(run, [scope for scope in scopes if scope in run.only_due])
    scopes = [scope for scope in scopes if scope not in reviewed]
    base, old = _events_of(lake, scopes)
    for _ in range(_ATTEMPTS):
        events = pa.concat_tables([base, old])
        simulations = _simulations(run, scopes, base, old)
        touched = {simulation.scope: simulation for simulation in simulations if simulation.first is not None}
        if touched:
            embedder = run.models.embedder
            stored = lake.memory_rows.read(list(touched), VECTOR_COLUMNS, f"embed_model = {quoted(embedder.name)}")
            vectors = CosineMatrix(embedder)
            vectors.learn({**memory_vectors(lake, embedder, touched), **vectors_in(stored, embedder)})
            reported = time.perf_counter()
            for simulation, result in simulate(list(touched.values()), vectors):
                if time.perf_counter() - reported > _PROGRESS_EVERY:
                    reported = time.perf_counter()
                    _log.info(
                        "consolidation: day %s of %s agents (%s)", result.day, f"{len(touched):,}", simulation.scope
                    )
        if not touched or run.dry_run:
            break
        _write_events(run, touched)
        # A concurrent run may have written other events of these agents: simulate them again.
        read, events = _ids(base), lake.events.read(scopes, (*SCOPE_COLUMNS, "id", "is_consolidation"))
        if _ids(events.filter(pc.invert(events["is_consolidation"]))) == read:
            break
        base, old = _events_of(lake, scopes)
    else:
        raise CommitConflictError(f"the memory events of {scopes[0]} and others keep changing; run it again later")
    ids = by_scope(events.select((*SCOPE_COLUMNS, "id")))
    digests = {scope: run.states[scope].events for scope in reviewed}
    digests |= {scope: events_digest(rows["id"].to_pylist()) for scope, rows in ids.items()}
    return [*reviewed.values(), *simulations], digests


def _reviewed(run: _Run, scopes: Sequence[Scope]) -> dict[Scope, AgentSimulation]:
    """Return simulations of the agents in which memories only become due for a review, from stored memories."""
    if not scopes:
        return {}
    rows = run.lake.memory_rows.read(scopes, [name for name in MEMORIES.schema.names if name != "vector"])
    is_state = pc.equal(rows["version"], 0)
    states, versions = fold_states(rows.filter(is_state)), by_scope(rows.filter(pc.invert(is_state)))
    memories = rows_to_memories(rows)
    uses = _uses_of(run, scopes)
    found = {}
    for scope, own in versions.items():
        state, checkpoint = states.get(scope), run.checkpoints.get(scope.key)
        if state is None or checkpoint is None or state.events != run.states[scope].events:
            continue
        if rows_digest(own["digest"].to_pylist()) != state.rows:  # the write of the rows was not completed
            continue
        simulation = AgentSimulation(
            scope, run.rules(scope), run.lake.calendar, {}, {}, checkpoint, run.requested, run.until,
            uses.get(scope.key, ()), memories[scope],
        )  # fmt: skip
        if simulation.first is not None:
            found[scope] = simulation
    return found


def _uses_of(run: _Run, scopes: Sequence[Scope]) -> Mapping[str, list[MemoryUse]]:
    uses: defaultdict[str, list[MemoryUse]] = defaultdict(list)
    for use in run.lake.access_log.uses(scopes):
        uses[use.scope_key].append(use)
    return uses


def _events_of(lake: Lake, scopes: Collection[Scope]) -> tuple[pa.Table, pa.Table]:
    """Return the memory events and the consolidation events of agents."""
    rows = lake.events.read(scopes)
    return rows.filter(pc.invert(rows["is_consolidation"])), rows.filter(rows["is_consolidation"])


def _ids(rows: pa.Table) -> set[str]:
    return set(rows["id"].to_pylist())


def _write_events(run: _Run, touched: Mapping[Scope, AgentSimulation]) -> None:
    """Replace the consolidation events of simulated agents from their first simulated day on."""
    lake = run.lake
    ends = {each.at: each.day for simulation in touched.values() for each in simulation.simulated}
    events = [event for simulation in touched.values() for each in simulation.simulated for event in each.events]
    new = consolidation_to_rows(events, ends)
    firsts = {scope.key: str(simulation.first) for scope, simulation in touched.items()}
    first = min(firsts.values())
    of_touched = pc.field("scope").isin(pa.array(list(firsts), pa.string()))

    def stored(columns: Collection[str] | None = None) -> pa.Table:
        keys = [key for key in lake.tables.keys(CONSOLIDATION_EVENTS) if key >= first]
        return lake.tables.read(CONSOLIDATION_EVENTS, keys, columns=columns, where=of_touched)

    def merged(old: pa.Table) -> pa.Table:
        is_kept = [
            key < firsts.get(scope, "9")
            for scope, key in zip(old["scope"].to_pylist(), old["period"].to_pylist(), strict=True)
        ]
        return pa.concat_tables([old.filter(pa.array(is_kept, pa.bool_())), new])

    keys = {*new["period"].to_pylist(), *stored(("scope", "period"))["period"].to_pylist()}
    if keys:
        run.report.written |= bool(lake.tables.transform(CONSOLIDATION_EVENTS, keys, merged))
    within = f"is_consolidation AND period >= {quoted(first)}"
    for _ in range(_ATTEMPTS):
        rows = stored()
        run.report.written |= bool(lake.events.replace(events_projected(rows), list(touched), within))
        if _ids(stored(("scope", "id"))) == _ids(rows):  # else a concurrent run committed in between
            return
    raise CommitConflictError(f"{CONSOLIDATION_EVENTS.name} from {first} on keep changing; run it again later")


def _simulations(run: _Run, scopes: Sequence[Scope], base: pa.Table, consolidation: pa.Table) -> list[AgentSimulation]:
    calendar = run.lake.calendar
    happened: dict[Scope, dict[Period, list[MemoryEvent]]] = defaultdict(lambda: defaultdict(list))
    for event in rows_to_events(base):
        happened[event.scope][day_of(event, calendar)].append(event)
    old: dict[Scope, dict[Period, list[MemoryEvent]]] = defaultdict(lambda: defaultdict(list))
    for event, key in zip(rows_to_events(consolidation), consolidation["period"].to_pylist(), strict=True):
        old[event.scope][parse_day(key)].append(event)
    uses = _uses_of(run, scopes)
    return [
        AgentSimulation(
            scope,
            run.rules(scope),
            calendar,
            happened.get(scope, {}),
            old.get(scope, {}),
            run.checkpoints.get(scope.key),
            run.requested,
            run.until,
            uses.get(scope.key, ()),
        )
        for scope in scopes
    ]


def _record_days(run: _Run, inputs: Mapping[Period, str], *, is_whole: bool) -> None:
    first, lake = run.requested[0].key, run.lake
    checkpoints = read_checkpoints(lake.tables)
    keys = [key for key in lake.tables.keys(CONSOLIDATION_EVENTS) if key >= first]
    rows = lake.tables.read(CONSOLIDATION_EVENTS, keys, columns=("scope", "period", "id"))
    ids: dict[str, list[str]] = defaultdict(list)
    agents: dict[str, set[str]] = defaultdict(set)
    for scope, key, event_id in zip(*(rows[name].to_pylist() for name in ("scope", "period", "id")), strict=True):
        ids[key].append(event_id)
        agents[key].add(scope)
    troubles = Counter(text.partition(" ")[0] for each in checkpoints.values() for text in each.troubles)
    requested = {day.key: inputs.get(day, NOTHING) for day in run.requested} if is_whole else {}
    digests = {key: entry.input_digest for key, entry in run.entries.items() if key >= first} | requested
    entries = [
        LedgerEntry(
            CONSOLIDATION_ASSET, key, source, events_digest(ids[key]), len(ids[key]), len(agents[key]), troubles[key]
        )
        for key, source in sorted(digests.items())
    ]
    changed = [entry for entry in entries if run.entries.get(entry.period) != entry]
    if changed:
        lake.ledger.record(changed)
