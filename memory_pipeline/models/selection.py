"""Which models a deployment uses: one of each port, chosen together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory_pipeline.domain.facts import Extractor
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.summaries import Summarizer


@dataclass(frozen=True, slots=True)
class Models:
    """What extracts facts, embeds texts and summarizes periods."""

    extractor: Extractor
    embedder: Embedder
    summarizer: Summarizer


def default_models(timezone: str = "UTC") -> Models:
    """Return the deterministic models: no key, no network, the same answer everywhere.

    Args:
        timezone: the zone of the lake's days, in which "yesterday" is meant.
    """
    from memory_pipeline.models.deterministic import DeterministicExtractor, ExtractiveSummarizer, HashingEmbedder

    embedder = HashingEmbedder()
    return Models(DeterministicExtractor(timezone), embedder, ExtractiveSummarizer(embedder))
