"""Send questions to models: concurrently, with retries, and within a budget.

A question of the pipeline is sent once. Its answer is stored for all processes, and a process that asks the same
question meanwhile waits for it. Questions of readers are sent each time. Every request is stored with its tokens and
cost.
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
import tenacity

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.model_calls import Kind, Purpose, Trouble, Use, count_tokens
from memory_pipeline.domain.text.secrets import Redactor
from memory_pipeline.errors import ConfigurationError, ModelError
from memory_pipeline.models.hosted.transport import litellm_client
from memory_pipeline.models.hosted.transport.budgets import Budgets, CircuitBreaker
from memory_pipeline.models.hosted.transport.call_errors import CallError
from memory_pipeline.models.hosted.transport.requests import (
    Answered,
    CutError,
    InvalidAnswerError,
    Requests,
    Sent,
    UsageShare,
    embedding_key,
    identity_of,
    shares_of,
)
from memory_pipeline.settings import resolve_secret, secrets_in_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.configuration.model_settings import CrossEncoder, Embedding
    from memory_pipeline.domain.model_calls import CallStore, Payer
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.models.hosted.transport.requests import LlmRequest

_log = logging.getLogger(__name__)

_Value = TypeVar("_Value")

#: Seconds. A server that asks for a longer Retry-After is not retried.
_LONGEST_WAIT = 120.0
#: Longest wait between two attempts in seconds, unless the server asks for more.
_LONGEST_BACKOFF = 30.0
#: First and longest seconds between checks whether another thread or process has the answer.
_FIRST_POLL, _LONGEST_POLL = 0.05, 2.0
_REPORT_EVERY = 10.0
#: Errors caused by the request or its key, not by the server.
_REQUEST_FAULTS = frozenset({Trouble.TOO_LONG, Trouble.INVALID, Trouble.REFUSED})
#: Factor on the estimate of a question's tokens for which a budget reserves.
_MARGIN = 1.25
#: Characters of a cut-off answer that a correction repeats; the context has no room for more.
_ECHO = 1_000

_CORRECTION = """That answer could not be used: {error}
Answer again, with the corrected JSON object and nothing else."""


class LlmExecutor:
    """Send questions to the configured models. Thread-safe.

    Without a `store` nothing is stored and no budget applies. `clock` returns the current time in UTC; it dates calls
    and selects the month of a budget. With `is_fresh`, completions that are stored are asked again, each once; their
    new answers replace the stored ones, which remain if the model fails.
    """

    #: Whether answers are placeholders, which need not be founded on anything.
    is_rehearsal: ClassVar[bool] = False

    def __init__(
        self,
        configuration: Configuration,
        store: CallStore | None,
        clock: Callable[[], datetime],
        *,
        is_fresh: bool = False,
    ) -> None:
        self.configuration = configuration
        self.store = store
        self.budgets = Budgets(configuration, store, clock) if store else None
        self.clock = clock
        self._is_fresh = is_fresh
        self._asked: set[str] = set()
        self._breaker = CircuitBreaker()
        self._stopped = threading.Event()
        self._keys: dict[str | None, str | None] = {None: None}
        self._secrets = secrets_in_environment()
        self._logged: set[str] = set()
        self._count_lock = threading.Lock()
        self._digest_key = token_hex()
        self._done, self._reported = 0, time.monotonic()

    def gather(self, tasks: Sequence[Callable[[], _Value]]) -> list[_Value]:
        """Run tasks concurrently, at most ``max_concurrency`` at a time. Return their results in the given order.

        If a task raises, tasks not yet started are cancelled, and the exception is raised once the running ones end.
        """
        with ThreadPoolExecutor(max(1, min(len(tasks), self.configuration.max_concurrency))) as pool:
            futures = [pool.submit(task) for task in tasks]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self._stopped.set()  # wakes the tasks that wait for a retry
                pool.shutdown(cancel_futures=True)
                self._stopped.clear()
                raise

    def complete(self, request: LlmRequest, read: Callable[[str], _Value]) -> Answered[_Value]:
        """Return the answer to a question, from the store if it was asked before.

        `read` raises InvalidAnswerError for an invalid answer. The question is then sent once more, with the error.

        Raises:
            ModelError: the model gave no valid answer, or was not asked.
        """
        requests = Requests(self.store, request.key, request.purpose, request.endpoint, request.prompt_version)
        requests.shares = [UsageShare(request.use, 1, 1.0)]
        return self._stored_or_asked(requests, read, lambda: self._ask(request, requests, read))

    def embed(self, endpoint: Embedding, texts: Sequence[str], uses: Sequence[Use]) -> NDArray[np.float32]:
        """Return the vectors of one batch, shape (len(texts), dimension), from the store if it was asked before.

        Raises:
            ModelError: the model returned no vectors, or was not asked.
        """
        requests = Requests(self.store, embedding_key(endpoint, texts), Purpose.EMBEDDING, endpoint, None)
        requests.shares = shares_of(texts, uses)

        def read(text: str) -> NDArray[np.float32]:
            return np.frombuffer(base64.b64decode(text), np.float32).reshape(len(texts), -1)

        return self._stored_or_asked(requests, read, lambda: self._vectors(endpoint, texts, requests)).value

    def rerank(
        self, endpoint: CrossEncoder, query: str, texts: Sequence[str], use: Use
    ) -> Answered[list[tuple[int, float]]]:
        """Return positions of texts, each at most once, with their scores for a query; higher is better.

        Raises:
            ModelError: the model returned no scores, or was not asked.
        """
        identity = digest("rerank-1", identity_of(endpoint), query, list(texts))
        requests = Requests(self.store, identity, Purpose.READING, endpoint, None, [UsageShare(use, 1, 1.0)])
        send = partial(litellm_client.rerank, endpoint, self._redactor(use.scope.workspace_id).text(query), texts)
        tokens = sum(map(count_tokens, [query, *texts]))
        with self._budgeted(_payers(use.scope), requests, 0) as reserve:
            reply, sent = self._send(requests, endpoint.api_key, partial(reserve, tokens), send)
            requests.add(sent, "ok", reply)
            requests.keep(None)
        return reply

    def known(self, key: str, period: Period, read: Callable[[str], _Value]) -> Answered[_Value] | None:
        """Return a stored answer; None if there is none, or if it fails the current checks."""
        answer = self.store.find(key, period) if self.store else None
        if answer is None:
            return None
        try:
            return Answered(read(answer.text), answer.tokens_in, answer.tokens_out, answer.cost)
        except (InvalidAnswerError, ValueError):
            return None

    def _redactor(self, workspace_id: str) -> Redactor:
        """Return what removes secrets from requests and answers. Stored texts have none: the prompts of readers may."""
        settings = self.configuration.secrets(workspace_id)
        return Redactor(lambda: self._digest_key, settings.redact != "off", settings.formats)

    def waits(self, error: ModelError, scope: Scope) -> bool:
        """Return whether failed work is postponed, because the budget is spent and has ``when_spent: wait``."""
        budgets = self.budgets
        return error.trouble == Trouble.BUDGET and budgets is not None and budgets.waits(scope.workspace_id)

    def log_failure(self, error: ModelError) -> None:
        """Log a model's failure; each distinct message once."""
        text = f"{error.trouble}: {error}"
        if text not in self._logged:
            self._logged.add(text)
            _log.warning("model call failed, %s", text)

    def _stored_or_asked(
        self, requests: Requests, read: Callable[[str], _Value], ask: Callable[[], Answered[_Value]]
    ) -> Answered[_Value]:
        """Return the stored answer, or ask under a lease, so that other processes wait for the answer."""
        store, key = self.store, requests.key
        if store is None or not requests.shares or requests.purpose is Purpose.READING:
            return ask()
        period, endpoint = requests.shares[0].use.period, requests.endpoint
        if self._is_fresh and requests.purpose is not Purpose.EMBEDDING and key not in self._asked:
            self._asked.add(key)
            try:
                return ask()
            except ModelError:
                if known := self.known(key, period, read):
                    return known
                raise
        if known := self.known(key, period, read):
            return known
        lease = timedelta(seconds=(endpoint.timeout_seconds + _LONGEST_BACKOFF) * endpoint.attempts)
        pause = _FIRST_POLL
        while not store.claim(key, lease):
            self._pause(pause)
            pause = min(pause * 1.5, _LONGEST_POLL)
            if known := self.known(key, period, read):
                return known
        try:
            return self.known(key, period, read) or ask()
        finally:
            store.release(key)
            self._report()

    def _ask(self, request: LlmRequest, requests: Requests, read: Callable[[str], _Value]) -> Answered[_Value]:
        endpoint = request.endpoint
        user = self._redactor(request.use.scope.workspace_id).text(request.user)
        messages = [{"role": "system", "content": request.system}, {"role": "user", "content": user}]
        send = partial(litellm_client.complete, endpoint, messages, request.schema, name=request.name)
        with self._budgeted(_payers(request.use.scope), requests, endpoint.max_output_tokens) as reserve:
            for is_correction in (False, True):
                tokens = sum(count_tokens(message["content"]) for message in messages)
                reply, sent = self._send(requests, endpoint.api_key, partial(reserve, tokens), send)
                # Lone surrogates can be neither stored nor sent back.
                text = self._redactor(request.use.scope.workspace_id).text(
                    reply.value.encode("utf-8", "replace").decode()
                )
                try:
                    if reply.is_cut and request.can_be_halved:
                        raise CutError(Trouble.INVALID, f"{endpoint.model}: the answer was cut off")
                    if reply.is_cut:
                        raise InvalidAnswerError("it was cut off at the longest length allowed; be briefer")
                    value = read(text)
                except InvalidAnswerError as error:
                    requests.add(sent, Trouble.INVALID, reply)
                    if is_correction:
                        raise ModelError(
                            Trouble.INVALID, f"{endpoint.model} returned no valid answer: {str(error)[:200]}"
                        ) from None
                    messages += [
                        {"role": "assistant", "content": text[:_ECHO] if reply.is_cut else text},
                        {"role": "user", "content": _CORRECTION.format(error=error)},
                    ]
                except ModelError as error:  # its caller has gone on
                    requests.add(sent, error.trouble, reply)
                    raise
                else:
                    requests.add(sent, "ok", reply)
                    return requests.answered(value, text)
        raise AssertionError  # the loop returns or raises

    def _vectors(self, endpoint: Embedding, texts: Sequence[str], requests: Requests) -> Answered[NDArray[np.float32]]:
        workspace_id = requests.shares[0].use.scope.workspace_id if requests.shares else None
        reference = self.configuration.embedding_key(workspace_id) if workspace_id else endpoint.api_key
        texts = list(map(self._redactor(workspace_id or "").text, texts))
        send = partial(litellm_client.embed, endpoint, texts)
        # A batch has texts of many users, so only the workspace limits it.
        with self._budgeted([workspace_id] if workspace_id else [], requests, 0) as reserve:
            reply, sent = self._send(requests, reference, partial(reserve, sum(map(count_tokens, texts))), send)
            requests.add(sent, "ok", reply)
            return requests.answered(reply.value, base64.b64encode(reply.value.tobytes()).decode())

    @contextmanager
    def _budgeted(self, payers: Sequence[Payer], requests: Requests, most: int) -> Iterator[Callable[[int], None]]:
        """Hold a part of each budget for a question. Yield a function that reserves for a request of n tokens.

        The calls of a question that fails are stored before the budget drops its hold on them.
        """
        budgets = self.budgets
        if budgets is None:
            yield lambda _: None
            return
        kind = Kind(requests.purpose, requests.endpoint.model, requests.prompt_version)
        with ExitStack() as stack:
            holds = [(payer, stack.enter_context(budgets.hold(payer, requests.endpoint, kind))) for payer in payers]

            def settle(tokens_in: int, tokens_out: int, cost: float | None) -> None:
                for _, hold in holds:
                    budgets.settle(hold, tokens_in, tokens_out, cost)

            def reserve(tokens: int) -> None:
                for payer, hold in holds:
                    budgets.reserve(payer, hold, int(tokens * _MARGIN), most, self._pause)

            requests.on_spent = settle
            try:
                yield reserve
            except ModelError:
                requests.keep(None)
                raise

    def _send(
        self,
        requests: Requests,
        reference: str | None,
        reserve: Callable[[], None],
        send: Callable[..., Answered[_Value]],
    ) -> tuple[Answered[_Value], Sent]:
        """Send a request; retry after transient failures.

        Each `reference` to an API key has its own circuit breaker. `requests` gets every failed attempt; the caller
        adds the success. `reserve` is called before each attempt. `send` gets the key, and the secrets to hide.
        """
        endpoint = requests.endpoint
        key, secrets = self._key(reference)
        server = f"{endpoint.model} {endpoint.api_base} {reference}"
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(endpoint.attempts),
            wait=_Wait(endpoint.backoff_seconds),
            retry=tenacity.retry_if_exception(_may_pass),
            sleep=self._pause,
            reraise=True,
        )
        try:
            for attempt in retrying:
                with attempt:
                    reserve()
                    if self._stopped.is_set():  # the caller has gone on meanwhile
                        raise ModelError(Trouble.UNAVAILABLE, "the run was stopped")
                    if not self._breaker.allows(server):
                        raise ModelError(
                            Trouble.UNAVAILABLE,
                            f"{endpoint.model}: not sent, because the server's last requests all failed",
                        )
                    sent = Sent(self.clock())
                    try:
                        reply = send(api_key=key, secrets=secrets)
                    except CallError as error:
                        requests.add(sent, error.trouble, error)
                        raise
        except CallError as error:
            if error.trouble in _REQUEST_FAULTS:
                self._breaker.succeeded(server)  # it answered
            else:
                self._breaker.failed(server)
            raise ModelError(error.trouble, f"{endpoint.model}: {error}") from None
        self._breaker.succeeded(server)
        sent.stop()
        return reply, sent

    def _key(self, reference: str | None) -> tuple[str | None, tuple[str, ...]]:
        """Return the API key of a reference, and all secrets that must not appear in messages."""
        if reference not in self._keys:
            try:
                self._keys[reference] = resolve_secret(reference or "")
            except ConfigurationError as error:
                raise ModelError(Trouble.REFUSED, str(error)) from None
        # A copy: other threads may add keys meanwhile.
        secrets = {*self._secrets, *(key for key in list(self._keys.values()) if key)}
        return self._keys[reference], tuple(secrets)

    def _report(self) -> None:
        with self._count_lock:
            self._done += 1
            now = time.monotonic()
            if now - self._reported < _REPORT_EVERY:
                return
            self._reported, done = now, self._done
        _log.info("%d model questions done (answered or failed)", done)

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise ModelError(Trouble.UNAVAILABLE, "the run was stopped")


class StoredAnswers(LlmExecutor):
    """Returns stored answers and asks nobody. Rules replace all others, or, if `all_wait`, they are left out.

    `formerly` returns the scope of whose memory the one of a scope is a copy, which has its answers.
    """

    def __init__(
        self,
        configuration: Configuration,
        store: CallStore,
        clock: Callable[[], datetime],
        *,
        all_wait: bool = False,
        formerly: Callable[[Scope], Scope] = lambda scope: scope,
    ) -> None:
        super().__init__(configuration, store, clock)
        self._all_wait = all_wait
        self._formerly = formerly

    def complete(self, request: LlmRequest, read: Callable[[str], _Value]) -> Answered[_Value]:
        """Return the stored answer to a question.

        Raises:
            ModelError: there is none.
        """
        use = replace(request.use, scope=self._formerly(request.use.scope))
        return super().complete(replace(request, use=use), read)

    def waits(self, error: ModelError, scope: Scope) -> bool:
        """Return whether work without a stored answer is postponed."""
        return self._all_wait or super().waits(error, scope)

    def _stored_or_asked(
        self, requests: Requests, read: Callable[[str], _Value], ask: Callable[[], Answered[_Value]]
    ) -> Answered[_Value]:
        del ask
        known = self.known(requests.key, requests.shares[0].use.period, read) if requests.shares else None
        if known is None:
            raise ModelError(Trouble.UNAVAILABLE, f"{requests.endpoint.model}: the answer is not stored")
        return known


class _Wait:
    """Seconds before the next attempt: exponential backoff with jitter, at least the server's Retry-After."""

    def __init__(self, first: float) -> None:
        self._random = tenacity.wait_random_exponential(multiplier=first, max=_LONGEST_BACKOFF)

    def __call__(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        retry_after = error.retry_after if isinstance(error, CallError) else None
        return max(self._random(state), retry_after or 0.0)


def _payers(scope: Scope) -> list[Payer]:
    return [scope.workspace_id, scope] if scope.identity else [scope.workspace_id]


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, CallError) and error.is_transient and (error.retry_after or 0.0) <= _LONGEST_WAIT
