"""Scopes: whose memory a record belongs to.

A scope is an agent's own memory, that of one of its users, or that of a group of users. Facts, graph, durable memories
and summaries are made for each scope alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from memory_pipeline.domain.identity import digest
from memory_pipeline.errors import InputError, shown

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_KEY = re.compile(r"[0-9a-f]{32}")
_USER, _GROUP = "user:", "group:"
#: The columns of a scope in rows, in the order of :class:`Scope`'s arguments.
SCOPE_COLUMNS: Final = ("workspace_id", "agent_id", "identity", "scope")


@dataclass(frozen=True, slots=True)
class Scope:
    """An agent's own memory, or that of a user or a group.

    Attributes:
        workspace_id, agent_id: the agent. Both ids are safe in a path.
        identity: ``user:`` or ``group:`` and an id; empty for the agent's own memory.
        key: the scope in rows and paths, 32 hexadecimal digits. It decides the shard. Users and groups have one of
            their lake; see :func:`scope_key`.
    """

    workspace_id: str
    agent_id: str
    identity: str = ""
    key: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("workspace_id", "agent_id"):
            value = getattr(self, name)
            if not isinstance(value, str) or not _ID.fullmatch(value) or ".." in value:
                raise InputError(
                    f"{name} {shown(value)} is not valid; accepted: 1 to 100 ASCII letters, digits, '.', '_', '-', "
                    "beginning with a letter or digit, without '..'"
                )
        if self.identity == "":
            object.__setattr__(self, "key", _own_key(self.workspace_id, self.agent_id))
        elif not isinstance(self.identity, str) or not self.identity.startswith((_USER, _GROUP)):
            raise InputError(f"identity {shown(self.identity)} is not valid; expected user: or group: and an id")
        elif not isinstance(self.key, str) or not _KEY.fullmatch(self.key):
            raise InputError(f"scope {shown(self.key)} of {self.identity} is not valid; expected a key of Lake.scope")

    def __str__(self) -> str:
        """Return workspace and agent, and the identity if there is one: ``acme/support/user:u-17``."""
        return "/".join(self.ids)

    @property
    def own(self) -> Scope:
        """The scope of the agent's own memory."""
        return Scope(self.workspace_id, self.agent_id) if self.identity else self

    @property
    def user_id(self) -> str | None:
        """The user whose memory it is; None for a group and for the agent's own memory."""
        return self.identity.removeprefix(_USER) if self.identity.startswith(_USER) else None

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that go into the ids of rows: workspace and agent, and the identity if there is one."""
        ids = (self.workspace_id, self.agent_id)
        return (*ids, self.identity) if self.identity else ids


@lru_cache(maxsize=65_536)
def _own_key(workspace_id: str, agent_id: str) -> str:
    return digest("scope", workspace_id, agent_id)


def scope_key(secret: str, workspace_id: str, agent_id: str, identity: str) -> str:
    """Return the key of the scope of a user or group: a digest keyed with a lake's secret.

    A key is part of file names. Without the secret, nobody can find out which user it stands for.
    """
    text = digest("scope", workspace_id, agent_id, identity)
    return blake2b(text.encode(), key=secret.encode()[:64], digest_size=16).hexdigest()
