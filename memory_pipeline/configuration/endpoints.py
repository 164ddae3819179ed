"""How a model is reached, what it is asked for and what it may cost: the resolved settings that models work with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

#: The model name that stands for rules, hashes and arithmetic instead of a model.
DETERMINISTIC = "deterministic"


class Record(BaseModel):
    """A record of settings that cannot change and has no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
            provider's usual variable, such as OPENAI_API_KEY.
        timeout_seconds: longest wait for one request.
        attempts: how often a request is tried in all.
        backoff_seconds: wait before the second try; doubled before each further one, with jitter.
        price: overrides LiteLLM's price list.
        parameters: passed to LiteLLM as they are, such as ``api_version`` or ``reasoning_effort``.
    """

    model: str = DETERMINISTIC
    api_base: str | None = None
    api_key: str | None = None
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    attempts: Annotated[int, Field(ge=1, le=20)] = 4
    backoff_seconds: Annotated[float, Field(ge=0, le=60)] = 0.5
    price: Price | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_deterministic(self) -> bool:
        """Tell whether no model is called at all."""
        return self.model == DETERMINISTIC


class Completion(Endpoint):
    """A model that writes text.

    Attributes:
        temperature: 0 for the least varied answers; None leaves it to the provider.
        context_tokens: how many tokens a question and its answer may have together; longer input is cut into chunks.
        max_output_tokens: longest answer.
        answer_format: how JSON is asked for: by its schema, as any JSON object, or in words alone.
        prompt: instructions that take the place of the built-in ones; None for these.
    """

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0
    context_tokens: Annotated[int, Field(ge=2_000)] = 32_000
    max_output_tokens: Annotated[int, Field(ge=256)] = 4_000
    answer_format: Literal["json_schema", "json_object", "text"] = "json_schema"
    prompt: str | None = None


class Extraction(Completion):
    """What finds facts in conversations.

    Attributes:
        known_facts: how many present facts of the agent a question shows, so that they are updated rather than
            repeated. Hours of one agent then follow one another; with 0 they are asked at once.
    """

    known_facts: Annotated[int, Field(ge=0, le=200)] = 20


class Summarization(Completion):
    """What summarizes periods.

    Attributes:
        length: characters that a summary may have; None for the grain's default.
    """

    length: Annotated[int, Field(ge=200, le=100_000)] | None = None


class Embedding(Endpoint):
    """What turns texts into vectors; one for a whole lake, since vectors of two models cannot be compared.

    Attributes:
        dimension: length of its vectors; needed for every model but the deterministic one.
        batch_size: most texts of one request.
    """

    dimension: Annotated[int, Field(ge=8, le=16_384)] | None = None
    batch_size: Annotated[int, Field(ge=1, le=2_048)] = 64


class Budget(Record):
    """What a workspace may spend in a calendar month (UTC). At least one limit is given.

    Attributes:
        usd_per_month, tokens_per_month: the limits; nothing is sent that could go beyond.
        when_spent: ``fall_back`` makes memory with the deterministic models, ``wait`` leaves it for later. Both are
            made good by a run in another month, or with a greater budget.
    """

    usd_per_month: Annotated[float, Field(ge=0)] | None = None
    tokens_per_month: Annotated[int, Field(ge=0)] | None = None
    when_spent: Literal["fall_back", "wait"] = "fall_back"
