"""Consolidate durable memories: find agents with changes, simulate their days, and write the results.

Agents are processed in batches, with one commit per table: consolidation events (``upkeep_events``), memories
(``memories``) and checkpoints (``upkeep``). The ledger is written last, so the next run continues an interrupted one.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.identity import NOTHING, digest
from memory_pipeline.lake.codec.memories import events_digest, rows_to_events, upkeep_to_rows
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import MEMORIES, MEMORY_EVENTS, UPKEEP, UPKEEP_EVENTS
from memory_pipeline.lake.tables.ledger import LedgerEntry
from memory_pipeline.steps.consolidation.cosines import CosineMatrix
from memory_pipeline.steps.consolidation.days import (
    UPKEEP_ASSET,
    day_of,
    night_inputs,
    parse_day,
    read_checkpoints,
    write_checkpoints,
)
from memory_pipeline.steps.consolidation.report import ConsolidationReport
from memory_pipeline.steps.consolidation.simulation import AgentSimulation, SimulationInputs, simulate
from memory_pipeline.steps.fold import refold_memories

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import date

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.steps.consolidation.days import ConsolidationCheckpoint

_log = logging.getLogger(__name__)

#: A batch is complete at this size of its agents' events, or at this number of agents.
_BATCH_BYTES, _BATCH_AGENTS = 8_000_000, 200
#: Seconds between progress messages of a long simulation.
_PROGRESS_EVERY = 10.0
#: Increase if consolidation computes different results.
_VERSION = 1
_CACHE_PATH = "state/upkeep.json"


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

    With `scopes`, only these agents are processed, and the days are not entered in the ledger. A dry run writes nothing
    and reports the changes with their reasons; with `explain`, so does a real run.
    """
    started = time.perf_counter()
    report = ConsolidationReport()
    inputs = night_inputs(lake)  # before events are read: a day that gets events meanwhile stays pending
    entries = lake.ledger.entries(UPKEEP_ASSET)
    # Days before the first event are skipped, unless an earlier event, since removed, was consolidated on them.
    first = min((day.key for day in inputs), default="")
    requested = sorted(
        {day for day in nights if day.first_day >= start and (day.key >= first or day.key in entries)}, key=_key
    )
    if not requested:
        return report
    for day in requested:
        report.night(day)
    run = _Run(lake, models, requested, entries, report, dry_run=dry_run, explain=explain or dry_run)
    for batch in run.batches(scopes):
        _consolidate_batch(run, batch)
    if not dry_run:
        _record_days(run, inputs, is_whole=scopes is None)
        run.unchanged.write(lake)
    report.nights.sort(key=lambda each: each.night.key)
    report.seconds = time.perf_counter() - started
    return report


class _UnchangedAgents:
    """A cache of agents that are current until a later day with events, by a digest of their files and checkpoint."""

    def __init__(self, lake: Lake) -> None:
        data = lake.storage.read(_CACHE_PATH)
        try:
            cached = json.loads(data or b"{}")
        except ValueError:
            cached = {}
        self._old: dict[str, str] = cached if isinstance(cached, dict) else {}
        self._new: dict[str, str] = {}

    def has(self, files: Iterable[str], checkpoint: ConsolidationCheckpoint | None, until: Period) -> bool:
        """Return whether an agent with these files and this checkpoint has nothing to consolidate up to `until`."""
        key = _agent_key(files, checkpoint)
        later = self._old.get(key)
        if later is None or (later and later <= until.key):
            return False
        self._new[key] = later
        return True

    def put(self, files: Iterable[str], checkpoint: ConsolidationCheckpoint | None, later: Period | None) -> None:
        """Add an agent."""
        self._new[_agent_key(files, checkpoint)] = later.key if later else ""

    def write(self, lake: Lake) -> None:
        """Write the cache if it has changed."""
        if self._new != self._old:
            lake.storage.write(_CACHE_PATH, json.dumps(self._new, sort_keys=True).encode())


def _agent_key(files: Iterable[str], checkpoint: ConsolidationCheckpoint | None) -> str:
    return digest(_VERSION, sorted(files), None if checkpoint is None else checkpoint.to_row())


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
        self.files = lake.tables.states(MEMORY_EVENTS)
        self.checkpoints = read_checkpoints(lake.tables)
        self.unchanged = _UnchangedAgents(lake)
        earlier = [*self.entries, *(each.through.key for each in self.checkpoints.values())]
        self.until = max([requested[-1], *map(parse_day, earlier)], key=_key)
        self._configuration = lake.configuration()
        self._rules: dict[Scope, SimulationInputs] = {}

    def rules(self, scope: Scope) -> SimulationInputs:
        """Return the settings, vocabulary and curator of an agent."""
        if scope not in self._rules:
            settings = self._configuration.memories(scope).upkeep_settings
            vocabulary = self._configuration.vocabulary(scope)
            curator = self.models.curator
            values = {
                name: sorted(value) if isinstance(value, frozenset) else value
                for name, value in asdict(settings).items()
            }
            method = digest(
                _VERSION,
                values,
                vocabulary.digest,
                curator.name(scope),
                curator.confirms(scope),
                self.models.embedder.name,
            )
            self._rules[scope] = SimulationInputs(settings, vocabulary, curator, method)
        return self._rules[scope]

    def batches(self, scopes: Collection[Scope] | None) -> Iterator[list[Scope]]:
        """Yield the agents that may have days to consolidate, in batches that fit in memory."""
        sizes = self.lake.tables.sizes(MEMORY_EVENTS)
        owners = self.files.keys() | self.checkpoints.keys() | set(self.lake.tables.keys(UPKEEP_EVENTS))
        selected = None if scopes is None else {owner_of(scope) for scope in scopes}
        batch: list[Scope] = []
        size = 0
        for owner in sorted(owners):
            scope = Scope(*owner.split("~"))  # ids never contain a tilde
            if self._is_current(owner, scope) or (selected is not None and owner not in selected):
                continue
            batch.append(scope)
            size += sizes.get(owner, 0)
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_AGENTS:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _is_current(self, owner: str, scope: Scope) -> bool:
        checkpoint = self.checkpoints.get(owner)
        if not self.unchanged.has(self.files.get(owner, ()), checkpoint, self.until):
            return False
        if checkpoint is None:
            return True
        is_due = checkpoint.due is not None and checkpoint.due.key <= self.until.key
        return not (is_due or checkpoint.troubles or checkpoint.method != self.rules(scope).method)


def _consolidate_batch(run: _Run, scopes: Sequence[Scope]) -> None:
    """Consolidate a batch of agents. Repeat if data was erased meanwhile."""
    lake, started = run.lake, time.perf_counter()
    is_repeated = False
    while True:
        tombstones = lake.tombstones.state()
        simulations = _simulated(run, scopes)
        if run.dry_run:
            break
        touched = [simulation for simulation in simulations if simulation.first is not None]
        refold_memories(lake, run.models.embedder, [simulation.scope for simulation in touched])
        results = {simulation.scope: simulation.result() for simulation in simulations}
        write_checkpoints(
            lake.tables,
            [simulation.scope for simulation in touched],
            [each for simulation in touched if (each := results[simulation.scope]) is not None],
        )
        # Erasure may have written its tombstone after this run read, and deleted before this run wrote.
        if lake.tombstones.state() == tombstones:
            for simulation in simulations:
                owner = owner_of(simulation.scope)
                run.unchanged.put(run.files.get(owner, ()), results[simulation.scope], simulation.later)
            break
        _log.info("consolidation: data was erased during the run, repeating %s agents", f"{len(scopes):,}")
        run.files, run.checkpoints = lake.tables.states(MEMORY_EVENTS), read_checkpoints(lake.tables)
        is_repeated = True
    if is_repeated:
        for spec in (UPKEEP_EVENTS, MEMORIES, UPKEEP):
            lake.tables.purge(spec)
    for simulation in simulations:
        run.report.note(simulation, explain=run.explain)
    days = {each.day for simulation in simulations for each in simulation.simulated}
    if run.models.store and not run.dry_run:
        for period, usage in run.models.store.settle(days).items():
            if period in days:
                run.report.night(period).usage += usage
    if days:
        first, last = min(days, key=_key), max(days, key=_key)
        _log.info(
            "consolidation: %s agents, %s days, %s to %s, in %.1f s",
            f"{sum(bool(simulation.simulated) for simulation in simulations):,}",
            len(days),
            first,
            last,
            time.perf_counter() - started,
        )


def _simulated(run: _Run, scopes: Sequence[Scope]) -> list[AgentSimulation]:
    lake = run.lake
    owners = [owner_of(scope) for scope in scopes]
    simulations: list[AgentSimulation] = []
    last: tuple[object, pa.Table] | None = None

    def simulated(old: pa.Table) -> pa.Table:
        # Read inside the attempt: of two concurrent runs, the last to commit has read the events of both.
        nonlocal last  # reused if a retry reads the same events
        read = (lake.tables.state(MEMORY_EVENTS, owners), old["id"].to_pylist())
        if last is None or last[0] != read:
            last = (read, attempted(old))
        return last[1]

    def attempted(old: pa.Table) -> pa.Table:
        nonlocal simulations
        simulations = _simulations(run, scopes, lake.tables.read(MEMORY_EVENTS, owners), old)
        touched = {owner_of(simulation.scope): simulation for simulation in simulations if simulation.first is not None}
        if not touched:
            return old
        vectors = CosineMatrix(run.models.embedder)
        vectors.learn(_vectors(lake, touched, vectors.name))
        reported = time.perf_counter()
        for simulation, result in simulate(list(touched.values()), vectors):
            if time.perf_counter() - reported > _PROGRESS_EVERY:
                reported = time.perf_counter()
                _log.info("consolidation: day %s of %s agents (%s)", result.day, f"{len(touched):,}", simulation.scope)
        ends = {each.at: each.day for simulation in touched.values() for each in simulation.simulated}
        events = [event for simulation in touched.values() for each in simulation.simulated for event in each.events]
        is_kept = [
            owner not in touched or key < str(touched[owner].first)
            for owner, key in zip(old["owner"].to_pylist(), old["night"].to_pylist(), strict=True)
        ]
        return pa.concat_tables([old.filter(pa.array(is_kept, pa.bool_())), upkeep_to_rows(events, ends)])

    if run.dry_run:
        simulated(lake.tables.read(UPKEEP_EVENTS, owners))
    else:
        run.report.written |= bool(lake.tables.transform(UPKEEP_EVENTS, owners, simulated).changed)
    return simulations


def _simulations(run: _Run, scopes: Sequence[Scope], base: pa.Table, upkeep: pa.Table) -> list[AgentSimulation]:
    calendar = run.lake.calendar
    happened: dict[Scope, dict[Period, list[MemoryEvent]]] = defaultdict(lambda: defaultdict(list))
    for event in rows_to_events(base):
        happened[event.scope][day_of(event, calendar)].append(event)
    old: dict[Scope, dict[Period, list[MemoryEvent]]] = defaultdict(lambda: defaultdict(list))
    for event, key in zip(rows_to_events(upkeep), upkeep["night"].to_pylist(), strict=True):
        old[event.scope][parse_day(key)].append(event)
    return [
        AgentSimulation(
            scope,
            run.rules(scope),
            calendar,
            happened.get(scope, {}),
            old.get(scope, {}),
            run.checkpoints.get(owner_of(scope)),
            run.requested,
            run.until,
        )
        for scope in scopes
    ]


def _vectors(lake: Lake, owners: Collection[str], embedder: str) -> Mapping[str, NDArray[np.float32]]:
    columns = ("content", "vector", "embed_model")
    rows = lake.tables.read(MEMORIES, owners, columns=columns, where=pc.field("embed_model") == embedder)
    if not rows.num_rows:
        return {}
    numbers = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return dict(zip(rows["content"].to_pylist(), numbers.reshape(rows.num_rows, -1), strict=True))


def _record_days(run: _Run, inputs: Mapping[Period, str], *, is_whole: bool) -> None:
    first, lake = run.requested[0].key, run.lake
    checkpoints = read_checkpoints(lake.tables)
    owners = [owner for owner, each in checkpoints.items() if each.through.key >= first]
    rows = lake.tables.read(UPKEEP_EVENTS, owners, columns=("owner", "night", "id"), where=pc.field("night") >= first)
    ids: dict[str, list[str]] = defaultdict(list)
    agents: dict[str, set[str]] = defaultdict(set)
    for owner, key, event_id in zip(*(rows[name].to_pylist() for name in ("owner", "night", "id")), strict=True):
        ids[key].append(event_id)
        agents[key].add(owner)
    troubles = Counter(text.partition(" ")[0] for each in checkpoints.values() for text in each.troubles)
    requested = {day.key: inputs.get(day, NOTHING) for day in run.requested} if is_whole else {}
    digests = {key: entry.input_digest for key, entry in run.entries.items() if key >= first} | requested
    entries = [
        LedgerEntry(UPKEEP_ASSET, key, source, events_digest(ids[key]), len(ids[key]), len(agents[key]), troubles[key])
        for key, source in sorted(digests.items())
    ]
    changed = [entry for entry in entries if run.entries.get(entry.period) != entry]
    if changed:
        lake.ledger.record(changed)


def _key(period: Period) -> str:
    return period.key
