"""The command `consolidate`: selection of agents, and data that is not loaded yet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_pipeline.errors import InputError
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    import pytest

SCOPE = ["--workspace", "acme", "--agent", "support"]


def test_an_unknown_agent_or_workspace_is_an_error_that_names_it(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    day = ["--now", "2024-01-15T08:00:00+00:00"]
    read("memories", "remember", "Anna lives in Porto.", *SCOPE, *day)
    for given, message in (
        (["--workspace", "nosuch"], "--workspace 'nosuch'"),
        (["--workspace", "nosuch", "--agent", "support"], "--workspace 'nosuch'"),
        (["--workspace", "acme", "--agent", "nosuch"], "--agent 'nosuch' of workspace acme .*support"),
        (["--workspace", "a\x07b"], "workspace_id"),
    ):
        refused = call("consolidate", "--dry-run", *given).exception
        assert isinstance(refused, InputError)
        assert re.search(message, str(refused))
    for given in (SCOPE, SCOPE[:2]):
        assert read("consolidate", "--dry-run", *given)["dry_run"] is True


def test_unloaded_hours_are_reported_with_the_command_to_run_first(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    read("memories", "remember", "Anna lives in Porto.", *SCOPE, "--now", "2024-01-15T08:00:00+00:00")
    for now in ("2024-01-15T09:00:00+00:00", "2024-01-16T09:00:00+00:00"):
        for given in ([], ["--dry-run"], SCOPE):
            assert "memory-pipeline run" in call("consolidate", "--now", now, *given).output
            assert read("consolidate", "--now", now, *given)["unloaded_hours"] == ["2024-01-15T08"]
    assert "2024-01-16 00:00" in call("consolidate", "--now", "2024-01-15T09:00:00+00:00").output
    read("run", "--now", "2024-01-15T09:00:00+00:00")
    assert read("consolidate", "--now", "2024-01-16T09:00:00+00:00")["unloaded_hours"] == []

    read("memories", "remember", "Bo likes figs.", "--workspace", "acme", "--agent", "sales", "--now", "2024-01-16")
    assert read("consolidate", "--now", "2024-01-17", *SCOPE)["unloaded_hours"] == []
    assert read("consolidate", "--now", "2024-01-17")["unloaded_hours"] == ["2024-01-16T00"]
