"""The documentation: its examples, commands, configurations and links work, and generated pages are up to date."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from memory_pipeline.configuration import Configuration
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.invoking import call
from memory_pipeline_tests.openai_server import OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline_tests.conftest import SharedFolder

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "benchmarks", "dbt_like_sql", "deploy", "clients/typescript")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))])
DOCUMENTS = [path for path in DOCUMENTS if "node_modules" not in path.parts]
SAMPLE = "memory_pipeline/sample/history.jsonl"


class Block(NamedTuple):
    """A fenced block: the language and, where the fence names one, the file that a command on the page reads."""

    language: str
    file: str
    text: str


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks_of(document: Path) -> list[Block]:
    fences = re.findall(r'^```(\w+)(?: title="(\S+)")?\n(.*?)^```$', text_of(document), re.MULTILINE | re.DOTALL)
    return [Block(*fence) for fence in fences]


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def commands_of(document: Path) -> list[list[str]]:
    """Return the words of each command: the lines of console blocks after a dollar sign."""
    lines = [line for block in blocks_of(document) if block.language == "console" for line in block.text.splitlines()]
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in lines if line.startswith("$ ")]


def examples(language: str) -> list[object]:
    """Return all blocks of a language as parameters, each named after its page."""
    found = [(name_of(page), block) for page in DOCUMENTS for block in blocks_of(page) if block.language == language]
    assert found
    return [pytest.param(block.text, id=f"{page}-{number}") for number, (page, block) in enumerate(found)]


@pytest.fixture
def sample_lake(shared_folder: SharedFolder) -> Path:
    """A lake with the beginning of the sample's year; the whole year is run by the tests of the demo."""

    def fill(folder: Path) -> None:
        folder.mkdir()
        history = (ROOT / SAMPLE).read_text(encoding="utf-8").splitlines()
        sample, lake = folder / "history.jsonl", str(folder / "memory-lake")
        beginning = history[: len(history) // (3 if IS_THOROUGH else 12)]
        of_user = next(line for line in history if '"user_id": "nadia"' in line)
        sample.write_text("\n".join([*beginning, of_user]), encoding="utf-8")
        # Only one command runs in a separate process, because starting takes longer than most commands.
        ingest = [sys.executable, "-m", "memory_pipeline.cli", "ingest", str(sample), "--root", lake]
        started = subprocess.run(ingest, capture_output=True, text=True, check=False)
        assert started.returncode == 0, started.stderr
        assert call("run", "--root", lake).exit_code == 0

    return shared_folder("documentation", fill)


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if commands_of(page)], ids=name_of)
def test_the_commands_of_a_page_run_in_order(
    page: Path, sample_lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("MEMORY_PIPELINE_ROOT", "DAGSTER_HOME"):
        monkeypatch.delenv(variable, raising=False)
    shutil.copytree(sample_lake, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for block in blocks_of(page):
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    for program, *arguments in commands_of(page):
        if program == "make":
            assert arguments[0] in targets
            continue
        assert program == "memory-pipeline"
        result = call(*("history.jsonl" if word == SAMPLE else word for word in arguments))
        assert result.exit_code == 0, f"{arguments}\n{result.exception or result.output}"


@pytest.fixture(scope="module")
def model_server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        server.answer = lambda body: "At noon."
        yield server


@pytest.mark.parametrize("code", examples("python"))
def test_a_python_example_prints_what_it_says(
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model_server: OpenAIServer,
) -> None:
    """Each example has separate names and a folder, but all run in this process, because importing is slow."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})
    expected = re.findall(r"# prints: (.*)", code)
    assert expected
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("text", examples("yaml"))
def test_a_configuration_example_is_accepted(text: str) -> None:
    Configuration.parse(text, "example")


@pytest.mark.parametrize("text", examples("json"))
def test_a_json_example_is_json_or_json_lines(text: str) -> None:
    try:
        assert json.loads(text)
    except json.JSONDecodeError:
        assert all(map(json.loads, text.splitlines()))


def test_the_test_command_that_ci_runs_is_in_the_readme() -> None:
    assert "`make test`" in text_of(ROOT / "README.md")
    assert text_of(ROOT / ".ci" / "run").rstrip().endswith("make test")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text_of(document), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", prose):
        path, _, anchor = target.partition("#")
        named = (document.parent / path).resolve() if path else document
        assert named.exists(), f"{target}: there is no {named}"
        assert named.is_relative_to(ROOT), target
        if anchor:
            assert anchor in anchors_of(named), f"{target}: {name_of(named)} has no such heading"


def anchors_of(document: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    prose = re.sub(r"^```.*?^```$", "", text_of(document), flags=re.MULTILINE | re.DOTALL)
    anchors: Counter[str] = Counter()
    for heading in re.findall(r"^#{1,6} (.+)$", prose, re.MULTILINE):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        anchors[anchor] += 1
    return {f"{one}-{repeat}" if repeat else one for one, count in anchors.items() for repeat in range(count)}


def test_files_that_the_contributing_page_names_exist() -> None:
    named = re.findall(r"`((?:memory_pipeline|dbt_like_sql|docs|deploy)/[\w./-]*)`", text_of(ROOT / "CONTRIBUTING.md"))
    assert len(named) > 30
    for path in named:
        assert (ROOT / path).exists(), path


def test_tests_that_the_security_page_names_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text_of(ROOT / "docs" / "security.md"))
    assert len(named) > 50
    for path, name in named:
        assert f"\ndef {name}(" in text_of(ROOT / "memory_pipeline_tests" / path), f"{path}::{name}"


def test_the_site_has_an_index_for_models_and_the_source_of_each_page(tmp_path: Path) -> None:
    names = runpy.run_path(str(ROOT / "docs" / "generate_llms.py"))
    pages, site = tmp_path / "pages", tmp_path / "site"
    site.mkdir()
    nav = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    listed = re.findall(r'= "([\w/.-]+\.md)"', nav)
    for name in listed:
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, pages / name)
    names["write"](pages, site)
    index = (site / "llms.txt").read_text(encoding="utf-8")
    title, blank, about, *_ = index.splitlines()
    assert title.startswith("# ")
    assert (blank, about[:2]) == ("", "> ")
    assert index.count("\n## Optional\n") == 1
    lines = [line for line in index.splitlines() if line.startswith("- ")]
    links = [re.fullmatch(r"- \[[^\]]+\]\(([^)]+)\): \S.+", line) for line in lines]
    assert [link[1] for link in links if link] == listed
    for name in listed:
        assert text_of(site / name) == text_of(ROOT / name)


def test_the_readme_describes_each_page_of_the_site() -> None:
    """The index for models has its lines."""
    listed = re.findall(r'= "([\w/.-]+\.md)"', text_of(ROOT / "zensical.toml"))
    table = text_of(ROOT / "README.md").partition("\n## Where to go next\n")[2]
    assert sorted({"README.md", *re.findall(r"\]\(([^)]+)\)", table)}) == sorted(listed)


@pytest.mark.parametrize("file", ["reference.md", "api.md", "openapi.json"])
def test_a_generated_page_is_up_to_date(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    page = runpy.run_path(str(ROOT / "docs" / f"generate_{Path(file).stem}.py"))["page"]()
    assert text_of(ROOT / "docs" / file) == page, "run `make docs`"
