"""The targets of the Makefile run what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_make_quick_collects_its_tests() -> None:
    """pytest-xdist reports a missing path as a run without tests, so the paths of the target are collected here."""
    commands = subprocess.run(
        ["make", "--dry-run", "--always-make", "quick"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    [paths] = re.findall(r"/pytest .*worksteal (.+)", commands.stdout)
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *paths.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
    folders = {Path(path) for path in paths.split()}
    assert all(f"{path.as_posix()}" in found.stdout for path in folders)


def test_the_paths_of_all_targets_exist() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    groups = re.findall(r"\$\(addprefix memory_pipeline_tests/,([^)]+)\)", text)
    paths = [*re.findall(r"memory_pipeline_tests/[\w/]+\.py", text)] + [
        f"memory_pipeline_tests/{name}" for group in groups for name in group.split()
    ]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
