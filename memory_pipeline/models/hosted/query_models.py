"""The questions of whoever reads memory.

What a prompt asks about; in which order what was found is of use; which durable memories are worth reading; and what
else a conversation may need to know.

Somebody waits for the answer, so there is an end to it: after `timeout_seconds` times `attempts` whoever asks goes on
without, and after the request that is under way no other is sent. What is asked is not remembered, and counts towards
no budget.
"""

from __future__ import annotations

import threading
from concurrent.futures import wait
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from memory_pipeline.configuration.model_settings import Completion, TextModelSettings
from memory_pipeline.domain.model_calls import BYTES_PER_TOKEN, Purpose, Trouble, Use, count_tokens
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.errors import ModelError
from memory_pipeline.models.hosted import prompts
from memory_pipeline.models.hosted.answer_schemas import (
    MOST_NAMES,
    ChosenAnswer,
    NamesAnswer,
    OrderAnswer,
    QueriesAnswer,
    read_chosen,
    read_names,
    read_order,
    read_queries,
    schema_of,
)
from memory_pipeline.models.hosted.prompts import room_for
from memory_pipeline.models.hosted.transport import litellm_client
from memory_pipeline.models.hosted.transport.requests import LlmRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic import BaseModel

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

_Value = TypeVar("_Value")

#: Of the room of a question that puts lines into order, the prompt takes so much at most …
_PROMPT_SHARE = 0.3
#: … and there are no more lines than can have so many tokens each.
_SHORTEST_LINE = 24
#: Of the room of a question about a conversation, a message takes so much at most.
_MESSAGE_SHARE = 0.25
#: Tokens that a number takes in an answer, at most.
_TOKENS_PER_NUMBER = 4
#: Stands where something was left out.
_GAP = " … "


class HostedEntityFinder:
    """Finds what a prompt asks about, with the model of `injection`; an `EntityFinder` of the domain's ports.

    Args:
        executor: asks the model; one without a store.
        scope: whose memory is read.
    """

    def __init__(self, executor: LlmExecutor, scope: Scope) -> None:
        self._reading = _QueryModel(
            executor, scope, "entities", prompts.ENTITIES_VERSION, prompts.ENTITIES, {"most": MOST_NAMES}, NamesAnswer
        )

    def find(self, prompt: str) -> list[str]:
        """Return the names of people, places and things that a prompt asks about, at most 20; of a blank one none.

        Of a prompt that is too long for the model, it reads the beginning and the end.

        Raises:
            ModelError: the model did not help.
        """
        text = _clean(prompt).strip()
        if not text:
            return []
        return self._reading.ask(_ends(text, self._reading.room), (text,), read_names)


class HostedReranker:
    """Puts what was found into order, with the model of `injection`; a `Reranker` of the domain's ports.

    Args:
        executor: asks the model; one without a store.
        scope: whose memory is read.
    """

    def __init__(self, executor: LlmExecutor, scope: Scope) -> None:
        self._reading = _QueryModel(executor, scope, "rerank", prompts.RERANK_VERSION, prompts.RERANK, {}, OrderAnswer)

    def order(self, prompt: str, texts: Sequence[str]) -> list[int]:
        """Return the places of `texts`, the most useful first; all of them, whatever the model says.

        Texts that are too long for the model are shown by their beginnings; of more texts than it can be shown, the
        last ones stay last. Nothing is asked where there is nothing to be put into order, or nothing to do it by.

        Raises:
            ModelError: the model did not help.
        """
        wanted = _line(prompt)
        if len(texts) < 2 or not wanted:
            return list(range(len(texts)))
        reading = self._reading
        wanted = _ends(wanted, int(reading.room * _PROMPT_SHARE))
        room = reading.room - count_tokens(wanted)
        shown = min(len(texts), room // _SHORTEST_LINE, reading.model.max_output_tokens // _TOKENS_PER_NUMBER)
        lines = _numbered([_line(text) for text in texts[:shown]], room)
        said = reading.ask(f"The prompt: {wanted}\n\n{lines}", (wanted, lines), read_order)
        places = list(dict.fromkeys(number - 1 for number in said if 1 <= number <= shown))
        chosen = set(places)
        return [*places, *(place for place in range(len(texts)) if place not in chosen)]


class HostedSelector:
    """Chooses durable memories by their headers, with the model of `injection`; a `MemorySelector` of the ports.

    Args:
        executor: asks the model; one without a store.
        scope: whose memory is read.
    """

    def __init__(self, executor: LlmExecutor, scope: Scope) -> None:
        self._executor = executor
        self._scope = scope

    def select(self, query: str, headers: Sequence[str], most: int) -> list[int]:
        """Return the places of `headers` that are of use for a query, the most useful first, at most so many.

        Headers that are too long for the model are shown by their beginnings, and of more than it can be shown the last
        ones are left out. Nothing is asked where there is nothing to choose from, or nothing to do it by.

        Raises:
            ModelError: the model did not help.
        """
        wanted = _line(query)
        if not headers or not wanted:
            return []
        version, text = prompts.SELECTION_VERSION, prompts.SELECTION
        reading = _QueryModel(self._executor, self._scope, "selection", version, text, {"most": most}, ChosenAnswer)
        wanted = _ends(wanted, int(reading.room * _PROMPT_SHARE))
        room = reading.room - count_tokens(wanted)
        shown = min(len(headers), room // _SHORTEST_LINE)
        lines = _numbered([_line(header) for header in headers[:shown]], room)
        said = reading.ask(f"What is asked: {wanted}\n\n{lines}", (wanted, lines), read_chosen)
        return list(dict.fromkeys(number - 1 for number in said if 1 <= number <= shown))[:most]


class HostedImaginer:
    """Imagines what a conversation may need to know, with the model of `injection`; an `Imaginer` of the ports.

    Args:
        executor: asks the model; one without a store.
        scope: whose memory is read.
    """

    def __init__(self, executor: LlmExecutor, scope: Scope) -> None:
        self._executor = executor
        self._scope = scope

    def imagine(self, messages: Sequence[str], most: int) -> list[str]:
        """Return queries to look for in memory, at most so many; none where nothing is said.

        Of messages that are too long for the model it reads the beginning and the end, and the last ones first.

        Raises:
            ModelError: the model did not help.
        """
        lines = [line for line in map(_line, messages) if line]
        if not lines:
            return []
        version, text = prompts.IMAGINING_VERSION, prompts.IMAGINING
        reading = _QueryModel(self._executor, self._scope, "imagining", version, text, {"most": most}, QueriesAnswer)
        left, shown = reading.room, list[str]()
        for line in reversed(lines):
            short = _ends(line, min(int(reading.room * _MESSAGE_SHARE), left))
            left -= count_tokens(short) + 1
            if left < 0:
                break
            shown.insert(0, short)
        said = "\n".join(shown)
        return reading.ask(said, (said,), read_queries)[:most]


class _QueryModel:
    """One kind of question about somebody's memory.

    Attributes:
        model: the model that is asked.
        room: how many tokens of input a question has room for.
    """

    def __init__(
        self,
        executor: LlmExecutor,
        scope: Scope,
        name: str,
        version: str,
        instructions: str,
        values: Mapping[str, object],
        answer: type[BaseModel],
    ) -> None:
        self._executor = executor
        self._scope = scope
        self._name = name
        self._version = version
        self._instructions = instructions
        self._values = values
        self._schema: Mapping[str, Any] = schema_of(answer)
        settings = executor.configuration.injection(scope)
        # A completion without instructions of its own: these are the built-in ones.
        self.model = Completion.model_validate({key: getattr(settings, key) for key in TextModelSettings.model_fields})
        self.room = room_for(self.model, self._system("data-000000000000"))

    def ask(self, text: str, stored: Sequence[str], read: Callable[[str], _Value]) -> _Value:
        """Return what the model says of `text`, which shows what is `stored`.

        Raises:
            ModelError: the model did not help.
        """
        tag = prompts.tag_for(*stored)
        request = LlmRequest(
            # The hour names no partition here: nothing is kept of what is asked.
            use=Use(self._scope, Calendar().hour(self._executor.clock())),
            purpose=Purpose.READING,
            endpoint=self.model,
            prompt_version=self._version,
            system=self._system(tag),
            user=f"<{tag}>\n{text}\n</{tag}>",
            schema=self._schema,
            name=self._name,
            numbers=(),
        )
        seconds = self.model.timeout_seconds * self.model.attempts
        _load(self.model)
        # An asker for this question alone, which can be stopped without those of others; whose server is down, it knows
        # from the one that it is made from.
        executor, is_over = copy(self._executor), threading.Event()
        executor._stopped = is_over

        def read_in_time(said: str) -> _Value:
            if is_over.is_set():  # nobody waits for it, nor for a correction
                raise ModelError(Trouble.TIMEOUT, f"{self.model.model} answered too late")
            return read(said)

        future = litellm_client.begun(lambda: executor.complete(request, read_in_time).value, "reader-question")
        try:
            if not wait([future], seconds).done:
                raise ModelError(Trouble.TIMEOUT, f"{self.model.model}: no answer within {seconds:g} seconds")
        finally:
            is_over.set()
        return future.result()

    def _system(self, tag: str) -> str:
        return prompts.framed(self._instructions, self._values, tag, self._schema)


def _load(model: Completion) -> None:
    """Import LiteLLM, which takes seconds, before the time begins that the model has: its price list does that."""
    litellm_client.price(model.model_copy(update={"price": None}))


def _numbered(texts: Sequence[str], room: int) -> str:
    """Return texts as numbered lines that together have at most `room` tokens, by cutting the longest."""
    headers = [f"[{number}] " for number in range(1, len(texts) + 1)]
    left = room - sum(count_tokens(header) + 1 for header in headers)
    longest = _longest([count_tokens(text) for text in texts], max(left, 0))
    return "\n".join(header + _beginning(text, longest) for header, text in zip(headers, texts, strict=True))


def _longest(lengths: Sequence[int], room: int) -> int:
    """Return how long each may be, so that all fit: what the short ones leave is for the long ones."""
    for number, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - number)
        if length > share:
            return share
        room -= length
    return max(lengths)


def _beginning(text: str, tokens: int) -> str:
    """Return as much of a text as has at most so many tokens."""
    if count_tokens(text) <= tokens:
        return text
    return _gapped(text.encode()[: max(tokens * BYTES_PER_TOKEN - len(_GAP.encode()), 0)], b"")


def _ends(text: str, tokens: int) -> str:
    """Return as much of a text as has at most so many tokens, from both ends: in one of them stands what is asked."""
    if count_tokens(text) <= tokens:
        return text
    data, half = text.encode(), (tokens * BYTES_PER_TOKEN - len(_GAP.encode())) // 2
    return _gapped(data[:half], data[-half:])


def _gapped(before: bytes, after: bytes) -> str:
    return (before.decode(errors="ignore") + _GAP + after.decode(errors="ignore")).rstrip()


def _line(text: str) -> str:
    """Return a text on one line, so that it cannot look like several."""
    return " ".join(_clean(text).split())


def _clean(text: str) -> str:
    """Return a text without halves of characters, which cannot be sent."""
    return text.encode("utf-8", "replace").decode()
