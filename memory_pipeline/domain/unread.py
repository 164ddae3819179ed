"""Match rejected or unreadable records with erased subjects, as far as their content allows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING

from memory_pipeline.domain.capture import Capture, Talk
from memory_pipeline.domain.chat_messages import times_in
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_pipeline.domain.capture import CaptureOf
    from memory_pipeline.domain.erasure import Forgotten

_NAMES = ("workspace_id", "agent_id")
#: An id or a time in a text that may be no JSON, or cut: in quotes, or else of letters, digits, dots and hyphens.
_ID = r"""["']?{}["']?\s*[:=]\s*(?:"((?:[^"\\]|\\.){{1,1600}})|'([^']{{1,256}})|([\w.-]+))"""
#: Keys and values may be written with escapes.
_ESCAPED_LETTER = re.compile(r"\\u00((?:2d|3[0-9]|[46][1-9a-f]|5[0-9af]|7[0-9a]))", re.IGNORECASE)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.){1,256})"')
#: For records without an agent: a person may be erased from the whole workspace.
_UNKNOWN_AGENT = "x" * 100
#: Maximum number of values of a key, and of quoted texts, that are compared with the rules of capture.
_MOST, _MOST_QUOTED = 3, 500
#: A key of a text that may be no JSON.
_KEY = r"((?<![\w-])[\w-]{1,40})"


def is_forgotten(forgotten: Forgotten, record: object, default: Mapping[str, object], received_at: datetime) -> bool:
    """Return whether a rejected or unreadable record is of an erased subject, and not later than the erasure.

    `record` is a JSON value, or the text of an invalid one. `default` has the ``workspace_id`` and ``agent_id`` of a
    record without them, the ``user_id`` for whom it was written, and its ``conversation_id``. A record without a
    workspace is matched with all workspaces. Its time is the earliest one that it states for a message, or else
    `received_at`.
    """
    if not forgotten:
        return False
    if isinstance(record, Mapping):
        texts, at = list(_texts(record)), _earliest(record.get("messages", [record]), received_at)
        scope_ids = {name: [value] for name in _NAMES if isinstance(value := record.get(name), str)}
        ids = [value for name in ("conversation_id", "user_id", "source") if isinstance(value := record.get(name), str)]
        ids += [value for value in _texts(record.get("users")) if value]
    else:
        text = record if isinstance(record, str) else json.dumps(record, ensure_ascii=False, default=str)
        texts, at = [text], _earliest([{key: value} for key, value in _values_in(text, _KEY)], received_at)
        scope_ids = {name: found for name in _NAMES if (found := ids_in(text, name))}
        ids = _QUOTED.findall(text)
    ids += [one for one in (default.get("user_id"), default.get("conversation_id")) if isinstance(one, str)]
    workspaces, agents = (scope_ids.get(name) or [str(one) for one in (default.get(name),) if one] for name in _NAMES)
    for scope in _scopes(workspaces or forgotten.workspaces, agents):
        if forgotten.reaches(scope, at, texts=texts):
            return True
        if any(forgotten.reaches(scope, at, conversation_id=one, user_id=one) for one in set(ids)):
            return True
    return False


def capture_in_text(record: object, default: Mapping[str, str], capture_of: CaptureOf) -> Capture:
    """Return the strictest capture that an unreadable record may have, as far as its text tells.

    `record` is the text, or a JSON value that is no conversation. `default` is as in :func:`is_forgotten`.
    """
    text = record if isinstance(record, str) else json.dumps(record, ensure_ascii=False, default=str)
    text = _ESCAPED_LETTER.sub(lambda found: chr(int(found[1], 16)), text)
    known = {mode.value: mode for mode in Capture}
    found = Capture.FULL
    for stated in set(ids_in(text, "capture")):
        found = found.or_stricter(known.get(stated, Capture.NONE))
    names = ("workspace_id", "agent_id", "conversation_id", "source")
    values = [ids_in(text, name)[:_MOST] or [default.get(name, "")] for name in names]
    quoted = _QUOTED.findall(text)[:_MOST_QUOTED]
    for workspace_id, agent_id, conversation_id, source in product(*values):
        talk = Talk(agent_id, conversation_id, quoted, source or None)
        found = found.or_stricter(capture_of(workspace_id, talk))
    return found


def ids_in(text: str, name: str) -> list[str]:
    """Return the values of a key, such as ``agent_id``, in a text that may be no JSON."""
    return [value for _, value in _values_in(text, f"({name})")]


def _values_in(text: str, key: str) -> Iterator[tuple[str, str]]:
    """Yield keys that match a pattern with a group, and their values, in a text that may be no JSON."""
    for name, quoted, single, plain in re.findall(_ID.format(key), text):
        yield name, _unescaped(quoted) if quoted else single or plain


def _unescaped(quoted: str) -> str:
    try:
        return str(json.loads(f'"{quoted}"'))
    except ValueError:  # cut, or no JSON
        return quoted


def _scopes(workspaces: Iterable[str], agents: Sequence[str]) -> Iterator[Scope]:
    for workspace_id in set(workspaces):
        for agent_id in {*agents, _UNKNOWN_AGENT}:
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


def _earliest(messages: object, default: datetime) -> datetime:
    """Return the earliest time that messages state, `default` if there is none."""
    found = []
    for message in messages if isinstance(messages, Sequence) else ():
        if isinstance(message, Mapping):
            renamed = {"time" if key == "timestamp" else key: _zoned(value) for key, value in message.items()}
            found += [at for at in times_in(renamed).values() if at is not None]
    return min(found, default=default)


def _zoned(value: object) -> object:
    """Return a time with its zone: UTC if it has none, which is a reason to reject a message. Else return the value."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return value
    return value if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)
