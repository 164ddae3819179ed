"""The targets of the Makefile run what they say."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_paths_of_all_targets_exist() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    groups = re.findall(r"\$\(addprefix memory_pipeline_tests/,([^)]+)\)", text)
    paths = [*re.findall(r"memory_pipeline_tests/[\w/]+\.py", text)] + [
        f"memory_pipeline_tests/{name}" for group in groups for name in group.split()
    ]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
