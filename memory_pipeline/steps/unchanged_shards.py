"""Skips the shards of a large period that did not change, so that late data costs one shard and not all of them.

``state/shards/{grain}/{period}.json`` has, for each shard, what it was made from and its results. It is only a cache:
without the file, all shards are processed.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import EXPIRATIONS, FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES, SUMMARIES
from memory_pipeline.steps.results import PartitionResult

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

#: What is stored of a result; the other fields are about one run.
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
        )
        self._entries: dict[str, Any] = {}
        self._sources: dict[int | None, str] = {}

    def results(self, changed: Collection[int | None]) -> Mapping[int | None, list[PartitionResult]]:
        """Return the results of the shards that need not be processed, without those in `changed`.

        If no shard changed, none is returned: a run that is requested without new data checks everything.
        """
        entries = self._read()
        self._sources = {shard: self._source_state(shard) for shard in range(self._lake.shards)}
        found: dict[int | None, list[PartitionResult]] = {}
        for shard, source in self._sources.items():
            entry = entries.get(str(shard))
            if shard not in changed and entry and entry["state"] == [self._common, source, self._output_state(shard)]:
                found[shard] = [
                    PartitionResult(**(each | {"tokens": tuple(each["tokens"])}), period=self._period)
                    for each in entry["results"]
                ]
        self._entries = {str(shard): entries[str(shard)] for shard in found}
        return found if len(found) < len(self._sources) else {}

    def store(self, results: Mapping[int | None, list[PartitionResult]]) -> None:
        """Store the results of the shards that were processed. Shards with unfinished rows are processed again."""
        for shard, own in results.items():
            if not any(result.unfinished for result in own):
                state = [self._common, self._sources[shard], self._output_state(shard)]
                stored = [{name: getattr(result, name) for name in _STORED} for result in own]
                self._entries[str(shard)] = {"state": state, "results": stored}
        self._lake.storage.write(self._path, json.dumps(self._entries).encode())

    def _read(self) -> dict[str, Any]:
        try:
            entries: dict[str, Any] = json.loads(self._lake.storage.read(self._path) or b"{}")
        except ValueError:
            return {}
        return entries

    def _source_state(self, shard: int | None) -> str:
        """Return the state of the rows that a summary is made from; messages are replaced by the run itself."""
        grain, tables = self._period.grain, self._lake.tables
        if grain is Grain.WORKING:
            return ""
        keys = [child.key for child in self._lake.calendar.children(self._period)]
        if grain.finer is Grain.WORKING:
            return digest(sorted(tables.state(FACTS, keys, shard)))
        return digest(sorted(tables.state(SUMMARIES, keys, shard, grain=str(grain.finer))))

    def _output_state(self, shard: int | None) -> str:
        grain, keys, tables = self._period.grain, [self._period.key], self._lake.tables
        if grain is not Grain.WORKING:
            return digest(sorted(tables.state(SUMMARIES, keys, shard, grain=grain.value)))
        specs = (MESSAGES, FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS)
        return digest([sorted(tables.state(spec, keys, shard)) for spec in specs])
