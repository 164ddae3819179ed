"""The commands with curl in docs/service.md, against a service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline_tests.service.conftest import token_in
from memory_pipeline_tests.service.running import RunningService

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing")
def test_the_commands_print_what_the_page_says(lake: Lake, tmp_path: Path) -> None:
    tokens = {
        "TOKEN": token_in(lake, "write", user_id="anna"),
        "ADMIN": token_in(lake, "admin", user_id="anna"),
    }
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    with RunningService(lake.storage.uri, tmp_path) as service:
        environment = {**os.environ, **tokens, "URL": service.url}
        for block in blocks:
            # --json is curl's since 2022.
            commands = re.sub(r"--json ('[^']*')", r"-H 'Content-Type: application/json' -d \1", block)
            done = subprocess.run(
                ["bash", "-ec", commands], env=environment, capture_output=True, text=True, check=True
            )
            for expected in re.findall(r"^# prints: (.*)$", block, re.MULTILINE):
                assert expected in done.stdout, done.stdout
