"""The upkeep on the command line: of whom it is done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_pipeline.errors import InputError
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    import pytest

SCOPE = ["--workspace", "acme", "--agent", "support"]


def test_an_agent_that_is_not_there_is_named(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    day = ["--now", "2024-01-15T08:00:00+00:00"]
    read("memories", "remember", "Anna lives in Porto.", *SCOPE, *day)
    for given, message in (
        (["--workspace", "nosuch"], "--workspace 'nosuch'"),
        (["--workspace", "nosuch", "--agent", "support"], "--workspace 'nosuch'"),
        (["--workspace", "acme", "--agent", "nosuch"], "--agent 'nosuch' of workspace acme .*support"),
        (["--workspace", "a/b"], "a/b"),
    ):
        refused = call("upkeep", "--dry-run", *given).exception
        assert isinstance(refused, InputError)
        assert re.search(message, str(refused))
    for given in (SCOPE, SCOPE[:2]):
        assert read("upkeep", "--dry-run", *given)["dry_run"] is True
