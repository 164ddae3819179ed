"""Makes of a file's sections what holds for each workspace and agent, and finds what contradicts itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.configuration.endpoints import (
    Budget,
    Embedding,
    Extraction,
    Injection,
    Summarization,
    TextModel,
)
from memory_pipeline.configuration.inheritance import Inherited, Keys
from memory_pipeline.configuration.memories import MemoriesSettings
from memory_pipeline.configuration.retention import resolve_retention
from memory_pipeline.configuration.sections import given
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.retention import Retention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.configuration.faults import Path
    from memory_pipeline.configuration.sections import Document, WorkspaceSection
    from memory_pipeline.domain.graph.triples import Vocabulary
    from memory_pipeline.domain.periods import Grain

#: Tokens that a question needs beside its answer and a prompt of its own: built-in words, and a little to read.
_LEAST_QUESTION = 1_000


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What holds for an agent.

    Attributes:
        extraction, summaries: the models that make its memory.
        injection: what of it is put before the agent's model, and the model that helps with that, if one does.
        vocabulary: the predicates that are declared beside those that are built in.
        memories: how its durable memories are kept.
        curation: the model that puts them in order, if `memories` asks for one.
    """

    extraction: Extraction
    summaries: Mapping[Grain, Summarization]
    injection: Injection
    vocabulary: Vocabulary
    memories: MemoriesSettings
    curation: TextModel

    @property
    def tasks(self) -> dict[tuple[str, ...], Extraction | Summarization]:
        """Each task that makes memory, by the place where it is set."""
        return {("extraction",): self.extraction, **{("summaries", g.value): s for g, s in self.summaries.items()}}

    @property
    def asked(self) -> dict[tuple[str, ...], TextModel]:
        """Each task for which a model is asked, by the place where it is set."""
        tasks: dict[tuple[str, ...], TextModel] = {**self.tasks}
        if self.injection.for_model or self.memories.for_reading:
            tasks["injection",] = self.injection
        if self.memories.upkeep == "model":
            tasks["completion",] = self.curation
        return {place: task for place, task in tasks.items() if not task.is_deterministic}

    @property
    def uses_models(self) -> bool:
        """Tell whether a model makes any of its memory, or keeps it; one that only reads it does not count."""
        return self.memories.upkeep == "model" or not all(task.is_deterministic for task in self.tasks.values())


@dataclass(frozen=True, slots=True)
class Workspace:
    """What holds for a workspace.

    Attributes:
        agents: what holds for those that the file names.
        other_agents: what holds for all others.
        budget: what may be spent in a month.
        embedding_key: where the key for its vectors is found.
        retention: for how long its memory is kept.
        previews: whether Dagster's UI may show what was remembered.
    """

    agents: Mapping[str, AgentSettings]
    other_agents: AgentSettings
    budget: Budget | None
    embedding_key: str | None
    retention: Retention
    previews: bool

    @property
    def uses_models(self) -> bool:
        """Tell whether a model makes any of its memory."""
        return any(agent.uses_models for agent in (self.other_agents, *self.agents.values()))


class Resolution:
    """Resolves a document for all that it names, at once, so that its faults are found when it is read.

    Attributes:
        workspaces: those that the document names.
        other_workspaces: what holds for all others.
        faults: what became wrong by inheriting: the path and the reason.
    """

    def __init__(self, document: Document) -> None:
        self.faults: list[tuple[Path, str]] = []
        defaults = document.defaults
        self._check_embedding(defaults.embedding)
        top = Inherited().at(defaults)
        settings = self._settings(("defaults",), top, None)
        budget = self._budget(("defaults", "budget"), {}, given(defaults.budget))
        self._defaults_retention: Retention | None = Retention()
        self._defaults_retention = self._retention(("defaults", "retention"), given(defaults.retention))
        retention = self._defaults_retention or Retention()
        self.other_workspaces = Workspace(
            {}, settings, budget, defaults.embedding.api_key, retention, defaults.previews
        )
        self._defaults_budget = given(defaults.budget)
        self.workspaces = {
            workspace_id: self._workspace(("workspaces", workspace_id), section, top)
            for workspace_id, section in document.workspaces.items()
        }

    def _workspace(self, path: Path, section: WorkspaceSection, top: Inherited) -> Workspace:
        others = self.other_workspaces
        inherited = top.at(section)
        settings = self._settings(path, inherited, others.other_agents)
        agents = {
            agent_id: self._settings((*path, "agents", agent_id), inherited.at(agent), settings)
            for agent_id, agent in section.agents.items()
        }
        budget, key = others.budget, others.embedding_key
        if given(section.budget):
            budget = self._budget((*path, "budget"), self._defaults_budget, given(section.budget))
        if given(section.embedding):
            key = section.embedding.api_key
        retention = self._retention((*path, "retention"), given(section.retention)) or others.retention
        previews = section.previews if "previews" in section.model_fields_set else others.previews
        return Workspace(agents, settings, budget, key, retention, previews)

    def _settings(self, path: Path, keys: Inherited, parent: AgentSettings | None) -> AgentSettings:
        """Return what holds at one level; its parent's where it is equal, so that many agents share one object."""
        settings = AgentSettings(
            Extraction.model_validate(keys.extraction),
            {grain: Summarization.model_validate(each) for grain, each in keys.summaries.items()},
            Injection.model_validate(keys.injection),
            keys.vocabulary,
            MemoriesSettings.model_validate(keys.memories),
            TextModel.model_validate(keys.completion),
        )
        if settings == parent:
            return parent
        self._check_room(path, settings, parent)
        self._check_models(path, settings, parent)
        return settings

    def _check_models(self, path: Path, settings: AgentSettings, parent: AgentSettings | None) -> None:
        """Note what asks for a model where there is none, once for the level that made it so."""
        before = _lacking_model(parent) if parent else {}
        for place, fault in _lacking_model(settings).items():
            if place not in before:
                self.faults.append(((*path, *place), fault))

    def _check_room(self, path: Path, settings: AgentSettings, parent: AgentSettings | None) -> None:
        """Note answers that leave no room for a question, once for the level that made it so."""
        places: dict[str, list[Path]] = {}
        asked_before = parent.asked if parent else {}
        for place, task in settings.asked.items():
            before = asked_before.get(place)
            fault = _lack_of_room(task)
            if fault and (before is None or _lack_of_room(before) != fault):
                places.setdefault(fault, []).append(place)
        for fault, those in places.items():
            self.faults.append(((*path, *(those[0] if len(those) == 1 else ("completion",))), fault))

    def _check_embedding(self, embedding: Embedding) -> None:
        if not embedding.is_deterministic and embedding.dimension is None:
            self.faults.append(
                (("defaults", "embedding", "dimension"), "it is missing; expected the length of the model's vectors")
            )

    def _retention(self, path: Path, section: Keys) -> Retention | None:
        """Return what a section makes of the defaults' retention; None after noting why it makes nothing of it."""
        inherited = self._defaults_retention
        if inherited is None and "plan" not in section:
            return None  # Whether it would fit is not known.
        retention, faults = resolve_retention(inherited or Retention(), section)
        self.faults.extend(((*path, key), fault) for key, fault in faults)
        return retention

    def _budget(self, path: Path, inherited: Keys, section: Keys) -> Budget | None:
        keys = {**inherited, **section}
        if not keys:
            return None
        budget = Budget.model_validate(keys)
        if budget.usd_per_month is None and budget.tokens_per_month is None:
            self.faults.append((path, "it has no limit; expected usd_per_month, tokens_per_month or both"))
        return budget


def _lacking_model(settings: AgentSettings) -> dict[Path, str]:
    """Return the keys that ask for a model where there is none, each with what to say of it."""
    lacking: dict[Path, str] = {}
    if settings.injection.is_deterministic:
        for name in settings.injection.for_model:
            lacking["injection", name] = (
                "model is not accepted while the section's model is deterministic; "
                f"name a model in injection or completion, or set {name}: deterministic"
            )
        for name in settings.memories.for_reading:
            lacking["memories", name] = (
                "model is not accepted while the model of injection is deterministic; "
                f"name a model in injection or completion, or set {name}: rules"
            )
    if settings.memories.upkeep == "model" and settings.curation.is_deterministic:
        lacking["memories", "upkeep"] = (
            "model is not accepted while the model of completion is deterministic; "
            "name a model in completion, or set upkeep: rules"
        )
    return lacking


def _lack_of_room(task: TextModel) -> str | None:
    prompt = count_tokens(getattr(task, "prompt", None) or "")
    if task.context_tokens - task.max_output_tokens - prompt >= _LEAST_QUESTION:
        return None
    return (
        f"context_tokens {task.context_tokens:,} is not accepted with max_output_tokens {task.max_output_tokens:,}"
        f"{f' and a prompt of {prompt:,} tokens' if prompt else ''}; expected {_LEAST_QUESTION:,} more than these"
    )
