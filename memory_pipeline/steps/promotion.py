"""Promote expired short-term entries that were used to durable memories, and delete all others that have expired.

The event of a promotion is in the journal before the entry is deleted. Its id depends on the entry alone, so a
promotion that is repeated after a crash adds nothing.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.authority import SESSION
from memory_pipeline.domain.memories.record import MemoryKind, SourceType
from memory_pipeline.domain.sessions import micros_of, tag_of, time_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.sessions.saved import delete_saved, is_expired
from memory_pipeline.sessions.store import existing_stores

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.domain.sessions import Container, Entry
    from memory_pipeline.lake import Lake

_log = logging.getLogger(__name__)

#: Name of the asset. It has no partitions: sessions have no history.
PROMOTION_ASSET: Final = "session_promotions"
_KINDS: Final = {"reflection": MemoryKind.REFLECTION, "tool_result": MemoryKind.TOOL_OUTPUT}


@dataclass(frozen=True, slots=True)
class Promotion:
    """The result of a promotion.

    Attributes:
        promoted: number of short-term entries that became durable memories.
        refused: number of those that cannot. They stay in the database, where no agent reads them.
        expired: number of deleted entries.
        left_entries: number of all entries of sessions and pools that are left.
        left_bytes: of their values, as JSON.
        reasons: a line for each refused entry, with its agent, session and key.
    """

    promoted: int = 0
    refused: int = 0
    expired: int = 0
    left_entries: int = 0
    left_bytes: int = 0
    reasons: tuple[str, ...] = ()


def promote(lake: Lake, now: datetime, session: Container | None = None) -> Promotion:
    """Promote expired short-term entries with three accesses or more; delete other expired entries.

    Of the short-term entries of one `session`, promote also those that have not expired, and delete no others.

    An entry that durable memory refuses, because it is too long or its kind is not allowed, stays. It is promoted when
    the configuration allows it, and gone when its key is stored or removed again. Safe to repeat, to interrupt and to
    run beside agents.

    Raises:
        ConfigurationError: the address of the lake's database is not set.
        LakeError: the database cannot be reached.
    """
    promoted = expired = left_entries = left_bytes = 0
    reasons: list[str] = []
    at = micros_of(now)
    for store in existing_stores(lake):
        used: dict[Container, list[Entry]] = defaultdict(list)
        for container, entry in store.stored(is_used=True, expired_at=at if session is None else None):
            if session in {None, container}:
                used[container].append(entry)
        for container, entries in used.items():
            done, refused = _remember(lake, container, entries, now)
            promoted += store.delete(done, changed=False)
            reasons += refused
        expired += store.delete_expired(at) if session is None else 0
        usage = store.usage()
        left_entries += usage.entries
        left_bytes += usage.bytes
    if session is None:
        delete_saved(lake.storage, lambda record: is_expired(record, at))
    return Promotion(promoted, len(reasons), expired, left_entries, left_bytes, tuple(reasons))


def _remember(
    lake: Lake, container: Container, entries: Sequence[Entry], now: datetime
) -> tuple[list[Entry], list[str]]:
    """Write the entries of a session to the journal. Return those that were accepted, and why others were not."""
    from memory_pipeline.memories.writer import MemoryEventWriter  # most runs promote nothing

    scope = lake.new_scope(container.workspace_id, container.agent_id, container.identity)
    writer = MemoryEventWriter(lake, scope, conversation_id=container.space)  # by which it can be erased
    done: list[Entry] = []
    refused: list[str] = []
    for entry in entries:
        value = json.loads(entry.value)
        change = {
            "memory": "REMEMBER",
            "content": value if isinstance(value, str) else f"{entry.key}: {entry.value}",
            **({} if isinstance(value, str) else {"value": value}),
            "kind": _KINDS.get(entry.type, MemoryKind.OBSERVATION).value,
            "tags": [tag_of(entry.key)],
            "editor": SESSION,
            "source_type": SourceType.ASSISTANT.value,
            "timestamp": time_of(entry.updated_at),
        }
        try:
            writer.change_memories([change], now=now)  # one by one: an event's id has its place in the write
        except InputError as error:
            reason = str(error).replace(shown(change["content"]), "…")  # a log outlives an erasure
            _log.warning(
                "entry %s of session %s of %s is not promoted: %s", entry.id, shown(container.space), scope, reason
            )
            refused.append(f"{shown(entry.key)} of session {shown(container.space)} of {scope}: {reason}")
        else:
            done.append(entry)
    return done, refused
