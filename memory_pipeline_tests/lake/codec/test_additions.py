"""A new column and a new kind of memory each need one declaration."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dbt_like_sql
import memory_pipeline

_REPOSITORY = Path(str(memory_pipeline.__file__)).parent.parent
#: The additions: file, line to insert before, and inserted line.
ADDITIONS = [
    ("domain/facts.py", "\n    @property\n    def placed_operations", "    mood: str | None = None\n"),
    ("lake/schemas.py", "        *EMBEDDING,\n    ],\n    partition_by=(\"period\",)",
     '        field("mood", WORDS, "How it was said?", nullable=True),\n'),
    ("domain/memories/record.py", "    DECISION = ", '    HABIT = "habit"\n'),
]  # fmt: skip


def test_adding_a_column_or_a_kind_requires_only_its_declaration(tmp_path: Path) -> None:
    for package in (memory_pipeline, dbt_like_sql):
        folder = Path(str(package.__path__[0]))
        shutil.copytree(folder, tmp_path / folder.name)
    for name, before, line in ADDITIONS:
        path = tmp_path / "memory_pipeline" / name
        text = path.read_text()
        assert text.count(before) == 1, name
        path.write_text(text.replace(before, line + before))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{_REPOSITORY}"}
    module = "memory_pipeline_tests.lake.codec.additions"
    done = subprocess.run(  # our own
        [sys.executable, "-m", module, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
