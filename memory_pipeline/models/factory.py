"""Build the models that a configuration selects, one for each port."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.configuration.model_settings import Embedding
    from memory_pipeline.domain.facts import Extractor
    from memory_pipeline.domain.memories.draft import Curator
    from memory_pipeline.domain.model_calls import CallStore
    from memory_pipeline.domain.ports import Embedder, EntityFinder, Imaginer, MemorySelector, Reranker
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.summaries import Summarizer
    from memory_pipeline.models.hosted.transport.dry_run import DryRunExecutor
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor


def _rule_curator() -> Curator:
    from memory_pipeline.models.deterministic.memory_rules import RuleCurator

    return RuleCurator()


@dataclass(frozen=True, slots=True)
class Models:
    """The models of the pipeline, by port.

    Attributes:
        store: the answers and calls of hosted models; None without them.
        is_fresh: whether rows are made again although neither their sources nor the models have changed.
    """

    extractor: Extractor
    embedder: Embedder
    summarizer: Summarizer
    store: CallStore | None = None
    curator: Curator = field(default_factory=_rule_curator)
    is_fresh: bool = False


@dataclass(frozen=True, slots=True)
class ReadingModels:
    """The models that assist reads. A field is None where rules are used or the step is off."""

    entity_finder: EntityFinder | None = None
    reranker: Reranker | None = None
    selector: MemorySelector | None = None
    imaginer: Imaginer | None = None


def default_models(timezone: str = "UTC") -> Models:
    """Return the deterministic models. They need no key and no network, and give the same answers on every machine.

    `timezone`, an IANA name, resolves words such as "yesterday".
    """
    from memory_pipeline.models.deterministic.embedding import HashingEmbedder
    from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
    from memory_pipeline.models.deterministic.summarization import ExtractiveSummarizer

    return Models(DeterministicExtractor(timezone), HashingEmbedder(), ExtractiveSummarizer())


def configured_models(
    configuration: Configuration,
    store: CallStore | None,
    timezone: str,
    clock: Callable[[], datetime],
    *,
    is_fresh: bool = False,
) -> Models:
    """Return the configured models; deterministic ones where the configuration names no model.

    Without a `store`, answers are not stored and no budget applies. `clock` returns the current time in UTC; it dates
    calls and selects the month of a budget. With `is_fresh`, stored answers are asked for again.
    """
    if not configuration.uses_models:
        return replace(default_models(timezone), is_fresh=is_fresh)
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

    executor = LlmExecutor(configuration, store, clock, is_fresh=is_fresh)
    return replace(_hosted(executor, timezone), is_fresh=is_fresh)


def dry_run_models(
    configuration: Configuration, store: CallStore, timezone: str, clock: Callable[[], datetime]
) -> tuple[Models, DryRunExecutor]:
    """Return models that send no request, and the executor that counts the requests they would send."""
    from memory_pipeline.models.hosted.transport.dry_run import DryRunExecutor

    executor = DryRunExecutor(configuration, store, clock)
    return _hosted(executor, timezone), executor


def stored_models(
    configuration: Configuration,
    store: CallStore,
    timezone: str,
    clock: Callable[[], datetime],
    *,
    summaries_wait: bool = False,
    formerly: Callable[[Scope], Scope] = lambda scope: scope,
) -> Models:
    """Return the configured models without requests: stored answers, and rules in place of all others.

    If `summaries_wait`, summaries whose answer is not stored are not made. `formerly` returns the scope of whose memory
    the one of a scope is a copy.
    """
    from memory_pipeline.models.hosted.summarization import HostedSummarizer
    from memory_pipeline.models.hosted.transport.executor import StoredAnswers

    models = _hosted(StoredAnswers(configuration, store, clock, formerly=formerly), timezone)
    if not summaries_wait:
        return models
    return replace(
        models, summarizer=HostedSummarizer(StoredAnswers(configuration, store, clock, all_wait=True), timezone)
    )


def reading_embedder(configuration: Configuration, clock: Callable[[], datetime]) -> Embedder:
    """Return the embedder for search queries. Its calls are neither stored nor budgeted."""
    embedder = _own_embedder(configuration.embedding)
    if embedder is not None:
        return embedder
    from memory_pipeline.models.hosted.embedding import HostedEmbedder
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

    return HostedEmbedder(LlmExecutor(configuration, None, clock))


def builtin_embedder(configuration: Configuration) -> Embedder | None:
    """Return the embedder that needs no model; None if another one is configured."""
    return _own_embedder(configuration.embedding) if configuration.embedding.is_deterministic else None


def reading_models(
    configuration: Configuration,
    scope: Scope,
    clock: Callable[[], datetime],
    store: Callable[[], CallStore] | None = None,
) -> ReadingModels:
    """Return the models that assist reads of one agent's memory.

    Their calls are those of `scope`, which may be a user's, and count towards its budgets. `store` is called only if a
    model is configured. Without it, calls are not stored and no budget applies.

    Reuse them until the configuration changes: they remember which servers are down and skip them.
    """
    settings, memories = configuration.injection(scope), configuration.memories(scope)
    model_keys = {*(settings.for_model if settings.enabled else ()), *memories.for_reading}
    has_cross_encoder = settings.enabled and settings.rerank == "cross_encoder"
    if not model_keys and not has_cross_encoder:
        return ReadingModels()
    from memory_pipeline.models.hosted.query_models import (
        CrossEncoderReranker,
        HostedEntityFinder,
        HostedImaginer,
        HostedReranker,
        HostedSelector,
    )
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

    executor = LlmExecutor(configuration, store() if store else None, clock)
    reranker: Reranker | None = HostedReranker(executor, scope) if "rerank" in model_keys else None
    if has_cross_encoder:
        local = None
        if settings.cross_encoder.is_local:
            from memory_pipeline.models.local import LocalCrossEncoder

            local = LocalCrossEncoder(settings.cross_encoder)
        reranker = CrossEncoderReranker(executor, scope, local)
    return ReadingModels(
        HostedEntityFinder(executor, scope) if "entities" in model_keys else None,
        reranker,
        HostedSelector(executor, scope) if "selection" in model_keys else None,
        HostedImaginer(executor, scope) if "imagining" in model_keys else None,
    )


def _hosted(executor: LlmExecutor, timezone: str) -> Models:
    from memory_pipeline.models.hosted.curation import HostedCurator
    from memory_pipeline.models.hosted.extraction import HostedExtractor
    from memory_pipeline.models.hosted.summarization import HostedSummarizer

    return Models(
        HostedExtractor(executor, timezone),
        _embedder(executor),
        HostedSummarizer(executor, timezone),
        executor.store,
        HostedCurator(executor, timezone),
    )


def _embedder(executor: LlmExecutor) -> Embedder:
    from memory_pipeline.models.hosted.embedding import HostedEmbedder

    return _own_embedder(executor.configuration.embedding) or HostedEmbedder(executor)


def _own_embedder(endpoint: Embedding) -> Embedder | None:
    """Return the embedder of this process; None for a hosted one."""
    if endpoint.is_deterministic:
        from memory_pipeline.models.deterministic.embedding import HashingEmbedder

        return HashingEmbedder()
    if endpoint.is_local:
        from memory_pipeline.models.local import LocalEmbedder

        return LocalEmbedder(endpoint)
    return None
