"""The part of Compose's schema that deploy/compose.yaml uses. Any other key is a mistake or new."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_Duration = Annotated[str, Field(pattern=r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$", min_length=2)]
#: Images have a version: `latest` changes.
_Image = Annotated[str, Field(pattern=r"^[a-z0-9./-]+:[A-Za-z0-9._-]*[0-9][A-Za-z0-9._-]*$")]
#: Published on this machine only.
_Port = Annotated[str, Field(pattern=r"^127\.0\.0\.1:[0-9]{2,5}:[0-9]{2,5}$")]
_Volume = Annotated[str, Field(pattern=r"^(\./[\w./-]+:/[\w./-]+:ro|[a-z]+:/[\w./-]+)$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class HealthCheck(_Part):
    test: list[str]
    interval: _Duration
    timeout: _Duration
    retries: int
    start_period: _Duration | None = None


class Amount(_Part):
    cpus: Annotated[str, Field(pattern=r"^[0-9.]+$")]
    memory: Annotated[str, Field(pattern=r"^[0-9]+[MG]$")]


class Resources(_Part):
    limits: Amount


class Deploy(_Part):
    resources: Resources
    replicas: int = 1


class Build(_Part):
    context: str
    dockerfile: str


class Dependency(_Part):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]
    required: bool = True


class EnvironmentFile(_Part):
    path: str
    required: bool


class Service(_Part):
    image: _Image
    build: Build | None = None
    command: list[str] | None = None
    entrypoint: list[str] | None = None
    read_only: bool = False
    tmpfs: list[Literal["/tmp"]] = []
    init: bool = False
    restart: Annotated[str, Field(pattern=r"^(no|always|unless-stopped|on-failure(:[0-9]+)?)$")] | None = None
    cap_drop: list[str] = []
    security_opt: list[str] = []
    environment: dict[str, str] = {}
    env_file: list[EnvironmentFile] = []
    volumes: list[_Volume] = []
    ports: list[_Port] = []
    healthcheck: HealthCheck | None = None
    depends_on: dict[str, Dependency] = {}
    stop_grace_period: _Duration | None = None
    profiles: list[str] = []
    # No service may use all memory of the machine.
    deploy: Deploy


class Compose(_Part):
    name: str
    services: dict[str, Service]
    volumes: dict[str, None]
