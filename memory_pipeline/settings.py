"""The only reader of the environment.

=========================  ===================  ==================================================================
variable                   default              meaning
=========================  ===================  ==================================================================
MEMORY_PIPELINE_ROOT       ``./memory-lake``    where the lake lies: a folder, or ``s3://bucket/prefix``
MEMORY_PIPELINE_START      ``2024-01-01``       first day of the memory: a 1 January that is a Monday
MEMORY_PIPELINE_TIMEZONE   the lake's, or UTC   the IANA zone in which days begin; fixed when the lake is made
DAGSTER_HOME               none                 Dagster's own: the instance in which runs are kept
=========================  ===================  ==================================================================
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import Calendar
from memory_pipeline.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_ROOT = "./memory-lake"
DEFAULT_START = date(2024, 1, 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a deployment may set.

    Attributes:
        root: where the lake lies.
        start: the first day of the memory. All grains begin here, so it is a 1 January (years, quarters and months)
            that is a Monday (weeks): 2018 and 2024 are.
        timezone: the zone in which days begin; None takes what the lake was made with.
        has_dagster_home: whether runs are kept in a Dagster instance, or forgotten.
    """

    root: str = DEFAULT_ROOT
    start: date = DEFAULT_START
    timezone: str | None = None
    has_dagster_home: bool = False

    def __post_init__(self) -> None:
        if (self.start.month, self.start.day, self.start.weekday()) != (1, 1, 0) or self.start.year < 1970:
            raise ConfigurationError(
                f"MEMORY_PIPELINE_START {self.start} is not a 1 January that is a Monday; "
                "accepted are for instance 2007-01-01, 2018-01-01, 2024-01-01"
            )
        if self.timezone is not None:
            Calendar(self.timezone)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables.

        Raises:
            ConfigurationError: a variable has a value that is not accepted.
        """
        variables = os.environ if environment is None else environment
        text = variables.get("MEMORY_PIPELINE_START") or DEFAULT_START.isoformat()
        try:
            start = date.fromisoformat(text)
        except ValueError:
            raise ConfigurationError(f"MEMORY_PIPELINE_START {shown(text)} is not a date such as 2024-01-01") from None
        return cls(
            root=variables.get("MEMORY_PIPELINE_ROOT") or DEFAULT_ROOT,
            start=start,
            timezone=variables.get("MEMORY_PIPELINE_TIMEZONE") or None,
            has_dagster_home=bool(variables.get("DAGSTER_HOME")),
        )
