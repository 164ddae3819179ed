"""The ledger holds built partitions by asset and period, and records many in one commit."""

from __future__ import annotations

import pytest

from memory_pipeline.domain.periods import Period
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline.lake.tables.ledger import LedgerEntry


def entry(asset: str, period: str, out: str = "o") -> LedgerEntry:
    return LedgerEntry(asset, period, "i", out, 1, 1)


@pytest.mark.on_s3
def test_entries_are_found_by_asset_and_period(lake: Lake) -> None:
    lake.ledger.record([entry("daily_summaries", "2024-01-15"), entry("daily_index", "2024-01-15")])
    lake.ledger.record([entry("daily_summaries", "2024-02-01"), entry("weekly_summaries", "2024-W03")])
    assert set(lake.ledger.entries("daily_summaries")) == {"2024-01-15", "2024-02-01"}
    assert set(lake.ledger.entries("daily_summaries", [Period.parse("daily", "2024-02-01")])) == {"2024-02-01"}
    assert lake.ledger.entries("weekly_summaries")["2024-W03"] == entry("weekly_summaries", "2024-W03")
    assert lake.ledger.entries("yearly_summaries") == {}


@pytest.mark.on_s3
def test_a_newer_entry_replaces_the_older(lake: Lake) -> None:
    lake.ledger.record([entry("daily_summaries", "2024-01-15"), entry("daily_summaries", "2024-01-16")])
    lake.ledger.record([entry("daily_summaries", "2024-01-15", out="new")])
    outputs = {key: found.output_digest for key, found in lake.ledger.entries("daily_summaries").items()}
    assert outputs == {"2024-01-15": "new", "2024-01-16": "o"}


@pytest.mark.on_s3
def test_many_entries_need_one_commit_and_equal_ones_none(lake: Lake) -> None:
    entries = [entry("messages", f"2024-{month:02}-01T0{hour}") for month in range(1, 13) for hour in range(3)]
    lake.ledger.record(entries)
    version = lake.tables.version(LEDGER)
    lake.ledger.record(entries)
    lake.ledger.record([])
    assert lake.tables.version(LEDGER) == version == 1


def test_hours_and_days_share_a_monthly_bucket_and_other_grains_a_yearly_one() -> None:
    assert entry("messages", "2024-01-15T08").bucket == "messages.2024-01"
    assert entry("daily_index", "2024-01-15").bucket == "daily_index.2024-01"
    for period in ("2024-W03", "2024-01", "2024-Q1", "2024"):
        assert entry("x", period).bucket == "x.2024"
