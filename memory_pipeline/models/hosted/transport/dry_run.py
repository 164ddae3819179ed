"""Counts what models would be asked, and asks none: the same questions, answered by stand-ins."""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.model_calls import Purpose, Usage, Use, count_tokens
from memory_pipeline.models.hosted.transport import litellm_client
from memory_pipeline.models.hosted.transport.executor import LlmExecutor
from memory_pipeline.models.hosted.transport.requests import Answered, embedding_key, shares_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.configuration.model_settings import Embedding, Endpoint
    from memory_pipeline.domain.periods import Grain
    from memory_pipeline.models.hosted.transport.requests import LlmRequest

_Value = TypeVar("_Value")

#: How long the points of a stand-in are, in characters; roughly those of a sentence that says something.
_POINT = 120
#: Facts that a model finds for each message that it is shown.
_FACTS_PER_MESSAGE = 0.7
#: Stored text, as it stands in a question.
_DATA = re.compile(r"<(data-[0-9a-f]+)>\n(.*?)\n</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Expected:
    """For what, for which workspace, and by which model calls are expected."""

    grain: Grain
    purpose: Purpose
    workspace_id: str
    model: str

    @property
    def order(self) -> tuple[object, ...]:
        """Sorts from fine to coarse."""
        return self.grain.rank, self.purpose, self.workspace_id, self.model


class DryRunExecutor(LlmExecutor):
    """An asker that answers what is remembered, counts the rest, and sends nothing.

    The number of questions is exact where it does not depend on how long answers are. Tokens and cost are estimates.
    """

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]  # as the base takes them
        self.expected: dict[Expected, Usage] = defaultdict(Usage)
        self._counted: set[str] = set()
        self._lock = threading.Lock()

    def complete(self, request: LlmRequest, read: Callable[[str], _Value]) -> Answered[_Value]:
        """Return the remembered answer, or count the question and return a stand-in."""
        if known := self.known(request.key, request.use.period, read):
            return known
        text = _STAND_INS.get(request.purpose, _summary)(request)
        tokens_out = count_tokens(text)
        self._count(request.key, [(request.use, 1.0)], request.purpose, request.endpoint, request.tokens, tokens_out)
        return Answered(read(text), request.tokens, tokens_out, None)

    def embed(self, endpoint: Embedding, texts: Sequence[str], uses: Sequence[Use]) -> NDArray[np.float32]:
        """Count the batch, unless a run that was killed has had it answered; no vectors come back."""
        key, tokens = embedding_key(endpoint, texts), sum(map(count_tokens, texts))
        shares = [(share.use, share.weight) for share in shares_of(texts, uses)]
        if not (shares and self.store and self.store.find(key, shares[0][0].period)):
            self._count(key, shares, Purpose.EMBEDDING, endpoint, tokens, 0)
        return np.full((len(texts), endpoint.dimension or 0), np.nan, np.float32)

    def _count(
        self,
        key: str,
        shares: Sequence[tuple[Use, float]],
        purpose: Purpose,
        endpoint: Endpoint,
        tokens_in: int,
        tokens_out: int,
    ) -> None:
        price = litellm_client.price(endpoint)
        with self._lock:
            if key in self._counted:
                return
            self._counted.add(key)
            for number, (use, weight) in enumerate(shares):
                spent_in, spent_out = round(tokens_in * weight), round(tokens_out * weight)
                cost = None if price is None else (spent_in * price.input + spent_out * price.output) / 1e6
                # A request that serves several is counted once, for the first of them.
                usage = Usage(int(number == 0), spent_in, spent_out, cost, int(number == 0 and price is None))
                self.expected[Expected(use.period.grain, purpose, use.scope.workspace_id, endpoint.model)] += usage


def _extraction(request: LlmRequest) -> str:
    """Return an answer with as many facts as a model would find, of the length that they have."""
    numbers = _numbers(request)
    facts = [
        {
            "content": _filler(request, number),
            "kind": "statement",
            "importance": 0.5,
            "confidence": 0.5,
            "entities": [],
            "date": None,
            "messages": [number],
        }
        for number in numbers[: max(1, round(len(numbers) * _FACTS_PER_MESSAGE))]
    ]
    return json.dumps({"summary": _filler(request, 0), "facts": facts, "operations": []})


def _summary(request: LlmRequest) -> str:
    """Return an answer as long as it may be, or as its material is."""
    room = min(request.length or _POINT, len(request.user))
    points = [
        {"sentence": _filler(request, number), "sources": [number], "importance": 0.5}
        for number in _numbers(request)[: max(1, room // _POINT)]
    ]
    return json.dumps({"points": points})


def _upkeep(request: LlmRequest) -> str:
    """Return both contents where two are to be merged, and that nothing is stale."""
    return json.dumps({"content": "\n".join(data for _, data in _DATA.findall(request.user)), "stale": []})


_STAND_INS = {Purpose.EXTRACTION: _extraction, Purpose.UPKEEP: _upkeep}


def _numbers(request: LlmRequest) -> list[int]:
    return list(request.numbers) or [1]


def _filler(request: LlmRequest, number: int) -> str:
    """Return a text that no other question has, so that whatever is made from it counts as changed."""
    return f"{number} {digest(request.key, number)}".ljust(_POINT, ".")
