"""compose.yaml is valid, and its services fit together and to the mounted files."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from memory_pipeline_tests.deploy.commands import fault_of
from memory_pipeline_tests.deploy.compose_schema import Compose, Service
from memory_pipeline_tests.deploy.reading import (
    DEPLOY,
    ROOT,
    compose,
    read_variables,
    read_yaml,
    text_of,
    variables_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_pipeline_tests.s3_server import S3Server

SECRETS = {"DAGSTER_PG_PASSWORD": "a1b2c3", "REDIS_PASSWORD": "d4e5f6"}
INSTANCE, WORKSPACE = "/opt/dagster/dagster_home/dagster.yaml", "/opt/dagster/workspace.yaml"
PROGRAMS = {"memory-pipeline", "dagster", "dagster-daemon", "dagster-webserver", "celery"}
#: Services that run the pipeline's code.
WITH_LAKE = {"service", "code", "worker"}
DAGSTER = {"postgres", "redis", "prepare", "code", "web", "daemon", "worker"}


@pytest.fixture
def services() -> dict[str, Service]:
    """Return the services if only the passwords are set."""
    return Compose.model_validate(compose({**read_variables("example.env"), **SECRETS})).services


def mounts(service: Service) -> dict[str, str]:
    """Return the mounts: path in the container, and file or volume of the host."""
    pairs = (mount.removesuffix(":ro").split(":") for mount in service.volumes)
    return {inside: outside for outside, inside in pairs}


def command_lines(services: dict[str, Service]) -> Iterator[list[str]]:
    """Yield the commands of the image's programs, including health checks."""
    for service in services.values():
        check = service.healthcheck.test if service.healthcheck else []
        for words in (service.command or [], check[1:]):
            line = shlex.split(words[0]) if len(words) == 1 else words
            if line and line[0] in PROGRAMS:
                yield line


def test_the_service_starts_alone_and_profiles_add_the_rest(services: dict[str, Service]) -> None:
    profiles = {
        profile: {name for name, service in services.items() if profile in service.profiles}
        for profile in ("dagster", "postgres", "minio")
    }
    assert profiles == {"dagster": DAGSTER, "postgres": {"postgres"}, "minio": {"minio", "bucket"}}
    assert {name for name, service in services.items() if not service.profiles} == {"service"}
    for name, service in services.items():
        for needed, how in service.depends_on.items():
            # What another profile has is waited for only if that is chosen.
            assert set(service.profiles or ["none"]) <= set(services[needed].profiles) or not how.required, name


def test_the_service_needs_no_file_of_secrets_and_no_variable() -> None:
    service = Service.model_validate(compose({})["services"]["service"])
    assert [file.required for file in service.env_file] == [False]
    assert service.environment["MEMORY_PIPELINE_ROOT"] == "/lake"


@pytest.mark.parametrize(("name", "secret"), [("redis", "REDIS_PASSWORD"), ("minio", "MINIO_ROOT_USER")])
def test_a_server_without_its_secret_does_not_start(services: dict[str, Service], name: str, secret: str) -> None:
    """PostgreSQL's image refuses an empty password by itself."""
    shell = services[name].entrypoint or services[name].command or []
    assert shell[0] == "sh"
    for value, message in (("", "deploy/.env"), ("a1b2c3d4", "not found")):
        variables = {"PATH": "/usr/bin:/bin", "MINIO_ROOT_PASSWORD": "a1b2c3d4", secret: value}
        script = [*shell[:-1], shell[-1].replace("exec ", "exec ./")]  # no such program is here
        done = subprocess.run(script, capture_output=True, text=True, check=False, env=variables, cwd="/")
        assert done.returncode
        assert message in done.stderr


def test_the_service_is_locked_in_and_waits_for_its_requests(services: dict[str, Service]) -> None:
    service = services["service"]
    assert service.read_only
    assert mounts(service) == {"/lake": "lake"}
    assert service.command
    assert service.command[service.command.index("--port") + 1] == service.ports[0].rpartition(":")[2]
    assert service.healthcheck
    assert f":{service.ports[0].rpartition(':')[2]}/health/live" in service.healthcheck.test[-1]
    assert service.stop_grace_period == "1m"  # the grace of the server is 10 seconds


@pytest.mark.parametrize("profile", ["", "dagster", "postgres", "minio"])
def test_compose_itself_accepts_it(profile: str, tmp_path: Path) -> None:
    program = shutil.which("docker-compose")
    plugin = ["docker", "compose"] if shutil.which("docker") else []
    command = [program] if program else plugin
    if not command or subprocess.run([*command, "version"], capture_output=True, check=False).returncode:
        pytest.skip("Docker Compose is not installed")
    shutil.copy(DEPLOY / "compose.yaml", tmp_path)
    options = ["--profile", profile] if profile else []
    listed = subprocess.run(
        [*command, "--file", str(tmp_path / "compose.yaml"), *options, "config", "--services"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert listed.returncode == 0, listed.stderr
    expected = {"": set(), "dagster": DAGSTER, "postgres": {"postgres"}, "minio": {"minio", "bucket"}}[profile]
    assert set(listed.stdout.split()) == {"service", *expected}


def test_two_workers_take_the_queues_runs(services: dict[str, Service]) -> None:
    workers = services["worker"].deploy.replicas
    assert workers == 2
    assert read_yaml("celery/dagster.yaml")["concurrency"]["runs"]["max_concurrent_runs"] == workers
    assert services["prepare"].environment["RUNS_AT_ONCE"] == str(workers)


def test_every_dagster_process_has_the_variables_of_its_files(services: dict[str, Service]) -> None:
    seen = set()
    for name, service in services.items():
        for inside, outside in mounts(service).items():
            if inside in {INSTANCE, WORKSPACE}:
                needed = variables_of(read_yaml(outside))
                assert needed <= set(service.environment), (name, needed - set(service.environment))
                seen.add((name, inside))
    assert {name for name, inside in seen if inside == INSTANCE} == {"prepare", "code", "web", "daemon", "worker"}
    assert {name for name, inside in seen if inside == WORKSPACE} >= {"web", "daemon"}


def test_addresses_name_services(services: dict[str, Service]) -> None:
    instance = services["web"].environment
    assert services[instance["DAGSTER_PG_HOST"]].environment["POSTGRES_PASSWORD"] == instance["DAGSTER_PG_PASSWORD"]
    database = services[instance["DAGSTER_PG_HOST"]].environment
    assert (database["POSTGRES_USER"], database["POSTGRES_DB"]) == (
        instance["DAGSTER_PG_USERNAME"],
        instance["DAGSTER_PG_DB"],
    )
    for name in ("DAGSTER_CELERY_BROKER_URL", "DAGSTER_CELERY_BACKEND_URL"):
        match = re.fullmatch(r"redis://:(\w+)@(\w+):6379/[01]", instance[name])
        assert match
        assert services[match[2]].environment["REDIS_PASSWORD"] == match[1] == SECRETS["REDIS_PASSWORD"]
    code = services[instance["DAGSTER_CODE_HOST"]]
    assert code.command
    assert code.command[code.command.index("--port") + 1] == instance["DAGSTER_CODE_PORT"]
    assert code.healthcheck
    assert code.healthcheck.test[-1] == instance["DAGSTER_CODE_PORT"]
    web = services["web"]
    assert web.command
    assert web.command[web.command.index("--port") + 1] == web.ports[0].rpartition(":")[2]


def test_the_workers_settings_are_read_from_their_environment(
    services: dict[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = services["worker"]
    file = DEPLOY / "celery" / "dagster_celery_config.py"
    assert f"COPY deploy/celery/{file.name} {worker.environment['PYTHONPATH']}/" in text_of("Dockerfile")
    for name, value in worker.environment.items():
        monkeypatch.setenv(name, value)
    settings = runpy.run_path(str(file))
    # The launcher and the workers use the same broker and backend.
    assert settings["broker_url"] == worker.environment["DAGSTER_CELERY_BROKER_URL"]
    assert settings["result_backend"] == worker.environment["DAGSTER_CELERY_BACKEND_URL"]
    assert (settings["worker_concurrency"], settings["worker_disable_prefetch"]) == (1, True)
    shared = read_yaml("celery/dagster.yaml")["run_launcher"]["config"]["config_source"]
    assert shared == {name: settings[name] for name in shared}
    from celery.app.defaults import NAMESPACES, flatten

    known = {name for name, _ in flatten(NAMESPACES)}
    assert {name for name in settings if name.islower() and not name.startswith("_")} - {"os", "annotations"} <= known


def test_services_that_use_the_lake_have_its_address(services: dict[str, Service]) -> None:
    for name, service in services.items():
        lake = {variable for variable in service.environment if variable.startswith("MEMORY_PIPELINE_")}
        assert bool(lake) == (name in WITH_LAKE), name
        if lake:
            assert service.environment["MEMORY_PIPELINE_ROOT"] == "/lake"
            assert mounts(service)["/lake"] == "lake"
            assert [file.path for file in service.env_file] == [".env"]


def test_commands_are_those_of_the_installed_programs(services: dict[str, Service]) -> None:
    lines = list(command_lines(services))
    assert len(lines) == 8
    assert {line[0] for line in lines} == PROGRAMS
    assert {" ".join(line): fault for line in lines if (fault := fault_of(line))} == {}
    assert fault_of(["dagster", "api", "grpc", "--modul", "memory_pipeline.definitions"])
    assert fault_of(["dagster-daemon", "liveness"])


def test_commands_name_existing_files(services: dict[str, Service]) -> None:
    image = text_of("Dockerfile")
    for name, service in services.items():
        paths = {word for word in service.command or [] if re.fullmatch(r"/opt/dagster/[\w./]+", word)}
        copied = {f"/opt/dagster/{file}" for file in re.findall(r"COPY deploy/(\w+\.\w+) /opt/dagster/", image)}
        assert paths <= {*mounts(service), *copied}, name
        for outside in mounts(service).values():
            assert not outside.startswith("./") or (DEPLOY / outside).is_file(), outside


def test_services_wait_for_their_dependencies(services: dict[str, Service]) -> None:
    for name, service in services.items():
        for needed, how in service.depends_on.items():
            assert needed in services
            assert how.condition != "service_healthy" or services[needed].healthcheck, (name, needed)
    prepared = {name for name, service in services.items() if "prepare" in service.depends_on}
    assert prepared == {"code", "worker"}  # and the services that depend on them


def test_only_the_service_and_web_pages_are_published_and_only_on_this_machine(services: dict[str, Service]) -> None:
    assert {name: service.ports for name, service in services.items() if service.ports} == {
        "service": ["127.0.0.1:8765:8765"],
        "web": ["127.0.0.1:3000:3000"],
    }
    ours = [service for service in services.values() if service.image.startswith("memory-pipeline:")]
    assert len(ours) == 7
    assert all(service.cap_drop == ["ALL"] and service.init for service in ours)


def test_persistent_data_is_in_volumes(services: dict[str, Service]) -> None:
    named = Compose.model_validate(compose({**read_variables("example.env"), **SECRETS})).volumes
    used = {outside for service in services.values() for outside in mounts(service).values() if "/" not in outside}
    assert used == set(named) == {"postgres", "redis", "lake", "minio"}


def test_the_example_of_secrets_contains_none() -> None:
    given = read_variables("example.env")
    assert {name: given[name] for name in SECRETS} == dict.fromkeys(SECRETS, "")
    wanted = set(re.findall(r"(?<!\$)\$\{(\w+)", text_of("compose.yaml")))
    commented = set(re.findall(r"^#(\w+)=", text_of("example.env"), re.MULTILINE))
    assert set(given) <= wanted <= set(given) | commented
    assert "deploy/.env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_bucket_is_made_once(
    services: dict[str, Service], s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = services["bucket"].command or []
    assert command[:2] == ["python", "-c"]
    bucket = re.search(r'Bucket="(\w+)"', command[2])
    assert bucket
    assert f"s3://{bucket[1]}/" in text_of("example.env")
    for name, value in services["bucket"].environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for _ in range(2):
        exec(compile(command[2], "bucket", "exec"), {})
