"""The members of groups, and the groups of users: a small index beside the journal.

::

    journal/members/groups/{group}/{user}.json
    journal/members/users/{user}/{group}.json

Both names are keys of scopes, so that no path names a user. Both files say which agent, group and user it is, and the
time of the record that made the user a member. A writer adds the members of a group before the group's first record:
then every reader that finds the record finds the group.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.scopes import user_identity
from memory_pipeline.lake.files.strict_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from memory_pipeline.domain.graph.operations import Edit
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.scopes import Scope, ScopeOf
    from memory_pipeline.lake.files.storage import Storage

_log = logging.getLogger(__name__)

_GROUPS, _USERS = "journal/members/groups", "journal/members/users"
_FIELDS = ("workspace_id", "agent_id", "identity", "user_id", "timestamp")


class Members:
    """Knows who is a member of which group. Safe to use from several threads and processes.

    Args:
        storage: the lake's files.
        scope_of: returns the lake's scopes of users and groups.
    """

    def __init__(self, storage: Storage, scope_of: ScopeOf) -> None:
        self._storage = storage
        self._scope_of = scope_of
        self._contents: dict[str, dict[str, str]] = {}

    def add(self, records: Iterable[Message | Edit | MemoryEvent]) -> None:
        """Add the users of records to their groups. Call it before the records are written."""
        since: dict[tuple[Scope, str], datetime] = {}
        for record in records:
            for user_id in record.users:
                at = record.sent_at if isinstance(record, Message) else record.event_at
                since[record.scope, user_id] = min(at, since.get((record.scope, user_id), at))
        self.add_since(since)

    def add_since(self, since: Mapping[tuple[Scope, str], datetime]) -> None:
        """Add users to groups, each with the time of its first record."""
        groups = {group for group, _ in since}
        known = {entry.path for group in groups for entry in self._storage.list(f"{_GROUPS}/{group.key}")}
        for (group, user_id), at in since.items():
            of_group, of_user = self._paths(group, user_id)
            if of_group in known:
                continue
            ids = {"workspace_id": group.workspace_id, "agent_id": group.agent_id, "identity": group.identity}
            data = json.dumps({**ids, "user_id": user_id, "timestamp": at.isoformat()}).encode()
            # The group's list comes second: it is the one that is checked above.
            for path in (of_user, of_group):
                self._storage.create(path, data)
                self._contents.pop(path, None)

    def remove(self, group: Scope, user_id: str) -> bool:
        """Remove a user from a group, until a later write names the user again. Return whether it was a member."""
        of_group, of_user = self._paths(group, user_id)
        was_member = self._storage.read(of_user) is not None
        self._storage.delete([of_group])
        self._storage.delete([of_user])
        return was_member

    def all(self) -> Iterator[tuple[Scope, str, datetime]]:
        """Yield all members of all groups: the group, the user, and the time of the user's first record."""
        for _, one in self._read(_USERS):
            group = self._scope_of(one["workspace_id"], one["agent_id"], one["identity"])
            yield group, one["user_id"], datetime.fromisoformat(one["timestamp"])

    def mend(self) -> None:
        """Write missing and invalid files again, of which there is a copy in the other list."""
        for path, (_, data) in self.damaged().items():
            if data is not None:
                self._storage.write(path, data)

    def damaged(self) -> dict[str, tuple[str, bytes | None]]:
        """Return the reason for each missing or invalid file, and its content, if the other list has a copy."""
        wanted: dict[str, bytes] = {}
        for folder in (_GROUPS, _USERS):
            for path, one in self._read(folder):
                group = self._scope_of(one["workspace_id"], one["agent_id"], one["identity"])
                paths = self._paths(group, one["user_id"])
                if path in paths:  # otherwise it names another group or user than its place
                    wanted |= dict.fromkeys(paths, json.dumps(one).encode())
        present = {entry.path for folder in (_GROUPS, _USERS) for entry in self._storage.list(folder)}
        valid = present & self._contents.keys() & wanted.keys()
        return {
            path: ("it is not valid" if path in present else "it is missing", wanted.get(path))
            for path in sorted((present | wanted.keys()) - valid)
        }

    def groups_of(self, user: Scope) -> list[Scope]:
        """Return the groups of a user, given the scope of the user's own memory; sorted by their keys."""
        found = self._read(f"{_USERS}/{user.key}")
        groups = [(path, self._scope_of(user.workspace_id, user.agent_id, one["identity"])) for path, one in found]
        # A file that was copied or written by hand must not open the memory of somebody else.
        return [group for path, group in groups if group.is_group and path.endswith(f"/{group.key}.json")]

    def users_of(self, group: Scope) -> tuple[str, ...]:
        """Return the members of a group, sorted."""
        return tuple(sorted(one["user_id"] for _, one in self._read(f"{_GROUPS}/{group.key}")))

    def _read(self, folder: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the path and content of each file. Invalid files are ignored with a warning."""
        for entry in self._storage.list(folder):
            if entry.path not in self._contents:
                data = self._storage.read(entry.path)
                if data is None:  # removed in the meantime
                    continue
                try:
                    content = parse_json(data)
                    datetime.fromisoformat(str(content["timestamp"]))
                    self._contents[entry.path] = {name: str(content[name]) for name in _FIELDS}
                except (ValueError, KeyError) as error:
                    _log.warning("%s is not valid, and ignored: %s", self._storage.locate(entry.path), error)
                    continue
            yield entry.path, self._contents[entry.path]

    def _paths(self, group: Scope, user_id: str) -> tuple[str, str]:
        user = self._scope_of(group.workspace_id, group.agent_id, user_identity(user_id))
        return f"{_GROUPS}/{group.key}/{user.key}.json", f"{_USERS}/{user.key}/{group.key}.json"
