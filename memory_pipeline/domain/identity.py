"""Ids that are hashes of content, and digests that tell whether anything changed.

An id is ``{what}:{period}:{32 hex digits}``, for instance ``working:2024-01-15T08:5f2c…`` (a fact),
``message:2024-01-15T08:…``, ``weekly:2024-W03:…`` (a summary). It names the partition its row lies in, so following
an id never scans a table. A point of a summary is cited as ``{summary id}#{position}``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEX = re.compile(r"[0-9a-f]{32}")
_POINT = re.compile(r"(?:#[0-9]{1,6})?")

#: What ids of messages begin with; ids of memories begin with their grain.
MESSAGE = "message"
#: What ids of facts of the graph begin with, and of an agent's own edits of it.
GRAPH, EDIT = "graph", "edit"
#: What ids of durable memories begin with, and of what changes them; ``{memory id}#{n}`` is its n-th version.
MEMORY, EVENT = "memory", "event"
#: What ids may begin with beside a grain; such ids name an hour.
NOT_GRAINS = frozenset([MESSAGE, GRAPH, EDIT, MEMORY, EVENT])


def digest(*parts: object) -> str:
    """Return 32 hex digits (BLAKE2b, 128 bits) over the JSON form of `parts`; equal parts give equal digests."""
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def digest_of_all(digests: Iterable[str]) -> str:
    """Return one digest over many, whatever their order."""
    return digest(sorted(digests))


#: The digest over no digests.
NOTHING = digest_of_all([])


def make_id(what: str, period: Period, *parts: object) -> str:
    """Return the id of the thing called `what` (``message`` or a grain) in `period`, made from `parts`."""
    return f"{what}:{period.key}:{digest(what, period.key, *parts)}"


@dataclass(frozen=True, slots=True)
class Reference:
    """An id taken apart: what it names, the partition it lies in, and the point of a summary it may cite."""

    id: str
    what: str
    period: Period
    point: int | None = None

    @classmethod
    def parse(cls, text: object) -> Reference:
        """Read an id of a message, an edit, a fact (of the graph too) or a summary, or a citation of a summary's point.

        Raises:
            InputError: `text` is not such an id.
        """
        problem = InputError(
            f"id {shown(text)} is not one of this memory's; expected e.g. weekly:2024-W03:<32 hex digits>, "
            "as search and expand return them"
        )
        if not isinstance(text, str) or len(text) > 100:
            raise problem
        identifier, _, point = text.partition("#")
        what, _, rest = identifier.partition(":")
        key, _, hexdigits = rest.rpartition(":")
        if not _HEX.fullmatch(hexdigits) or not _POINT.fullmatch(text[len(identifier) :]):
            raise problem
        try:
            period = Period.parse(Grain.WORKING if what in NOT_GRAINS else what, key)
        except InputError:
            raise problem from None
        return cls(identifier, what, period, int(point) if point else None)
