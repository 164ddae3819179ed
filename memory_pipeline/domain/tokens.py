"""Tokens: what a client of the service may do, and in whose memory."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.scopes import Scope, label_of
from memory_pipeline.domain.values import one_of
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT: Final = re.compile(r"mp_([0-9a-f]{16})_([\w-]{43})")
_ID: Final = re.compile(r"[0-9a-f]{16}")


class Right(StrEnum):
    """What a token allows. Each level allows what those before it do."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def allows(self, other: Right) -> bool:
        """Return whether this level includes another one."""
        levels = list(Right)
        return levels.index(self) >= levels.index(other)


@dataclass(frozen=True, slots=True)
class ServiceToken:
    """What is stored of a token. The secret is not: only its SHA-256 digest.

    Attributes:
        id: 16 hexadecimal digits; part of the token's text.
        digest: SHA-256 of the secret, which has 256 random bits, so that no slower digest is needed.
        workspace_id, agent_id: the agent whose memory it opens.
        user_id: the user; None for the agent's own memory, or if each request names a user.
        is_for_many_users: whether each request names the user.
        level: what it allows.
        name: a note for people.
        created_at, expires_at: UTC; it does not expire without the second.
    """

    id: str
    digest: str
    workspace_id: str
    agent_id: str
    user_id: str | None
    is_for_many_users: bool
    level: Right
    name: str
    created_at: datetime
    expires_at: datetime | None

    @classmethod
    def new(
        cls,
        scope: Scope,
        level: Right | str,
        now: datetime,
        *,
        user_id: str | None = None,
        is_for_many_users: bool = False,
        name: str = "",
        expires_at: datetime | None = None,
    ) -> tuple[ServiceToken, str]:
        """Return a token, and its text, which is not stored anywhere.

        Raises:
            InputError: an argument is invalid, or it has one user and many.
        """
        if user_id is not None and is_for_many_users:
            raise InputError(f"a token is for the user {shown(user_id)} or for many users, not for both; give one")
        if expires_at is not None and expires_at <= now:
            raise InputError(f"expires_at {expires_at.isoformat()} is in the past; expected a later time")
        identifier, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        user = None if user_id is None else label_of("user_id", user_id)
        token = cls(
            identifier, _digest(secret), scope.workspace_id, scope.agent_id, user, is_for_many_users,
            one_of(Right, "level", level), label_of("name", name) if name else "", now, expires_at,
        )  # fmt: skip
        return token, f"mp_{identifier}_{secret}"

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ServiceToken:
        """Return a token from its record. Raise InputError if the record is invalid."""
        try:
            created, expires = (
                None if record[name] is None else datetime.fromisoformat(record[name])
                for name in ("created_at", "expires_at")
            )
            if created is None:
                raise InputError("created_at is missing")
            scope = Scope(record["workspace_id"], record["agent_id"])
            token = cls(
                record["id"], record["digest"], scope.workspace_id, scope.agent_id,
                None if record["user_id"] is None else label_of("user_id", record["user_id"]),
                record["is_for_many_users"] is True, one_of(Right, "level", record["level"]), str(record["name"]),
                created, expires,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"it is no token: {error}") from None
        if not is_token_id(token.id) or not isinstance(token.digest, str):
            raise InputError("it is no token: its id or its digest is not valid")
        return token

    def to_record(self) -> dict[str, object]:
        """Return it as a JSON object."""
        times = {"created_at": self.created_at.isoformat()}
        expires = None if self.expires_at is None else self.expires_at.isoformat()
        names = ("id", "digest", "workspace_id", "agent_id", "user_id", "is_for_many_users", "name")
        return {name: getattr(self, name) for name in names} | times | {"level": str(self.level), "expires_at": expires}

    @property
    def users(self) -> str:
        """Whose memory it opens, for people."""
        if self.is_for_many_users:
            return "many users, named in each request"
        return "the agent itself" if self.user_id is None else f"user {self.user_id}"

    def is_valid(self, secret: str, now: datetime) -> bool:
        """Return whether a secret is that of the token, compared in constant time, and it has not expired."""
        is_equal = hmac.compare_digest(_digest(secret), self.digest)
        return is_equal and (self.expires_at is None or now < self.expires_at)


def is_token_id(text: object) -> bool:
    """Return whether a text can be the id of a token."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def parts_of(text: str) -> tuple[str, str] | None:
    """Return the id and the secret in the text of a token, or None if it is no token."""
    found = _TEXT.fullmatch(text)
    return None if found is None else (found[1], found[2])


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
