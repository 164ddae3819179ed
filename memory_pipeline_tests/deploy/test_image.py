"""The image: its steps build an environment in which the service runs as Compose starts it. No Docker is needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from memory_pipeline_tests.clients.serving import served
from memory_pipeline_tests.deploy.reading import DEPLOY, ROOT, compose, text_of

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder


class Step(NamedTuple):
    """An instruction of the Dockerfile, such as ``COPY`` with ``a b/``."""

    kind: str
    rest: str


def steps() -> list[Step]:
    """Return the steps of the image, without comments."""
    lines = [line for line in text_of("Dockerfile").splitlines() if line and not line.startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()
    return [Step(*line.split(" ", 1)) for line in whole]


def test_its_instructions_are_known_and_it_runs_without_root() -> None:
    known = {"ARG", "FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "CMD"}
    assert {step.kind for step in steps()} == known
    assert [step.rest.split(":")[0] for step in steps() if step.kind == "USER"] == ["10001"]
    users = [place for place, step in enumerate(steps()) if step.kind == "USER"]
    assert not [step for step in steps()[users[-1] :] if step.kind in {"RUN", "COPY"}]
    assert json.loads(steps()[-1].rest)[0] == "dagster"


def test_a_linter_finds_nothing() -> None:
    program = shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([program, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def environment(shared_folder: SharedFolder) -> Path:
    """The environment that the steps of the build make, from the files that they copy alone."""

    def build(folder: Path) -> None:
        context = folder / "build"
        context.mkdir(parents=True)
        variables = {name: value for name, value in os.environ.items() if not name.startswith("MEMORY_")}
        variables |= {
            "VIRTUAL_ENV": str(folder / "environment"), "UV_LINK_MODE": "symlink", "EXTRA": "cluster",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        made = [sys.executable, "-m", "uv", "venv", "--quiet", "--relocatable", "--python", sys.executable]
        subprocess.run([*made, str(folder / "environment")], check=True, env=variables)
        for step in steps():
            if step.kind == "COPY" and not step.rest.startswith("--from") and not step.rest.startswith("deploy/"):
                *sources, target = step.rest.split()
                for source in sources:
                    copy_into(context, source, target)
            elif step.kind == "RUN" and step.rest.startswith("uv pip install"):
                command = step.rest.replace("--compile-bytecode", "--quiet")  # that takes a minute
                done = subprocess.run(
                    command, shell=True, cwd=context, env=variables, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, done.stderr

    return shared_folder("image", build) / "environment"


def copy_into(context: Path, source: str, target: str) -> None:
    if (ROOT / source).is_dir():
        shutil.copytree(ROOT / source, context / target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(ROOT / source, context / target)


def test_the_programs_of_all_services_are_installed(environment: Path) -> None:
    for name, service in compose({})["services"].items():
        program = (service.get("command") or [""])[0]
        if service["image"].startswith("memory-pipeline:") and program != "sh":
            assert (environment / "bin" / program).exists(), name


def test_the_service_starts_as_in_compose_makes_a_token_and_searches(environment: Path, tmp_path: Path) -> None:
    service = compose({})["services"]["service"]
    program, verb, *options = service["command"]
    command = environment / "bin" / program
    root, home = tmp_path / "lake", tmp_path / "home"
    home.mkdir()
    variables = {"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home)}
    variables |= service["environment"] | {"MEMORY_PIPELINE_ROOT": str(root), "PYTHONDONTWRITEBYTECODE": "1"}

    refused = subprocess.run(
        [command, verb, *options], env=variables, cwd="/", capture_output=True, text=True, check=False
    )
    assert refused.returncode
    assert "memory-pipeline tokens create" in refused.stderr

    made = f"{command} tokens create --workspace acme --agent support --user anna".split()
    token = subprocess.run(made, env=variables, cwd="/", capture_output=True, text=True, check=True).stdout.strip()
    with served(root, *options[:2], "--auto-run", command=[str(command)], variables=variables) as url:
        check = [part.replace("http://127.0.0.1:8765", url) for part in service["healthcheck"]["test"][1:]]
        assert url in check[-1]
        assert subprocess.run(check, env=variables, cwd="/", check=False).returncode == 0
        assert asked(url, "/v1/memories", {"messages": "I moved to Porto."}, token)["accepted"]
        [hit] = asked(url, "/v1/search", {"query": "Where does Anna live?"}, token)["items"]
        assert "Porto" in hit["content"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            asked(url, "/v1/search", {"query": "Porto"}, "wrong")
    assert list(home.iterdir()) == []  # the container's root is read-only


def asked(url: str, path: str, body: dict[str, str], token: str) -> dict[str, list[dict[str, str]]]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        found: dict[str, list[dict[str, str]]] = json.load(response)
        return found
