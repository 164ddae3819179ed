"""A year of conversations between two people and their agent, written for this project: what `demo` runs on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

#: One conversation a line; see :mod:`memory_pipeline.domain.conversations`.
HISTORY = Path(__file__).with_name("history.jsonl")
WORKSPACE, AGENT = "harbour-bakery", "juniper"
#: A morning after the year has closed.
AFTERWARDS = datetime(2026, 1, 12, 9, tzinfo=UTC)
