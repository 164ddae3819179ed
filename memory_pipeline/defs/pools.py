"""Dagster's pools: which runs wait for which. A pool stands for the tables that its ops write.

Nothing is lost or doubled without them, since every commit is checked and begun again where another was first. They
keep runs from beginning again, and let them wait in the queue rather than as processes. Why these, and which limits
may be raised: docs/decisions/0017-pools-and-writers.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from memory_pipeline.domain.periods import Grain

#: Of hours, and of whatever else writes what hours write: nights of upkeep, and retention.
AGENTS_POOL: Final = f"memory_{Grain.WORKING}"
#: Of the marts.
MARTS_POOL: Final = "memory_marts"


def pool_of(grain: Grain) -> str:
    """Return the pool of the op that makes a grain."""
    return f"memory_{grain}"


#: What each pool protects; there are no others.
POOLS: Final[Mapping[str, str]] = {
    AGENTS_POOL: "messages, facts, graph, durable memories, and the index of hours",
    **{pool_of(grain): f"{grain} summaries and their index" for grain in Grain if grain is not Grain.WORKING},
    MARTS_POOL: "the tables below marts/",
}
