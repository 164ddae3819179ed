"""The files in `deploy/`, the code and the deployment page agree."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline import settings
from memory_pipeline.definitions import build_definitions
from memory_pipeline.defs.resources import POOLS
from memory_pipeline.settings import PLANS_RANGES, Settings
from memory_pipeline_tests.deploy.commands import fault_of
from memory_pipeline_tests.deploy.reading import DEPLOY, ROOT, compose, read_variables, read_yaml, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
#: Settings of one machine only: a single writer, and the group of a local folder. Ids are defaults of commands.
NOT_FOR_MANY = {"MEMORY_PIPELINE_SINGLE_WRITER", "MEMORY_PIPELINE_GROUP"} | {
    f"MEMORY_PIPELINE_{name}" for name in ("WORKSPACE", "AGENT", "USER")
}
OURS = re.compile(r"\bMEMORY_PIPELINE_[A-Z_]+\b")


def deployed() -> Iterator[tuple[Path, str]]:
    """Yield the files of `deploy/` and the page about them."""
    for path in sorted(DEPLOY.rglob("*")):
        if path.is_file() and path.name != ".env" and "__pycache__" not in path.parts:
            yield path, path.read_text(encoding="utf-8")
    # The cluster test has its own variables.
    yield ROOT / "docs" / "deployment.md", PAGE.partition("\n## Proof")[0]


def known_variables() -> set[str]:
    """Return the project's variables, from the only module that reads them."""
    return {name for name in OURS.findall(settings.__doc__ or "") if not name.endswith("_")}


def test_every_variable_is_read_by_the_code() -> None:
    for path, text in deployed():
        assert set(OURS.findall(text)) <= known_variables(), path


def test_every_variable_can_be_set_in_each_deployment() -> None:
    wanted = known_variables() - NOT_FOR_MANY
    services = compose(read_variables("example.env"))["services"]
    service = read_yaml("helm/service.yaml")["controllers"]["service"]["containers"]["service"]
    pods = read_yaml("helm/values.yaml")["dagster-user-deployments"]["deployments"][0]["env"]
    for name, given in (
        ("compose.yaml", services["worker"]["environment"]),
        ("compose.yaml", services["service"]["environment"]),
        ("helm/service.yaml", service["env"]),
        ("example.env", read_variables("example.env")),
        ("values.yaml", pods),
    ):
        assert {variable for variable in given if OURS.fullmatch(variable)} == wanted, name
        accepted = Settings.from_environment(given)
        assert accepted.start is None
        assert accepted.timezone is None


def test_ranges_are_planned_as_one_event_in_each_deployment() -> None:
    for path in (ROOT / ".env", DEPLOY / "Dockerfile"):
        found = re.findall(rf"^(?:ENV | +)?{PLANS_RANGES}=(\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert found, path
        assert Settings.from_environment({PLANS_RANGES: found[0]}).plans_ranges
    assert PLANS_RANGES in PAGE


def test_pools_are_those_of_the_definitions(tmp_path: Path) -> None:
    definitions = build_definitions(Settings(str(tmp_path / "lake")))
    repository = definitions.get_repository_def()
    in_use = {
        pool
        for job in repository.get_all_jobs()
        for node in job.nodes
        for pool in (node.definition.pool for node in [node] if hasattr(node.definition, "pool"))
        if pool
    }
    assert in_use == set(POOLS)
    raised, kept = (set(names.split()) for names in re.findall(r"for pool in ([\w ]+);", text_of("prepare.sh")))
    assert raised | kept == in_use
    assert not raised & kept
    # The page says which pools may be raised, and prepare.sh raises exactly those.
    documented = dict(re.findall(r"^\| `(memory_\w+)` \|[^|]*\| (yes|no)\b", PAGE, re.MULTILINE))
    assert set(documented) == in_use
    assert {pool for pool, may in documented.items() if may == "yes"} == raised


def test_the_database_is_prepared_by_dagsters_commands() -> None:
    lines = re.findall(r"^ *(dagster .*)$", text_of("prepare.sh"), re.MULTILINE)
    assert len(lines) == 3
    assert {line: fault for line in lines if (fault := fault_of(line.replace('"', "").split()))} == {}


def test_the_image_installs_locked_versions_and_is_tagged_with_the_version() -> None:
    image = text_of("Dockerfile")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    uv = re.search(r"^UV_VERSION = (\S+)$", makefile, re.MULTILINE)
    assert uv
    assert f"uv=={uv[1]}" in image
    assert "--require-hashes" in image
    assert "--constraint requirements.lock" in image
    tag = f"memory-pipeline:{version('memory-pipeline')}"
    assert tag in image
    services = read_yaml("compose.yaml")["services"]
    assert {service["image"] for service in services.values() if "memory-pipeline" in service["image"]} == {tag}
    base = re.search(r"^ARG PYTHON_IMAGE=python:(3\.\d+)\.\d+-slim-\w+$", image, re.MULTILINE)
    assert base
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert base[1] in {"3.11", "3.12", "3.13", "3.14"}
    extra = re.search(r"^ARG EXTRA=(\w+)$", image, re.MULTILINE)
    assert extra
    named = {extra[1], *re.findall(r"EXTRA=(\w+)", "".join(text for _, text in deployed()))}
    for name in named:
        assert re.search(rf"^{name} = \[", project, re.MULTILINE), name


def test_files_copied_into_the_image_exist_and_are_not_ignored() -> None:
    allowed = [line.removeprefix("!") for line in text_of("Dockerfile.dockerignore").splitlines() if line[:1] == "!"]
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", text_of("Dockerfile"), re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert sorted(copied) == sorted(allowed)
    assert all((ROOT / source).exists() for source in copied)


def test_files_named_on_the_page_exist() -> None:
    for path in set(re.findall(r"`((?:deploy|docs|memory_pipeline)/[\w./-]+)`", PAGE)) - {"deploy/.env"}:
        assert (ROOT / path).exists(), path
    for name in {path.name for path, _ in deployed() if path.parent.is_relative_to(DEPLOY)}:
        assert name in PAGE, f"docs/deployment.md does not describe {name}"
