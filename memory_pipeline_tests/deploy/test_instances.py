"""Dagster loads each dagster.yaml, with its database and launcher."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from dagster._config import process_config
from dagster._core.errors import DagsterInvalidConfigError
from dagster._core.instance.config import dagster_instance_config
from dagster._core.instance.ref import InstanceRef
from dagster._core.run_coordinator import QueuedRunCoordinator
from dagster_postgres.storage import DagsterPostgresStorage
from dagster_postgres.utils import pg_url_from_config
from sqlalchemy import create_engine

from memory_pipeline.deployment.celery_launcher import WatchedCeleryRunLauncher
from memory_pipeline_tests.deploy.reading import DEPLOY, read_yaml, variables_of

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

FILES = ["dagster.yaml", "postgres/dagster.yaml", "celery/dagster.yaml"]
#: A password with all special characters of URLs.
VARIABLES = {
    "DAGSTER_PG_HOST": "db.example.org",
    "DAGSTER_PG_PORT": "6543",
    "DAGSTER_PG_USERNAME": "dagster",
    "DAGSTER_PG_PASSWORD": "p@ss/w:rd%25?#",
    "DAGSTER_PG_DB": "runs",
    "DAGSTER_CELERY_BROKER_URL": "redis://:secret@broker.example.org:6379/0",
    "DAGSTER_CELERY_BACKEND_URL": "redis://:secret@broker.example.org:6379/1",
}


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set the variables that the files read."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    return VARIABLES


def home_with(name: str, tmp_path: Path) -> Path:
    """Return a DAGSTER_HOME with a dagster.yaml of `deploy/`."""
    shutil.copy(DEPLOY / name, tmp_path / "dagster.yaml")
    return tmp_path


def engine_of(storage: dict[str, Any]) -> Engine:
    """Return the driver of Dagster's database, without connecting."""
    outcome = process_config(DagsterPostgresStorage.config_type(), storage["postgres"])
    assert outcome.success, outcome.errors
    return create_engine(pg_url_from_config(outcome.value or {}))


@pytest.mark.parametrize("name", FILES)
def test_dagster_accepts_it(name: str, tmp_path: Path, variables: dict[str, str]) -> None:
    values, instance_class = dagster_instance_config(str(home_with(name, tmp_path)))
    assert instance_class is None
    assert values["telemetry"] == {"enabled": False}
    assert values["nux"] == {"enabled": False}
    assert values["concurrency"]["pools"] == {"default_limit": 1, "granularity": "run"}
    assert values["run_monitoring"]["enabled"]
    assert values["python_logs"] == {"managed_python_loggers": ["memory_pipeline"]}


@pytest.mark.parametrize("name", FILES[1:])
def test_the_database_is_reached_by_psycopg2(name: str, variables: dict[str, str]) -> None:
    engine = engine_of(read_yaml(name)["storage"])
    assert engine.url.drivername == "postgresql+psycopg2"
    assert engine.driver == "psycopg2"
    assert (engine.url.host, engine.url.port, engine.url.database) == ("db.example.org", 6543, "runs")
    assert (engine.url.username, engine.url.password) == ("dagster", "p@ss/w:rd%25?#")


def test_dagsters_default_driver_is_another(variables: dict[str, str]) -> None:
    storage = read_yaml("postgres/dagster.yaml")["storage"]
    del storage["postgres"]["postgres_db"]["scheme"]
    with pytest.raises(ModuleNotFoundError, match="psycopg"):  # why the scheme is written out
        engine_of(storage)


@pytest.mark.parametrize("name", FILES[1:])
def test_runs_are_queued_and_retried(name: str, tmp_path: Path, variables: dict[str, str]) -> None:
    reference = InstanceRef.from_dir(str(home_with(name, tmp_path)))
    coordinator = reference.run_coordinator
    assert isinstance(coordinator, QueuedRunCoordinator)
    assert coordinator.dequeue_interval_seconds == 5
    settings: dict[str, Any] = dict(reference.settings)
    assert settings["concurrency"]["runs"]["max_concurrent_runs"] >= 2
    assert settings["run_retries"] == {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False}
    assert settings["run_monitoring"]["max_resume_run_attempts"] == 0


def test_celery_runs_use_the_watching_launcher(tmp_path: Path, variables: dict[str, str]) -> None:
    reference = InstanceRef.from_dir(str(home_with("celery/dagster.yaml", tmp_path)))
    launcher = reference.run_launcher
    assert isinstance(launcher, WatchedCeleryRunLauncher)
    assert launcher.celery.conf.broker_url == VARIABLES["DAGSTER_CELERY_BROKER_URL"]
    assert launcher.celery.conf.result_backend == VARIABLES["DAGSTER_CELERY_BACKEND_URL"]
    assert type(reference.compute_log_manager).__name__ == "NoOpComputeLogManager"


@pytest.mark.parametrize("missing", sorted(VARIABLES))
def test_a_missing_variable_is_named(
    missing: str, tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(missing)
    reference = InstanceRef.from_dir(str(home_with("celery/dagster.yaml", tmp_path)))
    part, kind = (
        (reference.run_launcher_data, WatchedCeleryRunLauncher)
        if "CELERY" in missing
        else (reference.storage_data, DagsterPostgresStorage)
    )
    assert part
    with pytest.raises(DagsterInvalidConfigError, match=missing):
        part.rehydrate(as_type=kind)


def test_files_contain_no_password_and_no_host() -> None:
    for name in FILES[1:]:
        values = read_yaml(name)
        database = values["storage"]["postgres"]["postgres_db"]
        assert {key for key, value in database.items() if variables_of(value)} == set(database) - {"scheme"}
    launcher = read_yaml("celery/dagster.yaml")["run_launcher"]["config"]
    assert variables_of([launcher["broker"], launcher["backend"]]) == {
        "DAGSTER_CELERY_BROKER_URL",
        "DAGSTER_CELERY_BACKEND_URL",
    }


def test_settings_shared_by_deployments_are_equal() -> None:
    alone, workers = read_yaml("postgres/dagster.yaml"), read_yaml("celery/dagster.yaml")
    different = {"run_launcher", "compute_logs", "run_monitoring", "concurrency"}
    assert {key: value for key, value in alone.items() if key not in different} == {
        key: value for key, value in workers.items() if key not in different
    }
