"""Look for changes once per read, however many parts of memory it reads."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.files.storage import FileInfo

#: What was found within :func:`one_read`, by whom; None outside of it.
_FOUND: ContextVar[dict[object, Any] | None] = ContextVar("memory_pipeline_found", default=None)

_NOTHING: Any = object()

_Found = TypeVar("_Found")


@contextmanager
def one_read(*, is_new: bool = False) -> Iterator[None]:
    """Look for changes only once for all reads inside, also in threads with a copy of the context.

    Inside of another one, changes are those that the outer one has found, unless it `is_new`, as a write must be.
    """
    if _FOUND.get() is not None and not is_new:
        yield
        return
    token = _FOUND.set({})
    try:
        yield
    finally:
        _FOUND.reset(token)


def found_once(key: object, look: Callable[[], _Found]) -> _Found:
    """Return what `look` returns, or has returned within the same :func:`one_read`."""
    found = _FOUND.get()
    if found is None:
        return look()
    value: _Found = found.get(key, _NOTHING)
    if value is _NOTHING:
        value = found[key] = look()
    return value


def look_again(key: object) -> None:
    """Let the next :func:`found_once` with a key look again, also within the same :func:`one_read`."""
    found = _FOUND.get()
    if found is not None:
        found.pop(key, None)


def journal_entries(lake: Lake, scope: Scope) -> list[FileInfo]:
    """Return the files in a scope's folder of the journal, listed once within the same :func:`one_read`."""
    return found_once((lake, scope.key), lambda: lake.journal.entries(scope))


def journal_paths(lake: Lake, scope: Scope) -> list[str]:
    """Return the paths of a scope's pending files, listed once within the same :func:`one_read`."""
    return found_once((lake, scope.key, "paths"), lambda: lake.journal.paths(scope))
