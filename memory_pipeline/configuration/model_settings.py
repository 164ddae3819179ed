"""How a model is reached, what it is asked for and what it may cost: the resolved settings that models work with."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from memory_pipeline.configuration import validators

#: The model name that stands for rules, hashes and arithmetic instead of a model.
DETERMINISTIC = validators.DETERMINISTIC
#: The provider whose models run in this process.
LOCAL = validators.LOCAL

#: What stands in braces in instructions for a summary, and is filled in for each.
SUMMARY_PLACEHOLDERS = ("grain", "period", "first_day", "last_day", "length", "agent")
#: The same for the extraction of facts, which knows neither a grain nor a length.
EXTRACTION_PLACEHOLDERS = ("first_day", "last_day", "agent")


class Record(BaseModel):
    """A record of settings that cannot change and has no unknown keys.

    It takes values as they are: neither ``true`` nor ``"1"`` is a number. Its errors do not show values, which could be
    keys.

    Attributes:
        elsewhere: what to tell whoever gives it a key that it does not have.
    """

    elsewhere: ClassVar[str] = ""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _take_nothing_for_empty(cls, value: object) -> object:
        """YAML reads a key with nothing under it, or with comments only, as null."""
        return {} if value is None else value


class Price(Record):
    """US dollars for a million tokens, where LiteLLM's price list does not know the model or is wrong for it."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)] = 0.0


class Endpoint(Record):
    """A model behind LiteLLM.

    Attributes:
        model: LiteLLM's ``provider/model``, or ``deterministic``.
        api_base: address of the server, where it is not the provider's own.
        api_key: where the key is found, never the key: ``env:NAME`` or ``file:/path``. Without it LiteLLM takes the
            provider's usual variable, such as OPENAI_API_KEY; but a server at an `api_base` of an ``openai/`` model is
            sent no key that is not named here.
        timeout_seconds: longest wait for one request.
        attempts: how often a request is tried in all.
        backoff_seconds: wait before the second try; doubled before each further one, with jitter.
        price: overrides LiteLLM's price list.
        parameters: passed to LiteLLM as they are, such as ``api_version`` or ``reasoning_effort``; nothing that could
            hold a key, and nothing that has a name of its own here.
    """

    model: Annotated[str, Field(description=validators.MODEL_FORM)] = DETERMINISTIC
    api_base: Annotated[str | None, Field(description=validators.API_BASE_FORM)] = None
    api_key: Annotated[str | None, Field(description=validators.API_KEY_FORM)] = None
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    attempts: Annotated[int, Field(ge=1, le=20)] = 4
    backoff_seconds: Annotated[float, Field(ge=0, le=60)] = 0.5
    price: Annotated[Price | None, Field(description="a mapping with input and output, dollars for 1M tokens")] = None
    parameters: Annotated[dict[str, Any], Field(description=validators.PARAMETERS_FORM)] = Field(default_factory=dict)

    @property
    def is_deterministic(self) -> bool:
        """Tell whether no model is called at all."""
        return self.model == DETERMINISTIC

    @property
    def provider(self) -> str:
        """Who serves the model: LiteLLM's name, the part before the first slash."""
        return self.model.partition("/")[0]

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return validators.check_model(model)

    @field_validator("api_key")
    @classmethod
    def _check_api_key(cls, reference: str | None) -> str | None:
        return reference if reference is None else validators.check_api_key(reference)

    @field_validator("api_base")
    @classmethod
    def _check_api_base(cls, address: str | None) -> str | None:
        return address if address is None else validators.check_api_base(address)

    @field_validator("parameters")
    @classmethod
    def _check_parameters(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        return validators.check_parameters(parameters)


class TextModelSettings(Endpoint):
    """A model that writes text, whatever it is asked to write.

    Attributes:
        temperature: 0 for the least varied answers; None leaves it to the provider.
        context_tokens: how many tokens a question and its answer may have together; longer input is cut into chunks.
        max_output_tokens: longest answer.
        answer_format: how JSON is asked for: by its schema, as any JSON object, or in words alone.
    """

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0
    context_tokens: Annotated[int, Field(ge=2_000)] = 32_000
    max_output_tokens: Annotated[int, Field(ge=256)] = 4_000
    answer_format: Literal["json_schema", "json_object", "text"] = "json_schema"

    @field_validator("model")
    @classmethod
    def _check_that_it_writes(cls, model: str) -> str:
        if model.startswith(f"{LOCAL}/"):
            raise ValueError(
                f"{validators.described(model)} is not accepted; {LOCAL} makes vectors and writes no text; "
                f"expected {validators.MODEL_FORM}"
            )
        return model


class Completion(TextModelSettings):
    """A model that writes text, and what it is asked to write.

    Attributes:
        prompt: instructions that take the place of the built-in ones; None for these. Of its placeholders in braces
            each class knows its own; a brace that is meant as such is written twice.
    """

    placeholders: ClassVar[tuple[str, ...]] = SUMMARY_PLACEHOLDERS

    prompt: Annotated[str | None, Field(description="a text, or null for the built-in instructions")] = None

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, prompt: str | None) -> str | None:
        return prompt if prompt is None else validators.check_prompt(prompt, cls.placeholders)


class ExtractionSettings(Completion):
    """What finds facts in conversations.

    Attributes:
        known_facts: how many present facts of the agent a question shows, so that they are updated rather than
            repeated. Hours of one agent then follow one another; with 0 they are asked at once.
    """

    placeholders: ClassVar[tuple[str, ...]] = EXTRACTION_PLACEHOLDERS

    known_facts: Annotated[int, Field(ge=0, le=200)] = 20


class Summarization(Completion):
    """What summarizes periods.

    Attributes:
        length: characters that a summary may have; None for the grain's default.
    """

    length: Annotated[int, Field(ge=200, le=100_000)] | None = None


class Injection(TextModelSettings):
    """What of an agent's memory is put before its model with a prompt, and what helps to find it.

    Attributes:
        enabled: whether anything is.
        max_results: how many things at most.
        max_tokens: how long they may be together; not the length of a model's answer, which is `max_output_tokens`.
        rerank: what puts into order what was found: nothing, so that it stays as the search has it; rules; or the
            model of this section.
        entities: what finds the people, places and things that a prompt asks about: rules, or that model.
    """

    # Somebody waits for the answer.
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    attempts: Annotated[int, Field(ge=1, le=20)] = 1
    enabled: bool = True
    max_results: Annotated[int, Field(ge=1, le=50)] = 5
    max_tokens: Annotated[int, Field(ge=50, le=1_000_000)] = 1_000
    rerank: Literal["none", "deterministic", "model"] = "deterministic"
    entities: Literal["deterministic", "model"] = "deterministic"

    @property
    def for_model(self) -> tuple[str, ...]:
        """The keys that ask for a model."""
        return tuple(name for name in ("rerank", "entities") if getattr(self, name) == "model")


class Embedding(Endpoint):
    """What turns texts into vectors; one for a whole lake, since vectors of two models cannot be compared.

    Attributes:
        model: beside LiteLLM's ``provider/model``, ``fastembed/NAME`` for a model that runs in this process.
        dimension: length of its vectors; needed for every model but the deterministic one.
        batch_size: most texts of one request.
        context_tokens: how many tokens of a text it takes; longer ones are embedded by their beginning.
    """

    dimension: Annotated[int, Field(ge=8, le=16_384)] | None = None
    batch_size: Annotated[int, Field(ge=1, le=2_048)] = 64
    context_tokens: Annotated[int, Field(ge=100)] = 8_000

    @property
    def is_local(self) -> bool:
        """Tell whether the model runs in this process: no key, no address, no cost."""
        return self.provider == LOCAL


class Budget(Record):
    """What a workspace may spend in a calendar month (UTC). At least one limit is given.

    Attributes:
        usd_per_month, tokens_per_month: the limits; nothing is sent that is expected to go beyond.
        when_spent: ``fall_back`` makes memory with the deterministic models, ``wait`` leaves it for later. Both are
            made good by a run in another month, or with a greater budget.
    """

    usd_per_month: Annotated[float, Field(ge=0)] | None = None
    tokens_per_month: Annotated[int, Field(ge=0)] | None = None
    when_spent: Literal["fall_back", "wait"] = "fall_back"
