"""The only reader of the environment.

=========================  ===================  ==================================================================
variable                   default              meaning
=========================  ===================  ==================================================================
MEMORY_PIPELINE_ROOT       ``./memory-lake``    where the lake lies: a folder, or ``s3://bucket/prefix``
MEMORY_PIPELINE_START      the lake's           first day of the memory: a 1 January that is a Monday; a lake begins by
                                                itself on 2024-01-01, or earlier if it has older records
MEMORY_PIPELINE_TIMEZONE   the lake's, or UTC   the IANA zone in which days begin; fixed when the lake is made
MEMORY_PIPELINE_PARTITIONS_PER_RUN
                           all of them          how many partitions a run makes at most, so that workers share the rest
MEMORY_PIPELINE_SINGLE_WRITER
                           no                   ``1`` promises that no two processes ever write at a time, for a server
                                                of S3 that overwrites files it should only create
MEMORY_PIPELINE_GROUP      none                 the Unix group, by name or number, that may use a lake in a folder;
                                                without it only the user who made the lake may
AWS_REGION                 the AWS chain's      the region of the lake's bucket
DAGSTER_HOME               none                 Dagster's own: the instance in which runs are kept
DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS
                           no                   Dagster's own: ``true`` creates a run over many partitions in a second
``*_KEY`` and the like     none                 keys of models, for what says ``env:NAME``; never shown, never stored
=========================  ===================  ==================================================================

A key of a model is never written into a configuration. It is referred to, as ``env:NAME`` or ``file:/path``, and
:func:`resolve_secret` fetches it when a request is about to be sent.
"""

from __future__ import annotations

import grp
import os
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import EARLIEST, Calendar, start_for
from memory_pipeline.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_ROOT = "./memory-lake"
DEFAULT_START = date(2024, 1, 1)
#: Read by Dagster wherever a run is created.
PLANS_RANGES = "DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS"

#: What may stand where a key is wanted, for messages.
REFERENCE_FORM = "env:NAME for an environment variable, or file:/absolute/path for a file that holds the key alone"

_REFERENCE = re.compile(r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]{0,127})|file:(?P<path>/[^\x00-\x1f\x7f]{1,4095})")
_MAX_SECRET = 65_536
#: A year of hours has 8,784.
_MOST_PER_RUN = 10_000
_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
#: Shorter values are words such as "true" or "none", which would black out half of a log.
_MIN_SECRET = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What a deployment may set.

    Attributes:
        root: where the lake lies.
        start: the first day of the memory. All grains begin here, so it is a 1 January (years, quarters and months)
            that is a Monday (weeks): 2018 and 2024 are. None takes what the lake's records ask for.
        timezone: the zone in which days begin; None takes what the lake was made with.
        has_dagster_home: whether runs are kept in a Dagster instance, or forgotten.
        partitions_per_run: how many partitions of a grain one run makes at most, in backfills and where sensors ask;
            None makes a backfill one run.
        plans_ranges: whether Dagster writes one planned event for each asset of a run, rather than one for each
            partition.
    """

    root: str = DEFAULT_ROOT
    start: date | None = None
    timezone: str | None = None
    has_dagster_home: bool = False
    partitions_per_run: int | None = None
    plans_ranges: bool = False

    def __post_init__(self) -> None:
        if self.start is not None and (self.start != start_for(self.start) or self.start < EARLIEST):
            raise ConfigurationError(
                f"MEMORY_PIPELINE_START {self.start} is not a 1 January that is a Monday; "
                "accepted are for instance 2007-01-01, 2018-01-01, 2024-01-01"
            )
        if self.timezone is not None:
            Calendar(self.timezone)
        if self.partitions_per_run is not None and not 1 <= self.partitions_per_run <= _MOST_PER_RUN:
            raise ConfigurationError(_per_run_fault(self.partitions_per_run))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables.

        Raises:
            ConfigurationError: a variable has a value that is not accepted.
        """
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
        )


def _per_run(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_PER_RUN))):
        raise ConfigurationError(_per_run_fault(text))
    return int(text)


def _per_run_fault(value: object) -> str:
    return (
        f"MEMORY_PIPELINE_PARTITIONS_PER_RUN {shown(value)} is not a whole number from 1 to {_MOST_PER_RUN:,}; for "
        "instance 168, a week of hours; unset it to make a backfill in one run"
    )


def bucket_region(environment: Mapping[str, str] | None = None) -> str | None:
    """Return ``AWS_REGION``, which every AWS library knows but the one for Python; None if it is not set."""
    return (os.environ if environment is None else environment).get("AWS_REGION") or None


def has_single_writer(environment: Mapping[str, str] | None = None) -> bool:
    """Tell whether ``MEMORY_PIPELINE_SINGLE_WRITER`` promises that no two processes write to the lake at a time.

    Raises:
        ConfigurationError: it has a value that is neither yes nor no.
    """
    text = (os.environ if environment is None else environment).get("MEMORY_PIPELINE_SINGLE_WRITER") or "0"
    if text not in {"0", "1"}:
        raise ConfigurationError(f"MEMORY_PIPELINE_SINGLE_WRITER {shown(text)} is not accepted; expected 1, or nothing")
    return text == "1"


def lake_group(environment: Mapping[str, str] | None = None) -> int | None:
    """Return the number of the Unix group of ``MEMORY_PIPELINE_GROUP``; None if it is not set.

    Raises:
        ConfigurationError: this machine has no such group.
    """
    name = (os.environ if environment is None else environment).get("MEMORY_PIPELINE_GROUP") or None
    if name is None:
        return None
    try:
        return (grp.getgrgid(int(name)) if name.isdecimal() else grp.getgrnam(name)).gr_gid
    except (KeyError, OverflowError):
        raise ConfigurationError(
            f"MEMORY_PIPELINE_GROUP {shown(name)} is no group of this machine; expected a name or a number that "
            "`getent group` lists"
        ) from None


def is_secret_reference(text: str) -> bool:
    """Tell whether `text` says where a key is found, rather than being one."""
    return _REFERENCE.fullmatch(text) is not None


def resolve_secret(reference: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the key that `reference` points to, without white space around it.

    Args:
        reference: ``env:NAME`` or ``file:/absolute/path``.
        environment: variables in place of the process's.

    Raises:
        ConfigurationError: it is no reference, or there is no usable key behind it; the message never holds the key.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        # It may be the key itself.
        raise ConfigurationError(
            f"a value of {len(reference):,} characters is no reference to a key; expected {REFERENCE_FORM}"
        )
    if match["name"]:
        secret = (os.environ if environment is None else environment).get(match["name"])
        if secret is None:
            raise ConfigurationError(
                f"{shown(reference, 300)}: the variable is not set; set it where the pipeline runs"
            )
    else:
        secret = _read_secret(reference, Path(match["path"]))
    secret = secret.strip()
    if not secret:
        raise ConfigurationError(f"{shown(reference, 300)} is empty; it must hold the key")
    if not (secret.isascii() and secret.isprintable()):
        raise ConfigurationError(
            f"{shown(reference, 300)} holds line breaks or what else no key has; it must hold the key alone"
        )
    return secret


def secrets_in_environment(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return what must never appear in logs or rows: values of variables that are named like keys, longest first.

    Longest first, so that whoever blacks them out one by one leaves no rest of one that begins with another.
    """
    variables = os.environ if environment is None else environment
    values = {value.strip() for name, value in variables.items() if name.upper().endswith(_SECRET_NAMES)}
    return tuple(sorted((value for value in values if len(value) >= _MIN_SECRET), key=lambda v: (-len(v), v)))


def _read_secret(reference: str, path: Path) -> str:
    """Read a file that is expected to be small; a pipe or a device could block or never end."""
    try:
        if not path.is_file():
            raise ConfigurationError(
                f"{shown(reference, 300)}: there is no such file; put the key there, or name another"
            )
        with path.open("rb") as file:
            content = file.read(_MAX_SECRET + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"{shown(reference, 300)} cannot be read ({reason}); let the pipeline's user read it"
        ) from None
    if len(content) > _MAX_SECRET:
        raise ConfigurationError(
            f"{shown(reference, 300)} is larger than {_MAX_SECRET:,} bytes; it must hold the key alone"
        )
    try:
        return content.decode()
    except UnicodeDecodeError:
        # Without `from None` the bytes would be shown along with this error.
        raise ConfigurationError(
            f"{shown(reference, 300)} is not a text in UTF-8; it must hold the key alone"
        ) from None
