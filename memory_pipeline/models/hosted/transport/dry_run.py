"""Dry runs: count the requests that models would get, and answer each with a placeholder. Nothing is sent."""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from dataclasses import asdict, dataclass
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
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.models.hosted.transport.requests import LlmRequest

_Value = TypeVar("_Value")

#: Length of a placeholder's sentences in characters; roughly that of a typical fact.
_POINT = 120
#: Facts that a model finds per message.
_FACTS_PER_MESSAGE = 0.7
#: Stored text as it appears in a prompt.
_DATA = re.compile(r"<(data-[0-9a-f]+)>\n(.*?)\n</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Expected:
    """The group for which a dry run adds up expected calls."""

    grain: Grain
    purpose: Purpose
    workspace_id: str
    model: str

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: fine grains first."""
        return self.grain.rank, self.purpose, self.workspace_id, self.model


class DryRunExecutor(LlmExecutor):
    """An executor that returns stored answers, counts all other requests, and sends nothing.

    The number of requests is exact unless it depends on the length of answers. Tokens and cost are estimates.
    """

    is_rehearsal = True

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed on unchanged
        self.expected: dict[Expected, Usage] = defaultdict(Usage)
        #: The agents, users and groups with expected calls.
        self.scopes: dict[Expected, set[Scope]] = defaultdict(set)
        self._counted: set[str] = set()
        self._lock = threading.Lock()

    def expected_records(self) -> list[dict[str, object]]:
        """Return the expected calls of each group with the number of scopes, fine grains first."""
        ordered = sorted(self.expected.items(), key=lambda item: item[0].order)
        return [{**asdict(what), "scopes": len(self.scopes[what]), **asdict(usage)} for what, usage in ordered]

    def complete(self, request: LlmRequest, read: Callable[[str], _Value]) -> Answered[_Value]:
        """Return the stored answer, or count the request and return a placeholder."""
        if known := self.known(request.key, request.use.period, read):
            return known
        text = _PLACEHOLDERS.get(request.purpose, _summary)(request)
        tokens_out = count_tokens(text)
        self._count(request.key, [(request.use, 1.0)], request.purpose, request.endpoint, request.tokens, tokens_out)
        return Answered(read(text), request.tokens, tokens_out, None)

    def embed(self, endpoint: Embedding, texts: Sequence[str], uses: Sequence[Use]) -> NDArray[np.float32]:
        """Count the batch unless its answer is stored, as after a killed run. All vectors are NaN."""
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
                cost = None if price is None else price.of(spent_in, spent_out)
                # A request shared by several uses is counted once, for the first of them.
                usage = Usage(int(number == 0), spent_in, spent_out, cost, int(number == 0 and price is None))
                what = Expected(use.period.grain, purpose, use.scope.workspace_id, endpoint.model)
                self.expected[what] += usage
                self.scopes[what].add(use.scope)


def _extraction(request: LlmRequest) -> str:
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
    """Return an answer as long as the allowed length or the material, whichever is shorter."""
    room = min(request.length or _POINT, len(request.user))
    points = [
        {"sentence": _filler(request, number), "sources": [number], "importance": 0.5}
        for number in _numbers(request)[: max(1, room // _POINT)]
    ]
    return json.dumps({"points": points})


def _consolidation(request: LlmRequest) -> str:
    content = "\n".join(data for _, data in _DATA.findall(request.user))
    return json.dumps({"content": content, "pairs": [], "stale": []})


_PLACEHOLDERS = {Purpose.EXTRACTION: _extraction, Purpose.CONSOLIDATION: _consolidation}


def _numbers(request: LlmRequest) -> list[int]:
    return list(request.numbers) or [1]


def _filler(request: LlmRequest, number: int) -> str:
    """Return a text unique to the request, so that everything derived from it counts as changed."""
    return f"{number} {digest(request.key, number)}".ljust(_POINT, ".")
