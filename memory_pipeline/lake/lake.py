"""The lake: the root folder or bucket of a deployment, and access to everything stored in it."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from datetime import UTC, date, datetime, time
from functools import cached_property, lru_cache
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING

from memory_pipeline.domain.capture import Capture, rule_for
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import EARLIEST, Calendar, Grain, Period, hour_of, start_for
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope, scope_key, user_identity
from memory_pipeline.domain.text.secrets import Redactor
from memory_pipeline.domain.values import count_of
from memory_pipeline.errors import (
    ConfigurationError,
    DamagedError,
    InputError,
    LakeError,
    MemoryPipelineError,
    shown,
)
from memory_pipeline.lake.files.storage import MANIFEST, Storage
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.lake.journal import Journal
from memory_pipeline.lake.layout import MOST_SHARDS, SHARDS
from memory_pipeline.settings import DEFAULT_START

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from os import PathLike
    from pathlib import Path

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.capture import Talk
    from memory_pipeline.domain.corrections import Corrections
    from memory_pipeline.domain.messages import Message
    from memory_pipeline.lake.access import AccessEvents
    from memory_pipeline.lake.access_log import AccessLog
    from memory_pipeline.lake.archived_rows import ArchivedRows
    from memory_pipeline.lake.calls.call_store import Calls
    from memory_pipeline.lake.calls.reading_calls import ReadingCalls
    from memory_pipeline.lake.corrections import CorrectionFiles
    from memory_pipeline.lake.index.indices import Indices
    from memory_pipeline.lake.index.scoped_rows import ScopedRows
    from memory_pipeline.lake.index.vector_index import VectorIndex
    from memory_pipeline.lake.members import Members
    from memory_pipeline.lake.read_receipts import ReadReceipts
    from memory_pipeline.lake.tables.ledger import Ledger
    from memory_pipeline.lake.tables.tables import Tables
    from memory_pipeline.lake.tables.tombstones import Tombstones
    from memory_pipeline.lake.tokens import Tokens

_log = logging.getLogger(__name__)

#: The file that sets models, prompts and budgets.
CONFIGURATION = "config/workspaces.yaml"
#: A copy of the manifest, in another folder: without its secret, the memory of users is unreachable.
_MANIFEST_COPY = "state/lake.json"
#: Folders that only a lake with a manifest has.
_DATA = ("journal", "tables")
_FORMAT = 4
_TRUSTED_SECONDS = 10
#: A folder with an empty file per start date. The earliest date is the start of memory.
_STARTS = "state/starts"
#: A folder with a file per agent that has written for a user: whether each user has a memory of its own.
_AGENTS = "state/agents"


class Lake:
    """The journal, tables, ledger, index and model calls under one root.

    The time zone is stored when the lake is created. It cannot change later, because the bounds of every period depend
    on it.

    Args:
        uri: a folder or ``s3://bucket/prefix``; it need not exist.
        timezone: the expected IANA time zone. None accepts the lake's own, or UTC for a new lake.
        start: the first day of memory. None derives it from the records.
        secret: the key of new scopes of users and groups, for a new lake; by default random.
        shards: the number of shards of projections, for a new lake.
        manifest: the file with time zone and secret; another one only to compare it with the data.

    Raises:
        ConfigurationError: the address or the zone is invalid, or the lake uses another zone.
        LakeError: a newer version of this package created the lake.
    """

    def __init__(
        self,
        uri: str | PathLike[str],
        timezone: str | None = None,
        start: date | None = None,
        secret: str | None = None,
        manifest: str = MANIFEST,
        shards: int = SHARDS,
    ) -> None:
        self.storage = Storage(uri)
        self._path = manifest
        self._set_start = start
        self._oldest_start = DEFAULT_START
        self._expected = timezone
        self._secret = secret
        self._shards = count_of("shards", shards, 1, MOST_SHARDS)
        self._per_user: dict[Scope, bool] = {}
        self._settings: tuple[Configuration, float] | None = None
        self._manifest: dict[str, object] | None = None
        self._is_sound = False
        self.calendar = Calendar()
        self._adopt(self._read_manifest())
        self.journal = Journal(self.storage, self.scope)

    @property
    def exists(self) -> bool:
        """Return whether the lake has been written to.

        Raises:
            LakeError: it has, but its manifest is lost.
        """
        if self._manifest is None:
            self._adopt(self._read_manifest())
        if self._manifest is None and any(map(self.storage.has, _DATA)):
            self._adopt(self._read_manifest())  # another process may have created the lake meanwhile
            if self._manifest is None:
                raise LakeError(
                    f"{self.storage.locate(MANIFEST)} is missing, but the lake has data; restore it with "
                    "`memory-pipeline repair`, or from a backup: with another one, the memory of users is unreachable"
                )
        return self._manifest is not None

    @property
    def shards(self) -> int:
        """The number of shards of projections, recorded when the lake is created."""
        return self._shards if self._manifest is None else int(str(self._manifest["shards"]))

    @property
    def id(self) -> str:
        """What tells the lake from others: 32 hexadecimal digits. The lake must exist."""
        if not self.exists or self._manifest is None:
            raise LakeError(f"there is no lake at {self.storage.uri}; write to it first")
        return digest("lake", self._manifest["secret"])

    def new_copy(self, uri: str | PathLike[str], shards: int | None = None, *, with_agents: bool = True) -> Lake:
        """Create a lake with the configuration, the time zone and the scopes' keys of this one, and without records.

        If it was created before, it is returned as it is. Without `with_agents`, whether users of an agent share one
        memory is decided anew by the configuration.

        Raises:
            LakeError: this lake does not exist, or there is another one at `uri`.
        """
        self.id  # noqa: B018  # it must exist
        assert self._manifest is not None  # noqa: S101  # nosec B101
        zone, secret = self.calendar.timezone, str(self._manifest["secret"])
        copy = Lake(uri, zone, self._set_start, secret, shards=self.shards if shards is None else shards)
        if copy.exists and copy.id != self.id:
            raise LakeError(f"the lake at {copy.storage.uri} is no copy of {self.storage.uri}; name a new folder")
        copy.ensure(datetime.combine(self.start, time(12), UTC))
        for folder in (CONFIGURATION.partition("/")[0], *([_AGENTS] if with_agents else [])):
            for file in self.storage.list(folder):
                copy.storage.write(file.path, self.storage.read(file.path) or b"")
        return copy

    def scope(self, workspace_id: str, agent_id: str, identity: str = "") -> Scope:
        """Return the scope with an identity; see :mod:`memory_pipeline.domain.scopes`.

        The lake must exist, unless the scope is the agent's own memory.

        Raises:
            InputError: an id is invalid.
            LakeError: the lake does not exist.
        """
        own = Scope(workspace_id, agent_id)
        if not identity:
            return own
        if not self.exists or self._manifest is None:
            raise LakeError(f"there is no lake at {self.storage.uri}; write to it first")
        key = scope_key(str(self._manifest["secret"]), workspace_id, agent_id, identity)
        return Scope(workspace_id, agent_id, identity, key)

    def scopes_for(self, workspace_id: str, agent_id: str, user_id: str | None) -> list[Scope]:
        """Return the scopes that a reader of a user may read: the agent's own memory, the user's, and their groups'.

        Without a user, only the agent's own.

        Raises:
            InputError: an id is invalid.
        """
        own = Scope(workspace_id, agent_id)
        if user_id is None or not self.exists:
            return [own]
        user = self.scope(workspace_id, agent_id, user_identity(user_id))
        return [own, user, *self.members.groups_of(user)]

    def new_scope(self, workspace_id: str, agent_id: str, identity: str = "") -> Scope:
        """Return the scope to write to for an audience: its own, or the agent's if its users share one memory.

        The first write for a user creates the lake, and records for the agent whether its users share one.

        Raises:
            InputError: an id is invalid.
            ConfigurationError: the configuration is invalid, or differs from what was recorded.
        """
        own = Scope(workspace_id, agent_id)
        return self.scope(workspace_id, agent_id, identity) if identity and self._is_per_user(own) else own

    def _is_per_user(self, agent: Scope) -> bool:
        known = self._per_user.get(agent)
        if known is not None:
            return known
        self.ensure()
        configured = self.configuration().per_user(agent)
        path = f"{_AGENTS}/{agent.key}.json"
        self.storage.create(path, json.dumps({"per_user": configured}).encode())
        recorded: bool = json.loads(self.storage.read(path) or b"{}").get("per_user", configured)
        if recorded is not configured:
            raise ConfigurationError(
                f"per_user of agent {agent} is {json.dumps(configured)}, but was {json.dumps(recorded)} when it first "
                "wrote for a user; set it back, or use another agent"
            )
        self._per_user[agent] = recorded
        return recorded

    def timezone_of(self, scope: Scope) -> str | None:
        """Return the configured time zone of speakers who state none, as of the last ten seconds."""
        return self._recent_settings().timezone(scope)

    def capture_of(self, workspace_id: str, talk: Talk) -> Capture:
        """Return the capture of a conversation by the configured rules, as of the last ten seconds."""
        rule = rule_for(self._recent_settings().capture(workspace_id, talk.agent_id), talk)
        return Capture.FULL if rule is None else rule.mode

    def redactor_of(self, workspace_id: str, *, of_messages: bool = False) -> Redactor:
        """Return what removes secrets from a workspace's texts, by the configuration of the last ten seconds.

        It is for texts `of_messages` as they are written, or for all that is made from them and all else.
        """
        settings = self._recent_settings().secrets(workspace_id)
        is_on = settings.redact == "all" or (settings.redact == "derived" and not of_messages)
        return Redactor(self._key_of_digests, is_on, settings.formats)

    def _key_of_digests(self) -> str:
        if self._manifest is None:
            self.ensure()
        return digest("secrets", self._manifest and self._manifest["secret"])

    def as_evidence(self, messages: Sequence[Message], corrections: Corrections) -> list[Message]:
        """Return messages as facts are made from them: without what is withdrawn, and without stored secrets."""
        settings = self._recent_settings()
        workspaces = {message.scope.workspace_id for message in messages}
        derived = {one: self.redactor_of(one) for one in workspaces if settings.secrets(one).redact == "derived"}

        def redacted(message: Message) -> Message:
            redactor = derived.get(message.scope.workspace_id)
            return message if redactor is None else message.redacted(redactor)

        return corrections.applied(list(map(redacted, messages)))

    def without_expired(self, messages: Collection[Message]) -> list[Message]:
        """Return `messages` without those that are older than all that is kept of their time.

        The marks of expiry are read only if a message is older than its workspace keeps yearly summaries.
        """
        settings = self._recent_settings()

        def is_old(message: Message) -> bool:
            retention = settings.retention(message.scope.workspace_id)
            last = retention.last_expired(RetentionClass.YEARLY, message.received_at, self.calendar)
            return last is not None and self.calendar.ancestor(message.hour, Grain.YEARLY).key <= last.key

        if not any(map(is_old, messages)):
            return list(messages)
        from memory_pipeline.lake.tables.tombstones import ExpirationMarks

        marks = ExpirationMarks.of(self.tables)
        return [message for message in messages if not marks.has_expired(message, self.calendar)]

    def _recent_settings(self) -> Configuration:
        """Return the configuration for writes, read again every ten seconds, because a read of S3 takes long."""
        if self._settings is None or monotonic() >= self._settings[1]:
            self._settings = self.configuration(), monotonic() + _TRUSTED_SECONDS
        return self._settings[0]

    def forget_per_user(self, agent: Scope) -> None:
        """Delete the record whether users of an agent share one memory, because the agent was erased."""
        self.storage.delete([f"{_AGENTS}/{agent.key}.json"])
        self._per_user.pop(agent, None)

    @property
    def start(self) -> date:
        """The first day of memory: the configured day, or 2024-01-01, or earlier if there are older records."""
        if self._set_start is not None:
            return self._set_start
        names = [entry.path.rpartition("/")[2] for entry in self.storage.list(_STARTS)]
        return min([DEFAULT_START, *map(date.fromisoformat, names)])

    @property
    def accepts_from(self) -> date:
        """The first day from which records are accepted: the configured day, or the earliest supported one."""
        return EARLIEST if self._set_start is None else self._set_start

    def ensure(self, oldest: datetime | None = None) -> None:
        """Check that the lake is writable, and store its manifest on first use.

        If `oldest`, the time of the oldest record about to be written, is before the current start, the start moves
        back. Each start is a file of its own, so concurrent writers cannot overwrite each other.

        Raises:
            ConfigurationError: another process created the lake with another time zone, or the object store does not
                support creating a file only if it is absent.
            LakeError: the manifest is lost, or differs from its copy.
        """
        self.storage.require_creating()
        if not self.exists:
            manifest: dict[str, object] = {
                "format": _FORMAT,
                "timezone": self.calendar.timezone,
                "shards": self._shards,
                "secret": self._secret or token_hex(),
            }
            self.storage.create(MANIFEST, json.dumps(manifest).encode())
            self._adopt(self._read_manifest())  # another process may have been faster
            self.storage.create(_MANIFEST_COPY, self.storage.read(MANIFEST) or b"")
            if self.storage.is_open_to_all():
                _log.warning(
                    "%s existed before the lake and every user of this machine can read it; fix: `chmod o= %s`",
                    self.storage.uri,
                    self.storage.uri,
                )
        elif not self._is_sound:
            if damage := manifest_damage(self.storage):
                raise LakeError(f"{self.storage.locate(MANIFEST)}: {damage}; run `memory-pipeline repair`")
            self._is_sound = True
        start = self._oldest_start if oldest is None else start_for(self._day_of(oldest))
        if start < self._oldest_start:
            self.storage.create(f"{_STARTS}/{start}", b"")
            self._oldest_start = start

    def copy_manifest(self) -> None:
        """Store the copy of the manifest that earlier versions did not make, unless its secret does not fit the data.

        Raises:
            LakeError: the manifest is lost, or differs from its copy.
        """
        if not self.exists:
            return
        self.ensure()
        if not self.storage.is_there(_MANIFEST_COPY) and not self.misfits():
            self.storage.create(_MANIFEST_COPY, self.storage.read(MANIFEST) or b"")

    def misfits(self) -> list[Scope]:
        """Return the stored scopes of users and groups that do not fit the manifest's secret: it was replaced."""
        if not self.scopes.roster.present():
            return []
        rows = self.scopes.scan(SCOPE_COLUMNS, "identity != ''").to_pylist()
        stored = [Scope(row["workspace_id"], row["agent_id"], row["identity"], row["scope"]) for row in rows]
        return [one for one in stored if one.key != self.scope(one.workspace_id, one.agent_id, one.identity).key]

    def _day_of(self, instant: datetime) -> date:
        return self.calendar.ancestor(hour_of(instant), Grain.DAILY).first_day

    def _adopt(self, manifest: dict[str, object] | None) -> None:
        known = None if manifest is None else str(manifest["timezone"])
        if known and self._expected and known != self._expected:
            raise ConfigurationError(
                f"MEMORY_PIPELINE_TIMEZONE {shown(self._expected)} does not fit the lake at {self.storage.uri}, which "
                f"has the time zone {known}; unset it or use another root"
            )
        self._manifest = manifest
        self.calendar = Calendar(known or self._expected or "UTC")

    def _read_manifest(self) -> dict[str, object] | None:
        data = self.storage.read(self._path)
        if data is None:
            return None
        try:
            manifest: dict[str, object] = parse_json(data)
        except InputError as error:
            raise LakeError(
                f"{self.storage.locate(self._path)} is not a lake manifest: {error}; use another root, or, for a "
                "bucket, check that S3 answers at AWS_ENDPOINT_URL"
            ) from None
        if manifest.get("format") != _FORMAT:
            raise LakeError(
                f"the lake at {self.storage.uri} has format {shown(manifest.get('format'))}; this version of "
                f"memory-pipeline reads format {_FORMAT}: write it to a new lake with `memory-pipeline rebuild "
                f"{self.storage.uri} NEW`, or use a newer version"
            )
        if not isinstance(manifest.get("secret"), str):
            raise LakeError(f"{self.storage.locate(self._path)} has no secret; restore the file")
        shards = manifest.get("shards")
        if not isinstance(shards, int) or not 1 <= shards <= MOST_SHARDS:
            raise LakeError(
                f"{self.storage.locate(self._path)} has shards {shown(shards)}; accepted: 1 to {MOST_SHARDS}; "
                "restore the file"
            )
        return manifest

    def configuration(self) -> Configuration:
        """Return the configuration of workspaces and agents. Without a file, everything is deterministic.

        Raises:
            ConfigurationError: the file is invalid; the message lists all errors.
        """
        return _parsed(self.storage.read(CONFIGURATION) or b"", self.storage.locate(CONFIGURATION))

    def put_configuration(self, file: Path) -> None:
        """Validate a file and store it as the lake's configuration; see :func:`configuration_in`."""
        data = _bytes_of(file)
        _parsed(data, str(file))
        self.ensure()
        self.storage.write(CONFIGURATION, data)
        self._settings = None

    # Imported on first use: these libraries are slow to import, and many callers (such as a writer) do not need them.

    @cached_property
    def tables(self) -> Tables:
        """The Delta tables."""
        from memory_pipeline.lake.tables.tables import Tables

        return Tables(self.storage, self.shards)

    @cached_property
    def members(self) -> Members:
        """The members of groups."""
        from memory_pipeline.lake.members import Members

        return Members(self.storage, self.scope)

    @cached_property
    def access(self) -> AccessEvents:
        """Which agents share memory with which others."""
        from memory_pipeline.lake.access import AccessEvents

        return AccessEvents(self.storage, self.journal, self.scope)

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens of the service."""
        from memory_pipeline.lake.tokens import Tokens

        return Tokens(self.storage)

    @cached_property
    def corrections(self) -> CorrectionFiles:
        """What was withdrawn of the messages."""
        from memory_pipeline.lake.corrections import CorrectionFiles

        return CorrectionFiles(self.storage, self.journal, self.scope)

    @cached_property
    def access_log(self) -> AccessLog:
        """Who read or changed the memory of another agent, and which memories were used."""
        from memory_pipeline.lake.access_log import AccessLog

        return AccessLog(self.storage, self.journal, lambda: self.tables, lambda: self.tombstones, self._consolidated)

    @cached_property
    def read_receipts(self) -> ReadReceipts:
        """What models were handed."""
        from memory_pipeline.lake.read_receipts import ReadReceipts

        return ReadReceipts(
            self.storage,
            self.journal,
            lambda: self.calendar,
            lambda: self.tables,
            lambda: self.tombstones,
            self.configuration,
        )

    def _consolidated(self) -> datetime:
        """Return the end of the last day whose durable memories were consolidated, UTC."""
        from memory_pipeline.lake.tables.ledger import CONSOLIDATION_ASSET

        days = self.ledger.entries(CONSOLIDATION_ASSET)
        return self.calendar.bounds(Period(Grain.DAILY, max(days)))[1] if days else datetime.min.replace(tzinfo=UTC)

    @cached_property
    def archived(self) -> ArchivedRows:
        """The rows that retention has archived."""
        from memory_pipeline.lake.archived_rows import ArchivedRows

        address = self.configuration().archive
        return ArchivedRows(Storage(address) if address else self.storage)

    @cached_property
    def ledger(self) -> Ledger:
        """Which partitions were built, and from which inputs."""
        from memory_pipeline.lake.tables.ledger import Ledger

        return Ledger(self.tables)

    @cached_property
    def tombstones(self) -> Tombstones:
        """Which persons and records were erased."""
        from memory_pipeline.lake.tables.tombstones import Tombstones

        return Tombstones(self.tables)

    @cached_property
    def calls(self) -> Calls:
        """Stored model answers, and the log of calls and costs."""
        from memory_pipeline.lake.calls.call_store import Calls

        return Calls(self.storage, self.tables)

    @cached_property
    def reading_calls(self) -> ReadingCalls:
        """The log of calls and costs, for readers."""
        from memory_pipeline.lake.calls.reading_calls import ReadingCalls

        return ReadingCalls(self.storage, self.tables, lambda: self.exists)

    @cached_property
    def indices(self) -> Indices:
        """The vector indices, one for each embedder."""
        from memory_pipeline.lake.index.indices import Indices

        return Indices(self.storage, self.shards)

    @property
    def index(self) -> VectorIndex:
        """A vector index, for reads that need no vectors."""
        return self.indices.any

    @cached_property
    def projections(self) -> dict[str, ScopedRows]:
        """The projections by scope, except the index, by the names of their schemas. They share open databases."""
        from memory_pipeline.lake.index.lance_tables import Databases
        from memory_pipeline.lake.index.scoped_rows import ScopedRows
        from memory_pipeline.lake.schemas import GRAPH_FACTS, PROJECTED

        databases, renamed = Databases(self.storage), {GRAPH_FACTS.name: "graph"}
        return {
            name: ScopedRows(self.storage, renamed.get(name, name), spec.schema, self.shards, databases)
            for name, spec in PROJECTED.items()
        }

    @cached_property
    def operations(self) -> ScopedRows:
        """The operations on graphs by scope."""
        return self.projections["operations"]

    @cached_property
    def graph_rows(self) -> ScopedRows:
        """The facts of graphs by scope, with the state of each fold."""
        return self.projections["graph_facts"]

    @cached_property
    def events(self) -> ScopedRows:
        """The memory events and consolidation events by scope."""
        return self.projections["events"]

    @cached_property
    def memory_rows(self) -> ScopedRows:
        """The durable memories by scope."""
        return self.projections["memories"]

    @cached_property
    def scopes(self) -> ScopedRows:
        """The scopes with their first and last activity."""
        return self.projections["scopes"]


def manifest_damage(storage: Storage) -> str:
    """Return why the manifest must be restored: it is lost, or differs from its copy; otherwise an empty text."""
    copy, manifest = storage.read(_MANIFEST_COPY), storage.read(MANIFEST)
    if copy is None or copy == manifest:
        return ""
    return "it is missing" if manifest is None else f"it differs from its copy {_MANIFEST_COPY}"


def restore_manifest(storage: Storage) -> None:
    """Make the manifest and its copy equal. The one that is valid and fits the stored scopes stays, or else the copy.

    Raises:
        LakeError: both are lost or invalid.
    """
    misfits: dict[str, int] = {}
    errors = []
    for path in (_MANIFEST_COPY, MANIFEST):
        try:
            lake = Lake(storage.uri, manifest=path)
            if lake.exists:
                misfits[path] = 0
                with suppress(DamagedError):  # repair rebuilds the scopes afterwards
                    misfits[path] = len(lake.misfits())
        except MemoryPipelineError as error:
            errors.append(str(error))
    if not misfits:
        raise LakeError("; ".join(errors))
    best = min(misfits, key=lambda path: misfits[path])
    storage.write(MANIFEST if best == _MANIFEST_COPY else _MANIFEST_COPY, storage.read(best) or b"")


def configuration_in(file: Path) -> Configuration:
    """Return the configuration in a file.

    Raises:
        InputError: the file cannot be read.
        ConfigurationError: the file is invalid; the message lists all errors.
    """
    return _parsed(_bytes_of(file), str(file))


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"file {file} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=2)  # a process that serves many users opens a lake for each
def _parsed(data: bytes, source: str) -> Configuration:
    from memory_pipeline.configuration import Configuration

    try:
        return Configuration.parse(data.decode(), source)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{source}: not UTF-8 at byte {error.start}") from None
