"""The TypeScript client: its types are those of the service, and its own tests pass against it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline_tests.clients.serving import served, token_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline_tests.conftest import SharedFolder

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "typescript"
DOCUMENT = ROOT / "docs" / "openapi.json"
_OLDEST_NODE = 20
#: Errors of npm that tell that the registry cannot be reached.
_UNREACHABLE = re.compile(r"\b(E4\d\d|E5\d\d|ENOTFOUND|ECONN\w+|EAI_AGAIN|ETIMEDOUT)\b")


def test_the_types_are_those_of_the_openapi_document() -> None:
    found = re.search(r"sha256 of that document: (\w+)", (CLIENT / "src" / "openapi.ts").read_text(encoding="utf-8"))
    assert found
    assert found[1] == sha256(DOCUMENT.read_bytes()).hexdigest(), "run `make docs`"


def test_the_lock_file_names_no_registry_and_has_all_digests() -> None:
    packages = json.loads((CLIENT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    del packages[""]
    assert len(packages) > 10
    for name, package in packages.items():
        assert package.get("resolved", "https://registry.npmjs.org/").startswith("https://registry.npmjs.org/"), name
        assert package["integrity"].startswith("sha512-"), name


def test_it_needs_no_other_package() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert not package.keys() & {"dependencies", "peerDependencies", "optionalDependencies"}


@pytest.fixture(scope="module")
def folder(shared_folder: SharedFolder) -> Path:
    """A copy of the client with its development packages. Without Node or a registry, its tests are skipped."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        pytest.skip("Node.js and npm are not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < _OLDEST_NODE:
        pytest.skip(f"Node.js {version} is too old")

    def install(copy: Path) -> None:
        shutil.copytree(CLIENT, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
        installed = run(copy, npm, "ci", "--ignore-scripts", "--prefer-offline")
        if installed.returncode and _UNREACHABLE.search(installed.stdout):
            pytest.skip(f"the packages cannot be downloaded: {installed.stdout[-500:]}")
        assert installed.returncode == 0, installed.stdout
        compiled = run(copy, npm, "run", "build")
        assert compiled.returncode == 0, compiled.stdout

    return shared_folder("typescript", install)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A service; yields the variables of its address and tokens."""
    root = tmp_path_factory.mktemp("service") / "lake"
    tokens = {
        "MEMORY_TOKEN": token_of(root, "--level", "admin", "--many-users"),
        "MEMORY_READING_TOKEN": token_of(root, "--level", "read", "--user", "reader"),
    }
    with served(root) as url:
        yield {"MEMORY_URL": url, **tokens}


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=os.environ | variables, text=True, check=False, timeout=600,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_its_tests_pass_against_the_service(folder: Path, service: dict[str, str]) -> None:
    tested = run(folder, "node", "--test", "--test-reporter=tap", "dist/tests/", **service)
    failed = re.findall(r"^ *not ok .*\n(?:.*\n){,20}", tested.stdout, re.MULTILINE)
    assert tested.returncode == 0, "\n".join(failed) or tested.stdout
    passed = re.search(r"^# pass (\d+)$", tested.stdout, re.MULTILINE)
    assert passed
    assert int(passed[1]) > 20


def test_the_generated_types_are_up_to_date(folder: Path) -> None:
    made = run(folder, "node", "generate.mjs", str(DOCUMENT), "made.ts")
    assert made.returncode == 0, made.stdout
    assert (folder / "made.ts").read_bytes() == (CLIENT / "src" / "openapi.ts").read_bytes(), "run `make docs`"


def test_the_program_of_the_readme_works_in_another_project(
    folder: Path, service: dict[str, str], tmp_path: Path
) -> None:
    """It is compiled, strictly, and run with the package as it is published."""
    page = (CLIENT / "README.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```ts\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    packed = run(folder, "npm", "pack", "--ignore-scripts", "--pack-destination", str(tmp_path))
    assert packed.returncode == 0, packed.stdout
    project = folder / "other"  # TypeScript and the AI SDK are found in the folder above
    project.mkdir()
    [archive] = tmp_path.glob("*.tgz")
    installed = run(project, "npm", "install", "--prefix", ".", "--offline", "--ignore-scripts", str(archive))
    assert installed.returncode == 0, installed.stdout
    (project / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (project / "program.ts").write_text(program, encoding="utf-8")
    options = ("--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "--types", "node")
    compiled = run(project, "../node_modules/.bin/tsc", *options, "program.ts")
    assert compiled.returncode == 0, compiled.stdout
    printed = run(project, "node", "program.js", **service)
    assert printed.returncode == 0, printed.stdout
    assert printed.stdout.splitlines() == re.findall(r"// prints: (.*)", program)
