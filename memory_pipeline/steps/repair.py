"""Find damage in a lake. To repair it, drop what is damaged and replay its periods from the remaining records.

========================  ===========================================================================================
damaged                   repair
========================  ===========================================================================================
facts, summaries          recomputed from messages, facts or finer summaries; lost where these have expired
graph, consolidation             refolded from their operations and events
operations by scope       rebuilt from their records
ledger                    the partitions it lacks are entered again
index, memories, marts    rebuilt from the tables
operations, events        derived again from facts, unless agents added some
logs of tables            of records: rewritten from the existing files; of other tables: the table is recomputed
messages, model calls,    none: reported and left unchanged, so that the file can be restored
tombstones, expirations
========================  ===========================================================================================
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.errors import DamagedError, counted
from memory_pipeline.lake.codec.graph import operations_to_project, operations_to_rows
from memory_pipeline.lake.codec.memories import events_projected, events_to_rows
from memory_pipeline.lake.erasures import unfinished_erasures
from memory_pipeline.lake.index.filters import listed
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.lake.layout import PROJECTIONS
from memory_pipeline.lake.recovery import files_below, recover
from memory_pipeline.lake.schemas import (
    ACCESS_LOG,
    ANSWERS,
    CONSOLIDATION,
    CONSOLIDATION_EVENTS,
    EXPIRATIONS,
    FACTS,
    GRAPH_OPERATIONS,
    MEMORY_EVENTS,
    MESSAGES,
    MODEL_CALLS,
    READ_RECEIPTS,
    SUMMARIES,
    TABLES,
    TOMBSTONES,
)
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET
from memory_pipeline.lake.tables.marts import Marts
from memory_pipeline.lake.tables.partitions import keys_of
from memory_pipeline.steps.fold_graph import operations_in
from memory_pipeline.steps.fold_memories import memory_events_in
from memory_pipeline.steps.group import scopes_in
from memory_pipeline.steps.index import indexable_rows
from memory_pipeline.steps.indices import every_index
from memory_pipeline.steps.lost_rows import lost_rows
from memory_pipeline.steps.replay import replay
from memory_pipeline.steps.restore import restore_projections
from memory_pipeline.steps.scopes import known_scopes
from memory_pipeline.steps.small_files import Damage, damaged_small_files, mend_small_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.scoped_rows import ScopedRows
    from memory_pipeline.lake.index.sharded_rows import ShardedRows
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.models.factory import Models

#: Maximum number of passes: rows added by an agent are distinguishable only after a pass has restored its facts.
_PASSES = 3
#: Tables that cannot be derived from others.
_RECORDS = (MESSAGES, MODEL_CALLS, ANSWERS, TOMBSTONES, EXPIRATIONS, ACCESS_LOG, READ_RECEIPTS)
#: Tables with derived rows and rows added by agents.
_MIXED = (GRAPH_OPERATIONS, MEMORY_EVENTS)


def find_damage(lake: Lake) -> list[Damage]:
    """Read the whole lake and return the damage. Writes nothing."""
    with lake.tables.holding():
        return _find_damage(lake)


def _find_damage(lake: Lake) -> list[Damage]:
    found: list[Damage] = []
    for spec in TABLES.values():
        found += _of_table(lake, spec)
    known = {(damage.name, damage.key) for damage in found} | {(damage.name, "") for damage in found if not damage.key}
    found += [each for each in _altered(lake) if not known & {(each.name, each.key), (each.name, "")}]
    if not any(damage.name in (EXPIRATIONS.name, TOMBSTONES.name) for damage in found):
        found = [_with_loss(lake, damage) for damage in found]
    # The index is compared with its records, if they can be read.
    unreadable = {damage.name for damage in found if damage.kind == "log"}
    are_readable = unreadable.isdisjoint([FACTS.name, SUMMARIES.name])
    found += [
        Damage(kind, name, f"{PROJECTIONS}/{name}.lance", why)
        for kind, projection in _projections(lake)
        for name in sorted(projection.roster.tables())
        if (
            why := projection.damage_of(
                name, wanted=partial(_indexable, lake, projection, name) if are_readable else None
            )
        )
    ]
    if not any(damage.name == TOMBSTONES.name for damage in found):
        found += [
            Damage("erasure", "erasures", name, "the erasure was interrupted: `memory-pipeline run` finishes it")
            for name in unfinished_erasures(lake.storage, lake.tombstones)
        ]
    damaged = Marts(lake.storage).damaged(lake.storage.folders("marts"))
    found += [Damage("mart", name, f"marts/{name}", "the mart cannot be read") for name in sorted(damaged)]
    return [*found, *damaged_small_files(lake)]


def _projections(lake: Lake) -> list[tuple[str, ShardedRows]]:
    others = [("projection", each) for each in lake.projections.values()]
    return [*(("index", index) for index in every_index(lake)), *others]


def _indexable(lake: Lake, projection: ShardedRows, name: str, rows: pa.Table) -> pa.Table:
    """Return the rows that a table of an index should have; the `rows` that it has in another projection."""
    where = projection.roster.rows_of(name)
    return indexable_rows(lake, projection, where) if isinstance(projection, VectorIndex) else rows


def repair(lake: Lake, models: Models, found: Sequence[Damage]) -> list[Damage]:
    """Rebuild damaged parts as far as possible. Return the remaining damage. Safe to interrupt and to repeat."""
    left = list(found)
    for _ in range(_PASSES):
        if all(damage.is_left_alone for damage in left):
            break
        _rebuild(lake, models, left)
        before, left = left, find_damage(lake)
        if left == before:
            break
    return left


def _rebuild(lake: Lake, models: Models, found: Sequence[Damage]) -> None:
    _restore_logs(lake, [damage for damage in found if damage.kind in ("log", "partition") and not damage.loss])
    files = [damage for damage in found if damage.kind == "file" and not damage.is_left_alone]
    for spec in TABLES.values():
        prefix = f"tables/{spec.name}/"
        paths = {damage.path.removeprefix(prefix) for damage in files if damage.name == spec.name}
        if paths:
            lake.tables.drop_files(spec, paths)
    for damage in found:
        if damage.kind == "mart":
            Marts(lake.storage).remove(damage.name)
    mend_small_files(lake, [damage for damage in found if damage.kind == "small"])
    restore_projections(lake, models.embedder, thoroughly=True)
    _drop_checkpoints(lake, found)
    with suppress(DamagedError):  # all else is derived, and the next pass reports the loss
        replay(lake, models, _periods(lake, found), known_scopes(lake))


def _of_table(lake: Lake, spec: TableSpec) -> Iterator[Damage]:
    folder = f"tables/{spec.name}"
    try:
        broken = lake.tables.damaged(spec)
        exists = lake.tables.version(spec) >= 0
    except DamagedError as error:
        yield Damage("log", spec.name, f"{folder}/_delta_log", str(error).partition("; `")[0])
        return
    if not exists and files_below(lake.storage, spec).num_rows:
        yield Damage("log", spec.name, f"{folder}/_delta_log", "the table's log is missing")
        return
    if broken.num_rows:
        grains = broken["partition.grain"].to_pylist() if "grain" in spec.partition_by else [""] * broken.num_rows
        columns = (broken[name].to_pylist() for name in ("path", "why", "num_records"))
        for path, why, rows, key, grain in zip(*columns, keys_of(broken, spec), grains, strict=True):
            yield Damage("file", spec.name, f"{folder}/{path}", why, key, grain, rows or 0)
    if spec is MESSAGES:
        try:
            entries = lake.ledger.entries(MESSAGES_ASSET)
        except DamagedError:  # reported for the ledger; without it, the expected partitions are unknown
            return
        expected = {key for key, entry in entries.items() if entry.rows > entry.expired}
        forgotten = {key for tombstone in lake.tombstones.all() for key in tombstone.hours}
        below = set(keys_of(files_below(lake.storage, spec), spec))
        for key in sorted(expected - set(lake.tables.keys(spec)) - forgotten):
            rows = entries[key].rows
            loss = "" if key in below else f"{rows:,} messages of {key}"
            path = f"{folder}/{spec.partition_by[-1]}={key}"
            yield Damage("partition", spec.name, path, "it is missing from the table's log", key, "", rows, loss)


def _altered(lake: Lake) -> Iterator[Damage]:
    """Yield the files of operations and events that have other values than the copies of their rows by scope."""
    projections: tuple[tuple[TableSpec, ScopedRows, Callable[[pa.Table], pa.Table]], ...] = (
        (GRAPH_OPERATIONS, lake.operations, operations_to_project),
        (MEMORY_EVENTS, lake.events, events_projected),
        (CONSOLIDATION_EVENTS, lake.events, events_projected),
    )
    for spec, projection, projected in projections:
        try:
            rows = projected(lake.tables.read(spec, damaged="skip"))
        except DamagedError:  # its log: reported already
            continue
        copies = projection.digests() if rows.num_rows else {}
        own = zip(*(rows[name].to_pylist() for name in ("id", "digest", "period")), strict=True)
        keys = [period for identifier, digest, period in own if copies.get(identifier, digest) != digest]
        for key in sorted(set(keys)):
            for path in sorted(lake.tables.state(spec, [key])):
                why = f"{counted(keys.count(key), 'row')} of {key} have other values than their copies by scope"
                yield Damage(
                    "file", spec.name, f"tables/{spec.name}/{path}", why, key, "", lake.tables.counts(spec)[key]
                )


def _with_loss(lake: Lake, damage: Damage) -> Damage:
    if damage.kind != "file":
        return damage
    loss = ""
    if damage.name in _names(_RECORDS):
        loss = f"{damage.rows:,} rows of {damage.name}, {damage.key}"
    elif damage.name in (FACTS.name, SUMMARIES.name):
        grain = Grain(damage.grain) if damage.grain else Grain.WORKING
        lost = lost_rows(lake, grain, [damage.key]).get(damage.key)
        if lost:
            listed_agents = ", ".join(f"{count:,} of {agent}" for agent, count in sorted(lost.items()))
            loss = f"{damage.name} of {damage.key} whose sources have expired: {listed_agents}"
    elif damage.name in _names(_MIXED):
        facts = lake.tables.read(FACTS, [damage.key], damaged="skip")
        if damage.name == GRAPH_OPERATIONS.name:
            derived = operations_to_rows(operations_in(facts), are_edits=False).num_rows
        else:
            derived = events_to_rows(memory_events_in(facts, lake.configuration()), are_edits=False).num_rows
        if derived < damage.rows:
            loss = f"{damage.rows - derived:,} of {damage.rows:,} rows of {damage.key}, added by agents themselves"
    return replace(damage, loss=loss)


def _restore_logs(lake: Lake, found: Iterable[Damage]) -> None:
    """Rewrite the logs of record tables. Drop other tables with a damaged log: their partitions become pending."""
    lost = [damage for damage in found if damage.kind == "partition"]
    if lost:
        recover(lake.storage, lake.tables, MESSAGES, [damage.key for damage in lost])
    for damage in found:
        if damage.kind == "log":
            spec = TABLES[damage.name]
            if spec in (*_RECORDS, *_MIXED):
                recover(lake.storage, lake.tables, spec)
            else:
                lake.storage.remove(f"tables/{spec.name}")


def _drop_checkpoints(lake: Lake, found: Sequence[Damage]) -> None:
    """Drop the checkpoints of agents that have lost consolidation events, so that their days are consolidated again."""
    days = {damage.key for damage in found if damage.name == CONSOLIDATION_EVENTS.name}
    agents = lake.events.scan(SCOPE_COLUMNS, f"is_consolidation AND period IN ({listed(days)})") if days else None
    if any(damage.kind == "log" and damage.name == CONSOLIDATION_EVENTS.name for damage in found) or (
        days and any(damage.kind == "projection" for damage in found)
    ):
        lake.tables.remove(CONSOLIDATION, None)
    elif agents is not None:
        lost = {scope.key for scope in scopes_in(agents)}
        lake.tables.drop_rows(
            CONSOLIDATION, None, lambda rows: [each in lost for each in rows["id"].to_pylist()], ["id"]
        )


def _periods(lake: Lake, found: Sequence[Damage]) -> dict[Grain, set[str]]:
    """Return the keys of the periods that lost rows, by grain; of hours with a lost log, all."""
    periods: dict[Grain, set[str]] = {grain: set() for grain in Grain}
    for damage in found:
        if damage.kind == "file" and not damage.is_left_alone and damage.name in _names((FACTS, *_MIXED)):
            periods[Grain.WORKING].add(damage.key)
        elif damage.kind == "log" and damage.name in _names((FACTS, *_MIXED)):
            for spec in (MESSAGES, *_MIXED):
                periods[Grain.WORKING].update(lake.tables.keys(spec))
        elif damage.name == SUMMARIES.name and damage.grain and not damage.is_left_alone:
            periods[Grain(damage.grain)].add(damage.key)
    return periods


def _names(specs: Iterable[TableSpec]) -> set[str]:
    return {spec.name for spec in specs}
