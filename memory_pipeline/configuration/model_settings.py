"""Resolved settings of models: endpoint, limits, prompts and budget."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from memory_pipeline.configuration import validators
from memory_pipeline.domain.text.calibration import DEFAULT_FLOOR

#: The model name for rules, hashes and arithmetic instead of a model.
DETERMINISTIC = validators.DETERMINISTIC
LOCAL = validators.LOCAL

#: Placeholders in a custom prompt for summaries.
SUMMARY_PLACEHOLDERS = ("grain", "period", "first_day", "last_day", "length", "agent")
#: Placeholders in a custom prompt for extraction, which has neither a grain nor a length.
EXTRACTION_PLACEHOLDERS = ("first_day", "last_day", "agent")


class Record(BaseModel):
    """Immutable settings that reject unknown keys.

    Values are not coerced: neither ``true`` nor ``"1"`` is a number. Errors hide values, which could be API keys.
    `elsewhere` is a hint for the error message about an unknown key.
    """

    elsewhere: ClassVar[str] = ""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _accept_null_as_section(cls, value: object) -> object:
        """Accept null: YAML's value of a key with an empty section."""
        return {} if value is None else value

    @field_validator("*", mode="before")
    @classmethod
    def _accept_null_as_empty(cls, value: object, info: ValidationInfo) -> object:
        """Accept null for a list or a mapping that is empty by default."""
        make = cls.model_fields[info.field_name or ""].default_factory
        return value if value is not None or make is None else make()  # type: ignore[call-arg]  # list or dict


class Price(Record):
    """US dollars per million tokens and per request, for models that LiteLLM's price list lacks or has wrong."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)] = 0.0
    request: Annotated[float, Field(ge=0)] = 0.0

    def of(self, tokens_in: int, tokens_out: int = 0) -> float:
        """Return the US dollars of one request."""
        return self.request + (tokens_in * self.input + tokens_out * self.output) / 1e6


_Model = Annotated[str, AfterValidator(validators.check_model), Field(description=validators.MODEL_FORM)]
_ApiBase = Annotated[str, AfterValidator(validators.check_api_base)]
#: A reference to an API key.
ApiKey = Annotated[
    Annotated[str, AfterValidator(validators.check_api_key)] | None, Field(description=validators.API_KEY_FORM)
]
_Parameters = Annotated[
    dict[str, Any], AfterValidator(validators.check_parameters), Field(description=validators.PARAMETERS_FORM)
]


class Endpoint(Record):
    """A model behind LiteLLM.

    Attributes:
        model: LiteLLM's ``provider/model``, or ``deterministic``.
        api_base: URL of the server, if it is not the provider's own.
        api_key: a reference to the key, never the key itself: ``env:NAME`` or ``file:/path``. Without it LiteLLM reads
            the provider's usual variable, such as OPENAI_API_KEY. An ``openai/`` model with an `api_base` is only sent
            a key that is set here.
        timeout_seconds: maximum duration of one request.
        attempts: maximum number of attempts, including the first.
        backoff_seconds: wait before the second attempt; doubled before each further one, with jitter.
        price: overrides LiteLLM's price list.
        parameters: passed to LiteLLM unchanged, such as ``api_version`` or ``reasoning_effort``. Keys, addresses and
            parameters that are fields of this class are rejected.
    """

    model: _Model = DETERMINISTIC
    api_base: Annotated[_ApiBase | None, Field(description=validators.API_BASE_FORM)] = None
    api_key: ApiKey = None
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    attempts: Annotated[int, Field(ge=1, le=20)] = 4
    backoff_seconds: Annotated[float, Field(ge=0, le=60)] = 0.5
    price: Annotated[
        Price | None,
        Field(description="a mapping with input and output, dollars for 1M tokens, and request, dollars for one"),
    ] = None
    parameters: _Parameters = Field(default_factory=dict)

    @property
    def is_deterministic(self) -> bool:
        """Whether no model is called."""
        return self.model == DETERMINISTIC

    @property
    def provider(self) -> str:
        """LiteLLM's name of the provider: the part before the first slash."""
        return self.model.partition("/")[0]

    @property
    def is_local(self) -> bool:
        """Whether the model runs in this process: no key, no address, no cost."""
        return self.provider == LOCAL


class TextModelSettings(Endpoint):
    """A model that generates text.

    Attributes:
        temperature: None means the provider's default.
        context_tokens: maximum tokens of a request and its answer together; longer input is split into chunks.
        max_output_tokens: maximum tokens of an answer.
        answer_format: how JSON is requested: with its schema, as any JSON object, or only in the prompt.
    """

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0
    context_tokens: Annotated[int, Field(ge=2_000)] = 32_000
    max_output_tokens: Annotated[int, Field(ge=256)] = 4_000
    answer_format: Literal["json_schema", "json_object", "text"] = "json_schema"

    @field_validator("model")
    @classmethod
    def _check_generates_text(cls, model: str) -> str:
        if model.startswith(f"{LOCAL}/"):
            raise ValueError(
                f"{validators.described(model)} is not accepted; {LOCAL} only embeds and cannot generate text; "
                f"expected {validators.MODEL_FORM}"
            )
        return model


class Completion(TextModelSettings):
    """A model that generates text, and its instructions.

    Attributes:
        prompt: replaces the built-in instructions; None keeps them. It may use the `placeholders` of the class in
            braces; a literal brace is doubled.
    """

    placeholders: ClassVar[tuple[str, ...]] = SUMMARY_PLACEHOLDERS

    prompt: Annotated[str | None, Field(description="a text, or null for the built-in instructions")] = None

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, prompt: str | None) -> str | None:
        return prompt if prompt is None else validators.check_prompt(prompt, cls.placeholders)


class ExtractionSettings(Completion):
    """Settings of the extraction of facts from conversations.

    Attributes:
        known_facts: maximum number of current facts in a request, so that the model updates them instead of repeating
            them. The hours of an agent are then extracted in order; with 0 they are extracted in parallel.
        minimum_tokens: hours with fewer tokens of messages are asked about together, if a run reads several of one day
            and of the same users. 0 asks about each hour alone.
    """

    placeholders: ClassVar[tuple[str, ...]] = EXTRACTION_PLACEHOLDERS

    known_facts: Annotated[int, Field(ge=0, le=200)] = 20
    minimum_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 400


class Summarization(Completion):
    """Settings of the summaries of one grain.

    Attributes:
        length: maximum characters of a summary; None means the grain's default.
        minimum_tokens: a period with fewer tokens of sources is summarised by rules, not by the model.
    """

    length: Annotated[int, Field(ge=200, le=100_000)] | None = None
    minimum_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 400


class CrossEncoder(Endpoint):
    """The cross-encoder of ``rerank: cross_encoder``: a model that scores one text for one prompt.

    Attributes:
        model: a model of LiteLLM's rerank endpoint, or ``fastembed/NAME``, for a model that runs in this process.
        context_tokens: maximum tokens of the prompt and one result together; longer ones are truncated.
    """

    # Shorter than the defaults of Endpoint: a caller waits for the answer.
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    attempts: Annotated[int, Field(ge=1, le=20)] = 1
    context_tokens: Annotated[int, Field(ge=100)] = 512


class Injection(TextModelSettings):
    """Settings of the injection of memory into an agent's prompts.

    Attributes:
        enabled: whether memory is injected at all.
        max_results: maximum number of items.
        max_tokens: token budget of all items together. The limit of the model's answer is `max_output_tokens`.
        minimum_score: items of memory with a lower score, 0 to 1, are left out.
        rerank: how results are reordered: not at all, by rules, by the model of this section, or by its
            `cross_encoder`.
        entities: how the people, places and things in a prompt are found: by rules, or by the model of this section.
        cross_encoder: the model of ``rerank: cross_encoder``.
    """

    # Shorter than the defaults of Endpoint: a caller waits for the answer.
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    attempts: Annotated[int, Field(ge=1, le=20)] = 1
    enabled: bool = True
    max_results: Annotated[int, Field(ge=1, le=50)] = 5
    max_tokens: Annotated[int, Field(ge=50, le=1_000_000)] = 1_000
    minimum_score: Annotated[float, Field(ge=0, le=1)] = DEFAULT_FLOOR
    rerank: Literal["none", "deterministic", "model", "cross_encoder"] = "deterministic"
    entities: Literal["deterministic", "model"] = "deterministic"
    cross_encoder: CrossEncoder = CrossEncoder()

    @property
    def for_model(self) -> tuple[str, ...]:
        """The keys that ask for a model."""
        return tuple(name for name in ("rerank", "entities") if getattr(self, name) == "model")


class Embedding(Endpoint):
    """The embedder; one for the whole lake, since vectors of different models cannot be compared.

    Attributes:
        model: also ``fastembed/NAME``, for a model that runs in this process.
        dimension: length of the vectors; required for a hosted model.
        batch_size: maximum number of texts per request; a local model has batches of 16 unless it is set.
        context_tokens: maximum tokens of a text; longer texts are truncated.
    """

    dimension: Annotated[int, Field(ge=8, le=16_384)] | None = None
    batch_size: Annotated[int, Field(ge=1, le=2_048)] = 64
    context_tokens: Annotated[int, Field(ge=100)] = 8_000


class Budget(Record):
    """The limits of a workspace per calendar month (UTC). At least one is set.

    Attributes:
        usd_per_month, tokens_per_month: the limits; a request that is expected to exceed them is not sent.
        usd_per_user, tokens_per_user: the same for each user and each group, per month, without embeddings.
        when_spent: ``fall_back`` computes memory with the deterministic models, ``wait`` postpones it. A run in another
            month, or with a larger budget, completes both.
    """

    usd_per_month: Annotated[float, Field(ge=0)] | None = None
    tokens_per_month: Annotated[int, Field(ge=0)] | None = None
    usd_per_user: Annotated[float, Field(ge=0)] | None = None
    tokens_per_user: Annotated[int, Field(ge=0)] | None = None
    when_spent: Literal["fall_back", "wait"] = "fall_back"
