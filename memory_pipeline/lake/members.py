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
from datetime import datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Message
from memory_pipeline.domain.scopes import user_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from memory_pipeline.domain.graph.operations import Edit
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.scopes import Scope, ScopeOf
    from memory_pipeline.lake.files.storage import Storage

_GROUPS, _USERS = "journal/members/groups", "journal/members/users"


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
            for path in (of_user, of_group):  # whoever is in the group's list is in the user's
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
        for one in self._read(_USERS):
            group = self._scope_of(one["workspace_id"], one["agent_id"], one["identity"])
            yield group, one["user_id"], datetime.fromisoformat(one["timestamp"])

    def groups_of(self, user: Scope) -> list[Scope]:
        """Return the groups of a user, given the scope of the user's own memory; sorted by their keys."""
        found = self._read(f"{_USERS}/{user.key}")
        return [self._scope_of(user.workspace_id, user.agent_id, one["identity"]) for one in found]

    def users_of(self, group: Scope) -> tuple[str, ...]:
        """Return the members of a group, sorted."""
        return tuple(sorted(one["user_id"] for one in self._read(f"{_GROUPS}/{group.key}")))

    def _read(self, folder: str) -> Iterator[dict[str, str]]:
        for entry in self._storage.list(folder):
            if entry.path not in self._contents:
                data = self._storage.read(entry.path)
                if data is None:  # removed in the meantime
                    continue
                self._contents[entry.path] = json.loads(data)
            yield self._contents[entry.path]

    def _paths(self, group: Scope, user_id: str) -> tuple[str, str]:
        user = self._scope_of(group.workspace_id, group.agent_id, user_identity(user_id))
        return f"{_GROUPS}/{group.key}/{user.key}.json", f"{_USERS}/{user.key}/{group.key}.json"
