"""What differs between Linux, macOS and Windows. The other two are imitated: see `other_systems`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from memory_pipeline.lake.sql import worker
from memory_pipeline_tests.effort import IS_THOROUGH

#: Windows opens no path of more characters by default, including the folder of the lake.
LONGEST_PATH = 260
#: For the folder of the lake, and the name of a file that is being written.
RESERVED = 60
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


@pytest.mark.parametrize(("platform", "reason"), [("win32", None), ("darwin", "cache")][: 2 if IS_THOROUGH else 1])
def test_a_fresh_interpreter_without_the_functions_of_linux_runs_the_whole_chain(
    platform: str, reason: str | None, tmp_path: Path
) -> None:
    # The process for SQL loses the same functions.
    script = tmp_path / "worker_elsewhere.py"
    script.write_text(
        f"import runpy\nfrom memory_pipeline_tests.other_systems import become\nbecome({platform!r})\n"
        f"runpy.run_path({worker.__file__!r}, run_name='__main__')\n"
    )
    root = tmp_path / "lake"
    command = [sys.executable, "-m", "memory_pipeline_tests.other_systems", platform, str(root), str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert reason is None or reason in result.stdout
    assert "folder" not in result.stdout
    paths = [path.relative_to(root) for path in root.rglob("*")]
    assert len(paths) > 50
    for path in paths:
        assert len(str(path)) + RESERVED <= LONGEST_PATH, path
        for name in path.parts:
            assert not re.search(r'[<>:"\\|?*\x00-\x1f]|[. ]$', name), path
            assert not _DEVICE.fullmatch(name), path
    assert len({str(path).lower() for path in paths}) == len(paths)


def test_muting_panics_hides_native_code_alone_and_only_meanwhile() -> None:
    script = """
import os, sys
from memory_pipeline.operating_system import muted_panics, separate_errors

with muted_panics():
    os.write(2, b"a library speaks\\n")
separate_errors()
os.write(2, b"before\\n")
with muted_panics():
    with muted_panics():
        os.write(2, b"panicked at /rustc/\\n")
    os.write(2, b"panicked at /.cargo/\\n")
    print("Python speaks", file=sys.stderr)
os.write(2, b"after\\n")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["a library speaks", "before", "Python speaks", "after"]
