"""Scopes: whose memory a record belongs to.

A scope is an agent's own memory, that of one of its users, or that of a group of users. Facts, graph, durable memories
and summaries are made for each scope alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_KEY = re.compile(r"[0-9a-f]{32}")
#: Prefixes of identities: of a user, of a group with an id, and of a group that is the set of its members.
_USER, _GROUP, _SET = "user:", "group:", "users:"
#: The beginning of a user's entity in a text, and the ends of an id after it.
_ENTITY = re.compile(rf"(?<!\w){_USER}")
_END_OF_ID = re.compile(r"(?<!^)(?!\w|[^\w\s,;/'’]\w)")
#: Longest id, name or tag, in characters.
MAX_ID: Final = 256
#: The columns of a scope in rows, in the order of :class:`Scope`'s arguments.
SCOPE_COLUMNS: Final = ("workspace_id", "agent_id", "identity", "scope")


@dataclass(frozen=True, slots=True)
class Scope:
    """An agent's own memory, or that of a user or a group.

    Attributes:
        workspace_id, agent_id: the agent. Both are opaque: see :func:`label_of`.
        identity: ``user:`` or ``group:`` and an id, or ``users:`` and a digest of the members; empty for the agent's
            own memory.
        key: the scope in rows and paths, 32 hexadecimal digits. It decides the shard. The keys of users and groups
            differ between lakes; see :func:`scope_key`.
    """

    workspace_id: str
    agent_id: str
    identity: str = ""
    key: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        label_of("workspace_id", self.workspace_id)
        label_of("agent_id", self.agent_id)
        if self.identity == "":
            object.__setattr__(self, "key", _own_key(self.workspace_id, self.agent_id))
        elif not isinstance(self.identity, str) or not self.identity.startswith((_USER, _GROUP, _SET)):
            raise InputError(
                f"identity {shown(self.identity)} is not valid; expected user:, group: or users: and an id"
            )
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
    def is_group(self) -> bool:
        """Whether it is the memory of a group."""
        return self.identity.startswith((_GROUP, _SET))

    def audience_fields(self, users: Sequence[str]) -> dict[str, object]:
        """Return the fields of a conversation of this scope; `users` are the members of a group."""
        if not self.is_group:
            return {"user_id": self.user_id}
        group_id = self.identity.removeprefix(_GROUP) if self.identity.startswith(_GROUP) else None
        return {"users": list(users), "group_id": group_id}

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that go into the ids of rows: workspace and agent, and the identity if there is one."""
        ids = (self.workspace_id, self.agent_id)
        return (*ids, self.identity) if self.identity else ids


if TYPE_CHECKING:
    #: Returns the scope of a workspace, an agent and an identity.
    ScopeOf = Callable[[str, str, str], Scope]


class Audience(NamedTuple):
    """Those who take part in a conversation: the identity of their scope, and the members of a group, sorted."""

    identity: str = ""
    users: tuple[str, ...] = ()


def label_of(name: str, value: object) -> str:
    """Return an id, a name or a tag after a check. It is opaque: nothing is read into its characters.

    Raises:
        InputError: it is not a text of 1 to 256 characters, is blank, or has control characters or broken Unicode. The
            message calls it `name`.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_ID:
        raise InputError(f"{name} {shown(value)} is not valid; expected a text of 1 to {MAX_ID} characters")
    if _CONTROL.search(value) or not is_unicode(value):
        raise InputError(f"{name} {shown(value)} is not valid; control characters and broken Unicode are not accepted")
    return value


def optional_label(name: str, value: object) -> str | None:
    """Return :func:`label_of` a value, or None if it is None."""
    return None if value is None else label_of(name, value)


def user_identity(user_id: str) -> str:
    """Return the identity of a user's own memory."""
    return f"{_USER}{user_id}"


def users_named_in(text: str) -> Iterator[str]:
    """Yield the possible ids of the users that a text names by their entity: of ``user:u-17.2``, also ``u-17``.

    An id may contain blanks and punctuation, so a text does not tell where it ends. But ``user:anna`` is no entity in
    ``user:annabel`` or ``user:anna-2``.
    """
    for entity in _ENTITY.finditer(text):
        rest = text[entity.end() : entity.end() + MAX_ID]
        yield from (rest[: end.start()] for end in _END_OF_ID.finditer(rest))


def audience_of(
    user_id: str | None, users: Collection[str] | None, group_id: str | None, speakers: Collection[str]
) -> Audience:
    """Return the audience of a write. All arguments are valid ids.

    Args:
        user_id: the only user, unless `users` are given.
        users: all users who take part.
        group_id: a group with a name. Its members are those of all of its writes.
        speakers: the users of the messages. They are the audience if none is named.

    Raises:
        InputError: a speaker does not take part, both `user_id` and `users` are given, or a group has no user.
    """
    if user_id is not None and users is not None and set(users) != {user_id}:
        raise InputError(f"user_id {shown(user_id)} and users are both given; set one of them")
    named = {user_id} if users is None and user_id is not None else None if users is None else set(users)
    outside = sorted(set(speakers) - named) if named is not None else []
    if outside:
        raise InputError(
            f"user_id {shown(outside[0])} of a message does not take part in the conversation; add the user to users"
        )
    members = tuple(sorted(set(speakers) if named is None else named))
    if group_id is not None:
        if not members:
            raise InputError(f"group_id {shown(group_id)} is given without a user; set users")
        return Audience(f"{_GROUP}{group_id}", members)
    if len(members) > 1:
        return Audience(f"{_SET}{digest(*members)}", members)
    return Audience(user_identity(members[0])) if members else Audience()


@lru_cache(maxsize=65_536)
def _own_key(workspace_id: str, agent_id: str) -> str:
    return digest("scope", workspace_id, agent_id)


@lru_cache(maxsize=65_536)
def scope_key(secret: str, workspace_id: str, agent_id: str, identity: str) -> str:
    """Return the key of the scope of a user or group: a digest keyed with a lake's secret.

    A key is part of file names. Without the secret, nobody can find out which user it stands for.
    """
    text = digest("scope", workspace_id, agent_id, identity)
    return blake2b(text.encode(), key=secret.encode()[:64], digest_size=16).hexdigest()
