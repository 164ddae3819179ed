"""Resolve the settings of each workspace and agent by inheritance, and find contradictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from memory_pipeline.configuration.model_settings import Budget
from memory_pipeline.configuration.sections import NO_RECEIPTS, Level, explicit_keys, resolve_retention
from memory_pipeline.configuration.validators import DETERMINISTIC
from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.retention import Duration, Retention

if TYPE_CHECKING:
    from memory_pipeline.configuration.model_settings import (
        Embedding,
        ExtractionSettings,
        Summarization,
        TextModelSettings,
    )
    from memory_pipeline.configuration.sections import (
        CaptureRuleSection,
        ConfigurationDocument,
        GraphSettings,
        Secrets,
        WorkspaceSection,
    )
    from memory_pipeline.configuration.strict_yaml import Path
    from memory_pipeline.domain.capture import CaptureRule


# Inheritance: from the defaults to a workspace to an agent, and at each level from `completion` to a task.
#
# A task is extraction, the summaries of one grain, or injection. Each level applies `completion`, then the section of
# the task. Later keys override earlier ones; `parameters` and `price` are overridden as a whole. Keys about a model
# stay with that model, so that no prompt is sent with another provider's key or to another provider's address:
#
# - A section that names a `model` inherits no key of :data:`ABOUT_A_MODEL`, even if it names the inherited model. Its
#   key must not depend on other sections.
# - A section that names another `api_base` does not inherit the `api_key`.
# - A task with its own model or address takes no key of :data:`ABOUT_A_MODEL` from a later `completion` without a
#   model, except an `api_key` of the same provider at the same address. A later `completion` with a model replaces it.
#
# `memories` is inherited key by key; its models are those of `completion` and `injection`. `graph` is inherited
# predicate by predicate.


Keys = Mapping[str, object]

#: The keys that belong to one model and are not inherited by another.
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
    """The settings of one level: the keys of `completion` and of each task, and the declared predicates."""

    completion: Keys = field(default_factory=dict)
    extraction: Keys = field(default_factory=dict)
    summaries: Mapping[Grain, Keys] = field(default_factory=lambda: {grain: {} for grain in SUMMARY_GRAINS})
    injection: Keys = field(default_factory=dict)
    memories: Keys = field(default_factory=dict)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    others: Keys = field(default_factory=dict)
    capture: tuple[CaptureRuleSection, ...] = ()

    def at(self, level: Level) -> Inherited:
        """Return the settings of the next level, with the sections of `level` applied."""
        section = explicit_keys(level.completion)
        completion = _merged(self.completion, section)

        def task(inherited: Keys, task_keys: Keys) -> Keys:
            return _merged(self._with_completion(inherited, section, completion), task_keys)

        return Inherited(
            completion=completion,
            extraction=task(self.extraction, explicit_keys(level.extraction)),
            summaries={
                grain: task(keys, explicit_keys(getattr(level.summaries, grain.value)))
                for grain, keys in self.summaries.items()
            },
            injection=task(self.injection, explicit_keys(level.injection)),
            memories={**self.memories, **explicit_keys(level.memories)},
            vocabulary=_merged_vocabulary(self.vocabulary, level.graph)
            if explicit_keys(level.graph)
            else self.vocabulary,
            others={**self.others, **{name: getattr(level, name) for name in _OTHERS & level.model_fields_set}},
            capture=(*level.capture, *self.capture),
        )

    def _with_completion(self, task: Keys, section: Keys, completion: Keys) -> Keys:
        """Return the keys of a task after a level's `completion` section; `completion` is the merged section."""
        is_same = _model(task) == _model(self.completion) and _address(task) == _address(self.completion)
        if "model" in section or is_same:
            return _merged(task, section)
        usable = _without(section, ABOUT_A_MODEL)
        if "api_key" in section and _provider(task) == _provider(completion) and _address(task) == _address(completion):
            usable["api_key"] = section["api_key"]
        return {**task, **usable}


def _merged_vocabulary(inherited: Vocabulary, graph: GraphSettings) -> Vocabulary:
    single, multi = graph.vocabulary.single, graph.vocabulary.multi
    return Vocabulary(inherited.single - multi | single, inherited.multi - single | multi)


def _merged(inherited: Keys, section: Keys) -> Keys:
    """Return the inherited keys, overridden by a section, without another model's keys."""
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


#: The keys of a level that are inherited as they are.
_OTHERS: Final = {"per_user", "timezone", "language"}

#: Minimum of tokens of a request beside the answer and a custom prompt: the built-in instructions and some input.
_LEAST_QUESTION = 1_000


class AgentSettings(Level):
    """The settings of an agent, with all that it inherits.

    The model of `completion` consolidates durable memories if `memories` asks for a model.
    """

    @classmethod
    def of(cls, keys: Inherited) -> AgentSettings:
        """Return the settings of one level."""
        return cls.model_validate(
            {
                "completion": keys.completion,
                "extraction": keys.extraction,
                "summaries": {grain.value: each for grain, each in keys.summaries.items()},
                "graph": {
                    "single_valued": sorted(keys.vocabulary.single),
                    "multi_valued": sorted(keys.vocabulary.multi),
                },
                "injection": keys.injection,
                "memories": keys.memories,
                "capture": list(keys.capture),
                **keys.others,
            }
        )

    @cached_property
    def rules(self) -> list[CaptureRule]:
        """The rules of `capture`; the first that fits counts."""
        return [one.rule for one in self.capture]

    @property
    def tasks(self) -> dict[tuple[str, ...], ExtractionSettings | Summarization]:
        """Each task that computes memory, by its path in the section."""
        tasks: dict[tuple[str, ...], ExtractionSettings | Summarization] = {("extraction",): self.extraction}
        return tasks | {("summaries", grain.value): getattr(self.summaries, grain.value) for grain in SUMMARY_GRAINS}

    @property
    def model_tasks(self) -> dict[tuple[str, ...], TextModelSettings]:
        """Each task that calls a model, by its path in the section."""
        tasks: dict[tuple[str, ...], TextModelSettings] = {**self.tasks}
        if self.injection.for_model or self.memories.for_reading:
            tasks["injection",] = self.injection
        if self.memories.consolidation == "model":
            tasks["completion",] = self.completion
        return {place: task for place, task in tasks.items() if not task.is_deterministic}

    @property
    def uses_models(self) -> bool:
        """Whether a model computes or consolidates any memory; a model that only helps reading does not count."""
        return self.memories.consolidation == "model" or not all(task.is_deterministic for task in self.tasks.values())


@dataclass(frozen=True, slots=True)
class Workspace:
    """The settings of a workspace, and of the agents that the file names and of all others.

    `embedding_key` is a reference to the embedder's API key. `previews` lets Dagster's UI show memory content.
    `receipts` is how long receipts of reads are kept; None if there are none.
    """

    agents: Mapping[str, AgentSettings]
    other_agents: AgentSettings
    budget: Budget | None
    embedding_key: str | None
    retention: Retention
    secrets: Secrets
    previews: bool
    receipts: Duration | None

    @property
    def uses_models(self) -> bool:
        """Whether a model computes any of its memory."""
        return any(agent.uses_models for agent in (self.other_agents, *self.agents.values()))


def _kept(receipts: str) -> Duration | None:
    return None if receipts == NO_RECEIPTS else Duration.parse(receipts)


class Resolution:
    """Resolves a whole document at once, to find all faults when the file is read.

    Attributes:
        other_workspaces: the settings of all workspaces that the document does not name.
        faults: path and reason of each fault that inheritance reveals.
    """

    def __init__(self, document: ConfigurationDocument) -> None:
        self.faults: list[tuple[Path, str]] = []
        defaults = document.defaults
        self._check_embedding(defaults.embedding)
        top = Inherited().at(defaults)
        settings = self._settings(("defaults",), top, None)
        budget = self._budget(("defaults", "budget"), {}, explicit_keys(defaults.budget))
        self._defaults_retention: Retention | None = Retention()
        self._defaults_retention = self._retention(("defaults", "retention"), explicit_keys(defaults.retention))
        retention = self._defaults_retention or Retention()
        self.other_workspaces = Workspace(
            {},
            settings,
            budget,
            defaults.embedding.api_key,
            retention,
            defaults.secrets,
            defaults.previews,
            _kept(defaults.receipts),
        )
        self._defaults_budget = explicit_keys(defaults.budget)
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
        if explicit_keys(section.budget):
            budget = self._budget((*path, "budget"), self._defaults_budget, explicit_keys(section.budget))
        if explicit_keys(section.embedding):
            key = section.embedding.api_key
        retention = self._retention((*path, "retention"), explicit_keys(section.retention)) or others.retention
        secrets = others.secrets.model_copy(update=explicit_keys(section.secrets))
        previews = section.previews if "previews" in section.model_fields_set else others.previews
        receipts = _kept(section.receipts) if "receipts" in section.model_fields_set else others.receipts
        return Workspace(agents, settings, budget, key, retention, secrets, previews, receipts)

    def _settings(self, path: Path, keys: Inherited, parent: AgentSettings | None) -> AgentSettings:
        """Return the settings of one level, or the parent's object if they are equal, so that many agents share it."""
        settings = AgentSettings.of(keys)
        if settings == parent:
            return parent
        self._check_room(path, settings, parent)
        self._check_models(path, settings, parent)
        return settings

    def _check_models(self, path: Path, settings: AgentSettings, parent: AgentSettings | None) -> None:
        """Record keys that ask for a model where none is set, once at the level that causes it."""
        before = _keys_without_model(parent) if parent else {}
        for place, fault in _keys_without_model(settings).items():
            if place not in before:
                self.faults.append(((*path, *place), fault))

    def _check_room(self, path: Path, settings: AgentSettings, parent: AgentSettings | None) -> None:
        """Record answer lengths that leave no room for a request, once at the level that causes it."""
        places: dict[str, list[Path]] = {}
        tasks_before = parent.model_tasks if parent else {}
        for place, task in settings.model_tasks.items():
            before = tasks_before.get(place)
            fault = _lack_of_room(task)
            if fault and (before is None or _lack_of_room(before) != fault):
                places.setdefault(fault, []).append(place)
        for fault, paths in places.items():
            self.faults.append(((*path, *(paths[0] if len(paths) == 1 else ("completion",))), fault))

    def _check_embedding(self, embedding: Embedding) -> None:
        if not embedding.is_deterministic and not embedding.is_local and embedding.dimension is None:
            self.faults.append(
                (("defaults", "embedding", "dimension"), "missing; expected the length of the model's vectors")
            )

    def _retention(self, path: Path, section: Keys) -> Retention | None:
        """Return the defaults' retention, overridden by a section; None after recording why they contradict."""
        inherited = self._defaults_retention
        if inherited is None and "plan" not in section:
            return None  # The defaults are invalid, so nothing can be checked against them.
        retention, faults = resolve_retention(inherited or Retention(), section)
        self.faults.extend(((*path, key), fault) for key, fault in faults)
        return retention

    def _budget(self, path: Path, inherited: Keys, section: Keys) -> Budget | None:
        keys = {**inherited, **section}
        if not keys:
            return None
        budget = Budget.model_validate(keys)
        limits = (budget.usd_per_month, budget.tokens_per_month, budget.usd_per_user, budget.tokens_per_user)
        if all(limit is None for limit in limits):
            self.faults.append(
                (path, "no limit is set; expected usd_per_month, tokens_per_month, usd_per_user or tokens_per_user")
            )
        return budget


def _keys_without_model(settings: AgentSettings) -> dict[Path, str]:
    """Return the error message of each key that asks for a model where none is set."""
    lacking: dict[Path, str] = {}
    if settings.injection.rerank == "cross_encoder" and settings.injection.cross_encoder.is_deterministic:
        lacking["injection", "rerank"] = (
            "cross_encoder is not accepted without a model; name one in cross_encoder of the section, such as "
            "cross_encoder: {model: cohere/rerank-v3.5}"
        )
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
    if settings.memories.consolidation == "model" and settings.completion.is_deterministic:
        lacking["memories", "consolidation"] = (
            "model is not accepted while the model of completion is deterministic; "
            "name a model in completion, or set consolidation: rules"
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
