"""Session state: entries that expire, and whose they are.

An entry is a JSON value with a key, a version, a counter of accesses and a time to live. A container holds entries: a
part of a session, the short-term entries of a session, a pool, or a pool of one run.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.scopes import label_of, optional_label, user_identity
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.domain.text.secrets import Redactor

#: Seconds. Entries of sessions live for an hour by default, and for a day at most.
DEFAULT_TTL: Final = 3_600
MAX_TTL: Final = 86_400
#: A time to live: seconds, or a timedelta.
Ttl = float | timedelta
#: Longest life of a pool: a hundred years.
MAX_POOL_TTL: Final = 100 * 366 * 86_400
#: Largest value, in bytes of JSON, and deepest nesting.
MAX_VALUE: Final = 1_000_000
MAX_DEPTH: Final = 100
#: Accesses from which a short-term entry becomes a durable memory.
PROMOTED_FROM: Final = 3
#: Longest tag of a durable memory.
_LONGEST_TAG: Final = 100
#: Name of the session and of the pool, if none is given.
DEFAULT_NAME: Final = "default"

#: The part of a session with the context that its conversation was given. It quotes other conversations.
TOLD: Final = "told"
#: The part with the items of a conversation, as an agent's framework sent them.
TRANSCRIPT: Final = "transcript"
#: The part with the values that another agent shared with this one. Its id is in the place of a session's.
SHARED_BY: Final = "shared_by"

SHORT_TERM_TYPES: Final = ("task_context", "conversation", "tool_result", "reflection", "observation")
#: Types of pools, each with the scope that it has by default.
POOL_TYPES: Final = {"shared": "account", "agent_private": "agent", "team_shared": "team", "task_scoped": "task"}
POOL_SCOPES: Final = ("global", "account", "team", "agent", "task")
RUN_POOL_TYPES: Final = ("shared_memory", "tool_cache", "blackboard")


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_encoded: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class EntryKind(StrEnum):
    """The kind of an entry."""

    VALUE = "value"
    SHORT_TERM = "short_term"
    POOL = "pool"
    RUN_POOL = "run_pool"

    @property
    def is_pool(self) -> bool:
        """Whether agents may share it."""
        return self in {EntryKind.POOL, EntryKind.RUN_POOL}


@dataclass(frozen=True, slots=True)
class Container:
    """What holds entries, and whose it is.

    Attributes:
        workspace_id: nothing crosses workspaces.
        agent_id: the agent, or the one that keeps the team; empty if all agents of the workspace may see it.
        identity: ``user:`` and an id; empty for the agents themselves.
        kind: the kind of its entries.
        space: the id of the session, the name of the pool, or the agent that shared the values.
        section: a part of a session; of a pool its type, its scope and the team or task, or its type and run, as JSON.
    """

    workspace_id: str
    agent_id: str
    identity: str
    kind: EntryKind
    space: str
    section: str = ""

    def key(self, lake_id: str) -> str:
        """Return the key of the container: 32 hexadecimal digits, different in each lake."""
        return digest("container", lake_id, *(getattr(self, name) for name in self.__slots__))


class Entry(NamedTuple):
    """An entry as it is stored. Times are microseconds since 1970, UTC.

    Attributes:
        id: hexadecimal digits, new for each insertion.
        key: its key; empty for a pool.
        type: the type of a short-term entry or a pool; else empty.
        value: JSON.
        version: from 1, and higher with each change. No version of a key is used twice, whatever was removed.
        accesses: number of reads that count.
        expires_at: it is gone from this time on; None if it does not expire.
    """

    id: str
    key: str
    type: str
    value: str
    version: int
    accesses: int
    created_at: int
    updated_at: int
    expires_at: int | None


def pool_container(
    workspace_id: str,
    agent_id: str,
    user_id: str | None,
    name: str,
    pool_type: str,
    scope: str | None,
    team: str | None,
    task: str | None,
    run: str | None,
) -> Container:
    """Return the container of a pool.

    Its scope says who finds it by its name: ``global`` all agents of the workspace, for any user; ``account`` all of
    them, for the same user; ``task`` those who name the task, for the same user; ``team`` the agent that keeps the
    team and, by :meth:`AgentAccess.pool`, its members, for the same user; ``agent`` one agent, for the same user. A
    pool of the type ``agent_private`` is seen by its agent alone, and a pool of a run by those who name the run, for
    the same user.

    Raises:
        InputError: an argument is invalid or missing.
    """
    label_of("name", name)
    label_of("type", pool_type)
    optional_label("scope", scope)
    identity = "" if user_id is None else user_identity(user_id)
    if run is not None:
        if pool_type not in RUN_POOL_TYPES:
            raise InputError(
                f"type {shown(pool_type)} of the pool of a run is unknown; accepted: {', '.join(RUN_POOL_TYPES)}"
            )
        if (scope, team, task) != (None, None, None):
            raise InputError("the pool of a run takes no scope, team or task")
        section = json.dumps([pool_type, label_of("run", run)], ensure_ascii=False)
        return Container(workspace_id, "", identity, EntryKind.RUN_POOL, name, section)
    if pool_type not in POOL_TYPES:
        raise InputError(f"type {shown(pool_type)} of a pool is unknown; accepted: {', '.join(POOL_TYPES)}")
    scope = POOL_TYPES[pool_type] if scope is None else scope
    if scope not in POOL_SCOPES:
        raise InputError(f"scope {shown(scope)} of a pool is unknown; accepted: {', '.join(POOL_SCOPES)}")
    named = {"team": team, "task": task}
    needed = [one for one in named if one == scope or one == pool_type.partition("_")[0]]
    for one, value in named.items():
        if (value is not None) is not (one in needed):
            problem = "needs" if one in needed else "takes no"
            raise InputError(f"a pool of the type {pool_type} with the scope {scope} {problem} {one}")
    section = json.dumps([pool_type, scope, *(label_of(one, named[one]) for one in needed)], ensure_ascii=False)
    is_of_agent = pool_type == "agent_private" or scope == "agent" or team is not None
    identity = "" if scope == "global" else identity
    return Container(workspace_id, agent_id if is_of_agent else "", identity, EntryKind.POOL, name, section)


def tag_of(key: str) -> str:
    """Return the tag of the durable memory that an entry becomes: its key, or a digest of a long one."""
    return key if len(key) <= _LONGEST_TAG else digest("key", key)


def micros_of(at: datetime) -> int:
    """Return a time with its zone in microseconds since 1970, UTC."""
    return (at - _EPOCH) // _MICROSECOND


def time_of(micros: int) -> datetime:
    """Return a time, UTC, from microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def micros_of_ttl(ttl: object, longest: int = MAX_TTL) -> int:
    """Return a time to live in microseconds, from seconds or a timedelta.

    Raises:
        InputError: it is not a number above 0, or more than `longest` seconds.
    """
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= longest:
        raise InputError(f"ttl {shown(ttl)} is not accepted; expected seconds, more than 0 and at most {longest:,}")
    return math.ceil(seconds * 1_000_000)


def json_of(value: object) -> str:
    """Return a value as JSON that reads back as an equal value.

    Raises:
        InputError: it is not a JSON value, too large, or nested too deep.
    """
    try:
        text = _encoded(value)
        size = len(text.encode())
    except RecursionError:
        raise InputError(f"value is nested more than {MAX_DEPTH} levels deep") from None
    except UnicodeEncodeError:
        raise InputError(f"value {shown(value)} is not accepted: it has broken Unicode") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"value {shown(value)} is not accepted; expected a JSON value: {error}") from None
    if size > MAX_VALUE:
        raise InputError(f"value has {size:,} bytes as JSON; expected at most {MAX_VALUE:,}")
    if isinstance(value, dict | list | tuple):
        _check_parts(value)
    return text


def redacted_value(redactor: Redactor, key: str, value: str) -> str:
    """Return the value of an entry, as JSON, without secrets. It is one itself if its key says so."""
    stored = json.loads(value)
    left = redactor.value(stored, key)
    return value if left is stored else json_of(left)


def merged(old: Any, new: Any) -> Any:
    """Return two JSON values as one: mappings are merged at all levels, anything else is replaced by the new value."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: merged(old[key], value) if key in old else value for key, value in new.items()}}


def searchable(key: str, value: str) -> str:
    """Return an entry as text: its key, and the texts in its value."""
    texts, parts = [key], [json.loads(value)]
    while parts:
        part = parts.pop(0)
        if isinstance(part, dict):
            parts += [*part, *part.values()]
        elif isinstance(part, list):
            parts += part
        elif part is not None:
            texts.append(str(part))
    return " ".join(texts)


def _check_parts(value: object) -> None:
    depth, level = 0, [value]
    while level:
        if depth > MAX_DEPTH:
            raise InputError(f"value is nested more than {MAX_DEPTH} levels deep")
        parts: list[object] = []
        for one in level:
            if isinstance(one, dict):
                _check_names(one)
                parts += [part for part in one.values() if isinstance(part, dict | list | tuple)]
            elif isinstance(one, list | tuple):
                parts += [part for part in one if isinstance(part, dict | list | tuple)]
        depth, level = depth + 1, parts


def _check_names(value: Mapping[object, object]) -> None:
    for name in value:
        if not isinstance(name, str):
            raise InputError(f"value has the name {shown(name)}; expected names that are texts, as in JSON")
