"""Match rejected or unreadable records with erased subjects, as far as their content allows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Scope, timestamp_of
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_pipeline.domain.erasure import Forgotten

_NAMES = ("workspace_id", "agent_id")
_ID = r"""["']?{}["']?\s*[:=]\s*["']?([\w.-]+)"""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.){1,256})"')
#: Placeholder for an unknown agent. A person may be erased from the whole workspace.
_NOBODY = "x" * 100
#: Placeholder for an unknown time.
_ALWAYS = datetime.min.replace(tzinfo=UTC)


def is_forgotten(
    forgotten: Forgotten, record: object, default: Mapping[str, str], default_at: datetime = _ALWAYS
) -> bool:
    """Return whether a rejected or unreadable record belongs to an erased subject.

    A record without a workspace is matched with all workspaces. One without a time counts as older than any erasure.

    Args:
        forgotten: the tombstones.
        record: a JSON value, or the text of an invalid one.
        default: ``workspace_id`` and ``agent_id`` if the record has none.
        default_at: the time if the record has none.
    """
    if not forgotten:
        return False
    if isinstance(record, Mapping):
        texts, at = list(_texts(record)), _said_at(record, default_at)
        stated = {name: [value] for name in _NAMES if isinstance(value := record.get(name), str)}
        ids = [value for name in ("conversation_id", "user_id") if isinstance(value := record.get(name), str)]
    else:
        text = record if isinstance(record, str) else json.dumps(record, ensure_ascii=False, default=str)
        texts, at = [text], default_at
        stated = {name: found for name in _NAMES if (found := re.findall(_ID.format(name), text))}
        ids = _QUOTED.findall(text)
    workspaces, agents = (stated.get(name) or [one for one in [default.get(name)] if one] for name in _NAMES)
    for scope in _scopes(workspaces or forgotten.workspaces, agents):
        if forgotten.reaches(scope, at, texts=texts):
            return True
        if any(forgotten.reaches(scope, at, conversation_id=one, user_id=one) for one in set(ids)):
            return True
    return False


def _scopes(workspaces: Iterable[str], agents: Sequence[str]) -> Iterator[Scope]:
    for workspace_id in set(workspaces):
        for agent_id in {*agents, _NOBODY}:
            try:
                yield Scope(workspace_id, agent_id)
            except InputError:
                continue


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            yield from _texts(item)


def _said_at(record: Mapping[str, object], default: datetime) -> datetime:
    """Return the time of the first message of a conversation, or of a single message."""
    messages = record.get("messages", [record])
    try:
        return min(timestamp_of("timestamp", message.get("timestamp")) for message in messages)  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):  # no messages, or an invalid one
        return default
