"""The sample of `demo`: a year of conversations between two people and their agent, written for this project.

Most conversations name no user: they are the agent's own memory, which all users find. Some are of one user, `nadia`,
`ruben` or `milo`, and one is of the group `owners`, Nadia and Ruben.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

#: One conversation a line; see :mod:`memory_pipeline.domain.conversations`.
HISTORY = Path(__file__).with_name("history.jsonl")
#: The prompts of `eval context` on this history, and a second history: three months of a family and their agent Pim.
PROMPTS = Path(__file__).with_name("context.jsonl")
WORKSPACE, AGENT = "harbour-bakery", "juniper"
#: The demo's `now`: the year has closed, and so has its last week.
AFTERWARDS = datetime(2026, 1, 12, 9, tzinfo=UTC)
