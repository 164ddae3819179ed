"""What the README says, run: its Python blocks, its commands, and the output that it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.invoking import call

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Return the commands of console blocks: lines after a dollar sign."""
    lines = [line for language, text in BLOCKS if language == "console" for line in text.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def test_the_make_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {command.split()[1] for command in commands() if command.startswith("make ")}
    assert {"demo", "test"} <= named <= targets


def test_the_other_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMORY_PIPELINE_ROOT", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    # The beginning of the sample's year: what the commands show is not compared, and the whole is run elsewhere.
    history = (ROOT / "memory_pipeline" / "sample" / "history.jsonl").read_text(encoding="utf-8").splitlines()
    sample = str(tmp_path / "history.jsonl")
    Path(sample).write_text("\n".join(history[: len(history) // (3 if IS_THOROUGH else 12)]), encoding="utf-8")
    written = [shlex.split(command) for command in commands()]
    typed = [
        [sample if word == "memory_pipeline/sample/history.jsonl" else word for word in words[1:]]
        for words in written
        if words[0].endswith("memory-pipeline")
    ]
    # One process of its own shows that the command line starts; a start for each takes longer than what they do.
    first, *others = typed
    started = subprocess.run(
        [sys.executable, "-m", "memory_pipeline.cli", *first], capture_output=True, text=True, check=False
    )
    assert started.returncode == 0, f"{first}\n{started.stderr}"
    for arguments in others:
        result = call(*arguments)
        assert result.exit_code == 0, f"{arguments}\n{result.exception or result.output}"
    assert len(others) >= 4


@pytest.mark.parametrize("code", [text for language, text in BLOCKS if language == "python"])
def test_the_python_blocks_run(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with names of its own, in a folder of its own, and all in this process: most of them only import."""
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    expected = re.findall(r"# prints: (.*)", code)
    assert expected
    assert capsys.readouterr().out.splitlines() == expected


def test_the_documents_name_only_files_that_exist() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for document in documents:
        for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} names {target}"
