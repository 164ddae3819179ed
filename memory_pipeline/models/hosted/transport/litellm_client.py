"""The only door to LiteLLM: one request each, synchronously, from any number of threads.

LiteLLM speaks to a hundred providers and has opinions of its own. Here it is only asked to send one request: it does
not try again, remembers nothing, reports to nobody, prints nothing, and fetches nothing but the answer. Importing it
takes seconds, so it is imported by the first request.

Whatever goes wrong becomes a :class:`~memory_pipeline.models.hosted.transport.call_errors.CallError`, which says in one
word what the trouble is, and whether another try may help.

**How long a request takes.** LiteLLM's timeout is one for each operation on the socket, so a server that sends a byte
now and then would never exceed it; some gateways send blanks for as long as the model thinks. The shared client below
ends such an answer when the time is over. What it does not see (the look-up of a name, a head that trickles in, clients
of providers that bring their own) ends a little later: the request runs on a thread of its own, which is left behind.

**Keys.** Without a key of ours LiteLLM takes the provider's usual variable, such as OPENAI_API_KEY. It would send it to
an `api_base` of somebody else's too; so servers at an `api_base` that speak OpenAI's protocol are asked with a key that
is none, for LiteLLM insists on one and servers of one's own mostly do not. Who wants the variable sent there names it.
"""

from __future__ import annotations

import base64
import logging
import math
import os
import threading
import time
import warnings
from concurrent.futures import Future, wait
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from memory_pipeline.configuration.model_settings import DETERMINISTIC, LOCAL, Price
from memory_pipeline.domain.model_calls import Trouble, count_tokens
from memory_pipeline.models.hosted.transport.call_errors import CallError, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.configuration.model_settings import Completion, Embedding, Endpoint

_Result = TypeVar("_Result")

#: How much longer than its timeout a request may take before it is left behind; LiteLLM's own work needs some time.
_GRACE = 10.0
#: Idle connections are kept for so many seconds; each new one would cost several round trips.
_KEEP_ALIVE = 60.0
#: More threads than this at once would close and open connections.
_MOST_IDLE: Final = 128
#: Stands for a key where a server needs none.
_NO_KEY: Final = "no-key"
#: Vectors in base64 are read thirty times faster than as digits. These send them, or ignore the wish and send digits.
_SEND_BASE64: Final = frozenset({"openai", "azure", "openrouter", "hosted_vllm", "litellm_proxy"})

_lock = threading.Lock()
_is_set_up = False
#: Whether the request of this thread has left; each has a thread of its own.
_on_its_way = threading.local()


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion.

    Attributes:
        is_cut: it ends where the greatest length was reached, not where it was finished.
        cost: US dollars; None where neither the provider nor a price list tells.
    """

    text: str
    is_cut: bool
    tokens_in: int
    tokens_out: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class EmbeddingReply:
    """Embeddings: a row of unit length for each text, in the order of the texts."""

    values: NDArray[np.float32]
    tokens_in: int
    cost: float | None


def complete(
    endpoint: Completion,
    messages: Sequence[Mapping[str, str]],
    schema: Mapping[str, Any] | None,
    *,
    name: str,
    api_key: str | None,
    secrets: Collection[str],
) -> Reply:
    """Ask a model to write.

    Args:
        endpoint: the model and its settings.
        messages: what it is told, as OpenAI's chat has it.
        schema: JSON schema of the answer; None for free text.
        name: the schema's name, of letters, digits, ``_`` and ``-``.
        api_key: the key; None for the provider's variable.
        secrets: texts that no error may hold.

    Raises:
        CallError: there is no answer, or none of any use.
    """
    wishes: dict[str, Any] = {"max_tokens": endpoint.max_output_tokens}
    if endpoint.temperature is not None:
        wishes["temperature"] = endpoint.temperature
    if schema is not None and endpoint.answer_format == "json_schema":
        described = {"name": name, "schema": deepcopy(dict(schema)), "strict": False}
        wishes["response_format"] = {"type": "json_schema", "json_schema": described}
    elif schema is not None and endpoint.answer_format == "json_object":
        wishes["response_format"] = {"type": "json_object"}
    fixed = {"messages": [dict(message) for message in messages], "stream": False}
    response = _send("completion", endpoint, wishes, fixed, api_key, secrets)
    if not response.choices:
        raise CallError(Trouble.UNAVAILABLE, "the answer holds no choices", is_passing=True)
    choice = response.choices[0]
    text = choice.message.content
    tokens_in, tokens_out, cost = _spent(endpoint, response, [message["content"] for message in messages], text)
    if choice.finish_reason == "content_filter":
        trouble, message = Trouble.REFUSED, "the provider's filter kept the answer back"
    elif choice.finish_reason == "length" or (isinstance(text, str) and text.strip()):
        return Reply(text or "", choice.finish_reason == "length", tokens_in, tokens_out, cost)
    else:
        trouble, message = Trouble.INVALID, "the answer is empty; the model refused, or had nothing to say"
    raise CallError(trouble, message, is_passing=False, tokens_in=tokens_in, tokens_out=tokens_out, cost=cost)


def embed(
    endpoint: Embedding, texts: Sequence[str], *, api_key: str | None, secrets: Collection[str]
) -> EmbeddingReply:
    """Turn texts into vectors, in one request.

    Args:
        endpoint: the model and its settings.
        texts: at most as many as the server takes at once; none of them empty, which some refuse.
        api_key: the key; None for the provider's variable.
        secrets: texts that no error may hold.

    Raises:
        CallError: there are no vectors, or not those that were asked for.
    """
    if not texts:
        return EmbeddingReply(np.empty((0, endpoint.dimension or 0), np.float32), 0, 0.0)
    wishes: dict[str, Any] = {"encoding_format": "base64"} if endpoint.provider in _SEND_BASE64 else {}
    if endpoint.provider == "openai":
        # Else LiteLLM drops the parameter for all models but two of OpenAI's own.
        wishes["allowed_openai_params"] = ["dimensions"]
    response = _send("embedding", endpoint, wishes, {"input": list(texts)}, api_key, secrets)
    if not response.data:
        raise CallError(Trouble.UNAVAILABLE, "the answer holds no vectors", is_passing=True)
    tokens_in, _, cost = _spent(endpoint, response, texts, None)
    try:
        return EmbeddingReply(_unit_vectors(response.data, len(texts), endpoint.dimension), tokens_in, cost)
    except ValueError as error:
        raise CallError(Trouble.INVALID, str(error), is_passing=True, tokens_in=tokens_in, cost=cost) from None


def price(endpoint: Endpoint) -> Price | None:
    """Return what a model costs: as configured, else as LiteLLM's bundled list says, else None.

    It is the plain price of a token read and of a token written: what providers take off for input that they have seen
    before, or add for very long input, is not counted. A list price of nothing at all is taken for one that is missing.
    """
    if endpoint.price is not None or endpoint.provider in {DETERMINISTIC, LOCAL}:
        return endpoint.price
    provider, _, name = endpoint.model.partition("/")
    listed = _litellm().model_cost
    entry = listed.get(endpoint.model)
    if entry is None and (bare := listed.get(name, {})).get("litellm_provider", "").startswith(provider):
        entry = bare  # the list names some models without their provider, and calls it bedrock_converse for bedrock
    per_million = [round(1e6 * ((entry or {}).get(f"{kind}_cost_per_token") or 0.0), 9) for kind in ("input", "output")]
    return Price(input=per_million[0], output=per_million[1]) if any(per_million) else None


def _send(
    function: str,
    endpoint: Endpoint,
    wishes: Mapping[str, Any],
    fixed: Mapping[str, Any],
    api_key: str | None,
    secrets: Collection[str],
) -> Any:
    """Call a function of LiteLLM; the endpoint's parameters overrule `wishes`, and nothing overrules `fixed`."""
    litellm = _litellm()
    is_own_server = endpoint.api_base is not None and endpoint.provider == "openai"
    key = _NO_KEY if api_key is None and is_own_server else api_key
    arguments = {
        **wishes,
        **deepcopy(endpoint.parameters),  # LiteLLM writes into what it is given
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
        except Exception as error:  # noqa: BLE001  # LiteLLM raises whatever it happens upon
            failure = failure_of(
                error,
                {*secrets, api_key or ""},
                has_key=api_key is not None,
                has_left=hasattr(_on_its_way, "since"),
            )
        else:
            # What LiteLLM makes of a 422 from servers of OpenAI's protocol, after asking twice.
            failure = CallError(Trouble.REFUSED, "422: the server cannot process the request", is_passing=False)
        # Not inside the except clause: there the error would drag LiteLLM's along, with its request and key.
        raise failure

    return _within(endpoint.timeout_seconds + _GRACE, call)


def begun(work: Callable[[], _Result], name: str) -> Future[_Result]:
    """Begin to work on a thread of its own, called `name`, which does not keep the process from ending."""
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # it is the caller's
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _within(seconds: float, work: Callable[[], _Result]) -> _Result:
    """Return what `work` does; leave it behind when the time is over."""
    future = begun(work, "model-call")
    if not wait([future], seconds).done:
        raise CallError(Trouble.TIMEOUT, f"no answer within {seconds:g} seconds", is_passing=True)
    return future.result()


def _litellm() -> Any:
    """Return LiteLLM, imported and set up by whoever comes first."""
    global _is_set_up  # noqa: PLW0603  # LiteLLM is one for the whole process, and so is its set-up
    with _lock:
        if not _is_set_up:
            os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it asks GitHub for prices
            os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # else it loads .env files into the environment
        import litellm

        if not _is_set_up:
            _set_up(litellm)
            _is_set_up = True
    return litellm


def _set_up(litellm: Any) -> None:
    litellm.telemetry = False
    litellm.suppress_debug_info = True  # "Give Feedback / Get Help"
    litellm.set_verbose = False
    litellm.num_retries = 0
    litellm.DEFAULT_MAX_RETRIES = 0  # for embeddings it takes a max_retries of 0 for none given
    litellm.cache = None
    litellm.callbacks, litellm.success_callback, litellm.failure_callback = [], [], []
    litellm.drop_params = True
    litellm.anthropic_beta_headers_url = ""  # else the first request to Anthropic asks GitHub for a list that it has
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).disabled = True
    for name in ("openai", "httpx", "httpcore"):
        # They log requests in full, and addresses, in which some providers want the key.
        logging.getLogger(name).setLevel(logging.WARNING)
    # The OpenAI client does not expect the base64 that it asked for.
    warnings.filterwarnings("ignore", message=r"(?s)Pydantic serializer warnings:.*field_name='embedding'")
    _share_connections(litellm)


def _share_connections(litellm: Any) -> None:
    """Give LiteLLM one pool of connections for everything.

    Its own clients keep 20 idle connections each, so with more threads nearly every request opens a new one.
    """
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx
    from litellm.llms.custom_httpx.http_handler import get_ssl_configuration

    class Body(httpx.SyncByteStream):
        """The body of an answer, for as long as its request may take."""

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
        """Sends through the shared client what LiteLLM's own clients want to send."""

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return client.send(request, stream=True, follow_redirects=False)

    def begin(_: httpx.Request) -> None:
        _on_its_way.since = time.monotonic()

    def bound(response: httpx.Response) -> None:
        if seconds := response.request.extensions.get("timeout", {}).get("read"):
            response.stream = Body(response.stream, response.request, _on_its_way.since + seconds)

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
    endpoint: Endpoint, response: Any, asked: Sequence[str], answered: str | None
) -> tuple[int, int, float | None]:
    """Return tokens read, tokens written, and dollars: as the provider says, else by estimate and price."""
    usage = getattr(response, "usage", None)
    # Servers of one's own often count nothing; a budget in tokens would never be spent.
    tokens_in = int(getattr(usage, "prompt_tokens", None) or sum(map(count_tokens, asked)))
    tokens_out = int(getattr(usage, "completion_tokens", None) or count_tokens(answered or ""))
    cost = getattr(usage, "cost", None)
    if isinstance(cost, int | float) and not isinstance(cost, bool) and math.isfinite(cost) and cost >= 0:
        return tokens_in, tokens_out, float(cost)
    known = price(endpoint)
    return tokens_in, tokens_out, None if known is None else (tokens_in * known.input + tokens_out * known.output) / 1e6


def _unit_vectors(data: Sequence[Any], count: int, dimension: int | None) -> NDArray[np.float32]:
    """Return the vectors of an answer in the order of their `index`.

    Raises:
        ValueError: they are not what was asked for; the message says in which way.
    """
    if len(data) != count:
        raise ValueError(f"{count} vectors were asked for, and {len(data)} came back")
    rows = [item if isinstance(item, dict) else vars(item) for item in data]
    order = [number if row.get("index") is None else row["index"] for number, row in enumerate(rows)]
    if not all(isinstance(number, int) for number in order) or sorted(order) != list(range(count)):
        raise ValueError("the vectors do not say which texts they belong to")
    vectors = [_numbers(rows[place].get("embedding")) for place in np.argsort(order)]
    lengths = {len(vector) for vector in vectors}
    if lengths != {dimension or len(vectors[0])}:
        raise ValueError(f"vectors of {dimension or 'one'} numbers were expected, and there are {sorted(lengths)}")
    values = np.stack(vectors).astype(np.float64)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise ValueError("a vector holds what is no number")
    if not norms.all():
        raise ValueError("a vector has no direction, all its numbers are 0")
    return np.asarray(values / norms, np.float32)


def _numbers(vector: object) -> NDArray[np.float32]:
    if isinstance(vector, str):
        return np.frombuffer(base64.b64decode(vector, validate=True), "<f4")
    try:
        return np.asarray(vector, np.float32).reshape(-1)
    except TypeError:
        raise ValueError("a vector holds what is no number") from None
