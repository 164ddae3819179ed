"""The sections of ``config/workspaces.yaml``: which keys stand where, before anything is inherited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field, field_validator

from memory_pipeline.configuration import checks
from memory_pipeline.configuration.checks import described
from memory_pipeline.configuration.endpoints import (
    Budget,
    Embedding,
    Extraction,
    Injection,
    Record,
    Summarization,
    TextModel,
)
from memory_pipeline.configuration.memories import MemoriesSettings
from memory_pipeline.configuration.retention import RetentionSection
from memory_pipeline.domain.conversations import Scope
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import ValidationInfo


def _workspace_id(value: str) -> str:
    return _checked_id(value, lambda: Scope(value, "agent"))


def _agent_id(value: str) -> str:
    return _checked_id(value, lambda: Scope("workspace", value))


def _checked_id(value: str, check: Callable[[], Scope]) -> str:
    """Refuse what no scope has; ``{api_key:sk-…}`` without a blank is one long name, so that is not shown."""
    try:
        check()
    except InputError as error:
        raise ValueError(str(error).replace(shown(value), described(value))) from None
    return value


class Summaries(Record):
    """A section for each grain that holds summaries."""

    daily: Summarization = Summarization()
    weekly: Summarization = Summarization()
    monthly: Summarization = Summarization()
    quarterly: Summarization = Summarization()
    yearly: Summarization = Summarization()


_Predicates = Annotated[list[str], Field(description=checks.PREDICATES_FORM)]


class Graph(Record):
    """Which predicates hold one value at a time, and which many, beside those that are built in.

    Attributes:
        single_valued, multi_valued: the predicates, in snake_case; none is in both.
    """

    single_valued: _Predicates = Field(default_factory=list)
    multi_valued: _Predicates = Field(default_factory=list)

    @field_validator("single_valued", "multi_valued", mode="before")
    @classmethod
    def _take_nothing_for_none(cls, value: object) -> object:
        return [] if value is None else value

    @field_validator("single_valued", "multi_valued")
    @classmethod
    def _check_predicates(cls, predicates: list[str], info: ValidationInfo) -> list[str]:
        names = checks.check_predicates(predicates)
        for name in info.data.get("single_valued", []):
            if name in names:
                raise ValueError(
                    f"{described(name)} is in single_valued too; expected it in one of the two: "
                    "a predicate holds one value at a time, or many"
                )
        return names


class Level(Record):
    """What the defaults, a workspace and an agent can all say; only keys that were given count."""

    completion: TextModel = TextModel()
    extraction: Extraction = Extraction()
    summaries: Summaries = Summaries()
    graph: Graph = Graph()
    injection: Injection = Injection()
    memories: MemoriesSettings = MemoriesSettings()


class AgentSection(Level):
    """What holds for one agent."""


class EmbeddingKey(Record):
    """All that a workspace may say about the one embedder of the lake: who pays."""

    elsewhere: ClassVar[str] = "all else about the embedder is set once for the lake, in defaults.embedding"

    api_key: Annotated[str | None, Field(description=checks.API_KEY_FORM)] = None

    @field_validator("api_key")
    @classmethod
    def _check_api_key(cls, reference: str | None) -> str | None:
        return reference if reference is None else checks.check_api_key(reference)


class WorkspaceSection(Level):
    """What holds for a workspace and, where they say nothing, for its agents."""

    embedding: EmbeddingKey = EmbeddingKey()
    budget: Budget = Budget()
    retention: RetentionSection = RetentionSection()
    previews: bool = True
    agents: dict[Annotated[str, AfterValidator(_agent_id)], AgentSection] = Field(default_factory=dict)

    @field_validator("agents", mode="before")
    @classmethod
    def _take_nothing_for_none(cls, value: object) -> object:
        return {} if value is None else value


class DefaultsSection(Level):
    """What holds for every workspace, and what is set once for the whole lake."""

    max_concurrency: Annotated[int, Field(ge=1, le=256)] = 16
    embedding: Embedding = Embedding()
    budget: Budget = Budget()
    retention: RetentionSection = RetentionSection()
    previews: bool = True


class Document(Record):
    """The whole file."""

    defaults: DefaultsSection = DefaultsSection()
    workspaces: dict[Annotated[str, AfterValidator(_workspace_id)], WorkspaceSection] = Field(default_factory=dict)

    @field_validator("workspaces", mode="before")
    @classmethod
    def _take_nothing_for_none(cls, value: object) -> object:
        return {} if value is None else value


def given(section: Record) -> dict[str, object]:
    """Return what a section says, without what it leaves out."""
    return {name: getattr(section, name) for name in type(section).model_fields if name in section.model_fields_set}
