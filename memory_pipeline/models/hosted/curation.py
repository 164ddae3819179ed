"""Upkeep of durable memories by a model: it puts two contents into one, and says what is stale.

Agents whose configuration asks for no model are kept by rules.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

from memory_pipeline.configuration.model_settings import Completion, TextModelSettings
from memory_pipeline.domain.memories.deduplication import figures
from memory_pipeline.domain.memories.record import shortened
from memory_pipeline.domain.model_calls import Purpose, Trouble, Use, count_tokens
from memory_pipeline.errors import ModelError
from memory_pipeline.models.deterministic import RuleCurator
from memory_pipeline.models.hosted import prompts
from memory_pipeline.models.hosted.answer_schemas import MergeAnswer, StaleAnswer, read_merge, read_stale, schema_of
from memory_pipeline.models.hosted.prompts import Line, chunks_of, room_for
from memory_pipeline.models.hosted.transport.requests import InvalidAnswerError, LlmRequest, identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from pydantic import BaseModel

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

_Value = TypeVar("_Value")

#: A merged content may be so many times as long as the two together.
_TOLERANCE = 1.5
#: Of a content so many characters are shown to tell whether it is stale.
_SHOWN = 600


class HostedCurator:
    """Helps the upkeep with the model of `completion`; a :class:`memory_pipeline.domain.memories.draft.Curator`.

    Args:
        executor: asks the model.
        timezone: the zone of the lake's days.
    """

    def __init__(self, executor: LlmExecutor, timezone: str) -> None:
        self._executor = executor
        self._zone = ZoneInfo(timezone)
        self._rules = RuleCurator()

    def name(self, scope: Scope) -> str:
        """Return the model and the prompts that help an agent's upkeep, or the rules that do."""
        if not self.confirms(scope):
            return self._rules.name(scope)
        model = identity_of(self._executor.configuration.curation(scope))
        return f"{model} ({prompts.MERGE_VERSION}, {prompts.STALENESS_VERSION})"

    def confirms(self, scope: Scope) -> bool:
        """Tell whether the agent's configuration asks for a model."""
        return not self._executor.configuration.curation(scope).is_deterministic

    def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
        """Return one content that says all that two contents say.

        Raises:
            ModelError: the model did not help, or the two are too long for it.
        """
        if not self.confirms(scope):
            return self._rules.merge(scope, newer, older, day)
        asking = _Asking(self._executor, scope, day, "merge", prompts.MERGE_VERSION, prompts.MERGE, {}, MergeAnswer)
        tag = prompts.tag_for(newer, older)
        text = f"The newer one:\n<{tag}>\n{newer}\n</{tag}>\n\nThe older one:\n<{tag}>\n{older}\n</{tag}>"
        if count_tokens(text) > asking.room:
            raise ModelError(Trouble.TOO_LONG, f"two memories are too long for {asking.model.model}")
        return asking.ask(text, tag, (), partial(_read_merge, newer, older))

    def stale(self, scope: Scope, memories: Sequence[DurableMemory], at: datetime, day: Period) -> Mapping[str, str]:
        """Return those that a model finds stale, each with its reason; one question is asked, if they fit into one.

        Raises:
            ModelError: the model did not help with some of them.
        """
        if not self.confirms(scope):
            return self._rules.stale(scope, memories, at, day)
        words = {"today": day.first_day}
        version, instructions = prompts.STALENESS_VERSION, prompts.STALENESS
        asking = _Asking(self._executor, scope, day, "staleness", version, instructions, words, StaleAnswer)
        lines = [
            Line(number, f"[{number}] {memory.kind}, {self._day(memory)}:", shortened(memory.content, _SHOWN))
            for number, memory in enumerate(memories, start=1)
        ]
        chunks = chunks_of(lines, asking.room)

        def ask(text: str, numbers: tuple[int, ...]) -> Mapping[int, str] | ModelError:
            tag = prompts.tag_for(text)
            try:
                said = asking.ask(f"<{tag}>\n{text}\n</{tag}>", tag, numbers, read_stale)
            except ModelError as error:  # raised in a task, it would stop what others ask at the same time
                return error
            shown = set(numbers)
            return {number: reason for number, reason in said.items() if number in shown}  # others, it invented

        found: dict[int, str] = {}
        for answer in self._executor.gather([partial(ask, chunk.text, chunk.numbers) for chunk in chunks]):
            if isinstance(answer, ModelError):
                raise answer
            found |= answer
        return {memories[number - 1].id: reason for number, reason in found.items()}

    def _day(self, memory: DurableMemory) -> str:
        return f"{memory.updated_at.astimezone(self._zone):%Y-%m-%d}"


class _Asking:
    """One kind of question about what somebody keeps.

    Attributes:
        model: the model that is asked.
        room: how many tokens of input a question has room for.
    """

    def __init__(
        self,
        executor: LlmExecutor,
        scope: Scope,
        day: Period,
        name: str,
        version: str,
        instructions: str,
        values: Mapping[str, object],
        answer: type[BaseModel],
    ) -> None:
        self._executor = executor
        self._use = Use(scope, day)
        self._name = name
        self._version = version
        self._instructions = instructions
        self._values = values
        self._schema = schema_of(answer)
        settings = executor.configuration.curation(scope)
        # A completion without instructions of its own: these are the built-in ones.
        self.model = Completion.model_validate({key: getattr(settings, key) for key in TextModelSettings.model_fields})
        self.room = room_for(self.model, self._system("data-000000000000"))

    def ask(self, text: str, tag: str, numbers: tuple[int, ...], read: Callable[[str], _Value]) -> _Value:
        """Return what the model says of a text that holds data between tags; it is remembered.

        Raises:
            ModelError: the model did not help.
        """
        request = LlmRequest(
            use=self._use,
            purpose=Purpose.UPKEEP,
            endpoint=self.model,
            prompt_version=self._version,
            system=self._system(tag),
            user=text,
            schema=self._schema,
            name=self._name,
            numbers=numbers,
        )
        try:
            return self._executor.complete(request, read).value
        except ModelError as error:
            self._executor.tell(error)
            raise

    def _system(self, tag: str) -> str:
        return prompts.framed(self._instructions, self._values, tag, self._schema)


def _read_merge(newer: str, older: str, text: str) -> str:
    """Return the content of an answer, if it has all figures of the two, no others, and is not much longer.

    Raises:
        InvalidAnswerError: it does not pass.
    """
    content = read_merge(text)
    wanted, said = figures(newer) | figures(older), figures(content)
    if wanted != said:
        lost, new = ", ".join(sorted(wanted - said)[:5]), ", ".join(sorted(said - wanted)[:5])
        problem = f"it leaves out {lost}" if lost else f"neither text says {new}"
        raise InvalidAnswerError(f"{problem}; numbers and dates are kept as they are given")
    longest = int((len(newer) + len(older)) * _TOLERANCE)
    if len(content) > longest:
        raise InvalidAnswerError(f"it has {len(content):,} characters; both texts together have less: be briefer")
    return content
