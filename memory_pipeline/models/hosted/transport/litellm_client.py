"""The only adapter of LiteLLM: one synchronous request per call, from any number of threads.

LiteLLM's retries, cache, telemetry, logging and downloads are switched off. Importing it takes seconds, so the first
request imports it. Every failure becomes a
:class:`~memory_pipeline.models.hosted.transport.call_errors.CallError`.

**Timeouts.** LiteLLM's timeout applies to each operation on the socket, so a server that sends a byte now and then
never exceeds it; some gateways send blanks while the model thinks. The shared HTTP client below ends such an answer
when the time is over. It does not cover DNS lookups, headers that trickle in, and providers with their own clients.
Therefore each request runs on its own thread, which is abandoned a little later.

**Keys.** Without an explicit key LiteLLM uses the provider's variable, such as OPENAI_API_KEY, and would send it to any
`api_base`. So OpenAI-compatible servers at an `api_base` get a placeholder: LiteLLM requires a key, and self-hosted
servers mostly need none. To send the variable there, name it in `api_key`.
"""

from __future__ import annotations

import base64
import logging
import math
import os
import threading
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, wait
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from memory_pipeline.configuration.model_settings import DETERMINISTIC, LOCAL, Price
from memory_pipeline.domain.model_calls import Trouble, count_tokens
from memory_pipeline.errors import require
from memory_pipeline.models.hosted.transport.call_errors import CallError, failure_of
from memory_pipeline.models.hosted.transport.requests import Answered
from memory_pipeline.telemetry import add_to_step, step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.configuration.model_settings import Completion, CrossEncoder, Embedding, Endpoint

_Result = TypeVar("_Result")

#: Seconds beyond its timeout after which a request is abandoned; LiteLLM's own work needs some time.
_GRACE = 10.0
#: Seconds for which idle connections stay open; a new one costs several round trips.
_KEEP_ALIVE = 60.0
#: With more threads than this, connections are closed and reopened.
_MOST_IDLE: Final = 128
#: Placeholder key for servers that need none.
_NO_KEY: Final = "no-key"
#: Parsing base64 vectors is thirty times faster than digits. These providers send them, or ignore the parameter.
_SEND_BASE64: Final = frozenset({"openai", "azure", "openrouter", "hosted_vllm", "litellm_proxy"})

#: Providers that make answers fit a schema, if it has none of these keywords.
_ENFORCES_SCHEMAS: Final = frozenset({"openai", "azure"})
_NOT_ENFORCED: Final = frozenset(["minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "default"])

_lock = threading.Lock()
_is_set_up = False
#: Has `since` once this thread's request was sent; each request has its own thread.
_current_request = threading.local()


def complete(
    endpoint: Completion,
    messages: Sequence[Mapping[str, str]],
    schema: Mapping[str, Any] | None,
    *,
    name: str,
    api_key: str | None,
    secrets: Collection[str],
) -> Answered[str]:
    """Send a completion request with chat messages in OpenAI's format.

    Without a `schema` the answer is free text; `name` is the schema's name (letters, digits, ``_`` and ``-``). Without
    an `api_key` the provider's variable is used. `secrets` must not appear in error messages.

    Raises:
        CallError: there is no answer, or it is empty or withheld.
    """
    defaults: dict[str, Any] = {"max_tokens": endpoint.max_output_tokens}
    if endpoint.temperature is not None:
        defaults["temperature"] = endpoint.temperature
    if schema is not None and endpoint.answer_format == "json_schema":
        is_enforced = endpoint.api_base is None and endpoint.provider in _ENFORCES_SCHEMAS
        shown_schema = strict_schema(schema) if is_enforced else deepcopy(dict(schema))
        named_schema = {"name": name, "schema": shown_schema, "strict": is_enforced}
        defaults["response_format"] = {"type": "json_schema", "json_schema": named_schema}
    elif schema is not None and endpoint.answer_format == "json_object":
        defaults["response_format"] = {"type": "json_object"}
    fixed: dict[str, Any] = {"messages": [dict(message) for message in messages], "stream": False}
    if "claude" in endpoint.model and messages[0]["role"] == "system":
        # Other providers cache a common beginning unasked.
        fixed["messages"][0]["cache_control"] = {"type": "ephemeral"}
    response = _send("completion", endpoint, defaults, fixed, api_key, secrets)
    if not response.choices:
        raise CallError(Trouble.UNAVAILABLE, "the answer has no choices", is_transient=True)
    choice = response.choices[0]
    text = choice.message.content
    tokens_in, tokens_out, cost = _spent(endpoint, response, [message["content"] for message in messages], text)
    if choice.finish_reason == "content_filter":
        trouble, message = Trouble.REFUSED, "the provider's content filter withheld the answer"
    elif choice.finish_reason == "length" or (isinstance(text, str) and text.strip()):
        return Answered(text or "", tokens_in, tokens_out, cost, choice.finish_reason == "length")
    else:
        trouble, message = Trouble.INVALID, "the answer is empty; the model refused, or had nothing to say"
    raise CallError(trouble, message, is_transient=False, tokens_in=tokens_in, tokens_out=tokens_out, cost=cost)


def embed(
    endpoint: Embedding, texts: Sequence[str], *, api_key: str | None, secrets: Collection[str]
) -> Answered[NDArray[np.float32]]:
    """Return the unit vectors of texts, one row each, by one request; the provider's variable if `api_key` is None.

    `texts` must fit into one request and must not be empty, which some servers refuse.

    Raises:
        CallError: there are no vectors, or they do not match the texts.
    """
    if not texts:
        return Answered(np.empty((0, endpoint.dimension or 0), np.float32), 0, 0, 0.0)
    defaults: dict[str, Any] = {"encoding_format": "base64"} if endpoint.provider in _SEND_BASE64 else {}
    if endpoint.provider == "openai":
        # Otherwise LiteLLM drops the parameter for all but two of OpenAI's models.
        defaults["allowed_openai_params"] = ["dimensions"]
    response = _send("embedding", endpoint, defaults, {"input": list(texts)}, api_key, secrets)
    if not response.data:
        raise CallError(Trouble.UNAVAILABLE, "the answer has no vectors", is_transient=True)
    tokens_in, _, cost = _spent(endpoint, response, texts, None)
    try:
        return Answered(_unit_vectors(response.data, len(texts), endpoint.dimension), tokens_in, 0, cost)
    except ValueError as error:
        raise CallError(Trouble.INVALID, str(error), is_transient=True, tokens_in=tokens_in, cost=cost) from None


def rerank(
    endpoint: CrossEncoder, query: str, texts: Sequence[str], *, api_key: str | None, secrets: Collection[str]
) -> Answered[list[tuple[int, float]]]:
    """Return positions of texts, each at most once, with their scores for a query; higher is better.

    It is one request, with the provider's variable if `api_key` is None. Texts that the server leaves out have no
    score. Results with a wrong position or score are ignored.

    Raises:
        CallError: there is no usable result.
    """
    fixed = {"query": query, "documents": list(texts), "top_n": len(texts), "return_documents": False}
    response = _send("rerank", endpoint, {}, fixed, api_key, secrets)
    meta = response.meta or {}
    tokens: Any = (meta.get("tokens") or {}).get("input_tokens") or (meta.get("billed_units") or {}).get("total_tokens")
    tokens = int(tokens or sum(map(count_tokens, [query, *texts])))
    listed = getattr(response, "_hidden_params", {}).get("response_cost")  # some are priced by request, not by token
    known = endpoint.price if endpoint.price or listed else price(endpoint)
    cost = known.of(tokens) if known else float(listed) if listed else None
    scores: dict[int, float] = {}
    for result in response.results or ():
        if 0 <= result["index"] < len(texts) and math.isfinite(result["relevance_score"]):
            scores.setdefault(result["index"], result["relevance_score"])
    if not scores:
        message = f"the answer ranks none of the {len(texts)} texts"
        raise CallError(Trouble.INVALID, message, is_transient=True, tokens_in=tokens, cost=cost)
    return Answered(list(scores.items()), tokens, 0, cost)


def strict_schema(schema: Any) -> Any:
    """Return a schema in the form that providers enforce: no further keys, and no limits."""
    if isinstance(schema, list):
        return [strict_schema(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: strict_schema(value) for key, value in schema.items() if key not in _NOT_ENFORCED}
    return found | {"additionalProperties": False} if schema.get("type") == "object" else found


def price(endpoint: Endpoint) -> Price | None:
    """Return a model's price: the configured one, else that of LiteLLM's bundled list, else None.

    Discounts for cached input and surcharges for very long input are not counted. A list price of 0 counts as missing.
    """
    if endpoint.price is not None or endpoint.provider in {DETERMINISTIC, LOCAL}:
        return endpoint.price
    provider, _, name = endpoint.model.partition("/")
    listed = _litellm().model_cost
    entry = listed.get(endpoint.model)
    if entry is None and (bare := listed.get(name, {})).get("litellm_provider", "").startswith(provider):
        entry = bare  # some are listed without a provider; the one of bedrock is listed as bedrock_converse
    per_million = [round(1e6 * ((entry or {}).get(f"{kind}_cost_per_token") or 0.0), 9) for kind in ("input", "output")]
    request = (entry or {}).get("input_cost_per_query") or 0.0  # re-rankers are mostly priced by request
    return Price(input=per_million[0], output=per_million[1], request=request) if any([*per_million, request]) else None


def _send(
    function: str,
    endpoint: Endpoint,
    defaults: Mapping[str, Any],
    fixed: Mapping[str, Any],
    api_key: str | None,
    secrets: Collection[str],
) -> Any:
    """Call a function of LiteLLM. The endpoint's parameters override `defaults`; nothing overrides `fixed`."""
    litellm = _litellm()
    is_own_server = endpoint.api_base is not None and endpoint.provider == "openai"
    key = _NO_KEY if api_key is None and is_own_server else api_key
    arguments = {
        **defaults,
        **deepcopy(endpoint.parameters),  # LiteLLM modifies its arguments
        **fixed,
        "model": endpoint.model,
        "api_base": endpoint.api_base,
        "api_key": key,
        "timeout": float(endpoint.timeout_seconds),
        "num_retries": 0,
        "max_retries": 0,
    }

    def call() -> Any:
        try:
            response = getattr(litellm, function)(**arguments)
            if response is not None:
                return response
        except Exception as error:  # noqa: BLE001  # LiteLLM raises exceptions of any kind
            failure = failure_of(
                error,
                {*secrets, api_key or ""},
                has_key=api_key is not None,
                is_sent=hasattr(_current_request, "since"),
            )
        else:
            # For a 422 of an OpenAI-compatible server LiteLLM returns None, after two requests.
            failure = CallError(Trouble.REFUSED, "422: the server cannot process the request", is_transient=False)
        # Outside the except clause: inside, __context__ would hold LiteLLM's error with its request and key.
        raise failure

    operation = {"completion": "chat", "embedding": "embeddings"}.get(function, function)
    named = {"operation.name": operation, "request.model": endpoint.model, "provider.name": endpoint.provider}
    with step(f"{operation} {endpoint.model}", {f"gen_ai.{name}": str(value) for name, value in named.items()}):
        response = _with_deadline(endpoint.timeout_seconds + _GRACE, call)
        usage = getattr(response, "usage", None)
        add_to_step(
            {
                f"gen_ai.usage.{name}_tokens": count
                for name, of in (("input", "prompt_tokens"), ("output", "completion_tokens"))
                if isinstance(count := getattr(usage, of, None), int)
            }
        )
        return response


def run_in_thread(work: Callable[[], _Result], name: str) -> Future[_Result]:
    """Run `work` on a new daemon thread called `name`."""
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised in the caller by Future.result
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _with_deadline(seconds: float, work: Callable[[], _Result]) -> _Result:
    future = run_in_thread(work, "model-call")
    if not wait([future], seconds).done:
        raise CallError(Trouble.TIMEOUT, f"no answer within {seconds:g} seconds", is_transient=True)
    return future.result()


def _litellm() -> Any:
    global _is_set_up  # noqa: PLW0603  # LiteLLM's settings are global to the process
    with _lock:
        if not _is_set_up:
            os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise its import downloads prices from GitHub
            os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # otherwise it loads .env files into the environment
        require("models", "litellm")
        import litellm

        if not _is_set_up:
            _set_up(litellm)
            _is_set_up = True
    return litellm


def _set_up(litellm: Any) -> None:
    litellm.telemetry = False
    litellm.suppress_debug_info = True  # the lines "Give Feedback / Get Help"
    litellm.set_verbose = False
    litellm.num_retries = 0
    litellm.DEFAULT_MAX_RETRIES = 0  # embeddings ignore the argument max_retries=0
    litellm.cache = None
    litellm.callbacks, litellm.success_callback, litellm.failure_callback = [], [], []
    litellm.drop_params = True
    litellm.anthropic_beta_headers_url = ""  # otherwise the first Anthropic request downloads a bundled list
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).disabled = True
    for name in ("openai", "httpx", "httpcore"):
        # They log full requests and URLs, which hold the key for some providers.
        logging.getLogger(name).setLevel(logging.WARNING)
    # The OpenAI client does not expect the base64 that it requested.
    warnings.filterwarnings("ignore", message=r"(?s)Pydantic serializer warnings:.*field_name='embedding'")
    _share_connections(litellm)


def _share_connections(litellm: Any) -> None:
    """Give LiteLLM one connection pool for all providers.

    Its own clients keep only 20 idle connections each, so with more threads nearly every request opens a new one.
    """
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx
    from litellm.llms.custom_httpx.http_handler import get_ssl_configuration

    class Body(httpx.SyncByteStream):
        """A response body that raises a timeout at its deadline."""

        def __init__(self, stream: Any, request: httpx.Request, deadline: float) -> None:
            self._stream = stream
            self._request = request
            self._deadline = deadline

        def __iter__(self) -> Iterator[bytes]:
            for part in self._stream:
                if time.monotonic() > self._deadline:
                    raise httpx.ReadTimeout("the answer took too long", request=self._request)
                yield part

        def close(self) -> None:
            self._stream.close()

    class Shared(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return client.send(request, stream=True, follow_redirects=False)

    def begin(_: httpx.Request) -> None:
        _current_request.since = time.monotonic()

    def bound(response: httpx.Response) -> None:
        if seconds := response.request.extensions.get("timeout", {}).get("read"):
            response.stream = Body(response.stream, response.request, _current_request.since + seconds)

    client = httpx.Client(
        verify=get_ssl_configuration(),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=_MOST_IDLE, keepalive_expiry=_KEEP_ALIVE),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # workspaces share the client
        follow_redirects=True,
        event_hooks={"request": [begin], "response": [bound]},
    )
    litellm.client_session = client  # for providers that go through the OpenAI client
    litellm.sync_transport = Shared()  # for the others


def _spent(
    endpoint: Endpoint, response: Any, inputs: Sequence[str], answer: str | None
) -> tuple[int, int, float | None]:
    """Return tokens in, tokens out, and US dollars: as the provider reports, else by estimate and price."""
    usage = getattr(response, "usage", None)
    # Self-hosted servers often report no usage. Without estimates a budget in tokens would never be spent.
    tokens_in = int(getattr(usage, "prompt_tokens", None) or sum(map(count_tokens, inputs)))
    tokens_out = int(getattr(usage, "completion_tokens", None) or count_tokens(answer or ""))
    cost = getattr(usage, "cost", None)
    if isinstance(cost, int | float) and not isinstance(cost, bool) and math.isfinite(cost) and cost >= 0:
        return tokens_in, tokens_out, float(cost)
    known = price(endpoint)
    return tokens_in, tokens_out, None if known is None else known.of(tokens_in, tokens_out)


def _unit_vectors(data: Sequence[Any], count: int, dimension: int | None) -> NDArray[np.float32]:
    """Return the unit vectors of an answer in the order of their `index`. Raise ValueError if one is not usable."""
    if len(data) != count:
        raise ValueError(f"expected {count} vectors; the server returned {len(data)}")
    rows = [item if isinstance(item, dict) else vars(item) for item in data]
    order = [number if row.get("index") is None else row["index"] for number, row in enumerate(rows)]
    if not all(isinstance(number, int) for number in order) or sorted(order) != list(range(count)):
        raise ValueError(f"the vectors are not numbered from 0 to {count - 1}, each number once")
    vectors = [_numbers(rows[place].get("embedding")) for place in np.argsort(order)]
    lengths = {len(vector) for vector in vectors}
    if lengths != {dimension or len(vectors[0])}:
        expected = f"of {dimension} numbers" if dimension else "of the same length"
        raise ValueError(f"expected vectors {expected}; the server returned lengths {sorted(lengths)}")
    values = np.stack(vectors).astype(np.float64)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise ValueError("a vector has values that are not finite numbers")
    if not norms.all():
        raise ValueError("a vector has only zeros")
    return np.asarray(values / norms, np.float32)


def _numbers(vector: object) -> NDArray[np.float32]:
    if isinstance(vector, str):
        return np.frombuffer(base64.b64decode(vector, validate=True), "<f4")
    try:
        return np.asarray(vector, np.float32).reshape(-1)
    except TypeError:
        raise ValueError("a vector has values that are not numbers") from None
