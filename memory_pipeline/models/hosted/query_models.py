"""Models that assist reads: entities of a prompt, reranking, selection of durable memories, and proactive queries.

A caller waits for the answer, so time is limited: after `timeout_seconds` × `attempts` they raise ModelError and send
no further request, and the read continues without the model. Answers are not stored; calls are, and count towards the
budget. The ports are in :mod:`memory_pipeline.domain.ports`.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import wait
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from memory_pipeline.domain.model_calls import (
    BYTES_PER_TOKEN,
    READ_CALLS,
    Purpose,
    ReadCall,
    Trouble,
    Use,
    count_tokens,
)
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.errors import ModelError
from memory_pipeline.models.hosted import prompts
from memory_pipeline.models.hosted.answer_schemas import (
    MOST_NAMES,
    ChosenAnswer,
    NamesAnswer,
    OrderAnswer,
    QueriesAnswer,
    read_answer,
    schema_of,
)
from memory_pipeline.models.hosted.prompts import Question
from memory_pipeline.models.hosted.transport import litellm_client
from memory_pipeline.models.hosted.transport.requests import Answered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pydantic import BaseModel

    from memory_pipeline.configuration.model_settings import Endpoint
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor
    from memory_pipeline.models.local import LocalCrossEncoder

_Value = TypeVar("_Value")
_Answer = TypeVar("_Answer", bound="BaseModel")

#: Largest share of the input's token budget for the prompt, when lines are ranked or chosen.
_PROMPT_SHARE = 0.3
#: Tokens that each line must have at least; limits the number of lines.
_SHORTEST_LINE = 24
#: Largest share of the input's token budget for one message of a conversation.
_MESSAGE_SHARE = 0.25
#: Most tokens of a line number in an answer.
_TOKENS_PER_NUMBER = 4
_GAP = " … "


class HostedEntityFinder:
    """Find the entities in a prompt with the model of `injection`; an `EntityFinder` of the ports."""

    def __init__(self, executor: LlmExecutor, scope: Scope) -> None:
        instructions = prompts.ENTITIES.format(most=MOST_NAMES)
        self._question = _QueryModel(executor, scope, "entities", prompts.ENTITIES_VERSION, instructions, NamesAnswer)

    def find(self, prompt: str) -> list[str]:
        """Return the names of people, places and things that a prompt asks about, at most 20; none for a blank prompt.

        If a prompt is too long for the model, its middle is cut out.
        """
        text = _clean(prompt).strip()
        if not text:
            return []
        return self._question.ask(_ends(text, self._question.room), (text,)).names


class HostedReranker:
    """Rerank search results with the model of `injection`; a `Reranker` of the ports."""

    def __init__(self, executor: LlmExecutor, scope: Scope) -> None:
        self._question = _QueryModel(executor, scope, "rerank", prompts.RERANK_VERSION, prompts.RERANK, OrderAnswer)

    def order(self, prompt: str, texts: Sequence[str]) -> list[int]:
        """Return all positions of `texts`, the most useful first.

        Long texts are cut to fit the model's context. Texts beyond it stay last in their given order. The model is not
        called for fewer than two texts or a blank prompt.
        """
        line = _line(prompt)
        if len(texts) < 2 or not line:
            return list(range(len(texts)))
        question = self._question
        line = _ends(line, int(question.room * _PROMPT_SHARE))
        room = question.room - count_tokens(line)
        shown = min(len(texts), room // _SHORTEST_LINE, question.model.max_output_tokens // _TOKENS_PER_NUMBER)
        lines = _numbered([_line(text) for text in texts[:shown]], room)
        answer = question.ask(f"The prompt: {line}\n\n{lines}", (line, lines))
        places = list(dict.fromkeys(number - 1 for number in answer.order if number <= shown))
        chosen = set(places)
        return [*places, *(place for place in range(len(texts)) if place not in chosen)]


class CrossEncoderReranker:
    """Rerank search results with the `cross_encoder` of `injection`; a `Reranker` of the ports.

    Without a `local` one, LiteLLM asks a rerank endpoint.
    """

    def __init__(self, executor: LlmExecutor, scope: Scope, local: LocalCrossEncoder | None = None) -> None:
        self._executor = executor
        self._scope = scope
        self._model = executor.configuration.injection(scope).cross_encoder
        self._local = local

    def order(self, prompt: str, texts: Sequence[str]) -> list[int]:
        """Return all positions of `texts`, those of the highest scores first.

        A long prompt and long texts are cut to fit the model's context. Texts without a score stay last in their given
        order. The model is not called for fewer than two texts or a blank prompt.
        """
        line = _ends(_line(prompt), int(self._model.context_tokens * _PROMPT_SHARE))
        if len(texts) < 2 or not line:
            return list(range(len(texts)))
        room = self._model.context_tokens - count_tokens(line)
        lines = [_beginning(_line(text), room) or "-" for text in texts]  # servers refuse empty texts
        if self._local is None:
            _load(self._model)
        answered = _in_time(self._model, lambda is_over: self._scores(line, lines, is_over))
        if self._local is None:
            _note(self._model, answered)
        scores = dict(answered.value)
        return sorted(range(len(texts)), key=lambda place: -scores.get(place, -math.inf))

    def _scores(self, line: str, lines: Sequence[str], is_over: threading.Event) -> Answered[list[tuple[int, float]]]:
        if self._local is not None:
            return Answered(self._local.scores(line, lines, is_over), 0, 0, 0.0)
        use = _use(self._executor, self._scope)
        return _stoppable(self._executor, is_over).rerank(self._model, line, lines, use)


class HostedSelector:
    """Choose durable memories by their headers with the model of `injection`; a `MemorySelector` of the ports."""

    def __init__(self, executor: LlmExecutor, scope: Scope) -> None:
        self._executor = executor
        self._scope = scope

    def select(self, query: str, headers: Sequence[str], most: int) -> list[int]:
        """Return the positions of the headers relevant to a query, the most useful first, at most `most`.

        Long headers are cut to fit the model's context; headers beyond it are left out. The model is not called without
        headers or for a blank query.
        """
        line = _line(query)
        if not headers or not line:
            return []
        version, text = prompts.SELECTION_VERSION, prompts.SELECTION.format(most=most)
        question = _QueryModel(self._executor, self._scope, "selection", version, text, ChosenAnswer)
        line = _ends(line, int(question.room * _PROMPT_SHARE))
        room = question.room - count_tokens(line)
        shown = min(len(headers), room // _SHORTEST_LINE)
        lines = _numbered([_line(header) for header in headers[:shown]], room)
        answer = question.ask(f"What is asked: {line}\n\n{lines}", (line, lines))
        return list(dict.fromkeys(number - 1 for number in answer.chosen if number <= shown))[:most]


class HostedImaginer:
    """Propose queries that a conversation calls for, with the model of `injection`; an `Imaginer` of the ports."""

    def __init__(self, executor: LlmExecutor, scope: Scope) -> None:
        self._executor = executor
        self._scope = scope

    def imagine(self, messages: Sequence[str], most: int) -> list[str]:
        """Return queries to search memory with, at most `most`; none without messages.

        To fit the model's context, the middle of a long message is cut out and the oldest messages are left out.
        """
        lines = [line for line in map(_line, messages) if line]
        if not lines:
            return []
        version, text = prompts.IMAGINING_VERSION, prompts.IMAGINING.format(most=most)
        question = _QueryModel(self._executor, self._scope, "imagining", version, text, QueriesAnswer)
        left, shown = question.room, list[str]()
        for line in reversed(lines):
            short = _ends(line, min(int(question.room * _MESSAGE_SHARE), left))
            left -= count_tokens(short) + 1
            if left < 0:
                break
            shown.insert(0, short)
        conversation = "\n".join(shown)
        return question.ask(conversation, (conversation,)).queries[:most]


class _QueryModel(Question, Generic[_Answer]):
    """A kind of question about an agent's memory."""

    def __init__(
        self,
        executor: LlmExecutor,
        scope: Scope,
        name: str,
        version: str,
        instructions: str,
        answer: type[_Answer],
    ) -> None:
        super().__init__(executor.configuration.injection(scope), name, version, instructions, schema_of(answer))
        self._executor = executor
        self._scope = scope
        self._answer = answer

    def ask(self, text: str, stored: Sequence[str]) -> _Answer:
        """Return the model's answer about `text`, which contains the stored texts `stored`."""
        tag = prompts.tag_for(*stored)
        request = self.request(_use(self._executor, self._scope), Purpose.READING, f"<{tag}>\n{text}\n</{tag}>")
        _load(self.model)

        def work(is_over: threading.Event) -> Answered[_Answer]:
            def read_in_time(text: str) -> _Answer:
                if is_over.is_set():  # the caller has gone on; no correction either
                    raise _late(self.model)
                return read_answer(self._answer, text)[0]

            return _stoppable(self._executor, is_over).complete(request, read_in_time)

        answered = _in_time(self.model, work)
        _note(self.model, answered)
        return answered.value


def _note(model: Endpoint, answered: Answered[Any]) -> None:
    """Count a question for the receipt of the current read."""
    if (calls := READ_CALLS.get()) is not None:
        calls.append(ReadCall(model.model, answered.tokens_in, answered.tokens_out, answered.cost))


def _use(executor: LlmExecutor, scope: Scope) -> Use:
    """Return the use of a call now. A read works on no partition, so the period is the hour of the call."""
    return Use(scope, hour_of(executor.clock()))


def _in_time(model: Endpoint, work: Callable[[threading.Event], _Value]) -> _Value:
    """Return the result of `work`, which runs on a thread of its own. Its event is set once nobody waits any more.

    Raises:
        ModelError: there is no result in the model's time.
    """
    is_over = threading.Event()
    future = litellm_client.run_in_thread(lambda: work(is_over), "reader-question")
    try:
        if not wait([future], model.timeout_seconds * model.attempts).done:
            raise _late(model)
    finally:
        is_over.set()
    return future.result()


def _late(model: Endpoint) -> ModelError:
    seconds = model.timeout_seconds * model.attempts
    return ModelError(Trouble.TIMEOUT, f"{model.model}: no answer within {seconds:g} seconds")


def _stoppable(executor: LlmExecutor, is_over: threading.Event) -> LlmExecutor:
    """Return a copy that an event stops without stopping other questions. It shares circuit breaker and budgets."""
    executor = copy(executor)
    executor._stopped = is_over
    return executor


def _load(model: Endpoint) -> None:
    """Import LiteLLM, which takes seconds, before the model's time starts. Looking up a price imports it."""
    litellm_client.price(model.model_copy(update={"price": None}))


def _numbered(texts: Sequence[str], room: int) -> str:
    """Return texts as numbered lines of at most `room` tokens in total; the longest are cut."""
    headers = [f"[{number}] " for number in range(1, len(texts) + 1)]
    left = room - sum(count_tokens(header) + 1 for header in headers)
    longest = _length_limit([count_tokens(text) for text in texts], max(left, 0))
    return "\n".join(header + _beginning(text, longest) for header, text in zip(headers, texts, strict=True))


def _length_limit(lengths: Sequence[int], room: int) -> int:
    """Return the largest limit per text with which all fit into `room`. Short texts leave their share to long ones."""
    for number, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - number)
        if length > share:
            return share
        room -= length
    return max(lengths)


def _beginning(text: str, tokens: int) -> str:
    if count_tokens(text) <= tokens:
        return text
    return _gapped(text.encode()[: max(tokens * BYTES_PER_TOKEN - len(_GAP.encode()), 0)], b"")


def _ends(text: str, tokens: int) -> str:
    """Return both ends of a text, at most `tokens` tokens together; a question is mostly at one of them."""
    if count_tokens(text) <= tokens:
        return text
    data, half = text.encode(), (tokens * BYTES_PER_TOKEN - len(_GAP.encode())) // 2
    return _gapped(data[:half], data[-half:])


def _gapped(before: bytes, after: bytes) -> str:
    return (before.decode(errors="ignore") + _GAP + after.decode(errors="ignore")).rstrip()


def _line(text: str) -> str:
    """Return a text on one line, so that it cannot look like several numbered lines."""
    return " ".join(_clean(text).split())


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
