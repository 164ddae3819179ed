"""Resolve the settings of each workspace and agent from the file's sections, and find contradictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_pipeline.configuration.model_settings import (
    Budget,
    Embedding,
    ExtractionSettings,
    Injection,
    Summarization,
    TextModelSettings,
)
from memory_pipeline.configuration.sections import MemoriesSettings, given, resolve_retention
from memory_pipeline.configuration.validators import DETERMINISTIC
from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.retention import Retention

if TYPE_CHECKING:
    from memory_pipeline.configuration.sections import ConfigurationDocument, GraphSettings, Level, WorkspaceSection
    from memory_pipeline.configuration.strict_yaml import Path


# Who inherits what: from the defaults to a workspace to an agent, and at each level from `completion` to a task.
#
# A task is extraction, the summaries of one grain, or injection. At each level `completion` is applied, then the task's
# own section; a later one wins key by key, `parameters` and `price` as a whole. One thing is kept apart, so that no
# prompt is sent with another provider's key or to another provider's address: **what is said about a model goes with
# that model**.
#
# - A section that names a `model` says all about it: of :data:`ABOUT_A_MODEL` it inherits nothing, even if the model is
# the one that it would inherit, since it must not depend on others where its key is sent.
# - A section that names another `api_base` does not inherit the `api_key`.
# - A task that has a model or an address of its own takes nothing of :data:`ABOUT_A_MODEL` from a later `completion`
# that
# names no model, but for an `api_key` of the same provider at the same address. One that names a model takes its place.
#
# The keys of `memories` are inherited one by one; what of them a model does, that of `completion` or of `injection`
# does.
# The predicates of `graph` are inherited one by one: a lower level says of a predicate what it says, and of all others
# nothing.


Keys = Mapping[str, object]

#: The keys that hold for one model and are not handed on to another.
ABOUT_A_MODEL = (
    "api_base",
    "api_key",
    "price",
    "parameters",
    "context_tokens",
    "max_output_tokens",
    "answer_format",
)


@dataclass(frozen=True, slots=True)
class Inherited:
    """What holds at one level: the keys that were given, of `completion` and of each task; the predicates declared."""

    completion: Keys = field(default_factory=dict)
    extraction: Keys = field(default_factory=dict)
    summaries: Mapping[Grain, Keys] = field(default_factory=lambda: {grain: {} for grain in SUMMARY_GRAINS})
    injection: Keys = field(default_factory=dict)
    memories: Keys = field(default_factory=dict)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)

    def at(self, level: Level) -> Inherited:
        """Return what holds at the next level, where `level` is said."""
        section = given(level.completion)
        completion = _joined(self.completion, section)

        def task(inherited: Keys, own: Keys) -> Keys:
            return _joined(self._shared(inherited, section, completion), own)

        return Inherited(
            completion=completion,
            extraction=task(self.extraction, given(level.extraction)),
            summaries={
                grain: task(keys, given(getattr(level.summaries, grain.value)))
                for grain, keys in self.summaries.items()
            },
            injection=task(self.injection, given(level.injection)),
            memories={**self.memories, **given(level.memories)},
            vocabulary=_declared(self.vocabulary, level.graph) if given(level.graph) else self.vocabulary,
        )

    def _shared(self, task: Keys, section: Keys, completion: Keys) -> Keys:
        """Return what a task has after a level's `completion` section, which made `completion` of what was before."""
        is_same = _model(task) == _model(self.completion) and _address(task) == _address(self.completion)
        if "model" in section or is_same:
            return _joined(task, section)
        usable = _without(section, ABOUT_A_MODEL)
        if "api_key" in section and _provider(task) == _provider(completion) and _address(task) == _address(completion):
            usable["api_key"] = section["api_key"]
        return {**task, **usable}


def _declared(inherited: Vocabulary, graph: GraphSettings) -> Vocabulary:
    """Return what a level makes of the predicates that it inherits; none of its own is in both lists."""
    single, multi = frozenset(graph.single_valued), frozenset(graph.multi_valued)
    return Vocabulary(inherited.single - multi | single, inherited.multi - single | multi)


def _joined(inherited: Keys, section: Keys) -> Keys:
    """Return what a section makes of what it inherits."""
    if "model" in section:
        inherited = _without(inherited, ABOUT_A_MODEL)
    elif "api_base" in section and _address(section) != _address(inherited):
        inherited = _without(inherited, ("api_key",))
    return {**inherited, **section}


def _without(keys: Keys, names: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name, value in keys.items() if name not in names}


def _model(keys: Keys) -> object:
    return keys.get("model", DETERMINISTIC)


def _provider(keys: Keys) -> str:
    return str(_model(keys)).partition("/")[0]


def _address(keys: Keys) -> object:
    return keys.get("api_base")


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

    extraction: ExtractionSettings
    summaries: Mapping[Grain, Summarization]
    injection: Injection
    vocabulary: Vocabulary
    memories: MemoriesSettings
    curation: TextModelSettings

    @property
    def tasks(self) -> dict[tuple[str, ...], ExtractionSettings | Summarization]:
        """Each task that makes memory, by the place where it is set."""
        return {("extraction",): self.extraction, **{("summaries", g.value): s for g, s in self.summaries.items()}}

    @property
    def asked(self) -> dict[tuple[str, ...], TextModelSettings]:
        """Each task for which a model is asked, by the place where it is set."""
        tasks: dict[tuple[str, ...], TextModelSettings] = {**self.tasks}
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

    def __init__(self, document: ConfigurationDocument) -> None:
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
            ExtractionSettings.model_validate(keys.extraction),
            {grain: Summarization.model_validate(each) for grain, each in keys.summaries.items()},
            Injection.model_validate(keys.injection),
            keys.vocabulary,
            MemoriesSettings.model_validate(keys.memories),
            TextModelSettings.model_validate(keys.completion),
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


def _lack_of_room(task: TextModelSettings) -> str | None:
    prompt = count_tokens(getattr(task, "prompt", None) or "")
    if task.context_tokens - task.max_output_tokens - prompt >= _LEAST_QUESTION:
        return None
    return (
        f"context_tokens {task.context_tokens:,} is not accepted with max_output_tokens {task.max_output_tokens:,}"
        f"{f' and a prompt of {prompt:,} tokens' if prompt else ''}; expected {_LEAST_QUESTION:,} more than these"
    )
