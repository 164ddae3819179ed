"""Settings from environment variables. No other module reads the environment, except the options of the command line.

=========================  ===================  ==================================================================
variable                   default              meaning
=========================  ===================  ==================================================================
MEMORY_PIPELINE_ROOT       ``./memory-lake``    location of the lake: a folder, or ``s3://bucket/prefix``
MEMORY_PIPELINE_START      the lake's           first day of the memory: a 1 January that is a Monday; a new lake starts
                                                on 2024-01-01, or earlier if it has older records
MEMORY_PIPELINE_TIMEZONE   the lake's, or UTC   IANA time zone of the partitions; fixed when the lake is created
MEMORY_PIPELINE_PARTITIONS_PER_RUN
                           all partitions       maximum number of partitions per run, to share a backfill among workers
MEMORY_PIPELINE_LOCATION   none                 name of the lake among the code locations of one Dagster; asset keys and
                                                pools begin with it
MEMORY_PIPELINE_SINGLE_WRITER
                           no                   ``1`` promises that only one process writes at a time; needed for S3
                                                servers without conditional writes
MEMORY_PIPELINE_GROUP      none                 Unix group (name or number) with access to a lake in a folder; without
                                                it only the owner has access
MEMORY_PIPELINE_SESSIONS   a file in the lake   database of sessions and pools, such as ``postgresql://user:password@host/db``;
                                                needed for a lake in a bucket
MEMORY_PIPELINE_WORKSPACE  ``default``          command line: the agent's workspace, if --workspace is not given
MEMORY_PIPELINE_AGENT      ``default``          command line: the agent, if --agent is not given
MEMORY_PIPELINE_USER       none                 command line: the user, if --user is not given
NO_COLOR                   none                 command line: any value prints no colour, as does ``TERM=dumb``
AWS_REGION                 the AWS chain's      region of the lake's bucket
DAGSTER_HOME               none                 Dagster: the instance that stores the runs
DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS
                           no                   Dagster: ``true`` creates a run over many partitions in a second
``*_KEY`` and the like     none                 API keys for ``env:NAME`` references; never shown, never stored
=========================  ===================  ==================================================================

The configuration never contains an API key, only a reference: ``env:NAME`` or ``file:/path``. :func:`resolve_secret`
resolves it just before a request is sent.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import EARLIEST, Calendar, start_for
from memory_pipeline.errors import ConfigurationError, shown
from memory_pipeline.operating_system import group_id

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_ROOT = "./memory-lake"
DEFAULT_START = date(2024, 1, 1)
#: Dagster reads it in every process that creates a run.
PLANS_RANGES = "DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS"

#: The accepted references to a key, for messages.
REFERENCE_FORM = "env:NAME for an environment variable, or file:/absolute/path for a file that contains only the key"

_REFERENCE = re.compile(r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]{0,127})|file:(?P<path>/[^\x00-\x1f\x7f]{1,4095})")
_MAX_SECRET = 65_536
_LOCATION = re.compile(r"[a-z][a-z0-9_]{0,62}")
#: A leap year has 8,784 hours.
_MOST_PER_RUN = 10_000
_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
#: Shorter values are words such as "true" or "none". Redacting them would make logs unreadable.
_MIN_SECRET = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a deployment; the table above describes their variables.

    Attributes:
        start: all grains start on this day, so it is a 1 January (years, quarters and months) that is a Monday (weeks),
            such as in 2018 and 2024. None derives it from the lake's records.
        timezone: None means the zone that the lake was created with.
        partitions_per_run: limit per grain, in backfills and for sensors. None runs a backfill as one run.
        location: begins asset keys and pools, if several lakes share a Dagster. Empty for one lake.
        plans_ranges: whether Dagster writes one planned event per asset of a run instead of one per partition.
    """

    root: str = DEFAULT_ROOT
    start: date | None = None
    timezone: str | None = None
    has_dagster_home: bool = False
    partitions_per_run: int | None = None
    plans_ranges: bool = False
    location: str = ""

    def __post_init__(self) -> None:
        if self.start is not None and (self.start != start_for(self.start) or self.start < EARLIEST):
            raise ConfigurationError(
                f"MEMORY_PIPELINE_START {self.start} is not a 1 January that is a Monday; "
                "expected a date such as 2007-01-01, 2018-01-01 or 2024-01-01"
            )
        if self.timezone is not None:
            Calendar(self.timezone)
        if self.partitions_per_run is not None and not 1 <= self.partitions_per_run <= _MOST_PER_RUN:
            raise ConfigurationError(_per_run_fault(self.partitions_per_run))
        if self.location and not _LOCATION.fullmatch(self.location):
            raise ConfigurationError(
                f"MEMORY_PIPELINE_LOCATION {shown(self.location)} is not a name; expected up to 63 lower-case letters, "
                "digits and underscores, such as sales"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables. Raise ConfigurationError for an invalid value."""
        variables = os.environ if environment is None else environment
        text = variables.get("MEMORY_PIPELINE_START") or None
        try:
            start = None if text is None else date.fromisoformat(text)
        except ValueError:
            raise ConfigurationError(f"MEMORY_PIPELINE_START {shown(text)} is not a date such as 2024-01-01") from None
        return cls(
            root=variables.get("MEMORY_PIPELINE_ROOT") or DEFAULT_ROOT,
            start=start,
            timezone=variables.get("MEMORY_PIPELINE_TIMEZONE") or None,
            has_dagster_home=bool(variables.get("DAGSTER_HOME")),
            partitions_per_run=_per_run(variables.get("MEMORY_PIPELINE_PARTITIONS_PER_RUN") or None),
            plans_ranges=variables.get(PLANS_RANGES, "").lower() == "true",
            location=variables.get("MEMORY_PIPELINE_LOCATION", ""),
        )


def _per_run(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_PER_RUN))):
        raise ConfigurationError(_per_run_fault(text))
    return int(text)


def _per_run_fault(value: object) -> str:
    return (
        f"MEMORY_PIPELINE_PARTITIONS_PER_RUN {shown(value)} is not a whole number from 1 to {_MOST_PER_RUN:,}; "
        "expected for example 168, the hours of a week; unset it to run a backfill as one run"
    )


def bucket_region(environment: Mapping[str, str] | None = None) -> str | None:
    """Return ``AWS_REGION``, or None if it is not set. Of all AWS SDKs only the one for Python does not read it."""
    return (os.environ if environment is None else environment).get("AWS_REGION") or None


def has_single_writer(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether ``MEMORY_PIPELINE_SINGLE_WRITER`` promises that only one process writes to the lake at a time.

    Raises:
        ConfigurationError: the value is neither "1" nor "0" nor empty.
    """
    text = (os.environ if environment is None else environment).get("MEMORY_PIPELINE_SINGLE_WRITER") or "0"
    if text not in {"0", "1"}:
        raise ConfigurationError(
            f"MEMORY_PIPELINE_SINGLE_WRITER {shown(text)} is not accepted; expected 1, or unset it"
        )
    return text == "1"


def sessions_url(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the address of ``MEMORY_PIPELINE_SESSIONS``, or None if it is not set. It may have a password."""
    return (os.environ if environment is None else environment).get("MEMORY_PIPELINE_SESSIONS") or None


def is_dumb_terminal(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether ``TERM`` says that the terminal can neither move the cursor nor show colour."""
    return (os.environ if environment is None else environment).get("TERM") in {"dumb", "unknown"}


def wants_no_colour(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether ``NO_COLOR`` or the terminal asks for output without colour."""
    variables = os.environ if environment is None else environment
    return bool(variables.get("NO_COLOR")) or is_dumb_terminal(variables)


def lake_group(environment: Mapping[str, str] | None = None) -> int | None:
    """Return the group id (gid) of ``MEMORY_PIPELINE_GROUP``, or None if it is not set.

    Raises:
        ConfigurationError: the group does not exist on this machine.
    """
    name = (os.environ if environment is None else environment).get("MEMORY_PIPELINE_GROUP") or None
    if name is None:
        return None
    group = group_id(name)
    if group is None:
        raise ConfigurationError(
            f"MEMORY_PIPELINE_GROUP {shown(name)} does not exist on this machine; expected a name or a number that "
            "`getent group` lists"
        )
    return group


def is_secret_reference(text: str) -> bool:
    """Return whether `text` is a reference to a key, not the key itself."""
    return _REFERENCE.fullmatch(text) is not None


def resolve_secret(reference: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the key of a reference, ``env:NAME`` or ``file:/absolute/path``, stripped of white space.

    `environment` replaces ``os.environ``.

    Raises:
        ConfigurationError: the reference is malformed, or the key is missing or unusable. The message never contains
            the key.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        # It may be the key itself.
        raise ConfigurationError(
            f"a value of {len(reference):,} characters is not a reference to a key; expected {REFERENCE_FORM}"
        )
    if match["name"]:
        secret = (os.environ if environment is None else environment).get(match["name"])
        if secret is None:
            raise ConfigurationError(
                f"{shown(reference, 300)}: the variable is not set; set it in the pipeline's environment"
            )
    else:
        secret = _read_secret(reference, Path(match["path"]))
    secret = secret.strip()
    if not secret:
        raise ConfigurationError(f"{shown(reference, 300)} is empty; it must contain the key")
    if not (secret.isascii() and secret.isprintable()):
        raise ConfigurationError(
            f"{shown(reference, 300)} contains line breaks or characters that are not printable ASCII; "
            "it must contain only the key"
        )
    return secret


def secrets_in_environment(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the values of all variables with names like ``*_KEY``, to redact them in logs and rows.

    The longest comes first, because one value may start with another.
    """
    variables = os.environ if environment is None else environment
    values = {value.strip() for name, value in variables.items() if name.upper().endswith(_SECRET_NAMES)}
    return tuple(sorted((value for value in values if len(value) >= _MIN_SECRET), key=lambda v: (-len(v), v)))


def _read_secret(reference: str, path: Path) -> str:
    """Read a small regular file. A pipe or a device could block or never end."""
    try:
        if not path.is_file():
            raise ConfigurationError(
                f"{shown(reference, 300)}: the file does not exist; create it, or reference another file"
            )
        with path.open("rb") as file:
            content = file.read(_MAX_SECRET + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"{shown(reference, 300)} cannot be read ({reason}); give the pipeline's user read access"
        ) from None
    if len(content) > _MAX_SECRET:
        raise ConfigurationError(
            f"{shown(reference, 300)} is larger than {_MAX_SECRET:,} bytes; it must contain only the key"
        )
    try:
        return content.decode()
    except UnicodeDecodeError:
        # Without `from None` the traceback would show the bytes.
        raise ConfigurationError(f"{shown(reference, 300)} is not UTF-8 text; it must contain only the key") from None
