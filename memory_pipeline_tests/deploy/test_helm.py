"""The values for Dagster's Helm chart: known keys, and the resulting dagster.yaml."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config
from pydantic import ValidationError

from memory_pipeline_tests.deploy.commands import fault_of
from memory_pipeline_tests.deploy.helm_schema import Values
from memory_pipeline_tests.deploy.reading import read_yaml, text_of
from memory_pipeline_tests.deploy.test_instances import engine_of

if TYPE_CHECKING:
    from pathlib import Path

VALUES = read_yaml("helm/values.yaml")


def made_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return the dagster.yaml that the chart's templates render from values, for the parts set here."""
    daemon, concurrency, database = values["dagsterDaemon"], values["concurrency"], values["postgresql"]
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    monitoring, retries = daemon["runMonitoring"], daemon["runRetries"]
    storage = {
        "postgres_db": {
            "username": database["postgresqlUsername"],
            "password": {"env": "DAGSTER_PG_PASSWORD"},
            "hostname": database["postgresqlHost"],
            "db_name": database["postgresqlDatabase"],
            "port": database["service"]["port"],
            "params": database["postgresqlParams"],
            "scheme": database["postgresqlScheme"],
        }
    }
    return {
        "run_storage": _configured("dagster_postgres.run_storage", "PostgresRunStorage", storage),
        "event_log_storage": _configured("dagster_postgres.event_log", "PostgresEventLogStorage", storage),
        "schedule_storage": _configured("dagster_postgres.schedule_storage", "PostgresScheduleStorage", storage),
        "run_launcher": _configured(
            "dagster_k8s",
            "K8sRunLauncher",
            {
                "load_incluster_config": launcher["loadInclusterConfig"],
                "image_pull_policy": launcher["imagePullPolicy"],
                "service_account_name": values["global"]["serviceAccountName"],
                "dagster_home": values["global"]["dagsterHome"],
                "instance_config_map": "memory-pipeline-dagster-instance",
                "postgres_password_secret": values["global"]["postgresqlSecretName"],
                "fail_pod_on_run_failure": launcher["failPodOnRunFailure"],
                "run_k8s_config": {
                    "container_config": launcher["runK8sConfig"]["containerConfig"],
                    "pod_spec_config": launcher["runK8sConfig"]["podSpecConfig"],
                    "job_spec_config": launcher["runK8sConfig"]["jobSpecConfig"],
                },
            },
        ),
        "run_coordinator": _configured(
            "dagster.core.run_coordinator",
            daemon["runCoordinator"]["type"],
            {
                "dequeue_interval_seconds": daemon["runCoordinator"]["config"]["queuedRunCoordinator"][
                    "dequeueIntervalSeconds"
                ]
            },
        ),
        "run_monitoring": {_snake(name): value for name, value in monitoring.items()},
        "run_retries": {_snake(name): value for name, value in retries.items()},
        "sensors": {_snake(name): value for name, value in daemon["sensors"].items()},
        "concurrency": {
            "pools": {_snake(name): value for name, value in concurrency["pools"].items()},
            "runs": {_snake(name): value for name, value in concurrency["runs"].items()},
        },
        "python_logs": {_snake(name): value for name, value in values["pythonLogs"].items()},
        "retention": {
            name: {"purge_after_days": values["retention"][name]["purgeAfterDays"]} for name in ("sensor", "schedule")
        },
        "telemetry": values["telemetry"],
        **values["additionalInstanceConfig"],
    }


def _configured(module: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"module": module, "class": name, "config": config}


def _snake(name: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", name).lower()


def test_the_chart_knows_every_key() -> None:
    assert Values.model_validate(VALUES)
    for key, wrong in (("runMonitorings", {}), ("concurrency", {**VALUES["concurrency"], "pool": 1})):
        with pytest.raises(ValidationError):
            Values.model_validate({**VALUES, key: wrong})


def test_dagster_accepts_the_rendered_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_PG_PASSWORD", "secret")
    made = made_of(VALUES)
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")
    values, _ = dagster_instance_config(str(tmp_path))
    assert values["nux"] == {"enabled": False}
    engine = engine_of({"postgres": made["run_storage"]["config"]})
    assert (engine.url.drivername, engine.url.query) == ("postgresql+psycopg2", {"sslmode": "require"})


def test_runs_are_stored_as_in_other_deployments() -> None:
    made, workers = made_of(VALUES), read_yaml("celery/dagster.yaml")
    for part in ("run_retries", "retention", "telemetry", "nux", "python_logs", "sensors"):
        assert made[part] == workers[part], part
    assert made["concurrency"]["pools"] == workers["concurrency"]["pools"]
    assert made["run_monitoring"]["max_resume_run_attempts"] == workers["run_monitoring"]["max_resume_run_attempts"]


def test_all_pods_run_the_image_without_root() -> None:
    deployment = VALUES["dagster-user-deployments"]["deployments"][0]
    daemon, web = VALUES["dagsterDaemon"], VALUES["dagsterWebserver"]
    assert deployment["image"] == daemon["image"] == web["image"]
    assert deployment["image"]["tag"] == version("memory-pipeline")
    user = re.search(r"^USER (\d+):(\d+)$", text_of("Dockerfile"), re.MULTILINE)
    assert user
    runs = VALUES["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    for security in (deployment, daemon, web):
        assert security["podSecurityContext"]["runAsUser"] == int(user[1])
        assert security["podSecurityContext"]["runAsGroup"] == int(user[2])
    assert runs["podSpecConfig"]["securityContext"] == deployment["podSecurityContext"]
    assert runs["containerConfig"]["securityContext"] == deployment["securityContext"]
    assert f"DAGSTER_HOME={VALUES['global']['dagsterHome']} " in text_of("Dockerfile")


def test_the_service_is_a_pod_like_the_others() -> None:
    """Its chart has a schema of its own, which refuses unknown keys of a container, a controller and a probe."""
    values = read_yaml("helm/service.yaml")
    controller = values["controllers"]["service"]
    container = controller["containers"]["service"]
    deployment = VALUES["dagster-user-deployments"]["deployments"][0]
    assert container["image"] == deployment["image"]
    assert controller["pod"]["securityContext"] == deployment["podSecurityContext"]
    assert container["securityContext"] == deployment["securityContext"] | {"readOnlyRootFilesystem": True}
    assert controller["serviceAccount"]["name"] == VALUES["global"]["serviceAccountName"]
    assert [one["secretRef"] for one in container["envFrom"]] == deployment["envSecrets"]
    assert container["env"] == deployment["env"] | {"DAGSTER_HOME": ""}
    assert [mount["path"] for mount in values["persistence"]["tmp"]["globalMounts"]] == ["/tmp"]
    port = values["service"]["service"]["ports"]["http"]["port"]
    assert container["args"][container["args"].index("--port") + 1] == str(port)
    assert fault_of(container["args"]) is None
    probes = {name: probe["spec"]["httpGet"] for name, probe in container["probes"].items()}
    assert {get["port"] for get in probes.values()} == {port}
    assert {name: get["path"] for name, get in probes.items()} == {
        "liveness": "/health/live", "startup": "/health/live", "readiness": "/health/ready",
    }  # fmt: skip


def test_the_command_of_the_code_server_is_valid() -> None:
    deployment = VALUES["dagster-user-deployments"]["deployments"][0]
    begun = ["dagster", "api", "grpc", "-h", "0.0.0.0", "-p", str(deployment["port"])]
    assert fault_of([*begun, *deployment["dagsterApiGrpcArgs"]]) is None


def test_the_chart_has_the_version_and_the_limits_of_the_installed_dagster() -> None:
    text = text_of("helm/values.yaml")
    assert f"--version {version('dagster')} " in text
    limits = {int(number) for number in re.findall(r"RUNS_AT_ONCE=(\d+)", text)}
    assert limits == {VALUES["concurrency"]["runs"]["maxConcurrentRuns"]}


def test_it_contains_no_password() -> None:
    assert "postgresqlPassword" not in VALUES["postgresql"]
    assert VALUES["generatePostgresqlPasswordSecret"] is False
    variables = VALUES["dagster-user-deployments"]["deployments"][0]["env"]
    assert not [name for name in variables if re.search("KEY|SECRET|TOKEN|PASSWORD", name)]
