"""The scopes of another agent that an agent may read: the one place where access is enforced, and logged."""

from __future__ import annotations

from contextvars import ContextVar
from functools import wraps
from inspect import getmembers, isfunction
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_pipeline.domain.access import AccessLevel, decide, denial, fold_access
from memory_pipeline.domain.scopes import user_identity
from memory_pipeline.lake.access import paths_among
from memory_pipeline.lake.access_log import ids_in
from memory_pipeline.overlay import found_once, journal_entries, one_read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

#: Methods of which a row would say nothing: they are steps of others, or read nothing.
_NOT_LOGGED = frozenset(["of_agent", "for_user", "chosen", "embedded", "load_results", "ranked", "fitting", "resolved"])
_NOT_LOGGED |= {"identity_of", "knows", "note_uses"}


class _Granted(NamedTuple):
    """The scopes that may be read, the ids of the grants, and the highest level of these."""

    scopes: list[Scope]
    grant_ids: list[str]
    level: AccessLevel | None


#: What was granted within the call of a method that is logged.
_CALL: ContextVar[list[_Granted] | None] = ContextVar("memory_pipeline_call", default=None)


class GrantedScopes:
    """Returns the scopes of an agent that another agent may read now: its own memory, and that of one user.

    Every read asks for them before it opens any row. Within one read, the folder that it lists for pending records also
    has the grants, so the check needs no request. Safe to use from several threads.

    Args:
        lake: the lake.
        asking: the agent that reads.
        owner: the own scope of the agent whose memory is read.
        user_id: the user whose memory is read too, if that is granted.
    """

    def __init__(self, lake: Lake, asking: Scope, owner: Scope, user_id: str | None) -> None:
        self._lake = lake
        self._asking = asking.own
        self._owner = owner
        self._user_id = user_id
        self._known: tuple[tuple[str, ...], _Granted] | None = None

    def __call__(self) -> Sequence[Scope]:
        """Return the scopes.

        Raises:
            AccessDeniedError: nothing is granted, or there is no such agent or user. Both have the same message.
        """
        granted: _Granted = found_once(self, self._granted)
        if (call := _CALL.get()) is not None:
            call.append(granted)
        if not granted.scopes:
            raise denial(self._asking, AccessLevel.READ, self._owner, self._user_id)
        return granted.scopes

    def log(self, target: object, prefix: str = "") -> None:
        """Log the calls of the public methods of a reader, or of its graph or durable memories, that read something.

        An agent that reads its own memory is not logged.
        """
        if self._asking == self._owner:
            return
        for name, _ in getmembers(type(target), isfunction):
            if not name.startswith("_") and name not in _NOT_LOGGED:
                setattr(target, name, self._logged(f"{prefix}{name}", getattr(target, name)))

    def _logged(self, operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **options: Any) -> Any:
            if _CALL.get() is not None:  # a step of another method
                return method(*args, **options)
            asked: list[_Granted] = []
            token = _CALL.set(asked)
            result = None
            try:
                with one_read():
                    result = method(*args, **options)
                return result
            finally:
                _CALL.reset(token)
                if asked and self._lake.exists:
                    ids, count = ids_in(result)
                    self._lake.access_log.note(
                        self._asking,
                        self._scopes()[-1],
                        operation,
                        ids,
                        results=count,
                        grant_ids=asked[-1].grant_ids,
                        level=asked[-1].level,
                    )

        return call

    def _scopes(self) -> list[Scope]:
        if self._user_id is None or not self._lake.exists:
            return [self._owner]
        identity = user_identity(self._user_id)
        return [self._owner, self._lake.scope(self._owner.workspace_id, self._owner.agent_id, identity)]

    def _granted(self) -> _Granted:
        scopes = self._scopes()
        entries = [entry for scope in scopes for entry in journal_entries(self._lake, scope)]
        paths, known = paths_among(entries), self._known
        if known is None or known[0] != paths:
            access = fold_access(self._lake.access.among(entries))
            decisions = {scope: decide(self._asking, AccessLevel.READ, scope, access) for scope in scopes}
            grants = [one.grant for one in decisions.values() if one.grant is not None]
            level = max((one.level for one in grants if one.level), key=lambda one: one.rank, default=None)
            allowed = [scope for scope, one in decisions.items() if one.is_allowed]
            known = self._known = paths, _Granted(allowed, sorted(one.id for one in grants), level)
        return known[1]
