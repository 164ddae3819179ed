"""The lake: one root with everything that a deployment remembers."""

from __future__ import annotations

import json
import logging
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import EARLIEST, Calendar, Grain, start_for
from memory_pipeline.errors import ConfigurationError, InputError, LakeError, shown
from memory_pipeline.lake.files.storage import MANIFEST, Storage
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.lake.journal import Journal
from memory_pipeline.settings import DEFAULT_START

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.lake.calls.call_store import Calls
    from memory_pipeline.lake.index.vector_index import VectorIndex
    from memory_pipeline.lake.tables.ledger import Ledger
    from memory_pipeline.lake.tables.tables import Tables
    from memory_pipeline.lake.tables.tombstones import Tombstones

_log = logging.getLogger(__name__)

#: The file that sets models, prompts and budgets.
CONFIGURATION = "config/workspaces.yaml"
_FORMAT = 1
#: Holds an empty file for each day on which the memory was found to begin; the earliest counts.
_STARTS = "state/starts"


class Lake:
    """Journal, tables, ledger, index and calls below one root.

    The zone in which days begin is written down when the lake is made and cannot change afterwards, because every
    period's bounds depend on it.

    Args:
        uri: a folder or ``s3://bucket/prefix``; it need not exist.
        timezone: the zone that is expected; None accepts the lake's own, or UTC for a new one.
        start: the first day of the memory; None takes what its records ask for.

    Raises:
        ConfigurationError: the address or the zone is not accepted, or the lake was made with another zone.
        LakeError: the lake was made by a newer version of this package.
    """

    def __init__(self, uri: str, timezone: str | None = None, start: date | None = None) -> None:
        self.storage = Storage(uri)
        self._set_start = start
        self._oldest_start = DEFAULT_START
        self._expected = timezone
        self._manifest: dict[str, object] | None = None
        self.calendar = Calendar()
        self._adopt(self._read_manifest())
        self.journal = Journal(self.storage)

    @property
    def exists(self) -> bool:
        """Tell whether anything was ever written here."""
        if self._manifest is None:
            self._adopt(self._read_manifest())
        return self._manifest is not None

    @property
    def start(self) -> date:
        """The first day of the memory: the day that was set, or else 2024-01-01, or earlier if older records came."""
        if self._set_start is not None:
            return self._set_start
        names = [entry.path.rpartition("/")[2] for entry in self.storage.list(_STARTS)]
        return min([DEFAULT_START, *map(date.fromisoformat, names)])

    @property
    def accepts_from(self) -> date:
        """The first day of which records are accepted: the day that was set, or else the earliest that there is."""
        return EARLIEST if self._set_start is None else self._set_start

    def ensure(self, oldest: datetime | None = None) -> None:
        """Make sure that it can be written to, and write down what it is made with, if this is its first use.

        Args:
            oldest: the time of the oldest record that is about to be written. If the memory begins later, it begins
                earlier from now on. Each new beginning is a file of its own, so that of several writers none undoes
                what another has written down.

        Raises:
            ConfigurationError: another process has made it in the meantime, with another zone than the one expected;
                or the server that keeps it does not create a file only if it is new.
        """
        self.storage.require_creating()
        if not self.exists:
            manifest: dict[str, object] = {"format": _FORMAT, "timezone": self.calendar.timezone}
            self.storage.create(MANIFEST, json.dumps(manifest).encode())
            self._adopt(self._read_manifest())  # another process may have been first
            if self.storage.is_open_to_all():
                _log.warning(
                    "%s was there before the lake and every user of this machine can read it; `chmod o= %s` ends that",
                    self.storage.uri,
                    self.storage.uri,
                )
        start = self._oldest_start if oldest is None else start_for(self._day_of(oldest))
        if start < self._oldest_start:
            self.storage.create(f"{_STARTS}/{start}", b"")
            self._oldest_start = start

    def _day_of(self, instant: datetime) -> date:
        """Return the day that the hour of an instant belongs to."""
        return self.calendar.ancestor(self.calendar.hour(instant), Grain.DAILY).first_day

    def _adopt(self, manifest: dict[str, object] | None) -> None:
        known = None if manifest is None else str(manifest["timezone"])
        if known and self._expected and known != self._expected:
            raise ConfigurationError(
                f"MEMORY_PIPELINE_TIMEZONE {shown(self._expected)} does not fit the lake at {self.storage.uri}, whose "
                f"days begin in {known}; unset it, or use another root"
            )
        self._manifest = manifest
        self.calendar = Calendar(known or self._expected or "UTC")

    def _read_manifest(self) -> dict[str, object] | None:
        data = self.storage.read(MANIFEST)
        if data is None:
            return None
        try:
            manifest: dict[str, object] = parse_json(data)
        except InputError as error:
            raise LakeError(
                f"{self.storage.locate(MANIFEST)} is none of a lake: {error}; use another root, or, if it lies in a "
                "bucket, see that S3 answers at AWS_ENDPOINT_URL"
            ) from None
        if manifest.get("format") != _FORMAT:
            raise LakeError(
                f"the lake at {self.storage.uri} has format {shown(manifest.get('format'))}; this version of "
                f"memory-pipeline reads format {_FORMAT}"
            )
        return manifest

    def configuration(self) -> Configuration:
        """Read what the deployment has set for workspaces and agents; without a file, all is deterministic.

        Raises:
            ConfigurationError: something in the file is not accepted; the message lists all faults.
        """
        return _parsed(self.storage.read(CONFIGURATION) or b"", self.storage.locate(CONFIGURATION))

    def put_configuration(self, file: Path) -> None:
        """Check a file and make it the lake's configuration.

        Raises:
            InputError: the file cannot be read.
            ConfigurationError: something in the file is not accepted; the message lists all faults.
        """
        try:
            data = file.read_bytes()
        except OSError as error:
            raise InputError(f"file {file} cannot be read: {error.strerror}") from None
        _parsed(data, str(file))
        self.ensure()
        self.storage.write(CONFIGURATION, data)

    # Each of these costs a heavy import that many callers (a writer, say) can do without.

    @cached_property
    def tables(self) -> Tables:
        """The Delta tables."""
        from memory_pipeline.lake.tables.tables import Tables

        return Tables(self.storage)

    @cached_property
    def ledger(self) -> Ledger:
        """What was made, and from what."""
        from memory_pipeline.lake.tables.ledger import Ledger

        return Ledger(self.tables)

    @cached_property
    def tombstones(self) -> Tombstones:
        """What was forgotten."""
        from memory_pipeline.lake.tables.tombstones import Tombstones

        return Tombstones(self.tables)

    @cached_property
    def calls(self) -> Calls:
        """Answers of models, and what was asked and spent."""
        from memory_pipeline.lake.calls.call_store import Calls

        return Calls(self.storage, self.tables)

    @cached_property
    def index(self) -> VectorIndex:
        """The vector index."""
        from memory_pipeline.lake.index.vector_index import VectorIndex

        return VectorIndex(self.storage)


def _parsed(data: bytes, source: str) -> Configuration:
    from memory_pipeline.configuration import Configuration

    try:
        return Configuration.parse(data.decode(), source)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{source}: not UTF-8 at byte {error.start}") from None
