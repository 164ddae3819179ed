"""The lake of a memory, opened at first use, with its reader and writer."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, wraps
from importlib.util import find_spec
from inspect import getmembers, isfunction, isroutine, signature
from typing import TYPE_CHECKING, Any, Self, cast

from memory_pipeline.domain.conversations import audience_in
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.scopes import Scope, optional_label
from memory_pipeline.errors import (
    ConfigurationError,
    DamagedLanceTableError,
    InputError,
    LakeError,
    MemoryPipelineError,
    shown,
)
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import configured_models, reading_embedder
from memory_pipeline.reader import MemoryReader
from memory_pipeline.settings import Settings
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.models.factory import Models

_log = logging.getLogger(__name__)


def clock() -> datetime:
    """Return the current time, UTC."""
    return datetime.now(UTC)


class AtTime:
    """A memory, or a part of it, whose methods have another current time, unless a call has its own `now`."""

    def __init__(self, part: object, now: datetime) -> None:
        self._part, self._now = part, now

    def __getattr__(self, name: str) -> Any:
        return _at(getattr(self._part, name), self._now)


def _at(value: Any, now: datetime) -> Any:
    if _has_time(type(value)):
        return AtTime(value, now)
    if not isroutine(value):
        return value

    @wraps(value)
    def call(*given: Any, **named: Any) -> Any:
        if _takes_now(value) and named.get("now") is None:
            named["now"] = now
        return _at(value(*given, **named), now)

    return call


def _has_time(cls: type) -> bool:
    """Return whether a class is a part of the memory: a public method takes the current time, or opens such parts."""
    public = [one for name, one in getmembers(cls, isfunction) if not name.startswith("_")]
    return hasattr(cls, "pool") or any(map(_takes_now, public))


def _takes_now(method: Callable[..., object]) -> bool:
    now = signature(method).parameters.get("now")
    return now is not None and now.default is None


class OpenedMemory:
    """The part of :class:`memory_pipeline.Memory` that opens the lake at first use."""

    def __init__(
        self,
        uri: str | PathLike[str] | Lake | None = None,
        *,
        user_id: str | None = None,
        agent_id: str = "default",
        workspace_id: str = "default",
        timezone: str | None = None,
        embedder: Embedder | None = None,
        auto_run: bool = False,
    ) -> None:
        """Open the memory in a lake. The first write creates the lake.

        Args:
            uri: a folder or ``s3://bucket/prefix``; by default MEMORY_PIPELINE_ROOT, or ``./memory-lake``. Memories of
                many users in one process may share an open :class:`~memory_pipeline.lake.Lake`.
            user_id: the user. Searches find the user's memory, that of the user's groups, and the agent's own.
            agent_id: the agent.
            workspace_id: the agent's workspace.
            timezone: IANA name of the time zone of the user, in which days are shown, and "yesterday" is meant.
            embedder: the embedder that the pipeline uses; by default the one in the lake's config/workspaces.yaml.
            auto_run: whether a write starts :meth:`Memory.run` if 1,000 or more entries of its user are pending; in
                a background thread, one at a time. For agents without a pipeline; needs ``memory-pipeline[run]``.

        Raises:
            InputError: an id or the embedder is invalid.
            ConfigurationError: the time zone is unknown, or `auto_run` needs a library that is not installed.

        The lake is opened at first use, which raises ConfigurationError or LakeError if it cannot be; :meth:`check`
        says what is wrong with it.
        """
        if embedder is not None and not callable(getattr(embedder, "embed", None)):
            raise InputError(
                f"embedder {shown(embedder)} is not an object with name, dimension and embed; set a model by its name "
                "under embedding in the lake's config/workspaces.yaml"
            )
        if timezone is not None:
            Calendar(timezone)
        self.user_id = optional_label("user_id", user_id)
        self._scope = Scope(workspace_id, agent_id)
        self._uri = uri
        self._timezone = timezone
        self._given_embedder = embedder
        if auto_run and find_spec("polars") is None:
            raise ConfigurationError('auto_run needs Polars: pip install "memory-pipeline[run]"')
        self._auto_run = auto_run
        self._running = threading.Lock()

    def with_now(self, now: When) -> Self:
        """Return this memory at a fixed time: it is the `now` of all methods that take one, also of its parts.

        A `now` that is given to a method comes first. A client of :meth:`Memory.wrap` goes by the clock.

        Raises:
            InputError: `now` is not a time with its zone.
        """
        return cast("Self", AtTime(self, Calendar().moment("now", now)))

    @cached_property
    def lake(self) -> Lake:
        """Where memory is stored. It is opened at first use."""
        if isinstance(self._uri, Lake):
            return self._uri
        settings = Settings.from_environment()
        return Lake(self._uri or settings.root, settings.timezone, settings.start)

    @cached_property
    def _embedder(self) -> Embedder:
        return self._given_embedder or reading_embedder(self.lake.configuration(), clock)

    @property
    def _models(self) -> Models:
        configuration, zone = self.lake.configuration(), self.lake.calendar.timezone
        models = configured_models(configuration, self.lake.calls, zone, clock)
        return models if self._given_embedder is None else replace(models, embedder=self._given_embedder)

    @cached_property
    def reader(self) -> MemoryReader:
        """Reads in more detail, for instance by grain. Rebuilds tables of the index that another version wrote."""
        zone = self._timezone or self.lake.timezone_of(self._scope)
        reader = MemoryReader(self.lake, self._scope, self._embedder, user_id=self.user_id, timezone=zone)
        try:
            reader.open_tables()
        except DamagedLanceTableError:
            with suppress(ImportError, LakeError, OSError):  # without access for writing, reads name the remedy
                from memory_pipeline.steps.restore import restore_projections

                restore_projections(self.lake, self._embedder)
        return reader

    @cached_property
    def writer(self) -> MemoryWriter:
        """Writes in more detail, for instance corrections of durable memories. Creates the lake if a user is named."""
        audience = audience_in({"user_id": self.user_id, "users": None, "group_id": None}, ())
        scope = self._scope
        if audience.identity:
            scope = self.lake.new_scope(scope.workspace_id, scope.agent_id, audience.identity)
        writer = MemoryWriter(self.lake, scope, user_id=self.user_id)
        if self._auto_run:
            writer.run_when_many = self._run_in_background
        return writer

    def _run_in_background(self) -> None:
        """Start a run in a thread, unless one is going on. The end of the process stops it, which loses nothing."""
        if self._running.acquire(blocking=False):
            threading.Thread(target=self._run_quietly, name="memory-pipeline run", daemon=True).start()

    def _run_quietly(self) -> None:
        from memory_pipeline.client.pipeline import run_all

        try:
            for _ in run_all(self.lake, self._models, self.lake.calendar.moment("now", clock()), builds_marts=False):
                pass
        except (MemoryPipelineError, OSError) as error:
            _log.warning("a run in the background failed; a later write starts another one: %s", error)
        finally:
            self._running.release()
