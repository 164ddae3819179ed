"""Skips the shards of a large period that did not change, so that late data costs one shard and not all of them.

``state/shards/{grain}/{period}.json`` has, for each shard, what it was made from and its results. It is only a cache:
without the file, all shards are processed.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.corrections import paths_among
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schema_types import WHOLE
from memory_pipeline.lake.schemas import (
    EXPIRATIONS,
    FACTS,
    GRAPH_OPERATIONS,
    MEMORY_EVENTS,
    MESSAGES,
    table_of,
)
from memory_pipeline.lake.tables.partitions import part_of
from memory_pipeline.steps.results import PartitionResult

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.ledger import LedgerEntry
    from memory_pipeline.models.factory import Models

#: A table, keys of its partitions, and the values of its other partition columns.
_Partitions = tuple["TableSpec", list[str], dict[str, str]]
#: The stored fields of a result. The others describe one run.
_STORED = ("asset", "input_digest", "output_digest", "rows", "agents", "messages", "bytes", "fallbacks", "tokens")
#: Stands for the agents without settings of their own; the settings of others are in the configuration.
_ANYBODY = Scope("any", "any")


class UnchangedShards:
    """The shards of one large period that are up to date."""

    def __init__(self, lake: Lake, models: Models, period: Period) -> None:
        self._lake = lake
        self._period = period
        self._path = f"state/shards/{period.grain}/{period.key}.json"
        # What the rows of all shards depend on, besides other rows.
        self._common = digest(
            version("memory-pipeline"),
            models.embedder.name,
            models.extractor.method(_ANYBODY),
            models.summarizer.method(_ANYBODY, period.grain),
            (lake.storage.read(CONFIGURATION) or b"").hex(),
            sorted(map(str, lake.tombstones.state())),
            lake.tables.version(EXPIRATIONS),
            paths_among(lake.journal.entries()),
        )
        self._entries: dict[str, Any] = {}
        self._earlier: dict[str, Any] = {}
        self._sources: dict[int | None, str] = {}

    def results(self, changed: Collection[int | None]) -> Mapping[int | None, list[PartitionResult]]:
        """Return the results of the shards that need not be processed, without those in `changed`.

        If no shard changed, none is returned: a run that is requested without new data checks everything.
        """
        entries = self._read()
        self._sources, outputs = self._states(self._source_tables()), self._states(self._output_tables())
        found: dict[int | None, list[PartitionResult]] = {}
        for shard, source in self._sources.items():
            entry = entries.get(str(shard))
            if shard not in changed and entry and entry["state"] == [self._common, source, outputs[shard]]:
                found[shard] = self._parsed(entry)
        self._entries = {str(shard): entries[str(shard)] for shard in found}
        if len(found) == len(self._sources):
            return {}
        self._earlier = entries
        return found

    def earlier(self, shard: int | None) -> dict[str, LedgerEntry]:
        """Return the entries of a shard's last complete run, by asset; none if everything is to be checked."""
        entry = self._earlier.get(str(shard))
        return {result.asset: result.entry for result in self._parsed(entry)} if entry else {}

    def store(self, results: Mapping[int | None, list[PartitionResult]]) -> None:
        """Store the results of the shards that were processed. Shards with unfinished rows are processed again."""
        outputs = self._states(self._output_tables())
        for shard, own in results.items():
            if not any(result.unfinished for result in own):
                state = [self._common, self._sources[shard], outputs[shard]]
                stored = [{name: getattr(result, name) for name in _STORED} for result in own]
                self._entries[str(shard)] = {"state": state, "results": stored}
        self._lake.storage.write(self._path, json.dumps(self._entries).encode())

    def _parsed(self, entry: Mapping[str, Any]) -> list[PartitionResult]:
        return [
            PartitionResult(**(each | {"tokens": tuple(each["tokens"])}), period=self._period)
            for each in entry["results"]
        ]

    def _read(self) -> dict[str, Any]:
        try:
            entries: dict[str, Any] = json.loads(self._lake.storage.read(self._path) or b"{}")
        except ValueError:
            return {}
        return entries

    def _source_tables(self) -> list[_Partitions]:
        """Return what summaries are made from. Messages, the source of facts, are written by the run itself."""
        if self._period.grain.finer is None:
            return []
        spec, fixed = table_of(self._period.grain.finer)
        return [(spec, [child.key for child in self._lake.calendar.sources(self._period)], fixed)]

    def _output_tables(self) -> list[_Partitions]:
        (spec, fixed), keys = table_of(self._period.grain), [self._period.key]
        if spec is FACTS:
            return [(each, keys, {}) for each in (MESSAGES, FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS)]
        return [(spec, keys, fixed)]

    def _states(self, partitions: list[_Partitions]) -> dict[int | None, str]:
        """Return the state of each shard's rows."""
        states = [self._lake.tables.part_states(spec, keys, **fixed) for spec, keys, fixed in partitions]
        return {
            shard: digest([sorted(own.get(part, ())) for own in states for part in (WHOLE, part_of(shard))])
            for shard in range(self._lake.shards)
        }
