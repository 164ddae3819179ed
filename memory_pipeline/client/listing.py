"""List everything that a reader may see, page by page.

The order depends only on values that never change: the time and the id of what was said, the period of a summary, and
the id of a durable memory, which names the hour in which it was first stored. So a page never repeats or skips an item,
even if others are written meanwhile.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.values import count_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.overlay import one_read
from memory_pipeline.search.arguments import MAX_RESULTS
from memory_pipeline.search.searcher import Hit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.periods import When
    from memory_pipeline.reader import MemoryReader

_MEMORY: Final = "memory"
_SECTIONS: Final = {_MEMORY: [_MEMORY], "fact": [Grain.WORKING.value], "summary": [*map(str, reversed(SUMMARY_GRAINS))]}


class Page(list[Hit]):
    """One page of items.

    Attributes:
        cursor: selects the next page; None if this is the last one.
    """

    def __init__(self, items: Iterable[Hit] = (), cursor: str | None = None) -> None:
        super().__init__(items)
        self.cursor = cursor


class _Place(NamedTuple):
    """The last item of a page: its section (a grain, or durable memories), its id, and its time."""

    section: str
    id: str = ""
    starts_at: datetime | None = None
    ends_at: datetime | None = None


@one_read()
def listed(reader: MemoryReader, kind: str | None, since: When | None, cursor: str | None, limit: int) -> Page:
    """Return one page; see :meth:`memory_pipeline.Memory.list`.

    Raises:
        InputError: an argument is invalid.
    """
    if kind is not None and kind not in [*_SECTIONS]:
        raise InputError(f"kind {shown(kind)} is unknown; accepted: {', '.join(_SECTIONS)}")
    count_of("limit", limit, 1, MAX_RESULTS)
    sections = [one for name, parts in _SECTIONS.items() if kind in {None, name} for one in parts]
    place = _Place(sections[0]) if cursor is None else _read(cursor, sections)
    items: list[Hit] = []
    for section in sections[sections.index(place.section) :]:
        after = place if section == place.section else _Place(section)
        left = limit + 1 - len(items)
        if section == _MEMORY:
            items += _memories(reader, since, after, left)
        else:
            items += _rows(reader, Grain(section), since, after, left)[:left]
        if len(items) > limit:
            return Page(items[:limit], _written(items[limit - 1]))
    return Page(items)


def _memories(reader: MemoryReader, since: When | None, after: _Place, limit: int) -> list[Hit]:
    """Return the next `limit` durable memories; all if there are fewer."""
    calendar, memories = reader.local_calendar, reader.memories
    first = None if since is None else calendar.instant("since", since)
    found = memories.page(limit, before=after.id or None, since=first)
    return [Hit.of_memory(one.id, one, calendar, memories.identity_of(one.id), reader.user_id) for one in found]


def _rows(reader: MemoryReader, grain: Grain, since: When | None, after: _Place, limit: int) -> list[Hit]:
    """Return at least the next `limit` facts or summaries of a grain; all if there are fewer."""
    count = limit
    while True:
        hits = reader.newest(grain, count, since=since, until=after.starts_at)
        new = [hit for hit in hits if after.ends_at is None or (hit.ends_at, after.id) < (after.ends_at, hit.id)]
        if len(new) >= limit or len(hits) < count:
            return new
        count *= 2  # many were said at the moment of the last one


def _written(hit: Hit) -> str:
    section = _MEMORY if hit.grain == "durable" else str(hit.grain)
    record = [section, hit.id, hit.starts_at.isoformat(), hit.ends_at.isoformat()]
    return urlsafe_b64encode(json.dumps(record).encode()).decode()


def _read(cursor: object, sections: list[str]) -> _Place:
    try:
        section, item, starts_at, ends_at = json.loads(urlsafe_b64decode(cursor))  # type: ignore[arg-type]  # caught
        place = _Place(section, item, datetime.fromisoformat(starts_at), datetime.fromisoformat(ends_at))
    except (TypeError, ValueError, RecursionError):
        place = _Place("")
    if place.section not in sections or not isinstance(place.id, str) or not (place.ends_at and place.ends_at.tzinfo):
        raise InputError(f"cursor {shown(cursor)} is not valid; expected the cursor of a page with the same kind")
    return place
