"""The scopes of another agent that an agent may read: the one place where access is enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.access import AccessLevel, decide, denial, fold_access
from memory_pipeline.domain.scopes import user_identity
from memory_pipeline.lake.access import paths_among
from memory_pipeline.overlay import found_once, journal_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake


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
        self._known: tuple[tuple[str, ...], list[Scope]] | None = None

    def __call__(self) -> Sequence[Scope]:
        """Return the scopes.

        Raises:
            AccessDeniedError: nothing is granted, or there is no such agent or user. Both have the same message.
        """
        granted: list[Scope] = found_once(self, self._granted)
        if not granted:
            raise denial(self._asking, AccessLevel.READ, self._owner, self._user_id)
        return granted

    def _granted(self) -> list[Scope]:
        scopes = [self._owner]
        if self._user_id is not None and self._lake.exists:
            identity = user_identity(self._user_id)
            scopes.append(self._lake.scope(self._owner.workspace_id, self._owner.agent_id, identity))
        entries = [entry for scope in scopes for entry in journal_entries(self._lake, scope)]
        paths, known = paths_among(entries), self._known
        if known is None or known[0] != paths:
            access = fold_access(self._lake.access.among(entries))
            known = paths, [scope for scope in scopes if decide(self._asking, AccessLevel.READ, scope, access)]
            self._known = known
        return known[1]
