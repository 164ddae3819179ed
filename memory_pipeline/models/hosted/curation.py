"""Consolidation of durable memories by a model: merge two contents, and find contradictions and stale memories.

Agents without a configured model use the rules.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

from memory_pipeline.domain.memories.deduplication import figures
from memory_pipeline.domain.memories.record import shortened
from memory_pipeline.domain.model_calls import Purpose, Trouble, Use, count_tokens
from memory_pipeline.errors import ModelError
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline.models.hosted import prompts
from memory_pipeline.models.hosted.answer_schemas import (
    ContradictionAnswer,
    MergeAnswer,
    StaleAnswer,
    read_answer,
    schema_of,
)
from memory_pipeline.models.hosted.evidence import SourceText, SourceTexts
from memory_pipeline.models.hosted.prompts import Line, Question, chunks_of
from memory_pipeline.models.hosted.transport.requests import InvalidAnswerError, identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.models.hosted.answer_schemas import NamedLine
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor
    from memory_pipeline.models.hosted.transport.requests import LlmRequest

_Value = TypeVar("_Value")

#: Most length of a merged content, relative to the sum of both lengths.
_TOLERANCE = 1.5
#: Characters of a content shown to the model that judges memories.
_SHOWN = 600


class HostedCurator:
    """Curate with the model of `completion`; a :class:`memory_pipeline.domain.memories.draft.Curator`.

    Memories are dated in `timezone`, an IANA name.
    """

    def __init__(self, executor: LlmExecutor, timezone: str) -> None:
        self._executor = executor
        self._zone = ZoneInfo(timezone)
        self._rules = RuleCurator()

    def name(self, scope: Scope) -> str:
        """Return the model and prompt versions of an agent, or the name of the rules."""
        if not self.confirms(scope):
            return self._rules.name(scope)
        model = identity_of(self._executor.configuration.curation(scope))
        return f"{model} ({prompts.MERGE_VERSION}, {prompts.CONTRADICTIONS_VERSION}, {prompts.STALENESS_VERSION})"

    def confirms(self, scope: Scope) -> bool:
        """Return whether a model is configured for the agent."""
        return not self._executor.configuration.curation(scope).is_deterministic

    def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
        """Return one content that says everything in both.

        Raises:
            ModelError: the model gave no valid answer, or the two are too long for it.
        """
        if not self.confirms(scope):
            return self._rules.merge(scope, newer, older, day)
        settings = self._executor.configuration.curation(scope)
        question = Question(settings, "merge", prompts.MERGE_VERSION, prompts.MERGE, schema_of(MergeAnswer))
        tag = prompts.tag_for(newer, older)
        text = f"The newer one:\n<{tag}>\n{newer}\n</{tag}>\n\nThe older one:\n<{tag}>\n{older}\n</{tag}>"
        if count_tokens(text) > question.room:
            raise ModelError(
                Trouble.TOO_LONG,
                f"two memories to merge have {count_tokens(text):,} tokens; {question.model.model} has room for "
                f"{question.room:,}",
            )
        request = question.request(Use(scope, day), Purpose.CONSOLIDATION, text)
        return self._ask(request, partial(_read_merge, newer, older))

    def contradicted(
        self, scope: Scope, pairs: Sequence[tuple[DurableMemory, DurableMemory]], day: Period
    ) -> Mapping[int, str]:
        """Return the indices of the pairs that the model finds contradictory, each with its reason.

        Raises:
            ModelError: the model gave no valid answer for one of the chunks.
        """
        if not self.confirms(scope):
            return self._rules.contradicted(scope, pairs, day)
        texts = ["\n".join(f"{self._header(one)} {_shown(one)}" for one in pair) for pair in pairs]
        lines = [Line(number, f"[{number}]", text) for number, text in enumerate(texts, start=1)]
        settings = self._executor.configuration.curation(scope)
        version, text, schema = prompts.CONTRADICTIONS_VERSION, prompts.CONTRADICTIONS, schema_of(ContradictionAnswer)
        question = Question(settings, "contradictions", version, text, schema)
        found = self._named(
            question, lines, Use(scope, day), lambda given: read_answer(ContradictionAnswer, given)[0].pairs
        )
        return {number - 1: reason for number, reason in found.items()}

    def stale(self, scope: Scope, memories: Sequence[DurableMemory], at: datetime, day: Period) -> Mapping[str, str]:
        """Return the ids of the memories that the model finds stale, each with its reason.

        Raises:
            ModelError: the model gave no valid answer for one of the chunks.
        """
        if not self.confirms(scope):
            return self._rules.stale(scope, memories, at, day)
        settings = self._executor.configuration.curation(scope)
        question = Question(settings, "staleness", prompts.STALENESS_VERSION, prompts.STALENESS, schema_of(StaleAnswer))
        lines = [
            Line(number, f"[{number}] {self._header(memory)}", _shown(memory))
            for number, memory in enumerate(memories, start=1)
        ]
        found = self._named(
            question,
            lines,
            Use(scope, day),
            lambda given: read_answer(StaleAnswer, given)[0].stale,
            f"Today is {day.first_day}.\n",
        )
        return {memories[number - 1].id: reason for number, reason in found.items()}

    def _named(
        self,
        question: Question,
        lines: Sequence[Line],
        use: Use,
        read: Callable[[str], Sequence[NamedLine]],
        head: str = "",
    ) -> dict[int, str]:
        """Return the numbers of the lines that the model names, each with its reason. The lines are asked in chunks."""

        def ask(text: str, numbers: tuple[int, ...]) -> Sequence[NamedLine] | ModelError:
            request = question.request(use, Purpose.CONSOLIDATION, f"{head}{prompts.enclosed(text)}", numbers)
            try:
                found = self._ask(request, read)
            except ModelError as error:  # raised in a task, it would stop concurrent questions
                return error
            return [one for one in found if one.number in numbers]  # no invented numbers

        found: dict[int, str] = {}
        chunks = chunks_of(lines, question.room)
        for answer in self._executor.gather([partial(ask, chunk.text, chunk.numbers) for chunk in chunks]):
            if isinstance(answer, ModelError):
                raise answer
            found |= {one.number: one.reason for one in answer}
        return found

    def _ask(self, request: LlmRequest, read: Callable[[str], _Value]) -> _Value:
        """Return the model's answer, and store it."""
        try:
            return self._executor.complete(request, read).value
        except ModelError as error:
            self._executor.log_failure(error)
            raise

    def _header(self, memory: DurableMemory) -> str:
        return f"{memory.kind}, {memory.updated_at.astimezone(self._zone):%Y-%m-%d}:"


def _shown(memory: DurableMemory) -> str:
    return shortened(memory.content, _SHOWN)


def _read_merge(newer: str, older: str, text: str) -> str:
    """Return the content of an answer if it says what the texts say, with all their numbers, and is not too long."""
    content = read_answer(MergeAnswer, text)[0].content
    expected, actual = figures(newer) | figures(older), figures(content)
    if expected != actual:
        lost, new = ", ".join(sorted(expected - actual)[:5]), ", ".join(sorted(actual - expected)[:5])
        problem = f"it leaves out {lost}" if lost else f"neither text says {new}"
        raise InvalidAnswerError(f"{problem}; numbers and dates are kept as they are given")
    reason = SourceTexts([SourceText(newer), SourceText(older)]).refuse(content)
    if reason is not None:
        raise InvalidAnswerError(f"it has {reason}; write what the two texts say, in their words")
    longest = int((len(newer) + len(older)) * _TOLERANCE)
    if len(content) > longest:
        raise InvalidAnswerError(f"it has {len(content):,} characters; both texts together have less: be briefer")
    return content
