"""The tokens of the service, as files.

::

    config/tokens/{id}.json    a token, with the digest of its secret

A file never changes. Deleting it revokes the token: the service reads it again after a few seconds.
"""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.tokens import ServiceToken, is_token_id, parts_of
from memory_pipeline.errors import InputError, LakeError, shown
from memory_pipeline.lake.files.strict_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from memory_pipeline.lake.files.storage import Storage

_FOLDER: Final = "config/tokens"
#: Seconds for which a token is taken from memory. A revoked one is accepted for this long.
REREAD: Final = 5.0
#: Tokens that are held in memory. Ids that do not exist are among them.
_MOST_KNOWN: Final = 10_000


class Tokens:
    """Adds, reads and revokes tokens. Safe to use from several threads and processes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, tuple[float, ServiceToken | None]] = {}
        self._any: tuple[float, bool] = (0.0, False)

    def add(self, token: ServiceToken) -> None:
        """Write a token durably."""
        self._storage.create(_path(token.id), (json.dumps(token.to_record(), ensure_ascii=False) + "\n").encode())
        self._any = (0.0, False)

    def all(self) -> list[ServiceToken]:
        """Return all tokens, oldest first.

        Raises:
            LakeError: a file is damaged.
        """
        paths = [file.path for file in self._storage.list(_FOLDER) if file.path.endswith(".json")]
        found = [self._read(path) for path in paths]
        return sorted((one for one in found if one is not None), key=lambda one: (one.created_at, one.id))

    def exist(self) -> bool:
        """Return whether there are tokens. The answer may be a few seconds old."""
        read_at, known = self._any
        if monotonic() - read_at > REREAD or not read_at:
            known = bool(self._storage.names(_FOLDER))
            self._any = (monotonic(), known)
        return known

    def found(self, text: str, now: datetime) -> ServiceToken | None:
        """Return the token with a text, or None if there is none, or it has expired.

        Raises:
            LakeError: its file is damaged, or cannot be read.
        """
        parts = parts_of(text)
        if parts is None:
            return None
        identifier, secret = parts
        read_at, token = self._known.get(identifier, (0.0, None))
        if not read_at or monotonic() - read_at > REREAD:
            token = self._read(_path(identifier))
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[identifier] = (monotonic(), token)
        return token if token is not None and token.is_valid(secret, now) else None

    def revoke(self, identifier: str) -> None:
        """Delete a token.

        Raises:
            InputError: there is none with this id.
        """
        if not is_token_id(identifier) or self._read(_path(identifier)) is None:
            raise InputError(f"there is no token with id {shown(identifier)}; see `memory-pipeline tokens list`")
        self._delete([identifier])

    def remove(self, is_removed: Callable[[ServiceToken], bool]) -> int:
        """Delete tokens, because a user or an agent was erased; return their number."""
        found = [one.id for one in self.all() if is_removed(one)]
        self._delete(found)
        return len(found)

    def _delete(self, identifiers: Collection[str]) -> None:
        self._storage.delete([_path(one) for one in identifiers])
        self._known.clear()
        self._any = (0.0, False)

    def _read(self, path: str) -> ServiceToken | None:
        data = self._storage.read(path)
        if data is None:
            return None
        try:
            token = ServiceToken.from_record(parse_json(data))
            if _path(token.id) != path:
                raise InputError(f"it has the id {token.id}")
        except InputError as error:
            raise LakeError(
                f"{self._storage.locate(path)} is damaged: {error}; revoke the token, or delete the file"
            ) from None
        return token


def _path(identifier: str) -> str:
    return f"{_FOLDER}/{identifier}.json"
