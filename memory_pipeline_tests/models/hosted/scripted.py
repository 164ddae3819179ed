"""An executor for tests without a server: it answers as the test says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from memory_pipeline.domain.model_calls import Trouble
from memory_pipeline.errors import ModelError
from memory_pipeline.models.hosted.transport.executor import LlmExecutor
from memory_pipeline.models.hosted.transport.requests import Answered, InvalidAnswerError
from memory_pipeline_tests.building import NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.models.hosted.transport.requests import LlmRequest

_Value = TypeVar("_Value")


class Scripted(LlmExecutor):
    """Answers each question with a value, or with a function of the question.

    Attributes:
        questions: the questions, in order.
    """

    def __init__(self, answer: object, configuration: Configuration) -> None:
        super().__init__(configuration, None, lambda: NOW)
        self._answer = answer
        self.questions: list[LlmRequest] = []

    def complete(self, question: LlmRequest, read: Callable[[str], _Value]) -> Answered[_Value]:
        self.questions.append(question)
        given = self._answer(question) if callable(self._answer) else self._answer
        try:
            return Answered(read(given if isinstance(given, str) else json.dumps(given)), question.tokens, 10, 0.5)
        except InvalidAnswerError as error:
            raise ModelError(Trouble.INVALID, str(error)) from None
