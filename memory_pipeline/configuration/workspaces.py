"""The parsed configuration: lookup of settings by workspace and agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from memory_pipeline.configuration.model_settings import TextModelSettings
from memory_pipeline.configuration.resolution import Resolution
from memory_pipeline.configuration.sections import (
    NO_RECEIPTS,
    ConfigurationDocument,
    RetentionSection,
    explicit_keys,
    resolve_retention,
)
from memory_pipeline.configuration.strict_yaml import ConfigurationFault, faults_of, line_of, read_document, refusal
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_pipeline.configuration.model_settings import (
        Budget,
        Embedding,
        ExtractionSettings,
        Injection,
        Summarization,
    )
    from memory_pipeline.configuration.resolution import AgentSettings, Workspace
    from memory_pipeline.configuration.sections import MemoriesSettings, Secrets
    from memory_pipeline.domain.capture import CaptureRule
    from memory_pipeline.domain.graph.triples import Vocabulary
    from memory_pipeline.domain.retention import Duration, Retention
    from memory_pipeline.domain.scopes import Scope


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of all workspaces and agents, validated and with inheritance resolved (:mod:`.resolution`).

    Attributes:
        source: address of the file.
        max_concurrency: maximum number of concurrent requests to models.
        embedding: the lake's embedder. A workspace may set only its API key (:meth:`embedding_key`).
        archive: where the archive of retention is, a folder or ``s3://bucket/prefix``; empty for the lake itself.
        uses_models: whether a model computes any memory. Models that only help reading (:meth:`injection`) do not
            count.
    """

    source: str
    max_concurrency: int
    embedding: Embedding
    archive: str
    uses_models: bool
    _workspaces: Mapping[str, Workspace]
    _other_workspaces: Workspace

    @classmethod
    def parse(cls, text: str, source: str) -> Configuration:
        """Parse a configuration. An empty text means that everything is deterministic.

        `source` is the file's address for messages.

        Raises:
            ConfigurationError: the file is invalid. The message lists all faults, one per line, and never contains an
                API key, not even one that the file contains by mistake.
        """
        read = read_document(text, source)
        try:
            document = ConfigurationDocument.model_validate(read.tree)
        except ValidationError as error:
            raise refusal(source, [*read.faults, *faults_of(error, ConfigurationDocument, read.lines)]) from None
        if read.faults:
            raise refusal(source, read.faults)
        resolution = Resolution(document)
        if resolution.faults:
            raise refusal(
                source,
                [ConfigurationFault(path, reason, line_of(path, read.lines)) for path, reason in resolution.faults],
            )
        embedding, others = document.defaults.embedding, resolution.other_workspaces
        return cls(
            source=source,
            max_concurrency=document.defaults.max_concurrency,
            embedding=embedding,
            archive=document.defaults.archive,
            uses_models=not embedding.is_deterministic
            or any(workspace.uses_models for workspace in (others, *resolution.workspaces.values())),
            _workspaces=resolution.workspaces,
            _other_workspaces=others,
        )

    def extraction(self, scope: Scope) -> ExtractionSettings:
        """Return an agent's extraction settings."""
        return self._agent(scope).extraction

    def summarization(self, scope: Scope, grain: Grain) -> Summarization:
        """Return an agent's settings for the summaries of a grain.

        Raises:
            InputError: the grain is working, which has no summaries.
        """
        if grain not in SUMMARY_GRAINS:
            raise InputError(f"grain {grain} has no summaries; accepted: {', '.join(SUMMARY_GRAINS)}")
        found: Summarization = getattr(self._agent(scope).summaries, grain.value)
        return found

    def vocabulary(self, scope: Scope) -> Vocabulary:
        """Return an agent's declared predicates, without the built-in ones."""
        return self._agent(scope).graph.vocabulary

    def injection(self, scope: Scope) -> Injection:
        """Return an agent's injection settings."""
        return self._agent(scope).injection

    def memories(self, scope: Scope) -> MemoriesSettings:
        """Return an agent's policy for durable memories."""
        return self._agent(scope).memories

    def curation(self, scope: Scope) -> TextModelSettings:
        """Return the model that consolidates an agent's durable memories; a deterministic one if rules do it."""
        settings = self._agent(scope)
        return settings.completion if settings.memories.consolidation == "model" else TextModelSettings()

    def per_user(self, scope: Scope) -> bool:
        """Return whether each user of an agent has a memory of its own."""
        return self._agent(scope).per_user

    def timezone(self, scope: Scope) -> str | None:
        """Return the time zone of speakers who state none, or None for the lake's."""
        return self._agent(scope).timezone

    def language(self, scope: Scope) -> str | None:
        """Return the language of what models write, or None for that of the messages."""
        return self._agent(scope).language

    def capture(self, workspace_id: str, agent_id: str) -> Sequence[CaptureRule]:
        """Return the rules for the capture of an agent's conversations; the first that fits counts."""
        workspace = self._workspace(workspace_id)
        return workspace.agents.get(agent_id, workspace.other_agents).rules

    def budget(self, workspace_id: str) -> Budget | None:
        """Return a workspace's monthly limits, or None if there are none."""
        return self._workspace(workspace_id).budget

    def embedding_key(self, workspace_id: str) -> str | None:
        """Return the reference to the embedder's API key: the workspace's, the defaults' or None."""
        return self._workspace(workspace_id).embedding_key

    def retention(self, workspace_id: str) -> Retention:
        """Return how long a workspace's memory is kept; forever by default."""
        return self._workspace(workspace_id).retention

    def retentions(self) -> dict[str, Retention]:
        """Return the retention of each workspace that the file names; the key "" has that of all others."""
        named = {workspace_id: workspace.retention for workspace_id, workspace in self._workspaces.items()}
        return {"": self._other_workspaces.retention, **named}

    def secrets(self, workspace_id: str) -> Secrets:
        """Return what becomes of secrets in a workspace's texts."""
        return self._workspace(workspace_id).secrets

    def previews(self, workspace_id: str) -> bool:
        """Return whether Dagster's UI may show memory content of a workspace."""
        return self._workspace(workspace_id).previews

    def receipts(self, workspace_id: str) -> Duration | None:
        """Return how long receipts of reads are kept in a workspace; None if there are none."""
        return self._workspace(workspace_id).receipts

    def receipts_of_all(self) -> list[Duration | None]:
        """Return how long receipts are kept, of each workspace that the file names and of all others."""
        return [one.receipts for one in (self._other_workspaces, *self._workspaces.values())]

    def describe(self, scope: Scope) -> dict[str, object]:
        """Return all settings of an agent as JSON values. API keys are references."""
        budget = self.budget(scope.workspace_id)
        embedding = {**self.embedding.model_dump(mode="json"), "api_key": self.embedding_key(scope.workspace_id)}
        return {
            "workspace_id": scope.workspace_id,
            "agent_id": scope.agent_id,
            "source": self.source,
            "max_concurrency": self.max_concurrency,
            "archive": self.archive,
            "budget": budget.model_dump(mode="json") if budget else None,
            "retention": self.retention(scope.workspace_id).describe(),
            "secrets": self.secrets(scope.workspace_id).model_dump(mode="json"),
            "previews": self.previews(scope.workspace_id),
            "receipts": str(self.receipts(scope.workspace_id) or NO_RECEIPTS),
            "embedding": embedding,
            **self._agent(scope).model_dump(mode="json", exclude={"completion"}),
            "capture": [str(rule) for rule in self.capture(scope.workspace_id, scope.agent_id)],
        }

    def _workspace(self, workspace_id: str) -> Workspace:
        return self._workspaces.get(workspace_id, self._other_workspaces)

    def _agent(self, scope: Scope) -> AgentSettings:
        workspace = self._workspace(scope.workspace_id)
        return workspace.agents.get(scope.agent_id, workspace.other_agents)


def parse_retention(text: str, source: str, inherited: Retention) -> Retention:
    """Parse a section `retention` of a workspace, or the name of a plan. Keys that are not given are `inherited`.

    Raises:
        ConfigurationError: the section is invalid; the message begins with `source`.
    """
    read = read_document(text, source)
    tree = {"plan": read.tree} if isinstance(read.tree, str) else read.tree
    try:
        section = RetentionSection.model_validate(tree)
    except ValidationError as error:
        raise refusal(source, [*read.faults, *faults_of(error, RetentionSection, read.lines)]) from None
    retention, faults = resolve_retention(inherited, explicit_keys(section))
    if retention is None or read.faults:
        found = [ConfigurationFault((key,), reason, line_of((key,), read.lines)) for key, reason in faults]
        raise refusal(source, [*read.faults, *found])
    return retention
