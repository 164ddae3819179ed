"""The sections of ``config/workspaces.yaml``, before inheritance (:mod:`.resolution`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_serializer, field_validator

from memory_pipeline.configuration import validators
from memory_pipeline.configuration.model_settings import (
    ApiKey,
    Budget,
    Embedding,
    ExtractionSettings,
    Injection,
    Record,
    Summarization,
    TextModelSettings,
)
from memory_pipeline.configuration.validators import described
from memory_pipeline.domain.capture import Capture, CaptureRule
from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.memories.consolidation import ConsolidationSettings
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.retention import (
    ARCHIVE,
    DURATION_FORM,
    DURATION_OR_FOREVER_FORM,
    FOREVER,
    KEPT_FORM,
    PLANS,
    WORKING_CLASSES,
    Duration,
    Retention,
    RetentionClass,
    contradictions,
    parse_duration,
    parse_kept,
)
from memory_pipeline.domain.scopes import MAX_ID, label_of
from memory_pipeline.domain.text.secret_formats import SecretFormat, own_format
from memory_pipeline.errors import ConfigurationError, InputError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationInfo


_ALL = frozenset(MemoryKind)
_KINDS_FORM = f"a list of kinds, or null for all of them: {', '.join(MemoryKind)}"
#: YAML has a list of names; null stands for all kinds.
_Kinds = Annotated[
    frozenset[Annotated[MemoryKind, Field(strict=False)]],
    Field(min_length=1, strict=False, description=_KINDS_FORM),
    BeforeValidator(lambda value: _ALL if value is None else value),
]


class MemoriesSettings(Record):
    """The policy for an agent's durable memories.

    Attributes:
        kinds: the kinds that the agent may store or confirm. Contexts, and entries without a kind, are always allowed.
        point_in_time: whether all memories describe one moment and become stale soon.
        decay: whether importance decays, so that what is not used is archived. Instructions, rules, preferences, and
            facts of identity, home, work, family or health never decay.
        hot_entries, hot_tokens: maximum number of lines and tokens of the hot index.
        consolidation: how memories are merged, compared and marked as stale: by rules, or by the model of `completion`.
        selection: how memories are selected by their headers: by rules, or by the model of `injection`.
        imagining: how queries for proactive recall are generated: by rules, or by the model of `injection`.
    """

    kinds: _Kinds = _ALL
    point_in_time: bool = False
    decay: bool = True
    hot_entries: Annotated[int, Field(ge=0, le=500)] = 20
    hot_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 3_000
    consolidation: Literal["rules", "model"] = "rules"
    selection: Literal["rules", "model"] = "rules"
    imagining: Literal["rules", "model"] = "rules"

    @field_serializer("kinds")
    def _write_kinds(self, kinds: frozenset[MemoryKind]) -> list[str]:
        return [kind.value for kind in MemoryKind if kind in kinds]

    @property
    def for_reading(self) -> tuple[str, ...]:
        """The keys that ask for the model of `injection`."""
        return tuple(name for name in ("selection", "imagining") if getattr(self, name) == "model")

    @property
    def consolidation_settings(self) -> ConsolidationSettings:
        """The settings of consolidation."""
        return ConsolidationSettings(
            hot_entries=self.hot_entries, hot_tokens=self.hot_tokens, kinds=self.kinds, decay=self.decay
        )


#: The key that sets all classes of working memory.
_WORKING = "working"


def _check_duration(value: object) -> object:
    try:
        parse_duration(value)
    except InputError:
        # The domain's message would show a long text, which may be a misplaced API key.
        raise ValueError(f"{described(value)} is not accepted; expected {DURATION_OR_FOREVER_FORM}") from None
    return value


def _check_kept(value: object) -> object:
    try:
        parse_kept(value)
    except InputError:
        raise ValueError(f"{described(value)} is not accepted; expected {KEPT_FORM}") from None
    return value


_Duration = Annotated[str, BeforeValidator(_check_duration), Field(description=DURATION_OR_FOREVER_FORM)]
_Kept = Annotated[str, BeforeValidator(_check_kept), Field(description=KEPT_FORM)]


#: The setting of a workspace without receipts.
NO_RECEIPTS = "none"


def _check_receipts(value: object) -> object:
    try:
        return value if value == NO_RECEIPTS else str(Duration.parse(value))
    except InputError as error:
        raise ValueError(f"{error}; or {NO_RECEIPTS}") from None


Receipts = Annotated[str, BeforeValidator(_check_receipts), Field(description=f"{DURATION_FORM}; or {NO_RECEIPTS}")]


class RetentionSection(Record):
    """How long memory is kept, and whether it is then archived. Keys that are not given are inherited.

    Attributes:
        plan: the base plan; it replaces all inherited durations.
        working: default of `conversations`, `facts` and `preferences`.
    """

    plan: Literal["free", "starter", "pro", "standard", "forever"] = "forever"
    working: _Kept = FOREVER
    conversations: _Kept = FOREVER
    facts: _Kept = FOREVER
    preferences: _Kept = FOREVER
    daily: _Kept = FOREVER
    weekly: _Kept = FOREVER
    monthly: _Kept = FOREVER
    quarterly: _Kept = FOREVER
    yearly: _Kept = FOREVER
    graph: _Duration = FOREVER


def resolve_retention(
    inherited: Retention, keys: Mapping[str, object]
) -> tuple[Retention | None, list[tuple[str, str]]]:
    """Return the inherited retention, overridden by the keys of a section, and the contradictions.

    The retention is None if durations contradict each other. A contradiction is its key and the reason.
    """
    plan = keys.get("plan")
    base = inherited if plan is None else PLANS[str(plan)]
    durations, archived = base.durations, set(base.archived)
    set_by = {each: each.value for each in RetentionClass if each.value in keys}
    if _WORKING in keys:
        set_by = {**dict.fromkeys(WORKING_CLASSES, _WORKING), **set_by}
    for each, key in set_by.items():
        duration, is_archived = parse_kept(keys[key])
        if isinstance(duration, Duration) or duration is None:
            durations[each] = duration
        elif durations[each] is None:
            reason = (
                f"{ARCHIVE} needs a duration, since {each} never expires; expected such as 30d {ARCHIVE}, or a plan"
            )
            return None, [(key, reason)]
        archived = archived | {each} if is_archived else archived - {each}
    found = contradictions(durations)
    if found:
        # Plans and inherited durations are consistent, so one of the two was set here.
        return None, [(set_by.get(each.coarser) or set_by[each.finer], each.text) for each in found]
    return Retention(**{each.value: one for each, one in durations.items()}, archived=frozenset(archived)), []


def _checked_id(name: str, value: str) -> str:
    """Reject invalid ids. ``{api_key:sk-…}`` without a blank is one long id, so long ids are not shown."""
    try:
        return label_of(name, value)
    except InputError as error:
        raise ValueError(str(error).replace(shown(value), described(value))) from None


def _zone(value: str) -> str:
    try:
        return Calendar(value).timezone
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


TimeZone = Annotated[str, AfterValidator(_zone)]


class Summaries(Record):
    """A section for each grain that has summaries."""

    daily: Summarization = Summarization()
    weekly: Summarization = Summarization()
    monthly: Summarization = Summarization()
    quarterly: Summarization = Summarization()
    yearly: Summarization = Summarization()


_Predicates = Annotated[list[str], Field(description=validators.PREDICATES_FORM)]


class GraphSettings(Record):
    """Predicates beside the built-in ones, in snake_case.

    Attributes:
        single_valued: a new value ends the previous one.
        multi_valued: many values are valid at the same time.
    """

    single_valued: _Predicates = Field(default_factory=list)
    multi_valued: _Predicates = Field(default_factory=list)

    @property
    def vocabulary(self) -> Vocabulary:
        """The predicates, without the built-in ones."""
        return Vocabulary(frozenset(self.single_valued), frozenset(self.multi_valued))

    @field_validator("single_valued", "multi_valued")
    @classmethod
    def _check_predicates(cls, predicates: list[str], info: ValidationInfo) -> list[str]:
        names = validators.check_predicates(predicates)
        for name in info.data.get("single_valued", []):
            if name in names:
                raise ValueError(
                    f"{described(name)} is also in single_valued; expected each predicate in one of the two lists: "
                    "it holds one value at a time, or many"
                )
        return names


_RULES_FORM = "a list of up to 1,000 rules such as {source: cron:*, mode: none}"
_PATTERN_FORM = f"a pattern of 1 to {MAX_ID} characters, such as cron:*"
_Pattern = Annotated[str | None, Field(min_length=1, max_length=MAX_ID, description=_PATTERN_FORM)]


class CaptureRuleSection(Record):
    """The capture of the conversations that fit all patterns, such as ``cron:*``; without patterns, of all."""

    mode: Literal["full", "read", "none"]
    agent: _Pattern = None
    conversation: _Pattern = None
    tag: _Pattern = None
    source: _Pattern = None

    @property
    def rule(self) -> CaptureRule:
        """The rule."""
        return CaptureRule(Capture(self.mode), self.agent, self.conversation, self.tag, self.source)


_Language = Annotated[
    str,
    Field(pattern=r"^[A-Za-z]+([ -][A-Za-z]+)*$", max_length=40, description="the name of a language, such as German"),
]


class Level(Record):
    """The sections that the defaults, workspaces and agents share. Keys that are not given are inherited.

    Attributes:
        per_user: whether each user, and each group of users, has a memory of its own. Recorded for an agent when it
            first writes for a user, and fixed from then on.
        timezone: of speakers whose messages do not state an offset, an IANA name; by default the lake's. It applies to
            messages that are written from then on.
        language: of what models write, such as German; by default that of the messages.
        capture: rules that are tried before the inherited ones. The first that fits a conversation counts; without
            one, it is captured in full.
    """

    completion: TextModelSettings = TextModelSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    summaries: Summaries = Summaries()
    graph: GraphSettings = GraphSettings()
    injection: Injection = Injection()
    memories: MemoriesSettings = MemoriesSettings()
    per_user: bool = True
    timezone: TimeZone | None = None
    language: _Language | None = None
    capture: Annotated[list[CaptureRuleSection], Field(max_length=1_000, description=_RULES_FORM)] = Field(
        default_factory=list
    )


_KIND_FORM = "1 to 40 lower-case letters, digits and hyphens, such as employee-number"
_FORMAT_FORM = "a regular expression of up to 500 characters that matches the secret, such as EMP-[0-9]{6}"


class SecretPattern(Record):
    """A format of secrets of one's own; a group named ``secret`` marks the part to replace."""

    kind: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$", description=_KIND_FORM)]
    pattern: Annotated[
        str, Field(min_length=1, max_length=500, description=_FORMAT_FORM), AfterValidator(validators.check_pattern)
    ]


class Secrets(Record):
    """What becomes of secrets in texts: API keys, tokens, passwords. Keys that are not given are inherited.

    Attributes:
        redact: ``all`` replaces them before anything is stored. ``derived`` stores messages as they were said, and
            replaces the secrets in what is made from them. ``off`` replaces none.
        patterns: formats beside the built-in ones.
    """

    redact: Literal["all", "derived", "off"] = "all"
    patterns: Annotated[list[SecretPattern], Field(max_length=100)] = Field(default_factory=list)

    @property
    def formats(self) -> tuple[SecretFormat, ...]:
        """The formats of `patterns`."""
        return tuple(own_format(one.kind, one.pattern) for one in self.patterns)


class AgentSection(Level):
    """The settings of one agent."""


class EmbeddingKey(Record):
    """The embedder's API key of a workspace. The embedder itself is the same for the whole lake."""

    elsewhere: ClassVar[str] = "set all other keys of the embedder once for the lake, in defaults.embedding"

    api_key: ApiKey = None


class WorkspaceSection(Level):
    """The settings of a workspace, and the defaults of its agents."""

    embedding: EmbeddingKey = EmbeddingKey()
    budget: Budget = Budget()
    retention: RetentionSection = RetentionSection()
    secrets: Secrets = Secrets()
    previews: bool = True
    receipts: Receipts = "30d"
    agents: dict[Annotated[str, AfterValidator(partial(_checked_id, "agent_id"))], AgentSection] = Field(
        default_factory=dict
    )


class DefaultsSection(Level):
    """The defaults of all workspaces, and the settings of the whole lake."""

    max_concurrency: Annotated[int, Field(ge=1, le=256)] = 16
    embedding: Embedding = Embedding()
    budget: Budget = Budget()
    retention: RetentionSection = RetentionSection()
    secrets: Secrets = Secrets()
    previews: bool = True
    receipts: Receipts = "30d"
    archive: str = ""


class ConfigurationDocument(Record):
    """The whole file."""

    defaults: DefaultsSection = DefaultsSection()
    workspaces: dict[Annotated[str, AfterValidator(partial(_checked_id, "workspace_id"))], WorkspaceSection] = Field(
        default_factory=dict
    )


def explicit_keys(section: Record) -> dict[str, object]:
    """Return the keys that a section sets explicitly."""
    return {name: getattr(section, name) for name in type(section).model_fields if name in section.model_fields_set}
