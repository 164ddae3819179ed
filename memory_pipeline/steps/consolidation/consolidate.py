"""Consolidate durable memories: find agents with changes, simulate their days, and write the results.

Agents are processed in batches, with one commit per table: consolidation events (``upkeep_events``), memories
(``memories``) and checkpoints (``upkeep``). The ledger is written last, so the next run repeats what an interrupted one
left undone. Agents without changes are skipped. ``state/upkeep.json`` caches which ones these are, by the names of
their files; without it all agents are read.
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
    read_kept,
    write_kept,
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
_LEVEL = "state/upkeep.json"


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
    requested: each agent is simulated from its first changed day to the last day ever requested. Days that were
    consolidated under other settings or models are recomputed only on request.

    Args:
        lake: where the memories are.
        models: embed memories, merge them and confirm stale ones.
        nights: closed days to consolidate.
        start: first day of the memory; earlier days are ignored.
        scopes: only these agents; the days are then not entered in the ledger, since the others were not processed.
        dry_run: report the changes with their reasons; write nothing.
        explain: report the changes of a real run, too.
    """
    started = time.perf_counter()
    done = ConsolidationReport()
    inputs = night_inputs(lake)  # before events are read: a day that gets events meanwhile stays pending
    entries = lake.ledger.entries(UPKEEP_ASSET)
    # Days before the first event are skipped, unless an earlier event, since removed, was consolidated on them.
    first = min((day.key for day in inputs), default="")
    wanted = {each for each in nights if each.first_day >= start and (each.key >= first or each.key in entries)}
    asked = sorted(wanted, key=_key)
    if not asked:
        return done
    for each in asked:
        done.night(each)
    run = _Run(lake, models, asked, entries, done, dry_run=dry_run, explain=explain or dry_run)
    for batch in run.batches(scopes):
        _consolidate_batch(run, batch)
    if not dry_run:
        _enter(run, inputs, is_whole=scopes is None)
        run.level.write(lake)
    done.nights.sort(key=lambda each: each.night.key)
    done.seconds = time.perf_counter() - started
    return done


class _UnchangedAgents:
    """A cache of agents that need no consolidation.

    Maps a digest of an agent's files and checkpoint to the key of the first later day that already has events, or "" if
    there is none. The agent is due again when that day is requested.
    """

    def __init__(self, lake: Lake) -> None:
        data = lake.storage.read(_LEVEL)
        try:
            found = json.loads(data or b"{}")
        except ValueError:
            found = {}
        self._known: dict[str, str] = found if isinstance(found, dict) else {}
        self._found: dict[str, str] = {}

    def has(self, files: Iterable[str], checkpoint: ConsolidationCheckpoint | None, until: Period) -> bool:
        """Return whether an agent with these files and this checkpoint has nothing to consolidate up to `until`."""
        key = _agent_key(files, checkpoint)
        later = self._known.get(key)
        if later is None or (later and later <= until.key):
            return False
        self._found[key] = later
        return True

    def put(self, files: Iterable[str], checkpoint: ConsolidationCheckpoint | None, later: Period | None) -> None:
        """Add an agent."""
        self._found[_agent_key(files, checkpoint)] = later.key if later else ""

    def write(self, lake: Lake) -> None:
        """Write the cache if it has changed."""
        if self._found != self._known:
            lake.storage.write(_LEVEL, json.dumps(self._found, sort_keys=True).encode())


def _agent_key(files: Iterable[str], checkpoint: ConsolidationCheckpoint | None) -> str:
    return digest(_VERSION, sorted(files), None if checkpoint is None else checkpoint.to_row())


class _Run:
    """The inputs and caches of one run."""

    def __init__(
        self,
        lake: Lake,
        models: Models,
        asked: Sequence[Period],
        entries: Mapping[str, LedgerEntry],
        done: ConsolidationReport,
        *,
        dry_run: bool,
        explain: bool,
    ) -> None:
        self.lake, self.models, self.asked, self.entries, self.done = lake, models, asked, entries, done
        self.dry_run, self.explain = dry_run, explain
        self.files = lake.tables.states(MEMORY_EVENTS)
        self.checkpoint = read_kept(lake.tables)
        self.level = _UnchangedAgents(lake)
        known = [*self.entries, *(each.through.key for each in self.checkpoint.values())]
        self.until = max([asked[-1], *map(parse_day, known)], key=_key)
        self._configuration = lake.configuration()
        self._rules: dict[Scope, SimulationInputs] = {}

    def rules(self, scope: Scope) -> SimulationInputs:
        """Return the settings, vocabulary and curator of an agent."""
        if scope not in self._rules:
            settings = self._configuration.memories(scope).upkeep_settings
            vocabulary = self._configuration.vocabulary(scope)
            curator = self.models.curator
            by = {
                name: sorted(value) if isinstance(value, frozenset) else value
                for name, value in asdict(settings).items()
            }
            method = digest(
                _VERSION, by, vocabulary.digest, curator.name(scope), curator.confirms(scope), self.models.embedder.name
            )
            self._rules[scope] = SimulationInputs(settings, vocabulary, curator, method)
        return self._rules[scope]

    def batches(self, scopes: Collection[Scope] | None) -> Iterator[list[Scope]]:
        """Yield the agents that may have days to consolidate, in batches that fit in memory."""
        sizes = self.lake.tables.sizes(MEMORY_EVENTS)
        owners = self.files.keys() | self.checkpoint.keys() | set(self.lake.tables.keys(UPKEEP_EVENTS))
        wanted = None if scopes is None else {owner_of(scope) for scope in scopes}
        batch: list[Scope] = []
        weight = 0
        for owner in sorted(owners):
            scope = Scope(*owner.split("~"))  # ids never contain a tilde
            if self._is_level(owner, scope) or (wanted is not None and owner not in wanted):
                continue
            batch.append(scope)
            weight += sizes.get(owner, 0)
            if weight >= _BATCH_BYTES or len(batch) >= _BATCH_AGENTS:
                yield batch
                batch, weight = [], 0
        if batch:
            yield batch

    def _is_level(self, owner: str, scope: Scope) -> bool:
        checkpoint = self.checkpoint.get(owner)
        if not self.level.has(self.files.get(owner, ()), checkpoint, self.until):
            return False
        if checkpoint is None:
            return True
        is_due = checkpoint.due is not None and checkpoint.due.key <= self.until.key
        return not (is_due or checkpoint.troubles or checkpoint.method != self.rules(scope).method)


def _consolidate_batch(run: _Run, scopes: Sequence[Scope]) -> None:
    """Consolidate a batch of agents. Repeat if data was erased meanwhile."""
    lake, started = run.lake, time.perf_counter()
    is_again = False
    while True:
        tombstones = lake.tombstones.state()
        simulations = _simulated(run, scopes)
        if run.dry_run:
            break
        touched = [simulation for simulation in simulations if simulation.first is not None]
        refold_memories(lake, run.models.embedder, [simulation.scope for simulation in touched])
        results = {simulation.scope: simulation.result() for simulation in simulations}
        write_kept(
            lake.tables,
            [simulation.scope for simulation in touched],
            [each for simulation in touched if (each := results[simulation.scope]) is not None],
        )
        # Erasure writes its tombstone first and then deletes. This run may have read before the tombstone and written
        # after the deletion, so it removes such rows itself.
        if lake.tombstones.state() == tombstones:
            for simulation in simulations:
                owner = owner_of(simulation.scope)
                run.level.put(run.files.get(owner, ()), results[simulation.scope], simulation.later)
            break
        _log.info("upkeep: data was erased during the run, repeating %s agents", f"{len(scopes):,}")
        run.files, run.checkpoint = lake.tables.states(MEMORY_EVENTS), read_kept(lake.tables)
        is_again = True
    if is_again:
        for spec in (UPKEEP_EVENTS, MEMORIES, UPKEEP):
            lake.tables.purge(spec)
    for simulation in simulations:
        run.done.note(simulation, explain=run.explain)
    made = {each.day for simulation in simulations for each in simulation.made}
    if run.models.store and not run.dry_run:
        for period, usage in run.models.store.settle(made).items():
            if period in made:
                run.done.night(period).usage += usage
    if made:
        first, last = min(made, key=_key), max(made, key=_key)
        _log.info(
            "upkeep: consolidated %s agents, %s days, %s to %s, in %.1f s",
            f"{sum(bool(simulation.made) for simulation in simulations):,}",
            len(made),
            first,
            last,
            time.perf_counter() - started,
        )


def _simulated(run: _Run, scopes: Sequence[Scope]) -> list[AgentSimulation]:
    """Simulate the days of agents. Write their events in one commit, unless it is a dry run."""
    lake = run.lake
    owners = [owner_of(scope) for scope in scopes]
    simulations: list[AgentSimulation] = []
    last: tuple[object, pa.Table] | None = None

    def simulated(old: pa.Table) -> pa.Table:
        # Read inside the attempt: of two concurrent runs, the last to commit has read the events of both. A retry with
        # the same events reuses the result.
        nonlocal last
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
        for simulation, made in simulate(list(touched.values()), vectors):
            if time.perf_counter() - reported > _PROGRESS_EVERY:
                reported = time.perf_counter()
                _log.info("upkeep: day %s of %s agents (%s)", made.day, f"{len(touched):,}", simulation.scope)
        ends = {each.at: each.day for simulation in touched.values() for each in simulation.made}
        events = [event for simulation in touched.values() for each in simulation.made for event in each.events]
        stays = [
            owner not in touched or key < str(touched[owner].first)
            for owner, key in zip(old["owner"].to_pylist(), old["night"].to_pylist(), strict=True)
        ]
        return pa.concat_tables([old.filter(pa.array(stays, pa.bool_())), upkeep_to_rows(events, ends)])

    if run.dry_run:
        simulated(lake.tables.read(UPKEEP_EVENTS, owners))
    else:
        run.done.written |= bool(lake.tables.transform(UPKEEP_EVENTS, owners, simulated).changed)
    return simulations


def _simulations(run: _Run, scopes: Sequence[Scope], base: pa.Table, upkeep: pa.Table) -> list[AgentSimulation]:
    """Return the simulations of agents, not yet started."""
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
            run.checkpoint.get(owner_of(scope)),
            run.asked,
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


def _enter(run: _Run, inputs: Mapping[Period, str], *, is_whole: bool) -> None:
    """Enter the requested days in the ledger, and later days that changed."""
    first, lake = run.asked[0].key, run.lake
    checkpoint = read_kept(lake.tables)
    owners = [owner for owner, each in checkpoint.items() if each.through.key >= first]
    rows = lake.tables.read(UPKEEP_EVENTS, owners, columns=("owner", "night", "id"), where=pc.field("night") >= first)
    ids: dict[str, list[str]] = defaultdict(list)
    agents: dict[str, set[str]] = defaultdict(set)
    for owner, key, own in zip(*(rows[name].to_pylist() for name in ("owner", "night", "id")), strict=True):
        ids[key].append(own)
        agents[key].add(owner)
    troubles = Counter(text.partition(" ")[0] for each in checkpoint.values() for text in each.troubles)
    asked = {each.key: inputs.get(each, NOTHING) for each in run.asked} if is_whole else {}
    entered = {key: entry.input_digest for key, entry in run.entries.items() if key >= first} | asked
    entries = [
        LedgerEntry(UPKEEP_ASSET, key, source, events_digest(ids[key]), len(ids[key]), len(agents[key]), troubles[key])
        for key, source in sorted(entered.items())
    ]
    changed = [entry for entry in entries if run.entries.get(entry.period) != entry]
    if changed:
        lake.ledger.record(changed)


def _key(period: Period) -> str:
    return period.key
