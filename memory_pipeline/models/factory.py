"""Which models a deployment uses: one of each port, chosen together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.facts import Extractor
    from memory_pipeline.domain.memories.draft import Curator
    from memory_pipeline.domain.model_calls import CallStore
    from memory_pipeline.domain.ports import Embedder, EntityFinder, Imaginer, MemorySelector, Reranker
    from memory_pipeline.domain.summaries import Summarizer
    from memory_pipeline.models.hosted.transport.dry_run import DryRunExecutor
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor


def _rules() -> Curator:
    from memory_pipeline.models.deterministic import RuleCurator

    return RuleCurator()


@dataclass(frozen=True, slots=True)
class Models:
    """What extracts facts, embeds texts, summarizes periods, and helps to keep durable memories in order.

    Attributes:
        store: where hosted models remember answers and calls; None if there are none.
        curator: helps the upkeep of durable memories; rules unless another is given.
    """

    extractor: Extractor
    embedder: Embedder
    summarizer: Summarizer
    store: CallStore | None = None
    curator: Curator = field(default_factory=_rules)


@dataclass(frozen=True, slots=True)
class ReadingModels:
    """What helps to read an agent's memory; None where rules do it, or nothing does.

    Attributes:
        entity_finder: finds what a prompt asks about.
        reranker: puts into order what was found.
        selector: chooses durable memories by their headers.
        imaginer: imagines what an agent should look for in its memory.
    """

    entity_finder: EntityFinder | None = None
    reranker: Reranker | None = None
    selector: MemorySelector | None = None
    imaginer: Imaginer | None = None


def default_models(timezone: str = "UTC") -> Models:
    """Return the deterministic models: no key, no network, the same answer everywhere.

    Args:
        timezone: the zone of the lake's days, in which "yesterday" is meant.
    """
    from memory_pipeline.models.deterministic import DeterministicExtractor, ExtractiveSummarizer, HashingEmbedder

    return Models(DeterministicExtractor(timezone), HashingEmbedder(), ExtractiveSummarizer())


def configured_models(
    configuration: Configuration, store: CallStore, timezone: str, clock: Callable[[], datetime]
) -> Models:
    """Return the models that a lake's configuration names; the deterministic ones where it names none.

    Args:
        configuration: of the lake.
        store: remembers answers and calls; the lake's own.
        timezone: the zone of the lake's days.
        clock: tells the time, UTC, to which calls and budgets belong.
    """
    if not configuration.uses_models:
        return default_models(timezone)
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

    return _hosted(LlmExecutor(configuration, store, clock), timezone)


def rehearsing_models(
    configuration: Configuration, store: CallStore, timezone: str, clock: Callable[[], datetime]
) -> tuple[Models, DryRunExecutor]:
    """Return models that ask nothing, and what counts the questions that they would ask; arguments as above."""
    from memory_pipeline.models.hosted.transport.dry_run import DryRunExecutor

    asker = DryRunExecutor(configuration, store, clock)
    return _hosted(asker, timezone), asker


def reading_embedder(configuration: Configuration, clock: Callable[[], datetime]) -> Embedder:
    """Return the embedder with which the memory of a lake is searched; what a query costs is not remembered.

    Args:
        configuration: of the lake.
        clock: tells the time, UTC.
    """
    if configuration.embedding.is_deterministic:
        from memory_pipeline.models.deterministic import HashingEmbedder

        return HashingEmbedder()
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

    return _embedder(LlmExecutor(configuration, None, clock))


def reading_models(configuration: Configuration, scope: Scope, clock: Callable[[], datetime]) -> ReadingModels:
    """Return the models that help to read an agent's memory; what they are asked is neither remembered nor budgeted.

    Keep them for as long as the configuration holds: they remember which server is down, and do not wait for it.

    Args:
        configuration: of the lake.
        scope: whose memory is read.
        clock: tells the time, UTC.
    """
    settings, memories = configuration.injection(scope), configuration.memories(scope)
    wanted = {*(settings.for_model if settings.enabled else ()), *memories.for_reading}
    if not wanted:
        return ReadingModels()
    from memory_pipeline.models.hosted.query_models import (
        HostedEntityFinder,
        HostedImaginer,
        HostedReranker,
        HostedSelector,
    )
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

    asker = LlmExecutor(configuration, None, clock)
    return ReadingModels(
        HostedEntityFinder(asker, scope) if "entities" in wanted else None,
        HostedReranker(asker, scope) if "rerank" in wanted else None,
        HostedSelector(asker, scope) if "selection" in wanted else None,
        HostedImaginer(asker, scope) if "imagining" in wanted else None,
    )


def _hosted(asker: LlmExecutor, timezone: str) -> Models:
    from memory_pipeline.models.hosted.curation import HostedCurator
    from memory_pipeline.models.hosted.extraction import HostedExtractor
    from memory_pipeline.models.hosted.summarization import HostedSummarizer

    return Models(
        HostedExtractor(asker, timezone),
        _embedder(asker),
        HostedSummarizer(asker, timezone),
        asker.store,
        HostedCurator(asker, timezone),
    )


def _embedder(asker: LlmExecutor) -> Embedder:
    endpoint = asker.configuration.embedding
    if endpoint.is_deterministic:
        from memory_pipeline.models.deterministic import HashingEmbedder

        return HashingEmbedder()
    if endpoint.is_local:
        from memory_pipeline.models.local import LocalEmbedder

        return LocalEmbedder(endpoint)
    from memory_pipeline.models.hosted.embedding import HostedEmbedder

    return HostedEmbedder(asker)
