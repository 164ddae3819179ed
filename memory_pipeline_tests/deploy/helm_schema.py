"""The part of the schema of Dagster's Helm chart that deploy/helm/values.yaml uses.

The chart's own schema accepts unknown keys in most places, and Helm silently ignores them. Here they are
errors.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_Quantity = Annotated[str, Field(pattern=r"^[0-9]+(m|Mi|Gi)?$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Global(_Part):
    dagster_home: str
    postgresql_secret_name: str
    service_account_name: str


class ServiceAccount(_Part):
    create: bool
    annotations: dict[str, str]


class Image(_Part):
    repository: str
    tag: Annotated[str, Field(pattern=r"[0-9]")]
    pull_policy: Literal["Always", "IfNotPresent", "Never"]


class Reference(_Part):
    name: str


class Amounts(_Part):
    cpu: _Quantity | None = None
    memory: _Quantity


class Resources(_Part):
    requests: Amounts
    limits: Amounts


class PodSecurity(_Part):
    run_as_non_root: bool
    run_as_user: int
    run_as_group: int
    fs_group: int


class Capabilities(_Part):
    drop: list[str]


class ContainerSecurity(_Part):
    allow_privilege_escalation: bool
    capabilities: Capabilities


class Enabled(_Part):
    enabled: bool


class UserDeployment(_Part):
    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    image: Image
    dagster_api_grpc_args: list[str]
    port: int
    include_config_in_launched_runs: Enabled
    env: dict[str, str]
    env_secrets: list[Reference]
    pod_security_context: PodSecurity
    security_context: ContainerSecurity
    resources: Resources


class UserDeployments(_Part):
    enabled: bool
    enable_subchart: bool
    deployments: list[UserDeployment]


class ContainerConfig(_Part):
    security_context: ContainerSecurity


class PodSpecConfig(_Part):
    security_context: PodSecurity
    termination_grace_period_seconds: int


class JobSpecConfig(_Part):
    ttl_seconds_after_finished: int


class RunK8sConfig(_Part):
    container_config: ContainerConfig
    pod_spec_config: PodSpecConfig
    job_spec_config: JobSpecConfig


class K8sRunLauncher(_Part):
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"]
    load_incluster_config: bool
    env_config_maps: list[Reference]
    env_secrets: list[Reference]
    env_vars: list[str]
    volume_mounts: list[dict[str, Any]]
    volumes: list[dict[str, Any]]
    fail_pod_on_run_failure: bool
    run_k8s_config: Annotated[RunK8sConfig, Field(alias="runK8sConfig")]


class RunLauncherConfig(_Part):
    k8s_run_launcher: Annotated[K8sRunLauncher, Field(alias="k8sRunLauncher")]


class RunLauncher(_Part):
    type: Literal["K8sRunLauncher"]
    config: RunLauncherConfig


class Webserver(_Part):
    replica_count: int
    image: Image
    pod_security_context: PodSecurity
    security_context: ContainerSecurity
    resources: Resources


class QueuedRunCoordinator(_Part):
    dequeue_interval_seconds: int


class RunCoordinatorConfig(_Part):
    queued_run_coordinator: QueuedRunCoordinator


class RunCoordinator(_Part):
    enabled: bool
    type: Literal["QueuedRunCoordinator"]
    config: RunCoordinatorConfig


class RunMonitoring(_Part):
    enabled: bool
    start_timeout_seconds: int
    cancel_timeout_seconds: int
    max_resume_run_attempts: int
    poll_interval_seconds: int
    free_slots_after_run_end_seconds: int


class RunRetries(_Part):
    enabled: bool
    max_retries: int
    retry_on_asset_or_op_failure: bool


class Threads(_Part):
    use_threads: bool
    num_workers: int


class Daemon(_Part):
    enabled: bool
    image: Image
    pod_security_context: PodSecurity
    security_context: ContainerSecurity
    resources: Resources
    run_coordinator: RunCoordinator
    run_monitoring: RunMonitoring
    run_retries: RunRetries
    sensors: Threads


class Pools(_Part):
    default_limit: int
    granularity: Literal["run", "op"]


class Runs(_Part):
    max_concurrent_runs: int
    tag_concurrency_limits: list[dict[str, Any]]


class Concurrency(_Part):
    enabled: bool
    pools: Pools
    runs: Runs


class Port(_Part):
    port: int


class Postgresql(_Part):
    enabled: bool
    postgresql_host: str
    postgresql_username: str
    postgresql_database: str
    postgresql_params: dict[str, str | int]
    postgresql_scheme: str
    service: Port


class ComputeLogManager(_Part):
    type: Literal["NoOpComputeLogManager"]


class PythonLogs(_Part):
    managed_python_loggers: list[str]


class Days(_Part):
    skipped: int
    started: int
    success: int
    failure: int


class TickRetention(_Part):
    purge_after_days: Days


class Retention(_Part):
    enabled: bool
    sensor: TickRetention
    schedule: TickRetention


class Values(_Part):
    global_: Annotated[Global, Field(alias="global")]
    service_account: ServiceAccount
    user_deployments: Annotated[UserDeployments, Field(alias="dagster-user-deployments")]
    run_launcher: RunLauncher
    dagster_webserver: Webserver
    dagster_daemon: Daemon
    concurrency: Concurrency
    postgresql: Postgresql
    generate_postgresql_password_secret: bool
    migrate: Enabled
    compute_log_manager: ComputeLogManager
    python_logs: PythonLogs
    retention: Retention
    telemetry: Enabled
    additional_instance_config: dict[str, Any]
    ingress: Enabled
    rabbitmq: Enabled
    redis: Enabled
