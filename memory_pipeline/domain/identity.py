"""Ids from hashes of content, and digests that detect changes.

An id is ``{what}:{period}:{32 hex digits}``, such as ``working:2024-01-15T08:5f2c…`` (a fact),
``message:2024-01-15T08:…``, ``weekly:2024-W03:…`` (a summary). It names the partition of its row, so a lookup never
scans a table. The citation of a summary's point is ``{summary id}#{position}``.
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

#: Prefix of ids of messages. Facts and summaries have their grain.
MESSAGE = "message"
#: Prefixes of ids of triples of the graph, and of an agent's edits.
GRAPH, EDIT = "graph", "edit"
#: Prefixes of ids of durable memories, and of their events; ``{memory id}#{n}`` is version n.
MEMORY, EVENT = "memory", "event"
#: Prefixes that are not grains; the period of such ids is an hour.
NOT_GRAINS = frozenset([MESSAGE, GRAPH, EDIT, MEMORY, EVENT])


def digest(*parts: object) -> str:
    """Return 32 hex digits (BLAKE2b, 128 bits) over the JSON form of `parts`."""
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def digest_of_all(digests: Iterable[str]) -> str:
    """Return one digest over many, in any order."""
    return digest(sorted(digests))


NOTHING = digest_of_all([])


def make_id(what: str, period: Period, *parts: object) -> str:
    """Return an id with the prefix `what` (such as ``message``, or a grain), and a hash of `parts`."""
    return f"{what}:{period.key}:{digest(what, period.key, *parts)}"


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed id: its prefix, its partition, and the cited point of a summary or version of a memory."""

    id: str
    what: str
    period: Period
    point: int | None = None

    @classmethod
    def parse(cls, text: object) -> Reference:
        """Parse an id with any prefix of this module, or a citation of a summary's point.

        Raises:
            InputError: `text` is not such an id.
        """
        problem = InputError(
            f"id {shown(text)} is not valid; expected an id such as weekly:2024-W03:<32 hex digits> "
            "or memory:2024-01-15T08:<32 hex digits>, as search, expand and list return them"
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
