"""From what a partition was made, in the tags by which Dagster tells whether it is in sync with that.

Without them, Dagster takes every day for stale because of its hours in which nobody spoke: hours that were never made
look to it like new input. With them, a partition is stale once what it was made from is made again with other content.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

import dagster as dg

from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset
from memory_pipeline.steps.results import Made


def source_of(asset: str, grain: Grain) -> str | None:
    """Return the asset that an asset of a grain is made from; None for messages, which come from the journal."""
    if asset == MESSAGES_ASSET:
        return None
    if asset != table_asset(grain):
        return table_asset(grain)
    return MESSAGES_ASSET if grain.finer is None else table_asset(grain.finer)


class Provenance:
    """Tells what the partitions of one run were made from. Made before the run reads anything."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._before = self._newest_event()
        self._version = version("memory-pipeline")
        self._asset = ""
        self._seen = self._before

    def tags(self, made: Made) -> Mapping[str, str]:
        """Return the tags of a partition; those of what it is made from must have been logged."""
        source = source_of(made.asset, made.period.grain)
        tags = {"dagster/data_version": made.output_digest, "dagster/code_version": self._version}
        if source is not None:
            tags[f"dagster/input_data_version/{source}"] = made.input_digest
            tags[f"dagster/input_event_pointer/{source}"] = str(self._newest_seen(made))
        return tags

    def _newest_seen(self, made: Made) -> int:
        """Return the newest event about the partition's source that the run knew of."""
        grain = made.period.grain
        if grain is not Grain.WORKING and made.asset == table_asset(grain):
            return self._before  # other runs make finer grains, and may do so meanwhile
        if made.asset != self._asset:  # asked once a batch, since the partitions of one asset follow each other
            self._asset, self._seen = made.asset, self._newest_event()
        return self._seen

    def _newest_event(self) -> int:
        return self._instance.event_log_storage.get_maximum_record_id() or 1
