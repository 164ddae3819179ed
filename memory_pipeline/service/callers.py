"""Who calls: the token of a request, the memory that it opens, and how often it may call."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from memory_pipeline.client.memory import Memory
from memory_pipeline.domain.scopes import Scope, label_of
from memory_pipeline.domain.tokens import Right
from memory_pipeline.errors import InputError, shown
from memory_pipeline.service.problems import ProblemError

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from memory_pipeline.lake import Lake

#: The header that names the user, if a token is for many.
USER_HEADER: Final = "X-Memory-User"
#: Addresses of this machine alone.
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
#: Buckets of tokens that are remembered.
_MOST_BUCKETS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and whose memory is meant.

    Attributes:
        token_id: id of the token; empty without one.
        scope: the agent.
        user_id: the user, or None for the agent's own memory.
        is_for_many_users: whether the client, rather than the token, named the user.
        level: what is allowed.
    """

    token_id: str
    scope: Scope
    user_id: str | None
    is_for_many_users: bool
    level: Right

    def require(self, level: Right) -> None:
        """Raise ProblemError if the token does not allow something."""
        if not self.level.allows(level):
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "not-allowed",
                f"this token allows {self.level}, and this needs {level}; see `memory-pipeline tokens create`",
            )


class Callers:
    """Finds out who calls.

    Without tokens in the lake, `default` is the agent, and the client may name any user. That is for a service that
    only this machine reaches; requests that a web page of another origin could send are refused then.
    """

    def __init__(self, lake: Lake, default: Scope, *, allows_open: bool, rate: float) -> None:
        self._tokens = lake.tokens
        #: Whether a token may have to be read over the network.
        self.is_remote = not lake.storage.is_local
        self._default = default
        self._allows_open = allows_open
        self._buckets = _Buckets(rate)

    def caller(self, headers: Headers) -> Caller:
        """Return who sends a request, by its headers. Raise ProblemError if nobody may, or it is one too many."""
        scheme, _, text = headers.get("authorization", "").partition(" ")
        named = headers.get(USER_HEADER)
        try:
            user = None if named is None else label_of(USER_HEADER, _decoded(named))
        except InputError as error:
            raise ProblemError(HTTPStatus.BAD_REQUEST, "invalid-input", str(error)) from None
        if not text and self._allows_open and not self._tokens.exist():
            _refuse_other_origins(headers)
            return self._within_rate(Caller("", self._default, user, True, Right.ADMIN))
        token = self._tokens.found(text.strip(), datetime.now(UTC)) if scheme.lower() == "bearer" else None
        if token is None:
            why = "is unknown, revoked or expired" if text else "is missing"
            raise ProblemError(
                HTTPStatus.UNAUTHORIZED,
                "unauthorized",
                f"the token {why}; send `Authorization: Bearer …` with one of `memory-pipeline tokens create`",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if token.is_for_many_users and user is None:
            raise ProblemError(
                HTTPStatus.BAD_REQUEST, "no-user", f"this token is for many users; name the user in {USER_HEADER}"
            )
        if not token.is_for_many_users and user not in {None, token.user_id}:
            raise ProblemError(
                HTTPStatus.FORBIDDEN, "access-denied", f"this token is for {token.users}, not for user {shown(user)}"
            )
        scope = Scope(token.workspace_id, token.agent_id)
        whose = user if token.is_for_many_users else token.user_id
        return self._within_rate(Caller(token.id, scope, whose, token.is_for_many_users, token.level))

    def _within_rate(self, caller: Caller) -> Caller:
        wait = self._buckets.take(caller.token_id)
        if wait:
            raise ProblemError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too-many-requests",
                f"this token has sent more than {self._buckets.rate:g} requests a second; wait",
                headers={"Retry-After": str(max(1, round(wait)))},
            )
        return caller


def _decoded(text: str) -> str:
    """Return the value of a header as text: its bytes are UTF-8, if they are no ASCII."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        raise InputError(f"{USER_HEADER} is not valid UTF-8") from None


def _refuse_other_origins(headers: Headers) -> None:
    """Raise ProblemError if a web page may have sent a request, by its origin or by a name that leads here."""
    hosts = [urlsplit(f"//{headers.get('host', '')}").hostname]
    if origin := headers.get("origin"):
        hosts.append(urlsplit(origin).hostname)
    for host in hosts:
        if host not in LOOPBACK:
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "other-origin",
                f"without tokens, the service answers this machine alone, not {shown(host)}; make a token with "
                "`memory-pipeline tokens create`",
            )


class _Buckets:
    """Limits the rate of each token: `rate` requests a second, and twice as many at once."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._lock = Lock()
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Count a request; return the seconds to wait if it is one too many, or 0."""
        if not self.rate:
            return 0.0
        now, most = monotonic(), max(1.0, 2 * self.rate)
        with self._lock:
            at, left = self._known.pop(key, (now, most))
            left = min(most, left + (now - at) * self.rate)
            is_allowed = left >= 1
            self._known[key] = (now, left - is_allowed)
            if len(self._known) > _MOST_BUCKETS:
                self._known.popitem(last=False)
        return 0.0 if is_allowed else (1 - left) / self.rate


class OpenMemories:
    """The memories that were used last, opened. They share one lake."""

    def __init__(self, lake: Lake, most: int, *, auto_run: bool = False) -> None:
        self._lake = lake
        self._most = most
        self._auto_run = auto_run
        self._lock = Lock()
        self._known: OrderedDict[tuple[str, str, str | None], Memory] = OrderedDict()

    def of(self, caller: Caller) -> Memory:
        """Return the memory that is meant."""
        key = caller.scope.workspace_id, caller.scope.agent_id, caller.user_id
        with self._lock:
            if (known := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return known
            workspace, agent, user = key
            memory = Memory(self._lake, user_id=user, agent_id=agent, workspace_id=workspace, auto_run=self._auto_run)
            self._known[key] = memory
            if len(self._known) > self._most:
                self._known.popitem(last=False)
            return memory
